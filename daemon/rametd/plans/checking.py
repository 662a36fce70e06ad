"""Check a plan: by itself, and against the repository and its sessions; name its threads, and order
their landing."""

import difflib
import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rametd.domain.errors import BadNameError, BypassForbiddenError, RametError
from rametd.domain.models import STRICTNESS, UNATTENDED
from rametd.git import names
from rametd.plans.keys import PLAN, THREAD
from rametd.plans.model import WARNING, PlanText, Problem, Thread, ThreadText, World
from rametd.plans.owning import PathChecker
from rametd.plans.reading import Reading


@dataclass(frozen=True, slots=True)
class Known:
    """Name and branch of a thread that was applied before, which stay."""

    name: str
    branch: str


def resolve(plan: PlanText, known: Mapping[str, Known], taken: Collection[str]) -> tuple[Thread, ...]:
    """Return the threads in landing order: after the threads in their ``after``, then by
    ``merge_order``, then as written.

    ``taken``: names of other sessions, which a generated name avoids; an explicit name stays.
    Threads of a cycle in ``after`` are last, as written: `check` reports the cycle.
    """
    used = {*taken, *(thread.name for thread in plan.threads if thread.name)}
    threads: list[Thread] = []
    for text in plan.threads:
        before = known.get(text.id)
        name = text.name or (before.name if before is not None else _free(_name(text), used))
        used.add(name)
        branch = text.branch or (before.branch if before is not None else "")
        threads.append(Thread(text, name, branch, text.prompt or text.goal, _own_order(text)))
    return tuple(replace(thread, position=place) for place, thread in enumerate(_in_order(threads), 1))


def _name(text: ThreadText) -> str:
    if not text.id.isdecimal():
        return text.id
    return text.branch.rsplit("/", 1)[-1] or f"thread-{text.id}"


def _free(stem: str, used: Collection[str]) -> str:
    name, number = stem, 2
    while name in used:
        name, number = f"{stem}-{number}", number + 1
    return name


def _own_order(text: ThreadText) -> int:
    if text.merge_order is not None:
        return text.merge_order
    return int(text.id) if text.id.isdecimal() and int(text.id) < 1 << 31 else text.index + 1


def _in_order(threads: Sequence[Thread]) -> list[Thread]:
    """Sort for landing. A thread without ``merge_order`` gets at least that of the threads in its
    ``after``."""
    indices = {thread.id: index for index, thread in enumerate(threads)}
    waits = [{indices[each] for each in thread.text.after if each in indices} for thread in threads]
    followers: list[list[int]] = [[] for _ in threads]
    for index, befores in enumerate(waits):
        for before in befores:
            followers[before].append(index)
    orders = [thread.merge_order for thread in threads]
    ready = [(orders[index], index) for index, befores in enumerate(waits) if not befores]
    heapq.heapify(ready)
    done: list[int] = []
    while ready:
        _, index = heapq.heappop(ready)
        done.append(index)
        for follower in followers[index]:
            waits[follower].discard(index)
            if threads[follower].text.merge_order is None:
                orders[follower] = max(orders[follower], orders[index])
            if not waits[follower]:
                heapq.heappush(ready, (orders[follower], follower))
    done += sorted(set(range(len(threads))).difference(done))
    return [replace(threads[index], merge_order=orders[index]) for index in done]


def check(reading: Reading, threads: Sequence[Thread], world: World) -> tuple[Problem, ...]:
    """All problems, including those of `read`, in order of the text. Blocks while it searches for
    overlaps."""
    checker = _Checker(reading, sorted(threads, key=lambda thread: thread.text.index), world)
    found = [*reading.problems, *checker.problems()]
    return tuple(sorted(found, key=lambda problem: (problem.line == 0, problem.line)))


