"""Modules that are imported only on demand, since each makes every start slower and the daemon
larger."""

import subprocess
import sys

import pytest
from rametd.platform import inotify

DAEMON = "import rametd.__main__\nwith rametd.__main__.loading.quickly():\n    import rametd.app"
LIST = (
    "import rametctl.__main__, rametctl.cli, rametctl.commands.ls, rametctl.connection.channel, rametctl.render.session"
)
LATER = {
    "daemon": {"claude_agent_sdk", "mcp", "pydantic", "httpx", "jinja2", "rich", "textual", "jsonschema", "ramet_demo"},
    "list": {
        "rich",
        "textual",
        "jinja2",
        "starlette",
        "uvicorn",
        "rametd",
        "rametctl.web",
        "rametctl.render.transcript",
    },
    "show": {"rich", "textual", "markdown_it", "rametd"},
    "plain": {"grpc", "google.protobuf", "asyncio", "rich", "textual", "rametd"},
}
"""By program: modules that only some calls import."""
if inotify.SUPPORTED:
    LATER["daemon"] |= {"watchfiles", "anyio"}


@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("daemon", DAEMON),
        ("list", LIST),
        ("show", "import rametctl.commands.show"),
        ("plain", "import rametctl.__main__, rametctl.cli, rametctl.console.output"),
    ],
)
def test_a_start_imports_nothing_that_only_some_calls_need(name: str, program: str) -> None:
    said = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert LATER[name] & {*said.stdout.split()} == set()
