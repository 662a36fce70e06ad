"""Check the ownership in a plan: paths with two owners, forbidden ones, and paths of other
sessions."""

import time
from collections.abc import Iterator, Sequence
from itertools import combinations

from rametd.domain.errors import InvalidInputError
from rametd.git import Tree
from rametd.ownership import Patterns, aliases, check_size, overlap, overlap_files
from rametd.plans.model import Problem, Thread, World
from rametd.plans.reading import Reading

EXAMPLES = 5
MOST_OVERLAPS = 100
"""Overlaps to report: a plan of a repository may have millions."""
MOST_S = 5.0
"""Seconds of processor time for comparing all threads with each other."""


class PathChecker:
    def __init__(self, reading: Reading, threads: Sequence[Thread], world: World) -> None:
        self._reading = reading
        self._threads = threads
        self._world = world
        self._owned_files: dict[tuple[tuple[str, ...], str], frozenset[str]] = {}
        self._ignore_case = any(isinstance(base, Tree) and base.ignore_case for base in world.bases.values())

    def problems(self) -> Iterator[Problem]:
        """All problems with owned and forbidden paths. Blocks while it searches for overlaps."""
        problems: list[Problem] = []
        owns = {thread.text.index: self._patterns(thread, "owns", problems) for thread in self._threads}
        forbids = {thread.text.index: self._patterns(thread, "forbids", problems) for thread in self._threads}
        yield from problems
        started, overlaps = time.thread_time(), 0
        for one, two in combinations(self._threads, 2):
            for problem in self._overlap(one, owns[one.text.index], two, owns[two.text.index]):
                overlaps += 1
                yield problem
            if overlaps >= MOST_OVERLAPS:
                return
            if time.thread_time() - started > MOST_S:
                hint = "own directories instead of patterns, or split the plan"
                yield Problem("tangled", "comparing the paths of its threads takes too long", hint)
                return
        for thread in self._threads:
            yield from self._forbidden(thread, owns[thread.text.index], forbids[thread.text.index])
            yield from self._others(thread, owns[thread.text.index])

    def _files(self, patterns: Patterns, base: str) -> frozenset[str]:
        """Files of a base that the patterns own; cached."""
        key = patterns.texts, base
        if key not in self._owned_files:
            tree = self._tree(base)
            found = overlap_files(patterns, patterns, tree.files, ignore_case=self._ignore_case, links=tree.links)
            self._owned_files[key] = frozenset(found)
        return self._owned_files[key]

    def _tree(self, base: str) -> Tree:
        tree = self._world.bases.get(base)
        return tree if isinstance(tree, Tree) else Tree()

    def _patterns(self, thread: Thread, key: str, problems: list[Problem]) -> Patterns:
        texts = list(getattr(thread.text, key))
        try:
            check_size(texts)
            return Patterns.parse(texts)
        except InvalidInputError as error:
            number = [int(error.data["index"])] if "index" in error.data else []  # none: the set is too large
            problems.append(
                Problem("bad-pattern", error.message, error.hint, **self._reading.at_thread(thread.text, key, *number))
            )
            return Patterns(())

    def _meeting(self, one: Patterns, two: Patterns, *bases: str) -> tuple[str, tuple[str, ...]] | None:
        """A path that both own, and examples from the bases; None if no such path is possible."""
        for base in dict.fromkeys(bases):
            examples = sorted(self._files(one, base) & self._files(two, base))[:EXAMPLES]
            if not examples:
                path = overlap(one, two, ignore_case=self._ignore_case, links=self._tree(base).links)
                examples = [path] if path is not None else []
            if examples:
                return examples[0], tuple(examples)
        return None

    def _overlap(self, one: Thread, ones: Patterns, two: Thread, twos: Patterns) -> Iterator[Problem]:
        place = self._reading.at_thread(two.text, "owns")
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
                place = self._reading.at_thread(two.text, "owns", second)
            mine = two.text.owns[second] if second is not None else "its paths"
            theirs = one.text.owns[first] if first is not None else "its paths"
            # Mention a link only if a pattern matches the path by no other name than that of the
            # link.
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
        place = self._reading.at_thread(thread.text, "forbids")
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
                place = self._reading.at_thread(thread.text, "forbids", number)
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
                continue  # invalid patterns of another session are not a problem of this plan
            if met is not None:
                yield Problem(
                    "overlap-session",
                    f"thread {thread.id} owns paths that the session {name} owns too",
                    f"give it other paths, or take them from it: `rametctl set {name} --disown PATTERN`",
                    examples=met[1],
                    **self._reading.at_thread(thread.text, "owns"),
                )

    def _which(self, texts: Sequence[str], *named: str) -> int | None:
        """Index of the first pattern that matches any of the names of a path."""
        for path in named:
            for number, text in enumerate(texts):
                if not text.startswith("!") and Patterns.parse([text]).matches(path, ignore_case=self._ignore_case):
                    return number
        return None
