"""The change that a tool call makes to a file."""

import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rametd.agents import edits
from rametd.agents.edits import PATCH_BYTES, PATCH_LINES, planned, reported

HUNK = re.compile(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@")
texts = st.lists(st.sampled_from(["a", "b", "c", "", "x = 1"]), max_size=30).map("\n".join)


def lines_of(text: str) -> list[str]:
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def applied(before: list[str], patch: str) -> list[str]:
    """Return ``before`` with the hunks of a patch applied, each at its place."""
    after: list[str] = []
    at = 0
    for line in patch.split("\n") if patch else []:
        if match := HUNK.match(line):
            start = int(match[1]) - (int(match[2]) > 0)
            after += before[at:start]
            at = start
            assert len(after) == int(match[3]) - (int(match[4]) > 0), "the hunk has its place in the new text"
        elif line == edits.NO_NEWLINE:
            continue
        elif line.startswith("+"):
            after.append(line[1:])
        else:
            assert before[at] == line[1:], "context and removed lines are those of the file"
            after += [line[1:]] if line.startswith(" ") else []
            at += 1
    return after + before[at:]


@given(texts, texts)
def test_a_patch_leads_from_the_old_text_to_the_new_one(before: str, after: str) -> None:
    edit = edits.build("a", edits._hunks(before, after))
    assert applied(lines_of(before), edit.patch) == lines_of(after)


def test_an_edit_bears_the_numbers_of_the_file_and_its_context(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("".join(f"line {number}\n" for number in range(1, 60)))
    call = {"file_path": str(tmp_path / "a.py"), "old_string": "line 42\n", "new_string": "changed\n"}
    edit = planned("Edit", call, tmp_path)
    assert edit is not None
    assert (edit.path, edit.additions, edit.deletions, edit.creates) == ("a.py", 1, 1, False)
    assert edit.patch.split("\n") == [
        "@@ -39,7 +39,7 @@", " line 39", " line 40", " line 41", "-line 42", "+changed", " line 43", " line 44", " line 45",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("tool", "call", "counts"),
    [
        ("Write", {"content": "one\ntwo\n"}, (0, 0, False)),
        ("Write", {"content": "one\n2\n"}, (1, 1, False)),
        ("Write", {"content": "one\n"}, (0, 1, False)),
        ("Write", {"content": "one\ntwo"}, (1, 1, False)),
        ("Write", {"content": "one\r\ntwo\r\n"}, (2, 2, False)),
        ("Write", {"file_path": "new/b.py", "content": "1\n2\n3\n"}, (3, 0, True)),
        ("Edit", {"file_path": "new/b.py", "old_string": "", "new_string": "1\n"}, (1, 0, True)),
        ("Edit", {"old_string": "o", "new_string": "0", "replace_all": True}, (2, 2, False)),
        ("Edit", {"old_string": "not there", "new_string": "x"}, (1, 1, False)),
        (
            "MultiEdit",
            {"edits": [{"old_string": "one", "new_string": "1"}, {"old_string": "1", "new_string": "2"}]},
            (1, 1, False),
        ),
    ],
)
def test_what_each_tool_would_change(
    tmp_path: Path, tool: str, call: dict[str, object], counts: tuple[int, int, bool]
) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\n")
    edit = planned(tool, {"file_path": "a.py", **call}, tmp_path)
    assert edit is not None
    assert (edit.additions, edit.deletions, edit.creates) == counts


def test_a_text_to_replace_that_is_not_there_has_no_line_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\n")
    edit = planned("Edit", {"file_path": "a.py", "old_string": "two", "new_string": "2"}, tmp_path)
    assert edit is not None
    assert edit.patch == f"{edits.NOWHERE}\n-two\n+2"


@pytest.mark.parametrize("place", ["../secret", "link", "pipe", "binary", "directory/", "a\0b"])
def test_a_file_that_is_not_to_be_read_is_not_read(tmp_path: Path, place: str) -> None:
    tree = tmp_path / "tree"
    (tree / "directory").mkdir(parents=True)
    (tmp_path / "secret").write_text("password\n")
    (tree / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tree / "pipe")
    (tree / "binary").write_bytes(b"\xff\xfe")
    for call in ({"content": "mine\n"}, {"old_string": "pass", "new_string": "mine\n"}):
        edit = planned("Write", {"file_path": place, **call}, tree)
        assert edit is not None
        assert "password" not in edit.patch
        assert "+mine" in edit.patch


@pytest.mark.parametrize(
    ("tool", "call"),
    [("Bash", {"command": "x"}), ("Edit", {}), ("Edit", {"file_path": 3}), ("Write", {"file_path": "a", "content": None}),
     ("Edit", {"file_path": "a", "old_string": 1, "new_string": 2}), ("MultiEdit", {"file_path": "a", "edits": ["x"]})],
)  # fmt: skip
def test_a_call_that_is_none_of_an_editing_tool_has_no_edit(tmp_path: Path, tool: str, call: dict[str, object]) -> None:
    assert planned(tool, call, tmp_path) is None


def test_a_patch_is_bounded_and_says_how_much_it_leaves_out(tmp_path: Path) -> None:
    many = planned("Write", {"file_path": "a", "content": "x\n" * 100_000}, tmp_path)
    long = planned("Write", {"file_path": "a", "content": "\n".join("y" * 5000 for _ in range(100))}, tmp_path)
    assert many is not None
    assert long is not None
    assert len(many.patch.split("\n")) == PATCH_LINES
    assert (many.additions, many.omitted_lines) == (100_000, 100_000 - PATCH_LINES + 1)
    assert len(long.patch.encode()) <= PATCH_BYTES
    assert (long.additions, long.omitted_lines) == (100, 100), "each line is truncated, or left out"


def test_the_agents_own_report_of_an_edit_is_taken_over() -> None:
    hunk = {"oldStart": 4, "oldLines": 1, "newStart": 4, "newLines": 2, "lines": [" a", "-b", "+c", "+d"]}
    edit = reported({"filePath": "/t/a.py", "structuredPatch": [hunk]})
    assert edit is not None
    assert (edit.path, edit.additions, edit.deletions) == ("/t/a.py", 2, 1)
    assert edit.patch.split("\n") == ["@@ -4,1 +4,2 @@", " a", "-b", "+c", "+d"]
    made = reported({"type": "create", "filePath": "/t/b", "content": "1\n2\n", "structuredPatch": []})
    assert made is not None
    assert (made.creates, made.patch) == (True, "@@ -0,0 +1,2 @@\n+1\n+2")


@pytest.mark.parametrize(
    "result",
    [{}, {"filePath": "a"}, {"filePath": 1, "structuredPatch": []}, {"filePath": "a", "structuredPatch": "x"}],
)
def test_a_result_of_another_shape_is_no_edit(result: dict[str, object]) -> None:
    assert reported(result) is None


@pytest.mark.parametrize(
    "hunk", [{}, 1, {"lines": "x"}, {"lines": [1, None]}, {"oldStart": -1, "oldLines": "x", "lines": ["+a"]}]
)
def test_a_hunk_of_another_shape_breaks_nothing(hunk: object) -> None:
    edit = reported({"filePath": "a", "structuredPatch": [hunk]})
    assert edit is not None


@pytest.mark.parametrize(
    ("call", "patch"),
    [
        ({"cell_id": "b", "new_source": "y = 2\n"}, ["-y = 1", "+y = 2"]),
        ({"cell_id": "cell-0", "new_source": "x = 2"}, ["-x = 1", "+x = 2"]),
        ({"cell_id": "a", "new_source": "z", "edit_mode": "insert"}, ["+z"]),
        ({"cell_id": "a", "new_source": "", "edit_mode": "delete"}, ["-x = 1"]),
        ({"cell_id": "gone", "new_source": "z"}, ["+z"]),
    ],
)
def test_a_notebooks_cell_is_shown_without_the_json_around_it(
    tmp_path: Path, call: dict[str, str], patch: list[str]
) -> None:
    cells = [{"id": "a", "source": ["x = 1"]}, {"id": "b", "source": "y = 1\n"}]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells}))
    edit = planned("NotebookEdit", {"notebook_path": str(tmp_path / "n.ipynb"), **call}, tmp_path)
    assert edit is not None
    assert (edit.path, edit.patch.split("\n")[1:]) == ("n.ipynb", patch)


def test_a_notebook_that_nests_without_end_is_shown_as_none(tmp_path: Path) -> None:
    (tmp_path / "n.ipynb").write_text("[" * 100_000)
    edit = planned("NotebookEdit", {"notebook_path": str(tmp_path / "n.ipynb"), "new_source": "z"}, tmp_path)
    assert edit is not None
    assert edit.patch.split("\n")[1:] == ["+z"]
