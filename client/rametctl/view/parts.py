"""The parts of a view that are read on demand: how to read each, and which events make it stale."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ramet.v1 import (
    attention_pb2,
    daemon_pb2,
    event_pb2,
    landing_pb2,
    orchestration_pb2,
    plan_pb2,
    session_pb2,
    terminal_pb2,
    worktree_pb2,
)
from ramet.v1.attention_pb2 import AttentionRequest, PermissionRule
from ramet.v1.daemon_pb2 import GetConfigResponse, GetCostsResponse
from ramet.v1.event_pb2 import Event
from ramet.v1.landing_pb2 import Landing, PullRequest
from ramet.v1.orchestration_pb2 import Message
from ramet.v1.plan_pb2 import GetPlanResponse, Plan
from ramet.v1.session_pb2 import GetSessionResponse
from ramet.v1.terminal_pb2 import Command
from ramet.v1.worktree_pb2 import Checkpoint, Comment, GetDiffResponse, ListConflictsResponse, TrashEntry

from rametctl.connection.link import Link, pages
from rametctl.render.session import state_name

T = TypeVar("T")

ROW = "row"
"""In `Part.stale_on`: the daemon sent the session again."""
DETAIL = frozenset(
    {"partial", "control_line", "agent_notice", "agent_noise", "command_output", "prompt_sent", "assistant_message"}
)
"""Events for the shown transcripts, which make no part stale."""
CONTENT = frozenset({"user_message", "command_ended", "session_synced", "session_rewound", "session_restored"})
"""Events after which the files of a session's worktree may differ."""


@dataclass(frozen=True)
class Part(Generic[T]):
    """A kind of part. ``key`` of an instance: the id of a session, repository or plan, or "" for
    all.

    ``stale_on``: events after which an instance is read again; ``concerns``: whether such an event
    concerns the instance; ``every``: least seconds between two reads.
    """

    name: str
    read: Callable[[Link, str], Awaitable[T]]
    stale_on: frozenset[str]
    concerns: Callable[["Event", str], bool]
    every: float = 0.1


@dataclass
class Slot(Generic[T]):
    """State of one instance. ``value`` is the last one read, ``error`` why the newest read
    failed."""

    value: T | None = None
    error: str = ""


def _of_all(event: "Event", key: str) -> bool:
    return True


def _of_session(event: "Event", key: str) -> bool:
    return event.session_id == key.partition(" ")[0]


def _of_repo(event: "Event", key: str) -> bool:
    return not event.repo_id or event.repo_id == key


async def _requests(link: Link, key: str) -> "list[AttentionRequest]":
    request = attention_pb2.ListRequestsRequest()
    return [
        each
        async for page in pages(link, lambda daemon: daemon.attention.ListRequests, request)
        for each in page.requests
    ]


async def _landings(link: Link, key: str) -> "list[Landing]":
    request = landing_pb2.ListLandingsRequest()
    return [
        each
        async for page in pages(link, lambda daemon: daemon.landing.ListLandings, request)
        for each in page.landings
    ]


async def _recent_landings(link: Link, key: str) -> "list[Landing]":
    """Return the open ones, and the newest ended ones."""
    request = landing_pb2.ListLandingsRequest(include_ended=True, page_size=60)
    return list((await link.call(lambda daemon: daemon.landing.ListLandings, request)).landings)


async def _trash(link: Link, key: str) -> "list[TrashEntry]":
    answers = pages(link, lambda daemon: daemon.worktrees.ListTrash, worktree_pb2.ListTrashRequest())
    return [each async for page in answers for each in page.entries]


async def _settings(link: Link, key: str) -> "GetConfigResponse":
    return await link.call(lambda daemon: daemon.daemon.GetConfig, daemon_pb2.GetConfigRequest())


async def _log(link: Link, key: str) -> "list[Event]":
    """Read the newest events; ``key``: ``SESSION AUDIT``, "-" for all sessions and for all
    events."""
    session, audit = ("" if word == "-" else word for word in key.split(" "))
    request = event_pb2.ListEventsRequest(
        session=session, audit=bool(audit), page_size=NEWEST, newest=True, omit_partials=True
    )
    return list((await link.call(lambda daemon: daemon.events.ListEvents, request)).events)


