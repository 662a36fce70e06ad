"""The poller of pull requests: a manual clock, and the real `gh` with a scripted GitHub."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace

import pytest
from rametd.domain.pull_requests import Checks, PullRequest, PullState
from rametd.services.core import Core
from rametd.services.pull_requests.requests import PullRequests
from rametd.services.pull_requests.tracker import LONGEST_S, PERIOD_S, PullRequestTracker

from tests.support.core import bare_core
from tests.support.daemon import Sandbox, make_sandbox
from tests.support.github import GitHubModel, Pull, log_in, need_gh, serving, with_remote
from tests.support.rows import a_repo, a_session

need_gh()


@dataclass
class Watching:
    """A tracker, and its GitHub and store."""

    core: Core
    github: GitHubModel
    tracker: PullRequestTracker
    time: list[float]

    async def add(self, name: str) -> Pull:
        pull = self.github.open(name)
        session = a_session(id=name, name=name, branch=name, repo_id="repo")
        row = PullRequest(name, "repo", "origin", name, "main", host="github.com", slug="acme/shop", number=pull.number)
        await self.core.store.write(
            lambda unit: (unit.sessions.insert(session), unit.pull_requests.put(replace(row, state=PullState.OPEN)))
        )
        return pull

    async def row(self, name: str) -> PullRequest:
        return await self.core.store.read(lambda reader: reader.pull_requests.get(name))

    async def tick(self, *, after: float = 0.0) -> float | None:
        self.time[0] += after
        return await self.tracker.tick()

    def asked(self) -> list[tuple[str, int]]:
        """Return the requests since the last call, with their statuses."""
        found = [(each.path.rpartition("/")[2].partition("?")[0], each.status) for each in self.github.requests]
        self.github.requests.clear()
        return found


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with make_sandbox() as made:
        yield made


@pytest.fixture
async def watching(sandbox: Sandbox) -> AsyncIterator[Watching]:
    path, bare = with_remote(sandbox, "shop")
    socket = sandbox.root / "github.sock"
    log_in(sandbox.root / "config" / "gh", socket)
    github = GitHubModel(bare)
    time = [1_000_000.0]
    async with bare_core(sandbox.root, sandbox.environ, lambda: time[0]) as core:
        await core.store.write(lambda unit: unit.repos.upsert(a_repo(id="repo", root=path, common_dir=path / ".git")))
        with serving(github, socket):
            yield Watching(core, github, PullRequestTracker(core, PullRequests(core)), time)


async def test_nothing_is_asked_while_there_is_none_open(watching: Watching) -> None:
    assert await watching.tick() is None
    assert watching.asked() == []


async def test_an_unchanged_pull_request_costs_only_conditional_requests(watching: Watching) -> None:
    await watching.add("quiet")
    assert await watching.tick() == PERIOD_S
    assert watching.asked()[-1] == ("graphql", 200)
    await watching.tick(after=PERIOD_S)  # the commit is known now, and its checks are requested first
    watching.asked()

    assert await watching.tick(after=PERIOD_S) == PERIOD_S
    assert [status for _, status in watching.asked()] == [304, 304, 304]
    assert (await watching.row("quiet")).check_time == watching.time[0]
    assert await watching.tick(after=PERIOD_S / 2) == PERIOD_S / 2
    assert watching.asked() == [], "not before a minute is over"


async def test_checks_reviews_and_the_end_are_noticed(watching: Watching) -> None:
    pull = await watching.add("busy")
    for _ in range(2):
        await watching.tick(after=PERIOD_S)
    watching.github.check(pull, "test", "failure")
    await watching.tick(after=PERIOD_S)
    assert (await watching.row("busy")).checks == Checks.FAILED
    watching.github.comment(pull, "a.txt", 1, "hm")
    await watching.tick(after=PERIOD_S)
    assert "1 open review thread" in (await watching.row("busy")).blockers
    pull.state, pull.head = "closed", "1" * 40
    assert await watching.tick(after=PERIOD_S) is None
    assert (await watching.row("busy")).state == PullState.CLOSED
    watching.asked()
    assert await watching.tick(after=PERIOD_S) is None
    assert watching.asked() == []


async def test_errors_of_a_host_lengthen_the_pause_until_a_success(watching: Watching) -> None:
    await watching.add("one")
    await watching.add("two")
    watching.github.fail(500)
    rests = []
    for _ in range(6):
        rest = await watching.tick()
        assert rest is not None
        rests.append(rest)
        assert len(watching.asked()) == 1, "the second is not tried after the first has failed"
        watching.time[0] += rest
    assert rests == [120, 240, 480, LONGEST_S, LONGEST_S, LONGEST_S]
    assert "fails (" in (await watching.row("one")).error
    watching.github.heal()
    assert await watching.tick() == PERIOD_S
    assert {(await watching.row(name)).error for name in ("one", "two")} == {""}


@pytest.mark.parametrize(
    ("headers", "rest"),
    [
        ({"Retry-After": "1800"}, 1800.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "4102444800"}, None),
        ({}, 120.0),
    ],
)
async def test_a_rate_limit_is_waited_out_as_long_as_it_says(
    watching: Watching, headers: dict[str, str], rest: float | None
) -> None:
    await watching.add("one")
    watching.github.fail(403, "API rate limit exceeded", headers=headers)
    found = await watching.tick()
    assert found is not None
    assert found == rest if rest is not None else found > LONGEST_S
    watching.github.heal()
    watching.asked()
    await watching.tick(after=100)
    assert watching.asked() == []


async def test_without_a_login_it_is_said_and_tried_later(watching: Watching, sandbox: Sandbox) -> None:
    await watching.add("one")
    hosts = sandbox.root / "config" / "gh" / "hosts.yml"
    hosts.unlink()
    assert await watching.tick() == 2 * PERIOD_S
    assert "not logged in" in (await watching.row("one")).error
    log_in(hosts.parent, sandbox.root / "github.sock")
    await watching.tick(after=2 * PERIOD_S)
    assert (await watching.row("one")).error == ""
