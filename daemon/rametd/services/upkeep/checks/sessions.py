"""Of each session: its worktree, its branch, its link by name, and the copy from which its row would be rebuilt."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from rametd.domain.errors import RametError
from rametd.domain.models import Session, WorktreeKind
from rametd.domain.states import BUSY_STATES, State
from rametd.git import Registration, busy_with, ending_commands, existing_git_dir, locate
from rametd.services.agents.transcripts import Transcripts
from rametd.services.departures.clearing import archive_ref, last_known
from rametd.services.departures.whole import archived_as
from rametd.services.upkeep.checks.lost import lost
from rametd.services.upkeep.finding import Finding, shell
from rametd.services.upkeep.scene import Scene
from rametd.services.worktrees.places import LINKS, link_by_name


async def sessions(scene: Scene) -> AsyncIterator[Finding]:
    for session in scene.sessions:
        scene.checked["sessions"] += 1
        check = _archived(scene, session) if session.state == State.ARCHIVED else _living(scene, session)
        for findings in (check, _conversation(scene, session)):
            async for found in findings:
                if await _is_as_it_was(scene, session):
                    yield found


async def _conversation(scene: Scene, session: Session) -> AsyncIterator[Finding]:
    if message := await Transcripts(scene.core).warning(session):
        advice = f"what was said is in {shell('rametctl', 'log', session.name)}"
        yield Finding("warning", "conversation-missing", session.name, session.id, message, advice)


async def _is_as_it_was(scene: Scene, session: Session) -> bool:
    """What is on its way in or out, or was a moment ago, differs for a while and is nobody's fault; `unfinished` tells what hangs."""
    operations, now = await scene.core.store.read(
        lambda reader: (reader.operations.list(session.id), reader.sessions.find(session.id))
    )
    return not operations and now is not None and (now.state == State.ARCHIVED) == (session.state == State.ARCHIVED)


async def _archived(scene: Scene, session: Session) -> AsyncIterator[Finding]:
    if session.worktree_kind == WorktreeKind.OWN and archive_ref(session.id) not in scene.inventory.refs:
        name, ref = session.name, archive_ref(session.id)
        found = await lost(scene, session, ref, await archived_as(scene.core, scene.info, session))
        message = f"{ref}, which keeps the work of {name}, {found.message}"
        advice = f"{found.advice}\ngive it up: {shell('rametctl', 'rm', name, '--force')}".lstrip()
        yield Finding("error", "archive-ref-missing", name, session.id, message, advice)


async def _living(scene: Scene, session: Session) -> AsyncIterator[Finding]:
    if (stranger := await _stranger(scene, session)) is not None:
        yield stranger
        return
    try:
        await scene.core.git.worktrees.verify(session.worktree, None)
    except RametError as error:
        yield await _no_worktree(scene, session, error)
        return
    async for found in _branch(scene, session):
        yield found
    if session.worktree_kind == WorktreeKind.OWN:
        folder = session.worktree.parent / LINKS
        if not await asyncio.to_thread(_has_link, folder, session.worktree):

            async def link() -> None:
                await asyncio.to_thread(link_by_name, session)

            message = f"no link in {folder} leads to it"
            yield Finding("info", "link-missing", session.name, session.id, message, "doctor --fix makes it", link)
    if not await asyncio.to_thread((scene.core.state_dir / "index" / f"{session.id}.json").exists):

        async def write() -> None:
            await asyncio.to_thread(scene.core.index.write, scene.repo, session)

        message = "its copy, from which a damaged database would be rebuilt, is missing"
        yield Finding("warning", "index-missing", session.name, session.id, message, "doctor --fix writes it", write)


async def _stranger(scene: Scene, session: Session) -> Finding | None:
    """Of something else that lies where the worktree was, be it a sound worktree of another repository: it has to go first, for it is not ours to delete."""
    tree = session.worktree
    if session.worktree_kind != WorktreeKind.OWN:
        return None
    _, why = await asyncio.to_thread(locate, scene.info.common_dir, tree)
    if why is None or await asyncio.to_thread(_moved_to, scene, tree) is not None:
        return None
    again = f"{shell('rametctl', 'archive', session.name)} && {shell('rametctl', 'restore', session.name)}"
    advice = (
        f"move it away: {shell('mv', tree, tree.with_name(f'{tree.name}.aside'))}\n"
        f"then {await _again(scene, session, again)}\nremove the session: {shell('rametctl', 'rm', session.name)}"
    )
    message = f"something else lies where its worktree was: {why}"
    return Finding("error", "worktree-broken", session.name, session.id, message, advice)


async def _no_worktree(scene: Scene, session: Session, error: RametError) -> Finding:
    name, tree, root = session.name, session.worktree, scene.info.root
    exists = await asyncio.to_thread(tree.exists)
    code, message = ("worktree-broken" if exists else "worktree-missing"), error.message
    again = f"{shell('rametctl', 'archive', name)} && {shell('rametctl', 'restore', name)}"
    remove = f"remove the session: {shell('rametctl', 'rm', name)}"
    if (moved := await asyncio.to_thread(_moved_to, scene, tree)) is not None:
        code, message = "worktree-moved", f"its worktree is at {moved} now"
        advice = f"move it back: {shell('git', '-C', root, 'worktree', 'move', '-f', '-f', moved, tree)}"
    elif session.worktree_kind != WorktreeKind.OWN:
        advice = f"bring it back by hand: Ramet did not make it\n{remove}"
    elif exists:
        lines = [f"make it anew, with the files that are there: {again}", await _files_again(scene, session), remove]
        advice = "\n".join(filter(None, lines))
        if not await asyncio.to_thread((tree / ".git").exists):
            # Without a path: with one, git looks for the .git file there that is to be written.
            mend = shell("git", "-C", root, "worktree", "repair")
            advice = f"have git mend it, as all worktrees of the repository that need it: {mend}\n{advice}"
    else:
        repair = shell("git", "-C", root, "worktree", "repair")
        advice = f"where it was moved by hand, have git find it: {repair} NEW-PATH\n{await _again(scene, session, again)}\n{remove}"
    return Finding("error", code, name, session.id, message, advice)


