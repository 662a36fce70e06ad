"""What is allowed, and what is denied, against what a real bash runs.

Every command that the texts may name is a stub that writes its name into a log, or one of a few harmless wrappers; nothing else is
on the path.
"""

import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from rametd.rules import Call, Effect, Rule, evaluate
from rametd.rules.shell import read

BASH = "/bin/bash"
ALLOWED = {"good": ["good", "one"], "fine": ["fine"]}


class Stage:
    """A directory with stubs, and a bash that finds nothing else."""

    def __init__(self, root: Path) -> None:
        self.log, self.work, path = root / "log", root / "work", root / "path"
        self.work.mkdir()
        path.mkdir()
        for name in ("good", "fine", "bad", "one", "if", "time"):
            stub = path / name
            # One line of a log per word, so that no word can pretend to be another call.
            stub.write_text(f"#!{BASH} -p\nprintf '%q ' {name} \"$@\" >>'{self.log}'\necho >>'{self.log}'\n")
            stub.chmod(0o755)
        for name in ("env", "nice", "timeout", "xargs", "nohup", "bash", "sh", "cat"):
            if found := shutil.which(name):
                (path / name).symlink_to(found)
        # Whatever else bash would run is logged too.
        unknown = f"() {{ printf '%q ' \"$@\" >>'{self.log}'; echo >>'{self.log}'; }}"
        self._environment = {"PATH": str(path), "BASH_FUNC_command_not_found_handle%%": unknown}

    def run(self, command: str) -> list[list[str]]:
        """The words of each command that bash ran."""
        self.log.write_text("")
        # A session of its own, so that a text that loops for ever is ended with all its subshells.
        bash = subprocess.Popen(
            [BASH, "--norc", "--noprofile", "-c", command],
            cwd=self.work,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with suppress(subprocess.TimeoutExpired):
            bash.wait(timeout=5)
        with suppress(ProcessLookupError):
            os.killpg(bash.pid, signal.SIGKILL)
        bash.wait()
        return [line.split() for line in self.log.read_text(errors="replace").splitlines() if line]

    def effect(self, command: str, **rules: str) -> Effect | None:
        every = [Rule(text, Effect(kind), text) for kind, texts in rules.items() for text in texts.split("|")]
        return evaluate(every, Call("Bash", {"command": command}, self.work), home=self.work).effect


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    if not os.access(BASH, os.X_OK):
        pytest.skip("no bash")
    return Stage(tmp_path_factory.mktemp("stage"))


def spelled(word: str) -> st.SearchStrategy[str]:
    """The ways to write a word so that bash reads the same."""
    return st.sampled_from(
        [
            word,
            word,
            f"'{word}'",
            f'"{word}"',
            f"\\{word}",
            f"{word[0]}''{word[1:]}",
            f"{word[:-1]}\\\n{word[-1:]}",
            f'{word[:1]}"{word[1:]}"',
            "$'" + "".join(f"\\x{ord(char):x}" for char in word) + "'",
            "$'" + "".join(f"\\{ord(char):o}" for char in word) + "'",
        ]
    )


ARGUMENTS = st.sampled_from(
    [
        "x",
        "'a; bad'",
        '"b && bad"',
        "\\;",
        "\\&",
        "-o",
        "'\n'",
        '"\'"',
        "a#b",
        "*",
        "{a,b}",
        "$HOME",
        '"${x}"',
        "~",
        "if",
        "$'\\''",
        "}",
        "=",
        "''",
    ]
)
GAPS = st.sampled_from([" ", " ", "\t", "  ", " \\\n ", "\\\n "])
JOINTS = st.sampled_from(
    [
        " ; ",
        " && ",
        " || ",
        "|",
        "\n",
        " |& ",
        ";",
        "&&",
        "\n\n",
        " & ",
        "\n# bad\n",
        " # 'bad\n",
        "#",
        "\\\n",
        " <<E\n",
        "\nE\n",
    ]
)
ENDS = st.sampled_from(
    [
        "",
        "",
        "",
        " 2>&1",
        " >/dev/null",
        " </dev/null",
        " <<E\n$(bad)\nE\n",
        " <<'E'\n$(bad)\nE\n",
        " <<-\\E\n\tbad\n\tE\n",
        " <<<bad",
        " &",
        " # bad",
        " >f",
        " <(bad)",
    ]
)


def command(*words: str) -> st.SearchStrategy[str]:
    return st.builds(
        lambda first, gaps, more, end: (
            "".join(gap + word for gap, word in zip(["", *gaps], first + more, strict=False)) + end
        ),
        st.tuples(*map(spelled, words)).map(list),
        st.lists(GAPS, min_size=6, max_size=6),
        st.lists(ARGUMENTS, max_size=2),
        ENDS,
    )


SIMPLE = st.one_of(command("good", "one"), command("fine"), command("good", "one"), command("bad"))
PLAIN = st.one_of(command("good", "one"), command("fine"))


def compound(simple: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        wrappers = [
            "({})", "( {}\n)", "{{ {}; }}", "{{ {}\n}}", "if {}; then fine; fi", "while ! {}; do break; done", "! {}", "time {}", "good one $({})",
            'good one "$({})"', "good one `{}`", "fine <({})", "f() {{ {}; }}; f", "case x in x) {};; esac", "for i in 1; do {}; done", "eval '{}'",
            "PATH=. {}", "fine ${{x:-$({})}}", "'if' {}", "2>/dev/null if {}", "[[ x ]] && {}",
        ]  # fmt: skip
        return st.one_of(
            st.tuples(inner, JOINTS, inner).map("".join),
            st.builds(lambda form, text: form.format(text), st.sampled_from(wrappers), inner),
        )

    return st.recursive(simple, grown, max_leaves=4)


NOISE = st.lists(
    st.sampled_from(
        ["good one", "fine", "bad", " ", " ", "\n", ";", "&&", "|", "'", '"', "\\", "$", "`", "(", ")", "$(", "{", "}", "<<E", "E", "\nE\n", "#", "!", "=", "if", "then", "fi",
         "do", "done", "while", "time", "$'", "\\'", "<<<", "2>&1", "&", "*", "[", "]", "x", "-"]
    ),
    max_size=12,
).map("".join)  # fmt: skip


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(compound(SIMPLE) | compound(PLAIN) | NOISE)
def test_what_is_allowed_runs_only_what_the_rules_name(stage: Stage, text: str) -> None:
    if stage.effect(text, allow="Bash(good one:*)|Bash(fine:*)|Bash(break)") is not Effect.ALLOW:
        event("not allowed")
        return
    event("allowed")
    for words in stage.run(text):
        assert words[: len(ALLOWED.get(words[0], []))] == ALLOWED.get(words[0]), (text, words)


HIDING = [
    "env A=1 {}", 'env -i PATH="$PATH" {}', "nice -n 1 {}", "timeout 5 {}", "timeout -k 1 5 {}", "nohup {}", "command {}", "bash -c {q}", "sh -c {q}", "bash -ec {q} x",
    "eval {q}", "echo {q} | bash", "bash <<< {q}", "bash <<'E_{n}'\n{}\nE_{n}\n", "echo x | xargs {}", "trap {q} EXIT", "exec {}", "x=1 {}", "good $({})", 'good "$({})"',
    "cat <({})", "({})", "{{ {}; }}", "f() {{ {}; }}; f", "for i in 1; do {}; done", "case x in x) {};; esac", "if {}; then fine; fi", "fine; {}", "fine && {}", "good | {}",
    "! {}", "time {}", "good ${{y:-$({})}}", ">/dev/null {}", "good one\n{}", 'v={q}; eval "$v"', "$NOTHING {}",
]  # fmt: skip


@st.composite
def hidden(draw: st.DrawFn) -> str:
    """The stub ``bad`` behind up to three of the ways to run it."""
    text = draw(spelled("bad")) + draw(st.sampled_from(["", " x", " 'y z'"]))
    for number, form in enumerate(draw(st.lists(st.sampled_from(HIDING), max_size=3))):
        quoted = "'" + text.replace("'", "'\\''") + "'"
        text = form.format(text, q=quoted, n=number)
    return text


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(hidden())
def test_what_runs_a_denied_command_is_denied(stage: Stage, text: str) -> None:
    if stage.effect(text, deny="Bash(bad:*)") is Effect.DENY:
        event("denied")
        return
    assert ["bad"] not in [words[:1] for words in stage.run(text)], text


def test_the_stage_itself_notices_what_runs(stage: Stage) -> None:
    assert stage.run("good one 'a b'; bad; unknown") == [["good", "one", "a\\", "b"], ["bad"], ["unknown"]]


@settings(max_examples=200)
@given(st.text(max_size=60) | NOISE)
def test_any_text_is_read(text: str) -> None:
    script = read(text)
    assert script.doubts or not re.search(r"[`\0]", re.sub(r"\\.|'[^']*'|#.*", "", text))


def test_a_text_that_nests_or_goes_on_without_end_is_doubted() -> None:
    for text in ("$(" * 5000, "${a:-" * 5000, "(" * 5000 + ")" * 5000, '"$(' * 5000, "a;" * 6000, "`\\`" * 3000):
        assert read(text).doubts
