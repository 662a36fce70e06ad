"""Kill the daemon before and after each change of a snapshot's ref: the next one reaches the same
result, with one event and no loss."""

import shutil
from pathlib import Path

import pytest

from tests.crash.scene import rows, work_in
from tests.crash.test_archive_failpoints import no_operations, worked_on
from tests.crash.test_failpoints import die_in
from tests.support.archiving import archive, remove, restore_trash
from tests.support.daemon import DaemonProcess, Sandbox, connected, git

pytestmark = pytest.mark.crash

WRAPPER = """#!/bin/sh
case " $* " in
    *" update-ref "*refs/ramet/trash/*|*" update-ref "*refs/ramet/archive/*) ;;
    *) exec {git} "$@" ;;
esac
echo x >> {folder}/changes
now=$(wc -l < {folder}/changes)
blow=$(cat {folder}/blow 2>/dev/null)
if [ "$blow" = "before $now" ]; then kill -KILL $PPID; exit 1; fi
{git} "$@"
code=$?
if [ "$blow" = "after $now" ]; then kill -KILL $PPID; fi
exit $code
"""


@pytest.fixture
def killed(sandbox: Sandbox) -> DaemonProcess:
    """Yield a daemon that is not started."""
    return DaemonProcess(sandbox)


class Blows:
    """Write a `git` that kills its daemon before or after a change of a ref."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        program = folder / "git"
        program.write_text(WRAPPER.format(git=shutil.which("git"), folder=folder))
        program.chmod(0o755)

    def aim(self, when: str) -> None:
        (self._folder / "changes").unlink(missing_ok=True)
        (self._folder / "blow").write_text(when)


CHANGES = 2
"""Check that the snapshot moves from the archive's ref to the trash's."""


async def test_removal_of_an_archived_session_survives_a_kill_around_each_ref_change(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path, tmp_path: Path
) -> None:
    blows = Blows(tmp_path / "blows")
    path = f"{tmp_path / 'blows'}:{sandbox.environ['PATH']}"
    for when in (f"{side} {number}" for number in range(1, CHANGES + 1) for side in ("before", "after")):
        killed.start(PATH=path)
        async with connected(sandbox) as client:
            made, tree = await worked_on(client, repository)
            was = work_in(tree)
            await archive(client, "one")
            tip = git(repository, "commit-tree", "-p", made.branch, "-m", "others", f"{made.branch}^{{tree}}")
            git(repository, "update-ref", f"refs/heads/{made.branch}", tip)
        blows.aim(when)
        await die_in(killed, sandbox, lambda client: remove(client, "one", force=True))
        blows.aim("")
        killed.start(PATH=path)

        await no_operations(sandbox)
        assert not tree.exists(), when
        ref = f"refs/ramet/trash/{made.id}"
        assert git(repository, "for-each-ref", "--format=%(refname)", "refs/ramet/trash", "refs/ramet/archive") == ref
        assert tip in git(repository, "rev-list", f"--glob=refs/ramet/commits/{made.id}").split(), when
        async with connected(sandbox) as client:
            (words,) = (await restore_trash(client, made.id)).warnings
            assert tip[:12] in words
            assert work_in(tree) == was, when
            await remove(client, "one", force=True)
        assert rows(sandbox, "SELECT id FROM sessions") == []
        git(repository, "update-ref", "-d", f"refs/ramet/trash/{made.id}")
        killed.stop()
