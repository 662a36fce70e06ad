"""The review page: the server's time for the first screen of a diff of 20,000 lines."""

import re
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import closing
from html import unescape

from tests.bench.figures import Figure, Scale, progress
from tests.bench.web import Web, served
from tests.support.daemon import connected, daemon_process, make_sandbox
from tests.support.reviews import ROWS, before, changed


async def rows(scale: Scale) -> AsyncIterator[Figure]:
    with make_sandbox() as sandbox, daemon_process(sandbox, forked=False):
        repository = sandbox.repository(files=scale.files)
        before(repository)
        async with connected(sandbox) as client:
            session = await changed(client, repository)
        progress(f"a diff of {3 * ROWS:,} lines in one file")
        taken = []
        with served(sandbox) as web:
            for number in range(scale.lists + 1):
                began = time.perf_counter()
                page = read(web, f"/sessions/{session.id}/review")
                (url,) = re.findall(r'data-url="([^"]*zz_large[^"]*)"', page)
                # Another version each time, so that the cache does not count.
                shown = read(web, f"{unescape(url)}&view=split&v={number}.")
                taken.append((time.perf_counter() - began) * 1000)
                assert shown.count("<tr") > 100
        how = f"page and first rows of a file of {3 * ROWS:,} added lines, median of {scale.lists}; the very first: {taken[0]:.0f} ms"
        yield Figure("review, first screen of a large diff", statistics.median(taken[1:]), "ms", how, 300)


def read(web: Web, path: str) -> str:
    with closing(web.get(path)) as connection:
        return connection.getresponse().read().decode()
