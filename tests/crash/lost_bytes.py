"""Use sessions as a person does, kill the daemon at any moment, and find the tree of every turn's
end again.

    python -m tests.crash.lost_bytes --rounds 200 --seed 7

Prints its counts as JSON; fails at the first error, with the seed. Agents are scripted: each turn
edits the tree (or commits, resets, switches) and, at its end, records the tree. Each round does one
thing: more turns, edits by hand, a checkpoint, a rewind, a fork, a sync with a moving base,
archive, remove, restore, or the deletion of a branch or tree by hand. Half of the rounds kill the
daemon meanwhile, at a random time or at a failpoint, and may kill the recovering ones too; an
interrupted call is repeated.

While no daemon runs, a person writes to the tree that the killed one was changing: these files
exist afterwards, or a checkpoint or the shelf has them. Nested repositories stay unchanged, or are
restored with the rest.

At the end everything is restored from archive and trash, unreachable objects are pruned, and every
recorded tree must be among the checkpoints of its session: byte for byte and mode for mode in the
commit, and for some by a rewind.
"""

# ruff: noqa: S311 - chance must be the same in every run

import argparse
import asyncio
import json
import random
import shlex
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from ramet.v1 import common_pb2, session_pb2, worktree_pb2

from tests.crash import trees
from tests.crash.mortal import FaultError, Mortal
from tests.crash.trees import State
from tests.support.agents import script
from tests.support.daemon import FAILED, IDLE, PAUSED, Client, Sandbox, connected, git, make_sandbox
from tests.support.untouched import differences, fingerprint

CONFIG = "max_working = 100\n[permissions]\nallow_bypass = true\n"
MODE = common_pb2.PERMISSION_MODE_BYPASS_PERMISSIONS
BASE = "trunk"
SESSIONS = 5
"""Most sessions at a time."""


@dataclass
class Counts:
    rounds: int = 0
    kills: int = 0
    turns: int = 0
    trees: int = 0
    files: int = 0
    rewound: int = 0
    actions: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    refused: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass
class Known:
    """A session, and its recorded trees at the ends of its turns."""

    id: str
    tree: Path
    branch: str
    place: str = "here"  # or "archived", "trash"
    turns: int = 0
    states: dict[int, State] = field(default_factory=dict)
    shelved: State | None = None  # its tree before it was archived or removed
    tree_gone: bool = False
    alone: str = ""  # the commit of a detached HEAD whose tree was deleted
    inside: State = field(default_factory=dict)  # the contents of its nested repositories then
    written: dict[str, str] = field(default_factory=dict)  # by a person while no daemon ran, since this round began


