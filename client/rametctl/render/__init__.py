"""What is shown to people, as lines; nothing here prints."""
