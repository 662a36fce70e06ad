"""`Git`: the git layer as services see it, with an attribute for each noun."""

from collections.abc import Collection, Mapping
from pathlib import Path

from rametd.git.branches import Branches
from rametd.git.commits import Commits, ignores_case
from rametd.git.context import GitContext
from rametd.git.diff import Diffs
from rametd.git.foreign import included_files
from rametd.git.hooks import hooks_folder
from rametd.git.inventory import Upkeep
from rametd.git.landing import Landing
from rametd.git.pool import Spares
from rametd.git.prediction import Matrix
from rametd.git.refs import Refs
from rametd.git.remotes import Remotes
from rametd.git.repository import RepositoryInfo, discover
from rametd.git.snapshots.snapshots import Snapshots
from rametd.git.syncing import Syncing
from rametd.git.tracking import Tracker, Trackers
from rametd.git.worktrees import Worktrees


class Git:
    """The application creates one, and closes it with `aclose`.

    ``environment`` is for git processes (PATH, HOME, SSH_AUTH_SOCK, ..., without stray GIT_*
    variables). ``lock_timeout`` is in seconds, for lock files of other git processes. Every method
    of every noun may raise GitFailedError (with git's message), GitBusyError (try again later), and
    RepoNotFoundError or UnsupportedRepositoryError for a repository that cannot be opened.
    """

    def __init__(self, environment: Mapping[str, str], *, threads: int = 4, lock_timeout: float = 10.0) -> None:
        trackers: dict[Path, Tracker] = {}
        context = self._context = GitContext(threads, environment, lock_timeout, trackers)
        self.trackers = Trackers(context, trackers)
        self.branches = Branches(context)
        self.commits = Commits(context)
        self.diffs = Diffs(context)
        self.landing = Landing(context)
        self.refs = Refs(context)
        self.remotes = Remotes(context)
        self.snapshots = Snapshots(context)
        self.spares = Spares(context, self.trackers)
        self.syncing = Syncing(context)
        self.upkeep = Upkeep(context)
        self.worktrees = Worktrees(context, self.trackers)
        self.discover = context.threaded(discover)
        self.ignores_case = context.threaded(ignores_case)
        self.hooks_folder = context.bind(hooks_folder)
        self.included_files = context.threaded(
            lambda repo: included_files(repo.common_dir, repo.common_dir, context.process.environment)
        )

    async def aclose(self) -> None:
        """Wait for running threads."""
        await self.trackers.aclose()
        await self._context.aclose()

    def trust(self, common_dir: Path, items: Collection[str] | None = None) -> None:
        """Allow the programs in the configuration of a repository that a person registered.

        ``items``: digests of the items that the person trusts, among them files of the checkout
        that the configuration includes. None leaves them unchanged.
        """
        known = self._context.trusted.get(common_dir, frozenset())
        self._context.trusted[common_dir] = known if items is None else items

    def distrust(self, common_dir: Path) -> None:
        """Allow no program in the configuration of a repository that a person removed."""
        self._context.trusted.pop(common_dir, None)

    async def make_durable(self, common_dir: Path, *worktrees: Path) -> None:
        """Sync a repository and the files of its worktrees to disk.

        Call this before an answer reports a step that recovery would not repeat. Destructive
        methods call it themselves. See `durability.make_durable` for the cost.
        """
        await self._context.make_durable(common_dir, *{each.parent for each in worktrees})

    def matrix(self, repo: RepositoryInfo) -> Matrix:
        """Create the object that compares a repository's sessions. It caches results: create one
        for each repository."""
        return Matrix(self._context, repo.common_dir)
