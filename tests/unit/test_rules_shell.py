"""Allowed and denied texts compared with the commands that real shells run."""

import os
import re

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from rametd.rules import Effect
from rametd.rules.shell import read

from tests.fuzz.shell_reader import Stage, fuzz


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(tmp_path_factory.mktemp("stage"))


def spelled(word: str) -> st.SearchStrategy[str]:
    """Return spellings of a word that bash reads as the same."""
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
    assert not list(stage.escapes(text))


def test_a_fuzz_of_allowed_texts_in_every_shell_finds_no_escape(stage: Stage) -> None:
    if stage.missing and os.environ.get("CI"):
        pytest.fail(f"not installed: {', '.join(stage.missing)}")
    counts, escapes = fuzz(stage, 600, limit=12)
    assert not escapes
    assert counts["allowed"] > 20
    if stage.missing:
        pytest.skip(f"no escape found, but these shells are not installed: {', '.join(stage.missing)}")


def test_the_fuzz_notices_a_command_and_a_change_that_no_rule_allows(stage: Stage) -> None:
    assert [said.split(":")[0] for shell in stage.shells for said in stage.escapes("bad") if said.startswith(shell)]
    assert len(list(stage.escapes("sort a.txt -o f"))) == len(stage.shells)
    assert not list(stage.escapes("fine; good one x; sort a.txt"))


@pytest.mark.parametrize(
    "text",
    ["2>/dev/null if fine", "{ 2>/dev/null if fine; }", "if 2>/dev/null then fine; then fine; fi", "! >/dev/null do fine",
     "time time fine", "! time time fine", "fine; time time fine x"],
)  # fmt: skip
def test_a_word_that_some_shell_runs_is_a_command_and_not_reserved(stage: Stage, text: str) -> None:
    assert list(stage.escapes(text)), "it runs a command that the rule does not name"
    assert stage.effect(text, allow="Bash(fine:*)") is not Effect.ALLOW


HIDING = [
    "env A=1 {}", 'env -i PATH="$PATH" {}', "nice -n 1 {}", "timeout 5 {}", "timeout -k 1 5 {}", "nohup {}", "command {}", "bash -c {q}", "sh -c {q}", "bash -ec {q} x",
    "eval {q}", "echo {q} | bash", "bash <<< {q}", "bash <<'E_{n}'\n{}\nE_{n}\n", "echo x | xargs {}", "trap {q} EXIT", "exec {}", "x=1 {}", "good $({})", 'good "$({})"',
    "cat <({})", "({})", "{{ {}; }}", "f() {{ {}; }}; f", "for i in 1; do {}; done", "case x in x) {};; esac", "if {}; then fine; fi", "fine; {}", "fine && {}", "good | {}",
    "! {}", "time {}", "good ${{y:-$({})}}", ">/dev/null {}", "good one\n{}", 'v={q}; eval "$v"', "$NOTHING {}",
]  # fmt: skip


@st.composite
def hidden(draw: st.DrawFn) -> str:
    """Return a text that runs the stub ``bad`` through up to three wrappers."""
    text = draw(spelled("bad")) + draw(st.sampled_from(["", " x", " 'y z'"]))
    for number, form in enumerate(draw(st.lists(st.sampled_from(HIDING), max_size=3))):
        quoted = "'" + text.replace("'", "'\\''") + "'"
        text = form.format(text, q=quoted, n=number)
    return text


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(hidden())
def test_what_runs_a_denied_command_is_denied(stage: Stage, text: str) -> None:
    if stage.effect(text, deny="Bash(bad:*)") is not None:
        event("denied, or asked about")
        return
    assert ["bad"] not in [words[:1] for words in stage.run(text)], text


def test_the_stage_itself_notices_what_runs(stage: Stage) -> None:
    assert stage.run("good one 'a b'; bad; unknown") == [["good", "one", "a\\", "b"], ["bad"], ["unknown"]]


@settings(max_examples=200)
@given(st.text(max_size=60) | NOISE)
def test_any_text_is_read(text: str) -> None:
    script = read(text)
    assert script.doubts or not re.search(r"[`\0]", re.sub(r"\\.|'[^']*'|#.*", "", text))


def test_a_deeply_nested_or_endless_text_is_doubted() -> None:
    for text in ("$(" * 5000, "${a:-" * 5000, "(" * 5000 + ")" * 5000, '"$(' * 5000, "a;" * 6000, "`\\`" * 3000):
        assert read(text).doubts
