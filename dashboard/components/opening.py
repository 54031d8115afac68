"""How a page opens: with its answer and what the log cannot say, or with where to go where it says nothing."""

import streamlit as st

from ratioscope.dashboard.components.blocks import say
from ratioscope.dashboard.components.frame import answer
from ratioscope.dashboard.sections.absent import ASKED, is_empty, not_said
from ratioscope.dashboard.sections.subject import Subject
from ratioscope.dashboard.session import session


def opening(subject: Subject, page: str, sentence: str) -> None:
    """The answer, and below it what is not logged; that alone where there is no answer. Plain text."""
    unsaid = not_said(subject, page)
    answer(sentence or unsaid)
    if sentence:
        say(unsaid)


def nothing_here(subject: Subject, page: str, *, besides: bool = False) -> bool:
    """Whether the log has nothing for a page; then it says so, and links to the pages for which it has something.

    Args:
        besides: there is something that is no metric.
    """
    if besides or not is_empty(subject, page):
        return False
    answer(not_said(subject, page))
    pages = session().pages
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption("Pages with something to show:", width="content")
        for name in (*(name for name in ASKED if not is_empty(subject, name)), "linter", "sql"):
            if name in pages:
                query = {"run": subject.opened.run_id}
                st.page_link(pages[name], label=pages[name].title, icon=pages[name].icon, query_params=query)
    return True
