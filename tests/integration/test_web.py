"""The web page over HTTP: access, forms, streams, and hostile texts as data."""

import asyncio
import json
import re
import socket
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import quote

import httpx
import pytest
from ramet.v1 import attention_pb2, daemon_pb2, event_pb2, session_pb2
from rametctl.errors import UsageError
from rametctl.web import server
from rametctl.web.access import Grant
from rametctl.web.server import CONNECTIONS, MODULES
from rametctl.web.session import FILES, keep
from rametctl.web.site import Site, Tab, Visit

from tests.support.client import World
from tests.support.client import world as make_world
from tests.support.eventually import eventually
from tests.support.fake_state import Refusal
from tests.support.hostile import HOSTILE
from tests.support.web import COOKIE, ORIGIN, Visitor, served, visiting

WAITING, WORKING = session_pb2.SESSION_STATE_WAITING, session_pb2.SESSION_STATE_WORKING
PATHS = [page.path for module in MODULES for page in module.PAGES]
ACTIONS = [path for module in MODULES for path in module.ACTIONS]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with make_world(tmp_path) as made:
        made.state.session("fix", repo="shop")
        yield made


@pytest.fixture
async def owner(world: World) -> AsyncIterator[Visitor]:
    async with visiting(world.environ) as visitor:
        yield visitor


def filled(path: str, world: World) -> str:
    """Return a route's path with ids of the world's things."""
    (session,) = world.state.sessions
    request = next(iter(world.state.requests), "none")
    return path.replace("{session}", session).replace("{request}", request)


# Access

ATTEMPTS: list[tuple[str, dict[str, Any], int]] = [
    ("no session", {"cookie": ""}, 401),
    ("a stale session", {"cookie": f"{COOKIE}=long-gone"}, 401),
    ("a link's token as a session", {"cookie": f"{COOKIE}=LINK"}, 401),
    ("a foreign host", {"host": "evil.example"}, 400),
    ("a foreign host with our port", {"host": "evil.example:7363"}, 400),
    ("no host", {"host": ""}, 400),
    # Frameworks build a request's address from its Host header, which must not change the path.
    *((f"a host with {what}", {"host": host}, 400) for what, host in {
        "a public path": "127.0.0.1:7363/static/?", "a query": "127.0.0.1?", "a fragment": "127.0.0.1#",
        "a user": "x@127.0.0.1:7363", "a list": "127.0.0.1,evil.example", "a backslash": "127.0.0.1\\static",
    }.items()),
]  # fmt: skip
FOREIGN: list[tuple[str, dict[str, Any], int]] = [
    ("a foreign origin", {"origin": "http://evil.example"}, 403),
    ("another port's origin", {"origin": "http://127.0.0.1:8000"}, 403),
    ("a null origin", {"origin": "null"}, 403),
    ("no origin", {"origin": ""}, 403),
]


@pytest.mark.parametrize(("attempt", "headers", "status"), ATTEMPTS, ids=[each[0] for each in ATTEMPTS])
async def test_no_route_answers_a_stranger(
    owner: Visitor, world: World, attempt: str, headers: dict[str, Any], status: int
) -> None:
    if "LINK" in headers.get("cookie", ""):
        headers = {"cookie": f"{COOKIE}={owner.site.access.link()}"}
    for path in [*owner.paths, "/live?at=/", *ACTIONS]:
        if path in {"/login", "/favicon.svg"}:
            continue  # they reveal nothing of the daemon
        method = "POST" if path in ACTIONS else "GET"
        answer = await owner.ask(method, filled(path, world), **{"origin": ORIGIN, **headers})
        assert (path, answer.status_code) == (path, status)
        assert "fix" not in answer.text
    assert not [call for call in world.state.calls if call.method in {"SendPrompt", "ResolveRequest", "DeleteSession"}]


@pytest.mark.parametrize(("attempt", "headers", "status"), FOREIGN, ids=[each[0] for each in FOREIGN])
async def test_no_action_is_taken_from_another_site(
    owner: Visitor, world: World, attempt: str, headers: dict[str, Any], status: int
) -> None:
    for path in [*ACTIONS, "/login"]:
        answer = await owner.post(filled(path, world), {"prompt": "x"}, **headers)
        assert (path, answer.status_code) == (path, status)


