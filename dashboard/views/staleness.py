"""Staleness: how old is the data, and does age hurt?"""

from dashboard.components.frame import run_page


def render() -> None:
    """The page."""
    opened = run_page("Staleness", "How old is the data, and does age hurt?")
    if opened is None:
        return
