"""The audit: what a command has changed is looked at after it, and what a turn has left at its end.

A shell can write in more ways than anybody could read out of its words, so a call is judged by the files: the tree before it against the tree after it. The
daemon may be killed between the two, and then that call goes unnoticed; the turn's end, which compares with where the work began, does not
forget it.
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
from rametd.services.ownership.claims import Foreign, claims_on
from rametd.services.ownership.guard import advice, log_paths, record
from rametd.services.persistence import write_for_sure
from rametd.services.repos import info_of
from rametd.store import Unit

log = structlog.get_logger()

SHOWN = 20
"""Paths that are named in words; an event has all."""


def may_write(tool: str) -> bool:
    """Whether a call may change files that it does not name."""
    return tool == "Bash" or (tool.startswith("mcp__") and not tool.startswith("mcp__ramet__"))


@dataclass(frozen=True, slots=True)
class Before:
    """What there was before a call: the worktree's tree ("" where no path is anybody's), and the person's checkout."""

    tree: str
    checkout: str


class Watch:
    """The calls of one agent that may write, from before them until after them."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._before: dict[str, Before] = {}  # by tool use

    async def begin(self, session: Session, use: ToolUse) -> None:
        if not may_write(use.tool):
            return
        core = self._core
        claims = await claims_on(core, session.id)
        try:
            tree = await core.git.diffs.tree(session.worktree) if claims else ""
        except RametError as error:
            log.warning("a call cannot be watched", session=session.id, error=error.message)
            return
        self._before[use.id] = Before(tree, await checkout_of(core, session, use))

    async def end(self, session: Session, use: ToolUse) -> str:
        """What the agent is to be told of what its call has done; "" for nothing."""
        before = self._before.pop(use.id, None)
        if before is None:
            return ""
        core = self._core
        said = []
        checkout = await checkout_of(core, session, use)
        if checkout != before.checkout:
            root = await main_checkout(core, session)
            said.append(
                f"While your command ran, the person's own checkout, {root}, changed. If it was your command, bring it back to what it was: "
                f"your worktree is {session.worktree}, and you work there only."
            )
            words = f"the checkout {root} changed while a command of {session.name} ran"
            await write_for_sure(core.store, lambda unit: warn(unit, session, words))
        try:
            changed = await core.git.diffs.changed_files(session.worktree, before.tree) if before.tree else ()
            found = await foreign_among(core, session, changed)
        except RametError as error:
            log.warning("a call cannot be judged", session=session.id, error=error.message)
            found = []
        if found:
            await record(core, session, use.tool, found, changed=True)
            said.append(told(found))
        return "\n\n".join(said)


def told(found: list[Foreign]) -> str:
    """To the agent that has changed what is not its own."""
    lines = [f"- {each.why}" for each in found[:SHOWN]]
    if len(found) > SHOWN:
        lines.append(f"- and {len(found) - SHOWN} more")
    return "\n".join(
        [
            "Your last command changed files that you may not write:",
            *lines,
            f"Undo these changes now, and only these, with the files as they were before it. {advice(found[0])}",
        ]
    )


async def foreign_among(core: Core, session: Session, paths: Iterable[str]) -> list[Foreign]:
    """Those of some changed paths that are not the session's, unless they are as somebody else has made them: what was merged is no work of its own."""
    claims = await claims_on(core, session.id)
    found = {path: foreign for path in paths if (foreign := claims.foreign(path)) is not None}
    for commit in await sources(core, session, found.values()) if found else []:
        differing = await core.git.diffs.changed_files(session.worktree, commit)
        found = {path: found[path] for path in differing if path in found}
    return list(found.values())


async def sources(core: Core, session: Session, found: Iterable[Foreign]) -> list[str]:
    """Commits whose files a session may have brought in: its base's, its owners', those of whom it comes after."""
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


# ── the person's checkout ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def main_checkout(core: Core, session: Session) -> Path | None:
    """The repository's main worktree, unless the session works in it."""
    repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
    bare = repo.root == repo.common_dir
    return (
        None if bare or session.worktree_kind == WorktreeKind.IN_PLACE or repo.root == session.worktree else repo.root
    )


async def checkout_of(core: Core, session: Session, use: ToolUse) -> str:
    """A mark that changes with the person's checkout. Its files are looked at only for a command that could mean them."""
    root = await main_checkout(core, session)
    if root is None:
        return ""
    mark = await asyncio.to_thread(mark_of, root)
    words = json.dumps(dict(use.input), ensure_ascii=False)
    if str(root) in words or ".." in words:
        try:
            mark += await core.git.diffs.tree(root)
        except RametError as error:
            log.info("a checkout cannot be looked at", root=str(root), error=error.message)
    return mark


def mark_of(root: Path) -> str:
    """What is checked out, and when something was last staged or committed there. Blocks."""
    marks = []
    for name in ("HEAD", "ORIG_HEAD", "index"):
        try:
            status = (root / ".git" / name).stat()
        except OSError:
            continue
        marks.append(f"{name}:{status.st_mtime_ns}:{status.st_size}")
    return " ".join(marks)


# ── a turn's end ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def audit(core: Core, session: Session) -> None:
    """After a turn: whatever is still changed that is not the session's goes into the inbox, once for the same paths."""
    claims = await claims_on(core, session.id)
    try:
        changed = await core.git.diffs.changed_files(session.worktree, session.base_commit) if claims else ()
        found = await foreign_among(core, session, changed)
    except RametError as error:
        log.warning("a turn cannot be audited", session=session.id, error=error.message)
        return
    await write_for_sure(core.store, lambda unit: note(unit, session, found))


def note(unit: Unit, session: Session, found: list[Foreign]) -> None:
    """Bring the inbox to what was found; the same as the last time is not said again, answered or not."""
    paths = sorted(each.path for each in found)
    known = [each for each in unit.requests.list(session.id) if each.kind == RequestKind.OWNERSHIP and is_audit(each)]
    if known and json.loads(known[-1].input)["paths"] == paths and known[-1].state != RequestState.GONE:
        return
    for closed in unit.requests.close([each.id for each in known if each.state == RequestState.OPEN]):
        log_request(unit, session, closed)
    if not found:
        return
    shown = ", ".join(paths[:SHOWN]) + (f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else "")
    whose = sorted({each.owner.name for each in found if each.owner is not None})
    reason = f"it has changed what is not its own: {shown}" + (f" (of {', '.join(whose)})" if whose else "")
    log_paths(unit, session, "", found, changed=True)
    warn(unit, session, f"{session.name}: {reason}")
    owner_ids = sorted({each.owner.id for each in found if each.owner is not None})
    ask_person(unit, session, RequestKind.OWNERSHIP, {"paths": paths, "owners": owner_ids, "changed": True}, reason)


def warn(unit: Unit, session: Session, words: str) -> None:
    events.warn(unit, session, words)


def is_audit(request: Request) -> bool:
    """Whether it tells of what was changed, and does not ask for a path."""
    return bool(json.loads(request.input).get("changed"))
