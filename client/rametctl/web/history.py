"""The log with its audit, and the checkpoints of a session."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar

from markupsafe import Markup
from ramet.v1 import worktree_pb2

from rametctl.render.event import PROTOCOL, summary
from rametctl.render.session import checkpoint_reason
from rametctl.view import parts
from rametctl.web import html
from rametctl.web.forms import Done, Form
from rametctl.web.session import find
from rametctl.web.site import Action, Fragments, Page, Site, Visit, Wants


class Log(Page):
    path: ClassVar[str] = "/log"
    template: ClassVar[str] = "log.html"
    nav: ClassVar[str] = "Log"

    def wants(self, site: Site, visit: Visit) -> Wants:
        return Wants(((parts.LOG, _key(site, visit)),))

    async def load(self, site: Site, visit: Visit) -> Mapping[str, Any]:
        sessions = sorted(site.view.sessions.values(), key=lambda each: each.name)
        return {"sessions": sessions, "chosen": visit.query.get("session", ""), "audit": visit.query.get("audit", "")}

    def fragments(self, site: Site, visit: Visit) -> Fragments:
        names = {f"session:{each.id}": each.name for each in site.view.sessions.values()}
        rows = {}
        for event in reversed(site.view.part(parts.LOG, _key(site, visit)).value or []):
            if event.WhichOneof("payload") in PROTOCOL:
                continue
            who = names.get(f"session:{event.session_id}", event.session_id) if not visit.query.get("session") else ""
            if visit.query.get("audit"):
                actor = names.get(event.principal, event.principal or "daemon")
                who = f"{who} by {'you' if actor == 'owner' else actor}".strip()
            id_ = f"v-{event.seq}"
            rows[id_] = Markup('<li id="{}">{}</li>').format(id_, html.line(summary(event, who)))
        return {"events": rows}


def _key(site: Site, visit: Visit) -> str:
    chosen = visit.query.get("session", "")
    return f"{chosen if chosen in site.view.sessions else '-'} {'audit' if visit.query.get('audit') else '-'}"


class Checkpoints(Page):
    path: ClassVar[str] = "/sessions/{session}/checkpoints"
    template: ClassVar[str] = "plain.html"

    def title(self, site: Site, visit: Visit) -> str:
        session = site.view.sessions.get(visit.params["session"])
        return f"Checkpoints of {session.name}" if session is not None else "removed"

    def wants(self, site: Site, visit: Visit) -> Wants:
        return Wants(((parts.CHECKPOINTS, visit.params["session"]),))

    async def load(self, site: Site, visit: Visit) -> Mapping[str, Any]:
        find(site, visit.params["session"])
        return {}

    def fragments(self, site: Site, visit: Visit) -> Fragments:
        id_ = visit.params["session"]
        found = site.view.part(parts.CHECKPOINTS, id_).value or []
        numbers = [each.number for each in found]
        before = dict(pairwise(numbers))
        rows = [(each, checkpoint_reason(each), before.get(each.number)) for each in found]
        return {"content": site.html("checkpoints.html", rows=rows, id=id_, visit=visit)}


async def make(site: Site, form: Form) -> Done:
    request = worktree_pb2.CreateCheckpointRequest(session=form.params["session"], request_id=form.request_id)
    answer = await site.call(lambda daemon: daemon.worktrees.CreateCheckpoint, request)
    return Done("; ".join((f"checkpoint {answer.checkpoint.number}", *answer.warnings)))


async def rewind(site: Site, form: Form) -> Done:
    request = worktree_pb2.RewindSessionRequest(
        session=form.params["session"], checkpoint=form.params["checkpoint"], files_only=bool(form.text("files")),
        request_id=form.request_id,
    )  # fmt: skip
    answer = await site.call(lambda daemon: daemon.worktrees.RewindSession, request)
    return Done("; ".join((f"rewound; checkpoint {answer.before.number} undoes it", *answer.warnings)))


PAGES: tuple[type[Page], ...] = (Log, Checkpoints)
ACTIONS: Mapping[str, Action] = {
    "/sessions/{session}/checkpoints": make,
    "/sessions/{session}/checkpoints/{checkpoint}/rewind": rewind,
}
