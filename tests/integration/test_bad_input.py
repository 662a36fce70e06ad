"""What people get wrong: one clear line that says what to do, the right exit code, and nothing half made."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
from ramet.paths import SOCKET_PATH_LIMIT

from tests.support.agents import script
from tests.support.daemon import DaemonProcess, Ran, Sandbox, command_of, daemon_process, git, make_sandbox
from tests.support.eventually import eventually_sync

ROOT = os.geteuid() == 0


@pytest.fixture(scope="module")
def running() -> Iterator[DaemonProcess]:
    """One daemon for the tests that leave it as it is; its sandbox has a repository ``repo``."""
    with make_sandbox() as sandbox, daemon_process(sandbox) as daemon:
        sandbox.repository()
        yield daemon


@pytest.fixture
def box(running: DaemonProcess) -> Sandbox:
    return running.sandbox


@pytest.fixture
def repo(box: Sandbox) -> Path:
    return box.root / "repo"


def refused(ran: Ran, code: int, *words: str) -> None:
    """One line on standard error with all of ``words``, nothing on standard output, and the exit code."""
    assert (ran.code, ran.stdout) == (code, ""), ran
    lines = ran.stderr.splitlines()
    assert len(lines) == 1, ran.stderr
    assert lines[0].startswith("rametctl: ")
    assert "Traceback" not in lines[0]
    for word in words:
        assert word.lower() in lines[0].lower(), (word, lines[0])


@dataclass(frozen=True)
class World:
    """Everything that a session is made of, as it lies about."""

    files: frozenset[str]
    rows: tuple[tuple[str, int], ...]
    refs: str
    worktrees: str
    processes: int

    @classmethod
    def of(cls, box: Sandbox, repo: Path | None = None) -> "World":
        state = box.root / "state"
        files = frozenset(
            str(path.relative_to(state))
            for folder in ("worktrees", "agents", "index", "secrets")
            for path in (state / folder).rglob("*")
        )
        with closing(sqlite3.connect(f"file:{state}/ramet.db?mode=ro", uri=True)) as db:
            tables = ("sessions", "prompts", "requests", "agents", "intents", "trash")
            rows = tuple((table, db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in tables)  # noqa: S608
        refs = git(repo, "for-each-ref") if repo is not None else ""
        worktrees = git(repo, "worktree", "list", "--porcelain") if repo is not None else ""
        return cls(files, rows, refs, worktrees, len(box.processes()))

    def is_no_more_than(self, before: "World") -> bool:
        """Whether all is as before, but for processes of earlier sessions that have ended meanwhile."""
        return replace(self, processes=0) == replace(before, processes=0) and self.processes <= before.processes


@contextmanager
def unchanged(box: Sandbox, repo: Path | None = None) -> Iterator[None]:
    """Nothing is made, or left, by what happens inside."""
    before = World.of(box, repo)
    yield
    eventually_sync(lambda: World.of(box, repo).is_no_more_than(before), within=20)


# ── repositories and refs ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_outside_of_a_repository_nothing_can_be_made(box: Sandbox) -> None:
    with unchanged(box):
        refused(box.ctl("new", "work", cwd=box.root / "home"), 3, "no git repository", "--repo")


def test_a_repository_without_a_commit_is_refused(box: Sandbox) -> None:
    path = box.root / "unborn"
    path.mkdir(exist_ok=True)
    git(path, "init", "-q", "-b", "main")
    with unchanged(box, path):
        refused(box.ctl("new", "work", cwd=path), 1, "no commit", "git commit")


def test_a_detached_head_is_a_base_like_any_other(box: Sandbox) -> None:
    path = box.repository("detached")
    git(path, "checkout", "-q", "--detach")
    made = box.ctl("new", "--json", cwd=path)
    assert made.code == 0, made.stderr
    assert made.json["base_commit"] == git(path, "rev-parse", "HEAD")
    assert git(path, "rev-parse", "--abbrev-ref", "HEAD") == "HEAD"


def test_an_unknown_ref_is_named(box: Sandbox, repo: Path) -> None:
    with unchanged(box, repo):
        refused(box.ctl("new", "--base", "nowhere", "work", cwd=repo), 3, "'nowhere'")
        refused(box.ctl("new", "--existing", "nowhere", "work", cwd=repo), 3, "'nowhere'", "branches:")
        refused(box.ctl("new", "--base=--help", "work", cwd=repo), 3, "--help")


def test_a_branch_that_exists_is_not_taken_over(box: Sandbox, repo: Path) -> None:
    git(repo, "branch", "-f", "taken", "main")
    git(repo, "branch", "-f", "in/folder", "main")
    with unchanged(box, repo):
        refused(box.ctl("new", "--branch", "taken", "work", cwd=repo), 1, "taken", "exists")
        refused(box.ctl("new", "--branch", "in", "work", cwd=repo), 1, "in/folder")
        refused(box.ctl("new", "--branch", "taken/too", "work", cwd=repo), 1, "taken")


def test_a_branch_that_is_checked_out_elsewhere_is_refused_and_says_where(box: Sandbox, repo: Path) -> None:
    with unchanged(box, repo):
        refused(box.ctl("new", "--existing", "main", "work", cwd=repo), 1, "main", str(repo))


def test_a_repository_that_was_moved_away_can_be_listed_shown_and_cleaned_up(box: Sandbox) -> None:
    path = box.repository("moves")
    assert box.ctl("new", "--name", "orphan", cwd=path).code == 0
    tree = Path(box.ctl("show", "orphan", "--json").json["worktree"])
    shutil.move(path, box.root / "moved")
    assert "orphan" in [session["name"] for session in box.ctl("ls", "--all", "--json").json]
    assert box.ctl("show", "orphan").code == 0
    refused(box.ctl("new", "work", "--repo", str(path)), 3)
    refused(box.ctl("rm", "orphan"), 1, str(tree), "--force")
    removed = box.ctl("rm", "orphan", "--force")
    assert removed.code == 0, removed.stderr
    assert box.ctl("show", "orphan").code == 3
    assert tree.exists(), "nobody has saved what is in it"


# ── sessions and names ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "verb", [["show"], ["rm"], ["log"], ["diff"], ["stop"], ["resume"], ["pause"], ["interrupt"], ["wait"]]
)
def test_an_unknown_session_is_no_such_thing(box: Sandbox, verb: list[str]) -> None:
    refused(box.ctl(*verb, "nobody"), 3, "'nobody'", "rametctl ls")


def test_an_unknown_session_is_no_such_thing_for_verbs_that_take_more(box: Sandbox) -> None:
    refused(box.ctl("send", "nobody", "hello"), 3, "'nobody'")
    refused(box.ctl("set", "nobody", "--priority", "1"), 3, "'nobody'")
    refused(box.ctl("approve", "nobody"), 3, "'nobody'")
    refused(box.ctl("new", "--after", "nobody", "work", cwd=box.root / "repo"), 3, "'nobody'")
    refused(box.ctl("new", "--parent", "nobody", "work", cwd=box.root / "repo"), 3, "'nobody'")


def test_a_name_in_two_repositories_is_ambiguous_from_elsewhere(box: Sandbox, repo: Path) -> None:
    other = box.repository("other")
    for path in (repo, other):
        assert box.ctl("new", "--name", "twice", cwd=path).code == 0
    refused(box.ctl("show", "twice"), 2, "several", "repo/twice", "other/twice")
    assert box.ctl("show", "other/twice").code == 0


NAMES = (
    "a/b",
    "a-b",
    "-dash",
    "x.lock",
    "..",
    "../up",
    "日本語",
    "🚀🚀",
    "with spaces",
    "HEAD",
    "a\tb",
    "@{u}",
    "ends.",
    "~^:?*[",
    "'quote\"",
)


def test_every_printable_name_is_kept_as_typed_and_none_collides_or_escapes(box: Sandbox) -> None:
    path = box.repository("names")
    good = [name for name in NAMES if name.isprintable()]
    made = [box.ctl("new", f"--name={name}", "--json", cwd=path) for name in good]
    assert [ran.stderr for ran in made if ran.code] == []
    sessions = [ran.json for ran in made]
    assert [session["name"] for session in sessions] == good
    trees = [Path(session["worktree"]) for session in sessions]
    root = (box.root / "state" / "worktrees").resolve()
    assert all(tree.resolve().is_relative_to(root) and tree.is_dir() for tree in trees)
    assert len(set(trees)) == len({session["branch"] for session in sessions}) == len(good)
    for session in sessions:
        git(path, "check-ref-format", f"refs/heads/{session['branch']}")
    for name in ("a/b", "-dash", "日本語"):
        found = box.ctl("show", "--json", "--", name, cwd=path)
        assert found.code == 0, (name, found.stderr)
    links = list((trees[0].parent / "by-name").iterdir())
    assert all(link.resolve().parent == trees[0].parent.resolve() for link in links)


def test_a_name_that_no_screen_could_show_is_refused(box: Sandbox, repo: Path) -> None:
    with unchanged(box, repo):
        for name in ("a\nb", "a\tb", "x" * 300, "   ", "\x1b[31m"):
            refused(box.ctl("new", f"--name={name}", "work", cwd=repo), 2, "cannot be a name", "printable")


def test_a_name_that_is_taken_is_refused(box: Sandbox, repo: Path) -> None:
    assert box.ctl("new", "--name", "once", cwd=repo).code == 0
    with unchanged(box, repo):
        refused(box.ctl("new", "--name", "once", "work", cwd=repo), 1, "once", "--name")


@pytest.mark.parametrize("branch", ["-x", "a..b", "x.lock", ".hidden", "a b", "HEAD", "a//b", "é\x7f", "@"])
def test_a_branch_name_that_git_would_not_take_is_refused(box: Sandbox, repo: Path, branch: str) -> None:
    with unchanged(box, repo):
        refused(box.ctl("new", f"--branch={branch}", "work", cwd=repo), 2, "cannot be a branch name")


# ── prompts ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("prompt", ["", "   ", "\n\t\n"])
def test_an_empty_prompt_is_refused(box: Sandbox, repo: Path, prompt: str) -> None:
    with unchanged(box, repo):
        refused(box.ctl("new", prompt, cwd=repo), 2, "prompt is empty")
        refused(box.ctl("new", "-", cwd=repo, stdin=prompt), 2, "prompt is empty")


def test_a_prompt_of_five_megabytes_reaches_the_agent_whole(box: Sandbox, repo: Path) -> None:
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
        refused(box.ctl("new", "-", cwd=repo, stdin="x" * ((16 << 20) + 1)), 2, "16,777,217", "file")


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


# ── the agent's program ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def program(running: DaemonProcess) -> Iterator[Path]:
    """The file that the daemon runs as Claude Code, to be broken; whole again afterwards."""
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
def test_an_agent_that_cannot_run_is_refused_before_anything_is_made(
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


# ── worktrees ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_worktree_that_was_deleted_by_hand_is_named_and_its_session_can_be_removed(box: Sandbox, repo: Path) -> None:
    assert box.ctl("new", "--name", "gone", "--wait", "work", cwd=repo).code == 0
    assert box.ctl("stop", "gone").code == 0
    session = box.ctl("show", "gone", "--json").json
    shutil.rmtree(session["worktree"])
    assert box.ctl("send", "gone", "go on").code == 0
    waited = box.ctl("wait", "gone", "--timeout", "30")
    assert waited.code == 1
    assert session["worktree"] in waited.stderr
    assert "claude" not in waited.stderr.lower().replace("rametctl", "")
    removed = box.ctl("rm", "gone")
    assert removed.code == 0, removed.stderr
    assert session["branch"] not in git(repo, "branch", "--format=%(refname:short)").split()
    assert session["worktree"] not in git(repo, "worktree", "list")


def test_a_session_at_work_is_not_removed_under_its_agent(box: Sandbox, repo: Path) -> None:
    assert box.ctl("new", "--name", "busy", script({"hang": True}), cwd=repo).code == 0
    eventually_sync(lambda: box.ctl("show", "busy", "--json").json["state"] == "working", within=20, every=0.2)
    with unchanged(box, repo):
        refused(box.ctl("rm", "busy"), 1, "busy is working", "stop")
    before = box.ctl("show", "busy", "--json").json
    assert box.ctl("rm", "busy", "--force").code == 0
    assert not Path(before["worktree"]).exists()
    assert not [process for process in box.agents() if before["id"] in process.environ().get("RAMET_SESSION", "")]


# ── reaching the daemon ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def no_daemon(box: Sandbox) -> None:
    assert [process for process in box.processes() if "rametd" in command_of(process)] == []


def test_without_a_daemon_and_without_leave_to_start_one_there_is_a_hint(sandbox: Sandbox) -> None:
    refused(sandbox.ctl("ls", RAMET_AUTOSTART="0"), 5, "no daemon", "rametctl daemon start")
    no_daemon(sandbox)
    assert not (sandbox.root / "state").exists()


def test_a_socket_path_that_is_too_long_is_refused_by_both_sides(sandbox: Sandbox) -> None:
    deep = sandbox.root / ("d" * SOCKET_PATH_LIMIT)
    refused(sandbox.ctl("ls", RAMET_RUNTIME_DIR=str(deep)), 5, "RAMET_RUNTIME_DIR", "bytes")
    assert daemon_says(sandbox, 78, RAMET_RUNTIME_DIR=str(deep)).count("RAMET_RUNTIME_DIR") == 1
    assert not deep.exists()
    no_daemon(sandbox)


def daemon_says(sandbox: Sandbox, code: int, **more: str) -> str:
    """Run the daemon, which leaves with ``code`` at once; returns its one line."""
    done = subprocess.run(
        [sys.executable, "-m", "rametd"],
        env={**sandbox.environ, **more}, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == code, done
    lines = [line for line in done.stderr.splitlines() if line]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("rametd: ")
    return lines[0]


@pytest.mark.parametrize("kind", ["open", "symlink", "file", "foreign", "socket is a directory"])
def test_a_runtime_directory_that_is_not_ours_alone_is_refused(sandbox: Sandbox, kind: str) -> None:
    run = sandbox.root / "run"
    word = ""
    match kind:
        case "open":
            run.chmod(0o755)
            word = "chmod 700"
        case "symlink":
            run.rename(sandbox.root / "elsewhere")
            run.symlink_to(sandbox.root / "elsewhere")
            word = "symbolic link"
        case "file":
            run.rmdir()
            run.write_text("")
            word = "not a directory"
        case "foreign":
            if not ROOT:
                pytest.skip("only root can give a directory away")
            os.chown(run, 1, 1)
            word = "belongs to user 1"
        case "socket is a directory":
            (run / "rametd.sock").mkdir()
            word = "rametd.sock"
    assert word in daemon_says(sandbox, 78)
    refused(sandbox.ctl("ls"), 5, word)
    no_daemon(sandbox)
    assert not (sandbox.root / "state" / "ramet.db").exists()


def test_a_second_daemon_leaves_at_once_and_the_first_serves_on(running: DaemonProcess, box: Sandbox) -> None:
    assert str(running.pid) in daemon_says(box, 75)
    assert box.ctl("daemon", "status", "--json").json["pid"] == running.pid


def test_a_broken_configuration_is_told_by_the_daemon_and_by_the_client_that_starts_it(sandbox: Sandbox) -> None:
    sandbox.configure("max_workers = 3\n")
    said = daemon_says(sandbox, 78)
    assert "max_workers" in said
    assert "max_working" in said
    refused(sandbox.ctl("ls"), 5, "max_workers", "config.toml")
    sandbox.configure("max_working = [")
    refused(sandbox.ctl("ls"), 5, "config.toml", "not TOML")
    no_daemon(sandbox)


def test_a_bare_environment_is_enough(sandbox: Sandbox) -> None:
    repo = sandbox.repository()
    kept = ("RAMET_HOME", "RAMET_RUNTIME_DIR", "XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "GIT_CONFIG_GLOBAL")
    bare = {name: sandbox.environ[name] for name in kept}
    done = subprocess.run(
        [sys.executable, "-m", "rametctl", "new", "--wait", "--json", "work"],
        cwd=repo, env=bare, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["turns"] == 1
    assert sandbox.ctl("daemon", "stop").code == 0


# ── disks ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def small_disk(path: Path, size: str, *options: str) -> Iterator[None]:
    if not ROOT or not sys.platform.startswith("linux"):
        pytest.skip("only root on Linux can mount a small file system")
    path.mkdir(parents=True, exist_ok=True)
    words = ",".join([f"size={size}", "mode=0700", *options])
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", words, "none", str(path)], capture_output=True, check=False
    ).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_state_directory_on_a_read_only_disk_is_named(sandbox: Sandbox) -> None:
    with small_disk(sandbox.root / "state", "1m", "ro"):
        refused(sandbox.ctl("ls"), 5, str(sandbox.root / "state"), "read-only")
        no_daemon(sandbox)


def test_a_full_disk_makes_the_daemon_read_only_and_room_makes_it_whole(sandbox: Sandbox) -> None:
    repo = sandbox.repository()
    with small_disk(sandbox.root / "state", "8m"):
        with daemon_process(sandbox) as daemon:
            assert sandbox.ctl("new", "--name", "first", cwd=repo).code == 0
            filler = sandbox.root / "state" / "filler"
            with filler.open("wb", buffering=0) as file:
                try:
                    while True:
                        file.write(b"\0" * 4096)
                except OSError:
                    pass
            before = World.of(sandbox, repo)
            failed = sandbox.ctl("new", "--name", "second", cwd=repo)
            assert failed.code == 1, failed
            assert re.search("disk|space|room", failed.stderr), failed.stderr
            assert len(failed.stderr.splitlines()) == 1
            assert [session["name"] for session in sandbox.ctl("ls", "--all", "--json").json] == ["first"]
            filler.unlink()
            assert World.of(sandbox, repo).refs == before.refs
            # Writing is tried again every second.
            eventually_sync(lambda: sandbox.ctl("new", "--name", "second", cwd=repo).code == 0, within=20, every=0.2)
            assert daemon.process is not None
            assert daemon.process.poll() is None
        for process in sandbox.processes():
            process.kill()
        psutil.wait_procs(sandbox.processes(), timeout=10)
