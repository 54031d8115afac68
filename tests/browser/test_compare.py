"""Compare in a real browser: what is chosen goes into the URL, and the URL gives the same page again."""

import re

import pytest
from playwright.sync_api import Page, expect

from dashboard.components.metric_choice import metric_label
from tests.browser.conftest import OpenPage
from tests.browser.test_following import charts, settled

pytestmark = pytest.mark.browser


def _choose(page: Page, box: str, option: str) -> None:
    page.get_by_role("combobox", name=box, exact=True).click()
    page.keyboard.type(option)
    page.get_by_role("option", name=option, exact=True).click()


def test_metric_and_panels_are_in_the_url_and_survive_a_reload(open_page: OpenPage) -> None:
    page = open_page("/compare?run=grpo&run=reinforce")
    settled(page, "Compare")
    expect(page.get_by_text("Evaluation accuracy at the end.")).to_be_visible()
    _choose(page, "Metric", metric_label("u_k"))
    answer = page.get_by_text("Update drift at the end.")
    expect(answer).to_be_visible()
    expect(page).to_have_url(re.compile("metric=Update"))
    _choose(page, "Panels by", "algorithm")
    panels = page.get_by_role("heading", level=6).filter(has_text=re.compile("^(grpo|reinforce)$"))
    expect(panels).to_have_count(2)
    expect(page).to_have_url(re.compile("facet=algorithm"))

    page.reload()
    settled(page, "Compare")
    expect(answer).to_be_visible()
    expect(panels).to_have_count(2)
    expect(charts(page)).to_have_count(3)  # two panels and the difference
