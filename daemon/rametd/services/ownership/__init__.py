"""Who owns which paths, how they change hands, and the guard and the audit that hold it."""
