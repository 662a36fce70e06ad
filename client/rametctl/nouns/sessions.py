"""Sessions, for several verbs: list all pages, wait, and report how a wait ended."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ramet.jsonify import to_json
from ramet.v1 import session_pb2
from ramet.v1.attention_pb2 import AttentionRequest
from ramet.v1.session_pb2 import GetSessionResponse, ListSessionsResponse, Session, WaitSessionsResponse

from rametctl.app import App
from rametctl.errors import ClientError, PersonNeededError, TimedOutError
from rametctl.render.session import in_tree_order, outcome, reference, state_name

if TYPE_CHECKING:
    from rametctl.connection.channel import Connection

PARENT = "parent"
"""Name by which a session addresses the session that spawned it."""
LIVING = frozenset({"queued", "starting", "working", "waiting", "lost"})
"""States in which a session continues by itself; in others its agent may be alive but idle."""
CONDITIONS = {name: f"WAIT_CONDITION_{name.upper()}" for name in ("idle", "settled", "waiting", "ended", "turn")}


def session_pages(
    connection: "Connection", *, repo: str, states: Sequence[str] = (), archived: bool = False
) -> Iterator["ListSessionsResponse"]:
    """Yield all pages of sessions, oldest first; ``repo`` "" means all repositories."""
    return connection.pages(lambda daemon: daemon.sessions.ListSessions, list_request(repo, states, archived=archived))


def list_request(repo: str, states: Sequence[str], *, archived: bool) -> session_pb2.ListSessionsRequest:
    return session_pb2.ListSessionsRequest(
        repo=repo,
        states=[session_pb2.SessionState.Value(f"SESSION_STATE_{state.upper()}") for state in states],
        include_archived=archived,
    )


def get_session(app: "App", session: str, *, disk_use: bool = False, variables: bool = False) -> "GetSessionResponse":
    """Return a session with its details; an ambiguous name means the one in the current
    repository."""
    request = session_pb2.GetSessionRequest(
        session=session, path=app.repo_here() or "", include_disk_use=disk_use, include_variables=variables
    )
    return app.call(lambda daemon: daemon.sessions.GetSession, request)


def session_name(app: "App", session: str) -> str:
    """Return the reference of a session for a request: as typed, since the daemon resolves it.

    An agent may type a prefix of a name, which its tools do not accept, so resolve that first.
    """
    return get_session(app, session).session.id if acting_session(app) else session


def addressee(app: "App", session: str) -> str:
    """`session_name`, or for an acting session's "parent" the id of the session that spawned it."""
    if session == PARENT and acting_session(app):
        from ramet.v1 import orchestration_pb2

        family = app.call(lambda daemon: daemon.orchestration.ListFamily, orchestration_pb2.ListFamilyRequest())
        return next((each.id for each in family.sessions if each.relation == PARENT), session)
    return session_name(app, session)


def acting_session(app: "App") -> bool:
    """Return whether commands act as a session, whose token is then in the environment."""
    return bool(app.environ.get("RAMET_TOKEN"))


def descendants(connection: "Connection", session: "Session") -> list["Session"]:
    """Return all descendants, parents before children, including archived ones, without removed
    ones."""
    pages = session_pages(connection, repo=session.repo_id, archived=True)
    order = in_tree_order([each for page in pages for each in page.sessions])
    found: list[Session] = []
    top: int | None = None
    for depth, each in order:
        if top is not None and depth <= top:
            break
        if top is not None:
            found.append(each)
        elif each.id == session.id:
            top = depth
    return found


def is_living(session: "Session") -> bool:
    """Return whether its agent runs, or is about to."""
    return session.agent_alive or state_name(session) in LIVING


LOOK_S = 10
"""Seconds after which a wait for a turn says for what it waits, if that is not the agent."""


def wait_sessions(
    app: "App",
    sessions: Sequence[str],
    *,
    condition: str = "idle",
    any_of_them: bool = False,
    timeout: float | None = None,
    prompt: int = 0,
) -> "WaitSessionsResponse":
    """Wait, over restarts of the daemon, for at most ``timeout`` seconds, which the daemon
    enforces. The condition "turn" waits for the turn of the prompt of that number, by default the
    first."""
    from rametctl.connection.channel import ANSWER_GRACE

    request = session_pb2.WaitSessionsRequest(
        sessions=sessions,
        any=any_of_them,
        condition=session_pb2.WaitCondition.Value(CONDITIONS[condition]),
        prompt_number=prompt,
    )
    # A usage limit may hold a turn for hours.
    look = LOOK_S if condition == "turn" else math.inf
    end = math.inf if timeout is None else time.monotonic() + timeout
    noted: set[str] = set()
    with app.connection.within(None if timeout is None else timeout + ANSWER_GRACE):
        while True:
            left = max(end - time.monotonic(), 0.0)
            if (limit := min(left, look)) < math.inf:
                request.timeout.FromNanoseconds(int(limit * 1e9))
            answer = app.call(lambda daemon: daemon.sessions.WaitSessions, request, doing="working …")
            if answer.outcome != session_pb2.WAIT_OUTCOME_TIMEOUT or left <= look:
                return answer
            for session in answer.sessions:
                reason = f"{session.name}: {session.state_reason}"
                if session.state_reason and reason not in noted:
                    app.output.note(reason)
                    noted.add(reason)


