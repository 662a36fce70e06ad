"""Pages, and one view of the daemon for all tabs: the parts that tabs need, and the fragments that
each tab has.

A page is a subclass of `Page`. Its template draws it once; its *fragments* are the parts that
change while it is open: HTML by the id of the element whose content it is. A mapping as a fragment
is a list: the element's children by their ids, in order. The server sends a tab the fragments that
differ from the tab's. Every event calls ``fragments`` again, so it reads the view and computes
little; HTML that stays the same should be the same string (see `Site.cached`).

An action is a coroutine ``(site, form) -> Done`` under a path; forms with ``data-action`` post to
it. It raises a ClientError to say why it failed.
"""

import asyncio
import json
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from markupsafe import Markup
from ramet.visible import visible
from starlette.responses import Response

from rametctl.connection.link import Link, Stubs
from rametctl.dashboard.keys import GROUPS, Key
from rametctl.errors import ClientError
from rametctl.options import allowed_modes
from rametctl.render.request import kind_name
from rametctl.view.model import Change, Topic, View
from rametctl.view.parts import REQUESTS, SETTINGS, AnyPart
from rametctl.web.access import Access, Grant
from rametctl.web.forms import Done, Form, templates
from rametctl.web.talk import Talk

if TYPE_CHECKING:
    from ramet.v1.attention_pb2 import AttentionRequest

T = TypeVar("T")

PAINT_S = 0.15
"""Seconds between two updates of a tab; changes within them are sent together."""
BEAT_S = 15.0
"""Seconds after which an idle stream sends a beat and checks that its grant is still valid."""
SETTLE_S = 3.0
"""Seconds to wait for the parts of a page before it is drawn without them."""
TAKEN = frozenset(
    {
        "cursor", "edge", "enter", "leave", "next_waiting", "scroll", "filter", "approve", "approve_session", "approve_always",
        "edit_input", "deny", "reply", "choose", "prompt", "new", "interrupt", "unsend", "pause", "mode", "archive", "remove", "help", "fork", "pick",
        "land", "pull_request", "comment", "send_comments",
    }
)  # fmt: skip
"""Actions of the dashboard whose keys the pages use."""
OWN_KEYS = (
    Key("D", "review", "review the changes"),
    Key("v", "viewed", "in a review: this file is viewed"),
    Key("e", "whole", "in a review: the whole file"),
    Key("s,u", "view", "in a review: side by side, or unified", "s u"),
    Key("u", "restore", "restore an archived session"),
    Key("!", "check", "in a contest: run the check"),
    Key("B", "compare", "in a contest: show two contenders side by side"),
)
"""Keys that only the pages have."""
OWN_WORDS = {
    "enter": ("enter", "open the session"),
    "scroll(1)": ("J", "scroll down"),
    "scroll(-1)": ("K", "scroll up"),
    "edit_input": ("e", "edit the input, then approve"),
    "mode": ("m", "permission mode, budget, and more"),
    "comment": ("c", "in a review: comment on a line"),
    "send_comments": ("C", "in a review: send all comments"),
    "land": ("L", "in a review: land on the target branch"),
    "pull_request": ("P", "in a review: create or update the pull request"),
}
"""Labels and words for keys with another meaning than in the dashboard."""
EVERYWHERE: tuple[tuple[AnyPart, str], ...] = ((REQUESTS, ""), (SETTINGS, ""))
"""Parts that every page needs."""
LEFT_S = 600.0
"""Seconds after which a page without a stream is forgotten: its browser was closed."""
UNOPENED = 32
"""Number of pages without a stream to keep, so that a stream continues where its page ended."""


Fragments = Mapping[str, Markup | Mapping[str, Markup]]


@dataclass(frozen=True)
class Wants:
    """Parts and transcripts that a visit needs."""

    parts: tuple[tuple[AnyPart, str], ...] = ()
    transcripts: tuple[str, ...] = ()


@dataclass
class Visit:
    """A tab at a page. ``params`` are those of the path, ``query`` those behind the question
    mark."""

    page: "Page"
    path: str
    params: Mapping[str, str]
    query: Mapping[str, str]
    grant: Grant

    @property
    def may_act(self) -> bool:
        return not self.grant.read_only


