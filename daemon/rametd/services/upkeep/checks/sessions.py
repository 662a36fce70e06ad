"""Check each session: its worktree, branch, link by name, conversation, operations, processes, and
the copy of its row."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet
from pathlib import Path

from ramet.words import plural

from rametd.domain.errors import RametError
from rametd.domain.models import AgentState, Repo, Session, WorktreeKind
from rametd.domain.operations import Kind, Operation
from rametd.domain.states import BUSY_STATES, State
from rametd.git import Registration, busy_with, ending_commands, existing_git_dir, locate
from rametd.keeper.executor import Handle, Liveness
from rametd.keeper.place import Place
from rametd.services.agents import endings
from rametd.services.agents.supervisor import Supervisor
from rametd.services.agents.transcripts import Transcripts
from rametd.services.archiving.integrity import archived_as
from rametd.services.archiving.restore import TRASH
from rametd.services.archiving.steps import archive_ref, last_known
from rametd.services.core import Core
from rametd.services.operations import session_of
from rametd.services.operations import unfinished as why_unfinished
from rametd.services.upkeep.checks.refs import lost
from rametd.services.upkeep.scene import Finding, Scene, known_ids, shell
from rametd.services.worktrees.places import LINKS, link_by_name
from rametd.store import Reader, Unit


async def sessions(scene: Scene) -> AsyncIterator[Finding]:
    for session in scene.sessions:
        scene.checked["sessions"] += 1
        check = _archived(scene, session) if session.state == State.ARCHIVED else _living(scene, session)
        for findings in (check, _conversation(scene, session)):
            async for found in findings:
                if await _is_settled(scene, session):
                    yield found


async def _conversation(scene: Scene, session: Session) -> AsyncIterator[Finding]:
    if message := await Transcripts(scene.core).warning(session):
        advice = f"read the transcript: {shell('rametctl', 'logs', session.name)}"
        yield Finding("warning", "conversation-missing", session.name, session.id, message, advice)


async def _is_settled(scene: Scene, session: Session) -> bool:
    """Whether no operation has changed the session during the check. `unfinished` reports
    operations that hang."""
    operations, now = await scene.core.store.read(
        lambda reader: (reader.operations.list(session.id), reader.sessions.find(session.id))
    )
    return not operations and now is not None and (now.state == State.ARCHIVED) == (session.state == State.ARCHIVED)


async def _archived(scene: Scene, session: Session) -> AsyncIterator[Finding]:
    if session.worktree_kind == WorktreeKind.OWN and archive_ref(session.id) not in scene.inventory.refs:
        name, ref = session.name, archive_ref(session.id)
        found = await lost(scene, session, ref, await archived_as(scene.core, scene.info, session))
        message = f"{ref} with the work of {name} {found.message}"
        advice = f"{found.advice}\nremove the session: {shell('rametctl', 'rm', name, '--force')}".lstrip()
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

            message = f"{folder} has no link to it"
            yield Finding("info", "link-missing", session.name, session.id, message, "doctor --fix creates it", link)
    if not await asyncio.to_thread((scene.core.state_dir / "index" / f"{session.id}.json").exists):

        async def write() -> None:
            await asyncio.to_thread(scene.core.index.write, scene.repo, session)

        message = "the copy of its row, from which a damaged database is rebuilt, is missing"
        yield Finding("warning", "index-missing", session.name, session.id, message, "doctor --fix writes it", write)


async def _stranger(scene: Scene, session: Session) -> Finding | None:
    """Report another directory at the worktree's path, which Ramet must not delete."""
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
    message = f"another directory is in the place of its worktree: {why}"
    return Finding("error", "worktree-broken", session.name, session.id, message, advice)


async def _no_worktree(scene: Scene, session: Session, error: RametError) -> Finding:
    name, tree, root = session.name, session.worktree, scene.info.root
    exists = await asyncio.to_thread(tree.exists)
    code, message = ("worktree-broken" if exists else "worktree-missing"), error.message
    again = f"{shell('rametctl', 'archive', name)} && {shell('rametctl', 'restore', name)}"
    remove = f"remove the session: {shell('rametctl', 'rm', name)}"
    if (moved := await asyncio.to_thread(_moved_to, scene, tree)) is not None:
        code, message = "worktree-moved", f"its worktree was moved to {moved}"
        advice = f"move it back: {shell('git', '-C', root, 'worktree', 'move', '-f', '-f', moved, tree)}"
    elif session.worktree_kind != WorktreeKind.OWN:
        advice = f"restore it by hand: Ramet did not create it\n{remove}"
    elif exists:
        lines = [f"create it again with the files that are there: {again}", await _files_again(scene, session), remove]
        advice = "\n".join(filter(None, lines))
        if not await asyncio.to_thread((tree / ".git").exists):
            # Without a path: with one, git expects the .git file that it should write.
            mend = shell("git", "-C", root, "worktree", "repair")
            advice = f"repair all worktrees of the repository: {mend}\n{advice}"
    else:
        repair = shell("git", "-C", root, "worktree", "repair")
        advice = f"if you moved it: {repair} NEW-PATH\n{await _again(scene, session, again)}\n{remove}"
    return Finding("error", code, name, session.id, message, advice)


