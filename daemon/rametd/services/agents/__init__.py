"""Running agents: their processes, their output, and the lines that the daemon sends them."""
