"""Rules, calls and verdicts."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any


class Effect(StrEnum):
    """Effect of a rule on matching calls. Deny overrides ask, ask overrides allow."""

    DENY = "deny"
    ASK = "ask"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as typed, such as ``Bash(git status:*)``."""

    id: str
    effect: Effect
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call that an agent requests. Patterns are relative to ``worktree``, an absolute path.

    ``cwd``: the agent's working directory; None for the worktree's top.
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
    """Result of the rules for a call, with the reason. If ``effect`` is None, no rule applies and
    the session's mode decides."""

    effect: Effect | None
    rule: Rule | None
    reason: str
