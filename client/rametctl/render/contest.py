"""The comparison of a contest's contenders, as lines and as JSON."""

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from ramet import jsonify
from ramet.jsonify import enum_name
from ramet.v1.session_pb2 import Session
from ramet.v1.terminal_pb2 import Command
from ramet.v1.worktree_pb2 import GetDiffResponse
from ramet.visible import visible
from ramet.words import plural

from rametctl.console.lines import Line, Span, line
from rametctl.console.output import Output
from rametctl.render.command import how_it_ended
from rametctl.render.format import cost, duration, seconds_of
from rametctl.render.session import state_name, state_style

NAMED = 4
"""Files that a line names."""


@dataclass(frozen=True, slots=True)
class Contender:
    session: "Session"
    diff: "GetDiffResponse | None"  # without the patch; None if it could not be read
    check: "Command | None" = None

    @property
    def outdated(self) -> bool:
        """Whether the files have changed since the check began."""
        return self.check is not None and self.diff is not None and self.check.tree != self.diff.tree


@dataclass(frozen=True, slots=True)
class Judge:
    session: "Session"
    verdict: str  # "" while it reads
    outdated: bool  # a contender worked after the judge began


@dataclass(frozen=True, slots=True)
class Pair:
    """Difference of the files of ``other`` from those of ``one``."""

    one: str
    other: str
    diff: "GetDiffResponse"


@dataclass(frozen=True, slots=True)
class Contest:
    name: str
    check: str
    contenders: tuple[Contender, ...]
    judge: Judge | None = None
    pairs: tuple[Pair, ...] = ()

    def in_common(self) -> list[str]:
        """Files that all contenders with changes have changed."""
        changed = [{file.path for file in each.diff.files} for each in self.contenders if each.diff and each.diff.files]
        return sorted(set.intersection(*changed)) if len(changed) > 1 else []

    def unshared(self) -> dict[str, list[str]]:
        """Return by contender the files that no other has changed."""
        counts = Counter(file.path for each in self.contenders if each.diff for file in each.diff.files)
        return {
            each.session.name: [file.path for file in each.diff.files if counts[file.path] == 1]
            for each in self.contenders
            if each.diff is not None
        }


def contest_lines(output: Output, contest: Contest) -> list[Line]:
    sessions = [each.session for each in contest.contenders]
    agents = len({each.agent for each in sessions}) > 1 and any(each.agent not in each.name for each in sessions)
    lines = _head(contest)
    headers = ["NAME", "AGENT", "STATE", "COST", "TIME", "CHANGES", "CHECK"]
    rows = [contender_row(each) for each in contest.contenders]
    shown = [
        header
        for index, header in enumerate(headers)
        if (header != "AGENT" or agents) and (header != "CHECK" or any(row[index][0] for row in rows))
    ]
    cells = [[row[headers.index(header)] for header in shown] for row in rows]
    shrink = [(header, least) for header, least in (("NAME", 16), ("AGENT", 6), ("CHECK", 12)) if header in shown]
    lines += output.table(shown, cells, shrink=shrink, right=frozenset({"COST", "TIME"}))
    return [*lines, *_differences(contest), *judge_lines(contest)]


def _head(contest: Contest) -> list[Line]:
    first = contest.contenders[0].session
    head = f"  {plural(len(contest.contenders), 'contender')} from {first.base_ref} ({first.base_commit[:7]})"
    check = [line(("check: ", "dim"), contest.check)] if contest.check else []
    return [line((contest.name, "bold"), (head, "dim")), *check]


def contest_blocks(contest: Contest) -> list[Line]:
    """Return the comparison for narrow places: a block of lines for each contender."""
    lines = [*_head(contest), line(("W picks the selected contender", "dim"))]
    for each in contest.contenders:
        name, agent, state, cost_, time_, changed, check = contender_row(each)
        lines += [
            line(""),
            line(
                name,
                ("  ", ""),
                agent,
                (f" {each.session.model}" if each.session.model else "", "dim"),
                ("  ", ""),
                state,
            ),
            line(("cost ", "dim"), cost_, ("  time ", "dim"), time_, ("  changes ", "dim"), changed, indent=2),
        ]
        if check[0]:
            lines.append(line(("check ", "dim"), check, indent=2))
    return [*lines, line(""), *_differences(contest), *judge_lines(contest)]


