"""How much memory this process holds."""

import os
import resource
from pathlib import Path

STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Resident set size in bytes: now on Linux, the highest so far on macOS, which tells no other without ctypes."""
    if STATM.exists():
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
