"""Environments of sessions with a real daemon: variables that each verb passes to agents, commands
and commits, and those it must not."""

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agents import script
from tests.support.daemon import DaemonProcess, Sandbox, daemon_process, git, make_sandbox
from tests.support.eventually import eventually_sync
from tests.support.family import bash

TOKEN = "AWS_SESSION_TOKEN"
BYPASS = ("--mode", "bypassPermissions", "--wait")
PRINT = script(bash(f"echo ${TOKEN}-$PROJECT >> env.txt"), {"text": "printed"})
HELLO = script({"text": "hello"})


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    config = "[permissions]\nallow_bypass = true\n"
    with make_sandbox(config=config) as sandbox, daemon_process(sandbox) as daemon:
        yield daemon


@pytest.fixture
def sandbox(daemon: DaemonProcess) -> Sandbox:
    return daemon.sandbox


@pytest.fixture
def repository(sandbox: Sandbox) -> Path:
    return sandbox.repository(f"repo-{uuid.uuid4().hex[:6]}")


class Shell:
    """Runs rametctl in a repository, and returns the last output of the session's agent."""

    def __init__(self, sandbox: Sandbox, repository: Path, name: str) -> None:
        self.sandbox, self.repository, self.name = sandbox, repository, name

    def __call__(self, *arguments: str, **variables: str) -> str:
        done = self.sandbox.ctl(*arguments, cwd=self.repository, **variables)
        assert done.code == 0, done.stderr
        return done.stdout + done.stderr

    def new(self, prompt: str = PRINT, **variables: str) -> None:
        self("new", prompt, "--name", self.name, *BYPASS, **variables)

    def send(self, **variables: str) -> str:
        return self("send", self.name, PRINT, "--wait", **variables)

    def show(self, name: str = "") -> dict[str, object]:
        return dict(self.sandbox.ctl("show", name or self.name, "--env", "--json").json)

    @property
    def printed(self) -> str:
        return (Path(str(self.show()["worktree"])) / "env.txt").read_text().splitlines()[-1]

    @property
    def generation(self) -> object:
        process = self.show()["process"]
        assert isinstance(process, dict)
        return process["generation"]


@pytest.fixture
def shell(sandbox: Sandbox, repository: Path) -> Shell:
    return Shell(sandbox, repository, f"s-{repository.name}")


def test_each_verb_brings_the_newest_credentials_and_none_takes_them_away(shell: Shell) -> None:
    name = shell.name
    shell.new(**{TOKEN: "new", "PROJECT": "p"})
    assert shell.printed == "new-"
    shell.send(**{TOKEN: "send"})  # its agent is alive and idle
    assert (shell.printed, shell.generation) == ("send-", 2)
    before = shell.generation, (shell.sandbox.root / "state" / "secrets" / f"{shell.show()['id']}.env").stat().st_ino
    shell.send(**{TOKEN: "send"})
    shell.send()  # from a shell without it
    after = shell.generation, (shell.sandbox.root / "state" / "secrets" / f"{shell.show()['id']}.env").stat().st_ino
    assert (shell.printed, after) == ("send-", before)
    assert "run" in shell("run", name, "--", "printenv", TOKEN, **{TOKEN: "run"})
    shell("stop", name)
    shell("resume", name, **{TOKEN: "resume"})
    shell.send()
    assert shell.printed == "resume-"
    shell("fork", name, "--name", f"{name}-fork", PRINT, **{TOKEN: "fork"})
    shell("wait", f"{name}-fork")
    assert "fork-" in (Path(str(shell.show(f"{name}-fork")["worktree"])) / "env.txt").read_text()
    shell.send()
    assert shell.printed == "resume-"
    shell("archive", name)
    shell("restore", name, **{TOKEN: "restore"})
    shell.send()
    assert shell.printed == "restore-"
    shell("set", name, "--priority", "1", **{TOKEN: "set"})
    shell.send()
    assert shell.printed == "set-"


OTHER_CALLS = (
    *(("msg", "{}", "hello"), ("sync", "{}"), ("rewind", "{}", "1"), ("comment", "{}", "--send"), ("setup", "{}")),
    *(("land", "{}"), ("pr", "create", "{}"), ("pr", "fix", "{}"), ("pr", "cleanup", "{}")),
)
"""Calls that can start a process, commit or push for a session. Most have nothing to do here, and
are refused after they have read the variables."""


