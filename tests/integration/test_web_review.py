"""The review page over HTTP, on a running daemon."""

import re
from collections.abc import AsyncIterator, Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from ramet.v1 import session_pb2, worktree_pb2

from tests.support.daemon import Client, DaemonProcess, connected, daemon_process, git, make_sandbox
from tests.support.eventually import eventually
from tests.support.reviews import HOSTILE, before, changed, png
from tests.support.running import client, repo_of, sandbox
from tests.support.web import Visitor, visiting

__all__ = ["client", "sandbox"]


@pytest.fixture(scope="module")
def running() -> Iterator[DaemonProcess]:
    with make_sandbox() as sandbox, daemon_process(sandbox) as daemon:
        before(sandbox.repository())
        yield daemon


@pytest.fixture
async def session(running: DaemonProcess, client: Client) -> session_pb2.Session:
    try:
        return await client.get("fix")
    except Exception:  # noqa: BLE001  the first test makes it
        return await changed(client, repo_of(running))


@pytest.fixture
async def owner(running: DaemonProcess, session: session_pb2.Session) -> AsyncIterator[Visitor]:
    async with visiting(running.sandbox.environ) as visitor:
        yield visitor


async def piece(owner: Visitor, session: session_pb2.Session, path: str, **query: str) -> str:
    answer = await owner.get(f"/sessions/{session.id}/review/file?{urlencode({'path': path, **query})}")
    assert answer.status_code == 200, answer.text
    return answer.text


async def review(owner: Visitor, session: session_pb2.Session, **query: str) -> str:
    answer = await owner.get(f"/sessions/{session.id}/review?{urlencode(query)}")
    assert answer.status_code == 200, answer.text
    return answer.text


async def test_the_page_lists_every_changed_file_as_data(owner: Visitor, session: session_pb2.Session) -> None:
    page = await review(owner, session)
    assert len(re.findall(r'<section data-scope class="file ', page)) == 9
    assert "<img src=x" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;\ufffd.py" in page
    assert not re.search(r"\sstyle=|<script(?! type=\"module\" src=\"/static/)", page)
    for words in ("old.py → ", "renamed", "deleted", "binary"):
        assert words in page
    assert "<table" not in page  # diffs are fetched


KINDS = [
    ("src/app/code.py", ['<table class="diff split"', '<span class="nf w">parse</span>', '<span class="nf w">read</span>', "data-whole>⋯ 36 lines"]),
    ("logo.png", ["review/picture?path=logo.png&amp;at=base", "review/picture?path=logo.png&amp;at=&amp;"]),
    ("new.py", ["Similarity 100%"]),
    ("run.sh", ["Mode 100644 → 100755"]),
    ("link", ["Symbolic link", "/etc/hostname", "no line feed at the end"]),
    ("dir0/file0.txt", ['class="t del"', "diff unified"]),
    (HOSTILE, ["&#39;&lt;script&gt;alert(1)&lt;/script&gt;&#39;", "␛"]),
    ("data.bin", ["Binary file."]),
    ("no-such-file", ["no changes any more"]),
]  # fmt: skip


@pytest.mark.parametrize(("path", "words"), KINDS)
async def test_each_kind_of_file_is_shown_as_such(
    owner: Visitor, session: session_pb2.Session, path: str, words: list[str]
) -> None:
    page = await review(owner, session)
    urls = [unescape(url) for url in re.findall(r'data-url="([^"]*)"', page)]
    found = [url for url in urls if parse_qs(urlsplit(url).query)["path"] == [path]]
    url = found[0] if found else f"/sessions/{session.id}/review/file?path={path}"
    shown = (await owner.get(f"{url}&view=split")).text
    assert [word for word in words if word not in shown] == []
    assert "<script" not in shown
    assert ("review/picture" in shown) is (path == "logo.png")  # no other file is requested as a picture


async def test_a_long_file_arrives_in_pieces(owner: Visitor, session: session_pb2.Session) -> None:
    found: list[int] = []
    text = await piece(owner, session, "zz_large.py", v="1.")
    while len(found) < 2000:
        found += [int(number) for number in re.findall(r'data-side="new" data-n="(\d+)"', text)]
        more = re.search(r'data-more="([^"]*)"', text)
        assert more is not None
        text = (await owner.get(f"{unescape(more[1])}&v=1.")).text
    assert found == list(range(1, len(found) + 1))


async def test_comments_stay_at_their_lines_until_they_are_resolved(
    owner: Visitor, session: session_pb2.Session, client: Client
) -> None:
    where = f"/sessions/{session.id}/review"
    for values in (
        {"path": "src/app/code.py", "line": "5", "end_line": "4", "text": "<b>name it</b>"},
        {"path": "src/app/code.py", "line": "3", "end_line": "4", "at": "base", "text": "keep the name"},
        {"path": "src/app/code.py", "line": "0", "text": "split this"},
    ):
        assert (await owner.post(f"{where}/comments", values)).status_code == 200
    assert (
        await owner.post(f"{where}/comments", {"path": "src/app/code.py", "line": "999", "text": "x"})
    ).status_code == 409
    shown = await piece(owner, session, "src/app/code.py", view="split")
    rows = re.findall(r"<tr.*?</tr>", shown, re.DOTALL)
    (base, name) = (next(at for at, row in enumerate(rows) if words in row) for words in ("keep the name", "name it"))
    assert ('data-n="4"' in rows[base - 1], "Lines 3–4 ·" in rows[base]) == (True, True)
    assert 'data-side="new" data-n="5"' in rows[name - 1]
    assert "&lt;b&gt;name it&lt;/b&gt;" in rows[name]
    assert "split this" in shown.partition("<table")[0]

    sent = await owner.post(f"{where}/send", {"text": "Please:"})
    assert sent.status_code == 200, sent.text
    listed: Any = await client.worktrees.ListComments(worktree_pb2.ListCommentsRequest(session=session.id))
    assert {each.state for each in listed.comments} == {worktree_pb2.COMMENT_STATE_SENT}
    for each in listed.comments:
        await owner.post(f"/comments/{each.id}/resolve")
    assert "keep the name" not in await piece(owner, session, "src/app/code.py")
    assert "nothing to send" in (await owner.post(f"{where}/send")).json()["error"]


