"""Pull requests: the real git with a bare repository as remote, and the real `gh` with a scripted
GitHub."""

import shutil
import subprocess
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from ramet.v1 import landing_pb2, plan_pb2, session_pb2, worktree_pb2

from tests.support.agents import script
from tests.support.archiving import archive
from tests.support.daemon import (
    IDLE,
    WORKING,
    Client,
    DaemonProcess,
    Sandbox,
    connected,
    daemon_process,
    git,
    hint_of,
    make_sandbox,
    reason_of,
)
from tests.support.eventually import eventually
from tests.support.github import HERE, GitHubModel, log_in, need_gh, serving, with_remote
from tests.support.web import visiting

need_gh()


@dataclass
class Shop:
    """A repository whose ``origin`` has a usual URL, which git redirects to a bare one on disk."""

    sandbox: Sandbox
    path: Path
    bare: Path
    github: GitHubModel
    client: Client
    daemon: DaemonProcess

    async def session(self, name: str, files: dict[str, str] | None = None, **fields: Any) -> session_pb2.Session:
        """Create a session that has committed some files."""
        made = await self.client.create(self.path, name=name, base_ref=fields.pop("base_ref", "main"), **fields)
        self.commit(made, files if files is not None else {f"{name}.txt": f"{name}\n"}, f"Add {name}")
        return made

    def commit(self, session: session_pb2.Session, files: dict[str, str], message: str = "more") -> str:
        tree = Path(session.worktree)
        for file, text in files.items():
            (tree / file).write_text(text)
        git(tree, "add", "-A")
        git(tree, "commit", "-qm", message)
        return git(tree, "rev-parse", "HEAD")

    async def create(self, session: str, **fields: Any) -> landing_pb2.CreatePullRequestResponse:
        fields.setdefault("request_id", str(uuid.uuid4()))
        request = landing_pb2.CreatePullRequestRequest(session=session, **fields)
        return await self.client.landing.CreatePullRequest(request)

    async def status(self, session: str, *, refresh: bool = True) -> landing_pb2.PullRequest:
        request = landing_pb2.ListPullRequestsRequest(sessions=[session], refresh=refresh)
        (pull,) = (await self.client.landing.ListPullRequests(request)).pull_requests
        return pull

    async def fix(self, session: str) -> landing_pb2.FixPullRequestResponse:
        request = landing_pb2.FixPullRequestRequest(session=session, request_id=str(uuid.uuid4()))
        return await self.client.landing.FixPullRequest(request)

    async def clean(self, *sessions: str, **fields: Any) -> list[landing_pb2.PullRequestCleanUp]:
        request = landing_pb2.CleanUpPullRequestsRequest(
            sessions=sessions, repo=str(self.path), request_id=str(uuid.uuid4()), **fields
        )
        return list((await self.client.landing.CleanUpPullRequests(request)).sessions)


@dataclass
class World:
    """Parts that all tests share: the daemon, and the scripted GitHub's socket."""

    sandbox: Sandbox
    daemon: DaemonProcess
    socket: Path


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with make_sandbox() as sandbox:
        socket = sandbox.root / "github.sock"
        log_in(sandbox.root / "config" / "gh", socket)
        with daemon_process(sandbox) as daemon:
            yield World(sandbox, daemon, socket)


@pytest.fixture
async def shop(world: World) -> AsyncIterator[Shop]:
    path, bare = with_remote(world.sandbox, f"shop-{uuid.uuid4().hex[:8]}")
    github = GitHubModel(bare)
    with serving(github, world.socket):
        async with connected(world.sandbox) as client:
            yield Shop(world.sandbox, path, bare, github, client, world.daemon)
            listed = await client.sessions.ListSessions(
                session_pb2.ListSessionsRequest(repo=str(path), include_archived=True)
            )
            for session in listed.sessions:
                await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session=session.id, force=True))


# ── creating ──────────────────────────────────────────────────────────────────────────────────────


