"""What a repository would have run once it is trusted, shown in full before it is."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rametctl.lines import Line, line

if TYPE_CHECKING:
    from ramet.v1.daemon_pb2 import GetConfigResponse

RUNNING = ("setup", "teardown", "run.NAME", "land.check", "carry", "carry_rewrite")
"""Settings of a repository that have something run, or copied."""
LOADED = (".claude/settings.json", ".mcp.json")
"""Files of Claude's own that have something run."""
FROM_REPOSITORY = "repository file"


def contents(config: "GetConfigResponse", root: str) -> Iterator[Line]:
    """Lines that show it; none where there is nothing."""
    for setting in (*config.settings, *config.withheld):
        if setting.key in RUNNING and setting.origin == FROM_REPOSITORY:
            yield line((setting.key.removesuffix(".NAME"), "bold"), (f"  ({config.repo_file})", "dim"))
            yield from (line(text, indent=2) for text in _texts(json.loads(setting.value_json)))
    for name in LOADED:
        if (text := _read(Path(root, name))) is not None:
            yield line((name, "bold"), ("  (Claude's own; its hooks and servers run with every agent)", "dim"))
            yield from (line(each, indent=2) for each in text.rstrip().split("\n"))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (f"{name}: {command}" for name, command in value.items())
    else:
        yield from (text for item in value for text in str(item).split("\n"))


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
