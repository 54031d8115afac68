"""SQL: anything else?"""

from dashboard.components.frame import run_page


def render() -> None:
    """The page."""
    opened = run_page("SQL", "Anything else?")
    if opened is None:
        return
