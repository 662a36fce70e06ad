"""The documentation says all there is: verbs, calls, settings, reasons."""

import inspect
import re
from pathlib import Path

import pytest
from rametctl.cli import VERBS
from rametd.config import SETTINGS, Setting
from rametd.config.kinds import toml
from rametd.domain import errors
from rametd.serving import CONTRACT

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs" / "reference.md").read_text()
README = (ROOT / "README.md").read_text()
REASONS = {
    each.reason for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, errors.RametError)
}


def table_under(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading."""
    section = REFERENCE.split(f"{heading}\n", 1)[1]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in table[0].splitlines()[2:]]


def test_every_verb_is_documented_and_nothing_else() -> None:
    assert {row[0].strip("`") for row in table_under("## Verbs of `rametctl`")} == set(VERBS)


def test_every_call_is_documented_and_nothing_else() -> None:
    documented = {(row[0].strip("`"), row[1].strip("`")) for row in table_under("## The contract")}
    served = {(service.name, method.name) for service in CONTRACT for method in service.methods}
    assert documented == served


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_every_setting_is_documented_as_it_is(setting: Setting) -> None:
    rows = {row[0].strip("`"): row for row in table_under("## Settings")}
    assert set(rows) == {each.key for each in SETTINGS}
    row = rows[setting.key]
    assert row[2] == f"`{toml(setting.default)}`"
    assert bool(row[3]) == setting.repository
    assert row[4].startswith(setting.meaning)


def test_every_reason_is_documented_and_nothing_else() -> None:
    assert {row[0].strip("`") for row in table_under("## Errors")} == REASONS


def test_every_make_target_in_the_readme_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)", README)) - {"the"} <= targets


def test_every_link_in_the_readme_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
