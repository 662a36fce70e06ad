"""Plans: apply, show, converge, clean up."""
