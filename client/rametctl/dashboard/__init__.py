"""The dashboard: all sessions on one screen, and one of them in full. Only it imports Textual, and
only `run` imports it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rametctl.app import App


def run(app: "App", *, repo_path: str = "", everywhere: bool = False, only: str = "") -> None:
    """Show the dashboard until the person quits it; restore the terminal on SIGTERM too. Raises
    UsageError without a terminal. ``everywhere``: all repositories are asked for; they are shown
    too if ``repo_path`` is "", and the dashboard says so then."""
    from rametctl.errors import UsageError

    if app.output.dumb:
        raise UsageError("the dashboard needs a terminal that can move the cursor", hint="use: rametctl ls")
    if not app.on_terminal:
        raise UsageError("the dashboard needs a terminal", hint="use: rametctl ls --watch")
    from rametctl.dashboard.app import Dashboard

    dashboard = Dashboard(app, repo_path=repo_path, everywhere=everywhere, only=only)
    dashboard.run()
    if dashboard.failure is not None:
        raise dashboard.failure
    if dashboard.return_code:
        raise SystemExit(dashboard.return_code)
