"""Plans as values: the text, the ordered threads, the problems, and the facts for their check."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from rametd.domain.errors import RametError
from rametd.domain.models import Mode
from rametd.git import Tree

ERROR = "error"
WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in a plan; see `PlanProblem` in the .proto file."""

    code: str
    message: str
    hint: str = ""
    key: str = ""  # "threads[2].owns[0]"
    line: int = 0  # from 1; 0 if unknown
    threads: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    severity: str = ERROR

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        return f"{place}{self.key}: {self.message}" if self.key else f"{place}{self.message}"


@dataclass(frozen=True, slots=True)
class ThreadText:
    """A thread as written, with the values that it inherits from `[plan]`. Unset values are "" or
    None."""

    index: int  # in the text, from 0
    id: str
    name: str = ""
    branch: str = ""
    goal: str = ""
    prompt: str = ""
    prompt_file: str = ""
    base: str = ""
    owns: tuple[str, ...] = ()
    forbids: tuple[str, ...] = ()
    merge_order: int | None = None
    after: tuple[str, ...] = ()
    model: str = ""
    mode: Mode | None = None
    agent: str = ""
    budget: float | None = None
    check: tuple[str, ...] = ()
    title: str = ""


@dataclass(frozen=True, slots=True)
class PlanText:
    """A plan as written."""

    name: str = ""
    goal: str = ""
    base: str = ""
    target: str = ""
    remote: str = ""
    chain: bool = False
    draft: bool | None = None
    threads: tuple[ThreadText, ...] = ()


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread with its name and its position in the landing order."""

    text: ThreadText
    name: str
    branch: str  # "" if its creation chooses the name
    prompt: str  # without the content of `prompt_file`
    merge_order: int
    position: int = field(default=0)  # in landing order, from 1

    @property
    def id(self) -> str:
        return self.text.id


@dataclass(frozen=True, slots=True)
class World:
    """Facts for the check of a plan, except those that an earlier application of the plan
    created."""

    branches: Mapping[str, str] = field(default_factory=dict)  # taken branches, with their owners
    names: Mapping[str, str] = field(default_factory=dict)  # ids of sessions by name
    bases: Mapping[str, Tree | RametError] = field(default_factory=dict)  # by requested base; "" for the default
    agreed: Collection[str] = ()  # ids of threads that already own their paths: these are not checked again
    target: RametError | None = None  # why the target branch cannot be used
    prompt_files: Mapping[str, RametError | None] = field(default_factory=dict)  # why each cannot be read
    agents: Sequence[str] = ("claude",)
    bypass: bool = False
    mode: Mode = Mode.DEFAULT  # of new sessions, as the person configured it
    own: bool = True  # the person's own plan, outside of any repository
    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # patterns that other sessions own, by name
    sessions: Mapping[str, str] = field(default_factory=dict)  # ids of existing sessions, by thread
