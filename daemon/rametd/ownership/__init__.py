"""Ownership of paths by sets of gitignore patterns, and overlap of two sets. Pure functions on
texts."""

from rametd.ownership.automaton import contains, overlap, overlap_files
from rametd.ownership.patterns import Patterns, aliases, check_size, names_of

__all__ = ["Patterns", "aliases", "check_size", "contains", "names_of", "overlap", "overlap_files"]
