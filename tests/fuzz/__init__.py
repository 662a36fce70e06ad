"""Fuzzers that run for a given time."""
