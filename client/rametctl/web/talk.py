"""A session's conversation as HTML. Only entries that an event changed are drawn again."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup
from ramet.words import plural

from rametctl.console.lines import Look, truncated
from rametctl.render.transcript import Asked, Call, Conversation, Entry, Said, Words, entry_lines
from rametctl.web import html

if TYPE_CHECKING:
    from ramet.v1.event_pb2 import Event

SHOWN_ENTRIES = 600
STREAMED = 6000
"""Characters of an unfinished message that are shown: the newest."""


class Talk:
    """The entries of one session by the id of their element, in order."""

    def __init__(self, worktree: str, names: dict[str, str]) -> None:
        self.conversation = Conversation(worktree=worktree, names=names, most=SHOWN_ENTRIES)
        self._ids: dict[Entry, str] = {}
        self._drawn: dict[Entry, Markup] = {}
        self._count = 0

    def add(self, events: "Sequence[Event]") -> None:
        for event in events:
            for entry in self.conversation.add(event):
                self._drawn.pop(entry, None)

    def entries(self) -> dict[str, Markup]:
        shown = self.conversation.entries
        found = {}
        for entry in shown:
            if entry not in self._ids:
                self._count += 1
                self._ids[entry] = f"e{self._count}"
            id_ = self._ids[entry]
            if entry not in self._drawn:
                self._drawn[entry] = self._element(entry, id_)
            if self._drawn[entry]:
                found[id_] = self._drawn[entry]
        if len(self._drawn) > 2 * SHOWN_ENTRIES:
            self._drawn = {entry: self._drawn[entry] for entry in shown}
            self._ids = {entry: self._ids[entry] for entry in shown}
        return found

    def unfinished(self) -> Markup:
        """Return the unfinished message and the queued prompts."""
        status = self.conversation.status
        found = Markup("")
        if status.thinking.strip():
            found += Markup('<p class="thought">{}</p>').format(html.span((status.thinking[-STREAMED:], "")))
        if status.text.strip():
            found += Markup('<div class="words streamed">{}</div>').format(html.span((status.text[-STREAMED:], "")))
        for prompt in status.queued.values():
            first = truncated(prompt.text.strip().split("\n")[0], 200)
            found += Markup('<p class="queued">⋯ {} <span class="dim">(queued)</span></p>').format(
                html.span((first, ""))
            )
        return found

    def _element(self, entry: Entry, id_: str) -> Markup:
        content = self._content(entry)
        kind = type(entry).__name__.lower()
        return content and Markup('<div id="{}" class="entry {} depth-{}">{}</div>').format(
            id_, kind, min(entry.depth, 1), content
        )

    def _content(self, entry: Entry) -> Markup:
        match entry:
            case Said():
                note = Markup('<span class="dim"> {}</span>').format(entry.note) if entry.note else Markup("")
                return Markup("<b>{}</b>{}<p>{}</p>").format(
                    "You" if not entry.note else "Prompt", note, html.span((entry.text, ""))
                )
            case Words(thinking=False):
                return html.markdown(entry.text)
        folded = entry_lines(entry, Look(None, folded=True), self.conversation)
        if isinstance(entry, Call | Asked) and entry.waits:
            return html.lines(folded[:1])  # the request is shown in full below the conversation
        full = entry_lines(entry, Look(None, folded=False), self.conversation)
        if full == folded or not folded:
            return html.lines(full)
        rest = Markup('<span class="folded">{}</span>').format(html.lines(folded[1:]))
        more = plural(len(full) - 1, "line")
        return Markup("<details><summary>{}{}</summary>{}<span class=vh>{}</span></details>").format(
            html.line(folded[0]), rest, html.lines(full[1:]), more
        )
