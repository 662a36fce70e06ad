"""Copies of transcripts: new lines are added, and lines that only the copy has stay."""

import json
import os
from pathlib import Path

import pytest
from rametd.agents.claude.transcripts import COMPARED, configuration_directory, copy, find

LONG = "x" * (2 * COMPARED)


def put(root: Path, project: str, text: str, **more: str) -> Path:
    folder = root / "projects" / project
    (folder / "one").mkdir(parents=True)
    (folder / "one.jsonl").write_text(text)
    for name, words in more.items():
        (folder / "one" / name).write_text(words)
    return folder / "one.jsonl"


@pytest.mark.parametrize(
    ("source", "target", "overwrite", "becomes"),
    [
        ("a\nb\n", None, False, "a\nb\n"),
        ("a\nb\n", "a\n", False, "a\nb\n"),
        ("a\n", "a\nb\n", True, "a\nb\n"),
        ("a\nc\n", "a\nb\n", False, "a\nb\n"),
        ("a\nc\n", "a\nb\n", True, "a\nc\n"),
        (f"{LONG}b\n", LONG, False, f"{LONG}b\n"),
        (LONG, f"{LONG}b\n", True, f"{LONG}b\n"),
        (f"{LONG}c\n", f"{LONG}b", True, f"{LONG}c\n"),
    ],
)
def test_a_copy_is_extended_and_replaced_only_where_asked(
    tmp_path: Path, source: str, target: str | None, overwrite: bool, becomes: str
) -> None:
    put(tmp_path / "source", "-w", source)
    if target is not None:
        put(tmp_path / "target", "-w", target)

    assert copy("one", tmp_path / "source", tmp_path / "target", overwrite=overwrite)

    found = find(tmp_path / "target", "one")
    assert found is not None
    assert found.read_text() == becomes
    assert [file.name for file in found.parent.iterdir() if file.is_file()] == ["one.jsonl"]


def message(uuid: str, parent: str | None) -> str:
    return f'{{"type":"user","uuid":"{uuid}","parentUuid":{json.dumps(parent)}}}\n'


OLD = '{"type":"mode"}\n' + message("a", None) + message("b", "a")
SWEPT = '{"type":"mode"}\n' + message("c", "b")


@pytest.mark.parametrize("later", ["", message("d", "c"), "".join(message(f"d{i}", "c") for i in range(3000))])
def test_a_transcript_begun_anew_after_a_sweep_joins_the_copy(tmp_path: Path, later: str) -> None:
    """The program runs on without its file: the new file has only the later messages."""
    home, copies = tmp_path / "home", tmp_path / "copies"
    file, kept = put(home, "-w", SWEPT), put(copies, "-w", OLD)
    whole = OLD + message("c", "b")
    for text, becomes in ((SWEPT, whole), (SWEPT + later, whole + later)):
        file.write_text(text)
        assert copy("one", home, copies, overwrite=True)
        assert kept.read_text() == becomes
    assert copy("one", copies, home, overwrite=False)
    assert file.read_text() == whole + later, "the next process resumes all of it"


def test_a_copy_gives_way_to_a_transcript_with_the_same_first_message(tmp_path: Path) -> None:
    put(tmp_path / "home", "-w", message("a", None) + message("c", "a"))
    kept = put(tmp_path / "copies", "-w", message("a", None) + message("b", "a"))
    assert copy("one", tmp_path / "home", tmp_path / "copies", overwrite=True)
    assert kept.read_text() == message("a", None) + message("c", "a")


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        '{"type":"mode"}\n',
        '{"type":"summary"}\n{"type":"mode"}\n',
        "\0" * 4096,
        "\0\n" * 9,
        OLD[:30],
        "[" * 100_000 + "\n",
    ],
)
def test_a_transcript_without_messages_replaces_no_copy_and_is_replaced(tmp_path: Path, damaged: str) -> None:
    home, copies = tmp_path / "home", tmp_path / "copies"
    theirs, ours = put(home, "-w", damaged), put(copies, "-w", OLD)

    assert copy("one", home, copies, overwrite=True)
    assert ours.read_text() == OLD

    assert copy("one", copies, home, overwrite=False)
    assert theirs.read_text() == OLD


def test_what_is_no_file_beside_a_transcript_is_not_copied(tmp_path: Path) -> None:
    home, copies = tmp_path / "home", tmp_path / "copies"
    folder = put(home, "-w", OLD, result="result\n").with_suffix("")
    os.mkfifo(folder / "pipe")
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "secret").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_text("secret\n")
    with (folder / "sparse").open("wb") as file:
        file.truncate(5 << 30)

    assert copy("one", home, copies, overwrite=True)

    assert [each.name for each in (copies / "projects" / "-w" / "one").iterdir()] == ["result"]


def test_files_of_subagents_are_copied_too(tmp_path: Path) -> None:
    put(tmp_path / "source", "-new", "a\nb\n", agent="its words")
    put(tmp_path / "target", "-old", "a\n")

    assert copy("one", tmp_path / "source", tmp_path / "target", overwrite=True)

    assert (tmp_path / "target/projects/-old/one.jsonl").read_text() == "a\nb\n"
    assert (tmp_path / "target/projects/-old/one/agent").read_text() == "its words"
    assert not copy("two", tmp_path / "source", tmp_path / "target", overwrite=True)
    assert find(tmp_path / "nowhere", "one") is None


def test_the_directory_is_the_configured_one_else_below_the_home() -> None:
    assert configuration_directory({"CLAUDE_CONFIG_DIR": "/c", "HOME": "/h"}) == Path("/c")
    assert configuration_directory({"CLAUDE_CONFIG_DIR": "", "HOME": "/h"}) == Path("/h/.claude")
