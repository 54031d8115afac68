"""From one page to another by code.

`st.switch_page` alone may end on an empty page: a timer of the page that is left (`run_every`) ticks in the browser
until the browser hears of the next page, and Streamlit answers a tick that comes too late by clearing the screen. So
the page is taken down first, timers and all, and the switch waits for the browser to say that this is done.
"""

from collections.abc import Mapping

import streamlit as st

from ratioscope.dashboard.session import Leaving, session

_seen = st.components.v2.component(
    "ratioscope.leave", js="export default ({ setTriggerValue }) => setTriggerValue('seen', true)"
)


def leave_for(page: str, query: Mapping[str, str | list[str]]) -> None:
    """Go to a page, by its name in `app.PAGES`, with these parameters in its URL; does not return."""
    session().leaving = Leaving(page, query)
    st.rerun()


def leaving(shown: st.Page) -> bool:
    """Whether another page has been asked for: then draws the way there in place of the page `shown`."""
    here = session()
    going = here.leaving
    if going is None:
        return False
    if going.origin not in (None, shown.url_path):  # somebody was faster, by the menu
        here.leaving = None
        return False
    going.origin = shown.url_path
    page = here.pages[going.page]
    if _seen(key="leave", on_seen_change=lambda: None).seen:
        here.leaving = None
        st.switch_page(page, query_params=going.query)
    st.page_link(page, label=f"Opening {page.title}", query_params=going.query)
    return True
