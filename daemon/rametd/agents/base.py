"""What every kind of agent must offer: how to start its program, what its lines mean, and how to talk to it.

The lines themselves are the truth. A `Frame` is one line with its typed event and the facts that the rest of the daemon acts on; a line nobody
understands is still a frame.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ramet.v1 import event_pb2

from rametd.config import Config
from rametd.domain.checkpoints import ConversationCut
from rametd.domain.errors import AgentUnableError
from rametd.domain.models import Agent, LedgerEntry, Mode, Prompt, Session


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a kind of agent can do. Ramet refuses what it cannot, in words (`require`)."""

    ask: bool = True  # it asks before it makes a call; without, writes are checked afterwards only
    set_mode: bool = True  # a running process takes another permission mode
    set_model: bool = True
    effort: bool = False
    resume: bool = True  # another process goes on with the conversation
    ask_again: bool = False  # a resumed process asks again what the one before was waiting for
    fork: bool = False  # a copy of the conversation goes on elsewhere
    rewind: bool = False  # the conversation can be cut at an earlier message
    steer: bool = False  # a running turn takes a prompt; without, prompts wait for its end
    cost: bool = False  # it tells what a turn cost
    tokens: bool = False
    mcp: bool = True  # it offers MCP tools to the model
    images: bool = False
    partial: bool = True  # it sends words while the model writes them
    attach: bool = False  # its own interface can open the conversation
    warm: bool = False  # a process can be started before its session exists

    def names(self) -> tuple[str, ...]:
        """The names of what it can do."""
        return tuple(each.name for each in fields(self) if getattr(self, each.name))


UNABLE = {
    "ask": "ask before a call",
    "set_mode": "change the mode of a running process",
    "set_model": "change the model",
    "effort": "set an effort",
    "resume": "resume a conversation",
    "fork": "copy a conversation",
    "rewind": "cut a conversation at an earlier message",
    "cost": "tell what a turn costs",
    "tokens": "tell how many tokens a turn takes",
    "mcp": "use MCP tools",
    "images": "read images",
    "attach": "open a session in its own interface",
}
"""Capabilities in the words of a refusal, after "cannot"."""


@dataclass(frozen=True, slots=True)
class ControlAsked:
    """The agent asks something of its control protocol and waits for the answer."""

    id: str
    subtype: str
    question: "Question | None"  # where a person is to answer
    frame: bytes = b""  # the line to store in place of the agent's, with what earlier lines said of it


@dataclass(frozen=True, slots=True)
class Question:
    """What a person is asked; the strings are as `domain.models.Request` has them."""

    kind: str
    tool: str
    tool_use_id: str
    input: str
    reason: str
    suggestions: str
    edit: bytes = b""


@dataclass(frozen=True, slots=True)
class ControlCancelled:
    """The agent no longer wants an answer."""

    id: str


@dataclass(frozen=True, slots=True)
class ControlSettled:
    """The agent shows that it has the answer to a request of its own."""

    id: str


@dataclass(frozen=True, slots=True)
class Initialized:
    """The agent's answer to `initialize`, without lists and objects."""

    reply: bytes


@dataclass(frozen=True, slots=True)
class StartRefused:
    """The program has started and refuses to open a conversation."""

    reason: str
    login: bool


@dataclass(frozen=True, slots=True)
class ConversationOpened:
    """The agent has opened a conversation, whose id it has chosen."""

    id: str


@dataclass(frozen=True, slots=True)
class HistoryRead:
    """The history of a conversation that was loaded ends with this prompt."""

    last_prompt: str


@dataclass(frozen=True, slots=True)
class TurnShown:
    """A sign of a turn from an agent that confirms no prompt: it has the one that was written last (``prompt_id``, where the line names it)."""

    prompt_id: str = ""


@dataclass(frozen=True, slots=True)
class PromptSeen:
    """The agent has this prompt: its receipt. ``repeated``: it had it in an earlier process and does nothing about it."""

    id: str
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class PromptReturned:
    """An interrupt took this prompt, which the agent had not begun to read, out of its queue."""

    id: str


