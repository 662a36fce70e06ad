"""Sessions: the table of `ls`, the page of `show`."""

import shlex
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ramet.jsonify import enum_name
from ramet.v1.common_pb2 import Tokens
from ramet.v1.session_pb2 import GetSessionResponse, Session, Variable
from ramet.words import plural, size, token_count

from rametctl.console.lines import Line, Span, line
from rametctl.console.output import Output
from rametctl.options import mode_name
from rametctl.render.format import age, cost, limit, local_time, money, seconds_of, unbold

if TYPE_CHECKING:
    from ramet.v1.worktree_pb2 import Checkpoint

HEADERS = ("NAME", "AGENT", "STATE", "SINCE", "COST", "BRANCH", "NOW")
DEFAULT_AGENT = "claude"
SHRINK = (("NOW", 24), ("BRANCH", 12), ("NAME", 20), ("NOW", 10), ("BRANCH", 6), ("NAME", 8))
URGENCY = ("waiting", "failed", "lost", "working", "starting", "queued", "paused", "idle", "archived")
"""States in order of attention."""
HELD = frozenset({"paused", "lost", "failed"})
"""States that a session leaves only upon a command."""
WORKING_STATES = frozenset({"queued", "starting", "working", "lost"})
"""States that end without a person."""
TREE_GONE = "tree gone, see: rametctl doctor"
TREE_FAULT = "worktree: {}, see: rametctl doctor"
_STYLES = {
    "working": "green",
    "starting": "green",
    "waiting": "bold yellow",
    "failed": "red",
    "lost": "red",
    "paused": "yellow",
    "queued": "cyan",
    "archived": "dim",
}


def at_work(session: "Session") -> bool:
    """Return whether a turn of the session runs or is about to."""
    return state_name(session) in {"starting", "working", "waiting"}


def needs_person(session: "Session", *, blocked: bool) -> bool:
    """Return whether a session needs a person; ``blocked``: it has an open request that blocks
    work."""
    return blocked or state_name(session) in {"waiting", "failed"}


def state_name(session: "Session") -> str:
    return enum_name(session, "state") or "unknown"


def state_style(state: str) -> str:
    return _STYLES.get(state, "")


def reference(session: "Session") -> str:
    """Return a session's name for a command line."""
    name = session.name
    return shlex.quote(name) if name and not name.startswith("-") else session.id


def in_background(session: "Session", now: float) -> str:
    """Describe the agent's background commands; "" for none."""
    if not session.background:
        return ""
    first, others = session.background[0], len(session.background) - 1
    more = f" and {others} more" if others else ""
    return f"in background: {' '.join(first.description.split())} {age(first.start_time, now)}{more}"


def doing(session: "Session", now: float) -> str:
    """Describe in one line what a session needs, does or said last, and its background commands."""
    words = unbold(" ".join(_doing(session).split()))
    background = in_background(session, now)
    # Background commands first for an idle session, which would look done; last for a question,
    # which must stay on the line.
    order = (background, words) if state_name(session) == "idle" and not session.attention else (words, background)
    return "; ".join(filter(None, order))


def _doing(session: "Session") -> str:
    if session.attention:
        more = f" (and {session.attention - 1} more)" if session.attention > 1 else ""
        if state_name(session) == "waiting":
            return f"{session.now or 'waits for you'}{more}"
        return session.state_reason or f"a request waits for you{more}"
    if session.worktree_gone:
        return "; ".join(filter(None, (TREE_GONE, session.state_reason)))
    if session.worktree_fault:
        return "; ".join(filter(None, (TREE_FAULT.format(session.worktree_fault), session.state_reason)))
    if session.under_way:
        return "; ".join(filter(None, (f"{session.under_way} is under way", session.state_reason)))
    if session.landed_reason and session.turns and not session.state_reason:
        reason = session.landed_reason
        return reason if reason.startswith("landed") else f"landed: {reason}"
    if setup_failed(session) and not session.state_reason and state_name(session) == "idle":
        return "setup failed"
    return session.now or session.state_reason


def setup_failed(session: "Session") -> bool:
    return enum_name(session, "setup") == "failed"


def in_tree_order(sessions: Sequence["Session"]) -> list[tuple[int, "Session"]]:
    """Return (depth, session), each below the session that spawned it; at the top without a listed
    parent."""
    ids = {session.id for session in sessions}
    children: dict[str, list[Session]] = {}
    for session in sessions:
        children.setdefault(session.parent_id if session.parent_id in ids else "", []).append(session)
    order: list[tuple[int, Session]] = []
    stack = [(0, session) for session in reversed(children.get("", []))]
    while stack:
        depth, session = stack.pop()
        order.append((depth, session))
        stack += [(depth + 1, child) for child in reversed(children.get(session.id, []))]
    return order


