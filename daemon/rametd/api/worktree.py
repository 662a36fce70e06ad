"""WorktreeService."""

from ramet.v1 import worktree_pb2_grpc

from rametd.api.calls import Calls
from rametd.api.changes import ChangeCalls
from rametd.api.checkpoints import CheckpointCalls
from rametd.api.conflicts import ConflictCalls
from rametd.api.pool import PoolCalls
from rametd.api.reviews import ReviewCalls
from rametd.api.trash import TrashCalls
from rametd.api.upkeep import UpkeepCalls
from rametd.services.agents.supervisor import Supervisor
from rametd.services.core import Core
from rametd.services.creation.pool import Pool
from rametd.services.departures.departures import Departures
from rametd.services.radar.radar import Radar
from rametd.services.trackers import Trackers
from rametd.services.upkeep.collector import Collector
from rametd.services.upkeep.doctor import Doctor
from rametd.services.worktrees.checkpoints import Checkpointer
from rametd.services.worktrees.comments import Reviewer
from rametd.services.worktrees.rewind import Rewinder
from rametd.services.worktrees.sync import Syncer


class WorktreeServicer(
    ChangeCalls,
    CheckpointCalls,
    ConflictCalls,
    PoolCalls,
    ReviewCalls,
    TrashCalls,
    UpkeepCalls,
    worktree_pb2_grpc.WorktreeServiceServicer,
):
    def __init__(
        self,
        core: Core,
        calls: Calls,
        checkpointer: Checkpointer,
        rewinder: Rewinder,
        departures: Departures,
        pool: Pool,
        radar: Radar,
        syncer: Syncer,
        trackers: Trackers,
        supervisor: Supervisor,
    ) -> None:
        self._core = core
        self._calls = calls
        self._checkpointer = checkpointer
        self._rewinder = rewinder
        self._pool = pool
        self._radar = radar
        self._trackers = trackers
        self._reviewer = Reviewer(core)
        self._syncer = syncer
        self._departures = departures
        self._collector = Collector(core, departures.remover)
        self._doctor = Doctor(core, supervisor)
