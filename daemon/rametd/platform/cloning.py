"""Copy files by sharing blocks (reflinks), if the file system can, or else byte for byte."""

import ctypes
import fcntl
import os
import shutil
import sys
from pathlib import Path
from typing import Final

_FICLONE: Final = 0x40049409
"""ioctl_ficlone(2): btrfs, XFS, bcachefs, and overlays of these."""


def clone_file(source: Path, target: Path, *, at_most: int) -> bool | None:
    """Copy a regular file to ``target``, which must not exist; return whether it shares the source's blocks.

    Return None if it cannot share them and is larger than ``at_most`` bytes; ``target`` is then missing or empty. The caller
    sets the mode.
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