async def test_the_web_page_opens_a_pull_request_and_shows_it(shop: Shop) -> None:
    session = await shop.session("paged")
    async with visiting(shop.sandbox.environ) as owner:
        values = {"title": "From the <b>page</b>", "draft": "1"}
        done = await owner.post(f"/sessions/{session.id}/pull-request", values)
        assert done.json()["note"].startswith("opened #"), done.text
        pull = await shop.status("paged")
        assert (pull.title, pull.state) == ("From the <b>page</b>", "draft")

        async def look() -> bool:
            page = (await owner.get(f"/sessions/{session.id}/review")).text
            return f'<a href="{pull.url}"' in page and "From the &lt;b&gt;page" in page

        await eventually(look)


async def test_a_pull_request_is_a_draft_with_goal_and_summary_above_the_template(shop: Shop) -> None:
    (shop.path / ".github").mkdir()
    (shop.path / ".github" / "pull_request_template.md").write_text("## Checklist\n- [ ] tested\n")
    git(shop.path, "add", "-A")
    git(shop.path, "commit", "-qm", "template")
    git(shop.path, "push", "-q", str(shop.bare), "main")
    made = await shop.session("told")
    await shop.client.send("told", "Fix the *login*\n\nIt fails twice.\n" + script({"text": "The login works now."}))
    await eventually(lambda: _turns(shop, "told", 1))

    answer = await shop.create("told")

    (pull,) = shop.github.pulls
    assert (answer.action, list(answer.warnings)) == ("opened", [])
    assert (pull.branch, pull.base, pull.draft, pull.title) == (made.branch, "main", True, "Fix the *login")
    assert "Fix the *login*" in pull.body
    assert pull.body.index("The login works now.") < pull.body.index("<!-- ramet:end -->")
    assert pull.body.rstrip().endswith("<!-- ramet:end -->\n\n## Checklist\n- [ ] tested")
    assert shop.github.tip(made.branch) == git(shop.path, "rev-parse", made.branch)
    assert (answer.pull_request.number, answer.pull_request.state) == (pull.number, "draft")
    assert answer.pull_request.commit == shop.github.tip(made.branch)
    assert list(answer.pull_request.blockers) == ["it is a draft"]


async def _turns(shop: Shop, name: str, count: int) -> bool:
    session = await shop.client.get(name)
    return session.turns >= count and session.state == IDLE


async def test_creating_again_changes_our_part_alone_and_opens_no_second_one(shop: Shop) -> None:
    made = await shop.session("again")
    await shop.create("again", title="Mine", draft=False)
    (pull,) = shop.github.pulls
    pull.title, pull.body = "Theirs", f"Before.\r\n{pull.body}\r\nAfter."
    before = len(shop.github.calls("PATCH"))

    same = await shop.create("again")
    assert (same.action, len(shop.github.calls("PATCH"))) == ("updated", before), "nothing differs"
    commit = shop.commit(made, {"more.txt": "x\n"})
    await shop.create("again", body="Said by hand.")

    assert [each.title for each in shop.github.pulls] == ["Theirs"]
    assert pull.body.startswith("Before.\n<!-- ramet:begin -->\nSaid by hand.\n<!-- ramet:end -->")
    assert pull.body.endswith("\nAfter.")
    assert shop.github.tip(made.branch) == commit
    assert not pull.draft


async def test_a_persons_pull_request_is_adopted_with_its_body_unchanged(shop: Shop) -> None:
    made = await shop.session("byhand")
    git(shop.path, "push", "-q", str(shop.bare), made.branch)
    pull = shop.github.open(made.branch, body="All mine.")

    answer = await shop.create("byhand", draft=True, base="main")

    assert (answer.action, answer.pull_request.number) == ("adopted", pull.number)
    assert (pull.body, pull.title, pull.draft) == ("All mine.", "by hand", True)


async def test_drafts_are_left_out_where_the_repository_has_none(shop: Shop) -> None:
    shop.github.drafts = False
    await shop.session("plain")
    answer = await shop.create("plain")
    assert (answer.action, answer.pull_request.state) == ("opened", "open")
    assert "draft" in answer.warnings[0]


async def test_uncommitted_work_is_warned_of_and_a_branch_without_commits_refused(shop: Shop) -> None:
    made = await shop.session("dirty")
    (Path(made.worktree) / "loose.txt").write_text("x")
    answer = await shop.create("dirty")
    assert list(answer.warnings) == ["1 file is not committed and missing in the pull request: loose.txt"]

    await shop.client.create(shop.path, name="fresh", base_ref="main")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shop.create("fresh")
    assert reason_of(caught.value) == "WRONG_STATE"
    assert len(shop.github.pulls) == 1


