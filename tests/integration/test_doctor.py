"""What doctor tells of what people and accidents did by hand: each kind by its code, and each advice does what it says."""

import asyncio
import json
import re
import shutil
import socket
import sqlite3
import subprocess
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from ramet.v1 import session_pb2, worktree_pb2
from rametd.git.registrations import REASON

from tests.support.daemon import Client, DaemonProcess, Sandbox, connected, daemon_here, git
from tests.support.eventually import eventually

DAY_S = 86400.0


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with daemon_here(sandbox), connected(sandbox) as client:
        yield client


async def diagnose(client: Client, *, fix: bool = False, repo: str = "") -> dict[str, worktree_pb2.Finding]:
    """By subject."""
    answer = await client.worktrees.Diagnose(worktree_pb2.DiagnoseRequest(fix=fix, repo=repo))
    return {found.subject: found for found in answer.findings}


def codes(found: dict[str, worktree_pb2.Finding]) -> dict[str, tuple[str, str]]:
    return {subject: (each.code, each.severity) for subject, each in found.items()}


async def garbage(client: Client, *, dry_run: bool = True) -> dict[str, worktree_pb2.Garbage]:
    answer = await client.worktrees.CollectGarbage(worktree_pb2.CollectGarbageRequest(dry_run=dry_run))
    return {item.name: item for item in answer.items}


def strangers(repository: Path, folder: Path) -> dict[str, Path]:
    """What somebody might leave where worktrees are made, beside a session's in ``folder``."""
    paths = {
        "by hand": folder / "by hand",
        "named like ours": folder / "aaaaaaa7",
        "in the root": folder.parent / "in-the-root",
        "plain": folder / "not an id",
        "empty": folder / "aaaaaaa8",
        "a repository": folder.parent / "stray",
    }
    for name in ("by hand", "named like ours", "in the root"):
        git(repository, "worktree", "add", "-q", "--detach", str(paths[name]))
    paths["plain"].mkdir()
    (paths["plain"] / "only.txt").write_text("here\n")
    paths["empty"].mkdir()
    paths["a repository"].mkdir()
    git(paths["a repository"], "init", "-q")
    (folder / "landing-0123456789").mkdir()  # named like a queue's own
    (folder / "link").symlink_to(repository)
    return paths


async def test_worktrees_and_directories_that_nothing_knows_of_are_told_and_left_alone(
    client: Client, repository: Path
) -> None:
    folder = Path((await client.create(repository, name="lives")).worktree).parent
    await client.sessions.DeleteSession(
        session_pb2.DeleteSessionRequest(session=(await client.create(repository, name="gone")).id)
    )
    paths = strangers(repository, folder)

    found = await diagnose(client)

    assert codes(found) == {
        str(paths["by hand"]): ("worktree-foreign", "warning"),
        str(paths["named like ours"]): ("worktree-foreign", "warning"),
        str(paths["in the root"]): ("worktree-foreign", "warning"),
        str(paths["plain"]): ("directory-unknown", "warning"),
        str(paths["empty"]): ("directory-unknown", "warning"),
        str(paths["a repository"]): ("directory-unknown", "warning"),
    }
    assert "it is a plain directory" in found[str(paths["plain"])].message
    assert f"mv '{paths['plain']}' NEW-PATH" in found[str(paths["plain"])].advice
    assert f"rametctl adopt '{paths['by hand']}'" in found[str(paths["by hand"])].advice
    assert found[str(paths["empty"])].advice == f"delete it: rmdir {paths['empty']}"
    assert "a repository of its own" in found[str(paths["a repository"])].message
    assert not any(each.fixable for each in found.values())

    assert codes(await diagnose(client, fix=True)) == codes(found)
    assert all(path.is_dir() for path in paths.values())
    assert (paths["plain"] / "only.txt").exists()

    await client.create(paths["by hand"], adopt_path=str(paths["by hand"]), name="adopted")
    shutil.rmtree(paths["in the root"])
    now = await diagnose(client)
    assert str(paths["by hand"]) not in now
    assert codes(now)[str(paths["in the root"])] == ("registration-foreign", "info")
    assert "worktree prune" in now[str(paths["in the root"])].advice


