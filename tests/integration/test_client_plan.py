"""`rametctl plan` with a real daemon, as a person types it."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import DaemonProcess, Ran, Sandbox, daemon_process, git, make_sandbox
from tests.support.plans import PARALLEL_SESSIONS

TEMPLATE = """\
[[threads]]
id = 1
branch = "extract-auth"
goal = "Move the auth middleware"
owns = ["services/auth/", "tests/auth/"]
forbids = ["services/payments/", "services/orders/", "platform/models/"]
merge_order = 1

[[threads]]
id = 2
branch = "models-package"
goal = "One package of models"
owns = ["platform/models/", "tests/platform/models/"]
forbids = ["services/auth/", "services/payments/", "services/orders/"]
merge_order = 2

[[threads]]
id = 3
branch = "deprecate-v1-routes"
goal = "Remove the old routes"
owns = ["services/api/routes/v1/", "docs/openapi.yaml"]
forbids = ["services/auth/", "platform/models/"]
merge_order = 3
"""


@pytest.fixture(scope="module")
def running() -> Iterator[DaemonProcess]:
    """Yield a daemon for all tests here; each test has its own repository."""
    with make_sandbox() as sandbox, daemon_process(sandbox) as daemon:
        yield daemon


@pytest.fixture
def box(running: DaemonProcess) -> Sandbox:
    return running.sandbox


@pytest.fixture
def repository(box: Sandbox) -> Path:
    return box.repository(f"r{uuid.uuid4().hex[:8]}")


def plan(box: Sandbox, repository: Path, *arguments: str, stdin: str | None = None) -> Ran:
    return box.ctl("plan", *arguments, cwd=repository, stdin=stdin)


@pytest.mark.parametrize("text", [PARALLEL_SESSIONS, TEMPLATE], ids=["readme", "template"])
@pytest.mark.full
def test_a_plan_of_parallel_sessions_runs_through_every_verb(box: Sandbox, repository: Path, text: str) -> None:
    (repository / "plan.toml").write_text(text)
    checked = plan(box, repository, "check")
    assert checked.code == 0, checked
    assert "extract-auth" in checked.stdout
    for arguments in (["apply"], ["status"], ["converge", "--dry-run"], ["cleanup"], ["ls"], []):
        ran = plan(box, repository, *arguments)
        assert (ran.code, ran.stdout != "") == (0, True), ran
    threads = plan(box, repository, "status", "--json").json["threads"]
    assert [each["place"] for each in threads] == list(range(1, text.count("[[threads]]") + 1))
    assert git(repository, "branch", "--list", "extract-auth")


def test_errors_have_their_line_and_what_to_do(box: Sandbox, repository: Path) -> None:
    bad = '[[threads]]\nid = "a"\ngoal = "x"\nowns = ["dir0/"]\n[[threads]]\nid = "b"\nowned = []\nowns = ["dir0/file0.txt"]\n'
    (repository / "sub").mkdir()
    (repository / "plan.toml").write_text(bad)

    checked = plan(box, repository / "sub", "check")
    assert checked.code == 1
    lines = checked.stdout.splitlines()
    assert any(each.endswith("plan.toml:7: error: threads[1].owned: there is no such key") for each in lines)
    assert "    did you mean owns?" in lines
    assert "    such as dir0/file0.txt" in lines
    assert lines[-1] == "2 errors: it cannot be applied"
    as_json = plan(box, repository, "check", "--json")
    assert as_json.code == 1
    assert [each["code"] for each in as_json.json["problems"] if each["severity"] == "error"] == [
        "unknown-key",
        "overlap",
    ]

    applied = plan(box, repository, "apply")
    assert (applied.code, applied.stdout) == (1, "")
    assert "plan.toml:8: error:" in applied.stderr
    assert applied.stderr.splitlines()[-1] == "rametctl: 2 errors: it cannot be applied"
    assert plan(box, repository, "apply", "--json").json["error"]["reason"] == "BAD_PLAN"


def test_a_plan_is_applied_again_from_a_file_a_pipe_or_with_a_name(box: Sandbox, repository: Path) -> None:
    text = '[plan]\nname = "piped"\n[[threads]]\nid = "one"\n'
    foretold = plan(box, repository, "apply", "-", "--dry-run", stdin=text)
    assert foretold.stdout.splitlines() == ["create     one  a new session: one", "nothing was changed: --dry-run"]
    made = plan(box, repository, "apply", "-", "--json", stdin=text).json
    assert [(each["action"], each["thread"]) for each in made["changes"]] == [("create", "one")]
    assert made["sessions"][0]["plan_id"] == made["plan_id"]
    assert "nothing differs" in plan(box, repository, "apply", "-", stdin=text).stdout
    assert plan(box, repository, "status", "piped", "--json").json["plan"]["id"] == made["plan_id"]
    assert [each["name"] for each in plan(box, repository, "ls", "--json").json if each["id"] == made["plan_id"]] == [
        "piped"
    ]


def test_what_is_not_there_is_said_with_the_right_code(box: Sandbox, repository: Path) -> None:
    for arguments, code, words in (
        (["check"], 2, "there is no plan.toml here"),
        (["check", "gone.toml"], 2, "cannot be read"),
        (["status"], 3, "no plan is applied in this repository"),
        (["cleanup", "nothing"], 3, "no plan 'nothing' is applied"),
    ):
        ran = plan(box, repository, *arguments)
        assert (ran.code, ran.stdout) == (code, ""), ran
        assert words in ran.stderr
    (repository / "bytes.toml").write_bytes(b"\xff\xfe")
    assert plan(box, repository, "check", "bytes.toml").code == 2


def test_converge_pushes_in_order_and_says_which_failed(box: Sandbox, repository: Path) -> None:
    (repository / "plan.toml").write_text(
        '[plan]\nchain = true\ntitle = "[{position}/{total}] {goal}"\n'
        '[[threads]]\nid = "a"\ngoal = "First"\nowns = ["dir0/"]\n[[threads]]\nid = "b"\ngoal = "Then"\nowns = ["dir1/"]\n'
    )
    made = plan(box, repository, "apply", "--json").json["sessions"]
    for session in made:
        git(Path(session["worktree"]), "commit", "-qm", session["name"], "--allow-empty")
    failed = plan(box, repository, "converge", "--json")
    assert failed.code == 1, failed
    assert [step["action"] for step in failed.json["steps"]] == ["failed", "failed"], failed
    remote = repository.with_suffix(".git")
    git(repository, "init", "-q", "--bare", str(remote))
    git(repository, "remote", "add", "origin", str(remote))
    git(repository, "push", "-q", "origin", "main")
    # The remote has other work under the name of the first one's branch.
    other = git(repository, "commit-tree", "HEAD^{tree}", "-m", "somebody else's")
    git(repository, "push", "-q", "origin", f"{other}:refs/heads/{made[0]['branch']}")

    foretold = plan(box, repository, "converge", "--dry-run").stdout
    assert "[1/2] First" in foretold
    assert f"{made[1]['branch']} → {made[0]['branch']}" in foretold
    partly = plan(box, repository, "converge", "--json")
    assert partly.code == 1
    assert [step["action"] for step in partly.json["steps"]] == ["failed", "pushed"]
    assert partly.json["failed"] == 1

    git(repository, "push", "-q", "origin", f":refs/heads/{made[0]['branch']}")
    done = plan(box, repository, "converge", "--json").json["steps"]
    assert [(step["action"], step["base"]) for step in done] == [("pushed", "main"), ("unchanged", made[0]["branch"])]
    assert "[2/2] Then" in [step["title"] for step in done]


def test_the_schema_is_printed_without_a_daemon(box: Sandbox, repository: Path) -> None:
    ran = box.ctl("plan", "schema", cwd=repository, RAMET_AUTOSTART="0", RAMET_RUNTIME_DIR=str(box.root / "nowhere"))
    assert ran.code == 0, ran
    assert json.loads(ran.stdout)["properties"]["threads"]["items"]["required"] == ["id"]
    assert plan(box, repository, "schema", "--json").json == json.loads(ran.stdout)
