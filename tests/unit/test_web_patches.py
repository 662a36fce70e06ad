"""Patches as the web page shows them: files, rows, words, colours."""

import re
import subprocess
import time
from html import unescape
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rametctl.render.diff import changed_ranges
from rametctl.web.html import code, markdown
from rametctl.web.paint import MOST_SHOWN, coloured, line_html, rows_html, shown_places
from rametctl.web.patches import Gap, Pair, Patch, Row, items, parse, tree, unquoted

from tests.support.daemon import git

BARE = re.compile(r"<[^>]*>")
LINES = st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=12), max_size=12)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("patches")
    git(place, "init", "-q")
    return place


def patch_of(place: Path, old: bytes | None, new: bytes | None, *options: str) -> bytes:
    """Return git's own patch between two contents."""
    names = []
    for name, content in (("old.py", old), ("new.py", new)):
        (place / name).write_bytes(content or b"")
        names.append("/dev/null" if content is None else name)
    done = subprocess.run(
        ["git", "diff", "--no-index", "--full-index", *options, "--", *names],
        cwd=place,
        capture_output=True,
        check=False,
    )
    return done.stdout


@settings(max_examples=40)
@given(old=LINES, new=LINES, ended=st.booleans())
def test_both_sides_of_any_patch_are_the_files(repository: Path, old: list[str], new: list[str], ended: bool) -> None:
    end = b"\n" if ended else b""
    contents = [("\n".join(lines).encode() + end) for lines in (old, new)]
    patch = patch_of(repository, contents[0], contents[1], "--text", "--unified=1000000")
    if contents[0] == contents[1]:
        assert patch == b""
        return
    (found,) = parse(patch)
    for split in (True, False):
        shown = [item for item in items(found, split=split) if isinstance(item, Pair)]
        rows = {id(row): row for pair in shown for row in (pair.left, pair.right) if row is not None}.values()
        for mark, number, content in (("-", "old", contents[0]), ("+", "new", contents[1])):
            side = sorted((row for row in rows if row.mark in f"{mark} "), key=lambda row: getattr(row, number))
            assert [getattr(row, number) for row in side] == list(range(1, len(side) + 1))
            text = "".join(row.text + ("" if row.unended else "\n") for row in side)
            assert text.encode() == content
    assert rows_html("x.py", items(found, split=True), split=True, comments={})


HEADERS = [
    (b"diff --git a/x b/x\nold mode 100644\nnew mode 100755\n", Patch("x", "x", "100644", "100755")),
    (b"diff --git a/a b b/a b\nnew file mode 100644\nindex 0..1\n", Patch("a b", "a b", "", "100644")),
    (
        b"diff --git a/old b/new\nsimilarity index 90%\nrename from old\nrename to new\n",
        Patch("new", "old", similarity="90%"),
    ),
    (
        b'diff --git "a/t\\303\\251\\n" "b/t\\303\\251\\n"\nindex 0..1 100644\nBinary files a/x and b/x differ\n',
        Patch("té\n", "té\n", "100644", "100644", binary=True),
    ),
    (b"diff --git a/sub b/sub\nindex 1..2 160000\n", Patch("sub", "sub", "160000", "160000")),
    (b"diff --git a/gone b/gone\ndeleted file mode 120000\nindex 1..0\n", Patch("gone", "gone", "120000", "")),
]


@pytest.mark.parametrize(("text", "patch"), HEADERS)
def test_a_header_describes_a_binary_file(text: bytes, patch: Patch) -> None:
    assert parse(text) == [patch]


def test_rows_that_look_like_headers_are_rows() -> None:
    text = b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@ def f():\n--- a/y\n+diff --git a/z b/z\n+@@ -1 +1 @@\n same\n"
    (patch,) = parse(text)
    assert [row.text for row in patch.hunks[0].rows] == ["-- a/y", "diff --git a/z b/z", "@@ -1 +1 @@", "same"]
    assert items(patch, split=True)[0] == Gap(0, "def f():")


@given(st.binary(max_size=300))
def test_no_patch_breaks_the_reader(text: bytes) -> None:
    parse(text)
    parse(b"diff --git a/x b/x\n@@ -1,3 +1,4 @@\n" + text)


@given(st.lists(st.sampled_from([b" a\n", b"-b\n", b"+c\n", b"\\ No newline\n", b"@@ -1 +1 @@\n"]), max_size=12))
def test_a_patch_that_was_cut_is_read_as_far_as_it_goes(lines: list[bytes]) -> None:
    for patch in parse(b"diff --git a/x b/x\n@@ -1,9 +1,9 @@\n" + b"".join(lines)):
        for split in (True, False):
            rows_html("x", items(patch, split=split), split=split, comments={})


WORDS = [
    ("return one", "return two", ["one"], ["two"]),
    ("f(a, b)", "f(a, b, c)", [], [", c"]),
    ("  indented", "    indented", ["  "], ["    "]),
    ("nothing alike", "x = 9", [], []),
    ("same", "same", [], []),
    ("a" * 9, "b" * 9, [], []),
]


