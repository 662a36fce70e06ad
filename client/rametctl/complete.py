"""Names and paths for the shell's completion: quick and silent, without starting a daemon."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypedDict, TypeVar

from ramet.visible import visible

from rametctl.app import App
from rametctl.errors import ClientError

if TYPE_CHECKING:
    from rametctl.connection import Connection

Response = TypeVar("Response")


class Quick(TypedDict):
    timeout: float
    retry: bool


QUICK: Quick = {"timeout": 1.0, "retry": False}


def session_names(app: object, incomplete: str, *, asking: bool = False) -> list[str]:
    """Names that begin with ``incomplete``, of those with an open request if ``asking``; none where no daemon answers."""
    from ramet.v1 import session_pb2

    request = session_pb2.ListSessionsRequest(page_size=1000)
    page = _ask(app, lambda connection: connection.call(lambda daemon: daemon.sessions.ListSessions, request, **QUICK))
    return _fitting((each.name for each in page.sessions if each.attention or not asking) if page else (), incomplete)


def agent_names(app: object, incomplete: str) -> list[str]:
    """Kinds of agents whose names begin with ``incomplete``; none where no daemon answers."""
    from ramet.v1 import daemon_pb2

    request = daemon_pb2.ListAgentsRequest()
    answer = _ask(app, lambda connection: connection.call(lambda daemon: daemon.daemon.ListAgents, request, **QUICK))
    return _fitting((each.name for each in answer.agents) if answer else (), incomplete)


def changed_paths(app: object, session: str, incomplete: str) -> list[str]:
    """Paths that ``session`` has changed and that begin with ``incomplete``; none where no daemon answers."""
    from ramet.v1 import worktree_pb2

    request = worktree_pb2.GetDiffRequest(session=session, stat_only=True)
    diff = _ask(app, lambda connection: connection.call(lambda daemon: daemon.worktrees.GetDiff, request, **QUICK))
    return _fitting((each.path for each in diff.files) if diff else (), incomplete)


def _ask(app: object, ask: "Callable[[Connection], Response]") -> "Response | None":
    if not isinstance(app, App):
        return None
    try:
        return ask(app.connect(autostart=False))
    except ClientError:
        # Messages on the terminal would appear in the middle of the typed line.
        return None


def _fitting(texts: "Iterable[str]", incomplete: str) -> list[str]:
    return sorted({text for text in texts if text.startswith(incomplete) and visible(text) == text})