def by_urgency(sessions: Sequence["Session"]) -> list["Session"]:
    """Order sessions: those that need a person, then working ones, then others, the newest
    first."""

    def key(session: "Session") -> tuple[int, float]:
        state = state_name(session)
        rank = URGENCY.index(state) if state in URGENCY else 0
        return rank, -seconds_of(session.create_time) if state == "idle" else 0

    return sorted(sessions, key=key)


def left_out(sessions: Sequence["Session"]) -> Line:
    """Count sessions by state."""
    counts = Counter(map(state_name, by_urgency(sessions)))
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    return line((f"… {len(sessions)} more: {states}", "dim"))


def session_table(output: Output, rows: Iterable[tuple[int, "Session"]], now: float, *, with_repo: bool) -> list[Line]:
    """Return one row per (depth, session); times are seconds since the epoch."""
    rows = list(rows)
    branches = [odd_branch(session) for _, session in rows]
    wanted = {"BRANCH": any(branches), "AGENT": any(session.agent not in {"", DEFAULT_AGENT} for _, session in rows)}
    headers = [header for header in HEADERS if wanted.get(header, True)]
    cells: list[list[Span]] = []
    for (depth, session), branch in zip(rows, branches, strict=True):
        state = state_name(session)
        label = f"{session.repo}/{session.name}" if with_repo else session.name
        prefix = "  " * (depth - 1) + "└ " if depth else ""
        row: dict[str, Span] = {
            "NAME": (prefix + " ".join(label.split()), "bold"),
            "AGENT": (session.agent if session.agent != DEFAULT_AGENT else "", ""),
            "STATE": (state, state_style(state)),
            "SINCE": (age(session.since, now), "dim"),
            "COST": (cost(session), ""),
            "BRANCH": (branch, ""),
            "NOW": (doing(session, now), state_style(state) or "dim"),
        }
        cells.append([row[header] for header in headers])
    shrink = [(header, least) for header, least in SHRINK if header in headers]
    return output.table(headers, cells, shrink=shrink, right=frozenset({"SINCE", "COST"}))


def odd_branch(session: "Session") -> str:
    """Return the branch unless its last part is the session's name, else ""."""
    return "" if session.branch.rpartition("/")[2] == session.name else session.branch


def created(session: "Session") -> list[Line]:
    """Return the output of `new`."""
    return [
        line(("name      ", "dim"), (session.name, "bold")),
        line(("branch    ", "dim"), session.branch),
        line(("worktree  ", "dim"), session.worktree),
    ]


def outcome(session: "Session", word: str = "") -> Line:
    """Describe a session's state in one line; ``word`` is a closer one than "idle", such as
    "stopped"."""
    state = state_name(session)
    shown = word if word and state == "idle" else state
    spans: list[Span] = [(session.name, "bold"), (" is ", ""), (shown, state_style(state))]
    spent = (
        f", {money(session.cost_usd)}" if session.cost_usd else "" if session.HasField("cost_usd") else ", cost unknown"
    )
    spans.append((f", {plural(session.turns, 'turn')}{spent}", "dim"))
    if background := in_background(session, time.time()):
        spans.append((f", {background}", ""))
    if session.state_reason:
        spans.append((f": {session.state_reason}", ""))
    return line(*spans)


def variable_lines(output: Output, variables: Iterable["Variable"]) -> list[Line]:
    """Return the names of a session's environment variables, with the lifetime of each value."""
    rows = [[(each.name, ""), (enum_name(each, "kind") or "", "dim")] for each in variables]
    return output.table(["VARIABLE", "KIND"], rows, shrink=[]) if rows else [line("no environment variables")]


