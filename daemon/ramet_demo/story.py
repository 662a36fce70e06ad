"""The steps of the demonstration, in order; each claim is checked before it is printed."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from typing import Any

from rametd.platform import processes

from ramet_demo.picture import photograph, photograph_pages
from ramet_demo.stage import BrokenPromiseError, Stage
from ramet_demo.teller import Shown, Teller, argv_of

NAMES = ("bug", "feature", "tests")
PROMPTS = {
    "bug": 'rametctl new "greet Ada Alan forgets Ada. Why?" --name bug',
    "feature": 'rametctl new "Add a --shout option" --name feature --mode acceptEdits',
    "tests": 'rametctl new "Write tests for greeting()" --name tests --mode acceptEdits',
}
READY_DEADLINE_S = 30.0
ALONE_S = 1.0
"""Seconds for which the agents have no daemon."""
POLL_S = 0.1

INTRODUCTION = """\
Ramet: many Claude Code sessions at work in one repository.

The model is scripted: a small program on loopback, part of this package,
answers as a model might. No account, no network. All else is real: the
Claude Code CLI, its tools and permissions, git worktrees, the daemon, the
keepers. Everything is in {root}, which is removed at the end."""

CONCLUSION = """\
Three agents worked in three worktrees of one repository; one asked before it
ran a command; the daemon was killed, and nothing was lost or done twice.

