"""Review of a session's changes: files with their diffs, comments on lines, and actions."""

import asyncio
import hashlib
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, urlencode

from markupsafe import Markup
from ramet.jsonify import enum_name
from ramet.v1 import landing_pb2, session_pb2, worktree_pb2
from starlette.responses import HTMLResponse, Response

from rametctl.errors import RefusedError, UsageError
from rametctl.render.landing import WORDS, landing_state
from rametctl.render.request import kind_name
from rametctl.view import parts
from rametctl.web import paint
from rametctl.web.forms import Done, Form
from rametctl.web.patches import Folder, Gap, Pair, Patch, items, parse, tree
from rametctl.web.session import find
from rametctl.web.site import Action, Fragments, Page, Site, Visit, Wants

if TYPE_CHECKING:
    from ramet.v1.session_pb2 import Session
    from ramet.v1.worktree_pb2 import Comment, FileChange, GetDiffResponse

CHUNK = 400
"""Rows of a file that are sent at once; more follow when they scroll into view."""
MOST_PATCH = 8 << 20
"""Bytes of one file's patch."""
WHOLE = 10_000_000
"""Lines around a change that show the whole file."""
PATCHES_HELD = 24
NONE = "0" * 40
IMAGES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"RIFF": "image/webp"}
"""Types of pictures by their first bytes; these cannot contain code."""
PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
NOT_SHOWN = "this link shows the session's own states only"
METHODS = ("merge", "squash", "rebase")


@dataclass(frozen=True)
class Range:
    """Two states of a session's files to compare. "" is "base" as the first state, the present
    files as the second."""

    session: str
    against: str = ""
    until: str = ""
    space: str = ""
    """ "all" where white space does not count."""

    @classmethod
    def of(cls, session: str, query: Mapping[str, str]) -> "Range":
        """Raises UsageError for a name with blanks, which no state has."""
        names = [query.get(name, "") for name in ("against", "until", "w")]
        if any(re.search(r"\s", name) for name in names):
            raise UsageError("a state to compare with has no blanks in its name")
        return cls(session, names[0] if names[0] != "base" else "", *names[1:])

    @property
    def key(self) -> str:
        """Of the part `parts.COUNTS`."""
        return " ".join((self.session, self.against or "base", self.until or "-", self.space or "-")).removesuffix(
            " base - -"
        )

    @property
    def query(self) -> str:
        fields = {"against": self.against, "until": self.until, "w": self.space}
        return urlencode({name: value for name, value in fields.items() if value})

    @property
    def whitespace(self) -> "worktree_pb2.Whitespace.ValueType":
        return worktree_pb2.WHITESPACE_IGNORE_ALL if self.space else worktree_pb2.WHITESPACE_SHOW

    def side(self, comment: "Comment") -> tuple[str, int]:
        """Return the place of a comment here: a side and a line, 0 for the file itself and for
        missing lines."""
        old, new = self.against or "base", self.until
        if comment.at == new:
            moved = comment.end_line - comment.line if comment.current_line else 0
            return paint.NEW, comment.end_line if new else comment.current_line + moved
        if comment.at == old:
            return paint.OLD, comment.end_line
        return (paint.NEW, comment.current_line) if not new else (paint.NEW, 0)


def may_see(site: Site, visit: Visit, *states: str) -> bool:
    """Whether a visit may see states of its session's files. A read-only link sees the session's
    own: the name of another state (a branch, a stash, another session) would show it files of that
    one."""
    if visit.may_act:
        return True
    checkpoints = site.view.part(parts.CHECKPOINTS, visit.params["session"]).value or ()
    return {"", "base", "target", *(str(each.number) for each in checkpoints)}.issuperset(states)


def require_seen(site: Site, visit: Visit, *states: str) -> None:
    """Raises UsageError unless `may_see`."""
    if not may_see(site, visit, *states):
        raise UsageError(NOT_SHOWN)


def content_of(change: "FileChange") -> str:
    """Return the id of the content to which a mark "viewed" belongs."""
    return change.blob if change.blob.strip("0") else f"-{change.old_blob}"


