"""Compare the shell reader with real shells: allowed texts run in bash, dash and zsh, and must do
nothing else.

``python -m tests.fuzz.shell_reader --rounds 100000`` is the long run. An escape is a stub that no
rule allows, or a change in the working directory.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rametd.rules import Call, Effect, Rule, evaluate

SHELLS = {"bash": ("--norc", "--noprofile"), "dash": (), "zsh": ("-f",)}
STUBS = {"good": ("good", "one"), "fine": ("fine",)}
"""The stubs that rules allow, and the first words that they must have."""
ALLOW = (
    *("Bash(good one:*)", "Bash(fine:*)", "Bash(break)", "Bash(find:*)", "Bash(sort:*)", "Bash(sed:*)", "Bash(awk:*)", "Bash(printf:*)", "Bash(echo:*)"),
    *("Bash(test:*)", "Bash([:*)", "Bash(cd:*)", "Bash(env fine:*)", "Bash(timeout 2 fine:*)", "Bash(xargs fine:*)", "Bash(tar tf:*)", "Bash(cat:*)"),
)  # fmt: skip

_NAMES = ["good one", "good one", "fine", "fine", "find .", "sort", "sed", "awk", "printf", "echo", "test", "[", "cd", "env fine", "timeout 2 fine", "xargs fine", "tar tf", "cat",
          "break", "bad", "g\\ood one", "'fine'", "$'\\x66ine'", "good  'one'", "goo\\\nd one"]  # fmt: skip
_WORDS = ["x", "a.txt", "sub", "..", "-", "--", "'a; bad'", '"b && bad"', "\\;", "+", "-exec", "bad", "-delete", "-o", "f", "-fprint", "$_", '"$_"', "$X", '"${X}"', "$PWD", "$BASH_EXECUTION_STRING",
          "{-exec,bad,\\;}", "{-o,f}", "{a,b}", "*", "?", "./*", "~", "~+", "=bad", "*(e:bad:)", "'a[$(bad)]'", "'a[`bad`]'", "-eq", "0", "]", "-n", "1p", "'$p'", "'e bad'", "'1e bad'", "'w f'",
          "'s/a/b/'", "'s/a/bad/e'", "'{print $1}'", "'BEGIN{system(\"bad\")}'", "'BEGIN{print > \"f\"}'", "%d", "%s", "-v", "PATH=.", "<1-5>", "$((1))", "$[a[$(bad)]]", "#", "!", "!!", "^", "%1",
          "'\n'", "a=b", "$'\\''", "}", "=", "''", "if", "--output=f", "--outp=f", "--compress-program=bad", "-I", "-f", "-i", "--to-command=bad", "-v", "-R", "-exec bad +"]  # fmt: skip
_JOINTS = ["; ", " && ", " || ", " | ", "\n", " |& ", " & ", "&&", ";", " # x\n", "\n# bad\n", " \\\n", " <<E\nx\nE\n", " <<'E'\n$(bad)\nE\n", " <<<bad\n", " &>/dev/null ", " &>f ", " &>> f ",
           " >/dev/null ", " 2>&1 ", " </dev/null ", " >f ", " >! f ", " >&f ", " ;; ", " (bad)\n"]  # fmt: skip
_FORMS = ["({})", "{{ {}; }}", "if {}; then fine; fi", "while ! {}; do break; done", "! {}", "time {}", "good one $({})", 'fine "$({})"', "fine `{}`", "fine <({})", "f() {{ {}; }}; f", "for i in 1; do {}; done",
          "case x in x) {};; esac", "PATH=. {}", "fine ${{x:-$({})}}", "[[ x ]] && {}", "repeat 2 {}", "- {}", "noglob {}", "{} always {{ bad }}", "{{ {} }} always {{ bad }}", "{{ {} }} && bad",
          "if {} {{ bad }}", "if ({}) {{ bad }}", "() {{ {} }}", "function g {{ {}; }}", "2>/dev/null if {}"]  # fmt: skip


class Stage:
    """Create a directory with stubs that log their arguments, and shells that find little else."""

    def __init__(self, root: Path) -> None:
        self.log, self.work, path = root / "log", root / "work", root / "path"
        self.shells = [name for name in SHELLS if shutil.which(name)]
        self.missing = sorted(set(SHELLS) - set(self.shells))
        path.mkdir()
        for name in ("good", "fine", "bad", "one", "if", "time", "always", "noglob"):
            stub = path / name
            # One line of the log per call, so that no argument looks like another call.
            stub.write_text(f"#!/bin/bash -p\nprintf '%q ' {name} \"$@\" >>'{self.log}'\necho >>'{self.log}'\n")
            stub.chmod(0o755)
        tools = ("env", "nice", "timeout", "xargs", "nohup", "bash", "sh", "cat", "find", "sort", "sed", "awk", "tar")
        for name in tools:
            if found := shutil.which(name):
                (path / name).symlink_to(found)
        # Log every other command of bash too.
        unknown = f"() {{ printf '%q ' \"$@\" >>'{self.log}'; echo >>'{self.log}'; }}"
        self._environment = {"PATH": str(path), "BASH_FUNC_command_not_found_handle%%": unknown}
        self._reset()

    def _reset(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        (self.work / "sub").mkdir(parents=True)
        for name in ("a.txt", "-delete", "-exec", "sub/b"):
            (self.work / name).write_text("a b\n")
        self._before = self._state()

    def _state(self) -> list[tuple[str, int, int]]:
        return sorted(
            (str(path), path.lstat().st_size, path.lstat().st_mtime_ns if path.is_file() else 0)
            for path in self.work.rglob("*")
        )

    def run(self, command: str, shell: str = "bash") -> list[list[str]]:
        """Return the arguments of each stub that the shell ran."""
        self.log.write_text("")
        # In its own process session, so that an endless text is killed with all its subshells.
        process = subprocess.Popen(
            [shutil.which(shell) or shell, *SHELLS[shell], "-c", command],
            cwd=self.work,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return [line.split() for line in self.log.read_text(errors="replace").splitlines() if line]

    def escapes(self, command: str) -> Iterator[str]:
        """Return the actions of an allowed text that no rule allows, in any shell."""
        for shell in self.shells:
            for words in self.run(command, shell):
                if shell == "dash" and words[0] == "time":
                    continue  # a program there, which runs the rest: its arguments are judged as in bash
                wanted = STUBS.get(words[0])
                if wanted is None or tuple(words[: len(wanted)]) != wanted:
                    yield f"{shell} ran {words}: {command!r}"
            if self._state() != self._before:
                yield f"{shell} changed the directory: {command!r}"
                self._reset()

    def effect(self, command: str, **rules: str) -> Effect | None:
        every = [Rule(text, Effect(kind), text) for kind, texts in rules.items() for text in texts.split("|")]
        return evaluate(every, Call("Bash", {"command": command}, self.work), home=self.work).effect


def text_of(chance: random.Random, depth: int = 2) -> str:
    """Return a shell text: mostly one that could be allowed, with a word or operator that may
    escape."""
    text = chance.choice(_NAMES) + "".join(
        " " + chance.choice(_WORDS) for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 5)))
    )
    while depth and chance.random() < 0.4:
        depth -= 1
        if chance.random() < 0.6:
            text += chance.choice(_JOINTS) + text_of(chance, depth - 1 if depth else 0)
        else:
            text = chance.choice(_FORMS).format(text)
    return text


def fuzz(stage: Stage, rounds: int, *, seed: int = 1, limit: float = 3600.0) -> tuple[Counter[str], list[str]]:
    """Return counts and escapes of ``rounds`` texts; ``limit`` is the seconds after which no
    further text begins."""
    chance, counts, found = random.Random(seed), Counter[str](), list[str]()  # noqa: S311 - a fuzz, to be repeated by its seed
    end = time.monotonic() + limit
    rules = "|".join(ALLOW)
    for _ in range(rounds):
        if time.monotonic() > end:
            break
        text = text_of(chance)
        counts["texts"] += 1
        if stage.effect(text, allow=rules) is Effect.ALLOW:
            counts["allowed"] += 1
            found += stage.escapes(text)
    return counts, found


def main() -> None:
    parser = argparse.ArgumentParser(description="Execute what the rules allow.")
    parser.add_argument("--rounds", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds after which no further text begins")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ramet-fuzz-") as root:
        stage = Stage(Path(root))
        counts, found = fuzz(stage, given.rounds, seed=given.seed, limit=given.limit)
        print(json.dumps({**counts, "shells": stage.shells, "escapes": found}, indent=1))
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
