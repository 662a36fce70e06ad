"""The cost of a start depends on living agents: for idle sessions the daemon runs no git and makes
no separate read."""

from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import pytest
from rametd.git.context import GitContext
from rametd.parts import Parts
from rametd.store import Store

from tests.bench.figures import TINY
from tests.bench.history import store_history
from tests.support.daemon import daemon_here, make_sandbox

pytestmark = pytest.mark.full

recovering: ContextVar[bool] = ContextVar("recovering", default=False)


async def calls_of_recovery(sessions: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the calls to store and git of a recovery with ``sessions`` idle sessions that have a
    due checkpoint."""
    calls: Counter[str] = Counter()
    until_served: Counter[str] = Counter()

    def counted(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: object, **more: object) -> object:
            calls[name] += recovering.get()
            return original(*arguments, **more)

        return call

    recover = Parts.recover

    async def recover_counted(parts: Parts, stack: AsyncExitStack) -> None:
        recovering.set(True)  # includes the tasks that it starts
        await recover(parts, stack)
        until_served.update(calls)

    with make_sandbox() as sandbox, monkeypatch.context() as patch:
        await store_history(sandbox, replace(TINY, sessions=sessions))
        patch.setattr(Parts, "recover", recover_counted)
        for owner, name in ((Store, "read"), (Store, "write"), (GitContext, "compute")):
            patch.setattr(owner, name, counted(name, getattr(owner, name)))
        async with daemon_here(sandbox):
            return until_served


async def test_recovery_makes_as_many_calls_for_thirty_resting_sessions_as_for_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few, many = await calls_of_recovery(2, monkeypatch), await calls_of_recovery(30, monkeypatch)
    assert few["read"] > 3, "the calls of a recovery are counted"
    assert many == few
