"""Store outcomes of entries that a person has not removed meanwhile."""

from collections.abc import Callable, Sequence

from rametd.domain.landing import AT_WORK, READY, Landing, LandingState
from rametd.services.core import Core
from rametd.services.landing import entries
from rametd.store import Unit

S = LandingState


class Outcomes:
    """Each call is one unit of work that reads the present entry."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def change(self, landing: Landing, state: LandingState, reason: str) -> None:
        """Set a state, if it changes."""
        if (landing.state, landing.reason) != (state, reason):
            await self._unless_over(landing, lambda unit, now: entries.change(unit, now, state, reason))

    async def release(self, landings: Sequence[Landing]) -> None:
        """Queue entries again whose state is still merging or checking."""

        def work(unit: Unit) -> None:
            for landing in landings:
                now = unit.landings.get(landing.id)
                if now.state in AT_WORK:
                    entries.change(unit, now, S.QUEUED)

        await self._core.store.write(work)

    async def hold(self, landing: Landing, reason: str) -> None:
        await self._unless_over(landing, lambda unit, now: entries.hold(unit, now, reason))

    async def give_back(self, landing: Landing, reason: str, prompt: str, tip: str) -> None:
        core = self._core
        limit = core.config.land.max_returns

        def work(unit: Unit, now: Landing) -> Landing:
            session = unit.sessions.find(now.session_id)
            kind = core.kind(session.agent if session is not None else "claude")
            return entries.give_back(unit, kind, now, reason, prompt, tip, limit)

        await self._unless_over(landing, work)
        core.live.wake(landing.session_id)

    async def _unless_over(self, landing: Landing, work: Callable[[Unit, Landing], Landing]) -> None:
        """Run ``work`` with the present entry, unless it has ended."""

        def checked(unit: Unit) -> Landing:
            now = unit.landings.get(landing.id)
            return work(unit, now) if now.state in READY | AT_WORK | {S.RETURNED} else now

        changed = await self._core.store.write(checked)
        if changed.state in {S.RETURNED, S.HELD}:
            self._core.failpoint.hit(f"land.{changed.state}")