@pytest.mark.parametrize("verb", ["create", "converge", "preview"])
async def test_nothing_is_published_in_the_middle_of_a_rebase(shop: Shop, verb: str) -> None:
    text = f'[plan]\n[[threads]]\nid = "a"\ngoal = "First {verb}"\n'
    request = plan_pb2.ApplyPlanRequest(path=str(shop.path), text=text, file=str(shop.path / "plan.toml"))
    (made,) = (await shop.client.plans.ApplyPlan(request, metadata=shop.client.metadata)).sessions
    await shop.client.reach(made.id, IDLE)
    shop.commit(made, {"a.txt": "one"})
    tree = Path(made.worktree)
    with pytest.raises(subprocess.CalledProcessError):
        git(tree, "rebase", "-q", "--exec", "exit 1", "HEAD~1")
    if verb == "create":
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await shop.create(made.id)
        said = f"{reason_of(caught.value)}: {caught.value.details()}; {hint_of(caught.value)}"
    else:
        wanted = plan_pb2.ConvergePlanRequest(
            path=str(shop.path), request_id=str(uuid.uuid4()), dry_run=verb == "preview"
        )
        answer = await shop.client.plans.ConvergePlan(wanted, metadata=shop.client.metadata)
        (step,) = answer.steps
        assert (step.action, answer.failed) == ("failed", 1)
        said = f"WRONG_STATE: {step.message}"

    assert said.startswith(f"WRONG_STATE: a rebase is under way in {tree}, and its branch has not moved")
    assert f"`git -C {tree} rebase --continue`" in said
    assert shop.github.pulls == []
    assert git(shop.bare, "branch", "--list", made.branch) == ""


async def test_a_rebased_branch_replaces_only_ramets_own_push(shop: Shop) -> None:
    made = await shop.session("rebased")
    await shop.create("rebased")
    tree = Path(made.worktree)
    git(tree, "commit", "--amend", "-qm", "amended")
    amended = git(tree, "rev-parse", "HEAD")
    await shop.create("rebased")
    assert shop.github.tip(made.branch) == amended

    other = shop.sandbox.root / f"other-{made.id}"
    git(shop.sandbox.root, "clone", "-q", "-b", made.branch, str(shop.bare), str(other))
    (other / "theirs.txt").write_text("x")
    git(other, "add", "-A")
    git(other, "commit", "-qm", "theirs")
    git(other, "push", "-q", "origin", made.branch)
    theirs = shop.github.tip(made.branch)
    git(tree, "commit", "--amend", "-qm", "amended again")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shop.create("rebased")
    assert reason_of(caught.value) == "PUSH_REFUSED"
    assert shop.github.tip(made.branch) == theirs


async def test_the_servers_hook_output_is_shown(shop: Shop) -> None:
    await shop.session("hooked")
    hook = shop.bare / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho 'no pushes on Saturdays' >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shop.create("hooked")
    assert reason_of(caught.value) == "PUSH_REFUSED"
    assert "no pushes on Saturdays" in (caught.value.details() or "")


# ── without gh ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://github.com/acme/{name}.git", "https://github.com/acme/{name}/compare/main...{branch}?expand=1"),
        ("git@gitlab.example.org:a/b/{name}.git", "https://gitlab.example.org/a/b/{name}/-/merge_requests/new?"),
        ("ssh://git@codeberg.org/acme/{name}", "https://codeberg.org/acme/{name}/compare/main...{branch}"),
        ("https://bitbucket.org/acme/{name}", "https://bitbucket.org/acme/{name}/pull-requests/new?source="),
        ("https://user:secret@forge.example.org/acme/{name}", "https://forge.example.org/new/{branch}"),
    ],
)
async def test_without_a_login_the_branch_is_pushed_and_the_page_printed(
    world: World, address: str, expected: str
) -> None:
    name = f"away-{uuid.uuid4().hex[:8]}"
    path, bare = with_remote(world.sandbox, name, address.format(name=name))
    hook = bare / "hooks" / "post-receive"
    hook.write_text(
        '#!/bin/sh\nread old new ref\necho "To open one, visit:"; echo "  https://forge.example.org/new/${ref#refs/heads/}"\n'
    )
    hook.chmod(0o755)
    hosts = world.sandbox.root / "config" / "gh" / "hosts.yml"
    login = hosts.read_text()
    hosts.unlink()
    try:
        async with connected(world.sandbox) as client:
            shop = Shop(world.sandbox, path, bare, GitHubModel(bare), client, world.daemon)
            made = await shop.session(name)
            for _ in range(2):
                answer = await shop.create(name)
                assert answer.action == "pushed"
                assert answer.pull_request.url.startswith(expected.format(name=name, branch=made.branch))
            assert git(bare, "rev-parse", made.branch) == git(path, "rev-parse", made.branch)
            assert (await shop.status(name)).state == "none"
            request = landing_pb2.LinkPullRequestRequest(session=name, number=1)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.landing.LinkPullRequest(request)
            assert reason_of(caught.value) == "FORGE_LOGIN"
            await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session=name, force=True))
    finally:
        hosts.write_text(login)


