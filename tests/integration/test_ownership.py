"""Owned paths while agents work: refusals before a write, reports after a command, requests and
transfers."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from ramet.v1 import attention_pb2, common_pb2, event_pb2, orchestration_pb2, session_pb2

from tests.support.agents import script
from tests.support.daemon import IDLE, Client, DaemonProcess, Sandbox, daemon_process, git, make_sandbox
from tests.support.eventually import eventually
from tests.support.family import (
    EDITS,
    Member,
    answer,
    bash,
    payloads,
    refusal,
    requests,
    root,
    tool,
    tool_results,
    write,
)
from tests.support.running import client, sandbox

__all__ = ["client", "sandbox"]

BYPASS = common_pb2.PERMISSION_MODE_BYPASS_PERMISSIONS
OWNERSHIP = attention_pb2.ATTENTION_KIND_OWNERSHIP


@pytest.fixture(scope="module")
def running() -> Iterator[DaemonProcess]:
    with make_sandbox(config="[permissions]\nallow_bypass = true\n") as sandbox, daemon_process(sandbox) as daemon:
        yield daemon


@pytest.fixture
def path(sandbox: Sandbox) -> Path:
    made = sandbox.repository(f"repo-{uuid.uuid4().hex[:6]}")
    for name in ("api/routes.py", "web/page.html"):
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_text("old\n")
    git(made, "add", ".")
    git(made, "commit", "-q", "-m", "two parts")
    return made


async def turn(client: Client, path: Path, name: str, *steps: Any, **fields: Any) -> list[str]:
    """Return the tools' results of a session's only turn."""
    fields.setdefault("mode", EDITS)
    await client.create(path, script(*steps, {"text": "done"}), name=name, **fields)
    await client.reach(name, IDLE)
    return await tool_results(client, name)


async def refused_paths(client: Client, name: str) -> list[event_pb2.PathRefused]:
    return [event.path_refused for event in payloads(await client.log(name), "path_refused")]


async def request_path(member: Member, *paths: str, **fields: Any) -> orchestration_pb2.RequestPathResponse:
    fields.setdefault("reason", "a route must be renamed")
    fields.setdefault("request_id", str(uuid.uuid4()))
    request = orchestration_pb2.RequestPathRequest(paths=paths, **fields)
    return await member._stub.RequestPath(request, metadata=member._metadata)


async def own(member: Member, **fields: Any) -> orchestration_pb2.HandOverPathResponse:
    fields.setdefault("request_id", str(uuid.uuid4()))
    return await member._stub.HandOverPath(orchestration_pb2.HandOverPathRequest(**fields), metadata=member._metadata)


async def set_paths(client: Client, session_id: str, mask: list[str], **fields: Any) -> session_pb2.Session:
    request = session_pb2.UpdateSessionRequest(
        session_id=session_id, session=session_pb2.Session(**fields), update_mask=FieldMask(paths=mask)
    )
    return (await client.sessions.UpdateSession(request, metadata=client.metadata)).session


async def test_a_write_into_anothers_paths_is_refused_with_the_owners_name_and_how_to_ask(
    client: Client, sandbox: Sandbox, path: Path
) -> None:
    owner = await root(client, sandbox, path, f"api-{path.name}", owns=["api/"])
    name = f"web-{path.name}"
    (words, fine) = await turn(
        client, path, name, write("api/routes.py", "new"), write("web/new.html", "new"), owns=["web/"]
    )
    assert f"api/routes.py belongs to the session 'api-{path.name}'" in words
    assert "request_path" in words
    assert "new.html" in fine
    (event,) = await refused_paths(client, name)
    assert (event.tool, list(event.paths), event.owner_id, event.changed) == (
        "Write",
        ["api/routes.py"],
        owner.id,
        False,
    )


@pytest.mark.own_changes("link", ".git/COMMIT_EDITMSG", "index", "what the index says", "HEAD at", "reflog")
@pytest.mark.parametrize("mode", [EDITS, BYPASS])
async def test_no_mode_writes_outside_the_worktree_nor_through_a_link_that_leads_out(
    client: Client, path: Path, mode: Any
) -> None:
    (path / "link").symlink_to(path)
    git(path, "add", "link")
    git(path, "commit", "-q", "-m", "a link")
    outside, through = await turn(
        client, path, f"out-{path.name}", write(str(path / "mine.txt"), "x"), write("link/mine.txt", "x"), mode=mode
    )
    assert "outside your worktree" in outside
    assert f"leads to {path}/mine.txt, outside your worktree" in through
    assert not (path / "mine.txt").exists()


async def test_a_forbidden_path_and_one_outside_ones_own_are_refused(client: Client, path: Path) -> None:
    name = f"web-{path.name}"
    forbidden, outside = await turn(
        client, path, name, write("web/secret.key", "x"), write("README.md", "x"), owns=["web/"], forbids=["*.key"]
    )
    assert "web/secret.key is one of the paths that you must not change" in forbidden
    assert "README.md is not within the paths that you own" in outside


async def test_a_commands_change_of_anothers_path_is_reported_once(
    client: Client, sandbox: Sandbox, path: Path
) -> None:
    owner = await root(client, sandbox, path, f"api-{path.name}", owns=["api/"])
    name = f"web-{path.name}"
    steps = [bash("echo new > api/routes.py"), bash("echo new > web/page.html"), bash("false")]
    caught, fine, failed = await turn(client, path, name, *steps, owns=["web/"], mode=BYPASS)
    assert f"api/routes.py belongs to the session 'api-{path.name}'" in caught
    assert "Undo these changes" in caught
    assert "belongs" not in fine + failed
    entry = await eventually(lambda: entry_of(client, name))
    assert json.loads(entry.input_json)["paths"] == ["api/routes.py"]
    assert [(list(e.paths), e.owner_id, e.changed) for e in await refused_paths(client, name)] == [
        (["api/routes.py"], owner.id, True)
    ] * 2


async def entry_of(client: Client, name: str) -> Any:
    found = [each for each in await requests(client, name) if each.kind == OWNERSHIP]
    return found[0] if found else None


async def test_failed_commands_are_judged_too_and_undone_changes_are_not_reported(
    client: Client, sandbox: Sandbox, path: Path
) -> None:
    await root(client, sandbox, path, f"api-{path.name}", owns=["api/"])
    name = f"web-{path.name}"
    steps = [bash("echo new > api/routes.py; false"), bash("git checkout -q api/routes.py"), {"text": "undone"}]
    caught, *_ = await turn(client, path, name, *steps, mode=BYPASS)
    assert "api/routes.py belongs to the session" in caught
    assert [event.changed for event in await refused_paths(client, name)] == [True]
    assert await entry_of(client, name) is None


async def test_what_is_merged_from_its_owner_is_no_change_of_ones_own(
    client: Client, sandbox: Sandbox, path: Path
) -> None:
    name, other = f"web-{path.name}", f"api-{path.name}"
    await turn(
        client,
        path,
        other,
        write("api/routes.py", "theirs"),
        bash("git commit -qam theirs"),
        owns=["api/"],
        mode=BYPASS,
    )
    branch = (await client.get(other)).branch
    (merged,) = await turn(client, path, name, bash(f"git merge -q {branch}"), owns=["web/"], mode=BYPASS)
    assert "belongs" not in merged
    assert await refused_paths(client, name) == []


@pytest.mark.own_changes("mine.txt")
async def test_a_change_of_the_persons_own_checkout_is_noticed(client: Client, path: Path) -> None:
    name = f"out-{path.name}"
    (caught,) = await turn(client, path, name, bash(f"echo x > {path}/mine.txt"), mode=BYPASS)
    assert f"the person's own checkout, {path}, changed" in caught
    (warning,) = payloads(await client.log(name), "warning")
    assert str(path) in warning.warning.message


async def test_the_person_decides_about_what_a_turn_has_left(client: Client, sandbox: Sandbox, path: Path) -> None:
    await root(client, sandbox, path, f"api-{path.name}", owns=["api/"])
    name = f"web-{path.name}"
    await turn(client, path, name, bash("echo new > api/routes.py"), mode=BYPASS)
    entry = await eventually(lambda: entry_of(client, name))
    await answer(client, entry.id, deny=attention_pb2.Denial(message="It is not yours."))

    async def undoing() -> bool:
        events = payloads(await client.log(name), "prompt_queued")
        return any("Undo your changes" in event.prompt_queued.prompt.text for event in events)

    assert await eventually(undoing)


async def test_claims_that_meet_a_living_sessions_are_refused_with_its_name_and_an_example(
    client: Client, sandbox: Sandbox, path: Path
) -> None:
    owner = await root(client, sandbox, path, f"api-{path.name}", owns=["api/"])
    reason, words = await refusal(client.create(path, name="x", owns=["**/*.py"]))
    assert (reason, words) == ("PATHS_OWNED", f"api/x.py belongs to the session 'api-{path.name}', which owns api/")
    assert (await refusal(client.create(path, name="x", owns=["../x"])))[0] == "INVALID_INPUT"
    part = await owner.spawn(owns=["api/v1/"])
    assert (await refusal(owner.spawn(owns=["api/v1/a.py"])))[0] == "PATHS_OWNED"
    assert (await refusal(owner.spawn(owns=["web/"])))[0] == "PATHS_NOT_OWNED"
    assert list((await client.get(part.id)).owns) == ["api/v1/"]


async def test_a_path_is_asked_for_and_handed_over_by_its_owner(client: Client, sandbox: Sandbox, path: Path) -> None:
    owner = await root(client, sandbox, path, f"api-{path.name}", owns=["api/"])
    asker = await root(client, sandbox, path, f"web-{path.name}", owns=["web/"])
    asked = await request_path(asker, "api/routes.py", request_id="one")
    assert asked == await request_path(asker, "api/routes.py", request_id="one")
    assert list(asked.owners) == [f"api-{path.name}"]
    (message,) = await owner.messages()
    assert asked.path_request_id in message.text
    assert message.from_id == asker.id
    assert (await refusal(own(asker, path_request_id=asked.path_request_id)))[0] == "PERMISSION_DENIED"
    decided = await own(owner, path_request_id=asked.path_request_id)
    assert {each.session_id: list(each.owns) for each in decided.owners} == {
        owner.id: ["api/", "!api/routes.py"],
        asker.id: ["web/", "api/routes.py"],
    }
    assert "You may now write these paths" in (await asker.messages())[-1].text
    assert (await refusal(own(owner, path_request_id=asked.path_request_id, refuse=True)))[0] == "REQUEST_CLOSED"
    assert (await request_path(asker, "api/routes.py")).outcome == "you may write there already"
    changed = payloads(await client.log(asker.id), "ownership_changed")
    assert [(e.ownership_changed.from_id, list(e.ownership_changed.paths)) for e in changed] == [
        (owner.id, ["api/routes.py"])
    ]


async def test_a_person_decides_about_unowned_and_forbidden_paths_and_for_owners(
    client: Client, sandbox: Sandbox, path: Path
) -> None:
    owner = await root(client, sandbox, path, f"api-{path.name}", owns=["api/"])
    asker = await root(client, sandbox, path, f"web-{path.name}", owns=["web/"], forbids=["docs/"])
    free = await request_path(asker, "README.md")
    assert (list(free.owners), "person" in free.outcome) == ([], True)
    await answer(client, free.path_request_id, deny=attention_pb2.Denial(message="no"))
    prompts = payloads(await client.log(asker.id), "prompt_queued")
    assert prompts[-1].prompt_queued.prompt.text.endswith("README.md. no")
    docs = await request_path(asker, "docs/a.md")
    await answer(client, docs.path_request_id, approve=attention_pb2.Approval())
    owned = await request_path(asker, "api/")
    await answer(client, owned.path_request_id, approve=attention_pb2.Approval())
    now = await client.get(asker.id)
    assert (list(now.owns), list(now.forbids)) == (["web/", "docs/a.md", "api/"], ["docs/", "!docs/a.md"])
    assert list((await client.get(owner.id)).owns) == ["api/", "!api/"]


async def test_paths_are_given_unasked_and_only_ones_own(client: Client, sandbox: Sandbox, path: Path) -> None:
    owner = await root(client, sandbox, path, f"api-{path.name}", owns=["api/"])
    child = await owner.spawn(owns=["api/v1/"])
    await own(owner, paths=["api/v2/"], session=child.id)
    assert list((await client.get(child.id)).owns) == ["api/v1/", "api/v2/"]
    assert (await refusal(own(owner, paths=["web/"], session=child.id)))[0] == "PATHS_NOT_OWNED"


async def test_the_person_sets_what_a_session_owns(client: Client, sandbox: Sandbox, path: Path) -> None:
    await root(client, sandbox, path, f"api-{path.name}", owns=["api/"])
    other = await client.create(path, name=f"web-{path.name}")
    changed = await set_paths(client, other.id, ["owns", "forbids"], owns=["web/"], forbids=["*.key"])
    assert (list(changed.owns), list(changed.forbids)) == (["web/"], ["*.key"])
    assert (await refusal(set_paths(client, other.id, ["owns"], owns=["api/v1/"])))[0] == "PATHS_OWNED"


async def test_an_agent_asks_for_the_path_and_writes_it_once_it_has_it(
    client: Client, sandbox: Sandbox, path: Path
) -> None:
    await root(client, sandbox, path, f"api-{path.name}", owns=["api/"])
    name = f"web-{path.name}"
    ask = tool("request_path", paths=["api/routes.py"], reason="a rename")
    _, asked = await turn(client, path, name, write("api/routes.py", "x"), ask, owns=["web/"])
    assert "was asked" in asked
    entry = await eventually(lambda: entry_of(client, name))
    await answer(client, entry.id, approve=attention_pb2.Approval())
    await client.send(name, script(write("api/routes.py", "mine"), {"text": "done"}))

    async def written() -> bool:
        return (Path((await client.get(name)).worktree) / "api/routes.py").read_text() == "mine"

    assert await eventually(written)


async def test_what_is_disowned_takes_its_exceptions_along_and_must_have_been_owned(
    client: Client, sandbox: Sandbox, path: Path
) -> None:
    name = f"api-{path.name}"
    owner = await client.create(path, name=name, owns=["api/", "web/"])

    def disown(pattern: str) -> Any:
        return sandbox.ctl("set", name, "--disown", pattern)

    async def owns() -> list[str]:
        return list((await client.get(owner.id)).owns)

    for _ in range(2):
        assert disown("api/a.py").code == 0
        assert await owns() == ["api/", "web/", "!api/a.py"]
    assert "docs/ is not owned" in disown("docs/").stderr
    assert disown("api/").code == 0
    assert await owns() == ["web/"]
    assert "may write only what it owns: web/" in sandbox.ctl("set", name, "--allow", "x/").stdout
    assert disown("web/").code == 0
    assert await owns() == []


@pytest.mark.own_changes
async def test_owned_paths_are_compared_by_what_they_mean_in_the_repository(client: Client, path: Path) -> None:
    (path / "Services/Auth").mkdir(parents=True)
    (path / "Services/Auth/a.py").write_text("a\n")
    (path / "authlink").symlink_to("Services/Auth")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "files")
    git(path, "config", "core.ignorecase", "true")
    await client.create(path, name="auth", owns=["Services/Auth/"])
    free = await client.create(path, name="free")
    for pattern in ("services/auth/", "authlink/", "SERVICES/*/a.py", "authlink/a.py"):
        assert (await refusal(client.create(path, owns=[pattern])))[0] == "PATHS_OWNED"
        new, mask = session_pb2.Session(owns=[pattern]), FieldMask(paths=["owns"])
        request = session_pb2.UpdateSessionRequest(session_id=free.id, session=new, update_mask=mask)
        assert (await refusal(client.sessions.UpdateSession(request)))[0] == "PATHS_OWNED"
    await client.create(path, name="other", owns=["docs/"])


@pytest.mark.own_changes
async def test_a_path_is_asked_for_and_given_under_any_of_its_names(
    client: Client, sandbox: Sandbox, path: Path
) -> None:
    (path / "Services/Auth").mkdir(parents=True)
    (path / "Services/Auth/a.py").write_text("a\n")
    (path / "authlink").symlink_to("Services/Auth")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "files")
    git(path, "config", "core.ignorecase", "true")
    owner = await root(client, sandbox, path, f"auth-{path.name}", owns=["services/auth/", "docs/"])
    asker = await root(client, sandbox, path, f"web-{path.name}", owns=["web/"])
    assert (await request_path(owner, "authlink/a.py")).outcome == "you may write there already"
    names = ["Services/Auth/a.py", "services/AUTH/A.py", "authlink/a.py", "/AUTHLINK/A.py"]
    asked = {(await request_path(asker, name)).path_request_id for name in names}
    assert len(asked) == 1, "it is one file"
    await own(owner, path_request_id=asked.pop())
    for name in names:
        assert (await request_path(asker, name)).outcome == "you may write there already"
    session = await client.get(owner.id)
    assert {"!Services/Auth/a.py"} < set(session.owns)


@pytest.mark.own_changes
@pytest.mark.parametrize("kind", ["owns", "forbids"])
async def test_a_write_is_judged_with_the_letter_case_of_the_repository(client: Client, path: Path, kind: str) -> None:
    name = f"{kind}-{path.name}"
    git(path, "config", "core.ignorecase", "true")
    if kind == "owns":
        await client.create(path, name=f"{name}-other", owns=["Services/"])
    write = {"tool": "Write", "input": {"file_path": "$CWD/SERVICES/x", "content": "x"}}
    given = {"forbids": ["services/"]} if kind == "forbids" else {}
    session = await client.create(path, script(write, {"text": "done"}), name=name, mode=EDITS, **given)
    await client.reach(name, IDLE)
    assert not (Path(session.worktree) / "SERVICES" / "x").exists()
    refused = [event.path_refused for event in await client.log(name) if event.HasField("path_refused")]
    assert [list(each.paths) for each in refused] == [["SERVICES/x"]]
