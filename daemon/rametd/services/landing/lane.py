"""One merge queue: the entries of a repository that land on one branch, taken in rounds.

A round puts the entries that are ready on top of each other, in order, checks the last of these commits, and moves the target to it. Where the
check fails, halving finds the first entry that it fails with: those before it land, it goes back to its agent, and those after it come
again. An entry that does not go together with another of the round, but with the target, comes again too: only the target sends it back.

What is durable: the entries' rows, and an operation while the target is moved. Everything before that operation is done again after a crash. With
an operation, the branch itself says whether it has moved, and the rows follow it.
"""

import asyncio
from collections.abc import Sequence
from enum import Enum
from functools import partial
from pathlib import Path

from rametd.domain.commands import Command
from rametd.domain.errors import RametError
from rametd.domain.landing import AT_WORK, READY, LandingState
from rametd.domain.models import Session
from rametd.domain.states import BUSY_STATES, State
from rametd.git import RepositoryInfo, ending_words
from rametd.services.core import Core
from rametd.services.landing import entries, words
from rametd.services.landing.check import Checked, Checker
from rametd.services.landing.move import Mover
from rametd.services.landing.outcomes import Outcomes
from rametd.services.landing.steps import Composer, Ready, Scene, Step
from rametd.services.landing.trees import tree_name
from rametd.services.repos import info_of
from rametd.services.settings import for_repository
from rametd.services.worktrees.places import tree_of
from rametd.store import Unit


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


BEFORE = "; before: "
"""In the reason of an entry that its agent has not mended: what sent it back."""
PATIENCE_S = 30.0
"""How long an entry waits for a merge or the like to end in its worktree before the daemon asks a person."""
S = LandingState


class Round(Enum):
    """What came of a round."""

    AGAIN = "again"  # something has moved: look again at once
    REST = "rest"  # nothing can be done for now; what is waited for comes without a word
    ASLEEP = "asleep"  # nothing can be done until an agent or a person has done something
    EMPTY = "empty"  # no entry is open


