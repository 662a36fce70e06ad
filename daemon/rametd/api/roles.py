"""The RPCs that each principal may call. The owner may call all; a session may read, and act on its
family within the caps; a command without a session may only read."""

from rametd.domain.models import OWNER
from rametd.services.delivery import SESSION

SESSION_METHODS = frozenset(
    {
        "/ramet.v1.DaemonService/GetInfo",
        "/ramet.v1.RepoService/GetRepo",
        "/ramet.v1.RepoService/GetTrust",
        "/ramet.v1.RepoService/ListRepos",
        "/ramet.v1.SessionService/CreateSession",  # a child
        "/ramet.v1.SessionService/GetSession",
        "/ramet.v1.SessionService/ListSessions",
        "/ramet.v1.SessionService/SendPrompt",  # a message to its family
        "/ramet.v1.SessionService/StopSession",  # a descendant
        "/ramet.v1.SessionService/WaitSessions",
        "/ramet.v1.EventService/ListEvents",
        "/ramet.v1.EventService/WatchEvents",
        "/ramet.v1.AttentionService/ListRequests",
        "/ramet.v1.AttentionService/GetRequest",
        "/ramet.v1.TerminalService/StartCommand",  # in its own worktree
        "/ramet.v1.TerminalService/StopCommand",  # as above
        "/ramet.v1.TerminalService/ListCommands",
        "/ramet.v1.TerminalService/GetCommand",
        "/ramet.v1.TerminalService/WatchOutput",
        "/ramet.v1.TerminalService/ListPorts",
        "/ramet.v1.WorktreeService/GetDiff",
        "/ramet.v1.WorktreeService/ListConflicts",
        "/ramet.v1.WorktreeService/WatchConflicts",
        "/ramet.v1.PlanService/CheckPlan",
        "/ramet.v1.PlanService/GetPlan",
        "/ramet.v1.PlanService/ListPlans",
        "/ramet.v1.OrchestrationService/SpawnSession",
        "/ramet.v1.OrchestrationService/ListFamily",
        "/ramet.v1.OrchestrationService/GetMember",
        "/ramet.v1.OrchestrationService/GetMemberDiff",
        "/ramet.v1.OrchestrationService/GetTranscript",
        "/ramet.v1.OrchestrationService/SendMessage",
        "/ramet.v1.OrchestrationService/ReadMessages",
        "/ramet.v1.OrchestrationService/WaitForMembers",
        "/ramet.v1.OrchestrationService/StopMember",
        "/ramet.v1.OrchestrationService/ReportResult",
        "/ramet.v1.OrchestrationService/RequestPath",
        "/ramet.v1.OrchestrationService/HandOverPath",
    }
)
"""RPCs for a session's token. None of them answers a request, raises a budget or loosens a mode."""

COMMAND_METHODS = frozenset(
    {
        "/ramet.v1.DaemonService/GetInfo",
        "/ramet.v1.RepoService/GetRepo",
        "/ramet.v1.RepoService/GetTrust",
        "/ramet.v1.RepoService/ListRepos",
        "/ramet.v1.SessionService/GetSession",
        "/ramet.v1.SessionService/ListSessions",
    }
)
"""RPCs for the token of a landing check or of a spare's setup."""

ALWAYS = frozenset({"/ramet.v1.DaemonService/GetInfo", "/ramet.v1.DaemonService/Shutdown"})
"""RPCs served during recovery and to clients of every release."""


def allowed(method: str, principal: str) -> bool:
    """Return whether a principal may call ``method``, a full name such as
    ``/ramet.v1.SessionService/GetSession``."""
    if principal == OWNER or not method.startswith("/ramet."):
        return True
    return method in (SESSION_METHODS if principal.startswith(SESSION) else COMMAND_METHODS)