def element(path: str) -> str:
    """The id of a file's element, the same after a restart."""
    return f"f-{hashlib.sha256(path.encode()).hexdigest()[:12]}"


@dataclass
class _Drawn:
    """Fragments, and the data that they were drawn from: most events change none of it."""

    counts: "GetDiffResponse | None"
    error: str
    comments: "Sequence[Comment] | None"
    viewed: int
    fragments: dict[str, Any]


class Review(Page):
    path: ClassVar[str] = "/sessions/{session}/review"
    template: ClassVar[str] = "review.html"

    def __init__(self) -> None:
        self.patches = Patches()
        self.pieces = {"file": self.file, "picture": picture}
        self._drawn: OrderedDict[tuple[Range, bool], _Drawn] = OrderedDict()

    def title(self, site: Site, visit: Visit) -> str:
        session = site.view.sessions.get(visit.params["session"])
        return f"Review {session.name}" if session is not None else "removed"

    def wants(self, site: Site, visit: Visit) -> Wants:
        id_ = visit.params["session"]
        range_ = Range.of(id_, visit.query)
        shared: tuple[tuple[parts.AnyPart, str], ...] = ((parts.COMMENTS, id_), (parts.CHECKPOINTS, id_))
        if may_see(site, visit, range_.against, range_.until):
            shared = (*shared, (parts.COUNTS, range_.key))
        return Wants((*shared, (parts.LANDINGS, ""), (parts.PULL_REQUESTS, "")) if visit.may_act else shared)

    async def load(self, site: Site, visit: Visit) -> Mapping[str, Any]:
        session = find(site, visit.params["session"])
        return {"session": session, "range": Range.of(session.id, visit.query), "methods": METHODS}

    def fragments(self, site: Site, visit: Visit) -> Fragments:
        id_ = visit.params["session"]
        session = site.view.sessions.get(id_)
        if session is None:
            return {"summary": Markup("This session was removed: <a href='/trash'>Trash</a>"), "files": {}}
        range_ = Range.of(id_, visit.query)
        shown = may_see(site, visit, range_.against, range_.until)
        counts = site.view.part(parts.COUNTS, range_.key) if shown else parts.Slot(error=NOT_SHOWN)
        comments = site.view.part(parts.COMMENTS, id_).value
        checkpoints = site.view.part(parts.CHECKPOINTS, id_).value or []
        known = self._drawn.get((range_, visit.may_act))
        if (
            known is None
            or known.counts is not counts.value
            or known.comments is not comments
            or (known.error, known.viewed) != (counts.error, site.viewed.version)
        ):
            drawn = self._files(site, visit, session, range_, counts.value, counts.error, comments or [])
            known = _Drawn(counts.value, counts.error, comments, site.viewed.version, drawn)
            self._drawn[range_, visit.may_act] = known
            if len(self._drawn) > PATCHES_HELD:
                self._drawn.popitem(last=False)
        found = dict(known.fragments)
        found["compared"] = site.html("compared.html", range=range_, checkpoints=checkpoints, session=session)
        if visit.may_act:
            found["finish"] = self._finish(site, session, comments or [])
        return found

    def _files(
        self,
        site: Site,
        visit: Visit,
        session: "Session",
        range_: Range,
        counts: "GetDiffResponse | None",
        error: str,
        comments: "Sequence[Comment]",
    ) -> dict[str, Any]:
        files = counts.files if counts is not None else []
        on: dict[str, list[Comment]] = {}
        for remark in comments:
            on.setdefault(remark.path, []).append(remark)
        seen = {each.path for each in files if site.viewed.has(session.id, each.path, content_of(each))}
        shown = {path for each in files for path in (each.path, each.old_path)}
        sections = {}
        for each in files:
            about = [*on.get(each.path, ()), *(on.get(each.old_path, ()) if each.old_path else ())]
            sections[element(each.path)] = site.html(
                "file.html", change=each, kind=enum_name(each, "kind"), id=element(each.path), comments=about,
                url=file_url(range_, each), version=version_of(each, about), viewed=each.path in seen, visit=visit,
                content=content_of(each), lines=each.additions + each.deletions,
            )  # fmt: skip
        kinds = {each.path: each for each in files}
        return {
            "summary": site.html("summary.html", counts=counts, error=error, seen=len(seen)),
            "tree": _tree_html(tree(list(kinds)), kinds, seen, on),
            "files": sections,
            "others": site.html(
                "comments.html",
                visit=visit,
                comments=[each for each in comments if each.path not in shown],
                placed=True,
            ),
        }

    async def file(self, site: Site, visit: Visit) -> Response:
        """Return the diff of one file from row ``from`` on; the first piece also has notes and
        comments on the file."""
        query = visit.query
        session = find(site, visit.params["session"])
        range_ = Range.of(session.id, query)
        require_seen(site, visit, range_.against, range_.until)
        path, old, start = query.get("path", ""), query.get("old", ""), _number(query.get("from", "0"))
        split, whole = query.get("view") == "split" and query.get("sided") != "1", query.get("whole") == "1"
        version = query.get("v", "").partition(".")[0]
        found = await self.patches.read(site, range_, path, old, whole=whole, split=split, version=version)
        change = next((each for each in found.answer.files if each.path == path), None)
        if change is None:
            return HTMLResponse(Markup('<p class="dim">This file has no changes any more.</p>'))
        request = worktree_pb2.ListCommentsRequest(session=session.id, page_size=1000)
        comments = (await site.call(lambda daemon: daemon.worktrees.ListComments, request)).comments
        about = [each for each in comments if each.path in {path, old}]
        places: dict[paint.Place, list[Markup]] = {}
        loose: list[Comment] = []
        for each in about:
            if (place := range_.side(each)) in found.places:
                places.setdefault(place, []).append(
                    site.html("comments.html", visit=visit, comments=[each], placed=False)
                )
            else:
                loose.append(each)
        chunk, left = found.items[start : start + CHUNK], len(found.items) - start - CHUNK
        rows = await asyncio.to_thread(paint.rows_html, path, chunk, split=split, comments=places)
        more = f"{file_url(range_, change)}&from={start + CHUNK}" if left > 0 else ""
        html = site.html(
            "rows.html", change=change, patches=found.patches, rows=rows, split=split, more=more, first=not start, loose=loose,
            left=left, range=range_, visit=visit, cut=found.answer.truncated and not change.too_large,
            images=_images(range_, change) if change.binary else [], version=version_of(change, about), whole=whole,
        )  # fmt: skip
        return HTMLResponse(html)

    def _finish(self, site: Site, session: "Session", comments: "Sequence[Comment]") -> Markup:
        landings = [each for each in site.view.part(parts.LANDINGS).value or () if each.session_id == session.id]
        pulls = [each for each in site.view.part(parts.PULL_REQUESTS).value or () if each.session_id == session.id]
        reviews = [each for each in site.requests if each.session_id == session.id and kind_name(each) == "review"]
        return site.html(
            "finish.html", session=session, review=reviews[0] if reviews else None,
            unsent=sum(enum_name(each, "state") == "open" for each in comments), landing=landings[-1] if landings else None,
            landing_words=[WORDS.get(state := landing_state(each), state) for each in landings[-1:]],
            pull=pulls[0] if pulls else None,
        )  # fmt: skip


