"""Staleness: how old is the data, and does age hurt?"""

import numpy as np
import pandas as pd
import streamlit as st

from ratioscope.analysis import what_if
from ratioscope.analysis.findings.staleness_form import staleness_metric
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.staleness import age
from ratioscope.analysis.staleness import filters as age_filters
from ratioscope.analysis.staleness import mixed_responses as segments
from ratioscope.analysis.summary.strata import Strata, stratify
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard import state
from ratioscope.dashboard.components.chart import plain_chart, step_chart
from ratioscope.dashboard.components.frame import answer, how_to_read, run_page
from ratioscope.dashboard.components.tile import metric_row, tooltip
from ratioscope.dashboard.figures import staleness as figures
from ratioscope.dashboard.figures.series import Limit
from ratioscope.dashboard.formats import count, estimate, is_share, plain
from ratioscope.dashboard.opened import Opened
from ratioscope.errors import RatioscopeError
from ratioscope.notes import from_cells

TILES = ("version_lag", "s_k", "s_k_version", "s_k_engine")
METRICS = (
    *("s_k", "s_k_bounded", "s_k_version", "s_k_engine", "clip_fraction", "ess_token", "khat_token"),
    *("chi2_token", "ratio_mean", "u_k", "entropy"),
)
# Strata and filters look at the latest steps with about so many tokens; filters at a sample of those.
STRATA_TOKENS, SAMPLED_TOKENS = 200_000, 100_000


def render() -> None:
    """The page."""
    opened = run_page("Staleness", "How old is the data, and does age hurt?")
    if opened is None:
        return
    said = st.container()
    metric_row(opened.summary, TILES)
    lags = _version_lags(str(opened.run.folder), opened.run.signature)
    _over_steps(opened, lags)
    first, last = state.window(opened, STRATA_TOKENS).steps
    where = f"steps {first} to {last}"
    with said, st.skeleton(height=48):
        strata = _strata(str(opened.run.folder), opened.run.signature, first, last)
    brushed = lags if state.step_range()[0] is None else lags[lags["step"].between(first, last)]
    if strata is None:
        with said:
            answer(f"{age.how_old(brushed)} There is no token in {where}: choose others, or all steps.")
    else:
        limit = opened.limits.staleness
        effect = age.age_effect(strata, staleness_metric(opened.summary))
        with said:
            answer(age.sentence(brushed, strata, effect, limit=limit))
            st.caption(f"Tokens by age: {where}, {count(float(strata.metric('s_k')['n_tokens'].iloc[-1]))} tokens.")
        _by_lag(strata, limit, where)
        _what_if(opened, first, last, where)
    _segments(opened, first, last, where)
    _explain()


@st.cache_data(max_entries=32, show_spinner=False)
def _version_lags(folder: str, signature: str) -> pd.DataFrame:
    return age.version_lags(open_run(folder))


@st.cache_data(max_entries=32, show_spinner=False)
def _strata(folder: str, signature: str, first: int, last: int) -> Strata | None:
    """None: these steps hold no token."""
    try:
        return stratify(open_run(folder), "lag", first, last)
    except RatioscopeError:
        return None


def _over_steps(opened: Opened, lags: pd.DataFrame) -> None:
    summary, mode, steps = opened.summary, state.mode(), state.step_range()
    step_chart(
        figures.lag_heat_map(lags, summary, mode, steps),
        key="lags",
        title="How old the tokens of each step are",
        takeaway=age.how_old(lags),
        data=lags,
    )


