"""`rametctl completion`: print a shell completion script."""

import click
from click.shell_completion import get_completion_class

from rametctl.app import App

CHANGES = {
    "bash": (
        # Bash divides --option=value into three words.
        (
            'response=$(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD',
            """local index word=$COMP_CWORD words=()
    for ((index = 0; index < ${#COMP_WORDS[@]}; index++)); do
        if [[ $index -gt 0 && $index -lt $COMP_CWORD && ${COMP_WORDS[index]} == = && ${COMP_WORDS[index-1]} == --* ]]; then
            ((word--))
        else
            words+=("${COMP_WORDS[index]}")
        fi
    done
    response=$(env COMP_WORDS="${words[*]}" COMP_CWORD=$word""",
        ),
        # A name with a space is one word.
        (
            "COMPREPLY+=($value)",
            """[[ ${COMP_WORDS[COMP_CWORD]} == [\\'\\"]* ]] || printf -v value %q "$value"
            COMPREPLY+=("$value")""",
        ),
    ),
    "zsh": (
        # Of --option=value, only the value is completed.
        ("    for type key", "    [[ ${words[CURRENT]} == --*=* ]] && compset -P '*='\n\n    for type key"),
        # A file in fpath is run again by the second completion, which is no autoload any more.
        ("if [[ $zsh_eval_context[-1] == loadautofunc ]]", "if (( $+compstate ))"),
        ("completions_with_descriptions -U", 'completions_with_descriptions -U -i "$IPREFIX"'),
        ("compadd -U", 'compadd -U -i "$IPREFIX"'),
    ),
    "fish": (
        # A value and a description may contain commas.
        ('(string split "," $completion)', '(string split --max 1 "," -- $completion)'),
        # --option=value is one word.
        ("    for completion in", "    set -l option (string match -r -- '^--[^=]*=' (commandline -ct));\n\n    for completion in"),
        ("echo $metadata[2]", 'echo "$option$metadata[2]"'),
        *(
            (f"__fish_complete_{kind} $metadata[2];", f'for path in (__fish_complete_{kind} $metadata[2]); echo "$option$path"; end;')
            for kind in ("directories", "path")
        ),
    ),
}  # fmt: skip
"""Lines of Click's scripts, and their replacements."""


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
    for line, replacement in CHANGES[shell]:
        text = text.replace(line, replacement)
    context.ensure_object(App).output.stdout.write(text + "\n")
