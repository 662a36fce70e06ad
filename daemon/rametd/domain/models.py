"""What the daemon knows, as values. Times are seconds since the epoch (UTC), money is US dollars."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rametd.domain.states import State

OWNER = "owner"
"""The principal that is the person; a session's principal is ``session:<id>``; the daemon's own acts are ``daemon``."""
DAEMON = "daemon"
COMMAND = "command"
"""The principal of landing checks and of setups in spares: they run code of agents for no session, and may do nothing but look."""


class Mode(StrEnum):
    """Permission modes of Claude Code, as the person writes them."""

    DEFAULT = "default"
    ACCEPT_EDITS = "acceptEdits"
    PLAN = "plan"
    DONT_ASK = "dontAsk"
    BYPASS = "bypassPermissions"


STRICTEST_MODE = Mode.PLAN

STRICTNESS = (Mode.PLAN, Mode.DONT_ASK, Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.BYPASS)
"""From the strictest to the loosest: a child's mode never stands behind its parent's."""


class Hold(StrEnum):
    """Why a session does not go on by itself: PAUSED for most reasons, QUEUED for an operation, IDLE after an interrupt."""

    NONE = ""
    STOPPED = "stopped"  # `stop` in the middle of something; the next prompt or `resume` goes on
    PERSON = "person"  # `pause`
    BUDGET = "budget"
    LIMIT = "limit"
    OPERATION = "operation"  # it is being archived, rewound, …
    INTERRUPTED = "interrupted"  # a person cut its last turn off


class WorktreeKind(StrEnum):
    """Whose a session's worktree is: only our own ones are ever removed."""

    OWN = "own"  # made for the session
    IN_PLACE = "in_place"  # the checkout of somebody else
    ADOPTED = "adopted"  # made by hand


class SetupState(StrEnum):
    """How far the setup of a worktree is."""

    NONE = ""  # there is none
    RUNNING = "running"  # it is to be run, or runs
    DONE = "done"
    FAILED = "failed"  # the tree can be used all the same
    UNTRUSTED = "untrusted"  # it waits until the owner trusts the repository


@dataclass(frozen=True, slots=True)
class Repo:
    id: str
    name: str
    root: Path  # the main worktree, or the bare directory
    common_dir: Path  # unique
    trust_digest: (
        str  # of the contents that the person trusted last (`domain.trust`); "" for a repository that is not trusted
    )
    create_time: float

    @property
    def trusted(self) -> bool:
        """Whether the person trusts anything of it; what that is, `Trusted` tells."""
        return bool(self.trust_digest)


@dataclass(frozen=True, slots=True)
class Tokens:
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
        )


@dataclass(frozen=True, slots=True)
class Session:
    id: str
    repo_id: str
    name: str  # the label, as typed
    branch: str
    base_ref: str
    base_commit: str
    worktree: Path
    parent_id: str  # "" for a session of the person's
    agent: str  # which kind: "claude"
    model: str  # "" for the agent's own default
    mode: Mode
    state: State
    state_reason: str  # one line for people; "" when the state says it all
    hold: Hold
    conversation_id: str  # the agent's own id of the conversation, a UUID, chosen by us
    conversation_begun: bool  # the agent has it on record: the next process resumes it
    created_branch: bool  # whether the branch was made by us
    worktree_ready: bool  # the tree was made and verified
    interrupted: bool  # a turn was cut off and is to be taken up again by the next agent
    turns: int
    cost_usd: float
    tokens: Tokens
    budget_usd: float | None
    priority: int  # higher goes first
    owns: tuple[str, ...]
    forbids: tuple[str, ...]
    after: tuple[str, ...]  # ids of sessions that must have ended a turn well before this one starts
    resumes: int  # automatic resumes since the last turn that ended by itself
    generation: int  # of its newest agent process; 0 before the first
    create_time: float
    update_time: float
    last_seq: int  # of its newest event
    version: int = 0  # for compare-and-set
    root_id: str = ""  # the session that its family descends from; its own id for one of the person's
    notify_parent: bool = False  # its parent is told when it ends a turn or needs a person
    result: str = ""  # what it reported of its work
    resume_at: float | None = None  # when a usage limit is lifted
    limit_resumes: int = 0  # usage limits waited out since the last turn that ended well
    budget_warned: bool = False  # that most of a budget is spent has been said
    worktree_kind: WorktreeKind = WorktreeKind.OWN
    setup: SetupState = SetupState.NONE
    setup_digest: str = ""  # of what the setup that ran depends on; another one makes it run again
    port_base: int = 0  # the first of its ports; 0 while it has none
    port_count: int = 0
    forked_from: str = ""  # the session that it began as a copy of
    plan_id: str = ""
    thread: str = ""  # its id in the plan
    landed_reason: str = ""  # how it is known that its work is on the branch it lands on; "" when it is not
    checkpointed_turns: int = 0  # turns whose end was kept as a checkpoint
    checkpoint: int = 0  # the number of the checkpoint that it goes on from; 0 before the first
    last_message_id: str = ""  # of its conversation: the agent's last message; "" before the first
    turn_summary: str = ""  # the first line of what the agent said at the end of its last turn
    setup_reason: str = ""  # why its setup is in the state that it is in
    archive_commit: str = ""  # what keeps the work of an archived session

    @property
    def checkpoint_due(self) -> bool:
        """Whether the end of its last turn is still to be kept."""
        return self.turns > self.checkpointed_turns


class AgentState(StrEnum):
    STARTING = "starting"  # the intent is stored, the keeper is not known to run
    LIVE = "live"
    EXITED = "exited"  # with an exit record
    LOST = "lost"  # ended, and nobody saw how


