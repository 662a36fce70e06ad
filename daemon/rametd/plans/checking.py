"""What is wrong with a plan: in itself, and in the world that it is to be applied in."""

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from rametd.domain.errors import BadNameError, InvalidInputError, RametError
from rametd.domain.models import Mode
from rametd.git import names
from rametd.git.tree import Tree
from rametd.ownership import Patterns, aliases, overlap, overlap_files
from rametd.plans.keys import PLAN, THREAD
from rametd.plans.model import WARNING, Problem, Thread, ThreadText
from rametd.plans.reading import Reading

EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class World:
    """What a plan is checked against, without what the plan itself has made there."""

    branches: Mapping[str, str] = field(default_factory=dict)  # those that are taken, each with who has it, in words
    names: Mapping[str, str] = field(default_factory=dict)  # of sessions, each with its id
    bases: Mapping[str, Tree | RametError] = field(default_factory=dict)  # by what is asked for; "" for none
    agreed: Collection[str] = ()  # ids of threads that own what they were applied with: nobody is asked again
    target: RametError | None = None  # why there is no such branch
    prompt_files: Mapping[str, RametError | None] = field(default_factory=dict)  # why each cannot be read
    agents: Sequence[str] = ("claude",)
    bypass: bool = False
    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # what other sessions own, by name
    sessions: Mapping[str, str] = field(
        default_factory=dict
    )  # ids by thread, of those that are there: branch and base are no question


def check(reading: Reading, threads: Sequence[Thread], world: World) -> tuple[Problem, ...]:
    """Everything, with what `read` found, in the order of the text. Blocks: overlaps are searched for."""
    checker = _Checker(reading, sorted(threads, key=lambda thread: thread.text.index), world)
    found = [*reading.problems, *checker.problems()]
    return tuple(sorted(found, key=lambda problem: (problem.line == 0, problem.line)))


