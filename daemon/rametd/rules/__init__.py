"""Permission rules: Claude's syntax, read strictly, and what a list of them says of a tool call."""

from rametd.rules.evaluation import evaluate, realpath
from rametd.rules.model import Call, Effect, Rule, Verdict
from rametd.rules.parsing import ParsedRule, parse
from rametd.rules.suggestion import caution, suggest

__all__ = ["Call", "Effect", "ParsedRule", "Rule", "Verdict", "caution", "evaluate", "parse", "realpath", "suggest"]
