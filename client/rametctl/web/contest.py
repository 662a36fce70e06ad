"""A contest: its contenders side by side, the judge's advice, and the pick."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlencode

from markupsafe import Markup
from ramet.v1 import landing_pb2
from starlette.responses import RedirectResponse, Response

from rametctl.errors import UsageError
from rametctl.nouns.contests import (
    archive_requests,
    ask_judge,
    check_requests,
    members,
    no_contest,
    pick,
    picked_words,
    still_working,
)
from rametctl.render.contest import changes, check_words, seconds_worked
from rametctl.render.format import cost, duration
from rametctl.render.session import state_name
from rametctl.view import contests
from rametctl.web import html
from rametctl.web.forms import Done, Form
from rametctl.web.queue import Outputs
from rametctl.web.session import agent_kinds, find
from rametctl.web.site import Action, Fragments, Page, Site, Visit, Wants

if TYPE_CHECKING:
    from rametctl.render.contest import Contender, Contest


def _contest(site: Site, params: Mapping[str, str], repo_id: str) -> tuple[str, str]:
    return contests.find(site.view, params["group"], repo_id)


class ContestPage(Page):
    path: ClassVar[str] = "/contest/{group}"
    template: ClassVar[str] = "contest.html"

    def __init__(self) -> None:
        self._outputs = Outputs(self)
        self.pieces = {"diff": between}

    def title(self, site: Site, visit: Visit) -> str:
        return visit.params["group"]

    def wants(self, site: Site, visit: Visit) -> Wants:
        return Wants(tuple(contests.wants(site.view, _contest(site, visit.params, visit.query.get("repo", "")))))

    async def load(self, site: Site, visit: Visit) -> Mapping[str, Any]:
        contest = _contest(site, visit.params, visit.query.get("repo", ""))
        contenders, _ = members(site.view.sessions.values(), *contest)
        if not contenders:
            hint = "start one: rametctl new PROMPT --agent claude:2"
            raise UsageError(f"there is no contest {visit.params['group']!r}", hint=hint)
        return {"contenders": contenders, "name": contest[1], "repo_id": contest[0], "kinds": await agent_kinds(site)}

    def fragments(self, site: Site, visit: Visit) -> Fragments:
        contest = contests.comparison(site.view, _contest(site, visit.params, visit.query.get("repo", "")))
        if contest is None:
            return {"summary": Markup("All sessions of this contest were removed."), "contenders": {}}
        sessions = [each.session for each in contest.contenders]
        self._outputs.keep({each.check.id for each in contest.contenders if each.check is not None})
        ids = {each.name: each.id for each in sessions}
        advice = site.html(
            "judge.html", judge=contest.judge, verdict=html.markdown(contest.judge.verdict if contest.judge else ""),
            state=state_name(contest.judge.session) if contest.judge else "",
        )  # fmt: skip
        said = advice if contest.judge is not None and contest.judge.verdict else Markup("")
        return {
            "summary": site.html("contest_summary.html", contest=contest, first=sessions[0], changes=changes),
            "contenders": {
                f"c-{each.session.id}": self._card(site, contest, each, said) for each in contest.contenders
            },
            "pairs": site.html("contest_pairs.html", contest=contest, ids=ids, changes=changes),
            "judge": advice,
        }

    def _card(self, site: Site, contest: "Contest", each: "Contender", advice: Markup) -> Markup:
        session, seconds = each.session, seconds_worked(each.session)
        others = [other.session for other in contest.contenders if other.session.id != session.id]
        return site.html(
            "contender.html", each=each, session=session, state=state_name(session), cost=cost(session),
            time=duration(seconds) if seconds else "–", changes=changes(each.diff)[0], check=check_words(each),
            only=contest.unshared().get(session.name, []), said=html.markdown(session.now), advice=advice, working=still_working([session, *others]),
            others=[other for other in others if state_name(other) != "archived"],
            output=self._outputs.html(site, each.check.id) if each.check is not None else "",
        )  # fmt: skip


async def between(site: Site, visit: Visit) -> Response:
    """Show how the files of contender ``b`` differ from those of ``a``."""
    one, other = find(site, visit.query.get("a", "")), find(site, visit.query.get("b", ""))
    if one.id == other.id:
        raise UsageError("both contenders are the same", hint="choose two different contenders")
    return RedirectResponse(f"/sessions/{other.id}/review?{urlencode({'against': one.id})}", 303)


async def run_check(site: Site, form: Form) -> Done:
    contenders, _ = members(site.view.sessions.values(), *_contest(site, form.params, form.text("repo")))
    check = form.text("check") or next((each.check for each in contenders), "")
    if not check:
        raise UsageError("there is no check", hint="give a command")
    requests = list(check_requests(contenders, check))
    if not requests:
        raise UsageError("no contender can be checked", hint="wait until one has ended its turn")
    for request in requests:
        await site.call(lambda daemon: daemon.terminals.StartCommand, request)
    return Done(f"checking {len(requests)} of {len(contenders)}")


async def judge(site: Site, form: Form) -> Done:
    found = _contest(site, form.params, form.text("repo"))
    contest = contests.comparison(site.view, found)
    if contest is None:
        raise UsageError(f"there is no contest {form.params['group']!r}")
    _, judges = members(site.view.sessions.values(), *found)
    session, warnings = await ask_judge(
        site.call, contest, form.text("agent"), number=len(judges) + 1, path=contest.contenders[0].session.worktree
    )
    return Done("; ".join((f"{session.name} reads the changes", *warnings)))


async def choose(site: Site, form: Form) -> Done:
    """Pick a contender: land it if asked, and archive the others."""
    picked = find(site, form.params["session"])
    if not picked.contest:
        raise no_contest(picked)
    contenders, judges = members(site.view.sessions.values(), picked.repo_id, picked.contest)
    archives = archive_requests(picked, contenders, judges, stop=bool(form.text("stop")))
    landed = ""
    if form.text("land"):
        request = landing_pb2.LandSessionsRequest(
            sessions=[picked.id], commit_message=form.text("message"), local=bool(form.text("local")),
            request_id=form.request_id,
        )  # fmt: skip
        await site.call(lambda daemon: daemon.landing.LandSessions, request)
        landed = "; queued to land"
    archived, warnings = await pick(site.call, archives)
    return Done("; ".join((picked_words(picked, archived) + landed, *warnings)))


PAGES: tuple[type[Page], ...] = (ContestPage,)
ACTIONS: Mapping[str, Action] = {
    "/contest/{group}/check": run_check,
    "/contest/{group}/judge": judge,
    "/sessions/{session}/pick": choose,
}