class Page:
    """A page at a path; ``nav`` is its name in the navigation, ``key`` the key that opens it."""

    path: ClassVar[str]
    template: ClassVar[str]
    nav: ClassVar[str] = ""
    key: ClassVar[str] = ""

    pieces: "Mapping[str, Piece]" = MappingProxyType({})
    """Pieces that the page's script fetches, by name below the page's path."""

    def title(self, site: "Site", visit: Visit) -> str:
        return self.nav

    def wants(self, site: "Site", visit: Visit) -> Wants:
        return Wants()

    async def load(self, site: "Site", visit: Visit) -> Mapping[str, Any]:
        """Read values of the template that do not change. Raises a ClientError, which the browser
        shows."""
        return {}

    def fragments(self, site: "Site", visit: Visit) -> Fragments:
        return {}


Action = Callable[["Site", Form], Awaitable[Done]]
Piece = Callable[["Site", Visit], Awaitable[Response]]


@dataclass(eq=False)
class Tab:
    """A visit, and the fragments that its browser has."""

    id: str
    visit: Visit
    sent: dict[str, Any] = field(default_factory=dict)
    count: int = 0
    """Number of messages sent; with the id, the cursor from which a browser continues."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    streams: int = 0
    seen: float = field(default_factory=time.monotonic)
    """When the last of its streams ended."""


class Viewed:
    """Marks of files that a person has viewed, by session, path and content, in a file of mode
    0600. One server writes it.

    ``version`` grows with each change.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.version = 0
        try:
            self._marks: dict[str, dict[str, str]] = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self._marks = {}  # none yet, or truncated: marks are no work that can be lost

    def has(self, session_id: str, path: str, content: str) -> bool:
        return self._marks.get(session_id, {}).get(path) == content

    def mark(self, session_id: str, path: str, content: str, *, sessions: Collection[str]) -> None:
        """Set a mark, or clear it if ``content`` is ""; drop those of sessions not among
        ``sessions``."""
        self._marks = {id_: marks for id_, marks in self._marks.items() if id_ in sessions}
        marks = self._marks.setdefault(session_id, {})
        marks[path] = content
        if not content:
            del marks[path]
        self.version += 1
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._file.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(self._marks, file)
        fresh.replace(self._file)