def check_outcome(answer: "WaitSessionsResponse") -> None:
    """Return if the condition holds; else raise the outcome as an error with its exit code."""
    match answer.outcome:
        case session_pb2.WAIT_OUTCOME_DONE:
            return
        case session_pb2.WAIT_OUTCOME_ATTENTION:
            raise person_needed(list(answer.open_requests))
        case session_pb2.WAIT_OUTCOME_TIMEOUT:
            raise TimedOutError("timed out", hint="the session continues; see: rametctl ls")
        case _:
            raise _cannot_come(answer)


def person_needed(requests: Sequence["AttentionRequest"]) -> PersonNeededError:
    """Describe the waiting sessions, and the command that answers the first. Finished turns count
    only if nothing else waits."""
    from rametctl.render.request import answer_command, blocks, title

    requests = [each for each in requests if blocks(each)] or requests
    if not requests:
        return PersonNeededError("a session needs you", hint="see: rametctl inbox")
    first = requests[0]
    more = f" (and {len(requests) - 1} more)" if len(requests) > 1 else ""
    return PersonNeededError(
        f"{first.session_name or first.session_id} needs you: {title(first)}{more}",
        hint=f"see: rametctl inbox; answer: {answer_command(first)}",
    )


def _cannot_come(answer: "WaitSessionsResponse") -> ClientError:
    if answer.reason and all(state_name(session) != "failed" for session in answer.sessions):
        return ClientError(
            answer.reason, hint=f"see: rametctl logs {reference(answer.sessions[0])}", reason="CANNOT_COME"
        )
    stuck = [session for session in answer.sessions if state_name(session) in {"failed", "lost", "paused", "archived"}]
    if not stuck:
        resting = [session for session in answer.sessions if state_name(session) in {"idle", "stopped"}]
        why = f"{resting[0].name} is {state_name(resting[0])} and has no prompt" if resting else "a session was removed"
        return ClientError(f"nothing to wait for: {why}", hint="see: rametctl ls", reason="CANNOT_COME")
    session = stuck[0]
    why = f": {session.state_reason}" if session.state_reason else ""
    return ClientError(
        f"{session.name} is {state_name(session)}{why}",
        hint=f"see: rametctl show {reference(session)}",
        reason="CANNOT_COME",
    )


@contextmanager
def detachable(app: "App", sessions: Sequence["Session"]) -> Iterator[None]:
    """Within the block, Ctrl-C ends only the client: a note names the sessions that continue, and
    the command that watches them again."""
    try:
        yield
    except KeyboardInterrupt:
        names = ", ".join(session.name for session in sessions)
        verb = "continues" if len(sessions) == 1 else "continue"
        app.output.erase_echo()
        app.output.note(f"{names} {verb}: rametctl watch {' '.join(map(reference, sessions))}")
        raise


def show_end(app: "App", session: "Session", waited: "WaitSessionsResponse", prompt_id: str = "") -> None:
    """Print the reply to the awaited prompt, by default the session's first one, and the session's
    state. A terminal shows only the beginning of a long reply. Later turns, as after a message of
    the daemon, are not shown."""
    from rametctl.nouns.transcripts import read_reply
    from rametctl.render.transcript import last_words

    ended = waited.outcome == session_pb2.WAIT_OUTCOME_DONE or state_name(session) == "idle"
    if ended and not app.output.json_mode:
        look = app.output.look(folded=app.output.terminal)
        app.output.show(*last_words(read_reply(app, session, prompt_id), look))
    app.output.show(outcome(session))


def report(app: "App", session: "Session", *, note: str = "", **extra: object) -> None:
    """Print the state of a session after a command changed it.

    ``note`` is for people, ``extra`` goes into the JSON.
    """
    shown = outcome_of(app, session, note=note, state="", **extra)
    app.output.json(shown)


def outcome_of(
    app: "App", session: "Session", *, note: str = "", state: str = "", **extra: object
) -> dict[str, object]:
    """As `report`, for one of several sessions: print for people, and return the JSON. ``state`` as
    for `outcome`."""
    app.output.show(outcome(session, state))
    if note:
        app.output.text(note)
    return to_json(session) | extra
