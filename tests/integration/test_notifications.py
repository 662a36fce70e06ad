"""Notifications: a real store, real servers and programs, a manual clock."""

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import structlog
from rametd.config import combine
from rametd.config.files import Source
from rametd.domain.models import Hold, Request, RequestKind
from rametd.domain.notifications import Way
from rametd.domain.states import State
from rametd.services.core import Core
from rametd.services.landing import entries
from rametd.services.lifecycle import change_state, log_request
from rametd.services.notifications.messages import NEUTRAL
from rametd.services.notifications.notifier import FAILURES_SAID, FOCUS_S, PAUSES_S, SPACING_S, Notifier, quiet_until
from rametd.services.upkeep.checks.directories import notifications as diagnose

from tests.support.core import bare_core
from tests.support.eventually import eventually
from tests.support.receivers import Receiver, program, receiver, runs
from tests.support.rows import a_landing, a_repo, a_request, a_session

SECRET_TEXT = "rm -rf /secret/place"


@dataclass
class World:
    core: Core
    notifier: Notifier
    time: list[float]
    root: Path

    async def asks(self, request_id: str, name: str = "parser", **fields: Any) -> Request:
        """Open a request of a session."""
        request = a_request(
            request_id, name, create_time=self.time[0], input=json.dumps({"command": SECRET_TEXT}), **fields
        )

        def work(unit: Any) -> None:
            if unit.sessions.find(name) is None:
                unit.sessions.insert(a_session(name, state=State.WORKING))
            log_request(unit, unit.sessions.get(name), unit.requests.add(request))

        await self.core.store.write(work)
        return request

    async def answered(self, request: Request) -> None:
        await self.core.store.write(lambda unit: unit.requests.close([request.id]))

    async def after(self, seconds: float) -> float:
        self.time[0] += seconds
        return await self.notifier.step()

    async def queued(self) -> int:
        return len(await self.core.store.read(lambda reader: reader.notifications.list()))

    async def delivered(self) -> bool:
        return not await self.queued()


@asynccontextmanager
async def world(root: Path, config: str, **extra: str) -> AsyncIterator[World]:
    time = [1_000_000.0]
    environ = {"PATH": f"{root / 'bin'}:{os.environ['PATH']}", "HOME": str(root), **extra}
    (root / "home").mkdir(exist_ok=True)
    settings = combine(Source("config.toml", config), home=root)
    async with bare_core(root, environ, lambda: time[0], settings, store_clock=lambda: time[0]) as core:
        await core.store.write(lambda unit: unit.repos.upsert(a_repo()))
        made = World(core, Notifier(core), time, root)
        await made.notifier.step()  # from here on it notifies
        yield made


@pytest.fixture
def server() -> Any:
    with receiver() as running:
        yield running


def webhook(server: Receiver, more: str = "") -> str:
    return f'[notify.webhook]\nurl = "{server.url}/hook"\n{more}'


async def test_an_item_is_sent_once_and_only_when_it_has_waited(tmp_path: Path, server: Receiver) -> None:
    async with world(tmp_path, webhook(server)) as here:
        await here.asks("r1")
        assert 9 < await here.after(0) <= 10
        assert server.posted == []
        await here.after(10)
        for _ in range(3):
            await here.after(100)
        (posted,) = server.posted
        assert posted.document["items"][0]["request_id"] == "r1"
        assert posted.document["title"] == "parser needs you"
        assert await here.queued() == 0


async def test_an_answer_in_time_cancels_it(tmp_path: Path, server: Receiver) -> None:
    async with world(tmp_path, webhook(server)) as here:
        request = await here.asks("r1")
        await here.after(9)
        await here.answered(request)
        await here.after(10)
        assert (server.posted, await here.queued()) == ([], 0)


async def test_several_at_once_come_as_one_and_the_next_not_at_once(tmp_path: Path, server: Receiver) -> None:
    async with world(tmp_path, webhook(server)) as here:
        for number in range(13):
            await here.asks(f"r{number:02}", f"s{number:02}")
        await here.after(2)
        await here.asks("later", "s99")
        await here.after(8)
        (posted,) = server.posted
        assert posted.document["title"] == "14 sessions need you"
        assert posted.document["text"].splitlines()[-1] == "and 4 more: rametctl inbox"
        await here.asks("r2nd", "s00")
        await here.after(10)
        assert len(server.posted) == 1
        await here.after(SPACING_S)
        assert [len(each.document["items"]) for each in server.posted] == [14, 1]


