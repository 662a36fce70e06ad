"""Values of the domain. Times are seconds since the epoch (UTC), money is US dollars."""

import shlex
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from rametd.domain.states import State

OWNER = "owner"
"""Principal of the person. A session's principal is ``session:<id>``, the daemon's own is
``daemon``."""
DAEMON = "daemon"
COMMAND = "command"
"""Principal of landing checks, git hooks and setups in spares: they run code of agents without a
session, and may only read."""


class Mode(StrEnum):
    """Permission modes, spelled as in Claude Code."""

    DEFAULT = "default"
    ACCEPT_EDITS = "acceptEdits"
    PLAN = "plan"
    DONT_ASK = "dontAsk"
    AUTO = "auto"  # a model judges each call instead of the person
    BYPASS = "bypassPermissions"


EFFORTS = ("low", "medium", "high", "xhigh", "max")
"""Effort levels of Claude Code."""

STRICTEST_MODE = Mode.PLAN

UNATTENDED = frozenset({Mode.AUTO, Mode.BYPASS})
"""Modes in which no person decides: they need ``permissions.allow_bypass``."""

STRICTNESS = (Mode.PLAN, Mode.DONT_ASK, Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.AUTO, Mode.BYPASS)
"""Modes from strictest to loosest: a child's mode is never looser than its parent's."""


class Hold(StrEnum):
    """Why a session does not continue by itself: it is PAUSED, QUEUED during an operation, or IDLE
    after an interrupt."""

    NONE = ""
    STOPPED = "stopped"  # `stop` during a turn; the next prompt or `resume` continues
    PERSON = "person"  # `pause`
    BUDGET = "budget"
    LIMIT = "limit"
    OPERATION = "operation"  # it is being archived, rewound, …
    INTERRUPTED = "interrupted"  # a person cut its last turn off
    UPSTREAM = "upstream"  # overload or a lost connection: tried again by itself
    LOGIN = "login"  # the agent's login has lapsed
    ATTACHED = "attached"  # a person has its conversation in the agent's own program


class WorktreeKind(StrEnum):
    """Origin of a session's worktree: Ramet removes only OWN ones."""

    OWN = "own"  # created for the session
    IN_PLACE = "in_place"  # the person's checkout
    ADOPTED = "adopted"  # created by hand


class SetupState(StrEnum):
    """States of the setup of a worktree."""

    NONE = ""  # no setup is configured
    RUNNING = "running"  # pending or running
    DONE = "done"
    FAILED = "failed"  # the worktree can be used all the same
    UNTRUSTED = "untrusted"  # waiting until the owner trusts the repository


@dataclass(frozen=True, slots=True)
class Repo:
    id: str
    name: str
    root: Path  # the main worktree, or the bare directory
    common_dir: Path  # unique
    trust_digest: str  # of the contents that the person trusted last (`domain.trust`); "" if not trusted
    create_time: float

    @property
    def trusted(self) -> bool:
        """Whether the person trusts any contents of it; `Trusted` lists them."""
        return bool(self.trust_digest)


