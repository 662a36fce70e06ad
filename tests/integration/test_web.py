"""The web page over HTTP: who gets what, what forms do, and texts of others as data."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.client import World
from tests.support.client import world as make_world
from tests.support.web import Visitor, visiting


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with make_world(tmp_path) as made:
        yield made


@pytest.fixture
async def owner(world: World) -> AsyncIterator[Visitor]:
    world.state.session("fix", repo="shop")
    async with visiting(world.environ, world.home) as visitor:
        yield visitor


async def test_each_page_is_drawn(owner: Visitor, world: World) -> None:
    (id_,) = world.state.sessions
    for path in ("/", "/inbox", f"/sessions/{id_}"):
        answer = await owner.get(path)
        assert answer.status_code == 200, answer.text
        assert "fix" in answer.text or path == "/inbox"
