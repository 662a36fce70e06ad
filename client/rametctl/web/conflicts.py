"""Conflicts between sessions: a matrix of all pairs, and the conflicting files and lines."""

from collections.abc import Mapping
from typing import ClassVar

from markupsafe import Markup
from ramet.jsonify import enum_name

from rametctl.render import conflicts
from rametctl.view import parts
from rametctl.web.site import Action, Fragments, Page, Site, Visit, Wants

MOST = 40
"""Most sessions in a matrix; for more, only the pairs are listed."""


class Conflicts(Page):
    path: ClassVar[str] = "/conflicts"
    template: ClassVar[str] = "plain.html"
    nav: ClassVar[str] = "Conflicts"

    def wants(self, site: Site, visit: Visit) -> Wants:
        return Wants(tuple((parts.CONFLICTS, repo) for repo in _repos(site)))

    def fragments(self, site: Site, visit: Visit) -> Fragments:
        found = [Markup("<p class=dim>No sessions to compare.</p>")] if not _repos(site) else []
        for repo, name in _repos(site).items():
            slot = site.view.part(parts.CONFLICTS, repo)
            answer = slot.value
            names = {
                id_: session.name
                for id_ in (answer.session_ids if answer is not None else ())
                if (session := site.view.sessions.get(id_)) is not None
            }
            pairs = (
                {}
                if answer is None
                else {frozenset((each.session_id, each.other_id)): each for each in answer.conflicts}
            )
            met = [each for each in pairs.values() if enum_name(each, "kind") != "clean"]
            found.append(
                site.html(
                    "conflicts.html", repo=name, error=slot.error, answer=answer, names=names, pairs=pairs, met=met,
                    matrix=1 < len(names) <= MOST, others=[*names, ""], words=conflicts.WORDS, kind=lambda each: enum_name(each, "kind"),
                    spans=conflicts.spans, order=[names.get(id_, id_) for id_ in answer.landing_order] if answer else [],
                )
            )  # fmt: skip
        return {"content": Markup("").join(found)}


def _repos(site: Site) -> dict[str, str]:
    return {each.repo_id: each.repo for each in site.view.sessions.values()}


PAGES: tuple[type[Page], ...] = (Conflicts,)
ACTIONS: Mapping[str, Action] = {}
