"""Overlap of two sets of patterns, decided by the patterns alone, so that it includes files that do
not exist yet.

Each set is an automaton that reads a path byte by byte. Its state is an integer with a bit for each
position in a pattern. Both automata run in parallel, breadth first (the product construction). Of
each class of bytes that no token distinguishes, they try one. The first path that both accept is a
short example; if there is none, the sets do not overlap.

Patterns are read as "meant" (see `compile_rule`); `overlap_files` reads them literally, on existing
files.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rametd.domain.errors import InvalidInputError
from rametd.ownership.glob import SLASH, Rule, Token, Wild
from rametd.ownership.patterns import Patterns, owned_by, path_bytes

STATE_LIMIT = 20_000
"""Maximum number of pairs of states. Usual patterns need a few hundred."""
WORK_LIMIT = 4_000_000
"""Maximum number of positions in patterns to visit, which takes a few seconds: a state of many
patterns takes longer than one of few."""

PREFERRED = b"xabcdefghijklmnopqrstuvwyz0123456789_-XABCDEFGHIJKLMNOPQRSTUVWYZ"
DOT = ord(".")
EMPTY, ONE_DOT, TWO_DOTS, NAME = range(4)  # kind of the last part of the path so far; a path may end only with a NAME


@dataclass(frozen=True, slots=True)
class Ends:
    """End positions of one pattern, as bits of a state."""

    rule: Rule
    at: int  # the path read so far matches
    below: int  # a parent directory of it matches
    earlier: int  # all positions of earlier patterns, which no longer matter below


class Machine:
    """The automaton of one set. A state has a bit for each position before or after a token, and
    for each pattern one bit that means "below a match"."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules
        self.start = 0
        self._tokens: list[Token | Ends | None] = []  # None: below
        self._ends: list[Ends] = []  # last pattern first
        self._hopeful = 0  # positions from which a path may still become owned
        for rule in rules:
            first = len(self._tokens)
            end = first + len(rule.tokens)
            ends = Ends(rule, 1 << end, 1 << (end + 1), (1 << first) - 1)
            self._tokens += [*rule.tokens, ends, None]
            self._ends.insert(0, ends)
            if not rule.negated:
                self._hopeful |= (1 << (end + 2)) - (1 << first)
        self._closures = [0] * len(self._tokens)
        for place in reversed(range(len(self._tokens))):
            reached = 1 << place
            match self._tokens[place]:
                case Wild.STAR | Wild.ANY:
                    reached |= self._closures[place + 1]
                case Wild.SKIP:
                    reached |= self._closures[place + 1] | self._closures[place + 2]
            self._closures[place] = reached
        for ends in self._ends:
            self.start |= self._closures[ends.earlier.bit_length()]
        self._moves: dict[tuple[int, int], int] = {}
        self.work = 0

    def hopeless(self, state: int) -> bool:
        """Whether no continuation of the path is owned."""
        return not state & self._hopeful

    def certain(self, state: int) -> bool:
        """Whether every continuation of the path is owned."""
        return any(state == ends.below and not ends.rule.negated for ends in self._ends)

    def owns(self, state: int) -> bool:
        """Whether the file whose path was read is owned."""
        for ends in self._ends:
            if state & ends.below or (state & ends.at and not ends.rule.directory):
                return not ends.rule.negated
        return False

    def move(self, state: int, byte: int) -> int:
        key = state, byte
        known = self._moves.get(key)
        if known is None:
            known = self._moves[key] = self._move(state, byte)
        return known

    def _move(self, state: int, byte: int) -> int:
        self.work += state.bit_count() + len(self._ends) // 8
        reached = 0
        left = state
        while left:
            place = (left & -left).bit_length() - 1
            left &= left - 1
            match self._tokens[place]:
                case None:
                    reached |= 1 << place
                case frozenset() as allowed:
                    if byte in allowed:
                        reached |= self._closures[place + 1]
                case Ends(rule=rule):
                    if byte == SLASH and not rule.file:
                        reached |= 1 << (place + 1)
                case Wild.STAR:
                    if byte != SLASH:
                        reached |= self._closures[place]
                case Wild.ANY:
                    reached |= self._closures[place]
                case Wild.LOOP:
                    reached |= 1 << place
                    if byte == SLASH:
                        reached |= self._closures[place + 1]
        for ends in self._ends:
            if reached & ends.below:
                return reached & ~(ends.earlier | self._places(ends)) | ends.below
        return reached

    @staticmethod
    def _places(ends: Ends) -> int:
        """All positions of one pattern."""
        return ((ends.below << 1) - 1) & ~ends.earlier

    def after(self, path: bytes) -> int:
        state = self.start
        for byte in path:
            state = self.move(state, byte)
        return state


