"""Sessions that go and come back: archive, removal, trash, restoring."""
