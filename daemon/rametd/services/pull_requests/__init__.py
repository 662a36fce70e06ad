"""Pull requests of sessions, by the person's own `gh`."""
