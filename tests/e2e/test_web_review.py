"""The review page in Chromium: only by keyboard, on a phone, with a large file, and while the agent
changes things."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.browser import (
    PHONE,
    WIDE,
    Served,
    daemon,
    eventually_here,
    holds,
    key,
    no_complaints,
    playwright,
    sandbox,
    web,
)
from tests.support.daemon import DaemonProcess
from tests.support.reviews import ROWS, before, change

__all__ = ["daemon", "no_complaints", "playwright", "sandbox", "web"]
CODE = ".file[data-path='src/app/code.py']"
WIDE_NUMBERS = """() => [...document.querySelectorAll(".diff td.n")].map((each) => each.getBoundingClientRect().width).filter((width) => width > 80)"""


@pytest.fixture(scope="module", autouse=True)
def something_to_change(web: Served) -> None:
    before(web.repository)


def changed(web: Served, name: str) -> tuple[str, Path]:
    """Create a session whose turn has ended, with changes of every kind in its worktree."""
    id_ = web.new(name, {"text": "done"})
    web.ctl("wait", name)
    worktree = Path(web.ctl("path", name).strip())
    change(worktree)
    return id_, worktree


def test_a_review_by_keyboard_alone(web: Served) -> None:
    """Review each file, comment on lines of both sides, mark as viewed, and send the comments."""
    id_, _ = changed(web, "keys")
    with web.page(f"/sessions/{id_}/review") as page:
        code = page.locator(CODE)
        page.locator(f"{CODE} h2 a").focus()
        expect(code.locator("table.split")).to_be_visible()  # it is in view
        assert page.evaluate(WIDE_NUMBERS) == []
        key(page, "c")
        expect(code.locator("tr:focus")).to_contain_text("parse")
        key(page, "Shift+j", "Enter")  # the changed line and the one below it
        page.keyboard.type("say what it parses")
        key(page, "Control+Enter")
        expect(code.locator("tr.said")).to_contain_text("say what it parses")
        page.locator(f"{CODE} h2 a").focus()
        key(page, "c", "c")
        page.keyboard.type("split this file")
        key(page, "Control+Enter")
        expect(code.locator(".body > .remark")).to_contain_text("split this file")

        page.locator(f"{CODE} h2 a").focus()
        key(page, "v")
        expect(code).to_have_attribute("data-viewed", "")
        expect(code.locator(".body")).to_be_hidden()
        page.reload()
        expect(code.locator(".body")).to_be_hidden()
        key(page, "u")  # unified
        expect(page.locator("table.unified").first).to_be_visible()
        assert page.evaluate(WIDE_NUMBERS) == []

        key(page, "C")
        page.keyboard.type("Before it lands:")
        key(page, "Tab", "Enter")
        page.wait_for_url(f"**/sessions/{id_}")
        expect(page.locator("#talk")).to_contain_text("src/app/code.py:4-5")
        expect(page.locator("#talk")).to_contain_text("Before it lands:")


def test_a_file_that_changes_under_the_reader_says_so(web: Served) -> None:
    id_, worktree = changed(web, "moving")
    with web.page(f"/sessions/{id_}/review") as page:
        code = page.locator(CODE)
        code.scroll_into_view_if_needed()
        expect(code.locator("table.diff")).to_contain_text("parse")
        page.mouse.move(300, 300)  # a person reads
        (worktree / "src/app/code.py").write_text("import os\n")
        web.ctl("send", id_, 'DO:[{"text": "changed"}]')
        expect(code.locator("[data-reload]")).to_be_visible()
        expect(code.locator("table.diff")).to_contain_text("parse")  # the page does not scroll by itself
        code.locator("[data-reload]").click()
        expect(code.locator("table.diff")).to_contain_text("import os")
        expect(code.locator("[data-reload]")).to_be_hidden()


def test_a_page_that_has_just_opened_shows_the_newest_by_itself(web: Served) -> None:
    id_, worktree = changed(web, "opening")
    with web.page() as page:
        page.add_init_script("performance.now = () => 0")  # it was only just opened
        page.goto(f"{web.url}/sessions/{id_}/review")
        diff = page.locator(f"{CODE} table.diff")
        expect(diff).to_contain_text("parse")
        (worktree / "src/app/code.py").write_text("import os\n")
        web.ctl("send", id_, 'DO:[{"text": "changed"}]')
        expect(diff).to_contain_text("import os")
        page.mouse.move(300, 300)
        page.mouse.move(310, 300)
        (worktree / "src/app/code.py").write_text("import sys\n")
        web.ctl("send", id_, 'DO:[{"text": "again"}]')
        expect(page.locator(f"{CODE} [data-reload]")).to_be_visible()


def test_diffs_come_when_the_daemon_is_back(web: Served, daemon: DaemonProcess) -> None:
    id_, _ = changed(web, "away")
    with web.page(f"/sessions/{id_}/review") as page:
        expect(page.locator("table.diff").first).to_be_visible()
        daemon.kill()
        expect(page.locator("#banner")).to_contain_text("The daemon does not answer")
        code = page.locator(CODE)
        code.scroll_into_view_if_needed()
        daemon.start()
        expect(code.locator("table.diff")).to_contain_text("parse")
        expect(page.locator("#banner")).to_be_hidden()


def test_a_file_stays_in_view_while_a_long_one_above_it_loads(web: Served) -> None:
    id_, worktree = changed(web, "jumps")
    (worktree / "zzz.py").write_text("last = 1\n")
    with web.page(f"/sessions/{id_}/review") as page:
        large = page.locator(".file[data-path='zz_large.py']")
        page.locator(".tree").get_by_text("zzz.py").click()
        last = page.locator(".file[data-path='zzz.py']")
        expect(last.locator("table.diff")).to_contain_text("last = 1")
        expect(large.get_by_role("button", name="more rows")).to_be_in_viewport()
        expect(last).to_be_in_viewport()
        large.get_by_role("button", name="more rows").click()
        expect(large.locator("table.diff")).to_have_count(2)


def test_a_phone_scrolls_through_a_large_file_and_comments(web: Served) -> None:
    id_, _ = changed(web, "phone")
    with web.page(f"/sessions/{id_}/review", viewport=PHONE) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        large = page.locator(".file[data-path='zz_large.py']")
        large.scroll_into_view_if_needed()
        expect(large.locator("table.unified").first).to_be_visible()
        for size, view in ((WIDE, "split"), (PHONE, "unified")):  # a turned phone
            page.set_viewport_size(size)
            expect(page.locator(f"{CODE} table.{view}")).to_be_attached()
        assert large.locator("tr").count() < ROWS  # of three times as many

        def further() -> bool:
            page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
            return large.locator("table.diff").count() > 3

        eventually_here(page, further)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        cell = large.locator("[data-n='401']")
        cell.click()
        large.locator("textarea").fill("<img src=x onerror=alert(1)>")
        large.get_by_label("To line").fill("403")
        expect(large.locator(".n.marked")).to_have_count(3)
        large.locator("form.comment button.main").click()
        expect(large.locator(".remark")).to_contain_text("Lines 401–403")
        expect(large.locator("[data-n='1']")).to_be_attached()
        pictures = page.locator(".file[data-path='logo.png'] img")
        pictures.first.scroll_into_view_if_needed()
        expect(pictures).to_have_count(2)
        drawn = "[...document.querySelectorAll('.pictures img')].some((each) => each.naturalWidth === 40)"
        holds(page, drawn)
        expect(page.locator(".file[data-path='data.bin']")).to_contain_text("Binary file.")
