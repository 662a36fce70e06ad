"""Carried files: a person's changes of them stay, and none is ever committed."""

from pathlib import Path

import pytest
from rametd.git import Git

from tests.support import repositories
from tests.support.daemon import connected, daemon_process, git, make_sandbox
from tests.support.eventually import eventually

pytestmark = pytest.mark.full


async def test_trust_and_a_restart_leave_alone_what_a_person_made_of_carried_files() -> None:
    with make_sandbox() as sandbox, daemon_process(sandbox) as daemon:
        path = sandbox.repository()
        (path / ".gitignore").write_text(".env*\n")
        (path / ".worktreeinclude").write_bytes(b"\xef\xbb\xbf.env*\r\n")  # as an editor on Windows writes it
        git(path, "add", "-A")
        git(path, "commit", "-qm", "ignore")
        (path / ".env").write_text("DATABASE=main\n")
        (path / ".env.old").write_text("main\n")
        async with connected(sandbox) as client:
            await client.trust(path)
            tree = Path((await client.create(path, name="one")).worktree)
            await eventually(lambda: (tree / ".env.old").exists() and (tree / ".env").exists())
            admin = Path(git(tree, "rev-parse", "--absolute-git-dir"))
            await eventually((admin / "ramet-carried").exists)
            (tree / ".env").write_text("DATABASE=my own\n")
            (tree / ".env.old").unlink()
            (path / ".env").write_text("DATABASE=main, newer\n")
            (path / ".env.at-trust").touch()
            await client.trust(path)
            await eventually((tree / ".env.at-trust").exists)
        (path / ".env.at-restart").touch()
        daemon.restart()
        await eventually((tree / ".env.at-restart").exists)
        assert (tree / ".env").read_text() == "DATABASE=my own\n"
        assert not (tree / ".env.old").exists()


async def test_carry_overwrites_no_tracked_file_and_writes_only_where_it_is_ignored() -> None:
    with make_sandbox() as sandbox, daemon_process(sandbox):
        path = sandbox.repository()
        git(path, "checkout", "-q", "-b", "other")
        (path / ".env").write_text("EXAMPLE=1\n")
        git(path, "add", "-A")
        git(path, "commit", "-qm", "example")
        git(path, "checkout", "-q", "main")
        (path / ".gitignore").write_text(".env*\n")
        (path / ".worktreeinclude").write_text(".env*\n")
        git(path, "add", "-A")
        git(path, "commit", "-qm", "ignore")
        for name in (".env", ".env.local"):
            (path / name).write_text("SECRET\n")
        async with connected(sandbox) as client:
            await client.trust(path)
            tree = Path((await client.create(path, name="one", existing_branch="other")).worktree)

            async def warned() -> str:
                said = [each.warning.message for each in await client.log("one") if each.HasField("warning")]
                assert said
                return said[0]

            assert ".env, .env.local" in await eventually(warned)
        assert git(tree, "status", "--porcelain") == ""
        assert (tree / ".env").read_text() == "EXAMPLE=1\n"


async def test_ignore_rules_are_found_for_missing_paths(tmp_path: Path) -> None:
    environment = repositories.git_environment(tmp_path / "home")
    sample = repositories.plain(tmp_path / "repo", environment)
    sample.write(".gitignore", "*.env\nnode_modules/\n!kept.env\n")
    sample.write("tracked.env", "x")
    sample.write("conf", "x")
    sample.git("add", "-f", "tracked.env")
    sample.commit("rules")
    sample.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(sample.path), "sub")
    sample.git("rm", "-q", "--cached", "conf")
    asked = ("a.env", "deep/b.env", "kept.env", "tracked.env", "node_modules", "node_modules/", "sub/c.env", "é.env")
    here = Git(environment)
    ignored = await here.worktrees.ignored_among(sample.path, asked)
    await here.aclose()
    assert ignored == {"a.env", "deep/b.env", "node_modules/", "é.env"}
