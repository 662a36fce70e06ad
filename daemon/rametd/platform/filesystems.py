"""Whether inotify reports every change on a file system. If other machines can write to it too (NFS, 9p, virtiofs, most of
FUSE), their writes cause no events here."""

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
"""File system types of statfs(2)."""
_WORDS: Final = 64
"""Size of the buffer in machine words, more than the structure has. The first is the type on every Linux but s390."""


def missing_events(place: str) -> str:
    """Why events for ``place`` may be incomplete; "" if they are complete. Blocks. Raises OSError."""
    if not sys.platform.startswith("linux"):
        return ""
    found = (ctypes.c_ulong * _WORDS)()
    if ctypes.CDLL(None, use_errno=True).statfs(os.fsencode(place), found):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), place)
    kind = int(found[0]) & 0xFFFFFFFF
    if kind in _LOCAL:
        return ""
    return f"{place.rstrip('/')} is on a file system that may not report every change (type {kind:#x})"
