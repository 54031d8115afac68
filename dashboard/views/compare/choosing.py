"""Which runs are compared: chosen by clicking on their rows, or by words that they contain."""

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from ratioscope.analysis.compare.configuration import configuration_of
from ratioscope.analysis.compare.grouping import schedule_words
from ratioscope.analysis.runs.store import Listed
from ratioscope.dashboard import state
from ratioscope.inert import one_line

MOST_RUNS = 40
_COLUMNS = ["Run", "Algorithm", "Schedule", "Seed", "Steps"]


def choose_runs(known: Mapping[str, Listed]) -> list[str]:
    """The chosen runs that fit the words; open as long as none is chosen, else behind one button."""
    chosen = state.chosen_ids()[:MOST_RUNS]
    if not chosen:
        with st.container():
            st.text("Choose the runs to compare: tick rows here, or in the list of runs.")
            _by_words(known)
            ticked = _rows(known, chosen)
            st.button(
                "Compare", key="compare-them", icon=":material/stacked_line_chart:", disabled=not ticked,
                type="primary" if ticked else "secondary",  # a disabled primary button is white on white
                on_click=state.choose, args=(ticked[:MOST_RUNS],),
            )  # fmt: skip
        return []
    label = "1 run" if len(chosen) == 1 else f"{len(chosen)} runs"
    door = st.popover(f"{label}: choose", icon=":material/checklist:", key="choose", on_change="rerun")
    with door:
        fitting = _by_words(known)
        if door.open:
            _rows(known, chosen, change=True)
    kept = [run_id for run_id in chosen if run_id in fitting]
    if len(kept) < len(chosen):
        st.text(f"{len(kept)} of {len(chosen)} chosen runs contain these words.")
    return kept


def other_seeds(known: Mapping[str, Listed], chosen: Sequence[str]) -> list[str]:
    """The runs that differ from a chosen one in their seed alone and that are not chosen themselves."""
    settings = {run_id: configuration_of(listed.manifest) for run_id, listed in known.items() if listed.manifest}
    wanted = [(settings[run_id], known[run_id].manifest) for run_id in chosen if run_id in settings]
    seeds = [(setting, manifest.seed) for setting, manifest in wanted if manifest]
    return [
        run_id
        for run_id, setting in settings.items()
        if run_id not in chosen
        and (manifest := known[run_id].manifest)
        and any(setting == other for other, _ in seeds)
        and (setting, manifest.seed) not in seeds
    ]


def _by_words(known: Mapping[str, Listed]) -> list[str]:
    """The runs that contain the words, and a button that chooses them all."""
    words = st.text_input(
        "Only", placeholder="algorithm, schedule, tag", key="only", bind="query-params",
        help="Compares those of the chosen runs that contain all these words in id, algorithm, schedule or tags.",
    )  # fmt: skip
    fitting = [run_id for run_id, listed in known.items() if _fits(listed, words)]
    st.button(
        "All that contain these words" if words else "All runs", key="all-runs", icon=":material/select_all:",
        on_click=state.choose, args=(fitting[:MOST_RUNS],), help=f"At most {MOST_RUNS}.",
    )  # fmt: skip
    return fitting


def _rows(known: Mapping[str, Listed], chosen: list[str], *, change: bool = False) -> list[str]:
    """A row a run; returns those that are ticked, the ones chosen before first: the first is the baseline.

    Args:
        change: a tick takes a run in, or leaves it out, at once.
    """
    ids = list(known)

    def ticked() -> list[str]:
        selected = st.session_state.get("compare-rows")
        now = {ids[row] for row in selected["selection"]["rows"] if row < len(ids)} if selected else set()
        kept = [run_id for run_id in chosen if run_id in now]
        return [*kept, *(run_id for run_id in ids if run_id in now and run_id not in kept)]

    st.dataframe(
        pd.DataFrame([_row(known[run_id]) for run_id in ids], columns=_COLUMNS),
        key="compare-rows", hide_index=True, selection_mode="multi-row", height=420, width=720,
        on_select=(lambda: state.choose(ticked()[:MOST_RUNS])) if change else "rerun",
        selection_default={"selection": {"rows": [ids.index(run_id) for run_id in chosen], "columns": [], "cells": []}},
        column_config={"Run": st.column_config.TextColumn(width=330)},
        alt=f"Table of {len(ids)} runs to choose from",
    )  # fmt: skip
    return ticked()


def _row(listed: Listed) -> tuple[str, str, str, str, int]:
    manifest = listed.manifest
    if manifest is None:
        return one_line(listed.run_id), "", "", "", listed.steps
    seed = "" if manifest.seed is None else str(manifest.seed)
    schedule = schedule_words(manifest.schedule, manifest.sampler)
    return one_line(listed.run_id), one_line(manifest.algorithm_name), one_line(schedule), seed, listed.steps


def _fits(listed: Listed, words: str) -> bool:
    manifest, text = listed.manifest, listed.run_id
    if manifest is not None:
        schedule = schedule_words(manifest.schedule, manifest.sampler)
        text += f" {manifest.algorithm.get('name')} {schedule} {manifest.tags}"
    return all(word in text.lower() for word in words.lower().split())
