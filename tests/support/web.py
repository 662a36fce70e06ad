"""The web page in tests: its application without a socket, signed in as the owner, with a fake
daemon."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing, suppress
from typing import Any

import httpx
from ramet.paths import directories
from rametctl.connection.link import Link
from rametctl.web.access import Access
from rametctl.web.server import Server, application, listening
from rametctl.web.site import Site
from starlette.routing import Route

from tests.support.eventually import eventually

HOST = "127.0.0.1:7363"
ORIGIN = f"http://{HOST}"
COOKIE = "ramet_7363"


class Visitor:
    """A simulated browser; ``cookie`` has its rights."""

    def __init__(self, site: Site, cookie: str) -> None:
        self.site = site
        self.cookie = cookie
        app = application(site, hosts=["ramet.example"], cookie=COOKIE)
        self.paths = [each.path for each in app.routes if isinstance(each, Route) and "GET" in (each.methods or ())]
        """Paths of all routes for GET, public ones included."""
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=ORIGIN)

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.ask("GET", path, **headers)

    async def post(self, path: str, values: Any = None, **headers: str) -> httpx.Response:
        return await self.ask("POST", path, values=values or {}, **{"origin": ORIGIN, **headers})

    async def ask(self, method: str, path: str, *, values: Any = None, **headers: str) -> httpx.Response:
        sent = {"cookie": f"{COOKIE}={self.cookie}", **headers}
        return await self.http.request(method, path, json=values, headers=sent)

    def link(self, **fields: Any) -> "Visitor":
        """Return another visitor with its own link; ``session`` makes it read-only."""
        return Visitor(self.site, cookie(self.site.access, **fields))


def cookie(access: Access, **fields: Any) -> str:
    """Return the cookie of a new browser session."""
    opened = access.open(access.link(**fields), "test")
    assert opened is not None
    return opened[0]


@asynccontextmanager
async def visiting(environ: Mapping[str, str]) -> AsyncIterator[Visitor]:
    """Yield a site that is updated inside the block, and its owner."""
    places = directories(environ)
    places.home.mkdir(mode=0o700, exist_ok=True)
    site = Site(Link(places, environ, autostart=False), Access(places.home / "web.json"))
    task = asyncio.create_task(site.run())
    try:
        await eventually(site.view.ready.is_set)
        yield Visitor(site, cookie(site.access))
    finally:
        site.close()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await site.link.close()


@asynccontextmanager
async def served(site: Site) -> AsyncIterator[int]:
    """Serve a site on a loopback port inside the block."""
    with closing(listening("127.0.0.1", 0)) as bound:
        server = Server(site, application(site, hosts=(), cookie=COOKIE))
        task = asyncio.create_task(server.serve(sockets=[bound]))
        try:
            await eventually(lambda: server.started)
            yield bound.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            await task