async def test_no_text_of_the_agent_leaves_the_machine_by_default(tmp_path: Path, server: Receiver) -> None:
    ntfy = f'[notify.ntfy]\nurl = "{server.url}/deep/my-topic"\ntoken = "tk_secret"\n'
    async with world(tmp_path, webhook(server) + ntfy) as here:
        await here.asks("r1")
        await here.after(10)
        sent = {each.path: each for each in server.posted}
        assert set(sent) == {"/hook", "/deep/"}
        assert SECRET_TEXT not in json.dumps([each.document for each in server.posted])
        assert sent["/hook"].document["text"] == "parser: wants to use Bash"
        assert sent["/deep/"].document["topic"] == "my-topic"
        assert sent["/deep/"].headers["Authorization"] == "Bearer tk_secret"


@pytest.mark.parametrize(("form", "key"), [("json", "text"), ("slack", "text")])
async def test_a_webhook_gets_the_text_if_configured(tmp_path: Path, server: Receiver, form: str, key: str) -> None:
    async with world(tmp_path, webhook(server, f'format = "{form}"\ninclude_text = true\n')) as here:
        await here.asks("r1", "<!channel>")
        await here.after(10)
        assert SECRET_TEXT in server.posted[0].document[key]
        assert ("<!channel>" in server.posted[0].document[key]) == (form == "json")


async def test_programs_get_the_event_and_the_desktop_its_words(tmp_path: Path) -> None:
    notify_send = program(tmp_path / "bin" / "notify-send")
    mine = program(tmp_path / "mine")
    config = f'[notify.desktop]\nenabled = true\n[notify.command]\nargv = ["{mine}", "--flag"]\n'
    async with world(tmp_path, config) as here:
        await here.asks("r1", "<b>-x")
        await here.after(10)
        (shown,) = runs(notify_send)
        assert shown.splitlines()[2:] == ["--", "<b>-x needs you", f"&lt;b&gt;-x: wants to run: {SECRET_TEXT}"]
        (given,) = runs(mine)
        flag, document = given.split("\n", 1)
        assert (flag, json.loads(document)["items"][0]["kind"]) == ("--flag", "permission")


async def test_each_way_has_its_own_age_topics_and_repositories(tmp_path: Path, server: Receiver) -> None:
    mine = program(tmp_path / "mine")
    config = (
        webhook(server, 'min_age = "60s"\non = ["waiting"]\n')
        + f'[notify.command]\nargv = ["{mine}"]\nmin_age = "1s"\non = ["review"]\n'
        + f'[notify.ntfy]\nurl = "{server.url}/other"\nrepos = ["none-*"]\n'
    )
    async with world(tmp_path, config) as here:
        await here.asks("r1")
        await here.asks("r2", kind=RequestKind.REVIEW)
        await here.after(1)
        assert (len(server.posted), len(runs(mine))) == (0, 1)
        await here.after(59)
        assert [(each.path, each.document["items"][0]["topic"]) for each in server.posted] == [("/hook", "waiting")]


KINDS = [
    (RequestKind.QUESTION, State.WORKING, Hold.NONE, "waiting"),
    (RequestKind.LOGIN, State.PAUSED, Hold.LOGIN, "waiting"),
    (RequestKind.LANDING, State.IDLE, Hold.NONE, "waiting"),
    (RequestKind.CONFLICT, State.IDLE, Hold.NONE, "conflict"),
    (RequestKind.REVIEW, State.IDLE, Hold.NONE, "review"),
    (RequestKind.TROUBLE, State.FAILED, Hold.NONE, "failed"),
    (RequestKind.TROUBLE, State.PAUSED, Hold.BUDGET, "budget"),
]


@pytest.mark.parametrize(("kind", "state", "hold", "topic"), KINDS)
async def test_the_topic_of_each_kind_of_request(
    tmp_path: Path, server: Receiver, kind: RequestKind, state: State, hold: Hold, topic: str
) -> None:
    async with world(tmp_path, webhook(server)) as here:
        await here.core.store.write(lambda unit: unit.sessions.insert(a_session("s", state=state, hold=hold)))
        await here.asks("r1", "s", kind=kind)
        await here.after(10)
        assert server.posted[0].document["items"][0]["topic"] == topic


