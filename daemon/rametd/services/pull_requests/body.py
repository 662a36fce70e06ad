"""Title and body of a session's pull request.

Ramet's part is between two marks, above the repository's template. Later updates replace only the
text between the marks, so that people can write around it. Ramet does not change a body without the
marks.
"""

import re
from dataclasses import dataclass

from ramet.words import plural

from rametd.domain.models import OWNER, Session
from rametd.services.core import Core
from rametd.services.members import last_words
from rametd.services.repos import info_of
from rametd.store import Reader

BEGIN, END = "<!-- ramet:begin -->", "<!-- ramet:end -->"
TITLE_LIMIT = 100
GOAL_LIMIT = 4000
SUMMARY_LIMIT = 12_000
BODY_LIMIT = 60_000
"""Of GitHub's 65,536 characters."""
TEMPLATES = (
    ".github/PULL_REQUEST_TEMPLATE.md",
    "PULL_REQUEST_TEMPLATE.md",
    "docs/PULL_REQUEST_TEMPLATE.md",
    ".github/PULL_REQUEST_TEMPLATE.txt",
    "PULL_REQUEST_TEMPLATE.txt",
    "PULL_REQUEST_TEMPLATE",
)

_BLOCK = re.compile(rf"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
_MARK = re.compile(r"<!--\s*ramet:")


@dataclass(frozen=True, slots=True)
class Text:
    """Title and body of a pull request."""

    title: str
    body: str


async def describe(core: Core, session: Session, note: str = "") -> Text:
    """Compose the text: goal or first prompt, report or last words, commits, and the repository's
    template."""
    goal, title, summary = await core.store.read(lambda reader: _facts(reader, session))
    template = await core.git.commits.file_at(await info_of(core, session), session.base_commit, TEMPLATES)
    parts = [f"## Goal\n\n{shortened(goal, GOAL_LIMIT)}"] if goal else []
    if summary:
        parts.append(f"## Summary\n\n{shortened(summary, SUMMARY_LIMIT)}")
    if note:
        parts.append(note)
    known = core.config.pr.show_cost and session.cost_usd is not None and session.cost_usd >= 0.005
    spent = f", ${session.cost_usd:.2f}" if known else ""
    count = session.checkpointed_turns
    checkpoints = f", {plural(count, 'checkpoint')}" if count else ""
    parts.append(
        f"<sub>Made by the session {code(session.name)}: {plural(session.turns, 'turn')}{checkpoints}{spent}.</sub>"
    )
    body = marked("\n\n".join(parts))
    if template is not None:
        body += "\n\n" + template.decode(errors="replace").strip() + "\n"
    return Text(title or one_line(goal) or session.name, body)


def _facts(reader: Reader, session: Session) -> tuple[str, str, str]:
    """Goal, title and summary; "" for a missing one."""
    thread = reader.plans.thread_of(session.id)
    prompts = reader.prompts.list(session.id)
    asked = next((prompt.text for prompt in prompts if prompt.source == OWNER), prompts[0].text if prompts else "")
    goal = (thread.goal or thread.prompt) if thread is not None else ""
    title = thread.title if thread is not None else ""
    return (goal or asked).strip(), title, (session.result or last_words(reader, session.id)).strip()


def marked(text: str) -> str:
    """Our part of a body, with line feeds only. Marks inside the text are broken up, so that a
    quoted mark does not end the block."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return f"{BEGIN}\n{shortened(_MARK.sub('<!-- ramet :', lines), BODY_LIMIT)}\n{END}"


def updated(body: str, block: str) -> str:
    """Replace our part of ``body`` with that of ``block``; unchanged if it has none."""
    ours = _BLOCK.search(block)
    return body if ours is None else _BLOCK.sub(lambda _: ours[0], body.replace("\r\n", "\n"), count=1)


def one_line(text: str) -> str:
    """First line that has a word, shortened between words."""
    line = next((line for line in text.splitlines() if line.strip(" #*-\t")), "")
    words = " ".join(line.strip(" #*\t").split())
    return words if len(words) <= TITLE_LIMIT else words[: TITLE_LIMIT - 1].rsplit(" ", 1)[0] + "…"


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit].rstrip() + " …"


def code(text: str) -> str:
    """Format any text as inline code in Markdown."""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return f"{fence}{text}{fence}" if "`" not in text else f"{fence} {text} {fence}"
