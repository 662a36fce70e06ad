"""The audit: check the files after each command, and at the end of each turn.

A shell command can write in ways that its text does not show, so the audit compares the files
before and after it. If the daemon is killed in between, it does not check that call; the audit at
the end of the turn compares with the session's base, and finds the changes.
"""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import structlog

from rametd.agents.base import ToolUse
from rametd.domain.errors import RametError
from rametd.domain.models import Request, RequestKind, RequestState, Session, WorktreeKind
from rametd.services import events
from rametd.services.core import Core
from rametd.services.lifecycle import ask_person, log_request
from rametd.services.ownership.claims import Foreign, claims_of, claims_on
from rametd.services.ownership.guard import advice, log_paths, record
from rametd.services.repos import info_of
from rametd.store import Reader, Unit

log = structlog.get_logger()

SHOWN = 20
"""Maximum number of paths that a text names; an event has all."""


def may_write(tool: str) -> bool:
    """Whether a call may change files that it does not name."""
    return tool == "Bash" or (tool.startswith("mcp__") and not tool.startswith("mcp__ramet__"))


@dataclass(frozen=True, slots=True)
class Before:
    """State before a call: the worktree's tree ("" without claims), and a mark of the person's
    checkout."""

    tree: str
    checkout: str


class Watch:
    """Watches calls of one agent that may write."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._before: dict[str, Before] = {}  # by tool use
        self._of_ended_turn: set[str] = set()

    async def begin(self, session: Session, use: ToolUse) -> None:
        if not may_write(use.tool):
            return
        core = self._core
        claims = await claims_on(core, session.id)
        try:
            tree = await core.git.diffs.tree(session.worktree) if claims else ""
        except RametError as error:
            log.warning("a call was not watched", session=session.id, error=error.message)
            return
        self._before[use.id] = Before(tree, await checkout_of(core, session, use))

    async def end(self, session: Session, use: ToolUse) -> str:
        """Message to the agent about the changes of its call; "" for none."""
        before = self._before.pop(use.id, None)
        if before is None:
            return ""
        core = self._core
        said = []
        checkout = await checkout_of(core, session, use)
        if checkout != before.checkout:
            root = await main_checkout(core, session)
            said.append(
                f"While your command ran, the person's own checkout, {root}, changed. If your command did it, restore it: "
                f"your worktree is {session.worktree}; work only there."
            )
            words = f"the checkout {root} changed while a command of {session.name} ran"
            await core.store.write_for_sure(lambda unit: warn(unit, session, words))
        try:
            changed = await core.git.diffs.changed_files(session.worktree, before.tree) if before.tree else ()
            found = await foreign_among(core, session, changed)
        except RametError as error:
            log.warning("a call was not checked", session=session.id, error=error.message)
            found = []
        if found:
            await record(core, session, use.tool, found, changed=True)
            said.append(warning(found))
        return "\n\n".join(said)

    def forget(self) -> None:
        """At the end of a turn, stop watching the calls of the previous turn: calls that a person
        refused or cancelled report no end.

        Keep the calls of the ended turn until the next one ends: the end of its last call may
        arrive together with the end of the turn, before `end` has run.
        """
        for call in self._of_ended_turn:
            self._before.pop(call, None)
        self._of_ended_turn = set(self._before)


def warning(found: list[Foreign]) -> str:
    """Message to an agent that changed paths of others."""
    lines = [f"- {each.why}" for each in found[:SHOWN]]
    if len(found) > SHOWN:
        lines.append(f"- and {len(found) - SHOWN} more")
    return "\n".join(
        [
            "Your last command changed files that you may not write:",
            *lines,
            f"Undo these changes now, and only these. {advice(found[0])}",
        ]
    )


async def foreign_among(core: Core, session: Session, paths: Iterable[str]) -> list[Foreign]:
    """Changed paths that the session may not write, without those that equal another session's
    version, such as merged ones."""
    claims = await claims_on(core, session.id)
    found = {path: foreign for path in paths if (foreign := claims.foreign(path)) is not None}
    for commit in await sources(core, session, found.values()) if found else []:
        differing = await core.git.diffs.changed_files(session.worktree, commit)
        found = {path: found[path] for path in differing if path in found}
    return list(found.values())


async def sources(core: Core, session: Session, found: Iterable[Foreign]) -> list[str]:
    """Commits that a session may have merged: those of its base, of the owners and of its
    predecessors."""
    repo, before = await core.store.read(
        lambda reader: (reader.repos.get(session.repo_id), [reader.sessions.find(each) for each in session.after])
    )
    info = await info_of(core, repo)
    others = {each.owner.id: each.owner for each in found if each.owner is not None}
    others |= {each.id: each for each in before if each is not None}
    tips = [await core.git.branches.tip(info, other.branch) for other in others.values()]
    try:
        tips.append((await core.git.branches.resolve_base(info, session.base_ref)).commit)
    except RametError as error:  # the base's branch is gone
        log.info("no base to compare with", session=session.id, error=error.message)
    commits = [tip for tip in tips if tip is not None]
    head = await core.git.branches.tip(info, session.branch)
    if head is not None:
        parted = [await core.git.commits.merge_base(info, head, commit) for commit in commits]
        commits += [commit for commit in parted if commit is not None]
    return list(dict.fromkeys(commits))


# ── the person's checkout ─────────────────────────────────────────────────────────────────────────


async def main_checkout(core: Core, session: Session) -> Path | None:
    """The repository's main worktree, unless the session works in it."""
    repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
    bare = repo.root == repo.common_dir
    return (
        None if bare or session.worktree_kind == WorktreeKind.IN_PLACE or repo.root == session.worktree else repo.root
    )


