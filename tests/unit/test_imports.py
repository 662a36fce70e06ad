"""Modules that are imported only on demand, since each makes every start slower and the daemon
larger."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from rametctl.__main__ import import_later
from rametd.platform import inotify

DAEMON = "import rametd.__main__\nwith rametd.__main__.loading.quickly():\n    import rametd.app"
LIST = """
import rametctl.__main__
app = rametctl.__main__.application(["ls"])
import rametctl.cli, rametctl.commands.ls, rametctl.connection.channel, rametctl.render.session
import grpc
rametctl.connection.channel.stub_of("sessions", grpc.insecure_channel("unix:none")).ListSessions
"""
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
        "rametctl.render.request",
        "ramet.v1.session_pb2_grpc",
        "google.protobuf.text_format",
        "click.shell_completion",
        "difflib",
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


def test_a_module_that_is_imported_later_is_the_real_one_at_its_first_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_module.py").write_text("value = 7\ndef function(): return value\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "slow_module", None)  # restored afterwards
    del sys.modules["slow_module"]
    import_later("slow_module")
    stub = import_module("slow_module")
    assert "value" not in vars(stub)
    assert (stub.function(), stub.value) == (7, 7)
    assert stub.__file__ == import_module("slow_module").__file__
    with pytest.raises(AttributeError):
        stub.missing  # noqa: B018  the access is the test