async def _files_again(scene: Scene, session: Session) -> str:
    """How the files of the checkpoint that it stood at come back, where there is one."""
    stood = await scene.core.store.read(lambda reader: reader.checkpoints.current(session))
    if stood is None:
        return ""
    rewind = shell("rametctl", "rewind", session.name, str(stood.number), "--files-only")
    return f"then, where files are missing, have those of checkpoint {stood.number}, where it stood: {rewind}"


async def _again(scene: Scene, session: Session, again: str) -> str:
    """What making a worktree that is gone once more brings back: the files of the checkpoint that it stood at, unless the branch has gone on since."""
    stood = await scene.core.store.read(lambda reader: reader.checkpoints.current(session))
    if stood is None:
        return f"make it again from its branch: {again}"
    if scene.inventory.tips.get(session.branch, stood.head) == stood.head:
        return f"make it again with the files of checkpoint {stood.number}, where it stood: {again}"
    rewind = shell("rametctl", "rewind", session.name, str(stood.number), "--files-only")
    return f"make it again from its branch: {again}\nthen have the files of checkpoint {stood.number}, where it stood: {rewind}"


def _moved_to(scene: Scene, tree: Path) -> Path | None:
    """Where git has the worktree, if that is there and another place; blocks."""
    for entry in scene.inventory.registrations:
        if entry.admin_dir.name == tree.name and entry.path is not None and entry.path.is_dir():
            return entry.path if entry.path.resolve() != tree.resolve() else None
    return None


async def _branch(scene: Scene, session: Session) -> AsyncIterator[Finding]:
    branch, tree = session.branch, session.worktree
    if not branch:
        return
    if (gone := scene.inventory.lost.get(branch)) is not None:
        begun, _ = await scene.core.store.read(lambda reader: last_known(reader, session))
        root = scene.info.root
        message = f"branch {branch} is at {gone[:12]}, which git has no more; its worktree may still hold the work"
        advice = (
            f"bring that commit back, from another copy of the repository: {shell('git', '-C', root, 'fetch')} OTHER-COPY {gone}\n"
            f"have the branch at what is known before that, with all files as changes: {shell('git', '-C', root, 'update-ref', f'refs/heads/{branch}', begun)}"
        )
        yield Finding("error", "branch-missing", session.name, session.id, message, advice)
        return
    if branch not in scene.inventory.tips:
        message = f"branch {branch} is gone; its worktree may still hold the work"
        advice = f"make it again: {await _make_branch(scene, session)}"
        yield Finding("error", "branch-missing", session.name, session.id, message, advice)
        return
    git_dir = await asyncio.to_thread(existing_git_dir, tree)
    busy = await asyncio.to_thread(busy_with, git_dir) if git_dir is not None else ""
    endings = "\nor take it back: ".join(ending_commands(tree, busy)) if busy else ""
    look = f"look at it: {shell('git', '-C', tree, 'status')}"
    place = scene.inventory.checked_out.get(branch)
    if place is not None and await asyncio.to_thread(lambda: place.resolve() == tree.resolve()):
        if busy and session.state not in BUSY_STATES:
            message = f"{busy} is under way in {tree}"
            yield Finding("warning", "git-unfinished", session.name, session.id, message, f"{look}\nend it: {endings}")
        return
    where = f"is checked out at {place}" if place is not None else "is checked out nowhere"
    message = f"branch {branch} {where}, not in the session's worktree"
    if busy:
        # Until that is over git refuses to switch.
        message = f"{message}: {busy} is under way there"
        again = f"end it: {endings}"
    else:
        again = f"have the branch there again: {shell('git', '-C', tree, 'switch', branch)}"
    advice = f"{look}\n{again}"
    yield Finding("warning", "branch-not-checked-out", session.name, session.id, message, advice)


async def _make_branch(scene: Scene, session: Session) -> str:
    """The command that makes a deleted branch again where the worktree stands."""
    entry: Registration | None = None
    for each in scene.inventory.registrations:
        if each.admin_dir.name == session.worktree.name:
            entry = each
    if entry is None or entry.branch != session.branch:
        return shell("git", "-C", session.worktree, "switch", "-c", session.branch)
    # HEAD is the branch that is no more, so that git would begin a history there that has no past: the commit has to be named.
    begun, _ = await scene.core.store.read(lambda reader: last_known(reader, session))
    commit = await scene.core.git.worktrees.last_checked_out(entry) or begun
    return shell("git", "-C", scene.info.root, "branch", session.branch, commit)


def _has_link(folder: Path, worktree: Path) -> bool:
    return folder.is_dir() and any(
        link.is_symlink() and link.readlink().name == worktree.name for link in folder.iterdir()
    )
