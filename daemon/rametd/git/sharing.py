"""`core.sharedRepository`: what we make in a repository is no less open to others than git's own files.

libgit2 makes objects and refs by the umask alone. So each thread that works with it has a umask of its own, and opening a repository sets that to
what the repository asks for. Only Linux has umasks of threads; elsewhere, and where the system refuses one, the person's umask has to be open enough.
"""

import ctypes
import os
import sys
import threading
from functools import lru_cache
from pathlib import Path
from typing import Final

import pygit2

_CLONE_FS: Final = 0x200
"""unshare(2): root, working directory and umask."""
_GROUP: Final = frozenset({"group", "true", "yes", "on", "1"})
_EVERYBODY: Final = frozenset({"all", "world", "everybody", "2"})

_thread: Final = threading.local()


def have_own_umask() -> None:
    """Separate the umask of the calling thread from the process's, where that is possible."""
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).unshare(_CLONE_FS) == 0:
        _thread.umask = os.umask(0o077)
        os.umask(_thread.umask)


def share_as_asked(common_dir: Path) -> None:
    """Have what the calling thread makes from now on be as open as the repository asks for. Does nothing in a thread without a umask of its own."""
    own = getattr(_thread, "umask", None)
    if own is not None:
        os.umask(_umask(shared_as(common_dir), own))


def shared_as(common_dir: Path) -> str:
    """`core.sharedRepository` of the repository itself, in lower case; "" where it is private."""
    config = common_dir / "config"
    try:
        return _configured(str(config), config.stat().st_mtime_ns)
    except OSError:
        return ""


@lru_cache(maxsize=256)
def _configured(config: str, _changed: int) -> str:
    try:
        value = str(pygit2.Config(config)["core.sharedRepository"]).lower()
    except (KeyError, pygit2.GitError):
        return ""
    return "" if value in {"umask", "false", "no", "off", "0"} else value


def _umask(shared: str, own: int) -> int:
    if shared in _GROUP:
        return own & ~0o070
    if shared in _EVERYBODY:
        return own & ~0o075
    if shared.startswith("0") and shared.isdigit():
        files = int(shared, 8) & 0o666
        return 0o777 & ~(files | (files & 0o444) >> 2)
    return own