async def test_other_methods_do_nothing(owner: Visitor, world: World) -> None:
    for path in [*PATHS, *ACTIONS, "/live"]:
        for method in ("PUT", "DELETE", "PATCH", *(["POST"] if path not in {*ACTIONS, "/sessions"} else ["GET"])):
            if path in PATHS and path in ACTIONS:
                continue
            answer = await owner.ask(method, filled(path, world), origin=ORIGIN)
            assert (path, method, answer.status_code) == (path, method, 405)


async def test_a_read_only_link_shows_its_session_and_nothing_else(owner: Visitor, world: World) -> None:
    other = world.state.session("secret", repo="shop")
    world.state.event(other, session_created=event_pb2.SessionCreated(session=other))
    world.state.request(other, tool="Bash", input_json='{"command": "x"}')
    await eventually(lambda: len(owner.site.view.sessions) == 2)
    fix = next(iter(world.state.sessions))
    guest = owner.link(session=fix)
    allowed = await guest.get(f"/sessions/{fix}")
    assert allowed.status_code == 200
    assert "<form" not in allowed.text.replace('<form method="dialog"', "")
    assert "secret" not in allowed.text
    paths = [
        *(set(owner.paths) - {"/login", "/favicon.svg"}),
        "/live?at=/",
        f"/live?at=/sessions/{other.id}",
        "/live?at=/inbox",
    ]
    refused = [path.replace("{session}", other.id) for path in paths]
    for path in refused:
        answer = await guest.get(path)
        assert (path, answer.status_code) in {(path, 403), (path, 404)}
        assert "secret" not in answer.text
    for path in ACTIONS:
        answer = await guest.post(path.replace("{session}", fix).replace("{request}", "none"))
        assert (path, answer.status_code) == (path, 403)
    assert (await guest.get(f"/sessions/{fix}x")).status_code == 403
    assert (await guest.get(f"/sessions/{fix}/../{other.id}")).status_code in {403, 404}


async def test_every_answer_forbids_foreign_code_frames_and_referrers(owner: Visitor, world: World) -> None:
    for path in [*PATHS, "/login", "/favicon.svg", "/static/main.js", "/nowhere"]:
        headers = (await owner.get(filled(path, world))).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")


async def test_another_site_can_neither_embed_nor_read_what_a_browser_may(owner: Visitor) -> None:
    for site in ("cross-site", "same-site"):  # another port of this host is the same site
        answer = await owner.get("/", **{"sec-fetch-site": site, "sec-fetch-mode": "no-cors"})
        assert answer.status_code == 403
    assert (await owner.get("/", **{"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"})).status_code == 200


async def test_a_link_opens_one_browser_once(owner: Visitor) -> None:
    token = owner.site.access.link()
    stranger = Visitor(owner.site, "")
    first = await stranger.post("/login", {"token": token})
    assert first.json() == {"go": "/"}
    set_cookie = first.headers["set-cookie"]
    assert all(word in set_cookie for word in ("HttpOnly", "SameSite=strict", "Path=/"))
    assert "Secure" not in set_cookie
    assert (await stranger.post("/login", {"token": token})).json()["hint"] == "make another: rametctl web link"
    proxied = await stranger.post(
        "/login", {"token": owner.site.access.link()}, host="ramet.example", origin="https://ramet.example"
    )
    assert "Secure" in proxied.headers["set-cookie"]


async def test_links_and_sessions_expire_and_are_revoked(owner: Visitor, world: World) -> None:
    access, now = owner.site.access, 1_000_000.0
    access._clock = lambda: now
    link, session = access.link(), owner.link(lasts=3600.0)
    assert (await session.get("/inbox")).status_code == 200
    now += 601
    assert access.open(link, "late") is None
    now += 3600
    assert (await session.get("/inbox")).status_code == 401
    fresh = owner.link()
    assert world.run("web", "revoke", "--all").code == 0
    assert (await fresh.get("/inbox")).status_code == 401
    file = world.home / "state" / "web.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("verb", [["web"], ["web", "link"], ["web", "share", "fix"], ["web", "revoke", "--all"]])
def test_a_session_makes_no_link_and_serves_no_page(world: World, verb: list[str]) -> None:
    ran = world.run(*verb, env={"RAMET_SESSION": "fix", "RAMET_TOKEN": "secret"})
    assert (ran.code, ran.out) == (2, "")
    assert "a session cannot create links to the web page" in ran.err