async def _files_again(scene: Scene, session: Session) -> str:
    """Advice on restoring the files of the current checkpoint, "" without one."""
    stood = await scene.core.store.read(lambda reader: reader.checkpoints.current(session))
    if stood is None:
        return ""
    rewind = shell("rametctl", "rewind", session.name, str(stood.number), "--files-only")
    return f"then, if files are missing, restore those of checkpoint {stood.number}, its last: {rewind}"


async def _again(scene: Scene, session: Session, again: str) -> str:
    """Advice on creating a deleted worktree again, with the files of the current checkpoint unless
    the branch has moved."""
    stood = await scene.core.store.read(lambda reader: reader.checkpoints.current(session))
    if stood is None:
        return f"create it again from its branch: {again}"
    if scene.inventory.tips.get(session.branch, stood.head) == stood.head:
        return f"create it again with the files of checkpoint {stood.number}, its last: {again}"
    rewind = shell("rametctl", "rewind", session.name, str(stood.number), "--files-only")
    return f"create it again from its branch: {again}\nthen restore the files of checkpoint {stood.number}, its last: {rewind}"


def _moved_to(scene: Scene, tree: Path) -> Path | None:
    """Path of the worktree according to git, if it exists elsewhere; blocks."""
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
        message = f"branch {branch} is at {gone[:12]}, which git no longer has; its worktree may still have the work"
        advice = (
            f"fetch that commit from another copy of the repository: {shell('git', '-C', root, 'fetch')} OTHER-COPY {gone}\n"
            f"or move the branch to the last known commit before it, with all files as changes: {shell('git', '-C', root, 'update-ref', f'refs/heads/{branch}', begun)}"
        )
        yield Finding("error", "branch-missing", session.name, session.id, message, advice)
        return
    if branch not in scene.inventory.tips:
        message = f"branch {branch} is gone; its worktree may still have the work"
        advice = f"create it again: {await _make_branch(scene, session)}"
        yield Finding("error", "branch-missing", session.name, session.id, message, advice)
        return
    git_dir = await asyncio.to_thread(existing_git_dir, tree)
    busy = await asyncio.to_thread(busy_with, git_dir) if git_dir is not None else ""
    endings = "\nor undo it: ".join(ending_commands(tree, busy)) if busy else ""
    look = f"look at it: {shell('git', '-C', tree, 'status')}"
    place = scene.inventory.checked_out.get(branch)
    if place is not None and await asyncio.to_thread(lambda: place.resolve() == tree.resolve()):
        if busy and session.state not in BUSY_STATES:
            message = f"{busy} is unfinished in {tree}"
            yield Finding(
                "warning", "git-unfinished", session.name, session.id, message, f"{look}\nfinish it: {endings}"
            )
        return
    where = f"is checked out at {place}" if place is not None else "is checked out nowhere"
    message = f"branch {branch} {where}, not in the session's worktree"
    if busy:
        # Until then git refuses to switch.
        message = f"{message}: {busy} is unfinished there"
        again = f"finish it: {endings}"
    else:
        again = f"check the branch out there: {shell('git', '-C', tree, 'switch', branch)}"
    advice = f"{look}\n{again}"
    yield Finding("warning", "branch-not-checked-out", session.name, session.id, message, advice)


async def _make_branch(scene: Scene, session: Session) -> str:
    """Command that creates a deleted branch again at the worktree's commit."""
    entry: Registration | None = None
    for each in scene.inventory.registrations:
        if each.admin_dir.name == session.worktree.name:
            entry = each
    if entry is None or entry.branch != session.branch:
        return shell("git", "-C", session.worktree, "switch", "-c", session.branch)
    # HEAD names the deleted branch, so a new branch would begin without history: name the commit.
    begun, _ = await scene.core.store.read(lambda reader: last_known(reader, session))
    commit = await scene.core.git.worktrees.last_checked_out(entry) or begun
    return shell("git", "-C", scene.info.root, "branch", session.branch, commit)


def _has_link(folder: Path, worktree: Path) -> bool:
    return folder.is_dir() and any(
        link.is_symlink() and link.readlink().name == worktree.name for link in folder.iterdir()
    )


LONG_S = 600.0


