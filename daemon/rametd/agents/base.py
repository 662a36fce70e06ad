"""The interface of a kind of agent: start its program, read its lines, speak its control protocol.

A `Frame` is one line with its typed event, and with the facts that the rest of the daemon acts on.
A line that no reader understands becomes a frame too.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
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
    """Capabilities of a kind of agent. `require` refuses a call that needs a missing one."""

    ask: bool = True  # asks before it makes a call; otherwise the daemon checks writes only afterwards
    set_mode: bool = True  # a running process takes another permission mode
    set_model: bool = True
    effort: bool = False
    resume: bool = True  # another process can continue the conversation
    ask_again: bool = False  # a resumed process repeats the open questions of the previous one
    edit: bool = False  # an approved call can run with another input
    reason: bool = False  # a refusal can carry a reason; otherwise a person's reason follows as a prompt
    brief: bool = False  # has instructions of its own besides prompts; otherwise the first prompt carries the briefing
    fork: bool = False  # a copy of the conversation can continue in another session
    rewind: bool = False  # the conversation can be cut at an earlier message
    steer: bool = False  # a running turn takes prompts; otherwise they wait for its end
    cost: bool = False  # reports the cost of a turn
    tokens: bool = False
    mcp: bool = True  # offers MCP tools to the model
    images: bool = False
    partial: bool = True  # sends text while the model writes it
    attach: bool = False  # its own interface can open the conversation
    warm: bool = False  # a process can be started before its session exists
    compact: bool = False  # the prompt `COMPACT` replaces the conversation by a summary

    def names(self) -> tuple[str, ...]:
        """Return the names of the capabilities it has."""
        return tuple(each.name for each in fields(self) if getattr(self, each.name))


COMPACT = "/compact"

SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"RIFF": "image/webp",
}
"""First bytes of the images that models read."""
UNABLE = {
    "ask": "ask before a call",
    "set_mode": "change the mode of a running process",
    "set_model": "change the model",
    "effort": "set an effort",
    "resume": "resume a conversation",
    "edit": "run a call with another input than it asked for",
    "fork": "copy a conversation",
    "rewind": "cut a conversation at an earlier message",
    "cost": "report what a turn costs",
    "tokens": "report how many tokens a turn uses",
    "mcp": "use MCP tools",
    "images": "read images",
    "attach": "open a session in its own interface",
}
"""The text about each capability in a refusal, after "cannot"."""


@dataclass(frozen=True, slots=True)
class ControlAsked:
    """The agent sent a control request and waits for the answer."""

    id: str
    subtype: str
    question: "Question | None"  # set if a person must answer
    frame: bytes = b""  # the line to store instead of the agent's, completed from earlier lines


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a person; the strings are those of `domain.models.Request`."""

    kind: str
    tool: str
    tool_use_id: str
    input: str
    reason: str
    suggestions: str
    edit: bytes = b""


@dataclass(frozen=True, slots=True)
class ControlCancelled:
    """The agent withdrew its request."""

    id: str


@dataclass(frozen=True, slots=True)
class ControlSettled:
    """The agent confirmed the answer to its request."""

    id: str


@dataclass(frozen=True, slots=True)
class Initialized:
    """The agent's answer to `initialize`, without lists and objects."""

    reply: bytes


@dataclass(frozen=True, slots=True)
class StartRefused:
    """The program started and refused to open a conversation."""

    reason: str
    login: bool


@dataclass(frozen=True, slots=True)
class ConversationOpened:
    """The agent opened a conversation, under an id of its own choice."""

    id: str


@dataclass(frozen=True, slots=True)
class HistoryRead:
    """The agent loaded a conversation whose last prompt is this one."""

    last_prompt: str


@dataclass(frozen=True, slots=True)
class TurnShown:
    """A sign of a turn of an agent that does not confirm prompts: it has received the last one
    (``prompt_id``, if the line names it)."""

    prompt_id: str = ""


@dataclass(frozen=True, slots=True)
class PromptSeen:
    """The agent's receipt of a prompt. ``repeated``: an earlier process received it, and this one
    ignores it."""

    id: str
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class PromptReturned:
    """An interrupt removed this unread prompt from the agent's queue."""

    id: str


