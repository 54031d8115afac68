"""Metrics by age, and what filters of age would drop: on the Staleness page."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import streamlit as st

from ratioscope.analysis import what_if
from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.findings.facts import STALENESS
from ratioscope.analysis.runs.window import Window
from ratioscope.analysis.staleness import filters as age_filters
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard import state
from ratioscope.dashboard.components.blocks import draw
from ratioscope.dashboard.components.chart import plain_chart
from ratioscope.dashboard.components.tile import tooltip
from ratioscope.dashboard.figures import staleness as figures
from ratioscope.dashboard.formats import count, plain_number
from ratioscope.dashboard.sections import staleness
from ratioscope.dashboard.sections.model import Paragraph
from ratioscope.dashboard.sections.subject import Subject
from ratioscope.errors import RatioscopeError
from ratioscope.run_format.manifest import as_finite

METRICS = (
    *("s_k_bounded", "s_k_version_bounded", "s_k_engine_bounded", "clip_fraction", "ess_token", "khat_token"),
    *("chi2_token", "ratio_mean", "u_k", "entropy", "s_k", "s_k_version", "s_k_engine"),
)
# With more tokens filters look at a sample of them: so many are swept in less than a second.
SAMPLED_TOKENS = 500_000
_FURTHEST = 2**53 - 1  # where a slider can stand; of a wrong version a token may be older


def byage(subject: Subject) -> None:
    """A metric of choice by age."""
    metrics = subject.known(METRICS)
    choice, about = st.columns([3, 2], gap="medium", vertical_alignment="bottom")
    metric = choice.selectbox(
        "Metric by age",
        metrics,
        format_func=lambda key: CATALOGUE[key].title,
        key="bylag",
        bind="query-params",
    )
    with about.popover("About this metric", icon=":material/help:"):
        st.markdown(tooltip(metric))
    bars, table = staleness.by_lag(subject, metric)
    left, right = st.columns([3, 2], gap="medium")
    if metric != STALENESS or isinstance(bars, Paragraph):  # that one is the page's chart
        with left:
            draw(bars)
    with right if metric != STALENESS else left:
        draw(table)


@st.cache_resource(max_entries=4, show_spinner=False)
def _tokens(window: Window, most: int | None) -> what_if.Tokens | None:
    """None: these steps hold no usable token."""
    try:
        return what_if.load_tokens(window.run(), *window.steps, most)
    except RatioscopeError:
        return None


@st.cache_data(max_entries=32, show_spinner=False)
def _curve(window: Window, most: int | None, parameter: str, values: tuple[float, ...]) -> pd.DataFrame:
    tokens = _tokens(window, most)
    assert tokens is not None
    return age_filters.curve(tokens, parameter, values)


@st.cache_data(max_entries=256, show_spinner=False)
def _effect(window: Window, most: int | None, parameter: str, value: float) -> age_filters.FilterEffect:
    tokens = _tokens(window, most)
    assert tokens is not None
    return age_filters.effect(tokens, parameter, value)


def whatif(subject: Subject) -> None:
    """Filters by ratio and by age, on the latest steps."""
    _what_if(state.lent(subject.opened), subject.window(staleness.TOKENS))


@st.fragment
def _what_if(lent: Callable[[], Opened], window: Window) -> None:
    opened = lent()
    sizes = opened.summary.values["n_tokens"].loc[window.first : window.last]
    everything = sizes.sum() <= SAMPLED_TOKENS or st.toggle(
        "All tokens",
        key="allaged",
        bind="query-params",
        help=f"Otherwise a random sample of whole prompt groups with at most {count(SAMPLED_TOKENS)} tokens is used.",
    )
    at = (window, None if everything else SAMPLED_TOKENS)
    with st.skeleton(height=320):
        tokens = _tokens(*at)
    if tokens is None:
        st.info(f"No usable token in {window.words}: there is nothing to filter.", icon=":material/info:")
        return
    sampled = "" if tokens.fraction == 1 else f"a random sample, {tokens.fraction:.0%} of the tokens of "
    st.caption(
        f"On {sampled}{window.words}: {count(len(tokens))} tokens. "
        "Shares and plain staleness are of those with an advantage."
    )
    lags = age_filters.lag_values(tokens)
    oldest = min(int(lags[-1]), _FURTHEST) if lags else 0
    left, right = st.columns(2, gap="large")
    with left:
        stale = st.slider(
            "Largest |ρ - 1| to keep, ε_stale",
            *(0.02, 2.0, min(max(opened.limits.epsilon_stale, 0.02), 2.0), 0.02),
            key="stalecut",
            bind="query-params",
        )
        _filtered(_effect(*at, "epsilon_stale", stale))
    with right:
        lags_kept = opened.limits.version_window - 1
        if oldest > 0:
            lag = st.slider(
                "Largest lag to keep, W - 1",
                *(0, oldest, int(min(lags_kept, oldest)), 1),
                key="lagcut",
                bind="query-params",
            )
            _filtered(_effect(*at, "max_lag", float(lag)))
        elif lags:
            st.info("All tokens are of the newest version: no window drops any.", icon=":material/info:")
    with st.skeleton(height=480):
        curves = {"epsilon_stale": _curve(*at, "epsilon_stale", age_filters.STALE_VALUES)}
        if oldest > 0:
            curves["max_lag"] = _curve(*at, "max_lag", tuple(lags))
    top = 1.05 * max(float(np.nanmax([*curve["staleness"], *curve["staleness_raw"], 0])) for curve in curves.values())
    with left:
        _curves(curves["epsilon_stale"], "ε_stale", stale, _applied(opened), top)
    if oldest > 0:
        with right:
            _curves(curves["max_lag"], "W - 1", float(lag), None, top)
    st.caption(what_if.SELECTION_CAVEAT + _own_filters(opened))


def _filtered(found: age_filters.FilterEffect) -> None:
    st.markdown(age_filters.filter_sentence(found))
    if not np.isnan(found.numbers.values["kept_tokens"]):
        draw(staleness.filtered(found))


def _curves(curve: pd.DataFrame, name: str, chosen: float, applied: float | None, top: float) -> None:
    for column, title, y_title in (
        ("dropped", "Tokens dropped", "share of signal tokens"),
        ("staleness", "Staleness of kept tokens", "½ mean |ρ - 1|"),
    ):
        ends = curve[column].iloc[[0, -1]]
        plain_chart(
            figures.filter_curve(
                curve,
                column,
                state.mode(),
                x_title=name,
                y_title=y_title,
                chosen=chosen,
                applied=applied,
                top=top if np.isfinite(top) and top > 0 else None,
            ),
            key=f"{column}-{'stale' if name == 'ε_stale' else 'lag'}",
            title=f"{title}, by {name}",
            takeaway=f"{title}: {plain_number(float(ends.iloc[0]))} at {name} {curve.index[0]:g}, "
            f"{plain_number(float(ends.iloc[1]))} at {curve.index[-1]:g}.",
            data=curve,
        )


def _applied(opened: Opened) -> float | None:
    """The ε_stale that the run was trained with."""
    value = as_finite(opened.run.manifest.schedule.get("epsilon_stale"))
    return value if value is not None and 0 < value <= 2 else None


def _own_filters(opened: Opened) -> str:
    """What the run's own filters have already dropped, which is not in the log."""
    columns = {"tokens_dropped_stale": "by its own ε_stale", "tokens_dropped_window": "by its own window"}
    steps = opened.summary.steps
    dropped = {words: float(steps[name].sum()) for name, words in columns.items() if name in steps}
    said = [f"{count(n)} tokens {words}" for words, n in dropped.items() if n > 0]
    return f" The run has already dropped {' and '.join(said)}; these tokens are not in the log." if said else ""