async def test_a_refusal_without_a_remote_says_what_to_do(world: World) -> None:
    path = world.sandbox.repository(f"alone-{uuid.uuid4().hex[:8]}")
    async with connected(world.sandbox) as client:
        shop = Shop(world.sandbox, path, path, GitHubModel(path), client, world.daemon)
        await shop.session("alone")
        for fields in ({}, {"remote": "nowhere"}):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await shop.create("alone", **fields)
            assert reason_of(caught.value) == "REMOTE_NOT_FOUND"


# ── polling ───────────────────────────────────────────────────────────────────────────────────────


async def test_the_state_has_four_valued_checks_reviews_and_blockers(shop: Shop) -> None:
    await shop.session("seen")
    await shop.create("seen", draft=False)
    (pull,) = shop.github.pulls
    none = await shop.status("seen")
    shop.github.check(pull, "lint", "success")
    passed = await shop.status("seen")
    shop.github.check(pull, "build", None)
    running = await shop.status("seen")
    shop.github.check(pull, "test", "failure")
    pull.mergeable, pull.review = "CONFLICTING", "CHANGES_REQUESTED"
    shop.github.comment(pull, "seen.txt", 1, "why?")
    failed = await shop.status("seen")

    names = [landing_pb2.ChecksState.Name(each.checks) for each in (none, passed, running, failed)]
    assert [name.removeprefix("CHECKS_STATE_") for name in names] == ["NONE", "PASSED", "RUNNING", "FAILED"]
    assert list(none.blockers) == []
    assert (failed.review, failed.mergeable, list(failed.failed_checks)) == (
        "changes_requested",
        "conflicting",
        ["test"],
    )
    assert list(failed.blockers) == [
        "it conflicts with main",
        "failed: test",
        "changes are requested",
        "1 open review thread",
    ]
    log = await shop.client.log("seen")
    pulls = [event.pull_request_changed.pull_request for event in log if event.HasField("pull_request_changed")]
    assert pulls[-1].blockers == failed.blockers


async def test_an_outage_keeps_what_was_seen_and_says_why_it_is_old(shop: Shop) -> None:
    await shop.session("dark")
    before = (await shop.create("dark")).pull_request
    shop.github.fail(502, "unicorn")
    seen = await shop.status("dark")
    assert (seen.number, seen.state, seen.check_time) == (before.number, before.state, before.check_time)
    assert "unicorn" in seen.error
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shop.create("dark")
    assert reason_of(caught.value) == "FORGE_UNAVAILABLE"
    shop.github.fail(403, "API rate limit exceeded", headers={"Retry-After": "7"})
    assert "limits the rate" in (await shop.status("dark")).error
    shop.github.heal()
    assert (await shop.status("dark")).error == ""


async def test_linking_takes_the_number_and_refuses_one_that_is_not_there(shop: Shop) -> None:
    made = await shop.session("linked")
    git(shop.path, "push", "-q", str(shop.bare), f"{made.branch}:elsewhere")
    pull = shop.github.open("elsewhere", title="From elsewhere")
    request = landing_pb2.LinkPullRequestRequest(session="linked", number=pull.number)
    answer = await shop.client.landing.LinkPullRequest(request)
    assert (answer.pull_request.title, answer.pull_request.branch) == ("From elsewhere", "elsewhere")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shop.client.landing.LinkPullRequest(landing_pb2.LinkPullRequestRequest(session="linked", number=9))
    assert reason_of(caught.value) in {"FORGE_REFUSED", "PULL_REQUEST_NOT_FOUND"}


