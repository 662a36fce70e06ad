"""SECURITY.md names only tests that exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_promise_names_a_test_that_is_there() -> None:
    named = NAMED.findall((ROOT / "SECURITY.md").read_text())
    assert len(named) > 10
    for file, test in named:
        tree = ast.parse((ROOT / file).read_text())
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert test in functions, f"{file}::{test}"


def test_every_row_of_the_promises_names_one() -> None:
    rows = (ROOT / "SECURITY.md").read_text().partition("| promise | test |\n|---|---|\n")[2].partition("\n\n")[0]
    assert rows
    assert all(NAMED.search(row) for row in rows.splitlines())
