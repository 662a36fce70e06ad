"""Every state × every process that can be killed: the session's state afterwards, and that it can
then continue to its end.

For each kind of victim, one daemon has eight sessions in the eight states; then the victims of all
sessions are killed at once.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from ramet.v1 import common_pb2, session_pb2

from tests.crash.scene import (
    Gates,
    approve,
    check_prompts,
    delete,
    flag_of,
    leftovers,
    open_requests,
    settle_down,
    the_pid,
)
from tests.support.agents import script
from tests.support.daemon import (
    FAILED,
    IDLE,
    LOST,
    PAUSED,
    QUEUED,
    STARTING,
    WAITING,
    WORKING,
    Client,
    DaemonProcess,
    Sandbox,
    connected,
    daemon_process,
    git,
    make_sandbox,
)
from tests.support.eventually import eventually

pytestmark = pytest.mark.crash

SAME, NEW, NONE = "the same process", "a new process", "no process"
DAEMON, AGENT, KEEPER, ALL = "daemon", "agent", "keeper", "all"

# The states after recovery, before any call. A lost session resumes by itself, to the end of its
# turn.
EXPECTED: dict[str, dict[str, tuple[int, str]]] = {
    #            daemon                    agent                    keeper                   all ("reboot")
    "queued":   {DAEMON: (QUEUED, NONE),   AGENT: (QUEUED, NONE),   KEEPER: (QUEUED, NONE),   ALL: (QUEUED, NONE)},
    "starting": {DAEMON: (STARTING, SAME), AGENT: (STARTING, NEW),  KEEPER: (STARTING, NEW),  ALL: (STARTING, NEW)},
    "working":  {DAEMON: (WORKING, SAME),  AGENT: (WORKING, NEW),   KEEPER: (WORKING, NEW),   ALL: (WORKING, NEW)},
    "waiting":  {DAEMON: (WAITING, SAME),  AGENT: (WAITING, NEW),   KEEPER: (WAITING, NEW),   ALL: (WAITING, NEW)},
    "idle":     {DAEMON: (IDLE, SAME),     AGENT: (IDLE, NONE),     KEEPER: (IDLE, NONE),     ALL: (IDLE, NONE)},
    "paused":   {DAEMON: (PAUSED, SAME),   AGENT: (PAUSED, NONE),   KEEPER: (PAUSED, NONE),   ALL: (PAUSED, NONE)},
    "lost":     {DAEMON: (IDLE, NEW),      AGENT: (IDLE, NEW),      KEEPER: (IDLE, NEW),      ALL: (IDLE, NEW)},
    "failed":   {DAEMON: (FAILED, NONE),   AGENT: (FAILED, NONE),   KEEPER: (FAILED, NONE),   ALL: (FAILED, NONE)},
}  # fmt: skip
BEFORE = {
    "queued": QUEUED, "starting": STARTING, "working": WORKING, "waiting": WAITING,
    "idle": IDLE, "paused": PAUSED, "lost": LOST, "failed": FAILED,
}  # fmt: skip
MODES = {"working": common_pb2.PERMISSION_MODE_BYPASS_PERMISSIONS, "idle": common_pb2.PERMISSION_MODE_PLAN}
MODE = common_pb2.PERMISSION_MODE_ACCEPT_EDITS
FLAGS = {
    common_pb2.PERMISSION_MODE_BYPASS_PERMISSIONS: "bypassPermissions",
    common_pb2.PERMISSION_MODE_PLAN: "plan",
    common_pb2.PERMISSION_MODE_ACCEPT_EDITS: "acceptEdits",
}


@dataclass
class Play:
    """Eight sessions, one in each state. Faults are collected, so that the test shows those of all
    sessions."""

    client: Client
    daemon: DaemonProcess
    gates: Gates
    repository: Path
    texts: dict[str, list[str]] = field(default_factory=dict)
    made: dict[str, session_pb2.Session] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)
    faults: dict[str, list[Exception]] = field(default_factory=dict)

    @property
    def sandbox(self) -> Sandbox:
        return self.daemon.sandbox

    def pid(self, state: str) -> int:
        return the_pid(self.sandbox, self.made[state].conversation_id)

    @contextmanager
    def noting(self, state: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised again by the test
            error.add_note(f"state before: {state}")
            self.faults.setdefault(state, []).append(error)

    # ── into the states ───────────────────────────────────────────────────────────────────────────

    async def create(self, state: str, *steps: dict[str, Any], after: tuple[str, ...] = ()) -> None:
        text = script({"text": f"I am {state}"}, *steps)
        self.texts[state] = [text]
        self.made[state] = await self.client.create(
            self.repository, text, name=state, mode=MODES.get(state, MODE), model="claude-sonnet-5",
            environment={"GATE": state}, after=after,
        )  # fmt: skip

    async def send(self, state: str) -> None:
        text = script({"text": f"once more {len(self.texts[state])}"})
        await self.client.send(state, text)
        self.texts[state].append(text)

    async def begin(self) -> None:
        gates, client = self.gates, self.client
        for gate in ("starting.hold", "failed.refuse", "lost.die", "work"):
            gates.close(gate)
        bash = {"tool": "Bash", "input": {"command": "echo ran >> ran.txt", "description": "x"}}
        await self.create("idle")
        await self.create("paused")
        await self.create("failed")
        await self.create("waiting", bash)
        await self.create("working", gates.wait_for_gate("work"))
        await self.create("queued", after=("working",))
        await self.create("starting")
        await client.reach("paused", IDLE)
        await client.sessions.PauseSession(session_pb2.PauseSessionRequest(session="paused"), metadata=client.metadata)
        await self.send("paused")
        await client.reach("waiting", WAITING)
        await self.send("waiting")
        await self.work_begun()
        await self.send("working")
        await eventually(lambda: gates.tries("starting") == 1)
        for state in ("idle", "failed"):
            await client.reach(state, BEFORE[state])
        self.requests = await open_requests(client)
        # Last, as it is lost only until the daemon resumes it: for ten seconds after the third
        # loss.
        await self.create("lost")
        await eventually(lambda: gates.tries("lost") == 3)
        await client.reach("lost", LOST)
        gates.open("lost.die")
        for state, wanted in reversed(BEFORE.items()):
            with self.noting(state):
                assert (await client.get(state)).state == wanted
                self.pids[state] = self.pid(state)

    async def work_begun(self) -> None:
        """Wait until the turn of "working" is at its gate, so that later prompts arrive during
        it."""

        async def called() -> bool:
            return any(event.HasField("assistant_message") and any(block.HasField("tool_call") for block in event.assistant_message.blocks)
                       for event in await self.client.log("working"))  # fmt: skip

        await eventually(called)

    # ── the kill ──────────────────────────────────────────────────────────────────────────────────

    def strike(self, victim: str) -> None:
        if victim == DAEMON:
            self.daemon.kill()
        elif victim == ALL:
            self.sandbox.kill_everything()
            assert self.daemon.process is not None
            self.daemon.process.wait()
        else:
            keepers = self.sandbox.keepers()
            agents = self.sandbox.agents()
            for process in keepers if victim == KEEPER else agents:
                os.kill(process.pid, signal.SIGKILL)
            psutil.wait_procs(keepers if victim == KEEPER else agents, timeout=10)
        if victim in {DAEMON, ALL}:
            self.daemon.start()

    # ── after it ──────────────────────────────────────────────────────────────────────────────────

    async def settled(self, state: str, victim: str) -> None:
        wanted, process = EXPECTED[state][victim]

        async def look() -> bool:
            session = await self.client.get(state)
            pid = self.pid(state)
            described = f"{session_pb2.SessionState.Name(session.state)} ({session.state_reason}), process {pid}"
            assert session.state == wanted, described
            assert session.agent_alive == (process != NONE), described
            assert {SAME: pid == self.pids[state] != 0, NEW: pid not in {0, self.pids[state]}, NONE: pid == 0}[
                process
            ], described
            if pid:
                assert flag_of(pid, "--permission-mode") == FLAGS[self.made[state].mode]
                assert flag_of(pid, "--model") == "claude-sonnet-5"
            return True

        with self.noting(state):
            await eventually(look)
        if state == "waiting":
            with self.noting(state):
                assert await open_requests(self.client) == self.requests, "the same question is open"

    async def finish(self, state: str) -> None:
        """Do what a person would do next, and check the result."""
        with self.noting(state):
            if state == "waiting":
                await approve(self.client, self.requests[state])
            if state == "paused":
                request = session_pb2.ResumeSessionRequest(session=state)
                await self.client.sessions.ResumeSession(request, metadata=self.client.metadata)
            if state in {"idle", "failed"}:
                await self.send(state)
            session = await settle_down(self.client, state)
            assert session.conversation_id == self.made[state].conversation_id
            assert (session.mode, session.model) == (self.made[state].mode, "claude-sonnet-5")
            self.pid(state)
            await check_prompts(self.client, self.sandbox, session, self.texts[state])
            if state == "waiting":
                assert (Path(session.worktree) / "ran.txt").read_text() == "ran\n"

    async def remove(self, state: str) -> None:
        with self.noting(state):
            await delete(self.client, state)
            assert not leftovers(self.sandbox, self.repository, self.made[state].id)
            assert f"ramet/{state}" not in git(self.repository, "branch")


async def play(victim: str) -> Play:
    with make_sandbox() as sandbox:
        gates = Gates(sandbox)
        with daemon_process(sandbox) as daemon:
            async with connected(sandbox) as client:
                played = Play(client, daemon, gates, sandbox.repository())
                await played.begin()
                played.strike(victim)
                for state in EXPECTED:
                    await played.settled(state, victim)
                gates.open_all()
                for state in EXPECTED:
                    await played.finish(state)
                for state in EXPECTED:
                    await played.remove(state)
                return played


@pytest.mark.parametrize("victim", [pytest.param(DAEMON, marks=pytest.mark.smoke), AGENT, KEEPER, ALL])
async def test_a_session_in_any_state_survives(victim: str) -> None:
    played = await play(victim)

    faults = [error for state in played.faults for error in played.faults[state]]
    if faults:
        raise ExceptionGroup(f"killed: {victim}", faults)
