"""Read prompts from the command line, a file, or standard input, and distinguish one with a leading
dash from an option."""

import asyncio
import fcntl
import os
import re
import select
import shlex
import stat
import subprocess
import termios
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO
from urllib.parse import unquote

import click

from rametctl.errors import UsageError
from rametctl.options import Verb, complete_file

if TYPE_CHECKING:
    from ramet.v1.session_pb2 import Image

PROMPT_BYTES = 16 << 20
"""Size up to which the daemon takes a prompt."""
IMAGE_BYTES = 3_750_000
"""Size up to which an image goes with a prompt."""
IMAGE_NAMES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
ATTACHED_BYTES = 256 << 10
"""Size up to which a file is added to a prompt; an agent reads larger ones itself."""
SILENCE_S = 1.0
"""How long standard input may stay silent before a note says that the command reads it."""
_MENTION = re.compile(r"(?<![\w@`])@(\S+)")
_MARK = "\0"
"""Prefix for a prompt that looks like an option, so that Click takes it as an argument; no argument
of a process contains a NUL."""
COMPLETED = re.compile(r"(?:^|(?<=\s))@\S*$|^/\S*$")
BUILT_IN = ("compact", "context", "cost", "init", "review", "security-review")
"""Commands of Claude Code that do something in a session without its own screen."""
MOST = 50


image_option = click.option(
    "--image",
    "images",
    metavar="FILE",
    multiple=True,
    shell_complete=complete_file,
    help="Add a PNG, JPEG, GIF or WebP image (repeatable).",
)


class PromptCommand(Verb):
    """A command that takes a prompt, which may begin with dashes without a ``--`` before it.

    A text with a leading dash is a prompt if no option can look like it: it has a space before any
    ``=``, or begins with three dashes. A single word stays an option, so that a mistyped one is an
    error and never a prompt.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True
        try:
            rest = super().parse_args(ctx, mark_prompts(args, self._options_with_value()))
        except click.NoSuchOption as error:
            if error.option_name.startswith("--"):
                raise
            # It may be the beginning of a sentence, too.
            raise UsageError(
                f"no such option {error.option_name!r}",
                hint=f"see: {ctx.command_path} --help; a prompt needs no option, and -- before it if it begins with a dash",
            ) from error
        if rest and not ctx.resilient_parsing:
            extra = " ".join(map(str, map(_unmarked, rest)))
            raise UsageError(f"the prompt is one argument, and {extra!r} is left over", hint="put the prompt in quotes")
        ctx.params = {name: _unmarked(value) for name, value in ctx.params.items()}
        return rest

    def _options_with_value(self) -> frozenset[str]:
        return frozenset(
            name
            for param in self.params
            if isinstance(param, click.Option) and not param.is_flag
            for name in param.opts
        )


def mark_prompts(args: Sequence[str], options_with_value: frozenset[str]) -> list[str]:
    """Return ``args`` with prompts marked; an option's value stays unchanged."""
    marked: list[str] = []
    value_follows = False
    for index, arg in enumerate(args):
        if arg == "--" and not value_follows:
            return [*marked, *args[index:]]
        marked.append(_MARK + arg if not value_follows and _is_prompt(arg, options_with_value) else arg)
        value_follows = not value_follows and arg in options_with_value
    return marked


