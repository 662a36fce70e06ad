"""Contests in a view: the parts that a comparison needs, and the comparison made from them."""

from collections import Counter
from typing import TYPE_CHECKING

from rametctl.nouns.contests import judged, members, newest_check, newest_judge, pairs
from rametctl.render.contest import Contender, Contest, Pair
from rametctl.render.session import state_name
from rametctl.view import parts
from rametctl.view.model import View

if TYPE_CHECKING:
    from ramet.v1.session_pb2 import Session


def contest_of(session: "Session | None") -> tuple[str, str]:
    """Return the repository's id and the name of the contest that a session takes part in or
    judges; ("", "") if none."""
    name = session.contest or session.judges if session is not None else ""
    return (session.repo_id, name) if session is not None and name else ("", "")


def find(view: View, name: str, repo_id: str = "") -> tuple[str, str]:
    """Return the repository's id and the name of a contest; ("", "") if there is none. ``repo_id``
    "": any repository."""
    for session in view.sessions.values():
        if session.contest == name and repo_id in {"", session.repo_id}:
            return session.repo_id, name
    return "", ""


def undecided(view: View) -> dict[tuple[str, str], int]:
    """Return the contests with several contenders that are not archived, each with their number."""
    counts = Counter(
        contest_of(each) for each in view.sessions.values() if each.contest and state_name(each) != "archived"
    )
    return {contest: count for contest, count in counts.items() if count > 1}


def wants(view: View, contest: tuple[str, str]) -> list[tuple[parts.AnyPart, str]]:
    """Return the parts that `comparison` reads."""
    contenders, judges = members(view.sessions.values(), *contest)
    wanted: list[tuple[parts.AnyPart, str]] = []
    for each in contenders:
        wanted += [(parts.COUNTS, each.id), (parts.COMMANDS, each.id)]
    wanted += [(parts.COUNTS, f"{other.id} {one.id}") for one, other in pairs(contenders)]
    judge = newest_judge(judges)
    return wanted if judge is None else [*wanted, (parts.VERDICT, judge.id)]


def comparison(view: View, contest: tuple[str, str]) -> Contest | None:
    """Return the comparison of a contest, as far as its parts have been read; None if it has no
    contender."""
    contenders, judges = members(view.sessions.values(), *contest)
    if not contenders:
        return None
    check = contenders[0].check
    compared = tuple(
        Contender(
            each,
            view.part(parts.COUNTS, each.id).value,
            newest_check(view.part(parts.COMMANDS, each.id).value or (), check),
        )
        for each in contenders
    )
    differing = tuple(
        Pair(one.name, other.name, diff)
        for one, other in pairs(contenders)
        if (diff := view.part(parts.COUNTS, f"{other.id} {one.id}").value) is not None
    )
    judge = newest_judge(judges)
    verdict = (view.part(parts.VERDICT, judge.id).value or "") if judge is not None else ""
    return Contest(contest[1], check, compared, judged(judge, verdict, contenders), differing)
