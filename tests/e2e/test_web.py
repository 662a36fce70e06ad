"""The web page in a real browser."""

import re
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect
from rametctl.web.session import FILES

from tests.support.agents import script
from tests.support.browser import (
    INTERACTIVE,
    PHONE,
    Served,
    daemon,
    eventually_here,
    holds,
    key,
    no_complaints,
    playwright,
    sandbox,
    shows,
    web,
)
from tests.support.daemon import DaemonProcess
from tests.support.hostile import HOSTILE

__all__ = ["daemon", "no_complaints", "playwright", "sandbox", "web"]

ASKS = {"tool": "Bash", "input": {"command": "make test", "description": "Run the tests"}}
CHOICES = [{"label": "ISO 8601", "description": "2026-11-29"}, {"label": "German", "description": "29.11.2026"}]
QUESTION = {"ask": [{"question": "Which date format?", "header": "Dates", "multiSelect": False, "options": CHOICES}]}


@pytest.mark.smoke
def test_a_session_is_started_answered_and_left_by_the_keyboard_alone(web: Served) -> None:
    with web.page() as page:
        key(page, "n")
        page.keyboard.type(f"go on {script(ASKS, {'text': 'all **green**'})}")
        page.locator("#new [name=repo]").focus()
        page.keyboard.type("shop")
        page.locator("#new [name=prompt]").focus()
        key(page, "Control+Enter")
        page.wait_for_url("**/sessions/*")
        shows(page, "$ make test")
        page.wait_for_timeout(800)  # a key at once was meant for something else
        key(page, "y")
        expect(page.locator(".entry strong")).to_have_text("green")
        key(page, "r")
        page.keyboard.type("and again")
        key(page, "Enter")
        expect(page.locator(".entry.said")).to_have_count(2)
        key(page, "Escape", "Escape")
        page.wait_for_url(f"{web.url}/")
        key(page, "j")
        expect(page.locator("a:focus")).to_have_attribute("data-row", "")
        key(page, "?")
        expect(page.get_by_role("dialog")).to_contain_text("all keys")
        assert page.get_by_role("dialog").evaluate("(dialog) => dialog.scrollTop") == 0


def test_words_appear_while_they_are_written(web: Served) -> None:
    id_ = web.new("writes", {"text": "word " * 2000, "over": 300})
    with web.page(f"/sessions/{id_}") as page:
        shows(page, "working")
        expect(page.locator("#unfinished")).not_to_be_empty()
        holds(page, "scrollY > 40")  # it opens scrolled to its end
        page.evaluate("scrollTo(0, 40)")
        before = page.locator("#unfinished").inner_text()
        expect(page.locator("#unfinished")).not_to_have_text(before)
        assert page.evaluate("scrollY") == 40  # a reader further up stays there
        key(page, "i")
        shows(page, "interrupted by you")


def test_neither_a_key_nor_a_second_click_answers_the_request_that_has_just_come(web: Served) -> None:
    id_ = web.new("waits-a-bit")
    with web.page(f"/sessions/{id_}") as page:
        page.evaluate(
            """new MutationObserver(() => { if (document.querySelector('.request'))
                 { document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'y', bubbles: true}));
                   document.querySelector('.request button').dispatchEvent(
                     new MouseEvent('click', {detail: 2, bubbles: true, cancelable: true})); } })
               .observe(document.getElementById('requests'), {childList: true})"""
        )
        web.ctl("send", "waits-a-bit", script(ASKS))
        shows(page, "This has just appeared")
        expect(page.locator(".request")).to_be_visible()


def test_on_a_phone_a_question_is_answered_with_a_thumb(web: Served) -> None:
    id_ = web.new("asks-which-format-of-dates", QUESTION, {"text": "thank you"})
    with web.page("/inbox", viewport=PHONE, has_touch=True, is_mobile=True) as page:
        card = page.locator(".request", has_text="Which date format?")
        page.goto(f"{web.url}/sessions/{id_}")
        web.ctl("send", id_, "a" * 300)
        shows(page, "(queued)")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        page.goto(f"{web.url}/inbox")
        assert card.locator(".kind").evaluate("(each) => each.getBoundingClientRect().height") < 40  # one line
        card.get_by_text("German").tap()
        card.get_by_role("button", name="Answer").tap()
        expect(card).to_have_count(0)
        for path in ("/", "/inbox", "/trash", f"/sessions/{id_}"):
            page.goto(web.url + path)
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
            expect(page.locator("nav [aria-current]")).to_be_in_viewport(ratio=1)
            small = "[...document.querySelectorAll('button, .button, nav a, input, select')].filter(e => e.checkVisibility() && !e.closest('.vh, .choice') && !e.matches('.vh') && e.getBoundingClientRect().height < 40).map(e => e.outerHTML)"
            assert page.evaluate(small) == []
        shows(page, "thank you")