def test_without_the_extra_it_says_what_to_install(world: World) -> None:
    hidden = dict.fromkeys(("uvicorn", "rametctl.web.server"))
    with mock.patch.dict(sys.modules, hidden):
        ran = world.run("web", "--port", "0")
    assert (ran.code, "pip install 'ramet[web]'" in ran.err) == (2, True)


def test_a_port_that_is_taken_is_said(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = world.run("web", "--port", str(taken.getsockname()[1]))
    assert (ran.code, "choose another: --port" in ran.err) == (2, True)


def test_another_link_leads_to_the_port_that_is_served(world: World) -> None:
    (world.home / "state").mkdir(mode=0o700)
    with mock.patch.object(server, "serve", mock.AsyncMock()):
        ran = world.run("web", "--port", "0")
    link, again = ran.out.split("/login#")[0], re.search(r"rametctl (web link [^.]*)\.", ran.err)
    assert again is not None
    assert world.run(*again[1].split()).out.split("/login#")[0] == link


def test_links_are_created_listed_and_revoked(world: World) -> None:
    (world.home / "state").mkdir(mode=0o700)
    link = world.run("web", "share", "fix", "--for", "30m", "--host", "ramet.example").out
    assert re.fullmatch(r"http://ramet\.example:7363/login#[\w-]{43}\n", link)
    (listed,) = json.loads(world.run("web", "sessions", "--json").out)
    assert (listed["kind"], listed["session"]) == ("link", next(iter(world.state.sessions)))
    assert listed["expire_time"] - listed["create_time"] == 1800
    assert listed["id"] in world.run("web", "sessions").out
    assert world.run("web", "revoke", listed["id"]).out == f"revoked {listed['id']}\n"
    assert json.loads(world.run("web", "sessions", "--json").out) == []
    assert world.run("web", "share", "fix", "--for", "soon").code == 2
    assert world.run("web", "revoke", "unknown").code == 2


async def test_the_file_of_sessions_holds_no_secret(owner: Visitor, world: World) -> None:
    link = owner.site.access.link()
    stored = (world.home / "state" / "web.json").read_text()
    assert link not in stored
    assert owner.cookie not in stored


# Forms


async def test_a_prompt_goes_to_the_session_with_its_files(owner: Visitor, world: World, tmp_path: Path) -> None:
    (session,) = world.state.sessions.values()
    (tmp_path / "tree").mkdir()
    owner.site.view.sessions[session.id].worktree = str(tmp_path / "tree")
    sent = await owner.http.post(
        f"/sessions/{session.id}/files?name=../../a%20shot.png",
        content=b"\x89PNG",
        headers={"cookie": f"{COOKIE}={owner.cookie}", "origin": ORIGIN},
    )
    assert sent.json()["note"] == "a shot.png"
    answer = await owner.post(f"/sessions/{session.id}/prompt", {"prompt": "look", "files": ["a shot.png"]})
    assert answer.status_code == 200
    (call,) = world.state.called("SendPrompt")
    assert call.prompt.startswith("look\n\n")
    assert f"{FILES}/a shot.png" in call.prompt
    assert (tmp_path / "tree" / FILES / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("name", ["", "..", ".", "/", "../../etc/passwd", ".gitignore", "a\0b", "ä.png", "x" * 500])
def test_a_file_never_lands_elsewhere(tmp_path: Path, name: str) -> None:
    paths = [keep(str(tmp_path), name, data) for data in (b"1", b"2")]
    files = sorted(each.name for each in (tmp_path / FILES).iterdir())
    assert files == sorted([*paths, ".gitignore"])
    assert len(set(paths)) == 2


def test_a_file_never_follows_a_link_that_an_agent_has_made(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / FILES).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError):
        keep(str(tree), "a", b"x")
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize(
    ("kind", "data", "form", "fits"),
    [
        ("PERMISSION", {"command": "ls"}, {"answer": "approve"}, lambda r: r.HasField("approve")),
        ("PERMISSION", {"command": "ls"}, {"answer": "session"}, lambda r: r.approve.scope == attention_pb2.APPROVAL_SCOPE_SESSION),
        ("PERMISSION", {"command": "ls"}, {"answer": "always", "rules": "Bash(ls:*)\n"}, lambda r: list(r.approve.rules) == ["Bash(ls:*)"]),
        ("PERMISSION", {"command": "ls"}, {"answer": "edited", "input": '{"command": "true"}'}, lambda r: "true" in r.approve.updated_input_json),
        ("PERMISSION", {"command": "ls"}, {"answer": "approve", "input": "x", "rules": "y"}, lambda r: not r.approve.rules and not r.approve.updated_input_json),
        ("PERMISSION", {"command": "ls"}, {"answer": "deny", "message": "no"}, lambda r: r.deny.message == "no"),
        ("PLAN", {"plan": "p"}, {"answer": "acceptEdits"}, lambda r: r.approve.mode == 2),
        ("QUESTION", {"question": "?", "options": ["a", "b"]}, {"answer": "reply", "choice-0": "b"}, lambda r: list(r.reply.answers) == ["b"]),
        ("QUESTION", {"question": "?", "multiSelect": True, "options": ["a", "b"]}, {"answer": "reply", "choice-0": ["a", "b"]}, lambda r: list(r.reply.answers) == ["a, b"]),
        ("QUESTION", {"question": "?", "options": ["a"]}, {"answer": "reply", "choice-0": "a", "own-0": "mine"}, lambda r: list(r.reply.answers) == ["a, mine"]),
        ("ELICITATION", {"requested_schema": {"properties": {"n": {"type": "integer"}}}}, {"answer": "fill", "field-n": "3"}, lambda r: json.loads(r.approve.updated_input_json) == {"n": 3}),
    ],
)  # fmt: skip
async def test_an_answer_reaches_the_daemon_unchanged(
    owner: Visitor, world: World, kind: str, data: Any, form: dict[str, Any], fits: Callable[[Any], bool]
) -> None:
    (session,) = world.state.sessions.values()
    number = attention_pb2.AttentionKind.Value(f"ATTENTION_KIND_{kind}")
    request = world.state.request(session, kind=number, tool="Bash", input_json=json.dumps(data))
    world.state.event(session, request_opened=event_pb2.RequestOpened(request=request))
    await eventually(lambda: [each.id for each in owner.site.requests] == [request.id])
    assert (await owner.get("/inbox")).status_code == 200
    answer = await owner.post(f"/requests/{request.id}", form)
    assert answer.status_code == 200, answer.text
    (call,) = world.state.called("ResolveRequest")
    assert fits(call.resolution)


async def test_modes_that_the_settings_forbid_are_not_offered(owner: Visitor, world: World) -> None:
    (session,) = world.state.sessions.values()
    plan = world.state.request(session, kind=attention_pb2.ATTENTION_KIND_PLAN, tool="ExitPlanMode", input_json="{}")
    world.state.event(session, request_opened=event_pb2.RequestOpened(request=plan))
    for allowed in ("false", "true"):
        world.state.settings = [daemon_pb2.Setting(key="permissions.allow_bypass", value_json=allowed)]

        async def look() -> bool:
            pages = [(await owner.get(path)).text for path in ("/", "/inbox", f"/sessions/{session.id}")]
            assert all("acceptEdits" in page for page in pages)
            return {"bypassPermissions" in page for page in pages} == {allowed == "true"}  # noqa: B023  called here

        await eventually(look)


async def test_a_question_without_an_answer_is_not_sent(owner: Visitor, world: World) -> None:
    answer = await owner.post("/requests/none", {"answer": "reply"})
    assert answer.status_code == 409
    assert not world.state.called("ResolveRequest")


async def test_a_refusal_says_what_the_daemon_says(owner: Visitor, world: World) -> None:
    words = "it was answered by owner 3 s ago: approved"
    world.state.refusals["ResolveRequest"] = [
        Refusal("FAILED_PRECONDITION", words, "REQUEST_CLOSED", "see: rametctl log")
    ]
    answer = await owner.post("/requests/none", {"answer": "approve"})
    assert (answer.status_code, answer.json()) == (
        409, {"error": words, "hint": "see: rametctl log", "reason": "REQUEST_CLOSED"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("form", "paths"),
    [
        ({"repo": "/code/shop", "other": "/ignored"}, ["/code/shop"]),
        ({"repo": "", "other": "/code/other"}, ["/code/other"]),
        ({"repo": "", "other": ""}, []),
    ],
)
async def test_a_session_starts_in_a_known_repository_or_in_another_one(
    owner: Visitor, world: World, form: dict[str, str], paths: list[str]
) -> None:
    answer = await owner.post("/sessions", {"prompt": "x", **form})
    assert [call.path for call in world.state.called("CreateSession")] == paths
    assert (answer.status_code == 200) is bool(paths), answer.text


def test_every_key_of_the_pages_is_in_their_help(owner: Visitor) -> None:
    templates = (Path(server.__file__).parent / "templates").glob("*.html")
    of = {path.name: set(re.findall(r'data-key="([^"{]+)"', path.read_text())) for path in templates}
    keys = set().union(*of.values())
    keys |= {page.key for module in MODULES for page in module.PAGES} - {""}
    helped = {each for key in owner.site.keys for each in (*key.key.split(","), *key.label.split(" "), key.action)}
    assert {key for key in keys if key.lower() not in helped and key not in helped} == set()
    reviews = {"review.html", "file.html", "finish.html"}
    only = set().union(*(of[name] for name in reviews)) - set().union(*(of[name] for name in of.keys() - reviews))
    words = {label: key.words for key in owner.site.keys for label in key.label.split(" ")}
    assert [key for key in only - {"Escape"} if not words[key].startswith("in a review: ")] == []
    of_terminals = ("EDITOR", "tab ", "side up", "side down", "ctrl-")
    assert [each for each in owner.site.keys if any(word in each.words + each.label for word in of_terminals)] == []


async def test_a_form_that_is_sent_twice_is_the_same_request(owner: Visitor, world: World) -> None:
    (session,) = world.state.sessions
    for _ in range(2):
        await owner.post(f"/sessions/{session}/prompt", {"prompt": "x", "request_id": "one"})
    assert {call.request_id for call in world.state.called("SendPrompt")} == {"one"}


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b"\xff", b"[" * 4000])
async def test_what_is_no_form_is_refused(owner: Visitor, body: bytes) -> None:
    headers = {"cookie": f"{COOKIE}={owner.cookie}", "origin": ORIGIN}
    answer = await owner.http.post("/sessions", content=body, headers=headers)
    assert answer.status_code == 409