async def unfinished(
    core: Core, repo: Repo | None, checked: Counter[str], since: float, recovering: AbstractSet[str]
) -> AsyncIterator[Finding]:
    """Find unfinished operations. ``since`` is the start of the daemon, which failed to recover
    older ones, except of sessions that it is still ``recovering``."""
    for operation, session in await core.store.read(_pending):
        if session is None or (repo is not None and session.repo_id != repo.id):
            continue
        checked["unfinished steps"] += 1
        noun, again = operation.traits.noun, retry_advice(operation, session)
        age = core.clock() - operation.create_time
        if why := why_unfinished(operation):
            message, severity = why, "error"
        elif operation.create_time < since and session.id in recovering:
            message, severity = f"its {noun} was interrupted, and resumed when the daemon started", "info"
            again = "wait for it; `rametctl daemon logs` shows its progress"
        elif operation.create_time < since:
            message, severity = (
                f"its {noun} was interrupted, and the daemon could not finish it when it started",
                "error",
            )
        elif age > LONG_S:
            message, severity = f"its {noun} has taken {plural(round(age / 60), 'minute')}", "warning"
            again = "if it makes no progress, " + again
        else:
            continue
        yield Finding(severity, operation.traits.code, session.name, session.id, message, again)


def _pending(reader: Reader) -> list[tuple[Operation, Session | None]]:
    return [(operation, session_of(reader, operation)) for operation in reader.operations.all_exclusive()]


def retry_advice(operation: Operation, session: Session) -> str:
    """Return the advice for a retry, after the cause is fixed."""
    if operation.kind == Kind.RESTORE and operation.data.get("origin") == TRASH:
        return f"retry: {shell('rametctl', 'trash', 'restore', session.id)}"
    if operation.traits.retry:
        return f"retry: {shell('rametctl', *operation.traits.retry, session.name)}"
    return "the daemon retries when it starts: rametctl daemon restart"


async def agents(
    core: Core, supervisor: Supervisor, repo: Repo | None, checked: Counter[str]
) -> AsyncIterator[Finding]:
    """Check agents of one repository, or of all."""
    alive = await core.store.read(
        lambda reader: [(agent, reader.sessions.get(agent.session_id)) for agent in reader.agents.alive()]
    )
    with_agent = {session.id for _, session in alive}
    for agent, session in alive:
        if repo is not None and session.repo_id != repo.id:
            continue
        checked["agents"] += 1
        if agent.state != AgentState.LIVE:
            continue
        recovered = await core.executor.recover(Handle(agent.handle))
        if recovered.liveness != Liveness.ALIVE and session.id not in core.live:
            generation = agent.generation

            async def lose(session: Session = session, generation: int = generation) -> None:
                await core.store.write(lambda unit: _lose(core, unit, session, generation))
                await supervisor.after_end(session.id)

            message = "its agent is recorded as alive, but is not"
            yield Finding("error", "agent-gone", session.name, session.id, message, "doctor --fix marks it lost", lose)
    busy = await core.store.read(lambda reader: reader.sessions.list(states=BUSY_STATES))
    for session in busy:
        if session.id not in with_agent and (repo is None or session.repo_id == repo.id):
            message = f"it is {session.state} without an agent"
            stop, resume = shell("rametctl", "stop", session.name), shell("rametctl", "resume", session.name)
            yield Finding(
                "error", "agent-missing", session.name, session.id, message, f"start it again: {stop} && {resume}"
            )


def _lose(core: Core, unit: Unit, session: Session, generation: int) -> None:
    endings.record_end(
        unit,
        core.kind(session.agent),
        session.id,
        generation,
        record=None,
        stderr_tail="",
        unterminated=b"",
        max_resumes=core.config.agents.max_resumes,
    )


async def keepers(core: Core, checked: Counter[str]) -> AsyncIterator[Finding]:
    """Find directories of keepers without a session."""
    handles = await asyncio.to_thread(core.executor.discover)
    known = await core.store.read(lambda reader: known_ids(reader, trash=False))
    for handle in handles:
        place = Place.from_handle(handle)
        checked["keepers"] += 1
        if place.session in known:
            continue
        state = (await core.executor.recover(handle)).liveness
        gone = state in {Liveness.EXITED, Liveness.UNKNOWN}

        async def destroy(handle: Handle = handle) -> None:
            await core.executor.destroy(handle)

        message = f"no session has the agent of {place.path}" + ("" if gone else ", and it is alive")
        advice = "doctor --fix removes the directory" if gone else "look at it with ps, and end it by hand"
        severity = "info" if gone else "error"
        yield Finding(severity, "agent-unknown", place.name, place.session, message, advice, destroy if gone else None)