async def test_in_a_root_that_the_person_has_chosen_strangers_are_no_fault(sandbox: Sandbox) -> None:
    sandbox.configure(f'[worktrees]\nroot = "{sandbox.root}/mine"\n')
    repository = sandbox.repository("mine")  # it lies in that root itself, as its state directory might
    inner = sandbox.root / "mine" / "nested"
    inner.mkdir()
    async with daemon_here(sandbox), connected(sandbox) as client:
        folder = Path((await client.create(repository, name="lives")).worktree).parent
        own = {str(sandbox.root / "mine" / name) for name in ("dir0", "dir1", "dir2", ".git", "nested")}

        found = await diagnose(client)

        assert {subject: each.severity for subject, each in found.items()} == dict.fromkeys(
            own - {str(sandbox.root / "mine" / ".git")}, "info"
        )
        paths = strangers(repository, folder)
        (sandbox.root / "mine" / "more").mkdir()
        found = await diagnose(client)
        assert {each.severity for each in found.values()} == {"info"}
        root = found[str(sandbox.root / "mine")]  # one for many
        assert root.code == "directory-unknown"
        assert root.message == "6 directories in it are not Ramet's: dir0, dir1, dir2, more, nested, …"
        assert codes(found)[str(paths["by hand"])] == ("worktree-foreign", "info")


async def test_a_folder_of_a_repository_that_was_forgotten_goes_when_it_is_empty(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    await client.create(repository, name="lives")
    root = sandbox.root / "state" / "worktrees"
    for name in ("shop-aaaaaaa4", "shop-aaaaaaa5"):
        (root / name).mkdir(parents=True)
    (root / "shop-aaaaaaa5" / "x").write_text("work\n")

    found = await diagnose(client, fix=True)

    assert {Path(subject).name: (each.severity, each.fixed) for subject, each in found.items()} == {
        "shop-aaaaaaa4": ("info", True),
        "shop-aaaaaaa5": ("warning", False),
    }
    assert (root / "shop-aaaaaaa5" / "x").exists()
    assert not (root / "shop-aaaaaaa4").exists()


async def test_branches_of_sessions_that_are_no_more_are_told_as_gc_tells_them(
    client: Client, repository: Path
) -> None:
    folder = Path((await client.create(repository, name="lives")).worktree).parent
    await client.create(repository, name="binned")
    await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session="binned"))
    git(repository, "branch", "ramet/binned")  # what somebody made since belongs to what may come back
    own = git(repository, "commit-tree", "-p", "main", "-m", "own work", "main^{tree}")
    for branch, start in (
        ("ramet/landed", "main"),
        ("ramet/own", own),
        ("custom/of-ours", "main"),
        ("ramet/at-work", "main"),
    ):
        message = f"ramet: made for {folder / 'aaaaaaa4'}"
        git(repository, "update-ref", "--create-reflog", "-m", message, f"refs/heads/{branch}", start)
    git(repository, "branch", "ramet/forgotten", own)
    git(repository, "branch", "mine")
    git(repository, "worktree", "add", "-q", str(repository.parent / "elsewhere"), "ramet/at-work")

    found = await diagnose(client)

    branches = ("ramet/landed", "ramet/own", "custom/of-ours", "ramet/forgotten")
    assert codes(found) == dict.fromkeys(branches, ("branch-unknown", "info"))
    assert "rametctl gc --yes --repo repo" in found["ramet/landed"].advice
    assert "named like ours" in found["ramet/forgotten"].message
    git(repository, "branch", "-D", "ramet/forgotten")
    found = await diagnose(client, fix=True)
    assert "1 commit on no other branch" in found["ramet/own"].message
    assert f"git -C {repository} branch -D ramet/own" in found["ramet/own"].advice
    listed = {name: item.verdict for name, item in (await garbage(client)).items() if item.kind == "branch"}
    assert listed == {"ramet/landed": "orphaned", "custom/of-ours": "orphaned", "ramet/own": "kept"}
    assert {"ramet/own", "ramet/landed"} <= set(git(repository, "branch", "--format=%(refname:short)").split())


async def back_on_another_branch(client: Client, repository: Path, name: str) -> str:
    """Archive a session, have its branch go on meanwhile, and bring it back: its ref stays, with a warning. Returns the ref."""
    made = await client.create(repository, name=name)
    (Path(made.worktree) / "only.txt").write_text("uncommitted\n")
    await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session=name))
    moved = git(repository, "commit-tree", "-p", made.branch, "-m", "moved on", f"{made.branch}^{{tree}}")
    git(repository, "update-ref", f"refs/heads/{made.branch}", moved)
    return f"refs/ramet/archive/{made.id}"


