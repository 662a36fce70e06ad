"""A fake daemon for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import World
from tests.support.client import world as make_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with make_world(tmp_path) as made:
        yield made
