"""Is this run healthy: the verdict in five sentences."""
