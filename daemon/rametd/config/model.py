"""All settings: key, type, default, meaning, and whether a repository may set it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import cast

from ramet.environment import NEVER

from rametd.config.kinds import (
    ARGV,
    BOOLEAN,
    COMMANDS,
    DURATION,
    DURATION_OR_NEVER,
    MONEY,
    NAMED_AGENTS,
    NAMED_COMMANDS,
    PATH,
    PATTERNS_INSIDE,
    SECRET,
    SIZE,
    URL,
    AgentSettings,
    Kind,
    RefusedError,
    Setting,
    declared,
    one_of,
    optional,
    setting,
    some_of,
    string,
    strings,
    whole,
)
from rametd.domain.models import EFFORTS, STRICTEST_MODE, Mode
from rametd.domain.notifications import Topic

MIB = 1 << 20
DAY = 86400.0


def _environment_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if any(fnmatchcase(name, never) for never in NEVER):
            raise RefusedError(f"{name} is never passed on: it belongs to another process")
    return names


MODE = Kind(
    f"{one_of(*Mode).accepts} (or manual, which is default)",
    lambda value: Mode("default" if value == "manual" else cast("str", value)),
)
MODEL = string(r"(?:[A-Za-z0-9][\w.:/@\[\]-]*)?", 'the name of a model, such as "opus"')
_TELL = one_of("running", "always", "never")
TELL = Kind(
    _TELL.accepts,
    lambda value: ("running" if value else "never") if isinstance(value, bool) else _TELL.parse(value),
)
GLOBS = strings(r".+", "globs")
ENVIRONMENT_NAMES = Kind(
    "a list of names of environment variables, in which * is any part",
    lambda value: _environment_names(strings(r"[A-Za-z_*][A-Za-z0-9_*]*", "").parse(value)),
)
BRANCH_PREFIX = string(
    r"(?:[A-Za-z0-9_][A-Za-z0-9_-]*(?:/[A-Za-z0-9_][A-Za-z0-9_-]*)*/?)?",
    'the beginning of a branch name: letters, digits, -, _ and /, such as "ramet/"',
)

TOPICS = some_of(*Topic)
QUIET_HOURS = string(r"(?:([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d)?", 'hours such as "22:00-07:30"')
REMOTE = string(r"(?:[A-Za-z0-9_][A-Za-z0-9_./-]*)?", 'the name of a remote, such as "origin"')


@dataclass(frozen=True, slots=True)
class Permissions:
    default_mode: Mode = setting(
        MODE, Mode.DEFAULT, "Permission mode of new sessions.", repository=True, fallback=STRICTEST_MODE
    )
    allow_bypass: bool = setting(
        BOOLEAN, False, "Whether sessions may run in the modes auto and bypassPermissions, in which no person decides."
    )


@dataclass(frozen=True, slots=True)
class ClaudeSettings:
    path: Path | None = setting(PATH, None, "Path of the Claude Code program; unset: the one that comes with the SDK.")
    pass_env: tuple[str, ...] = setting(
        ENVIRONMENT_NAMES, (), "Environment variables that Ramet passes to agents besides those on the allow-list."
    )
    model: str = setting(MODEL, "", "Model of new sessions; empty: Claude Code's own default.", repository=True)
    effort: str = setting(
        one_of("", *EFFORTS), "", "Effort of new sessions; empty: Claude Code's own default.", repository=True
    )
    config_dir: Path | None = setting(PATH, None, "Claude's configuration directory; unset: your own, with your login.")


@dataclass(frozen=True, slots=True)
class Agents:
    claude: ClaudeSettings = field(default_factory=ClaudeSettings)
    others: Mapping[str, AgentSettings] = setting(
        NAMED_AGENTS,
        MappingProxyType({}),
        "Agents of the Agent Client Protocol, [agents.NAME]: command, env and modes of an additional one, or changes of a known one.",
    )
    sleep_after: float = setting(
        DURATION_OR_NEVER, 600.0, "How long an agent may be idle before Ramet ends its process until the next prompt."
    )
    sleep_after_background: float = setting(
        DURATION_OR_NEVER, 21_600.0, "The same for an agent with a running background command, which Ramet ends too."
    )
    max_resumes: int = setting(whole(0, 100), 3, "How often Ramet resumes a lost agent before it asks you.")
    nice: int = setting(
        whole(0, 19),
        5,
        "Niceness of agents: at 0 they compete with the daemon and your own programs for a busy processor.",
    )


@dataclass(frozen=True, slots=True)
class Worktrees:
    root: Path | None = setting(PATH, None, "Directory of new worktrees; unset: in the state directory.")
    branch_prefix: str = setting(BRANCH_PREFIX, "ramet/", "Prefix of the names of new branches.", repository=True)


@dataclass(frozen=True, slots=True)
class Pool:
    size: int = setting(
        whole(0, 64, "worktrees"), 1, "Number of spares, prepared worktrees, for each repository.", repository=True
    )
    warm_agents: int = setting(
        whole(0, 16, "agents"),
        0,
        "Number of spares with a started agent; each takes 190 MB of memory.",
        repository=True,
    )
    min_free: int = setting(
        SIZE, 2048 * MIB, "Free space on the disk below which Ramet creates no spares and removes existing ones."
    )


@dataclass(frozen=True, slots=True)
class Ports:
    base: int = setting(whole(1024, 65000), 20000, "First port number for sessions.")
    per_session: int = setting(whole(0, 100, "ports"), 10, "Number of ports for each session.", repository=True)


@dataclass(frozen=True, slots=True)
class Caps:
    depth: int = setting(whole(0, 16), 3, "Maximum depth of sessions that agents spawn; 0: none.")
    children: int = setting(whole(0, 1000), 8, "Maximum number of living children of a session.")
    tree: int = setting(whole(1, 10000), 50, "Maximum number of sessions in a tree.")
    spawns_per_minute: int = setting(
        whole(0, 1000), 20, "Maximum number of sessions that a tree may spawn in a minute."
    )


@dataclass(frozen=True, slots=True)
class Budget:
    session: float | None = setting(MONEY, None, "Maximum cost of a session, which is then paused; unset: no limit.")
    tree: float | None = setting(MONEY, None, "Maximum cost of a session and all its descendants; unset: no limit.")
    day: float | None = setting(MONEY, None, "Maximum cost of all sessions in a day; unset: no limit.")


@dataclass(frozen=True, slots=True)
class Land:
    method: str = setting(
        one_of("merge", "squash", "rebase"), "merge", "Method of landing a session's work.", repository=True
    )
    check: tuple[str, ...] = setting(
        COMMANDS, (), "Commands that must succeed on the merged tree before it lands.", repository=True
    )
    protected: tuple[str, ...] = setting(
        GLOBS,
        (),
        "Branches that change by pull request only (globs); unset: those that track a remote branch.",
        repository=True,
    )
    max_returns: int = setting(
        whole(0, 20),
        2,
        "How often Ramet returns work that conflicts or fails its check to the agent before it asks you.",
    )
    check_timeout: float = setting(DURATION, 1800.0, "Time limit of the check.", repository=True)


@dataclass(frozen=True, slots=True)
class PullRequests:
    draft: bool = setting(BOOLEAN, True, "Whether to open pull requests as drafts.", repository=True)
    show_cost: bool = setting(BOOLEAN, False, "Whether the text of a pull request has the cost of the session.")
    remote: str = setting(
        REMOTE, "", "The remote to push branches to; empty: that of the base, else origin.", repository=True
    )


@dataclass(frozen=True, slots=True)
class Radar:
    tell_agents: str = setting(
        TELL,
        "running",
        'Agents to warn when another session changes the same lines differently: with their next command or prompt ("running"),'
        ' or also by a paid turn of an idle agent ("always").',
        repository=True,
    )


@dataclass(frozen=True, slots=True)
class NotifyWay:
    """Settings that each way of notification has."""

    min_age: float | None = setting(
        optional(DURATION), None, "How long an item must wait for you before this way notifies; unset: notify.min_age."
    )
    on: tuple[str, ...] | None = setting(
        optional(TOPICS), None, "Topics that this way notifies of, if notify.on has them too; unset: all of those."
    )
    repos: tuple[str, ...] = setting(GLOBS, ("*",), "Names of the repositories that this way notifies of (globs).")


@dataclass(frozen=True, slots=True)
class NotifyDesktop(NotifyWay):
    enabled: bool = setting(BOOLEAN, False, "Whether to show notifications on the desktop (notify-send, osascript).")


@dataclass(frozen=True, slots=True)
class NotifyNtfy(NotifyWay):
    url: str | None = setting(optional(URL), None, "URL of an ntfy topic to publish to; unset: none.")
    token: str | None = setting(optional(SECRET), None, "Access token for the ntfy server.")
    include_text: bool = setting(
        BOOLEAN, False, "Whether to send texts of agents and yours: commands, questions, last words."
    )


@dataclass(frozen=True, slots=True)
class NotifyWebhook(NotifyWay):
    url: str | None = setting(optional(URL), None, "URL to POST notifications to, as JSON; unset: none.")
    format: str = setting(
        one_of("json", "slack"), "json", "Form of the JSON: Ramet's own, or an incoming webhook of Slack."
    )
    include_text: bool = setting(
        BOOLEAN, False, "Whether to send texts of agents and yours: commands, questions, last words."
    )


@dataclass(frozen=True, slots=True)
class NotifyCommand(NotifyWay):
    argv: tuple[str, ...] | None = setting(
        optional(ARGV),
        None,
        "Program to run for each notification, which it reads as JSON on its standard input; unset: none.",
    )


@dataclass(frozen=True, slots=True)
class Notify:
    on: tuple[str, ...] = setting(
        TOPICS,
        ("waiting", "review", "failed", "budget", "conflict", "limit"),
        "Topics to notify of.",
    )
    min_age: float = setting(
        DURATION, 10.0, "How long an item must wait for you before Ramet notifies; an answer before that cancels it."
    )
    quiet: str = setting(
        QUIET_HOURS, "", "Hours of your local time without notifications; items that still wait are sent afterwards."
    )
    terminal: str = setting(
        one_of("auto", "bell", "off"),
        "auto",
        "How `watch` and the dashboard notify in their terminal: auto picks what the terminal understands.",
    )
    desktop: NotifyDesktop = field(default_factory=NotifyDesktop)
    ntfy: NotifyNtfy = field(default_factory=NotifyNtfy)
    webhook: NotifyWebhook = field(default_factory=NotifyWebhook)
    command: NotifyCommand = field(default_factory=NotifyCommand)


@dataclass(frozen=True, slots=True)
class Journal:
    rotate_at: int = setting(
        SIZE, 64 * MIB, "Size at which Ramet rotates an agent's journal, once its events are stored."
    )


@dataclass(frozen=True, slots=True)
class Retention:
    trash: float = setting(DURATION, 30 * DAY, "How long removed work stays in the trash and can be restored.")
    stale: float = setting(
        DURATION, 30 * DAY, "Inactivity after which gc considers a session stale, if removing it loses no work."
    )
    archive: float = setting(
        DURATION_OR_NEVER, math.inf, "Age at which gc removes archived sessions; never: it only lists them."
    )


@dataclass(frozen=True, slots=True)
class LogSettings:
    level: str = setting(one_of("debug", "info", "warning", "error"), "info", "Lowest level of lines in the log.")


@dataclass(frozen=True, slots=True)
class Config:
    """The effective configuration. Durations are seconds, sizes bytes, money US dollars; None is
    unset."""

    max_working: int = setting(whole(1, 1000, "agents"), 8, "Maximum number of working agents; others wait in a queue.")
    editor: tuple[str, ...] | None = setting(
        optional(ARGV), None, "Program with which `rametctl open` opens a worktree; unset: $VISUAL or $EDITOR."
    )
    permissions: Permissions = field(default_factory=Permissions)
    agents: Agents = field(default_factory=Agents)
    worktrees: Worktrees = field(default_factory=Worktrees)
    pool: Pool = field(default_factory=Pool)
    setup: tuple[str, ...] = setting(COMMANDS, (), "Commands that prepare a new worktree.", repository=True)
    setup_files: tuple[str, ...] = setting(
        PATTERNS_INSIDE,
        (),
        "Files whose change makes the setup run again; empty: the known lock files in the top directory.",
        repository=True,
    )
    setup_timeout: float = setting(DURATION, 1800.0, "Time limit of a setup.", repository=True)
    teardown: tuple[str, ...] = setting(
        COMMANDS, (), "Commands that run in a worktree before Ramet removes it.", repository=True
    )
    teardown_timeout: float = setting(DURATION, 60.0, "Time limit of a teardown.", repository=True)
    run: Mapping[str, str] = setting(
        NAMED_COMMANDS, MappingProxyType({}), "Named commands for `rametctl run`.", repository=True
    )
    carry: tuple[str, ...] = setting(
        PATTERNS_INSIDE, (), "Ignored files and directories to copy into new worktrees.", repository=True
    )
    carry_rewrite: tuple[str, ...] = setting(
        PATTERNS_INSIDE,
        (),
        "Carried files in which Ramet replaces the path of the main worktree by that of the new one.",
        repository=True,
    )
    carry_limit: int = setting(
        SIZE,
        256 * MIB,
        "Maximum space of copies in a new worktree; shared blocks do not count.",
        repository=True,
    )
    ports: Ports = field(default_factory=Ports)
    caps: Caps = field(default_factory=Caps)
    budget: Budget = field(default_factory=Budget)
    land: Land = field(default_factory=Land)
    pr: PullRequests = field(default_factory=PullRequests)
    radar: Radar = field(default_factory=Radar)
    notify: Notify = field(default_factory=Notify)
    journal: Journal = field(default_factory=Journal)
    retention: Retention = field(default_factory=Retention)
    log: LogSettings = field(default_factory=LogSettings)

    origins: Mapping[str, str] = field(default_factory=dict)
    """Key → "owner file" or "repository file"; a missing key has its default."""
    warnings: tuple[str, ...] = field(default=(), compare=False)
    """Warnings for the person about a valid configuration."""


SETTINGS: tuple[Setting, ...] = tuple(declared(Config))