@dataclass(frozen=True, slots=True)
class Agent:
    """One process of an agent: a session has one at a time, each with its own generation. The defaults are of one of which nothing was read yet."""

    session_id: str
    generation: int
    state: AgentState
    start_time: float
    handle: str = ""  # the executor's; opaque
    journal_offset: int = 0  # committed: everything before it is events
    stdin_offset: int = 0  # committed: everything before it was seen in the keeper's record of what was written
    initialize_reply: bytes = b""  # the agent's first answer to `initialize`, or b""
    hook_table: str = ""  # digest of what `initialize` registered
    cli_version: str = ""
    end_time: float | None = None
    exit_status: str = ""  # "code 0", "signal SIGKILL", "" unknown
    stop_intent: str = ""  # why we ended it ("stop", "sleep", "remove"), stored before the signal; "" when we did not
    mode: str = ""  # what the process runs with, to be compared with what the session wants
    model: str = ""
    activity: str = ""  # the agent's own last word: "running", "idle", "requires_action", "" before the first
    background: int = 0  # background tasks it runs: a turn is over when it is idle and has none
    cost_base: float = 0.0  # what the process said to have cost at its last result, of what it says to have cost now
    over_budget: str = ""  # why its turn was interrupted for lack of money, "" when it was not
    limit_until: float = 0.0  # a usage limit was hit and is lifted then; 0 when none is
    result: str = ""  # of the running turn: "" before it has one, "ok", "aborted", or "error: " and the agent's words


class PromptState(StrEnum):
    QUEUED = "queued"
    SENT = "sent"  # committed to be written to the agent of `generation`
    RECEIVED = "received"  # the agent has shown it
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Prompt:
    id: str  # a UUID, the agent's receipt for it
    session_id: str
    number: int  # order within the session
    text: str
    source: str  # a principal
    state: PromptState
    generation: int  # of the agent it was sent to; 0 before
    create_time: float
    receive_time: float | None
    hops: int = 0  # how many sessions in a row have answered each other without a person in between
    continues: bool = False  # it takes up a turn that was cut off
    turn: int = 0  # the turn, from 1, in which the agent received it; 0 before


class RequestKind(StrEnum):
    PERMISSION = "permission"
    QUESTION = "question"
    PLAN = "plan"
    ELICITATION = "elicitation"
    REVIEW = "review"
    CONFLICT = "conflict"  # two sessions change the same lines
    LANDING = "landing"  # a landing needs a person
    OWNERSHIP = "ownership"  # a session asks for paths that are not its own


OF_THE_DAEMON = frozenset({RequestKind.REVIEW, RequestKind.CONFLICT, RequestKind.LANDING, RequestKind.OWNERSHIP})
"""Requests that no agent waits for: they outlive its process and its turn, and a session with one of them goes on."""


class RequestState(StrEnum):
    OPEN = "open"
    ANSWERED = "answered"
    GONE = "gone"  # the agent no longer asks


@dataclass(frozen=True, slots=True)
class Request:
    """Something that waits for a person."""

    id: str
    session_id: str
    generation: int
    control_id: str  # the agent's id of the control request; "" once its process is gone
    tool_use_id: str
    kind: RequestKind
    tool: str
    input: str  # JSON object
    reason: str
    suggestions: str  # JSON list: what the agent offers to remember
    state: RequestState
    answer: str  # JSON object, "" while open
    answered_by: str
    answer_time: float | None
    create_time: float


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """A request of the agent's control protocol, kept until the agent has its answer."""

    session_id: str
    generation: int
    id: str
    subtype: str
    frame: bytes  # the raw line
    answer: bytes  # the raw line, b"" while open
    cancelled: bool


class OutgoingKind(StrEnum):
    PROMPT = "prompt"
    ANSWER = "answer"
    CONTROL = "control"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A line committed to be written to an agent, in order, exactly once."""

    id: int
    session_id: str
    generation: int
    kind: OutgoingKind
    ref: str  # prompt id or control request id
    line: bytes
    written: bool


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """Cost of one result of one agent process, by model."""

    session_id: str
    generation: int
    result_index: int
    model: str
    cost_usd: float
    tokens: Tokens
    time: float


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event about to be appended; the log gives it its number."""

    kind: str
    session_id: str = ""
    repo_id: str = ""
    principal: str = DAEMON
    payload: bytes = b""  # serialized, see the contract's Event.payload
    frame: bytes = b""  # the agent's raw line, where one caused it
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class Event:
    seq: int
    kind: str
    session_id: str
    repo_id: str
    principal: str
    payload: bytes
    frame: bytes
    time: float

    @property
    def size(self) -> int:
        """Bytes that it holds in memory, and nearly all of what it has on the disk: an agent's line may be megabytes."""
        return len(self.payload) + len(self.frame)


@dataclass(frozen=True, slots=True)
class Restore:
    """The last time that a session was restored from ``origin``, the archive or the trash, and what was not as before."""

    session_id: str
    origin: str
    warnings: tuple[str, ...]
    time: float


@dataclass(frozen=True, slots=True)
class TrashEntry:
    id: str
    repo_id: str
    session_id: str
    name: str
    branch: str
    ref: str
    commit: str
    branch_commit: str
    bytes: int
    session: str  # JSON of the row as it was
    create_time: float
    expire_time: float
    belongings: str = "{}"  # JSON of what went with the row: rules, prompts that were not delivered


@dataclass(frozen=True, slots=True)
class StoredRule:
    """A permission rule, in Claude's own syntax."""

    id: str
    repo_id: str
    session_id: str  # "" for all sessions of the repository
    effect: str  # "allow", "ask" or "deny"
    text: str
    source: str  # who made it: a principal
    request_id: str  # the request whose answer made it, or ""
    matches: int
    create_time: float
    match_time: float | None
