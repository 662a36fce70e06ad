"""A demonstration without an account: real agents, a scripted model, a place of its own that is gone afterwards."""
