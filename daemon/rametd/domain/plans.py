"""Applied plans, as values: what was asked for, kept so that the next apply can tell what is different."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """What the threads of a plan share."""

    id: str
    repo_id: str
    name: str  # unique in its repository
    file: str  # where it was read from, an absolute path; "" for standard input
    goal: str
    target: str  # the branch that its threads land on
    remote: str  # "" for the one of the target
    chain: bool  # whether each pull request is against the branch before it
    draft: bool | None  # of its pull requests; None as configured
    create_time: float
    update_time: float


@dataclass(frozen=True, slots=True)
class PlanThread:
    """One thread of an applied plan. Empty strings and None mean "as usual" there."""

    plan_id: str
    id: str  # in the plan
    position: int  # in the order of landing, from 1
    session_id: str  # also after the session is gone
    name: str
    branch: str
    goal: str
    prompt: str
    base: str
    owns: tuple[str, ...]
    forbids: tuple[str, ...]
    merge_order: int  # lower lands first
    model: str
    mode: str
    agent: str
    budget_usd: float | None
    after: tuple[str, ...]  # ids of threads
    check: tuple[str, ...]  # what must succeed before it lands
    title: str  # of its pull request
    ended: str = ""  # how it is known to be on the target, once it was cleaned up
    dropped: bool = False  # the plan no longer has it; its session was left
