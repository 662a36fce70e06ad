"""Work that removing a session would lose, and the refusal that names it."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ramet.words import plural

from rametd.domain.errors import GitFailedError, NotFoundError, WorkAtRiskError
from rametd.domain.models import Session, WorktreeKind
from rametd.domain.states import State
from rametd.domain.text import listed
from rametd.git import Registration, RepositoryInfo, Risk, Snapshot, parse_unread
from rametd.services.archiving.integrity import damaged, lost_archive, lost_checkpoint
from rametd.services.archiving.steps import archive_ref
from rametd.services.core import Core
from rametd.services.repos import info_of

LISTED = 20


async def work_at_risk(core: Core, session: Session, known: Sequence[Registration] | None = None) -> Risk:
    """Find work that removing a session would lose. Work that has landed is not lost, nor is work
    in a worktree that stays. ``known``: the repository's entries, if the caller has read them."""
    if session.worktree_kind != WorktreeKind.OWN:
        return Risk((), (), ())
    if await asyncio.to_thread(session.worktree.is_symlink):
        raise WorkAtRiskError(
            f"the worktree of {session.name} was replaced by a symbolic link, so its files cannot be checked",
            hint=f"move the directory back to {session.worktree}, or add --force",
        )
    try:
        info = await info_of(core, session)
    except NotFoundError as error:
        # Nothing can be saved into the repository, so the worktree stays; the message says so.
        if await asyncio.to_thread(session.worktree.exists):
            raise WorkAtRiskError(
                f"the repository of {session.name} is gone, so the work in {session.worktree} cannot be saved",
                hint="move the repository back, or add --force to remove the session and leave that directory",
            ) from error
        return Risk((), (), ())
    # A branch that existed before the session stays; then only commits on no branch count.
    branch = session.branch if session.created_branch else ""
    risk = await core.git.worktrees.work_at_risk(info, session.worktree, branch, session.base_commit, known)
    if session.state == State.ARCHIVED:
        risk = await _with_archive(core, info, session, risk)
    elif not await asyncio.to_thread(session.worktree.exists):
        risk = await _with_checkpoint(core, info, session, risk)
    if risk.unique_commits and await _all_landed(core, info, session, risk.starts):
        return replace(risk, unique_commits=())
    return risk


async def _with_archive(core: Core, info: RepositoryInfo, session: Session, risk: Risk) -> Risk:
    """Add work that only the archive has: uncommitted changes, and commits whose branch was deleted
    since."""
    if words := await lost_archive(core, info, session):
        raise damaged(words)
    snapshot = await core.git.snapshots.read(info, archive_ref(session.id))
    if snapshot is None:
        return risk
    commits, starts = risk.unique_commits, risk.starts
    for commit in snapshot.facts.get("commits", ()):
        if commit not in starts and not await core.git.commits.reachable(info, commit):
            commits, starts = (*commits, (commit, "only in the archive")), (*starts, commit)
    apart = {each.place for each in snapshot.nested}  # `files` has only pointers there
    changed = tuple(path for path in await core.git.snapshots.changed(info, snapshot) if path not in apart)
    changed = () if await _is_elsewhere(core, info, session, snapshot, changed) else changed
    inside = (*risk.inside, *snapshot.facts.get("inside", ()))
    worktrees = tuple(f"the worktree {each.place} inside it" for each in snapshot.nested)
    inside += tuple(
        f"the repository {each.place} inside it"
        for each, worktree in zip(snapshot.nested, worktrees, strict=True)
        if (each.own or (each.files and not each.clean)) and not any(line.startswith(worktree) for line in inside)
    )
    if staged := await core.git.snapshots.only_staged(info, snapshot):
        inside = (*inside, f"what was staged of {', '.join(staged)}")
    return replace(risk, uncommitted=changed, untracked=(), unique_commits=commits, starts=starts, inside=inside)


