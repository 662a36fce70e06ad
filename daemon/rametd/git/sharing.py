"""`core.sharedRepository`: give Ramet's files in a repository the same permissions as git's.

libgit2 creates objects and refs by the umask only. Therefore each thread for libgit2 has its own
umask, and opening a repository sets it by the repository's setting. Only Linux has umasks per
thread; elsewhere, and if the system refuses one, the person's umask applies.
"""

import ctypes
import os
import stat
import sys
import tempfile
import threading
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

import pygit2

_CLONE_FS: Final = 0x200
"""Flag of unshare(2): root, working directory and umask."""
_GROUP: Final = frozenset({"group", "true", "yes", "on", "1"})
_EVERYBODY: Final = frozenset({"all", "world", "everybody", "2"})

_thread: Final = threading.local()


def have_own_umask() -> None:
    """Separate the calling thread's umask from the process's, if possible."""
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).unshare(_CLONE_FS) == 0:
        _thread.umask = os.umask(0o077)
        os.umask(_thread.umask)


def share_as_asked(common_dir: Path) -> None:
    """Set the calling thread's umask by the repository's setting; do nothing in a thread without a
    umask of its own."""
    own = getattr(_thread, "umask", None)
    if own is not None:
        os.umask(_umask(shared_as(common_dir), own))


def share(common_dir: Path, top: Path) -> None:
    """Give a file or directory that was created by the umask, with its content, the permissions of
    the repository's `core.sharedRepository`. Blocks."""
    shared = shared_as(common_dir)
    granted = 0o777 & ~_umask(shared, 0o777) if shared else 0
    for path in (top, *top.rglob("*")) if granted else ():
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            path.chmod(stat.S_IMODE(mode) | granted | stat.S_ISGID)
        elif stat.S_ISREG(mode):
            path.chmod(stat.S_IMODE(mode) | (granted & 0o666))


def temporary(folder: Path) -> Path:
    """Create a directory for a private index in ``folder``, Ramet's directory in a git directory.
    Blocks."""
    folder.mkdir(exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="index-", dir=folder))
    share(folder.parent, made)
    return made


def shared_as(common_dir: Path) -> str:
    """Return `core.sharedRepository` of the repository or of the person, in lower case; "" if it is
    private."""
    for file in (common_dir / "config", *_general_files()):
        try:
            value = _configured(str(file), file.stat().st_mtime_ns)
        except OSError:
            continue
        if value is not None:
            return "" if value in {"umask", "false", "no", "off", "0"} else value
    return ""


@cache
def _general_files() -> tuple[Path, ...]:
    """Return the configuration files that libgit2 reads for all repositories; the first value
    counts."""
    level = pygit2.enums.ConfigLevel
    return tuple(
        Path(folder, name)
        for each, name in ((level.GLOBAL, ".gitconfig"), (level.XDG, "config"), (level.SYSTEM, "gitconfig"))
        for folder in pygit2.settings.search_path[each].split(os.pathsep)
        if folder
    )


@lru_cache(maxsize=256)
def _configured(file: str, _changed: int) -> str | None:
    try:
        return str(pygit2.Config(file)["core.sharedRepository"]).lower()
    except (KeyError, pygit2.GitError):
        return None


def _umask(shared: str, own: int) -> int:
    if shared in _GROUP:
        return own & ~0o070
    if shared in _EVERYBODY:
        return own & ~0o075
    if shared.startswith("0") and shared.isdigit():
        files = int(shared, 8) & 0o666
        return 0o777 & ~(files | (files & 0o444) >> 2)
    return own