@dataclass(frozen=True, slots=True)
class TurnSkipped:
    """A turn ended without a call of the model, such as a resumed program's notice that its
    background commands are gone."""


class Said(NamedTuple):
    """A message of the agent itself, not of a subagent; a fork or rewind can cut the conversation
    here."""

    conversation_id: str
    message_id: str


class Doing(NamedTuple):
    """One line about the agent's present message, call or retry."""

    words: str


@dataclass(frozen=True, slots=True)
class TurnBegan:
    model: str
    mode: str
    cwd: str
    version: str


@dataclass(frozen=True, slots=True)
class Activity:
    """The activity that the agent reports: "running", "idle" or "requires_action"."""

    state: str


@dataclass(frozen=True, slots=True)
class Background:
    """Id and description of each running background task. A turn ends when the agent is idle and no
    ``deferring`` task runs."""

    deferring: int
    tasks: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Answered:
    """The turn's result."""

    index: int
    is_error: bool
    aborted: bool
    text: str  # the agent's last words in the turn, or the error
    total_cost: float  # of the process so far, as it reports
    costs: tuple[LedgerEntry, ...]  # the caller fills in session, generation and time
    seconds: float = 0.0  # duration of the turn; 0 if not reported
    cumulative: bool = False  # the turn's cost is the growth of ``total_cost``


class Trouble(StrEnum):
    """Why the model's side did not answer, for causes that pass or that one action repairs."""

    OVERLOAD = "overload"  # overload, a lost connection, an error of the server
    LOGIN = "login"  # not logged in, or the login has expired
    FULL = "full"  # the conversation no longer fits into the model's context window


@dataclass(frozen=True, slots=True)
class CallFailed:
    """A call of the model failed for good; the turn's result follows."""

    trouble: Trouble


@dataclass(frozen=True, slots=True)
class ConversationMissing:
    """The program does not know the conversation that it should resume."""


@dataclass(frozen=True, slots=True)
class LimitReported:
    status: str
    reset_time: float


CALM = (Said, Doing)
"""Kinds of facts of which only the last one counts, in any state of the session."""

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
    | LimitReported
)


class Frame(NamedTuple):
    """One line of an agent's output. ``start`` and ``end`` are byte offsets in its journal,
    ``line`` includes the newline.

    A tuple, like every value created per line: creating it takes a fraction of a dataclass's time.
    """

    start: int
    end: int
    line: bytes
    event: event_pb2.Event  # with payload, generation and offset
    facts: tuple[Fact, ...]
    control: dict[str, Any] | None  # the parsed line, if the control channel needs it
    before: tuple[event_pb2.Event, ...] = ()  # a message in pieces that this line completes

    @property
    def is_calm(self) -> bool:
        """Return whether the line changes only the log and the session's last words, as most do."""
        return self.control is None and not self.before and all(isinstance(fact, CALM) for fact in self.facts)


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start an agent's program."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class OutsideTurn:
    """A turn that a person made in the agent's own program. ``lines`` are equal to those that the
    program would have sent the daemon, from the prompt (as a replayed one) to the result with its
    cost."""

    prompt_id: str
    prompt: str
    lines: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Outside:
    """The turns of a transcript that the daemon does not know. ``until`` is the time of its newest
    line."""

    turns: tuple[OutsideTurn, ...]
    until: float


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's answer to a `Question`. ``updated_input`` is JSON, empty if unchanged."""

    allow: bool
    message: str = ""
    updated_input: str = ""
    mode: str = ""  # mode to continue in, after a plan


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call that an agent is about to make, or has made. ``cwd`` is its working directory."""

    tool: str
    input: Mapping[str, Any]
    cwd: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """The guard's verdict on a call: ``effect`` is "allow", "ask", "deny", or "" for no opinion."""

    effect: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """Arguments of `AgentKind.launch` besides the session."""

    trusted: bool  # whether a repository's own settings, hooks and MCP servers may load
    environment: Mapping[str, str]
    briefing: str = ""  # text to add to the agent's own instructions
    cut: ConversationCut | None = None  # part of another conversation that this one continues, unless it has begun


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeStart(Start):
    """Arguments of `AgentKind.native` besides the session."""

    rules: Mapping[str, tuple[str, ...]]  # by effect: "allow", "ask", "deny"
    mcp_command: tuple[str, ...]  # command that starts the daemon's tools as an MCP server


