"""Submodules that land: only published commits, and checks that see the files of the commit."""

from pathlib import Path

import pytest

from tests.support.daemon import Client, Sandbox, git
from tests.support.landing import HELD, LANDED, Landings, commit

pytestmark = pytest.mark.own_changes


async def test_an_unpublished_submodule_commit_does_not_land(
    client: Client, landings: Landings, sandbox: Sandbox
) -> None:
    path, lib = sandbox.repository("super"), sandbox.repository("lib")
    git(lib, "checkout", "-q", "--detach")
    git(path, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(lib), "lib")
    git(path, "commit", "-qm", "lib")
    git(path, "checkout", "-q", "--detach")
    session = await client.create(path, name="one", base_ref="main")
    inner = Path(session.worktree) / "lib"
    (inner / "new.txt").write_text("new\n")
    git(inner, "add", "-A")
    git(inner, "commit", "-qm", "inner")
    tip, before = commit(session), git(path, "rev-parse", "main")

    await landings.land("one", check=["cat lib/new.txt"])
    held = (await landings.wait("one"))["one"]

    assert held.state == HELD
    assert f"`git -C {inner} push origin " in held.reason
    assert git(path, "rev-parse", "main") == before
    git(inner, "push", "-q", "origin", "HEAD:refs/heads/topic")
    await landings.retry("one")
    landed = (await landings.wait("one"))["one"]
    assert landed.state == LANDED, landed.reason
    assert git(path, "rev-parse", "main:lib") == git(Path(session.worktree), "rev-parse", f"{tip}:lib")
