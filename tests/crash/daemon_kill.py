"""Kill the daemon repeatedly while agents stream, and check that nothing is lost, doubled or out of
order.

    python -m tests.crash.daemon_kill --rounds 200

Prints its counts as JSON; fails at the first error. Agents are scripted. Each round starts the
daemon and kills it with SIGKILL: in one of four before it serves, else within 1.5 seconds of
serving. Meanwhile it sends prompts, many during a turn, and answers permission requests; the next
round repeats a call that the kill interrupted with its request id.
"""

# ruff: noqa: S311 - chance must be the same in every run

import argparse
import asyncio
import json
import random
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import grpc
from ramet.v1 import common_pb2, daemon_pb2, session_pb2

from tests.crash.scene import approve, open_requests, the_pid, transcript
from tests.support.agents import script
from tests.support.daemon import Client, DaemonProcess, Sandbox, connected, make_sandbox, reason_of
from tests.support.eventually import eventually

MODE = common_pb2.PERMISSION_MODE_ACCEPT_EDITS
CONFIG = "max_working = 100\n[radar]\ntell_agents = false\n"  # they all write one file, and warnings would be counted
OUTSTANDING = 3
"""Most queued prompts of a session."""
LINGER_S = 1.5


@dataclass
class Counts:
    rounds: int = 0
    killed_before_serving: int = 0
    sessions: int = 0
    events: int = 0
    bytes: int = 0
    prompts: int = 0
    prompts_within_a_turn: int = 0
    approvals: int = 0
    calls_cut_off: int = 0
    seconds: float = 0.0
    slowest_start: float = 0.0
    starts: list[float] = field(default_factory=list, repr=False)


@dataclass
class Talk:
    """Prompts that were sent to one session."""

    session: session_pb2.Session
    pid: int
    calls: list[session_pb2.SendPromptRequest] = field(default_factory=list)
    unsure: session_pb2.SendPromptRequest | None = None  # the kill interrupted it

    @property
    def texts(self) -> list[str]:
        return [call.prompt for call in self.calls]