class LostBytes:
    def __init__(self, sandbox: Sandbox, client: Client, *, seed: int) -> None:
        self.counts = Counts()
        self._sandbox = sandbox
        self._client = client
        self._chance = random.Random(seed)
        self._mortal = Mortal(sandbox, client, self._chance)
        self._call = self._mortal.call
        self._repository = sandbox.repository()
        self._known: list[Known] = []
        self._number = 0
        self._folder = sandbox.root / "ends"
        self._folder.mkdir()
        self._commits: dict[str, State] = {}
        self._in_hand: Known | None = None
        self._mortal.meanwhile = self._meanwhile
        git(self._repository, "branch", BASE)
        git(self._repository, "branch", "outside")
        (self._repository / "dirty.txt").write_text("the person's own\n")
        (self._repository / "dir0" / "file0.txt").write_text("staged by the person\n")
        git(self._repository, "add", "dir0")
        git(self._repository, "stash")
        (self._repository / "dir1" / "file1.txt").write_text("staged by the person\n")
        git(self._repository, "add", "dir1")
        self._person = fingerprint(self._repository)

    # ── the rounds ────────────────────────────────────────────────────────────────────────────────

    async def run(self, rounds: int, limit: float) -> None:
        began = time.monotonic()
        await self._mortal.start()
        await self._create()
        while self.counts.rounds < rounds and time.monotonic() - began < limit:
            self.counts.rounds += 1
            await self._round()
        await self._reckon()
        self.counts.seconds = round(time.monotonic() - began, 1)
        self.counts.trees = sum(len(each.states) for each in self._known)
        self.counts.files = sum(len(state) for each in self._known for state in each.states.values())
        self.counts.kills, self.counts.refused = self._mortal.kills, dict(self._mortal.refused)
        self._mortal.stop()

    async def _round(self) -> None:
        if self._chance.random() < 0.25:
            self._mortal.kill()
            await self._mortal.start(arm=0.9)
        action, known = self._choose()
        self.counts.actions[action.__name__.strip("_")] += 1
        blow = None
        if self._chance.random() < 0.35:
            # Sleep, as the kill must happen at a random time.
            blow = asyncio.create_task(self._mortal.strike(self._chance.uniform(0, 0.7)))
        trace(
            f"round {self.counts.rounds}: {action.__name__} {known.id} {known.place} armed={self._mortal.armed!r} blow={blow is not None}"
        )
        if action in {
            self._rewind,
            self._sync,
            self._archive,
            self._remove,
            self._restore,
            self._bring_back,
            self._checkpoint,
        }:
            if known.place == "here" and not known.tree_gone:
                await self._checkpointed(known)  # no agent writes there
            self._in_hand = known
        await action(known)
        if blow is not None:
            await blow
        if known.written:
            await self._find_written(known)
        self._in_hand = None
        if self._chance.random() < 0.2:
            await self._look(self._chance.choice(self._known))

    def _choose(self) -> tuple[Callable[[Known], Awaitable[None]], Known]:
        known = self._chance.choice(self._known)
        ways: dict[str, tuple[list[Callable[[Known], Awaitable[None]]], list[int]]] = {
            "here": (
                [self._turn, self._turns, self._edit, self._checkpoint, self._rewind, self._fork, self._sync, self._archive, self._remove, self._lose_tree, self._move_base, self._nest],
                [12, 6, 4, 2, 7, 2, 7, 4, 4, 1, 1, 2],
            ),
            "archived": ([self._restore, self._remove, self._lose_branch, self._move_branch], [5, 2, 2, 1]),
            "trash": ([self._bring_back, self._move_branch], [5, 1]),
        }  # fmt: skip
        actions, weights = ways[known.place]
        return self._chance.choices(actions, weights)[0], known

    def _meanwhile(self) -> None:
        """Write, as a person, to the tree that the dead daemon was changing."""
        known = self._in_hand
        if known is None or not (known.tree / ".git").exists() or self._chance.random() < 0.4:
            return
        for _ in range(self._chance.randint(1, 3)):
            path = self._chance.choice([*trees.NAMES, *(["since"] * 3)])
            self._number += 1
            text = f"written while no daemon ran: {self._number}\n"
            file = known.tree / path
            with suppress(OSError):  # a directory exists there, or a file is in the way
                if not file.is_symlink():
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(text)
                    known.written[path] = text
                    trace(f"  meanwhile {path!r} {text!r}")

    async def _find_written(self, known: Known) -> None:
        """Check that files written while no daemon ran exist, or that a snapshot has them."""
        written, known.written = dict(known.written), {}
        there = {path for path, text in written.items() if _reads(known.tree / path) == text}
        names = [f"refs/ramet/{kind}/{known.id}" for kind in ("checkpoints", "archive", "trash")]
        refs = git(self._repository, "for-each-ref", "--format=%(refname)", *names).split()
        commits = [f"{ref}:files" for ref in refs]
        shelf = known.tree.with_name(f".{known.tree.name}.shelved")
        there |= {path for path, text in written.items() if _reads(shelf / path) == text}
        states = [trees.read_commit(self._repository, commit) for commit in commits]
        for path, text in written.items():
            wanted = trees.entry("100644", text.encode())
            if path in there or any(
                state.get(path, "").split(" ", 1)[1:] == wanted.split(" ", 1)[1:] for state in states
            ):
                continue
            # Archive and remove delete ignored files.
            if known.place != "here" and self._is_ignored(path, states):
                continue
            raise AssertionError(f"{path!r} of {known.id} is lost: it was {text!r}; {commits}")

    def _is_ignored(self, path: str, states: list[State]) -> bool:
        """Return whether a recorded state has rules that may ignore a path."""
        return any(name.rpartition("/")[2] == ".gitignore" for state in states for name in state) and path != "since"

    # ── actions ───────────────────────────────────────────────────────────────────────────────────

    async def _create(self) -> None:
        request = session_pb2.CreateSessionRequest(path=str(self._repository), mode=MODE, base_ref=BASE)
        self._add((await self._call(self._client.sessions.CreateSession, request)).session)

    def _add(self, session: session_pb2.Session) -> Known:
        known = Known(session.id, Path(session.worktree), session.branch)
        self._known.append(known)
        return known

    async def _turn(self, known: Known) -> None:
        await self._prompt(known)
        await self._settle(known)

    async def _turns(self, known: Known) -> None:
        """Send several at once: the next begins as soon as it can."""
        for _ in range(self._chance.randint(2, 3)):
            await self._prompt(known)
        await self._settle(known)

    async def _prompt(self, known: Known) -> None:
        if known.tree_gone:
            return
        known.turns += 1
        words = (
            sys.executable,
            "-I",
            "-S",
            trees.__file__,
            str(self._chance.getrandbits(30)),
            str(self._end_of(known, known.turns)),
        )
        step = {"tool": "Bash", "input": {"command": shlex.join(words), "description": "edit"}}
        request = session_pb2.SendPromptRequest(session=known.id, prompt=script(step, {"text": str(known.turns)}))
        await self._call(self._client.sessions.SendPrompt, request)
        self.counts.turns += 1

    def _end_of(self, known: Known, turn: int) -> Path:
        return self._folder / f"{known.id}-{turn}.json"

    async def _settle(self, known: Known) -> session_pb2.Session:
        """Wait until all its turns have ended, and read their recorded trees."""

        async def settled() -> session_pb2.Session:
            found = await self._call(self._client.sessions.GetSession, session_pb2.GetSessionRequest(session=known.id))
            session: session_pb2.Session = found.session
            if session.state == PAUSED:
                await self._call(
                    self._client.sessions.ResumeSession, session_pb2.ResumeSessionRequest(session=known.id)
                )
            elif session.state == FAILED:
                raise FaultError(f"{known.id} failed: {session.state_reason}")
            state = session_pb2.SessionState.Name(session.state)
            assert session.state == IDLE, f"{known.id} is {state}: {session.state_reason}"
            assert not found.pending_prompts, f"{known.id} has prompts to come"
            return session

        session = await self._mortal.patiently(settled)
        for turn in range(1, known.turns + 1):
            if turn not in known.states:
                known.states[turn] = json.loads(self._end_of(known, turn).read_text())
        return session

    async def _checkpointed(self, known: Known) -> None:
        """Wait for the checkpoint of its last turn, before which edits by hand would count as the
        agent's."""
        session = await self._settle(known)

        async def has_checkpoint() -> bool:
            assert any(each.turn >= session.turns for each in await self._checkpoints(known)), (
                f"turn {session.turns} of {known.id} has no checkpoint"
            )
            return True

        if known.turns:
            await self._mortal.patiently(has_checkpoint)

    async def _edit(self, known: Known) -> None:
        if not known.tree_gone:
            await self._checkpointed(known)
            trees.Edits(known.tree, self._chance.getrandbits(30)).make()

    async def _nest(self, known: Known) -> None:
        """Create a nested repository with a commit and an uncommitted file."""
        self._number += 1
        inner = known.tree / f"{trees.NEST}{self._number}"
        if known.tree_gone:
            return
        await self._checkpointed(known)
        inner.mkdir()
        git(inner, "init", "-q")
        (inner / "committed").write_text("committed\n")
        git(inner, "add", "-A")
        git(inner, "commit", "-qm", "inner")
        (inner / "draft").write_text(f"{self._number}\n")

    async def _checkpoint(self, known: Known) -> None:
        request = worktree_pb2.CreateCheckpointRequest(session=known.id)
        await self._call(self._client.worktrees.CreateCheckpoint, request, *self._gone(known))

    def _gone(self, known: Known) -> tuple[str, ...]:
        return ("WORKTREE_CHANGED",) if known.tree_gone else ()

    async def _rewind(self, known: Known) -> None:
        found = await self._checkpoints(known)
        if not found:
            return
        checkpoint = self._chance.choice(found)
        request = worktree_pb2.RewindSessionRequest(
            session=known.id, checkpoint=checkpoint.id, files_only=self._chance.random() < 0.5
        )
        before = {} if known.tree_gone else trees.read_tree(known.tree)
        hidden = set() if known.tree_gone else trees.ignored(known.tree)
        inside = {} if known.tree_gone else trees.read_inside(known.tree)
        # A rewind does not replace a nested repository by files.
        answer = await self._call(self._client.worktrees.RewindSession, request, "WORKTREE_CHANGED")
        self._inside_stays(known, inside, answer)
        if answer:
            self._compare(known, self._of(checkpoint), hidden, f"rewind to checkpoint {checkpoint.number}")
            saved = self._of(answer.before)
            assert known.written or before.items() <= saved.items(), (
                f"what a rewind of {known.id} overwrote: {describe_difference(before, saved)}"
            )

    def _inside_stays(self, known: Known, inside: State, rewound: Any = None) -> None:
        """Check that contents of nested repositories still exist, or are in the checkpoint that a
        rewind made."""
        if not known.tree_gone and not known.written:
            now = trees.read_inside(known.tree)
            nested = f"{rewound.before.ref}:nested" if rewound else ""
            if nested and git(self._repository, "ls-tree", "--name-only", rewound.before.ref).split().count("nested"):
                # `read_inside` reads no modes.
                saved = {each.split(" ")[1] for each in trees.read_commit(self._repository, nested).values()}
                inside = {path: each for path, each in inside.items() if each.split(" ")[1] not in saved}
            assert inside.items() <= now.items(), (
                f"what is in repositories inside {known.id}: {describe_difference(inside, now)}"
            )

    def _compare(self, known: Known, wanted: State, ignored: set[str], what: str) -> None:
        """Check that everything recorded exists, and nothing else but files that were ignored
        before."""
        there = trees.read_tree(known.tree, iter(wanted))
        more = trees.read_tree(known.tree)
        found = there | {path: entry for path, entry in more.items() if path not in ignored}
        if known.written:  # these are checked separately
            return
        assert found == wanted, f"{what} of {known.id}: {describe_difference(wanted, found)}"

    async def _fork(self, known: Known) -> None:
        if len([each for each in self._known if each.place == "here"]) >= SESSIONS:
            return
        found = await self._checkpoints(known)
        checkpoint = self._chance.choice(found) if found and self._chance.random() < 0.5 else None
        request = session_pb2.ForkSessionRequest(session=known.id, checkpoint=checkpoint.id if checkpoint else "")
        wanted = self._of(checkpoint) if checkpoint else None if known.tree_gone else trees.read_tree(known.tree)
        answer = await self._call(self._client.sessions.ForkSession, request, *self._gone(known), "PATH_TAKEN")
        if answer:
            made = self._add(answer.session)
            if wanted is not None:
                self._compare(made, wanted, set(), f"fork of {known.id}")

    async def _sync(self, known: Known) -> None:
        if self._chance.random() < 0.5:
            await self._move_base(known)
        method = self._chance.choice((worktree_pb2.SYNC_METHOD_MERGE, worktree_pb2.SYNC_METHOD_REBASE))
        request = worktree_pb2.SyncSessionRequest(session=known.id, method=method)
        inside = {} if known.tree_gone else trees.read_inside(known.tree)
        await self._call(self._client.worktrees.SyncSession, request, "WORKTREE_CHANGED", "GIT_FAILED")
        self._inside_stays(known, inside)

    async def _move_base(self, known: Known) -> None:
        """Commit as another person."""
        self._number += 1
        folder = self._sandbox.root / f"base-{self._number}"
        git(self._repository, "worktree", "add", "-q", "--detach", str(folder), BASE)
        trees.Edits(folder, self._chance.getrandbits(30)).make()
        # Files of the base may be ignored elsewhere.
        git(folder, "add", "-A", *(["--force"] if self._chance.random() < 0.5 else []))
        git(folder, "commit", "-q", "--allow-empty", "-m", "base")
        git(folder, "update-ref", f"refs/heads/{BASE}", "HEAD")
        git(self._repository, "worktree", "remove", "--force", str(folder))

    async def _archive(self, known: Known) -> None:
        request = session_pb2.ArchiveSessionRequest(session=known.id)
        await self._put_away(known, self._client.sessions.ArchiveSession, request, "archived")

    async def _remove(self, known: Known) -> None:
        request = session_pb2.DeleteSessionRequest(session=known.id, force=self._chance.random() < 0.7)
        await self._put_away(known, self._client.sessions.DeleteSession, request, "trash", "WORK_AT_RISK")

    async def _put_away(
        self, known: Known, method: Callable[..., Any], request: Any, place: str, *reasons: str
    ) -> None:
        was_here = known.place == "here"
        if was_here:
            await self._settle(known)
            before = None if known.tree_gone else trees.read_tree(known.tree)
            inside = {} if known.tree_gone else trees.read_inside(known.tree)
        if await self._call(method, request, *reasons):
            assert not known.tree.exists(), f"{known.tree} is still there"
            known.place = place
            if was_here:
                known.shelved, known.inside = (None if known.written else before), inside
            if not any(each.place == "here" for each in self._known):
                await self._create()

    async def _restore(self, known: Known) -> None:
        request = session_pb2.RestoreSessionRequest(session=known.id)
        self._is_back(known, await self._call(self._client.sessions.RestoreSession, request))

    async def _bring_back(self, known: Known) -> None:
        request = worktree_pb2.RestoreTrashRequest(entry=known.id)
        self._is_back(known, await self._call(self._client.worktrees.RestoreTrash, request))

    def _is_back(self, known: Known, answer: Any) -> None:
        assert Path(answer.session.worktree) == known.tree
        if known.shelved is not None:
            self._compare(known, known.shelved, set(), f"bringing back {list(answer.warnings)}")
        inside = {path: trees.entry("100644", (known.tree / path).read_bytes()) for path in known.inside}
        assert inside == known.inside, describe_difference(known.inside, inside)
        if known.alone:  # a turn may have changed it since
            git(known.tree, "merge-base", "--is-ancestor", known.alone, "HEAD")
        known.place, known.branch, known.tree_gone, known.alone = "here", answer.session.branch, False, ""

    async def _lose_branch(self, known: Known) -> None:
        git(self._repository, "update-ref", "-d", f"refs/heads/{known.branch}")

    async def _move_branch(self, known: Known) -> None:
        if not self._branch_in_use(known.branch):
            git(self._repository, "update-ref", f"refs/heads/{known.branch}", "outside")

    def _branch_in_use(self, branch: str) -> bool:
        return f"refs/heads/{branch}\n" in git(self._repository, "worktree", "list", "--porcelain") + "\n"

    async def _lose_tree(self, known: Known) -> None:
        """Delete by hand, with later changes; the recorded trees of turns must survive."""
        await self._checkpointed(known)
        if known.tree.exists():
            if self._chance.random() < 0.5:
                git(known.tree, "checkout", "-q", "--detach")
                (known.tree / "on-no-branch").write_text("committed\n")
                git(known.tree, "add", "--force", "on-no-branch")
                git(known.tree, "commit", "-q", "--allow-empty", "-m", "on no branch")
                known.alone = git(known.tree, "rev-parse", "HEAD").strip()
            shutil.rmtree(known.tree)
            known.tree_gone = True
            if self._chance.random() < 0.5:
                await self._lose_branch(known)

    # ── checks ────────────────────────────────────────────────────────────────────────────────────

    async def _checkpoints(self, known: Known) -> list[worktree_pb2.Checkpoint]:
        request = worktree_pb2.ListCheckpointsRequest(session=known.id, page_size=1000)
        return list((await self._call(self._client.worktrees.ListCheckpoints, request)).checkpoints)

    def _of(self, checkpoint: worktree_pb2.Checkpoint) -> State:
        if checkpoint.commit not in self._commits:
            self._commits[checkpoint.commit] = trees.read_commit(self._repository, checkpoint.commit)
        return self._commits[checkpoint.commit]

    async def _look(self, known: Known) -> None:
        """Check that the tree of every turn's end is among the checkpoints."""
        if known.place == "trash" or not known.states:
            return
        if known.place == "here" and not known.tree_gone:
            await self._checkpointed(known)
        checkpoints = await self._checkpoints(known)
        states = [self._of(checkpoint) for checkpoint in checkpoints]
        for turn, state in known.states.items():
            if state not in states:
                near = next((self._of(each) for each in checkpoints if each.turn == turn), {})
                raise AssertionError(
                    f"turn {turn} of {known.id} is lost: {describe_difference(state, near)}; {[(c.number, c.reason, c.turn) for c in checkpoints]}"
                )

    async def _reckon(self) -> None:
        for known in self._known:
            if known.place == "here" and not known.tree_gone:
                await self._settle(known)
            if known.tree_gone and known.place == "here":
                await self._archive(known)
            if known.place == "archived":
                await self._restore(known)
            elif known.place == "trash":
                await self._bring_back(known)
        assert differences(self._person, fingerprint(self._repository)) == {}
        for known in self._known:
            await self._checkpointed(known)
        git(
            self._repository,
            "-c",
            "gc.reflogExpire=now",
            "-c",
            "gc.reflogExpireUnreachable=now",
            "gc",
            "-q",
            "--prune=now",
        )
        self._commits.clear()
        for known in self._known:
            await self._look(known)
            found = await self._checkpoints(known)
            for turn in self._chance.sample(sorted(known.states), min(2, len(known.states))):
                checkpoint = next(each for each in found if self._of(each) == known.states[turn])
                before = trees.ignored(known.tree)
                request = worktree_pb2.RewindSessionRequest(session=known.id, checkpoint=checkpoint.id)
                await self._call(self._client.worktrees.RewindSession, request)
                self._compare(known, known.states[turn], before, f"rewind to turn {turn}")
                self.counts.rewound += 1

    def close(self) -> None:
        self._mortal.kill()


