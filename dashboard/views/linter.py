"""Linter: can this log be trusted?"""

from dashboard.components.frame import run_page


def render() -> None:
    """The page."""
    opened = run_page("Linter", "Can this log be trusted?")
    if opened is None:
        return
