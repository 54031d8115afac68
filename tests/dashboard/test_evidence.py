"""Every finding has a page that shows its evidence."""

from ratioscope.analysis.diagnosis import RULES
from ratioscope.dashboard.app import PAGES
from ratioscope.dashboard.evidence import PAGE_OF


def test_every_rule_has_a_page_of_the_dashboard() -> None:
    assert set(PAGE_OF) == set(RULES)
    assert set(PAGE_OF.values()) <= set(PAGES)
