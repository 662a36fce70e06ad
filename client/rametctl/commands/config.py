"""`rametctl config`: show, change and check the settings."""

import fcntl
import os
import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import click
from ramet.v1 import daemon_pb2
from ramet.v1.daemon_pb2 import GetConfigResponse, Setting

from rametctl.app import App
from rametctl.connection.start import WARNING, config_problems
from rametctl.console.lines import Line, Span, line
from rametctl.editor import edit as edit_text
from rametctl.errors import ClientError, UnreachableError, UsageError
from rametctl.local.settings import toml_value, with_setting
from rametctl.options import Verb, complete_setting, repo_option, repo_path
from rametctl.render.format import shown_value

FROM_REPOSITORY = "repository file"
AT_START = re.compile(r"log\.level|agents\.[^.]+\.(?:path|command|config_dir)")
"""Settings that the daemon reads only when it starts."""
PLACE = re.compile(r"^.*?\.toml(?:\.new)?:(?:\d+:)? ")
"""File and line at the beginning of a problem."""


@click.group("config", short_help="Manage settings: show, set, edit, check.")
def command() -> None:
    """Settings: the owner's config.toml, and .ramet.toml at a repository's root.

    \b
    Examples:
      rametctl config show
      rametctl config set agents.claude.model opus
    """


@command.command("show", cls=Verb, short_help="Show settings, their values and origins.")
@click.argument("key", required=False, shell_complete=complete_setting)
@repo_option
@click.pass_obj
def show(app: App, key: str | None, repo: str | None) -> None:
    """Show every setting with its value and origin, or in full those whose name begins with KEY. A
    repository's .ramet.toml takes effect once you trust the repository; until then it is listed
    separately.

    \b
    Examples:
      rametctl config show retention
      rametctl config show --json | jq '.settings[] | select(.origin == "owner")'
    """
    answer = _get(app, repo)
    was_trusted = any(setting.origin == FROM_REPOSITORY for setting in answer.settings)
    if key is not None:
        for settings in (answer.settings, answer.withheld):
            found = [setting for setting in settings if setting.key.startswith(key)]
            del settings[:]
            settings.extend(found)
        if not (answer.settings or answer.withheld):
            raise UsageError(f"there is no setting {key}", hint="`rametctl config show` lists all settings")
    app.output.json(answer)
    if key is None:
        app.output.show(*_table(app, answer.settings))
        app.output.hint(f"owner's file: {answer.owner_file}")
    else:
        for each in answer.settings:
            value, style = shown_value(each.value_json, each.unit), "dim" if each.origin == "default" else "yellow"
            app.output.show(line((each.key, "bold"), f" = {value}", (f"  ({each.origin})", style), hang=2))
            app.output.show(line((each.description, "dim"), indent=2))
    if answer.withheld or answer.repo_problem:
        _show_withheld(app, answer, was_trusted=was_trusted)


def _table(app: App, settings: "Sequence[Setting]") -> list[Line]:
    rows: list[list[Span]] = [
        [
            (setting.key, "bold"),
            (shown_value(setting.value_json, setting.unit), ""),
            (setting.origin, "dim" if setting.origin == "default" else "yellow"),
            (setting.description, "dim"),
        ]
        for setting in settings
    ]
    return app.output.table(["KEY", "VALUE", "FROM", "DOES"], rows, shrink=[("DOES", 20), ("VALUE", 12), ("DOES", 8)])


def _show_withheld(app: App, answer: "GetConfigResponse", *, was_trusted: bool) -> None:
    """Show the repository's settings that are not in effect, and the command that trusts them."""
    root = str(Path(answer.repo_file).parent)
    trust = f"rametctl repo trust {shlex.quote(answer.repo)}"
    if not answer.repo:  # an unregistered repository cannot be trusted
        trust = f"rametctl repo add {shlex.quote(root)} && rametctl repo trust {shlex.quote(root)}"
    why = f"{answer.repo_file} is not in effect: {answer.repo or root} is not trusted"
    if was_trusted:
        why = f"{answer.repo_file} has changed since you trusted it; the trusted version is in effect"
    if answer.repo_problem:
        app.output.text("", f"{why}; it also has an error: {answer.repo_problem}")
        return
    app.output.text("", f"{why}. It says:")
    app.output.show(*(line((setting.key, "bold"), f" = {setting.value_json}", indent=2) for setting in answer.withheld))
    app.output.text(f"to apply it: {trust}")


@command.command("check", cls=Verb, short_help="Check the configuration files.")
@repo_option
@click.pass_obj
def check(app: App, repo: str | None) -> None:
    """Check your config.toml, and the repository's .ramet.toml if there is one. Errors
    are reported with their position. The command needs no daemon and starts none.

    \b
    Example:
      rametctl config check
    """
    owner_file = app.directories.config_file
    repo_file = _repo_file(app, repo)
    said = config_problems(app.environ, repo_file)
    warnings = [text for text in said if text.startswith(WARNING)]
    wrong = [text for text in said if not text.startswith(WARNING)]
    for text in warnings:
        app.output.note(f"rametctl: {text}")
    if len(wrong) > 1:
        for text in wrong:
            app.output.note(f"  {text}")
        message = "; ".join(wrong) if app.output.json_mode else f"{len(wrong)} errors in the configuration"
        raise ClientError(message, hint="fix them, then: rametctl config check", reason="BAD_CONFIG")
    if wrong:
        raise ClientError(wrong[0], reason="BAD_CONFIG")
    files = [str(path) for path in (owner_file, repo_file) if path is not None and path.exists()]
    app.output.json({"ok": True, "files": files})
    if files:
        app.output.text(*(f"{path}: ok" for path in files))
    else:
        app.output.text(f"no {owner_file}: every setting has its default")