def _by_lag(strata: Strata, limit: float, where: str) -> None:
    st.markdown(f"##### By age, {where}")
    choice, about = st.columns([3, 2], gap="medium", vertical_alignment="bottom")
    metric = choice.selectbox(
        "Metric by age", METRICS, format_func=lambda key: CATALOGUE[key].title, key="bylag", bind="query-params"
    )
    with about.popover("About this metric", icon=":material/help:"):
        st.markdown(tooltip(metric))
    rows = strata.metric(metric)
    words = [
        estimate(metric, row["value"], row["low"], row["high"], from_cells(row["note_kind"], row["note"]))
        for row in rows.to_dict("records")
    ]
    limits = {"s_k": (Limit(limit, "ε<sub>stale</sub>/2"),), "khat_token": (Limit(0.7, "means fail"),)}
    limits["s_k_bounded"] = limits["s_k"]
    known = rows[rows["value"].notna()]
    left, right = st.columns([3, 2], gap="medium")
    with left:
        if not len(known):
            st.info(f"{CATALOGUE[metric].title}: {rows['note'].iloc[-1]}.", icon=":material/info:")
        else:
            plain_chart(
                figures.by_lag(
                    rows,
                    metric,
                    "share" if is_share(metric) else CATALOGUE[metric].unit,
                    state.mode(),
                    limits.get(metric, ()),
                ),
                key="by-lag",
                title=f"{CATALOGUE[metric].title} by version lag",
                takeaway="; ".join(f"{label}: {word}" for label, word in zip(rows["label"], words, strict=True)),
                data=rows,
            )
    with right:
        st.dataframe(
            pd.DataFrame(
                {
                    "label": rows["label"],
                    "share": rows["n_tokens"] / rows["n_tokens"].iloc[-1],
                    "value": words,
                }
            ),
            hide_index=True,
            column_config={
                "label": st.column_config.TextColumn("Age", help="Version lag in updates", width="small"),
                "share": st.column_config.ProgressColumn(
                    "Tokens", help="Share of the tokens", format="percent", min_value=0, max_value=1, width="small"
                ),
                "value": st.column_config.TextColumn(
                    CATALOGUE[metric].label, help="With its 95 % interval over prompt groups, or why there is none"
                ),
            },
            alt="The metric by version lag, with intervals and shares of tokens",
        )


@st.cache_resource(max_entries=4, show_spinner=False)
def _tokens(folder: str, signature: str, first: int, last: int, most: int | None) -> what_if.Tokens | None:
    """None: these steps hold no usable token."""
    try:
        return what_if.load(open_run(folder), first, last, most)
    except RatioscopeError:
        return None


@st.cache_data(max_entries=32, show_spinner=False)
def _curve(
    folder: str, signature: str, first: int, last: int, most: int | None, parameter: str, values: tuple[float, ...]
) -> pd.DataFrame:
    tokens = _tokens(folder, signature, first, last, most)
    assert tokens is not None
    return age_filters.curve(tokens, parameter, values)


@st.cache_data(max_entries=256, show_spinner=False)
def _effect(
    folder: str, signature: str, first: int, last: int, most: int | None, parameter: str, value: float
) -> age_filters.FilterEffect:
    tokens = _tokens(folder, signature, first, last, most)
    assert tokens is not None
    return age_filters.effect(tokens, parameter, value)


@st.fragment
def _what_if(opened: Opened, first: int, last: int, where: str) -> None:
    st.markdown("##### What if stale tokens, or old versions, were left out?")
    everything = st.toggle(
        "All tokens",
        key="allaged",
        bind="query-params",
        help=f"Otherwise a random sample of whole prompt groups with at most {count(SAMPLED_TOKENS)} tokens is used.",
    )
    most = None if everything else SAMPLED_TOKENS
    at = (str(opened.run.folder), opened.run.signature, first, last, most)
    with st.skeleton(height=320):
        tokens = _tokens(*at)
    if tokens is None:
        st.info(f"No token of {where} can be used: there is nothing to filter.", icon=":material/info:")
        return
    sampled = "" if tokens.fraction == 1 else f"a random sample, {tokens.fraction:.0%} of the tokens of "
    st.caption(f"On {sampled}{where}: {count(len(tokens))} tokens.")
    lags = age_filters.lag_values(tokens)
    oldest = int(lags[-1])
    left, right = st.columns(2, gap="large")
    with left:
        stale = st.slider(
            "Largest |ρ - 1| to keep, ε_stale",
            *(0.02, 2.0, min(max(opened.limits.epsilon_stale, 0.02), 2.0), 0.02),
            key="stalecut",
            bind="query-params",
        )
        st.markdown(age_filters.sentence(_effect(*at, "epsilon_stale", stale)))
    with right:
        window = opened.limits.version_window - 1
        if oldest > 0:
            lag = st.slider(
                "Largest lag to keep, W - 1",
                *(0, oldest, int(min(window, oldest)), 1),
                key="lagcut",
                bind="query-params",
            )
            st.markdown(age_filters.sentence(_effect(*at, "max_lag", float(lag))))
        else:
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


def _curves(curve: pd.DataFrame, name: str, chosen: float, applied: float | None, top: float) -> None:
    for column, title, y_title in (
        ("dropped", "Tokens dropped", "share of signal tokens"),
        ("staleness", "Staleness of what is kept", "½ mean |ρ - 1|"),
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
            takeaway=f"{title}: {plain(float(ends.iloc[0]))} at {name} {curve.index[0]:g}, "
            f"{plain(float(ends.iloc[1]))} at {curve.index[-1]:g}.",
            data=curve,
        )


