"""The script that Streamlit runs for every view: navigation and frame, nothing else."""

from pathlib import Path

import streamlit as st

from dashboard.views import clipping, compare, drift, overview, ratios, runs

_PAGES = {
    "runs": (runs.render, ":material/list:"),
    "overview": (overview.render, ":material/monitor_heart:"),
    "drift": (drift.render, ":material/conversion_path:"),
    "ratios": (ratios.render, ":material/bar_chart:"),
    "clipping": (clipping.render, ":material/content_cut:"),
    "compare": (compare.render, ":material/stacked_line_chart:"),
}
_REMEMBERED = ("run", "from", "to")


def main(default: str = "runs") -> None:
    """Route to a page, `default` where the URL names none; runs and step range go along from page to page."""
    st.set_page_config(page_title="ratioscope", page_icon=str(Path(__file__).with_name("icon.png")), layout="wide")
    pages = {
        name: st.Page(render, title=name.capitalize(), icon=icon, url_path=name, default=name == default)
        for name, (render, icon) in _PAGES.items()
    }
    st.session_state["pages"] = pages
    st.logo(str(Path(__file__).with_name("icon.png")), size="large")
    page = st.navigation(
        {"": [pages["runs"]], "One run": [pages[name] for name in ("overview", "drift", "ratios", "clipping")],
         "Several runs": [pages["compare"]]}
    )  # fmt: skip
    _carry_over()
    page.run()


def _carry_over() -> None:
    """A click on the menu empties the URL; the chosen runs and steps belong to the view, so they are put back.

    They are kept before the page is drawn, because a click may come while it is.
    """
    for key, values in st.session_state.get("view", {}).items():
        if values and key not in st.query_params:
            st.query_params[key] = values
    st.session_state["view"] = {key: st.query_params.get_all(key) for key in _REMEMBERED}


if __name__ == "__main__":  # Streamlit runs the script under this name
    main()
