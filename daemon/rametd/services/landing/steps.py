"""Merge entries on top of each other, and find what blocks them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rametd.config import Config
from rametd.domain.errors import RametError, UnavailableError, WrongStateError
from rametd.domain.landing import Landing, LandingState
from rametd.domain.models import Repo, Session
from rametd.domain.states import BUSY_STATES
from rametd.git import Combined, Conflict, LandingTree, RepositoryInfo, Target
from rametd.services.core import Core
from rametd.services.environments import for_git
from rametd.services.landing import entries, words
from rametd.services.landing.outcomes import Outcomes
from rametd.services.operations import holder_of, name_of
from rametd.store import Reader, Unit

BATCH = 8
"""Most entries that are checked together."""
S = LandingState


@dataclass(frozen=True, slots=True)
class Ready:
    """A ready entry. ``tip``: the commit of its branch."""

    landing: Landing
    session: Session
    tip: str


@dataclass(frozen=True, slots=True)
class Step:
    """An entry that is merged on top of those before it: ``old`` is the commit before it, ``new``
    the one with it."""

    ready: Ready
    old: str
    new: str

    @property
    def landing(self) -> Landing:
        return self.ready.landing

    @property
    def move(self) -> tuple[Landing, str, str, str]:
        return self.ready.landing, self.ready.tip, self.old, self.new


@dataclass(frozen=True, slots=True)
class Scene:
    """Inputs of a round."""

    repo: Repo
    info: RepositoryInfo
    config: Config
    old: str  # the target's commit
    tree: LandingTree


class Composer:
    """Merges the entries of one queue."""

    def __init__(self, core: Core, outcomes: Outcomes, repo_id: str, target: str) -> None:
        self._core = core
        self._outcomes = outcomes
        self._repo_id, self._target = repo_id, target

    async def blockers(self, landing: Landing, before: Sequence[str]) -> list[str]:
        """Names of sessions that must land first. ``before``: ids of sessions that land in the same
        round."""
        return await self._core.store.read(lambda reader: entries.blockers(reader, landing, before))

    async def compose(self, scene: Scene, ready: Sequence[Ready]) -> tuple[list[Step], bool]:
        """Merge ready entries on top of each other; return the steps, and whether an entry left the
        queue."""
        steps: list[Step] = []
        off = False
        onto = scene.old
        checks = ready[0].landing.checks
        for each in ready[:BATCH]:
            with_it = [step.ready.session.id for step in steps]
            if each.landing.checks != checks or await self.blockers(each.landing, with_it):
                continue  # in the next round
            await self._outcomes.change(each.landing, S.MERGING, "")
            try:
                if there := await self._has_landed(scene, each):
                    await self._record_landed(each, there)
                    off = True
                    continue
                combined = await self._combine(scene, each, onto)
                if isinstance(combined, Conflict) and onto != scene.old:
                    single = await self._combine(scene, each, scene.old)
                    if isinstance(single, Combined):
                        await self._outcomes.release([each.landing])
                        continue
                    combined = single
                if isinstance(combined, Combined):
                    await self._refuse_unpublished(scene, each, onto, combined.commit)
            except UnavailableError:
                raise
            except RametError as error:
                await self._outcomes.hold(each.landing, entries.reason_of(error))
                off = True
                continue
            if isinstance(combined, Conflict):
                reason = f"conflicts with {self._target} in {', '.join(combined.paths[:3]) or 'its history'}"
                prompt = words.conflict_prompt(each.landing, combined.paths)
                await self._outcomes.give_back(each.landing, reason, prompt, each.tip)
                off = True
            elif combined.commit == scene.old:
                await self._record_landed(each, f"on {self._target} already")
                off = True
            else:
                steps.append(Step(each, onto, combined.commit))
                onto = combined.commit
        self._core.failpoint.hit("land.composed")
        return steps, off

    async def _refuse_unpublished(self, scene: Scene, each: Ready, old: str, new: str) -> None:
        """Raise `WrongStateError` if a submodule would land at a commit that is not published."""
        if single := await self._core.git.landing.unpublished(scene.info, each.session.worktree, old, new):
            raise WrongStateError(single[0].words, hint=single[0].hint)

    async def _combine(self, scene: Scene, each: Ready, onto: str) -> Combined | Conflict:
        landing, session = each.landing, each.session
        goal = await self._core.store.read(lambda reader: words.goal_of(reader, session))
        environment = await for_git(self._core, session.id)
        match landing.method:
            case "rebase":
                return await scene.tree.rebase(onto, each.tip, environment)
            case "squash":
                commits = await self._core.git.landing.commits(scene.info, onto, each.tip)
                message = words.squash_message(session, goal, commits)
                return await scene.tree.squash(onto, each.tip, message, environment)
            case _:
                message = words.merge_message(session, self._target, goal)
                return await scene.tree.merge(onto, each.tip, message, environment)

    async def _has_landed(self, scene: Scene, each: Ready) -> str:
        """Return how the work reached the target outside of Ramet, "" if it did not. Merging such
        work would create an empty commit."""
        onto = Target(self._target, scene.old)
        there = await self._core.git.landing.landed(scene.info, each.tip, each.session.base_commit, (onto,))
        return f"already: {there.reason}" if there else ""

    async def _record_landed(self, each: Ready, reason: str) -> None:
        def work(unit: Unit) -> None:
            landing = unit.landings.get(each.landing.id)
            if landing.state == S.MERGING:
                unit.landings.update(landing.id, commit=each.tip)
                entries.landed(unit, landing, reason)

        await self._core.store.write(work)

    async def reasons(self, info: RepositoryInfo, steps: Sequence[Step]) -> dict[str, str]:
        """Reasons why a checkout of the target blocks steps, by entry. Steps that it does not block
        have none."""
        targets = self._core.git.landing.targets
        every = [step.landing.id for step in steps]
        checkout = await targets.checkout(info, self._target)
        path = checkout.path if checkout is not None else None
        owner, in_hands = await self._core.store.read(lambda reader: self._owner(reader, path))
        if in_hands:
            return dict.fromkeys(every, in_hands)
        if checkout is None:
            return {}
        if checkout.blocked:
            return dict.fromkeys(every, checkout.blocked)
        if owner is not None and owner.state in BUSY_STATES:
            return dict.fromkeys(every, f"{owner.name} works on {self._target} in {checkout.path}")
        reasons = {}
        for step in steps:
            if paths := await targets.in_the_way(checkout, step.old, step.new):
                more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
                listed = f"{', '.join(paths[:3])}{more}"
                reasons[step.landing.id] = f"changes in {checkout.path} are in the way: {listed}; commit or move them"
        return reasons

    def _owner(self, reader: Reader, path: Path | None) -> tuple[Session | None, str]:
        """The session that works in a checkout, and a description of the operation that has it or
        is about to check out the target."""
        owner = next((each for each in reader.sessions.list(repo_id=self._repo_id) if each.worktree == path), None)
        found = (
            reader.operations.exclusive(owner.id)
            if owner is not None
            else holder_of(reader, self._repo_id, self._target)
        )
        if found is None:
            return owner, ""
        return owner, f"{name_of(reader, found)}, which has {self._target} checked out, is {found.doing}"