@dataclass(frozen=True, slots=True)
class Tokens:
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @property
    def counted(self) -> int:
        """Tokens that count towards a budget: all but those read from a cache."""
        return self.input + self.output + self.cache_write

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
    parent_id: str  # "" for a session that the person created
    agent: str  # kind of agent: "claude"
    model: str  # "" for the agent's own default
    mode: Mode
    state: State
    state_reason: str  # one line for people; "" if the state says enough
    hold: Hold
    conversation_id: str  # UUID of the agent's conversation, chosen by Ramet
    conversation_begun: bool  # the agent has recorded it: the next process resumes it
    created_branch: bool  # whether Ramet created the branch
    worktree_ready: bool  # the worktree was created and verified
    interrupted: bool  # a turn was cut off; the next agent continues it
    turns: int
    cost_usd: float | None  # None: unknown, as the agent does not report costs
    tokens: Tokens
    budget_usd: float | None
    priority: int  # higher goes first
    owns: tuple[str, ...]
    forbids: tuple[str, ...]
    after: tuple[str, ...]  # ids of sessions that must complete a turn before this one starts
    resumes: int  # automatic resumes since the last turn that ended normally
    generation: int  # of its newest agent process; 0 before the first
    create_time: float
    update_time: float
    last_seq: int  # of its newest event
    version: int = 0  # for compare-and-set
    root_id: str = ""  # the root of its family; its own id for a session that the person created
    notify_parent: bool = False  # whether its parent is notified when it ends a turn or needs a person
    result: str = ""  # the result that it reported
    resume_at: float | None = None  # when a usage limit is lifted
    limit_resumes: int = 0  # usage limits waited out since the last successful turn
    upstream_tries: int = 0  # turns in a row that trouble upstream or a lapsed login ended
    budget_tokens: int | None = None
    budget_warned: bool = False  # the warning that most of a budget is spent was sent
    worktree_kind: WorktreeKind = WorktreeKind.OWN
    setup: SetupState = SetupState.NONE
    setup_digest: str = ""  # of the files that the last setup depended on; a new digest makes setup run again
    port_base: int = 0  # the first of its ports; 0 while it has none
    port_count: int = 0
    forked_from: str = ""  # the session that it was forked from
    plan_id: str = ""
    thread: str = ""  # its id in the plan
    landed_reason: str = ""  # why its work counts as landed; "" if it is not
    checkpointed_turns: int = 0  # number of turns whose end has a checkpoint
    checkpoint: int = 0  # number of its current checkpoint; 0 before the first
    last_message_id: str = ""  # the agent's last message in the conversation; "" before the first
    turn_summary: str = ""  # first line of the agent's last message of the last turn
    setup_reason: str = ""  # why its setup is in this state
    archive_commit: str = ""  # id of an archived session's snapshot
    before_archive: tuple[str, ...] = ()  # state, hold and reason that an archived session had before
    effort: str = ""  # "" for the agent's own default
    doing: str = ""  # one line about the agent's last call or message, with paths relative to the worktree
    state_time: float = 0.0  # when it entered its state
    start_commit: str = ""  # where the branch of a fork began, with its original's commits; "" if that is `base_commit`
    conversation_lost: bool = False  # its conversation is gone: the next prompt begins a new one, with a summary
    environment: str = ""  # digest of the variables that its next agent gets (`services.environments`)
    turn_seconds: float = 0.0  # sum over its turns
    contest: str = ""  # the contest it takes part in, unique in its repository; "" for a session on its own
    contest_check: str = ""  # shell command that checks each contender; "" for none
    judges: str = ""  # the contest whose work it judges

    @property
    def reference(self) -> str:
        """The session as an argument of a command line; a name may contain spaces and shell
        syntax."""
        return self.id if self.name.startswith("-") else shlex.quote(self.name)

    @property
    def last_state(self) -> tuple[State, Hold, str]:
        """State, hold and reason; of an archived session those before the archive."""
        if self.state != State.ARCHIVED:
            return self.state, self.hold, self.state_reason
        state, hold, reason = self.before_archive or (State.IDLE, Hold.NONE, "")
        return State(state), Hold(hold), reason

    @property
    def checkpoint_due(self) -> bool:
        """Whether the last turn still needs a checkpoint."""
        return self.turns > self.checkpointed_turns


OK, ABORTED, ERROR = "ok", "aborted", "error: "
"""Results of turns; the agent's message follows `ERROR`."""


class AgentState(StrEnum):
    STARTING = "starting"  # the start is recorded; the keeper may not run yet
    LIVE = "live"
    EXITED = "exited"  # with an exit record
    LOST = "lost"  # ended without an exit record


