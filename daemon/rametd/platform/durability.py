"""Make written files survive a power cut.

A written or renamed file reaches the disk only seconds later: its content after some 30 s, its name after 5 s (ext4). Names and
deletions may arrive first, so that a power cut leaves empty files and loses others. Git flushes packs, but not loose objects
and refs; libgit2 flushes nothing.
"""

import ctypes
import os
import sys
from pathlib import Path

if sys.platform == "darwin":
    import fcntl

    def _flush(descriptor: int, place: Path) -> None:
        os.sync()  # to the disk, which has a cache of its own
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError as error:  # a file system without it, such as a network one
            raise OSError(error.errno, error.strerror, str(place)) from error

else:
    _libc = ctypes.CDLL(None, use_errno=True)

    def _flush(descriptor: int, place: Path) -> None:
        if _libc.syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(place))


def make_durable(*places: Path) -> None:
    """Flush all earlier writes to the file systems of ``places``; they then survive a power cut. Blocks.

    It flushes whole file systems (syncfs(2)), whoever wrote to them: one wait instead of one per file and directory. It takes
    under a millisecond if nothing is outstanding, 10 to 30 ms after some hundred files, seconds while another program writes
    gigabytes. A missing place counts as its nearest existing directory, which must be readable. Raises OSError if a write
    failed.
    """
    done: set[int] = set()
    for place in places:
        existing = next(each for each in (place, *place.parents) if each.is_dir())
        descriptor = os.open(existing, os.O_RDONLY | os.O_CLOEXEC)
        try:
            device = os.fstat(descriptor).st_dev
            if device not in done:
                _flush(descriptor, existing)
                done.add(device)
        finally:
            os.close(descriptor)
