"""Permission rules: a strict parser of Claude's syntax, and their evaluation on tool calls."""

from rametd.rules.evaluation import evaluate, realpath
from rametd.rules.model import Call, Effect, Rule, Verdict
from rametd.rules.parsing import ParsedRule, parse
from rametd.rules.suggestion import caution, completed, is_whole_line, offers, suggest

__all__ = [
    "Call",
    "Effect",
    "ParsedRule",
    "Rule",
    "Verdict",
    "caution",
    "completed",
    "evaluate",
    "is_whole_line",
    "offers",
    "parse",
    "realpath",
    "suggest",
]
