"""Changes of a session: the compared states, the comparison, and its messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ramet.v1 import worktree_pb2

from rametd.domain.checkpoints import Checkpoint, CheckpointReason
from rametd.domain.errors import (
    AmbiguousError,
    CheckpointNotFoundError,
    InvalidInputError,
    NotFoundError,
    RefNotFoundError,
    WrongStateError,
)
from rametd.domain.models import Session, WorktreeKind
from rametd.domain.states import State
from rametd.domain.text import utf8
from rametd.git import ARCHIVE, Diff, DiffOptions, FileChange
from rametd.services.core import Core
from rametd.services.lookup import find_session
from rametd.services.messages import to_message
from rametd.services.missing import require_tree
from rametd.services.repos import info_of
from rametd.services.worktrees.history import find_checkpoint
from rametd.store import Reader

KINDS = {
    "added": worktree_pb2.CHANGE_KIND_ADDED,
    "modified": worktree_pb2.CHANGE_KIND_MODIFIED,
    "deleted": worktree_pb2.CHANGE_KIND_DELETED,
    "renamed": worktree_pb2.CHANGE_KIND_RENAMED,
    "copied": worktree_pb2.CHANGE_KIND_COPIED,
    "typechange": worktree_pb2.CHANGE_KIND_TYPE_CHANGED,
}
SHORT = 7
"""A number of at least this many digits is more likely a commit than a checkpoint."""
NAMED = 3
"""Files that one warning names."""


@dataclass(frozen=True, slots=True)
class Against:
    """The old side of a comparison. ``tree``: a commit or a tree. ``commit``: "" if the files are
    in no commit."""

    tree: str
    commit: str


def change_message(change: FileChange) -> worktree_pb2.FileChange:
    return to_message(
        worktree_pb2.FileChange,
        change,
        path=utf8(change.path),
        old_path=utf8(change.old_path or ""),
        kind=KINDS[change.status],
        old_blob=change.blobs[0],
        blob=change.blobs[1],
    )


def warnings_of(diff: Diff) -> list[str]:
    """Warnings about files that the diff does not show."""
    words = [f"could not be read: {line}" for line in diff.skipped]
    large = [file.path for file in diff.files if file.too_large]
    if large:
        names = ", ".join(large[:NAMED]) + (", …" if len(large) > NAMED else "")
        words.append(f"too large to be shown: {names}")
    if diff.cut and diff.patch is not None:
        words.append(f"too long to be shown in full: the patch is cut after {len(diff.patch):,} bytes")
    return words


async def against(core: Core, session: Session, name: str, *, sessions: bool = True) -> Against:
    """Find the old side of a comparison by its name.

    "" or "base" is the start of the session; for a session in place, the person's files at that
    time. "target" is the merge base with the target branch. Any other name is a checkpoint, another
    session (its present files), or a ref. Raises `RefNotFoundError` and what finding a session
    raises.
    """
    if name in {"", "base"}:
        return await _start(core, session)
    checkpoint, other = await core.store.read(lambda reader: _named(reader, session, name, sessions=sessions))
    if checkpoint is not None:
        return Against(checkpoint.tree, checkpoint.tree)
    if other is not None:
        if other.repo_id != session.repo_id:
            raise InvalidInputError(
                f"{other.name} works in another repository", hint="compare sessions of one repository"
            )
        return await files_of(core, other)
    info = await info_of(core, session)
    if name == "target":
        parted = await core.git.commits.merge_base(info, session.base_ref or session.base_commit, session.branch)
        return Against(parted or session.base_commit, parted or session.base_commit)
    if name.startswith("refs/ramet/") and (snapshot := await core.git.snapshots.read(info, name)) is not None:
        return Against(snapshot.files, snapshot.files)
    try:
        commit = (await core.git.branches.resolve_base(info, name, None)).commit
    except (RefNotFoundError, AmbiguousError) as error:
        found = await core.store.read(lambda reader: _checkpoint(reader, session, name))
        if found is None and name.isascii() and name.isdigit() and len(name) < SHORT:
            raise CheckpointNotFoundError(
                f"{session.name} has no checkpoint {name}, and it is no ref",
                hint=f"`rametctl checkpoints {session.reference}` shows them",
            ) from error
        if found is None:
            raise
        commit = found.tree
    return Against(commit, commit)


async def _start(core: Core, session: Session) -> Against:
    if session.worktree_kind == WorktreeKind.IN_PLACE:
        first = await core.store.read(lambda reader: reader.checkpoints.by_number(session.id, 1))
        if first is not None and first.reason == CheckpointReason.START and first.head == session.base_commit:
            return Against(first.tree, "")
    return Against(session.base_commit, session.base_commit)


def _named(reader: Reader, session: Session, name: str, *, sessions: bool) -> tuple[Checkpoint | None, Session | None]:
    """Find a checkpoint by number or full id, or a session by name or full id. Prefixes of ids look
    like short hashes, so refs have precedence over them."""
    checkpoint = _checkpoint(reader, session, name)
    if checkpoint is not None and name in {checkpoint.id, str(checkpoint.number)}:
        return checkpoint, None
    if not sessions or name == "target":
        return None, None
    try:
        other = find_session(reader, name, repo_id=session.repo_id)
    except NotFoundError:
        return None, None
    exact = name in {other.id, other.name} or name.endswith(f"/{other.name}")
    return None, other if exact else None


def _checkpoint(reader: Reader, session: Session, name: str) -> Checkpoint | None:
    try:
        return find_checkpoint(reader, session, name)
    except NotFoundError:
        return None


async def files_of(core: Core, session: Session) -> Against:
    """The present files of a session, or those of its archive."""
    if session.state != State.ARCHIVED:
        await require_tree(core, session)
        return Against(await core.git.diffs.tree(session.worktree), "")
    if session.worktree_kind == WorktreeKind.OWN:
        info = await info_of(core, session)
        ref = f"{ARCHIVE}{session.id}"
        archived = await core.git.snapshots.read(info, ref)
        if archived is None:
            raise RefNotFoundError(
                f"{ref} with the work of {session.name} is gone",
                hint="`rametctl doctor` lists what is left and how to get it",
            )
        return Against(archived.files, archived.files)
    # Use the checkpoint: a worktree that Ramet did not create stays, and a person may have changed
    # it since.
    current = await core.store.read(lambda reader: reader.checkpoints.current(session))
    if current is None:
        hint = f"restore it: `rametctl restore {session.reference}`"
        raise WrongStateError(f"{session.name} is archived and has no checkpoint", hint=hint)
    return Against(current.tree, current.tree)


async def state_at(core: Core, session: Session, name: str) -> Against:
    """A session's present files (""), or another state of them, named as in `against`."""
    return await against(core, session, name) if name else await files_of(core, session)


