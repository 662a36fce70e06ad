"""One merge queue: the entries of a repository that land on one branch, processed in rounds.

A round merges the ready entries on top of each other, in order, checks the last commit, and moves
the target to it. If the check fails, bisection finds the first failing entry: the entries before it
land, it returns to its agent, and the entries after it are queued again. An entry that conflicts
with another one of the round, but not with the target, is queued again too.

The store has the rows of entries and, while the target is moved, an operation. After a crash
without an operation the round is repeated. With one, the commit of the branch shows whether it was
moved, and the rows are updated.
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
from rametd.services.trust.settings import for_repository
from rametd.services.worktrees.places import tree_of
from rametd.store import Unit


class Bisection:
    """Checks a batch of one queue, and bisects it. ``busy_with`` has the ids of the entries that
    are being checked."""

    def __init__(self, core: Core, checker: Checker, outcomes: Outcomes, target: str) -> None:
        self._core = core
        self._checker = checker
        self._outcomes = outcomes
        self._target = target
        self._checking: asyncio.Task[Checked] | None = None
        self.busy_with: tuple[str, ...] = ()

    def stop(self) -> None:
        """Cancel the check: an entry of the batch was removed, so the batch cannot land."""
        if self._checking is not None:
            self._checking.cancel()

    async def check(self, scene: Scene, steps: Sequence[Step]) -> tuple[int, Checked | None] | None:
        """Return how many of the first steps pass together, and the failed check that includes the
        next step, None if all pass.

        None if `stop` cancelled it.
        """
        checks = steps[0].landing.checks
        batch = tuple(step.landing.id for step in steps)
        await self._begin_check(steps, batch)
        self.busy_with = batch
        try:
            good, bad, failure = 0, len(steps) + 1, None
            # Usually all steps pass, so check them together first. Then bisect until the first bad
            # step follows the last good one.
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
        """Check one commit; None if `stop` cancelled it."""
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
        finally:  # also when the daemon stops: no check outlives it
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
        # The repository's check should pass without this work. A check of the entry's own may need
        # it.
        if on_target and (landing.checks == scene.config.land.check or culprit.in_setup):
            # The agent did not cause this failure.
            what = "setup" if culprit.in_setup else "check"
            await self._outcomes.hold(landing, f"the {what} fails on {self._target} itself: {culprit.words}")
            return
        prompt = words.failure_prompt(landing, culprit.words, culprit.output, on_target=on_target)
        without = f" (and on {self._target} without this work)" if on_target else ""
        await self._outcomes.give_back(landing, f"the check fails{without}: {culprit.words}", prompt, step.ready.tip)


LISTED = 3
"""Files that a reason names."""
NO_COMMIT = "; its agent made no new commit"
"""Appended to the reason of an entry that its agent did not fix."""
PATIENCE_S = 30.0
"""How long an entry waits for a merge to end in its worktree, or for files to be committed, before
the daemon asks a person."""
S = LandingState


class Round(Enum):
    """Result of a round."""

    AGAIN = "again"  # run another round at once
    REST = "rest"  # entries wait for a change that causes no event: poll
    ASLEEP = "asleep"  # entries wait for an agent or a person, which cause events
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
        # Results that stay valid while their inputs do not change:
        self._passed: tuple[object, list[Step]] | None = (
            None  # a batch that passed its check, to which git could not move the target
        )
        self._unfinished_since: dict[str, float] = {}  # by entry, on the event loop's clock
        self._stuck: dict[str, tuple[Step, str]] = {}  # by entry: its step, and why a checkout blocks it

    def entry_removed(self, landing_id: str) -> None:
        """Cancel the check of a removed entry."""
        if landing_id in self._bisection.busy_with:
            self._bisection.stop()

    async def round(self) -> Round:
        """Run one round. Errors of git and the store pass through; the rows are consistent after
        them, and the next round continues."""
        core = self._core
        if not await core.store.read(lambda reader: reader.landings.open(self._repo_id, self._target)):
            return Round.EMPTY  # also if the repository is no longer registered
        repo = await core.store.read(lambda reader: reader.repos.get(self._repo_id))
        info = await info_of(core, repo)
        await self._mover.settle(self._repo_id, self._target)
        again = await self._requeue_returned(info)
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
            steps = self._passed[1]
            reasons = await self._composer.reasons(info, steps)
            if not reasons:
                return Round.AGAIN if await self._move(steps) or again else Round.REST
            if len(reasons) == len(steps):  # the check stays valid until the checkout is free
                for step in steps:
                    await self._outcomes.change(step.landing, S.WAITING, reasons[step.landing.id])
                return Round.AGAIN if again else Round.REST
        self._passed = None
        config = await for_repository(core, repo, info)
        path = tree_of(core, repo, tree_name(self._target))
        async with core.git.landing.tree(info, path, old) as tree:
            moved_on = await self._land(Scene(repo, info, config, old, tree), ready, key)
        return Round.AGAIN if moved_on or again else Round.REST

    async def fail(self, error: RametError, *, ask: bool) -> None:
        """Record a failed round: entries wait, with the error as reason. With ``ask``, hold them
        and ask the person."""
        core = self._core
        found = await core.store.read(
            lambda reader: [
                landing
                for landing in reader.landings.open(self._repo_id, self._target)
                if landing.state in READY | AT_WORK and entries.move_of(reader, landing) is None
            ]
        )
        reason = entries.reason_of(error)
        for landing in found:
            if ask:
                await self._outcomes.hold(landing, reason)
            else:
                await self._outcomes.change(landing, S.WAITING, f"{reason} (retried automatically)")

    async def _land(self, scene: Scene, ready: list[Ready], key: object) -> bool:
        """Merge, check and land; return whether the remaining entries need another round."""
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
        if verdict is None:  # an entry was removed
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
        """Omit entries that a checkout still blocks for the recorded reason."""
        left = []
        for each in ready:
            step, reason = self._stuck.get(each.landing.id, (None, ""))
            # The step may have been merged on top of other entries, which may have landed since.
            if step is not None and (step.ready.tip, step.old) == (each.tip, old):
                reasons = await self._composer.reasons(info, [step])
                if reasons.get(each.landing.id) == reason and each.landing.state == S.WAITING:
                    continue
            self._stuck.pop(each.landing.id, None)
            left.append(each)
        return left

    # ── who is ready ──────────────────────────────────────────────────────────────────────────────

    async def _ready(self, info: RepositoryInfo) -> list[Ready]:
        """Ready entries in order; record why the others wait."""
        core = self._core
        found = await core.store.read(
            lambda reader: [
                (
                    landing,
                    reader.sessions.find(landing.session_id),
                    entries.blocked_by_operation(reader, landing.session_id),
                )
                for landing in reader.landings.open(self._repo_id, self._target)
                if landing.state in READY
            ]
        )
        ready: list[Ready] = []
        for landing, session, blocked in found:
            if session is None:
                await self._outcomes.change(landing, S.REMOVED, entries.GONE)
                continue
            if blocked:
                await self._outcomes.change(landing, S.WAITING, blocked)
                continue
            tip = await core.git.branches.tip(info, landing.branch)
            if tip is None:
                await self._outcomes.hold(landing, f"its branch {landing.branch} is gone")
            elif reason := await self._not_yet(session):
                await self._outcomes.change(landing, S.WAITING, reason)
            elif reason := await self._unfinished_git(session) or await self._uncommitted(session):
                now = asyncio.get_running_loop().time()
                if now - self._unfinished_since.setdefault(landing.id, now) < PATIENCE_S:
                    await self._outcomes.change(landing, S.WAITING, reason)
                    continue
                await self._outcomes.hold(landing, reason)
            else:
                ready.append(Ready(landing, session, tip))
            self._unfinished_since.pop(landing.id, None)
        return await self._in_order(ready)

    async def _not_yet(self, session: Session) -> str:
        """Reason to wait if the session's agent still works, "" if it does not."""
        if session.state == State.WAITING:
            return f"its agent waits for your answer: `rametctl inbox {session.reference}`"
        busy = session.state in BUSY_STATES | {State.QUEUED, State.LOST}
        return f"its agent is at work ({session.state})" if busy else ""

    async def _unfinished_git(self, session: Session) -> str:
        """Reason to wait if a git command is under way in a session's worktree, with the command
        that ends it; "" if none is."""
        tree = session.worktree
        if not await asyncio.to_thread(tree.is_dir):
            return ""  # archived: only the branch exists
        busy = await self._core.git.landing.under_way(tree)
        return f"{busy} is under way in {tree}: end it by {ending_words(tree, busy)}" if busy else ""

    async def _uncommitted(self, session: Session) -> str:
        """Reason to wait if files of a session's worktree are not committed, "" if all are."""
        if not await asyncio.to_thread(session.worktree.is_dir):
            return ""
        dirty = await self._core.git.landing.uncommitted(session.worktree)
        more = f" and {len(dirty) - LISTED} more" if len(dirty) > LISTED else ""
        return f"not committed: {', '.join(dirty[:LISTED])}{more}; commit it, or tell its agent to" if dirty else ""

    async def _in_order(self, ready: list[Ready]) -> list[Ready]:
        """Sort entries so that each follows those that it waits for. Omit, with a reason, entries
        that wait for one that is not ready."""
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
            await self._outcomes.change(each.landing, S.WAITING, f"waits for {', '.join(names)} to land")
        return ordered

    async def _requeue_returned(self, info: RepositoryInfo) -> bool:
        """Queue returned entries again that agents have finished; return whether there was one."""
        core = self._core
        found = await core.store.read(
            lambda reader: [
                (landing, session, bool(reader.prompts.open(landing.session_id)))
                for landing in reader.landings.open(self._repo_id, self._target)
                if landing.state == S.RETURNED and not entries.blocked_by_operation(reader, landing.session_id)
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
                if tip == landing.commit:
                    reason = landing.reason.removesuffix(NO_COMMIT) + NO_COMMIT
                    await self._outcomes.give_back(landing, reason, words.unfinished_prompt(landing), tip or "")
                else:
                    await core.store.write(partial(entries.requeue, landing=landing))
            else:
                continue
            again = True
        return again
