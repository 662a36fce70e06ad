"""Branch names from labels and prompts."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rametd.domain.errors import BadNameError
from rametd.git.names import LIMIT, branch_name, check_branch_name, short_slug, slug

ODD = [
    "/",
    ".",
    "..",
    "-",
    ".lock",
    "@{",
    "~",
    "^",
    ":",
    "\\",
    " ",
    "ü",
    "漢",
    "🦊",
    "\n",
    "\x00",
    "HEAD",
    "a",
    "B",
    "7",
    "_",
    "*",
    "\udcff",
]
texts = st.one_of(st.text(max_size=300), st.lists(st.sampled_from(ODD), max_size=120).map("".join))


def accepted_by_git(names: list[str]) -> list[bool]:
    return [
        subprocess.run(["git", "check-ref-format", "--branch", name], capture_output=True, check=False).returncode == 0
        for name in names
    ]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Fix the login bug", "fix-the-login-bug"),
        ("feature/x", "feature/x"),
        ("Größe & Café", "groe-cafe"),
        ("--help me", "help-me"),
        ("a..b", "a.b"),
        ("x.lock", "x-lock"),
        ("x.lock.lock", "x.lock-lock"),
        ("a.lock/b", "a-lock/b"),
        ("../../etc/passwd", "etc/passwd"),
        (" spaced   out. ", "spaced-out"),
        ("first line\nsecond line", "first-line-second-line"),
        ("漢字", "s-1"),
        ("🦊🦊", "s-1"),
        ("", "s-1"),
        ("HEAD", "s-1"),
        ("-----", "s-1"),
        ("0123456789abcdef0123456789abcdef01234567", "s-1"),
    ],
)
def test_a_text_becomes_a_name_that_a_person_would_choose(text: str, name: str) -> None:
    assert branch_name(text, fallback="s-1") == name


def test_a_long_prompt_is_cut_at_a_word() -> None:
    assert slug("please " * 60) == "-".join(["please"] * 8)


@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        ("add a --version flag and a test for it", "add-version-flag-test"),
        ("Find out why the parser drops the last line", "find-out-parser-drops"),
        ("fix: the login", "fix-login"),
        ("Add receipts. Test totals.", "add-receipts-test-totals"),
        ("Wait ... . and see", "wait-see"),
        ("move setup.py of v1.2 up", "move-setup.py-v1.2-up"),
        ("the it a", "the-it-a"),
        ("x" * 60, "x" * 24),
    ],
)
def test_a_prompt_becomes_a_name_that_fits_a_column(prompt: str, name: str) -> None:
    assert short_slug(prompt) == name


def test_a_long_word_is_cut_where_the_limit_is() -> None:
    assert slug("x" * 300) == "x" * LIMIT


def test_a_taken_name_gets_a_number() -> None:
    assert branch_name("fix", fallback="s-1", taken={"fix", "fix-2"}) == "fix-3"


def test_names_that_differ_only_by_case_are_the_same_name() -> None:
    assert branch_name("Fix", fallback="s-1", taken={"FIX"}) == "fix-2"


def test_a_name_below_a_branch_is_joined_with_a_dash() -> None:
    assert branch_name("a/b", fallback="s-1", taken={"a"}) == "a-b"


def test_a_name_above_a_branch_gets_a_number() -> None:
    assert branch_name("a", fallback="s-1", taken={"a/b"}) == "a-2"


def test_a_slash_b_beside_a_dash_b_stays_itself() -> None:
    assert branch_name("a/b", fallback="s-1", taken={"a-b"}) == "a/b"


def test_the_fallback_may_be_taken_too() -> None:
    assert branch_name("漢字", fallback="s-1", taken={"s-1"}) == "s-1-2"


@given(texts, st.sets(st.sampled_from(["a", "a/b", "a-b", "b", "7", "a/b/a", "A", "B/7", "head", "x"]), max_size=6))
def test_a_name_is_safe_short_and_collides_with_nothing(text: str, taken: set[str]) -> None:
    name = branch_name(text, fallback="s-1", taken=taken)

    assert check_branch_name(name) == name
    assert len(name) <= LIMIT + 2
    for other in (branch.casefold() for branch in taken):
        assert name != other
        assert not name.startswith(f"{other}/")
        assert not other.startswith(f"{name}/")


@given(texts)
def test_making_a_name_of_a_name_changes_nothing(text: str) -> None:
    name = branch_name(text, fallback="s-1")

    assert branch_name(name, fallback="s-1") == name


def test_what_we_accept_git_accepts_and_the_other_way_round() -> None:
    names = [
        "a",
        "a/b",
        "-a",
        "a.lock",
        "a.lock/b",
        ".a",
        "a/.b",
        "a..b",
        "a.",
        "a/",
        "/a",
        "a//b",
        "a@{b",
        "a b",
        "a\\b",
        "ü",
        "漢",
    ]
    names += ["HEAD", "a~1", "a^", "a:b", "a?", "a*", "a[b", "a]b", "@a", "a.b", "a\x7f", "a-", "a/-b", "a.lockb"]

    assert [not _refused(name) for name in names] == accepted_by_git(names)


def _refused(name: str) -> bool:
    try:
        check_branch_name(name)
    except BadNameError:
        return True
    return False


def test_a_refused_name_comes_with_a_suggestion() -> None:
    with pytest.raises(BadNameError) as caught:
        check_branch_name("my branch..x")

    assert caught.value.hint == "try 'my-branch.x'"


def test_generated_names_are_accepted_by_git() -> None:
    made = [
        branch_name(text, fallback="s-1")
        for text in ["".join(ODD), *ODD, "x" * 59 + ".lock", "a/" * 40, "é/ü/漢/-.lock", "@{upstream}"]
    ]

    assert accepted_by_git(made) == [True] * len(made)