With your own Claude login, in a repository of yours:
    rametctl new "what is to be done" --name first
    rametctl ls --watch        # sessions at work, and sessions that need you
    rametctl inbox             # their questions, and how to answer
    rametctl diff first"""


def perform(stage: Stage, teller: Teller) -> dict[str, list[Shown]]:
    """Run all steps. Return the screens of each picture by its name; raise `BrokenPromiseError` if
    a claim does not hold."""
    return Performance(stage, teller).play()


class Performance:
    """One run."""

    def __init__(self, stage: Stage, teller: Teller) -> None:
        self._stage = stage
        self._teller = teller
        self._highlights: list[Shown] = []
        self._pictures: dict[str, list[Shown]] = {}

    def play(self) -> dict[str, list[Shown]]:
        self._teller.add(INTRODUCTION.format(root=self._stage.root))
        self._repository()
        self._start()
        pids = self._kill_daemon()
        self._answer(pids)
        self._results()
        self._leave()
        return {"demo": self._highlights, **self._pictures}

    # ── the acts ──────────────────────────────────────────────────────────────────────────────────

    def _repository(self) -> None:
        self._teller.say("A sample repository: a program that greets, with a bug: it forgets Ada.")
        self._run("git log --oneline --stat")
        shown = self._run("python -m greet Ada Alan")
        self._check(shown.plain.strip() == "Hello, Alan!", "the sample shows its bug")

    def _start(self) -> None:
        self._teller.say("Three sessions, each with its own branch, worktree and Claude Code.")
        for name in NAMES:
            self._run(PROMPTS[name])
        self._teller.say("They work at the same time; one asks a question.")
        if self._teller.records:
            self._await(self._in_the_middle)
            self._highlight(self._run("rametctl ls"))
        else:
            self._run("rametctl ls --watch", until=lambda shown: "waiting" in shown.plain and self._in_the_middle())

    def _in_the_middle(self) -> bool:
        sessions = {session["name"]: session for session in self._ask("ls")}
        states = {name: sessions[name]["state"] for name in NAMES}
        for name in NAMES:
            over = f"{name} is {states[name]}: {sessions[name]['state_reason']}"
            self._check(states[name] not in {"idle", "failed", "lost"}, f"all three work at the same time ({over})")
        edited = (self._stage.state / "worktrees").glob("*/*/greet/__main__.py")
        return states == {"bug": "waiting", "feature": "working", "tests": "working"} and any(
            "--shout" in file.read_text() for file in edited
        )

    def _kill_daemon(self) -> dict[str, int]:
        """Kill the daemon in the middle of three turns; return the agents' process ids."""
        pids = {name: int(self._ask("show", name)["process"]["pid"]) for name in NAMES}
        daemon = processes.find(int(self._ask("daemon", "status")["pid"]))
        assert daemon is not None
        self._teller.say("In the middle of three turns, the daemon is killed.")
        self._teller.command(f"kill -9 {daemon.pid}")
        processes.send_signal(daemon.pid, daemon.start, 9)
        self._await(lambda: not processes.is_alive(daemon.pid, daemon.start, processes.boot_id()))
        time.sleep(ALONE_S)
        for name, pid in pids.items():
            process = processes.find(pid)
            self._check(process is not None and not process.zombie, f"the claude of {name} outlives the daemon")
        alive = ", ".join(f"{name} {pid}" for name, pid in pids.items())
        text = f"rametd {daemon.pid} is dead. The three agents still run: {alive}."
        self._teller.add(text)
        self._highlights.append(Shown(f"kill -9 {daemon.pid}", f"{text}\n"))
        return pids

    def _answer(self, pids: dict[str, int]) -> None:
        self._teller.say("The next command starts a new daemon, which reattaches all three.")
        shown = self._highlight(self._run("rametctl inbox"))
        if self._teller.records:
            self._pictures["inbox"] = [self._run("rametctl inbox --full")]
            photograph(self._stage.environ, self._stage.repository, self._stage.root / "dashboard.svg")
            bug = f"/sessions/{self._ask('show', 'bug')['id']}"
            self._photograph({"web-overview": ("/", "wide"), "web-session": (bug, "wide"), "web-phone": (bug, "phone")})
        self._check("python -m greet Ada Alan" in shown.plain, "the request outlived the daemon that received it")
        now = {name: int(self._ask("show", name)["process"]["pid"]) for name in NAMES}
        self._check(now == pids, "they are the same processes as before")
        self._run("rametctl approve bug")
        self._teller.say("Then wait for all of them.")
        self._run(f"rametctl wait {' '.join(NAMES)} --timeout 40")

    def _results(self) -> None:
        self._teller.say("One turn each, with its cost: the CLI's prices for scripted token counts.")
        self._highlight(self._run("rametctl ls"))
        for session in self._ask("ls"):
            name = session["name"]
            self._check(session["state"] == "idle" and session["turns"] == 1, f"{name} ended one turn, and only one")
            self._check(session["cost_usd"] > 0, f"{name} has a cost")
        self._teller.say("Each session's changes, in its own worktree.")
        self._run("rametctl diff feature")
        shown = self._run("rametctl diff tests --stat")
        self._check("tests/test_greet.py" in shown.plain, "the tests were written")
        feature = [change["path"] for change in self._ask("diff", "feature")["files"]]
        self._check(feature == ["README.md", "greet/__main__.py"], f"the feature was added, in two files: {feature}")
        self._teller.say("The turn that found the bug: it began under the killed daemon.")
        self._run("rametctl watch bug", until=lambda shown: "· checkpoint" in shown.plain)
        if self._teller.records:
            self._pictures["transcript"] = [self._run("rametctl logs feature")]
            feature_id = self._ask("show", "feature")["id"]
            self._photograph({"web-review": (f"/sessions/{feature_id}/review", "wide")})
        self._once_only()

    def _once_only(self) -> None:
        """Check that everything under way at the kill happened exactly once."""
        events = self._ask("log", "bug")
        kinds = [event["payload"] for event in events]
        results = [result for event in events for result in event.get("user_message", {}).get("results", ())]
        for kind in ("request_opened", "request_closed"):
            asked = [event for event in events if event.get(kind, {}).get("request", {}).get("kind") == "permission"]
            self._check(len(asked) == 1, f"one question, one answer ({kind} {len(asked)} times)")
        self._check(kinds.count("turn_ended") == 1, "one turn ended")
        self._check(sum("Hello, Alan!" in result["text"] for result in results) == 1, "the command ran once")
        worktree = self._ask("show", "tests")["worktree"]
        ran = subprocess.run(
            argv_of("python -m unittest"), cwd=worktree, env=self._stage.environ, capture_output=True, text=True, check=False
        )  # fmt: skip
        self._check(ran.returncode == 0 and "expected failures=1" in ran.stderr, "the written tests run")

    def _leave(self) -> None:
        self._teller.say("The end: the sessions are stopped, the daemon and the model too.")
        for name in NAMES:
            self._run(f"rametctl stop {name}")
        self._run("rametctl daemon stop")
        self._stage.end_model()
        self._await(lambda: not self._stage.processes())  # the daemon releases its lock a moment before it exits

    def _photograph(self, pages: dict[str, tuple[str, str]]) -> None:
        photograph_pages(self._stage.environ, self._stage.repository, self._stage.root, pages)

    # ── helpers ───────────────────────────────────────────────────────────────────────────────────

    def _run(self, command: str, until: Callable[[Shown], bool] | None = None) -> Shown:
        return self._teller.run(command, self._stage.environ, self._stage.repository, until)

    def _highlight(self, shown: Shown) -> Shown:
        self._highlights.append(shown)
        return shown

    def _ask(self, *arguments: str) -> Any:
        """Return a command's --json output, without showing it."""
        done = subprocess.run(
            [*argv_of("rametctl"), *arguments, "--json"],
            cwd=self._stage.repository,
            env=self._stage.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise BrokenPromiseError(f"`rametctl {' '.join(arguments)}` failed: {os.fsdecode(done.stderr).strip()}")
        return json.loads(done.stdout)

    def _await(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + READY_DEADLINE_S
        while not condition():
            if time.monotonic() > end:
                raise BrokenPromiseError(f"this took more than {READY_DEADLINE_S:.0f} seconds")
            time.sleep(POLL_S)

    def _check(self, holds: bool, claim: str) -> None:
        if not holds:
            raise BrokenPromiseError(f"this does not hold: {claim}")
