"""Real agents other than Claude Code against the scripted model: where they are, and the configuration with which they ask it."""

import json
import os
import shutil
from pathlib import Path

import pytest
from rametd.agents.presets import PRESETS
from rametd.config.kinds import toml

DIRECTORY = "RAMET_TEST_AGENTS"
"""Names a directory with the programs, which otherwise are looked for on the PATH."""
PROGRAMS = {"opencode": "opencode", "codex": "codex-acp"}


def program_of(name: str) -> str:
    """The path of an agent's program, or ""."""
    return shutil.which(PROGRAMS[name], path=os.environ.get(DIRECTORY) or os.environ["PATH"]) or ""


def need(name: str) -> None:
    """Skip the test where the agent is missing; fail where CI should have it."""
    if not program_of(name):
        install = next(preset.install for preset in PRESETS if preset.name == name)
        words = f"no {PROGRAMS[name]}: {install}, or name the directory that has it in {DIRECTORY}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(words)


def configuration(directory: Path, port: int) -> str:
    """TOML for the daemon; writes the agents' own files into ``directory``."""
    directory.mkdir(parents=True)
    model = {
        "name": "m",
        "tool_call": True,
        "limit": {"context": 100_000, "output": 8000},
        "cost": {"input": 1, "output": 2},
    }
    address = f"http://127.0.0.1:{port}/v1"
    options = {"baseURL": address, "apiKey": "x"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"m": model}}
    settings = {"model": "fake/m", "small_model": "fake/m", "share": "disabled", "provider": {"fake": provider}}
    (directory / "opencode.json").write_text(json.dumps(settings))
    codex = directory / "codex"
    codex.mkdir()
    (codex / "config.toml").write_text(
        f'model = "m"\nmodel_provider = "fake"\n[model_providers.fake]\nname = "fake"\nbase_url = "{address}"\n'
        'wire_api = "responses"\nenv_key = "FAKE_KEY"\n'
    )
    environments = {
        "opencode": {"OPENCODE_CONFIG": str(directory / "opencode.json"), "OPENCODE_DISABLE_MODELS_FETCH": "1"},
        "codex": {"CODEX_HOME": str(codex), "FAKE_KEY": "x"},
    }
    commands = {preset.name: preset.command for preset in PRESETS}
    return "".join(
        f"[agents.{name}]\ncommand = {toml([program_of(name), *commands[name][1:]])}\nenv = {toml(environments[name])}\n"
        for name in PROGRAMS
        if program_of(name)
    )