def test_every_kind_of_request_has_neutral_words() -> None:
    assert set(NEUTRAL) == set(RequestKind)


async def test_a_usage_limit_and_a_landing_notify_though_no_request_waits(tmp_path: Path, server: Receiver) -> None:
    async with world(tmp_path, '[notify]\non = ["limit", "landed"]\n' + webhook(server)) as here:

        def work(unit: Any) -> None:
            session = unit.sessions.insert(a_session("limited", state=State.WORKING))
            change_state(unit, session, State.PAUSED, reason="usage limit", hold=Hold.LIMIT)
            gone = unit.sessions.insert(a_session("gone", state=State.WORKING))
            change_state(unit, gone, State.PAUSED, hold=Hold.LIMIT)
            entries.log(unit, unit.landings.add(a_landing("l1", "limited")))

        await here.core.store.write(work)
        await here.core.store.write(
            lambda unit: change_state(unit, unit.sessions.get("gone"), State.QUEUED)
        )  # the limit ends in time
        await here.after(10)
        assert [(each["topic"], each["session"]) for each in server.posted[0].document["items"]] == [
            ("landed", "limited"),
            ("limit", "limited"),
        ]


async def test_what_a_focused_dashboard_shows_is_seen_and_never_comes_later(tmp_path: Path, server: Receiver) -> None:
    async with world(tmp_path, webhook(server)) as here:
        here.notifier.report_focus("dashboard", focused=True)
        await here.asks("r1")
        await here.after(10)
        here.notifier.report_focus("dashboard", focused=False)
        await here.after(100)
        assert (server.posted, await here.queued()) == ([], 0)
        here.notifier.report_focus("killed", focused=True)
        await here.asks("r2")
        await here.after(FOCUS_S)  # it sends no more reports
        assert len(server.posted) == 1


async def test_quiet_hours_delay_items_that_still_wait(tmp_path: Path, server: Receiver) -> None:
    now = datetime.fromtimestamp(1_000_000.0).astimezone()
    quiet = f"{now.hour:02}:00-{(now.hour + 2) % 24:02}:00"
    async with world(tmp_path, f'[notify]\nquiet = "{quiet}"\n' + webhook(server)) as here:
        request = await here.asks("r1")
        await here.asks("r2", "other")
        rest = await here.after(60)
        assert (server.posted, 3600 - 60 < rest <= 7200) == ([], True)
        await here.answered(request)
        await here.after(rest)
        assert [each["request_id"] for each in server.posted[0].document["items"]] == ["r2"]


@pytest.mark.parametrize(
    ("quiet", "clock", "ends"),
    [
        ("22:00-07:30", "2026-03-03 23:59", "2026-03-04 07:30"),
        ("22:00-07:30", "2026-03-04 07:29", "2026-03-04 07:30"),
        ("22:00-07:30", "2026-03-04 07:30", None),
        ("22:00-07:30", "2026-03-04 21:59", None),
        ("12:00-13:00", "2026-03-04 12:00", "2026-03-04 13:00"),
        ("", "2026-03-04 12:00", None),
    ],
)
def test_quiet_hours_may_go_over_midnight(quiet: str, clock: str, ends: str | None) -> None:
    now = datetime.fromisoformat(clock).timestamp()
    assert quiet_until(quiet, now) == (datetime.fromisoformat(ends).timestamp() if ends else 0)


async def test_a_failing_way_is_tried_again_with_growing_pauses_and_said_once(tmp_path: Path, server: Receiver) -> None:
    mine = program(tmp_path / "mine")
    config = webhook(server) + f'[notify.command]\nargv = ["{mine}"]\n'
    async with world(tmp_path, config) as here:
        server.answers[:] = [500] * (FAILURES_SAID + 1)
        await here.asks("r1")
        await here.after(10)
        assert len(runs(mine)) == 1, "another way does not wait for it"
        for tries, pause in enumerate(PAUSES_S[:FAILURES_SAID], 1):
            assert len(server.posted) == tries
            await here.after(pause - 1)
            assert len(server.posted) == tries
            await here.after(1)

        def warnings(reader: Any) -> int:
            return len(reader.events.list(kinds={"warning"}))

        assert await here.core.store.read(warnings) == 1
        (finding,) = [found async for found in diagnose(here.core, Counter())]
        assert (finding.code, finding.subject) == ("notification-failing", "webhook")
        await here.asks("r2", "other")
        await here.after(PAUSES_S[-1])  # it answers now, and gets the newer items too
        assert [each["request_id"] for each in server.posted[-1].document["items"]] == ["r1", "r2"]
        assert [found async for found in diagnose(here.core, Counter())] == []


