"""Plans: applied as one, looked at, converged and cleaned up."""
