"""Compare: is the difference real?"""

import math

import pandas as pd
import streamlit as st

from analysis.comparison import Member, Setting, band_words, differences, settings
from dashboard import state
from dashboard.components.chart import step_chart
from dashboard.components.frame import answer, no_runs
from dashboard.components.tile import tooltip
from dashboard.figures import comparison as figures
from dashboard.formats import escape, number
from ratioscope.catalogue import CATALOGUE
from ratioscope.errors import RatioscopeError

METRICS = (
    "eval_accuracy",
    "reward",
    "s_k",
    "u_k",
    "clip_fraction",
    "entropy",
    "kl_to_initial",
    "ess_token",
    "khat_token",
)
MOST_RUNS = 40


def render() -> None:
    """The page."""
    st.title("Compare", anchor=False)
    st.caption("Is the difference real?")
    known = state.runs()
    if not known:
        no_runs()
        return
    members = _members(list(known))
    if not members:
        st.info("Choose the runs to compare.", icon=":material/stacked_line_chart:")
        return
    groups = settings(members)
    metric, smoothing = _controls()
    facets: dict[str, list[Setting]] = {}
    for setting in groups:
        facets.setdefault(setting.schedule, []).append(setting)
    answer(_answer(facets, metric))
    mode, steps = state.mode(), state.step_range()
    drawn = (
        figures.small_multiples(facets, metric, mode, smoothing=smoothing, steps=steps)
        if len(facets) > 1
        else figures.overlay(groups, metric, mode, smoothing=smoothing, steps=steps)
    )
    step_chart(
        drawn,
        key="compare",
        title=f"{CATALOGUE[metric].title}: mean over seeds ({band_words(max(len(group.members) for group in groups))})",
        takeaway=_answer(facets, metric),
        data=pd.concat({setting.label: setting.mean(metric)["mean"] for setting in groups}, axis=1),
    )
    _ranking(groups, metric)
    st.markdown("###### What differs between the runs")
    table = differences(members)
    if len(table):
        st.dataframe(table, alt="Settings in which the runs differ")
    else:
        st.text("Nothing but the seed, or nothing at all.")


def _members(known: list[str]) -> list[Member]:
    wanted = state.chosen_ids()[:MOST_RUNS]
    if st.session_state.get("compare-runs") != wanted:
        st.session_state["compare-runs"] = wanted

    def change() -> None:
        state.choose(st.session_state["compare-runs"])

    left, right = st.columns([5, 1], vertical_alignment="bottom")
    chosen = left.multiselect("Runs", known, key="compare-runs", on_change=change, max_selections=MOST_RUNS)

    def choose_all() -> None:
        state.choose(known[:MOST_RUNS])

    right.button("All runs", on_click=choose_all, icon=":material/select_all:", width="stretch")
    members = []
    reading = st.empty()
    for place, run_id in enumerate(chosen):
        reading.progress(place / len(chosen), text=f"Reading run {place + 1} of {len(chosen)}")
        try:
            opened = state.open_listed(state.runs()[run_id])
        except RatioscopeError as error:
            st.warning("A run was left out.", icon=":material/warning:")
            st.text(str(error))
            continue
        if len(opened.summary.values):
            members.append(Member(run_id, opened.run, opened.summary))
        else:
            st.warning("A run was left out.", icon=":material/warning:")
            st.text(f"{run_id}: no step is on disk yet.")
    reading.empty()
    return members


def _controls() -> tuple[str, int]:
    left, right = st.columns([2, 1])
    metric = left.selectbox(
        "Metric",
        METRICS,
        format_func=lambda key: CATALOGUE[key].title,
        key="metric",
        bind="query-params",
    )
    smoothing = right.select_slider(
        "Running mean over steps", [1, 3, 5, 10, 20], value=3, key="smooth", bind="query-params", help="S3 uses 3."
    )
    with st.popover("About this metric", icon=":material/help:"):
        st.markdown(tooltip(metric))
    return metric, smoothing


def _answer(facets: dict[str, list[Setting]], metric: str) -> str:
    """Best and worst at the end under each schedule, as far as the seeds can tell; Markdown."""
    sentences = []
    for schedule, groups in facets.items():
        ends = [(setting, *setting.end(metric)) for setting in groups]
        ends = [end for end in ends if not math.isnan(end[1])]
        if len(ends) < 2:
            continue
        ends.sort(key=lambda end: end[1], reverse=CATALOGUE[metric].better != "lower")
        (best, top, top_low, top_high), (worst, bottom, bottom_low, bottom_high) = ends[0], ends[-1]
        apart = top_low > bottom_high or bottom_low > top_high
        doubt = "" if apart else " (too few seeds to tell)" if math.isnan(top_low) else " (their intervals overlap)"
        sentences.append(
            f"{escape(schedule)}: {number(metric, top)} for {escape(best.variant)} against "
            f"{number(metric, bottom)} for {escape(worst.variant)}{doubt}."
        )
    if not sentences:
        return "One setting is chosen: nothing to compare yet."
    return f"{CATALOGUE[metric].title} at the end. " + " ".join(sentences)


def _ranking(groups: list[Setting], metric: str) -> None:
    rows = []
    for setting in groups:
        mean, low, high = setting.end(metric)
        rows.append(
            {
                "Setting": setting.variant,
                "Schedule": setting.schedule,
                "Seeds": len(setting.members),
                "End": number(metric, mean),
                "95 % over seeds": f"{number(metric, low)} to {number(metric, high)}"
                if not math.isnan(low)
                else "one seed",
                "_sort": mean,
            }
        )
    frame = pd.DataFrame(rows).sort_values("_sort", ascending=CATALOGUE[metric].better == "lower").drop(columns="_sort")
    st.markdown("###### Ranking: mean of each run's last five logged values")
    st.dataframe(frame, hide_index=True, alt="Settings ranked by the metric at the end of the run")
