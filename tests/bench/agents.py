"""Costs of each installed kind of agent: its start with a first turn, and its memory."""

import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import psutil
from ramet.v1 import common_pb2, session_pb2

from tests.bench.figures import MB, Figure, Scale, progress
from tests.support import other_agents
from tests.support.agents import scripted_model
from tests.support.daemon import IDLE, Client, connected, daemon_process, make_sandbox

BYPASS = common_pb2.PERMISSION_MODE_BYPASS_PERMISSIONS


async def rows(scale: Scale) -> AsyncIterator[Figure]:
    """Measure one session of each kind at every scale."""
    del scale
    async with scripted_model() as port:
        with tempfile.TemporaryDirectory() as directory:
            config = "[permissions]\nallow_bypass = true\n" + other_agents.configuration(Path(directory) / "own", port)
            with (
                make_sandbox(model_port=port, real_cli=True, config=config) as sandbox,
                daemon_process(sandbox, forked=False),
            ):
                repository = sandbox.repository()
                async with connected(sandbox) as client:
                    for name in ("claude", *other_agents.SETTINGS):
                        if name != "claude" and not other_agents.program_of(name):
                            progress(f"{name} is not installed: {other_agents.KNOWN[name].install}")
                            continue
                        progress(f"an agent of the kind {name}")
                        began = time.perf_counter()
                        asks = name == "claude" or other_agents.KNOWN[name].capabilities.ask
                        await client.create(repository, "hello", name=name, agent=name, mode=0 if asks else BYPASS)
                        await client.reach(name, IDLE)
                        took = time.perf_counter() - began
                        how = "from the call that creates the session to the end of its first turn, model scripted"
                        yield Figure(f"start of {name}", took, "s", how)
                        how = "PSS of its processes after that turn"
                        yield Figure(f"memory of {name}", await memory(client, name), "MB", how)


async def memory(client: Client, name: str) -> float:
    request = session_pb2.GetSessionRequest(session=name)
    process = psutil.Process((await client.sessions.GetSession(request, metadata=client.metadata)).process.pid)
    total = 0
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # a child that has just ended
            total += each.memory_full_info().pss
    return total / MB
