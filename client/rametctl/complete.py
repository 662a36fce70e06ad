"""Session names for the shell's completion: quick, silent, and never the cause of a daemon."""

from ramet.visible import visible

from rametctl.app import App
from rametctl.errors import ClientError

TIMEOUT = 1.0


def session_names(app: object, incomplete: str, *, asking: bool = False) -> list[str]:
    """Names that begin with ``incomplete``, of those with an open request if ``asking``; none where no daemon answers."""
    if not isinstance(app, App):
        return []
    from ramet.v1 import session_pb2

    try:
        page = app.connect(autostart=False).call(
            lambda daemon: daemon.sessions.ListSessions,
            session_pb2.ListSessionsRequest(page_size=1000),
            timeout=TIMEOUT,
            retry=False,
        )
    except ClientError:
        # Words on the terminal would land in the middle of the line that is being typed.
        return []
    names = {
        session.name
        for session in page.sessions
        if session.name.startswith(incomplete) and (session.attention or not asking)
    }
    return sorted(name for name in names if visible(name) == name)
