"""`rametctl notify`: the daemon's notifications about requests and sessions that need a person."""

import click
from ramet.jsonify import to_json
from ramet.v1 import attention_pb2

from rametctl.app import App
from rametctl.console.lines import line
from rametctl.options import Verb


@click.group("notify", short_help="Try the notifications.")
def command() -> None:
    """Notifications, which the daemon sends when something waits for you. The settings notify.* in
    config.toml determine topics, times and ways.

    \b
    Examples:
      rametctl notify test
      rametctl config show | grep notify
    """


@command.command("test", cls=Verb, short_help="Send a test message by each configured way.")
@click.pass_obj
def test(app: App) -> int:
    """Send a test message by each configured way, at once. Exits with 1 if one of them
    fails, or if none is configured.

    \b
    Example:
      rametctl notify test
    """
    answer = app.call(
        lambda daemon: daemon.attention.TestNotifications, attention_pb2.TestNotificationsRequest(), doing="sending …"
    )
    status = int(not answer.results or any(result.error for result in answer.results))
    app.output.json(to_json(answer)["results"])
    for result in answer.results:
        words = line((result.way, "bold"), "  ", (result.error, "red") if result.error else ("sent", "green"))
        app.output.show(words)
    if not answer.results:
        app.output.text(
            "no way of notification is configured; to configure one:",
            "  rametctl config set notify.desktop.enabled true",
        )
    return status
