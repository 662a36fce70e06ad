"""What will not merge, told early."""
