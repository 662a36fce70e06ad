"""Check the database, and the copies from which it is rebuilt."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

from rametd.services.core import Core
from rametd.services.upkeep.finding import Finding
from rametd.services.upkeep.rows import known_ids


async def records(core: Core, checked: Counter[str]) -> AsyncIterator[Finding]:
    for message in await core.store.read(lambda reader: reader.health.problems()):
        yield Finding(
            "error", "database-damaged", str(core.state_dir / "ramet.db"), "", message,
            "restart the daemon (`rametctl daemon restart`): it quarantines the database and rebuilds it",
        )  # fmt: skip
    checked["database"] = 1
    paths = await asyncio.to_thread(lambda: sorted((core.state_dir / "index").glob("*.json")))
    known = await core.store.read(known_ids)
    for path in paths:
        checked["index files"] += 1
        if path.stem not in known:

            async def unlink(path: Path = path) -> None:
                await asyncio.to_thread(core.index.delete, path.stem)

            message = "it is the copy of a session that is gone"
            yield Finding("info", "index-unknown", str(path), path.stem, message, "doctor --fix deletes it", unlink)
