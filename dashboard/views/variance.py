"""Bias and variance: which failure mode is it?"""

from dashboard.components.frame import run_page


def render() -> None:
    """The page."""
    opened = run_page("Bias and variance", "Which failure mode is it?")
    if opened is None:
        return
