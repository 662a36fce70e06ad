"""The argument of a work: all tables, on one connection, in one transaction."""

from rametd.store.agents import AgentReads, Agents
from rametd.store.attachments import AttachmentReads, Attachments
from rametd.store.calls import CallReads, Calls
from rametd.store.checkpoints import CheckpointReads, Checkpoints, CutReads, Cuts
from rametd.store.commands import CommandReads, Commands
from rametd.store.comments import CommentReads, Comments
from rametd.store.conflicts import ConflictReads, Conflicts, NoticeReads, Notices
from rametd.store.control import Control, ControlReads, Outbox, OutboxReads
from rametd.store.events import EventReads, Events
from rametd.store.landings import LandingReads, Landings
from rametd.store.ledger import Ledger, LedgerReads
from rametd.store.notifications import NotificationReads, Notifications
from rametd.store.operations import OperationReads, Operations
from rametd.store.plans import PlanReads, Plans
from rametd.store.prompts import PromptReads, Prompts
from rametd.store.pull_requests import PullRequestReads, PullRequests
from rametd.store.repos import RepoReads, Repos
from rametd.store.requests import RequestReads, Requests
from rametd.store.rows import Scope, Table
from rametd.store.rules import RuleReads, Rules
from rametd.store.sessions import SessionReads, Sessions
from rametd.store.spares import SpareReads, Spares
from rametd.store.spawns import SpawnReads, Spawns
from rametd.store.trash import RestoreReads, Restores, Trash, TrashReads

PROBLEMS = 20


class HealthReads(Table):
    """Integrity check of the whole database, on demand."""

    def problems(self) -> list[str]:
        """Problems in SQLite's words, at most `PROBLEMS` of each kind; empty if there are none.
        Takes seconds at millions of rows."""
        words = [str(row[0]) for row in self._db.execute(f"PRAGMA quick_check({PROBLEMS})")]
        broken = [
            f"row {row} of {table} refers to a missing row of {parent}"
            for table, row, parent, _ in self._db.execute("PRAGMA foreign_key_check").fetchmany(PROBLEMS)
        ]
        return [each for each in words if each != "ok"] + broken


class Reader:
    """All tables for reading, at the state of one commit."""

    repos: RepoReads
    sessions: SessionReads
    agents: AgentReads
    prompts: PromptReads
    requests: RequestReads
    comments: CommentReads
    conflicts: ConflictReads
    notices: NoticeReads
    control: ControlReads
    outbox: OutboxReads
    ledger: LedgerReads
    events: EventReads
    calls: CallReads
    operations: OperationReads
    trash: TrashReads
    restores: RestoreReads
    health: HealthReads
    rules: RuleReads
    commands: CommandReads
    checkpoints: CheckpointReads
    conversation_cuts: CutReads
    spawns: SpawnReads
    landings: LandingReads
    spares: SpareReads
    pull_requests: PullRequestReads
    plans: PlanReads
    notifications: NotificationReads
    attachments: AttachmentReads

    def __init__(self, scope: Scope) -> None:
        self.repos = RepoReads(scope)
        self.sessions = SessionReads(scope)
        self.agents = AgentReads(scope)
        self.prompts = PromptReads(scope)
        self.requests = RequestReads(scope)
        self.comments = CommentReads(scope)
        self.conflicts = ConflictReads(scope)
        self.notices = NoticeReads(scope)
        self.control = ControlReads(scope)
        self.outbox = OutboxReads(scope)
        self.ledger = LedgerReads(scope)
        self.events = EventReads(scope)
        self.calls = CallReads(scope)
        self.operations = OperationReads(scope)
        self.trash = TrashReads(scope)
        self.restores = RestoreReads(scope)
        self.health = HealthReads(scope)
        self.rules = RuleReads(scope)
        self.commands = CommandReads(scope)
        self.checkpoints = CheckpointReads(scope)
        self.conversation_cuts = CutReads(scope)
        self.spawns = SpawnReads(scope)
        self.landings = LandingReads(scope)
        self.spares = SpareReads(scope)
        self.pull_requests = PullRequestReads(scope)
        self.plans = PlanReads(scope)
        self.notifications = NotificationReads(scope)
        self.attachments = AttachmentReads(scope)


class Unit(Reader):
    """All tables for writing: the changes of one work are committed completely or not at all."""

    repos: Repos
    sessions: Sessions
    agents: Agents
    prompts: Prompts
    requests: Requests
    comments: Comments
    conflicts: Conflicts
    notices: Notices
    control: Control
    outbox: Outbox
    ledger: Ledger
    events: Events
    calls: Calls
    operations: Operations
    trash: Trash
    restores: Restores
    rules: Rules
    commands: Commands
    checkpoints: Checkpoints
    conversation_cuts: Cuts
    spawns: Spawns
    landings: Landings
    spares: Spares
    pull_requests: PullRequests
    plans: Plans
    notifications: Notifications
    attachments: Attachments

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self._scope = scope
        self.repos = Repos(scope)
        self.sessions = Sessions(scope)
        self.agents = Agents(scope)
        self.prompts = Prompts(scope)
        self.requests = Requests(scope)
        self.comments = Comments(scope)
        self.conflicts = Conflicts(scope)
        self.notices = Notices(scope)
        self.control = Control(scope)
        self.outbox = Outbox(scope)
        self.ledger = Ledger(scope)
        self.events = Events(scope)
        self.calls = Calls(scope)
        self.operations = Operations(scope)
        self.trash = Trash(scope)
        self.restores = Restores(scope)
        self.rules = Rules(scope)
        self.commands = Commands(scope)
        self.checkpoints = Checkpoints(scope)
        self.conversation_cuts = Cuts(scope)
        self.spawns = Spawns(scope)
        self.landings = Landings(scope)
        self.spares = Spares(scope)
        self.pull_requests = PullRequests(scope)
        self.plans = Plans(scope)
        self.notifications = Notifications(scope)
        self.attachments = Attachments(scope)

    @property
    def now(self) -> float:
        """Time when this work began, for its rows."""
        return self._scope.now

    def begin_run(self, instance_id: str, pid: int, version: str) -> int:
        """Record a run of a daemon; return its fence, higher than any earlier one."""
        (fence,) = self._scope.db.execute(
            "INSERT INTO runs (instance_id, pid, version, start_time) VALUES (?, ?, ?, ?) RETURNING fence",
            (instance_id, pid, version, self.now),
        ).fetchone()
        return int(fence)