# ── reviews and checks ────────────────────────────────────────────────────────────────────────────


async def test_comments_and_failed_checks_reach_the_agent_once_quoted_and_marked(shop: Shop) -> None:
    await shop.session("fixed")
    await shop.create("fixed", draft=False)
    (pull,) = shop.github.pulls
    thread = shop.github.comment(
        pull, "fixed.txt", 3, "Name it better.\n```\nend of block", hunk="@@ -0,0 +1 @@\n+fixed"
    )
    shop.github.comment(pull, "done.txt", 1, "resolved already")["isResolved"] = True
    pull.reviews.append(
        {"id": "R1", "author": {"login": "rita"}, "state": "CHANGES_REQUESTED", "body": "Nearly.", "url": ""}
    )
    shop.github.check(
        pull, "unit tests", "failure", summary="2 failed", log="2026-01-01T00:00:00Z \x1b[31mE  assert\x1b[0m"
    )
    shop.github.check(pull, "lint", "success")

    first = await shop.fix("fixed")

    assert (first.comments, first.checks) == (2, 1)
    text = first.prompt.text
    assert text.startswith("[What follows was written by others on https://github.com/acme/shop/pull/")
    assert "### fixed.txt:3\n```diff\n@@ -0,0 +1 @@\n+fixed\n```\n\nrita wrote:\n> Name it better." in text
    assert "### Review (changes requested)\n\nrita wrote:\n> Nearly." in text
    assert "### Failed check: unit tests" in text
    assert "2 failed" in text
    assert "```\nE  assert\n```" in text, "without times and colours"
    assert "resolved already" not in text
    assert "lint" not in text

    again = await shop.fix("fixed")
    assert not again.HasField("prompt")
    thread["comments"]["nodes"].append(
        {"id": "C-late", "author": None, "body": "Still not.", "diffHunk": "", "url": ""}
    )
    late = await shop.fix("fixed")
    assert (late.comments, late.checks) == (1, 0)
    assert "Name it better." in late.prompt.text, "a reply is quoted with the comment that it answers"
    assert "unknown wrote:\n> Still not." in late.prompt.text


# ── cleaning up ───────────────────────────────────────────────────────────────────────────────────


async def test_what_is_merged_is_archived_and_its_branches_go_and_nothing_else(shop: Shop) -> None:
    merged = await shop.session("merged")
    await shop.session("stays")
    for name in ("merged", "stays"):
        await shop.create(name, draft=False)
    shop.github.merge(shop.github.pulls[0].number)

    foretold = await shop.clean(dry_run=True)
    assert [(each.session_name, each.done) for each in foretold] == [("merged", True), ("stays", False)]
    assert (await shop.client.get("merged")).state == IDLE
    (done, rest) = await shop.clean(remote_branches=True)

    assert done.reason == f"archived, branch {merged.branch} deleted, {merged.branch} deleted on origin"
    assert rest.reason == "its pull request is open"
    assert (await shop.client.get("merged")).state == session_pb2.SESSION_STATE_ARCHIVED
    assert not Path(merged.worktree).exists()
    assert shop.github.tip(merged.branch) is None
    assert merged.branch not in git(shop.path, "branch", "--format=%(refname:short)")
    assert [each.session_name for each in await shop.clean(remote_branches=True)] == ["stays"], (
        "a second run has nothing to do"
    )


async def test_another_repository_in_the_place_of_a_merged_worktree_stays(shop: Shop) -> None:
    tree = Path((await shop.session("swapped")).worktree)
    await shop.create("swapped", draft=False)
    shop.github.merge(shop.github.pulls[0].number)
    shutil.rmtree(tree)
    git(shop.path, "clone", "-q", str(shop.path), str(tree))

    done = shop.sandbox.ctl("pr", "cleanup", "swapped", cwd=shop.path)

    assert (done.code, f"swapped: {tree} belongs to another repository" in done.stdout) == (1, True), done
    assert (tree / ".git").is_dir()


