"""Changes of one setting in a file that a person wrote."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rametctl.errors import UsageError
from rametctl.local.settings import toml_value, with_setting
from rametctl.render.format import shown_value

FILE = """# mine
max_working = 4  # slots

[agents]
sleep_after = "5m"

[agents.claude]
path = "/bin/claude"
"""


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("max_working", "8", "max_working = 8"),
        ("agents.sleep_after", '"1h"', 'sleep_after = "1h"'),
        ("agents.claude.model", '"opus"', 'model = "opus"'),
        ("agents.claude.path", '"/x"', 'path = "/x"'),
        ("agents.max_resumes", "2", "max_resumes = 2"),
        ("land.protected", "[]", "land.protected = []"),
    ],
)
def test_a_setting_is_written_where_it_belongs(key: str, value: str, line: str) -> None:
    changed = with_setting(FILE, key, value)
    assert line in changed.splitlines()
    unchanged = set(FILE.splitlines()) - set(changed.splitlines())
    assert len(unchanged) <= 1, "all other lines stay"
    assert "# mine" in changed


@pytest.mark.parametrize("text", ["agents = {}\n", "land.protected = [\n 'a',\n]\n", "[land\n"])
def test_what_only_an_editor_can_change_is_refused_with_the_editor(text: str) -> None:
    key = "land.protected" if "land" in text else "agents.claude.model"
    with pytest.raises(UsageError) as caught:
        with_setting(text, key, "[]")
    assert "config edit" in caught.value.hint


@given(
    st.lists(st.sampled_from(["max_working", "land.method", "agents.claude.model", "agents.sleep_after"]), max_size=6),
    st.sampled_from([FILE, "", "[land]\n", "agents.claude.model = 'x'\n"]),
)
def test_settings_written_one_after_another_are_all_there(keys: list[str], text: str) -> None:
    for number, key in enumerate(keys):
        text = with_setting(text, key, str(number))
    found: Any = tomllib.loads(text)
    for key in keys:
        value: Any = found
        for part in key.split("."):
            value = value[part]
        assert value == len(keys) - 1 - keys[::-1].index(key)


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("8", "8"),
        ("true", "true"),
        ("opus", '"opus"'),
        ('["a"]', '["a"]'),
        ("10m", '"10m"'),
        ('"x"', '"x"'),
        ("", '""'),
    ],
)
def test_a_value_is_toml_or_text(typed: str, value: str) -> None:
    assert toml_value(typed) == value


@pytest.mark.parametrize(
    ("text", "unit", "shown"),
    [
        ("600.0", "seconds", "10m"),
        ("90.0", "seconds", "90s"),
        ("2147483648", "bytes", "2.0 GiB"),
        ("5", "ports", "5 ports"),
        ("1", "ports", "1 port"),
        ("null", "seconds", "null"),
        ('"merge"', "", '"merge"'),
    ],
)
def test_a_setting_is_shown_with_its_unit(text: str, unit: str, shown: str) -> None:
    assert shown_value(text, unit) == shown
