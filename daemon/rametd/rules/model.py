"""Rules, calls and verdicts."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any


class Effect(StrEnum):
    """What a rule does with the calls that it matches; deny goes before ask, ask before allow."""

    DENY = "deny"
    ASK = "ask"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as its owner typed it, e.g. ``Bash(git status:*)``."""

    id: str
    effect: Effect
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call that an agent wants to make. Rules are relative to ``worktree``, absolute; ``cwd`` is the directory in which
    the agent stands, None for the worktree's top.
    """

    tool: str
    input: Mapping[str, Any]
    worktree: Path
    cwd: Path | None = None

    @property
    def directory(self) -> Path:
        return self.cwd or self.worktree


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the rules say of a call. No ``effect``: nothing, so that the session's mode decides; ``reason`` says why."""

    effect: Effect | None
    rule: Rule | None
    reason: str
