"""Transcripts of Claude Code that its own interface wrote to, and how that interface is started."""

import json
import os
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rametd.agents.base import Outside, OutsideTurn
from rametd.agents.claude import outside

ID = "conversation"


class Transcript:
    """Write lines, a second apart."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.time = 1_000.0

    def line(self, kind: str, content: object, entry: str = "cli", **more: object) -> str:
        self.time += 1
        when = datetime.fromtimestamp(self.time, UTC).isoformat().replace("+00:00", "Z")
        uuid = f"u{self.time:.0f}"
        message = {"role": kind, "model": "opus", "content": content}
        self.add({"type": kind, "uuid": uuid, "entrypoint": entry, "timestamp": when, "message": message, **more})
        return uuid

    def total(self, dollars: float) -> None:
        self.add(
            {"type": "cost-state", "modelUsage": {"opus": {"costUSD": dollars, "inputTokens": int(dollars * 100)}}}
        )

    def add(self, line: dict[str, Any]) -> None:
        with self.file.open("a") as file:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def read(self, after: float = 0.0) -> Outside:
        return outside.read(self.file, ID, after, 5)[0]


def result(turn: OutsideTurn) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(turn.lines[-1])
    return found


def test_only_turns_that_no_process_of_ours_made_are_taken_with_what_they_cost(tmp_path: Path) -> None:
    written = Transcript(tmp_path / "t.jsonl")
    written.line("user", "ours", "sdk-py")
    written.line("assistant", [{"type": "text", "text": "ours too"}], "sdk-py")
    written.total(1.0)
    first = written.line("user", "by hand")
    written.line("assistant", [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}])
    written.line("user", [{"type": "tool_result", "tool_use_id": "t", "content": "x"}], toolUseResult={"stdout": "x"})
    written.line("assistant", [{"type": "text", "text": "done"}])
    written.total(1.25)
    written.total(1.25)  # it is written again at the end
    middle = written.time
    written.line("user", "ours again", "sdk-py")
    written.total(9.0)
    second = written.line("user", "by hand again", "sdk-cli")  # claude --resume ID -p
    written.line("assistant", [{"type": "text", "text": "aside"}], isSidechain=True)
    written.total(9.5)
    found = written.read()
    assert [(turn.prompt_id, turn.prompt) for turn in found.turns] == [(first, "by hand"), (second, "by hand again")]
    ends = [result(turn) for turn in found.turns]
    assert [end["model_usage_since_last_result"]["opus"]["costUSD"] for end in ends] == [0.25, 0.5]
    assert [(end["result"], end["result_index"]) for end in ends] == [("done", 5), ("", 6)]
    assert [turn.prompt for turn in written.read(middle).turns] == ["by hand again"]
    assert written.read(found.until).turns == ()


def test_what_the_interface_writes_in_the_persons_name_is_no_prompt(tmp_path: Path) -> None:
    written = Transcript(tmp_path / "t.jsonl")
    for words in (
        "<command-name>/model</command-name>",
        "<local-command-stdout>ok</local-command-stdout>",
        "<bash-input>ls</bash-input>",
    ):
        written.line("user", words)
    written.line("user", "caveat", isMeta=True)
    written.line("user", "a real one")
    written.line("user", [{"type": "text", "text": "[Request interrupted by user for tool use]"}])
    (turn,) = written.read().turns
    assert turn.prompt == "a real one"
    assert result(turn)["terminal_reason"] == "aborted_streaming"
    assert [json.loads(line)["type"] for line in turn.lines] == ["system", "user", "result"]


def test_a_half_written_or_strange_transcript_breaks_nothing(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    assert outside.read(file, ID, 7.0, 0) == (Outside((), 7.0), outside.Place())
    written = Transcript(file)
    written.line("user", "whole")
    with file.open("ab") as opened:
        opened.write(b'\n[]\n{"type": "user", "entrypoint": 5}\n\xff\xfe\n{"type":"user","entrypoint":"cli","timest')
    assert [turn.prompt for turn in written.read().turns] == ["whole"]


def test_a_read_continues_where_the_last_one_ended(tmp_path: Path) -> None:
    written = Transcript(tmp_path / "t.jsonl")
    place: outside.Place | None = None
    after, offset, seen = 0.0, 0, []
    for number in range(3):
        written.line("user", f"prompt {number}")
        written.line("assistant", [{"type": "text", "text": "done"}])
        written.total(1.0 + number)
        written.line("user", "ours", "sdk-py")
        with written.file.open("a") as file:
            file.write('{"type":"cost-st')  # the program is writing
        found, place = outside.read(written.file, ID, after, 5, place)
        assert [turn.prompt for turn in found.turns] == [f"prompt {number}"]
        assert place.offset > offset
        again = outside.read(written.file, ID, after, 5)[0]
        assert (found.turns, found.until) == (again.turns, again.until), "the same as for the complete file"
        whole, _ = outside.read(written.file, ID, after, 5, outside.Place(place.inode, place.offset, after - 1))
        assert whole.turns == found.turns, "the turns of the last read were not stored"
        after, offset = found.until, place.offset
        seen.append(written.file.read_bytes())
        written.file.write_bytes(seen[-1].removesuffix(b'{"type":"cost-st'))
    assert place is not None
    written.file.rename(tmp_path / "old")
    written.file.write_bytes(seen[0])
    assert outside.read(written.file, ID, 0.0, 5, place)[0].turns, "a replaced file is read from its beginning"
    written.file.write_bytes(seen[0][:40] + b"\n")
    assert outside.read(written.file, ID, place.newest, 5, place)[1].offset == 41, "a truncated file too"


def test_a_line_without_end_takes_little_memory_and_is_passed_over(tmp_path: Path) -> None:
    written = Transcript(tmp_path / "t.jsonl")
    with written.file.open("wb") as file:
        file.truncate(1 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\n")
    written.line("user", "by hand")
    tracemalloc.start()
    found = written.read()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [turn.prompt for turn in found.turns] == ["by hand"]
    assert peak < 512 << 20