async def test_unmerged_work_stays_and_is_named(shop: Shop) -> None:
    ahead, dirty, moved = [await shop.session(name) for name in ("ahead", "dirty", "moved")]
    for name in ("ahead", "dirty", "moved"):
        await shop.create(name, draft=False)
    for pull in shop.github.pulls:
        shop.github.merge(pull.number)
    shop.commit(ahead, {"later.txt": "x\n"})
    (Path(dirty.worktree) / "loose.txt").write_text("x")
    git(shop.path, "push", "-q", str(shop.bare), f"+main:{moved.branch}")

    answers = {each.session_name: each for each in await shop.clean("ahead", "dirty", "moved", remote_branches=True)}

    assert not any(each.done for each in answers.values())
    assert answers["ahead"].reason == f"{ahead.branch} has commits that were not merged"
    assert answers["dirty"].reason == "uncommitted: loose.txt"
    assert f"{moved.branch} on origin has moved on to" in answers["moved"].reason
    assert shop.github.tip(moved.branch) == git(shop.path, "rev-parse", "main")


# ── the command line ──────────────────────────────────────────────────────────────────────────────


async def test_the_verbs_say_what_happened(shop: Shop) -> None:
    made = await shop.session("spoken")
    ctl = shop.sandbox.ctl
    created = ctl("pr", "create", "spoken", "--title", "Speak", "--ready", cwd=shop.path)
    number = shop.github.pulls[0].number
    url = f"{HERE}/pull/{number}"
    assert (created.code, created.stdout) == (0, f"opened #{number} Speak\n{url}\n")
    status = ctl("pr", cwd=shop.path)
    assert status.stdout.splitlines()[1].split() == ["spoken", f"#{number}", "open", "none", "-", "ready"]
    (shown,) = ctl("pr", "status", "spoken", "--json", "--refresh", cwd=shop.path).json
    assert (shown["url"], shown["checks"], shown["branch"]) == (url, "none", made.branch)
    assert ctl("pr", "open", "spoken", "--json", cwd=shop.path).json["url"] == url
    assert ctl("pr", "fix", "spoken", cwd=shop.path).stdout == "nothing new to fix\n"
    ran = ctl("pr", "cleanup", "spoken", cwd=shop.path)
    assert (ran.code, ran.stdout) == (1, "spoken: its pull request is open\n")
    linked = ctl("pr", "link", "spoken", "--pr", str(number), cwd=shop.path)
    assert linked.stdout.splitlines()[0] == f"#{number} Speak is spoken's"
    await shop.client.create(shop.path, name="nothing", base_ref="main")
    missing = ctl("pr", "open", "nothing", cwd=shop.path)
    assert missing.code == 3


async def test_gh_uses_the_token_of_the_sessions_maker_and_the_agent_does_not_get_it(shop: Shop) -> None:
    made = shop.sandbox.ctl(
        "new", "--name", "keyed", script({"text": "hello"}, {"hang": True}), cwd=shop.path, GH_TOKEN="another-token"
    )
    assert made.code == 0, made.stderr
    session = await shop.client.reach("keyed", WORKING)
    (agent,) = [each for each in shop.sandbox.agents() if each.environ().get("RAMET_SESSION") == session.id]
    assert "GH_TOKEN" not in agent.environ()
    shop.commit(session, {"keyed.txt": "x\n"})
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shop.create("keyed")
    assert reason_of(caught.value) == "FORGE_LOGIN", "the scripted GitHub accepts only another token"
    assert {each.authorization for each in shop.github.requests} == {"token another-token"}


async def test_an_unpublished_submodule_commit_is_not_pushed(shop: Shop) -> None:
    session = await shop.session("point")
    tree = Path(session.worktree)
    git(tree, "update-index", "--add", "--cacheinfo", f"160000,{session.base_commit},lib")
    (tree / "lib").mkdir()
    git(tree / "lib", "init", "-q")
    git(tree / "lib", "commit", "-q", "--allow-empty", "-m", "only here")
    shop.commit(session, {".gitmodules": '[submodule "lib"]\n\tpath = lib\n\turl = https://example.org/lib\n'})

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await shop.create("point")

    assert reason_of(refused.value) == "PUSH_REFUSED"
    assert git(shop.bare, "branch", "--list", "ramet/point") == ""


