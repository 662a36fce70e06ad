"""inotify(7) by ctypes: changed entries of directories, in kernel order.

The kernel queues an event inside the system call that causes it, so a reader that empties the queue
has seen every earlier change. Libraries that read the queue in a separate thread lose this
guarantee, and some hide that the queue has overflowed.
"""

import asyncio
import ctypes
import os
import struct
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from errno import EMFILE, ENFILE, ENOMEM, ENOSPC
from typing import Final

IN_MODIFY: Final = 0x2
IN_ATTRIB: Final = 0x4
IN_CLOSE_WRITE: Final = 0x8
IN_MOVED_FROM: Final = 0x40
IN_MOVED_TO: Final = 0x80
IN_CREATE: Final = 0x100
IN_DELETE: Final = 0x200
IN_DELETE_SELF: Final = 0x400
IN_MOVE_SELF: Final = 0x800
IN_UNMOUNT: Final = 0x2000
IN_Q_OVERFLOW: Final = 0x4000
IN_IGNORED: Final = 0x8000
IN_ONLYDIR: Final = 0x01000000
IN_DONT_FOLLOW: Final = 0x02000000
IN_EXCL_UNLINK: Final = 0x04000000
IN_ISDIR: Final = 0x40000000

CHANGES: Final = (
    IN_MODIFY
    | IN_ATTRIB
    | IN_CLOSE_WRITE
    | IN_MOVED_FROM
    | IN_MOVED_TO
    | IN_CREATE
    | IN_DELETE
    | IN_DELETE_SELF
    | IN_MOVE_SELF
)
APPEARED: Final = IN_CREATE | IN_MOVED_TO
LEFT: Final = IN_MOVED_FROM | IN_DELETE
_HEADER: Final = struct.Struct("iIII")
_BUFFER: Final = 1 << 16

SUPPORTED: Final = sys.platform.startswith("linux")


class OutOfWatchesError(Exception):
    """Raised when the system has no more watches or instances; the text names the limit to
    raise."""


@dataclass(frozen=True, slots=True)
class Event:
    """One change. ``name`` is the entry in the directory of watch ``wd``, empty for the directory
    itself."""

    wd: int
    mask: int
    name: str


class Inotify:
    """One queue of events. The constructor and `watch` raise `OutOfWatchesError`."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = self._call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)

    def watch(self, directory: str) -> int:
        """Watch a directory; return the number of its watch, the same one if repeated. Raises
        OSError if it is not a directory."""
        flags = IN_ONLYDIR | IN_DONT_FOLLOW | IN_EXCL_UNLINK
        return self._call("inotify_add_watch", self.descriptor, os.fsencode(directory), CHANGES | flags)

    def unwatch(self, wd: int) -> None:
        """Remove a watch, if the kernel still has it."""
        self._libc.inotify_rm_watch(self.descriptor, wd)

    def read(self) -> Iterator[Event]:
        """Iterate over the queued events; never waits."""
        while True:
            try:
                data = os.read(self.descriptor, _BUFFER)
            except BlockingIOError:
                return
            offset = 0
            while offset < len(data):
                wd, mask, _, length = _HEADER.unpack_from(data, offset)
                offset += _HEADER.size
                yield Event(wd, mask, os.fsdecode(data[offset : offset + length].rstrip(b"\0")))
                offset += length

    def close(self) -> None:
        """Close in a thread: the kernel takes some 25 ms."""
        threading.Thread(target=os.close, args=(self.descriptor,)).start()

    def _call(self, name: str, *arguments: int | bytes) -> int:
        result = int(getattr(self._libc, name)(*arguments))
        if result >= 0:
            return result
        number = ctypes.get_errno()
        if number == ENOSPC:
            raise OutOfWatchesError("the system is out of file watches: raise fs.inotify.max_user_watches")
        if number in {EMFILE, ENFILE, ENOMEM}:
            raise OutOfWatchesError(
                f"cannot create a file watch ({os.strerror(number)}): raise fs.inotify.max_user_instances"
            )
        raise OSError(number, os.strerror(number), arguments[1] if len(arguments) > 1 else None)


@asynccontextmanager
async def watching(directory: str, call: Callable[[], object]) -> AsyncIterator[bool]:
    """Call ``call`` on the running loop after changes of a directory's entries. Yield False if the
    directory cannot be watched: it does not exist, or the system has no watch left."""
    queue = await asyncio.to_thread(_watched, directory)
    if queue is None:
        yield False
        return

    def read() -> None:
        if any(queue.read()):
            call()

    loop = asyncio.get_running_loop()
    loop.add_reader(queue.descriptor, read)
    try:
        yield True
    finally:
        loop.remove_reader(queue.descriptor)
        queue.close()


def _watched(directory: str) -> Inotify | None:
    if not SUPPORTED:
        return None
    try:
        queue = Inotify()
    except OutOfWatchesError:
        return None
    try:
        queue.watch(directory)
    except (OutOfWatchesError, OSError):
        queue.close()
        return None
    return queue
