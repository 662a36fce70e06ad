"""``rametd``: the daemon in the foreground. People start it with ``rametctl``, or as a service."""

import os
import sys
from pathlib import Path

import click
from ramet.paths import PathsError, directories, make_private_directory, user_home
from ramet.visible import visible

from rametd import loading
from rametd.domain.errors import AlreadyRunningError, BadConfigError, RametError, RuntimeDirectoryError
from rametd.failpoints import Failpoint

# For service managers (sysexits.h): a restart fixes neither.
EXIT_ALREADY_RUNNING = 75
EXIT_CONFIGURATION = 78

SWITCH_INTERVAL_S = 0.0005


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ramet", prog_name="rametd")
@click.pass_context
def cli(context: click.Context) -> None:
    """Run the daemon, which owns git worktrees and the agents in them, and serves ramet.v1.

    \b
    RAMET_HOME directory of the state (default $XDG_STATE_HOME/ramet) RAMET_RUNTIME_DIR directory of
    the sockets (default $XDG_RUNTIME_DIR/ramet) Configuration: $XDG_CONFIG_HOME/ramet/config.toml
    """
    if context.invoked_subcommand is None:
        context.invoke(run)


@cli.command()
@click.option("--patience", type=float, default=0.0, metavar="SECONDS", help="Wait for a daemon that is stopping.")
def run(patience: float = 0.0) -> None:
    """Serve in the foreground until SIGTERM. Agents continue."""
    with loading.quickly():
        import asyncio

        import structlog

        from rametd import config, logs
        from rametd.app import serve
        from rametd.platform.memory import return_large_blocks
    return_large_blocks()
    environ = dict(os.environ)
    places = directories(environ)
    # A session's token must not limit the daemon, which acts for the owner.
    for name in ("RAMET_TOKEN", "RAMET_SESSION"):
        environ.pop(name, None)
    failpoint = Failpoint(environ.pop("RAMET_FAILPOINT", ""))
    level = config.load(places.config_file, home=user_home(environ)).log.level
    make_private_directory(places.home)  # the log goes into it
    console = sys.stderr if sys.stderr is not None and sys.stderr.isatty() else None
    # The store's threads release the interpreter's lock at every statement. While the event loop is
    # busy, each would get it back only after the default of 5 ms.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with logs.set_up(places.logs, level=level, console=console):
        try:
            asyncio.run(serve(places, environ, failpoint, patience=patience))
        except RametError as error:
            structlog.get_logger().error("not started", error=error.message, hint=error.hint)
            raise


@cli.command()
@click.option("--owner-file", type=click.Path(path_type=Path), help="Check this file instead of config.toml.")
@click.option("--repository-file", type=click.Path(path_type=Path), help="Check this .ramet.toml too.")
def check(owner_file: Path | None, repository_file: Path | None) -> None:
    """Check the configuration. Print one problem per line; exit with 1 if one keeps the daemon from
    starting."""
    from rametd import config

    places = directories(os.environ)
    try:
        owner = config.Source.read(owner_file or places.config_file)
        repository = (
            None if repository_file is None else config.Source.read(repository_file, inside=repository_file.parent)
        )
    except BadConfigError as error:
        print(visible(f"{error.message}; {error.hint}"))
        sys.exit(1)
    problems = config.check(owner, repository, home=places.home)
    for problem in problems:
        hint = f"; {problem.hint}" if problem.hint else ""
        print(visible(f"{'' if problem.fatal else 'warning: '}{problem}{hint}"))
    sys.exit(any(problem.fatal for problem in problems))


def main() -> None:
    """Run the daemon; if it cannot run, print why in one line."""
    try:
        cli(prog_name="rametd")
    except AlreadyRunningError as error:
        fail(error.message, error.hint, EXIT_ALREADY_RUNNING)
    except (BadConfigError, RuntimeDirectoryError) as error:
        fail(error.message, error.hint, EXIT_CONFIGURATION)
    except PathsError as error:
        fail(error.message, error.hint, EXIT_CONFIGURATION)
    except RametError as error:
        fail(error.message, error.hint, 1)


def fail(message: str, hint: str, code: int) -> None:
    print(visible(f"rametd: {message}" + (f"; {hint}" if hint else "")), file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
