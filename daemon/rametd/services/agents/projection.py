"""From lines of an agent to events, states, questions and costs: one unit of work for each batch, together with the offset it ends at.

That the offset and what follows from the lines are committed as one is what makes it exactly once. A batch that was applied before, by a daemon
that was replaced in the middle, is refused by `Agents.advance` as a whole.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from google.protobuf.message import Message
from ramet.v1 import event_pb2

from rametd.agents.base import (
    Activity,
    Answered,
    Background,
    ControlAsked,
    ControlCancelled,
    ControlSettled,
    Frame,
    Initialized,
    LimitTold,
    PromptSeen,
    Question,
    TurnBegan,
)
from rametd.domain.models import (
    Agent,
    ControlRequest,
    Hold,
    NewEvent,
    PromptState,
    Request,
    RequestKind,
    RequestState,
    Session,
)
from rametd.domain.states import BUSY_STATES, State
from rametd.services import budgets, events
from rametd.services.ids import new_id
from rametd.services.lifecycle import INTERRUPTED, change_state, log_request
from rametd.services.mail import post
from rametd.services.policy import Policy
from rametd.services.words import first_line
from rametd.store import Unit

UNTOLD_RESET_S = 3600.0
"""How long to wait where a usage limit does not say when it is lifted."""
LEAST_REST_S = 2.0
"""For a limit that is lifted in this instant: the turn that it ended may be told of only afterwards, and clocks differ."""
LIMIT_RESUMES = 3
"""Why a session is idle whose turn was ended before it was done."""

URGENT = (ControlAsked, ControlCancelled, Initialized, PromptSeen, TurnBegan, Activity, Answered)
"""Facts that somebody waits for; a batch with one of them is committed at once."""


@dataclass(frozen=True, slots=True)
class Projected:
    """What a batch has led to."""

    session: Session
    agent: Agent
    turn_ended: bool
    told: tuple[str, ...]  # ids of sessions that were told something by it


def is_urgent(frames: Sequence[Frame]) -> bool:
    """Whether a batch must not wait for company."""
    return any(isinstance(fact, URGENT) for frame in frames for fact in frame.facts)


def project(unit: Unit, session_id: str, generation: int, frames: Sequence[Frame], policy: Policy) -> Projected:
    """Apply a batch of consecutive frames; raises `StaleBatchError` when it does not begin at the stored offset."""
    unit.agents.advance(session_id, generation, frames[-1].end, expect_offset=frames[0].start)
    agent = unit.agents.get(session_id, generation)
    if agent is None:
        raise AssertionError("an agent that advanced exists")
    projection = Projection(unit, unit.sessions.get(session_id), agent, policy)
    for frame in frames:
        projection.apply(frame)
    projection.flush()
    return Projected(projection.session, projection.agent, projection.turn_ended, tuple(projection.told))


def store_calm(unit: Unit, session: Session, generation: int, frames: Sequence[Frame]) -> None:
    """`project` for frames without facts, which change nothing: most of what an agent says, and so nothing is read for it."""
    unit.agents.advance(session.id, generation, frames[-1].end, expect_offset=frames[0].start)
    unit.events.append(*(line_event(session, frame) for frame in frames))


def line_event(session: Session, frame: Frame) -> NewEvent:
    """The event that a line of the session's agent is."""
    return NewEvent(
        frame.event.WhichOneof("payload") or "agent_notice",
        session.id,
        session.repo_id,
        f"session:{session.id}",
        frame.event.SerializeToString(),
        frame.line.removesuffix(b"\n"),
    )