async def test_a_viewed_file_is_viewed_until_it_changes(
    owner: Visitor, session: session_pb2.Session, running: DaemonProcess
) -> None:
    section = re.search(r'data-view-file="([^"]*)"', (await review(owner, session)).partition('data-path="run.sh"')[2])
    assert section is not None
    where = f"/sessions/{session.id}/review/viewed"
    await owner.post(where, {"path": "run.sh", "content": section[1]})
    async with visiting(running.sandbox.environ) as again:  # after a restart
        assert 'data-path="run.sh" data-viewed' in await review(again, session)
        (Path(session.worktree) / "run.sh").write_text("#!/bin/sh\necho\n")

        async def look() -> bool:
            return 'data-path="run.sh" data-viewed' not in await review(again, session, w="all")

        await eventually(look)
    await owner.post(where, {"path": "run.sh", "content": ""})
    assert not owner.site.viewed.has(session.id, "run.sh", section[1])


async def test_only_pictures_are_served(owner: Visitor, session: session_pb2.Session) -> None:
    where = f"/sessions/{session.id}/review/picture"
    answer = await owner.get(f"{where}?path=logo.png&at=base")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
    for path in ("data.bin", "zz_large.py", HOSTILE, "../../state/ramet.db", "no-such-file"):
        assert (await owner.get(f"{where}?{urlencode({'path': path})}")).status_code == 404


async def test_a_read_only_link_looks_and_does_nothing(owner: Visitor, session: session_pb2.Session) -> None:
    guest = owner.link(session=session.id)
    page = await review(guest, session)
    assert not re.search(r"data-comment|data-view-file|id=\"finish\"", page)
    assert "parse" in await piece(guest, session, "src/app/code.py")
    for action in ("comments", "send", "viewed"):
        assert (await guest.post(f"/sessions/{session.id}/review/{action}", {"text": "x"})).status_code == 403


async def test_a_read_only_link_shows_no_state_of_others(
    owner: Visitor, session: session_pb2.Session, running: DaemonProcess
) -> None:
    """Names that a read-only link must not reach: branches, the stash, other sessions, commits,
    others' checkpoints by their refs."""
    repository, elsewhere = repo_of(running), Path(session.worktree).parent / "elsewhere"
    git(repository, "worktree", "add", "-q", "-b", "secret", str(elsewhere))
    (elsewhere / "secret.txt").write_text("of others\n")
    (elsewhere / "secret.png").write_bytes(png(1))
    git(elsewhere, "add", ".")
    git(elsewhere, "commit", "-qm", "secret")
    commit = git(elsewhere, "rev-parse", "HEAD").strip()
    guest = owner.link(session=session.id)
    for name in ("secret", "refs/heads/secret", "secret~0", commit, commit[:8], "1234", "stash", "HEAD", "fix"):
        for side in ("against", "until"):
            assert "of others" in await piece(owner, session, "secret.txt", **{side: "secret"})  # it is visible
            await review(owner, session, **{side: name}) if name not in {"1234", "stash"} else None  # and waits here
            page = await review(guest, session, **{side: name})
            assert "own states only" in page
            assert "secret.txt" not in page
            query = urlencode({"path": "secret.txt", side: name})
            answer = await guest.get(f"/sessions/{session.id}/review/file?{query}")
            assert (name, answer.status_code, "of others" in answer.text) == (name, 404, False)
        picture = f"/sessions/{session.id}/review/picture?{urlencode({'path': 'secret.png', 'at': name})}"
        assert (name, (await guest.get(picture)).status_code) == (name, 404)
    for name in ("base", "target", "1"):
        assert "own states only" not in await review(guest, session, against=name)
        assert "parse" in await piece(guest, session, "src/app/code.py", against=name)


@pytest.mark.parametrize(
    ("query", "words"), [({"against": "no-such"}, "no-such"), ({"against": "1", "until": "1"}, "0 files")]
)
async def test_any_two_states_are_compared(
    owner: Visitor, session: session_pb2.Session, query: dict[str, str], words: str
) -> None:
    assert words in await review(owner, session, **query)
    assert (await owner.get(f"/sessions/{session.id}/review?against=a%20b")).status_code == 404


async def test_accepted_work_is_queued_to_land(owner: Visitor, client: Client, running: DaemonProcess) -> None:
    async with connected(running.sandbox) as connection:
        session = await connection.create(repo_of(running), name="small")
    (Path(session.worktree) / "small.txt").write_text("small\n")
    assert (await owner.post(f"/sessions/{session.id}/land", {"method": "octopus"})).status_code == 409
    refused = (await owner.post(f"/sessions/{session.id}/land", {"local": "1"})).json()
    assert "uncommitted" in refused["error"]
    assert "--" not in refused["hint"]  # the page has no command-line options
    done = await owner.post(f"/sessions/{session.id}/land", {"message": "add small", "local": "1"})
    assert done.json()["go"] == "/queue", done.text

    await eventually((repo_of(running) / "small.txt").exists)
