"""The application, and the server of one process."""

import asyncio
import signal
import socket
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Match, Mount, Route
from starlette.staticfiles import StaticFiles
from uvicorn.protocols.http.h11_impl import H11Protocol

from rametctl.errors import ClientError, UsageError, is_transient
from rametctl.web import conflicts, contest, costs, history, overview, plans, queue, requests, review, session, upkeep
from rametctl.web.access import Grant
from rametctl.web.forms import Form, templates
from rametctl.web.guard import Guard, shown_to
from rametctl.web.site import Action, Page, Piece, Site, Visit, refusal

MODULES = (overview, session, review, contest, requests, queue, conflicts, plans, costs, history, upkeep)
"""Modules of pages, in the order of the navigation: each has ``PAGES`` and ``ACTIONS``."""
MOST_BYTES = 32 << 20
"""Bytes of one form or file."""
LOGIN_BYTES = 4096
CONNECTIONS = 250
"""Connections at once. A new one takes the place of the oldest that has not shown the owner's
cookie."""


def application(site: Site, *, hosts: Collection[str], cookie: str) -> Starlette:
    """Return the ASGI application."""
    pages = [page() for module in MODULES for page in module.PAGES]
    actions = {path: action for module in MODULES for path, action in module.ACTIONS.items()}
    routes = [Route(page.path, _page(site, page)) for page in pages]
    site.pages = pages
    site.match = lambda path: _match(routes, pages, path)
    return Starlette(
        routes=[
            *routes,
            *(
                Route(f"{page.path}/{name}", _piece(site, page, piece))
                for page in pages
                for name, piece in page.pieces.items()
            ),
            *(Route(path, _action(site, action), methods=["POST"]) for path, action in actions.items()),
            Route("/live", _live(site)),
            Route("/login", _login(site, cookie), methods=["GET", "POST"]),
            Route("/favicon.svg", _favicon),
            Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
        ],
        middleware=[Middleware(Guard, access=site.access, hosts=hosts, cookie=cookie)],
        exception_handlers={ClientError: _failed, HTTPException: _refused},
    )


def _match(routes: list[Route], pages: list[Page], path: str) -> tuple[Page, Mapping[str, str]] | None:
    for route, page in zip(routes, pages, strict=True):
        found, scope = route.matches({"type": "http", "method": "GET", "path": path, "root_path": ""})
        if found is Match.FULL:
            return page, scope["path_params"]
    return None


def _page(site: Site, page: Page) -> Callable[[Request], object]:
    async def draw(request: Request) -> Response:
        with suppress(TimeoutError):
            await asyncio.wait_for(site.view.ready.wait(), 3.0)
        if not site.view.ready.is_set():
            why = site.view.outage.message if site.view.outage is not None else "the daemon does not answer yet"
            return _away(why)
        query = request.scope["query_string"].decode(errors="replace")
        path = request.scope["path"] + (f"?{query}" if query else "")
        visit = Visit(page, path, request.path_params, request.query_params, request.state.grant)
        extra = await page.load(site, visit)
        tab, fragments = await site.enter(visit)
        values = {"visit": visit, "page": page, "tab": tab, "state": site.state(visit), "live": fragments, **extra}
        return HTMLResponse(templates().get_template(page.template).render(values, site=site))

    return draw


def _piece(site: Site, page: Page, piece: Piece) -> Callable[[Request], object]:
    async def draw(request: Request) -> Response:
        visit = Visit(page, request.scope["path"], request.path_params, request.query_params, request.state.grant)
        return await piece(site, visit)

    return draw


def _action(site: Site, action: Action) -> Callable[[Request], object]:
    async def act(request: Request) -> Response:
        done = await action(site, Form(request.path_params, request.query_params, await body(request, MOST_BYTES)))
        await site.know(done.go)
        return JSONResponse({"note": done.note, "go": done.go})

    return act


async def body(request: Request, most: int) -> bytes:
    """Read the body of a request. Raises UsageError if it is longer than ``most`` bytes."""
    found = bytearray()
    async for piece in request.stream():
        found += piece
        if len(found) > most:
            raise UsageError(f"more than {most >> 20} MiB")
    return bytes(found)


