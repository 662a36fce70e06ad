"""Running agents: their processes, what they say, what they are owed."""