@dataclass(frozen=True, slots=True)
class Opening:
    """Values with which a channel opens the conversation of a session."""

    session: Session
    tools: "ToolServer"
    doubtful: bool  # an earlier process may have taken a prompt without confirming it
    variables: frozenset[str]  # names in the environment of its processes


@dataclass(frozen=True, slots=True)
class ToolServer:
    """Command and environment with which an agent starts the daemon's tools as an MCP server on
    stdio."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


class ChannelIO(Protocol):
    """The daemon's services for a control channel."""

    async def opening(self) -> Opening: ...

    async def enqueue(self, ref: str, line: bytes) -> None:
        """Commit a line, which the daemon writes to this process once for each ``ref``, also after
        a crash."""

    async def ask(self, control_id: str, question: Question) -> None:
        """Open a request to a person for a control request, once."""

    async def interrupting(self) -> None:
        """Note that the running turn is being interrupted, since the agent may report its end as
        any other."""

    async def write(self, line: bytes) -> None:
        """Write a line to the agent now; the daemon does not repeat it after a crash."""

    async def answer(self, control_id: str, line: bytes) -> None:
        """Store the answer to a control request; it reaches the agent exactly once, also after a
        crash."""

    async def decide(self, control_id: str) -> Decision:
        """Wait for a person's answer, without a time limit."""

    async def guard(self, use: ToolUse) -> Judged:
        """Judge a call before it runs."""

    async def judge_result(self, use: ToolUse) -> str:
        """Check what a call has changed; return a message for the agent, or ""."""

    async def notice(self) -> str:
        """Return a text of the daemon that can go with the result of a call, once; "" for none."""

    async def prompt(self, words: str) -> None:
        """Queue a prompt of the daemon, for an agent whose protocol has no other way to pass on a
        message."""

    async def use_tools(self, control_id: str, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Answer a message to the daemon's MCP server; None for a notification. A repeated request
        takes effect once."""

    def failed(self, error: BaseException) -> None:
        """Log an internal error of the channel."""

    async def initialized(self, hook_table: str) -> None:
        """Store the hooks that the agent registered at `initialize`."""


class Channel(Protocol):
    """The control protocol of one running agent."""

    async def open(self) -> None:
        """Return when the agent is ready for prompts."""

    def feed(self, message: dict[str, Any]) -> None:
        """Take a stored control message of the agent."""

    async def interrupt(self) -> None: ...

    async def set_mode(self, mode: Mode) -> None: ...

    async def set_model(self, model: str) -> None: ...

    async def set_variables(self, variables: Mapping[str, str]) -> None:
        """Add to the environment of processes that the agent starts from now on."""

    async def cost(self) -> float | None:
        """Return the cost that the process reports so far, in dollars; None if it reports none."""

    async def close(self) -> None:
        """Close the channel; the agent keeps running."""


class AgentKind(Protocol):
    """A kind of agent, such as Claude Code."""

    name: str
    capabilities: Capabilities
    modes: frozenset[Mode]  # modes that a session of this kind can run in

    @property
    def variables(self) -> Mapping[str, str]:
        """Return the environment variables that the configuration sets for each process of this
        kind."""

    def defaults(self, config: Config) -> tuple[str, str]:
        """Return the default model and effort of a new session; "" is the agent's own default."""

    def own_places(self, environment: Mapping[str, str], home: Path) -> list[Path]:
        """Return directories outside of worktrees in which the program's tools write its own files.
        Blocks."""

    async def check(self, environment: Mapping[str, str] | None = None) -> str:
        """Return the version of the program that a process with this environment starts; by default
        the daemon's environment.

        Raise `AgentUnavailableError` if it is missing or broken.
        """

    async def prepare(self) -> None:
        """Load the modules that `launch` and `channel` need, without blocking. A second call is
        cheap."""

    def launch(self, session: Session, start: Start) -> Launch:
        """Return how to start the program; it resumes the session's conversation if that has
        begun."""

    def native(self, session: Session, start: NativeStart) -> Launch:
        """Return how to start the agent's own user interface with the session's conversation. Raise
        `InvalidInputError` without one."""

    def outside(self, conversation_id: str, home: Path, after: float, results: int) -> Outside:
        """Return the turns in a transcript after a time that no process of the daemon made.
        ``results``: number of earlier results. Blocks."""

    def users(self, conversation_id: str, home: Path) -> list[tuple[int, str]]:
        """Return pid and start time of the processes registered as having a conversation open; some
        may have ended. Blocks."""

    reads_settings: bool  # it cannot be kept from a repository's own settings for it
    rereads: bool  # lines can only be read from the beginning of a turn

    def read(self, agent: Agent, start: int, end: int, line: bytes) -> Frame:
        """Read a line without those before it."""

    def reader(self, agent: Agent) -> Callable[[int, int, bytes], Frame]:
        """Return a reader for the lines of a process in order; if the kind rereads, from the end of
        the last turn on."""

    def outgoing(self, agent: Agent, line: bytes) -> bytes:
        """Complete a stored prompt with values that only the running process knows."""

    def prompt_line(self, prompt: Prompt, images: Sequence[bytes]) -> bytes: ...

    def channel(self, agent: Agent, io: ChannelIO) -> Channel: ...

    def exit_reason(self, stderr_tail: str) -> str:
        """Return the line of ``stderr_tail`` that says why the program ended, or ""."""

    def conversation_missing(self, stderr_tail: str) -> bool:
        """Return whether the program ended because it does not know the conversation to resume."""

    def login_command(self, environment: Mapping[str, str]) -> str:
        """Return the shell command with which a person logs this kind of agent in."""

    def credentials(self, environment: Mapping[str, str]) -> str:
        """Return a digest that changes when a person logs in or sets other keys; blocks."""

    def task_output(self, session: Session, task_id: str, environment: Mapping[str, str]) -> str:
        """Return the file with the output of a running task, or ""."""

    def conversation_home(self, environment: Mapping[str, str]) -> Path:
        """Return the directory below which a process with this environment stores conversations."""

    def has_conversation(self, conversation_id: str, root: Path) -> bool:
        """Return whether a conversation is below ``root``; blocks."""

    def copy_conversation(self, conversation_id: str, source: Path, target: Path, *, overwrite: bool) -> bool:
        """Update a conversation's files below ``target`` from those below ``source``; blocks.
        Return False if ``source`` has none. Only with ``overwrite``, replace a file that is no
        prefix of the source's."""

    def conversation_exists(self, stderr_tail: str) -> bool:
        """Return whether the program ended because the conversation to begin exists already."""


def in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def media_type(image: bytes) -> str:
    """Return the media type of an image by its first bytes; "" for another file."""
    for signature, found in SIGNATURES.items():
        if image.startswith(signature) and (found != "image/webp" or image[8:12] == b"WEBP"):
            return found
    return ""


def require(kind: AgentKind, capability: str, *, hint: str = "") -> None:
    """Raise `AgentUnableError` if a kind of agent lacks a capability; ``hint`` says what a person
    can do instead."""
    if not getattr(kind.capabilities, capability):
        raise AgentUnableError(f"{kind.name} cannot {UNABLE[capability]}", hint=hint)


def require_mode(kind: AgentKind, mode: Mode) -> None:
    """Raise `AgentUnableError` if a kind of agent cannot run in a mode."""
    if mode not in kind.modes:
        why = "" if kind.capabilities.ask else ": it cannot ask before a call"
        able = ", ".join(each for each in Mode if each in kind.modes)
        raise AgentUnableError(f"{kind.name} cannot run in the mode {mode}{why}", hint=f"use one of its modes: {able}")