class Site:
    """Create it in the loop that runs it. ``run`` keeps it current until it is cancelled or fails
    with a ClientError."""

    def __init__(self, link: Link, access: Access, here: Path = Path("/")) -> None:
        """``here`` is offered for a first session if it is a repository."""
        self.link = link
        self.view = View(link)
        self.access = access
        self.here = here
        self.viewed = Viewed(access.file.with_name("web-viewed.json"))
        self.closing = False
        self.pages: list[Page] = []
        self.match: Callable[[str], tuple[Page, Mapping[str, str]] | None] = lambda path: None
        self._tabs: OrderedDict[str, Tab] = OrderedDict()
        self._talks: dict[str, tuple[object, Talk]] = {}
        self._cache: dict[tuple[str, str], Markup] = {}

    # For pages

    async def call(self, method: Callable[[Stubs], Callable[..., Awaitable[T]]], request: Any) -> T:
        """Call the daemon, as in ``site.call(lambda daemon: daemon.sessions.GetSession, request)``.
        Raises a ClientError."""
        return await self.link.call(method, request)

    def html(self, template: str, **values: Any) -> Markup:
        """Render a template."""
        return Markup(templates().get_template(template).render(values, site=self))  # noqa: S704  the template escapes

    def cached(self, session_id: str, name: str, draw: Callable[[], Markup]) -> Markup:
        """Return the result of ``draw``, called again only after the session, its parts or the
        requests have changed."""
        key = (session_id, name)
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = draw()
        return found

    @property
    def keys(self) -> list[Key]:
        """The dashboard's keys that the pages take too."""
        taken = [key for group in GROUPS.values() for key in group if key.action.partition("(")[0] in TAKEN]
        own = {action: {"shown": label, "words": words} for action, (label, words) in OWN_WORDS.items()}
        return [*(replace(key, **own.get(key.action, {})) for key in taken), *OWN_KEYS]

    @property
    def modes(self) -> tuple[str, ...]:
        """Permission modes that the settings allow."""
        return tuple(mode for mode in allowed_modes(self.view.part(SETTINGS).value) if mode != "manual")

    @property
    def requests(self) -> "list[AttentionRequest]":
        """Open requests of all sessions."""
        return self.view.part(REQUESTS).value or []

    def talk(self, session_id: str) -> Talk:
        """Return the conversation of a session that a visit shows."""
        transcript, session = self.view.transcripts.get(session_id), self.view.sessions.get(session_id)
        known = self._talks.get(session_id)
        if known is None or known[0] is not transcript:
            names = {each.id: each.name for each in self.view.sessions.values()}
            known = self._talks[session_id] = transcript, Talk(session.worktree if session else "", names)
        if transcript is not None:
            known[1].add(transcript.take())
        return known[1]

    # Keeping current

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.view.run())
                group.create_task(self._follow())
        except* ClientError as errors:
            raise errors.exceptions[0] from None

    def redraw(self, concerned: Callable[[Visit], bool]) -> None:
        """Update the visits for which ``concerned`` is true, after a change that is no event."""
        for tab in self._tabs.values():
            if concerned(tab.visit):
                tab.changed.set()

    def close(self) -> None:
        """End all streams."""
        self.closing = True
        for tab in self._tabs.values():
            tab.changed.set()

    async def _follow(self) -> None:
        version = 0
        while True:
            await self.view.changed.wait()
            self.view.changed.clear()
            version, changes = self.view.changes(version)
            self._forget(changes)
            self.want()
            for session_id in self.view.transcripts:
                self.talk(session_id)  # also of pages whose stream is not open: untaken events would pile up
            for tab in self._tabs.values():
                if tab.streams and self._concerns(tab.visit, changes):
                    tab.changed.set()
            await asyncio.sleep(PAINT_S)

    def _forget(self, changes: set[Change]) -> None:
        sessions = {each.key for each in changes if each.topic is Topic.SESSION}
        sessions |= {word for each in changes if each.topic is Topic.PART for word in each.key.split(" ")[1:2]}
        if (
            sessions - self.view.sessions.keys()
        ):  # parts of several sessions, such as requests or a repository's conflicts
            self._cache.clear()
        elif sessions:
            self._cache = {key: value for key, value in self._cache.items() if key[0] not in sessions}

    def _concerns(self, visit: Visit, changes: set[Change]) -> bool:
        wanted = visit.page.wants(self, visit)
        parts = {f"{part.name} {key}" for part, key in (*wanted.parts, *EVERYWHERE)}
        return any(
            each.topic in {Topic.CONNECTION, Topic.SESSION}
            or (each.topic is Topic.TRANSCRIPT and each.key in wanted.transcripts)
            or (each.topic is Topic.PART and each.key in parts)
            for each in changes
        )

    def want(self) -> None:
        """Subscribe the view to the parts that the open pages need."""
        left = time.monotonic() - LEFT_S
        self._tabs = OrderedDict((id_, tab) for id_, tab in self._tabs.items() if tab.streams or tab.seen > left)
        wanted = [tab.visit.page.wants(self, tab.visit) for tab in self._tabs.values()]
        parts: dict[AnyPart, set[str]] = {part: {key} for part, key in EVERYWHERE}
        transcripts: set[str] = set()
        for each in wanted:
            for part, key in each.parts:
                parts.setdefault(part, set()).add(key)
            transcripts.update(id_ for id_ in each.transcripts if id_ in self.view.sessions)
        self.view.want([(part, key) for part, keys in parts.items() for key in sorted(keys)], transcripts)
        for gone in self._talks.keys() - transcripts:
            del self._talks[gone]

    # Visits

    async def enter(self, visit: Visit) -> tuple[Tab, Fragments]:
        """Open a tab for a visit; return it with its fragments once its parts are read."""
        tab = self._open(visit)
        self.view.refresh(SETTINGS)  # a changed setting is no event
        await self._settle(tab)
        fragments = visit.page.fragments(self, visit)
        self._note(tab, fragments)
        return tab, fragments

    async def _settle(self, tab: Tab) -> None:
        """Wait until the parts of a tab are read, `SETTLE_S` at most."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + SETTLE_S
        while clock() < deadline and not self.closing:
            self.want()
            if self.view.ready.is_set() and self._settled(tab.visit.page.wants(self, tab.visit)):
                return
            await asyncio.sleep(0.005)

    async def know(self, path: str) -> None:
        """Wait until the session of a page is known, `SETTLE_S` at most: an action that created or
        restored one leads there."""
        found = self.match(path)
        session_id = found[1].get("session", "") if found is not None else ""
        clock = asyncio.get_running_loop().time
        deadline = clock() + SETTLE_S
        while clock() < deadline:
            if not session_id or session_id in self.view.sessions:
                return
            await asyncio.sleep(0.005)

    def _settled(self, wants: Wants) -> bool:
        slots = [self.view.part(part, key) for part, key in (*wants.parts, *EVERYWHERE)]
        transcripts = [self.view.transcripts.get(each) for each in wants.transcripts]
        return all(slot.value is not None or slot.error for slot in slots) and all(
            each is not None and each.loaded for each in transcripts
        )

    def _open(self, visit: Visit) -> Tab:
        tab = Tab(secrets.token_urlsafe(9), visit)
        self._tabs[tab.id] = tab
        for id_ in [each.id for each in self._tabs.values() if not each.streams][:-UNOPENED]:
            del self._tabs[id_]
        return tab

    def resume(self, cursor: str, visit: Visit) -> Tab:
        """Return the tab that ``cursor`` names, or a new one, which sends everything."""
        id_, _, count = cursor.partition(".")
        known = self._tabs.get(id_)
        if known is None or known.visit.path != visit.path or known.visit.grant.id != visit.grant.id:
            return self._open(visit)
        if count != str(known.count):
            known.sent.clear()  # a message was lost on the way
        known.seen = time.monotonic()
        return known

    async def stream(self, tab: Tab) -> AsyncGenerator[str, None]:
        """Yield server-sent events with the fragments that the tab's browser lacks. A slow browser
        gets fewer of them, each up to date."""
        tab.streams += 1
        try:
            await self._settle(tab)
            tab.changed.set()
            while True:
                try:
                    async with asyncio.timeout(BEAT_S):
                        await tab.changed.wait()
                except TimeoutError:
                    yield "event: beat\ndata: 1\n\n"
                tab.changed.clear()
                if self.closing or not self.access.valid(tab.visit.grant):
                    return
                ready = self.view.ready.is_set()  # else nothing is known, not even what was removed
                news = self._note(tab, tab.visit.page.fragments(self, tab.visit) if ready else {})
                if news:
                    tab.count += 1
                    yield f"id: {tab.id}.{tab.count}\ndata: {json.dumps(news, ensure_ascii=False)}\n\n"
        finally:
            tab.streams -= 1
            tab.seen = time.monotonic()

    def state(self, visit: Visit) -> dict[str, Any]:
        """Return the parts of every page beside its fragments: title, outage, and sessions that
        need you."""
        away = self.view.outage.message if self.view.outage is not None else ""
        if not self.view.ready.is_set():
            return {"away": away or "it does not answer yet"}
        asks = [] if visit.grant.read_only else [each for each in self.requests if kind_name(each) != "review"]
        return {
            "title": visible(visit.page.title(self, visit)),
            "away": away,
            "asks": [
                {"id": each.id, "session": each.session_id, "name": visible(each.session_name), "kind": kind_name(each)}
                for each in asks
            ],
        }

    def _note(self, tab: Tab, fragments: Fragments) -> dict[str, Any]:
        """Return the fragments that a tab does not have, and record that it has them."""
        news: dict[str, Any] = {}
        state = self.state(tab.visit)
        if tab.sent.get("state") != state:
            tab.sent["state"] = news["state"] = state
        for id_, value in fragments.items():
            before = tab.sent.get(id_)
            if isinstance(value, Mapping):
                had = before if isinstance(before, dict) else {}
                changed = {child: html for child, html in value.items() if had.get(child) != html}
                if before is None or changed or list(had) != list(value):
                    news.setdefault("lists", {})[id_] = {"order": list(value), "changed": changed}
                    tab.sent[id_] = dict(value)
            elif before != value:
                news.setdefault("html", {})[id_] = tab.sent[id_] = value
        return news


def refusal(error: ClientError) -> dict[str, str]:
    """Return an error as JSON for browsers."""
    return {"error": error.message, "hint": error.hint, "reason": error.reason}
