"""The app: navigation and frame, nothing else. `main` runs for every view."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import streamlit as st

from ratioscope.dashboard.components.frame import drawn
from ratioscope.dashboard.components.leave import leaving
from ratioscope.dashboard.session import session
from ratioscope.dashboard.views import (
    clipping,
    compare,
    drift,
    linter,
    metrics,
    overview,
    ratios,
    report,
    runs,
    sql,
    staleness,
    tokens,
    variance,
)


class _Page(NamedTuple):
    """A page: what draws it, its name in the menu, its icon, and the group of the menu that it stands in."""

    render: Callable[[], None]
    title: str
    icon: str
    group: str = "One run"


PAGES = {
    "runs": _Page(runs.render, "Runs", ":material/list:", group=""),
    "overview": _Page(overview.render, "Overview", ":material/monitor_heart:"),
    "drift": _Page(drift.render, "Drift", ":material/conversion_path:"),
    "ratios": _Page(ratios.render, "Ratios", ":material/bar_chart:"),
    "clipping": _Page(clipping.render, "Clipping", ":material/content_cut:"),
    "variance": _Page(variance.render, "Bias and variance", ":material/balance:"),
    "staleness": _Page(staleness.render, "Staleness", ":material/history:"),
    "tokens": _Page(tokens.render, "Tokens", ":material/match_word:"),
    "metrics": _Page(metrics.render, "Metrics", ":material/dashboard_customize:"),
    "linter": _Page(linter.render, "Linter", ":material/fact_check:"),
    "sql": _Page(sql.render, "SQL", ":material/database:"),
    "compare": _Page(compare.render, "Compare", ":material/stacked_line_chart:", group="One or several runs"),
    "report": _Page(report.render, "Report", ":material/description:", group="One or several runs"),
}
_REMEMBERED = ("run", "from", "to")


def main(default: str = "runs") -> None:
    """Route to a page, `default` where the URL names none; runs and step range go along from page to page."""
    st.set_page_config(page_title="ratioscope", page_icon=str(Path(__file__).with_name("icon.png")), layout="wide")
    pages = {
        name: st.Page(page.render, title=page.title, icon=page.icon, url_path=name, default=name == default)
        for name, page in PAGES.items()
    }
    session().pages = pages
    st.logo(str(Path(__file__).with_name("icon.png")), size="large")
    menu: dict[str, list[st.Page]] = {}
    for name, page in PAGES.items():
        menu.setdefault(page.group, []).append(pages[name])
    chosen = st.navigation(menu)
    _carry_over()
    if not leaving(chosen):
        chosen.run()
        drawn()


def _carry_over() -> None:
    """A click on the menu empties the URL; the chosen runs and steps belong to the view, so they are put back.

    They are kept before the page is drawn, because a click may come while it is.
    """
    for key, values in session().view.items():
        if values and key not in st.query_params:
            st.query_params[key] = values
    session().view = {key: st.query_params.get_all(key) for key in _REMEMBERED}