@pytest.mark.parametrize("mend", ["test", "configure"])
async def test_a_repaired_way_delivers_at_once_what_waits(mend: str, tmp_path: Path, server: Receiver) -> None:
    async with world(tmp_path, webhook(server)) as here:
        await here.asks("r1")
        server.answers[:] = [500] * FAILURES_SAID
        for pause in (10, *PAUSES_S[: FAILURES_SAID - 1]):
            await here.after(pause)
        assert len(server.posted) == FAILURES_SAID
        running = asyncio.create_task(here.notifier.run())
        try:
            await eventually(lambda: here.core.on_configured)
            if mend == "test":
                assert await here.notifier.test() == [(Way.WEBHOOK, "")]
            else:
                text = webhook(server).replace("/hook", "/mended")
                here.core.config = combine(Source("config.toml", text), home=tmp_path)
                for call in here.core.on_configured:
                    call()
            await eventually(lambda: [each for each in server.posted[FAILURES_SAID:] if each.document["items"]])
            await eventually(here.delivered)  # the receiver has it before this is stored
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_the_log_warns_once_of_a_failing_way(tmp_path: Path, server: Receiver) -> None:
    async with world(tmp_path, webhook(server)) as here:
        await here.asks("r1")
        server.answers[:] = [500] * len(PAUSES_S)
        with structlog.testing.capture_logs() as lines:
            for pause in (10, *PAUSES_S[:-1]):
                await here.after(pause)
    tries = [(each["failures"], each["log_level"]) for each in lines]
    assert [tried for tried, _ in tries] == [*range(1, len(PAUSES_S) + 1)]
    assert [tried for tried, level in tries if level == "warning"] == [FAILURES_SAID]


async def test_a_redirect_is_not_followed(tmp_path: Path, server: Receiver) -> None:
    with receiver() as elsewhere:
        for status in (301, 302, 303, 307, 308):
            server.answers, server.location = [status], f"{elsewhere.url}/steal"
            async with world(tmp_path, webhook(server)) as here:
                ((way, error),) = await here.notifier.test()
                assert (way, f"HTTP {status}" in error) == (Way.WEBHOOK, True)
        assert elsewhere.posted == []


async def test_each_way_says_why_it_fails(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "notify-send", code=3)
    config = (
        '[notify.desktop]\nenabled = true\n[notify.command]\nargv = ["/nowhere/at-all"]\n'
        '[notify.webhook]\nurl = "http://127.0.0.1:1/hook"\n[notify.ntfy]\nurl = "http://127.0.0.1:1/topic"\n'
    )
    async with world(tmp_path, config) as here:
        found = dict(await here.notifier.test())
        assert set(found) == set(Way)
        assert "exited with 3" in found[Way.DESKTOP]
        assert found[Way.COMMAND] == "/nowhere/at-all cannot be run: No such file or directory"
        for way in (Way.WEBHOOK, Way.NTFY):
            assert found[way].startswith("127.0.0.1:1 cannot be reached")


async def test_old_items_are_not_sent_when_notifications_are_enabled(tmp_path: Path, server: Receiver) -> None:
    async with world(tmp_path, "") as here:
        await here.asks("old")
        await here.after(10)
        notify = combine(Source("", webhook(server)), home=tmp_path).notify
        config = replace(here.core.config, notify=notify)
        here.notifier = Notifier(replace(here.core, config=config))
        await here.after(10)
        await here.asks("new", "other")
        await here.after(10)
        assert [each["request_id"] for each in server.posted[0].document["items"]] == ["new"]


async def test_the_first_item_after_notifications_are_enabled_is_queued(tmp_path: Path, server: Receiver) -> None:
    async with world(tmp_path, "") as here:
        running = asyncio.create_task(here.notifier.run())
        await eventually(lambda: here.core.on_configured)  # its first step has read the old configuration
        here.core.config = combine(Source("", webhook(server)), home=tmp_path)
        for call in here.core.on_configured:
            call()
        await eventually(lambda: here.core.store.read(lambda reader: reader.notifications.cursor() is not None))
        await here.asks("first")
        await eventually(here.queued)
        running.cancel()
        await asyncio.wait([running])
