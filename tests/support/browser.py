"""The web page in Debian's Chromium; where there is none, the tests that want it are skipped."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from playwright.async_api import BrowserContext, Page, ViewportSize, async_playwright
from ramet.paths import directories
from rametctl.view.link import Link
from rametctl.web.access import Access
from rametctl.web.server import listening, serve
from rametctl.web.site import Site

CHROMIUM = Path("/usr/bin/chromium")
WIDE, PHONE = ViewportSize(width=1440, height=900), ViewportSize(width=390, height=844)


@asynccontextmanager
async def browsing(environ: Mapping[str, str], home: Path) -> AsyncIterator[BrowserContext]:
    """A browser signed in at a web page that is served from here. What its pages report as an error fails the test."""
    if not CHROMIUM.exists():
        pytest.skip("Chromium is not installed: apt-get install chromium")
    bound = listening("127.0.0.1", 0)
    address = f"http://127.0.0.1:{bound.getsockname()[1]}"
    access = Access(home / "web.json")
    site = Site(Link(directories(environ), environ, autostart=False), access)
    serving = asyncio.create_task(serve(site, bound, hosts=(), cookie="ramet_test"))
    wrong: list[str] = []

    def watch(page: Page) -> None:
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)

    try:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            context = await browser.new_context(base_url=address)
            context.set_default_timeout(15_000)
            context.on("page", watch)
            page = await context.new_page()
            await page.goto(f"/login#{access.link()}")
            await page.wait_for_url(f"{address}/")
            yield context
            await browser.close()
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
        bound.close()
    assert wrong == []


@asynccontextmanager
async def tab(context: BrowserContext, path: str, size: ViewportSize = WIDE) -> AsyncIterator[Page]:
    """A page of its own at a path."""
    page = await context.new_page()
    await page.set_viewport_size(size)
    await page.goto(path)
    yield page
    await page.close()
