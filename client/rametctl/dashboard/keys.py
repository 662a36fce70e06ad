"""All keys of the dashboard: the table from which bindings, help and documentation are
generated."""

import re
from dataclasses import dataclass

from rametctl.console.lines import cell_width


@dataclass(frozen=True)
class Key:
    """``key`` as Textual names it (several are joined by commas), ``shown`` as a keyboard does."""

    key: str
    action: str
    words: str
    shown: str = ""

    @property
    def label(self) -> str:
        return self.shown or self.key


GROUPS: dict[str, tuple[Key, ...]] = {
    "Move": (
        Key("j,down", "cursor(1)", "down", "j ↓"),
        Key("k,up", "cursor(-1)", "up", "k ↑"),
        Key("g,home", "edge(-1)", "first", "g"),
        Key("G,end", "edge(1)", "last", "G"),
        Key("enter", "enter", "open the session, then write to it; on a checkpoint: rewind", "enter"),
        Key("escape", "leave", "back", "esc"),
        Key("space", "peek", "answer the session's request, and back", "space"),
        Key("N", "next_waiting", "next session that needs you", "N"),
        Key("tab", "tab(1)", "next tab", "tab"),
        Key("shift+tab", "tab(-1)", "previous tab", "shift-tab"),
        Key("J,ctrl+d,pagedown", "scroll(1)", "scroll the right side down", "J ctrl-d"),
        Key("K,ctrl+u,pageup", "scroll(-1)", "scroll the right side up", "K ctrl-u"),
        Key("slash", "filter", "filter: words, s:waiting a:claude r:repository", "/"),
        Key("v", "arrange", "by state, by family, by plan, by contest", "v"),
        Key("asterisk", "everywhere", "this repository or all", "*"),
        Key("z", "fold", "fold or unfold calls and thinking", "z"),
    ),
    "Answer": (
        Key("y", "approve", "yes: approve, or done with a finished turn"),
        Key("s", "approve_session", "yes, also for the rest of this session"),
        Key("a", "approve_always", "yes, and store a rule that you can edit"),
        Key("e", "edit_input", "edit the input in $EDITOR, then approve"),
        Key("d", "deny", "no, with a reason"),
        Key("t", "reply", "answer a question in your own words"),
        Key("1,2,3,4,5,6,7,8,9", "choose", "choose an answer, or a plan's mode", "1–9"),
        Key("backspace", "previous_question", "ask the previous question again"),
    ),
    "Talk": (
        Key("r", "prompt", "write to the session", "r"),
        Key("U", "unsend", "take back the newest queued prompt, to edit it"),
        Key("n", "new", "new session"),
        Key("i", "interrupt", "interrupt the turn"),
        Key("p", "pause", "pause, or resume"),
        Key("m", "mode", "permission mode"),
        Key("f", "fork", "fork"),
    ),
    "Work": (
        Key("L", "land", "land on the target branch"),
        Key("P", "pull_request", "create or update the pull request"),
        Key("c", "comment", "comment on the line (tab Diff)"),
        Key("C", "send_comments", "send all comments"),
        Key("b", "against", "diff against base, target or last turn"),
        Key("B", "against_session", "diff against another session"),
        Key("W", "pick", "pick this contender of a contest, archive the others"),
        Key("A", "archive", "archive"),
        Key("x", "remove", "remove"),
        Key("u", "undo", "undo the last archive or removal"),
        Key("S", "shell", "shell in the worktree"),
        Key("exclamation_mark", "run", "run a command in the worktree", "!"),
        Key("o", "open", "open the worktree in $VISUAL or $EDITOR"),
    ),
    "Screen": (
        Key("question_mark", "help", "all keys", "?"),
        Key("colon", "command_palette", "command palette", ":"),
        Key("ctrl+l", "redraw", "draw the screen again", "ctrl-l"),
        Key("ctrl+z", "suspend_process", "suspend", "ctrl-z"),
        Key("q,ctrl+q", "quit", "quit; sessions keep running", "q"),
    ),
}


NAMES = {
    "esc": "escape", "?": "question_mark", "/": "slash", "!": "exclamation_mark", "*": "asterisk", ":": "colon", "↑": "up",
    "enter": "enter", "space": "space", "tab": "tab", "backspace": "backspace",
}  # fmt: skip


def at_column(text: str, column: int, between: str = r" · |  +") -> str:
    """Return the part of ``text``, divided by ``between``, that a column is in."""
    for part in re.split(f"({between})", text):
        column -= cell_width(part)
        if column < 0:
            return part.strip()
    return ""


def of_hint(hint: str) -> str:
    """Return Textual's name of the key that a hint such as ``L land`` or ``2) Redis`` begins with;
    "" for none."""
    word = hint.partition(" ")[0].removesuffix(")")
    if word in NAMES or (len(word) == 1 and word.isalnum()):
        return NAMES.get(word, word)
    return word.replace("-", "+") if word.startswith(("ctrl-", "shift-")) else ""


def markdown() -> str:
    """Return the table of all keys for the documentation."""
    rows: list[str] = []
    for group, keys in GROUPS.items():
        rows += [f"### {group}", "", "| Key | Does |", "|---|---|"]
        rows += [f"| `{key.label}` | {key.words} |" for key in keys]
        rows.append("")
    return "\n".join(rows).rstrip() + "\n"