def _applied(opened: Opened) -> float | None:
    """The ε_stale that the run was trained with."""
    value = opened.run.manifest.schedule.get("epsilon_stale")
    return float(value) if isinstance(value, int | float) and 0 < value <= 2 else None


def _own_filters(opened: Opened) -> str:
    """What the run's own filters have already taken away, and is not in the log."""
    columns = {"tokens_dropped_stale": "by its own ε_stale", "tokens_dropped_window": "by its own window"}
    steps = opened.summary.steps
    dropped = {words: float(steps[name].sum()) for name, words in columns.items() if name in steps}
    said = [f"{count(n)} tokens {words}" for words, n in dropped.items() if n > 0]
    return f" The run has already dropped {' and '.join(said)}; those are not in the log." if said else ""


@st.cache_data(max_entries=32, show_spinner=False)
def _switching(folder: str, signature: str) -> pd.DataFrame:
    return segments.switching(open_run(folder))


@st.cache_data(max_entries=32, show_spinner=False)
def _by_versions(folder: str, signature: str, first: int, last: int) -> pd.DataFrame:
    return segments.by_versions(open_run(folder), first, last)


@st.cache_data(max_entries=32, show_spinner=False)
def _by_position(folder: str, signature: str, metric: str, first: int, last: int) -> pd.DataFrame:
    return segments.by_position(open_run(folder), metric, first, last)


def _segments(opened: Opened, first: int, last: int, where: str) -> None:
    folder, signature = str(opened.run.folder), opened.run.signature
    found = _switching(folder, signature)
    st.markdown("##### Versions inside a response")
    st.markdown(segments.sentence(found))
    if not found["several"].any():
        return
    left, right = st.columns(2, gap="medium")
    with left:
        step_chart(
            figures.switching_share(found, state.mode(), state.step_range()),
            key="switching",
            title="Responses with tokens of several versions",
            takeaway=segments.sentence(found),
            data=found,
        )
    inside = found[found.index.isin(range(first, last + 1))]
    if not inside["several"].any():
        right.info(f"In {where} every response has one version.", icon=":material/info:")
        return
    metric = staleness_metric(opened.summary)
    with right:
        with st.skeleton(height=260):
            rows = _by_position(folder, signature, metric, first, last)
        plain_chart(
            figures.by_position(rows, state.mode()),
            key="by-position",
            title=f"{CATALOGUE[metric].label} by position, {where}",
            takeaway="Staleness by position in the response, of responses of one and of several versions.",
            data=rows,
        )
    st.dataframe(
        _by_versions(folder, signature, first, last),
        hide_index=True,
        column_config={
            "versions": st.column_config.NumberColumn("Versions", help="Policy versions that sampled the response"),
            "responses": st.column_config.NumberColumn("Responses", format="%d"),
            "share": st.column_config.NumberColumn("Share of responses", format="percent"),
            "tokens": st.column_config.NumberColumn("Mean length", help="Tokens a response", format="%.3g"),
            "lag": st.column_config.NumberColumn("Mean lag", help="Updates, over the tokens", format="%.3g"),
            "spread": st.column_config.NumberColumn("Spread", help="Newest minus oldest version", format="%.3g"),
        },
        alt=f"Responses by the number of versions that sampled them, {where}",
    )


def _explain() -> None:
    how_to_read(
        r"""
The *version lag* of a token is the number of updates between the policy that sampled it and the policy $\pi_k$ that it
updates. Age hurts where staleness $S_k=\tfrac12\,\mathrm{mean}|\rho_k-1|$ grows with it; the limit is
$\varepsilon_{stale}/2$ (S0 5.6). Where the training engine's own log-probs $b'$ of the sampling version are logged,

$$S_k\le S_k^{version}+S_k^{engine},\qquad S_k^{version}=\tfrac12\,\mathrm{mean}|\rho_k-e^{b'-b}|,\qquad
S_k^{engine}=\tfrac12\,\mathrm{mean}|e^{b'-b}-1|$$

and only the first of them gets better with fresher weights. Bars are strata of the lag, whiskers 95 % intervals over
prompt groups, open circles values that this log cannot support. Two strata differ when their intervals do not overlap;
otherwise the page says that it cannot tell.

The filters drop tokens with $|\rho_k-1|>\varepsilon_{stale}$, or responses whose oldest token is more than $W-1$
versions old (where every update makes a version). They act on the tokens that carry a signal, $A\ne0$. Whiskers and
bands say nothing of what another filter would have led to: the logged tokens stay as they are.
"""
    )
