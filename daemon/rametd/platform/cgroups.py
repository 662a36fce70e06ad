"""A control group for each agent, if systemd runs the daemon as ``rametd.service`` with
``Delegate=yes``.

The group then lists every process that an agent starts, daemonised or not, apart from the daemon
and other agents. No controllers are enabled: a group with controllers cannot hold processes itself,
so systemd could not start the daemon in it again while agents still run. See "Control Group APIs
and Delegation" on systemd.io.
"""

import errno
import os
from pathlib import Path

UNIT = "rametd.service"


class Cgroups:
    """Child groups of the daemon's own group. Create it by `find`. Calls block for a few
    microseconds."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def agent_cgroup(self, session: str) -> Path | None:
        """Get or create the group for the keeper of ``session`` (an id); None if the kernel
        refuses."""
        group = self._group(session)
        try:
            group.mkdir(exist_ok=True)
        except OSError:
            # The limit on descendants is reached, or the delegation was withdrawn: the agent runs
            # without a group.
            return None
        return group

    def remove(self, session: str) -> bool:
        """Remove the group of ``session``; False while a process runs in it."""
        try:
            self._group(session).rmdir()
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno in (errno.EBUSY, errno.ENOTEMPTY):
                return False
            raise
        return True

    def _group(self, session: str) -> Path:
        return self.root / f"agent-{session}"


def none(session: str) -> None:
    """Replace `Cgroups.agent_cgroup` if `find` has found no group."""


def enter(group: Path, pid: int) -> None:
    """Move the process ``pid`` into ``group``; its future children follow. Raises OSError if either
    is gone."""
    (group / "cgroup.procs").write_text(f"{pid}\n")


def find(*, membership: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")) -> Cgroups | None:
    """Find the daemon's own group, if systemd delegated it; None elsewhere (macOS, cgroup v1, a
    terminal, a container).

    A writable group need not be delegated: a user can write all of their groups, and root every
    group. So its name must be that of Ramet's unit, which requests delegation.
    """
    try:
        lines = membership.read_text().splitlines()
    except FileNotFoundError:
        return None
    path = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "")
    root = mount / path.lstrip("/")
    if root.name != UNIT or not (root / "cgroup.procs").is_file():
        return None
    writable = os.access(root, os.W_OK | os.X_OK) and os.access(root / "cgroup.procs", os.W_OK)
    return Cgroups(root) if writable and root.stat().st_uid == os.getuid() else None
