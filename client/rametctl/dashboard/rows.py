"""Rows of the list of sessions: filter, groups, order, and text. Independent of Textual."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ramet.jsonify import enum_name
from ramet.visible import visible
from ramet.words import plural

from rametctl.console.lines import Line, Span, cell_width, cropped, line, truncated
from rametctl.render.format import age, money, span
from rametctl.render.request import blocks, kind_name
from rametctl.render.session import WORKING_STATES, doing, in_tree_order, needs_person, state_name

if TYPE_CHECKING:
    from ramet.v1.attention_pb2 import AttentionRequest
    from ramet.v1.landing_pb2 import PullRequest
    from ramet.v1.session_pb2 import Session
    from ramet.v1.worktree_pb2 import GetDiffResponse

NEEDS, WORKING, READY, IDLE, PAUSED, DONE = "Needs you", "Working", "Ready to land", "Idle", "Paused", "Done"
GROUPS = (NEEDS, WORKING, READY, IDLE, PAUSED, DONE)
ARRANGEMENTS = ("state", "family", "plan", "contest")
MARKS = {NEEDS: "?", WORKING: "▸", READY: "✓", IDLE: "·", PAUSED: "‖", DONE: "∎"}
STYLES = {NEEDS: "bold yellow", WORKING: "green", READY: "cyan", IDLE: "", PAUSED: "yellow", DONE: "dim"}


@dataclass
class Known:
    """Data beside the sessions: open requests, pull requests, conflicts and changes, by session.

    ``comparing``: sessions whose changes are read, and are unknown only for a moment.
    """

    requests: Mapping[str, Sequence["AttentionRequest"]] = field(default_factory=dict)
    pull_requests: Mapping[str, "PullRequest"] = field(default_factory=dict)
    conflicts: frozenset[str] = frozenset()
    counts: Mapping[str, "GetDiffResponse"] = field(default_factory=dict)
    comparing: Collection[str] = frozenset()

    def blocking(self, session_id: str) -> "list[AttentionRequest]":
        """Return requests that block work, the oldest first; a finished turn to review blocks
        none."""
        return [each for each in self.requests.get(session_id, ()) if blocks(each)]


@dataclass(frozen=True)
class Filter:
    """Words, all of which must be in a session's name or activity; states, agents and repositories,
    one of which must fit."""

    words: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    repos: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Filter":
        """``s:waiting a:claude r:click some words``; any other text is a word."""
        found: dict[str, list[str]] = {"s": [], "a": [], "r": [], "": []}
        for word in text.lower().split():
            kind, colon, value = word.partition(":")
            if colon and kind in {"s", "a", "r"}:
                found[kind].append(value)
            else:
                found[""].append(word)
        return cls(*(tuple(found[kind]) for kind in ("", "s", "a", "r")))

    def fits(self, session: "Session", group: str) -> bool:
        state = state_name(session)
        if not self.states and state == "archived":
            return False
        text = f"{session.name} {session.branch} {session.now} {session.state_reason}".lower()
        return (
            all(word in text for word in self.words)
            and _any_begins(self.states, (state, group.lower()))
            and _any_begins(self.agents, (session.agent, session.model))
            and _any_begins(self.repos, (session.repo,))
        )


def _any_begins(wanted: Sequence[str], texts: Iterable[str]) -> bool:
    return not wanted or any(text.lower().startswith(word) for word in wanted for text in texts)


def group_of(session: "Session", known: Known) -> str:
    state = state_name(session)
    if needs_person(session, blocked=bool(known.blocking(session.id))):
        return NEEDS
    if state in WORKING_STATES:
        return WORKING
    if state == "paused":
        return PAUSED
    pull_request = known.pull_requests.get(session.id)
    merged = pull_request is not None and pull_request.state == "merged"
    if state == "archived" or merged or (session.landed_reason and session.turns):
        return DONE
    counts = known.counts.get(session.id)
    if counts is None:  # files are not compared yet
        return READY if known.requests.get(session.id) and session.id not in known.comparing else IDLE
    return READY if session.turns and counts.files else IDLE


@dataclass(frozen=True)
class Row:
    """A session in the list, or the head of a group (``session_id`` ""). ``depth`` counts its
    ancestors in the group."""

    session_id: str
    title: str = ""
    count: int = 0
    depth: int = 0
    group: str = ""


def arrange(
    sessions: Iterable["Session"], known: Known, *, filtered: Filter, repo_id: str = "", by: str = "state"
) -> list[Row]:
    """Return the rows, in an order that changes only when a session changes its group.

    Sessions that need a person are first, the longest waiting at the top; in other groups the
    oldest is first.
    """
    shown: list[tuple[Session, str]] = []
    for session in sessions:
        if repo_id and session.repo_id != repo_id:
            continue
        group = group_of(session, known)
        if filtered.fits(session, group):
            shown.append((session, group))
    groups = {session.id: group for session, group in shown}
    match by:
        case "family":
            order = in_tree_order([session for session, _ in shown])
            return [Row(session.id, depth=depth, group=groups[session.id]) for depth, session in order]
        case "plan" | "contest":
            found: dict[str, list[Row]] = {}
            for session, group in shown:
                name = session.plan_id if by == "plan" else session.contest or session.judges
                found.setdefault(name, []).append(Row(session.id, group=group))
            named = sorted(found.items(), key=lambda each: not each[0])  # the others last
            return [row for name, rows in named for row in (Row("", name or f"no {by}", len(rows)), *rows)]
        case _:
            return [row for group in GROUPS for row in _group_rows(group, shown, known)]


def _group_rows(group: str, shown: "Sequence[tuple[Session, str]]", known: Known) -> list[Row]:
    members = [session for session, its in shown if its == group]
    if group == NEEDS:
        members.sort(key=lambda session: _asked_at(session, known))
    return (
        [Row("", group, len(members), group=group), *(Row(each.id, group=group) for each in members)] if members else []
    )


def _asked_at(session: "Session", known: Known) -> float:
    blocking = known.blocking(session.id)
    time = blocking[0].create_time if blocking else session.since
    return time.seconds + time.nanos / 1e9


def head_line(row: Row, width: int) -> Line:
    return line((truncated(f"{visible(row.title)} {row.count}", width), "bold " + STYLES.get(row.title, "")))


def session_line(session: "Session", row: Row, known: Known, *, width: int, now: float, repo: bool) -> Line:
    """Return name and activity; on the right, as far as they fit, changes, cost, pull request, and
    time."""
    marks = _marks(session, known, width)
    right: list[Span] = []
    counts = known.counts.get(session.id)
    if width >= 64 and counts is not None and counts.files:
        right += [(f" +{counts.additions}", "green"), (f" −{counts.deletions}", "red")]
    if width >= 48 and (session.cost_usd or not session.HasField("cost_usd")):
        right.append((f" {money(session.cost_usd)}" if session.cost_usd else " cost unknown", "dim"))
    right += marks
    since = age(session.since if session.since.seconds else session.update_time, now)
    right.append((f" {since:>3}", "dim"))
    room = width - sum(cell_width(text) for text, _ in right)
    depth = min(row.depth, 4)
    left = f"{MARKS.get(row.group, ' ')} {'  ' * (depth - 1) + '└ ' if depth else ''}"
    agent = f"{session.agent} " if width >= 72 and session.agent != "claude" else ""
    agent = truncated(agent, 12) + " " if agent else ""
    label = f"{session.repo}/{session.name}" if repo else session.name
    taken = cell_width(left) + cell_width(agent)
    name = truncated(label, max(min(room - taken - 1, 28 if width >= 60 else 18), 4))
    taken += cell_width(name)
    words = truncated(_words(session, known, now), room - taken - 2) if room - taken > 6 else ""
    gap = " " * max(room - taken - cell_width(words) - 2, 0)
    made = line(
        (left, STYLES.get(row.group, "")),
        (agent, "dim"),
        (name, "bold"),
        ("  ", ""),
        (words, "yellow" if row.group == NEEDS else "dim"),
        (gap, ""),
        *right,
    )
    return cropped(made, width)


def _words(session: "Session", known: Known, now: float) -> str:
    blocking = known.blocking(session.id)
    if blocking and (not session.now or state_name(session) != "waiting"):
        return blocking[0].reason or kind_name(blocking[0])
    return doing(session, now) or state_name(session)


def _marks(session: "Session", known: Known, width: int) -> list[Span]:
    found: list[Span] = []
    pull_request = known.pull_requests.get(session.id)
    if pull_request is not None and pull_request.number and width >= 44:
        checks = {"passed": ("✓", "green"), "failed": ("✗", "red"), "running": ("…", "yellow")}
        sign, style = checks.get(enum_name(pull_request, "checks") or "", ("", "dim"))
        found.append((f" #{pull_request.number}{sign}", style))
    if session.id in known.conflicts:
        found.append((" ⚡", "red"))
    return found


def top_line(sessions: Iterable["Session"], known: Known, *, where: str, width: int, outage: float | None) -> Line:
    """Return the headline: place, number of sessions that need the person, total cost; or that the
    daemon is away."""
    head: list[Span] = [("ramet ", "bold"), (where, "cyan")]
    if outage is not None:
        return line(*head, (f"  the daemon is away ({span(outage)}); connecting again …", "bold red"))
    live = [session for session in sessions if state_name(session) != "archived"]
    needing = sum(1 for session in live if group_of(session, known) == NEEDS)
    cost = sum(session.cost_usd for session in live)
    unknown = any(not session.HasField("cost_usd") for session in live)
    spans = head  # a narrow screen shows only the first ones
    if needing:
        spans.append((f"  {needing} need you" if needing > 1 else "  1 needs you", "bold yellow"))
    spans.append((f"  {plural(len(live), 'session')}", "dim"))
    if cost or unknown:
        spans.append((f"  {money(cost)}" if cost else "", "dim"))
        spans.append((" + unknown" if cost else "  cost unknown", "dim") if unknown else ("", ""))
    return line(*spans)
