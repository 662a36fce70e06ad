"""A module per noun: calls, waits and reports about it that several verbs share. `render` draws the
same nouns."""
