"""Repositories whose own refs are those of a remote: there `git fetch --prune` deletes sessions'
branches."""

from pathlib import Path

import pytest
from ramet.v1 import session_pb2, worktree_pb2

from tests.support.daemon import Client, Sandbox, git
from tests.support.doctor import diagnose, follow

pytestmark = pytest.mark.full


@pytest.mark.parametrize("how", ["--mirror", "refs/heads/*:refs/heads/*"], ids=["mirror", "branches alone"])
async def test_a_mirror_is_reported_and_its_advice_saves_the_branches(
    client: Client, sandbox: Sandbox, repository: Path, how: str
) -> None:
    clone = sandbox.root / "mirror.git"
    git(repository, "clone", "-q", "--mirror", str(repository), str(clone))
    if how != "--mirror":
        git(clone, "config", "remote.origin.fetch", f"+{how}")

    request = session_pb2.CreateSessionRequest(path=str(clone), name="one", request_id="one")
    made = await client.sessions.CreateSession(request)

    (warning,) = [words for words in made.warnings if "mirrors origin" in words]
    assert "`git fetch --prune` would delete branches of sessions" in warning
    checkpoint = worktree_pb2.CreateCheckpointRequest(session="one")
    checkpoint_made = (await client.worktrees.CreateCheckpoint(checkpoint)).checkpoint
    found = (await diagnose(client))["origin"]
    assert (found.code, found.severity) == ("remote-mirrored", "warning")
    await follow(sandbox, clone, found.advice, "fetch its branches beside yours")
    git(clone, "fetch", "-q", "--prune")
    refs = git(clone, "for-each-ref", "--format=%(refname)").splitlines()
    assert {checkpoint_made.ref, f"refs/heads/{made.session.branch}"} <= set(refs)
    assert "origin" not in await diagnose(client)


async def test_a_clone_that_has_the_branches_of_its_remote_beside_its_own_is_none(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    clone = sandbox.root / "clone"
    git(repository, "clone", "-q", str(repository), str(clone))
    made = await client.sessions.CreateSession(
        session_pb2.CreateSessionRequest(path=str(clone), name="one", request_id="one")
    )
    assert not made.warnings
    assert "origin" not in await diagnose(client)
