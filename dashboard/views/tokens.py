"""Tokens: which tokens did it?"""

from dashboard.components.frame import run_page


def render() -> None:
    """The page."""
    opened = run_page("Tokens", "Which tokens did it?")
    if opened is None:
        return
