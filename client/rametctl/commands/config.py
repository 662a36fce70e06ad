"""`rametctl config`: the settings in force."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rametctl.app import App
from rametctl.options import Verb, repo_option, repo_path

if TYPE_CHECKING:
    from ramet.v1.daemon_pb2 import GetConfigResponse


@click.group("config", short_help="Settings: show, check.")
def command() -> None:
    """Settings: the owner's config.toml, and .ramet.toml at a repository's root.

    \b
    Examples:
      rametctl config show
      rametctl config check
    """


@command.command("show", cls=Verb, short_help="Every setting, its value, and where it comes from.")
@repo_option
@click.pass_obj
def show(app: App, repo: str | None) -> None:
    """Show every setting with its value and where that comes from.

    \b
    Example:
      rametctl config show --json | jq '.settings[] | select(.origin == "owner")'
    """
    answer = _get(app, repo)
    if app.output.json_mode:
        from ramet.jsonify import to_json

        app.output.json(to_json(answer))
        return
    app.output.show(
        *app.output.table(
            ["KEY", "VALUE", "FROM", "DOES"],
            [
                [
                    (setting.key, "bold"), (setting.value_json, ""),
                    (setting.origin, "dim" if setting.origin == "default" else "yellow"), (setting.description, "dim"),
                ]
                for setting in answer.settings
            ],
            shrink=[("DOES", 20), ("VALUE", 12), ("DOES", 8)],
        )
    )  # fmt: skip
    app.output.hint(f"owner's file: {answer.owner_file}")


@command.command("check", cls=Verb, short_help="Whether the files are right.")
@repo_option
@click.pass_obj
def check(app: App, repo: str | None) -> None:
    """Check the owner's file, and the repository's where there is one. What is
    wrong is told with its place, also when no daemon can start because of it.

    \b
    Example:
      rametctl config check
    """
    _check_syntax(app.directories.config_file)
    answer = _get(app, repo)
    files = [path for path in (answer.owner_file, answer.repo_file) if path and Path(path).exists()]
    if app.output.json_mode:
        app.output.json({"ok": True, "files": files})
    elif files:
        app.output.text(*(f"{path} is right" for path in files))
    else:
        app.output.text(f"there is no {answer.owner_file}; every setting has its default")


def _get(app: App, repo: str | None) -> "GetConfigResponse":
    from ramet.v1 import daemon_pb2

    path = repo_path(app, repo) if repo is not None else app.repo_here() or ""
    request = daemon_pb2.GetConfigRequest(repo_path=path)
    return app.connection.call(lambda daemon: daemon.daemon.GetConfig, request)


def _check_syntax(path: Path) -> None:
    import tomllib

    from rametctl.errors import ClientError

    try:
        tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise ClientError(f"{path}: {error}", hint="correct it and check again", reason="BAD_CONFIG") from error
