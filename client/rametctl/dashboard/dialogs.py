"""Dialogs: confirm, ask for a text, choose, the form of a new session, the keys."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ramet.visible import visible
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from rametctl.console.lines import Line, line, to_text, truncated, wrapped
from rametctl.dashboard.answering import GRACE_S
from rametctl.dashboard.keys import GROUPS
from rametctl.dashboard.widgets import Bar, Editing, Lines, Prompt

WIDTH = 80
"""Most columns of a dialog, with its border."""
PASTE_S = 0.2
"""Keys that follow each other within these seconds are a paste."""
DEAF_S = 0.1
"""Seconds between two checks whether a late dialog accepts keys."""
MOST_ROWS = 30
"""Most rows of a text in a dialog."""
PROMPT_ROWS = 3
"""Least rows of a prompt in a dialog."""
SCROLL = (
    Binding("j,down,J,space,pagedown,ctrl+d", "scroll(1)", show=False),
    Binding("k,up,K,pageup,ctrl+u", "scroll(-1)", show=False),
)


class Dialog(ModalScreen[object]):
    """A box in the middle; escape closes it without an answer. If it opens ``late``, after work, it
    ignores keys for GRACE_S: they were meant for something else."""

    DEFAULT_CSS = """
    Dialog { align: center middle; }
    Dialog > Vertical { width: 80; max-width: 96%; height: auto; max-height: 92%; border: round ansi_cyan; padding: 0 1; background: ansi_default; overflow-y: auto; }
    Dialog Input { width: 1fr; background: ansi_default; }
    Dialog .field { height: 1; }
    Dialog .label { width: 18; max-width: 40%; height: 1; }
    Dialog Lines { height: auto; }
    Dialog Prompt { height: auto; max-height: 10; min-height: 3; border: none; padding: 0; background: ansi_default; }
    Dialog Bar { dock: bottom; height: 1; background: ansi_default; }
    """
    BINDINGS: ClassVar[list[Any]] = [Binding("escape", "dismiss_none", show=False)]
    late = False
    offered: Any = None
    """Text that the dialog began with, in the form of an answer; `restore` replaces it."""
    written: Any = None
    """Text that the person left in it when they closed it."""
    _room = 0
    _typed = ""
    _field: Prompt | Input | None = None
    _keys = ""
    """The hint below a prompt."""
    _since = math.inf

    def on_mount(self) -> None:
        self._since = self.app.clock()  # type: ignore[attr-defined]  # of the dashboard
        self._fit(self.app.size)

    def on_resize(self, event: events.Resize) -> None:
        self._fit(event.size)

    def _fit(self, size: Size) -> None:
        """Wrap texts, and leave room below them for the fields and the keys."""
        for text in self.query(Text):
            text.fit(size.width)
        below = 1 + len(self.query(Input)) + PROMPT_ROWS * len(self.query(Prompt))
        self._room = min(max(int(size.height * 0.92) - 2 - below, 1), MOST_ROWS)
        for lines in self.query(Lines):
            lines.styles.max_height = self._room

    @property
    def _age(self) -> float:
        """Seconds for which the dialog has been shown."""
        return float(self.app.clock() - self._since)  # type: ignore[attr-defined]  # as above

    @property
    def _ignores_keys(self) -> bool:
        return self.late and self._age < GRACE_S

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not self._ignores_keys

    def write_in(self, field: Prompt | Input) -> None:
        """Write in ``field`` the text typed since the dialog was requested, and focus it."""
        if self._ignores_keys:
            self.set_timer(DEAF_S, lambda: self.write_in(field))
        elif self.message_queue_size:  # perhaps keys
            self.call_later(self.write_in, field)
        else:
            self._field = field
            self._type("")
            self.set_focus(field)

    def _type(self, text: str) -> None:
        """Store text that is typed before a field has the focus; then write it there.

        Textual fetches a message before it runs the handler of the previous one. `write_in` does
        not see that message in the queue, and it arrives here although the field has the focus.
        """
        self._typed += text
        if self._field is not None and self._typed:
            if isinstance(self._field, Prompt):
                self._field.replace(self._typed, *self._field.selection)
            else:
                self._field.insert_text_at_cursor(" ".join(self._typed.splitlines()))
            self._typed = ""

    def on_key(self, event: events.Key) -> None:
        if event.character is not None and event.is_printable and not self._ignores_keys:
            self._type(event.character)

    def on_paste(self, event: events.Paste) -> None:
        """Take text that arrives at once; a line end in it confirms nothing."""
        event.stop()
        if not self._ignores_keys:
            self._type(event.text)

    def action_dismiss_none(self) -> None:
        self.written = self._text_left()
        self.dismiss(None)

    def on_text_area_changed(self, event: Prompt.Changed) -> None:
        event.stop()
        self.query_one(Bar).show(self._keys)  # instead of what was wrong without text

    def on_prompt_left(self, event: Prompt.Left) -> None:
        event.stop()  # the screen below has a prompt of its own
        self.action_dismiss_none()

    def _text_left(self) -> Any:
        """Return the text in the fields, in the form of an answer; None without fields."""
        return None

    def restore(self, written: Any) -> None:
        """Offer text that was written before, to be continued at its end."""

    def action_scroll(self, direction: int) -> None:
        self.query_one(Lines).page(direction)

    def on_lines_picked(self, event: Lines.Picked) -> None:
        event.stop()


class Text(Lines):
    """Lines that wrap at the width of their dialog."""

    def __init__(self, question: str, details: Sequence[Line] = (), *, id: str = "text") -> None:  # noqa: A002  Textual's name
        super().__init__(id=id)
        self._lines = [*(line(part) for part in question.split("\n")), *details]

    def fit(self, width: int) -> None:
        """Wrap for a screen of ``width`` columns."""
        room = min(WIDTH, int(width * 0.96)) - 4
        self.show([piece for each in self._lines for piece in wrapped(each, room)])


class Confirm(Dialog):
    """Yes (True) or no (None)."""

    BINDINGS: ClassVar[list[Any]] = [
        Binding("y", "yes", show=False),
        Binding("enter", "enter", show=False),
        Binding("n,q", "dismiss_none", show=False),
        *SCROLL,
    ]

    def __init__(self, question: str, details: Sequence[Line] = ()) -> None:
        super().__init__()
        self._text = Text(question, [line(""), *details] if details else ())

    def compose(self) -> ComposeResult:
        with Vertical():
            yield self._text
            yield Bar("y or enter yes · n or esc no")

    def _fit(self, size: Size) -> None:
        super()._fit(size)
        more = " · J scroll down" if self._text.count > self._room else ""
        self.query_one(Bar).show(f"y or enter yes · n or esc no{more}")

    def action_enter(self) -> None:
        """Yes, unless the dialog has just appeared: a line end in text pasted as keys confirms
        nothing."""
        if self._age >= PASTE_S:
            self.dismiss(True)

    def action_yes(self) -> None:
        self.dismiss(True)


class Ask(Dialog):
    """A text of one or several lines; None if closed without an answer. ``does``: the action of
    enter, in a word; ``empty``: that of an empty text, "" if that is no answer."""

    def __init__(
        self, question: str, *, does: str = "send", text: str = "", details: Sequence[Line] = (), empty: str = ""
    ) -> None:
        super().__init__()
        self._question = Text(question, details)
        self._empty = empty
        self._keys = f"enter {does} · shift-enter new line · esc back" + (f" · empty: {empty}" if empty else "")
        self._text = self.offered = text

    def compose(self) -> ComposeResult:
        with Vertical():
            yield self._question
            yield Prompt(id="answer")
            yield Bar(self._keys)

    def on_mount(self) -> None:
        self.query_one(Prompt).offer(self._text)
        self.write_in(self.query_one(Prompt))

    def on_prompt_sent(self, event: Prompt.Sent) -> None:
        event.stop()
        if event.text or self._empty:
            self.dismiss(event.text)
        else:
            self.query_one(Bar).show("nothing is written · esc back")

    def _text_left(self) -> str:
        return self.query_one(Prompt).text.strip()

    def restore(self, written: str) -> None:
        self._text = written


class Choose(Dialog):
    """One of several lines, answered by its number from 0."""

    BINDINGS: ClassVar[list[Any]] = [
        Binding("j,down", "move(1)", show=False),
        Binding("k,up", "move(-1)", show=False),
        Binding("enter", "pick", show=False),
        *(Binding(str(number), f"number({number})", show=False) for number in range(1, 10)),
    ]

    def __init__(self, question: str, choices: Sequence[str]) -> None:
        super().__init__()
        self._question = question
        self._choices = list(choices)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Text(self._question)
            yield Lines(id="choices")
            yield Bar("enter choose · j k move · esc back")

    def on_mount(self) -> None:
        lines = self.query_one("#choices", Lines)
        lines.show([line(f"{number} {text}") for number, text in enumerate(self._choices, 1)])
        lines.move_to(0)

    def action_move(self, by: int) -> None:
        lines = self.query_one("#choices", Lines)
        lines.move_to(min(max(lines.cursor + by, 0), len(self._choices) - 1))

    def action_pick(self) -> None:
        self.dismiss(self.query_one("#choices", Lines).cursor)

    def action_number(self, number: int) -> None:
        if number <= len(self._choices):
            self.dismiss(number - 1)

    def on_lines_picked(self, event: Lines.Picked) -> None:
        event.stop()
        if event.widget.id == "choices":
            self.dismiss(event.row)


@dataclass(frozen=True)
class Field:
    """A field of a form."""

    name: str
    label: str
    hint: str = ""
    text: str = ""


class OneLine(Input, Editing):
    """The text of a field. Its hint ends with … if it is too long."""

    def __init__(self, field: Field, id: str) -> None:  # noqa: A002  Textual's name
        super().__init__(field.text, id=id, select_on_focus=False, compact=True)
        self._hint = visible(field.hint)

    def on_resize(self, event: events.Resize) -> None:
        self.placeholder = truncated(self._hint, event.size.width)


class Form(Dialog):
    """Fields of one line each, and above them a text of several lines unless ``prompt`` is None.
    The answer maps names to texts."""

    BINDINGS: ClassVar[list[Any]] = [Binding("ctrl+s", "send", show=False)]
    _keys = "enter send · tab next field · esc back"

    def __init__(self, title: str, fields: Sequence[Field], *, prompt: str | None = None) -> None:
        super().__init__()
        self._title = title
        self._fields = fields
        self._prompt = prompt
        self.offered = {each.name: each.text for each in fields} | {"prompt": prompt or ""}

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Text(self._title)
            if self._prompt is not None:
                yield Prompt(id="prompt")
            for number, each in enumerate(self._fields):
                with Horizontal(classes="field"):
                    yield Static(to_text([line((each.label, "cyan"))]), markup=False, classes="label")
                    yield OneLine(each, f"field{number}")
            yield Bar(self._keys)

    def on_mount(self) -> None:
        if self._prompt is not None:
            self.query_one(Prompt).offer(self._prompt)
            self.write_in(self.query_one(Prompt))
        elif self._fields:
            self.write_in(self.query_one("#field0", Input))

    def on_prompt_sent(self, event: Prompt.Sent) -> None:
        event.stop()
        if event.text:
            self.dismiss(self._text_left() | {"prompt": event.text})
        else:
            self.query_one(Bar).show("nothing is written · ctrl-s send without it · esc back")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_send()

    def action_send(self) -> None:
        self.dismiss(self._text_left())

    def _text_left(self) -> dict[str, str]:
        prompt = self.query_one(Prompt).text.strip() if self._prompt is not None else ""
        fields = (self.query_one(f"#field{number}", Input).value.strip() for number in range(len(self._fields)))
        return dict(zip((each.name for each in self._fields), fields, strict=True)) | {"prompt": prompt}

    def restore(self, written: Mapping[str, str]) -> None:
        self._fields = [replace(each, text=written.get(each.name, each.text)) for each in self._fields]
        if self._prompt is not None:
            self._prompt = written.get("prompt", "")


class Help(Dialog):
    """All keys."""

    BINDINGS: ClassVar[list[Any]] = [
        Binding("question_mark,q,enter", "dismiss_none", show=False),
        *SCROLL,
    ]

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Lines(id="keys")
            yield Bar("J scroll down · K scroll up · esc back")

    def on_mount(self) -> None:
        lines: list[Line] = []
        for group, keys in GROUPS.items():
            lines.append(line((group, "bold")))
            lines += [line((f"{key.label:<10}", "cyan"), key.words, indent=2) for key in keys]
        self.query_one(Lines).show(lines)
