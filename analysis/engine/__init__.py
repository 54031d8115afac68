"""Is the engine mismatch hurting: does it, where does it sit, what is it like, and what to set."""
