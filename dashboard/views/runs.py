"""Runs: what is there, what is alive, what is sick."""

import time
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import streamlit as st

from analysis.store import Listed, signature
from dashboard import state
from dashboard.components.frame import no_runs, status_words
from ratioscope.errors import RatioscopeError

# Rewards and findings need a run's tables; beyond this many runs they are read only for the rows that are opened.
MOST_SUMMARISED = 60

# Seconds: work a tick may take, pause between ticks while runs are being read, and while some are live.
READING_BUDGET, READING_PAUSE, LIVE_PAUSE = 0.6, 0.3, 5.0


def render() -> None:
    """The page."""
    st.title("Runs", anchor=False)
    st.caption("What is there, what is alive, what is sick?")
    known = state.runs()
    if not known:
        no_runs()
        return
    shown = _filter(list(known.values()))
    live = sum(status_words(run) == "live" for run in known.values())
    st.markdown(
        f"**{len(known)} run{'s' * (len(known) != 1)}, {live} of them live.** Select rows to open or compare them."
    )
    waiting = [run for run in shown[:MOST_SUMMARISED] if not _is_read(run)]
    st.fragment(_table, run_every=READING_PAUSE if waiting else LIVE_PAUSE if live else None)(shown)
    for run in shown:
        if run.problem:
            st.warning("A folder looks like a run and cannot be read.", icon=":material/warning:")
            st.text(run.problem)


def _table(shown: list[Listed]) -> None:
    """The list; rewards and findings fill in run by run, so that the first paint does not wait for them."""
    deadline = time.monotonic() + READING_BUDGET
    waiting = [run for run in shown[:MOST_SUMMARISED] if not _is_read(run)]
    for run in waiting:
        if time.monotonic() > deadline:
            break
        _read(run)
    frame = pd.DataFrame([_row(run) for run in shown])
    selection = st.dataframe(
        frame,
        key="runs-table",
        hide_index=True,
        on_select="rerun",
        selection_mode="multi-row",
        height=min(38 * (len(shown) + 1) + 2, 640),
        row_height=38,
        column_config={
            "Run": st.column_config.TextColumn(width=300),
            "Reward": st.column_config.LineChartColumn(y_min=0, help="Mean reward of each batch.", width=150),
            "Steps": st.column_config.NumberColumn(format="localized"),
            "Finding": st.column_config.TextColumn(help="The worst finding of the rules so far.", width=190),
        },
        alt=f"Table of {len(shown)} runs",
    )
    left = [run for run in waiting if not _is_read(run)]
    if left:
        st.caption(f"Reading rewards and findings, {len(left)} runs to go.")
    elif waiting and not any(status_words(run) == "live" for run in shown):
        st.rerun()  # everything is read: once more without the timer
    _actions([shown[row].run_id for row in selection.selection.rows if row < len(shown)])


def _filter(listed: list[Listed]) -> list[Listed]:
    search, status = st.columns([2, 3], vertical_alignment="bottom")
    words = search.text_input("Search", placeholder="name, algorithm, tag", key="q", bind="query-params")
    states = sorted({status_words(run) for run in listed})
    wanted = status.pills("Status", states, selection_mode="multi", key="status", bind="query-params")

    def fits(run: Listed) -> bool:
        manifest = run.manifest
        text = run.run_id if manifest is None else f"{run.run_id} {manifest.name} {manifest.algorithm} {manifest.tags}"
        return all(word in text.lower() for word in words.lower().split()) and (
            not wanted or status_words(run) in wanted
        )

    return [run for run in listed if fits(run)]


def _is_read(run: Listed) -> bool:
    return not run.steps or bool(run.problem) or signature(run.folder) in _readings()


@st.cache_resource
def _readings() -> dict[str, dict[str, Any]]:
    """Reward and finding by a run's signature; a few hundred bytes each."""
    return {}


def _read(run: Listed) -> None:
    news = signature(run.folder)
    try:
        opened = state.open_listed(run)
    except RatioscopeError as error:
        _readings()[news] = {"Finding": str(error)}
        return
    reward = opened.summary.values["reward"].dropna().rolling(5, min_periods=1).mean()
    worst = opened.findings[0] if opened.findings else None
    _readings()[news] = {
        "Reward": [float(value) for value in reward.iloc[:: max(1, len(reward) // 60)]],
        "Finding": f"{worst.severity.word}: {worst.rule.replace('_', ' ')}" if worst else "none",
    }


def _row(listed: Listed) -> dict[str, Any]:
    manifest = listed.manifest
    row: dict[str, Any] = {
        "Run": listed.run_id,
        "Status": status_words(listed),
        "Finding": "" if not listed.problem else "cannot be read",
        "Reward": None,
        "Algorithm": manifest.algorithm.get("name", "–") if manifest else "–",
        "Task": manifest.task.get("name", "–") if manifest else "–",
        "Steps": listed.steps,
        "Age": _age(manifest.created) if manifest else "–",
    }
    return row | _readings().get(signature(listed.folder), {})


def _age(created: str) -> str:
    try:
        seconds = (datetime.now(UTC) - datetime.fromisoformat(created).astimezone(UTC)).total_seconds()
    except ValueError:
        return "–"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return "now"


def _actions(chosen: list[str]) -> None:
    pages = st.session_state["pages"]
    with st.container(horizontal=True):
        if st.button("Open", disabled=len(chosen) != 1, icon=":material/open_in_new:", help="Select one run."):
            st.switch_page(pages["overview"], query_params={"run": chosen[0]})
        if st.button(
            "Compare", disabled=len(chosen) < 2, icon=":material/stacked_line_chart:", help="Select two or more."
        ):
            st.switch_page(pages["compare"], query_params={"run": chosen})
