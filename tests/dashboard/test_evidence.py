"""Every finding has a page that shows its evidence."""

from ratioscope.analysis.diagnosis import RULES
from ratioscope.dashboard.sections import MENU as PAGES


def test_every_rule_has_a_page_of_the_dashboard() -> None:
    assert {rule.page for rule in RULES.values()} <= set(PAGES)
