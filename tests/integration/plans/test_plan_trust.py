"""Plans of a repository: their checks run once the person trusts them, and their prompts come from
files that git tracks."""

import uuid
from pathlib import Path

import pytest
from ramet.v1 import landing_pb2, plan_pb2

from tests.support.daemon import Client, DaemonProcess, git
from tests.support.family import token_of
from tests.support.plans import sessions

pytestmark = pytest.mark.full

NAMED = [
    ("task.md", True),
    ("./dir0/../task.md", True),
    ("link-inside.md", True),
    ("../outside.md", False),
    ("{outside}", False),
    ("link-out.md", False),
    ("untracked.md", False),
    (".env", False),
    (".git/config", False),
    ("task.md/", True),
    ("a\\u0000b", False),
]


@pytest.fixture
def outside(repository: Path) -> Path:
    """Create a file of the person beside the repository, and links and files in the repository."""
    made = repository.with_name("outside.md")
    made.write_text("secret\n")
    (repository / "task.md").write_text("do it\n")
    (repository / "link-inside.md").symlink_to("task.md")
    (repository / "link-out.md").symlink_to("../outside.md")
    (repository / ".gitignore").write_text(".env\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "prompts")
    (repository / ".env").write_text("password\n")
    (repository / "untracked.md").write_text("draft\n")
    return made


async def prompt_of(client: Client, path: Path, named: str, file: Path | None, token: str = "") -> str:
    """Return the prompt that the daemon read for a thread with a prompt file, "" if it refused."""
    text = f'[[threads]]\nid = "a"\nprompt_file = "{named}"\n'
    request = plan_pb2.CheckPlanRequest(path=str(path), text=text, file=str(file) if file else "")
    metadata = (*client.metadata, *((("ramet-token", token),) if token else ()))
    answer = await client.plans.CheckPlan(request, metadata=metadata)
    assert answer.ok == bool(answer.threads[0].prompt), answer.problems
    return answer.threads[0].prompt


@pytest.mark.parametrize(("named", "read"), NAMED)
@pytest.mark.parametrize("whence", ["a file", "standard input", "a session"])
async def test_a_plan_of_a_repository_names_only_files_that_its_checkout_tracks(
    client: Client, running: DaemonProcess, repository: Path, outside: Path, named: str, read: bool, whence: str
) -> None:
    token = ""
    if whence == "a session":
        token = token_of(running.sandbox, (await client.create(repository, name="one")).id)
    file = None if whence == "standard input" else repository / "plan.toml"
    prompt = await prompt_of(client, repository, named.format(outside=outside), file, token)
    assert prompt == ("do it\n" if read else "")


async def test_only_the_persons_own_plan_outside_of_any_repository_names_any_file(
    client: Client, running: DaemonProcess, repository: Path, outside: Path
) -> None:
    own = repository.with_name("plan.toml")
    assert await prompt_of(client, repository, "outside.md", own) == "secret\n"
    session = await client.create(repository, name="one")
    assert await prompt_of(client, repository, "outside.md", own, token_of(running.sandbox, session.id)) == ""


@pytest.mark.own_changes  # landed files are in the checkout
@pytest.mark.parametrize("place", ["in the repository", "on standard input", "the person's own"])
async def test_the_check_of_a_plan_runs_once_the_person_trusts_it(client: Client, repository: Path, place: str) -> None:
    marks = repository.with_name(f"marks-{uuid.uuid4().hex[:6]}")
    marks.mkdir()
    file = {"in the repository": repository / "plan.toml", "the person's own": repository.with_name("plan.toml")}.get(
        place
    )
    own = place == "the person's own"

    async def applied(check: str, *threads: str) -> list[str]:
        text = "".join(f'[[threads]]\nid = "{each}"\ncheck = "touch {marks}/{check}"\n' for each in threads)
        request = plan_pb2.ApplyPlanRequest(
            path=str(repository), text=text, file=str(file) if file else "", request_id=str(uuid.uuid4())
        )
        return list((await client.plans.ApplyPlan(request, metadata=client.metadata)).warnings)

    async def land(name: str) -> set[str]:
        tree = Path(next(each for each in await sessions(client, repository) if each.name == name).worktree)
        (tree / name).write_text("work\n")
        git(tree, "add", name)
        git(tree, "commit", "-qm", name)
        request = landing_pb2.LandSessionsRequest(sessions=[name], path=str(repository))
        ids = [each.id for each in (await client.landing.LandSessions(request, metadata=client.metadata)).landings]
        wait = landing_pb2.WaitLandingsRequest(landings=ids, timeout_seconds=60)
        (done,) = (await client.landing.WaitLandings(wait, metadata=client.metadata)).landings
        assert done.state == landing_pb2.LANDING_STATE_LANDED, done.reason
        return {each.name for each in marks.iterdir()}

    warnings = await applied("first", "a", "b", "c")
    assert any("does not run until you trust it" in each for each in warnings) != own
    assert await land("a") == ({"first"} if own else set())
    await client.trust(repository)
    assert await land("b") == {"first"}
    await applied("second", "a", "b", "c")
    assert await land("c") == ({"first", "second"} if own else {"first"})


async def test_a_plan_of_a_repository_loosens_no_mode_in_silence(client: Client, repository: Path) -> None:
    text = '[plan]\nmode = "acceptEdits"\n[[threads]]\nid = "a"\n'
    for file, warned in ((repository / "plan.toml", True), (repository.with_name("plan.toml"), False)):
        request = plan_pb2.CheckPlanRequest(path=str(repository), text=text, file=str(file))
        problems = (await client.plans.CheckPlan(request, metadata=client.metadata)).problems
        assert any(each.code == "looser-mode" for each in problems) == warned
