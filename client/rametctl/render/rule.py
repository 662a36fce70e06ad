"""Permission rules, formatted for people."""

from collections.abc import Mapping, Sequence

from ramet.jsonify import enum_name
from ramet.v1.attention_pb2 import PermissionRule

from rametctl.console.lines import Line, Span
from rametctl.console.output import Output
from rametctl.render.format import age

HEADERS = ["ID", "EFFECT", "RULE", "HOLDS IN", "FROM", "MATCHES", "LAST"]
SHRINK = (("HOLDS IN", 8), ("RULE", 20), ("FROM", 6), ("RULE", 8))
_STYLES = {"allow": "green", "ask": "yellow", "deny": "red"}


def effect_name(rule: "PermissionRule") -> str:
    return enum_name(rule, "effect") or "unknown"


def rule_text(rule: "PermissionRule", session: str = "") -> str:
    """Describe a rule in one line; ``session`` is the name of the session that it applies to."""
    return f"{effect_name(rule)} {rule.rule} in {_where(rule, session)}"


def _where(rule: "PermissionRule", session: str) -> str:
    where = f"session {session or rule.session_id}" if rule.session_id else rule.repo
    return where + (f", {rule.agent} only" if rule.agent else "")


def rule_table(output: Output, rules: Sequence["PermissionRule"], names: Mapping[str, str], now: float) -> list[Line]:
    """Return one row per rule; ``names`` maps session ids to names, ``now`` is in seconds since the
    epoch."""
    rows: list[list[Span]] = []
    for rule in rules:
        effect = effect_name(rule)
        rows.append(
            [
                (rule.id, "cyan"),
                (effect, _STYLES.get(effect, "")),
                (" ".join(rule.rule.split()), "bold"),
                (_where(rule, names.get(rule.session_id, "")), ""),
                (rule.source, "dim"),
                (str(rule.matches), ""),
                (age(rule.match_time, now), "dim"),
            ]
        )
    return output.table(HEADERS, rows, shrink=SHRINK, right=frozenset({"MATCHES", "LAST"}))
