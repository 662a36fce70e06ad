"""Making sessions: where from, what of, and the spares that make it quick."""
