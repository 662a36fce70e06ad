"""Upkeep: differences between the database and the disk (`doctor`), and removable leftovers
(`gc`)."""
