"""Plans: their threads as a graph with progress, and the paths that each owns."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from markupsafe import Markup
from ramet.words import plural

from rametctl.render.session import state_name
from rametctl.view import parts
from rametctl.web import svg
from rametctl.web.site import Action, Fragments, Page, Site, Visit, Wants

if TYPE_CHECKING:
    from ramet.v1.plan_pb2 import ThreadStatus


class Plans(Page):
    path: ClassVar[str] = "/plans"
    template: ClassVar[str] = "plain.html"
    nav: ClassVar[str] = "Plans"

    def wants(self, site: Site, visit: Visit) -> Wants:
        plans = site.view.part(parts.PLANS).value or []
        return Wants(((parts.PLANS, ""), *((parts.PLAN, each.id) for each in plans)))

    def fragments(self, site: Site, visit: Visit) -> Fragments:
        found = [
            site.html(
                "plan.html", plan=answer.plan, threads=[(each, state_of(each)) for each in answer.threads],
                graph=drawn(answer.plan.name, list(answer.threads)),
            )
            for each in site.view.part(parts.PLANS).value or []
            if (answer := site.view.part(parts.PLAN, each.id).value) is not None
        ]  # fmt: skip
        if not found and site.view.part(parts.PLANS).value != []:
            return {"content": Markup('<p class="dim">looking …</p>')}
        empty = Markup(
            '<p class="dim">No plans are applied. Write a plan.toml, then run <code>rametctl plan apply</code>.</p>'
        )
        return {"content": Markup("").join(found) or empty}


def state_of(status: "ThreadStatus") -> str:
    return "landed" if status.landed else state_name(status.session) if status.HasField("session") else "gone"


def share(status: "ThreadStatus") -> float:
    """The rough progress of a thread: begun, has work, landed."""
    if status.landed:
        return 1.0
    if not status.HasField("session") or not status.session.turns:
        return 0.1 if state_of(status) in {"working", "waiting"} else 0.0
    return 0.75 if status.ahead or status.dirty else 0.4


def drawn(name: str, threads: "list[ThreadStatus]") -> Markup:
    """Return the graph of a plan's threads, each after those that it waits for."""
    nodes = [
        svg.Node(
            each.thread.id,
            each.session.name if each.HasField("session") else each.thread.name or each.thread.id,
            (
                f"{state_of(each)} · {plural(each.ahead, 'commit')}"
                + (f" · {len(each.outside)} outside" if each.outside else ""),
                ", ".join(each.thread.owns),
            ),
            share(each),
            "landed" if each.landed else "bad" if each.outside else state_of(each),
            f"/sessions/{each.session.id}" if each.HasField("session") else "",
        )
        for each in threads
    ]
    return svg.graph(nodes, {each.thread.id: list(each.thread.after) for each in threads}, f"Threads of {name}")


PAGES: tuple[type[Page], ...] = (Plans,)
ACTIONS: Mapping[str, Action] = {}
