"""Read files that others may have replaced: by a pipe, a device, a link or something endless."""

import os
import stat
from pathlib import Path


def read_regular(path: Path, largest: int) -> bytes | None:
    """Read a regular file of at most ``largest`` bytes, through symbolic links; None for anything else. Raises OSError.

    Never waits for a pipe. Blocks.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return None
        data = file.read(largest + 1)
    return data if len(data) <= largest else None
