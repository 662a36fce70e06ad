"""The dashboard in a test: its screen, with a fake daemon."""

import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest import mock

from ramet.v1 import attention_pb2, session_pb2
from rametctl.__main__ import application
from rametctl.dashboard.app import Dashboard
from rametctl.dashboard.keyboard import Keyboard
from textual import events
from textual.message import Message
from textual.pilot import Pilot

from tests.support.client import World
from tests.support.eventually import eventually
from tests.support.fake_state import Call

NAMED: dict[str, str | None] = {
    "enter": "\r", "escape": "\x1b", "space": " ", "backspace": "\x7f", "ctrl+w": "\x17", "left": None, "home": None, "delete": None,
}  # fmt: skip
"""Keys with a name, and their characters."""


WAITING, WORKING = session_pb2.SESSION_STATE_WAITING, session_pb2.SESSION_STATE_WORKING


class Screen:
    """The dashboard in a test: presses keys and reads lines."""

    def __init__(self, app: Dashboard, pilot: "Pilot[None]") -> None:
        self.app = app
        self.pilot = pilot
        self.now = 1000.0
        app.clock = lambda: self.now

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    def burst(self, *reads: str) -> None:
        """Deliver reads of the terminal faster than the dashboard handles them: each is the name of
        a key, or characters that arrive at once."""
        keyboard = object.__new__(Keyboard)
        for number, read in enumerate(reads):
            keys = [read] if read in NAMED else ["enter" if each == "\n" else each for each in read]
            messages: list[Message] = [events.Key(key, NAMED.get(key, key)) for key in keys]
            for message in keyboard.grouped(messages, float(number)):
                message.set_sender(self.app)
                assert self.app._driver is not None
                self.app._driver.send_message(message)

    def lines(self) -> list[str]:
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    async def shows(self, *texts: str) -> None:
        def look() -> bool:
            lines = self.lines()
            missing = [text for text in texts if not any(text in line for line in lines)]
            assert not missing, f"{missing} not in\n" + "\n".join(lines)
            return True

        await eventually(look, within=20)

    async def ready(self) -> None:
        """Wait until keys may answer the request on the screen."""
        await eventually(lambda: self.app._shown is not None and self.app._shown.seen, within=20)
        self.now += 10

    async def dialog(self, kind: type) -> Any:
        """Return the dialog once its fields exist."""
        await eventually(lambda: isinstance(self.app.screen, kind) and self.app.screen.is_mounted, within=20)
        return self.app.screen


@asynccontextmanager
async def screen(
    world: World, *, size: tuple[int, int] = (120, 30), repo_path: str = "", everywhere: bool = True, only: str = ""
) -> AsyncIterator[Screen]:
    with mock.patch.dict("os.environ", world.environ, clear=True):
        client = application([])
        app = Dashboard(client, repo_path=repo_path, everywhere=everywhere, only=only)
        async with app.run_test(size=size) as pilot:
            await eventually(lambda: app.view is not None and app.view.ready.is_set(), within=20)
            yield Screen(app, pilot)
        for connection in client.connections:
            connection.close()


def resolution(world: World) -> attention_pb2.Resolution:
    (call,) = world.state.called("ResolveRequest")
    return call.resolution  # type: ignore[no-any-return]


async def answered(world: World) -> attention_pb2.Resolution:
    await eventually(lambda: world.state.called("ResolveRequest"), within=20)
    return resolution(world)


def asks(world: World, kind: str, data: Any = None, **fields: Any) -> attention_pb2.AttentionRequest:
    session = world.state.session("asks", state=WAITING)
    return world.state.request(
        session,
        kind=attention_pb2.AttentionKind.Value(f"ATTENTION_KIND_{kind}"),
        input_json=json.dumps(data) if data is not None else "",
        **fields,
    )


COMMAND = {"command": "make test"}


def blocks(method: str, until: threading.Event) -> Callable[[Call], None]:
    """Return a handler of calls that blocks those of ``method``."""

    def on_call(call: Call) -> None:
        if call.method == method:
            until.wait(20)

    return on_call


PATCH = b"""diff --git a/a.py b/a.py
--- a/a.py
+++ b/a.py
@@ -1,2 +1,3 @@
 one
+two
 three
"""


QUESTION = {"questions": [{"question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}]}


FORM = {"message": "Who?", "requested_schema": {"properties": {"age": {"type": "integer"}}, "required": ["age"]}}
