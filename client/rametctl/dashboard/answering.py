"""Answers to requests: the meaning of a key for a request, and when it counts. Independent of
Textual."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rametctl.render.format import parsed
from rametctl.render.request import kind_name, labels, questions

if TYPE_CHECKING:
    from ramet.v1.attention_pb2 import AttentionRequest

GRACE_S = 0.7
"""Seconds after a request appeared in which no key answers it: the key was meant for the previous
screen."""
SOUGHT_S = 0.3
"""The same for a request of a session that the person has just moved to: long enough to see it."""
PLAN_MODES = ("default", "acceptEdits", "bypassPermissions")


@dataclass
class Shown:
    """The request on the screen: since when, and whether all of it has been visible."""

    request: "AttentionRequest"
    since: float
    seen: bool = False
    answers: list[str] = field(default_factory=list)
    """Answers to the first of several questions."""
    ticks: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Ticked choices where several are allowed, by the index of their question."""

    @property
    def chosen(self) -> set[int]:
        """Ticked choices of the present question."""
        return self.ticks[len(self.answers)]

    @property
    def question(self) -> Mapping[str, Any] | None:
        asked = questions(parsed(self.request.input_json)) if kind_name(self.request) == "question" else []
        return asked[len(self.answers)] if len(self.answers) < len(asked) else None

    @property
    def count(self) -> int:
        """Number of the request's questions."""
        return len(questions(parsed(self.request.input_json)))

    def refusal(self, now: float) -> str:
        """Return why a key does not count yet; "" if it does."""
        if now - self.since < GRACE_S:
            return "this has just appeared: press the key again to answer it"
        if not self.seen:
            return "read it to its end first: J scrolls"
        return ""

    def choose(self, number: int) -> bool:
        """Choose ``number`` for the present question; return whether all questions are answered."""
        question = self.question
        if question is None:
            return False
        choices = labels(question)
        if not 1 <= number <= len(choices):
            return False
        if question.get("multiSelect"):
            self.ticks[len(self.answers)] ^= {number}
            return False
        return self.reply(choices[number - 1])

    @property
    def ticked(self) -> list[str]:
        """Labels of the ticked choices."""
        choices = labels(self.question) if self.question is not None else []
        return [choices[number - 1] for number in sorted(self.chosen)]

    def confirm(self, text: str = "") -> bool:
        """Answer the present question with the ticked choices and the person's own ``text``; return
        whether all questions are answered."""
        answer = ", ".join(filter(None, [*self.ticked, text]))
        return self.reply(answer) if self.question is not None and answer else False

    def reply(self, text: str) -> bool:
        self.answers.append(text)
        return self.question is None


def suggested_rules(request: "AttentionRequest") -> list[str]:
    """Return the daemon's suggestions for rules, each with one rule a line; the last is the exact
    call."""
    found = ["\n".join(offer.rules) for offer in request.offers]
    data = parsed(request.input_json)
    if isinstance(data, Mapping):
        argument = data.get("command") or data.get("file_path") or data.get("url")
        found.append(f"{request.tool}({argument})" if isinstance(argument, str) else request.tool)
    return list(dict.fromkeys(found))


def plan_modes(allowed: Sequence[str]) -> list[str]:
    """Return the modes in which a plan may start, by the number of their key."""
    return [mode for mode in PLAN_MODES if mode in allowed]


def hints(shown: Shown, *, landable: bool = True, modes: Sequence[str] = PLAN_MODES) -> str:
    """Return the keys that answer this request, in one line. ``landable``: its session has changes
    to land; ``modes``: those that the settings allow."""
    number = f" ({len(shown.answers) + 1} of {shown.count})" if shown.count > 1 else ""
    back = " · backspace previous question" if shown.answers else ""
    match kind_name(shown.request):
        case "permission":
            return "y yes · s session · a always · e edit · d no, because …"
        case "question" if shown.question is not None and shown.question.get("multiSelect"):
            return f"1–9 tick{number} · enter send · t your own words{back}"
        case "question":
            return f"1–9 choose{number} · t your own words{back}"
        case "plan":
            starts = " · ".join(f"{number} start in {mode}" for number, mode in enumerate(plan_modes(modes), 1))
            return f"y start · d what to change · {starts}"
        case "elicitation":
            return "y fill in · d decline"
        case "review":
            return "y done · d do better" + (" · L land" if landable else "")
        case "conflict":
            return "y seen · tab to Conflicts: where"
        case "trust":
            return "trust is given with the command below · d leave it"
        case "landing":
            return "S fix it in a shell · y try again · d leave it"
        case "trouble" | "login":
            return "y try again · d leave it"
        case _:
            return "y yes · d no"


def as_json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False)
