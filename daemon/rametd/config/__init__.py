"""Configuration: declared in one table, read from the owner's file and the repository's, checked,
and shown.

The owner's file may set everything. A repository's `.ramet.toml` may set what is marked so, and
wins there: it knows its own setup. It runs commands, so it is only to be read once the owner trusts
the repository.
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
