"""The environment of an agent: built for it, never just the daemon's.

The daemon may run since last week, started by a service manager with a bare PATH; the person who types ``new`` has the PATH,
the agent socket and the credentials of today. So both are filtered by one allow-list, and the caller's wins.
"""

import os
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from fnmatch import fnmatchcase
from pathlib import Path

from ramet.paths import PathsError, open_private_directory

from rametd.domain.errors import BadEnvironmentError, RuntimeDirectoryError

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

UNSENDABLE = "leave it out: the agent can do without it"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,47}")


def allowed(names: Iterable[str], pass_env: Iterable[str] = ()) -> frozenset[str]:
    """Those of ``names`` that an agent may inherit. ``pass_env``: further names or patterns."""
    patterns = (*ALLOWED, *pass_env)
    return frozenset(
        name for name in names if _NAME.fullmatch(name) and _matches(name, patterns) and not _matches(name, NEVER)
    )


def build(
    daemon_env: Mapping[str, str],
    caller_env: Mapping[str, str],
    pass_env: Iterable[str] = (),
    fixed: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The agent's environment: what is allowed of the daemon's, over it what is allowed of the caller's, over both ``fixed``.

    ``fixed`` is ours (RAMET_SESSION, RAMET_TOKEN, …) and not filtered. Raises BadEnvironmentError for what no process can have.
    """
    pass_env = tuple(pass_env)
    environment: dict[str, str] = {}
    for source in (daemon_env, caller_env):
        environment |= {name: source[name] for name in allowed(source, pass_env)}
    environment |= fixed or {}
    _encode(environment)
    return environment


class EnvironmentFiles:
    """One file per session that holds its agent's environment, for an agent to be started again after the daemon was.

    It holds secrets: 0600 in a 0700 directory, never in the database, an event or a log. Format: ``NAME=value`` and a zero
    byte, as in /proc/PID/environ. Calls block for a disk write.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, session: str, environment: Mapping[str, str]) -> None:
        """Replace the file of ``session`` (an id) in one step. Raises BadEnvironmentError, RuntimeDirectoryError, OSError."""
        content = _encode(environment)
        name = _file_name(session)
        temporary = f".{name}.{secrets.token_hex(8)}"
        directory = self._open()
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
            with ExitStack() as undo:
                undo.callback(os.unlink, temporary, dir_fd=directory)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(descriptor)
                os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
                undo.pop_all()
            os.fsync(directory)
        finally:
            os.close(directory)

    def read(self, session: str) -> dict[str, str] | None:
        """What was written for ``session``; None where nothing was."""
        name = _file_name(session)
        directory = self._open()
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        except FileNotFoundError:
            return None
        finally:
            os.close(directory)
        with os.fdopen(descriptor, "rb") as file:
            records = file.read().decode("utf-8", "surrogateescape").split("\0")
        return dict(record.split("=", 1) for record in records if record)

    def delete(self, session: str) -> None:
        """Forget the environment of ``session``; nothing to forget is fine."""
        name = _file_name(session)
        directory = self._open()
        try:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory)
        finally:
            os.close(directory)

    def _open(self) -> int:
        try:
            return open_private_directory(self._directory, variable="RAMET_HOME")
        except PathsError as error:
            raise RuntimeDirectoryError(error.message, hint=error.hint) from error


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _file_name(session: str) -> str:
    if not _ID.fullmatch(session):  # ids are ours; anything else would be a path
        raise ValueError(f"not a session id: {session!r}")
    return f"{session}.env"


def _encode(environment: Mapping[str, str]) -> bytes:
    records: list[bytes] = []
    for name, value in environment.items():
        if not _NAME.fullmatch(name):
            raise BadEnvironmentError(
                f"{name!r} cannot be the name of an environment variable", name=name, hint=UNSENDABLE
            )
        try:
            record = f"{name}={value}".encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise BadEnvironmentError(f"the value of {name} is not text", name=name, hint=UNSENDABLE) from error
        if b"\0" in record:
            raise BadEnvironmentError(f"the value of {name} holds a zero byte", name=name, hint=UNSENDABLE)
        records.append(record + b"\0")
    return b"".join(records)
