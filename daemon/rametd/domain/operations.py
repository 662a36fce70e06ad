"""Operations: durable, resumable changes to a session that span the database and the disk. One
table of their kinds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from types import MappingProxyType


class Kind(StrEnum):
    """Kinds of operation."""

    CREATE = "create"
    FORK = "fork"
    REMOVE = "remove"
    ARCHIVE = "archive"
    RESTORE = "restore"
    DROP = "drop"
    REWIND = "rewind"
    SYNC = "sync"
    LAND = "land"
    PULL_REQUEST = "pull-request"


class Recovery(Enum):
    """When the next daemon resumes an operation that a killed daemon had begun."""

    FIRST = "first"  # before it serves any RPC
    BESIDE = "beside"  # while it serves RPCs; the session is held until then
    BY_OWNER = "by-owner"  # when the service that owns the kind runs


@dataclass(frozen=True, slots=True)
class Traits:
    """Behaviour of one kind.

    ``doing`` completes "the session is being …", ``noun`` completes "its … could not be finished".
    ``exclusive``: no other operation and no turn of the session begins meanwhile. ``parameters``:
    entries of `Operation.data` that must be equal for a second caller to join the operation.
    ``code``: the ``doctor`` code for an unfinished operation. ``retry``: the verb that repeats it.
    """

    doing: str
    noun: str
    recovery: Recovery
    exclusive: bool = False
    parameters: tuple[str, ...] = ()
    code: str = ""
    retry: tuple[str, ...] = ()


KINDS: Mapping[Kind, Traits] = MappingProxyType(
    {
        Kind.CREATE: Traits("created", "creation", Recovery.FIRST),
        Kind.FORK: Traits("forked", "fork", Recovery.FIRST),
        Kind.REMOVE: Traits(
            "removed", "removal", Recovery.BESIDE, exclusive=True, code="removal-unfinished", retry=("rm",)
        ),
        Kind.ARCHIVE: Traits(
            "archived", "archiving", Recovery.BESIDE, exclusive=True, code="archiving-unfinished", retry=("archive",)
        ),
        Kind.RESTORE: Traits(
            "restored", "restoring", Recovery.BESIDE, exclusive=True, code="restoring-unfinished", retry=("restore",)
        ),
        Kind.DROP: Traits(
            "dropped from the trash", "removal from the trash", Recovery.BESIDE, exclusive=True, code="drop-unfinished"
        ),
        Kind.REWIND: Traits(
            "rewound",
            "rewind",
            Recovery.BESIDE,
            exclusive=True,
            parameters=("checkpoint", "files_only"),
            code="rewind-unfinished",
        ),
        Kind.SYNC: Traits(
            "synced",
            "sync",
            Recovery.BESIDE,
            exclusive=True,
            parameters=("commit", "ref", "rebase", "ask_agent"),
            code="sync-unfinished",
        ),
        Kind.LAND: Traits("landed", "landing", Recovery.BY_OWNER, parameters=("target", "new")),
        Kind.PULL_REQUEST: Traits("pushed", "push", Recovery.BY_OWNER),
    }
)


@dataclass(frozen=True, slots=True)
class Caller:
    """Principal and RPC that requested an operation. The daemon's own operations have no RPC."""

    principal: str
    request_id: str = ""
    method: str = ""
    digest: bytes = b""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, until it is complete or undone.

    ``request_id``, ``principal``, ``method`` and ``digest`` are those of the requesting RPC;
    `finish` stores its answer. ``step`` is the last stored step. ``failed`` is why the last attempt
    failed, "" while one is under way.
    """

    id: str
    kind: Kind
    session_id: str
    request_id: str = ""
    principal: str = ""
    method: str = ""
    digest: bytes = b""
    step: str = ""
    data: dict[str, str] = field(default_factory=dict)
    failed: str = ""
    create_time: float = 0.0
    update_time: float = 0.0

    @property
    def traits(self) -> Traits:
        return KINDS[self.kind]

    @property
    def caller(self) -> Caller:
        return Caller(self.principal, self.request_id, self.method, self.digest)

    @property
    def doing(self) -> str:
        """Progress as words, such as "being removed"."""
        return f"being {self.traits.doing}"

    def agrees_with(self, other: "Operation") -> bool:
        """Whether both have the same parameters, so that one answer serves both callers."""
        return all(self.data.get(name) == other.data.get(name) for name in self.traits.parameters)