def _reads(file: Path) -> str | None:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError):
        return None


def describe_difference(wanted: State, found: State) -> str:
    return json.dumps(
        {path: [wanted.get(path), found.get(path)] for path in sorted(wanted.keys() | found.keys()) if wanted.get(path) != found.get(path)},
        indent=1,
    )  # fmt: skip


TRACED: list[str] = []


def trace(words: str) -> None:
    TRACED.append(words)


async def lost_bytes(rounds: int, *, seed: int = 1, limit: float = 3600.0) -> Counts:
    """Run the rounds and return the counts. Raise `AssertionError` for a loss. ``limit`` is in
    seconds."""
    TRACED.clear()
    with make_sandbox(config=CONFIG) as sandbox:
        async with connected(sandbox) as client:
            test = LostBytes(sandbox, client, seed=seed)
            try:
                await test.run(rounds, limit)
            except (AssertionError, FaultError, grpc.aio.AioRpcError, OSError, subprocess.CalledProcessError) as error:
                done = "\n".join(TRACED[-40:])
                raise AssertionError(f"seed {seed}, round {test.counts.rounds}:\n{done}\n{error}") from error
            finally:
                test.close()
            return test.counts


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Kill the daemon in the middle of everything, and look for every byte."
    )
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds after which no further round begins")
    given = parser.parse_args()
    print(json.dumps(vars(asyncio.run(lost_bytes(given.rounds, seed=given.seed, limit=given.limit)))))


if __name__ == "__main__":
    main()
