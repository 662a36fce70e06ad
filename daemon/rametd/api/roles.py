"""What each principal may call. The owner may everything; a session may look, and nothing that changes what it or another may do."""

READS = frozenset(
    {
        "/ramet.v1.DaemonService/GetInfo",
        "/ramet.v1.RepoService/GetRepo",
        "/ramet.v1.RepoService/ListRepos",
        "/ramet.v1.SessionService/GetSession",
        "/ramet.v1.SessionService/ListSessions",
        "/ramet.v1.SessionService/WaitSessions",
        "/ramet.v1.EventService/ListEvents",
        "/ramet.v1.EventService/WatchEvents",
        "/ramet.v1.AttentionService/ListRequests",
        "/ramet.v1.AttentionService/GetRequest",
        "/ramet.v1.WorktreeService/GetDiff",
    }
)

ALWAYS = frozenset({"/ramet.v1.DaemonService/GetInfo", "/ramet.v1.DaemonService/Shutdown"})
"""Served during recovery and to clients of every release."""


def allowed(method: str, principal_is_owner: bool) -> bool:
    """Whether a call may be made; ``method`` is its full name, such as ``/ramet.v1.SessionService/GetSession``."""
    return principal_is_owner or method in READS or not method.startswith("/ramet.")
