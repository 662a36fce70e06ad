"""The reference explains exactly the codes of doctor's findings."""

import ast
import re
from pathlib import Path

from rametd.domain.operations import KINDS
from rametd.services.upkeep import checks, doctor

REFERENCE = Path(__file__).parents[2] / "docs" / "reference.md"
CODE = re.compile(r"[a-z]+(-[a-z]+)+")
COMMANDS = {"update-ref", "for-each-ref", "no-worktree"}


def given() -> set[str]:
    """Return text constants of the checks that look like a code, and the codes of unfinished
    operations."""
    modules = [Path(str(doctor.__file__)), *Path(str(checks.__file__)).parent.glob("*.py")]
    constants = (
        node.value
        for module in modules
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    unfinished = {traits.code for traits in KINDS.values() if traits.code}
    return {text for text in constants if CODE.fullmatch(text)} - COMMANDS | unfinished


def test_each_code_of_a_finding_is_in_the_reference() -> None:
    table = REFERENCE.read_text().partition("### Findings of doctor")[2].partition("\n### ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`([a-z-]+)`", "".join(rows))) == given()
