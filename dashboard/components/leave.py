"""From one page to another by code.

`st.switch_page` alone may end on an empty page: a timer of the page that is left (`run_every`) ticks in the browser
until the browser hears of the next page, and Streamlit answers a tick that comes too late by clearing the screen. So
the page is taken down first, timers and all, and the switch waits for the browser to say that this is done.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st

_LEAVING = "leaving"
_seen = st.components.v2.component(
    "ratioscope.leave", js="export default ({ setTriggerValue }) => setTriggerValue('seen', true)"
)


@dataclass
class _Leaving:
    """Where to, with what in the URL, and from which page: None before that has been noticed."""

    page: str
    query: Mapping[str, str | list[str]]
    origin: str | None = None


def leave_for(page: str, query: Mapping[str, str | list[str]]) -> None:
    """Go to a page, by its name in `app.PAGES`, with these parameters in its URL; does not return."""
    st.session_state[_LEAVING] = _Leaving(page, query)
    st.rerun()


def leaving(shown: st.Page) -> bool:
    """Whether another page has been asked for: then draws the way there in place of the page `shown`."""
    going: _Leaving | None = st.session_state.get(_LEAVING)
    if going is None:
        return False
    if going.origin not in (None, shown.url_path):  # somebody was faster, by the menu
        del st.session_state[_LEAVING]
        return False
    going.origin = shown.url_path
    page = st.session_state["pages"][going.page]
    if _seen(key="leave", on_seen_change=lambda: None).seen:
        del st.session_state[_LEAVING]
        st.switch_page(page, query_params=going.query)
    st.page_link(page, label=f"Opening {page.title}", query_params=going.query)
    return True