class Lane:
    """The queue of one target."""

    def __init__(self, core: Core, checker: Checker, mover: Mover, repo_id: str, target: str) -> None:
        self._core = core
        self._repo_id, self._target = repo_id, target
        outcomes = self._outcomes = Outcomes(core)
        self._composer = Composer(core, outcomes, repo_id, target)
        self._bisection = Bisection(core, checker, outcomes, target)
        self._mover = mover
        # What need not be done again while nothing it was made of has changed:
        self._passed: tuple[object, list[Step]] | None = (
            None  # a batch whose check has passed, and that git would not move
        )
        self._git_busy_since: dict[str, float] = {}  # by entry, on the event loop's clock
        self._stuck: dict[str, tuple[Step, str]] = {}  # by entry: what a checkout keeps from landing, and why

    def taken_out(self, landing_id: str) -> None:
        """An entry was: if it is being checked, what is checked will never land."""
        if landing_id in self._bisection.busy_with:
            self._bisection.stop()

    async def round(self) -> Round:
        """Raises what git and the store raise; the rows then say no more than is so, and the next round goes on from there."""
        core = self._core
        if not await core.store.read(lambda reader: reader.landings.open(self._repo_id, self._target)):
            return Round.EMPTY  # also when the repository is no longer ours to look at
        repo = await core.store.read(lambda reader: reader.repos.get(self._repo_id))
        info = await info_of(core, repo)
        await self._mover.settle(self._repo_id, self._target)
        again = await self._look_at_returned(info)
        found = await core.store.read(lambda reader: reader.landings.open(self._repo_id, self._target))
        if not found:
            return Round.EMPTY
        ready = await self._ready(info)
        old = await core.git.branches.tip(info, self._target)
        if old is None:
            for each in ready:
                await self._outcomes.hold(each.landing, f"the branch {self._target} is gone")
            return Round.AGAIN if ready or again else Round.REST
        ready = await self._without_stuck(info, ready, old)
        if not ready:
            if again:
                return Round.AGAIN
            return Round.REST if any(landing.state in READY for landing in found) else Round.ASLEEP
        key = (old, [(each.landing.id, each.tip, each.landing.checks, each.landing.method) for each in ready])
        if self._passed is not None and self._passed[0] == key:
            return Round.AGAIN if await self._move(self._passed[1]) or again else Round.REST
        self._passed = None
        config = await for_repository(core, repo, info)
        path = tree_of(core, repo, tree_name(self._target))
        async with core.git.landing.tree(info, path, old) as tree:
            moved_on = await self._land(Scene(repo, info, config, old, tree), ready, key)
        return Round.AGAIN if moved_on or again else Round.REST

    async def fail(self, error: RametError, *, ask: bool) -> None:
        """A round failed: its entries wait, for the reason that the error gives, or are held where a person is to be asked."""
        core = self._core
        found = await core.store.read(
            lambda reader: [
                landing
                for landing in reader.landings.open(self._repo_id, self._target)
                if landing.state in READY | AT_WORK and entries.move_of(reader, landing) is None
            ]
        )
        reason = "; ".join(filter(None, [error.message, error.hint]))
        for landing in found:
            if ask:
                await self._outcomes.hold(landing, reason)
            else:
                await self._outcomes.change(landing, S.WAITING, f"{reason} (tried again by itself)")

    async def _land(self, scene: Scene, ready: list[Ready], key: object) -> bool:
        """Returns whether anything has changed for those that are left."""
        steps, off = await self._composer.compose(scene, ready)
        while steps and (reasons := await self._composer.reasons(scene.info, steps)):
            for step in steps:
                if reason := reasons.get(step.landing.id):
                    self._stuck[step.landing.id] = step, reason
                    await self._outcomes.change(step.landing, S.WAITING, reason)
            await self._outcomes.release([step.landing for step in steps if step.landing.id not in reasons])
            ready = [each for each in ready if each.landing.id not in reasons]
            steps, more = await self._composer.compose(scene, ready) if ready else ([], False)
            off = off or more
        if not steps:
            return off
        verdict = await self._bisection.check(scene, steps)
        self._core.failpoint.hit("land.checked")
        if verdict is None:  # one of them was taken out
            await self._outcomes.release([step.landing for step in steps])
            return True
        good, culprit = verdict
        if culprit is not None:
            await self._bisection.failed(scene, steps[good], culprit, alone=good == 0)
        elif len(steps) == len(ready):
            self._passed = (key, steps)
        moved = bool(good) and await self._move(steps[:good])
        await self._outcomes.release([step.landing for step in steps[good:]])
        return moved or off or good < len(ready)

    async def _move(self, steps: Sequence[Step]) -> bool:
        return await self._mover.move(self._repo_id, self._target, steps)

    async def _without_stuck(self, info: RepositoryInfo, ready: list[Ready], old: str) -> list[Ready]:
        """Leave out those that somebody's checkout still keeps from landing, for the reason that they say: nothing is done for them."""
        left = []
        for each in ready:
            step, reason = self._stuck.get(each.landing.id, (None, ""))
            # What it was put on top of may have been others of its round, which have landed or not since.
            if step is not None and (step.ready.tip, step.old) == (each.tip, old):
                reasons = await self._composer.reasons(info, [step])
                if reasons.get(each.landing.id) == reason and each.landing.state == S.WAITING:
                    continue
            self._stuck.pop(each.landing.id, None)
            left.append(each)
        return left

    # ── who is ready ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _ready(self, info: RepositoryInfo) -> list[Ready]:
        """Those whose turn it is, in order; what the others wait for is written down."""
        core = self._core
        found = await core.store.read(
            lambda reader: [
                (landing, reader.sessions.find(landing.session_id), entries.in_hand(reader, landing.session_id))
                for landing in reader.landings.open(self._repo_id, self._target)
                if landing.state in READY
            ]
        )
        ready: list[Ready] = []
        for landing, session, in_hand in found:
            if session is None:
                await self._outcomes.change(landing, S.REMOVED, entries.GONE)
                continue
            if in_hand:
                await self._outcomes.change(landing, S.WAITING, in_hand)
                continue
            tip = await core.git.branches.tip(info, landing.branch)
            if tip is None:
                await self._outcomes.hold(landing, f"its branch {landing.branch} is gone")
            elif reason := await self._not_yet(session):
                await self._outcomes.change(landing, S.WAITING, reason)
            elif reason := await self._unfinished_git(session):
                now = asyncio.get_running_loop().time()
                if now - self._git_busy_since.setdefault(landing.id, now) < PATIENCE_S:
                    await self._outcomes.change(landing, S.WAITING, reason)
                    continue
                await self._outcomes.hold(landing, reason)
            elif reason := await self._uncommitted(session):
                await self._outcomes.change(landing, S.WAITING, reason)
            else:
                ready.append(Ready(landing, session, tip))
            self._git_busy_since.pop(landing.id, None)
        return await self._in_order(ready)

    async def _not_yet(self, session: Session) -> str:
        """Say that a session's agent still works, "" if it does not."""
        busy = session.state in BUSY_STATES | {State.QUEUED, State.LOST}
        return f"its agent is at work ({session.state})" if busy else ""

    async def _unfinished_git(self, session: Session) -> str:
        """Say which git command is under way in a session's worktree and what ends it, "" if none is."""
        tree = session.worktree
        if not await asyncio.to_thread(tree.is_dir):
            return ""  # archived: only the branch exists
        busy = await self._core.git.landing.under_way(tree)
        return f"{busy} is under way in {tree}: end it by {ending_words(tree, busy)}" if busy else ""

    async def _uncommitted(self, session: Session) -> str:
        """Say which files of a session's worktree are not committed, "" if all are."""
        if not await asyncio.to_thread(session.worktree.is_dir):
            return ""
        dirty = await self._core.git.landing.uncommitted(session.worktree)
        return f"{len(dirty)} uncommitted files in {session.worktree}: {', '.join(dirty[:3])}" if dirty else ""

    async def _in_order(self, ready: list[Ready]) -> list[Ready]:
        """Put those that others wait for before them; leave out, and say so, who waits for one that is not ready."""
        ordered: list[Ready] = []
        left = list(ready)
        while True:
            before = [each.session.id for each in ordered]
            for each in left:
                if not await self._composer.blockers(each.landing, before):
                    ordered.append(each)
                    left.remove(each)
                    break
            else:
                break
        for each in left:
            names = await self._composer.blockers(each.landing, [])
            await self._outcomes.change(each.landing, S.WAITING, f"{', '.join(names)} is to land first")
        return ordered

    async def _look_at_returned(self, info: RepositoryInfo) -> bool:
        """Queue again what agents are done with; returns whether there was any."""
        core = self._core
        found = await core.store.read(
            lambda reader: [
                (landing, session, bool(reader.prompts.open(landing.session_id)))
                for landing in reader.landings.open(self._repo_id, self._target)
                if landing.state == S.RETURNED and not entries.in_hand(reader, landing.session_id)
                for session in [reader.sessions.find(landing.session_id)]
            ]
        )
        again = False
        for landing, session, has_prompts in found:
            if session is None:
                await self._outcomes.change(landing, S.REMOVED, entries.GONE)
            elif entries.cannot_work(session):
                await self._outcomes.hold(landing, f"{landing.reason}; {session.name} is {session.state}")
            elif session.state == State.IDLE and not has_prompts:
                tip = await core.git.branches.tip(info, landing.branch)
                missing = await self._not_yet(session)
                if tip == landing.commit:
                    missing = "its agent has ended the turn without a new commit"
                if missing:
                    cause = landing.reason.rpartition(BEFORE)[2]
                    await self._outcomes.give_back(
                        landing, f"{missing}{BEFORE}{cause}", words.unfinished_prompt(landing, missing), tip or ""
                    )
                else:
                    await core.store.write(partial(entries.requeue, landing=landing))
            else:
                continue
            again = True
        return again
