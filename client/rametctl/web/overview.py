"""The first page: all sessions in the dashboard's groups, and the form that creates one."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from markupsafe import Markup, escape
from ramet.v1 import repo_pb2, session_pb2

from rametctl.connection.link import pages
from rametctl.dashboard.rows import MARKS, Filter, Known, arrange
from rametctl.errors import UsageError
from rametctl.options import MODES, budget_of, mode_number
from rametctl.render.request import kind_name
from rametctl.render.session import doing, state_name
from rametctl.view import parts
from rametctl.view.contests import undecided
from rametctl.web.forms import Done, Form
from rametctl.web.session import agent_kinds
from rametctl.web.site import Action, Fragments, Page, Site, Visit, Wants

if TYPE_CHECKING:
    from ramet.v1.attention_pb2 import AttentionRequest
    from ramet.v1.session_pb2 import Session

COUNTED = 60
"""Sessions whose changes are counted: the newest that have had a turn."""


def counted(site: Site) -> list[str]:
    turned = [each.id for each in site.view.sessions.values() if each.turns and state_name(each) != "archived"]
    return turned[-COUNTED:]


def known(site: Site) -> Known:
    """Collect the facts for groups and rows beside the sessions."""
    requests: dict[str, list[AttentionRequest]] = defaultdict(list)
    for request in site.requests:
        requests[request.session_id].append(request)
    conflicts: set[str] = set()
    for repo in {each.repo_id for each in site.view.sessions.values()}:
        answer = site.view.part(parts.CONFLICTS, repo).value
        for each in answer.conflicts if answer is not None else ():
            conflicts |= {each.session_id, each.other_id} if each.red else set()
    pull_requests = {each.session_id: each for each in site.view.part(parts.PULL_REQUESTS).value or ()}
    counts = {id_: value for id_ in counted(site) if (value := site.view.part(parts.COUNTS, id_).value) is not None}
    return Known(requests, pull_requests, frozenset(conflicts), counts)


def words(session: "Session", blocking: "Sequence[AttentionRequest]", now: float) -> str:
    """Return in one line what a session does or waits for."""
    if blocking and not session.now:
        return blocking[0].reason or kind_name(blocking[0])
    return doing(session, now) or state_name(session)


def _row(site: Site, session: "Session", group: str, facts: Known, now: float) -> Markup:
    said = words(session, facts.blocking(session.id), now)
    return site.html("row.html", session=session, mark=MARKS[group], group=group, now=now, facts=facts, words=said)


class Overview(Page):
    path: ClassVar[str] = "/"
    template: ClassVar[str] = "overview.html"
    nav: ClassVar[str] = "Sessions"
    key: ClassVar[str] = "Escape"

    def wants(self, site: Site, visit: Visit) -> Wants:
        repos = sorted({each.repo_id for each in site.view.sessions.values()})
        return Wants(
            (
                (parts.PULL_REQUESTS, ""),
                *((parts.CONFLICTS, repo) for repo in repos),
                *((parts.COUNTS, id_) for id_ in counted(site)),
            )
        )

    async def load(self, site: Site, visit: Visit) -> Mapping[str, Any]:
        answer = pages(site.link, lambda daemon: daemon.repos.ListRepos, repo_pb2.ListReposRequest())
        repos = {repo.root: repo.name async for page in answer for repo in page.repos}
        if not repos:
            repos = {str(here): here.name for here in [site.here] if (here / ".git").exists()}
        return {
            "repos": repos,
            "kinds": await agent_kinds(site),
            "filter": visit.query.get("q", ""),
        }

    def fragments(self, site: Site, visit: Visit) -> Fragments:
        now, facts = time.time(), known(site)
        rows: dict[str, Markup] = {}
        for row in arrange(site.view.sessions.values(), facts, filtered=Filter.parse(visit.query.get("q", ""))):
            if not row.session_id:
                rows[f"g-{row.title.split()[0].lower()}"] = site.html("group.html", row=row)
                continue
            session = site.view.sessions[row.session_id]
            rows[f"s-{session.id}"] = site.cached(
                session.id, row.group, partial(_row, site, session, row.group, facts, now)
            )
        empty = "" if rows else "No session fits the filter." if visit.query.get("q") else "No sessions yet."
        return {
            "rows": rows,
            "empty": escape(empty),
            "modes": Markup("").join(Markup("<option>{}</option>").format(mode) for mode in site.modes),
            "contests": site.html("contests.html", contests=undecided(site.view)),
        }


async def create(site: Site, form: Form) -> Done:
    """Create the session of the form, or several of them."""
    mode, budget, count = form.text("mode"), form.text("budget"), form.text("count")
    if not form.text("prompt"):
        raise UsageError("there is no prompt", hint="write what the agent should do")
    if not (form.text("repo") or form.text("other")):
        raise UsageError("no repository is named", hint="write its directory")
    if mode and mode not in MODES:
        raise UsageError(f"there is no mode {mode!r}")
    try:
        limit, number = budget_of(budget) if budget else {}, int(count or 1)
    except ValueError:
        raise UsageError("budget is dollars, or tokens such as 2Mtok; count is a number") from None
    if not 1 <= number <= 20:
        raise UsageError("between 1 and 20 sessions at once")
    request = session_pb2.CreateSessionRequest(
        path=form.text("repo") or form.text("other"), prompt=form.text("prompt"), name=form.text("name"), base_ref=form.text("base"),
        agent=form.text("agent"), model=form.text("model"), mode=mode_number(mode or None), **limit,
        owns=form.text("owns").split(), contenders=[form.text("agent")] * number if number > 1 else (),
        request_id=form.request_id,
    )  # fmt: skip
    made = await site.call(lambda daemon: daemon.sessions.CreateSession, request)
    return Done("; ".join(made.warnings), go=f"/sessions/{made.session.id}" if number == 1 else "/")


PAGES: tuple[type[Page], ...] = (Overview,)
ACTIONS: Mapping[str, Action] = {"/sessions": create}