NO_TEXTS = [["x"], {"a": "b"}, 7, None, True, "\ud800", "\0", "9" * 500, "٣", "-1", "a b", "../..", "\u202e\x1b[2J"]
"""Values of fields that no form of the pages sends."""


@pytest.mark.parametrize("value", NO_TEXTS, ids=repr)
async def test_no_value_of_a_field_breaks_an_action(owner: Visitor, world: World, value: Any) -> None:
    sources = [path.read_text() for path in Path(server.__file__).parent.glob("*.py")]
    fields = {name for text in sources for name in re.findall(r'form\.(?:text|texts|values\.get)\("(\w+)"', text)}
    assert {"path", "prompt", "count", "budget", "end_line"} <= fields
    sent = json.dumps(dict.fromkeys([*fields, "choice-0", "own-0", "field-n"], value))
    headers = {"cookie": f"{COOKIE}={owner.cookie}", "origin": ORIGIN}
    for path in [filled(each, world) for each in ACTIONS]:  # one of them removes the session
        answer = await owner.http.post(path, content=sent, headers=headers)
        assert (path, answer.status_code) in {(path, 200), (path, 409)}, answer.text
        assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "value", ["%ff", "%00", "%ed%a0%80", "%0d%0aSet-Cookie:x=y", "9" * 500, "%3Cscript%3E", "..%2f..", "a%20b"]
)
async def test_no_address_breaks_a_page(owner: Visitor, world: World, value: str) -> None:
    names = (
        "q",
        "session",
        "audit",
        "against",
        "until",
        "w",
        "path",
        "old",
        "from",
        "view",
        "v",
        "at",
        "a",
        "b",
        "repo",
        "n",
        "cursor",
    )
    query = "&".join(f"{name}={value}" for name in names)
    for route in (*owner.paths, "/live"):
        for path in {f"{filled(route, world)}?{query}", re.sub(r"\{\w+\}", value, route)}:
            answer = await owner.get(path)
            assert (path, answer.status_code) in {(path, status) for status in (200, 303, 404)}, answer.text
            assert "<script>" not in answer.text
            assert "x" not in answer.headers.get("set-cookie", "")


