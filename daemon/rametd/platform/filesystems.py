"""Whether file events tell of every change on a file system. On one that other machines write to as well (NFS, 9p, virtiofs, most of FUSE), what they
write is an event for nobody here."""

import ctypes
import os
import sys
from typing import Final

_LOCAL: Final = frozenset(
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
"""statfs(2)'s numbers."""
_WORDS: Final = 64
"""More than the structure has, in machine words; the first is the type on every Linux that Python runs on but s390."""


def untold(place: str) -> str:
    """Why not, "" where they do. Blocks. Raises OSError."""
    if not sys.platform.startswith("linux"):
        return ""
    found = (ctypes.c_ulong * _WORDS)()
    if ctypes.CDLL(None, use_errno=True).statfs(os.fsencode(place), found):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), place)
    kind = int(found[0]) & 0xFFFFFFFF
    if kind in _LOCAL:
        return ""
    return f"{place.rstrip('/')} is on a file system that may not tell of every change (its type is {kind:#x})"