def test_enter_sends_no_half_written_prompt(web: Served) -> None:
    id_ = web.new("half-written")
    composing = "new KeyboardEvent('keydown', {key: 'Enter', isComposing: true, bubbles: true, cancelable: true})"
    with web.page(f"/sessions/{id_}") as page:
        box = page.locator("[data-sends]")
        box.fill("にほんご")
        assert box.evaluate(f"(box) => box.dispatchEvent({composing})")  # the input method's key, which chooses a word
        page.reload()
        expect(box).to_have_value("にほんご")
        key(page, "r", "Shift+Enter")
        page.keyboard.type("second line")
        expect(box).to_have_value("にほんご\nsecond line")
        key(page, "Enter")
        expect(page.locator(".entry.said p")).to_have_text("にほんご\nsecond line")
        expect(box).to_have_value("")
    with web.page(f"/sessions/{id_}", viewport=PHONE, has_touch=True, is_mobile=True) as page:
        page.locator("[data-sends]").fill("one")
        key(page, "Enter")
        expect(page.locator("[data-sends]")).to_have_value("one\n")


def test_what_is_done_while_an_answer_is_on_its_way_counts_too(web: Served) -> None:
    id_ = web.new("hurried")
    with web.page(f"/sessions/{id_}") as page:
        page.on("dialog", lambda dialog: dialog.accept())
        held: list[Route] = []

        def hold(route: Route) -> None:
            held.append(route)

        page.route("**/prompt", hold)
        box = page.locator("[data-sends]")
        box.fill("first")
        key(page, "Enter", "Enter")
        eventually_here(page, lambda: len(held) == 1)
        box.fill("second")
        key(page, "Enter")
        box.fill("third")
        held.pop().continue_()
        eventually_here(page, lambda: len(held) == 1)
        held.pop().continue_()
        expect(page.locator(".entry.said p")).to_have_text(["first", "second"])
        expect(box).to_have_value("third")
        page.route("**/update", hold)
        key(page, "Escape", "m")
        page.get_by_role("button", name="Change").click()
        eventually_here(page, lambda: len(held) == 1)
        page.get_by_role("button", name="Archive").click()
        held.pop().continue_()
        expect(page.get_by_role("button", name="Restore")).to_be_visible()


def test_many_tabs_take_no_connection_from_each_other(web: Served) -> None:
    with web.page() as page:
        tabs = [page]
        for _ in range(8):  # a browser opens six connections to a server
            tabs[-1].evaluate(HIDE)
            tabs.append(page.context.new_page())
            tabs[-1].goto(f"{web.url}/inbox")
        page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
        web.new("seen-again")
        shows(page, "seen-again")


HIDE = """() => { Object.defineProperty(document, 'hidden', {value: true, configurable: true});
                  document.dispatchEvent(new Event('visibilitychange')); }"""
RECORD = """window.rung = []; window.gone = [];
Notification = class extends Notification {
  constructor(title, options) { super(title, options); rung.push(this); }
  close() { gone.push(this.tag); super.close(); } }"""


def test_a_notification_rings_once_for_what_no_visible_tab_shows(web: Served) -> None:
    with web.page(permissions=["notifications"]) as page:
        page.add_init_script(RECORD)
        page.reload()
        holds(page, INTERACTIVE)
        page.evaluate(HIDE)
        id_ = web.new("rings", ASKS)
        holds(page, "rung.length")
        assert page.evaluate("rung.map((each) => each.title)") == ["rings needs you"]
        count = page.locator("#needs").inner_text()
        with page.context.expect_page():
            seen = page.context.new_page()
        seen.goto(f"{web.url}/inbox")
        web.new("is-seen", ASKS)
        expect(page.locator("#needs")).to_have_text(str(int(count) + 1))
        web.ctl("interrupt", "rings")  # answered elsewhere
        holds(page, "gone.length")
        assert page.evaluate("navigator.locks.query().then(() => rung.length)") == 1
        page.evaluate("rung[0].onclick()")
        page.wait_for_url(f"**/sessions/{id_}")