async def test_many_foreign_connections_do_not_block_others(owner: Visitor) -> None:
    async with served(owner.site) as port:
        strangers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS + 20)]
        for number, (_, writer) in enumerate(strangers):
            writer.write(b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\n"[: 20 + number % 30])
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as browser:
            headers = {"cookie": f"{COOKIE}={owner.cookie}"}
            for _ in range(3):
                assert (await browser.get("/", headers=headers)).status_code == 200
                strangers += [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for _, writer in strangers:
            writer.close()


# Hostile texts


TEXTS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg/onload=alert(1)>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe><base href=//evil.example>",
    '[a](javascript:alert(1)) [b](data:text/html,x) [c](/logout) [d](//evil.example) <https://x.example/"onclick=a>',
    '![a](http://evil.example/x.png) ![b][c]\n\n[c]: http://evil.example/y.png "t"',
    '```html" onclick="a\n<b>\n```\n\n<details open ontoggle=alert(1)>',
    "{{ 7*7 }}{% include 'base.html' %}",
    HOSTILE,
]


class Inspector(HTMLParser):
    """Collects forbidden parts of a page: code, embedded things, and links to other sites that open
    by themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in {"img", "iframe", "object", "embed", "base", "style", "video", "audio", "svg"}:
            self.faults.append(tag)
        if tag == "script" and not (given.get("src") or "").startswith("/static/"):
            self.faults.append("script")
        self.faults += [f"{tag} {name}" for name in given if name.startswith("on") or name in {"style", "srcdoc"}]
        target = given.get("href") or ""
        if tag == "a" and target:
            outside = target.startswith(("http://", "https://")) and "noopener" in (given.get("rel") or "")
            inside = re.fullmatch(r"[/#][\w./-]*(\?session=[\w-]+)?", target) and not target.startswith("//")
            if not (outside or inside):
                self.faults.append(f"link to {target}")


@pytest.mark.parametrize("text", TEXTS)
async def test_texts_of_others_are_data_wherever_they_are_shown(world: World, text: str) -> None:
    session = world.state.session(
        text, repo=text, branch=text, now=text, state_reason=text, state=WAITING, agent=text, model=text
    )
    data = {"question": text, "options": [{"label": text, "description": text}]}
    form = {"requested_schema": {"properties": {text: {"description": text, "enum": [text]}}}, "message": text}
    asked = [
        ("QUESTION", data),
        ("PLAN", {"plan": text}),
        ("PERMISSION", {"command": text, text: text}),
        ("ELICITATION", form),
    ]
    for kind, given in asked:
        number = attention_pb2.AttentionKind.Value(f"ATTENTION_KIND_{kind}")
        world.state.request(session, kind=number, tool=text, reason=text, input_json=json.dumps(given))
    blocks = [event_pb2.ContentBlock(text=text), event_pb2.ContentBlock(thinking=text)]
    world.state.event(session, assistant_message=event_pb2.AssistantMessage(blocks=blocks))
    prompt = session_pb2.Prompt(id="p", text=text)
    world.state.event(session, prompt_queued=event_pb2.PromptQueued(prompt=prompt))
    world.state.event(session, prompt_received=event_pb2.PromptReceived(prompt_id="p"))
    world.state.event(session, warning=event_pb2.Warning(message=text))
    async with visiting(world.environ) as owner:
        for path in ("/", f"/sessions/{session.id}", "/inbox", f"/?q={quote(text)}"):
            answer = await owner.get(path)
            assert answer.status_code == 200
            inspector = Inspector()
            inspector.feed(answer.text)
            assert (path, inspector.faults) == (path, [])
            shown = re.sub(r'(?s)\w+="[^"]*"|<textarea.*?</textarea>', "", answer.text)
            assert re.findall(r".{0,60}[\x1b\u202e\x07]", shown) == []
            assert "49" not in answer.text.split("data-cursor")[0]


# Streams


class Watched:
    """A tab whose stream the test reads."""

    def __init__(self, site: Site, tab: Tab) -> None:
        self.tab = tab
        self.news = site.stream(tab)
        self.cursor = ""

    async def _message(self) -> str:
        async for message in self.news:
            return message
        raise EOFError

    async def next(self) -> dict[str, Any]:
        """Return the next message. Raise EOFError at the end of the stream."""
        while True:
            message = await asyncio.wait_for(self._message(), 20)
            if message.startswith("id: "):
                first, _, data = message.partition("\ndata: ")
                self.cursor = first.removeprefix("id: ")
                return json.loads(data)  # type: ignore[no-any-return]


def visit(owner: Visitor, path: str) -> Visit:
    found = owner.site.match(path)
    assert found is not None
    grant = next(each for each in owner.site.access.grants() if each.kind == "browser")
    return Visit(found[0], path, found[1], {}, grant)


async def test_a_stream_continues_after_its_page_and_after_a_break(owner: Visitor, world: World) -> None:
    (session,) = world.state.sessions.values()
    page = visit(owner, f"/sessions/{session.id}")
    tab, drawn = await owner.site.enter(page)
    assert drawn["talk"] == {}
    warn(world, session, "one")
    watched = Watched(owner.site, tab)
    assert "one" in str((await watched.next())["lists"]["talk"])
    await watched.news.aclose()
    warn(world, session, "two")
    again = Watched(owner.site, owner.site.resume(watched.cursor, page))
    news = (await again.next())["lists"]["talk"]
    assert "two" in str(news["changed"])
    assert "one" not in str(news["changed"])
    await again.news.aclose()
    lost = Watched(owner.site, owner.site.resume(f"{tab.id}.0", page))
    everything = await lost.next()
    assert ["one" in str(everything), "two" in str(everything)] == [True, True]
    assert everything["lists"]["requests"] == {
        "order": [],
        "changed": {},
    }  # an answered request disappears in every browser
    await lost.news.aclose()
    unknown = Watched(owner.site, owner.site.resume("of-another-server.7", page))
    assert "two" in str(await unknown.next())
    await unknown.news.aclose()


async def test_a_hidden_page_queues_nothing(owner: Visitor, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (session,) = world.state.sessions.values()
    await owner.get(f"/sessions/{session.id}")  # and its browser is closed
    for number in range(30):
        warn(world, session, f"{number}")
    transcript = owner.site.view.transcripts[session.id]
    await eventually(lambda: len(owner.site._talks[session.id][1].conversation.entries) >= 30)
    await eventually(lambda: not transcript.fresh)
    monkeypatch.setattr("rametctl.web.site.LEFT_S", 0.0)
    warn(world, session, "another")
    await eventually(lambda: not owner.site.view.transcripts)
    monkeypatch.undo()
    assert "another" in (await owner.get(f"/sessions/{session.id}")).text  # a reconnecting browser gets everything


async def test_a_slow_tab_gets_one_message_with_everything(owner: Visitor, world: World) -> None:
    (session,) = world.state.sessions.values()
    tab, _ = await owner.site.enter(visit(owner, f"/sessions/{session.id}"))
    watched = Watched(owner.site, tab)
    for number in range(300):
        warn(world, session, f"number {number}")
    await eventually(lambda: len(owner.site.talk(session.id).conversation.entries) == 300)
    assert len((await watched.next())["lists"]["talk"]["order"]) == 300
    await watched.news.aclose()


async def test_an_absent_daemon_is_reported_and_no_event_is_missed(owner: Visitor, world: World) -> None:
    (session,) = world.state.sessions.values()
    tab, _ = await owner.site.enter(visit(owner, f"/sessions/{session.id}"))
    watched = Watched(owner.site, tab)
    await asyncio.to_thread(world.daemon.stop)
    while not (await watched.next()).get("state", {}).get("away"):
        pass
    warn(world, session, "meanwhile")
    await asyncio.to_thread(world.daemon.start)
    sent = ""
    while "meanwhile" not in sent or '"away": ""' not in sent:
        sent += json.dumps(await watched.next())
    await watched.news.aclose()


async def test_a_revoked_session_ends_its_streams(owner: Visitor, world: World) -> None:
    (session,) = world.state.sessions.values()
    tab, _ = await owner.site.enter(visit(owner, f"/sessions/{session.id}"))
    watched = Watched(owner.site, tab)
    owner.site.access.revoke(set())
    warn(world, session, "secret")
    with pytest.raises(EOFError):
        await watched.next()


def warn(world: World, session: session_pb2.Session, text: str) -> None:
    world.state.event(session, warning=event_pb2.Warning(message=text))


def test_read_only_is_what_limits_a_grant() -> None:
    assert Grant("a", "browser", "", 0, 0, 0, session="x").read_only
    assert not Grant("a", "browser", "", 0, 0, 0).read_only
