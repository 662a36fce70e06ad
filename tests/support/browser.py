"""The web page in Debian's Chromium; where there is none, the tests that want it are skipped."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from playwright.async_api import Page, async_playwright
from ramet.paths import directories
from rametctl.view.link import Link
from rametctl.web.access import Access
from rametctl.web.server import listening, serve
from rametctl.web.site import Site

CHROMIUM = Path("/usr/bin/chromium")
WIDE, PHONE = (1440, 900), (390, 844)


@asynccontextmanager
async def browsing(environ: Mapping[str, str], home: Path, *, size: tuple[int, int] = WIDE) -> AsyncIterator[Page]:
    """A browser signed in at a web page that is served from here. What the page reports as an error fails the test."""
    if not CHROMIUM.exists():
        pytest.skip("Chromium is not installed: apt-get install chromium")
    bound = listening("127.0.0.1", 0)
    address = f"http://127.0.0.1:{bound.getsockname()[1]}"
    access = Access(home / "web.json")
    site = Site(Link(directories(environ), environ, autostart=False), access)
    serving = asyncio.create_task(serve(site, bound, hosts=(), cookie="ramet_test"))
    wrong: list[str] = []
    try:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            context = await browser.new_context(viewport={"width": size[0], "height": size[1]}, base_url=address)
            page = await context.new_page()
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
            page.set_default_timeout(15_000)
            await page.goto(f"/login#{access.link()}")
            await page.wait_for_url(f"{address}/")
            yield page
            await browser.close()
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
        bound.close()
    assert wrong == []
