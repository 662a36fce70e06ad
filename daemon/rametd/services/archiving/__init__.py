"""Archive, remove and restore sessions; the trash."""
