"""Every setting, declared once: its key, type, default, meaning, and whether a repository may set it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import cast

from ramet.environment import NEVER

from rametd.config.kinds import (
    BOOLEAN,
    COMMANDS,
    DURATION,
    DURATION_OR_NEVER,
    MONEY,
    NAMED_COMMANDS,
    PATH,
    PATTERNS_INSIDE,
    SIZE,
    Kind,
    RefusedError,
    Setting,
    declared,
    one_of,
    setting,
    string,
    strings,
    whole,
)
from rametd.domain.models import STRICTEST_MODE, Mode

MIB = 1 << 20
DAY = 86400.0


def _environment_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if any(fnmatchcase(name, never) for never in NEVER):
            raise RefusedError(f"{name} is never passed on: it belongs to another process")
    return names


MODE = Kind(one_of(*Mode).accepts, lambda value: Mode(cast("str", value)))
GLOBS = strings(r".+", "globs")
ENVIRONMENT_NAMES = Kind(
    "a list of names of environment variables, * standing for any part",
    lambda value: _environment_names(strings(r"[A-Za-z_*][A-Za-z0-9_*]*", "").parse(value)),
)
BRANCH_PREFIX = string(
    r"(?:[A-Za-z0-9_][A-Za-z0-9_-]*(?:/[A-Za-z0-9_][A-Za-z0-9_-]*)*/?)?",
    'the beginning of a branch name: letters, digits, -, _ and /, such as "ramet/"',
)

REMOTE = string(r"(?:[A-Za-z0-9_][A-Za-z0-9_./-]*)?", 'the name of a remote, such as "origin"')


@dataclass(frozen=True, slots=True)
class Permissions:
    default_mode: Mode = setting(
        MODE, Mode.DEFAULT, "Permission mode of new sessions.", repository=True, fallback=STRICTEST_MODE
    )
    allow_bypass: bool = setting(BOOLEAN, False, "Whether sessions may run in the mode bypassPermissions.")


@dataclass(frozen=True, slots=True)
class ClaudeSettings:
    path: Path | None = setting(PATH, None, "The Claude Code program; unset: the one that comes with the SDK.")
    pass_env: tuple[str, ...] = setting(
        ENVIRONMENT_NAMES, (), "Environment variables that agents get besides those on the allow-list."
    )
    config_dir: Path | None = setting(
        PATH, None, "Claude's own configuration directory; unset: that of the person, with their login."
    )


@dataclass(frozen=True, slots=True)
class Agents:
    claude: ClaudeSettings = field(default_factory=ClaudeSettings)
    sleep_after: float = setting(
        DURATION_OR_NEVER, 600.0, "How long an agent may be idle before its process is ended until the next prompt."
    )
    sleep_after_background: float = setting(
        DURATION_OR_NEVER, 21_600.0, "The same where a command runs in the agent's background; it is ended with it."
    )
    max_resumes: int = setting(
        whole(0, 100), 3, "How often an agent that was lost is resumed by itself before a person is asked."
    )


@dataclass(frozen=True, slots=True)
class Worktrees:
    root: Path | None = setting(PATH, None, "Where worktrees are made; unset: in the state directory.")
    branch_prefix: str = setting(BRANCH_PREFIX, "ramet/", "What the names of new branches begin with.", repository=True)


@dataclass(frozen=True, slots=True)
class Pool:
    size: int = setting(
        whole(0, 64, "worktrees"), 1, "Prepared spare worktrees to keep for each repository.", repository=True
    )
    warm_agents: int = setting(
        whole(0, 16, "agents"),
        0,
        "How many of the spares have an agent started in them; each takes 190 MB of memory.",
        repository=True,
    )
    min_free: int = setting(
        SIZE, 2048 * MIB, "Room to leave on the disk: with less, no spare is made, and those that are there go."
    )


@dataclass(frozen=True, slots=True)
class Ports:
    base: int = setting(whole(1024, 65000), 20000, "The first port number that sessions are given.")
    per_session: int = setting(whole(0, 100, "ports"), 10, "How many ports a session is given.", repository=True)


@dataclass(frozen=True, slots=True)
class Caps:
    depth: int = setting(whole(0, 16), 3, "How many generations of sessions agents may spawn; 0: none.")
    children: int = setting(whole(0, 1000), 8, "How many living children a session may have.")
    tree: int = setting(whole(1, 10000), 50, "How many sessions a tree may have in all.")
    spawns_per_minute: int = setting(whole(0, 1000), 20, "How many sessions a tree may spawn in a minute.")


@dataclass(frozen=True, slots=True)
class Budget:
    session: float | None = setting(MONEY, None, "What a session may cost before it is paused; unset: no limit.")
    tree: float | None = setting(MONEY, None, "What a session and all its descendants may cost; unset: no limit.")
    day: float | None = setting(MONEY, None, "What all sessions may cost in a day; unset: no limit.")


@dataclass(frozen=True, slots=True)
class Land:
    method: str = setting(
        one_of("merge", "squash", "rebase"), "merge", "How a session's work is landed.", repository=True
    )
    check: tuple[str, ...] = setting(
        COMMANDS, (), "What must succeed on the merged tree before it is landed.", repository=True
    )
    protected: tuple[str, ...] = setting(
        GLOBS,
        (),
        "Branches that are changed by pull requests only (globs); unset: those that follow a branch of a remote.",
        repository=True,
    )
    max_returns: int = setting(
        whole(0, 20),
        2,
        "How often work that conflicts or fails its check goes back to its agent before a person is asked.",
    )
    check_timeout: float = setting(DURATION, 1800.0, "How long the check may take.", repository=True)


@dataclass(frozen=True, slots=True)
class PullRequests:
    draft: bool = setting(BOOLEAN, True, "Whether pull requests are opened as drafts.", repository=True)
    remote: str = setting(
        REMOTE, "", "The remote that branches are pushed to; empty: that of the base, else origin.", repository=True
    )


@dataclass(frozen=True, slots=True)
class Radar:
    tell_agents: bool = setting(
        BOOLEAN, True, "Whether agents are told that a sibling changes the same lines in another way.", repository=True
    )


@dataclass(frozen=True, slots=True)
class Journal:
    rotate_at: int = setting(SIZE, 64 * MIB, "Size at which an agent's journal is rotated, once its events are stored.")


@dataclass(frozen=True, slots=True)
class Retention:
    trash: float = setting(DURATION, 30 * DAY, "How long removed work can be restored from the trash.")
    stale: float = setting(
        DURATION, 30 * DAY, "After how long without a word gc takes a session for stale, if nothing of it can be lost."
    )
    archive: float = setting(
        DURATION_OR_NEVER, math.inf, "After how long gc removes what is archived; never: it only lists it."
    )


@dataclass(frozen=True, slots=True)
class LogSettings:
    level: str = setting(
        one_of("debug", "info", "warning", "error"), "info", "The least important lines that are logged."
    )


@dataclass(frozen=True, slots=True)
class Config:
    """The effective configuration. Durations are seconds, sizes bytes, money US dollars; None is unset."""

    max_working: int = setting(
        whole(1, 1000, "agents"), 8, "How many agents may be at work at once; others wait in a queue."
    )
    permissions: Permissions = field(default_factory=Permissions)
    agents: Agents = field(default_factory=Agents)
    worktrees: Worktrees = field(default_factory=Worktrees)
    pool: Pool = field(default_factory=Pool)
    setup: tuple[str, ...] = setting(COMMANDS, (), "What prepares a new worktree.", repository=True)
    setup_files: tuple[str, ...] = setting(
        PATTERNS_INSIDE,
        (),
        "Files whose change makes the setup run again; none: the known lock files at the top.",
        repository=True,
    )
    setup_timeout: float = setting(DURATION, 1800.0, "How long a setup may take before it is ended.", repository=True)
    teardown: tuple[str, ...] = setting(COMMANDS, (), "What runs in a worktree before it is removed.", repository=True)
    teardown_timeout: float = setting(
        DURATION, 60.0, "How long a teardown may take before it is ended.", repository=True
    )
    run: Mapping[str, str] = setting(
        NAMED_COMMANDS, MappingProxyType({}), "Commands that can be run in a worktree by name.", repository=True
    )
    carry: tuple[str, ...] = setting(
        PATTERNS_INSIDE, (), "Ignored files and directories that new worktrees get copies of.", repository=True
    )
    carry_rewrite: tuple[str, ...] = setting(
        PATTERNS_INSIDE,
        (),
        "Those of them in which absolute paths into the main worktree become the new one's.",
        repository=True,
    )
    carry_limit: int = setting(
        SIZE,
        256 * MIB,
        "How much space copies may take in a new worktree; blocks that are shared do not count.",
        repository=True,
    )
    ports: Ports = field(default_factory=Ports)
    caps: Caps = field(default_factory=Caps)
    budget: Budget = field(default_factory=Budget)
    land: Land = field(default_factory=Land)
    pr: PullRequests = field(default_factory=PullRequests)
    radar: Radar = field(default_factory=Radar)
    journal: Journal = field(default_factory=Journal)
    retention: Retention = field(default_factory=Retention)
    log: LogSettings = field(default_factory=LogSettings)

    origins: Mapping[str, str] = field(default_factory=dict)
    """Key → "owner file" or "repository file"; a key that is not in it has its default."""
    warnings: tuple[str, ...] = field(default=(), compare=False)
    """What to tell the person although it works."""


SETTINGS: tuple[Setting, ...] = tuple(declared(Config))
