"""The app: navigation and frame, nothing else. `main` runs for every view."""

import logging
from base64 import b64encode
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st
from streamlit.errors import FragmentHandledException

from ratioscope.dashboard import login, warming
from ratioscope.dashboard.components.connection import connection
from ratioscope.dashboard.components.error_box import error_box
from ratioscope.dashboard.components.leave import leaving
from ratioscope.dashboard.components.menu import menu
from ratioscope.dashboard.demo import demo
from ratioscope.dashboard.parameters import say_what_means_nothing
from ratioscope.dashboard.session import drawn, session
from ratioscope.inert import one_line
from ratioscope.storage.failures import StorageError

if TYPE_CHECKING:
    from ratioscope.dashboard.sections.page import Page

_LOG = logging.getLogger("ratioscope")
_SIDEBAR = 208  # pixels
# In the page itself: a run of the script that is cut short takes its files away while the browser still asks for them.
_ICON = f"data:image/png;base64,{b64encode(Path(__file__).with_name('icon.png').read_bytes()).decode()}"
_STYLE = f"<style>{Path(__file__).with_name('components').joinpath('style.css').read_text('utf-8')}</style>"


def main(default: str = "") -> None:
    """Route to a page, `default` where the URL names none; runs and step range go along from page to page."""
    warming.wait_for_the_menu()
    from ratioscope.dashboard.sections import MENU, START  # not while the thread that warms up imports it, too

    shown = {START.key: START, **MENU} if demo() else MENU
    default = default or next(iter(shown))
    st.set_page_config(page_title="ratioscope", page_icon=_ICON, layout="wide", initial_sidebar_state=_SIDEBAR)
    st.html(_STYLE)
    pages = {
        name: st.Page(_drawing(page), title=page.title, icon=page.icon, url_path=name, default=name == default)
        for name, page in shown.items()
    }
    session().pages = pages
    st.logo(_ICON, size="large")
    chosen = st.navigation(list(pages.values()), position="hidden")
    if not login.admitted():
        return
    groups: dict[str, list[st.Page]] = {}
    for name, page in shown.items():
        groups.setdefault(page.group, []).append(pages[name])
    from ratioscope.dashboard.components.palette import palette, palette_button  # as heavy as all pages
    from ratioscope.dashboard.components.view_tools import open_named_view

    with st.sidebar:
        palette_button()
    menu(groups, chosen)
    session().page = chosen.url_path or default
    palette(shown, session().page)
    connection()
    login.way_out()
    st.set_page_config(page_title=_tab_title(chosen.title))
    open_named_view()
    if not leaving(chosen):
        say_what_means_nothing()
        session().pins = ()
        try:
            chosen.run()
        except FragmentHandledException:
            pass  # it has its box
        except Exception as error:  # noqa: BLE001 - said in a box of ours
            if not isinstance(error, StorageError):
                _LOG.exception("The page %s could not be drawn.", chosen.title)
            error_box(error, "This page")
        drawn()


def _drawing(page: "Page") -> Callable[[], None]:
    """What draws a page; its module is imported when the page is asked for, so that the frame is there before."""

    def draw() -> None:
        if page.key != "start":  # which needs little, and is there before the rest
            warming.wait()
        if page.own:
            import_module(f"ratioscope.dashboard.views.{page.key}").render()
        else:
            import_module("ratioscope.dashboard.components.page").draw_page(page)

    return draw


def _tab_title(page: str) -> str:
    """What a browser's tab is called: tabs of one tool must be told apart."""
    runs = st.query_params.get_all("run")
    of = [one_line(runs[0])] if len(runs) == 1 else [f"{len(runs)} runs"] if runs else []
    return " · ".join((*of, page, "ratioscope"))
