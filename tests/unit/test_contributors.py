"""The machine and the shell of a contributor: they change no result of a test, and no test changes
anything of theirs."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import agents
from tests.support.repositories import fingerprint, git_environment, plain

ROOT = Path(__file__).parents[2]


def run(program: str, *arguments: str, **variables: str) -> str:
    """Run a program that imports the tests, in a shell with more variables; return its output."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_a_run_in_a_git_hook_leaves_the_hooks_repository_alone(tmp_path: Path) -> None:
    """Git sets these variables for hooks, and for ``git rebase --exec``."""
    own = plain(tmp_path / "own", git_environment(tmp_path / "home"))
    before = fingerprint(own)
    commit = (
        "import sys\nfrom pathlib import Path\nfrom tests.support.daemon import git\n"
        "git(Path(sys.argv[1]), 'init', '-q')\ngit(Path(sys.argv[1]), 'commit', '-q', '--allow-empty', '-m', 'test')\n"
    )
    (tmp_path / "test").mkdir()
    git_dir = own.path / ".git"
    run(commit, str(tmp_path / "test"), GIT_DIR=str(git_dir), GIT_INDEX_FILE=str(git_dir / "index"), GIT_PREFIX="")
    assert fingerprint(own) == before


def test_no_umask_time_zone_or_proxy_of_the_shell_reaches_a_test() -> None:
    shell = {"TZ": "Asia/Kolkata", "http_proxy": "http://127.0.0.1:1", "ALL_PROXY": "http://127.0.0.1:1"}
    look = "import os\nos.umask(0o077)\nimport tests, json, time\nprint(json.dumps([dict(os.environ), time.timezone, os.umask(0)]))"
    environ, timezone, umask = json.loads(run(look, **shell))
    assert {name: environ[name] for name in shell.keys() & environ.keys()} == {"TZ": "UTC"}
    assert (timezone, umask) == (0, 0o022)


def test_a_run_without_the_cache_of_pytest_has_no_unknown_setting() -> None:
    """As in a checkout that the contributor cannot write to."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-q",
        "--collect-only",
        "tests/unit/test_tasks.py",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_scripted_agent_runs_from_a_checkout_with_a_blank_in_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "a clone" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    monkeypatch.setattr(agents, "SCRIPTED", (str(python), *agents.SCRIPTED[1:]))
    subprocess.run([agents.write_wrapper(tmp_path / "bin"), "--version"], check=True)


def test_no_text_for_a_shell_names_python_without_quotes() -> None:
    unquoted = re.compile(r"""f["'].*[^"]\{sys\.executable\}""")
    sources = {*(ROOT / "tests").rglob("*.py")} - {Path(__file__), ROOT / "tests/bench/gate.py"}  # which shows commands
    assert [f"{path}: {found}" for path in sources for found in unquoted.findall(path.read_text())] == []


def test_a_clone_has_the_committed_line_ends_whatever_git_is_configured_to(tmp_path: Path) -> None:
    origin = plain(tmp_path / "origin", git_environment(tmp_path / "home"))
    shutil.copy(ROOT / ".gitattributes", origin.path)
    origin.write("run.sh", "#!/bin/sh\n")
    origin.commit()
    origin.git(
        "clone", "-q", "-c", "core.autocrlf=true", "-c", "core.eol=crlf", str(origin.path), str(tmp_path / "clone")
    )
    assert (tmp_path / "clone" / "run.sh").read_bytes() == b"#!/bin/sh\n"


def test_make_installs_the_checkout_itself_and_no_copy() -> None:
    """A later target must not replace the editable installation: edits would have no effect."""
    installs = [line for line in (ROOT / "Makefile").read_text().splitlines() if re.search(r"pip install .*'\.", line)]
    assert len(installs) == 2
    assert [line for line in installs if "--editable" not in line] == []
