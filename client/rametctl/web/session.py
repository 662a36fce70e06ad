"""One session: its conversation, its requests, and prompts to it."""

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from markupsafe import Markup
from ramet.v1 import daemon_pb2, session_pb2

from rametctl.errors import UsageError
from rametctl.options import MODES, budget_of, mode_name, mode_number
from rametctl.render.session import HELD, state_name
from rametctl.view import contests, parts
from rametctl.web import requests
from rametctl.web.forms import Done, Form
from rametctl.web.site import Action, Fragments, Page, Site, Visit, Wants

if TYPE_CHECKING:
    from ramet.v1.session_pb2 import Session

FILES = ".ramet-files"
"""Directory in a worktree for files that a person gives the agent; git ignores it."""


def find(site: Site, session_id: str) -> "Session":
    """A session by id. Raises UsageError."""
    session = site.view.sessions.get(session_id)
    if session is None:
        raise UsageError(f"there is no session {session_id!r}", hint="the trash may have it")
    return session


async def agent_kinds(site: Site) -> list[str]:
    """Return the names of the kinds of agents."""
    answer = await site.call(lambda daemon: daemon.daemon.ListAgents, daemon_pb2.ListAgentsRequest())
    return [each.name for each in answer.agents]


class SessionPage(Page):
    path: ClassVar[str] = "/sessions/{session}"
    template: ClassVar[str] = "session.html"

    def title(self, site: Site, visit: Visit) -> str:
        session = site.view.sessions.get(visit.params["session"])
        return session.name if session is not None else "removed"

    def wants(self, site: Site, visit: Visit) -> Wants:
        id_ = visit.params["session"]
        session = site.view.sessions.get(id_)
        return Wants(((parts.COUNTS, id_),) if session is not None and session.turns else (), (id_,))

    async def load(self, site: Site, visit: Visit) -> Mapping[str, Any]:
        session = find(site, visit.params["session"])
        return {"session": session, "kinds": await agent_kinds(site) if visit.may_act else []}

    def fragments(self, site: Site, visit: Visit) -> Fragments:
        id_ = visit.params["session"]
        session = site.view.sessions.get(id_)
        if session is None:
            return {"about": Markup("<p>This session was removed. <a href='/'>All sessions</a></p>"), "requests": {}}
        talk = site.talk(id_)
        transcript = site.view.transcripts.get(id_)
        counts = site.view.part(parts.COUNTS, id_).value
        state = state_name(session)
        mine = [each for each in site.requests if each.session_id == id_]
        return {
            "about": site.html(
                "about.html", session=session, state=state, counts=counts, mode=mode_name(session.mode), visit=visit,
                running=[each.call.tool for each in talk.conversation.running()][-1:] if state == "working" else [],
                contest=contests.contest_of(session),
            ),
            "earlier": Markup("Earlier events: <code>rametctl logs</code>")
            if talk.conversation.dropped or (transcript is not None and transcript.dropped)
            else Markup(""),
            "talk": talk.entries(),
            "unfinished": talk.unfinished(),
            "requests": requests.cards(site, mine, visit),
            "controls": site.html(
                "controls.html", session=session, state=state, held=state in HELD,
                queued=talk.conversation.status.queued.keys() - talk.conversation.status.sent,
            )
            if visit.may_act
            else Markup(""),
        }  # fmt: skip


async def prompt(site: Site, form: Form) -> Done:
    session = find(site, form.params["session"])
    text = form.text("prompt")
    if files := [each for each in form.texts("files") if each]:
        text = f"{text}\n\nFiles for you, in this worktree:\n" + "\n".join(f"- {FILES}/{each}" for each in files)
    if not text:
        raise UsageError("there is no prompt")
    request = session_pb2.SendPromptRequest(session=session.id, prompt=text, request_id=form.request_id)
    answer = await site.call(lambda daemon: daemon.sessions.SendPrompt, request)
    return Done("; ".join(answer.warnings) or "sent")


