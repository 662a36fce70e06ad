"""Ports of sessions: each owns a block of numbers as long as it exists, archived or not."""

import errno
import re
import socket
from collections.abc import Iterable, Iterator
from dataclasses import replace

from rametd.config import Config
from rametd.domain.errors import CapReachedError
from rametd.domain.models import Session
from rametd.store import Reader

HIGHEST = 65535
ADDRESSES = (
    (socket.AF_INET, "127.0.0.1"),
    (socket.AF_INET, "0.0.0.0"),  # noqa: S104 - only to test whether the port is in use
    (socket.AF_INET6, "::1"),
    (socket.AF_INET6, "::"),
)


def allocate(reader: Reader, config: Config, wanted: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """Find the lowest block of ports that no other session owns and no program uses; return its
    first number and its size.

    ``wanted``: the session's former block, reused unless another session owns it. Call this in the
    unit of work that stores the block; testing a port takes some microseconds. Raises
    `CapReachedError` if there is no free block.
    """
    count = config.ports.per_session
    taken = reader.sessions.port_blocks()
    base, length = wanted
    if length and all(base + length <= start or start + size <= base for start, size in taken):
        return wanted
    if not count:
        return 0, 0
    for block in _gaps(taken, config.ports.base, count):
        if all(is_free(port) for port in block):
            return block.start, count
    raise CapReachedError(
        f"there are no {count} free ports from {config.ports.base} on",
        hint="remove sessions, or lower ports.base or ports.per_session",
        cap="ports",
    )


def with_ports(reader: Reader, session: Session, config: Config) -> Session:
    """Give a session its block before it is stored; see `allocate`."""
    base, count = allocate(reader, config, (session.port_base, session.port_count))
    return replace(session, port_base=base, port_count=count)


def _gaps(taken: Iterable[tuple[int, int]], base: int, count: int) -> Iterator[range]:
    """Yield free blocks in ascending order."""
    start = base
    for first, size in [*sorted(taken), (HIGHEST + 1, 1)]:
        while start + count <= first:
            yield range(start, start + count)
            start += count
        start = max(start, first + size)


def is_free(port: int) -> bool:
    """Whether a server could listen on the port, on any address of the machine."""
    for family, address in ADDRESSES:
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: ignore old connections
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, port))
        except OSError as error:
            if error.errno in {errno.EADDRINUSE, errno.EACCES}:
                return False
            # Other errors: this machine does not have the address family or address.
    return True


def variables(session: Session, names: Iterable[str]) -> dict[str, str]:
    """RAMET_PORT_0, … and RAMET_PORT_<NAME> for each of ``names``, which get the ports of the block
    in order."""
    ports = range(session.port_base, session.port_base + session.port_count)
    numbered = {f"RAMET_PORT_{index}": str(port) for index, port in enumerate(ports)}
    return numbered | {variable_of(name): str(port) for name, port in zip(names, ports, strict=False)}


def port_of(session: Session, name: str, names: Iterable[str]) -> int | None:
    """The port of the configured command ``name``; None if the block is too small."""
    ports = range(session.port_base, session.port_base + session.port_count)
    return dict(zip(names, ports, strict=False)).get(name)


def variable_of(name: str) -> str:
    return "RAMET_PORT_" + re.sub(r"[^A-Z0-9]", "_", name.upper())
