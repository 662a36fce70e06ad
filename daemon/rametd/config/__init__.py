"""Configuration: declared in one table, read from the owner's file and the repository's, checked,
and shown.

The owner's file may set everything. A repository's `.ramet.toml` may set the settings that are
marked so, with precedence over the owner's file: the repository knows its own setup. It runs
commands, so read it only once the owner trusts the repository.
"""

from rametd.config.files import (
    REPOSITORY_FILE,
    Effective,
    Problem,
    Source,
    check,
    combine,
    effective,
    from_items,
    items,
    load,
)
from rametd.config.kinds import AgentSettings, Kind, Setting
from rametd.config.model import SETTINGS, Budget, Caps, ClaudeSettings, Config

__all__ = [
    "REPOSITORY_FILE",
    "SETTINGS",
    "AgentSettings",
    "Budget",
    "Caps",
    "ClaudeSettings",
    "Config",
    "Effective",
    "Kind",
    "Problem",
    "Setting",
    "Source",
    "check",
    "combine",
    "effective",
    "from_items",
    "items",
    "load",
]
