"""Having what was written survive a loss of power.

A file that is written, or renamed into its place, is on the disk only seconds later: some 30 s for its content, 5 s for its name (ext4). Names and
deletions may be there first, so that a cut leaves files that are empty and takes others that are needed then. Git writes packs for good, and loose
objects and refs no better than anybody else; libgit2 writes nothing for good.
"""

import ctypes
import os
import sys
from pathlib import Path

if sys.platform == "darwin":
    import fcntl

    def _flush(descriptor: int, place: Path) -> None:
        os.sync()  # to the disk, which keeps it in a cache of its own
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError as error:  # a file system that does not know it, such as one of another machine
            raise OSError(error.errno, error.strerror, str(place)) from error

else:
    _libc = ctypes.CDLL(None, use_errno=True)

    def _flush(descriptor: int, place: Path) -> None:
        if _libc.syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(place))


def make_durable(*places: Path) -> None:
    """Return once everything that was written before to the file systems which hold ``places`` would be there after a loss of power.

    All of a file system (syncfs(2)), whoever wrote to it: one wait for the disk rather than one for each of some hundred files, whose names and
    directories would each be to be found. It costs as long as the disk takes for what is outstanding: under a millisecond where nothing is, 10 to
    30 ms after some hundred files, seconds while somebody writes gigabytes. A place that is not there counts for the directory that it would be in;
    directories have to be readable. Raises OSError where something could not be written; blocks.
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
