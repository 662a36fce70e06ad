"""Notifications: what a person should know while no screen of Ramet is before them."""
