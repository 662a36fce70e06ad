"""Unusable prompts, agents and worktrees: one line that says what to do, and nothing half
created."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.agents import script
from tests.support.daemon import DaemonProcess, Sandbox, git
from tests.support.eventually import eventually_sync
from tests.support.refusals import refused, unchanged


@pytest.mark.parametrize("prompt", ["", "   ", "\n\t\n"])
def test_an_empty_prompt_is_refused(box: Sandbox, repo: Path, prompt: str) -> None:
    with unchanged(box, repo):
        refused(box.ctl("new", prompt, cwd=repo), 2, "prompt is empty")
        refused(box.ctl("new", "-", cwd=repo, stdin=prompt), 2, "prompt is empty")


def test_a_prompt_of_five_megabytes_reaches_the_agent_completely(box: Sandbox, repo: Path) -> None:
    text = "é" * (5 << 19) + " the end"
    made = box.ctl("new", "--name", "large", "--wait", "-", cwd=repo, stdin=text)
    assert made.code == 0, made.stderr[:500]
    with closing(sqlite3.connect(f"file:{box.root}/state/ramet.db?mode=ro", uri=True)) as db:
        (stored,) = db.execute(
            "SELECT text FROM prompts JOIN sessions ON sessions.id = session_id WHERE name = 'large'"
        ).fetchone()
    assert stored == text
    frames = [json.loads(line) for line in journal(box, "large").splitlines()]
    (echo,) = [frame for frame in frames if frame.get("isReplay")]
    assert echo["message"]["content"] == text


def journal(box: Sandbox, name: str) -> str:
    identity = box.ctl("show", name, "--json").json["id"]
    agents = [path for path in (box.root / "state" / "agents").rglob("journal*") if identity in str(path)]
    return "".join(path.read_text() for path in sorted(agents))


def test_a_prompt_over_sixteen_megabytes_is_refused(box: Sandbox, repo: Path) -> None:
    with unchanged(box, repo):
        refused(box.ctl("new", "-", cwd=repo, stdin="x" * ((16 << 20) + 1)), 2, "16,777,216", "file")


@pytest.mark.parametrize("prompt", ["--help me with this", "----- separator", "-x is an option of ls"])
def test_a_prompt_may_begin_with_dashes(box: Sandbox, repo: Path, prompt: str) -> None:
    made = box.ctl("new", "--json", "--wait", prompt, cwd=repo)
    assert (made.code, made.json["turns"]) == (0, 1), made.stderr


def test_an_option_that_does_not_exist_is_wrong_usage_and_no_prompt(box: Sandbox, repo: Path) -> None:
    with unchanged(box, repo):
        refused(box.ctl("new", "--halp", cwd=repo), 2, "--halp")
        refused(box.ctl("new", "work", "--mode", "yolo", cwd=repo), 2, "yolo", "acceptEdits")
        refused(box.ctl("new", "work", "--mode", "bypassPermissions", cwd=repo), 1, "permissions.allow_bypass")
        refused(box.ctl("new", "work", "--budget", "-3", cwd=repo), 2, "budget")
        refused(box.ctl("new", "work", "--agent", "nobody", cwd=repo), 2, "nobody", "claude")
    assert box.ctl("new", "--name", "careful", cwd=repo).code == 0
    refused(box.ctl("set", "careful", "--mode", "bypassPermissions"), 1, "permissions.allow_bypass")


@pytest.fixture
def program(running: DaemonProcess) -> Iterator[Path]:
    """Yield the file that the daemon runs as Claude Code, for tests to break; restore it
    afterwards."""
    path = running.sandbox.root / "bin" / "claude"
    whole = path.read_text()
    yield path
    path.unlink(missing_ok=True)
    path.write_text(whole)
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("missing", "no Claude Code at"),
        ("a text", "executed"),
        ("broken", "does not work: bang"),
        ("garbage", "cannot be run"),
    ],
)
def test_an_agent_that_cannot_run_is_refused_first(
    box: Sandbox, repo: Path, program: Path, kind: str, word: str
) -> None:
    match kind:
        case "missing":
            program.unlink()
        case "a text":
            program.chmod(0o644)
        case "broken":
            program.write_text("#!/bin/sh\necho bang >&2\nexit 1\n")
        case "garbage":
            program.write_bytes(b"\x7fELF nonsense")
    with unchanged(box, repo):
        refused(box.ctl("new", "work", cwd=repo), 1, word, "agents.claude.path")


def test_an_agent_that_breaks_between_two_turns_says_so_in_the_sessions_reason(
    box: Sandbox, repo: Path, program: Path
) -> None:
    assert box.ctl("new", "--name", "breaks", "--wait", "work", cwd=repo).code == 0
    assert box.ctl("stop", "breaks").code == 0
    program.write_text("#!/bin/sh\necho 'Error: the licence has run out' >&2\nexit 1\n")
    assert box.ctl("send", "breaks", "go on").code == 0
    refused_wait = box.ctl("wait", "breaks", "--timeout", "30")
    assert refused_wait.code == 1
    assert "the licence has run out" in refused_wait.stderr


def test_an_agent_without_a_login_fails_with_its_own_words(box: Sandbox, repo: Path) -> None:
    words = "Invalid API key · Please run /login"
    result = {"type": "result", "subtype": "success", "is_error": True, "result": words, "result_index": 0}
    idle = {"type": "system", "subtype": "session_state_changed", "state": "idle"}
    does = script({"noise": json.dumps(result)}, {"noise": json.dumps(idle)}, {"hang": True})
    ran = box.ctl("new", "--name", "outsider", "--wait", does, cwd=repo)
    session = box.ctl("show", "outsider", "--json").json
    assert (ran.code, session["state"]) == (1, "failed"), ran
    assert words in session["state_reason"]
    assert words in ran.stderr


def test_a_worktree_that_was_deleted_by_hand_is_named_and_its_session_can_be_removed(box: Sandbox, repo: Path) -> None:
    assert box.ctl("new", "--name", "gone", "--wait", "work", cwd=repo).code == 0
    assert box.ctl("stop", "gone").code == 0
    session = box.ctl("show", "gone", "--json").json
    shutil.rmtree(session["worktree"])
    refused(
        box.ctl("send", "gone", "go on"), 1, session["worktree"], "`rametctl archive gone && rametctl restore gone`"
    )
    removed = box.ctl("rm", "gone")
    assert removed.code == 0, removed.stderr
    assert session["branch"] not in git(repo, "branch", "--format=%(refname:short)").split()
    assert session["worktree"] not in git(repo, "worktree", "list")


def test_a_session_at_work_is_not_removed_under_its_agent(box: Sandbox, repo: Path) -> None:
    assert box.ctl("new", "--name", "busy", script({"hang": True}), cwd=repo).code == 0
    eventually_sync(lambda: box.ctl("show", "busy", "--json").json["state"] == "working", every=0.2)
    with unchanged(box, repo):
        refused(box.ctl("rm", "busy"), 1, "busy is working", "stop")
    before = box.ctl("show", "busy", "--json").json
    assert box.ctl("rm", "busy", "--force", "--stop").code == 0
    assert not Path(before["worktree"]).exists()
    assert not [process for process in box.agents() if before["id"] in process.environ().get("RAMET_SESSION", "")]