class _Checker:
    def __init__(self, reading: Reading, threads: Sequence[Thread], world: World) -> None:
        self._reading = reading
        self._threads = threads
        self._world = world
        self._by_id = {thread.id: thread for thread in threads}

    def problems(self) -> Iterator[Problem]:
        yield from self._duplicates()
        yield from self._dependencies()
        yield from self._cycles()
        if self._world.target is not None:
            yield Problem(
                "no-target", self._world.target.message, self._world.target.hint, **self._reading.at(PLAN, "target")
            )
        for thread in self._threads:
            yield from self._branch(thread)
            yield from self._settings(thread)
        yield from PathChecker(self._reading, self._threads, self._world).problems()

    # ── by itself ─────────────────────────────────────────────────────────────────────────────────

    def _duplicates(self) -> Iterator[Problem]:
        for key in ("id", "name", "branch"):
            first: dict[str, Thread] = {}
            for thread in self._threads:
                value = getattr(thread.text, key)
                if value and (other := first.setdefault(value, thread)) is not thread:
                    line = self._reading.at(THREAD, other.text.index, key)["line"]
                    yield Problem(
                        f"duplicate-{key}",
                        f"{value!r} is the {key} of two threads, the first on line {line}",
                        "give each its own",
                        **{
                            **self._reading.at_thread(thread.text, key),
                            "threads": tuple({other.id: None, thread.id: None}),
                        },
                    )

        given = {thread.text.name: thread for thread in self._threads if thread.text.name}
        for thread in self._threads:
            namesake = given.get(thread.id)
            if namesake is not None and not thread.text.name:
                yield Problem(
                    "name-twice",
                    f"{thread.id!r} is the id of one thread and the name of another, {namesake.id}: its session is called {thread.name!r}",
                    "give the other another name",
                    severity=WARNING,
                    **{
                        **self._reading.at_thread(namesake.text, "name"),
                        "threads": tuple(dict.fromkeys((thread.id, namesake.id))),
                    },
                )

    def _dependencies(self) -> Iterator[Problem]:
        for thread in self._threads:
            for number, name in enumerate(thread.text.after):
                place = self._reading.at_thread(thread.text, "after", number)
                before = self._by_id.get(name)
                if before is None:
                    near = difflib.get_close_matches(name, list(self._by_id), n=1)
                    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(self._by_id)}"
                    yield Problem("unknown-thread", f"there is no thread {name!r}", hint, **place)
                elif before.merge_order > thread.merge_order and thread.text.merge_order is not None:
                    yield Problem(
                        "order",
                        f"thread {thread.id} comes after {name}, and lands before it: merge_order {thread.merge_order} is below {before.merge_order}",
                        "change merge_order or after",
                        **{**self._reading.at_thread(thread.text, "merge_order"), "threads": (name, thread.id)},
                    )

    def _cycles(self) -> Iterator[Problem]:
        done: set[str] = set()
        for start in self._threads:
            trail: list[str] = []
            todo = [(start.id, 0)]
            while todo:
                name, depth = todo.pop()
                del trail[depth:]
                if name in trail:
                    cycle = [*trail[trail.index(name) :], name]
                    if not done.issuperset(cycle):
                        yield Problem(
                            "cycle",
                            f"threads wait for each other: {' after '.join(cycle)}",
                            "take one of them out of `after`",
                            **{
                                **self._reading.at_thread(self._by_id[cycle[0]].text, "after"),
                                "threads": tuple(cycle[:-1]),
                            },
                        )
                        done.update(cycle)
                    continue
                if name in done or name not in self._by_id:
                    continue
                trail.append(name)
                todo += [(each, depth + 1) for each in reversed(self._by_id[name].text.after)]
            done.update(trail)

    # ── against repository and sessions ───────────────────────────────────────────────────────────

    def _branch(self, thread: Thread) -> Iterator[Problem]:
        text, world = thread.text, self._world
        holder = world.names.get(text.name, "")
        if holder and holder != world.sessions.get(thread.id):
            message = f"a session is called {text.name!r} already ({holder})"
            yield Problem("name-taken", message, "choose another name", **self._reading.at_thread(text, "name"))
        if thread.id in world.sessions:
            return
        if text.branch:
            place = self._reading.at_thread(text, "branch")
            others = {each.branch: each for each in self._threads if each is not thread and each.branch}
            beside = names.conflict(text.branch, {*world.branches, *others})
            try:
                names.check_branch_name(text.branch)
            except BadNameError as error:
                yield Problem("bad-branch", error.message, error.hint, **place)
            else:
                if text.branch in world.branches:
                    hint = "choose another branch, or delete that one if its work is not needed"
                    yield Problem(
                        "branch-taken", f"branch {text.branch} is taken: {world.branches[text.branch]}", hint, **place
                    )
                elif beside is not None:
                    message = (
                        f"branch {text.branch} cannot exist beside {beside}: one would be a directory of the other"
                    )
                    yield Problem("branch-taken", message, "choose another branch", **place)
        base = world.bases.get(text.base)
        if isinstance(base, RametError):
            yield Problem("no-base", base.message, base.hint, **self._reading.at_thread(text, "base"))

    def _settings(self, thread: Thread) -> Iterator[Problem]:
        text, world = thread.text, self._world
        if text.agent and text.agent not in world.agents:
            hint = f"use one of: {', '.join(world.agents)}"
            yield Problem(
                "bad-agent", f"there is no agent {text.agent!r}", hint, **self._reading.at_thread(text, "agent")
            )
        if text.mode in UNATTENDED and not world.bypass:
            off = BypassForbiddenError.of(text.mode)
            yield Problem("bad-mode", off.message, off.hint, **self._reading.at_thread(text, "mode"))
        elif text.mode and not world.own and STRICTNESS.index(text.mode) > STRICTNESS.index(world.mode):
            # The person may not have read the plan.
            place = self._reading.at_thread(text, "mode")
            if text.mode in UNATTENDED:
                hint = "to choose it, keep the plan outside of any repository"
                yield Problem("looser-mode", f"a plan in a repository cannot choose {text.mode}", hint, **place)
            else:
                words = f"its agent works in {text.mode}, which asks less than {world.mode}"
                yield Problem("looser-mode", words, severity=WARNING, **place)
        unread = world.prompt_files.get(text.prompt_file)
        if unread is not None:
            yield Problem("prompt-file", unread.message, unread.hint, **self._reading.at_thread(text, "prompt_file"))
        if not thread.prompt and not text.prompt_file:
            message = f"thread {text.id} has neither goal nor prompt: its session will be idle"
            yield Problem("no-prompt", message, "give it a goal", severity=WARNING, **self._reading.at_thread(text))
        if not text.owns and len(self._threads) > 1:
            message = f"thread {text.id} owns no paths: nothing keeps it apart from the others"
            yield Problem("no-owns", message, "say what it owns", severity=WARNING, **self._reading.at_thread(text))
