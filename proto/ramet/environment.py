"""Which variables of a person's environment reach agents and commands, and how long a session keeps
each.

*Pinned* variables come from the call that creates a session. *Fresh* variables (credentials,
sockets, identity) come from every later call of the owner too. No process of a session inherits a
variable in `NEVER`. `rametctl set --env` sets single variables of a session.

Fresh variables form families. A call that has any variable of an account replaces the whole
account, because a new AWS_ACCESS_KEY_ID with the AWS_SESSION_TOKEN of another day is a mixture that
no server accepts. A call with no variable of a family does not change it.
"""

import base64
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

METADATA = "ramet-environment-bin"
"""Call metadata with the caller's variables: ``NAME=value`` and a zero byte each, as in
/proc/PID/environ."""


class Kind(StrEnum):
    """How long a session keeps a variable."""

    PINNED = "pinned"
    FRESH = "fresh"
    SET = "set"
    """Set by name, with ``--env``."""
    UNSET = "unset"
    """Removed by name, with ``--unset-env``."""


@dataclass(frozen=True, slots=True)
class Family:
    """Fresh variables that belong together.

    ``together``: a call that has one of them replaces all, else each by itself. ``restarts``: a
    change is worth a new process for an idle agent. ``accounts``: they say on whose account
    something happens.
    """

    name: str
    patterns: tuple[str, ...]
    together: bool = True
    restarts: bool = True
    accounts: bool = False


IDENTITY = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")
FORGE = (
    *("GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"),
    *("GH_CONFIG_DIR", "GH_HOST"),
)
"""For `gh` and for pushing. Agents and commands get these only through ``agents.claude.pass_env``
or ``--env``."""

