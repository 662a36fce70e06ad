"""Gitignore patterns as tokens, as in git's `wildmatch.c` and `dir.c`, for matching and for the
automaton.

Git matches bytes: ``?`` is one byte, and a class is a set of bytes. With ``fold``, paths are folded
by `fold_text` and sets include both cases.
"""

import re
from dataclasses import dataclass
from enum import Enum


class Wild(Enum):
    """Tokens that stand for more than one byte."""

    STAR = "[^/]*"
    ANY = ".*"
    SKIP = "(?:"  # begins `(.*/)?`, LOOP is the rest of it
    LOOP = ".*/)?"


Token = frozenset[int] | Wild

SLASH = ord("/")
SPECIAL = re.compile(rb"[*?\[\\]")
NOT_SLASH = frozenset(range(1, 256)) - {SLASH}
ASCII = frozenset(range(128))
CLASSES = {
    "alnum": rb"[A-Za-z0-9]",
    "alpha": rb"[A-Za-z]",
    "blank": rb"[ \t]",
    "cntrl": rb"[\x00-\x1f\x7f]",
    "digit": rb"[0-9]",
    "graph": rb"[\x21-\x7e]",
    "lower": rb"[a-z]",
    "print": rb"[\x20-\x7e]",
    "punct": rb"[!-/:-@\[-`{-~]",
    "space": rb"[ \t\n\r\f\v]",
    "upper": rb"[A-Z]",
    "xdigit": rb"[0-9A-Fa-f]",
}
NAMED = {name.encode(): frozenset(c for c in ASCII if re.match(cls, bytes([c]))) for name, cls in CLASSES.items()}


FILE_NAME = re.compile(r"[^/]+\.[^/]*|[A-Z]+|[^/]*[fF]ile|\.[a-z]*(?:ignore|attributes|modules|config|env|rc)")
"""Names that usually belong to files, not to directories."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One pattern. It owns the paths that its tokens match and all paths below them, or excludes
    them if ``negated``."""

    negated: bool
    directory: bool  # matches only directories
    tokens: tuple[Token, ...]
    file: bool = False  # matches only files; git has no such patterns


def fold_text(text: str) -> str:
    return text.casefold()


def compile_rule(pattern: str, *, fold: bool, meant: bool = False) -> Rule:
    """Compile a pattern that `patterns.normalise` returned.

    In git, ``src/`` is a directory of that name anywhere, and ``*.py`` matches directories too. By
    these rules almost all sets would overlap, because ``docs/src/x`` and ``x.md/x.py`` could exist.
    With ``meant``, a single name is one in the top directory, and a name that looks like a file's
    matches only files.
    """
    negated = pattern.startswith("!")
    text = pattern.removeprefix("!")
    directory = text.endswith("/")
    text = text.removesuffix("/")
    anchored = "/" in text
    plain = not negated and not SPECIAL.search(text.encode(errors="surrogateescape"))
    file = meant and not directory and FILE_NAME.fullmatch(text.rpartition("/")[2]) is not None
    if fold:  # only non-ASCII characters: ASCII ones may be ends of a range, whose order must stay
        text = "".join(c if c.isascii() else fold_text(c) for c in text)
    tokens = tokenise(text.removeprefix("/").encode(errors="surrogateescape"), fold=fold)
    if not anchored and not (meant and plain):
        tokens = [Wild.SKIP, Wild.LOOP, *tokens]
    return Rule(negated, directory, tuple(tokens), file)


def tokenise(body: bytes, *, fold: bool) -> list[Token]:
    """Split a pattern into tokens. One that matches nothing, such as an unclosed class, becomes an
    empty set."""
    tokens: list[Token] = []
    found = SPECIAL.search(body)
    literal = (
        found.start() if found else len(body)
    )  # git compares this literal prefix first, and matches wildcards after it
    at = 0
    while at < len(body):
        match body[at : at + 1]:
            case b"*":
                start = at
                while body[at : at + 1] == b"*":
                    at += 1
                bounded = at - start > 1 and (start == literal or body[start - 1] == SLASH)
                rest = body[at:]
                if bounded and rest.startswith(b"/"):
                    tokens += [Wild.SKIP, Wild.LOOP]
                    at += 1
                elif bounded and (not rest or rest.startswith(b"\\/")):
                    tokens.append(Wild.ANY)
                else:
                    tokens.append(Wild.STAR)
            case b"?":
                tokens.append(NOT_SLASH)
                at += 1
            case b"[":
                allowed, at = read_class(body, at + 1, fold=fold)
                tokens.append(allowed)
            case b"\\":
                tokens.append(widen(frozenset(body[at + 1 : at + 2]), fold=fold))
                at += 2
            case char:
                tokens.append(widen(frozenset(char), fold=fold))
                at += 1
    return tokens


def widen(allowed: frozenset[int], *, fold: bool) -> frozenset[int]:
    return frozenset(allowed | set(bytes(allowed).swapcase())) if fold else allowed


def read_class(body: bytes, at: int, *, fold: bool) -> tuple[frozenset[int], int]:
    """Read a bracket expression after its ``[``. Return its bytes and its end."""
    nothing: tuple[frozenset[int], int] = frozenset(), len(body)
    negated = body[at : at + 1] in {b"!", b"^"}
    at += negated
    allowed: set[int] = set()
    before = 0  # possible start of a range
    first = True
    while first or body[at : at + 1] != b"]":
        first = False
        if at >= len(body):
            return nothing
        char = body[at]
        if char == ord("\\"):
            at += 1
            if at >= len(body):
                return nothing
            char = body[at]
            allowed.add(char)
        elif char == ord("-") and before and body[at + 1 : at + 2] not in {b"", b"]"}:
            at += 1
            if body[at : at + 1] == b"\\":
                at += 1
                if at >= len(body):
                    return nothing
            allowed |= set(range(before, body[at] + 1))
            char = 0
        elif body[at : at + 2] == b"[:":
            end = body.find(b"]", at + 2)
            if end < 0:
                return nothing
            if end > at + 2 and body[end - 1] == ord(":"):
                named = NAMED.get(body[at + 2 : end - 1])
                if named is None:
                    return nothing
                allowed |= named
                at, char = end, 0
            else:
                allowed.add(char)
        else:
            allowed.add(char)
        before = char
        at += 1
    chosen = widen(frozenset(allowed), fold=fold)
    return (NOT_SLASH - chosen if negated else chosen & NOT_SLASH), at + 1


def regex(tokens: tuple[Token, ...]) -> bytes:
    """Convert tokens to a regular expression over bytes, for ``re.DOTALL``."""
    return b"".join(token.value.encode() if isinstance(token, Wild) else one_of(token) for token in tokens)


def one_of(allowed: frozenset[int]) -> bytes:
    if not allowed:
        return b"(?!)"
    if len(allowed) == 1:
        return re.escape(bytes(allowed))
    return b"[" + b"".join(b"\\x%02x" % byte for byte in sorted(allowed)) + b"]"
