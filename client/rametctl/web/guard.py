"""Checks of every request (Host, Origin, the cookie), and the headers of every answer."""

import re
from collections.abc import Collection

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rametctl.web.access import Access, Grant

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
SAFE = frozenset({"GET", "HEAD"})
PUBLIC = frozenset({"/login", "/favicon.svg"})
"""Paths that need no cookie, as all below /static/; they reveal nothing of the daemon."""
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?", re.IGNORECASE)
"""A Host header: a name or an address, and a port."""
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def shown_to(grant: Grant, path: str) -> bool:
    """Return whether a grant may see the page at a path; a read-only one sees only its session's
    pages."""
    own = f"/sessions/{grant.session}"
    return not grant.read_only or path == own or path.startswith(f"{own}/")


class Guard:
    """ASGI middleware. ``hosts`` are the names by which browsers may call the server, beside those
    of the loopback interface."""

    def __init__(self, app: ASGIApp, *, access: Access, hosts: Collection[str], cookie: str) -> None:
        self._app = app
        self._access = access
        self._hosts = LOOPBACK | {each.lower() for each in hosts}
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        request = Request(scope)
        answer = self._refusal(request)
        await (answer or self._app)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        # The path as it is routed: `request.url` is built from the Host header, which the caller
        # chooses.
        host, path = request.headers.get("host", ""), request.scope["path"]
        if not self._named(host):
            # A name that leads here by DNS rebinding is another site's.
            return PlainTextResponse(f"this server is not called {host!r}; allow it: rametctl web --host NAME\n", 400)
        if request.method not in SAFE and not _is_from(request.headers.get("origin", ""), host):
            return PlainTextResponse("this request comes from another site\n", 403)
        site, mode = request.headers.get("sec-fetch-site", "none"), request.headers.get("sec-fetch-mode")
        if site not in {"same-origin", "none"} and mode != "navigate":
            return PlainTextResponse("this request comes from another site\n", 403)
        if path in PUBLIC or path.startswith("/static/"):
            return None
        grant = self._access.find(request.cookies.get(self._cookie, ""))
        if grant is None:
            return _signed_out(request)
        if grant.read_only and request.method not in SAFE:
            return PlainTextResponse("this link is read-only\n", 403)
        if not shown_to(grant, path) and path != "/live":
            return PlainTextResponse("this link shows one session only\n", 403)
        request.state.grant = grant
        return None

    def _named(self, host: str) -> bool:
        found = HOST.fullmatch(host)
        return found is not None and found[1].lower().strip("[]").rstrip(".") in self._hosts


def _is_from(origin: str, host: str) -> bool:
    scheme, _, rest = origin.partition("://")
    return scheme in {"http", "https"} and rest.lower() == host.lower()


def _signed_out(request: Request) -> Response:
    """Refuse without a cookie. A page sends the browser to the login page, which can ask once more
    with the cookie: a browser that comes from another site (a notification, a chat) leaves a
    SameSite=Strict cookie out of its first request."""
    if request.method in SAFE and request.headers.get("sec-fetch-dest", "document") == "document":
        from rametctl.web.forms import templates

        return Response(templates().get_template("login.html").render(), 401, media_type="text/html")
    return PlainTextResponse("no session: rametctl web link makes a link that opens one\n", 401)
