"""`rametctl gc` as a person types it: its repositories, its plan, and that it does exactly that."""

import shutil
from pathlib import Path

import pytest
from ramet.v1 import session_pb2

from tests.support.agents import script
from tests.support.daemon import IDLE, DaemonProcess, connected, git
from tests.support.doctor import record_former_ids
from tests.support.eventually import eventually

pytestmark = pytest.mark.full

EVERYWHERE = "rametctl: not in a repository: all repositories\n"
GONE = "was gone already; if it was moved by hand, bring the session back and move its files, which stay where they are, into its place"


def leave_behind(repository: Path, tree: Path) -> None:
    """Create a branch and a ref of a session that no longer exists, whose commits other branches
    have."""
    message = f"ramet: made for {tree.parent / 'aaaaaaa4'}"
    git(repository, "update-ref", "--create-reflog", "-m", message, "refs/heads/ramet/old", "main")
    git(repository, "update-ref", "refs/ramet/checkpoints/aaaaaaa5/1", "main")


def left(repository: Path) -> list[str]:
    left_behind = ("refs/heads/ramet/old", "refs/ramet/checkpoints/aaaaaaa5")
    return git(repository, "for-each-ref", "--format=%(refname)", *left_behind).splitlines()


async def test_gc_is_about_this_repository_and_its_last_line_says_what_it_would_do(
    daemon: DaemonProcess, repository: Path
) -> None:
    sandbox = daemon.sandbox
    other, third = sandbox.repository("other shop"), sandbox.repository("third")
    record_former_ids(sandbox, "aaaaaaa4", "aaaaaaa5")
    async with connected(sandbox) as client:
        for each in (repository, other):
            leave_behind(each, Path((await client.create(each, name="kept")).worktree))

    def gc(*arguments: str, cwd: Path, said: str = "") -> list[str]:
        done = sandbox.ctl("gc", *arguments, cwd=cwd)
        assert (done.code, done.stderr) == (0, said), done
        return done.stdout.splitlines()

    here = gc(cwd=repository / "dir0")
    assert here[0] == "repo"
    assert "other shop" not in here
    assert here[-1] == "rametctl gc --yes would delete 1 branch and 1 ref in repo"
    named = gc("--repo", "other shop", cwd=repository)
    assert named[0] == "other shop"
    assert named[-1] == "rametctl gc --yes --repo 'other shop' would delete 1 branch and 1 ref in other shop"
    assert gc(cwd=third) == ["nothing to remove in this repository"]
    everywhere = gc("--dry-run", cwd=sandbox.root, said=EVERYWHERE)
    assert [line for line in everywhere if line in {"repo", "other shop"}] == ["other shop", "repo"]
    assert everywhere[-1] == (
        "rametctl gc --yes would delete 1 branch and 1 ref in other shop, delete 1 branch and 1 ref in repo"
    )
    assert len(left(repository)) == len(left(other)) == 2

    assert gc("--yes", cwd=repository)[-1] == "deleted 1 branch and 1 ref in repo"
    assert (left(repository), len(left(other))) == ([], 2)
    assert gc("--yes", cwd=repository)[-1] == "nothing was removed"
    assert gc(cwd=repository)[-1] == "nothing to clear"
    assert sandbox.ctl("gc", "--json", cwd=third).json == []
    assert gc("--yes", cwd=sandbox.root, said=EVERYWHERE)[-1] == "deleted 1 branch and 1 ref in other shop"
    assert left(other) == []


async def test_in_a_worktree_it_is_about_its_repository(daemon: DaemonProcess, repository: Path) -> None:
    async with connected(daemon.sandbox) as client:
        tree = Path((await client.create(repository, name="kept")).worktree)
        await client.create(daemon.sandbox.repository("other"), name="elsewhere")
    listed = daemon.sandbox.ctl("gc", cwd=tree).stdout
    assert ("kept" in listed, "elsewhere" in listed) == (True, False)


async def test_verbs_that_remove_several_show_the_warnings(daemon: DaemonProcess, repository: Path) -> None:
    sandbox = daemon.sandbox
    (repository / "plan.toml").write_text('[[threads]]\nid = "planned"\ngoal = "g"\nowns = ["planned.txt"]\n')
    assert sandbox.ctl("plan", "apply", cwd=repository).code == 0
    async with connected(sandbox) as client:
        await client.create(repository, script({"text": "done"}), name="alone")
        await client.reach("alone", IDLE)

        async def turned() -> bool:
            return (await client.get("alone")).turns > 0

        await eventually(turned)
        await client.sessions.StopSession(session_pb2.StopSessionRequest(session="alone"))
        trees = {name: Path((await client.get(name)).worktree) for name in ("alone", "planned")}
        for name, tree in trees.items():
            (tree / f"{name}.txt").write_text("work\n")
            git(tree, "add", "-A")
            git(tree, "commit", "-qm", name)
            git(repository, "merge", "-q", "--no-edit", git(tree, "branch", "--show-current"))
            shutil.rmtree(tree)

    for verb, name in ((("plan", "cleanup"), "planned"), (("gc", "--yes"), "alone")):
        dry = verb[:-1] if verb[0] == "gc" else verb
        foretold = sandbox.ctl(*dry, "--dry-run", cwd=repository)
        assert (foretold.code, foretold.stderr) == (0, ""), foretold
        done = sandbox.ctl(*verb, cwd=repository)
        assert (done.code, done.stderr) == (0, f"rametctl: {name}: {trees[name]} {GONE}\n"), done
        assert sandbox.ctl("trash", "ls", cwd=repository).stdout.count(name) >= 1
