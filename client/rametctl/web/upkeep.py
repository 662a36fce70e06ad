"""Trash, doctor and gc, and the settings."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ramet.v1 import worktree_pb2
from ramet.words import plural

from rametctl.options import new_request_id
from rametctl.render.format import shown_value
from rametctl.view import parts
from rametctl.web.forms import Done, Form
from rametctl.web.site import Action, Fragments, Page, Site, Visit, Wants


class Trash(Page):
    path: ClassVar[str] = "/trash"
    template: ClassVar[str] = "plain.html"
    nav: ClassVar[str] = "Trash"

    def wants(self, site: Site, visit: Visit) -> Wants:
        return Wants(((parts.TRASH, ""),))

    def fragments(self, site: Site, visit: Visit) -> Fragments:
        return {"content": site.html("trash.html", entries=site.view.part(parts.TRASH).value or [])}


async def restore(site: Site, form: Form) -> Done:
    request = worktree_pb2.RestoreTrashRequest(entry=form.params["entry"], request_id=form.request_id)
    answer = await site.call(lambda daemon: daemon.worktrees.RestoreTrash, request)
    return Done(
        "; ".join((f"{answer.session.name} is restored", *answer.warnings)), go=f"/sessions/{answer.session.id}"
    )


async def forget(site: Site, form: Form) -> Done:
    request = worktree_pb2.EmptyTrashRequest(entries=[form.params["entry"]], request_id=form.request_id)
    answer = await site.call(lambda daemon: daemon.worktrees.EmptyTrash, request)
    site.view.refresh(parts.TRASH)
    return Done(f"deleted {', '.join(each.name for each in answer.entries)} for good")


class Upkeep(Page):
    path: ClassVar[str] = "/upkeep"
    template: ClassVar[str] = "upkeep.html"
    nav: ClassVar[str] = "Upkeep"

    async def load(self, site: Site, visit: Visit) -> Mapping[str, Any]:
        look = worktree_pb2.DiagnoseRequest(request_id=new_request_id())
        sweep = worktree_pb2.CollectGarbageRequest(dry_run=True, request_id=new_request_id())
        doctor = await site.call(lambda daemon: daemon.worktrees.Diagnose, look)
        garbage = await site.call(lambda daemon: daemon.worktrees.CollectGarbage, sweep)
        found = sorted(garbage.items, key=lambda each: (each.verdict == "kept", each.kind, each.name))
        going = [each for each in found if each.verdict != "kept"]
        return {"doctor": doctor, "garbage": garbage, "all": found, "going": going}


async def fix(site: Site, form: Form) -> Done:
    request = worktree_pb2.DiagnoseRequest(fix=True, request_id=form.request_id)
    answer = await site.call(lambda daemon: daemon.worktrees.Diagnose, request)
    return Done(f"repaired {sum(each.fixed for each in answer.findings)}", go="/upkeep")


async def collect(site: Site, form: Form) -> Done:
    request = worktree_pb2.CollectGarbageRequest(request_id=form.request_id)
    answer = await site.call(lambda daemon: daemon.worktrees.CollectGarbage, request)
    warnings = [warning for each in answer.items for warning in each.warnings]
    removed = sum(each.removed for each in answer.items)
    return Done("; ".join((f"removed {plural(removed, 'item')}", *warnings)), go="/upkeep")


class Settings(Page):
    path: ClassVar[str] = "/settings"
    template: ClassVar[str] = "plain.html"
    nav: ClassVar[str] = "Settings"

    def wants(self, site: Site, visit: Visit) -> Wants:
        return Wants(((parts.SETTINGS, ""),))

    def fragments(self, site: Site, visit: Visit) -> Fragments:
        answer = site.view.part(parts.SETTINGS).value
        rows = (
            [(each, shown_value(each.value_json, each.unit)) for each in answer.settings] if answer is not None else []
        )
        return {"content": site.html("settings.html", rows=rows, file=answer.owner_file if answer is not None else "")}


PAGES: tuple[type[Page], ...] = (Trash, Upkeep, Settings)
ACTIONS: Mapping[str, Action] = {
    "/trash/{entry}/restore": restore,
    "/trash/{entry}/forget": forget,
    "/upkeep/fix": fix,
    "/upkeep/collect": collect,
}