def keep(worktree: str, name: str, data: bytes) -> str:
    """Write a person's file into a worktree; return its name there. Raises UsageError.

    The agent can write in the worktree too: follow none of its symlinks, and replace no file.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    last = name.rpartition("/")[2]
    safe = "".join(each if each.isalnum() or each in "._- " else "_" for each in last)[-100:].lstrip(". ")
    stem, dot, ending = (safe or "file").rpartition(".")
    if not dot:
        stem, ending = ending, ""
    try:
        top = os.open(worktree, flags)
        try:
            with suppress(FileExistsError):
                os.mkdir(FILES, 0o755, dir_fd=top)
            folder = os.open(FILES, flags, dir_fd=top)
        finally:
            os.close(top)
        try:
            _write(folder, ".gitignore", b"*\n", missing_ok=True)
            for number in range(1, 1000):
                fresh = f"{stem}{f'-{number}' if number > 1 else ''}{dot}{ending}"
                if _write(folder, fresh, data):
                    return fresh
        finally:
            os.close(folder)
    except OSError as error:
        raise UsageError(f"cannot write into the worktree: {error.strerror}") from error
    raise UsageError(f"there are too many files named {safe}")


def _write(folder: int, name: str, data: bytes, *, missing_ok: bool = False) -> bool:
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder)
    except FileExistsError:
        return missing_ok
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    return True


async def upload(site: Site, form: Form) -> Done:
    session = find(site, form.params["session"])
    return Done(await asyncio.to_thread(keep, session.worktree, form.query.get("name", ""), form.raw))


async def fork(site: Site, form: Form) -> Done:
    """Copy the session: its conversation and files. Another kind of agent gets a summary of the
    conversation."""
    request = session_pb2.ForkSessionRequest(
        session=form.params["session"], prompt=form.text("prompt"), agent=form.text("agent"), name=form.text("name"),
        request_id=form.request_id,
    )  # fmt: skip
    answer = await site.call(lambda daemon: daemon.sessions.ForkSession, request)
    return Done("; ".join(answer.warnings), go=f"/sessions/{answer.session.id}")


async def interrupt(site: Site, form: Form) -> Done:
    request = session_pb2.InterruptSessionRequest(session=form.params["session"], request_id=form.request_id)
    answer = await site.call(lambda daemon: daemon.sessions.InterruptSession, request)
    return Done("interrupted" if answer.interrupted else "no turn runs")


async def unsend(site: Site, form: Form) -> Done:
    request = session_pb2.WithdrawPromptsRequest(session=form.params["session"], request_id=form.request_id)
    answer = await site.call(lambda daemon: daemon.sessions.WithdrawPrompts, request)
    return Done(f"taken back: {answer.withdrawn[0].text}")


async def pause(site: Site, form: Form) -> Done:
    request = session_pb2.PauseSessionRequest(session=form.params["session"], request_id=form.request_id)
    await site.call(lambda daemon: daemon.sessions.PauseSession, request)
    return Done("paused")


async def resume(site: Site, form: Form) -> Done:
    request = session_pb2.ResumeSessionRequest(session=form.params["session"], request_id=form.request_id)
    answer = await site.call(lambda daemon: daemon.sessions.ResumeSession, request)
    return Done("; ".join(("resumed", *answer.warnings)))


async def update(site: Site, form: Form) -> Done:
    """Change the mode or the budget, whichever the form has."""
    request = session_pb2.UpdateSessionRequest(session_id=form.params["session"], request_id=form.request_id)
    if mode := form.text("mode"):
        if mode not in MODES:
            raise UsageError(f"there is no mode {mode!r}")
        request.session.mode = mode_number(mode)
        request.update_mask.paths.append("mode")
    if text := form.text("budget"):
        try:
            budget = budget_of(text)
        except ValueError:
            raise UsageError(f"{text!r} is not a budget: give dollars, or tokens such as 2Mtok") from None
        request.session.MergeFrom(session_pb2.Session(**budget))
        request.update_mask.paths.extend(budget)
    await site.call(lambda daemon: daemon.sessions.UpdateSession, request)
    return Done("changed")


async def archive(site: Site, form: Form) -> Done:
    request = session_pb2.ArchiveSessionRequest(session=form.params["session"], request_id=form.request_id)
    await site.call(lambda daemon: daemon.sessions.ArchiveSession, request)
    return Done("archived; its page restores it")


async def remove(site: Site, form: Form) -> Done:
    """Remove it with all its work, which goes to the trash."""
    session = find(site, form.params["session"])
    request = session_pb2.DeleteSessionRequest(session=session.id, force=True, request_id=form.request_id)
    await site.call(lambda daemon: daemon.sessions.DeleteSession, request)
    return Done(f"{session.name} is in the trash; the page Trash restores it", go="/")


async def restore(site: Site, form: Form) -> Done:
    request = session_pb2.RestoreSessionRequest(session=form.params["session"], request_id=form.request_id)
    await site.call(lambda daemon: daemon.sessions.RestoreSession, request)
    return Done("restored")


PAGES: tuple[type[Page], ...] = (SessionPage,)
ACTIONS: Mapping[str, Action] = {
    "/sessions/{session}/prompt": prompt,
    "/sessions/{session}/files": upload,
    "/sessions/{session}/fork": fork,
    "/sessions/{session}/interrupt": interrupt,
    "/sessions/{session}/unsend": unsend,
    "/sessions/{session}/pause": pause,
    "/sessions/{session}/resume": resume,
    "/sessions/{session}/update": update,
    "/sessions/{session}/archive": archive,
    "/sessions/{session}/remove": remove,
    "/sessions/{session}/restore": restore,
}
