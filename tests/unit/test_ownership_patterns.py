"""Patterns of paths: matches compared with git, and intersections of sets compared with every
path."""

import itertools
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rametd.domain.errors import InvalidInputError
from rametd.ownership import Patterns, aliases, automaton, check_size, contains, overlap, overlap_files
from rametd.ownership.automaton import Machine
from rametd.ownership.glob import compile_rule
from rametd.ownership.patterns import path_bytes

DIRECTORIES = ["a", "b", "ab"]
FILES = ["a", "b", "ab", "a.x", "b.x", "B.X", ".a"]
TREE = [
    "/".join((*parents, name))
    for depth in range(3)
    for parents in itertools.product(DIRECTORIES, repeat=depth)
    for name in FILES
]


def owns(*patterns: str) -> Patterns:
    return Patterns.parse(patterns)


def meet(a: str | Sequence[str], b: str | Sequence[str], *, ignore_case: bool = False) -> str | None:
    first, second = (owns(texts) if isinstance(texts, str) else owns(*texts) for texts in (a, b))
    found = overlap(first, second, ignore_case=ignore_case)
    assert (found is None) == (overlap(second, first, ignore_case=ignore_case) is None)
    return found


MATCHING = [
    ("services/auth/", "services/auth/new/deep.py", True),
    ("services/auth/", "services/auth", False),
    ("services/auth/", "x/services/auth/a.py", False),
    ("src/**/*.py", "src/a.py", True),
    ("src/**/*.py", "src/a/b/c.py", True),
    ("src/**/*.py", "src/a/b/c.pyi", False),
    ("*.md", "docs/deep/a.md", True),
    ("/*.md", "docs/a.md", False),
    ("./a", "a/b", True),
    ("./a", "b/a", False),
    ("a/../b", "b/c", True),
    ("a//b", "a/b", True),
    (".", "anything/at/all", True),
    ("a?c", "abc", True),
    ("a?c", "a/c", False),
    ("[!a-c]x", "dx", True),
    ("[!a-c]x", "bx", False),
    ("[[:digit:]].txt", "7.txt", True),
    (r"\*.md", "*.md", True),
    (r"\*.md", "a.md", False),
    (r"\#a", "#a", True),
    ("a  ", "a", True),
    ("a\\ ", "a ", True),
    ("caf\u00e9/", "cafe\u0301/x", True),
]


@pytest.mark.parametrize(("pattern", "path", "expected"), MATCHING)
def test_a_pattern_matches_as_in_a_gitignore(pattern: str, path: str, expected: bool) -> None:
    assert owns(pattern).matches(path) is expected


def test_the_last_pattern_decides_below_an_included_directory_too() -> None:
    assert not owns("src/", "!src/gen/").matches("src/gen/a.py")
    assert owns("src/", "!src/gen/").matches("src/a.py")
    assert owns("src/", "!src/gen/", "src/gen/a.py").matches("src/gen/a.py")
    assert owns("!src/gen/", "src/").matches("src/gen/a.py")
    assert not owns("src/**", "!test_*.py").matches("src/deep/test_a.py")


def test_case_counts_where_the_system_says_so() -> None:
    assert not owns("SRC/[A-C]*").matches("src/alpha")
    assert owns("SRC/[A-C]*").matches("src/alpha", ignore_case=True)
    assert owns("STRASSE/").matches("straße/x", ignore_case=True)


@pytest.mark.parametrize(
    ("patterns", "index", "why"),
    [
        (["a", ""], "1", "is empty"),
        (["  "], "0", "is empty"),
        (["!"], "0", "is empty"),
        (["!a"], "0", "excludes paths, but no pattern before it includes any"),
        (["../a"], "0", "climbs out of the repository"),
        (["a/../../b"], "0", "climbs out of the repository"),
        (["**/../b"], "0", "goes up from `**`, which is anywhere"),
        (["/"], "0", "is absolute"),
        (["//etc/passwd"], "0", "is absolute"),
        (["~/notes"], "0", "is absolute"),
        (["a\0b"], "0", "holds a NUL"),
        (["# note"], "0", "is a comment: write \\# for a name that begins with it"),
    ],
)
def test_a_pattern_that_cannot_be_meant_is_refused_with_its_index(patterns: list[str], index: str, why: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        Patterns.parse(patterns)
    assert raised.value.data["index"] == index
    assert raised.value.message.endswith(why)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("src/", "docs/"),
        ("src", "docs"),
        ("src/a", "src/ab"),
        ("*.py", "*.md"),
        ("src/**/*.py", "src/**/*.ts"),
        ("README.md", "docs/"),
        ("Makefile", "*.py"),
        ("src/[a-c]*", "src/[d-f]*"),
        (["src/**", "!src/api/**"], "src/api/**"),
        (["src/*", "!src/api"], "src/api/"),
        (["src/", "!src/api/"], ["src/api/**/*.py", "docs"]),
    ],
)
def test_sets_that_are_apart_do_not_meet(a: str | list[str], b: str | list[str]) -> None:
    assert meet(a, b) is None


