"""TOML of any author is read or refused, at once."""

import time
import tomllib
from pathlib import Path

import pytest
from ramet import toml
from rametd.config.files import Source, check, items
from rametd.plans.reading import read

HOSTILE = {
    "a key of many parts": ".".join(["a"] * 50_000) + " = 1",
    "a table of many parts": "[" + " . ".join(['"a"', "'b'"] * 25_000) + "]",
    "lists in lists": "a = " + "[" * 100_000,
    "tables in tables": "a = " + "{b = " * 50_000,
    "a number of many digits": "a = " + "1" * 50_000,
    "one long word": "a" * 500_000,
    "quotes without end": "\"'" * 250_000,
    "blanks before a dot": "a" + " " * 500_000 + ".b",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_toml_is_refused_at_once(name: str) -> None:
    before = time.process_time()
    with pytest.raises(tomllib.TOMLDecodeError):
        toml.loads(HOSTILE[name])
    assert [problem.code for problem in read(HOSTILE[name]).problems] == ["not-toml"]
    source = Source(".ramet.toml", HOSTILE[name])
    assert items(source) == {}
    assert len(check(source, home=Path("/"))) == 1
    assert time.process_time() - before < 3  # seconds of this process; a key of 50,000 parts took 35


def test_keys_and_texts_of_a_person_are_read() -> None:
    text = 'goal = """One. Two. a.b.c.d.\n"""\n' + ".".join(["a"] * 60) + " = 1\n"
    assert toml.loads(text) == tomllib.loads(text)
