"""What is to run in a worktree, and the row that it begins with."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rametd.domain.commands import Command, CommandKind, CommandState
from rametd.domain.models import DAEMON
from rametd.services.ids import ALPHABET, LENGTH, new_id
from rametd.store import Unit

Remember = Callable[[Unit, Command], None]


def remember_nothing(unit: Unit, command: Command) -> None:
    """A command that nothing else is told of."""


@dataclass(frozen=True, slots=True)
class NewCommand:
    """What is to run. ``timeout`` is seconds; ``environment`` is added to the session's; without a ``session`` it is complete.

    ``request_id`` makes the same request the same command; ``remember`` runs in the unit of work that says that it runs.
    """

    argv: tuple[str, ...]
    kind: CommandKind = CommandKind.RUN
    name: str = ""
    timeout: float | None = None
    digest: str = ""
    principal: str = DAEMON
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    request_id: str = ""
    remember: Remember = remember_nothing


def draft(now: float, new: NewCommand, tree: Path, session_id: str, repo_id: str) -> Command:
    """The row of a command that is about to start ``now`` in the worktree ``tree``; without a session ``session_id`` is empty."""
    return Command(
        id=_id_of(new.request_id) if new.request_id else new_id(),
        session_id=session_id,
        repo_id=repo_id,
        kind=new.kind,
        name=new.name,
        argv=new.argv,
        directory=tree,
        state=CommandState.STARTING,
        handle="",
        pid=0,
        exit_status="",
        stop_reason="",
        deadline=None if new.timeout is None else now + new.timeout,
        reported_bytes=0,
        output_bytes=0,
        digest=new.digest,
        principal=new.principal,
        start_time=now,
        end_time=None,
    )


def _id_of(request_id: str) -> str:
    digest = hashlib.sha256(request_id.encode()).digest()
    letters = [ALPHABET[byte % len(ALPHABET)] for byte in digest[: 2 * LENGTH]]
    return ALPHABET[digest[-1] % 24] + "".join(letters[1:])
