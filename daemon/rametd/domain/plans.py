"""Applied plans, as values. The next application compares with them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """An applied plan: settings that its threads share."""

    id: str
    repo_id: str
    name: str  # unique in its repository
    file: str  # absolute path of its file; "" for standard input
    goal: str
    target: str  # the branch that its threads land on
    remote: str  # "" for the remote of the target
    chain: bool  # whether each pull request is based on the previous thread's branch
    draft: bool | None  # whether pull requests are drafts; None as configured
    create_time: float
    update_time: float


@dataclass(frozen=True, slots=True)
class PlanThread:
    """One thread of an applied plan. Empty strings and None mean the default."""

    plan_id: str
    id: str  # in the plan
    position: int  # in the order of landing, from 1
    session_id: str  # stays after the session is removed
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
    check: tuple[str, ...]  # commands that must succeed before it lands
    title: str  # of its pull request
    ended: str = ""  # why its work counts as landed, once it was cleaned up
    dropped: bool = False  # no longer in the plan; its session stays