async def test_a_branch_on_which_another_pull_request_is_based_stays(shop: Shop) -> None:
    first = await shop.session("first")
    merged = (await shop.create("first")).pull_request.number
    await shop.session("second", base_ref=first.branch)
    stacked = (await shop.create("second", base=first.branch)).pull_request.number
    shop.github.merge(merged)
    await shop.status("first")

    (foretold,) = await shop.clean("first", remote_branches=True, dry_run=True)
    (rest,) = await shop.clean("first", remote_branches=True)

    assert f"#{stacked} is based on it" in foretold.reason
    assert (rest.done, f"`gh pr edit {stacked} --base main`" in rest.reason) == (False, True), rest.reason
    assert shop.github.tip(first.branch) is not None
    second = await shop.client.get("second")
    assert second.base_ref == first.base_ref == "main", "its base is deleted here"
    git(shop.path, "commit", "-q", "--allow-empty", "-m", "more")
    synced = await shop.client.worktrees.SyncSession(worktree_pb2.SyncSessionRequest(session="second"))
    assert not synced.conflicts
    await shop.session("third", base_ref=second.branch)
    git(shop.path, "update-ref", "-d", f"refs/heads/{second.branch}")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await shop.client.worktrees.SyncSession(worktree_pb2.SyncSessionRequest(session="third"))
    assert f"the base of third, {second.branch}, no longer exists" in str(refused.value.details())
    shop.github.pull(stacked).base = "main"
    (done,) = await shop.clean("first", remote_branches=True)
    assert done.reason == f"{first.branch} deleted on origin"


async def stack_of_three(shop: Shop) -> list[session_pb2.Session]:
    """Create three sessions, each based on the one before; the pull requests of the first two are
    merged."""
    first = await shop.session("first")
    second = await shop.session("second", base_ref=first.branch)
    third = await shop.session("third", base_ref=second.branch)
    for name in ("first", "second"):
        await shop.create(name, draft=False)
    for pull in shop.github.pulls:
        shop.github.merge(pull.number)
    return [first, second, third]


@pytest.mark.parametrize("order", [("first", "second"), ("second", "first")])
async def test_cleaning_up_a_stack_of_three_bases_the_last_on_main(shop: Shop, order: tuple[str, str]) -> None:
    await stack_of_three(shop)

    assert [each.done for each in await shop.clean(*order)] == [True, True]

    assert (await shop.client.get("third")).base_ref == "main"
    git(shop.path, "commit", "-q", "--allow-empty", "-m", "more")
    synced = await shop.client.worktrees.SyncSession(worktree_pb2.SyncSessionRequest(session="third"))
    assert not synced.conflicts


@pytest.mark.parametrize("archived", [False, True])
async def test_a_merged_branch_that_is_already_deleted_here_moves_its_stack(shop: Shop, archived: bool) -> None:
    first, _, _ = await stack_of_three(shop)
    if archived:
        await archive(shop.client, "first")
    else:
        git(Path(first.worktree), "checkout", "-q", "--detach")
    git(shop.path, "branch", "-qD", first.branch)

    await shop.clean("first", dry_run=True)
    assert (await shop.client.get("second")).base_ref == first.branch
    await shop.clean("first")
    assert (await shop.client.get("second")).base_ref == "main"


async def test_a_merged_branch_that_stays_keeps_its_stack(shop: Shop) -> None:
    first, _, _ = await stack_of_three(shop)
    await archive(shop.client, "first")
    git(shop.path, "worktree", "add", "-q", str(shop.sandbox.root / "elsewhere"), first.branch)

    (rest,) = await shop.clean("first")

    assert (rest.done, "it is checked out at" in rest.reason) == (False, True), rest.reason
    assert (await shop.client.get("second")).base_ref == first.branch


async def test_a_push_that_the_persons_hook_refuses_opens_nothing(shop: Shop) -> None:
    session = await shop.session("secret")
    hook = shop.path / ".git/hooks/pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho SECRET; exit 1\n")
    hook.chmod(0o755)

    said = (await shop.create("secret")).warnings
    shop.commit(session, {"more": "more\n"})
    shop.sandbox.ctl("repo", "trust", "--yes", cwd=shop.path)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await shop.create("secret")

    assert any("pre-push hook did not run" in words for words in said), said
    assert reason_of(refused.value) == "PUSH_REFUSED"
    assert "SECRET" in (refused.value.details() or "")
