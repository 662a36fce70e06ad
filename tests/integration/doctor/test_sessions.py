"""Sessions with a wrong worktree, ports, agent or rows: each has its code, and each advice
works."""

import json
import shutil
import socket
import sqlite3
import subprocess
from contextlib import closing, suppress
from pathlib import Path

import grpc
import pytest
from ramet.v1 import session_pb2, worktree_pb2
from rametd.git.registrations import REASON

from tests.support.daemon import Client, DaemonProcess, Sandbox, connected, daemon_here, git, hint_of
from tests.support.doctor import codes, commands_in, diagnose, follow, garbage
from tests.support.eventually import eventually


def begin(sandbox: Sandbox, kind: str, session_id: str, *, step: str = "", failed: str = "", **data: str) -> None:
    """Store an unfinished operation."""
    with closing(sqlite3.connect(sandbox.root / "state" / "ramet.db", timeout=10)) as database, database:
        database.execute(
            "INSERT INTO operations (id, kind, session_id, principal, step, data, failed, create_time, update_time)"
            " VALUES (?, ?, ?, 'owner', ?, ?, ?, 1.0, 1.0)",
            (f"{kind[:3]}{session_id[:5]}", kind, session_id, step, json.dumps(data), failed),
        )


async def test_an_unfinished_operation_is_found_with_its_retry(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    made = {name: await client.create(repository, name=name) for name in ("half gone", "cut", "back", "whole")}
    await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session="back"))
    begin(sandbox, "remove", made["half gone"].id, step="tree-removal", tree="1", failed="no space left on device")
    begin(sandbox, "archive", made["cut"].id)
    begin(sandbox, "restore", made["back"].id, origin="archive")
    shutil.rmtree(made["half gone"].worktree)

    found = await diagnose(client)

    assert codes(found) == {
        "half gone": ("removal-unfinished", "error"),
        "cut": ("archiving-unfinished", "error"),
        "back": ("restoring-unfinished", "error"),
    }
    assert found["half gone"].message == "its removal could not be finished: no space left on device"
    assert found["half gone"].advice == "retry: rametctl rm 'half gone'"
    assert found["cut"].advice == "retry: rametctl archive cut"
    assert found["back"].advice == "retry: rametctl restore back"
    assert found["half gone"].session_id == made["half gone"].id
    assert "no space left on device" in (await garbage(client))["half gone"].reason

    for name in ("half gone", "cut"):
        await follow(sandbox, repository, found[name].advice, "retry")
    assert codes(await diagnose(client)) == {"back": ("restoring-unfinished", "error")}


async def test_two_sessions_with_the_same_ports_are_found_and_separated(sandbox: Sandbox, repository: Path) -> None:
    sandbox.configure("[ports]\nper_session = 2\n")
    async with daemon_here(sandbox), connected(sandbox) as client:
        one, _ = [await client.create(repository, name=name) for name in ("one", "two")]
    with closing(sqlite3.connect(sandbox.root / "state" / "ramet.db", timeout=10)) as database, database:
        database.execute("UPDATE sessions SET port_base = (SELECT port_base FROM sessions WHERE id = ?)", (one.id,))
    async with daemon_here(sandbox), connected(sandbox) as client:
        (found,) = (await diagnose(client)).values()
        assert (found.code, found.subject in {"one", "two"}) == ("ports-shared", True)
        await follow(sandbox, repository, found.advice, "give it other ports")
        # The restore warned of other ports; all else is restored, so there is no finding about its
        # ref.
        assert not await diagnose(client)


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
            ("my gone", "create it again"),
            ("moved", "move it back"),
            ("anew", "create it again with the files that are there"),
            ("repaired", "repair all worktrees of the repository"),
            ("unborn", "create it again"),
            ("detached", "create it again"),
            ("elsewhere", "check the branch out there"),
            (str(unknown), "create a session there"),
            (str(foreign), "create a session in it"),
        ):
            await follow(sandbox, repository, found[subject].advice, what)
        assert not await diagnose(client)
        assert {name: git(tree, "rev-parse", "HEAD") for name, tree in trees.items()} == tips
        assert [(trees[name] / "only.txt").read_text() for name in ("repaired", "anew")] == ["here\n"] * 2
        assert not await diagnose(client, repo="repo")


@pytest.mark.parametrize("command", ["merge", "cherry-pick", "revert", "bisect"])
async def test_a_git_operation_under_way_is_named_with_the_command_that_ends_it(
    client: Client, sandbox: Sandbox, repository: Path, command: str
) -> None:
    tree = Path((await client.create(repository, name="mine")).worktree)
    for text in ("one", "two"):
        (tree / "new.txt").write_text(f"{text}\n")
        git(tree, "add", "new.txt")
        git(tree, "commit", "-q", "-m", text)
    (repository / "new.txt").write_text("theirs\n")
    git(repository, "add", "new.txt")
    git(repository, "commit", "-q", "-m", "theirs")
    tip, theirs = git(tree, "rev-parse", "HEAD"), git(repository, "rev-parse", "HEAD")
    with suppress(subprocess.CalledProcessError):
        git(tree, command, {"revert": "HEAD~1", "bisect": "start"}.get(command, theirs))

    (found,) = (await diagnose(client)).values()
    assert (found.code, f"a {command} is unfinished" in found.message) == ("git-unfinished", True)
    await follow(sandbox, repository, found.advice, "finish it" if command == "bisect" else "or undo it")

    assert not await diagnose(client)
    assert git(tree, "rev-parse", "HEAD") == tip