def test_every_other_call_for_a_session_brings_them_too(shell: Shell) -> None:
    shell.new(HELLO, **{TOKEN: "new"})
    file = shell.sandbox.root / "state" / "secrets" / f"{shell.show()['id']}.env"
    missed = []
    for number, words in enumerate(OTHER_CALLS):
        shell.sandbox.ctl(
            *(word.format(shell.name) for word in words), cwd=shell.repository, **{TOKEN: f"call-{number}"}
        )
        if f"{TOKEN}=call-{number}\0" not in file.read_text():
            missed.append(words)
    assert missed == []


def test_a_variable_set_by_name_stays_until_it_is_removed(shell: Shell) -> None:
    name = shell.name
    shell("new", PRINT, "--name", name, "--env", "PROJECT", *BYPASS, **{TOKEN: "a", "PROJECT": "shell"})
    assert shell.printed == "a-shell"
    assert "set" in shell("set", name, "--env", f"{TOKEN}=mine", "--env", "PROJECT=q=r", **{TOKEN: "b"})
    shell.send(**{TOKEN: "c"})
    assert shell.printed == "mine-q=r"
    shell("set", name, "--env", TOKEN, "--unset-env", "PROJECT", **{TOKEN: "d"})
    shell.send(**{TOKEN: "e"})
    assert shell.printed == "e-"


def test_show_names_the_variables_and_no_verb_prints_a_value(shell: Shell) -> None:
    secret = "hush-hush"
    shell.new(HELLO, **{TOKEN: secret})
    said = shell("set", shell.name, "--env", f"PROJECT={secret}", "--unset-env", "LANG")
    said += shell("show", shell.name, "--env") + shell("show", shell.name, "--env", "--json") + shell("log", shell.name)
    assert secret not in said
    kinds = {each["name"]: each["kind"] for each in shell.show()["variables"]}  # type: ignore[attr-defined]
    assert {name: kinds[name] for name in ("PATH", TOKEN, "PROJECT", "LANG")} == {
        "PATH": "pinned", TOKEN: "fresh", "PROJECT": "set", "LANG": "unset",
    }  # fmt: skip
    shell("send", shell.name, HELLO, "--wait")
    with_it = [
        path.relative_to(shell.sandbox.root / "state").parts
        for path in (shell.sandbox.root / "state").rglob("*")
        if path.is_file() and secret.encode() in path.read_bytes()
    ]
    assert {(parts[0], parts[-1].rpartition(".")[2]) for parts in with_it} <= {
        ("secrets", "env"), ("agents", "environment"),
    }  # fmt: skip
    assert not [path for path in (shell.sandbox.root / "state" / "secrets").iterdir() if path.stat().st_mode & 0o077]


def test_a_turn_that_runs_is_not_interrupted_for_a_new_environment(shell: Shell) -> None:
    shell(
        "new", script(bash("until [ -e go ]; do sleep 0.05; done"), {"text": "went"}), "--name", shell.name, *BYPASS[:2]
    )
    tree = Path(str(shell.show()["worktree"]))
    eventually_sync(lambda: shell.show()["state"] == "working")
    words = shell("send", shell.name, PRINT, **{TOKEN: "later"})
    assert f"its agent gets the new {TOKEN} with the first prompt after it" in words
    (tree / "go").touch()
    shell("wait", shell.name)
    eventually_sync(lambda: shell.show()["state"] == "idle" and (tree / "env.txt").exists())
    assert (shell.printed, shell.generation) == ("-", 1)
    shell.send()
    assert (shell.printed, shell.generation) == ("later-", 2)


def test_a_session_that_calls_for_another_changes_no_variable_of_it(shell: Shell) -> None:
    shell.new(**{TOKEN: "owner"})
    speak = f"{TOKEN}=evil rametctl new '{PRINT}' --name {shell.name}-child --wait"
    shell("send", shell.name, script(bash(speak), {"text": "done"}), "--wait")
    kinds = [each["name"] for each in shell.show()["variables"]]  # type: ignore[attr-defined]
    assert TOKEN in kinds
    child = Path(str(shell.show(f"{shell.name}-child")["worktree"]))
    shell("wait", f"{shell.name}-child")
    assert (child / "env.txt").read_text().splitlines()[-1] == "owner-"


