"""The numbers of a what-if: tiles beside what it is compared with, and every measure of both with its interval."""

from math import isfinite, nan

import pandas as pd
import streamlit as st

from ratioscope.analysis.findings.numbers import interval_text
from ratioscope.analysis.what_if import Digest, described, is_measure_share
from ratioscope.dashboard.formats import escape, plain_number, share
from ratioscope.notes import text_of

TILES = ("clip_fraction", "kept_gradient", "ess", "bias_proxy")
TABLE = (
    "clip_fraction", "clip_fraction_low", "clip_fraction_high", "clip_fraction_positive", "clip_fraction_negative",
    "effective_token_fraction", "kept_gradient", "mean_weight", "max_weight", "ess", "chi2", "variance_proxy",
    "bias_proxy", "staleness", "permitted_drift", "drift_kept",
)  # fmt: skip


def measure_value(key: str, value: float, low: float = nan, high: float = nan) -> str:
    """A measure as it is written: a share in percent; with its interval's ends, as exact as they are."""
    return share(value, low, high) if is_measure_share(key) else plain_number(value, low, high)


def tiles(before: Digest, after: Digest, name: str) -> None:
    """The what-if beside what it is compared with."""
    with st.container(key="tiles-what-if"):
        columns = st.columns(len(TILES))
    for key, column in zip(TILES, columns, strict=True):
        title, definition = described(key)
        value, note = after.values[key], text_of(after.overall.notes.get(key))
        beside = [f"{name} {measure_value(key, before.values[key])}"]
        beside += ["unreliable"] if after.overall.unreliable(key) else []
        with column:
            st.metric(
                title,
                measure_value(key, value),
                delta=note if pd.isna(value) else " · ".join(beside),
                delta_color="off",
                delta_arrow="off",
                help=definition,
                border=True,
            )


def rules_table(before: Digest, after: Digest, name: str, *, same: bool) -> None:
    """Both rules and their difference; of the same rule its numbers once."""
    rows = []
    for key in TABLE:
        title, definition = described(key)
        a, b = before.values[key], after.values[key]
        digests = ((name, before), ("what-if", after))
        notes = {which: text_of(digest.overall.notes.get(key)) for which, digest in digests}
        both = notes[name] if notes[name] == notes["what-if"] else ""
        difference = b - a
        rows.append({
            "Measure": title,
            name: _estimate(key, before),
            "what-if": _estimate(key, after),
            "difference": f"{'+' * (difference > 0)}{measure_value(key, difference)}" if isfinite(difference) else "–",
            "doubt": both or "; ".join(f"{which}: {note}" for which, note in notes.items() if note),
            "definition": definition,
        })  # fmt: skip
    st.markdown(
        f"## {'The run' if same else 'Run and what-if'}, in numbers",
        help="95% intervals, cluster-robust over prompt groups.",
    )
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        height="content",
        column_order=["Measure", name] if same else None,
        column_config={
            "Measure": st.column_config.TextColumn(width=170, pinned=True),
            name: st.column_config.TextColumn(name.capitalize(), width=190, help="With its 95% interval."),
            "what-if": st.column_config.TextColumn("What-if", width=190, help="With its 95% interval."),
            "difference": st.column_config.TextColumn("Difference", width=90),
            "doubt": None,
            "definition": None,
        },
        alt=f"Every measure of the compared rule ({name}) and of the what-if rule, with intervals",
    )
    doubts = [f"{row['Measure']}: {row['doubt']}." for row in rows if row["doubt"]]
    if doubts:
        st.caption(escape(" ".join(doubts)))
    with st.popover("What each means", icon=":material/help:", type="tertiary"):
        for row in rows:
            st.markdown(f"**{escape(row['Measure'])}.** {escape(row['definition'])}")


def _estimate(key: str, digest: Digest) -> str:
    value, interval = digest.values[key], digest.overall.intervals.get(key)
    unreliable = "unreliable" if digest.overall.unreliable(key) else ""
    if not interval:
        return f"{measure_value(key, value)} (unreliable)" if unreliable else measure_value(key, value)
    text, low, high = (
        measure_value(key, each, interval.low, interval.high) for each in (value, interval.low, interval.high)
    )
    return f"{text} ({', '.join(filter(None, (unreliable, interval_text(*interval, low, high))))})"