@pytest.mark.parametrize(
    ("a", "b", "example"),
    [
        ("src/", "src", "src"),
        ("src/", "./src/../src//", "src/x"),
        ("services/", "services/**/*.py", "services/x.py"),
        ("*.md", "docs/", "docs/x.md"),
        ("docs/**", "docs/a/b.md", "docs/a/b.md"),
        ("src/a*", "src/*b", "src/ab"),
        (["src/**", "!src/api/**", "src/api/x/**"], "src/api/", "src/api/x/x"),
        (["!src/api/", "src/"], "src/api/", "src/api/x"),
        (".", "any/thing", "any/thing"),
        ("\u00e9", "e\u0301", "\u00e9"),
        (".github/", "**/*.yml", ".github/x.yml"),
    ],
)
def test_sets_that_meet_are_shown_a_path(a: str | list[str], b: str | list[str], example: str) -> None:
    found = meet(a, b)
    assert found is not None
    assert found == example or (example == "src" and found == "src/x")


def test_sets_that_differ_in_case_meet_where_case_does_not_count() -> None:
    assert meet("Src/", "src/") is None
    assert meet("Src/", "src/", ignore_case=True) == "src/x"


def test_a_set_is_within_another_or_a_path_is_a_counterexample() -> None:
    assert contains(owns("src/"), owns("src/api/", "/src/*.py")) is None
    assert contains(owns("src/", "!src/x"), owns("src/")) == "src/x"
    assert contains(owns("src/"), owns("src/", "!src/x")) is None
    assert contains(owns("src/api/"), owns("src/")) == "src/x"
    assert contains(owns("src/**", "!src/gen/**"), owns("src/gen/a.py")) == "src/gen/a.py"
    assert contains(owns("a/", "b/"), owns("/[ab]/")) is None
    assert contains(owns(), owns("a/")) == "a/x"


def test_a_path_through_a_link_is_the_path_that_it_leads_to() -> None:
    links = {"lib": "src/lib", "old": "src/lib"}
    assert overlap(owns("lib/"), owns("src/lib/a/"), links=links) == "lib/a/x"
    assert overlap(owns("old/*.py"), owns("lib/"), links=links) == "old/x.py"
    assert overlap(owns("lib/"), owns("src/api/"), links=links) is None
    assert overlap_files(owns("lib/"), owns("src/"), ["src/lib/a.py", "src/b.py"], links=links) == ["src/lib/a.py"]
    assert set(aliases("src/lib/a.py", links)) == {"src/lib/a.py", "lib/a.py", "old/a.py"}


def test_a_link_to_its_own_parent_has_not_names_without_end() -> None:
    assert len(list(aliases("a/f", {"a/again": "a"}))) < 10


def test_files_that_are_there_are_judged_to_the_letter() -> None:
    files = ["README.md", "docs/README.md", "docs/a.md"]
    assert overlap_files(owns("README.md"), owns("docs/"), files) == ["docs/README.md"]


def test_sets_that_would_take_for_ever_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="tangled"):
        overlap(owns("*a" + "?" * 24), owns("*b" + "?" * 24))


@pytest.mark.parametrize("form", ["**/{}{}*x?", "dir/**/{}{}*", "*/*{}{}*"])
def test_comparing_many_patterns_is_given_up_after_some_work(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton, "WORK_LIMIT", 100_000)
    sets = [Patterns.parse([form.format(letter, number) for number in range(200)]) for letter in "xy"]
    with pytest.raises(InvalidInputError, match="tangled"):
        contains(*sets)