@pytest.mark.parametrize("what", ["finish it", "or undo it"])
async def test_the_advice_during_a_rebase_says_how_to_end_it(
    client: Client, sandbox: Sandbox, repository: Path, what: str
) -> None:
    tree = Path((await client.create(repository, name="mine")).worktree)
    for place in (tree, repository):
        (place / "new.txt").write_text(f"{place}\n")
        git(place, "add", "new.txt")
        git(place, "commit", "-q", "-m", "new")
    base, own = git(repository, "rev-parse", "HEAD"), git(tree, "rev-parse", "HEAD")
    with pytest.raises(subprocess.CalledProcessError):
        git(tree, "rebase", "-q", base)
    git(tree, "add", "new.txt")

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.worktrees.SyncSession(worktree_pb2.SyncSessionRequest(session="mine"))
    assert f"{tree} is in the middle of a rebase" in str(caught.value.details())
    assert [command.rsplit(" ", 1)[1] for command in commands_in(hint_of(caught.value))] == ["--continue", "--abort"]
    (found,) = (await diagnose(client)).values()
    assert (found.code, "a rebase is unfinished there" in found.message) == ("branch-not-checked-out", True)
    assert "switch" not in found.advice

    git(repository, "config", "core.editor", "true")
    await follow(sandbox, repository, found.advice, what)

    assert not await diagnose(client)
    assert git(tree, "rev-parse", "HEAD^" if what == "finish it" else "HEAD") == (base if what == "finish it" else own)


async def test_the_advice_for_a_deleted_worktree_names_the_restored_files(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    trees = {}
    for name in ("kept", "went on"):
        trees[name] = Path((await client.create(repository, name=name)).worktree)
        await eventually(lambda name=name: client.checkpoints(name))  # type: ignore[misc]
        (trees[name] / "only.txt").write_text("at the checkpoint\n")
        await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session=name))
    git(trees["went on"], "commit", "-q", "--allow-empty", "-m", "later")
    for tree in trees.values():
        shutil.rmtree(tree)

    found = await diagnose(client)

    assert "create it again with the files of checkpoint 2, its last: " in found["kept"].advice
    await follow(sandbox, repository, found["kept"].advice, "create it again")
    assert (trees["kept"] / "only.txt").read_text() == "at the checkpoint\n"
    await follow(sandbox, repository, found["went on"].advice, "create it again from its branch")
    assert not (trees["went on"] / "only.txt").exists()
    await follow(sandbox, repository, found["went on"].advice, "then restore the files of checkpoint 2, its last")
    assert (trees["went on"] / "only.txt").read_text() == "at the checkpoint\n"


async def test_a_foreign_file_in_a_worktrees_place_is_reported_and_the_advice_restores_it(
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
        listed = {name: (found[name].code, found[name].severity) for name in names if name in found}
        assert listed == dict.fromkeys(astray, ("worktree-broken", "error"))
        for name in astray:
            await follow(sandbox, repository, found[name].advice, "move it away")
            await follow(sandbox, repository, found[name].advice, "then create it again")
            assert git(trees[name], "rev-parse", "HEAD") == commits[name]
            assert trees[name].with_name(f"{trees[name].name}.aside").exists()
        assert not set(names) & set(await diagnose(client))


async def test_doctor_reports_taken_ports_turns_without_agents_and_removal_leftovers(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    made = {name: await client.create(repository, name=name) for name in ("taken", "busy")}
    folder = Path(made["taken"].worktree).parent
    aside, whole = folder / ".aaaaaaa4.removing-0", folder / ".aaaaaaa5.shelved"
    for path in (aside, whole, folder / f".{made['busy'].id}.shelved"):
        path.mkdir(parents=True)
    with closing(sqlite3.connect(sandbox.root / "state" / "ramet.db", timeout=10)) as database, database:
        database.execute("UPDATE sessions SET state = 'working' WHERE id = ?", (made["busy"].id,))

    with socket.create_server(("127.0.0.1", made["taken"].ports[0])):
        found = await diagnose(client, ports=True)

    assert codes(found) == {
        "taken": ("port-foreign", "warning"),
        "busy": ("agent-missing", "error"),
        str(aside): ("directory-left", "info"),
        str(whole): ("directory-left", "warning"),
    }
    assert f"listens on its port {made['taken'].ports[0]}" in found["taken"].message
    await follow(sandbox, repository, found["busy"].advice, "start it again")
    assert "busy" not in await diagnose(client)

    repository.rename(sandbox.root / "moved")
    found = await diagnose(client)
    assert codes(found)["repo"] == ("repository-missing", "error")
    assert found["repo"].advice == "move it back"  # it has sessions, and so cannot be removed