async def compare(
    core: Core, session: Session, old: Against, *, until: str = "", patch: bool, max_patch: int, options: DiffOptions
) -> Diff:
    """Compare ``old`` with the state ``until`` of a session's files, "" for the present one."""
    if session.state != State.ARCHIVED and not until:
        await require_tree(core, session)
        return await core.git.diffs.of_worktree(
            session.worktree, old.tree, patch=patch, max_patch=max_patch, options=options
        )
    info = await info_of(core, session)
    new = await state_at(core, session, until)
    return await core.git.diffs.between(info, old.tree, new.tree, patch=patch, max_patch=max_patch, options=options)


def paths_inside(worktree: Path, paths: Sequence[str]) -> tuple[str, ...]:
    """Paths relative to the worktree; () for all. Raises `InvalidInputError` for a path outside of
    it."""
    inside: list[str] = []
    for path in paths:
        pure = PurePosixPath(path)
        if pure.is_absolute() and pure.is_relative_to(worktree):
            pure = pure.relative_to(worktree)
        if not path or "\0" in path or pure.is_absolute() or ".." in pure.parts:
            raise InvalidInputError(
                f"{path!r} is not a path in the worktree", hint="give it relative to the worktree's root"
            )
        if pure.parts:
            inside.append(str(pure))
        else:
            return ()
    return tuple(inside)