@pytest.mark.parametrize(("old", "new", "gone", "come"), WORDS)
def test_the_words_that_changed_are_marked(old: str, new: str, gone: list[str], come: list[str]) -> None:
    left, right = changed_ranges(old, new)
    assert [old[slice(*span)] for span in left] == gone
    assert [new[slice(*span)] for span in right] == come


@given(st.text(max_size=60), st.text(max_size=60))
def test_marked_words_are_within_their_line(old: str, new: str) -> None:
    for spans, text in zip(changed_ranges(old, new), (old, new), strict=True):
        assert all(0 <= start < end <= len(text) for start, end in spans)
        assert spans == sorted(spans)


@given(
    name=st.sampled_from(["x.py", "Makefile", "a.html", "b.js", "c.rs", "d.yaml", "e.md", "f.unknown", "g.php"]),
    lines=st.lists(st.text(st.characters(exclude_characters="\n"), max_size=30), max_size=6),
)
def test_colours_change_no_text(name: str, lines: list[str]) -> None:
    assert ["".join(text for _, text in pieces) for pieces in coloured(name, lines)] == lines


@given(st.text(st.sampled_from("<>&\"'ab \t\x1b\u202e\u200b")), st.integers(0, 9), st.integers(0, 9))
def test_a_line_is_text_whatever_it_holds(text: str, start: int, length: int) -> None:
    html = str(line_html([("k", text[:4]), ("", text[4:])], [(start, start + length)]))
    assert set(re.findall(r"<[^>]*>", html)) <= {
        '<span class="k">',
        '<span class="w">',
        '<span class="k w">',
        "</span>",
    }
    assert not set("\x1b\u202e\u200b") & set(html)
    assert len(unescape(BARE.sub("", html))) == len(text)


def test_of_a_long_line_the_beginning_is_shown() -> None:
    html = str(line_html([("", "x" * (MOST_SHOWN + 7))], []))
    assert html.count("x") == MOST_SHOWN
    assert "7 more characters" in html


def test_a_tree_folds_what_holds_one_thing_only() -> None:
    top = tree(["a/b/c/one", "a/b/c/two", "a/b/d", "root", "z/only"])
    (a, z) = top.folders
    assert (a.name, [each.name for each in a.folders], a.files) == ("a/b", ["c"], [("d", "a/b/d")])
    assert (z.name, z.files, top.files) == ("z", [("only", "z/only")], [("root", "root")])


@pytest.mark.parametrize(
    ("written", "path"), [(b"plain", "plain"), (b'"q\\"t\\t\\134"', 'q"t\t\\'), (b'"\\377"', "\ufffd")]
)
def test_odd_paths_are_read(written: bytes, path: str) -> None:
    assert unquoted(written) == path


def test_comments_are_shown_below_their_line_on_either_side() -> None:
    (patch,) = parse(b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n same\n-old\n+new\n")
    for split in (True, False):
        shown = items(patch, split=split)
        assert shown_places(shown, split=split) == {("old", 1), ("new", 1), ("old", 2), ("new", 2)}


SLOW = {
    "one line": "a" * 50_000, "quotes": "'" * 900 + "\n" + "`" * 900, "blank lines": "\n " * 15_000, "open": "(\n" * 15_000,
    "backslashes": '"' + "\\" * 900 + "\n", "names": ("a:" * 400 + "\n") * 40, "dots": ("1." * 400 + "\n") * 40,
    "lists": ("* a " * 200 + "\n") * 40, "calls": ("a(b[" * 200 + "\n") * 40, "tags": ("<a " * 300 + "\n") * 30,
}  # fmt: skip
LANGUAGES = ("python", "typescript", "yaml", "cpp", "java", "make", "console", "scala")
"""Texts for which a lexer with backtracking would take seconds or hours."""


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_text_of_an_agent_takes_long_to_colour(language: str) -> None:
    for name, text in SLOW.items():
        start = time.thread_time()
        shown = code(text, language)
        assert time.thread_time() - start < 1, name
        assert unescape(BARE.sub("", shown)).strip() == text.strip()


def test_no_text_of_an_agent_takes_long_to_lay_out() -> None:
    for text in ("![" * 500_000, "| a " * 500_000, "**a " * 500_000, "> " * 500_000):
        start = time.thread_time()
        assert unescape(BARE.sub("", markdown(text))).strip() == text.strip()
        assert time.thread_time() - start < 3
    rows = [f"{'a b c ' * 33}{number}" for number in range(300)]
    sides = (
        [Row("-", at, 0, text) for at, text in enumerate(rows, 1)],
        [Row("+", 0, at, text[::-1]) for at, text in enumerate(rows, 1)],
    )
    start = time.thread_time()
    rows_html("x.txt", [Pair(*each) for each in zip(*sides, strict=True)], split=True, comments={})
    assert time.thread_time() - start < 3
