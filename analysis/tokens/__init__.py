"""Which tokens did it."""
