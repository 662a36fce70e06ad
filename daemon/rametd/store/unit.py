"""What a work function gets: every table, on one connection, in one transaction."""

from rametd.store.agents import AgentReads, Agents
from rametd.store.calls import CallReads, Calls
from rametd.store.control import Control, ControlReads, Outbox, OutboxReads
from rametd.store.events import EventReads, Events
from rametd.store.intents import IntentReads, Intents
from rametd.store.ledger import Ledger, LedgerReads
from rametd.store.prompts import PromptReads, Prompts
from rametd.store.repos import RepoReads, Repos
from rametd.store.requests import RequestReads, Requests
from rametd.store.rows import Scope
from rametd.store.rules import RuleReads, Rules
from rametd.store.sessions import SessionReads, Sessions
from rametd.store.spawns import SpawnReads, Spawns
from rametd.store.trash import Trash, TrashReads


class Reader:
    """All tables, to be read, as of one commit."""

    repos: RepoReads
    sessions: SessionReads
    agents: AgentReads
    prompts: PromptReads
    requests: RequestReads
    control: ControlReads
    outbox: OutboxReads
    ledger: LedgerReads
    events: EventReads
    calls: CallReads
    intents: IntentReads
    trash: TrashReads
    rules: RuleReads
    spawns: SpawnReads

    def __init__(self, scope: Scope) -> None:
        self.repos = RepoReads(scope)
        self.sessions = SessionReads(scope)
        self.agents = AgentReads(scope)
        self.prompts = PromptReads(scope)
        self.requests = RequestReads(scope)
        self.control = ControlReads(scope)
        self.outbox = OutboxReads(scope)
        self.ledger = LedgerReads(scope)
        self.events = EventReads(scope)
        self.calls = CallReads(scope)
        self.intents = IntentReads(scope)
        self.trash = TrashReads(scope)
        self.rules = RuleReads(scope)
        self.spawns = SpawnReads(scope)


class Unit(Reader):
    """All tables, to be changed: what one work does is committed as a whole or not at all."""

    repos: Repos
    sessions: Sessions
    agents: Agents
    prompts: Prompts
    requests: Requests
    control: Control
    outbox: Outbox
    ledger: Ledger
    events: Events
    calls: Calls
    intents: Intents
    trash: Trash
    rules: Rules
    spawns: Spawns

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self._scope = scope
        self.repos = Repos(scope)
        self.sessions = Sessions(scope)
        self.agents = Agents(scope)
        self.prompts = Prompts(scope)
        self.requests = Requests(scope)
        self.control = Control(scope)
        self.outbox = Outbox(scope)
        self.ledger = Ledger(scope)
        self.events = Events(scope)
        self.calls = Calls(scope)
        self.intents = Intents(scope)
        self.trash = Trash(scope)
        self.rules = Rules(scope)
        self.spawns = Spawns(scope)

    @property
    def now(self) -> float:
        """When this work began: the time that its rows carry."""
        return self._scope.now

    def begin_run(self, instance_id: str, pid: int, version: str) -> int:
        """Record a run of a daemon; returns its fence, higher than any before."""
        (fence,) = self._scope.db.execute(
            "INSERT INTO runs (instance_id, pid, version, start_time) VALUES (?, ?, ?, ?) RETURNING fence",
            (instance_id, pid, version, self.now),
        ).fetchone()
        return int(fence)
