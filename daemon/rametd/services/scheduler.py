"""The scheduler: give slots to queued sessions whose predecessors are done, by priority, and fairly
between repositories."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import count

import structlog

from rametd.domain.models import DAEMON, Agent, AgentState, Hold, RequestKind, Session
from rametd.domain.states import BUSY_STATES, SLOT_STATES, State
from rametd.services import budgets
from rametd.services.agents.launching import environment_of
from rametd.services.agents.stopping import end_agent
from rametd.services.agents.supervisor import Supervisor
from rametd.services.core import Core
from rametd.services.delivery import deliver
from rametd.services.lifecycle import ask_person, change_state, log_request, release_session_login
from rametd.services.operations import unfinished
from rametd.services.predecessors import blocked_by
from rametd.services.sessions import release
from rametd.services.tasks import Tasks
from rametd.services.trackers import Trackers
from rametd.services.worktrees.checkpoints import Checkpointer
from rametd.store import Reader, Unit

log = structlog.get_logger()

PERIOD_S = 30.0
"""Maximum pause in seconds: a new day, with a new budget, causes no event."""
LOGIN_LOOK_S = 5.0
"""Interval in seconds at which to check the credentials of agents that are not logged in."""


class Scheduler:
    """One task; `LiveAgents.schedule` wakes it when a session may have become startable."""

    def __init__(self, core: Core, supervisor: Supervisor, checkpointer: Checkpointer, trackers: Trackers) -> None:
        self._core = core
        self._checkpointer = checkpointer
        self._trackers = trackers
        self._supervisor = supervisor
        self._turns = count(1)
        self._outdated: list[Session] = []  # queued sessions whose living agent has an outdated environment
        self._endings = Tasks("end-outdated")
        self._unkept: list[str] = []  # sessions without a checkpoint of their last turn
        self._served: dict[str, int] = {}  # repository → when it last got a slot, as a counter
        self._accounts: dict[
            tuple[str, str], str
        ] = {}  # kind of agent, digest of an environment → digest of its credentials
        self._unlooked = False  # the credentials of a session are not known yet
        self._logged_out: dict[str, Session] = {}  # credentials → first session that waits for this login
        self._lapsed: dict[str, str] = {}  # waiting session → its credentials when they were found expired
        self._login_asked = True  # a request about a login may be open

    def _end(self, session: Session) -> None:
        async def end() -> None:
            try:
                await end_agent(self._core, self._supervisor, session, "environment")
            finally:
                self._core.live.schedule()

        self._endings.start(session.id, end())

    async def run(self) -> None:
        rest = 0.0
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._core.live.startable.wait(), rest)
            self._core.live.startable.clear()
            self._unkept.clear()
            self._outdated.clear()
            self._unlooked = False
            await self._watch_logins()
            to_launch, to_send, rest = await self._core.store.write_for_sure(self._claim)
            if self._unlooked:
                self._core.live.schedule()
            for session_id in self._unkept:
                self._checkpointer.catch_up(session_id)
            for session in self._outdated:
                self._end(session)
            for session, agent in to_launch:
                self._supervisor.launch(session, agent)
            for session_id in to_send:
                runner = self._core.live.get(session_id)
                if runner is not None:
                    self._trackers.follow(runner.session)
                    runner.wake_sender()

    async def _watch_logins(self) -> None:
        """Continue sessions whose credentials have changed since their login was found expired.

        Sessions with the same credentials share a login. A session with a key in its own
        environment does not wait for it.
        """
        if not self._login_asked:
            return
        core = self._core

        def find(reader: Reader) -> tuple[list[Session], list[Session]]:
            held = [each for each in reader.sessions.list(states={State.PAUSED}) if each.hold == Hold.LOGIN]
            asked = [each.session_id for each in reader.requests.open() if each.kind == RequestKind.LOGIN]
            return held, [*held, *reader.sessions.queued(), *reader.sessions.get_many(asked)]

        held, concerned = await core.store.read(find)
        accounts: dict[tuple[str, str], str] = {}
        for session in concerned:
            if (key := (session.agent, session.environment)) not in accounts:
                environment = await environment_of(core, session, {})
                accounts[key] = await asyncio.to_thread(core.kind(session.agent).credentials, environment)
        self._accounts = accounts
        before, self._lapsed = self._lapsed, {}
        for session in held:
            account = self._account(session)
            self._lapsed[session.id] = before.get(session.id, account)
            if self._lapsed[session.id] != account:
                await core.store.write_for_sure(lambda unit, of=session.id: release_session_login(unit, of))  # type: ignore[misc]

    def _account(self, session: Session) -> str:
        """Digest of a session's credentials at the last check; "" if they were not checked."""
        return self._accounts.get((session.agent, session.environment), "")

    def _ask_for_login(self, unit: Unit, held: Sequence[Session]) -> None:
        """Keep one request open for each expired login."""
        if not held and not self._login_asked:
            return
        self._login_asked = True
        if not all(map(self._account, held)):
            self._unlooked = True
            return
        self._logged_out = {self._account(session): session for session in reversed(held)}
        asked: set[str] = set()
        for request in [each for each in unit.requests.open() if each.kind == RequestKind.LOGIN]:
            session = unit.sessions.get(request.session_id)
            account = self._account(session)
            if session.upstream_tries and session.state in BUSY_STATES | {State.QUEUED}:
                self._logged_out.setdefault(account, session)  # it is testing the login
            if account in self._logged_out and account not in asked:
                asked.add(account)
            else:
                for closed in unit.requests.close([request.id]):
                    log_request(unit, session, closed)
        for account, session in self._logged_out.items():
            if account not in asked:
                command = self._core.kind(session.agent).login_command(self._core.daemon_environment)
                ask_person(unit, session, RequestKind.LOGIN, {"command": command}, session.state_reason)
        self._login_asked = bool(self._logged_out)

    def _claim(self, unit: Unit) -> tuple[list[tuple[Session, Agent]], list[str], float]:
        """Assign free slots. Return sessions whose agent to start, sessions whose living agent got
        work, and the seconds to sleep."""
        counts = unit.sessions.counts()
        if not (counts[State.QUEUED] or counts[State.PAUSED] or self._login_asked):  # most ends of turns
            return [], [], PERIOD_S
        rest = self._release_held(unit)
        free = self._core.config.max_working - sum(counts[state] for state in SLOT_STATES)
        to_launch: list[tuple[Session, Agent]] = []
        to_send: list[str] = []
        for session in self._by_turns(unit):
            if (self._unlooked or self._logged_out) and not self._account(session):
                self._unlooked = True
                continue  # until its credentials are known
            if self._account(session) in self._logged_out and not session.upstream_tries:
                why = f"waits until {session.agent} is logged in"
                if (session.hold, session.state_reason) != (Hold.LOGIN, why):
                    change_state(unit, session, State.QUEUED, reason=why, hold=Hold.LOGIN)
                continue
            if session.hold == Hold.LOGIN:
                session = change_state(unit, session, State.QUEUED)
            if (operation := unit.operations.exclusive(session.id)) is not None:
                why = unfinished(operation) or f"it is {operation.doing}"
                if (session.hold, session.state_reason) != (Hold.OPERATION, why):
                    change_state(unit, session, State.QUEUED, reason=why, hold=Hold.OPERATION)
                continue  # no process may start during an operation
            if session.hold == Hold.OPERATION:  # the operation has ended
                session = change_state(unit, session, State.QUEUED)
            if session.checkpoint_due:
                self._unkept.append(session.id)
                continue  # until the checkpoint of its last turn exists
            if (blocked := blocked_by(unit, session)) is not None:
                if session.state_reason != blocked:
                    change_state(unit, session, State.QUEUED, reason=blocked)
                continue
            if not unit.prompts.queued(session.id) and not session.interrupted:
                change_state(unit, session, State.IDLE)
                continue
            spent = budgets.exceeded(unit, session, self._core.config.budget)
            if spent is not None:
                change_state(unit, session, State.PAUSED, reason=spent.reason, hold=Hold.BUDGET)
                continue
            if free <= 0:
                break
            agent = unit.agents.latest(session.id)
            if agent is not None and agent.state in {AgentState.STARTING, AgentState.LIVE}:
                if agent.stop_intent:  # it is being ended, and its end wakes the scheduler
                    continue
                if agent.environment != session.environment and not (agent.background or agent.background_commands):
                    # Its environment is outdated, and it runs no turn or command: start an agent
                    # with the new environment at once.
                    unit.agents.update(session.id, agent.generation, stop_intent="environment")
                    self._outdated.append(session)
                    continue
                deliver(unit, self._core.kind(session.agent), session, begin=True)
                to_send.append(session.id)
            else:
                to_launch.append(self._begin(unit, session))
            free -= 1
            self._served[session.repo_id] = next(self._turns)
        return to_launch, to_send, rest

    def _by_turns(self, unit: Unit) -> list[Session]:
        """The queue in order. For the same priority, the repository that has waited longest for a
        slot is first."""
        queued = unit.sessions.queued()
        if len(queued) < 2:
            return queued
        at_work = unit.sessions.counts_by_repo(SLOT_STATES)
        ranked: list[tuple[int, int, int, int, Session]] = []
        places: Counter[tuple[str, int]] = Counter()
        for number, session in enumerate(queued):
            repo_id = session.repo_id
            places[repo_id, session.priority] += 1
            turn = at_work.get(repo_id, 0) + places[repo_id, session.priority]
            ranked.append((-session.priority, turn, self._served.get(repo_id, 0), number, session))
        return [session for *_, session in sorted(ranked, key=lambda rank: rank[:-1])]

    def _release_held(self, unit: Unit) -> float:
        """Queue sessions that a limit, a budget or an upstream error no longer holds. Return the
        seconds until the next may follow."""
        rest = PERIOD_S
        login: list[Session] = []
        probed: set[str] = set()
        for session in unit.sessions.list(states={State.PAUSED}):
            if session.hold == Hold.LOGIN:
                login.append(session)
                rest = min(rest, LOGIN_LOOK_S)
                account = self._account(session) or session.agent
                if account in probed:  # one session of each account tests the login now and then
                    continue
                probed.add(account)
            if session.hold in {Hold.LIMIT, Hold.UPSTREAM, Hold.LOGIN} and session.resume_at is not None:
                if session.resume_at <= unit.now:
                    change_state(unit, session, State.QUEUED, resume_at=None)
                else:
                    rest = min(rest, session.resume_at - unit.now)
            elif session.hold == Hold.BUDGET:
                release(unit, session, self._core.config.budget, DAEMON)
        self._ask_for_login(unit, login)
        return rest

    def _begin(self, unit: Unit, session: Session) -> tuple[Session, Agent]:
        generation = session.generation + 1
        session = change_state(unit, session, State.STARTING, reason=session.state_reason, generation=generation)
        agent = unit.agents.insert(
            Agent(
                session_id=session.id,
                generation=generation,
                state=AgentState.STARTING,
                start_time=unit.now,
                mode=session.mode,
                model=session.model,
                environment=session.environment,  # the process reads the file later, and gets this one or a newer one
            )
        )
        return session, agent
