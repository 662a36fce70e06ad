"""Operations: durable changes to a session that span the database and the world. One table of their kinds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from types import MappingProxyType


class Kind(StrEnum):
    """What an operation does to its session."""

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
    """When the next daemon takes up an operation that a killed one had begun."""

    FIRST = "first"  # before it serves any call
    BESIDE = "beside"  # beside the calls that it serves; the session is held until then
    BY_OWNER = "by-owner"  # when the part that owns the kind gets to it


@dataclass(frozen=True, slots=True)
class Traits:
    """How one kind behaves.

    ``doing`` completes "the session is being …", ``noun`` "its … could not be finished". ``exclusive``: no other operation on the session, and no turn of
    its agent, begins meanwhile. ``wishes``: entries of `Operation.data` that a second caller must agree on to share the operation. ``code``: of
    the finding that ``doctor`` has about an operation that hangs; ``retry``: the command that tries it again.
    """

    doing: str
    noun: str
    recovery: Recovery
    exclusive: bool = False
    wishes: tuple[str, ...] = ()
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
            wishes=("checkpoint", "files_only"),
            code="rewind-unfinished",
        ),
        Kind.SYNC: Traits(
            "synced",
            "sync",
            Recovery.BESIDE,
            exclusive=True,
            wishes=("commit", "ref", "rebase", "ask_agent"),
            code="sync-unfinished",
        ),
        Kind.LAND: Traits("landed", "landing", Recovery.BY_OWNER, wishes=("target", "new")),
        Kind.PULL_REQUEST: Traits("pushed", "push", Recovery.BY_OWNER),
    }
)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asked for an operation, and by which call; the daemon's own acts have no call."""

    principal: str
    request_id: str = ""
    method: str = ""
    digest: bytes = b""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, from its beginning until it is complete or undone.

    ``request_id``, ``principal``, ``method`` and ``digest`` are those of the call that asked for it, whose answer is stored with its end. ``step`` is the last
    one that was stored. ``failed`` is why the last attempt came to nothing, "" while it is under way.
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
        """What is done to its session: "being removed"."""
        return f"being {self.traits.doing}"

    def agrees_with(self, other: "Operation") -> bool:
        """Whether both want the same, so that one answer does for both."""
        return all(self.data.get(name) == other.data.get(name) for name in self.traits.wishes)
