"""The review page in Chromium: by keyboard alone, on a phone, with a large file, and while the agent changes things."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Page, expect
from ramet.v1 import worktree_pb2

from tests.support.browser import PHONE, WIDE, browsing, tab
from tests.support.daemon import Client, DaemonProcess, connected, daemon_process, make_sandbox
from tests.support.eventually import eventually
from tests.support.reviews import ROWS, before, changed
from tests.support.running import repo_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
CODE = ".file[data-path='src/app/code.py']"
WIDE_NUMBERS = """() => [...document.querySelectorAll(".diff td.n")].map((each) => each.getBoundingClientRect().width).filter((width) => width > 80)"""


@pytest.fixture(scope="module")
def running() -> Iterator[DaemonProcess]:
    with make_sandbox() as sandbox, daemon_process(sandbox) as daemon:
        before(sandbox.repository())
        yield daemon


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(running: DaemonProcess) -> AsyncIterator[BrowserContext]:
    async with browsing(running.sandbox.environ, running.sandbox.directories.home) as context:
        yield context


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(running: DaemonProcess) -> AsyncIterator[Client]:
    async with connected(running.sandbox) as connection:
        yield connection


async def comment_lines(client: Client, session: str, lines: list[tuple[int, int]]) -> bool:
    request = worktree_pb2.ListCommentsRequest(session=session)
    comments = (await client.worktrees.ListComments(request)).comments
    return [(each.line, each.end_line) for each in comments] == lines


async def press(page: Page, *keys: str) -> None:
    for key in keys:
        await page.keyboard.press(key)


async def test_a_review_by_keyboard_alone(running: DaemonProcess, client: Client, browser: BrowserContext) -> None:
    """Look at each file, comment on lines of both sides, mark as viewed, and send the comments back."""
    session = await changed(client, repo_of(running), "keys")
    async with tab(browser, f"/sessions/{session.id}/review") as page:
        code = page.locator(CODE)
        await page.locator(f"{CODE} h2 a").focus()
        await expect(code.locator("table.split")).to_be_visible()  # it has come into view
        assert await page.evaluate(WIDE_NUMBERS) == []
        await press(page, "c")
        await expect(code.locator("tr:focus")).to_contain_text("parse")
        await press(page, "Shift+j", "Enter")  # the changed line and the one below it
        await page.keyboard.type("say what it parses")
        await press(page, "Control+Enter")
        await expect(code.locator("tr.said")).to_contain_text("say what it parses")
        await page.locator(f"{CODE} h2 a").focus()
        await press(page, "c", "c")
        await page.keyboard.type("split this file")
        await press(page, "Control+Enter")
        await expect(code.locator(".body > .remark")).to_contain_text("split this file")

        await page.locator(f"{CODE} h2 a").focus()
        await press(page, "v")
        await expect(code).to_have_attribute("data-viewed", "")
        await expect(code.locator(".body")).to_be_hidden()
        await page.reload()
        await expect(code.locator(".body")).to_be_hidden()
        await press(page, "u")  # unified
        await expect(page.locator("table.unified").first).to_be_visible()
        assert await page.evaluate(WIDE_NUMBERS) == []

        await press(page, "C")
        await page.keyboard.type("Before it lands:")
        await press(page, "Tab", "Enter")
        await page.wait_for_url(f"**/sessions/{session.id}")
        await expect(page.locator("#talk")).to_contain_text("src/app/code.py:4-5")
        await expect(page.locator("#talk")).to_contain_text("Before it lands:")


async def test_a_file_that_changes_under_the_reader_says_so(
    running: DaemonProcess, client: Client, browser: BrowserContext
) -> None:
    session = await changed(client, repo_of(running), "moving")
    async with tab(browser, f"/sessions/{session.id}/review") as page:
        code = page.locator(CODE)
        await code.scroll_into_view_if_needed()
        await expect(code.locator("table.diff")).to_contain_text("parse")
        await page.mouse.move(300, 300)  # somebody reads
        (Path(session.worktree) / "src/app/code.py").write_text("import os\n")
        await client.send(session.id, 'DO:[{"text": "changed"}]')
        await expect(code.locator("[data-reload]")).to_be_visible()
        await expect(code.locator("table.diff")).to_contain_text("parse")  # nothing moves by itself
        await code.locator("[data-reload]").click()
        await expect(code.locator("table.diff")).to_contain_text("import os")
        await expect(code.locator("[data-reload]")).to_be_hidden()


async def test_a_page_that_has_just_opened_shows_the_newest_by_itself(
    running: DaemonProcess, client: Client, browser: BrowserContext
) -> None:
    session = await changed(client, repo_of(running), "opening")
    async with tab(browser, "/") as page:
        await page.add_init_script("performance.now = () => 0")  # it has always just opened
        await page.goto(f"/sessions/{session.id}/review")
        diff = page.locator(f"{CODE} table.diff")
        await expect(diff).to_contain_text("parse")
        (Path(session.worktree) / "src/app/code.py").write_text("import os\n")
        await client.send(session.id, 'DO:[{"text": "changed"}]')
        await expect(diff).to_contain_text("import os")
        await page.mouse.move(300, 300)
        await page.mouse.move(310, 300)
        (Path(session.worktree) / "src/app/code.py").write_text("import sys\n")
        await client.send(session.id, 'DO:[{"text": "again"}]')
        await expect(page.locator(f"{CODE} [data-reload]")).to_be_visible()


async def test_diffs_come_when_the_daemon_is_back(
    running: DaemonProcess, client: Client, browser: BrowserContext
) -> None:
    session = await changed(client, repo_of(running), "away")
    async with tab(browser, f"/sessions/{session.id}/review") as page:
        await expect(page.locator("table.diff").first).to_be_visible()
        running.kill()
        await expect(page.locator("#banner")).to_contain_text("The daemon does not answer")
        code = page.locator(CODE)
        await code.scroll_into_view_if_needed()
        running.start()
        await expect(code.locator("table.diff")).to_contain_text("parse")
        await expect(page.locator("#banner")).to_be_hidden()


async def test_a_phone_scrolls_through_a_large_file_and_comments(
    running: DaemonProcess, client: Client, browser: BrowserContext
) -> None:
    session = await changed(client, repo_of(running), "phone")
    async with tab(browser, f"/sessions/{session.id}/review", PHONE) as page:
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        large = page.locator(".file[data-path='zz_large.py']")
        await large.scroll_into_view_if_needed()
        await expect(large.locator("table.unified").first).to_be_visible()
        for size, view in ((WIDE, "split"), (PHONE, "unified")):  # a turned phone
            await page.set_viewport_size(size)
            await expect(page.locator(f"{CODE} table.{view}")).to_be_attached()
        assert await large.locator("tr").count() < ROWS  # of three times as many

        async def further() -> bool:
            await page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
            return bool(await large.locator("table.diff").count() > 3)

        await eventually(further)
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        cell = large.locator("[data-n='401']")
        await cell.click()
        await large.locator("textarea").fill("<img src=x onerror=alert(1)>")
        await large.get_by_label("To line").fill("403")
        await expect(large.locator(".n.marked")).to_have_count(3)
        await large.locator("form.comment button.main").click()
        await eventually(lambda: comment_lines(client, session.id, [(401, 403)]))
        await expect(large.locator("[data-n='1']")).to_be_attached()
        pictures = page.locator(".file[data-path='logo.png'] img")
        await pictures.first.scroll_into_view_if_needed()
        await expect(pictures).to_have_count(2)
        drawn = "[...document.querySelectorAll('.pictures img')].some((each) => each.naturalWidth === 40)"
        await eventually(lambda: page.evaluate(drawn))
        await expect(page.locator(".file[data-path='data.bin']")).to_contain_text("Binary file.")
