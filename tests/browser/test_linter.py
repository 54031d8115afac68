"""The Linter page: from a remark to the response in which it can be seen."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import OpenPage
from tests.browser.test_following import settled

pytestmark = pytest.mark.browser


def test_a_remark_leads_to_the_response_that_shows_it(open_page: OpenPage) -> None:
    page = open_page("/linter?run=grpo")
    settled(page, "Linter")
    expect(page.get_by_text("Steps 0 to 39 were checked.")).to_be_visible()
    page.locator("[data-testid=stPageLink]").filter(has_text=re.compile(r"Response \d+ of step \d+")).first.click()
    settled(page, "Tokens")
    expect(page).to_have_url(re.compile(r"run=grpo.*step=\d+.*seq=\d+"))