def file_url(range_: Range, change: "FileChange") -> str:
    one_sided = "1" if not (change.blob.strip("0") and change.old_blob.strip("0")) else ""
    fields = {"path": change.path, "old": change.old_path if change.old_path != change.path else "", "sided": one_sided}
    query = urlencode({name: value for name, value in fields.items() if value}, quote_via=quote)
    return f"/sessions/{range_.session}/review/file?{query}&{range_.query}".removesuffix("&")


def version_of(change: "FileChange", comments: "Sequence[Comment]") -> str:
    """Return a version of a file's element: the content before the dot, the comments after it."""
    said = "".join(f"{each.id}{each.state}{each.current_line}" for each in comments)
    return f"{change.old_blob[:12]}{change.blob[:12]}.{hashlib.sha256(said.encode()).hexdigest()[:8]}"


def _tree_html(
    folder: Folder, files: "Mapping[str, FileChange]", seen: set[str], comments: "Mapping[str, list[Comment]]"
) -> Markup:
    rows = [
        Markup("<li><details open><summary>{}/</summary>{}</details></li>").format(
            paint.shown(each.name), _tree_html(each, files, seen, comments)
        )
        for each in folder.folders
    ]
    for name, path in folder.files:
        change = files[path]
        facts = Markup("{}{}{}").format(
            Markup("<span class=green>+{}</span> ").format(change.additions) if change.additions else "",
            Markup("<span class=red>−{}</span> ").format(change.deletions) if change.deletions else "",
            Markup("<span class=yellow>✎{}</span>").format(len(comments[path])) if path in comments else "",
        )
        mark = Markup("<span class=seen aria-label=viewed>✓</span>") if path in seen else ""
        rows.append(
            Markup('<li><a href="#{}">{}{}</a> <span class=facts>{}</span></li>').format(
                element(path), mark, paint.shown(name), facts
            )
        )
    return Markup("<ul>{}</ul>").format(Markup("").join(rows))


