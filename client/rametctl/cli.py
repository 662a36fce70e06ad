"""The command line. Imports a verb's module only when it is used, so that the client starts quickly."""

from importlib import import_module

import click

VERBS = (
    "new", "ls", "show", "log", "watch",
    "send", "interrupt", "stop", "resume", "pause", "fork", "sync", "set", "wait",
    "inbox", "approve", "deny", "answer", "rules",
    "msg", "messages", "mcp",
    "diff", "comment", "checkpoints", "rewind", "conflicts", "setup", "run", "shell", "ports", "archive", "restore", "rm", "trash", "gc", "doctor", "adopt", "repo", "pool", "plan", "land", "queue", "pr", "cost",
    "daemon", "service", "config", "completion", "demo", "version",
)  # fmt: skip


class VerbGroup(click.Group):
    """Finds ``rametctl.commands.VERB``; lists in the order of `VERBS`, which is that of use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command = import_module(f"rametctl.commands.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb. What Click would say itself about these two ends is left to ``main``."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted from error
        except BrokenPipeError as error:
            raise ReaderGone from error


class Interrupted(Exception):  # noqa: N818  no error: a person wants it to end
    """Ctrl-C."""


class ReaderGone(Exception):  # noqa: N818  no error: the reader has seen enough
    """The reader of standard output has gone, as in ``rametctl log SESSION | head``."""


@click.command(
    cls=VerbGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    options_metavar="",
    subcommand_metavar="VERB ...",
    epilog="Every command has --help with examples, and --json. Exit codes: 0 done, 1 refused or failed, 2 wrong usage, "
    "3 not found, 4 needs your input, 5 no daemon, 124 timed out, 130 interrupted.",
)
@click.version_option(package_name="ramet", prog_name="rametctl", message="%(prog)s %(version)s")
def cli() -> None:
    """Run many agents in one repository, each in a worktree of its own.

    \b
      rametctl new "fix the login"      a session: branch, worktree, agent
      rametctl ls                       list sessions and their states
      rametctl inbox                    list requests that wait for you
    """
