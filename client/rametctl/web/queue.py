"""The merge queues, with the output of the checks."""

from collections.abc import Mapping
from typing import ClassVar

from markupsafe import Markup
from ramet.v1 import landing_pb2

from rametctl.render.landing import STYLES, WORDS, landing_state
from rametctl.view import parts
from rametctl.web.forms import Done, Form
from rametctl.web.outputs import Outputs
from rametctl.web.site import Action, Fragments, Page, Site, Visit, Wants

ENDED = frozenset({"landed", "removed"})
ENDED_CHECKS = 20
"""Ended landings, the newest, whose checks' output is shown."""


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
