"""Every destructive verb writes a snapshot to disk before it removes the original, so a power cut
leaves one of the two.

No power is cut here. The test records everything that the daemon has made durable at each moment:
refs, and the files of a worktree.
"""

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from ramet.v1 import session_pb2, worktree_pb2
from rametd.domain.errors import GitFailedError
from rametd.git.registrations import REASON
from rametd.git.snapshots.shelf import shelf_of
from rametd.platform import files as durability
from rametd.services import events
from rametd.services.worktrees.checkpoints import Flusher

from tests.support.agents import script
from tests.support.archiving import archive, remove, restore, restore_trash
from tests.support.daemon import IDLE, Client, Sandbox, connected, daemon_here, git, reason_of
from tests.support.doctor import record_former_ids
from tests.support.eventually import eventually
from tests.support.landing import Landings, commit
from tests.support.rows import a_repo, a_session

pytestmark = pytest.mark.full


@dataclass(frozen=True)
class Moment:
    """The state that a power cut would leave."""

    refs: dict[str, str]
    files: dict[str, bytes]


@dataclass
class Disk:
    """Wraps the call that syncs the disk."""

    repository: Path
    tree: Path = Path()
    failing: bool = False
    moments: list[Moment] = field(default_factory=list)

    def look(self, *, shelf: bool = False) -> Moment:
        """Record refs, and the files of the worktree; with ``shelf`` also of the shelf, as the disk
        may not have the rename yet."""
        tree = shelf_of(self.tree) if shelf and not self.tree.exists() else self.tree
        refs = git(self.repository, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        files = [path for path in tree.rglob("*") if path.is_file() and path.name != ".git"]
        contents = {str(path.relative_to(tree)): path.read_bytes() for path in files}
        return Moment(dict(line.split(" ") for line in refs), contents)


@pytest.fixture
def disk(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    found = Disk(repository)
    make_durable = durability.make_durable

    def recorded(*places: Path) -> None:
        if found.failing:
            raise OSError(5, "Input/output error", str(places[0]))
        make_durable(*places)
        found.moments.append(found.look(shelf=True))

    monkeypatch.setattr(durability, "make_durable", recorded)
    return found


@pytest.fixture
async def client(sandbox: Sandbox, disk: Disk) -> AsyncIterator[Client]:
    async with daemon_here(sandbox), connected(sandbox) as client:
        yield client


async def checkpoint(client: Client) -> worktree_pb2.Checkpoint:
    return (await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session="one"))).checkpoint


async def made(client: Client, disk: Disk) -> session_pb2.Session:
    session = await client.create(disk.repository, name="one")
    disk.tree = Path(session.worktree)
    (disk.tree / "work.txt").write_text("an hour of work\n")
    return session


Scene = tuple[str, Callable[[], Awaitable[object]]]
"""The ref that must be durable together with the files before the verb, or after it, and the
verb."""


async def removed(client: Client, disk: Disk) -> Scene:
    session = await made(client, disk)
    return f"refs/ramet/trash/{session.id}", lambda: remove(client, "one", force=True)


async def archived(client: Client, disk: Disk) -> Scene:
    session = await made(client, disk)
    return f"refs/ramet/archive/{session.id}", lambda: archive(client, "one")


async def moved_to_the_trash(client: Client, disk: Disk) -> Scene:
    session = await made(client, disk)
    await archive(client, "one")
    return f"refs/ramet/archive/{session.id}", lambda: remove(client, "one", force=True)


async def restored(client: Client, disk: Disk) -> Scene:
    session = await made(client, disk)
    await archive(client, "one")
    return f"refs/ramet/archive/{session.id}", lambda: restore(client, "one")


async def back_from_the_trash(client: Client, disk: Disk) -> Scene:
    session = await made(client, disk)
    await remove(client, "one", force=True)
    return f"refs/ramet/trash/{session.id}", lambda: restore_trash(client, "one")


async def rewound(client: Client, disk: Disk) -> Scene:
    session = await made(client, disk)
    first = await checkpoint(client)
    (disk.tree / "work.txt").write_text("another hour of work\n")
    request = worktree_pb2.RewindSessionRequest(session="one", checkpoint=str(first.number))
    before = f"refs/ramet/checkpoints/{session.id}/{first.number + 1}"
    return before, lambda: client.worktrees.RewindSession(request)


async def synced(client: Client, disk: Disk) -> Scene:
    session = await made(client, disk)
    (disk.repository / "README.md").write_text("newer\n")
    git(disk.repository, "add", "-A")
    git(disk.repository, "commit", "-qm", "newer")
    request = worktree_pb2.SyncSessionRequest(session="one")
    return f"refs/ramet/checkpoints/{session.id}/1", lambda: client.worktrees.SyncSession(request)


async def landed(client: Client, disk: Disk) -> Scene:
    commit(await made(client, disk), **{"work.txt": "an hour of work\n"})
    landings = Landings(client)

    async def land() -> None:
        await landings.land("one")
        await landings.wait("one")

    return "refs/heads/main", land


