"""Live runs: what the list shows of each, and alerts."""
