"""What differs in the chosen steps from the rest of the run: one line until it is opened, and a link to it."""

import streamlit as st

from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.runs.window import Window
from ratioscope.analysis.tokens.explain import Said, explain, sentences
from ratioscope.dashboard import state
from ratioscope.dashboard.components.fold import fold
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.session import session
from ratioscope.errors import RatioscopeError
from ratioscope.inert import safe


def explained(opened: Opened, window: Window) -> None:
    """What differs in these steps; each sentence has a link to the responses that show it.

    On one page alone: Streamlit takes what another page has under this key for the state of the fold, whatever the
    link says that leads here.
    """
    values = opened.summary.values
    if len(values) == len(values.loc[window.first : window.last]) and "explain" not in st.query_params:
        return
    with fold("explain", "Explain these steps", f"{window.words} against the rest of the run") as door:
        if not door.open:
            return
        try:
            with st.spinner("Comparing with the rest of the run"):
                said = _explained(window, opened)
        except RatioscopeError as error:
            st.text(safe(error))
            return
        for number, line in enumerate(said):
            with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"explained-{number}"):
                st.markdown(escape(line.text), width="stretch")
                st.page_link(
                    session().pages["tokens"],
                    label="Responses",
                    icon=":material/match_word:",
                    query_params=_query(opened.run_id, line),
                )
        st.caption("What differs is shown, not why. SD: robust standard deviations of the other steps.")


def explain_link(opened: Opened) -> None:
    """A link to what differs in the brushed steps; nothing without any."""
    first, last = state.step_range()
    if first is None or "tokens" not in session().pages:
        return
    query = {"run": opened.run_id, "from": str(first), "to": str(last), "explain": "true"}
    st.page_link(session().pages["tokens"], label="Explain", icon=":material/help:", query_params=query)


@st.cache_data(max_entries=32, show_spinner=False)
def _explained(window: Window, _opened: Opened) -> list[Said]:
    return sentences(explain(_opened.run, _opened.summary, *window.steps))


def _query(run_id: str, line: Said) -> dict[str, str]:
    steps = (
        {"step": str(line.first), "where": "this step"}
        if line.first == line.last
        else {"from": str(line.first), "to": str(line.last)}
    )
    return {"run": run_id, "show": line.metric} | steps
