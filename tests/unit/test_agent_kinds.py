"""Capabilities of each kind of agent, and refusals of missing ones."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import cast

import pytest
from rametd.agents.base import UNABLE, AgentKind, Capabilities, require, require_mode
from rametd.agents.claude.kind import Claude
from rametd.agents.presets import PRESETS
from rametd.agents.registry import described, inspected, kinds_of
from rametd.config import ClaudeSettings, Config
from rametd.domain.errors import AgentUnableError
from rametd.domain.models import Mode


@dataclass
class Limited:
    name = "limited"
    capabilities = Capabilities(ask=False)
    modes = frozenset({Mode.BYPASS, Mode.PLAN})


LIMITED = cast("AgentKind", Limited())


@pytest.mark.parametrize("capability", UNABLE)
def test_a_missing_capability_is_refused_in_words(capability: str) -> None:
    if getattr(LIMITED.capabilities, capability):
        require(LIMITED, capability)
        return
    with pytest.raises(AgentUnableError, match=r"^limited cannot ") as caught:
        require(LIMITED, capability, hint="do something else")
    assert caught.value.hint == "do something else"


def test_every_word_of_a_refusal_names_a_capability() -> None:
    assert UNABLE.keys() <= {field.name for field in fields(Capabilities)}


def test_a_mode_that_a_kind_lacks_is_refused_with_those_it_has() -> None:
    require_mode(LIMITED, Mode.PLAN)
    with pytest.raises(
        AgentUnableError, match=r"cannot run in the mode default: it cannot ask before a call"
    ) as caught:
        require_mode(LIMITED, Mode.DEFAULT)
    assert caught.value.hint == "use one of its modes: plan, bypassPermissions"


def test_kinds_are_found_by_the_name_that_they_state() -> None:
    kinds = kinds_of(Config())
    assert kinds["claude"].capabilities.steer
    assert all(name == kind.name for name, kind in kinds.items())
    assert len({preset.name for preset in PRESETS} | {"claude"}) == len(PRESETS) + 1


async def test_without_any_agent_each_kind_says_how_to_get_it(tmp_path: Path) -> None:
    claude = Claude(ClaudeSettings(path=tmp_path / "claude"))
    for preset in described(Config()):
        found = await inspected(preset, claude, {"PATH": str(tmp_path)}, start=True)
        assert not found.installed
        assert found.problem.startswith("there is no ")
        assert "install" in preset.install
