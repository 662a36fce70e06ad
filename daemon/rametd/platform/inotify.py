"""inotify(7) by ctypes: which entries of which directories changed, in the kernel's own order.

The kernel queues an event inside the system call that causes it. So whoever reads the queue until it is empty knows of every change that was complete
before; nothing is "on its way". Libraries that read it in a thread of their own give that up, and those that hide the queue's overflow give up more.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Iterator
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
    """The system gives no more watches or instances; the words say which limit to raise."""


@dataclass(frozen=True, slots=True)
class Event:
    """One change. ``name`` is the entry in the directory of watch ``wd``, empty for the directory itself."""

    wd: int
    mask: int
    name: str


class Inotify:
    """One queue. Raises `OutOfWatchesError`, also from `watch`."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = self._call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)

    def watch(self, directory: str) -> int:
        """The number of the watch; the same one for a directory that has one. Raises OSError for what is no directory (any more)."""
        flags = IN_ONLYDIR | IN_DONT_FOLLOW | IN_EXCL_UNLINK
        return self._call("inotify_add_watch", self.descriptor, os.fsencode(directory), CHANGES | flags)

    def unwatch(self, wd: int) -> None:
        """A watch that the kernel has dropped already is no error."""
        self._libc.inotify_rm_watch(self.descriptor, wd)

    def read(self) -> Iterator[Event]:
        """Everything that is queued; never waits."""
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
        os.close(self.descriptor)

    def _call(self, name: str, *arguments: int | bytes) -> int:
        result = int(getattr(self._libc, name)(*arguments))
        if result >= 0:
            return result
        number = ctypes.get_errno()
        if number == ENOSPC:
            raise OutOfWatchesError("the system is out of file watches: raise fs.inotify.max_user_watches")
        if number in {EMFILE, ENFILE, ENOMEM}:
            raise OutOfWatchesError(
                f"no file watches can be had ({os.strerror(number)}): raise fs.inotify.max_user_instances"
            )
        raise OSError(number, os.strerror(number), arguments[1] if len(arguments) > 1 else None)
