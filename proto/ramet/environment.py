"""Which variables of a person's environment agents may inherit. The client sends no other, and the daemon passes no other on."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

ALLOWED = (
    # the person and the machine
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "COLORTERM", "NO_COLOR", "TZ", "TMPDIR", "HOSTNAME"),
    *("LANG", "LANGUAGE", "LC_*", "XDG_*_HOME", "XDG_*_DIRS", "XDG_RUNTIME_DIR"),
    # keys and identities
    *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_TTY", "GNUPGHOME", "DBUS_SESSION_BUS_ADDRESS"),
    *("GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_AUTHOR_*", "GIT_COMMITTER_*", "EMAIL"),
    # the way out
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    # Claude Code, and the clouds that serve its models
    *("ANTHROPIC_*", "CLAUDE_*", "IS_SANDBOX", "DISABLE_*", "DO_NOT_TRACK", "API_TIMEOUT_MS", "MAX_THINKING_TOKENS"),
    *("BASH_DEFAULT_TIMEOUT_MS", "BASH_MAX_TIMEOUT_MS", "BASH_MAX_OUTPUT_LENGTH"),
    *("MCP_TIMEOUT", "MCP_TOOL_TIMEOUT", "MAX_MCP_OUTPUT_TOKENS"),
    *("AWS_*", "GOOGLE_*", "CLOUDSDK_*", "GCLOUD_PROJECT", "CLOUD_ML_REGION", "VERTEX_*", "AZURE_*"),
    # where toolchains live
    *(
        "ASDF_*",
        "BUN_INSTALL",
        "CARGO_HOME",
        "GOPATH",
        "GOROOT",
        "JAVA_HOME",
        "NVM_DIR",
        "PNPM_HOME",
        "PYENV_ROOT",
        "RBENV_ROOT",
    ),
    *("RUSTUP_HOME", "VOLTA_HOME", "NIX_*", "HOMEBREW_*", "DOCKER_HOST", "DEVELOPER_DIR", "SDKROOT"),
)
"""Names, or patterns with ``*``, of what an agent may inherit. ``agents.claude.pass_env`` adds to them."""

FORGE = (*("GH_CONFIG_DIR", "GH_TOKEN", "GH_ENTERPRISE_TOKEN", "GH_HOST", "GITHUB_TOKEN", "GITHUB_ENTERPRISE_TOKEN"),)
"""What `gh`, and git's pushing, may inherit besides: an agent works without the keys to the forge unless it is given them."""

NEVER = (
    # An outer session: its identity, its sockets, and what its own host told it.
    *("RAMET_*", "CLAUDECODE", "CLAUDE_PID", "CLAUDE_AGENT_SDK_*", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION*"),
    *(
        "CLAUDE_CODE_CHILD_*",
        "CLAUDE_CODE_PARENT_*",
        "CLAUDE_CODE_MESSAGING_*",
        "CLAUDE_CODE_RESUME_*",
        "CLAUDE_CODE_SSE_PORT",
    ),
    *(
        "CLAUDE_CODE_SDK_*",
        "CLAUDE_CODE_TEE_SDK_STDOUT",
        "CLAUDE_CODE_ENABLE_SDK_*",
        "CLAUDE_CODE_REMOTE*",
        "TRACEPARENT",
    ),
    # The daemon's own service manager: an agent must not report for the daemon.
    *("NOTIFY_SOCKET", "WATCHDOG_*", "LISTEN_*", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "MAINPID"),
    # What points git at another repository than the one around the agent (`git rev-parse --local-env-vars`).
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_CONFIG", "GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS"),
    *(
        "GIT_CONFIG_KEY_*",
        "GIT_CONFIG_VALUE_*",
        "GIT_DIR",
        "GIT_GRAFT_FILE",
        "GIT_IMPLICIT_WORK_TREE",
        "GIT_INDEX_FILE",
    ),
    *("GIT_INTERNAL_SUPER_PREFIX", "GIT_NAMESPACE", "GIT_NO_REPLACE_OBJECTS", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX"),
    *("GIT_REPLACE_REF_BASE", "GIT_SHALLOW_FILE", "GIT_WORK_TREE"),
    # Another process's place.
    *("PWD", "OLDPWD", "SHLVL", "_"),
)
"""Stronger than any allow-list, the configured one included."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def allowed(names: Iterable[str], pass_env: Iterable[str] = ()) -> frozenset[str]:
    """Those of ``names`` that an agent may inherit. ``pass_env``: further names or patterns."""
    patterns = (*ALLOWED, *pass_env)
    return frozenset(
        name for name in names if NAME.fullmatch(name) and matches(name, patterns) and not matches(name, NEVER)
    )


def matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
