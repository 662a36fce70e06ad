"""Operations: durable changes to a session, each completed or undone whatever kills the daemon."""
