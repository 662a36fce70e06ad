"""`rametctl completion`: print a shell completion script."""

import click
from click.shell_completion import get_completion_class

from rametctl.app import App

INSERTED = (
    "COMPREPLY+=($value)",
    """[[ ${COMP_WORDS[COMP_CWORD]} == [\\'\\"]* ]] || printf -v value %q "$value"
            COMPREPLY+=("$value")""",
)
"""Click's line for bash, which inserts a name with a space as two words, and its replacement. Other
shells quote names themselves."""


@click.command("completion", short_help="Print shell completion for bash, zsh or fish.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL: verbs, options and session names.

    \b
    Examples:
      rametctl completion bash >> ~/.bashrc
      rametctl completion zsh > "${fpath[1]}/_rametctl"
      rametctl completion fish > ~/.config/fish/completions/rametctl.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(context.find_root().command, {}, "rametctl", "_RAMETCTL_COMPLETE")
    text = script.source_template % script.source_vars()
    context.ensure_object(App).output.stdout.write(text.replace(*INSERTED) + "\n")
