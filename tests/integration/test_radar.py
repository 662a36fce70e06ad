"""The radar on a running daemon: conflicts between two worktrees are reported before they are
committed."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ramet.v1 import attention_pb2, event_pb2, session_pb2, worktree_pb2

from tests.support.agents import bash, script
from tests.support.daemon import IDLE, WAITING, Client, connected, daemon_here, git, make_sandbox
from tests.support.eventually import eventually

LINES = [f"{number} is a line of its own\n" for number in range(30)]


def commit(place: Path, message: str) -> None:
    git(place, "add", "-A")
    git(place, "commit", "-qm", message)


def edited(number: int, text: str) -> str:
    return "".join([*LINES[:number], text + "\n", *LINES[number + 1 :]])


@pytest.fixture
def shared(repository: Path) -> Path:
    (repository / "shared.txt").write_text("".join(LINES))
    commit(repository, "a file that everybody wants")
    return repository


async def make(client: Client, repository: Path, name: str) -> session_pb2.Session:
    request = session_pb2.CreateSessionRequest(path=str(repository), name=name)
    answer = await client.sessions.CreateSession(request)
    assert isinstance(answer, session_pb2.CreateSessionResponse)
    return answer.session


async def listed(
    client: Client, repository: Path, *sessions: str, clean: bool = False
) -> worktree_pb2.ListConflictsResponse:
    request = worktree_pb2.ListConflictsRequest(repo=str(repository), sessions=sessions, include_clean=clean)
    answer = await client.worktrees.ListConflicts(request)
    assert isinstance(answer, worktree_pb2.ListConflictsResponse)
    return answer


def write(session: session_pb2.Session, path: str, text: str) -> None:
    (Path(session.worktree) / path).write_text(text)


async def inbox(client: Client) -> list[attention_pb2.AttentionRequest]:
    answer = await client.attention.ListRequests(attention_pb2.ListRequestsRequest())
    return [each for each in answer.requests if each.kind == attention_pb2.ATTENTION_KIND_CONFLICT]


async def test_uncommitted_work_on_the_same_lines_is_a_conflict_and_in_the_inbox_once(
    client: Client, shared: Path
) -> None:
    one, two, _ = [await make(client, shared, name) for name in ("one", "two", "three")]
    write(one, "shared.txt", edited(10, "one was here"))
    write(two, "shared.txt", edited(20, "two was here"))
    (pair,) = (await listed(client, shared)).conflicts
    assert (pair.kind, pair.red) == (worktree_pb2.CONFLICT_KIND_SAME_FILE, False)
    assert await inbox(client) == []

    write(two, "shared.txt", edited(10, "two was here"))
    answer = await listed(client, shared)
    (pair,) = answer.conflicts
    assert (pair.kind, pair.red) == (worktree_pb2.CONFLICT_KIND_OVERLAP, True)
    (file,) = pair.files
    assert (file.path, file.lines[0].start, file.other_lines[0].end) == ("shared.txt", 11, 11)
    assert answer.order_conflicts == 1
    assert set(answer.landing_order) == {one.id, two.id}, "the third has nothing to land"
    assert (await listed(client, shared)).conflicts[0].change_time == pair.change_time
    (request,) = await inbox(client)
    assert "shared.txt (line 11)" in request.reason

    # After an answer it stays closed until the pair conflicts in another file.
    yes = attention_pb2.Resolution(approve=attention_pb2.Approval())
    await client.attention.ResolveRequest(attention_pb2.ResolveRequestRequest(request=request.id, resolution=yes))
    write(two, "shared.txt", edited(10, "two was here again"))
    assert (await listed(client, shared)).conflicts[0].red
    assert await inbox(client) == []
    for each in (one, two):
        write(each, "README.md", f"all of it is {each.name}'s\n")
    await listed(client, shared)
    (again,) = await inbox(client)
    assert again.id != request.id

    # It closes once they merge again.
    write(two, "shared.txt", "".join(LINES))
    (Path(two.worktree) / "README.md").write_bytes((Path(one.worktree) / "README.md").read_bytes())
    assert not any(each.red for each in (await listed(client, shared)).conflicts)
    assert await inbox(client) == []


async def test_new_files_of_both_and_delete_against_edit_are_distinguished(client: Client, shared: Path) -> None:
    one, two = [await make(client, shared, name) for name in ("one", "two")]
    for each in (one, two):
        write(each, "fresh.txt", f"{each.name}\n")
    write(one, "shared.txt", edited(3, "changed"))
    (Path(two.worktree) / "shared.txt").unlink()
    answer = await listed(client, shared, "one")
    kinds = {file.path: file.kind for pair in answer.conflicts for file in pair.files}
    assert kinds == {
        "fresh.txt": worktree_pb2.CONFLICT_KIND_ADD_ADD,
        "shared.txt": worktree_pb2.CONFLICT_KIND_DELETE_EDIT,
    }


@pytest.mark.own_changes("shared.txt", ".git/COMMIT_EDITMSG", "index", "what the index says", "HEAD at", "reflog")
async def test_a_session_is_held_against_where_its_base_has_gone(client: Client, shared: Path) -> None:
    one = await make(client, shared, "one")
    write(one, "shared.txt", edited(5, "one was here"))
    assert (await listed(client, shared)).conflicts == []
    (shared / "shared.txt").write_text(edited(5, "the base was here"))
    commit(shared, "the base moves")
    (pair,) = (await listed(client, shared)).conflicts
    assert (pair.other_id, pair.other_name, pair.red) == ("", one.base_ref, True)


async def test_a_removed_session_takes_its_conflicts_and_questions_along(client: Client, shared: Path) -> None:
    one, two, three = [await make(client, shared, name) for name in ("one", "two", "three")]
    for each in (one, two):
        write(each, "shared.txt", edited(8, each.name))
    assert len((await listed(client, shared)).conflicts) == 1
    assert len(await inbox(client)) == 1
    await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session=max(one.id, two.id), force=True))
    answer = await listed(client, shared, clean=True)
    assert [each for each in answer.conflicts if each.red] == []
    assert three.id in answer.session_ids
    assert await inbox(client) == []


async def test_a_watch_reports_a_new_conflict(client: Client, shared: Path) -> None:
    one, two = [await make(client, shared, name) for name in ("one", "two")]
    stream = client.worktrees.WatchConflicts(worktree_pb2.WatchConflictsRequest(repo=str(shared)))
    first: Any = await stream.read()
    assert first.conflicts == []
    for each in (one, two):
        write(each, "shared.txt", edited(8, each.name))
    second: Any = await stream.read()
    assert [pair.red for pair in second.conflicts] == [True]
    stream.cancel()


@pytest.mark.own_changes("shared.txt", ".git/COMMIT_EDITMSG", "index", "what the index says", "HEAD at", "reflog")
async def test_what_a_session_has_from_its_base_is_not_held_against_it(client: Client, shared: Path) -> None:
    one = await make(client, shared, "one")
    write(one, "shared.txt", edited(5, "one was here"))
    (shared / "shared.txt").write_text(edited(5, "the base was here"))
    commit(shared, "the base moves")
    two = await make(client, shared, "two")
    write(two, "of its own.txt", "two\n")
    pairs = {(each.session_id, each.other_id) for each in (await listed(client, shared)).conflicts}
    assert pairs == {(one.id, "")}
    assert await inbox(client) == []


async def test_what_waits_in_the_inbox_about_a_removed_session_goes_by_itself(client: Client, shared: Path) -> None:
    one, two = [await make(client, shared, name) for name in ("one", "two")]
    for each in (one, two):
        write(each, "shared.txt", edited(8, each.name))
    await listed(client, shared)
    assert len(await inbox(client)) == 1
    await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session=max(one.id, two.id), force=True))

    async def gone() -> bool:
        return not await inbox(client)

    await eventually(gone)


async def warnings(client: Client, name: str) -> list[str]:
    """Return the texts for the agent that contain a warning: prompts and results of calls."""
    events = await client.log(name)
    texts = [event.user_message.text for event in events]
    texts += [result.text for event in events for result in event.user_message.results]
    return [text for text in texts if "will not merge" in text]


def prompts_of_the_daemon(events: list[event_pb2.Event]) -> list[str]:
    return [event.prompt_queued.prompt.text for event in events if event.prompt_queued.prompt.source == "daemon"]


async def test_an_idle_agent_gets_the_warning_with_its_next_prompt(client: Client, shared: Path) -> None:
    one, two = [await make(client, shared, name) for name in ("one", "two")]
    for each in (one, two):
        write(each, "shared.txt", edited(4, each.name))
    await listed(client, shared)
    for _ in range(2):
        await client.send("one", script({"text": "at it"}))
        await client.reach("one", IDLE)
    session = await client.get("one")
    (words,) = await warnings(client, "one")
    assert ("'two'" in words, "at it" in words, session.turns) == (True, True, 2)
    assert prompts_of_the_daemon(await client.log("one")) == []
    assert (await client.get("two")).turns == 0


async def test_a_warning_for_a_working_agent_goes_with_a_result_and_starts_no_turn(
    client: Client, shared: Path
) -> None:
    names = ("one", "two", "three", "four")
    for name in names[:2]:
        await client.create(shared, script(bash("true"), {"text": "done"}), name=name)
        await client.reach(name, WAITING)
    for name in names[2:]:
        await client.create(shared, name=name)
    trees = {name: Path((await client.get(name)).worktree) for name in names}
    for name in names:
        (trees[name] / "shared.txt").write_text(edited(4, name))
    # Write all files before the comparison: one between two writes would report only some siblings.
    for _ in range(2):
        assert sum(each.red for each in (await listed(client, shared)).conflicts) == 6

    yes = attention_pb2.Resolution(approve=attention_pb2.Approval())
    for name in names[:2]:
        found = (await client.sessions.GetSession(session_pb2.GetSessionRequest(session=name))).open_requests
        (asked,) = [each for each in found if each.kind == attention_pb2.ATTENTION_KIND_PERMISSION]
        await client.attention.ResolveRequest(attention_pb2.ResolveRequestRequest(request=asked.id, resolution=yes))
        assert (await client.reach(name, IDLE)).turns == 1
        (words,) = await warnings(client, name)
        assert {other for other in names if f"'{other}'" in words} == set(names) - {name}
        assert prompts_of_the_daemon(await client.log(name)) == []
    for name in names[2:]:
        assert (await client.get(name)).turns == 0


@pytest.mark.full
async def test_only_the_setting_always_starts_a_turn_for_a_warning() -> None:
    with make_sandbox(config='[radar]\ntell_agents = "always"\n') as sandbox:
        async with daemon_here(sandbox), connected(sandbox) as client:
            repository = sandbox.repository()
            one, two = [await make(client, repository, name) for name in ("one", "two")]
            for each in (one, two):
                write(each, "README.md", f"{each.name}\n")
            for each in (one, two):
                await eventually(partial(turned, client, each.name))
                assert len(prompts_of_the_daemon(await client.log(each.name))) == 1


async def turned(client: Client, name: str) -> bool:
    return (await client.get(name)).turns == 1


async def test_a_conflict_that_is_gone_is_not_warned_of(client: Client, shared: Path) -> None:
    one, two = [await make(client, shared, name) for name in ("one", "two")]
    for each in (one, two):
        write(each, "shared.txt", edited(4, each.name))
    assert (await listed(client, shared)).conflicts[0].red
    write(two, "shared.txt", "".join(LINES))
    await listed(client, shared)
    await client.send("one", script({"text": "at it"}))
    await client.reach("one", IDLE)
    assert await warnings(client, "one") == []


@pytest.mark.own_changes
async def test_only_what_is_not_on_the_base_yet_is_in_the_order_of_landing(client: Client, shared: Path) -> None:
    one, two = [await make(client, shared, name) for name in ("one", "two")]
    for each in (one, two):
        write(each, f"{each.name}.txt", "new\n")
    commit(Path(one.worktree), "the work of one")
    git(shared, "merge", "-q", "--no-edit", one.branch)
    await eventually(lambda: landed(client, "one"))
    assert list((await listed(client, shared)).landing_order) == [two.id]

    write(one, "one.txt", "changed after it landed\n")
    assert set((await listed(client, shared)).landing_order) == {one.id, two.id}


async def landed(client: Client, name: str) -> bool:
    return bool((await client.get(name)).landed_reason)
