"""What a plan says, and what is wrong with it."""

from dataclasses import dataclass, field

from rametd.domain.models import Mode

ERROR = "error"
WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a plan, in the words of the contract's `PlanProblem`."""

    code: str
    message: str
    hint: str = ""
    key: str = ""  # "threads[2].owns[0]"
    line: int = 0  # from 1; 0 where it has none
    threads: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    severity: str = ERROR

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        return f"{place}{self.key}: {self.message}" if self.key else f"{place}{self.message}"


@dataclass(frozen=True, slots=True)
class ThreadText:
    """A thread as it is written, with what it has of `[plan]`; empty strings and None where neither says anything."""

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
    """A plan as it is written."""

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
    """A thread with a name and a place in the order."""

    text: ThreadText
    name: str
    branch: str  # "" for one that its creation names
    prompt: str  # without what `prompt_file` holds
    merge_order: int
    position: int = field(default=0)  # in the order of landing, from 1

    @property
    def id(self) -> str:
        return self.text.id
