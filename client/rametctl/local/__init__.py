"""Files of this machine that the client handles without the daemon: its service unit, its log, its
settings."""
