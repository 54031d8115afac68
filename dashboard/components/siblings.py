"""The runs that differ from the one in hand in one setting, or in the seed alone, with what became of them."""

from collections.abc import Mapping, Sequence
from math import inf

import pandas as pd
import streamlit as st

from ratioscope.analysis.compare.siblings import SEED, Sibling, siblings
from ratioscope.analysis.overview.lights import LEARNING, NAMES, LightState
from ratioscope.analysis.runs.store import Listed
from ratioscope.dashboard import state
from ratioscope.dashboard.components.fold import fold
from ratioscope.dashboard.components.tile import ACROSS, sparkline
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.session import session
from ratioscope.dashboard.watching.headlines import Headline
from ratioscope.dashboard.watching.reader import server_reader

_MOST = 12
_GRACE, _PAUSE = 0.15, 2.0
"""Seconds that the page waits for their results, and until it looks again."""


def sibling_results(run_id: str) -> None:
    """Those that differ in a setting, the best first: a tile each with its level; nothing where there is none."""
    runs = state.runs()
    changed = [sibling for sibling in _of(run_id, runs) if sibling.what != SEED]
    if not changed:
        return
    asked = [runs[name] for name in (run_id, *(sibling.run_id for sibling in changed))]
    server_reader().ask(asked)
    server_reader().wait(_GRACE)
    waiting = bool(server_reader().ask(asked))

    def row() -> None:
        left = server_reader().ask(asked)
        known = {run.run_id: headline for run in asked if (headline := server_reader().get(run)) is not None}
        metric = known.get(run_id, Headline()).level_metric
        read = [sibling for sibling in changed if sibling.run_id in known]
        best = sorted(read, key=lambda sibling: _place(known[sibling.run_id], metric))[:ACROSS]
        st.caption(f"**The same run with another setting**{_told(len(read), len(changed))}")
        with st.container(key="sibling-tiles"):
            for column, sibling in zip(st.columns(ACROSS), best, strict=False):
                with column:
                    _tile(run_id, sibling, known[sibling.run_id])
        if waiting and not left:
            st.rerun()

    st.fragment(row, run_every=_PAUSE if waiting else None)()


def _place(headline: Headline, metric: str) -> float:
    """Before whom a run comes: the better its level is, in the metric of the run on the page; others are last."""
    if headline.level_end is None or metric not in ("", headline.level_metric):
        return inf
    return -headline.level_end


def _told(read: int, n: int) -> str:
    """Which ones are shown, and what their numbers are: of those that have been read the best."""
    if not read:
        return ": being read."
    shown = f", the {ACROSS} best of {read}" if read > ACROSS else ""
    return f"{shown}{' that are read so far' if read < n else ''}: first → last, of a fallen one best → last."


def _tile(run_id: str, sibling: Sibling, headline: Headline) -> None:
    with st.container(border=True, height="stretch", gap=None):
        st.caption(escape(sibling.words))
        st.markdown(" · ".join(filter(None, (f"**{escape(headline.change or 'no trend')}**", _learning(headline)))))
        if headline.level:
            level = pd.Series(headline.level)
            st.image(sparkline(level, 0.0 if level.min() >= 0 else -inf, inf), width="stretch", alt="")
        _links(run_id, sibling)


def _learning(headline: Headline) -> str:
    """The word of its first light."""
    if not headline.lights:
        return ""
    return LightState[headline.lights[NAMES.index(LEARNING)][0]].word


def _links(run_id: str, sibling: Sibling) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        pages = session().pages
        opened, both = {"run": sibling.run_id}, {"run": [run_id, sibling.run_id]}
        st.page_link(pages["overview"], label="Open", query_params=opened, help=escape(sibling.run_id))
        st.page_link(pages["compare"], label="Compare", icon=":material/stacked_line_chart:", query_params=both)


def sibling_runs(run_id: str, page: str = "overview", *, all_shown: bool = False) -> None:
    """All of them in a line each, to open on this page or to compare; nothing where there is none.

    Args:
        all_shown: whether `sibling_results` stands on the page: nothing, too, where it has all of them.
    """
    found = _of(run_id, state.runs())
    if not found or (all_shown and len(found) <= ACROSS and all(sibling.what != SEED for sibling in found)):
        return
    with fold("siblings", "Runs that differ in one setting", _words(found)) as door:
        if not door.open:
            return
        for number, sibling in enumerate(found[:_MOST]):
            with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"sibling-{number}"):
                headline = server_reader().of(state.runs()[sibling.run_id].folder)
                result = f": {escape(headline.change)}" if headline and headline.change else ""
                st.markdown(f"{escape(sibling.words)}{result}", width="stretch")
                pages = session().pages
                st.page_link(pages[page], label=escape(sibling.run_id), query_params={"run": sibling.run_id})
                both = {"run": [run_id, sibling.run_id]}
                st.page_link(pages["compare"], label="Compare", icon=":material/stacked_line_chart:", query_params=both)
        if len(found) > _MOST:
            st.caption(f"{len(found) - _MOST} more differ in one setting.")


def _of(run_id: str, runs: Mapping[str, Listed]) -> tuple[Sibling, ...]:
    manifests = {name: run.manifest for name, run in runs.items() if run.manifest}
    return siblings(run_id, manifests) if run_id in manifests else ()


def _words(found: Sequence[Sibling]) -> str:
    seeds = sum(sibling.what == SEED for sibling in found)
    others = len(found) - seeds
    parts = [f"{others} in a setting"] * bool(others) + [f"{seeds} in the seed"] * bool(seeds)
    return ", ".join(parts)
