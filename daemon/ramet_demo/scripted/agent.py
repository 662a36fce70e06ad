"""A scripted stand-in for the Claude Code CLI: it speaks stream-json on stdin and stdout, needs no
model, and is small.

    python -I -S .../ramet_demo/scripted/agent.py <the flags of claude>

A prompt's ``DO:[…]`` scripts its turn (see `turn`); to other prompts it answers "ok". The frames,
their order and their fields are those of CLI 2.1.332, for the kinds that it sends; a contract test
compares both. Known differences: a message that comes while a turn runs always gets a turn of its
own (the real CLI folds it in at the next tool result); a script is one turn, words in it do not end
the turn; no command counts as harmless; nothing is streamed by deltas. Environment:
``CLAUDE_CONFIG_DIR``, ``CLAUDE_CODE_TMPDIR``, ``CLAUDE_CODE_RESUME_INTERRUPTED_TURN``.
"""

import os
import sys
import time

if not __package__:  # run by its path, isolated: Python does not know the package's directory
    sys.path.insert(0, __file__.rsplit("/", 3)[0])

from ramet_demo.scripted import control
from ramet_demo.scripted.flags import VERSION, Flags, parse
from ramet_demo.scripted.script import Step, steps_in
from ramet_demo.scripted.session import Prompt, Session
from ramet_demo.scripted.transcript import Transcript, find
from ramet_demo.scripted.turn import Turn
from ramet_demo.scripted.wire import Frame, Terminated, Wire, new_id

SIGTERM_CODE = 143


class Agent:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._wire = session.wire
        self._wire.on_frame = self._receive
        self._wire.tick = self._tick

    def run(self) -> int:
        """Run turns until stdin ends; return the exit code."""
        session = self._session
        try:
            while True:
                self._wire.wait(lambda: bool(session.queue) or (self._wire.eof and not session.tasks))
                if not session.queue:
                    return 0
                Turn(session, session.queue.pop(0)).run()
                if not session.queue:
                    session.set_state("idle")
        except Terminated:
            session.children.kill_all()
            return SIGTERM_CODE
        except BrokenPipeError:  # the host has closed both pipes
            session.children.kill_all()
            return 1
        finally:
            session.transcript.save_cost(session.ledger.dollars, session.ledger.total)

    def _tick(self) -> float | None:
        session = self._session
        session.children.reap()
        for server in session.servers.values():
            server.advance()
        for task in [task for task in session.tasks.values() if task.over]:
            session.end_task(task, "failed" if task.child and task.child.status else "completed")
        waits = [max(0.0, task.ends - time.monotonic()) for task in session.tasks.values() if not task.child]
        return min(waits, default=None)

    def _receive(self, frame: Frame) -> None:
        if frame["type"] == "control_request":
            control.serve(self._session, frame)
        elif frame["type"] == "user":
            self._prompt(frame)

    def _prompt(self, frame: Frame) -> None:
        session = self._session
        uuid = frame.get("uuid") or new_id()
        if uuid in session.transcript.seen or any(uuid == prompt.uuid for prompt in session.queue):
            self._repeat(uuid, frame)
            return
        # State before receipt: the real CLI is at work by the time it says "queued".
        if not session.working and not session.queue:
            session.set_state("running")
        session.lifecycle(uuid, "queued")
        session.queue.append(Prompt(uuid, frame["message"], steps_of(frame["message"])))

    def _repeat(self, uuid: str, frame: Frame) -> None:
        """Acknowledge a message that came before, without repeating its turn."""
        session = self._session
        if session.flags.replay:
            replayed = {"type": "user", "message": frame["message"], "session_id": self._wire.session_id, "uuid": uuid}
            self._wire.send({**replayed, "parent_tool_use_id": None, "isReplay": True})
        if uuid in session.known:
            session.lifecycle(uuid, "completed")
        session.send_state()


def steps_of(message: Frame) -> list[Step]:
    content = message["content"]
    text = content if isinstance(content, str) else "\n".join(block.get("text", "") for block in content)
    steps = steps_in(text)
    return [{"text": "ok"}] if steps is None else steps


def _refuse(text: str) -> int:
    sys.stderr.write(f"{text}\n")
    return 1


def _fail(wire: Wire, words: str) -> int:
    """Refuse to continue a conversation, as an error result too."""
    nothing = {"duration_ms": 0, "duration_api_ms": 0, "num_turns": 0, "stop_reason": None, "total_cost_usd": 0}
    outcome = {"subtype": "error_during_execution", "is_error": True, "errors": [words], "result_index": 0}
    unused: Frame = {"usage": {}, "modelUsage": {}, "model_usage_since_last_result": {}, "permission_denials": []}
    wire.session_id = new_id()
    wire.emit("result", **outcome, **nothing, **unused)
    return _refuse(words)


def _open(flags: Flags, wire: Wire) -> Transcript | int:
    """Return the transcript to continue, or an exit code if there is none."""
    if not flags.resume:
        if flags.session_id and find(flags.session_id):
            return _refuse(f"Error: Session ID {flags.session_id} is already in use.")
        return Transcript(flags.session_id or new_id())
    source = find(flags.resume)
    if source is None:
        return _fail(wire, f"No conversation found with session ID: {flags.resume}")
    transcript = Transcript(flags.session_id or new_id() if flags.fork else flags.resume)
    if not transcript.load(source if flags.fork else None, flags.until):
        return _fail(wire, f"No message found with message.uuid of: {flags.until}")
    return transcript


def main() -> int:
    flags = parse(sys.argv[1:])
    if flags.version:
        sys.stdout.write(f"{VERSION} (Scripted agent)\n")
        return 0
    wire = Wire(flags.replay)
    transcript = _open(flags, wire)
    if isinstance(transcript, int):
        return transcript
    wire.session_id = transcript.session_id
    session = Session(flags, wire, transcript)
    if (half := transcript.interrupted) and os.environ.get("CLAUDE_CODE_RESUME_INTERRUPTED_TURN") == "1":
        session.queue.append(
            Prompt(half["uuid"], half["message"], steps_of(half["message"]), resumed_at=transcript.steps_done)
        )
    return Agent(session).run()


if __name__ == "__main__":
    sys.exit(main())
