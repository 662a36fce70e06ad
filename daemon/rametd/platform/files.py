"""Files: read safely, measure, clone, flush, and find out whether their changes are reported.

All functions block.
"""

import contextlib
import ctypes
import fcntl
import os
import shutil
import stat
import sys
from pathlib import Path
from typing import BinaryIO, Final


def read_regular(path: Path, largest: int) -> bytes | None:
    """Read a regular file of at most ``largest`` bytes, through symbolic links. Return None for
    anything else, without waiting for a pipe. Raises OSError.
    """
    file = open_regular(path)
    if file is None:
        return None
    with file:
        data = file.read(largest + 1)
    return data if len(data) <= largest else None


def open_regular(path: Path) -> BinaryIO | None:
    """Open a regular file for reading; otherwise as `read_regular`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)  # for a directory, `fdopen` would raise and leave it open
    return None


def free_bytes(path: Path) -> int:
    """Free bytes for this user on the disk of ``path``, which need not exist."""
    existing = next(place for place in (path, *path.parents) if place.exists())
    return shutil.disk_usage(existing).free


def tree_bytes(path: Path) -> int:
    """Bytes that a directory takes on disk. A file with several names counts once; vanishing files
    do not count."""
    seen: set[tuple[int, int]] = set()
    total = 0
    folders = [os.fspath(path)]
    while folders:
        with (
            contextlib.suppress(OSError),
            os.scandir(folders.pop()) as entries,
        ):
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if status.st_nlink > 1 and not entry.is_dir(follow_symlinks=False):
                        if (status.st_dev, status.st_ino) in seen:
                            continue
                        seen.add((status.st_dev, status.st_ino))
                    total += status.st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
    return total


_FICLONE: Final = 0x40049409
"""ioctl_ficlone(2): btrfs, XFS, bcachefs, and overlays of these."""


def clone_file(source: Path, target: Path, *, at_most: int) -> bool | None:
    """Copy a regular file to ``target``, which must not exist; return whether it shares the
    source's blocks.

    Return None if it cannot share them and is larger than ``at_most`` bytes; ``target`` is then
    missing or empty. The caller sets the mode.
    """
    if sys.platform == "darwin":
        return _clone_on_macos(source, target, at_most)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as out, source.open("rb") as file:
        try:
            fcntl.ioctl(out.fileno(), _FICLONE, file.fileno())
        except OSError:  # another file system, or one without reflinks
            if os.fstat(file.fileno()).st_size > at_most:
                return None
            shutil.copyfileobj(file, out, 1 << 20)
            return False
    return True


def _clone_on_macos(source: Path, target: Path, at_most: int) -> bool | None:
    clone = ctypes.CDLL(None, use_errno=True).clonefile  # clonefile(2)
    if clone(os.fsencode(source), os.fsencode(target), 0) == 0:
        return True
    if source.stat().st_size > at_most:
        return None
    with source.open("rb") as file, target.open("xb") as out:
        shutil.copyfileobj(file, out, 1 << 20)
    return False


# A written or renamed file reaches the disk only seconds later: its content after some 30 s, its
# name after 5 s (ext4). Names and deletions may arrive before contents, so a power cut leaves empty
# files and loses others. Git flushes packs, but not loose objects and refs; libgit2 flushes
# nothing.
if sys.platform == "darwin":

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
    """Flush all earlier writes to the file systems of ``places``; they then survive a power cut.

    It flushes complete file systems (syncfs(2)), with the writes of all processes: one wait instead
    of one for each file and directory. This takes under a millisecond if nothing is outstanding, 10
    to 30 ms after some hundred files, and seconds while another program writes gigabytes. Instead
    of a missing place it uses the nearest existing directory above, which must be readable. Raises
    OSError if a write failed.
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


_REPORTING: Final = frozenset(
    {
        0x0000EF53,  # ext2, ext3, ext4
        0x58465342,  # xfs
        0x9123683E,  # btrfs
        0x01021994,  # tmpfs
        0x858458F6,  # ramfs
        0x794C7630,  # overlayfs
        0x2FC12FC1,  # zfs
        0xF2F52010,  # f2fs
        0xCA451A4E,  # bcachefs
        0x3153464A,  # jfs
        0x52654973,  # reiserfs
        0x00003434,  # nilfs
    }
)
"""Types (statfs(2)) of local file systems, for which inotify reports every change."""
_STATFS_WORDS: Final = 64
"""Size of the buffer in machine words, larger than the structure. The first word is the type on
every Linux but s390."""


def missing_events(place: str) -> str:
    """Why inotify may not report every change of ``place``; "" if it does. Raises OSError.

    If other machines can write to a file system too (NFS, 9p, virtiofs, most of FUSE), their writes
    cause no events here.
    """
    if not sys.platform.startswith("linux"):
        return ""
    found = (ctypes.c_ulong * _STATFS_WORDS)()
    if ctypes.CDLL(None, use_errno=True).statfs(os.fsencode(place), found):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), place)
    kind = int(found[0]) & 0xFFFFFFFF
    if kind in _REPORTING:
        return ""
    return f"{place.rstrip('/')} is on a file system that may not report every change (type {kind:#x})"
