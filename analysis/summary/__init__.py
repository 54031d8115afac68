"""Every metric of every step, with interval and note."""
