"""Helpers for tests of landing: sessions with work, and calls on the merge queues."""

import uuid
from pathlib import Path
from typing import Any

from ramet.v1 import landing_pb2, landing_pb2_grpc, session_pb2

from tests.support.daemon import Client, git
from tests.support.eventually import PATIENCE_S, eventually

QUEUED = landing_pb2.LANDING_STATE_QUEUED
CHECKING = landing_pb2.LANDING_STATE_CHECKING
WAITING = landing_pb2.LANDING_STATE_WAITING
RETURNED = landing_pb2.LANDING_STATE_RETURNED
HELD = landing_pb2.LANDING_STATE_HELD
LANDED = landing_pb2.LANDING_STATE_LANDED
REMOVED = landing_pb2.LANDING_STATE_REMOVED


class Landings:
    """Calls on the merge queues."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stub = landing_pb2_grpc.LandingServiceStub(client.channel)

    async def land(self, *sessions: str, **fields: Any) -> list[landing_pb2.Landing]:
        fields.setdefault("request_id", str(uuid.uuid4()))
        request = landing_pb2.LandSessionsRequest(sessions=sessions, **fields)
        return list((await self._stub.LandSessions(request, metadata=self._client.metadata)).landings)

    async def wait(self, *names: str, seconds: float = 30) -> dict[str, landing_pb2.Landing]:
        """Wait until all have ended or need a person; return the entries by session's name."""
        request = landing_pb2.WaitLandingsRequest(landings=names, timeout_seconds=seconds)
        response = await self._stub.WaitLandings(request, metadata=self._client.metadata)
        assert not response.timed_out, response.landings
        return {each.session_name: each for each in response.landings}

    async def list(self, **fields: Any) -> list[landing_pb2.Landing]:
        request = landing_pb2.ListLandingsRequest(**fields)
        return list((await self._stub.ListLandings(request, metadata=self._client.metadata)).landings)

    async def remove(self, name: str, **fields: Any) -> landing_pb2.Landing:
        request = landing_pb2.RemoveLandingRequest(landing=name, **fields)
        return (await self._stub.RemoveLanding(request, metadata=self._client.metadata)).landing

    async def retry(self, name: str, **fields: Any) -> landing_pb2.Landing:
        request = landing_pb2.RetryLandingRequest(landing=name, **fields)
        return (await self._stub.RetryLanding(request, metadata=self._client.metadata)).landing

    async def reach(self, name: str, state: int, words: str = "", within: float = PATIENCE_S) -> landing_pb2.Landing:
        """Wait until the entry of a session is in a state, with ``words`` in its reason."""

        async def look() -> landing_pb2.Landing:
            named = [each for each in await self.list(include_ended=True) if each.session_name == name]
            assert named, f"{name} is in no queue"
            found = named[0]  # the open one, else the newest
            assert found.state == state, f"{landing_pb2.LandingState.Name(found.state)}: {found.reason}"
            assert words in found.reason, found.reason
            return found

        return await eventually(look, within=within)


async def with_work(client: Client, repository: Path, name: str, *files: str, **fields: Any) -> session_pb2.Session:
    """Create a session whose branch has a commit with these files, each containing the session's
    name."""
    session = await client.create(repository, name=name, **fields)
    commit(session, **dict.fromkeys(files or (f"{name}.txt",), f"{name}\n"))
    return session


def commit(session: session_pb2.Session, **files: str) -> str:
    """Write files in a session's worktree and commit them; names of files may have dots and
    slashes."""
    tree = Path(session.worktree)
    for name, content in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(content)
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", f"work of {session.name}")
    return git(tree, "rev-parse", "HEAD")


def subjects(repository: Path, ref: str = "main") -> list[str]:
    """Return the subjects of the first parents, the newest first."""
    return git(repository, "log", "--first-parent", "--format=%s", ref).splitlines()


def moves(repository: Path, branch: str = "main") -> int:
    """Return how often a branch was moved since its creation."""
    return len(git(repository, "reflog", "show", "--format=%H", f"refs/heads/{branch}").splitlines()) - 1


def break_filter(repository: Path, *names: str) -> Path:
    """Make git fail to write these files in the person's checkout, and only there; return a file
    whose removal mends that."""
    for key, value in {"smudge": "test ! -e broken && cat", "clean": "cat", "required": "true"}.items():
        git(repository, "config", f"filter.picky.{key}", value)
    for file, lines in {"attributes": [f"{name} filter=picky" for name in names], "exclude": ["broken"]}.items():
        (repository / ".git" / "info").mkdir(exist_ok=True)
        (repository / ".git" / "info" / file).write_text("".join(f"{line}\n" for line in lines))
    broken = repository / "broken"
    broken.touch()
    return broken