class BackgroundCommand(NamedTuple):
    """A command or task in the background of an agent's turns."""

    id: str
    description: str
    start_time: float


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent process. A session has at most one alive; each has its own generation.

    The defaults describe a process before its first output.
    """

    session_id: str
    generation: int
    state: AgentState
    start_time: float
    handle: str = ""  # the executor's, opaque
    journal_offset: int = 0  # journal bytes that are committed as events
    stdin_offset: int = 0  # committed bytes of the keeper's record of written input
    initialize_reply: bytes = b""  # flags of the agent's first answer to `initialize`, or b""
    hook_table: str = ""  # digest of what `initialize` registered
    cli_version: str = ""
    end_time: float | None = None
    exit_status: str = ""  # "code 0", "signal SIGKILL", "" unknown
    stop_intent: str = (
        ""  # why the daemon ends it ("stop", "sleep", "remove"), stored before the signal; "" if it did not
    )
    mode: str = ""  # mode of the process, to be compared with the session's
    model: str = ""
    activity: str = ""  # last state that the agent reported: "running", "idle", "requires_action", "" before the first
    background: int = 0  # number of running background tasks: a turn is over when the agent is idle and has none
    background_commands: tuple[BackgroundCommand, ...] = ()  # all that runs in its background, the oldest first
    cost_base: float = 0.0  # total cost that the process reported with its last result
    over_budget: str = ""  # which budget interrupted its turn; "" if none did
    limit_until: float = 0.0  # when the current usage limit is lifted; 0 without one
    result: str = ""  # of the running turn; "" before
    api_error: str = ""  # of the running turn: a `Trouble` that the model's side answered; "" for anything else
    in_turn: bool = False  # it has shown that a turn runs: what it was given may have been read
    conversation_home: str = ""  # the directory below which it keeps the conversation, "" when unknown
    environment: str = ""  # digest of the variables that it was started with
    turn_offset: int = 0  # journal bytes before the running turn
    interrupting: bool = False  # its running turn was interrupted by Ramet


class PromptState(StrEnum):
    QUEUED = "queued"
    SENT = "sent"  # committed to be written to the agent of `generation`
    RECEIVED = "received"  # the agent has confirmed it
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Prompt:
    id: str  # a UUID; the agent confirms the prompt by it
    session_id: str
    number: int  # order within the session
    text: str
    source: str  # a principal
    state: PromptState
    generation: int  # of the agent that it was sent to; 0 before
    create_time: float
    receive_time: float | None
    hops: int = 0  # length of the chain of messages between sessions without a person in between
    continues: bool = False  # it continues a turn that was cut off
    turn: int = 0  # the turn, from 1, in which the agent received it; 0 before
    images: int = 0  # number of images that go with it
    result: str = ""  # of its turn, once that and all continuations have ended


class RequestKind(StrEnum):
    PERMISSION = "permission"
    QUESTION = "question"
    PLAN = "plan"
    ELICITATION = "elicitation"
    REVIEW = "review"
    CONFLICT = "conflict"  # two sessions change the same lines
    LANDING = "landing"  # a landing needs a person
    OWNERSHIP = "ownership"  # a session asks for paths of another session
    TROUBLE = "trouble"  # a session cannot continue without a person
    LOGIN = "login"  # a kind of agent is not logged in
    TRUST = "trust"  # a repository changed what the person trusted


DAEMON_REQUESTS = frozenset(
    {
        RequestKind.REVIEW,
        RequestKind.CONFLICT,
        RequestKind.LANDING,
        RequestKind.OWNERSHIP,
        RequestKind.TROUBLE,
        RequestKind.LOGIN,
        RequestKind.TRUST,
    }
)
"""Kinds of request that the daemon opens. No agent waits for them: they stay open beyond process
and turn, and the session continues."""


class RequestState(StrEnum):
    OPEN = "open"
    ANSWERED = "answered"
    GONE = "gone"  # withdrawn: the agent no longer asks


@dataclass(frozen=True, slots=True)
class Request:
    """A request, which waits for a person."""

    id: str
    session_id: str
    generation: int
    control_id: str  # the agent's id of the control request; "" once its process is gone
    tool_use_id: str
    kind: RequestKind
    tool: str
    input: str  # JSON object
    reason: str
    suggestions: str  # JSON list: rules that the agent suggests
    edit: bytes  # a FileEdit message: what an editing tool would change; b"" for none
    offers: tuple[str, ...]  # what an approval can remember: rules, several joined by newlines
    state: RequestState
    answer: str  # JSON object, "" while open
    answered_by: str
    answer_time: float | None
    create_time: float


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """A request of the agent's control protocol, stored until the agent has its answer."""

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
    """A line to be written to an agent, in order, exactly once."""

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
    cost_usd: float | None  # None: unknown
    tokens: Tokens
    time: float


class LastWords(NamedTuple):
    """The last message of a session's agent, and its present activity in one line; each may be
    ""."""

    session_id: str
    conversation_id: str = ""
    message_id: str = ""
    doing: str = ""


class NewEvent(NamedTuple):
    """An event to append; the log assigns its number."""

    kind: str
    session_id: str = ""
    repo_id: str = ""
    principal: str = DAEMON
    payload: bytes = b""  # serialized; see Event.payload in the .proto file
    frame: bytes = b""  # the agent's raw line that caused it, if any
    time: float = 0.0


class Event(NamedTuple):
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
        """Approximate size in bytes, in memory and on disk."""
        return len(self.payload) + len(self.frame)


@dataclass(frozen=True, slots=True)
class Restore:
    """Last restore of a session from ``origin``, the archive or the trash, with warnings about
    differences."""

    session_id: str
    origin: str
    warnings: tuple[str, ...]
    time: float


@dataclass(frozen=True, slots=True)
class Attachment:
    """The process of a person that has a session's conversation open, and the position up to which
    Ramet has stored the turns of such processes."""

    session_id: str
    pid: int = 0  # 0 while there is none
    start: str = ""  # of the process, see `platform.processes`
    boot: str = ""
    terminal: str = ""  # such as "pts/3"
    hold: Hold = Hold.NONE  # the session's before
    taken_until: float = 0.0  # time of the newest line of the transcript that was read

    @property
    def place(self) -> str:
        return f"attached at {self.terminal}" if self.terminal else f"attached (pid {self.pid})"


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
    session: str  # JSON of the session's row
    create_time: float
    expire_time: float
    belongings: str = "{}"  # JSON of its rules and undelivered prompts


@dataclass(frozen=True, slots=True)
class StoredRule:
    """A permission rule, in Claude's own syntax."""

    id: str
    repo_id: str
    session_id: str  # "" for all sessions of the repository
    agent: str  # "" for all kinds of agents
    effect: str  # "allow", "ask" or "deny"
    text: str
    source: str  # principal that created it
    request_id: str  # the request whose answer created it, or ""
    matches: int
    create_time: float
    match_time: float | None