def test_a_stream_that_has_died_in_silence_is_opened_again(web: Served) -> None:
    with web.browser.new_context() as context:
        page = context.new_page()
        page.clock.install()
        page.goto(web.ctl("web", "link", "--port", str(web.port)).strip())
        page.wait_for_url(f"{web.url}/")
        page.wait_for_load_state()
        with page.expect_request("**/live?*"):
            page.clock.fast_forward(60_000)


def test_the_first_of_two_answers_counts_and_the_other_names_its_author(web: Served) -> None:
    id_ = web.new("twice", ASKS, {"text": "ok"})
    with web.page(f"/sessions/{id_}") as page, web.page(f"/sessions/{id_}") as stale:
        shows(page, "$ make test")
        shows(stale, "$ make test")
        stale.route("**/live?*", lambda route: route.abort())
        stale.evaluate("dispatchEvent(new Event('pagehide'))")  # its stream is cut: it does not learn of the answer
        page.get_by_role("button", name="Approve", exact=True).click()
        expect(page.locator(".request.permission")).to_have_count(0)
        stale.get_by_role("button", name="Approve", exact=True).click()
        expect(stale.locator("#note")).to_contain_text("owner")


def test_pages_outlive_the_daemon_and_their_server_without_a_gap(web: Served, daemon: DaemonProcess) -> None:
    id_ = web.new("lives")
    with web.page(f"/sessions/{id_}") as page:
        page.evaluate("window.same = true")
        send = page.get_by_role("button", name="Send")
        expect(send).to_be_enabled()
        before = page.locator("#about").bounding_box()
        daemon.kill()
        shows(page, "The daemon does not answer")
        assert page.locator("#about").bounding_box() == before  # the page does not jump
        expect(send).to_be_disabled()
        page.locator("[data-sends]").fill("kept words")
        daemon.start()
        expect(page.locator("#banner")).to_be_hidden()
        web.ctl("send", "lives", script({"text": "after the daemon"}))
        shows(page, "after the daemon")
        web.stop()
        shows(page, "The web server does not answer")
        web.ctl("send", "lives", script({"text": "while the server was away"}))
        web.start()
        expect(page.locator("[role=log] .words").get_by_text("while the server was away")).to_be_visible()
        expect(page.locator("#banner")).to_be_hidden()
        expect(page.locator("[data-sends]")).to_have_value("kept words")
        expect(page.locator(".entry.ended")).to_have_count(2)
        assert page.evaluate("window.same")
        review = f"/sessions/{id_}/review"
        deep = (
            "/?q=lives",
            "/inbox",
            review,
            f"{review}?against=1&w=all",
            f"/sessions/{id_}/checkpoints",
            f"/log?session={id_}&audit=1",
        )
        assert [page.request.get(web.url + path).status for path in deep] == [200] * len(deep)


def test_files_reach_the_worktree_and_the_prompt(web: Served, tmp_path: Path) -> None:
    id_ = web.new("gets-files")
    shot = tmp_path / "shot.png"
    shot.write_bytes(b"\x89PNG")
    with web.page(f"/sessions/{id_}") as page:
        page.set_input_files("input[type=file]", str(shot))
        expect(page.locator("#files")).to_have_text("shot.png")
        page.locator("[data-sends]").fill("what is on it?")
        page.get_by_role("button", name="Send").click()
        shows(page, f"{FILES}/shot.png")
        expect(page.locator("#files")).to_be_empty()
    worktree = Path(web.ctl("path", "gets-files").strip())
    assert (worktree / FILES / "shot.png").read_bytes() == b"\x89PNG"
    assert (
        FILES
        not in subprocess.run(
            ["git", "status", "--porcelain"], cwd=worktree, capture_output=True, text=True, check=True
        ).stdout
    )


