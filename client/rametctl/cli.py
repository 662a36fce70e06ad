"""The command line. Imports a verb's module only when it is used, so that the client starts
quickly."""

from collections.abc import Mapping
from importlib import import_module

import click

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Start here": {
        "new": "create a session: branch, worktree, agent",
        "top web ls show": "dashboard; web page; list sessions; one in full",
        "watch attach logs events": "follow live; go in; read it all; list events",
    },
    "Talk": {
        "send unsend": "send a prompt; take a queued one back",
        "interrupt": "end the running turn",
        "pause resume stop": "pause; continue; end the agent",
        "fork checkpoints rewind": "copy a session; earlier states, and back to one",
        "set wait": "change model, mode, budget; wait for a turn's end",
    },
    "Answer": {
        "inbox": "what waits for you, in all repositories",
        "approve deny answer": "answer a request",
        "done rules": "close finished turns; what agents may do unasked",
    },
    "Worktree": {
        "diff comment": "see changes; comment on their lines",
        "run shell open path": "a command; a shell; your editor; the path",
        "setup sync ports": "set up again; merge the base; ports",
    },
    "Bring home": {
        "land queue": "merge into the target branch, checked first",
        "pr conflicts": "pull requests; what does not merge",
    },
    "Several at once": {
        "plan compare pick": "sessions from a file; contenders; pick one",
        "messages cost status": "what sessions said to each other; costs; counts",
    },
    "Clear away": {
        "archive restore": "put the worktree away; get it back",
        "rm trash gc": "remove; restore or empty; clear finished work",
    },
    "Machine": {
        "daemon service": "the daemon; its start at login",
        "config notify": "settings; try the notifications",
        "repo adopt pool agents": "repositories; trees made by hand; spares; agents",
        "doctor mcp completion": "repair; tools for agents; shell completion",
        "help version demo": "explain; versions; a demo without an account",
    },
}
"""Every verb once, in the groups and rows of ``rametctl --help``: the verbs of each row, and its
description."""

VERBS = tuple(verb for rows in GROUPS.values() for row in rows for verb in row.split())

ALIASES = {"kill": "stop", "list": "ls", "log": "events", "merge": "land", "msg": "send", "ps": "ls"}
"""Names of verbs in other tools."""

NEAR = {
    "accept": "approve", "allow": "approve", "budget": "set", "cancel": "interrupt", "cd": "path", "checkout": "new",
    "clean": "gc", "code": "open", "commit": "checkpoints", "continue": "resume", "create": "new", "delete": "rm",
    "describe": "show", "edit": "open", "exec": "run", "follow": "watch", "history": "logs", "info": "show",
    "inspect": "show", "mode": "set", "model": "set", "no": "deny", "permissions": "rules", "prune": "gc",
    "rebase": "sync", "reject": "deny", "remove": "rm", "rename": "set", "reply": "answer", "review": "diff",
    "say": "send", "settings": "config", "start": "resume", "tail": "watch", "transcript": "logs", "undo": "rewind",
    "update": "sync", "usage": "cost", "yes": "approve",
}  # fmt: skip
"""Words that people try, and the verb that does it."""

EPILOG = "More: rametctl help VERB, help all, help exit-codes|json|modes|names. Nearly every verb takes --json."


class VerbGroup(click.Group):
    """Finds ``rametctl.commands.VERB``; lists in the order of `VERBS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in VERBS:
            return None
        command = import_module(f"rametctl.commands.{name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if (
            args
            and not args[0].startswith("-")
            and self.get_command(ctx, args[0]) is None
            and not ctx.resilient_parsing
        ):
            raise unknown_verb(args[0])
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(_shown(row)) for rows in GROUPS.values() for row in rows)
        for group, rows in GROUPS.items():
            formatter.write(f"{group}\n")
            for row, words in rows.items():
                formatter.write(f"  {_shown(row):<{width}}  {words}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Leave out --help and --version: the verbs `help` and `version` do the same."""
        formatter.write("\n")
        self.format_commands(ctx, formatter)

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb. Raise Ramet's own exceptions, which Click does not report itself."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted from error
        except BrokenPipeError as error:
            raise ReaderGone from error


def _shown(row: str) -> str:
    return ", ".join(row.split())


def unknown_verb(word: str) -> Exception:
    """Return the error for an unknown verb, with the most similar verb."""
    import difflib

    from rametctl.errors import UsageError

    near = NEAR.get(word) or next(iter(difflib.get_close_matches(word, (*VERBS, *ALIASES), n=1)), "")
    near = ALIASES.get(near, near)
    meant = f"did you mean `rametctl {near}`? " if near else ""
    return UsageError(f"there is no verb {word!r}", hint=f"{meant}all verbs: rametctl help")


class Interrupted(Exception):  # noqa: N818  no error: a person wants it to end
    """Ctrl-C."""


class ReaderGone(Exception):  # noqa: N818  no error: the reader has seen enough
    """The reader closed standard output, as in ``rametctl events SESSION | head``."""


@click.command(
    cls=VerbGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    options_metavar="",
    subcommand_metavar="VERB ...",
    epilog=EPILOG,
    invoke_without_command=True,
)
@click.version_option(
    None, "-V", "--version", package_name="ramet", prog_name="rametctl", message="%(prog)s %(version)s"
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Run many agents in one repository, each in a worktree of its own."""
    if ctx.invoked_subcommand is not None:
        return
    app = ctx.obj
    if not app.on_terminal and not app.output.dumb:
        raise click.exceptions.NoArgsIsHelpError(ctx)
    from rametctl.dashboard import run

    run(app, repo_path=app.repo_here() or "")