@dataclass(frozen=True, slots=True)
class TurnSkipped:
    """A turn ended without a call of the model, as a resumed program's notice that its background commands are gone."""


class Said(NamedTuple):
    """The agent itself, no subagent, has said something: where a fork or a rewind can cut its conversation."""

    conversation_id: str
    message_id: str


class Doing(NamedTuple):
    """What the agent itself says or calls now, or that it tries a call of the model again; one line."""

    words: str


@dataclass(frozen=True, slots=True)
class TurnBegan:
    model: str
    mode: str
    cwd: str
    version: str


@dataclass(frozen=True, slots=True)
class Activity:
    """The agent's own word on what it does: "running", "idle" or "requires_action"."""

    state: str


@dataclass(frozen=True, slots=True)
class Background:
    """The background tasks that run, id and description of each. A turn is over when the agent is idle and none of the ``deferring`` ones is left."""

    deferring: int
    tasks: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Answered:
    """The turn's result."""

    index: int
    is_error: bool
    aborted: bool
    text: str  # what the agent said at the end of the turn, or the error
    total_cost: float  # of the process up to now, as it says
    costs: tuple[LedgerEntry, ...]  # session, generation and time are filled in by who stores them
    seconds: float = 0.0  # that the turn took; 0: it does not say
    cumulative: bool = False  # the turn's cost is what ``total_cost`` has grown by


class Trouble(StrEnum):
    """Why the model's side did not answer, where that mends itself or is mended in one place."""

    OVERLOAD = "overload"  # overload, a lost connection, an error of the server
    LOGIN = "login"  # not logged in, or no longer


@dataclass(frozen=True, slots=True)
class CallFailed:
    """A call of the model has failed for good; the turn's result follows."""

    trouble: Trouble


@dataclass(frozen=True, slots=True)
class ConversationMissing:
    """The program does not know the conversation that it was to resume."""


@dataclass(frozen=True, slots=True)
class LimitTold:
    status: str
    reset_time: float


CALM = (Said, Doing)
"""Facts of which only the last one counts, whatever the session's state."""

Fact = (
    ControlAsked
    | ControlCancelled
    | ControlSettled
    | Initialized
    | StartRefused
    | ConversationOpened
    | HistoryRead
    | TurnShown
    | PromptReturned
    | PromptSeen
    | Said
    | Doing
    | TurnBegan
    | TurnSkipped
    | Activity
    | Background
    | Answered
    | CallFailed
    | ConversationMissing
    | LimitTold
)


class Frame(NamedTuple):
    """One line of an agent's output. ``start`` and ``end`` are byte offsets in its journal, ``line`` holds its newline.

    A tuple, like all that each line makes: it is created in a fraction of a dataclass's time.
    """

    start: int
    end: int
    line: bytes
    event: event_pb2.Event  # with payload, generation and offset
    facts: tuple[Fact, ...]
    control: dict[str, Any] | None  # the parsed line, where the control channel must see it
    before: tuple[event_pb2.Event, ...] = ()  # what this line ends: a message that came in pieces

    @property
    def is_calm(self) -> bool:
        """Whether it changes nothing but the log and the session's last words. Most lines are calm."""
        return self.control is None and not self.before and all(isinstance(fact, CALM) for fact in self.facts)


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start an agent's program."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class OutsideTurn:
    """A turn that a person made in the agent's own program. ``lines`` are as the program would have written them to the daemon: from the beginning of
    the turn, with the prompt as a replayed one, to the result with its cost."""

    prompt_id: str
    prompt: str
    lines: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Outside:
    """What a transcript has beyond what the daemon knows. ``until`` is the time of its newest line."""

    turns: tuple[OutsideTurn, ...]
    until: float


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's answer to a `Question`: ``updated_input`` is JSON, empty for "as asked"."""

    allow: bool
    message: str = ""
    updated_input: str = ""
    mode: str = ""  # to go on in, after a plan


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call that an agent is about to make, or has made. ``cwd`` is where it stands."""

    tool: str
    input: Mapping[str, Any]
    cwd: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """What the guard says to a call: ``effect`` is "allow", "ask", "deny", or "" for no opinion."""

    effect: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NativeStart:
    """What `AgentKind.native` needs besides the session."""

    trusted: bool
    environment: Mapping[str, str]
    briefing: str
    cut: ConversationCut | None
    rules: Mapping[str, tuple[str, ...]]  # by effect: "allow", "ask", "deny"
    mcp_command: tuple[str, ...]  # starts the daemon's tools as an MCP server


@dataclass(frozen=True, slots=True)
class Opening:
    """What a channel needs to open the conversation of a session."""

    session: Session
    tools: "ToolServer"
    doubtful: bool  # an earlier process may have taken a prompt down without a sign of it


@dataclass(frozen=True, slots=True)
class ToolServer:
    """How an agent starts the daemon's tools as an MCP server on stdio."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


