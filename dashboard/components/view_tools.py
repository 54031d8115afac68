"""What can be done with the view on the screen: copy its link, save it under a name, go to a saved one."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import streamlit as st

from ratioscope.dashboard.components.leave import leave_for
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.parameters import parameters
from ratioscope.dashboard.saved_views import LONGEST_NAME, SavedView, delete_view, save_view, saved_views
from ratioscope.dashboard.session import Session, session
from ratioscope.errors import RatioscopeError
from ratioscope.inert import one_line, safe

_MOST_LINKS = 8
_WIDTH = 320  # pixels
_FOLDER = Path(__file__).parent
_copy = st.components.v2.component(
    "ratioscope.copy_link",
    html='<button type="button"><span aria-hidden="true">link</span><b></b></button><p role="status"></p>',
    css=(_FOLDER / "copy_link.css").read_text(encoding="utf-8"),
    js=(_FOLDER / "copy_link.js").read_text(encoding="utf-8"),
)


def view_tools(run: str = "") -> None:
    """A button that copies the address of what is on the screen, and the saved views.

    Args:
        run: that on the screen, for an address that names none: the newest is another one tomorrow.
    """
    _copy(key="copy-link", data={"words": "Copy link", "run": run, "view": ""}, width="content")
    with st.popover("Views", icon=":material/bookmark:", type="tertiary", key="views", on_change="rerun") as popover:
        if popover.open:
            _manage(run)


def saved_view_links() -> None:
    """The saved views in a line; where there is none, nothing."""
    known = openable_views()
    if not known:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="saved-views"):
        st.caption("Saved views", width="content")
        for view in known[:_MOST_LINKS]:
            _open(view)
        if len(known) > _MOST_LINKS:
            st.caption(f"and {len(known) - _MOST_LINKS} more: Ctrl-K", width="content")


def open_named_view() -> None:
    """Go to the saved view that the address names, or say that there is none."""
    name = st.query_params.get("view")
    if name is None or session().leaving is not None:
        return
    view = next((view for view in openable_views() if view.name == name), None)
    if view is not None:
        leave_for(view.page, dict(view.query))
    st.text(one_line(f"No saved view is called “{name[:LONGEST_NAME]}”."))


def openable_views() -> list[SavedView]:
    """The saved views of pages that are there, with what some page knows of their addresses."""
    return [
        replace(view, query={key: values for key, values in view.query.items() if key in parameters()})
        for view in saved_views().values()
        if view.page in session().pages
    ]


def _manage(run: str) -> None:
    with st.form("save-view", border=False, clear_on_submit=True, width=_WIDTH):
        st.text_input("Save this view as", key="view-name", placeholder="name")
        st.form_submit_button("Save", icon=":material/save:", on_click=_save, args=(run,))
    said, former = session().view_said, session().former_view
    if said:
        st.text(safe(said))
    if former is not None:
        st.button("Undo", key="undo-view", icon=":material/undo:", type="tertiary", on_click=_restore, args=(former,))
    known = openable_views()
    if not known:
        st.caption("Everybody who opens this dashboard finds them here, on Runs and by Ctrl-K.", width=_WIDTH)
    with st.container(height=320 if len(known) > 6 else "content", border=False, width=_WIDTH):
        for place, view in enumerate(known):
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                _open(view, width="stretch")
                _copy(key=f"copy-view-{place}", data={"words": "", "run": "", "view": view.name}, width="content")
                st.button(
                    "", key=f"delete-view-{place}", icon=":material/delete:", type="tertiary", on_click=_delete,
                    args=(view,), help="Delete this view",
                )  # fmt: skip


def _open(view: SavedView, width: str = "content") -> None:
    page = session().pages[view.page]
    st.page_link(
        page, label=escape(view.name), icon=page.icon, width=width, query_params=dict(view.query)  # type: ignore[arg-type]
    )  # fmt: skip


def _save(run: str) -> None:
    query = {key: st.query_params.get_all(key) for key in st.query_params if key in parameters()}
    if run:
        query.setdefault("run", [run])
    view = SavedView(st.session_state["view-name"], session().page, query)
    with _saying() as here:
        here.former_view = save_view(view)
        here.view_said = f"Saved in place of the old “{here.former_view.name}”." if here.former_view else "Saved."


def _delete(view: SavedView) -> None:
    with _saying() as here:
        delete_view(view)
        here.former_view, here.view_said = view, f"Deleted “{view.name}”."


def _restore(view: SavedView) -> None:
    with _saying() as here:
        save_view(view)
        here.view_said = f"“{view.name}” is back."


@contextmanager
def _saying() -> Iterator[Session]:
    """Something is done with a view; what came of it is said in the popover."""
    here = session()
    here.former_view = None
    try:
        yield here
    except RatioscopeError as error:
        here.view_said = str(error)