def dated_back(sandbox: Sandbox, repository: Path, ref: str) -> str:
    """What a ref keeps, as if it had been kept years ago."""
    raw = git(repository, "cat-file", "commit", ref)
    who = "A Person <person@example.org> 1000000000 +0000"
    text = re.sub(r"^(author|committer) .*$", rf"\1 {who}", raw, flags=re.MULTILINE)
    file = sandbox.root / "commit"
    file.write_text(text + "\n")
    return git(repository, "hash-object", "-t", "commit", "-w", str(file))


async def test_what_a_restore_could_not_bring_back_is_told_until_it_expires_and_goes_then(
    sandbox: Sandbox, repository: Path
) -> None:
    async with daemon_here(sandbox), connected(sandbox) as client:
        ref = await back_on_another_branch(client, repository, "back")
        # It was put away long ago: what counts is when it came back.
        old = dated_back(sandbox, repository, ref)
        git(repository, "update-ref", ref, old)
        assert not await diagnose(client)
        restored = await client.sessions.RestoreSession(session_pb2.RestoreSessionRequest(session="back"))
        assert restored.warnings

        found = (await diagnose(client))[ref]

        assert (found.code, found.severity, found.fixable) == ("ref-still-kept", "info", False)
        assert found.session_id == restored.session.id
        assert restored.warnings[0] in found.message
        assert f"rametctl diff back --against {ref}" in found.advice
        assert "it goes by itself in 30 days" in found.advice
        told = await asyncio.to_thread(sandbox.ctl, "diff", "back", "--against", ref)
        assert told.code == 0, told
        item = (await garbage(client, dry_run=False))[ref]
        assert (item.verdict, item.removed) == ("kept", False)
        assert "could not bring back" in item.reason
        await diagnose(client, fix=True)
        assert git(repository, "rev-parse", ref) == old
        recent, needed = [await back_on_another_branch(client, repository, name) for name in ("recent", "again")]
        for name in ("recent", "again"):
            await client.sessions.RestoreSession(session_pb2.RestoreSessionRequest(session=name))
        await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session="again"))
    with closing(sqlite3.connect(sandbox.root / "state" / "ramet.db", timeout=10)) as database, database:
        database.execute(
            "UPDATE events SET time = time - ? WHERE kind = 'session_restored' AND session_id != ?",
            (31 * DAY_S, recent.rpartition("/")[2]),
        )

    async with daemon_here(sandbox), connected(sandbox) as client:

        async def gone() -> bool:
            return not git(repository, "for-each-ref", ref)

        await eventually(gone)
        assert codes(await diagnose(client)) == {recent: ("ref-still-kept", "info")}
        assert git(repository, "for-each-ref", recent)
        assert git(repository, "for-each-ref", needed)
        await client.sessions.RestoreSession(session_pb2.RestoreSessionRequest(session="again"))
        assert (Path((await client.get("again")).worktree) / "only.txt").read_text() == "uncommitted\n"


def begin(sandbox: Sandbox, kind: str, session_id: str, **data: str) -> None:
    """An intent as a removal or the like leaves it that did not get to its end."""
    with closing(sqlite3.connect(sandbox.root / "state" / "ramet.db", timeout=10)) as database, database:
        database.execute(
            "INSERT INTO intents (id, kind, session_id, data, create_time) VALUES (?, ?, ?, ?, 1.0)",
            (f"{kind[:3]}{session_id[:5]}", kind, session_id, json.dumps(data)),
        )


async def test_what_was_begun_with_a_session_and_not_finished_is_told_with_the_way_on(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    made = {name: await client.create(repository, name=name) for name in ("half gone", "cut", "back", "whole")}
    await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session="back"))
    caller = {"principal": "owner", "request_id": "", "digest": ""}
    why = "its removal could not be finished: no space left on device; `rametctl rm 'half gone'` tries again"
    begin(sandbox, "delete", made["half gone"].id, **caller, tree="1", failed=why)
    begin(sandbox, "archive", made["cut"].id, **caller)
    begin(sandbox, "restore", made["back"].id, **caller, origin="archive")
    shutil.rmtree(made["half gone"].worktree)

    found = await diagnose(client)

    assert codes(found) == {
        "half gone": ("removal-unfinished", "error"),
        "cut": ("archiving-unfinished", "error"),
        "back": ("restoring-unfinished", "error"),
    }
    assert found["half gone"].message == "its removal could not be finished: no space left on device"
    assert found["half gone"].advice == "try again: rametctl rm 'half gone'"
    assert found["cut"].advice == "try again: rametctl archive cut"
    assert found["back"].advice == "try again: rametctl restore back"
    assert found["half gone"].session_id == made["half gone"].id
    assert "no space left on device" in (await garbage(client))["half gone"].reason

    for name in ("half gone", "cut"):
        await follow(sandbox, repository, found[name].advice, "try again")
    assert codes(await diagnose(client)) == {"back": ("restoring-unfinished", "error")}


