"""Wrappers: commands that run other commands, and the position of the other command in their words.

``sudo rm x``, ``env A=1 rm x``, ``timeout 5 rm x``, ``find . -exec rm {} +`` and ``bash -c 'rm x'``
all run ``rm``. Rules that deny look through wrappers. Rules that allow need the position of the
other command: a rule for the wrapper must not allow that command too.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

SHELLS = frozenset({"sh", "bash", "rbash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh", "su"})

# Number of operands before the command, and the short options that take the next word.
_WRAPPERS: dict[str, tuple[int, str]] = {
    "-": (0, ""),
    "builtin": (0, ""),
    "busybox": (0, ""),
    "caffeinate": (0, "tw"),
    "chpst": (0, "uU/nlLmdopfctreb"),
    "chroot": (1, ""),
    "chrt": (1, "TPD"),
    "command": (0, ""),
    "dbus-run-session": (0, ""),
    "doas": (0, "uC"),
    "env": (0, "uCSP"),
    "exec": (0, "a"),
    "firejail": (0, ""),
    "flock": (1, "wE"),
    "gtimeout": (1, "ks"),
    "ionice": (0, "cnpPu"),
    "nice": (0, "n"),
    "nocorrect": (0, ""),
    "noglob": (0, ""),
    "nohup": (0, ""),
    "nsenter": (0, "tSG"),
    "numactl": (0, "ipPNCm"),
    "parallel": (0, "jaIN"),
    "pkexec": (0, ""),
    "prlimit": (0, "po"),
    "repeat": (1, ""),
    "setsid": (0, ""),
    "ssh-agent": (0, "aEPt"),
    "stdbuf": (0, "ioe"),
    "strace": (0, "eoPpsuEaIObSUX"),
    "sudo": (0, "CDghpRrtTuU"),
    "systemd-run": (0, "pEuHM"),
    "taskset": (1, ""),
    "time": (0, "fo"),
    "timeout": (1, "ks"),
    "toybox": (0, ""),
    "unshare": (0, "SGRw"),
    "watch": (0, "nq"),
    "xargs": (0, "aEILnPsd"),
    "xvfb-run": (0, "efnpsw"),
}
_ANYWHERE = frozenset({"bwrap", "proot"})  # their options take so many words that the command may begin at any of them
_JOINED = frozenset({"eval", "watch"})  # their joined words are a script
_FIRST = frozenset({"trap"})  # their first word is a script
EXECUTING = {
    "find": frozenset({"-exec", "-execdir", "-ok", "-okdir"}),
    "fd": frozenset({"-x", "-X", "--exec", "--exec-batch"}),
}
# Commands that start others too. Rules that deny look through them; rules that allow treat them as
# plain commands.
_LAUNCHERS: dict[tuple[str, ...], tuple[int, str]] = {
    **dict.fromkeys((("npx",), ("bunx",), ("uvx",)), (0, "p")),
    **dict.fromkeys(
        ((tool, verb) for tool in ("npm", "pnpm", "yarn", "bun") for verb in ("exec", "x", "dlx")), (0, "")
    ),
    **dict.fromkeys(((tool, "run") for tool in ("uv", "poetry", "pdm", "pipenv", "pipx", "hatch", "rye")), (0, "")),
    ("bundle", "exec"): (0, ""),
    ("direnv", "exec"): (1, ""),
    ("mise", "exec"): (0, ""),
    ("fakeroot",): (0, "lsbi"),
    ("setpriv",): (0, ""),
    ("script",): (1, ""),
    ("unbuffer",): (0, ""),
    ("ltrace",): (0, "eopu"),
    ("torsocks",): (0, ""),
}
_SCRIPTED = frozenset({"capsh", "flock", "hyperfine", "nix-shell", "parallel", "runuser", "script", "sg", "watchexec"})
"""Commands for which `-c TEXT` or an operand may be a script."""
_LOADER = re.compile(r"ld-linux.*\.so.*|ld-musl.*\.so.*|ld\.so")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)


@dataclass(frozen=True, slots=True)
class Inner:
    """A command inside another one, from word ``start`` on: its words, or a ``script`` for a
    shell."""

    start: int
    words: tuple[str, ...] = ()
    script: str | None = None


def base(name: str) -> str:
    return name.rpartition("/")[2]


def runs_another(name: str) -> bool:
    """Whether a command of this name runs the command in its other words."""
    return (
        name in _WRAPPERS or name in SHELLS or name in _JOINED or name in _FIRST or name in {".", "source"} | _ANYWHERE
    )


def inner(words: Sequence[str]) -> Iterator[Inner]:
    """Commands that this one runs directly; each may run others in turn."""
    name = base(words[0]) if words else ""
    if name in SHELLS:
        flag = next(
            (i for i, word in enumerate(words) if i and re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*|--command", word)), None
        )
        for i in range(flag + 1 if flag else len(words), len(words)):
            if not words[i].startswith("-"):
                yield Inner(i, script=words[i])
    if name in _JOINED and len(words) > 1:
        yield Inner(1, script=" ".join(words[1:]))
    if name in _FIRST and len(words) > 1:
        yield Inner(1, script=words[1])
    if name == "env":
        for i, word in enumerate(words):
            if match := re.match(r"-\w*S|--split-string=?", word):
                yield Inner(i, script=" ".join((word[match.end() :], *words[i + 1 :])))
    if name in _WRAPPERS:
        for start in _starts(words, *_WRAPPERS[name]):
            yield Inner(start, tuple(words[start:]))
    if name in _ANYWHERE:
        for i in range(1, len(words)):
            if not words[i].startswith("-"):
                yield Inner(i, tuple(words[i:]))
    for i, word in enumerate(words):
        if i and word in EXECUTING.get(name, ()) and i + 1 < len(words):
            yield Inner(i + 1, tuple(words[i + 1 :]))


def launched(words: Sequence[str]) -> Iterator[Inner]:
    """`inner`, and the commands that launchers run: for denying, never for allowing."""
    yield from inner(words)
    name = base(words[0]) if words else ""
    for called, rest in ((words[:1], words), (words[:2], words[1:])):
        how = _LAUNCHERS.get((name, *called[1:]))
        for start in _starts(rest, *how) if how else ():
            at = start + len(words) - len(rest)
            yield Inner(at, tuple(words[at:]))
    if _LOADER.fullmatch(name):
        for start in _starts(words, 0, ""):
            yield Inner(start, tuple(words[start:]))
    if name in _SCRIPTED:
        for i in range(1, len(words)):
            if not words[i].startswith("-"):
                yield Inner(i, script=words[i])


def _starts(words: Sequence[str], operands: int, valued: str) -> list[int]:
    """Possible starts of the inner command. A long option may or may not take the next word: both
    are tried."""
    found: set[int] = set()
    todo, seen = [(1, operands)], set[tuple[int, int]]()
    while todo:
        at, left = todo.pop()
        if at >= len(words) or (at, left) in seen:
            continue
        seen.add((at, left))
        word = words[at]
        if word.startswith("--") and len(word) > 2:
            todo.append((at + 1, left))
            if "=" not in word:
                todo.append((at + 2, left))
        elif word.startswith("-") and len(word) > 1:
            todo.append((at + 2 if word[-1] in valued else at + 1, left))
        elif _ASSIGNMENT.match(word):
            todo.append((at + 1, left))
        elif left:
            todo.append((at + 1, left - 1))
        else:
            found.add(at)
    return sorted(found)