async def _with_checkpoint(core: Core, info: RepositoryInfo, session: Session, risk: Risk) -> Risk:
    """Add work of a deleted worktree that only its current checkpoint has: what differs from both
    its commit and the branch."""
    if words := await lost_checkpoint(core, info, session):
        raise damaged(words)
    stood = await core.store.read(lambda reader: reader.checkpoints.current(session))
    if stood is None:
        return risk
    changed: set[str] | None = None
    for commit in dict.fromkeys((stood.head or session.base_commit, *risk.starts)):
        if commit:
            diff = await core.git.diffs.between(info, commit, stood.tree, patch=False)
            paths = {path for each in diff.files for path in (each.path, each.old_path) if path}
            changed = paths if changed is None else changed & paths
    taken = await core.git.snapshots.read(info, stood.snapshot)
    apart = (
        [each.place for each in taken.nested if each.files] if taken is not None else []
    )  # `files` has only pointers there
    held = tuple(sorted((changed or set()).difference(apart)))
    inside = tuple(f"the repository {place} inside it" for place in apart)
    held = () if taken is not None and await _is_elsewhere(core, info, session, taken, held) else held
    uncommitted = tuple(dict.fromkeys((*risk.uncommitted, *held)))
    return replace(risk, uncommitted=uncommitted, inside=(*risk.inside, *inside))


async def _is_elsewhere(
    core: Core, info: RepositoryInfo, session: Session, snapshot: Snapshot, changed: tuple[str, ...]
) -> bool:
    """Whether a branch has the uncommitted changes of a snapshot: they landed, or it has the same
    files."""
    if not changed:
        return True
    targets = await core.git.landing.targets_of(info, session.base_ref, session.branch)
    commit = await core.git.snapshots.as_commit(info, snapshot)
    if await core.git.landing.landed(info, commit, session.base_commit, targets):
        return True
    without = session.branch if session.created_branch else ""
    return bool(await core.git.commits.holder(info, snapshot.files, changed, without=without))


async def _all_landed(core: Core, info: RepositoryInfo, session: Session, starts: tuple[str, ...]) -> bool:
    targets = await core.git.landing.targets_of(info, session.base_ref, session.branch)
    ahead = [start for start in starts if start != session.base_commit]
    answers = [await core.git.landing.landed(info, start, session.base_commit, targets) for start in ahead]
    return bool(answers) and all(answers)


async def with_unstored(core: Core, session: Session, risk: Risk) -> Risk:
    """Add the files that git cannot store. Finding them stores all other files, so call this only
    before refusing a removal."""
    if session.worktree_kind != WorktreeKind.OWN:
        return risk
    try:
        lines = await core.git.worktrees.unstored(await info_of(core, session), session.worktree)
    except GitFailedError as error:
        lines = (error.message,)
    places = {parse_unread(line).place for line in lines}
    return replace(
        risk,
        unread=tuple(dict.fromkeys((*risk.unread, *lines))),
        uncommitted=tuple(path for path in risk.uncommitted if path not in places),
        untracked=tuple(path for path in risk.untracked if path.rstrip("/") not in places),
    )


def at_risk(session: Session, risk: Risk) -> WorkAtRiskError:
    """Refuse a removal; the error lists the work."""
    further = "; the trash has files that git cannot store too" if risk.unread else ""
    first = "if you moved the worktree, run: git worktree repair NEW-PATH; else " if risk.gone else ""
    lists = {
        "uncommitted": risk.uncommitted,
        "untracked": risk.untracked,
        "commits": [f"{commit[:10]} {subject}" for commit, subject in risk.unique_commits],
    }
    more = {"unread": risk.unread, "inside": risk.inside, "under_way": risk.under_way}
    lists |= {name: lines for name, lines in more.items() if lines}
    return WorkAtRiskError(
        f"{session.name} holds work that exists nowhere else: {describe(risk)}",
        hint=f"{first}merge or push it, or add --force to move it to the trash, from where it can be restored{further}",
        **{name: "\n".join(lines[:LISTED]) for name, lines in lists.items()},
    )


def describe(risk: Risk) -> str:
    """One line that names what would be lost."""
    parts = []
    for paths, what in ((risk.uncommitted, "uncommitted"), (risk.untracked, "untracked")):
        if paths:
            parts.append(f"{len(paths)} {what} ({listed([Path(path).name or path for path in paths])})")
    if risk.unread:
        parts.append(f"files that git cannot store ({listed(list(risk.unread))})")
    parts += risk.inside
    parts += [f"an unfinished {what}" for what in risk.under_way]
    if risk.unique_commits:
        commits = [f"{commit[:8]} {subject}" for commit, subject in risk.unique_commits]
        parts.append(f"{plural(len(commits), 'commit')} on no other branch ({listed(commits)})")
    return ", ".join(parts)