class _Checker:
    def __init__(self, reading: Reading, threads: Sequence[Thread], world: World) -> None:
        self._reading = reading
        self._threads = threads
        self._world = world
        self._by_id = {thread.id: thread for thread in threads}
        self._taken_in: dict[tuple[tuple[str, ...], str], frozenset[str]] = {}
        self._ignore_case = any(isinstance(base, Tree) and base.ignore_case for base in world.bases.values())

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
        yield from self._ownership()

    def _at(self, thread: ThreadText, *path: str | int) -> dict[str, Any]:
        """Where in the thread, or in what it has of `[plan]`."""
        whole = (THREAD, thread.index, *path)
        if path and whole not in self._reading.lines and (PLAN, *path) in self._reading.lines:
            whole = (PLAN, *path)
        return {**self._reading.at(*whole), "threads": (thread.id,)}

    # ── in itself ────────────────────────────────────────────────────────────────────────────────────────────────────────────

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
                        **{**self._at(thread.text, key), "threads": tuple({other.id: None, thread.id: None})},
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
                    **{**self._at(namesake.text, "name"), "threads": tuple(dict.fromkeys((thread.id, namesake.id)))},
                )

    def _dependencies(self) -> Iterator[Problem]:
        for thread in self._threads:
            for number, name in enumerate(thread.text.after):
                place = self._at(thread.text, "after", number)
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
                        **{**self._at(thread.text, "merge_order"), "threads": (name, thread.id)},
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
                            **{**self._at(self._by_id[cycle[0]].text, "after"), "threads": tuple(cycle[:-1])},
                        )
                        done.update(cycle)
                    continue
                if name in done or name not in self._by_id:
                    continue
                trail.append(name)
                todo += [(each, depth + 1) for each in reversed(self._by_id[name].text.after)]
            done.update(trail)

    # ── in the world ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _branch(self, thread: Thread) -> Iterator[Problem]:
        text, world = thread.text, self._world
        holder = world.names.get(text.name, "")
        if holder and holder != world.sessions.get(thread.id):
            message = f"a session is called {text.name!r} already ({holder})"
            yield Problem("name-taken", message, "choose another name", **self._at(text, "name"))
        if thread.id in world.sessions:
            return
        if text.branch:
            place = self._at(text, "branch")
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
            yield Problem("no-base", base.message, base.hint, **self._at(text, "base"))

    def _settings(self, thread: Thread) -> Iterator[Problem]:
        text, world = thread.text, self._world
        if text.agent and text.agent not in world.agents:
            hint = f"use one of: {', '.join(world.agents)}"
            yield Problem("bad-agent", f"there is no agent {text.agent!r}", hint, **self._at(text, "agent"))
        if text.mode == Mode.BYPASS and not world.bypass:
            hint = "set permissions.allow_bypass = true in config.toml if you mean it"
            yield Problem("bad-mode", "bypassPermissions is off", hint, **self._at(text, "mode"))
        unread = world.prompt_files.get(text.prompt_file)
        if unread is not None:
            yield Problem("prompt-file", unread.message, unread.hint, **self._at(text, "prompt_file"))
        if not thread.prompt and not text.prompt_file:
            message = f"thread {text.id} has neither goal nor prompt: its session will be idle"
            yield Problem("no-prompt", message, "give it a goal", severity=WARNING, **self._at(text))
        if not text.owns and len(self._threads) > 1:
            message = f"thread {text.id} owns no paths: nothing keeps it apart from the others"
            yield Problem("no-owns", message, "say what it owns", severity=WARNING, **self._at(text))

    # ── who owns what ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _ownership(self) -> Iterator[Problem]:
        problems: list[Problem] = []
        owns = {thread.text.index: self._patterns(thread, "owns", problems) for thread in self._threads}
        forbids = {thread.text.index: self._patterns(thread, "forbids", problems) for thread in self._threads}
        yield from problems
        for one, two in combinations(self._threads, 2):
            yield from self._overlap(one, owns[one.text.index], two, owns[two.text.index])
        for thread in self._threads:
            yield from self._forbidden(thread, owns[thread.text.index], forbids[thread.text.index])
            yield from self._others(thread, owns[thread.text.index])

    def _files(self, patterns: Patterns, base: str) -> frozenset[str]:
        """The files of a base that patterns take in; each set is asked for once, however many there are."""
        key = patterns.texts, base
        if key not in self._taken_in:
            tree = self._tree(base)
            found = overlap_files(patterns, patterns, tree.files, ignore_case=self._ignore_case, links=tree.links)
            self._taken_in[key] = frozenset(found)
        return self._taken_in[key]

    def _tree(self, base: str) -> Tree:
        tree = self._world.bases.get(base)
        return tree if isinstance(tree, Tree) else Tree()

    def _patterns(self, thread: Thread, key: str, problems: list[Problem]) -> Patterns:
        texts = list(getattr(thread.text, key))
        try:
            return Patterns.parse(texts)
        except InvalidInputError as error:
            number = int(error.data["index"])
            problems.append(Problem("bad-pattern", error.message, error.hint, **self._at(thread.text, key, number)))
            return Patterns(())

    def _meeting(self, one: Patterns, two: Patterns, *bases: str) -> tuple[str, tuple[str, ...]] | None:
        """The path of a file that both own, and those of the bases that they do; None when there is and can be none."""
        for base in dict.fromkeys(bases):
            examples = sorted(self._files(one, base) & self._files(two, base))[:EXAMPLES]
            if not examples:
                path = overlap(one, two, ignore_case=self._ignore_case, links=self._tree(base).links)
                examples = [path] if path is not None else []
            if examples:
                return examples[0], tuple(examples)
        return None

    def _overlap(self, one: Thread, ones: Patterns, two: Thread, twos: Patterns) -> Iterator[Problem]:
        place = self._at(two.text, "owns")
        if not ones or not twos:
            return
        try:
            met = self._meeting(ones, twos, one.text.base, two.text.base)
        except InvalidInputError as error:
            yield Problem("tangled", error.message, error.hint, **{**place, "threads": (one.id, two.id)})
            return
        if met is not None:
            path, examples = met
            links = {**self._tree(one.text.base).links, **self._tree(two.text.base).links}
            named = list(aliases(path, links))
            first, second = self._which(one.text.owns, *named), self._which(two.text.owns, *named)
            if second is not None:
                place = self._at(two.text, "owns", second)
            mine = two.text.owns[second] if second is not None else "its paths"
            theirs = one.text.owns[first] if first is not None else "its paths"
            # A link is told where a pattern takes the path in under the link's name alone.
            through = "".join(
                f"; {link} is a link to {leads}"
                for link, leads in links.items()
                if any(name.startswith(f"{link}/") for name in named)
                and None
                in {
                    self._which(texts, *(name for name in named if not name.startswith(f"{link}/")))
                    for texts in (one.text.owns, two.text.owns)
                }
            )
            yield Problem(
                "overlap",
                f"thread {two.id} owns {mine}, which overlaps {theirs} of thread {one.id}{through}",
                f"give each file one owner, or leave it out of one with !{path}",
                **{**place, "threads": (one.id, two.id)},
                examples=examples,
            )

    def _forbidden(self, thread: Thread, owns: Patterns, forbids: Patterns) -> Iterator[Problem]:
        place = self._at(thread.text, "forbids")
        if not owns or not forbids:
            return
        try:
            met = self._meeting(owns, forbids, thread.text.base)
        except InvalidInputError as error:
            yield Problem("tangled", error.message, error.hint, **place)
            return
        if met is not None:
            path, examples = met
            number = self._which(thread.text.forbids, path)
            if number is not None:
                place = self._at(thread.text, "forbids", number)
            what = thread.text.forbids[number] if number is not None else "a part of them"
            yield Problem(
                "forbids-own",
                f"thread {thread.id} is forbidden {what}, which it owns",
                f"leave it out of what it owns, with !{what.removeprefix('!')} at the end of owns, or do not forbid it",
                **place,
                examples=examples,
            )

    def _others(self, thread: Thread, owns: Patterns) -> Iterator[Problem]:
        if thread.id in self._world.agreed:
            return
        for name, texts in self._world.owners.items():
            try:
                met = self._meeting(owns, Patterns.parse(texts), thread.text.base) if owns else None
            except InvalidInputError:
                continue  # what that session owns was never a matter of this plan
            if met is not None:
                yield Problem(
                    "overlap-session",
                    f"thread {thread.id} owns paths that the session {name} owns too",
                    f"give it other paths, or take them from it: `rametctl set {name} --disown PATTERN`",
                    examples=met[1],
                    **self._at(thread.text, "owns"),
                )

    def _which(self, texts: Sequence[str], *named: str) -> int | None:
        """The first pattern that takes a path in, by any of its names."""
        for path in named:
            for number, text in enumerate(texts):
                if not text.startswith("!") and Patterns.parse([text]).matches(path, ignore_case=self._ignore_case):
                    return number
        return None
