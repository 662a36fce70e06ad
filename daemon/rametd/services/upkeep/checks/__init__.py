"""The doctor's checks, a module for each kind of thing; each check yields findings."""
