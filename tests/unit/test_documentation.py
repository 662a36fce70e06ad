"""The documentation is complete, and its links exist."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rametd.domain import errors

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
LEAVES = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, errors.RametError)]


def table_under(heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading of docs/reference.md."""
    section = (ROOT / "docs" / "reference.md").read_text().split(f"{heading}\n", 1)[1]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in table[0].splitlines()[2:]]


def test_the_reference_that_the_code_knows_is_current() -> None:
    """Check the pages of verbs, calls, settings and errors."""
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("error", LEAVES, ids=lambda each: each.__name__)
def test_every_error_says_when_it_is_raised(error: type[errors.RametError]) -> None:
    assert error.__doc__
    assert not error.__doc__.startswith(f"{error.__name__}(")  # a dataclass generates that


@pytest.mark.parametrize("page", PAGES, ids=lambda each: str(each.relative_to(ROOT)))
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", page.read_text())) <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda each: str(each.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_file_that_a_guide_for_contributors_names_exists(page: str) -> None:
    """Paths are relative to the repository, the daemon's package or its services; VERB, NOUN and
    SERVICE stand for any."""
    bases = [ROOT, ROOT / "daemon/rametd", ROOT / "daemon/rametd/services"]
    named = re.findall(r"`([a-z_]+/[\w./-]+)`", (ROOT / page).read_text())
    files = [path for path in named if not re.search(r"VERB|NOUN|SERVICE", path)]
    assert len(files) > 10
    assert [path for path in files if not any((base / path).exists() for base in bases)] == []
