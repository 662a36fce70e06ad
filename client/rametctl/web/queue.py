"""The merge queues, with the output of the checks."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from markupsafe import Markup
from ramet.v1 import landing_pb2, terminal_pb2

from rametctl.errors import ClientError, is_transient
from rametctl.render.landing import STYLES, WORDS, landing_state
from rametctl.view import parts
from rametctl.web import html
from rametctl.web.forms import Done, Form
from rametctl.web.site import Action, Fragments, Page, Site, Visit, Wants

ENDED = frozenset({"landed", "removed"})
ENDED_CHECKS = 20
"""Ended landings, the newest, whose checks' output is shown."""
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
        """Return the output so far. Reading continues, and starts again after a restart of the
        daemon."""
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


class Queue(Page):
    path: ClassVar[str] = "/queue"
    template: ClassVar[str] = "plain.html"
    nav: ClassVar[str] = "Queue"

    def __init__(self) -> None:
        self._outputs = Outputs(self)

    def wants(self, site: Site, visit: Visit) -> Wants:
        return Wants(((parts.RECENT_LANDINGS, ""),))

    def fragments(self, site: Site, visit: Visit) -> Fragments:
        slot = site.view.part(parts.RECENT_LANDINGS)
        landings = slot.value or []
        with_check = [each for each in landings if each.check_command_id]
        ended = [each for each in with_check if landing_state(each) in ENDED]
        ended.sort(key=lambda each: each.create_time.seconds)
        checked = {each.check_command_id for each in with_check}
        checked -= {each.check_command_id for each in ended[:-ENDED_CHECKS]}
        self._outputs.keep(checked)
        rows = [
            site.html(
                "landing.html", each=each, state=(state := landing_state(each)), words=WORDS.get(state, state),
                style=STYLES.get(state, ""), ended=state in ENDED, there=each.session_id in site.view.sessions,
                output=self._outputs.html(site, each.check_command_id) if each.check_command_id in checked else "",
            )
            for each in landings
        ]  # fmt: skip
        empty = slot.error or "" if slot.value is None else "Nothing is queued. Review a session and choose “Land”."
        cards = Markup('<div class="cards">{}</div>').format(Markup("").join(rows))
        return {"content": cards if rows else Markup('<p class="dim">{}</p>').format(empty)}


async def retry(site: Site, form: Form) -> Done:
    request = landing_pb2.RetryLandingRequest(landing=form.params["landing"], request_id=form.request_id)
    await site.call(lambda daemon: daemon.landing.RetryLanding, request)
    return Done("tried again")


async def remove(site: Site, form: Form) -> Done:
    request = landing_pb2.RemoveLandingRequest(landing=form.params["landing"], request_id=form.request_id)
    await site.call(lambda daemon: daemon.landing.RemoveLanding, request)
    return Done("removed from the queue; branch and session stay")


PAGES: tuple[type[Page], ...] = (Queue,)
ACTIONS: Mapping[str, Action] = {"/queue/{landing}/retry": retry, "/queue/{landing}/remove": remove}
