"""What `inbox`, `approve`, `deny` and `answer` share: find requests, answer one, say what has become of it."""

from typing import TYPE_CHECKING

from rametctl.options import new_request_id

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    pages = connection.pages(lambda daemon: daemon.attention.ListRequests, attention_pb2.ListRequestsRequest())
    return [request for page in pages for request in page.requests]


def by_urgency(requests: "Sequence[AttentionRequest]") -> "tuple[list[AttentionRequest], list[AttentionRequest]]":
    """Those that block work, then those that want a look at finished work; both as they came."""
    from rametctl.render.request import kind_name

    blocking = [request for request in requests if kind_name(request) != "review"]
    return blocking, [request for request in requests if kind_name(request) == "review"]


def resolve(app: "App", reference: str, resolution: "Resolution") -> None:
    """Answer a request and say so."""
    from ramet.v1 import attention_pb2

    request = attention_pb2.ResolveRequestRequest(request=reference, resolution=resolution, request_id=new_request_id())
    response = app.connection.call(lambda daemon: daemon.attention.ResolveRequest, request)
    answer = response.request
    has_rule = response.HasField("rule")
    if app.output.json_mode:
        from ramet.jsonify import to_json

        app.output.json(to_json(answer) | {"rule": to_json(response.rule) if has_rule else None})
        return
    from rametctl.lines import line
    from rametctl.render.request import shown_decision, title

    name = answer.session_name or answer.session_id
    app.output.show(line((name, "bold"), f"  {title(answer)}  ", (shown_decision(answer), "green")))
    if has_rule:
        from rametctl.render.rule import rule_text

        app.output.show(
            line(f"from now on: {rule_text(response.rule, answer.session_name)}", indent=2),
            line((f"to take it back: rametctl rules rm {response.rule.id}", "dim"), indent=2),
        )