class Projection:
    """The state of one batch."""

    def __init__(self, unit: Unit, session: Session, agent: Agent, policy: Policy) -> None:
        self.unit = unit
        self.session = session
        self.agent = agent
        self.turn_ended = False
        self.told: list[str] = []
        self._policy = policy
        self._stored = agent
        self._principal = f"session:{session.id}"
        self._lines: list[NewEvent] = []

    def apply(self, frame: Frame) -> None:
        self._lines.append(line_event(self.session, frame))
        for fact in frame.facts:
            self._act(fact, frame)

    def flush(self) -> None:
        """Store what was gathered: events of lines in their order, and the agent's row."""
        self._log_lines()
        if self.agent != self._stored:
            agent = self.agent
            self.unit.agents.update(
                agent.session_id,
                agent.generation,
                initialize_reply=agent.initialize_reply,
                cli_version=agent.cli_version,
                mode=agent.mode,
                activity=agent.activity,
                background=agent.background,
                result=agent.result,
                cost_base=agent.cost_base,
                limit_until=agent.limit_until,
                over_budget=agent.over_budget,
            )
            self._stored = agent

    def _log_lines(self) -> None:
        if self._lines:
            self.unit.events.append(*self._lines)
            self._lines.clear()

    def _act(self, fact: object, frame: Frame) -> None:
        match fact:
            case ControlAsked():
                self._asked(fact, frame)
            case ControlCancelled(id=control_id):
                self.unit.control.cancel(self.session.id, self.agent.generation, control_id)
                self._close(self.unit.requests.mark_gone(self.session.id, self.agent.generation, control_id))
                self._unblock()
            case ControlSettled(id=control_id):
                self._settle(control_id)
            case Initialized(reply=reply):
                self.agent = replace(self.agent, initialize_reply=reply)
            case PromptSeen(id=prompt_id):
                if self.unit.prompts.mark_received(prompt_id):
                    self._event(event_pb2.PromptReceived(prompt_id=prompt_id))
            case TurnBegan():
                self.agent = replace(
                    self.agent, cli_version=fact.version or self.agent.cli_version, mode=fact.mode or self.agent.mode
                )
                if not self.session.conversation_begun:
                    self.session = self.unit.sessions.update(self.session.id, conversation_begun=True)
                # Also where the prompt came while the turn before ran, so that the session was at work all the time.
                self.agent = replace(self.agent, result="", over_budget="")
                self._work()
            case Activity(state=activity):
                self.agent = replace(self.agent, activity=activity)
                if activity == "running":
                    self._work()
                self._end_turn()
            case Background(running=running):
                self.agent = replace(self.agent, background=running)
                self._end_turn()
            case Answered():
                self._answered(fact)
            case LimitTold(status="rejected", reset_time=reset_time):
                until = max(reset_time or self.unit.now + UNTOLD_RESET_S, self.unit.now + LEAST_REST_S)
                self.agent = replace(self.agent, limit_until=until)
            case LimitTold():
                self.agent = replace(self.agent, limit_until=0.0)

    def _event(self, payload: Message) -> None:
        self._log_lines()
        self.unit.events.append(events.make(payload, session_id=self.session.id, repo_id=self.session.repo_id))

    def _change(self, to: State, reason: str = "") -> None:
        self._log_lines()
        self.session = change_state(self.unit, self.session, to, reason=reason)

    def _work(self) -> None:
        """A turn runs. A new one has no result yet; one that answers a person goes on."""
        if self.agent.result and self.session.state not in {State.WORKING, State.WAITING}:
            self.agent = replace(self.agent, result="")
        if self.session.state in {State.QUEUED, State.STARTING, State.IDLE}:
            self._change(State.WORKING)

    def _settle(self, control_id: str) -> None:
        """The agent shows that it has an answer. Where ours is not on record (the database was built anew, and this journal is read from
        its beginning), it was given all the same: nobody is to be asked again."""
        session_id, generation = self.session.id, self.agent.generation
        self.unit.control.settle(session_id, generation, control_id)
        request = self.unit.control.get(session_id, generation, control_id)
        if request is not None and not request.answer:
            self.unit.control.cancel(session_id, generation, control_id)
            self._close(self.unit.requests.mark_gone(session_id, generation, control_id))
            self._unblock()

    def _asked(self, fact: ControlAsked, frame: Frame) -> None:
        known = not self.unit.control.add(
            ControlRequest(
                session_id=self.session.id,
                generation=self.agent.generation,
                id=fact.id,
                subtype=fact.subtype,
                frame=frame.line,
                answer=b"",
                cancelled=False,
            )
        )
        if known or fact.question is None:
            return
        request = self._same_question(fact.question)
        if request is not None:
            request = self.unit.requests.rebind(request.id, self.agent.generation, fact.id)
        else:
            request = self.unit.requests.add(self._request(fact.id, fact.question))
            self._log_lines()
            log_request(self.unit, self.session, request, principal=self._principal)
            self._tell_parent(f"I wait for the person: this session {describe(request)}")
        if request.state == RequestState.OPEN and self.session.state in {
            State.QUEUED,
            State.STARTING,
            State.WORKING,
            State.IDLE,
        }:
            self._change(State.WAITING, describe(request))

    def _same_question(self, question: Question) -> Request | None:
        """The question as an earlier process asked it: it was killed while it waited, and asks again after its resume.

        An answer that came in between still counts.
        """
        for request in self.unit.requests.detached(self.session.id):
            if request.tool == question.tool and json.loads(request.input) == json.loads(question.input):
                return request
        return None

    def _request(self, control_id: str, question: Question) -> Request:
        return Request(
            id=new_id(),
            session_id=self.session.id,
            generation=self.agent.generation,
            control_id=control_id,
            tool_use_id=question.tool_use_id,
            kind=RequestKind(question.kind),
            tool=question.tool,
            input=question.input,
            reason=question.reason,
            suggestions=question.suggestions,
            state=RequestState.OPEN,
            answer="",
            answered_by="",
            answer_time=None,
            create_time=self.unit.now,
        )

    def _close(self, requests: Sequence[Request]) -> None:
        if requests:
            self._log_lines()
        for request in requests:
            log_request(self.unit, self.session, request)

    def _unblock(self) -> None:
        if self.session.state == State.WAITING and not self.unit.requests.open_count(self.session.id):
            self._change(State.WORKING)

    def _answered(self, fact: Answered) -> None:
        entries = [
            replace(entry, session_id=self.session.id, generation=self.agent.generation, time=self.unit.now)
            for entry in fact.costs
        ]
        fresh = [entry for entry in entries if self.unit.ledger.add(entry)]
        tokens = self.session.tokens
        for entry in fresh:
            tokens = tokens + entry.tokens
        self.session = self.unit.sessions.update(
            self.session.id,
            cost_usd=self.session.cost_usd + sum(entry.cost_usd for entry in fresh),
            tokens=tokens,
            turns=self.session.turns + 1,
            resumes=self.session.resumes if fact.is_error else 0,
            interrupted=False,
            limit_resumes=self.session.limit_resumes if fact.is_error else 0,
        )
        self._warn_of_budget()
        if fact.aborted:
            result = "aborted"
        elif fact.is_error:
            result = f"error: {first_line(fact.text) or 'the turn failed and the agent did not say why'}"
        else:
            result = "ok"
        self.agent = replace(self.agent, result=result, cost_base=fact.total_cost)
        if self.session.state == State.PAUSED:  # stopped while it asked: it has taken the end of its input for a no
            self._close(self.unit.requests.mark_all_gone(self.session.id))
        if self.agent.activity != "running":
            self._end_turn()

    def _end_turn(self) -> None:
        """The turn is over when the agent says that it is idle, has given its result, and runs nothing in the background."""
        agent = self.agent
        if self.session.state not in BUSY_STATES or agent.background or not agent.result:
            return
        if agent.activity not in {"idle", ""}:
            return
        self._close(self.unit.requests.mark_all_gone(self.session.id))
        failed, aborted = agent.result.startswith("error: "), agent.result == "aborted"
        spent = budgets.exceeded(self.unit, self.session, self._policy.config.budget)
        if failed and agent.limit_until > self.unit.now:
            self._hold_for_limit(agent.limit_until)
        elif failed:
            self._change(State.FAILED, agent.result.removeprefix("error: "))
        elif spent is not None or (agent.over_budget and aborted):
            # What stopped it may have been a running turn of its family's, which the ledger does not have yet.
            self._hold(Hold.BUDGET, agent.over_budget if spent is None else spent.reason, interrupted=aborted)
        else:
            self._change(State.IDLE, INTERRUPTED if aborted else "")
            if any(prompt.state == PromptState.QUEUED for prompt in self.unit.prompts.open(self.session.id)):
                self._change(State.QUEUED)  # kept back until what was cut off before was done
            elif not aborted:
                self._ask_for_review()
        self.agent = replace(self.agent, over_budget="")
        self.turn_ended = True
        self._tell_parent(f"My turn has ended ({self.session.state}). {self._summary()}")

    def _hold(self, hold: Hold, reason: str, *, interrupted: bool, resume_at: float | None = None) -> None:
        self._log_lines()
        self.session = change_state(
            self.unit,
            self.session,
            State.PAUSED,
            reason=reason,
            hold=hold,
            interrupted=interrupted,
            resume_at=resume_at,
        )

    def _hold_for_limit(self, until: float) -> None:
        """A usage limit ended the turn: go on once it is lifted, a few times, then ask a person."""
        times = self.session.limit_resumes + 1
        if times > LIMIT_RESUMES:
            self._change(State.FAILED, f"the usage limit was hit {times} times in a row")
            return
        when = time.strftime("%H:%M", time.localtime(until))
        self.session = self.unit.sessions.update(self.session.id, limit_resumes=times)
        self._hold(Hold.LIMIT, f"usage limit; goes on by itself at {when}", interrupted=True, resume_at=until)

    def _warn_of_budget(self) -> None:
        """Say once that most of a budget is spent."""
        spendings = budgets.spendings(self.unit, self.session, self._policy.config.budget)
        near = next((each for each in spendings if each.near), None)
        if near is not None and not self.session.budget_warned:
            self.session = self.unit.sessions.update(self.session.id, budget_warned=True)
            self._event(event_pb2.Warning(message=str(near)))

    def _ask_for_review(self) -> None:
        """Put a finished turn of one of the person's own sessions into the inbox; its parent looks after a child."""
        if self.session.parent_id:
            return
        open_reviews = [each for each in self.unit.requests.open(self.session.id) if each.kind == RequestKind.REVIEW]
        if open_reviews:
            return
        question = Question(RequestKind.REVIEW, "", "", "{}", self._summary(), "[]")
        self._log_lines()
        log_request(self.unit, self.session, self.unit.requests.add(self._request("", question)))

    def _summary(self) -> str:
        """What came of the work, in one line: the report, else the turn's last words."""
        if self.session.result:
            return first_line(self.session.result)
        self._log_lines()
        ended = self.unit.events.list(session_id=self.session.id, kinds=("turn_ended",), limit=1, newest=True)
        return first_line(event_pb2.Event.FromString(ended[0].payload).turn_ended.text) if ended else ""

    def _tell_parent(self, words: str) -> None:
        """Tell the session that spawned this one, where it asked for that."""
        if not self.session.notify_parent or not self.session.parent_id:
            return
        parent = self.unit.sessions.find(self.session.parent_id)
        if parent is None or parent.state == State.ARCHIVED:
            return
        self._log_lines()
        post(self.unit, self._policy.kinds[parent.agent], parent, words, self._principal)
        self.told.append(parent.id)


def describe(request: Request) -> str:
    """One line on what is asked of a person."""
    match request.kind:
        case RequestKind.QUESTION:
            questions = json.loads(request.input).get("questions") or [{}]
            return f"asks: {first_line(str(questions[0].get('question', '')))}"
        case RequestKind.PLAN:
            return "has a plan and wants it approved"
        case RequestKind.ELICITATION:
            return f"{request.tool} asks: {first_line(request.reason)}"
        case _:
            tool_input = json.loads(request.input)
            detail = tool_input.get("command") or tool_input.get("file_path") or tool_input.get("url") or ""
            return (
                f"wants to use {request.tool}: {first_line(str(detail))}" if detail else f"wants to use {request.tool}"
            )
