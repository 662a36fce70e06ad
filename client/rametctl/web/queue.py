"""The merge queues, with what the checks write."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from markupsafe import Markup
from ramet.v1 import landing_pb2

from rametctl.render.landing import STYLES, WORDS, landing_state
from rametctl.view import parts
from rametctl.web import html
from rametctl.web.forms import Done, Form
from rametctl.web.site import Action, Fragments, Page, Site, Visit, Wants

if TYPE_CHECKING:
    from ramet.v1.landing_pb2 import Landing

ENDED = frozenset({"landed", "removed"})
FOLLOWED = 6
"""Checks whose output is shown."""
OUTPUT = 16_000
"""Characters of a check's output that are shown: the newest."""


class Queue(Page):
    path: ClassVar[str] = "/queue"
    template: ClassVar[str] = "plain.html"
    nav: ClassVar[str] = "Queue"

    def wants(self, site: Site, visit: Visit) -> Wants:
        followed = [
            each.session_id for each in _landings(site) if each.check_command_id and landing_state(each) not in ENDED
        ]
        return Wants(((parts.RECENT_LANDINGS, ""),), tuple(followed[:FOLLOWED]))

    def fragments(self, site: Site, visit: Visit) -> Fragments:
        landings = _landings(site)
        rows = [
            site.html(
                "landing.html", each=each, state=(state := landing_state(each)), words=WORDS.get(state, state),
                style=STYLES.get(state, ""), output=_output(site, each), ended=state in ENDED,
                there=each.session_id in site.view.sessions,
            )
            for each in landings
        ]  # fmt: skip
        empty = Markup('<p class="dim">Nothing is queued. Review a session and choose “Land”.</p>')
        return {"content": Markup('<div class="cards">{}</div>').format(Markup("").join(rows)) if rows else empty}


def _landings(site: Site) -> "list[Landing]":
    return site.view.part(parts.RECENT_LANDINGS).value or []


def _output(site: Site, landing: "Landing") -> Markup:
    """The newest of what a landing's check wrote."""
    transcript = site.view.transcripts.get(landing.session_id)
    pieces = [
        event.command_output.text
        for event in (transcript.events if transcript is not None else ())
        if event.HasField("command_output") and event.command_output.command_id == landing.check_command_id
    ]
    return html.span(("".join(pieces)[-OUTPUT:], ""))


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
