import asyncio
import io
import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

import structlog
from hypothesis import given
from hypothesis import strategies as st
from rametd.logs import FILE, MASK, bound, mask, set_up


def lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / FILE).read_text().splitlines()]


def test_a_line_is_json_with_time_level_logger_and_what_is_bound(tmp_path: Path) -> None:
    with set_up(tmp_path), bound(session="fix-1", request="r-2", principal="owner"):
        structlog.get_logger("rametd.services.x").info("started", pid=7, worktree=Path("/w"))
    (line,) = lines(tmp_path)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "started",
        "level": "info",
        "logger": "rametd.services.x",
        "session": "fix-1",
        "request": "r-2",
        "principal": "owner",
        "pid": 7,
        "worktree": "/w",
    }


def test_what_is_bound_ends_with_its_block_and_empty_names_are_not_bound(tmp_path: Path) -> None:
    with set_up(tmp_path):
        log = structlog.get_logger("rametd.x")
        with bound(session="a", request=""):
            log.info("in")
        log.info("out")
    assert [{"session", "request"} & set(line) for line in lines(tmp_path)] == [{"session"}, set()]


async def test_each_task_reports_to_its_own_session(tmp_path: Path) -> None:
    async def work(name: str) -> None:
        with bound(session=name):
            await asyncio.sleep(0)
            structlog.get_logger("rametd.x").info(name)

    with set_up(tmp_path):
        await asyncio.gather(*(work(f"s-{number}") for number in range(20)))
    assert [line["session"] for line in lines(tmp_path)] == [line["event"] for line in lines(tmp_path)]


def test_private_keys_are_masked_at_any_depth_and_counts_are_not() -> None:
    event = {
        "event": "turn ended",
        "prompt": "p",
        "tool_input": {"command": "ls"},
        "toolInput": "x",
        "input_tokens": 12,
        "session_token": "t",
        "ANTHROPIC-API-KEY": "k",
        "env": {"PATH": "/"},
        "environment": ["A=1"],
        "nested": [{"client_secret": b"s", "tool": "Bash"}],
        "tokens": {"input": 3, "output": 4},
        "reason": "done",
    }
    assert mask(None, "info", event) == {
        "event": "turn ended",
        "prompt": MASK,
        "tool_input": MASK,
        "toolInput": MASK,
        "input_tokens": 12,
        "session_token": MASK,
        "ANTHROPIC-API-KEY": MASK,
        "env": MASK,
        "environment": MASK,
        "nested": [{"client_secret": MASK, "tool": "Bash"}],
        "tokens": MASK,
        "reason": "done",
    }


def test_an_object_is_named_by_its_type_because_its_repr_may_show_anything() -> None:
    assert mask(None, "info", {"event": "x", "session": object(), "data": b"raw"}) == {
        "event": "x",
        "session": "<object>",
        "data": "<bytes>",
    }


private = st.sampled_from(["prompt", "input", "token", "secret", "environment", "password", "content"])
around = st.sampled_from(["", "old_", "_new", "x_"])
plain = st.sampled_from(["a", "session", "items"])


@given(around, private, st.lists(plain, max_size=4), st.sampled_from(["SECRET", ["SECRET"], {"a": "SECRET"}]))
def test_nothing_under_a_private_key_gets_through(prefix: str, key: str, path: list[str], value: object) -> None:
    name = f"{prefix}{key}" if prefix.endswith("_") else f"{key}{prefix}"
    event: dict[str, Any] = {name: value}
    for outer in path:
        event = {outer: [event]}
    assert "SECRET" not in repr(mask(None, "info", event))


def test_standard_logging_goes_to_the_same_file_with_the_same_context(tmp_path: Path) -> None:
    with set_up(tmp_path), bound(session="a"):
        logging.getLogger("rametd.y").info("plain %d", 1, extra={"prompt": "p", "pid": 2})
        logging.getLogger("library").info("details of a library may hold prompts")
        logging.getLogger("library").warning("trouble")
    first, second = lines(tmp_path)
    assert (first["event"], first["session"], first["prompt"], first["pid"]) == ("plain 1", "a", MASK, 2)
    assert (second["event"], second["logger"], second["level"]) == ("trouble", "library", "warning")


def test_a_traceback_shows_no_values_of_variables(tmp_path: Path) -> None:
    with set_up(tmp_path):
        secret = "s3cr" + str(len(os.sep))
        try:
            raise ValueError(len(secret))
        except ValueError:
            structlog.get_logger("rametd.x").exception("failed")
            logging.getLogger("rametd.y").exception("failed too")
    for line in lines(tmp_path):
        assert "ValueError: 5" in line["exception"]
        assert secret not in json.dumps(line)


def test_the_level_is_what_was_asked_for(tmp_path: Path) -> None:
    with set_up(tmp_path, level="warning"):
        structlog.get_logger("rametd.x").info("no")
        structlog.get_logger("rametd.x").warning("yes")
    assert [line["event"] for line in lines(tmp_path)] == ["yes"]


def test_the_file_is_private_and_rotated_by_size(tmp_path: Path) -> None:
    with set_up(tmp_path / "logs", rotate_at=2000, keep=2):
        for number in range(100):
            structlog.get_logger("rametd.x").info("line", number=number)
    files = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert files == [FILE, f"{FILE}.1", f"{FILE}.2"]
    assert {stat.S_IMODE((tmp_path / "logs" / name).stat().st_mode) for name in files} == {0o600}
    assert all((tmp_path / "logs" / name).stat().st_size <= 2000 for name in files)
    assert lines(tmp_path / "logs")[-1]["number"] == 99


def test_a_second_start_appends(tmp_path: Path) -> None:
    for number in range(2):
        with set_up(tmp_path):
            structlog.get_logger("rametd.x").info("start", number=number)
    assert [line["number"] for line in lines(tmp_path)] == [0, 1]


def test_the_console_gets_readable_lines_and_no_colour_unless_it_is_a_terminal(tmp_path: Path) -> None:
    console = io.StringIO()
    with set_up(tmp_path, console=console):
        structlog.get_logger("rametd.x").info("hello", prompt="p", pid=7)
    assert "hello" in console.getvalue()
    assert "pid=7" in console.getvalue()
    assert f"prompt={MASK}" in console.getvalue().replace("'", "")
    assert "\x1b" not in console.getvalue()
    assert len(lines(tmp_path)) == 1


def test_text_that_is_not_unicode_does_not_break_the_log(tmp_path: Path) -> None:
    with set_up(tmp_path):
        structlog.get_logger("rametd.x").info("odd", path="\udcff", name="日本")
        structlog.get_logger("rametd.x").info("next")
    first, second = lines(tmp_path)
    assert (first["name"], second["event"]) == ("日本", "next")


def test_closing_restores_what_was_there(tmp_path: Path) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    logs = set_up(tmp_path)
    logs.close()
    logs.close()
    assert (root.level, list(root.handlers)) == before