async def _pull_requests(link: Link, key: str) -> "list[PullRequest]":
    request = landing_pb2.ListPullRequestsRequest()
    answers = pages(link, lambda daemon: daemon.landing.ListPullRequests, request)
    return [each async for page in answers for each in page.pull_requests]


async def _conflicts(link: Link, key: str) -> "ListConflictsResponse":
    return await link.call(lambda daemon: daemon.worktrees.ListConflicts, worktree_pb2.ListConflictsRequest(repo=key))


async def _plans(link: Link, key: str) -> "list[Plan]":
    request = plan_pb2.ListPlansRequest()
    return [each async for page in pages(link, lambda daemon: daemon.plans.ListPlans, request) for each in page.plans]


async def _plan(link: Link, key: str) -> "GetPlanResponse":
    return await link.call(lambda daemon: daemon.plans.GetPlan, plan_pb2.GetPlanRequest(plan=key))


async def _costs(link: Link, key: str) -> "GetCostsResponse":
    """``key``: "session", "day" (or ""), "model" or "repo"."""
    grouping = daemon_pb2.CostGrouping.Value(f"COST_GROUPING_{(key or 'day').upper()}")
    request = daemon_pb2.GetCostsRequest(grouping=grouping)
    return await link.call(lambda daemon: daemon.daemon.GetCosts, request)


async def _details(link: Link, key: str) -> "GetSessionResponse":
    return await link.call(lambda daemon: daemon.sessions.GetSession, session_pb2.GetSessionRequest(session=key))


async def _diff(link: Link, key: str) -> "GetDiffResponse":
    session, _, against = key.partition(" ")
    request = worktree_pb2.GetDiffRequest(session=session, against=against, max_bytes=MAX_DIFF)
    return await link.call(lambda daemon: daemon.worktrees.GetDiff, request)


async def _counts(link: Link, key: str) -> "GetDiffResponse":
    """``key``: ``SESSION``, or ``SESSION AGAINST UNTIL SPACE``, of which each may be "-" (see
    GetDiffRequest)."""
    session, against, until, space = [*("" if word == "-" else word for word in key.split(" ")), "", "", ""][:4]
    request = worktree_pb2.GetDiffRequest(session=session, against=against, until=until, stat_only=True)
    if space:
        request.whitespace = worktree_pb2.WHITESPACE_IGNORE_ALL
    return await link.call(lambda daemon: daemon.worktrees.GetDiff, request)


async def _checkpoints(link: Link, key: str) -> "list[Checkpoint]":
    request = worktree_pb2.ListCheckpointsRequest(session=key)
    answers = pages(link, lambda daemon: daemon.worktrees.ListCheckpoints, request)
    return [each async for page in answers for each in page.checkpoints]


async def _comments(link: Link, key: str) -> "list[Comment]":
    request = worktree_pb2.ListCommentsRequest(session=key)
    answers = pages(link, lambda daemon: daemon.worktrees.ListComments, request)
    return [each async for page in answers for each in page.comments]


async def _commands(link: Link, key: str) -> "list[Command]":
    request = terminal_pb2.ListCommandsRequest(session=key, include_ended=True)
    answers = pages(link, lambda daemon: daemon.terminals.ListCommands, request)
    return [each async for page in answers for each in page.commands]


async def _verdict(link: Link, key: str) -> str:
    """Read the last message of a judge; "" while it works."""
    from rametctl.nouns.contests import LAST_EVENTS, last_words
    from rametctl.nouns.sessions import LIVING

    found = await link.call(lambda daemon: daemon.sessions.GetSession, session_pb2.GetSessionRequest(session=key))
    if found.session.result or not found.session.turns or state_name(found.session) in LIVING:
        return found.session.result
    request = event_pb2.ListEventsRequest(session=key, page_size=LAST_EVENTS, newest=True, omit_partials=True)
    return last_words((await link.call(lambda daemon: daemon.events.ListEvents, request)).events)


