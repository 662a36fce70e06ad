"""Real agents other than Claude Code against the scripted model: their programs and
configuration."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rametd.agents.presets import PRESETS, Preset
from rametd.config.kinds import toml

DIRECTORY = "RAMET_TEST_AGENTS"
"""Variable with directories of the programs; without it, PATH is searched."""
REQUIRED = ("opencode", "codex")
"""Agents that CI installs."""


@dataclass(frozen=True)
class Setting:
    """Configuration with which an agent uses the scripted model. ``$DIR`` is its own directory,
    ``$URL`` the model."""

    files: Mapping[str, object] = field(default_factory=dict)  # text, or JSON
    env: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()  # after the command


OPENCODE_MODEL = {
    "name": "m",
    "tool_call": True,
    "limit": {"context": 100_000, "output": 8000},
    "cost": {"input": 1, "output": 2},
}
OPENCODE_PROVIDER = {
    "npm": "@ai-sdk/openai-compatible",
    "options": {"baseURL": "$URL/v1", "apiKey": "x"},
    "models": {"m": OPENCODE_MODEL},
}
DROID_MODEL = {
    "model": "m",
    "id": "custom:m-0",
    "displayName": "m",
    "baseUrl": "$URL/v1",
    "apiKey": "x",
    "provider": "generic-chat-completion-api",
    "maxOutputTokens": 8000,
}
PI_MODEL = {
    "id": "m",
    "name": "m",
    "reasoning": False,
    "input": ["text"],
    "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
    "contextWindow": 100_000,
    "maxTokens": 8000,
}
PI_PROVIDER = {"baseUrl": "$URL/v1", "api": "openai-completions", "apiKey": "x", "models": [PI_MODEL]}
SETTINGS = {
    "opencode": Setting(
        {
            "opencode.json": {
                "model": "fake/m",
                "small_model": "fake/m",
                "share": "disabled",
                "provider": {"fake": OPENCODE_PROVIDER},
            }
        },
        {"OPENCODE_CONFIG": "$DIR/opencode.json", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
    ),
    "codex": Setting(
        {
            "config.toml": 'model = "m"\nmodel_provider = "fake"\n[model_providers.fake]\nname = "fake"\n'
            'base_url = "$URL/v1"\nwire_api = "responses"\nenv_key = "FAKE_KEY"\n'
        },
        {"CODEX_HOME": "$DIR", "FAKE_KEY": "x"},
    ),
    "droid": Setting(
        {
            ".factory/settings.json": {
                "customModels": [DROID_MODEL],
                "sessionDefaultSettings": {"model": "custom:m-0"},
                "cloudSessionSync": False,
            }
        },
        {"HOME": "$DIR", "FACTORY_API_KEY": "fk-x"},
        ("-m", "custom:m-0"),
    ),
    "gemini": Setting(
        {".gemini/settings.json": {"security": {"auth": {"selectedType": "gemini-api-key"}}}},
        {"HOME": "$DIR", "GEMINI_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": "$URL"},
        ("-m", "gemini-2.5-flash"),
    ),
    "qwen": Setting(
        {".qwen/settings.json": {"security": {"auth": {"selectedType": "openai"}}}},
        {"HOME": "$DIR", "OPENAI_API_KEY": "x", "OPENAI_BASE_URL": "$URL/v1", "OPENAI_MODEL": "m"},
    ),
    "pi": Setting(
        {
            ".pi/agent/models.json": {"providers": {"fake": PI_PROVIDER}},
            ".pi/agent/settings.json": {"defaultProvider": "fake", "defaultModel": "m"},
        },
        {"HOME": "$DIR", "PI_OFFLINE": "1"},
    ),
    "copilot": Setting(
        {},
        {
            "HOME": "$DIR",
            "COPILOT_PROVIDER_BASE_URL": "$URL/v1",
            "COPILOT_PROVIDER_API_KEY": "x",
            "COPILOT_MODEL": "m",
            "COPILOT_OFFLINE": "true",
        },
    ),
    "claude-acp": Setting(
        {}, {"CLAUDE_CONFIG_DIR": "$DIR", "ANTHROPIC_BASE_URL": "$URL", "ANTHROPIC_API_KEY": "x", "IS_SANDBOX": "1"}
    ),
}
KNOWN = {preset.name: preset for preset in PRESETS}


def program_of(name: str) -> str:
    """Return the path of an agent's program, or ""."""
    return shutil.which(KNOWN[name].command[0], path=os.environ.get(DIRECTORY) or os.environ["PATH"]) or ""


def need(name: str) -> None:
    """Skip the test if the agent is missing or too old; fail if CI should have it."""
    if not program_of(name):
        preset = KNOWN[name]
        words = f"no {preset.command[0]}: {preset.install}, or name the directories that have it in {DIRECTORY}"
        (pytest.fail if name in REQUIRED and os.environ.get("CI") else pytest.skip)(words)


def configuration(directory: Path, port: int) -> str:
    """Return TOML for the daemon, and write the agents' own files into ``directory``."""
    return "".join(
        _one(KNOWN[name], each, directory / name, port) for name, each in SETTINGS.items() if program_of(name)
    )


def _one(preset: Preset, setting: Setting, directory: Path, port: int) -> str:
    def complete(text: str) -> str:
        return text.replace("$DIR", str(directory)).replace("$URL", f"http://127.0.0.1:{port}")

    for name, content in setting.files.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(complete(content if isinstance(content, str) else json.dumps(content)))
    directory.mkdir(parents=True, exist_ok=True)
    command = [program_of(preset.name), *preset.command[1:], *setting.words]
    env = {name: complete(value) for name, value in setting.env.items()}
    return f"[agents.{preset.name}]\ncommand = {toml(command)}\nenv = {toml(env)}\n"