async def checkout_of(core: Core, session: Session, use: ToolUse) -> str:
    """A mark that changes with the person's checkout. It includes the files only for a command that
    may name them."""
    root = await main_checkout(core, session)
    if root is None:
        return ""
    mark = await asyncio.to_thread(mark_of, root)
    words = json.dumps(dict(use.input), ensure_ascii=False)
    if str(root) in words or ".." in words:
        try:
            mark += await core.git.diffs.tree(root)
        except RametError as error:
            log.info("a checkout was not read", root=str(root), error=error.message)
    return mark


def mark_of(root: Path) -> str:
    """Mark of HEAD and index. Blocks."""
    marks = []
    for name in ("HEAD", "ORIG_HEAD", "index"):
        try:
            status = (root / ".git" / name).stat()
        except OSError:
            continue
        marks.append(f"{name}:{status.st_mtime_ns}:{status.st_size}")
    return " ".join(marks)


# ── the end of a turn ─────────────────────────────────────────────────────────────────────────────


async def audit(core: Core, session: Session) -> None:
    """After a turn: report changed paths that the session may not write in the inbox, once for the
    same paths."""

    def find(reader: Reader) -> tuple[bool, bool]:
        claimed = bool(claims_of(reader, reader.sessions.get(session.id)))
        return claimed, any(is_audit(each) for each in of_ownership(reader.requests.open(session.id)))

    claimed, reported = await core.store.read(find)
    if not (claimed or reported):
        return
    claims = await claims_on(core, session.id)
    try:
        changed = await core.git.diffs.changed_files(session.worktree, session.base_commit) if claims else ()
        found = await foreign_among(core, session, changed) if claims else []
    except RametError as error:
        log.warning("a turn was not audited", session=session.id, error=error.message)
        return
    if found or reported:
        await core.store.write_for_sure(lambda unit: note(unit, session, found))


def audits(reader: Reader, session: Session) -> list[Request]:
    """Return the requests of a session about changed paths."""
    return [each for each in of_ownership(reader.requests.list(session.id)) if is_audit(each)]


def of_ownership(requests: Iterable[Request]) -> list[Request]:
    return [each for each in requests if each.kind == RequestKind.OWNERSHIP]


def note(unit: Unit, session: Session, found: list[Foreign]) -> None:
    """Update the inbox. Do not report the same paths as the last time again, whether that report
    was answered or not."""
    paths = sorted(each.path for each in found)
    known = audits(unit, session)
    if known and json.loads(known[-1].input)["paths"] == paths and known[-1].state != RequestState.GONE:
        return
    for closed in unit.requests.close([each.id for each in known if each.state == RequestState.OPEN]):
        log_request(unit, session, closed)
    if not found:
        return
    shown = ", ".join(paths[:SHOWN]) + (f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else "")
    whose = sorted({each.owner.name for each in found if each.owner is not None})
    reason = f"it has changed paths that are not its own: {shown}" + (f" (of {', '.join(whose)})" if whose else "")
    log_paths(unit, session, "", found, changed=True)
    warn(unit, session, f"{session.name}: {reason}")
    owner_ids = sorted({each.owner.id for each in found if each.owner is not None})
    ask_person(unit, session, RequestKind.OWNERSHIP, {"paths": paths, "owners": owner_ids, "changed": True}, reason)


def warn(unit: Unit, session: Session, words: str) -> None:
    events.warn(unit, session, words)


def is_audit(request: Request) -> bool:
    """Whether a request reports changes instead of asking for paths."""
    return bool(json.loads(request.input).get("changed"))