class ChannelIO(Protocol):
    """What a control channel needs of the daemon."""

    async def opening(self) -> Opening: ...

    async def owe(self, ref: str, line: bytes) -> None:
        """Commit a line to be written to this process, once for each ``ref``, whatever crashes."""

    async def ask(self, control_id: str, question: Question) -> None:
        """Put a control request before a person, once."""

    async def interrupting(self) -> None:
        """Note that the running turn is being interrupted, whatever the agent calls its end."""

    async def write(self, line: bytes) -> None:
        """Write a line to the agent now; it is not repeated after a crash."""

    async def answer(self, control_id: str, line: bytes) -> None:
        """Store the answer to a control request; it reaches the agent exactly once, whatever crashes."""

    async def decide(self, control_id: str) -> Decision:
        """Wait for a person's answer, as long as it takes."""

    async def guard(self, use: ToolUse) -> Judged:
        """Judge a call before it is made."""

    async def judge_result(self, use: ToolUse) -> str:
        """Look at what a call has done; returns what the agent is to be told of it, or ""."""

    async def use_tools(self, control_id: str, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Answer a message to the daemon's MCP server; None where it wants no answer. The same request has the same effect once."""

    def failed(self, error: BaseException) -> None:
        """Note a fault of the channel's own."""

    async def initialized(self, hook_table: str) -> None:
        """Note what the agent has registered at its `initialize`."""


class Channel(Protocol):
    """The control protocol of one running agent."""

    async def open(self) -> None:
        """Return when the agent is ready for prompts."""

    def feed(self, message: dict[str, Any]) -> None:
        """Hand over a line of the agent that concerns the protocol, once it is stored."""

    async def interrupt(self) -> None: ...

    async def set_mode(self, mode: Mode) -> None: ...

    async def set_model(self, model: str) -> None: ...

    async def set_variables(self, variables: Mapping[str, str]) -> None:
        """Add to the environment of what the agent starts from now on."""

    async def cost(self) -> float | None:
        """Dollars that the process says to have cost up to now; None when it does not say."""

    async def close(self) -> None:
        """Let go of the agent; it lives on."""


class AgentKind(Protocol):
    """A kind of agent, such as Claude Code."""

    name: str
    capabilities: Capabilities
    modes: frozenset[Mode]  # in which a session of this kind can run

    @property
    def variables(self) -> Mapping[str, str]:
        """Environment variables that the configuration gives to each process of this kind."""

    def defaults(self, config: Config) -> tuple[str, str]:
        """Return model and effort of a new session that names none; "" is the agent's own default."""

    def own_places(self, environment: Mapping[str, str], home: Path) -> list[Path]:
        """Return directories outside of worktrees where the program keeps files of its own that its tools write. Blocks."""

    async def check(self) -> str:
        """Return the program's version; `AgentUnavailableError` when it is missing or broken."""

    async def prepare(self) -> None:
        """Load what `launch` and `channel` need, without blocking; cheap when it is loaded."""

    def launch(
        self,
        session: Session,
        *,
        resume: bool,
        trusted: bool,
        environment: Mapping[str, str],
        briefing: str,
        cut: ConversationCut | None = None,
    ) -> Launch:
        """``briefing`` is what the agent is told of its place among others, beside its own instructions; "" for nothing. ``cut``: the conversation,
        which has not begun, goes on from a part of another."""

    def native(self, session: Session, start: NativeStart) -> Launch:
        """How to start the agent's own user interface with the session's conversation. Raises `InvalidInputError` for an agent that has none."""

    def outside(self, conversation_id: str, home: Path, after: float, results: int) -> Outside:
        """Return the turns in a transcript after a time that no process of the daemon's made; blocks. ``results``: how many there were before."""

    def users(self, conversation_id: str, home: Path) -> list[tuple[int, str]]:
        """Return pid and start time of the processes that say to have a conversation open; some may have ended. Blocks."""

    rereads: bool  # its lines can be read only from the beginning of a turn

    def read(self, agent: Agent, start: int, end: int, line: bytes) -> Frame:
        """Read a line by itself."""

    def reader(self, agent: Agent) -> Callable[[int, int, bytes], Frame]:
        """Return what reads the lines of a process in order; where the kind rereads, from the end of the last turn on."""

    def outgoing(self, agent: Agent, line: bytes) -> bytes:
        """Complete a stored prompt with what only the running process knows."""

    def prompt_line(self, prompt: Prompt) -> bytes: ...

    def channel(self, agent: Agent, io: ChannelIO) -> Channel: ...

    def exit_reason(self, stderr_tail: str) -> str:
        """Return the one line of ``stderr_tail`` that tells a person why the program ended, or ""."""

    def conversation_missing(self, stderr_tail: str) -> bool:
        """Whether the program ended because it does not know the conversation it was to resume."""

    def login_command(self, environment: Mapping[str, str]) -> str:
        """Return the shell command with which a person logs this kind of agent in."""

    def credentials(self, environment: Mapping[str, str]) -> str:
        """Return a digest that changes when a person has logged in, or has given other keys; blocks."""

    def task_output(self, session: Session, task_id: str, environment: Mapping[str, str]) -> str:
        """Return the file that a task's output is written to while it runs, or ""."""

    def conversation_home(self, environment: Mapping[str, str]) -> Path:
        """Return the directory below which a process with this environment keeps conversations."""

    def has_conversation(self, conversation_id: str, root: Path) -> bool:
        """Whether a conversation is below ``root``; blocks."""

    def copy_conversation(self, conversation_id: str, source: Path, target: Path, *, overwrite: bool) -> bool:
        """Bring what is below ``target`` of a conversation up to what is below ``source``; blocks. False where ``source`` does not have it.
        Only with ``overwrite`` it replaces a file that is no part of the source's."""

    def conversation_exists(self, stderr_tail: str) -> bool:
        """Whether the program ended because the conversation it was to begin exists."""


def require(kind: AgentKind, capability: str, *, hint: str = "") -> None:
    """Raise `AgentUnableError` if a kind of agent lacks a capability; ``hint`` says what the person can do instead."""
    if not getattr(kind.capabilities, capability):
        raise AgentUnableError(f"{kind.name} cannot {UNABLE[capability]}", hint=hint)


def require_mode(kind: AgentKind, mode: Mode) -> None:
    """Raise `AgentUnableError` if a kind of agent cannot run in a mode."""
    if mode not in kind.modes:
        why = "" if kind.capabilities.ask else ": it cannot ask before a call"
        able = ", ".join(each for each in Mode if each in kind.modes)
        raise AgentUnableError(f"{kind.name} cannot run in the mode {mode}{why}", hint=f"use one of its modes: {able}")
