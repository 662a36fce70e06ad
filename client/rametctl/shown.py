"""Requests that this person has been shown, so that ``approve NAME`` never means a later one."""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ramet.v1.attention_pb2 import AttentionRequest

from rametctl.app import App

MOST = 1000
"""Most remembered ids, the newest last."""


def remember(app: "App", requests: "Iterable[AttentionRequest]") -> None:
    """Note that requests were shown on this person's terminal; do nothing elsewhere."""
    if not app.output.terminal:
        return
    known = _read(app)
    fresh = [request.id for request in requests if request.id not in known]
    if not fresh:
        return
    path = _file(app)
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    # Without it, the person is asked once more.
    with suppress(OSError):
        scratch.write_text(json.dumps([*known, *fresh][-MOST:]))
        scratch.replace(path)


def was_shown(app: "App", request: "AttentionRequest") -> bool:
    return request.id in _read(app)


def _read(app: "App") -> list[str]:
    try:
        found = json.loads(_file(app).read_text())
    except (OSError, ValueError):
        return []
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _file(app: "App") -> Path:
    return app.directories.home / "shown.json"
