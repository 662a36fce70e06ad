"""All kinds of agents in this configuration, by the name that sessions store."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rametd.agents.acp.kind import Acp
from rametd.agents.base import AgentKind
from rametd.agents.claude.kind import Claude
from rametd.agents.inspection import Inspection, inspect, run
from rametd.agents.presets import Preset, presets_of
from rametd.config import Config
from rametd.domain.errors import AgentUnavailableError, InvalidInputError
from rametd.domain.models import Mode

CLAUDE = Preset(
    name="claude",
    title="Claude Code",
    command=("claude",),
    modes={mode: str(mode) for mode in Mode},
    capabilities=Claude.capabilities,
    login="claude /login",
    install='pip install "ramet[daemon]"',
    tried="2.1.332",
)


def described(config: Config) -> tuple[Preset, ...]:
    """Return every kind of agent as data, the default one first."""
    return (CLAUDE, *presets_of(config.agents.others))


def chosen(config: Config, names: Sequence[str]) -> tuple[Preset, ...]:
    """Return the kinds with these names, or all. Raise `InvalidInputError` for an unknown name."""
    known = {each.name: each for each in described(config)}
    if strange := [name for name in names if name not in known]:
        raise InvalidInputError(f"there is no agent {strange[0]!r}", hint=f"use one of: {', '.join(known)}")
    return tuple(known[name] for name in names) if names else tuple(known.values())


async def inspected(preset: Preset, claude: Claude, environment: Mapping[str, str], *, start: bool) -> Inspection:
    """Inspect the program of a kind; with ``start`` also whether it works and a person is logged
    in."""
    if preset is not CLAUDE:
        return await inspect(preset, environment, start=start)
    try:
        found = Inspection(installed=True, path=str(claude.path), version=(await claude.check()).split()[0])
    except AgentUnavailableError as error:
        return Inspection(installed=False, problem=error.message)
    if not start:
        return found
    _, output = await run(found.path, "auth", "status", env={**environment, **claude.variables})
    try:
        return replace(found, logged_in=bool(json.loads(output)["loggedIn"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return found


def kinds_of(config: Config, environment: Mapping[str, str] | None = None) -> dict[str, AgentKind]:
    """Return Claude Code and one kind for each preset; their programs are looked up on the PATH of
    ``environment``."""
    acp = (Acp(preset, environment or {}) for preset in presets_of(config.agents.others))
    return {"claude": Claude(config.agents.claude), **{kind.name: kind for kind in acp}}
