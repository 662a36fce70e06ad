"""What the doctor looks at, one kind of thing a module; each yields findings."""
