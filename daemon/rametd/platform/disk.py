"""Disk usage and free space. All functions block."""

import contextlib
import os
import shutil
from pathlib import Path


def free_bytes(path: Path) -> int:
    """Free bytes for this user on the disk of ``path``, which need not exist."""
    existing = next(place for place in (path, *path.parents) if place.exists())
    return shutil.disk_usage(existing).free


def tree_bytes(path: Path) -> int:
    """Bytes that a directory takes on disk. A file with several names counts once; vanishing files do not count."""
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
