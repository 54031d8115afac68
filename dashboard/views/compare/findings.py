"""The findings of the runs of a comparison, side by side."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from ratioscope.analysis.compare import Member
from ratioscope.dashboard import state
from ratioscope.dashboard.views.compare import data
from ratioscope.errors import RatioscopeError
from ratioscope.inert import one_line


def findings_by_run(members: Sequence[Member]) -> None:
    """By run and rule; only when they are asked for, because the rules read every token."""
    if not st.toggle("Findings by run", key="sick", bind="query-params", help="Reads every token of every run."):
        return
    known, rows, silent = state.runs(), {}, []
    progress = st.empty()
    for place, member in enumerate(members):
        progress.progress(place / len(members), text=f"Run {place + 1} of {len(members)}")
        if member.run_id not in known:
            st.text(one_line(f"{member.run_id} has been removed."))
            continue
        try:
            found = data.findings(known[member.run_id])
        except RatioscopeError as error:
            st.text(one_line(f"{member.run_id}: {error}"))
            continue
        if found:
            rows[member.run_id] = found
        else:
            silent.append(member.run_id)
    progress.empty()
    if rows:
        table = pd.DataFrame.from_dict(rows, orient="index").fillna("")
        st.dataframe(table, alt="Severity of the findings of each rule in each run")
    if silent:
        st.text(one_line(f"No findings: {', '.join(silent)}."))