def alphabet(rules: Iterable[Rule]) -> list[int]:
    """One byte, preferably readable, of each class of bytes that no token distinguishes."""
    sets = {token for rule in rules for token in rule.tokens if isinstance(token, frozenset)}
    ordered = [*PREFERRED, *(byte for byte in range(33, 256) if byte not in PREFERRED), *range(1, 33)]
    chosen: dict[tuple[bool, ...], int] = {}
    for byte in (SLASH, DOT, *ordered):
        chosen.setdefault((byte == SLASH, byte == DOT, *(byte in allowed for allowed in sets)), byte)
    return list(chosen.values())


def search(
    first: Machine,
    second: Machine,
    starts: Iterable[tuple[bytes, int, int]],
    accepts: Callable[[int, int], bool],
    hopeless: Callable[[int, int], bool],
) -> bytes | None:
    """Search for a path whose states satisfy ``accepts``. Each start is a directory with its slash,
    or an empty path, and the states after it."""
    letters = alphabet([*first.rules, *second.rules])
    queue = deque((path, one, two, EMPTY) for path, one, two in starts)
    later: deque[tuple[bytes, int, int, int]] = (
        deque()
    )  # names that begin with a dot, an example only where there is no other
    seen = {(one, two, EMPTY) for _, one, two, _ in queue}
    while queue or later:
        path, one, two, part = (queue or later).popleft()
        if part == NAME and accepts(one, two):
            return path
        for byte in letters:
            if byte == SLASH and part != NAME:
                continue
            after = EMPTY if byte == SLASH else part + 1 if byte == DOT and part < TWO_DOTS else NAME
            key = first.move(one, byte), second.move(two, byte), after
            if key in seen or hopeless(key[0], key[1]):
                continue
            if len(seen) >= STATE_LIMIT or first.work + second.work > WORK_LIMIT:
                raise InvalidInputError(
                    "these patterns are too tangled to be compared", hint="use fewer wildcards, or fewer patterns"
                )
            seen.add(key)
            (later if after == ONE_DOT else queue).append((path + bytes([byte]), *key))
    return None


def _are_apart(one: Rule, two: Rule) -> bool:
    """Return whether the literal beginnings of two patterns differ, as those of most directories:
    a hundred times as fast as a search."""
    if one.negated or two.negated:  # owns nothing
        return True
    for mine, theirs in zip(one.tokens, two.tokens, strict=False):
        if not (isinstance(mine, frozenset) and isinstance(theirs, frozenset)):
            return False
        if mine.isdisjoint(theirs):
            return True
    return False


def overlap(
    a: Patterns, b: Patterns, *, ignore_case: bool = False, links: Mapping[str, str] | None = None
) -> str | None:
    """Return a path that both sets own, whether it exists or not; None if no such path is possible.

    ``links`` maps symbolic links to directories to their real paths: such a directory has two
    names. Raises `InvalidInputError` if the comparison needs too many states.
    """
    rules = a.meant(ignore_case=ignore_case), b.meant(ignore_case=ignore_case)
    if not links and all(_are_apart(one, two) for one in rules[0] for two in rules[1]):
        return None
    first, second = Machine(rules[0]), Machine(rules[1])
    starts = [(b"", first.start, second.start)]
    for one, two in same_places(links or {}):
        mine, theirs = (path_bytes(f"{name}/", fold=ignore_case) for name in (one, two))
        starts.append((mine, first.after(mine), second.after(theirs)))
    return as_text(
        search(
            first,
            second,
            [start for start in starts if not (first.hopeless(start[1]) or second.hopeless(start[2]))],
            lambda one, two: first.owns(one) and second.owns(two),
            lambda one, two: first.hopeless(one) or second.hopeless(two),
        )
    )


def contains(outer: Patterns, inner: Patterns, *, ignore_case: bool = False) -> str | None:
    """Return a path that ``inner`` owns and ``outer`` does not; None if no such path is possible.
    Raises as `overlap`."""
    first, second = Machine(outer.meant(ignore_case=ignore_case)), Machine(inner.meant(ignore_case=ignore_case))
    return as_text(
        search(
            first,
            second,
            [(b"", first.start, second.start)],
            lambda one, two: second.owns(two) and not first.owns(one),
            lambda one, two: first.certain(one) or second.hopeless(two),
        )
    )


def overlap_files(
    a: Patterns,
    b: Patterns,
    files: Iterable[str],
    *,
    ignore_case: bool = False,
    links: Mapping[str, str] | None = None,
) -> list[str]:
    """The files that both sets own under any name, sorted. ``links`` as for `overlap`."""
    ways = links or {}
    mine = owned_by(a, files, ways, ignore_case=ignore_case)
    return sorted(owned_by(b, mine, ways, ignore_case=ignore_case))


def same_places(links: Mapping[str, str]) -> list[tuple[str, str]]:
    """Pairs of names of the same directory, in both orders."""
    names: dict[str, list[str]] = {}
    for link, target in links.items():
        names.setdefault(target, [target]).append(link)
    return [(one, two) for group in names.values() for one in group for two in group if one != two]


def as_text(path: bytes | None) -> str | None:
    return None if path is None else path.decode(errors="replace")