async def _rules(link: Link, key: str) -> "list[PermissionRule]":
    request = attention_pb2.ListRulesRequest(repo=key)
    return [
        each async for page in pages(link, lambda daemon: daemon.attention.ListRules, request) for each in page.rules
    ]


async def _messages(link: Link, key: str) -> "list[Message]":
    request = orchestration_pb2.ReadMessagesRequest(session=key)
    return list((await link.call(lambda daemon: daemon.orchestration.ReadMessages, request)).messages)


NEWEST = 300
"""Events that a log shows."""
MAX_DIFF = 2 << 20
"""Most bytes of a patch in a view; the rest is cut off."""

REQUESTS = Part("requests", _requests, frozenset({"request_opened", "request_closed", "session_removed"}), _of_all)
LANDINGS = Part("landings", _landings, frozenset({"landing_changed", "session_removed"}), _of_all)
RECENT_LANDINGS = Part("recent_landings", _recent_landings, LANDINGS.stale_on, _of_all)
TRASH = Part("trash", _trash, frozenset({"session_removed", "session_restored", "session_created"}), _of_all)
SETTINGS = Part("settings", _settings, frozenset({"daemon_started", "repo_changed"}), _of_all)
LOG = Part(
    "log",
    _log,
    frozenset(
        {
            "session_created", "session_updated", "session_removed", "session_archived", "session_restored", "session_rewound",
            "session_synced", "state_changed", "prompt_queued", "prompt_withdrawn", "turn_ended", "request_opened", "request_closed", "call_denied",
            "landing_changed", "pull_request_changed", "command_started", "command_ended", "checkpoint_made", "repo_changed",
            "plan_applied", "plan_removed", "comment_changed", "daemon_started", "agent_started", "agent_exited",
        }
    ),
    lambda event, key: key.startswith(("- ", f"{event.session_id} ")),
    every=1.0,
)  # fmt: skip
PULL_REQUESTS = Part("pull_requests", _pull_requests, frozenset({"pull_request_changed", "session_removed"}), _of_all)
CONFLICTS = Part(
    "conflicts",
    _conflicts,
    frozenset({"conflict_changed", "session_removed", "session_archived", "target_moved"}),
    _of_repo,
    every=1.0,
)
PLANS = Part("plans", _plans, frozenset({"plan_applied", "plan_removed", "turn_ended"}), _of_all, every=2.0)
PLAN = Part(
    "plan",
    _plan,
    frozenset({"plan_applied", "plan_removed", "turn_ended", "landing_changed", "target_moved"}),
    _of_all,
    every=2.0,
)
COSTS = Part("costs", _costs, frozenset({"turn_ended", "session_removed"}), _of_all, every=2.0)
DETAILS = Part(
    "details",
    _details,
    frozenset(
        {
            "state_changed", "session_updated", "prompt_queued", "prompt_withdrawn", "prompt_sent", "prompt_received", "turn_ended",
            "agent_started", "agent_exited", "setup_changed", "session_created", "background_task", "ownership_changed",
        }
    ),
    _of_session,
    every=0.3,
)  # fmt: skip
DIFF = Part("diff", _diff, CONTENT | {"turn_ended", "checkpoint_made"}, _of_session, every=0.5)
COUNTS = Part("counts", _counts, frozenset({ROW}), _of_session, every=3.0)
CHECKPOINTS = Part("checkpoints", _checkpoints, frozenset({"checkpoint_made", "session_rewound"}), _of_session)
COMMENTS = Part("comments", _comments, frozenset({"comment_changed"}), _of_session)
COMMANDS = Part("commands", _commands, frozenset({"command_started", "command_ended"}), _of_session)
RULES = Part("rules", _rules, frozenset({"request_closed", "session_updated"}), _of_repo, every=1.0)
VERDICT = Part("verdict", _verdict, frozenset({ROW, "turn_ended", "session_updated"}), _of_session, every=0.5)
MESSAGES = Part("messages", _messages, frozenset({"prompt_queued"}), _of_session, every=1.0)

AnyPart = Part[Any]
