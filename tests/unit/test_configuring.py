"""Applying the configuration file while the daemon runs."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from ramet.paths import directories
from rametd.app import Daemon
from rametd.domain.errors import ReadOnlyError
from rametd.domain.models import Mode

from tests.support.core import bare_core
from tests.support.eventually import eventually
from tests.support.rows import a_repo, a_session


async def test_a_file_whose_change_was_cut_off_is_applied_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "RAMET_HOME": str(tmp_path / "ramet")}
    places = directories(environ)
    places.config_file.parent.mkdir(parents=True, exist_ok=True)
    async with bare_core(tmp_path, environ, lambda: 0.0) as core:
        await core.store.write(
            lambda unit: (unit.repos.upsert(a_repo()), unit.sessions.insert(a_session(mode=Mode.BYPASS)))
        )
        daemon = Daemon(places, environ)
        places.config_file.write_text("max_working = 3\n")
        refused = 0

        async def full(*args: Any, **options: Any) -> None:
            nonlocal refused
            refused += 1
            raise ReadOnlyError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(core.store, "write", full)
            call = asyncio.create_task(daemon._configure(core))
            await eventually(lambda: refused > 0)
            assert not call.done()
            call.cancel()  # the client's Ctrl-C
            await asyncio.wait([call])
        await daemon._configure(core)
        (session,) = await core.store.read(lambda reader: reader.sessions.list())
        assert session.mode == Mode.DEFAULT
