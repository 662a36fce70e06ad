"""Contests: contenders begin at one commit, are compared, checked once per state of the files,
judged and picked."""

import json
import re
from pathlib import Path

import pytest
from ramet.v1 import session_pb2

from tests.support.agents import script
from tests.support.daemon import IDLE, WORKING, Client, Sandbox
from tests.support.family import write
from tests.support.running import client, sandbox

__all__ = ["client", "sandbox"]


@pytest.fixture
def repository(sandbox: Sandbox) -> Path:
    return sandbox.root / "repo"


async def contest(client: Client, sandbox: Sandbox, repository: Path, prompt: str, *options: str) -> list[str]:
    made = sandbox.ctl("new", prompt, *options, "--mode", "acceptEdits", "--json", cwd=repository)
    assert made.code == 0, made.stderr
    return [each["id"] for each in made.json]


async def test_contenders_are_compared_and_one_lands(client: Client, sandbox: Sandbox, repository: Path) -> None:
    work = script(write("mine", "one\n"), write("both", "\n"))
    check = "echo ran >> ../../checked; touch left; echo x >> both; test -e mine"
    ids = await contest(client, sandbox, repository, work, "--name", "try", "--agent", "claude:2", "--check", check)
    for each in ids:
        await client.reach(each, IDLE)
    one, other = [await client.get(each) for each in ids]
    (Path(other.worktree) / "mine").write_text("other\n")
    assert (one.contest, one.base_commit, one.name, other.name) == ("try", other.base_commit, "try-1", "try-2")

    compared = sandbox.ctl("compare", "try", "--json", cwd=repository)
    assert compared.code == 0, compared.stderr
    found = compared.json
    assert [each["check_result"]["passed"] for each in found["contenders"]] == [True, True]
    assert [each["diff"]["additions"] for each in found["contenders"]] == [2, 2]
    assert found["files_in_common"] == ["both", "mine"]
    assert found["differences"] == [{"a": "try-1", "b": "try-2", "files": ["mine"], "additions": 1, "deletions": 1}]
    assert all(each["seconds"] > 0 for each in found["contenders"])
    assert not Path(one.worktree, "left").exists(), "the changes of the check are undone"
    assert Path(one.worktree, "both").read_text() == "\n"

    # The same files are not checked again; changed ones are.
    (Path(other.worktree) / "mine").unlink()
    shown = sandbox.ctl("compare", "try-2", cwd=repository).stdout
    assert {"passed", "failed (code 1)"} <= set(re.findall(r"passed|failed \(code 1\)", shown)), shown
    checked = [each for path in sandbox.root.rglob("checked") for each in path.read_text().split()]
    assert len(checked) == 3, checked
    pair = sandbox.ctl("compare", "try", "--diff", "try-1", "try-2", cwd=repository)
    assert "--- a/mine\n+++ /dev/null\n" in pair.stdout, pair

    picked = sandbox.ctl("pick", "try-1", "--land", "--commit", "Work", "--json", cwd=repository)
    assert picked.code == 0, picked.stderr
    assert [each["name"] for each in picked.json["archived"]] == ["try-2"]
    assert picked.json["landing"]["state"] == "landed"
    assert (await client.get(ids[1])).state == session_pb2.SESSION_STATE_ARCHIVED
    again = sandbox.ctl("pick", "try-1", cwd=repository)
    assert (again.code, again.stdout) == (0, "picked try-1\n")
    assert sandbox.ctl("restore", "try-2", cwd=repository).code == 0


async def test_a_pick_refuses_working_contenders_unless_it_stops_them(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    ids = await contest(client, sandbox, repository, script({"hang": True}), "--name", "slow", "--count", "2")
    for each in ids:
        await client.reach(each, WORKING)
    refused = sandbox.ctl("pick", "slow-1", "--json", cwd=repository)
    assert (refused.code, refused.json["error"]["reason"]) == (1, "WRONG_STATE")
    assert "slow-2 (working)" in refused.json["error"]["message"]
    assert sandbox.ctl("pick", "slow-1", "--stop", cwd=repository).code == 0
    assert (await client.get(ids[1])).state == session_pb2.SESSION_STATE_ARCHIVED
    alone = await client.create(repository, name="alone")
    assert sandbox.ctl("pick", alone.id, "--json", cwd=repository).json["error"]["reason"] == "NO_CONTEST"


async def test_a_judge_reads_all_diffs_and_its_verdict_is_advice(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    verdict = json.dumps([{"text": "Keep the second."}])
    work = script(write("note", f"judge DO:{verdict}\n"))
    ids = await contest(client, sandbox, repository, work, "--name", "case", "--count", "2")
    for each in ids:
        await client.reach(each, IDLE)
    asked = sandbox.ctl("compare", "case", "--judge", "claude", "--json", cwd=repository)
    assert asked.code == 0, asked.stderr
    judge = await client.reach(asked.json["id"], IDLE)
    assert (judge.judges, list(judge.forbids), judge.contest) == ("case", ["**"], "")
    shown = sandbox.ctl("compare", "case", cwd=repository).stdout
    assert "advice of case-judge (claude):" in shown, shown
    assert sandbox.ctl("pick", "case-2", cwd=repository).stdout.startswith(
        "picked case-2; archived case-1, case-judge\n"
    )
