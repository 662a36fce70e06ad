"""Agents that speak the Agent Client Protocol, as data: how each starts, and how it differs from
the others."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rametd.agents.base import Capabilities
from rametd.config import AgentSettings
from rametd.domain.models import Mode


@dataclass(frozen=True, slots=True)
class Preset:
    """One agent of the Agent Client Protocol.

    ``modes`` has the agent's setting for each of Ramet's modes: the id of one of the agent's modes
    (set by `session/set_mode`, or by the configuration option of category "mode", as the agent
    announces them), ``OPTION=VALUE`` for another configuration option, several settings separated
    by spaces, or "" to set nothing. An absent mode cannot be used. In the modes acceptEdits and
    bypassPermissions Ramet answers the agent's questions, so an agent without such modes has ""
    there.
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
    places: tuple[str, ...] = ()
    """Files of a repository from which the agent starts programs, and folders of such files, with a
    slash at the end."""
    login: str = ""  # shell command that logs in
    install: str = ""  # shell command that installs it
    minimum_version: str = ""
    model_option: str = "model"  # category of the configuration option that sets the model
    keys: Mapping[str, str] = field(default_factory=dict)
    """Variables with a key that the agent uses only on a request to `authenticate`, with the method
    for each."""
    tried: str = ""  # release that was run with Ramet; "" if only its documentation says that it works
    faults: tuple[str, ...] = ()  # known faults, for people


READS_SETTINGS = (
    "It cannot be kept from a repository's own settings for it: where you have not trusted these, it does not start."
)

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
    places=("opencode.json", "opencode.jsonc", ".opencode/"),
    login="opencode auth login",
    install="npm install -g opencode-ai",
    minimum_version="1.18",
    tried="1.18.33",
    faults=("It never asks before it calls an MCP tool.", READS_SETTINGS),
)

