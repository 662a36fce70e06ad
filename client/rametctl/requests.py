"""What `approve`, `deny` and `answer` share: find a request, answer it, say what has become of it."""

from typing import TYPE_CHECKING

from rametctl.options import new_request_id

if TYPE_CHECKING:
    from ramet.v1.attention_pb2 import AttentionRequest, Resolution

    from rametctl.app import App
    from rametctl.connection import Connection


def get_request(app: "App", reference: str) -> "AttentionRequest":
    """By id, unique prefix, or a session with exactly one open request."""
    from ramet.v1 import attention_pb2

    return app.connection.call(
        lambda daemon: daemon.attention.GetRequest,
        attention_pb2.GetRequestRequest(request=reference),
    ).request


def open_requests(connection: "Connection") -> list["AttentionRequest"]:
    """All that wait, oldest first."""
    from ramet.v1 import attention_pb2

    found: list[AttentionRequest] = []
    token = ""
    while True:
        page = connection.call(
            lambda daemon: daemon.attention.ListRequests,
            attention_pb2.ListRequestsRequest(page_size=1000, page_token=token),
        )
        found += page.requests
        token = page.next_page_token
        if not token:
            return found


def resolve(app: "App", reference: str, resolution: "Resolution") -> None:
    """Answer a request and say so."""
    from ramet.v1 import attention_pb2

    request = attention_pb2.ResolveRequestRequest(request=reference, resolution=resolution, request_id=new_request_id())
    answer = app.connection.call(lambda daemon: daemon.attention.ResolveRequest, request).request
    if app.output.json_mode:
        from ramet.jsonify import to_json

        app.output.json(to_json(answer))
        return
    from rametctl.lines import line, printable
    from rametctl.render.request import shown_decision, title

    name = printable(answer.session_name or answer.session_id)
    app.output.show(line((name, "bold"), f"  {title(answer)}  ", (shown_decision(answer), "green")))