def _live(site: Site) -> Callable[[Request], object]:
    async def live(request: Request) -> Response:
        path = request.query_params.get("at", "")
        where = path.partition("?")[0]
        found = site.match(where)
        if found is None or not shown_to(request.state.grant, where):
            return PlainTextResponse("there is no such page\n", 404)
        page, params = found
        query = Request({"type": "http", "query_string": path.partition("?")[2].encode(), "headers": []}).query_params
        cursor = request.headers.get("last-event-id") or request.query_params.get("cursor", "")
        tab = site.resume(cursor, Visit(page, path, params, query, request.state.grant))
        return StreamingResponse(site.stream(tab), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    return live


def _login(site: Site, cookie: str) -> Callable[[Request], object]:
    """A link has its token after the ``#``: no server or proxy logs it, and a preview of the link
    does not use it up."""

    async def login(request: Request) -> Response:
        if request.method != "POST":
            return HTMLResponse(templates().get_template("login.html").render())
        token = Form({}, {}, await body(request, LOGIN_BYTES)).text("token")
        opened = site.access.open(token, request.headers.get("user-agent", ""))
        if opened is None:
            raise UsageError("this link was used or is too old", hint="make another: rametctl web link")
        secret, grant = opened
        answer = JSONResponse({"go": f"/sessions/{grant.session}" if grant.read_only else "/"})
        answer.set_cookie(
            cookie,
            secret,
            max_age=int(grant.expires - grant.created),
            httponly=True,
            samesite="strict",
            secure=request.headers.get("origin", "").startswith("https:"),
        )
        return answer

    return login


async def _favicon(request: Request) -> Response:
    count = request.query_params.get("n", "0")
    number = int(count) if count.isdecimal() and len(count) < 6 else 0
    drawn = templates().get_template("favicon.svg").render(count=min(number, 99))
    return Response(drawn, media_type="image/svg+xml", headers={"Cache-Control": "max-age=86400"})


def _away(why: str) -> Response:
    """Return a page that reloads until the daemon answers."""
    return HTMLResponse(templates().get_template("away.html").render(why=why), 503)


async def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, ClientError)
    if request.method == "POST":
        return JSONResponse(refusal(error), 409)
    if is_transient(error):
        return _away(error.message)
    return HTMLResponse(templates().get_template("failed.html").render(error=error), 404)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return PlainTextResponse(f"{error.detail.lower()}\n", error.status_code, headers=error.headers)


def listening(host: str, port: int) -> socket.socket:
    """A socket bound to an address. Raises UsageError."""
    made = None
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, number)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen()  # a browser that opens the link before all is loaded waits
    except OSError as error:
        if made is not None:
            made.close()
        why = error.strerror or error
        raise UsageError(f"cannot listen on {host}:{port}: {why}", hint="choose another: --port") from error
    return made


class Connection(H11Protocol):
    """A connection that is closed in favour of newer ones until it sends the owner's cookie, so
    that strangers who open many idle connections do not block the owner."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()
        others = [each for each in self.connections if isinstance(each, Connection) and not each._signed_in]
        if len(self.connections) > CONNECTIONS and others:
            min(others, key=lambda each: each._since).transport.abort()

    @property
    def _signed_in(self) -> bool:
        """Whether its newest request is the owner's: `Guard` notes the grant."""
        scope: Mapping[str, Any] | None = self.scope  # None before its first request
        grant = scope["state"].get("grant") if scope is not None else None
        return isinstance(grant, Grant) and not grant.read_only


class Server(uvicorn.Server):
    """uvicorn that ends its streams, and by ctrl-C without an error."""

    def __init__(self, site: Site, app: Starlette) -> None:
        # Trust no proxy header: only the cookie identifies the caller.
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", ws="none", loop="asyncio", http=Connection,
            proxy_headers=False, server_header=False, timeout_graceful_shutdown=2, limit_concurrency=2 * CONNECTIONS,
        )  # fmt: skip
        super().__init__(config)
        self._site = site

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        self._site.close()


async def serve(site: Site, bound: socket.socket, *, hosts: Collection[str], cookie: str) -> None:
    """Serve until a signal ends it. Raises a ClientError where the daemon refuses this client."""
    server = Server(site, application(site, hosts=hosts, cookie=cookie))
    following = asyncio.create_task(site.run())
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        await asyncio.wait({following, serving}, return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            await following
    finally:
        server.handle_exit(signal.SIGTERM, None)
        await serving
        following.cancel()
        with suppress(asyncio.CancelledError, ClientError):
            await following
        await site.link.close()
