"""Create and fork sessions; the pool of spares that makes it fast."""
