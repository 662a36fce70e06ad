"""The part of the configuration that turns lines of agents into states."""

from collections.abc import Mapping
from dataclasses import dataclass

from rametd.agents.base import AgentKind
from rametd.config import Config


@dataclass(frozen=True, slots=True)
class Policy:
    config: Config
    kinds: Mapping[str, AgentKind]
