"""How a page opens: with its answer and what the log cannot say, or with where to go where it says nothing."""

import streamlit as st

from ratioscope.dashboard.components.blocks import say
from ratioscope.dashboard.components.frame import answer
from ratioscope.dashboard.sections import PAGES
from ratioscope.dashboard.sections.page import Page
from ratioscope.dashboard.sections.subject import Subject
from ratioscope.dashboard.session import session


def opening(page: Page, subject: Subject, sentence: str) -> None:
    """The answer, and below it what is not logged; that alone where there is no answer. Plain text."""
    unsaid = page.not_said(subject)
    answer(sentence or unsaid)
    if sentence:
        say(unsaid)


def nothing_here(page: Page, subject: Subject) -> bool:
    """Whether the log has nothing for a page; then it says so, and links to the pages for which it has something."""
    if not page.is_empty(subject) or (page.besides is not None and page.besides(subject)):
        return False
    answer(page.not_said(subject))
    pages = session().pages
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption("Pages with something to show:", width="content")
        for other in (*(other for other in PAGES.values() if other.asks and not other.is_empty(subject)),
                      PAGES["linter"], PAGES["sql"]):  # fmt: skip
            if other.key in pages:
                query, target = {"run": subject.opened.run_id}, pages[other.key]
                st.page_link(target, label=target.title, icon=target.icon, query_params=query)
    return True
