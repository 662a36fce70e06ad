"""Ways of notification: the desktop, ntfy, a webhook, a command. Each either delivers a message or
raises `DeliveryError`."""

import asyncio
import html
import http.client
import json
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, assert_never
from urllib.parse import urlsplit, urlunsplit

from rametd import environment
from rametd.config.model import Notify, NotifyWay
from rametd.domain.notifications import Way
from rametd.platform import groups
from rametd.services.notifications.messages import Message

TIMEOUT_S = 10.0
"""Time limit of an HTTP request or of a program that notifies."""
DESKTOP_VARIABLES = ("DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XDG_*")
SCRIPT = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)
"""Script for osascript. The texts are its arguments, so that no part of them runs as a script."""


class DeliveryError(Exception):
    """Raised when a way could not deliver a message. ``certain``: the message surely has not
    arrived."""

    def __init__(self, message: str, *, certain: bool = True) -> None:
        super().__init__(message)
        self.certain = certain


@dataclass(frozen=True, slots=True)
class ProcessEnvironment:
    """The daemon's environment, for ways that start programs."""

    environment: Mapping[str, str]
    home: Path

    def of_children(self) -> dict[str, str]:
        found = environment.build(self.environment, environment.Variables(), DESKTOP_VARIABLES)
        bus = Path(f"/run/user/{os.getuid()}/bus")
        if "DBUS_SESSION_BUS_ADDRESS" not in found and bus.exists():
            found["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={bus}"  # a daemon started over SSH does not have it
        return found


def enabled(config: Notify) -> dict[Way, NotifyWay]:
    """The ways that the configuration switches on, with their settings."""
    found: dict[Way, NotifyWay] = {}
    if config.desktop.enabled:
        found[Way.DESKTOP] = config.desktop
    if config.ntfy.url is not None:
        found[Way.NTFY] = config.ntfy
    if config.webhook.url is not None:
        found[Way.WEBHOOK] = config.webhook
    if config.command.argv is not None:
        found[Way.COMMAND] = config.command
    return found


async def deliver(way: Way, message: Message, config: Notify, environment: ProcessEnvironment) -> None:
    """Deliver a message. Raises `DeliveryError`."""
    match way:
        case Way.DESKTOP:
            await _desktop(message, environment)
        case Way.COMMAND:
            await _run(
                config.command.argv or (), environment, stdin=json.dumps(message.event(include_text=True)).encode() + b"\n"
            )  # fmt: skip
        case Way.NTFY:
            await asyncio.to_thread(_post, *ntfy_request(message, config))
        case Way.WEBHOOK:
            await asyncio.to_thread(_post, *webhook_request(message, config))
        case _:
            assert_never(way)


async def _desktop(message: Message, environment: ProcessEnvironment) -> None:
    path = environment.environment.get("PATH")
    title, body = message.title, message.body(include_text=True)
    if program := shutil.which("notify-send", path=path):
        urgency = "normal" if message.urgent else "low"
        # The body is markup; a title or body may begin with a dash.
        argv = [program, "--app-name=Ramet", f"--urgency={urgency}", "--", title, html.escape(body, quote=False)]
    elif program := shutil.which("osascript", path=path):
        argv = [program, *(word for line in SCRIPT for word in ("-e", line)), "--", title, body]
    else:
        raise DeliveryError("neither notify-send nor osascript is installed")
    await _run(argv, environment)


async def _run(argv: Sequence[str], environment: ProcessEnvironment, *, stdin: bytes = b"") -> None:
    try:
        process = await groups.start(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            cwd=environment.home,
            env=environment.of_children(),
        )
    except OSError as error:
        raise DeliveryError(f"{argv[0]} cannot be run: {error.strerror}") from error
    try:
        async with asyncio.timeout(TIMEOUT_S):
            _, errors = await groups.communicate(process, stdin)
    except TimeoutError:
        raise DeliveryError(f"{argv[0]} did not end within {TIMEOUT_S:.0f} s", certain=False) from None
    except groups.OutputError as error:
        raise DeliveryError(f"{argv[0]} {error}", certain=False) from None
    finally:
        await groups.end(process)
    if process.returncode:
        words = errors.decode(errors="replace").strip().splitlines()
        said = f": {words[-1][:200]}" if words else ""
        raise DeliveryError(f"{argv[0]} exited with {process.returncode}{said}")


def ntfy_request(message: Message, config: Notify) -> tuple[str, dict[str, str], bytes]:
    """URL, headers and body for an ntfy server: its JSON form, as headers cannot contain
    Unicode."""
    ntfy = config.ntfy
    parts = urlsplit(ntfy.url or "")
    base, _, topic = parts.path.rstrip("/").rpartition("/")
    document = {
        "topic": topic,
        "title": message.title,
        "message": message.body(include_text=ntfy.include_text),
        "priority": 4 if message.urgent else 3,
        "tags": ["seedling"],
        "sequence_id": message.id,  # a repeated message replaces the first (ntfy 2.16)
    }
    headers = {"Authorization": f"Bearer {ntfy.token}"} if ntfy.token else {}
    return urlunsplit((parts.scheme, parts.netloc, f"{base}/", "", "")), headers, json.dumps(document).encode()


def webhook_request(message: Message, config: Notify) -> tuple[str, dict[str, str], bytes]:
    """URL, headers and body for a webhook."""
    webhook = config.webhook
    document = message.event(include_text=webhook.include_text)
    if webhook.format == "slack":
        words = f"*{message.title}*\n{message.body(include_text=webhook.include_text)}"
        document = {"text": html.escape(words, quote=False)}  # Slack's own escapes: nothing in it mentions a channel
    headers = {"Idempotency-Key": message.id}
    return webhook.url or "", headers, json.dumps(document).encode()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> None:
        return None  # urllib then raises HTTPError


def _post(url: str, headers: Mapping[str, str], body: bytes) -> None:
    """POST JSON; blocks. Follows no redirect: the message is for the configured server only."""
    request = urllib.request.Request(  # noqa: S310 - the setting accepts http and https only
        url,
        data=body,
        headers={"Content-Type": "application/json", "User-Agent": "ramet", **headers},
        method="POST",
    )
    opener = urllib.request.build_opener(_NoRedirect)
    place = urlsplit(url).netloc
    try:
        with opener.open(request, timeout=TIMEOUT_S) as reply:
            reply.read(1024)
    except urllib.error.HTTPError as error:
        with error:
            if 300 <= error.code < 400:
                raise DeliveryError(f"{place} redirects elsewhere (HTTP {error.code}); set its final URL") from error
            raise DeliveryError(f"{place} answered HTTP {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        uncertain = isinstance(error.reason, TimeoutError)
        raise DeliveryError(f"{place} cannot be reached: {error.reason}", certain=not uncertain) from error
    except (OSError, http.client.HTTPException) as error:  # while the answer was read
        raise DeliveryError(f"{place} did not answer: {str(error) or type(error).__name__}", certain=False) from error
