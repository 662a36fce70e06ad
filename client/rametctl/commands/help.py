"""`rametctl help`: explain a verb, a topic, or list all verbs."""

from collections.abc import Iterator

import click
from click.shell_completion import CompletionItem

from rametctl.app import App
from rametctl.cli import ALIASES, GROUPS, unknown_verb
from rametctl.console.lines import Line, line
from rametctl.errors import UsageError

TOPICS = {
    "exit-codes": """\
  0  done
  1  refused, or the operation failed
  2  wrong usage
  3  not found
  4  stopped because it needs your input
  5  no daemon can be reached or started
124  timed out
130  interrupted""",
    "json": """\
--json prints JSON on standard output and nothing else there: one object for
one thing, one array for a list, one object per line for a stream. Fields are
snake_case, enum values lower case (`waiting`), times RFC 3339, 64-bit numbers
strings. An error is {"error": {"reason", "message", "hint"}}, with an exit
code. A session's mode is written as on the command line (acceptEdits).

  rametctl ls --json | jq -r '.[] | select(.state == "waiting").name'""",
    "modes": """\
What an agent may do without asking. Rules and ownership apply in every mode.

  plan               change nothing; propose a plan
  dontAsk            deny what would be asked
  manual             ask for edits and commands (also: default)
  acceptEdits        edit inside the worktree; ask for commands
  auto               a model judges each call instead of you; needs
                     permissions.allow_bypass
  bypassPermissions  everything, without asking; needs permissions.allow_bypass

  rametctl new "fix the login" --mode acceptEdits
  rametctl set fix-login --mode plan
  rametctl config set permissions.default_mode acceptEdits""",
    "names": """\
SESSION is a name, the beginning of one that no other has (`fix` for fix-login),
an id or the beginning of one, or REPO/NAME where two repositories share a name.
REQUEST is the id of a request, the beginning of one, or a session with exactly
one open request. REPO is a path or the name of a repository.""",
}
"""Topics of `help TOPIC`."""


def _complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return verbs and topics, or the verbs of the group that the previous words name."""
    words: tuple[str, ...] = ctx.params.get("words") or ()
    command: click.Command | None = ctx.find_root().command
    for word in words:
        command = command.get_command(ctx, word) if isinstance(command, click.Group) else None
    names = command.list_commands(ctx) if isinstance(command, click.Group) else []
    return [
        CompletionItem(name) for name in (*names, *(() if words else (*TOPICS, "all"))) if name.startswith(incomplete)
    ]


@click.command("help", short_help="Explain a verb or a topic, or list all verbs.")
@click.argument("words", metavar="[VERB|TOPIC|all]", nargs=-1, shell_complete=_complete)
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of VERB (also of a part: `help pr create`), of a TOPIC (exit-codes, json,
    modes, names), or one line for each verb (all).

    \b
    Examples:
      rametctl help
      rametctl help rules add
      rametctl help all
      rametctl help modes
    """
    app, root = ctx.find_object(App), ctx.find_root()
    assert app is not None
    if words == ("all",):
        app.output.page(_every_verb(root))
        return
    if len(words) == 1 and words[0] in TOPICS:
        app.output.raw(*TOPICS[words[0]].splitlines())
        return
    app.output.raw(*_help(root, words).splitlines())


def _every_verb(root: click.Context) -> "Iterator[Line]":
    """Yield one line for each verb, by group."""
    assert isinstance(root.command, click.Group)
    for group, rows in GROUPS.items():
        yield line((group, "bold"))
        for name in (verb for row in rows for verb in row.split()):
            found = root.command.get_command(root, name)
            also = [alias for alias, verb in ALIASES.items() if verb == name]
            words = (found.short_help or "") if found is not None else ""
            yield line(f"  {name:<12} {words}", (f" Also: {', '.join(also)}." if also else "", "dim"))


def _help(root: click.Context, words: tuple[str, ...]) -> str:
    """Return the help of a verb, given as a path of names. Raise UsageError for an unknown one."""
    context, command = root, root.command
    for word in words:
        found = command.get_command(context, word) if isinstance(command, click.Group) else None
        if found is None and command is root.command:
            raise unknown_verb(word)
        if found is None:
            raise UsageError(f"{context.command_path} has no verb {word!r}", hint=f"see: {context.command_path} --help")
        context, command = click.Context(found, parent=context, info_name=found.name), found
    return command.get_help(context)
