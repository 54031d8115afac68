"""Pages as they are declared: what names something by a word finds it."""

from collections.abc import Iterable, Iterator
from importlib import import_module

import pytest

from ratioscope.analysis.findings.logged import QUESTIONS
from ratioscope.catalogue import CATALOGUE, THRESHOLDS
from ratioscope.dashboard.sections import MENU, PAGES, SECTIONS
from ratioscope.dashboard.sections.page import Part


def parts_of(parts: Iterable[Part]) -> Iterator[Part]:
    for part in parts:
        yield part
        yield from parts_of(part.then)


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_names_is_there(name: str) -> None:
    page, parts = PAGES[name], [*parts_of(PAGES[name].parts)]
    assert set(page.asks) | set(page.also) <= set(QUESTIONS)
    assert {*page.tiles, *page.reported, *(key for part in parts for key in part.metrics)} <= set(CATALOGUE)
    assert set(page.limits) <= set(THRESHOLDS)
    assert len([*page.in_address]) == len({*page.in_address})
    assert name in MENU or name in SECTIONS
    if page.own:
        assert callable(import_module(f"ratioscope.dashboard.views.{name}").render) and not page.parts
    elif page.icon:
        assert page.answer is not None and page.prose
    for part in parts:
        if isinstance(part.shows, str):
            assert callable(getattr(import_module(f"ratioscope.dashboard.views.{name}"), part.shows)), part
            assert not part.choices


def test_no_two_pages_have_one_place_or_one_question() -> None:
    assert len({page.place for page in PAGES.values()}) == len(PAGES)
    assert len({page.question for page in PAGES.values()}) == len(PAGES)
