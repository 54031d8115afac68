"""The app in a real browser, started by its real commands."""
