"""Messages of verbs in unusual situations, and that the commands that they advise work."""

import re
import shutil
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.agents import script
from tests.support.daemon import (
    IDLE,
    WAITING,
    Client,
    DaemonProcess,
    Sandbox,
    connected,
    daemon_process,
    git,
    make_sandbox,
)
from tests.support.eventually import eventually
from tests.support.family import EDITS, bash


@pytest.fixture(scope="module")
def running() -> Iterator[DaemonProcess]:
    with (
        make_sandbox(config='teardown = "echo the database is in use; exit 3"\n') as sandbox,
        daemon_process(sandbox) as daemon,
    ):
        yield daemon


@pytest.fixture
async def client(running: DaemonProcess) -> AsyncIterator[Client]:
    async with connected(running.sandbox) as connection:
        yield connection


@pytest.fixture
def sandbox(running: DaemonProcess) -> Sandbox:
    return running.sandbox


@pytest.fixture
def repository(sandbox: Sandbox) -> Path:
    return sandbox.repository(f"repo-{uuid.uuid4().hex[:6]}")


async def test_a_patch_with_binary_files_is_applied_byte_for_byte_elsewhere(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    session = await client.create(repository, name=f"paints-{repository.name}")
    content = bytes(range(256)) * 300
    (Path(session.worktree) / "picture.bin").write_bytes(content)
    (Path(session.worktree) / "dir0" / "file0.txt").write_text("one\n")
    elsewhere = sandbox.root / f"clone-{repository.name}"
    git(sandbox.root, "clone", "-q", "--no-local", str(repository), str(elsewhere))
    patch = sandbox.root / f"{repository.name}.patch"
    patch.write_text(sandbox.ctl("diff", session.name).stdout)
    git(elsewhere, "apply", str(patch))
    assert (elsewhere / "picture.bin").read_bytes() == content
    assert (elsewhere / "dir0" / "file0.txt").read_text() == "one\n"


async def test_the_advice_of_every_verb_restores_a_deleted_worktree(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    name = f"lost-{repository.name}"
    await client.create(repository, script(bash("echo draft > draft.txt"), {"text": "done"}), name=name, mode=EDITS)
    await client.reach(name, WAITING)
    assert sandbox.ctl("approve", name).code == 0
    session = await client.reach(name, IDLE)

    async def has_turn_checkpoint() -> bool:
        return bool(sandbox.ctl("checkpoints", name, "--json").json[0]["reason"] == "turn")

    await eventually(has_turn_checkpoint)
    shutil.rmtree(session.worktree)
    verbs = (
        ("shell",), ("run", "--detach", "--", "true"), ("fork",), ("send", "go on"), ("diff",), ("diff", "--watch"),
        ("sync",), ("checkpoints", "--make"), ("rewind", "1"), ("resume",),
    )  # fmt: skip
    back = ""
    for verb, *rest in verbs:
        ran = sandbox.ctl(verb, name, *rest, cwd=repository)
        assert (ran.code, ran.stdout) == (1, ""), (verb, ran)
        assert f"the worktree {session.worktree} is gone" in ran.stderr, verb
        assert f"rametctl fork {name} --at 2" in ran.stderr, verb
        found = re.search(r"`rametctl (archive [^`]*) && rametctl (restore [^`]*)`", ran.stderr)
        assert found is not None, (verb, ran.stderr)
        back = " ".join(found.groups())
    assert back == f"archive {name} restore {name}"
    assert (await client.get(name)).state == IDLE, "no prompt was queued for an agent that could not work"
    again = ("fork", name, "--at", "2", "--name", f"{name}-again")
    waited = sandbox.ctl(*again, "--wait", script({"text": "said again"}), cwd=repository)
    assert waited.code == 0
    assert "said again" in waited.stdout
    assert "idle, 1 turn" in waited.stdout
    for verb in ("archive", "restore"):
        assert sandbox.ctl(verb, name).code == 0
    assert (Path(session.worktree) / "draft.txt").read_text() == "draft\n"
    assert sandbox.ctl("send", name, script({"text": "goes on"}), "--wait").code == 0


async def test_a_branch_without_upstream_and_a_tag_lead_out_of_their_refusals(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    origin = sandbox.root / f"origin-{repository.name}"
    git(sandbox.root, "clone", "-q", "--bare", str(repository), str(origin))
    git(repository, "remote", "add", "origin", str(origin))
    git(repository, "push", "-q", "origin", "main:topic")
    git(repository, "branch", "topic")
    git(repository, "tag", "v1")

    def refused(*arguments: str) -> str:
        ran = sandbox.ctl("new", *arguments, cwd=repository)
        assert ran.code in {1, 3}, ran
        return ran.stderr

    for arguments in (("--fetch", "--existing", "topic"), ("--fetch", "--base", "topic")):
        assert "--base origin/topic --fetch" in refused(*arguments)
    assert sandbox.ctl("new", "--base", "origin/topic", "--fetch", "--name", "new one", cwd=repository).code == 0
    assert sandbox.ctl("new", "--existing", "topic", "--name", "same one", cwd=repository).code == 0
    assert "--base v1 creates a branch from it" in refused("--existing", "v1")
    assert sandbox.ctl("new", "--base", "v1", "--name", "from tag", cwd=repository).code == 0
    assert "add --fetch" in refused("--existing", "nowhere")
    git(repository, "remote", "remove", "origin")
    assert "origin/" not in refused("--fetch", "--base", "main"), "there is none to name"


async def test_checkpoints_list_the_start_of_each_turn_and_the_changes_since_the_base(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    name = f"kept-{repository.name}"
    session = await client.create(repository, name=name)
    await eventually(lambda: client.checkpoints(name))
    (Path(session.worktree) / "by-hand").write_text("1\n2\n")
    made, start = sandbox.ctl("checkpoints", name, "--make", "--json").json
    assert [(each["number"], each["reason"], each["files"]) for each in (start, made)] == [
        (1, "start", 0),
        (2, "manual", 1),
    ]
    assert (made["additions"], made["summary"]) == (2, "")

    await client.send(name, "the task\n" + script(bash("touch it"), {"text": "done"}))
    await client.reach(name, WAITING)
    await client.send(name, "and, by the way")
    assert sandbox.ctl("approve", name).code == 0

    # A prompt during a turn starts another turn; both may share a checkpoint.
    async def ended() -> list[str]:
        listed = sandbox.ctl("checkpoints", name, "--json").json
        return [each["summary"] for each in reversed(listed) if each["reason"] == "turn"]

    assert (await eventually(ended))[0] == "the task"


async def test_a_checkpoint_warns_of_files_that_git_could_not_read(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    name = f"unread-{repository.name}"
    session = await client.create(repository, name=name)
    git(repository, "config", "filter.broken.clean", "false")
    git(repository, "config", "filter.broken.required", "true")
    (repository / ".git" / "info" / "attributes").write_text("inside filter=broken\n")
    (Path(session.worktree) / "inside").write_text("git has no way to store it\n")
    ran = sandbox.ctl("checkpoints", name, "--make")
    assert ran.code == 0
    assert "rametctl: warning: not in the checkpoint, as git could not read it: " in ran.stderr
    assert "inside" in ran.stderr


async def test_a_detached_command_that_dies_at_once_is_not_said_to_run(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    name = f"runs-{repository.name}"
    await client.create(repository, name=name)
    died = sandbox.ctl("run", name, "--detach", "--", "sh", "-c", "echo one; echo the port is taken; exit 7")
    assert died.code == 7
    assert re.fullmatch(r"\w+ has ended already, failed \(code 7\): the port is taken\n", died.stdout)
    ended = sandbox.ctl("run", name, "--detach", "--json", "--", "true")
    assert (ended.code, ended.json["state"]) == (0, "exited")
    lives = sandbox.ctl("run", name, "--detach", "--", "sleep", "600")
    assert (lives.code, " is running; to stop it: " in lives.stdout) == (0, True)
    assert sandbox.ctl("run", name, "--stop", lives.stdout.split()[0]).code == 0


async def test_a_rebase_names_the_files_that_are_in_the_way(client: Client, sandbox: Sandbox, repository: Path) -> None:
    name = f"rebased-{repository.name}"
    session = await client.create(repository, name=name)
    for file in ("dir0/file0.txt", "dir1/file1.txt"):
        (repository / file).write_text("the base's\n")
    git(repository, "commit", "-qam", "base")
    (Path(session.worktree) / "dir0" / "file0.txt").write_text("mine\n")
    (Path(session.worktree) / "dir1" / "file1.txt").write_text("mine\n")
    git(Path(session.worktree), "add", "dir1/file1.txt")
    ran = sandbox.ctl("sync", name, "--rebase")
    assert ran.code == 1
    assert "uncommitted changes are in the way: dir0/file0.txt, dir1/file1.txt; commit them" in ran.stderr


@pytest.mark.parametrize("verb", ["rm", "archive"])
async def test_a_failed_teardown_is_a_warning_of_its_verb(
    client: Client, sandbox: Sandbox, repository: Path, verb: str
) -> None:
    name = f"torn-{repository.name}"
    await client.create(repository, name=name)
    ran = sandbox.ctl(verb, name)
    assert ran.code == 0
    assert "the teardown failed: " in ran.stderr
    assert "the database is in use" in ran.stderr


async def test_an_answer_of_any_length_is_printed_and_logged(sandbox: Sandbox, repository: Path) -> None:
    name, size = f"talks-{repository.name}", 5_000_000
    ran = sandbox.ctl("new", script({"flood": size, "line": size}), "--name", name, "--wait", cwd=repository)
    assert (ran.code, "xxxxx" in ran.stdout) == (0, True), ran.stderr
    assert sandbox.ctl("log", name, cwd=repository).code == 0
    assert sandbox.ctl("log", name, "--json", cwd=repository).code == 0


@pytest.mark.parametrize("verb", ["rm", "archive"])
async def test_a_verb_that_refuses_a_working_session_names_its_option(
    client: Client, sandbox: Sandbox, repository: Path, verb: str
) -> None:
    name = f"busy-{repository.name}"
    await client.create(
        repository, script({"tool": "Bash", "input": {"command": "true", "description": "x"}}), name=name
    )
    await client.reach(name, WAITING)
    ran = sandbox.ctl(verb, name)
    assert (ran.code, ran.stderr) == (1, f"rametctl: {name} is waiting; add --stop to end its turn first\n")
    assert sandbox.ctl(verb, name, "--stop").code == 0


async def test_restore_completes_archived_and_removed_sessions(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    names = {verb: f"{verb}-{repository.name}" for verb in ("archive", "rm", "show")}
    for verb, name in names.items():
        await client.create(repository, name=name)
        assert sandbox.ctl(verb, name).code == 0
    asked = sandbox.ctl(_RAMETCTL_COMPLETE="zsh_complete", COMP_WORDS="rametctl restore ", COMP_CWORD="2")
    completed = asked.stdout.splitlines()
    assert {names["archive"], names["rm"]} <= set(completed)
    assert names["show"] not in completed
