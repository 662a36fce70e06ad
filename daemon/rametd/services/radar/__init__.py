"""The radar: early warnings of conflicts between sessions."""