# Pieces that the page's script fetches


@dataclass(frozen=True)
class Shown:
    """One file's diff as a view of it shows it."""

    answer: "GetDiffResponse"
    patches: list[Patch]
    items: list[Pair | Gap]
    places: set[paint.Place]


class Patches:
    """The newest diffs of files by their query: the rows of a long one are fetched in pieces."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[Any, ...], Shown] = OrderedDict()

    async def read(
        self, site: Site, range_: Range, path: str, old: str, *, whole: bool, split: bool, version: str
    ) -> Shown:
        key = (range_, path, old, whole, split, version)
        if version and key in self._held:
            self._held.move_to_end(key)
            return self._held[key]
        request = worktree_pb2.GetDiffRequest(
            session=range_.session, against=range_.against, until=range_.until, whitespace=range_.whitespace,
            paths=[each for each in (path, old) if each], context=WHOLE if whole else 0, max_bytes=MOST_PATCH,
        )  # fmt: skip
        answer = await site.call(lambda daemon: daemon.worktrees.GetDiff, request)

        def read() -> Shown:
            patches = [each for each in parse(answer.patch) if each.path == path]
            rows = [item for patch in patches for item in items(patch, split=split)]
            return Shown(answer, patches, rows, paint.shown_places(rows, split=split))

        found = self._held[key] = await asyncio.to_thread(read)
        if len(self._held) > PATCHES_HELD:
            self._held.popitem(last=False)
        return found


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 9 else 0


def _images(range_: Range, change: "FileChange") -> list[tuple[str, str]]:
    """Return (name, address) of the two sides of a picture."""
    sides = (
        ("before", change.old_path or change.path, range_.against or "base", change.old_blob),
        ("now", change.path, range_.until, change.blob),
    )
    return [
        (name, f"/sessions/{range_.session}/review/picture?{urlencode({'path': path, 'at': at, 'v': blob})}")
        for name, path, at, blob in sides
        if blob.strip("0") and path.lower().endswith(PICTURES)
    ]


async def picture(site: Site, visit: Visit) -> Response:
    """Serve a picture of a session's files, and no other type: an agent's file could be a page or a
    script of this site."""
    session, query = find(site, visit.params["session"]), visit.query
    require_seen(site, visit, query.get("at", ""))
    request = worktree_pb2.GetFileRequest(session=session.id, path=query.get("path", ""), at=query.get("at", ""))
    found = await site.call(lambda daemon: daemon.worktrees.GetFile, request)
    kind = next((kind for head, kind in IMAGES.items() if found.data.startswith(head)), "")
    if not kind:
        raise UsageError("this is not a picture that browsers show")
    return Response(found.data, media_type=kind)


# Actions


async def view_file(site: Site, form: Form) -> Done:
    session = find(site, form.params["session"])
    site.viewed.mark(
        session.id, form.text("path", strip=False), form.text("content"), sessions=site.view.sessions.keys()
    )
    site.redraw(lambda visit: visit.params.get("session") == session.id)
    return Done()


async def comment(site: Site, form: Form) -> Done:
    session = find(site, form.params["session"])
    line, end_line = sorted((_number(form.text("line")), _number(form.text("end_line") or form.text("line"))))
    request = worktree_pb2.AddCommentRequest(
        session=session.id, path=form.text("path", strip=False), line=line, end_line=end_line, at=form.text("at"),
        text=form.text("text"), request_id=form.request_id,
    )  # fmt: skip
    await site.call(lambda daemon: daemon.worktrees.AddComment, request)
    return Done("comment saved; “Send back” sends all comments")


async def resolve(site: Site, form: Form) -> Done:
    request = worktree_pb2.ResolveCommentRequest(comment=form.params["comment"], request_id=form.request_id)
    await site.call(lambda daemon: daemon.worktrees.ResolveComment, request)
    return Done("resolved")


async def send_back(site: Site, form: Form) -> Done:
    """Send the agent the unsent comments, with the form's text before them."""
    session, text = find(site, form.params["session"]), form.text("text")
    request = worktree_pb2.ListCommentsRequest(session=session.id, page_size=1000)
    comments = (await site.call(lambda daemon: daemon.worktrees.ListComments, request)).comments
    if any(enum_name(each, "state") == "open" for each in comments):
        sent = worktree_pb2.SendCommentsRequest(session=session.id, text=text, request_id=form.request_id)
        await site.call(lambda daemon: daemon.worktrees.SendComments, sent)
    elif text:
        prompt = session_pb2.SendPromptRequest(session=session.id, prompt=text, request_id=form.request_id)
        await site.call(lambda daemon: daemon.sessions.SendPrompt, prompt)
    else:
        raise UsageError("there is nothing to send", hint="comment on a line, or write a message")
    return Done("sent to the agent", go=f"/sessions/{session.id}")


