"""Directories deeper than Python recurses, or than a path can be named."""

import os
from pathlib import Path


def dig(root: Path, depth: int, name: str = "d") -> None:
    """Create a file below ``depth`` nested directories."""
    here = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
