"""A control group of its own for each agent, where systemd runs the daemon as ``rametd.service`` with ``Delegate=yes``.

Everything an agent starts, daemonised or not, is then listed in one place apart from the daemon and from its siblings. No
controllers are switched on: a group that has them takes no process of its own, and systemd could not start the daemon in it
again while agents live on. See "Control Group APIs and Delegation" on systemd.io.
"""

import errno
import os
from pathlib import Path

UNIT = "rametd.service"


class Cgroups:
    """Child groups of the daemon's own group. Made by `find`; blocking calls, each a few microseconds."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def agent_cgroup(self, session: str) -> Path | None:
        """The group for the keeper of ``session`` (an id), made where missing; None where the kernel refuses one."""
        group = self._group(session)
        try:
            group.mkdir(exist_ok=True)
        except OSError:
            # The limit on descendants is reached, or the delegation was withdrawn: the agent runs without one.
            return None
        return group

    def remove(self, session: str) -> bool:
        """Remove the group of ``session`` once nothing runs in it; False while something does."""
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


def enter(group: Path, pid: int) -> None:
    """Move the process ``pid`` into ``group``; what it starts later follows. Raises OSError where it is gone."""
    (group / "cgroup.procs").write_text(f"{pid}\n")


def find(*, membership: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")) -> Cgroups | None:
    """The daemon's own group if it was delegated to us; None elsewhere (macOS, cgroup v1, a terminal, a container).

    That the group is writable does not make it ours: a user's whole tree is, and root's always. So its name must be that of
    our unit, which asks for delegation.
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
