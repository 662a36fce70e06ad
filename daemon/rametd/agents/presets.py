"""Agents that speak the Agent Client Protocol, as data: how each is started, and in what it differs from the others."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rametd.agents.base import Capabilities
from rametd.domain.models import Mode


@dataclass(frozen=True, slots=True)
class Preset:
    """One agent of the Agent Client Protocol.

    ``modes``: what each of Ramet's modes is to the agent: the id of one of its modes (set as it announces them: by `session/set_mode`, or by the
    configuration option of category "mode"), ``OPTION=VALUE`` for another configuration option, several separated by spaces, or "" for nothing to
    set. A mode that is absent cannot be used. The agent's questions are answered by Ramet in the modes acceptEdits and bypassPermissions, so that an
    agent without such modes of its own has "" there.
    """

    name: str
    title: str
    command: tuple[str, ...]
    modes: Mapping[Mode, str]
    capabilities: Capabilities = Capabilities()  # noqa: RUF009 - frozen
    env: Mapping[str, str] = field(default_factory=dict)
    untrusted_env: Mapping[str, str] = field(
        default_factory=dict
    )  # added while the person does not trust the repository
    login: str = ""  # shell command that logs in
    install: str = ""  # shell command that installs it
    minimum_version: str = ""
    model_option: str = "model"  # category of the configuration option that sets the model


OPENCODE = Preset(
    name="opencode",
    title="OpenCode",
    command=("opencode", "acp"),
    modes={Mode.DEFAULT: "build", Mode.ACCEPT_EDITS: "build", Mode.PLAN: "plan", Mode.BYPASS: "build"},
    capabilities=Capabilities(cost=True, tokens=True, images=True),
    env={
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_PERMISSION": '{"edit":"ask","bash":"ask","webfetch":"ask","external_directory":"ask"}',
    },
    untrusted_env={"OPENCODE_DISABLE_PROJECT_CONFIG": "1"},
    login="opencode auth login",
    install="npm install -g opencode-ai",
)

PRESETS = (OPENCODE,)
