"""Notifications for a person who looks at no screen of Ramet."""
