"""Which runs are compared: chosen by clicking on their rows, or by words that they contain."""

from collections.abc import Mapping

import pandas as pd
import streamlit as st

from ratioscope.analysis.compare import schedule_words
from ratioscope.analysis.runs.store import Listed
from ratioscope.dashboard import state
from ratioscope.dashboard.annotations import writable

MOST_RUNS = 40
_COLUMNS = ["Run", "Algorithm", "Schedule", "Seed", "Steps"]


def choose_runs(known: Mapping[str, Listed]) -> list[str]:
    """The chosen runs that fit the words; open as long as none is chosen, else behind one button."""
    chosen = state.chosen_ids()[:MOST_RUNS]
    if not chosen:
        st.text("Choose the runs to compare: tick rows here, or in the list of runs.")
        _chooser(known, chosen)
        return []
    label = "1 run" if len(chosen) == 1 else f"{len(chosen)} runs"
    with st.popover(f"{label}: choose", icon=":material/checklist:", key="choose", on_change="rerun") as door:
        words = st.text_input(
            "Only", placeholder="algorithm, schedule, tag", key="only", bind="query-params",
            help="Compares those of the chosen runs that contain all these words in id, algorithm, schedule or tags.",
        )  # fmt: skip
        fitting = [run_id for run_id, listed in known.items() if _fits(listed, words)]
        st.button(
            "All that contain these words" if words else "All runs", key="all-runs", icon=":material/select_all:",
            on_click=state.choose, args=(fitting[:MOST_RUNS],), help=f"At most {MOST_RUNS}.",
        )  # fmt: skip
        if door.open:
            _chooser(known, chosen)
    kept = [run_id for run_id in chosen if run_id in fitting]
    if len(kept) < len(chosen):
        st.text(f"{len(kept)} of {len(chosen)} chosen runs contain these words.")
    return kept


def _chooser(known: Mapping[str, Listed], chosen: list[str]) -> None:
    """A row a run; a click on its box takes it in or leaves it out."""
    ids = list(known)

    def change() -> None:
        rows = st.session_state["compare-rows"]["selection"]["rows"]
        ticked = {ids[row] for row in rows if row < len(ids)}
        kept = [run_id for run_id in chosen if run_id in ticked]  # the first chosen stays the baseline
        state.choose([*kept, *(run_id for run_id in ids if run_id in ticked and run_id not in kept)][:MOST_RUNS])

    st.dataframe(
        pd.DataFrame([_row(known[run_id]) for run_id in ids], columns=_COLUMNS),
        key="compare-rows", hide_index=True, on_select=change, selection_mode="multi-row", height=420,
        selection_default={"selection": {"rows": [ids.index(run_id) for run_id in chosen], "columns": [], "cells": []}},
        column_config={"Run": st.column_config.TextColumn(width="large")},
        alt=f"Table of {len(ids)} runs to choose from",
    )  # fmt: skip


def _row(listed: Listed) -> tuple[str, str, str, str, int]:
    manifest = listed.manifest
    if manifest is None:
        return writable(listed.run_id), "", "", "", listed.steps
    seed = "" if manifest.seed is None else str(manifest.seed)
    name = str(manifest.algorithm.get("name", ""))
    schedule = schedule_words(manifest.schedule, manifest.sampler)
    return writable(listed.run_id), writable(name), writable(schedule), seed, listed.steps


def _fits(listed: Listed, words: str) -> bool:
    manifest, text = listed.manifest, listed.run_id
    if manifest is not None:
        schedule = schedule_words(manifest.schedule, manifest.sampler)
        text += f" {manifest.algorithm.get('name')} {schedule} {manifest.tags}"
    return all(word in text.lower() for word in words.lower().split())
