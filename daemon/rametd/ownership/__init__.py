"""Which paths a set of gitignore patterns owns, and whether two sets meet: pure, on texts alone."""

from rametd.ownership.automaton import contains, overlap, overlap_files
from rametd.ownership.patterns import Patterns, aliases

__all__ = ["Patterns", "aliases", "contains", "overlap", "overlap_files"]
