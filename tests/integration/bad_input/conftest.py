"""One daemon and one repository for the mistakes of a module."""

from pathlib import Path

import pytest

from tests.support.daemon import DaemonProcess, Sandbox


@pytest.fixture
def box(running: DaemonProcess) -> Sandbox:
    return running.sandbox


@pytest.fixture
def repo(box: Sandbox) -> Path:
    return box.root / "repo"