async def land(site: Site, form: Form) -> Done:
    session = find(site, form.params["session"])
    method = form.text("method")
    if method and method not in METHODS:
        raise UsageError(f"there is no method {method!r}")
    request = landing_pb2.LandSessionsRequest(
        sessions=[session.id], target=form.text("target"), method=method, commit_message=form.text("message"),
        local=bool(form.text("local")), check=[form.text("check")] if form.text("check") else [],
        request_id=form.request_id,
    )  # fmt: skip
    try:
        answer = await site.call(lambda daemon: daemon.landing.LandSessions, request)
    except RefusedError as error:
        if error.data.get("upstream"):
            raise UsageError(error.message, hint="tick “on my local branch”, or make a pull request") from error
        if error.data.get("files") and not form.text("message"):
            raise UsageError(
                error.message, hint="write a message to commit it with, or tell the agent to commit"
            ) from error
        raise
    return Done("; ".join(("queued to land", *answer.warnings)), go="/queue")


async def pull_request(site: Site, form: Form) -> Done:
    session = find(site, form.params["session"])
    request = landing_pb2.CreatePullRequestRequest(
        session=session.id, title=form.text("title"), body=form.text("body"), base=form.text("base"),
        draft={"yes": True, "no": False}.get(form.text("draft")), request_id=form.request_id,
    )  # fmt: skip
    answer = await site.call(lambda daemon: daemon.landing.CreatePullRequest, request)
    pull = answer.pull_request
    return Done(
        "; ".join(
            (
                f"{answer.action} #{pull.number} {pull.url}" if pull.number else f"{answer.action} {pull.url}",
                *answer.warnings,
            )
        )
    )


PAGES: tuple[type[Page], ...] = (Review,)
ACTIONS: Mapping[str, Action] = {
    "/sessions/{session}/review/viewed": view_file,
    "/sessions/{session}/review/comments": comment,
    "/sessions/{session}/review/send": send_back,
    "/sessions/{session}/land": land,
    "/sessions/{session}/pull-request": pull_request,
    "/comments/{comment}/resolve": resolve,
}