async def test_two_sessions_with_the_same_ports_are_told_and_the_advice_parts_them(
    sandbox: Sandbox, repository: Path
) -> None:
    sandbox.configure("[ports]\nper_session = 2\n")
    async with daemon_here(sandbox), connected(sandbox) as client:
        one, _ = [await client.create(repository, name=name) for name in ("one", "two")]
    with closing(sqlite3.connect(sandbox.root / "state" / "ramet.db", timeout=10)) as database, database:
        database.execute("UPDATE sessions SET port_base = (SELECT port_base FROM sessions WHERE id = ?)", (one.id,))
    async with daemon_here(sandbox), connected(sandbox) as client:
        (found,) = (await diagnose(client)).values()
        assert (found.code, found.subject in {"one", "two"}) == ("ports-shared", True)
        await follow(sandbox, repository, found.advice, "have others")
        # What was told of the new ports keeps the ref.
        assert [each.code for each in (await diagnose(client)).values()] == ["ref-still-kept"]


async def follow(sandbox: Sandbox, repository: Path, advice: str, what: str) -> None:
    """Do what a line of an advice says, as a person pastes it into a shell."""
    (command,) = [line.partition(": ")[2] for line in advice.splitlines() if line.startswith(what)]
    done = await asyncio.to_thread(
        subprocess.run,
        ["sh", "-c", command],
        cwd=repository,
        env=sandbox.environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)


async def test_every_advice_does_what_it_says(daemon: DaemonProcess, repository: Path, tmp_path: Path) -> None:
    sandbox = daemon.sandbox
    async with connected(sandbox) as client:
        made = {}
        for name in ("my gone", "moved", "repaired", "anew", "unborn", "detached", "elsewhere"):
            made[name] = await client.create(repository, name=name)
        trees = {name: Path(session.worktree) for name, session in made.items()}
        unknown, foreign = trees["moved"].parent / "aaaaaaa4", trees["moved"].parent / "by hand"
        tips = {name: git(tree, "rev-parse", "HEAD") for name, tree in trees.items()}
        shutil.rmtree(trees["my gone"])
        git(repository, "worktree", "move", "-f", "-f", str(trees["moved"]), str(tmp_path / "over there"))
        for name in ("repaired", "anew"):
            (trees[name] / "only.txt").write_text("here\n")
            (trees[name] / ".git").unlink()
        git(trees["unborn"], "commit", "-q", "--allow-empty", "-m", "work")
        tips["unborn"] = git(trees["unborn"], "rev-parse", "HEAD")
        git(repository, "update-ref", "-d", f"refs/heads/{made['unborn'].branch}")
        git(trees["detached"], "checkout", "-q", "--detach")
        git(repository, "branch", "-D", made["detached"].branch)
        git(trees["elsewhere"], "checkout", "-q", "-b", "other")
        git(repository, "worktree", "add", "-q", "--detach", "--lock", "--reason", REASON, str(unknown))
        git(repository, "worktree", "add", "-q", "--detach", str(foreign))

        found = await diagnose(client)

        assert {subject: each.code for subject, each in found.items()} == {
            "my gone": "worktree-missing",
            "moved": "worktree-moved",
            "repaired": "worktree-broken",
            "anew": "worktree-broken",
            "unborn": "branch-missing",
            "detached": "branch-missing",
            "elsewhere": "branch-not-checked-out",
            str(unknown): "worktree-unknown",
            str(foreign): "worktree-foreign",
        }
        for subject, what in (
            ("my gone", "make it again"),
            ("moved", "move it back"),
            ("anew", "make it anew"),
            ("repaired", "have git mend it"),
            ("unborn", "make it again"),
            ("detached", "make it again"),
            ("elsewhere", "have the branch there again"),
            (str(unknown), "have a session there"),
            (str(foreign), "have a session in it"),
        ):
            await follow(sandbox, repository, found[subject].advice, what)
        assert not await diagnose(client)
        assert {name: git(tree, "rev-parse", "HEAD") for name, tree in trees.items()} == tips
        assert [(trees[name] / "only.txt").read_text() for name in ("repaired", "anew")] == ["here\n"] * 2
        assert not await diagnose(client, repo="repo")


