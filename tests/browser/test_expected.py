"""What people expect of a dashboard: find a text, go to the next wrong answer."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.tokens.search import next_response, reward_halves
from tests.browser.actions import settled
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser


def test_a_text_is_found_and_the_next_answer_opened(open_page: OpenPage, root: Path) -> None:
    run = open_run(root / "grpo")
    halves = reward_halves(run)
    assert halves is not None
    page = open_page("/tokens?run=grpo&step=3&seq=1&where=these+steps")
    settled(page, "Tokens")
    for high in (False, True):
        expected = next_response(run, (3, 1), halves.condition(high=high))
        assert expected is not None
        open_page("/tokens?run=grpo&step=3&seq=1&where=these+steps")
        page.get_by_role("button", name=re.compile(f"Next {halves.names[high]}")).click()
        name = f"Step {expected[0]}, response {expected[1]}"
        expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
    settled(page, "Tokens")
