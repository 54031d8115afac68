"""Worst responses as a table, for the Tokens page and a step's dialog; computed once for each state of a run."""

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from ratioscope.analysis.runs.window import Window
from ratioscope.analysis.tokens.reader import Reading, read_sequence
from ratioscope.analysis.tokens.worst_sequences import CRITERIA, worst_sequences

# Of `analysis.tokens.worst_sequences`, those shown, in this order.
_COLUMNS = {
    "step": st.column_config.NumberColumn("Step", format="%d", width=55),
    "seq_id": st.column_config.NumberColumn("Resp.", format="%d", width=55),
    "response": st.column_config.TextColumn("Response", width=150),
    "reward": st.column_config.NumberColumn("Reward", format="%.3g", width=70),
    "advantage": st.column_config.NumberColumn(
        "Advantage", format="%.3g", width=85, help="The largest in absolute value."
    ),
    "n_tokens": st.column_config.NumberColumn("Tokens", format="localized", width=70),
    "log_w": st.column_config.NumberColumn(
        "log W", format="%.3g", width=75, help="W: product of the token ratios ρ (current / behavior); in nats."
    ),
    "max_log_ratio": st.column_config.NumberColumn(
        "max log ρ", format="%.3g", width=85, help="Of the token whose probability rose most, in nats."
    ),
    "min_log_ratio": st.column_config.NumberColumn(
        "min log ρ", format="%.3g", width=85, help="Of the token whose probability fell most, in nats."
    ),
    "clipped": st.column_config.NumberColumn("Clipped", format="percent", width=75, help="Share of its tokens."),
    "entropy": st.column_config.NumberColumn("Entropy", format="%.3g", width=75, help="Mean over its tokens, in nats."),
    "version_lag": st.column_config.NumberColumn(
        "Lag", format="%d", width=55, help="Updates between its oldest token's policy and the current policy."
    ),
    "n_unusable": st.column_config.NumberColumn(
        "Unusable", format="%d", width=80, help="Tokens with invalid numbers, which no metric uses."
    ),
    "dropped": st.column_config.TextColumn("Left out", width=110, help="Why the loss left it out."),
    "prompt": st.column_config.TextColumn("Prompt", width=240),
}


@st.cache_data(max_entries=64, show_spinner=False)
def worst(window: Window, criterion: str) -> pd.DataFrame:
    """The twenty worst responses of these steps."""
    return worst_sequences(window.run(), criterion, *window.steps)


@st.cache_data(max_entries=64, show_spinner=False)
def reading(window: Window, seq_id: int) -> Reading:
    """One response of the window's first step.

    Raises:
        RatioscopeError: there is none.
    """
    return read_sequence(window.run(), window.first, seq_id)


def criterion_picker(key: str, names: Sequence[str], *, in_url: bool) -> str:
    """A select box of what responses are sorted by; returns its key."""
    chosen = st.selectbox(
        "Worst by",
        names,
        format_func=lambda name: CRITERIA[name].title,
        key=key,
        bind="query-params" if in_url else None,
    )
    return chosen if chosen in names else names[0]


def sequence_table(
    frame: pd.DataFrame,
    *,
    key: str,
    alt: str,
    criterion: str | None = None,
    chosen: tuple[int, int] | None = None,
    on_choice: Callable[[int, int], None] | None = None,
    height: int = 320,
) -> tuple[int, int] | None:
    """A table of responses, one of which can be selected.

    Args:
        frame: step, seq_id and any of the columns of `analysis.tokens.worst_sequences`.
        key: of the widget; what the table holds is added to it, so that a selection means the row it was made on.
        criterion: the one whose `value` stands first.
        chosen: step and seq_id of the row that is marked.
        on_choice: is called with step and seq_id of the row that the user has chosen, before the page is drawn.

    Returns:
        step and seq_id of the marked row.
    """
    places = list(zip(frame["step"].astype(int), frame["seq_id"].astype(int), strict=True))
    shown = ["value"] * (criterion is not None) + [
        name for name in _COLUMNS if name in frame and _says_something(name, frame[name])
    ]
    config: dict[str, Any] = {name: _COLUMNS[name] for name in shown if name != "value"}
    if criterion is not None:
        meant = CRITERIA[criterion]
        unit = f" ({meant.unit})" if meant.unit else ""
        config["value"] = st.column_config.NumberColumn("Value", format="%.3g", width=75, help=f"{meant.title}{unit}.")
    widget = f"{key}-{hash((criterion, tuple(places))) & 0xFFFFFFFF:08x}"

    def choose() -> None:
        rows = st.session_state[widget]["selection"]["rows"]
        if rows and on_choice is not None:
            on_choice(*places[rows[0]])

    selection = st.dataframe(
        frame[shown],
        key=widget,
        hide_index=True,
        on_select=choose if on_choice is not None else "rerun",
        selection_mode="single-row",
        selection_default={"selection": {"rows": [places.index(chosen)]}} if chosen in places else None,
        column_config=config,
        height=min(height, 35 * len(frame) + 38),
        alt=alt,
    )
    rows = selection["selection"]["rows"]
    return places[rows[0]] if rows and rows[0] < len(places) else None


def _says_something(name: str, column: "pd.Series[Any]") -> bool:
    """Whether a column is worth its width: it is logged, and not the same in all rows by construction."""
    if name == "step":
        return column.nunique() > 1
    return bool(column.any()) if name == "n_unusable" else name == "seq_id" or bool(column.notna().any())