@command.command("set", cls=Verb, short_help="Set a value in your config.toml.")
@click.argument("key", shell_complete=complete_setting)
@click.argument("value")
@click.pass_obj
def set_value(app: App, key: str, value: str) -> None:
    """Set KEY (see `config show`) to VALUE in your config.toml. VALUE is TOML, or text.
    The file does not change if the daemon would refuse the value.

    \b
    Examples:
      rametctl config set agents.claude.model opus
      rametctl config set agents.sleep_after 30m
      rametctl config set land.protected '["main", "release/*"]'
    """
    app.refuse_session("change the configuration")
    file = app.directories.config_file
    running = _write(app, file, lambda now: with_setting(now or "", key, toml_value(value)), placed=False)
    app.output.json({"ok": True, "key": key, "file": str(file)})
    app.output.text(f"{key} = {toml_value(value)}")
    _say_how_it_takes_effect(app, key, running=running)


@command.command("edit", cls=Verb, short_help="Edit your config.toml in $EDITOR.")
@click.pass_obj
def edit(app: App) -> None:
    """Open your config.toml in $EDITOR. The file does not change if the daemon would
    refuse the result.

    \b
    Example:
      rametctl config edit
    """
    app.refuse_session("change the configuration")
    file = app.directories.config_file
    before = _text(file)
    after = edit_text(app, before or "# See: rametctl config show\n", extension=".toml", undone="nothing was changed")
    if after is None or after == before:
        app.output.text("nothing was changed")
        return

    def edited(now: str | None) -> str:
        if now == before:
            return after
        ours = file.with_name(f"{file.name}.edited")
        _store(ours, after, 0o600)
        raise ClientError(f"nothing was changed: {file} was changed meanwhile", hint=f"your version is in {ours}")

    running = _write(app, file, edited, placed=True)
    app.output.text(f"{file}: ok")
    _say_how_it_takes_effect(app, running=running)


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(f"{file} cannot be read: {error}", reason="BAD_CONFIG") from error


def _write(app: App, file: Path, change: Callable[[str | None], str], *, placed: bool) -> bool:
    """Replace the file by its ``change`` if the daemon would accept that, else raise ClientError.
    Return whether a running daemon has applied it.

    One process at a time reads and replaces the file, so that no change of another is lost. The new
    file is complete on the disk before it has the name, and only the person can read it, as it may
    have tokens, unless the old one was open to others.

    ``placed``: the error names file and line, for a person who has edited the file.
    """
    known = {_without_place(problem) for problem in config_problems(app.environ)}
    target = file.resolve()  # a link, such as into a directory of dotfiles, stays a link
    scratch = target.with_name(f".{target.name}.new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(target.parent, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _unwritable(target, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        text = change(_text(file))
        _store(scratch, text, file.stat().st_mode & 0o777 if file.exists() else 0o600)
        found = [each for each in config_problems(app.environ, owner_file=scratch) if not each.startswith(WARNING)]
        if wrong := [each for each in found if _without_place(each) not in known]:
            problem = wrong[0].replace(str(scratch), str(file)) if placed else _without_place(wrong[0])
            raise ClientError(f"nothing was changed: {problem}", reason="BAD_CONFIG")
        scratch.replace(target)
    except OSError as error:  # a link into a directory that is read-only, a full disk
        raise _unwritable(target, error) from error
    finally:
        with suppress(OSError):
            scratch.unlink()
        os.close(lock)
    return _apply(app, file)


def _store(scratch: Path, text: str, mode: int) -> None:
    """Write a new file to the disk."""
    scratch.unlink(missing_ok=True)  # of a killed command
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as made:
        made.write(text.encode("utf-8"))
        made.flush()
        os.fsync(made.fileno())
        os.fchmod(made.fileno(), mode)


def _unwritable(target: Path, error: OSError) -> ClientError:
    return ClientError(f"nothing was changed: {target} cannot be written: {error.strerror}")


def _apply(app: App, file: Path) -> bool:
    """Wait until a running daemon has applied the file; False if none runs. Raise ClientError if
    the daemon refuses the file for an earlier error in it."""
    try:
        app.connect(autostart=False).call(lambda daemon: daemon.daemon.GetConfig, daemon_pb2.GetConfigRequest())
    except UnreachableError:
        return False
    except ClientError as error:
        message = f"{file} is saved; not in effect: {error.message}"
        raise ClientError(message, hint=error.hint, reason=error.reason) from error
    return True


def _without_place(problem: str) -> str:
    """Return a problem without its file and line."""
    return PLACE.sub("", problem)


def _say_how_it_takes_effect(app: App, key: str | None = None, *, running: bool) -> None:
    """Print when ``key`` takes effect; None means the whole file."""
    late = "programs of agents and log.level after: rametctl daemon restart"
    if not running:
        app.output.hint("takes effect when the daemon starts")
    elif key is None:
        app.output.hint(f"in effect; {late}")
    elif AT_START.fullmatch(key):
        app.output.hint("takes effect after: rametctl daemon restart")
    else:
        app.output.hint("in effect")


def _repo_file(app: App, repo: str | None) -> Path | None:
    """Return the path of the worktree's `.ramet.toml`. Ask the daemon only for the name of a
    repository."""
    here = Path(app.cwd if repo is None else repo_path(app, repo))
    root = next((directory for directory in (here, *here.parents) if (directory / ".git").exists()), None)
    return None if root is None else root / ".ramet.toml"


def _get(app: App, repo: str | None) -> "GetConfigResponse":
    path = repo_path(app, repo) if repo is not None else app.repo_here() or ""
    request = daemon_pb2.GetConfigRequest(repo_path=path)
    return app.call(lambda daemon: daemon.daemon.GetConfig, request)
