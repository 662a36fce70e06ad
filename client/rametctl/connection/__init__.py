"""The connection to the daemon: find or start it, check whom the socket belongs to, call it, and
follow its streams."""