async def test_of_a_worktree_that_was_deleted_the_advice_says_which_files_come_back(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    trees = {}
    for name in ("kept", "went on"):
        trees[name] = Path((await client.create(repository, name=name)).worktree)
        (trees[name] / "only.txt").write_text("at the checkpoint\n")
        await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session=name))
    git(trees["went on"], "commit", "-q", "--allow-empty", "-m", "later")
    for tree in trees.values():
        shutil.rmtree(tree)

    found = await diagnose(client)

    assert "make it again with the files of its newest checkpoint, 1: " in found["kept"].advice
    await follow(sandbox, repository, found["kept"].advice, "make it again")
    assert (trees["kept"] / "only.txt").read_text() == "at the checkpoint\n"
    await follow(sandbox, repository, found["went on"].advice, "make it again from its branch")
    assert not (trees["went on"] / "only.txt").exists()
    await follow(sandbox, repository, found["went on"].advice, "then have the files of its newest checkpoint")
    assert (trees["went on"] / "only.txt").read_text() == "at the checkpoint\n"


async def test_something_else_where_a_worktree_was_is_told_and_the_advice_brings_the_worktree_back(
    daemon: DaemonProcess, repository: Path, tmp_path: Path
) -> None:
    sandbox = daemon.sandbox
    other = tmp_path / "other"
    git(tmp_path, "init", "-q", str(other))
    git(other, "commit", "-q", "--allow-empty", "-m", "first")
    async with connected(sandbox) as client:
        names = ("own-repository", "of-another", "file", "copied", "sound")
        trees = {name: Path((await client.create(repository, name=name)).worktree) for name in names}
        commits = {name: git(tree, "rev-parse", "HEAD") for name, tree in trees.items()}
        for name in ("own-repository", "of-another", "file"):
            shutil.rmtree(trees[name])
        git(tmp_path, "init", "-q", str(trees["own-repository"]))
        git(other, "worktree", "add", "-q", "--detach", str(trees["of-another"]))
        trees["file"].write_text("not a directory\n")
        shutil.copyfile(trees["sound"] / ".git", trees["copied"] / ".git")

        found = await diagnose(client)

        astray = [name for name in names if name != "sound"]
        told = {name: (found[name].code, found[name].severity) for name in names if name in found}
        assert told == dict.fromkeys(astray, ("worktree-broken", "error"))
        for name in astray:
            await follow(sandbox, repository, found[name].advice, "move it away")
            await follow(sandbox, repository, found[name].advice, "then make it again")
            assert git(trees[name], "rev-parse", "HEAD") == commits[name]
            assert trees[name].with_name(f"{trees[name].name}.aside").exists()
        assert not set(names) & set(await diagnose(client))


async def test_a_stranger_on_a_port_a_turn_without_an_agent_and_what_removals_left_are_told(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    made = {name: await client.create(repository, name=name) for name in ("taken", "busy")}
    folder = Path(made["taken"].worktree).parent
    aside, whole = folder / ".aaaaaaa4.removing-0", folder / ".kept" / "aaaaaaa5"
    for path in (aside, whole, folder / ".kept" / made["busy"].id):
        path.mkdir(parents=True)
    with closing(sqlite3.connect(sandbox.root / "state" / "ramet.db", timeout=10)) as database, database:
        database.execute("UPDATE sessions SET state = 'working' WHERE id = ?", (made["busy"].id,))

    with socket.create_server(("127.0.0.1", made["taken"].ports[0])):
        found = await diagnose(client)

    assert codes(found) == {
        "taken": ("port-foreign", "warning"),
        "busy": ("agent-missing", "error"),
        str(aside): ("directory-left", "info"),
        str(whole): ("directory-left", "warning"),
    }
    assert f"listens on its port {made['taken'].ports[0]}" in found["taken"].message
    await follow(sandbox, repository, found["busy"].advice, "begin anew")
    assert "busy" not in await diagnose(client)

    repository.rename(sandbox.root / "moved")
    found = await diagnose(client)
    assert codes(found)["repo"] == ("repository-missing", "error")
    assert found["repo"].advice == "move it back"  # it has sessions, and so cannot be forgotten
