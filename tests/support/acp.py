"""Configure the scripted agent of the Agent Client Protocol in a sandbox, under several names with
different quirks."""

import sys
from pathlib import Path

import ramet_demo.scripted

from tests.support.daemon import Sandbox

AGENT = Path(ramet_demo.scripted.__file__).with_name("acp.py")
MODES = 'modes = { default = "ask", acceptEdits = "ask", bypassPermissions = "free" }'


def use_acp(sandbox: Sandbox, *, env: str = "", **agents: str) -> None:
    """Add an agent for each name, with its quirks separated by spaces; ``env`` is TOML, for all of
    them."""
    text = "[permissions]\nallow_bypass = true\n"
    if sandbox.directories.config_file.exists():
        text = sandbox.directories.config_file.read_text() + "\n" + text
    for name, quirks in agents.items():
        command = [sys.executable, "-I", "-S", str(AGENT), *quirks.split()]
        words = ", ".join(f'"{word}"' for word in command)
        text += f"[agents.{name}]\ncommand = [{words}]\n{MODES}\nenv = {{ {env} }}\n"
    sandbox.configure(text)