def test_the_filter_is_in_the_address_and_the_way_back_leads_to_it(web: Served) -> None:
    web.new("findable")
    with web.page() as page:
        key(page, "/")
        page.keyboard.type("findable")
        expect(page.locator(".row")).to_have_count(1)
        page.locator(".row a").click()
        page.wait_for_url("**/sessions/*")
        page.go_back()
        expect(page.locator(".row")).to_have_count(1)
        assert page.url.endswith("/?q=findable")


def test_mode_budget_archive_restore_and_removal(web: Served) -> None:
    id_ = web.new("changes")
    with web.page(f"/sessions/{id_}") as page:
        page.on("dialog", lambda dialog: dialog.accept())
        key(page, "m")
        page.locator("[name=mode]").select_option("plan")
        page.locator("[name=budget]").fill("2.5")
        page.get_by_role("button", name="Change").click()
        shows(page, "· plan")
        key(page, "A")
        page.get_by_role("button", name="Restore").click()
        shows(page, "Pause")
        key(page, "x")
        page.wait_for_url(f"{web.url}/")
        expect(page.locator("#note")).to_contain_text("is in the trash")
        expect(page.locator(".row", has_text="changes")).to_have_count(0)


def test_a_button_that_is_pressed_before_the_script_is_there_opens_its_dialog(web: Served) -> None:
    with web.page() as page:
        page.route("**/main.js", lambda route: route.abort())
        page.reload()
        page.get_by_role("button", name="New session").click()
        expect(page.get_by_role("dialog")).to_be_visible()


def test_a_refusal_is_said_in_the_dialog_that_asked(web: Served) -> None:
    with web.page() as page:
        key(page, "n")
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("What should the agent do?").fill("build it")
        dialog.get_by_label("Repository").select_option("")
        dialog.get_by_label("Its directory").fill("/nowhere")
        dialog.get_by_role("button", name="Create").click()
        expect(dialog.get_by_role("status")).to_contain_text("/nowhere")
        expect(dialog.get_by_label("What should the agent do?")).to_have_value("build it")
        dialog.get_by_role("button", name="Cancel").click()
        expect(dialog).to_be_hidden()


def test_an_answered_request_stays_below_the_pointer_and_takes_no_second_answer(web: Served) -> None:
    for number in range(2):
        web.new(f"one-of-two-{number}", ASKS)
    with web.page("/inbox") as page:
        cards = page.locator(".request.permission", has_text="one-of-two")
        expect(cards).to_have_count(2)
        first, second = cards.nth(0), cards.nth(1)
        first.hover()
        place = first.bounding_box()
        second.locator("[data-row]").focus()

        def answered() -> bool:
            key(page, "y")  # for the focused request, after the delay for a new one
            return "answered" in str(second.get_attribute("class"))

        eventually_here(page, answered)
        assert first.get_attribute("class") == "request permission"
        first.get_by_role("button", name="Approve", exact=True).click()
        expect(first).to_have_class(re.compile("answered"))
        assert first.bounding_box() == place
        page.mouse.move(0, 0)
        expect(cards).to_have_count(0)


def test_a_contest_is_decided_by_keyboard_and_fits_on_a_phone(web: Served) -> None:
    work = script({"text": "**done**"})
    web.ctl("new", work, "--name", "race", "--count", "2", "--check", "echo looked")
    with web.page("/", viewport=PHONE) as page:
        page.locator("#contests a", has_text="race").click()
        expect(page.locator(".contender .state", has_text="idle")).to_have_count(2)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        assert page.evaluate(CONTRAST) == []
        assert page.evaluate(NAMELESS) == []
        key(page, "!")
        expect(page.locator(".contender dd", has_text="passed")).to_have_count(2)
        page.locator(".contender summary").first.click()
        shows(page, "looked")
        page.locator(".contender a", has_text="race-2").focus()
        key(page, "W")
        expect(page.get_by_role("dialog", name="Pick race-2")).to_contain_text("archives race-1")
        page.get_by_role("button", name="Pick it").click()
        expect(page.locator(".contender.archived")).to_have_count(1)
        shows(page, "picked race-2; archived race-1")


JUST_MOVED = """() => { const now = performance.now(); performance.now = () => now;
                        document.dispatchEvent(new PointerEvent('pointermove')); }"""