def details(answer: "GetSessionResponse") -> list[Line]:
    """Return all about one session except its open requests and last words."""
    session = answer.session
    state = state_name(session)
    fault = TREE_GONE if session.worktree_gone else session.worktree_fault
    rows: list[tuple[str, str, str]] = [
        ("name", session.name, "bold"),
        ("id", session.id, ""),
        ("state", state + (f": {session.state_reason}" if session.state_reason else ""), state_style(state)),
        *([("background", in_background(session, time.time()).partition(": ")[2], "")] if session.background else []),
        ("repository", session.repo, ""),
        ("branch", session.branch, ""),
        ("base", f"{session.base_ref or '-'} ({session.base_commit[:12]})", ""),
        ("worktree", session.worktree + (f" ({fault})" if fault else ""), ""),
        *([("under way", session.under_way, "")] if session.under_way else []),
        (
            "agent",
            " ".join(filter(None, [session.agent, session.model]))
            + f", {mode_name(session.mode)} mode"
            + unasked(session),
            "",
        ),
        ("process", _process(answer), ""),
        ("turns", str(session.turns), ""),
        ("cost", cost(session) + _budget(answer), ""),
        ("tokens", _tokens(session), ""),
        ("created", local_time(session.create_time), ""),
        ("changed", local_time(session.update_time), ""),
    ]
    rows += [
        (key, value, "")
        for key, value in (
            ("disk", size(answer.disk_bytes) if answer.disk_bytes else ""),
            ("parent", answer.parent_name or (f"{session.parent_id} (gone)" if session.parent_id else "")),
            ("plan", f"{session.plan_id}, thread {session.thread}" if session.plan_id else ""),
            ("landed", session.landed_reason),
            ("setup", f"failed: {answer.setup_failure}" if answer.setup_failure else ""),
            ("owns", ", ".join(session.owns)),
            ("forbidden", ", ".join(session.forbids)),
            ("after", ", ".join(session.after)),
            ("ports", port_ranges(session.ports)),
            ("priority", str(session.priority) if session.priority else ""),
        )
        if value
    ]
    lines = [line((f"{key:<11} ", "dim"), (" ".join(value.split()), style)) for key, value, style in rows]
    for child in answer.children:
        child_state = state_name(child)
        lines.append(line(("child       ", "dim"), child.name, " ", (child_state, state_style(child_state))))
    if session.result:
        first, *rest = session.result.rstrip("\n").split("\n")
        lines.append(line(("result      ", "dim"), first))
        lines += [line(text, indent=12) for text in rest]
    for prompt in answer.pending_prompts:
        first = prompt.text.strip().splitlines()[0] if prompt.text.strip() else ""
        lines.append(line(("pending     ", "dim"), first[:200]))
    return lines


def unasked(session: "Session") -> str:
    """Return a warning about an agent that never asks; "" for others."""
    asks = "ask" in session.capabilities or not session.capabilities  # an older daemon does not report it
    return "" if asks else "; it never asks, and its writes are checked afterwards"


def port_ranges(ports: Sequence[int]) -> str:
    """Format ports, consecutive ones as a range: ``24000-24009``."""
    ranges: list[list[int]] = []
    for port in sorted(ports):
        if ranges and port == ranges[-1][-1] + 1:
            ranges[-1].append(port)
        else:
            ranges.append([port])
    return ", ".join(f"{each[0]}-{each[-1]}" if len(each) > 1 else str(each[0]) for each in ranges)


def token_words(tokens: "Tokens") -> str:
    """Format tokens by kind, without kinds that have none."""
    counts = (
        (tokens.input, "in"),
        (tokens.output, "out"),
        (tokens.cache_read, "read from the cache"),
        (tokens.cache_write, "written to the cache"),
    )
    return ", ".join(f"{count} {kind}" for count, kind in counts if count) or "none yet"


def _tokens(session: "Session") -> str:
    """Format the used tokens and the limit, if any. Descendants count towards the limit, but are
    not in this sum."""
    limit = f"; limit {token_count(session.budget_tokens)}" if session.HasField("budget_tokens") else ""
    return (token_words(session.tokens) if session.HasField("tokens") else "unknown") + limit


def _budget(answer: "GetSessionResponse") -> str:
    """Format the limit, which includes descendants, and the rest of it."""
    session, spent_below = answer.session, answer.spent_below_usd
    if not session.HasField("budget_usd"):
        return ""
    left = max(session.budget_usd - session.cost_usd - spent_below, 0.0)
    below = f", {money(spent_below)} by its descendants" if spent_below else ""
    return f" of {limit(session.budget_usd)}{below}, {money(left) if left else 'nothing'} left"


def _process(answer: "GetSessionResponse") -> str:
    if not answer.HasField("process"):
        return "none yet"
    process = answer.process
    parts = [process.state]
    if process.pid:
        parts.append(f"pid {process.pid}")
    if process.exit_status:
        parts.append(process.exit_status)
    parts.append(f"generation {process.generation}")
    if process.version:
        parts.append(f"version {process.version}")
    return ", ".join(parts)


def checkpoint_reason(checkpoint: "Checkpoint") -> str:
    """Describe why a checkpoint was created, in clearer words if its name in the contract is
    ambiguous."""
    reason = enum_name(checkpoint, "reason") or ""
    return {"rewind": "before rewind", "sync": "before sync"}.get(reason, reason)
