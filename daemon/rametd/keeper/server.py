"""The keeper of one agent, from the agent's start until its last descendant has ended. Standard
library only.

It is one loop in which nothing blocks and every queue is bounded. It has no policy: it handles
bytes, offsets and signals, and does not interpret the agent's output.
"""

from __future__ import annotations

import errno
import os
import selectors
import signal
import time

from rametd.keeper import child, directory, framing
from rametd.keeper.control import Control
from rametd.keeper.pipes import PIPE_CHUNKS, RETRY, Pipes
from rametd.keeper.tree import SWEEP_GRACE, Tree
from rametd.platform import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from typing import Any

    from rametd.keeper.child import Child

DRAIN = 0.5
"""Seconds that descendants may hold an ended agent's stdout open before the keeper ends them."""
LINGER = 2.0
"""Seconds that a controller has to read the end, which is in the directory too."""
GRACE = 5.0


class Keeper:
    """Serves the directory ``path``. ``identity`` is the content of HELLO and run.json."""

    def __init__(
        self, path: str, spec: dict[str, Any], agent: Child, identity: dict[str, Any], listener: socket.socket
    ) -> None:
        self.path, self.spec, self.agent, self.identity = path, spec, agent, identity
        self.reaped = False
        self.end_asked: dict[str, Any] | None = None
        self.exit: dict[str, Any] | None = None
        self.blocked: str | None = None
        self.selector: selectors.BaseSelector = selectors.DefaultSelector()
        keep = int(spec.get("keep_bytes", 0))
        self.pipes = Pipes(path, agent, int(spec["segment_bytes"]), self.selector, keep_bytes=keep)
        self._control = Control(self, listener)
        self._tree = Tree(processes.find(os.getpid()), spec["tags"], spec["cgroup"])
        self._grace = GRACE
        self._wait_status: int | None = None
        self._terminated = self._rebind = False
        self._catch_signals()

    def run(self) -> None:
        """Run the loop until the keeper may exit."""
        self._reap()  # the agent may have ended before SIGCHLD was caught
        for wake_at in self._life():
            moments = [moment for moment in (wake_at, self.pipes.retry_at) if moment is not None]
            timeout = max(0.0, min(moments) - time.monotonic()) if moments else None
            for key, events in self.selector.select(timeout):
                # An earlier handler may have closed it, and a new descriptor may have its number.
                if self.selector.get_map().get(key.fd) is key:
                    key.data(events)
            if self.pipes.retry_at is not None and time.monotonic() >= self.pipes.retry_at:
                self.pipes.retry()
            self._control.serve_all()
            self.pipes.feed_stdin()

    def ask_end(self, grace: float, by: str) -> None:
        """Begin to end the agent: close stdin, SIGTERM, SIGKILL, ``grace`` seconds apart. Of two
        calls the shorter grace counts."""
        self._grace = grace if self.end_asked is None else min(grace, self._grace)
        if self.end_asked is None and not self.reaped:
            self.end_asked = {"by": by, "at": time.time(), "epoch": self._control.epoch}
            self.pipes.closing_stdin = True

    def _life(self) -> Iterator[float | None]:
        """Run the stages of the agent's life. Each yield waits for the next event, or until the
        given time."""
        lowering = self.spec["nice"] > 0
        while not self.reaped and self.end_asked is None:
            lowering = lowering and child.lower_group(self.agent.pid, self.spec["nice"])
            yield time.monotonic() + child.GROUP_PAUSE if lowering else None
        for signum in (signal.SIGTERM, signal.SIGKILL):
            began = time.monotonic()
            while not self.reaped and time.monotonic() < began + self._grace:
                yield began + self._grace
            if not self.reaped:
                os.kill(self.agent.pid, signum)  # an unreaped child of ours: the pid cannot be reused
        while not self.reaped:
            yield None
        ended_at = time.time()
        deadline = time.monotonic() + DRAIN
        while self.pipes.stdout_open and time.monotonic() < deadline:
            yield deadline
        if not self.spec["keep_descendants"]:
            for pause in self._tree.end(min(self._grace, SWEEP_GRACE)):
                yield time.monotonic() + pause
        yield from self._read_rest()
        while not self._record_exit(ended_at):
            yield time.monotonic() + RETRY
        yield time.monotonic()  # one round that tells all peers
        deadline = time.monotonic() + LINGER
        while not self._control.is_done and time.monotonic() < deadline:
            yield deadline

    def _read_rest(self) -> Iterator[float | None]:
        """Read what the pipes still contain. A surviving descendant may hold them open, so read no
        more than a pipe's capacity."""
        for _ in range(PIPE_CHUNKS + 1):
            while self.pipes.has_unwritten:
                yield None
            if self.pipes.stdout_open:
                self.pipes.read_stdout()
            if self.pipes.stderr_open:
                self.pipes.read_stderr()
        while self.pipes.has_unwritten:
            yield None

    def _record_exit(self, ended_at: float) -> bool:
        code = None if self._wait_status is None else os.waitstatus_to_exitcode(self._wait_status)
        record = {
            "version": framing.PROTOCOL_VERSION,
            "code": code if code is not None and code >= 0 else None,
            "signal": signal.Signals(-code).name if code is not None and code < 0 else None,
            "started_at": self.identity["started_at"],
            "ended_at": ended_at,
            "asked": self.end_asked,
            "swept": len(self._tree.known),
            "left": self._tree.left,
        }
        try:
            self.pipes.sync()
            directory.write_record(self.path, directory.EXIT, record)
        except OSError as error:
            self.blocked = errno.errorcode.get(error.errno or 0, str(error))
            return False
        self.exit, self.blocked = record, None
        return True

    # Signals

    def _catch_signals(self) -> None:
        self._wakeup, wakeup = os.pipe()
        for descriptor in (self._wakeup, wakeup):
            os.set_blocking(descriptor, False)
        self.selector.register(self._wakeup, selectors.EVENT_READ, self._on_signal)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, self._note_signal)
        signal.signal(signal.SIGTERM, self._note_signal)
        signal.signal(signal.SIGUSR1, self._note_signal)
        for number in (signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)

    def _note_signal(self, number: int, _: object) -> None:
        self._terminated |= number == signal.SIGTERM
        self._rebind |= number == signal.SIGUSR1

    def _on_signal(self, _: int) -> None:
        os.read(self._wakeup, 4096)
        self._reap()
        if self._terminated:
            self._terminated = False
            self.ask_end(GRACE, "signal")
        if self._rebind:
            self._rebind = False
            self._control.rebind()

    def _reap(self) -> None:
        """Reap the agent, and the orphans of which this process is the subreaper."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                # Without children the agent is gone. If its status did not arrive, the record says
                # that it is unknown.
                self.reaped = True
                return
            if pid == 0:
                return
            if pid == self.agent.pid:
                self.reaped, self._wait_status = True, status
