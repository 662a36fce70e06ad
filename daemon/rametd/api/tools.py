"""The tools of agents: OrchestrationService as an MCP server."""

from google.protobuf.message import Message
from ramet.mcp import SERVICE, ToolRefused, ToolServer

from rametd.api.context import principal
from rametd.api.interceptor import OUR_FAULTS, internal, record_refusal
from rametd.api.orchestration import OrchestrationServicer
from rametd.domain.errors import RametError
from rametd.services.core import Core
from rametd.services.delivery import SESSION


def tool_server(core: Core, servicer: OrchestrationServicer, session_id: str) -> ToolServer:
    """The MCP server of one session: its calls are made as that session."""

    async def call(method: str, request: Message, key: str) -> Message:
        token = principal.set(SESSION + session_id)
        try:
            response: Message = await getattr(servicer, method)(request, None)
        except RametError as error:
            await record_refusal(core, f"/{SERVICE.full_name}/{method}", principal.get(), error)
            raise ToolRefused(f"{error.message}; {error.hint}" if error.hint else error.message) from error
        except OUR_FAULTS as error:
            # Without an answer the agent would wait for ever.
            raise ToolRefused(internal(method, error).message) from error
        finally:
            principal.reset(token)
        return response

    return ToolServer(call)
