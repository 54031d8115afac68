"""Every finding has a page that shows its evidence."""

from ratioscope.analysis.diagnosis import RULES
from ratioscope.analysis.linter import CHECKS
from ratioscope.dashboard.sections import MENU as PAGES


def test_every_rule_has_a_page_of_the_dashboard() -> None:
    assert {rule.page for rule in RULES.values()} <= set(PAGES)


def test_every_page_that_a_check_names_is_there() -> None:
    pages = {check.page for check in CHECKS.values()}
    assert "" in pages and pages <= {"", *PAGES}  # a fault of keys or files shows on no other page
