"""Sessions that work together, with the real Claude Code CLI: it calls the daemon's tools over MCP, and only the model is scripted."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from ramet.v1 import attention_pb2, session_pb2

from tests.support.agents import script, scripted_model
from tests.support.daemon import (
    IDLE,
    PAUSED,
    WORKING,
    Client,
    DaemonProcess,
    Sandbox,
    connected,
    daemon_process,
    make_sandbox,
)
from tests.support.eventually import eventually
from tests.support.family import EDITS, Step, bash, payloads, sessions, told

pytestmark = pytest.mark.real_cli


@pytest.fixture(scope="module")
def model() -> Iterator[int]:
    """A scripted model for all tests here; its port."""
    with model_process() as port:
        yield port


@pytest.fixture(scope="module")
def running(model: int) -> Iterator[DaemonProcess]:
    with make_sandbox(model_port=model, real_cli=True) as sandbox, daemon_process(sandbox) as daemon:
        sandbox.repository()
        yield daemon
