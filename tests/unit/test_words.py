"""Wording: counts with their nouns, commands to copy, names of tests, and phrases that must not
return."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from ramet.v1 import worktree_pb2
from ramet.words import plural
from rametctl.render.diff import stat_lines

ROOT = Path(__file__).parents[2]
PLURALS = re.compile(
    r"(?P<nouns> (?:more |open |new |agent |review |spare )*(?:agents|answers|branches|checkpoints|children|commands|comments|commits|conflicts"
    r"|days|directories|entries|files|hours|insertions|deletions|landings|lines|messages|minutes|patterns|ports|problems|processes|prompts"
    r"|pull requests|questions|refs|requests|rules|seconds|sessions|spares|steps|tasks|things|threads|times|tokens|turns|worktrees))\b"
)
NEVER_ONE = {
    ("client/rametctl/nouns/transcripts.py", " tokens"): "an estimate",
    ("client/rametctl/commands/ls.py", " sessions"): "names of states, not a number",
    ("client/rametctl/commands/new.py", " sessions"): "one has its own words",
    ("client/rametctl/render/conflicts.py", " sessions"): "one has its own words",
    ("daemon/rametd/services/agents/projection.py", " times"): "a limit that was hit more often than it may be",
    ("daemon/rametd/services/attention.py", " requests"): "one would be the one that is meant",
    ("daemon/rametd/services/upkeep/checks/directories.py", " entries"): "fewer are listed one by one",
    ("daemon/rametd/services/pull_requests/github.py", " seconds"): "the timeout of a call",
    ("daemon/rametd/api/terminal.py", " commands"): "twenty, a constant",
    ("daemon/rametd/git/remotes.py", " seconds"): "a deadline of a minute or more",
    ("daemon/rametd/plans/reading.py", " threads"): "more than a thousand",
}


def test_a_command_to_copy_quotes_the_name_in_it() -> None:
    """A name may contain spaces, and agents name sessions: copied without quotes, `x; rm -rf ~`
    would run."""
    unquoted = re.compile(r"rametctl [a-z ]+ \{(?:\w+\.(?:session_)?name\b|session\})")
    sources = [file for part in ("client/rametctl", "daemon/rametd") for file in (ROOT / part).rglob("*.py")]
    assert [f"{file}: {found}" for file in sources for found in unquoted.findall(file.read_text())] == []


@pytest.mark.parametrize(
    ("noun", "expected"),
    [
        ("file", ["0 files", "1 file", "2 files"]),
        ("more line", ["0 more lines", "1 more line", "2 more lines"]),
        ("branch", ["0 branches", "1 branch", "2 branches"]),
        ("agent directory", ["0 agent directories", "1 agent directory", "2 agent directories"]),
        ("day", ["0 days", "1 day", "2 days"]),
        ("process", ["0 processes", "1 process", "2 processes"]),
    ],
)
def test_a_count_has_the_noun_that_goes_with_it(noun: str, expected: list[str]) -> None:
    assert [plural(count, noun) for count in range(3)] == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "1 file changed, 0 insertions(+), 0 deletions(-)"),
        (1, "1 file changed, 1 insertion(+), 1 deletion(-)"),
        (2, "1 file changed, 2 insertions(+), 2 deletions(-)"),
    ],
)
def test_a_stat_counts_as_git_does(count: int, expected: str) -> None:
    change = worktree_pb2.FileChange(path="a", additions=count, deletions=count)
    answer = worktree_pb2.GetDiffResponse(files=[change], additions=count, deletions=count)
    assert stat_lines(answer)[-1].text == expected


def test_no_text_has_a_plural_beside_a_count_that_may_be_one() -> None:
    """A constant of the program is never one by chance; any other number needs `plural`."""
    found = [
        (place, noun, line)
        for place, noun, line in counted()
        if (place, noun) not in NEVER_ONE and not place.startswith(("daemon/ramet_demo/scripted", "daemon/ramet_demo"))
    ]
    assert found == []
    seen = {(place, noun) for place, noun, _ in counted()}
    assert set(NEVER_ONE) <= seen, "an exception that is no longer needed"


def counted() -> Iterator[tuple[str, str, int]]:
    """Yield (file, noun, line) of each formatted value before a noun in the plural."""
    for folder in ("client/rametctl", "daemon/rametd"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    for value, text in zip(node.values, node.values[1:], strict=False):
                        if isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant):
                            match = PLURALS.match(str(text.value))
                            if match and not is_constant(value):
                                yield str(path.relative_to(ROOT)), match["nouns"], node.lineno


def is_constant(value: ast.FormattedValue) -> bool:
    return isinstance(value.value, ast.Name) and value.value.id.isupper()


def test_the_name_of_a_test_is_at_most_80_characters() -> None:
    names = re.compile(r"def (test_\w+)")
    found = [name for path in (ROOT / "tests").rglob("test_*.py") for name in names.findall(path.read_text())]
    assert [name for name in found if len(name) > 80] == []


PHRASES = re.compile(
    r"\b(told|somebody|nobody|mended|laid|comes? back|brought back|goes on|is made|put by|leaves with|at rest|comes? to nothing"
    r"|the time is over|stays? as (?:it was|they were)|(?:is|are) as (?:it was|they were)|lets? go of)\b",
    re.IGNORECASE,
)
"""Phrases without an actor, or of a private language. Write who does what: "the daemon restores",
"git reports"."""


def test_no_text_has_a_phrase_of_the_former_private_language() -> None:
    texts = [
        path
        for pattern in ("*.md", "docs/**/*.md", "client/**/*", "daemon/**/*", "proto/**/*")
        for path in ROOT.glob(pattern)
        if path.suffix in {".md", ".py", ".proto", ".html", ".js", ".sql"} and not re.search(r"_pb2|/\.", str(path))
    ]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in texts
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for match in PHRASES.finditer(line)
    ]
    assert found == []


def test_no_test_is_named_by_a_phrase_of_the_former_private_language() -> None:
    names = re.compile(r"def (test_\w+)")
    found = [name for path in (ROOT / "tests").rglob("test_*.py") for name in names.findall(path.read_text())]
    assert found
    assert [name for name in found if PHRASES.search(name.replace("_", " "))] == []