async def collected_worktree(client: Client, disk: Disk) -> Scene:
    session = await made(client, disk)
    commit(session, **{"work.txt": "an hour of work\n"})
    git(disk.repository, "merge", "-q", "--ff-only", session.branch)
    stray = disk.tree.with_name("aaaaaaa4")
    git(disk.repository, "worktree", "add", "-q", "--lock", "--reason", REASON, "--detach", str(stray), "main")
    disk.tree = stray
    request = worktree_pb2.CollectGarbageRequest(dry_run=False)
    return "refs/ramet/trash/aaaaaaa4", lambda: client.worktrees.CollectGarbage(request)


async def collected_ref(client: Client, disk: Disk) -> Scene:
    await made(client, disk)
    git(disk.repository, "update-ref", "refs/ramet/checkpoints/aaaaaaa5/1", "main")
    request = worktree_pb2.CollectGarbageRequest(dry_run=False)
    return "refs/ramet/checkpoints/aaaaaaa5/1", lambda: client.worktrees.CollectGarbage(request)


async def collected_branch(client: Client, disk: Disk) -> Scene:
    gone = (await made(client, disk)).worktree.replace(disk.tree.name, "aaaaaaa6")
    words = f"ramet: made for {gone}"
    git(disk.repository, "update-ref", "--create-reflog", "-m", words, "refs/heads/ramet/old", "main")
    disk.tree = Path(gone)
    request = worktree_pb2.CollectGarbageRequest(dry_run=False)
    return "refs/heads/ramet/old", lambda: client.worktrees.CollectGarbage(request)


DESTROYS = [
    removed,
    archived,
    moved_to_the_trash,
    restored,
    back_from_the_trash,
    rewound,
    synced,
    landed,
    collected_worktree,
    collected_ref,
    collected_branch,
]


@pytest.mark.parametrize("scene", DESTROYS, ids=lambda scene: scene.__name__.replace("_", " "))
async def test_a_snapshot_is_durable_before_its_source_is_removed(
    client: Client, sandbox: Sandbox, disk: Disk, scene: Callable[[Client, Disk], Awaitable[Scene]]
) -> None:
    record_former_ids(sandbox, "aaaaaaa4", "aaaaaaa5", "aaaaaaa6")
    ref, verb = await scene(client, disk)
    before = disk.look()
    disk.moments.clear()

    await verb()

    whole = before.files or disk.look(shelf=True).files
    assert any(ref in moment.refs and moment.files == whole for moment in disk.moments), disk.moments
    after = disk.look()
    assert not after.files or any(moment.files == after.files for moment in disk.moments), "the leftovers are not"
    assert (after.refs, after.files) != (before.refs, before.files), "it has destroyed nothing"


async def test_a_turn_ends_without_a_wait_for_the_disk_and_its_checkpoint_is_durable_soon(
    client: Client, disk: Disk
) -> None:
    session = await client.create(disk.repository, script({"text": "done"}), name="one")
    await client.reach("one", IDLE)

    async def has_checkpoint() -> bool:
        return any(f"refs/ramet/checkpoints/{session.id}/2" in moment.refs for moment in disk.moments)

    await eventually(has_checkpoint)


async def test_only_sessions_whose_place_cannot_be_synced_are_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    warned: list[str] = []

    async def make_durable(common_dir: Path, *worktrees: Path) -> None:
        if Path("/closed/two") in worktrees:
            raise GitFailedError("/closed: Permission denied")
        synced.extend(worktrees)

    async def read(work: Callable[[Any], Any]) -> Any:
        return work(SimpleNamespace(repos=SimpleNamespace(get=lambda repo_id: a_repo())))

    async def write_for_sure(work: Callable[[Any], Any]) -> Any:
        return work(None)

    monkeypatch.setattr(events, "warn", lambda unit, session, words: warned.append(session.id))
    store = SimpleNamespace(read=read, write_for_sure=write_for_sure)
    core: Any = SimpleNamespace(store=store, git=SimpleNamespace(make_durable=make_durable))
    flusher = Flusher(core)

    for session_id, worktree in (("one", "/open/one"), ("two", "/closed/two"), ("three", "/open/three")):
        flusher.soon(a_session(session_id, worktree=Path(worktree)))
    await flusher.close()

    assert warned == ["two"]
    assert synced == [Path("/open/one"), Path("/open/three")]


@pytest.mark.parametrize("scene", [removed, archived, synced], ids=lambda scene: scene.__name__)
async def test_a_disk_that_fails_ends_a_verb_before_it_destroys_anything(
    client: Client, disk: Disk, scene: Callable[[Client, Disk], Awaitable[Scene]]
) -> None:
    _, verb = await scene(client, disk)
    before = disk.look()
    disk.failing = True

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await verb()

    assert reason_of(refused.value) == "GIT_FAILED"
    assert "Input/output error" in (refused.value.details() or "")
    assert disk.look().files == before.files
    disk.failing = False
    await remove(client, "one", force=True)
    assert not disk.tree.exists()
    await restore_trash(client, "one")
    assert disk.look().files == before.files


def test_a_place_that_is_not_there_counts_for_the_directory_that_it_would_be_in(tmp_path: Path) -> None:
    gone = tmp_path / "one" / "two"
    gone.mkdir(parents=True)
    shutil.rmtree(tmp_path / "one")
    durability.make_durable(gone, tmp_path)