def _unmarked(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(_unmarked(item) for item in value)
    return value.removeprefix(_MARK) if isinstance(value, str) else value


def _is_prompt(arg: str, options_with_value: frozenset[str]) -> bool:
    if arg.startswith("---"):
        return True
    if not arg.startswith("-"):
        return False
    head = arg.partition("=")[0] if arg.startswith("--") else arg
    # `-fmy file.txt` is an option with its value, `-f is broken` can only be a sentence.
    attached = arg[:2] in options_with_value and not arg[2:3].isspace()
    return any(char.isspace() for char in head) and not attached


def read_prompt(
    argument: str | None, file: str | None, stdin: TextIO | None, note: Callable[[str], None], directory: str = ""
) -> str | None:
    """Return the prompt, or None without an argument, file or piped input. Raise UsageError.

    An argument and a file are one prompt. With a ``directory``, files that the argument names are
    added (`with_files`); those that a file or standard input names are not, which others may have
    written.

    Read standard input if it is a pipe, a socket or a file, not a terminal or /dev/null. ``note``
    prints why the command waits: a script or service may leave a pipe open that nothing is written
    to.
    """
    if argument == "-" and file is not None:
        raise UsageError('"-" and -f were both given', hint="give one of them")
    if argument is not None and not argument.strip():
        raise UsageError("the prompt is empty", hint="say what the agent is to do", reason="EMPTY_PROMPT")
    if "-" not in (argument, file):
        if argument is None and file is None:
            return _read_input(stdin, note) if _is_piped(stdin) else None
        check_unread(stdin, "a prompt", "to send both: -f -", note)
    parts = []
    if argument not in {None, "-"}:
        parts.append(with_files(argument, directory) if directory else argument)
    if "-" in (argument, file):
        parts.append(_read_input(stdin, note))
    elif file is not None:
        parts.append(_read_file(file))
    return "\n\n".join(parts)


def _read_file(file: str) -> str:
    try:
        with Path(file).open("rb") as given:  # it may be a pipe, as `<(command)`
            return _checked(given, f"the file {file}")
    except OSError as error:
        raise UsageError(
            f"the prompt file {file!r} cannot be read: {error.strerror}",
            hint="put -- before a prompt that begins with a dash",
        ) from error


def _read_input(stdin: TextIO | None, note: Callable[[str], None]) -> str:
    if stdin is None:
        raise UsageError("the prompt is to come from standard input, which is closed", reason="EMPTY_PROMPT")
    if not _arrives(stdin):
        note("reading the prompt from standard input until it ends; without one, run the command with </dev/null")
    return _checked(stdin.buffer, "standard input")


def check_unread(stdin: TextIO | None, instead: str, hint: str, note: Callable[[str], None]) -> None:
    """Raise UsageError if text is piped in that the command will not read, because it has
    ``instead``. Read nothing: the text may be that of a loop in the shell, ``… | while read``."""
    if stdin is None or not _is_piped(stdin):
        return
    if stat.S_ISREG(os.fstat(stdin.fileno()).st_mode) and os.lseek(stdin.fileno(), 0, os.SEEK_CUR):
        return  # a loop reads it line by line
    if not _arrives(stdin):
        note("standard input is open and was not read; to run this without it: </dev/null")
        return
    unread = array("i", [0])
    fcntl.ioctl(stdin.fileno(), termios.FIONREAD, unread)
    if unread[0]:
        raise UsageError(
            f"{instead} was given, and text on standard input", hint=f"{hint}; to ignore the text: </dev/null"
        )


def _arrives(stdin: TextIO) -> bool:
    """Return whether there is text on standard input, or its end, within SILENCE_S."""
    return bool(select.select([stdin], [], [], SILENCE_S)[0])


def with_files(prompt: str, directory: str) -> str:
    """Return the prompt with the contents of text files that it names as ``@path``, relative to
    ``directory``.

    A name without a text file of at most `ATTACHED_BYTES` stays a word of the prompt. So does a
    link in ``directory`` that leads out of it: the person who wrote the prompt may not know where
    to, and the model would get that file.
    """
    top = Path(directory).resolve()
    added: dict[str, str] = {}
    for match in _MENTION.finditer(prompt):
        for name in (match[1], match[1].rstrip(".,;:!?)]}\"'")):
            path = Path(directory, name).expanduser()
            try:
                named = Path(os.path.normpath(top / Path(name).expanduser()))
                if name in added or (named.is_relative_to(top) and not named.resolve().is_relative_to(top)):
                    continue
                if (data := _read_regular(path, ATTACHED_BYTES)) is None:
                    continue
                added[name] = data.decode("utf-8")
            except (OSError, ValueError):
                continue  # unreadable, or no text
            break
    parts = [f"Contents of {name}:\n````\n{text.rstrip()}\n````" for name, text in added.items()]
    return "\n\n".join([prompt, *parts])


CLIPBOARDS = {
    "WAYLAND_DISPLAY": ("wl-paste", "--type", "image/png"),
    "DISPLAY": ("xclip", "-selection", "clipboard", "-t", "image/png", "-o"),
    "": ("pngpaste", "-"),
}
"""Programs that print the clipboard's image, each with the variable of the display that it
needs."""


def clipboard_image(environ: Mapping[str, str]) -> bytes:
    """Return the image in the clipboard as PNG; b"" without one. Blocks."""
    for variable, command in CLIPBOARDS.items():
        if variable and not environ.get(variable):
            continue
        with suppress(OSError, subprocess.TimeoutExpired):
            found = subprocess.run(command, capture_output=True, timeout=3, check=False, env=dict(environ)).stdout
            if found.startswith(b"\x89PNG"):
                return found
    return b""


def pasted_file(text: str) -> str:
    """Return the path of an image that a terminal pasted, as after a drop: quoted, escaped or a
    file URL; "" for other text."""
    try:
        words = shlex.split(text.strip())
    except ValueError:
        return ""
    if len(words) != 1 or not words[0].lower().endswith(IMAGE_NAMES):
        return ""
    path = unquote(words[0].removeprefix("file://")) if words[0].startswith("file://") else words[0]
    return path if Path(path).is_file() else ""


def read_images(files: Sequence[str], directory: str) -> "list[Image]":
    """Return the images in these files. Raises UsageError; the daemon checks their formats."""
    from ramet.v1.session_pb2 import Image

    images = []
    for file in files:
        try:
            path = Path(directory, file).expanduser()
            if (data := _read_regular(path, IMAGE_BYTES)) is None:
                fault = f"is over {IMAGE_BYTES:,} bytes" if path.is_file() else "is not a regular file"
                raise UsageError(f"the image {file} {fault}", hint="give a file that is smaller than that")
            images.append(Image(data=data))
        except OSError as error:
            raise UsageError(f"the image {file!r} cannot be read: {error.strerror}") from error
    return images


def _read_regular(path: Path, most: int) -> bytes | None:
    """Return the content of a regular file; None for another one, such as a device or a pipe, and
    for a file of more than ``most`` bytes, however it grows."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(most + 1)
    return data if len(data) <= most else None


def _checked(stream: BinaryIO, source: str) -> str:
    data = stream.read(PROMPT_BYTES + 1)
    if len(data) > PROMPT_BYTES:
        raise UsageError(
            f"the prompt is over {PROMPT_BYTES:,} bytes: {source}", hint="name the file in the prompt instead"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{source} is not UTF-8 text (byte {error.start})", hint="convert it first") from error
    if not text.strip():
        raise UsageError(
            f"the prompt is empty: {source} has no text", hint="say what the agent is to do", reason="EMPTY_PROMPT"
        )
    return text


def _is_piped(stdin: TextIO | None) -> bool:
    if stdin is None:
        return False
    try:
        mode = os.fstat(stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


# Completions of the word before the cursor: ``@file`` of the worktree, ``/command`` of Claude Code


def word_before(text: str) -> str:
    """Return the end of ``text`` that can be completed; "" if there is none."""
    found = COMPLETED.search(text)
    return found[0] if found else ""


async def completions(word: str, worktree: str, environ: Mapping[str, str]) -> list[str]:
    """Return completions of ``word``, the likeliest first: names that begin with it before paths
    that contain it."""
    if word.startswith("/"):
        names = await asyncio.to_thread(_commands, Path(worktree), environ)
        return ["/" + name for name in names if name.startswith(word[1:])][:MOST]
    part = word[1:].lower()
    paths = [path for path in await _files(worktree) if part in path.lower()]
    paths.sort(key=lambda path: (not path.lower().startswith(part), part not in path.lower().rpartition("/")[2], path))
    return ["@" + path for path in paths[:MOST]]


async def _files(worktree: str) -> list[str]:
    """Return the paths in the worktree that git does not ignore, without those that a prompt cannot
    name."""
    command = (
        "git",
        "-c",
        "core.fsmonitor=false",
        "-C",
        worktree,
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    )
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
