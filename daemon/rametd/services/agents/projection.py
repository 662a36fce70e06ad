"""Turn an agent's lines into events, states, requests and costs. This is one class because each
line may change any of them, and the next line depends on the result.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import replace

from google.protobuf.message import Message
from ramet.v1 import event_pb2

from rametd.agents.base import (
    Activity,
    Answered,
    Background,
    CallFailed,
    ControlAsked,
    ControlCancelled,
    ControlSettled,
    ConversationMissing,
    ConversationOpened,
    Doing,
    Fact,
    Frame,
    HistoryRead,
    Initialized,
    LimitReported,
    PromptReturned,
    PromptSeen,
    Question,
    Said,
    StartRefused,
    Trouble,
    TurnBegan,
    TurnShown,
    TurnSkipped,
)
from rametd.domain.models import (
    ABORTED,
    DAEMON,
    ERROR,
    OK,
    Agent,
    BackgroundCommand,
    ControlRequest,
    Hold,
    LastWords,
    Request,
    RequestKind,
    RequestState,
    Session,
)
from rametd.domain.states import BUSY_STATES, State
from rametd.domain.text import first_line
from rametd.services import budgets, events
from rametd.services.agents.questions import describe, new_request, offers_of, same_question, with_plan
from rametd.services.core import Policy
from rametd.services.delivery import begin_anew, post, withdraw
from rametd.services.intake import last_words, line_events
from rametd.services.lifecycle import change_state, close_reviews, held_by_person, log_request, release_login, too_long
from rametd.store import Unit

MOST_OPEN = 100
"""Maximum number of open requests of a session: an agent that asks without end would slow down
every session."""
UNKNOWN_RESET_S = 3600.0
"""How long to wait if a usage limit does not say when it ends."""
LEAST_REST_S = 2.0
"""Minimum wait for a usage limit: clocks differ, and the line about the interrupted turn may arrive
later."""
LIMIT_RESUMES = 3
"""How many times in a row a session continues by itself after a usage limit."""
FIRST_RETRY_S, LAST_RETRY_S = 30.0, 900.0
"""Back-off after trouble upstream: doubled each time, up to the last. The agent's program has
already retried for minutes."""
JITTER = 0.2
"""Share of the wait that is random, so that sessions that stopped together do not start
together."""


def rest_after(tries: int) -> float:
    """Return the seconds until the next try after ``tries`` failures upstream."""
    return min(LAST_RETRY_S, FIRST_RETRY_S * 2.0 ** min(tries - 1, 20))


class Projection:
    """The state of one batch."""

    def __init__(self, unit: Unit, session: Session, agent: Agent, policy: Policy) -> None:
        self.unit = unit
        self.session = session
        self.agent = agent
        self.turn_ended = False
        self.notified: list[str] = []
        self._policy = policy
        self._stored = agent
        self._principal = f"session:{session.id}"
        self._lines: list[Frame] = []
        self._calm: list[Fact] = []

    def apply(self, frame: Frame) -> None:
        for fact in frame.facts:
            if isinstance(fact, TurnShown):  # before the line's own event, as the turn began first
                self._shown(fact.prompt_id, frame)
        self._lines.append(frame)
        for fact in frame.facts:
            self._act(fact, frame)

    def flush(self) -> None:
        """Store the batch: events of lines in their order, and the agent's row."""
        self._log_lines([last_words(self.session, self._calm)] if self._calm else [])
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
                background_commands=agent.background_commands,
                result=agent.result,
                api_error=agent.api_error,
                in_turn=agent.in_turn,
                cost_base=agent.cost_base,
                limit_until=agent.limit_until,
                over_budget=agent.over_budget,
                turn_offset=agent.turn_offset,
                interrupting=agent.interrupting,
            )
            self._stored = agent

    def _log_lines(self, words: Sequence[LastWords] = ()) -> None:
        if self._lines or words:
            self.unit.events.append(*line_events(self.session, self._lines), words=words)
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
            case StartRefused(reason=reason, login=login):
                self.agent = replace(self.agent, api_error=Trouble.LOGIN if login else "")
                if self.session.state in BUSY_STATES and login:
                    self._hold_for_trouble(reason)
                elif self.session.state in BUSY_STATES:
                    self._change(State.FAILED, f"{self.session.agent} did not open a conversation: {reason}")
            case ConversationOpened(id=conversation_id):
                if conversation_id != self.session.conversation_id:
                    self.session = self.unit.sessions.update(self.session.id, conversation_id=conversation_id)
            case HistoryRead(last_prompt=last):
                self._find_in_history(last)
            case Said() | Doing():
                self._calm.append(fact)
            case PromptSeen():
                self._seen(fact)
            case PromptReturned(id=prompt_id):
                self.unit.prompts.take_back(prompt_id)
            case TurnSkipped():
                self.agent = replace(self.agent, in_turn=False)
                if self.session.state == State.WORKING and not self.unit.prompts.open(self.session.id):
                    self._change(State.IDLE)
            case ConversationMissing():
                if not self.session.conversation_lost:
                    self._log_lines()
                    self.session = begin_anew(self.unit, self.session)
            case TurnBegan():
                self._leave_behind()
                self.agent = replace(
                    self.agent, cli_version=fact.version or self.agent.cli_version, mode=fact.mode or self.agent.mode
                )
                if not self.session.conversation_begun:
                    self.session = self.unit.sessions.update(
                        self.session.id, conversation_begun=True, conversation_lost=False
                    )
                # Also for a prompt that arrived during the previous turn, where the session never
                # left WORKING.
                self.agent = replace(self.agent, result="", over_budget="", api_error="", in_turn=True)
                self._work()
            case Activity(state=activity):
                self.agent = replace(self.agent, activity=activity)
                if activity == "running":
                    self._work()
                self._end_turn()
            case Background():
                self._run_in_background(fact)
                self._end_turn()
            case CallFailed(trouble=trouble):
                self.agent = replace(self.agent, api_error=trouble)
            case Answered():
                self._answered(fact, frame)
            case LimitReported(status="rejected", reset_time=reset_time):
                until = max(reset_time or self.unit.now + UNKNOWN_RESET_S, self.unit.now + LEAST_REST_S)
                self.agent = replace(self.agent, limit_until=until)
            case LimitReported():
                self.agent = replace(self.agent, limit_until=0.0)

    def _run_in_background(self, fact: Background) -> None:
        since = {each.id: each.start_time for each in self.agent.background_commands}
        running = tuple(
            BackgroundCommand(task_id, first_line(description), since.get(task_id, self.unit.now))
            for task_id, description in fact.tasks
        )
        self.agent = replace(self.agent, background=fact.deferring, background_commands=running)

    def _seen(self, fact: PromptSeen) -> None:
        """Note a receipt. An agent that was killed between storing a prompt and confirming it gets
        the prompt again, and only confirms it. Its turn was cut off, and continues with a
        continuation prompt."""
        if not self.unit.prompts.mark_received(fact.id, self.session.turns + 1):
            return
        self._event(event_pb2.PromptReceived(prompt_id=fact.id))
        if fact.repeated and not self.agent.in_turn and self.session.state == State.WORKING:
            self.session = self.unit.sessions.update(self.session.id, interrupted=True)
            self._change(State.IDLE)
            self._change(State.QUEUED)
            self.turn_ended = True
        elif not fact.repeated:
            self.agent = replace(self.agent, in_turn=True)

    def _shown(self, prompt_id: str, frame: Frame) -> None:
        """Note a sign of a running turn from an agent that does not confirm prompts."""
        for prompt in self.unit.prompts.sent(self.session.id):
            if prompt_id in {"", prompt.id}:
                self._seen(PromptSeen(prompt.id))
                self._event(event_pb2.TurnStarted(model=self.session.model, mode=self.session.mode))
                self._act(TurnBegan("", "", "", ""), frame)
                self._act(Activity("running"), frame)

    def _find_in_history(self, last_prompt: str) -> None:
        """Decide whether an earlier process took a prompt that it did not confirm: it did if the
        prompt is the last one in the conversation's history. Its turn was then cut off."""
        for prompt in self.unit.prompts.queued(self.session.id):
            if prompt.text.strip() in last_prompt:
                self.unit.prompts.mark_received(prompt.id, self.session.turns + 1)
                self._event(event_pb2.PromptReceived(prompt_id=prompt.id))
                self.session = self.unit.sessions.update(self.session.id, interrupted=True)
                return

    def _seconds_since_receipt(self) -> float:
        """Return the seconds since the last receipt of a prompt."""
        received = [each.receive_time for each in self.unit.prompts.list(self.session.id) if each.receive_time]
        return max(0.0, self.unit.now - received[-1]) if received else 0.0

    def _with_cost(self, fact: Answered, frame: Frame) -> Answered:
        """Return the turn with its own cost, computed from the conversation's total; a later
        process continues or restarts that total."""
        base = self.agent.cost_base
        if not base and (before := self.unit.agents.get(self.session.id, self.agent.generation - 1)) is not None:
            base = before.cost_base
        cost = fact.total_cost - base if fact.total_cost >= base else fact.total_cost
        frame.event.turn_ended.cost_usd = cost
        return replace(fact, costs=tuple(replace(each, cost_usd=cost) for each in fact.costs))

    def _event(self, payload: Message) -> None:
        self._log_lines()
        events.log(self.unit, self.session, payload)

    def _change(self, to: State, reason: str = "", *, hold: Hold = Hold.NONE) -> None:
        self._log_lines()
        self.session = change_state(self.unit, self.session, to, reason=reason, hold=hold)

    def _work(self) -> None:
        """Set the session to WORKING. A new turn clears the last result; a turn that waited for a
        person continues."""
        if self.agent.result and self.session.state not in {State.WORKING, State.WAITING}:
            self.agent = replace(self.agent, result="")
        if self.session.state in {State.QUEUED, State.STARTING, State.IDLE}:
            self._change(State.WORKING)

    def _settle(self, control_id: str) -> None:
        """Note that the agent has an answer. A rebuilt database, which reads this journal from its
        beginning, does not have the answer: close the request, so that no person is asked again."""
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
                frame=fact.frame or frame.line,
                answer=b"",
                cancelled=False,
            )
        )
        if not known and fact.question is not None:
            self.ask(fact.id, fact.question)

    def ask(self, control_id: str, question: Question) -> None:
        """Open a request for a control request, or bind the open one if an earlier process asked
        the same.

        Open none if `MOST_OPEN` of the session wait already: the agent's call is then denied.
        """
        self._log_lines()
        question = with_plan(self.unit, self.session.id, question)
        request = same_question(self.unit, self.session.id, question)
        if request is not None:
            request = self.unit.requests.rebind(request.id, self.agent.generation, control_id)
        else:
            # Close requests of a dead process first: they must not block the questions of the next
            # one.
            self._close(self.unit.requests.supersede(self.session.id, self.agent.generation))
            if self.unit.requests.open_count(self.session.id) >= MOST_OPEN:
                return
            request = self.unit.requests.add(
                new_request(
                    self.agent,
                    control_id,
                    question,
                    self.unit.now,
                    offers_of(question, self.session.worktree),
                )
            )
            log_request(self.unit, self.session, request, principal=self._principal)
            self._message_parent(f"Waiting for the person: this session {describe(request, self.session)}")
        if request.state == RequestState.OPEN and self.session.state in {
            State.QUEUED,
            State.STARTING,
            State.WORKING,
            State.IDLE,
        }:
            self._change(State.WAITING, describe(request, self.session))

    def _close(self, requests: Sequence[Request]) -> None:
        if requests:
            self._log_lines()
        for request in requests:
            log_request(self.unit, self.session, request)

    def _unblock(self) -> None:
        if self.session.state == State.WAITING and not self.unit.requests.open_count(self.session.id):
            self._change(State.WORKING)

    def _answered(self, fact: Answered, frame: Frame) -> None:
        if fact.cumulative:
            fact = self._with_cost(fact, frame)
        if self.agent.interrupting:
            fact = replace(fact, aborted=True, is_error=False)
        # Stopped while it asked: it took the end of its input for a refusal, and ended its turn.
        cut_off = self.session.state == State.PAUSED and self.unit.requests.open_count(self.session.id) > 0
        entries = [
            replace(entry, session_id=self.session.id, generation=self.agent.generation, time=self.unit.now)
            for entry in fact.costs
        ]
        fresh = [entry for entry in entries if self.unit.ledger.add(entry)]
        tokens, cost, tried = self.session.tokens, self.session.cost_usd, self.session.upstream_tries
        if cost is None and not self.session.turns:
            cost = 0.0
        for entry in fresh:
            tokens = tokens + entry.tokens
            cost = cost + entry.cost_usd if cost is not None and entry.cost_usd is not None else None
        self.session = self.unit.sessions.update(
            self.session.id,
            cost_usd=cost,
            tokens=tokens,
            turns=self.session.turns + 1,
            turn_seconds=self.session.turn_seconds + (fact.seconds or self._seconds_since_receipt()),
            resumes=self.session.resumes if fact.is_error else 0,
            interrupted=cut_off and self.session.interrupted,
            limit_resumes=self.session.limit_resumes if fact.is_error else 0,
            turn_summary="" if fact.aborted else first_line(fact.text),
            upstream_tries=self.session.upstream_tries if fact.is_error else 0,
        )
        if tried and not fact.is_error:
            self._log_lines()
            release_login(self.unit, self.session.agent)
        self._warn_of_budget()
        if fact.aborted:
            result = ABORTED
        elif fact.is_error:
            result = f"{ERROR}{first_line(fact.text) or 'the turn failed and the agent did not say why'}"
        else:
            result = OK
        if not (cut_off or self._goes_on(fact)):
            self.unit.prompts.settle(self.session.id, self.session.turns, result)
        self.agent = replace(self.agent, result=result, cost_base=fact.total_cost, in_turn=False)
        self.agent = replace(self.agent, interrupting=False, turn_offset=frame.end)
        if cut_off:
            self._close(self.unit.requests.mark_all_gone(self.session.id))
        if self.agent.activity != "running":
            self._end_turn()

    def _leave_behind(self) -> None:
        """Settle prompts of a turn that should be continued, if the agent begins another one
        instead: it had a queued prompt already."""
        result = self.agent.result
        if result and self.unit.prompts.settle(self.session.id, self.session.turns, result):
            failed = (
                f"a turn failed and is not repeated, since the next prompt was queued: {result.removeprefix(ERROR)}"
            )
            self._event(event_pb2.Warning(message=failed))

    def _goes_on(self, fact: Answered) -> bool:
        """Whether a later turn continues the work of a turn that failed or was cut off."""
        if fact.aborted:
            return bool(self.agent.over_budget) or self.session.hold in {Hold.PERSON, Hold.STOPPED}
        passes = self.agent.api_error not in {"", Trouble.FULL}
        return fact.is_error and (passes or self.agent.limit_until > self.unit.now)

    def _end_turn(self) -> None:
        """End the turn once the agent says that it is idle, has given its result, and runs nothing
        in the background."""
        agent = self.agent
        if self.session.state not in BUSY_STATES or agent.background or not agent.result:
            return
        if agent.activity not in {"idle", ""}:
            return
        self._close(self.unit.requests.mark_all_gone(self.session.id))
        failed, aborted = agent.result.startswith(ERROR), agent.result == ABORTED
        spent = budgets.exceeded(self.unit, self.session, self._policy.config.budget)
        if failed and agent.limit_until > self.unit.now:
            self._hold_for_limit(agent.limit_until)
        elif failed and agent.api_error == Trouble.FULL:
            kind = self._policy.kinds[self.session.agent]
            self._change(State.FAILED, too_long(self.unit, kind, self.session, agent.result.removeprefix(ERROR)))
        elif failed and agent.api_error:
            self._hold_for_trouble(agent.result.removeprefix(ERROR))
        elif failed:
            self._change(State.FAILED, agent.result.removeprefix(ERROR))
        elif spent is not None or (agent.over_budget and aborted):
            # A running turn of another session in its family may have exceeded the budget; the
            # ledger does not have it yet.
            self._hold(Hold.BUDGET, agent.over_budget if spent is None else spent.reason, interrupted=aborted)
        elif self.session.hold == Hold.PERSON:
            self._hold(Hold.PERSON, held_by_person(self.session), interrupted=aborted)
        elif aborted:
            self._change(State.IDLE, "interrupted", hold=Hold.INTERRUPTED)
            self._withdraw_unread()
        else:
            self._change(State.IDLE)
            if self.unit.prompts.queued(self.session.id):
                self._change(State.QUEUED)  # held back until the cut-off turn was finished
            else:
                self._ask_for_review()
        self.agent = replace(self.agent, over_budget="", api_error="")
        self.turn_ended = True
        self._message_parent(f"My turn has ended ({self.session.state}). {self._summary()}")

    def _withdraw_unread(self) -> None:
        """Cancel prompts that were sent into the turn that a person interrupted: they must not
        start another turn."""
        for prompt in self.unit.prompts.queued(self.session.id):
            withdraw(self.unit, self.session, prompt, DAEMON)

    def _hold_for_trouble(self, words: str) -> None:
        """Hold the session after trouble upstream. It retries by itself until the model's server
        answers."""
        tries = self.session.upstream_tries + 1
        until = self.unit.now + rest_after(tries) * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - no secret
        self.session = self.unit.sessions.update(self.session.id, upstream_tries=tries)
        if self.agent.api_error == Trouble.LOGIN:
            reason = f"{self.session.agent} is not logged in; continues by itself after the login: {words}"
            self._hold(Hold.LOGIN, reason, interrupted=True, resume_at=until)
        else:
            when = time.strftime("%H:%M:%S", time.localtime(until))
            reason = f"retries by itself at {when} (try {tries + 1}): {words}"  # the words may be long, and cut off
            self._hold(Hold.UPSTREAM, reason, interrupted=True, resume_at=until)

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
        """Hold the session until a usage limit ends; after `LIMIT_RESUMES` limits in a row, set it
        to FAILED."""
        times = self.session.limit_resumes + 1
        if times > LIMIT_RESUMES:
            self._change(State.FAILED, f"the usage limit was hit {times} times in a row")
            return
        when = time.strftime("%H:%M", time.localtime(until))
        self.session = self.unit.sessions.update(self.session.id, limit_resumes=times)
        self._hold(Hold.LIMIT, f"usage limit; continues by itself at {when}", interrupted=True, resume_at=until)

    def _warn_of_budget(self) -> None:
        """Warn once when most of a budget is spent."""
        spendings = budgets.spendings(self.unit, self.session, self._policy.config.budget)
        near = next((each for each in spendings if each.near), None)
        if near is not None and not self.session.budget_warned:
            self.session = self.unit.sessions.update(self.session.id, budget_warned=True)
            self._event(event_pb2.Warning(message=str(near)))

    def _ask_for_review(self) -> None:
        """Open a review request for a finished turn, except for a child session, which its parent
        reviews.

        It replaces the request of an earlier turn if no prompt arrived in between: the agent
        continued by itself after work in the background.
        """
        if self.session.parent_id:
            return
        question = Question(RequestKind.REVIEW, "", "", "{}", self._summary(), "[]")
        self._log_lines()
        close_reviews(self.unit, self.session)
        log_request(
            self.unit, self.session, self.unit.requests.add(new_request(self.agent, "", question, self.unit.now))
        )

    def _summary(self) -> str:
        """Return the result in one line: the report, else the last words of the turn."""
        return first_line(self.session.result) or self.session.turn_summary

    def _message_parent(self, words: str) -> None:
        """Message the session that spawned this one, if it asked for that."""
        if not self.session.notify_parent or not self.session.parent_id:
            return
        parent = self.unit.sessions.find(self.session.parent_id)
        if parent is None or parent.state == State.ARCHIVED:
            return
        self._log_lines()
        post(self.unit, self._policy.kinds[parent.agent], parent, words, self._principal)
        self.notified.append(parent.id)


def open_request(
    unit: Unit, policy: Policy, session_id: str, generation: int, control_id: str, question: Question
) -> None:
    """Open a request for an agent's control request, unless one exists or the agent no longer
    waits."""
    agent, known = unit.agents.get(session_id, generation), unit.control.get(session_id, generation, control_id)
    if agent is None or known is None or known.answer or known.cancelled:
        return
    if unit.requests.by_control(session_id, generation, control_id) is None:
        projection = Projection(unit, unit.sessions.get(session_id), agent, policy)
        projection.ask(control_id, question)
        projection.flush()
