"""The web page in Debian's Chromium: `rametctl web` as a process, and one browser for all tests of
a module.

A module imports the fixtures that it needs; without Chromium it is skipped.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Playwright, ViewportSize, expect, sync_playwright

from tests.support.agents import script
from tests.support.daemon import DaemonProcess, Sandbox, daemon_process, make_sandbox
from tests.support.eventually import PATIENCE_S, eventually_sync

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
if not CHROMIUM and not os.environ.get("CI"):
    pytest.skip("no Chromium is installed: apt-get install chromium", allow_module_level=True)

WIDE, PHONE = ViewportSize(width=1280, height=800), ViewportSize(width=390, height=844)
MS = PATIENCE_S * 1000
expect.set_options(timeout=MS)


class Served:
    """``rametctl web`` as a process; opens pages of it."""

    def __init__(self, sandbox: Sandbox, browser: Browser) -> None:
        self.sandbox = sandbox
        self.browser = browser
        self.repository = sandbox.repository("shop")
        self.port = 0
        self.faults: list[str] = []
        """Complaints of browsers: errors of code, refused resources, dialogs."""
        self.signed_in: Any = None
        """Cookies of the owner."""
        self.new("first")
        self.start()

    def start(self) -> None:
        output = self.sandbox.root / "web.out"
        with output.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "rametctl", "web", "--port", str(self.port)],
                env={**self.sandbox.environ, "RAMET_AUTOSTART": "0"}, cwd=self.repository, stdout=log, stderr=log,
            )  # fmt: skip
        link = eventually_sync(lambda: output.read_text().partition("\n")[0])
        self.port = int(link.split(":")[2].partition("/")[0])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(timeout=PATIENCE_S) == 0, (self.sandbox.root / "web.out").read_text()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ctl(self, *arguments: str) -> str:
        ran = self.sandbox.ctl(*arguments, cwd=self.repository)
        assert ran.code == 0, ran.stderr
        return ran.stdout

    def new(self, name: str, *steps: dict[str, Any]) -> str:
        """Create a session; return its id."""
        made = json.loads(self.ctl("new", "--name", name, "--json", *([script(*steps)] if steps else ["--idle"])))
        return str(made["id"])

    @contextmanager
    def page(self, path: str = "/", *, link: str = "", **context: Any) -> Iterator[Page]:
        """Return a page in the owner's browser; with ``link``, in a new browser that opened that
        link."""
        state = None if link else self.signed_in
        found = self.browser.new_context(**{"viewport": WIDE, "storage_state": state, **context})
        try:
            page = found.new_page()
            page.set_default_timeout(MS)
            page.on("console", lambda message: self._complain(message.type, message.text))
            page.on("pageerror", lambda error: self.faults.append(str(error)))
            if state is None:
                page.goto(link or self.ctl("web", "link", "--port", str(self.port)).strip())
                page.wait_for_url(lambda url: "/login" not in url)
                self.signed_in = self.signed_in or (None if link else found.storage_state())
            if state is not None or path != "/":
                page.goto(self.url + path)
            yield page
        finally:
            found.close()

    def _complain(self, kind: str, text: str) -> None:
        if kind == "error" and "Failed to load resource" not in text and "net::ERR" not in text:
            self.faults.append(text)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with make_sandbox() as made:
        yield made


@pytest.fixture(scope="module")
def daemon(sandbox: Sandbox) -> Iterator[DaemonProcess]:
    with daemon_process(sandbox) as running:
        yield running


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="module")
def web(sandbox: Sandbox, daemon: DaemonProcess, playwright: Playwright) -> Iterator[Served]:
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    served = Served(sandbox, browser)
    try:
        yield served
    finally:
        browser.close()
        served.stop()


@pytest.fixture(autouse=True)
def no_complaints(web: Served) -> Iterator[None]:
    """Fail a test that leaves an error in a browser's console: a fault of our code, or a resource
    that the policy refused."""
    web.faults.clear()
    yield
    assert web.faults == []


def shows(page: Page, text: str) -> None:
    expect(page.get_by_text(text).first).to_be_visible(timeout=MS)


def eventually_here(page: Page, probe: Callable[[], bool]) -> None:
    """Wait for the effect of a handler of the page's events, which runs only while Playwright
    waits."""

    def look() -> bool:
        page.wait_for_timeout(10)
        return probe()

    eventually_sync(look)


INTERACTIVE = "performance.getEntriesByName('interactive').length"


def holds(page: Page, expression: str) -> None:
    """Wait until an expression is true in a page. The page's policy forbids Playwright's own
    `wait_for_function`."""
    eventually_here(page, lambda: bool(page.evaluate(expression)))


def key(page: Page, *keys: str) -> None:
    """Press keys once the page's script handles them, which is later than the page is shown."""
    holds(page, INTERACTIVE)
    for each in keys:
        page.keyboard.press(each)
