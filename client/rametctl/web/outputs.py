"""Output of checks on pages: read from the daemon once, and followed while the check runs."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from markupsafe import Markup
from ramet.v1 import terminal_pb2

from rametctl.errors import ClientError, is_transient
from rametctl.web import html
from rametctl.web.site import Page, Site

SHOWN = 16_000
"""Characters of an output that are shown: the newest."""


@dataclass(eq=False)
class _Output:
    """The newest output of a check; ``complete`` once it has ended, or cannot be read."""

    text: str = ""
    complete: bool = False
    task: "asyncio.Task[None] | None" = None


class Outputs:
    """Outputs on the visits of one page, by the id of the command."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._held: dict[str, _Output] = {}

    def keep(self, commands: Collection[str]) -> None:
        """Forget all other commands."""
        self._held = {id_: output for id_, output in self._held.items() if id_ in commands}

    def html(self, site: Site, command: str) -> Markup:
        """Return what has been read so far. Reading goes on, and starts again after the daemon was away."""
        output = self._held.setdefault(command, _Output())
        if not output.complete and (output.task is None or output.task.done()):
            output.task = asyncio.create_task(self._follow(site, command, output))
        return html.span((output.text, ""))

    async def _follow(self, site: Site, command: str, output: _Output) -> None:
        try:
            found = await site.call(
                lambda daemon: daemon.terminals.GetCommand, terminal_pb2.GetCommandRequest(command=command)
            )
            offset = max(found.command.output_bytes - SHOWN, 0)
            output.text = ""
            request = terminal_pb2.WatchOutputRequest(command=command, offset=offset, follow=True)
            async for piece in site.link.stream(lambda daemon: daemon.terminals.WatchOutput, request):
                output.text = (output.text + piece.data.decode("utf-8", "replace"))[-SHOWN:]
                output.complete = piece.HasField("command")
                site.redraw(lambda visit: visit.page is self._page)
        except ClientError as error:
            output.complete = not is_transient(error)
