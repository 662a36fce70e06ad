"""`rametctl open`: open a session's worktree in the editor."""

import click

from rametctl.app import App
from rametctl.editor import configured_editor
from rametctl.errors import ClientError
from rametctl.nouns.sessions import get_session
from rametctl.options import Verb, complete_changed, session_argument


@click.command("open", cls=Verb, short_help="Open a session's worktree in your editor.")
@session_argument
@click.argument("paths", nargs=-1, metavar="[PATH]...", shell_complete=complete_changed)
@click.pass_obj
def command(app: App, session: str, paths: tuple[str, ...]) -> int:
    """Open the worktree of SESSION, or files in it, in your editor: the setting `editor`, else
    $VISUAL or $EDITOR.

    \b
    Examples:
      rametctl open fix-login
      rametctl open fix-login src/login.py
      rametctl config set editor '["code", "--new-window"]'
    """
    import subprocess

    worktree = get_session(app, session).session.worktree
    argv = [*configured_editor(app), *(paths or ["."])]
    if app.output.json_mode:
        app.output.json({"argv": argv, "path": worktree})
        return 0
    try:
        return subprocess.run(argv, cwd=worktree, check=False).returncode
    except FileNotFoundError as error:
        missing = worktree if error.filename == worktree else argv[0]
        raise ClientError(
            f"{missing} does not exist", hint="set your editor: rametctl config set editor '[\"code\"]'"
        ) from error
