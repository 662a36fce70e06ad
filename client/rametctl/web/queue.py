"""The merge queues, with what the checks write."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from markupsafe import Markup
from ramet.v1 import landing_pb2, terminal_pb2

from rametctl.errors import ClientError
from rametctl.render.landing import STYLES, WORDS, landing_state
from rametctl.view import parts
from rametctl.web import html
from rametctl.web.forms import Done, Form
from rametctl.web.site import Action, Fragments, Page, Site, Visit, Wants

ENDED = frozenset({"landed", "removed"})
OUTPUT = 16_000
"""Characters of a check's output that are shown: the newest."""


@dataclass(eq=False)
class Output:
    """The newest of what a check has written; ``complete`` once it has ended."""

    text: str = ""
    complete: bool = False
    task: "asyncio.Task[None] | None" = None


class Queue(Page):
    path: ClassVar[str] = "/queue"
    template: ClassVar[str] = "plain.html"
    nav: ClassVar[str] = "Queue"

    def __init__(self) -> None:
        self._outputs: dict[str, Output] = {}

    def wants(self, site: Site, visit: Visit) -> Wants:
        return Wants(((parts.RECENT_LANDINGS, ""),))

    def fragments(self, site: Site, visit: Visit) -> Fragments:
        slot = site.view.part(parts.RECENT_LANDINGS)
        landings = slot.value or []
        checked = {
            each.check_command_id for each in landings if each.check_command_id and landing_state(each) not in ENDED
        }
        self._outputs = {id_: output for id_, output in self._outputs.items() if id_ in checked}
        rows = [
            site.html(
                "landing.html", each=each, state=(state := landing_state(each)), words=WORDS.get(state, state),
                style=STYLES.get(state, ""), ended=state in ENDED, there=each.session_id in site.view.sessions,
                output=html.span((self._output(site, each.check_command_id), "")) if each.check_command_id in checked else "",
            )
            for each in landings
        ]  # fmt: skip
        empty = slot.error or "" if slot.value is None else "Nothing is queued. Review a session and choose “Land”."
        cards = Markup('<div class="cards">{}</div>').format(Markup("").join(rows))
        return {"content": cards if rows else Markup('<p class="dim">{}</p>').format(empty)}

    def _output(self, site: Site, command: str) -> str:
        """What a check has written so far; it is followed from now on, and again where the daemon went away."""
        output = self._outputs.setdefault(command, Output())
        if not output.complete and (output.task is None or output.task.done()):
            output.task = asyncio.create_task(self._follow(site, command, output))
        return output.text

    async def _follow(self, site: Site, command: str, output: Output) -> None:
        with suppress(ClientError):
            found = await site.call(
                lambda daemon: daemon.terminals.GetCommand, terminal_pb2.GetCommandRequest(command=command)
            )
            offset = max(found.command.output_bytes - OUTPUT, 0)
            output.text = ""
            request = terminal_pb2.WatchOutputRequest(command=command, offset=offset, follow=True)
            async for piece in site.link.stream(lambda daemon: daemon.terminals.WatchOutput, request):
                output.text = (output.text + piece.data.decode("utf-8", "replace"))[-OUTPUT:]
                output.complete = piece.HasField("command")
                site.redraw(lambda visit: visit.page is self)


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
