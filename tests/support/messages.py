"""Messages as the daemon sends them."""

import json

from ramet.v1 import attention_pb2


def a_request(
    kind: attention_pb2.AttentionKind.ValueType, data: object, tool: str = ""
) -> attention_pb2.AttentionRequest:
    """Return a request of the session ``fix`` as the daemon sends it."""
    return attention_pb2.AttentionRequest(
        id="0123456789abcdef", session_name="fix", kind=kind, input_json=json.dumps(data), tool=tool
    )