CODEX = Preset(
    name="codex",
    title="Codex",
    command=("codex-acp",),
    modes={
        Mode.DEFAULT: "read-only collaboration_mode=default",
        Mode.ACCEPT_EDITS: "workspace-write collaboration_mode=default",
        Mode.PLAN: "read-only collaboration_mode=plan",
        Mode.AUTO: "agent collaboration_mode=default",
        Mode.BYPASS: "agent-full-access collaboration_mode=default",
    },
    capabilities=Capabilities(tokens=True, images=True),
    places=(".codex/",),
    login="codex login",
    keys={"OPENAI_API_KEY": "api-key", "CODEX_API_KEY": "api-key"},
    install="npm install -g @openai/codex @agentclientprotocol/codex-acp",
    minimum_version="2.0",
    tried="2.6.0",
    faults=(
        "In the mode default its sandbox refuses a write without a question, unless the model asks for more rights.",
        "In the mode acceptEdits it may write in the temporary directory, too.",
        "A cancelled turn leaves a running shell command behind; it ends with the session's process.",
        READS_SETTINGS,
    ),
)
DROID = Preset(
    name="droid",
    title="Factory Droid",
    command=("droid", "exec", "--output-format", "acp"),
    modes={Mode.DEFAULT: "normal", Mode.ACCEPT_EDITS: "auto-low", Mode.PLAN: "spec", Mode.BYPASS: "auto-high"},
    capabilities=Capabilities(images=True),
    places=(".factory/",),
    login="droid",
    install="npm install -g droid",
    minimum_version="0.215",
    tried="0.215.0",
    faults=("It hides MCP tools behind a tool search, and tells neither costs nor tokens.", READS_SETTINGS),
)
GEMINI = Preset(
    name="gemini",
    title="Gemini CLI",
    command=("gemini", "--acp"),
    modes={Mode.DEFAULT: "default", Mode.ACCEPT_EDITS: "autoEdit", Mode.PLAN: "plan", Mode.BYPASS: "yolo"},
    capabilities=Capabilities(tokens=True, images=True),
    # It starts a second process of itself, which outlives a kill of the first.
    env={"GEMINI_CLI_NO_RELAUNCH": "true", "GEMINI_CLI_TRUST_WORKSPACE": "true"},
    untrusted_env={"GEMINI_CLI_TRUST_WORKSPACE": "false"},
    places=(".gemini/",),
    login="gemini",
    install="npm install -g @google/gemini-cli",
    minimum_version="0.61",
    tried="0.61.0",
    faults=(
        "A conversation that is resumed within the minute in which it began is lost.",
        "It has Ramet's tools only in a repository that you trust.",
    ),
)
QWEN = Preset(
    name="qwen",
    title="Qwen Code",
    command=("qwen", "--acp"),
    modes={
        Mode.DEFAULT: "default",
        Mode.ACCEPT_EDITS: "auto-edit",
        Mode.PLAN: "plan",
        Mode.AUTO: "auto",
        Mode.BYPASS: "yolo",
    },
    capabilities=Capabilities(tokens=True, images=True),
    places=(".qwen/",),
    login="qwen",
    install="npm install -g @qwen-code/qwen-code  # needs Node 22",
    minimum_version="0.24",
    tried="0.24.4",
    faults=("It hides MCP tools behind a tool search, and needs Node 22.", READS_SETTINGS),
)
PI = Preset(
    name="pi",
    title="Pi",
    command=("pi-acp",),
    modes={Mode.BYPASS: ""},
    capabilities=Capabilities(ask=False, set_mode=False, mcp=False, images=True),
    places=(".pi/",),
    login="pi",
    install="npm install -g pi-acp @earendil-works/pi-coding-agent  # needs Node 22",
    minimum_version="0.0.34",
    tried="0.0.34",
    faults=("It never asks, and takes no MCP tools; it needs Node 22.", READS_SETTINGS),
)
GOOSE = Preset(
    name="goose",
    title="Goose",
    command=("goose", "acp"),
    modes={Mode.DEFAULT: "approve", Mode.ACCEPT_EDITS: "approve", Mode.BYPASS: "approve"},
    env={"GOOSE_MODE": "approve"},
    places=(".goose/",),
    login="goose configure",
    install="see Goose's installation page; it is on no package registry",
    faults=(READS_SETTINGS,),
)
COPILOT_MODES = "https://agentclientprotocol.com/protocol/session-modes"
COPILOT = Preset(
    name="copilot",
    title="GitHub Copilot CLI",
    command=("copilot", "--acp"),
    modes={
        Mode.DEFAULT: f"{COPILOT_MODES}#agent allow_all=off",
        Mode.ACCEPT_EDITS: f"{COPILOT_MODES}#agent allow_all=off",
        Mode.PLAN: f"{COPILOT_MODES}#plan allow_all=off",
        Mode.BYPASS: f"{COPILOT_MODES}#agent allow_all=off",
    },
    capabilities=Capabilities(tokens=True, images=True),
    # The first variable, if the person had set it, would turn off all questions.
    env={"COPILOT_ALLOW_ALL": "false", "COPILOT_AUTO_UPDATE": "false"},
    places=(".copilot/", ".github/copilot/", ".mcp.json", ".vscode/mcp.json"),
    login="copilot login",
    install="npm install -g @github/copilot",
    minimum_version="1.0.102",
    tried="1.0.102",
    faults=(READS_SETTINGS,),
)
CLAUDE_ACP = Preset(
    name="claude-acp",
    title="Claude Code by ACP",
    command=("claude-agent-acp",),
    modes={mode: str(mode) for mode in (Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.PLAN, Mode.AUTO, Mode.BYPASS)},
    capabilities=Capabilities(cost=True, tokens=True, images=True),
    places=(".mcp.json", ".claude/"),
    login="claude /login",
    install="npm install -g @agentclientprotocol/claude-agent-acp",
    minimum_version="0.49",
    tried="0.101.0",
    faults=("The agent `claude` does more: it forks, rewinds and steers a conversation.", READS_SETTINGS),
)

PRESETS = (OPENCODE, CODEX, DROID, GEMINI, QWEN, PI, GOOSE, COPILOT, CLAUDE_ACP)


def presets_of(settings: Mapping[str, AgentSettings]) -> tuple[Preset, ...]:
    """Return the known agents, with the changes by the configuration, and the agents that it
    adds."""
    known = {preset.name: preset for preset in PRESETS}
    for name, own in settings.items():
        base = known.get(name) or Preset(
            name, name, (), dict.fromkeys((Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.BYPASS), "")
        )
        known[name] = replace(
            base,
            command=own.command or base.command,
            env={**base.env, **own.env},
            modes={**base.modes, **own.modes},
        )
    return tuple(known.values())