class DaemonKill:
    def __init__(self, sandbox: Sandbox, client: Client, *, sessions: int, seed: int) -> None:
        self.counts = Counts(sessions=sessions)
        self._sandbox = sandbox
        self._client = client
        self._daemon = DaemonProcess(sandbox)
        self._chance = random.Random(seed)
        self._repository = sandbox.repository()
        self._talks: dict[str, Talk] = {}

    # ── the rounds ────────────────────────────────────────────────────────────────────────────────

    async def run(self, rounds: int, limit: float) -> None:
        began = time.monotonic()
        await self._start()
        await self._create()
        self._daemon.kill()
        while self.counts.rounds < rounds and time.monotonic() - began < limit:
            await self._round()
        await self._start()
        await self._serve_until_quiet()
        await self._check()
        self.counts.seconds = round(time.monotonic() - began, 1)
        self.counts.slowest_start = max(self.counts.starts)
        self._daemon.stop()

    async def _create(self) -> None:
        for number in range(self.counts.sessions):
            name = f"s{number}"
            await self._client.create(self._repository, name=name, mode=MODE)
            session = await self._client.get(name)
            self._talks[name] = Talk(session, 0)
            await self._say(name)
        for name, talk in self._talks.items():
            talk.pid = await eventually(partial(the_pid, self._sandbox, talk.session.conversation_id), within=60)
            assert talk.pid, name

    async def _round(self) -> None:
        self.counts.rounds += 1
        # Sleep, as the kill must happen at a random time.
        if self._chance.random() < 0.25:
            self._daemon.start(wait=False)
            await asyncio.sleep(self._chance.uniform(0, 1.0))
            self._daemon.kill()
            self.counts.killed_before_serving += 1
            return
        await self._start()
        talking = asyncio.create_task(self._talk_on())
        await asyncio.wait([talking], timeout=self._chance.uniform(0, LINGER_S))
        self._daemon.kill()
        try:
            await talking
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE:
                raise
            self.counts.calls_cut_off += 1

    async def _start(self) -> None:
        began = time.monotonic()
        self._daemon.start(wait=False)
        await eventually(self._is_serving, within=60)
        self.counts.starts.append(round(time.monotonic() - began, 2))

    async def _is_serving(self) -> bool:
        assert self._daemon.process is not None
        assert self._daemon.process.poll() is None or self._fail("the daemon ended by itself")
        try:
            info = await self._client.daemon.GetInfo(daemon_pb2.GetInfoRequest(), timeout=2, wait_for_ready=True)
        except grpc.aio.AioRpcError:
            return False
        return info.serving and info.pid == self._daemon.pid

    def _fail(self, words: str) -> bool:
        raise RuntimeError(f"{words}: {(self._sandbox.root / 'rametd.out').read_text()[-2000:]}")

    # ── talking ───────────────────────────────────────────────────────────────────────────────────

    async def _talk_on(self) -> None:
        while True:
            await self._approve_all()
            turns = await self._turns()
            for name in self._chance.sample(list(self._talks), len(self._talks)):
                talk = self._talks[name]
                if talk.unsure is not None or (
                    len(talk.calls) - turns[name] < OUTSTANDING and self._chance.random() < 0.3
                ):
                    await self._say(name)
            await asyncio.sleep(0.02)  # the pace of prompts; waits for nothing

    async def _turns(self) -> dict[str, int]:
        listed = await self._client.sessions.ListSessions(
            session_pb2.ListSessionsRequest(page_size=1000), metadata=self._client.metadata
        )
        return {session.name: session.turns for session in listed.sessions}

    async def _say(self, name: str) -> None:
        """Send the next prompt, or repeat one that may not have arrived."""
        talk = self._talks[name]
        call = talk.unsure
        if call is None:
            number = len(talk.calls)
            steps: list[dict[str, object]] = [
                {"events": 20, "per_second": 10, "bytes": self._chance.choice((30, 300, 5000))}
            ]
            if self._chance.random() < 0.3:
                command = f"echo {number} >> ran.txt"
                steps.append({"tool": "Bash", "input": {"command": command, "description": "x"}})
            call = session_pb2.SendPromptRequest(
                session=name, prompt=script(*steps, {"text": f"{name}: {number}"}), request_id=f"{name}-{number}"
            )
        talk.unsure = call
        answer = await self._client.sessions.SendPrompt(call, metadata=self._client.metadata)
        self.counts.prompts_within_a_turn += answer.session.state == session_pb2.SESSION_STATE_WORKING
        talk.unsure = None
        talk.calls.append(call)

    async def _approve_all(self) -> None:
        for request_id in (await open_requests(self._client)).values():
            try:
                await approve(self._client, request_id, f"approve-{request_id}")
            except grpc.aio.AioRpcError as error:
                if reason_of(error) != "REQUEST_CLOSED":
                    raise

    async def _serve_until_quiet(self) -> None:
        for name, talk in self._talks.items():
            if talk.unsure is not None:
                await self._say(name)

        async def quiet() -> bool:
            await self._approve_all()
            for name, talk in self._talks.items():
                request = session_pb2.GetSessionRequest(session=name)
                found = await self._client.sessions.GetSession(request, metadata=self._client.metadata)
                state = session_pb2.SessionState.Name(found.session.state)
                assert found.session.state == session_pb2.SESSION_STATE_IDLE, f"{name} is {state}"
                assert not found.pending_prompts, f"{name} has {len(found.pending_prompts)} prompts to come"
                assert found.session.turns == len(talk.calls), (
                    f"{name}: {found.session.turns} of {len(talk.calls)} turns"
                )
            return True

        await eventually(quiet, within=120, every=0.2)

    # ── checks ────────────────────────────────────────────────────────────────────────────────────

    async def _check(self) -> None:
        for name, talk in self._talks.items():
            session = talk.session
            assert the_pid(self._sandbox, session.conversation_id) == talk.pid, f"the agent of {name} died"
            await self._check_journal(name, session.id)
            written = transcript(self._sandbox, session.conversation_id)
            assert [each.text for each in written] == talk.texts, (
                f"the agent of {name} did not get each prompt once and in order"
            )
            ran = Path(session.worktree) / "ran.txt"
            lines = ran.read_text().split() if ran.exists() else []
            wanted = [str(number) for number, text in enumerate(talk.texts) if "ran.txt" in text]
            assert lines == wanted, f"{name} ran {lines}, and was allowed {wanted}"
            self.counts.prompts += len(talk.calls)
            self.counts.approvals += len(wanted)

    async def _check_journal(self, name: str, session_id: str) -> None:
        """Check that every line of the journal is one event, byte for byte and in order, and that
        every prompt has one receipt."""
        folders = sorted((self._sandbox.root / "state" / "agents").glob(f"{session_id}-*"))
        assert [folder.name for folder in folders] == [f"{session_id}-1"], f"{name} had {len(folders)} agents"
        journal = b"".join(path.read_bytes() for path in sorted(folders[0].glob("journal.*")))
        log = await self._client.log(name, frames=True)
        lines = [event for event in log if event.generation]
        offset = 0
        for event in lines:
            assert event.offset == offset, f"{name}: the event after byte {offset} is that of byte {event.offset}"
            offset += len(event.frame) + 1
        assert b"".join(event.frame + b"\n" for event in lines) == journal, f"{name}: events and journal differ"
        received = Counter(event.prompt_received.prompt_id for event in log if event.HasField("prompt_received"))
        assert len(received) == len(self._talks[name].calls), f"{name}: {len(received)} receipts"
        assert set(received.values()) == {1}, f"{name}: a prompt was received twice"
        self.counts.events += len(lines)
        self.counts.bytes += len(journal)

    def close(self) -> None:
        if self._daemon.process is not None and self._daemon.process.poll() is None:
            self._daemon.kill()


async def daemon_kill(rounds: int, *, sessions: int = 20, seed: int = 1, limit: float = 3600.0) -> Counts:
    """Run the rounds and return the counts. Raise `AssertionError` for a loss or a double.
    ``limit`` is in seconds."""
    with make_sandbox(config=CONFIG) as sandbox:
        async with connected(sandbox) as client:
            test = DaemonKill(sandbox, client, sessions=sessions, seed=seed)
            try:
                await test.run(rounds, limit)
            finally:
                test.close()
            return test.counts


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill the daemon while agents stream.")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds after which no further round begins")
    given = parser.parse_args()
    counts = asdict(asyncio.run(daemon_kill(given.rounds, sessions=given.sessions, seed=given.seed, limit=given.limit)))
    counts["mean_start"] = round(sum(counts["starts"]) / len(counts.pop("starts")), 2)
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
