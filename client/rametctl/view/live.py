"""Draw a view until Ctrl-C, for verbs that follow."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from ramet.v1.common_pb2 import Cursor
from ramet.v1.session_pb2 import Session

from rametctl.app import App
from rametctl.connection.follow import GIVE_UP
from rametctl.connection.link import Link
from rametctl.errors import ClientError, ConnectionLostError, is_transient
from rametctl.view.model import View


def draw(
    app: "App",
    paint: Callable[[View], Awaitable[None]],
    *,
    every: float,
    tick: float | None = None,
    after: "Cursor | None" = None,
    sessions: Iterable[Session] = (),
) -> None:
    """Call ``paint`` for each change of a view, and ``tick`` seconds after the last one; at most
    once in ``every`` seconds.

    A paint whose call finds no daemon is repeated. ``after``, ``sessions``: see `View`. Raise
    UnreachableError if there is no daemon, also after ``GIVE_UP`` seconds without one.
    """
    asyncio.run(_draw(app, paint, every, tick, after, sessions))


async def _draw(
    app: "App",
    paint: Callable[[View], Awaitable[None]],
    every: float,
    tick: float | None,
    after: "Cursor | None",
    sessions: Iterable[Session],
) -> None:
    link = Link(app.directories, app.environ, autostart=app.autostart)
    view = View(link, after=after, sessions=sessions)
    # The painter first: what it wants before the view runs begins with the events after the cursor.
    tasks = [asyncio.create_task(paint_changes(view, paint, every, tick)), asyncio.create_task(view.run())]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await link.close()


async def paint_changes(view: View, paint: Callable[[View], Awaitable[None]], every: float, tick: float | None) -> None:
    while True:
        view.changed.clear()
        if (outage := view.outage) is not None:
            never_there = not view.ready.is_set() and not isinstance(outage.error, ConnectionLostError)
            if never_there and outage.error.reason != "RECOVERING":
                raise outage.error
            if time.monotonic() - outage.since > GIVE_UP:
                raise outage.error
        if view.ready.is_set():
            try:
                await paint(view)
            except ClientError as error:
                if not is_transient(error):
                    raise
                # The view meets the outage too, counts its seconds, and paints again when it is
                # over.
        await asyncio.sleep(every)
        # `asyncio.wait_for` of Python 3.11 ignores a cancellation that comes together with the
        # change.
        with suppress(TimeoutError):
            async with asyncio.timeout(tick):
                await view.changed.wait()