FAMILIES = (
    Family(
        "Claude account",
        (
            *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS"),
            *("CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_*", "CLAUDE_CODE_SKIP_*_AUTH", "CLAUDE_CODE_CLIENT_*"),
        ),
        accounts=True,
    ),
    Family("Claude", ("ANTHROPIC_*",), together=False, accounts=True),
    Family(
        "other agents",
        (
            *(
                "OPENAI_*",
                "CODEX_*",
                "GEMINI_*",
                "FACTORY_*",
                "OPENCODE_*",
                "QWEN_*",
                "DASHSCOPE_*",
                "GOOSE_*",
                "COPILOT_*",
            ),
            *("OPENROUTER_*", "MISTRAL_*", "DEEPSEEK_*", "GROQ_*", "XAI_*"),
        ),
        together=False,
        accounts=True,
    ),
    Family(
        "AWS account",
        (
            *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN", "AWS_PROFILE"),
            *("AWS_BEARER_TOKEN_*", "AWS_ROLE_*", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CREDENTIAL_*", "AWS_VAULT"),
        ),
        accounts=True,
    ),
    Family("AWS", ("AWS_*",), together=False, accounts=True),
    Family(
        "Google Cloud",
        ("GOOGLE_*", "CLOUDSDK_*", "GCLOUD_PROJECT", "CLOUD_ML_REGION", "VERTEX_*"),
        together=False,
        accounts=True,
    ),
    Family(
        "Azure account",
        ("AZURE_CLIENT_*", "AZURE_TENANT_ID", "AZURE_USERNAME", "AZURE_PASSWORD", "AZURE_FEDERATED_TOKEN_FILE"),
        accounts=True,
    ),
    Family("Azure", ("AZURE_*",), together=False, accounts=True),
    Family("forge account", FORGE[:4], accounts=True),
    Family("forge", FORGE[4:], together=False, accounts=True),
    Family("SSH agent", ("SSH_AUTH_SOCK", "SSH_AGENT_PID")),
    Family("GnuPG", ("GPG_TTY", "GNUPGHOME"), together=False, restarts=False),  # GPG_TTY differs in each terminal
    Family("git identity", IDENTITY, accounts=True),
    Family("address", ("EMAIL",), accounts=True),
    Family("git configuration", ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"), together=False),
    # VS Code's GIT_ASKPASS is a script that reaches its window by the variables beside it.
    Family("git password", ("GIT_ASKPASS", "VSCODE_GIT_*")),
    Family("git transport", ("GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT")),
    Family(
        "proxy",
        ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    ),
    Family(
        "certificates",
        ("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        together=False,
    ),
    Family(
        "desktop",
        ("DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY"),
        together=False,
        restarts=False,
    ),
)
"""A variable is of the first family with a pattern that fits."""

PINNED = (
    # the person and the machine
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "COLORTERM", "NO_COLOR", "TZ", "TMPDIR", "HOSTNAME"),
    *("LANG", "LANGUAGE", "LC_*", "XDG_*_HOME", "XDG_*_DIRS", "XDG_RUNTIME_DIR"),
    # Claude Code
    *("CLAUDE_*", "IS_SANDBOX", "DISABLE_*", "DO_NOT_TRACK", "API_TIMEOUT_MS", "MAX_THINKING_TOKENS"),
    *("BASH_DEFAULT_TIMEOUT_MS", "BASH_MAX_TIMEOUT_MS", "BASH_MAX_OUTPUT_LENGTH"),
    *("MCP_TIMEOUT", "MCP_TOOL_TIMEOUT", "MAX_MCP_OUTPUT_TOKENS"),
    # where toolchains live
    *("ASDF_*", "BUN_INSTALL", "CARGO_HOME", "GOPATH", "GOROOT", "JAVA_HOME", "NVM_DIR", "PNPM_HOME", "PYENV_ROOT"),
    *("RBENV_ROOT", "RUSTUP_HOME", "VOLTA_HOME", "NIX_*", "HOMEBREW_*", "DOCKER_HOST", "DEVELOPER_DIR", "SDKROOT"),
)
"""Names, or patterns with ``*``. ``agents.claude.pass_env`` adds to them; a name of a family that
it lists stays fresh."""

ALLOWED = (*PINNED, *(pattern for family in FAMILIES for pattern in family.patterns if pattern not in FORGE))
"""What agents and commands may inherit without further configuration."""

NEVER = (
    # An outer session: its identity, its sockets, and settings from its host.
    *("RAMET_*", "CLAUDECODE", "CLAUDE_PID", "CLAUDE_AGENT_SDK_*", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION*"),
    *("CLAUDE_CODE_CHILD_*", "CLAUDE_CODE_PARENT_*", "CLAUDE_CODE_MESSAGING_*", "CLAUDE_CODE_RESUME_*"),
    *("CLAUDE_CODE_SSE_PORT", "CLAUDE_CODE_SDK_*", "CLAUDE_CODE_TEE_SDK_STDOUT", "CLAUDE_CODE_ENABLE_SDK_*"),
    *("CLAUDE_CODE_REMOTE*", "CLAUDE_PROJECT_DIR", "CLAUDE_PLUGIN_*", "CLAUDE_ENV_FILE", "TRACEPARENT"),
    # The daemon's own service manager: an agent must not report for the daemon.
    *("NOTIFY_SOCKET", "WATCHDOG_*", "LISTEN_*", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "MAINPID"),
    # What git sets for its own processes, hooks included (`git rev-parse --local-env-vars`, and
    # what a push or a rebase adds).
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_CONFIG", "GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS"),
    *("GIT_CONFIG_KEY_*", "GIT_CONFIG_VALUE_*", "GIT_DIR", "GIT_GRAFT_FILE", "GIT_IMPLICIT_WORK_TREE"),
    *("GIT_INDEX_FILE", "GIT_INTERNAL_*", "GIT_NAMESPACE", "GIT_NO_REPLACE_OBJECTS", "GIT_OBJECT_DIRECTORY"),
    *("GIT_PREFIX", "GIT_PUSH_OPTION_*", "GIT_QUARANTINE_PATH", "GIT_REFLOG_ACTION", "GIT_REPLACE_REF_BASE"),
    *("GIT_SHALLOW_FILE", "GIT_WORK_TREE", "GIT_CEILING_DIRECTORIES"),
    "GIT_*_DATE",  # of one commit: a session that inherited it would date all its commits alike
    # Another process's place, and another terminal's.
    *("PWD", "OLDPWD", "SHLVL", "_", "TMUX", "TMUX_PANE", "STY", "WINDOW", "ZELLIJ", "ZELLIJ_*"),
    *("DIRENV_*", "__MISE_*"),
)
"""Stronger than any allow-list, the configured one included."""

OF_GIT = (
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_AUTHOR_DATE",
    "GIT_COMMITTER_DATE",
    "GIT_QUARANTINE_PATH",
    "GIT_REFLOG_ACTION",
)
"""Set where git runs the caller, as a hook does: the identity beside it is that of one commit, not
the person's."""

CARRIED_BY = frozenset(
    {
        *("CreateSession", "ForkSession", "SendPrompt", "ResumeSession", "UpdateSession", "RestoreSession"),
        *("RestoreTrash", "RewindSession", "SyncSession", "SendComments", "StartCommand", "SetUpSession"),
        *("ResolveRequest", "SendMessage", "SpawnSession", "ApplyPlan", "ConvergePlan", "LandSessions", "RetryLanding"),
        *("CreatePullRequest", "LinkPullRequest", "FixPullRequest", "CleanUpPullRequests", "AttachNative"),
        "ListAgents",
    }
)
"""Methods whose calls carry the caller's environment: those that can lead to a process of a
session, to a commit or push for it, or that look for programs as a session of the caller would."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def allowed(names: Iterable[str], pass_env: Iterable[str] = ()) -> frozenset[str]:
    """Return those of ``names`` that an agent may inherit. ``pass_env``: further names or
    patterns."""
    patterns = (*ALLOWED, *pass_env)
    return frozenset(
        name for name in names if NAME.fullmatch(name) and matches(name, patterns) and not matches(name, NEVER)
    )


def matches(name: str, patterns: Iterable[str]) -> bool:
    names, wild = _split(tuple(patterns))
    return name in names or any(name.startswith(head) and fnmatchcase(name, pattern) for head, pattern in wild)


@lru_cache(maxsize=64)
def _split(patterns: tuple[str, ...]) -> tuple[frozenset[str], tuple[tuple[str, str], ...]]:
    """Tell plain names from patterns, each with what it begins with: every call of a client
    compares a hundred names."""
    heads = {pattern: re.split(r"[*?[]", pattern, maxsplit=1)[0] for pattern in patterns}
    plain = frozenset(pattern for pattern, head in heads.items() if head == pattern)
    return plain, tuple((head, pattern) for pattern, head in heads.items() if head != pattern)


@lru_cache(maxsize=1024)
def family_of(name: str) -> Family | None:
    """Return the family of a fresh variable; None for a pinned one."""
    return next((family for family in FAMILIES if matches(name, family.patterns)), None)


def group_of(name: str) -> str | None:
    """Return what a fresh variable is replaced together with: the name of its family, or its own;
    None for a pinned one."""
    family = family_of(name)
    return None if family is None else family.name if family.together else name


def carried(environ: Mapping[str, str], pass_env: Iterable[str] = ()) -> dict[str, str]:
    """Return what a call carries of its caller's environment."""
    inside_git = any(name in environ for name in OF_GIT)
    names = allowed(environ, (*FORGE, *pass_env))
    return {name: environ[name] for name in environ if name in names and not (inside_git and name in IDENTITY)}


def without_direnv(environ: Mapping[str, str], place: str) -> Mapping[str, str]:
    """Return ``environ`` without the variables that direnv loaded for a project, if the directory
    ``place`` is outside of it."""
    project = environ.get("DIRENV_DIR", "").removeprefix("-")
    if not project or Path(place).resolve().is_relative_to(Path(project).resolve()):
        return environ
    try:
        diff = json.loads(zlib.decompress(base64.urlsafe_b64decode(environ["DIRENV_DIFF"])))
        before, loaded = dict(diff["p"]), dict(diff["n"])
    except (KeyError, ValueError, TypeError, zlib.error):
        return environ
    return {name: value for name, value in environ.items() if name not in loaded} | before


def for_daemon(environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``environ`` without credentials and identity: what a daemon gets that a command starts
    because none runs.

    Every call brings its own. Those of the shell that happened to be first would count in all
    sessions whose shells have none.
    """
    return {
        name: value for name, value in environ.items() if (family := family_of(name)) is None or not family.accounts
    }


def encode(environment: Mapping[str, str]) -> bytes:
    """Return the variables as `METADATA` carries them. A name or value with a zero byte is not
    valid and is left out."""
    records = (f"{name}={value}" for name, value in environment.items())
    return b"".join(record.encode("utf-8", "surrogateescape") + b"\0" for record in records if "\0" not in record)


def decode(data: bytes) -> dict[str, str]:
    """Return the variables that `encode` wrote."""
    records = data.decode("utf-8", "surrogateescape").split("\0")
    return dict(record.split("=", 1) for record in records if "=" in record)
