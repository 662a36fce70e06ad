"""Widgets that draw only the lines on the screen: a list of a thousand rows costs as much as one of
twenty."""

from collections.abc import Callable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static, TextArea

from rametctl.console.lines import Line, line, safe, to_text
from rametctl.nouns.prompts import pasted_file, word_before

CURSOR = Style(reverse=True)


class Lines(ScrollView, can_focus=False):
    """Lines, one row each. ``cursor`` is the marked row, -1 without one. If ``sticky``, the last
    row stays on the screen when the height changes."""

    DEFAULT_CSS = "Lines { overflow-x: hidden; }"

    class Picked(Message):
        """A row was clicked, at a column of its text; ``twice``: for the second time."""

        def __init__(self, widget: "Lines", row: int, column: int, *, twice: bool) -> None:
            super().__init__()
            self.widget = widget
            self.row = row
            self.column = column
            self.twice = twice

    def __init__(self, *, id: str) -> None:  # noqa: A002  Textual's name
        super().__init__(id=id)
        self.cursor = -1
        self.sticky = False
        self._height = 0
        self._count = 0
        self._row: Callable[[int], Line] = lambda index: Line(())
        self._made: dict[int, Line] = {}  # rows since the last `show_rows`
        self._base: Style | None = None
        self._drawn: dict[int, tuple[int, bool, Line | None]] = {}  # by the row of the screen

    def notify_style_update(self) -> None:
        self._base = None
        super().notify_style_update()

    def show(self, lines: Sequence[Line]) -> None:
        """Show these lines."""
        self.show_rows(len(lines), lambda index: lines[index])

    def show_rows(self, count: int, row: Callable[[int], Line]) -> None:
        """Show ``count`` rows, each made by ``row`` when it is drawn."""
        height, grew = self.size.height, count != self._count
        scrolls = self._count > height
        self._count, self._row = count, row
        self._made.clear()
        self.cursor = min(self.cursor, count - 1)
        size = Size(self.size.width, count)
        fixed = bool(height) and not self.styles.is_auto_height
        if grew and fixed and scrolls and count > height and size.width == self.virtual_size.width:
            # The scrollbar stays: no other widget moves, and the screen needs no new layout.
            self.set_reactive(Lines.virtual_size, size)
            self.vertical_scrollbar.window_virtual_size = count
        elif self.virtual_size != size:
            self.virtual_size = size
        top = self.scroll_offset.y
        for index in range(top, top + height):
            if self._drawn.get(index - top) != self._look(index):
                self.refresh_line(index)

    def _look(self, index: int) -> tuple[int, bool, Line | None]:
        """Return everything that determines a row on the screen, except the width."""
        if index < self._count and index not in self._made:
            self._made[index] = self._row(index)
        return index, index == self.cursor, self._made.get(index)

    def room(self, count: int) -> int:
        """Return the columns of each row if there are ``count``: a scrollbar may take some."""
        return self.size.width - (self.styles.scrollbar_size_vertical if count > self.size.height else 0)

    @property
    def count(self) -> int:
        return self._count

    @property
    def at_end(self) -> bool:
        """Whether the last row is on the screen."""
        return self.scroll_offset.y >= self._count - self.size.height

    def on_resize(self, event: events.Resize) -> None:
        at_end = self.scroll_offset.y >= self._count - self._height
        self._height = event.size.height
        if self.sticky and at_end:
            self.to_end()

    def move_to(self, row: int) -> None:
        """Put the cursor on a row and scroll it into view."""
        left, self.cursor = self.cursor, max(min(row, self._count - 1), -1)
        if self.cursor >= 0:
            self.scroll_to_region(Region(0, self.cursor, 1, 1), animate=False, force=True)
        for index in {left, self.cursor} - {-1}:
            self.refresh_line(index)

    def page(self, direction: int) -> None:
        self.scroll_to(y=self.scroll_offset.y + direction * max(self.size.height // 2, 1), animate=False, force=True)

    def to_end(self) -> None:
        self.scroll_to(y=max(self._count - self.size.height, 0), animate=False, force=True)

    def render_line(self, y: int) -> Strip:
        index = y + self.scroll_offset.y
        width = self.size.width
        base = self._base = self._base or self.rich_style  # slow to compute
        _, marked, found = self._drawn[y] = self._look(index)
        if found is None:
            return Strip.blank(width, base)
        item = safe(found)
        segments = [Segment(" " * item.indent, base)] if item.indent else []
        for text, style in item.spans:
            if text:
                own = Style.parse("bold" if marked and "bold" in style else "none" if marked else style or "none")
                segments.append(Segment(text.replace("\n", "␊"), base + own))
        strip = Strip(segments).adjust_cell_length(width, base)
        return strip.apply_style(CURSOR) if marked else strip  # reversed colours would make patches of it

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        if at is not None and (row := at.y + self.scroll_offset.y) < self._count:
            self.post_message(self.Picked(self, row, at.x, twice=event.chain > 1))

    def row(self, index: int) -> Line:
        return self._row(index)


class Bar(Static):
    """One line of hints, such as ``y yes · n no``."""

    class Picked(Message):
        """The text was clicked at a column."""

        def __init__(self, widget: "Bar", text: str, column: int) -> None:
            super().__init__()
            self.widget = widget
            self.text = text
            self.column = column

    def __init__(self, text: str = "", *, id: str | None = None) -> None:  # noqa: A002  Textual's name
        super().__init__(id=id, markup=False)
        self._item = line(text)

    def on_mount(self) -> None:
        self.update(to_text([self._item]), layout=False)

    def show(self, item: Line | str) -> None:
        item = line(item) if isinstance(item, str) else item
        if item != self._item:
            self._item = item
            self.update(to_text([item]), layout=False)

    def on_click(self, event: events.Click) -> None:
        self.post_message(self.Picked(self, self._item.text, event.x))


class Editing(Widget):
    """The last base of a text field that applies all keys in their order.

    Textual inserts a character in the handler of the field, and runs a binding, such as that of
    backspace, after the key has bubbled through all parents. Characters that arrive in between
    would be inserted first.
    """

    async def _on_key(self, event: events.Key) -> None:
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            if await self.app.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
                return


class Prompt(TextArea, Editing):
    """The prompt line: enter sends, shift-enter or ctrl-j begins a line, up and down recall sent
    prompts.

    ``modal``: escape and a blank at the start give the keyboard to the keys of the screen.
    """

    class Sent(Message):
        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Left(Message):
        """Escape was pressed."""

    class Dropped(Message):
        """The path of an image was pasted."""

        def __init__(self, path: str) -> None:
            super().__init__()
            self.path = path

    class Pasting(Message):
        """Ctrl-v was pressed: the clipboard of the system may have an image."""

    class Answering(Message):
        """A blank was typed into the empty prompt, so that keys answer the request."""

    class Completing(Message):
        """Tab was pressed after a word that can be completed."""

        def __init__(self, prompt: "Prompt", word: str) -> None:
            super().__init__()
            self.prompt = prompt
            self.word = word

    def __init__(self, *, id: str, modal: bool = False) -> None:  # noqa: A002  Textual's name
        super().__init__(id=id, compact=True, show_line_numbers=False, highlight_cursor_line=False, soft_wrap=True)
        self._modal = modal
        self.earlier: list[str] = []
        self._at = 0
        self._draft = ""

    async def _on_key(self, event: events.Key) -> None:
        if self.screen.focused is not self:  # typed before the focus moved: it is one of the dashboard's keys
            self._stop(event)
            self.app.post_message(events.Key(event.key, event.character))
            return
        match event.key:
            case "enter":
                self._stop(event)
                text = self.text.strip()
                if text:
                    self.remember(text)
                    self.clear()
                if text or not self._modal:
                    self.post_message(self.Sent(text))
            case "shift+enter" | "ctrl+j" | "alt+enter":
                self._stop(event)
                self.insert("\n")
            case "up" if self.cursor_location[0] == 0 and self._at > 0:
                self._stop(event)
                self._recall(self._at - 1)
            case "down" if self.cursor_location[0] == self.document.line_count - 1 and self._at < len(self.earlier):
                self._stop(event)
                self._recall(self._at + 1)
            case "escape":
                self._leave(event, self.Left())
            case "space" if self._modal and not self.text:
                self._leave(event, self.Answering())
            case "tab" if word := word_before(self.before_cursor):
                self._stop(event)
                self.post_message(self.Completing(self, word))

    def offer(self, text: str) -> None:
        """Write ``text``, to be continued at its end."""
        self.text = text
        self.move_cursor(self.document.end)

    def remember(self, text: str) -> None:
        """Let up recall ``text`` first."""
        self.earlier.append(text)
        self._at = len(self.earlier)

    def action_paste(self) -> None:
        if self._modal:
            self.post_message(self.Pasting())
        else:
            super().action_paste()

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()  # no screen needs a text that this field takes
        if self._modal and (path := pasted_file(event.text)):
            event.prevent_default()
            self.post_message(self.Dropped(path))  # else the text area inserts the text

    @property
    def before_cursor(self) -> str:
        """Return the text of the cursor's line before the cursor."""
        row, column = self.cursor_location
        return self.document.get_line(row)[:column]

    def complete(self, word: str, by: str) -> None:
        """Replace ``word`` before the cursor by ``by``, unless the text has changed since."""
        row, column = self.cursor_location
        if self.before_cursor.endswith(word):
            self.replace(by, (row, column - len(word)), (row, column))

    def _leave(self, event: events.Key, message: Message) -> None:
        """Give up the focus at once: the next key may arrive before the message is handled, and is
        not for the prompt."""
        self._stop(event)
        if self._modal:
            self.screen.set_focus(None)
        self.post_message(message)

    def _stop(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()

    def _recall(self, at: int) -> None:
        if self._at == len(self.earlier):
            self._draft = self.text
        self._at = at
        self.offer(self.earlier[at] if at < len(self.earlier) else self._draft)
