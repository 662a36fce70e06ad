"""Checking what was put together, and finding the first that the check fails with."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from rametd.domain.commands import Command
from rametd.domain.landing import AT_WORK, LandingState
from rametd.services.core import Core
from rametd.services.landing import entries, words
from rametd.services.landing.check import Checked, Checker
from rametd.services.landing.outcomes import Outcomes
from rametd.services.landing.steps import Scene, Step
from rametd.store import Unit

S = LandingState


class Bisection:
    """For the queue of one target. ``busy_with`` are the ids of the entries that are being checked."""

    def __init__(self, core: Core, checker: Checker, outcomes: Outcomes, target: str) -> None:
        self._core = core
        self._checker = checker
        self._outcomes = outcomes
        self._target = target
        self._checking: asyncio.Task[Checked] | None = None
        self.busy_with: tuple[str, ...] = ()

    def stop(self) -> None:
        """An entry of the batch was taken out: what is being checked will never land."""
        if self._checking is not None:
            self._checking.cancel()

    async def check(self, scene: Scene, steps: Sequence[Step]) -> tuple[int, Checked | None] | None:
        """How many of the steps, from the first, pass; and how the check ended with the one after them, if there is one.

        None when it was ended because an entry was taken out.
        """
        checks = steps[0].landing.checks
        batch = tuple(step.landing.id for step in steps)
        await self._begin_check(steps, batch)
        self.busy_with = batch
        try:
            good, bad, failure = 0, len(steps) + 1, None
            # The last one first: mostly all is well. Then halves, until the first bad one stands right behind the last good one.
            middle = len(steps)
            while bad - good > 1:
                trees = [step.ready.session.worktree for step in steps]
                checked = await self._check_one(scene, steps[middle - 1].new, checks, trees)
                if checked is None:
                    return None
                if checked.passed:
                    good = middle
                else:
                    bad, failure = middle, checked
                middle = (good + bad) // 2
            return good, failure
        finally:
            self.busy_with = ()

    async def _begin_check(self, steps: Sequence[Step], batch: Sequence[str]) -> None:
        state = S.CHECKING if steps[0].landing.checks else S.MERGING

        def work(unit: Unit) -> None:
            for identity in batch:
                now = unit.landings.get(identity)
                if now.state in AT_WORK:
                    others = tuple(each for each in batch if each != identity)
                    entries.change(unit, now, state, columns={"batch": others})

        await self._core.store.write(work)

    async def _check_one(
        self, scene: Scene, commit: str, checks: Sequence[str], trees: Sequence[Path] = ()
    ) -> Checked | None:
        """None when `stop` has ended it."""
        if not checks:
            return Checked("", "")
        if warnings := await scene.tree.check_out(commit, trees):
            return Checked("; ".join(warnings), "", in_setup=True)
        batch = self.busy_with

        def note(unit: Unit, command: Command) -> None:
            for identity in batch:
                now = unit.landings.get(identity)
                if now.state == S.CHECKING:
                    entries.change(unit, now, S.CHECKING, columns={"check_command_id": command.id})

        run = self._checker.run(scene.tree, scene.repo, scene.config, self._target, checks, note)
        task = self._checking = asyncio.create_task(run, name=f"check-{self._target}")
        try:
            await asyncio.wait([task])
        finally:  # also when the daemon stops: nothing of a check outlives it
            self._checking = None
            task.cancel()
            await asyncio.wait([task])
        return None if task.cancelled() else task.result()

    async def failed(self, scene: Scene, step: Step, culprit: Checked, *, alone: bool) -> None:
        landing = await self._core.store.read(lambda reader: reader.landings.get(step.landing.id))
        if landing.state != S.CHECKING:
            return
        before = await self._check_one(scene, scene.old, landing.checks) if alone else None
        on_target = before is not None and not before.passed
        # What the repository checks has passed before the work came; a check of the entry's own may ask for just what the work is to bring.
        if on_target and (landing.checks == scene.config.land.check or culprit.in_setup):
            # Its agent cannot mend what others broke, nor would it be right to blame it.
            what = "setup" if culprit.in_setup else "check"
            await self._outcomes.hold(landing, f"the {what} fails on {self._target} itself: {culprit.words}")
            return
        prompt = words.failure_prompt(landing, culprit.words, culprit.output, on_target=on_target)
        without = f" (and on {self._target} without this work)" if on_target else ""
        await self._outcomes.give_back(landing, f"the check fails{without}: {culprit.words}", prompt, step.ready.tip)