"""The pointer moved a moment ago, for as long as the page's clock stands still: a timer that moves
it again runs late on a busy machine."""


def test_what_a_pointer_is_over_stays_where_it_is(web: Served) -> None:
    web.new("under-the-pointer")
    with web.page() as page:
        row = page.locator(".row", has_text="under-the-pointer")
        row.hover()
        page.evaluate(JUST_MOVED)
        before = row.bounding_box()  # only now: until then, sessions of earlier tests may still move it
        web.new("pushes-down", ASKS)
        asked = page.locator("#needs")
        expect(asked).to_be_visible()
        assert row.bounding_box() == before
        page.evaluate("delete performance.now")
        page.mouse.move(0, 0)
        expect(page.locator(".row", has_text="pushes-down")).to_be_visible()
        assert page.title().startswith("(")
        assert page.locator("#icon").get_attribute("href") != "/favicon.svg?n=0"


def test_a_colleague_looks_at_one_session_and_can_do_nothing(web: Served) -> None:
    id_ = web.new("shown", {"text": "look here"})
    other = web.new("hidden")
    link = web.ctl("web", "share", "shown", "--read-only", "--for", "1h", "--port", str(web.port)).strip()
    with web.page(link=link) as page:
        shows(page, "look here")
        assert page.locator("button:not(#help button)").all_inner_texts() == ["?"]
        answers = page.evaluate(
            """async ([own, other]) => [
                (await fetch(`/sessions/${own}/prompt`, {method: 'POST', body: '{"prompt": "x"}'})).status,
                (await fetch(`/sessions/${other}`)).status, (await fetch('/')).status]""",
            [id_, other],
        )
        assert answers == [403, 403, 403]


CONTRAST = """() => {
  const parse = (text) => { const canvas = parse.canvas ??= new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; } return [255, 255, 255]; };
  const poor = [];
  for (const e of document.querySelectorAll('body *')) {
    if (!e.checkVisibility() || e.closest('.vh, .skip, :disabled') || ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) poor.push(`${e.className} ${e.innerText} ${(a + 0.05) / (b + 0.05)}`);
  }
  return poor;
}"""
NAMELESS = """() => [...document.querySelectorAll('button, a[href], input, select, textarea, [role=img]')]
  .filter((e) => e.checkVisibility() && !(e.getAttribute('aria-label') || e.labels?.length || e.innerText?.trim() || e.title)).map((e) => e.outerHTML)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_can_be_read_and_heard(web: Served, scheme: str) -> None:
    write = {"tool": "Write", "input": {"file_path": "$CWD/x.py", "content": "x = 1\n"}}
    id_ = web.new(
        f"reads-{scheme}", {"thinking": "hm"}, {"text": "a\n```python\ndef f(): return 'x' # c\n```"}, ASKS, write
    )
    with web.page(color_scheme=scheme, reduced_motion="reduce") as page:
        for path in ("/", "/inbox", f"/sessions/{id_}"):
            page.goto(web.url + path)
            if "sessions" in path:
                shows(page, "$ make test")
            expect(page.get_by_role("main")).to_have_count(1)
            expect(page.get_by_role("navigation", name="Pages")).to_have_count(1)
            expect(page.get_by_role("heading", level=1)).to_have_count(1)
            assert page.evaluate(CONTRAST) == []
            assert page.evaluate(NAMELESS) == []
            durations = "getComputedStyle(document.querySelector('button')).transitionDuration"
            assert page.evaluate(durations) == "0s"


def test_hostile_texts_stay_texts(web: Served) -> None:
    text = f"<script>alert(1)</script><img src=x onerror=alert(1)> ![x](http://evil.example/x.png) [y](javascript:alert(1)) {HOSTILE}"
    id_ = web.new(
        "hostile", {"thinking": text}, {"text": text}, {"tool": "Bash", "input": {"command": text, "description": text}}
    )
    asked: list[str] = []
    with web.page() as page:
        page.on("dialog", lambda dialog: web.faults.append(dialog.message))
        page.on("request", lambda request: asked.append(request.url))
        for path in ("/", "/inbox", f"/sessions/{id_}"):
            page.goto(web.url + path)
            page.wait_for_load_state()
        shows(page, "<script>alert(1)</script>")
    assert [each for each in asked if not each.startswith(web.url)] == []