def test_children_follow_the_calls_for_their_parent(shell: Shell) -> None:
    shell.new(HELLO, **{TOKEN: "one"})
    shell("new", PRINT, "--name", f"{shell.name}-child", "--parent", shell.name, *BYPASS, **{TOKEN: "one"})
    shell.send(**{TOKEN: "two"})
    shell("send", f"{shell.name}-child", PRINT, "--wait")
    child = Path(str(shell.show(f"{shell.name}-child")["worktree"]))
    assert (child / "env.txt").read_text().splitlines() == ["one-", "two-"]


COMMIT = script(
    bash("echo x > agent.txt && git add . && git commit -qm agent"), bash("echo y > left.txt"), {"text": "done"}
)


@pytest.mark.parametrize("method", ["merge", "squash", "rebase"])
def test_commits_in_the_persons_name_follow_git_config_global(shell: Shell, method: str) -> None:
    work = shell.sandbox.root / f"work-{method}.gitconfig"
    work.write_text("[user]\n\tname = At Work\n\temail = work@corp\n")
    shell.new(COMMIT, GIT_CONFIG_GLOBAL=str(work))
    git(shell.repository, "commit", "-q", "--allow-empty", "-m", "base moves")
    shell("land", shell.name, "--commit", "left", "--method", method, "--target", "main", GIT_CONFIG_GLOBAL=str(work))
    people = git(shell.repository, "log", "-3", "--format=%ae %ce", "main").splitlines()
    assert people[0] == "work@corp work@corp"
    assert "work@corp work@corp" in people[1:] or method == "squash"


def test_the_persons_own_identity_variables_name_their_commits(shell: Shell) -> None:
    shell.new(COMMIT)
    who = {
        "GIT_AUTHOR_NAME": "Pair",
        "GIT_AUTHOR_EMAIL": "pair@x",
        "GIT_COMMITTER_NAME": "Me",
        "GIT_COMMITTER_EMAIL": "me@x",
    }
    shell("land", shell.name, "--commit", "left", "--method", "rebase", "--target", "main", **who)
    assert git(shell.repository, "log", "-1", "--format=%an %ae %cn %ce", "main") == "Pair pair@x Me me@x"


def test_a_session_made_by_a_git_hook_commits_in_the_persons_name_today(shell: Shell) -> None:
    hook = shell.repository / ".git" / "hooks" / "post-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\nexec rametctl new {COMMIT!r} --name {shell.name} {' '.join(BYPASS)}\n")
    hook.chmod(0o755)
    commit = ("commit", "--allow-empty", "-qm", "x", "--author=Eve <eve@x>", "--date=2020-01-01T00:00:00")
    done = subprocess.run(
        ["git", "-C", str(shell.repository), *commit],
        env=shell.sandbox.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    who, year = git(Path(str(shell.show()["worktree"])), "log", "-1", "--format=%ae %ad", "--date=format:%Y").split()
    assert (who, year != "2020") == ("person@example.org", True)


def test_a_socket_that_is_gone_is_named_where_it_matters(shell: Shell) -> None:
    sock = shell.sandbox.root / "agent.sock"
    sock.touch()
    shell.new(HELLO, SSH_AUTH_SOCK=str(sock))
    assert "SSH_AUTH_SOCK" not in shell.send()
    sock.unlink()
    words = shell.send()
    assert f"SSH_AUTH_SOCK of {shell.name} no longer exists ({sock})" in words
    assert f"rametctl set {shell.name} --env SSH_AUTH_SOCK" in words
    doctor = shell.sandbox.ctl("doctor", "--json").json
    (found,) = [each for each in doctor["findings"] if each["code"] == "environment-socket-gone"]
    assert (found["severity"], shell.name in found["message"], str(sock) in found["message"]) == ("info", True, True)
    sock.touch()
    assert "environment-socket-gone" not in shell("doctor", "--json")


def test_nothing_that_no_session_may_have_can_be_set(shell: Shell) -> None:
    shell.new(HELLO)
    for name in ("GIT_DIR", "RAMET_TOKEN", "GIT_AUTHOR_DATE"):
        done = shell.sandbox.ctl("set", shell.name, "--env", f"{name}=x")
        assert (done.code, f"no session may have {name}" in done.stderr) == (2, True)
    done = shell.sandbox.ctl("set", shell.name, "--env", "NOWHERE")
    assert (done.code, "NOWHERE is not set here" in done.stderr) == (2, True)
    assert os.environ.get("NOWHERE") is None
