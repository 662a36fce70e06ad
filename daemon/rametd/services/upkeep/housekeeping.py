"""Hourly cleanup: expired trash, and old answers to calls."""

import asyncio
from collections.abc import Callable

import structlog

from rametd.domain.errors import RametError
from rametd.services.core import Core
from rametd.services.departures.trash import Trash

log = structlog.get_logger()

PERIOD_S = 3600.0
CALLS_KEPT_S = 7 * 86400.0


async def run(core: Core, trash: Trash, *, period: float = PERIOD_S) -> None:
    """Clean up now and every hour. Failures are logged and retried an hour later."""
    while True:
        try:
            await clean(core, trash, core.clock)
        except RametError as error:
            log.warning("housekeeping", error=error.message)
        await asyncio.sleep(period)


async def clean(core: Core, trash: Trash, clock: Callable[[], float]) -> None:
    """Drop what has expired."""
    now = clock()
    await core.store.write(lambda unit: unit.calls.prune(now - CALLS_KEPT_S))
    for entry in await core.store.read(lambda reader: reader.trash.expired(now)):
        try:
            await trash.drop(entry)
        except RametError as error:  # go on with the other entries
            log.warning("housekeeping", trash=entry.id, error=error.message)
