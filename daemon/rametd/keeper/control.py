"""The keeper's connections, the fence between controllers, and answers. Standard library only; see
`framing`.

There is one controller at a time. Each daemon has a higher epoch than the previous one. A
controller with an equal or higher epoch displaces the present one. A lower epoch is refused, so
that an old daemon that still runs changes nothing.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
from contextlib import suppress

from rametd.keeper import directory, framing
from rametd.keeper.peer import Peer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from rametd.keeper.child import Child
    from rametd.keeper.pipes import Pipes

    class Keeper(Protocol):
        """The part of `server.Keeper` that `Control` uses."""

        path: str
        spec: dict[str, Any]
        agent: Child
        identity: dict[str, Any]
        reaped: bool
        end_asked: dict[str, Any] | None
        exit: dict[str, Any] | None
        selector: selectors.BaseSelector
        pipes: Pipes
        blocked: str | None

        def ask_end(self, grace: float, by: str) -> None: ...


MAX_PEERS = 16
STDERR_TAIL = 16 << 10


class Control:
    """Listens for, reads from and writes to peers on behalf of ``keeper``."""

    def __init__(self, keeper: Keeper, listener: socket.socket) -> None:
        self.peers: list[Peer] = []
        self.controller: Peer | None = None
        self.epoch = 0
        self._keeper = keeper
        self._pipes = keeper.pipes
        self._journal = keeper.pipes.journal
        self._selector = keeper.selector
        self._listen(listener)

    def _listen(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ, self._accept)

    def rebind(self) -> None:
        """Listen again at the socket's path, after the runtime directory was emptied (by a
        logout)."""
        try:
            listener = bind(self._keeper.spec["socket"])
        except OSError:
            return  # the directory does not exist yet; the daemon will ask again
        self._selector.unregister(self._listener)
        self._listener.close()
        self._listen(listener)

    def serve_all(self) -> None:
        """Answer received frames and send waiting data, for all peers."""
        for peer in list(self.peers):
            self._serve(peer)

    @property
    def is_done(self) -> bool:
        """Return whether all peers have received EXIT."""
        return all(peer.is_done for peer in self.peers)

    def _accept(self, _: int) -> None:
        try:
            connection, _address = self._listener.accept()
        except OSError:
            return  # the peer has left, or no descriptor is free; it may try again
        askers = [peer for peer in self.peers if peer is not self.controller]
        for peer in askers[: max(0, len(self.peers) + 1 - MAX_PEERS)]:
            self._drop(peer)
        peer = Peer(connection, self._keeper.path, self._journal)
        self.peers.append(peer)
        identity = self._keeper.identity
        peer.send(
            framing.HELLO, versions=[framing.PROTOCOL_VERSION], **identity, **self._offsets(), exit=self._keeper.exit
        )

    def _serve(self, peer: Peer) -> None:
        try:
            # While a line waits for room on the disk, the next ones wait at their sender.
            while peer.frames and (peer.frames[0][0] != framing.STDIN or self._pipes.accepts_stdin):
                self._answer(peer, *peer.frames.popleft())
            self._send_updates(peer)
            alive = peer.flush()
        except framing.FramingError as error:
            peer.send(framing.ERROR, reason="MALFORMED", message=str(error))
            peer.flush()
            alive = False
        except OSError:
            alive = False  # a segment is unreadable: the daemon reads the directory, or connects again
        if not alive or peer.closing:
            self._drop(peer)
        else:
            self._watch(peer, peer.wanted_events)

    def _send_updates(self, peer: Peer) -> None:
        """Send DATA to the controller, and EXIT to all peers; the controller gets EXIT after its
        last DATA."""
        if peer is self.controller:
            peer.feed()
            if peer.cursor < self._journal.line_end:
                return
        if self._keeper.exit is not None and not peer.told_exit:
            peer.told_exit = True
            peer.send(framing.EXIT, **self._keeper.exit)

    def _watch(self, peer: Peer, events: int) -> None:
        def handle(ready: int) -> None:
            if ready & selectors.EVENT_READ and not peer.receive():
                self._drop(peer)

        if events == peer.watched:
            return
        if peer.watched:
            self._selector.unregister(peer.connection)
        if events:
            self._selector.register(peer.connection, events, handle)
        peer.watched = events

    def _drop(self, peer: Peer) -> None:
        if peer in self.peers:
            self.peers.remove(peer)
            self._watch(peer, 0)
            peer.close()
        if peer is self.controller:
            self.controller = None

    # Answers

    def _answer(self, peer: Peer, kind: int, payload: bytes) -> None:
        if kind == framing.ATTACH:
            self._attach(peer, framing.decode_json(payload))
        elif kind == framing.QUERY:
            peer.send(framing.STATUS, id=framing.decode_json(payload).get("id"), **self._status())
        elif kind in (framing.SIGNAL, framing.END):
            self._command(peer, kind, framing.decode_json(payload))
        elif kind not in (framing.STDIN, framing.CONSUMED, framing.RELEASE, framing.RELEASE_STDIN):
            peer.send(framing.ERROR, reason="UNKNOWN_FRAME", message=f"this keeper knows no frame type {kind}")
        elif peer is not self.controller:
            peer.send(framing.ERROR, reason="NOT_ATTACHED", message="attach first")
        elif kind == framing.STDIN:
            self._accept_stdin(peer, framing.decode_u64(payload), payload[framing.U64.size :])
        elif kind == framing.CONSUMED:
            peer.consumed = framing.decode_u64(payload)
        elif kind == framing.RELEASE:
            self._journal.release(min(framing.decode_u64(payload), peer.cursor))
        else:
            self._pipes.stdin_journal.release(min(framing.decode_u64(payload), self._pipes.fed))

    def _attach(self, peer: Peer, request: dict[str, Any]) -> None:
        epoch, offset = request.get("epoch"), request.get("offset")
        if not isinstance(epoch, int) or not isinstance(offset, int):
            raise framing.FramingError("epoch and offset are integers")
        if epoch < self.epoch:
            peer.refuse("OLD_EPOCH", f"epoch {epoch} is older than {self.epoch}")
            return
        first, end = self._journal.first, self._journal.end
        if not first <= offset <= end:
            peer.refuse("NO_SUCH_OFFSET", f"the journal goes from {first} to {end}, not to {offset}")
            return
        self.epoch = epoch
        if self.controller is not None and self.controller is not peer:
            self.controller.refuse("DISPLACED", f"a controller of epoch {epoch} has attached")
            self.controller.flush()
            self._drop(self.controller)
        self.controller = peer
        peer.cursor = peer.consumed = offset
        peer.send(framing.ATTACHED, **self._offsets())

    def _accept_stdin(self, peer: Peer, sequence: int, data: bytes) -> None:
        if not data.endswith(b"\n"):
            raise framing.FramingError("stdin takes whole lines")
        if not self._pipes.stdin_open or self._keeper.end_asked is not None or self._keeper.reaped:
            peer.send(framing.ERROR, sequence=sequence, reason="STDIN_CLOSED", message="the agent's stdin is closed")
            return
        journal = self._pipes.stdin_journal
        # If the disk is full, this is called later. A peer that has left by then gets nothing.
        self._pipes.write_stdin(
            data, lambda: peer.send_raw(framing.WRITTEN, framing.U64_PAIR.pack(sequence, journal.end))
        )

    def _command(self, peer: Peer, kind: int, request: dict[str, Any]) -> None:
        """Handle SIGNAL and END, from any connection except a superseded daemon's."""
        number, epoch = request.get("id"), request.get("epoch")
        if isinstance(epoch, int) and epoch < self.epoch:
            peer.send(framing.ERROR, id=number, reason="OLD_EPOCH", message=f"epoch {epoch} is older than {self.epoch}")
            return
        if kind == framing.END:
            grace = request.get("grace")
            if not isinstance(grace, int | float):
                raise framing.FramingError("grace is a number of seconds")
            self._keeper.ask_end(max(0.0, grace), "controller")
        else:
            name = str(request.get("signal"))
            signum = getattr(signal, name, None)
            if not isinstance(signum, signal.Signals):
                peer.send(framing.ERROR, id=number, reason="UNKNOWN_SIGNAL", message=f"there is no signal {name}")
                return
            if self._keeper.reaped:
                peer.send(framing.ERROR, id=number, reason="ENDED", message="the agent has ended")
                return
            os.kill(self._keeper.agent.pid, signum)  # an unreaped child of ours: the pid cannot be reused
        peer.send(framing.DONE, id=number)

    def _offsets(self) -> dict[str, int]:
        return {
            "journal_first": self._journal.first,
            "journal_end": self._journal.line_end,
            "stdin_first": self._pipes.stdin_journal.first,
            "stdin_end": self._pipes.stdin_journal.end,
        }

    def _status(self) -> dict[str, Any]:
        keeper = self._keeper
        return {
            **keeper.identity,
            **self._offsets(),
            "epoch": self.epoch,
            "attached": self.controller is not None,
            "agent_alive": not keeper.reaped,
            "asked": keeper.end_asked,
            "stdin_fed": self._pipes.fed,
            "stdin_open": self._pipes.stdin_open,
            "blocked": keeper.blocked or self._pipes.blocked,
            "stderr_tail": directory.read_stderr_tail(keeper.path, STDERR_TAIL).decode(errors="replace"),
            "stderr_dropped": self._pipes.stderr.dropped,
            "exit": keeper.exit,
        }


def bind(path: str) -> socket.socket:
    """Listen at ``path`` (0600), replacing a socket there: it is stale, as the caller holds the
    lock."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(path)
    finally:
        os.umask(before)
    listener.listen(MAX_PEERS)
    return listener
