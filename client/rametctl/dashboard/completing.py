"""Completions of the word before the prompt's cursor: ``@file`` of the worktree, ``/command`` of Claude Code. Nothing here knows Textual."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path

WORD = re.compile(r"(?:^|(?<=\s))@\S*$|^/\S*$")
BUILT_IN = ("compact", "context", "cost", "init", "review", "security-review")
"""Commands of Claude Code that do something in a session without its own screen."""
MOST = 50


def word_before(text: str) -> str:
    """The end of ``text`` that can be completed, "" where it ends in none."""
    found = WORD.search(text)
    return found[0] if found else ""


async def completions(word: str, worktree: str, environ: Mapping[str, str]) -> list[str]:
    """What ``word`` may become, the likeliest first: names that begin with it before paths that have it anywhere."""
    if word.startswith("/"):
        names = await asyncio.to_thread(_commands, Path(worktree), environ)
        return ["/" + name for name in names if name.startswith(word[1:])][:MOST]
    part = word[1:].lower()
    paths = [path for path in await _files(worktree) if part in path.lower()]
    paths.sort(key=lambda path: (not path.lower().startswith(part), part not in path.lower().rpartition("/")[2], path))
    return ["@" + path for path in paths[:MOST]]


async def _files(worktree: str) -> list[str]:
    """Paths of the worktree that git does not ignore, without those that a prompt cannot name."""
    command = ("git", "-C", worktree, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    try:
        git = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return []
    listed, _ = await git.communicate()
    paths = dict.fromkeys(listed.decode("utf-8", "replace").split("\0"))
    return [path for path in paths if path and not any(char.isspace() for char in path)]


def _commands(worktree: Path, environ: Mapping[str, str]) -> list[str]:
    home = Path(environ.get("CLAUDE_CONFIG_DIR") or Path(environ.get("HOME") or "~").expanduser() / ".claude")
    found = {*BUILT_IN}
    for place in (worktree / ".claude", home):
        commands = place / "commands"
        found |= {":".join(file.relative_to(commands).with_suffix("").parts) for file in commands.rglob("*.md")}
        found |= {file.parent.name for file in place.glob("skills/*/SKILL.md")}
    return sorted(found)