def _differences(contest: Contest) -> list[Line]:
    """Return the files that all or only one of the contenders changed, and the size of the
    difference of each pair."""
    lines: list[Line] = []
    if common := contest.in_common():
        lines.append(line(("all change  ", "dim"), _named(common), hang=12))
    lines += [
        line((f"only {name}  ", "dim"), _named(files), hang=len(name) + 7)
        for name, files in contest.unshared().items()
        if files
    ]
    for pair in contest.pairs:
        words = f"differ in {changes(pair.diff)[0]}" if pair.diff.files else "have the same files"
        lines.append(line((f"{pair.one} → {pair.other}  ", "dim"), words))
    return lines


def contender_row(each: Contender) -> list[Span]:
    state = state_name(each.session)
    check = check_words(each)
    style = "green" if check == "passed" else "red" if check.startswith("failed") and not each.outdated else "dim"
    seconds = seconds_worked(each.session)
    return [
        (" ".join(each.session.name.split()), "bold"),
        (each.session.agent, ""),
        (state, state_style(state)),
        (cost(each.session), ""),
        (duration(seconds) if seconds else "-", "dim"),
        changes(each.diff),
        (check, style),
    ]


def judge_lines(contest: Contest) -> list[Line]:
    """Return the verdict, marked as advice."""
    judge = contest.judge
    if judge is None:
        return []
    if not judge.verdict:
        return [
            line(
                (f"{judge.session.name} ({judge.session.agent}) is {state_name(judge.session)}: no verdict yet", "dim")
            )
        ]
    later = ", given before later work" if judge.outdated else ""
    head = line((f"advice of {judge.session.name} ({judge.session.agent}{later}):", "cyan"))
    return [head, *(line(visible(text), indent=2) for text in judge.verdict.strip().split("\n"))]


def changes(diff: "GetDiffResponse | None") -> Span:
    if diff is None:
        return ("?", "dim")
    if not diff.files:
        return ("none", "dim")
    return (f"{plural(len(diff.files), 'file')} +{diff.additions} −{diff.deletions}", "")


def _named(files: list[str]) -> str:
    more = f" and {len(files) - NAMED} more" if len(files) > NAMED else ""
    return ", ".join(files[:NAMED]) + more


def check_words(contender: Contender) -> str:
    """The result of a check: passed, failed (code 1), running; "" for none. Outdated: the files
    have changed since."""
    if contender.check is None:
        return ""
    words = how_it_ended(contender.check)
    words = "passed" if words == "done" else "running" if words == "starting" else words
    outdated = contender.outdated and enum_name(contender.check, "state") == "exited"
    return f"{words}, outdated" if outdated else words


def seconds_worked(session: "Session") -> float:
    """Return the seconds of a session's turns, including the running one."""
    running = time.time() - seconds_of(session.since) if state_name(session) == "working" else 0.0
    return session.turn_seconds + max(running, 0.0)


def to_json(contest: Contest) -> dict[str, Any]:
    def sizes(diff: "GetDiffResponse | None") -> dict[str, Any] | None:
        if diff is None:
            return None
        paths = [file.path for file in diff.files]
        return {"files": paths, "additions": int(diff.additions), "deletions": int(diff.deletions)}

    def check(each: Contender) -> dict[str, Any] | None:
        if each.check is None:
            return None
        return {
            "id": each.check.id,
            "state": enum_name(each.check, "state"),
            "exit_status": each.check.exit_status,
            "passed": each.check.exit_status == "code 0",
            "outdated": each.outdated,
        }

    judge = contest.judge
    return {
        "contest": contest.name,
        "check": contest.check,
        "contenders": [
            jsonify.to_json(each.session)
            | {"seconds": seconds_worked(each.session), "diff": sizes(each.diff), "check_result": check(each)}
            for each in contest.contenders
        ],
        "files_in_common": contest.in_common(),
        "differences": [{"a": pair.one, "b": pair.other} | (sizes(pair.diff) or {}) for pair in contest.pairs],
        "judge": None
        if judge is None
        else {"session": jsonify.to_json(judge.session), "verdict": judge.verdict, "outdated": judge.outdated},
    }
