"""Helpers for crash tests: agents that wait at gates, transcripts of conversations, and leftovers.

An agent of a session created with ``environment={"GATE": name}`` looks for files in the sandbox
before it starts: ``name.refuse`` (it prints why and exits), ``name.die`` (SIGKILL), ``name.hold``
(it waits). Scripts use `wait_for_gate` to hold a turn.
"""

import contextlib
import json
import shlex
import sqlite3
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil
from ramet.v1 import attention_pb2, session_pb2

from tests.support.agents import SCRIPTED
from tests.support.daemon import Client, Sandbox, command_of, git
from tests.support.eventually import PATIENCE_S, eventually

CONFIG = """
{top}
[permissions]
allow_bypass = true
[agents]
max_resumes = {max_resumes}
[agents.claude]
path = "{path}"
pass_env = ["GATE"]
"""

WRAPPER = """#!/bin/sh
gate={gates}/$GATE
if [ "$1" != --version ]; then
    echo x >> "$gate.tries"
    [ -e "$gate.refuse" ] && {{ echo "no licence for this machine" >&2; exit 1; }}
    [ -e "$gate.die" ] && kill -KILL $$
    while [ -e "$gate.hold" ]; do sleep 0.05; done
fi
exec {agent} "$@"
"""


class Gates:
    """Files that stop agents and turns."""

    def __init__(self, sandbox: Sandbox, top: str = "", *, max_resumes: int = 3) -> None:
        self.folder = sandbox.root / "gates"
        self.folder.mkdir()
        wrapper = sandbox.root / "bin" / "gated"
        wrapper.write_text(WRAPPER.format(gates=self.folder, agent=shlex.join(SCRIPTED)))
        wrapper.chmod(0o755)
        sandbox.configure(CONFIG.format(top=top, path=wrapper, max_resumes=max_resumes))

    def close(self, name: str) -> None:
        (self.folder / name).touch()

    def open(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def open_all(self) -> None:
        for path in self.folder.iterdir():
            path.unlink()

    def tries(self, name: str) -> int:
        path = self.folder / f"{name}.tries"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def wait_for_gate(self, name: str) -> dict[str, object]:
        """Return a step that holds the turn until the gate is open."""
        command = f"while [ -e {self.folder / name} ]; do sleep 0.05; done"
        return {"tool": "Bash", "input": {"command": command, "description": "wait"}}


def parent_of(process: psutil.Process) -> int:
    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return 0


def pids_of(sandbox: Sandbox, conversation: str) -> list[int]:
    """Return the living agents of a conversation, without children before their exec."""
    found = {each.pid: each for each in sandbox.processes() if conversation in " ".join(command_of(each))}
    return [pid for pid, each in found.items() if parent_of(each) not in found]


def the_pid(sandbox: Sandbox, conversation: str) -> int:
    """Return the only living agent of a conversation, 0 without one; two would corrupt it."""
    found = pids_of(sandbox, conversation)
    if len(found) > 1:
        raise TwoAgentsError(f"{len(found)} agents of one conversation: {found}")
    return found[0] if found else 0


class TwoAgentsError(Exception):
    """A failure that polling must not wait out, and so no assertion."""


def flag_of(pid: int, name: str) -> str:
    """Return the value of a flag on a process's command line."""
    words = " ".join(psutil.Process(pid).cmdline()).replace(f"{name}=", f"{name} ").split()
    return words[words.index(name) + 1] if name in words else ""


@dataclass(frozen=True)
class Received:
    """A prompt in a transcript."""

    uuid: str
    text: str


def transcript(sandbox: Sandbox, conversation: str) -> list[Received]:
    """Return the prompts that the agent has read, in order."""
    found = []
    for path in (sandbox.root / "claude" / "projects").glob(f"*/{conversation}.jsonl"):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if entry["type"] == "user" and entry.get("promptSource"):
                found.append(Received(entry["uuid"], entry["message"]["content"]))
    return found


async def check_prompts(client: Client, sandbox: Sandbox, session: session_pb2.Session, texts: list[str]) -> None:
    """Check that one conversation read the person's prompts once each and in order, as the receipts
    do."""
    lines = transcript(sandbox, session.conversation_id)
    assert [each.text for each in lines if each.text in texts] == texts
    assert max(Counter(each.uuid for each in lines).values()) == 1
    log = await client.log(session.id)
    queued = [event.prompt_queued.prompt for event in log if event.HasField("prompt_queued")]
    received = Counter(event.prompt_received.prompt_id for event in log if event.HasField("prompt_received"))
    assert [prompt.text for prompt in queued if prompt.source == "owner"] == texts
    assert received == Counter(prompt.id for prompt in queued), "every prompt has one receipt"


async def settle_down(client: Client, name: str, within: float = PATIENCE_S) -> session_pb2.Session:
    """Wait until a session is idle without queued prompts."""

    async def look() -> session_pb2.Session:
        request = session_pb2.GetSessionRequest(session=name)
        found = await client.sessions.GetSession(request, metadata=client.metadata)
        state = session_pb2.SessionState.Name(found.session.state)
        assert found.session.state == session_pb2.SESSION_STATE_IDLE, f"{name} is {state}: {found.session.state_reason}"
        assert not found.pending_prompts, f"{name} has prompts left"
        return found.session

    return await eventually(look, within=within)


async def approve(client: Client, name: str, request_id: str = "") -> attention_pb2.AttentionRequest:
    request = attention_pb2.ResolveRequestRequest(
        request=name, resolution=attention_pb2.Resolution(approve=attention_pb2.Approval()), request_id=request_id
    )
    return (await client.attention.ResolveRequest(request, metadata=client.metadata)).request


async def open_requests(client: Client) -> dict[str, str]:
    """Return the open request's id by session, without reviews."""
    listed = await client.attention.ListRequests(attention_pb2.ListRequestsRequest(), metadata=client.metadata)
    asked = [request for request in listed.requests if request.kind != attention_pb2.ATTENTION_KIND_REVIEW]
    return {request.session_name: request.id for request in asked}


async def delete(client: Client, name: str, request_id: str = "") -> session_pb2.DeleteSessionResponse:
    request = session_pb2.DeleteSessionRequest(session=name, force=True, request_id=request_id)
    return await client.sessions.DeleteSession(request, metadata=client.metadata)


def leftovers(sandbox: Sandbox, repository: Path, *sessions: str) -> list[str]:
    """Return leftovers of removed sessions (all, unless some are named): processes, directories,
    worktrees, branches, operations."""
    wanted = sessions or ("",)
    state = sandbox.root / "state"
    found = [
        f"process {process.pid}: {' '.join(command_of(process))}"
        for process in sandbox.processes()
        if "rametd" not in command_of(process) and process.pid not in sandbox.forked
    ]
    found += [f"directory {path}" for path in (state / "agents").glob("*")]
    # A shelved worktree of a removal is in the trash.
    found += [f"worktree {path}" for path in (state / "worktrees").glob("*/*") if path.suffix != ".shelved"]
    found += [f"socket {path}" for path in (sandbox.root / "run").glob("*-*.sock")]
    found += [f"index {path}" for path in (state / "index").glob("*")]
    found += [f"branch {line}" for line in git(repository, "branch", "--format=%(refname:short)").splitlines()]
    found += git(repository, "worktree", "list").splitlines()[1:]
    found += [f"intent {row}" for row in rows(sandbox, "SELECT kind, session_id FROM operations")]
    found.remove("branch main")
    return [line for line in found if any(name in line for name in wanted)]


def operations(sandbox: Sandbox) -> list[tuple[object, ...]]:
    """Return kind and session of every unfinished operation."""
    return rows(sandbox, "SELECT kind, session_id FROM operations")


def rows(sandbox: Sandbox, query: str) -> list[tuple[object, ...]]:
    """Read the daemon's database while it runs."""
    with contextlib.closing(sqlite3.connect(f"file:{sandbox.root / 'state' / 'ramet.db'}?mode=ro", uri=True)) as db:
        return list(db.execute(query))


WORKED = ["## ramet/one", " M committed.txt", "A  staged.txt", "?? own/", "?? untracked.txt", "stashed.txt"]
"""`work_in` the worktree of a session ``one``."""


def work_in(tree: Path) -> list[str]:
    """Return the state of a worktree, and of the stash in its nested repository."""
    stashed = git(tree / "own", "show", "--format=", "--name-only", "stash^3")
    return [*git(tree, "status", "--porcelain", "--branch").splitlines(), stashed]


def leave_work(tree: Path) -> None:
    """Leave a commit, a staged, a changed and an untracked file, and a repository with a stash
    inside a worktree."""
    (tree / "committed.txt").write_text("committed\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "committed")
    (tree / "staged.txt").write_text("staged\n")
    git(tree, "add", "-A")
    (tree / "committed.txt").write_text("changed\n")
    (tree / "untracked.txt").write_text("untracked\n")
    own = tree / "own"
    git(tree, "init", "-q", "own")
    git(own, "commit", "-q", "--allow-empty", "-m", "empty")
    (own / "stashed.txt").write_text("stashed\n")
    git(own, "stash", "-q", "--include-untracked")
    assert work_in(tree) == WORKED
