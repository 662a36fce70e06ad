"""What people get wrong is typed to the one daemon of a module, in its one repository."""

from pathlib import Path

import pytest

from tests.support.daemon import DaemonProcess, Sandbox


@pytest.fixture
def box(running: DaemonProcess) -> Sandbox:
    return running.sandbox


@pytest.fixture
def repo(box: Sandbox) -> Path:
    return box.root / "repo"
