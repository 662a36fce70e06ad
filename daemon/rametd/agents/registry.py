"""Every kind of agent that this configuration has, by the name that sessions store."""

from rametd.agents.base import AgentKind
from rametd.agents.claude.kind import Claude
from rametd.config import Config


def kinds_of(config: Config) -> dict[str, AgentKind]:
    """Claude Code, and one kind for each preset."""
    return {"claude": Claude(config.agents.claude)}
