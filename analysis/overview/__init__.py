"""Is this run healthy: what happened, since when, why, what to change, how sure."""