def test_more_patterns_than_can_be_compared_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="at most 32,768"):
        check_size([f"x{number}" for number in range(10_000)])


# ── properties ────────────────────────────────────────────────────────────────────────────────────

PIECES = [
    "a",
    "b",
    "x",
    ".",
    "*",
    "?",
    "**",
    "[ab]",
    "[!a]",
    "[a-x]",
    "[[:alpha:]]",
    "\\a",
    "\\*",
    "[",
    "]",
    "[^b]",
    "-",
]
PARTS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=3).map("".join) | st.sampled_from(["**", "*", "a", "b"])


@st.composite
def globs(draw: st.DrawFn, *, anchored: bool = False) -> str:
    body = "/".join(draw(st.lists(PARTS, min_size=1, max_size=3)))
    before = "/" if anchored else draw(st.sampled_from(["", "", "/", "**/"]))
    return draw(st.sampled_from(["", "", "!"])) + before + body + draw(st.sampled_from(["", "", "/", "/**"]))


def parsed(patterns: list[str]) -> Patterns:
    """A set for a test: the first pattern includes, and no name has only dots."""
    patterns[0] = patterns[0].removeprefix("!")
    normal = [p for p in patterns if not {"", ".", ".."} & set(p.lstrip("!").strip("/").split("/"))]
    return Patterns.parse(normal if normal and not normal[0].startswith("!") else ["/a"])


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("ignored")
    subprocess.run(["git", "init", "-q", str(top)], check=True)
    for parents in itertools.product(DIRECTORIES, repeat=2):
        (top / "d" / "/".join(parents)).mkdir(parents=True)
    return top


def git_matches(repository: Path, pattern: str, *, fold: bool) -> set[str]:
    (repository / ".gitignore").write_text(f"{pattern}\n")
    ran = subprocess.run(
        ["git", "-c", f"core.ignorecase={str(fold).lower()}", "check-ignore", "--no-index", "-z", "--stdin"],
        input="".join(f"{path}\0" for path in TREE),
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode in {0, 1}, ran.stderr
    return set(ran.stdout.split("\0")) - {""}


@settings(max_examples=100, deadline=None)
@given(patterns=st.lists(globs(), min_size=1, max_size=3), fold=st.booleans())
def test_each_pattern_matches_what_git_says_and_the_last_decides(
    repository: Path, patterns: list[str], fold: bool
) -> None:
    mine = parsed(patterns)
    expected: set[str] = set()
    for text in mine.texts:
        found = git_matches(repository, text.removeprefix("!"), fold=fold)
        expected = expected - found if text.startswith("!") else expected | found
    assert {path for path in TREE if mine.matches(path, ignore_case=fold)} == expected


@settings(max_examples=150, deadline=None)
@given(st.lists(globs(), min_size=1, max_size=4), st.booleans())
def test_the_automaton_reads_patterns_as_matching_does(patterns: list[str], fold: bool) -> None:
    mine = parsed(patterns)
    machine = Machine([compile_rule(text, fold=fold) for text in mine.texts])
    for path in TREE:
        state = machine.after(path_bytes(path, fold=fold))
        assert machine.owns(state) == mine.matches(path, ignore_case=fold), path


@settings(max_examples=200, deadline=None)
@given(st.lists(globs(anchored=True), min_size=1, max_size=3), st.lists(globs(anchored=True), min_size=1, max_size=3))
def test_intersection_and_inclusion_of_sets_agree_with_every_path(one: list[str], two: list[str]) -> None:
    a, b = parsed(one), parsed(two)
    mine, theirs = ({path for path in TREE if patterns.matches(path)} for patterns in (a, b))
    found, outside = overlap(a, b), contains(a, b)
    assert not (mine & theirs and found is None)
    assert not (theirs - mine and outside is None)
    first, second = (Machine(patterns.meant(ignore_case=False)) for patterns in (a, b))
    if found is not None:
        assert first.owns(first.after(found.encode()))
        assert second.owns(second.after(found.encode()))
    if outside is not None:
        assert not first.owns(first.after(outside.encode()))
        assert second.owns(second.after(outside.encode()))
