"""Hand paths over: a session asks, and the owning session or the person decides, whoever answers
first. Each answer is one unit of work.

The inbox has every request, so that the person can always decide. If exactly one living session
owns the paths, it gets a message with the request's id. The asking session gets a message with the
outcome.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from ramet.v1 import attention_pb2, orchestration_pb2

from rametd.domain.errors import InvalidInputError, NotAllowedError, PathsNotOwnedError
from rametd.domain.models import DAEMON, OWNER, Request, RequestKind, Session
from rametd.domain.states import State
from rametd.ownership import Patterns, check_size, contains, names_of
from rametd.services.core import Core
from rametd.services.delivery import SESSION, post, sender_of
from rametd.services.family import find_member
from rametd.services.lifecycle import ask_person, log_request
from rametd.services.ownership.audit import audit, is_audit
from rametd.services.ownership.claims import IGNORE_CASE, patterns_of
from rametd.services.ownership.transfers import meets, transfer
from rametd.services.repos import info_of
from rametd.store import Reader, Unit

DECIDING_STATES = frozenset(State) - {State.ARCHIVED, State.FAILED}
"""States in which a session can answer."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision of an owner: an answer to ``request``, or ``paths`` that it gives to ``session``
    unasked."""

    request: str = ""
    refuse: bool = False
    paths: tuple[str, ...] = ()
    session: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Meant:
    """Paths that a session named, each with all its names: links of the repository may lead to it,
    and the file system may ignore letter case."""

    paths: tuple[Patterns, ...] = ()
    ignore_case: bool = IGNORE_CASE

    @property
    def wanted(self) -> Patterns:
        return Patterns(tuple(dict.fromkeys(chain.from_iterable(each.texts for each in self.paths))))

    def beyond(self, owned: Patterns) -> str | None:
        """Return a path of which ``owned`` has no name; None if there is none."""
        for names in self.paths:
            outside = [contains(owned, Patterns((name,)), ignore_case=self.ignore_case) for name in names.texts]
            if None not in outside:
                return outside[0]
        return None


class Ownership:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def after_turn(self, session: Session) -> None:
        await audit(self._core, session)

    # ── asking ────────────────────────────────────────────────────────────────────────────────────

    async def request(
        self,
        caller_id: str,
        paths: Sequence[str],
        reason: str,
        remember: Callable[[Unit, orchestration_pb2.RequestPathResponse], object],
    ) -> orchestration_pb2.RequestPathResponse:
        """Ask for paths. Raises `InvalidInputError`."""
        if not caller_id:
            raise InvalidInputError("only a session asks for paths", hint="the person changes them: `rametctl set`")
        if not reason.strip():
            raise InvalidInputError("no reason was given", hint="say in a sentence what you need to change there")
        meant = await self._meant(caller_id, paths)

        def work(unit: Unit) -> tuple[orchestration_pb2.RequestPathResponse, str]:
            caller = unit.sessions.get(caller_id)
            response, owner_id = self._request(unit, caller, meant, reason.strip())
            remember(unit, response)
            return response, owner_id

        response, owner_id = await self._core.store.write(work)
        self._core.failpoint.hit("ownership.asked")
        if owner_id:
            self._core.live.wake(owner_id)
        return response

    async def _meant(self, session_id: str, paths: Sequence[str]) -> "Meant":
        """Find the names that paths have in the repository. Raises `InvalidInputError`."""
        positive(paths)
        session = await self._core.store.read(lambda reader: reader.sessions.get(session_id))
        tree = await self._core.git.commits.files(await info_of(self._core, session), session.base_commit)
        ignore_case = IGNORE_CASE or tree.ignore_case

        def names() -> tuple[Patterns, ...]:
            each = (names_of(path, tree.files, tree.links, ignore_case=ignore_case) for path in paths)
            return tuple(map(positive, each))

        return Meant(await asyncio.to_thread(names), ignore_case)

    def _request(
        self, unit: Unit, caller: Session, meant: "Meant", reason: str
    ) -> tuple[orchestration_pb2.RequestPathResponse, str]:
        wanted, ignore_case = meant.wanted, meant.ignore_case
        owning = [
            each
            for each in unit.sessions.owning(caller.repo_id)
            if each.id != caller.id and meets(patterns_of(each.owns), wanted, ignore_case)
        ]
        forbidden = bool(caller.forbids) and meets(patterns_of(caller.forbids), wanted, ignore_case)
        mine = not caller.owns or meant.beyond(patterns_of(caller.owns)) is None
        if mine and not forbidden and not (owning and not caller.owns):
            return orchestration_pb2.RequestPathResponse(outcome="you may write there already"), ""
        asked = list(wanted.texts)
        for known in unit.requests.open(caller.id):
            if known.kind == RequestKind.OWNERSHIP and json.loads(known.input)["paths"] == asked:
                return orchestration_pb2.RequestPathResponse(
                    path_request_id=known.id, outcome="you have already asked for that; it is not decided yet"
                ), ""
        decider = owning[0] if len(owning) == 1 and not forbidden and owning[0].state in DECIDING_STATES else None
        owners = [each.id for each in owning]
        given = {"paths": asked, "owners": owners, "decider": decider.id if decider else "", "fold": ignore_case}
        names = [each.name for each in owning]
        whose = (
            f"of {', '.join(names)}" if names else "which it must not change" if forbidden else "no session owns them"
        )
        words = f"it asks for {', '.join(asked)} ({whose}): {reason}"
        request = ask_person(unit, caller, RequestKind.OWNERSHIP, given, words)
        if decider is None:
            outcome = "the person decides; you get a message. Continue with something else, or end your turn"
            return orchestration_pb2.RequestPathResponse(path_request_id=request.id, owners=names, outcome=outcome), ""
        text = (
            f"I ask for these paths, which you own: {', '.join(asked)}. Why: {reason}\n\n"
            f"Decide with the tool own: path_request_id={request.id!r} gives them to me, with refuse=true you keep them."
        )
        post(unit, self._core.kind(decider.agent), decider, text, SESSION + caller.id, hops=1)
        return (
            orchestration_pb2.RequestPathResponse(
                path_request_id=request.id,
                owners=names,
                outcome=f"{decider.name} was asked; you get a message. Continue with something else, or end your turn",
            ),
            decider.id,
        )

    # ── deciding ──────────────────────────────────────────────────────────────────────────────────

    async def hand_over(
        self,
        caller_id: str,
        decision: Decision,
        remember: Callable[[Unit, orchestration_pb2.HandOverPathResponse], object],
    ) -> orchestration_pb2.HandOverPathResponse:
        """Decide on paths that the caller owns, or list the owners of paths. Raises
        `NotAllowedError`, `PathsNotOwnedError`, `RequestClosedError`."""

        meant = await self._meant(caller_id, decision.paths) if caller_id and decision.paths else Meant()

        def work(unit: Unit) -> tuple[orchestration_pb2.HandOverPathResponse, set[str]]:
            caller = unit.sessions.get(caller_id) if caller_id else None
            if decision.request:
                outcome, receivers = self._answer(unit, caller, decision)
            elif decision.paths:
                outcome, receivers = self._give(unit, caller, decision, meant)
            else:
                outcome, receivers = "nothing was changed", set()
            response = orchestration_pb2.HandOverPathResponse(outcome=outcome, owners=listed(unit, caller))
            remember(unit, response)
            return response, receivers

        response, receivers = await self._core.store.write(work)
        self._core.failpoint.hit("ownership.decided")
        for session_id in receivers:
            self._core.live.wake(session_id)
        return response

    def _answer(self, unit: Unit, caller: Session | None, decision: Decision) -> tuple[str, set[str]]:
        found = [each for each in unit.requests.find_by_prefix(decision.request) if each.kind == RequestKind.OWNERSHIP]
        if len(found) != 1 or is_audit(found[0]):
            raise InvalidInputError(
                f"there is no path request {decision.request!r}", hint="use the id from the message"
            )
        request = found[0]
        if caller is not None and json.loads(request.input)["decider"] != caller.id:
            raise NotAllowedError(
                "only the owner or the person decides that request", hint="ask the owner with send_message"
            )
        principal = SESSION + caller.id if caller is not None else OWNER
        approval = {"decision": "approve", "updated_input": "", "scope": 0, "mode": 0}
        answer = {"decision": "deny", "message": decision.reason} if decision.refuse else approval
        request = unit.requests.answer(request.id, json.dumps(answer, ensure_ascii=False), principal)
        asker = unit.sessions.get(request.session_id)
        log_request(unit, asker, request, principal=principal)
        receivers = self._carry_out(unit, request, principal, approved=not decision.refuse, words=decision.reason)
        return f"{asker.name} {'does not get' if decision.refuse else 'has'} them, and got a message", receivers

    def _give(self, unit: Unit, caller: Session | None, decision: Decision, meant: "Meant") -> tuple[str, set[str]]:
        if caller is None:
            raise InvalidInputError(
                "only a session hands over its paths", hint="the person uses `rametctl set --own` and `--disown`"
            )
        if not decision.session:
            raise InvalidInputError("no session was named", hint="say who gets them")
        to = find_member(unit, caller, decision.session)
        if to.id == caller.id:
            raise InvalidInputError("the session owns them already", hint="name another session")
        outside = meant.beyond(patterns_of(caller.owns))
        if outside is not None:
            raise PathsNotOwnedError(
                f"{outside} is not within what you own: {', '.join(caller.owns) or 'nothing'}",
                hint="give away a part of your own paths",
                path=outside,
            )
        principal = SESSION + caller.id
        transfer(unit, [caller], to, meant.wanted, principal, ignore_case=meant.ignore_case)
        text = f"I have given you these paths: {', '.join(meant.wanted.texts)}. {decision.reason}".strip()
        if to.state != State.ARCHIVED:
            post(unit, self._core.kind(to.agent), unit.sessions.get(to.id), text, principal, hops=1)
        return f"{to.name} has them", {to.id}

    def resolve(self, unit: Unit, request: Request, resolution: attention_pb2.Resolution, principal: str) -> None:
        """Apply the person's answer to a request for paths, or to a report of the audit."""
        words = resolution.deny.message
        approved = resolution.WhichOneof("decision") == "approve"
        if not is_audit(request):
            self._carry_out(unit, request, principal, approved=approved, words=words)
        elif not approved:
            session = unit.sessions.get(request.session_id)
            paths = ", ".join(json.loads(request.input)["paths"])
            text = f"Undo your changes to these files, which you may not write: {paths}. {words}".strip()
            if session.state != State.ARCHIVED:
                post(unit, self._core.kind(session.agent), session, text, principal)

    def _carry_out(self, unit: Unit, request: Request, principal: str, *, approved: bool, words: str) -> set[str]:
        """Apply an answer; send messages to the asking session, and to the owners if the person
        gave their paths. Return sessions to wake."""
        asked = json.loads(request.input)
        asker = unit.sessions.get(request.session_id)
        had = [found for each in asked["owners"] if (found := unit.sessions.find(each)) is not None]
        paths = ", ".join(asked["paths"])
        receivers = {asker.id}
        if approved:
            transfer(unit, had, asker, Patterns(tuple(asked["paths"])), principal, ignore_case=asked["fold"])
            text = f"You may now write these paths, as you asked (request {request.id}): {paths}. {words}"
        else:
            text = f"You do not get these paths, which you asked for (request {request.id}): {paths}. {words}"
        source = principal if sender_of(principal) else DAEMON
        if asker.state != State.ARCHIVED:
            post(unit, self._core.kind(asker.agent), unit.sessions.get(asker.id), text.strip(), source, hops=1)
        for each in had:
            if approved and principal != SESSION + each.id and each.state != State.ARCHIVED:
                said = f"The person gave these paths to {asker.name!r}; you may no longer write there: {paths}."
                post(unit, self._core.kind(each.agent), unit.sessions.get(each.id), said, DAEMON)
                receivers.add(each.id)
        return receivers


def positive(paths: Sequence[str]) -> Patterns:
    """Parse patterns without exceptions. Raises `InvalidInputError`."""
    if not paths:
        raise InvalidInputError("no paths were named", hint="name some, such as src/api/routes.py or docs/**")
    for path in paths:
        if path.startswith("!"):
            raise InvalidInputError(f"{path!r} is an exception", hint="name the paths themselves")
    check_size(paths)
    return Patterns.parse(paths)


def listed(reader: Reader, caller: Session | None) -> list[orchestration_pb2.Ownership]:
    """Owners in the caller's repository; for the person, in all."""
    sessions = reader.sessions.list(repo_id=caller.repo_id) if caller is not None else reader.sessions.list()
    return [
        orchestration_pb2.Ownership(session_id=each.id, session_name=each.name, owns=each.owns, forbids=each.forbids)
        for each in sessions
        if each.owns or each.forbids
    ]
