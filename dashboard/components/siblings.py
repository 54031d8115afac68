"""The runs that differ from the one in hand in one setting, or in the seed alone: one click away."""

import streamlit as st

from ratioscope.analysis.compare.siblings import SEED, Sibling, siblings
from ratioscope.dashboard import state
from ratioscope.dashboard.components.fold import fold
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.session import session

_MOST = 12


def sibling_runs(run_id: str, page: str = "overview") -> None:
    """The runs, each to open on this page or to compare; nothing where there is none."""
    manifests = {name: run.manifest for name, run in state.runs().items() if run.manifest}
    found = siblings(run_id, manifests) if run_id in manifests else ()
    if not found:
        return
    with fold("siblings", "Runs that differ in one setting", _words(found)) as door:
        if not door.open:
            return
        for number, sibling in enumerate(found[:_MOST]):
            with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"sibling-{number}"):
                st.markdown(f"Differs only in {escape(sibling.words)}", width="stretch")
                pages = session().pages
                st.page_link(pages[page], label=escape(sibling.run_id), query_params={"run": sibling.run_id})
                both = {"run": [run_id, sibling.run_id]}
                st.page_link(pages["compare"], label="Compare", icon=":material/stacked_line_chart:", query_params=both)
        if len(found) > _MOST:
            st.caption(f"{len(found) - _MOST} more differ in one setting.")


def _words(found: tuple[Sibling, ...]) -> str:
    seeds = sum(sibling.what == SEED for sibling in found)
    others = len(found) - seeds
    parts = [f"{others} in a setting"] * bool(others) + [f"{seeds} in the seed"] * bool(seeds)
    return ", ".join(parts)
