"""Worst responses as a table, for the Tokens page and a step's dialog; computed once for each state of a run.

What a number is made of stands first: `analysis.tokens.contributions`, of the metric that a chart or a finding names.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from ratioscope.analysis.runs.window import Window
from ratioscope.analysis.tokens.contributions import (
    PLAIN,
    STAND_INS,
    Contributions,
    contributions,
    contributions_sentence,
    stands_out,
)
from ratioscope.analysis.tokens.reader import SequenceReading, read_sequence
from ratioscope.analysis.tokens.worst_sequences import CRITERIA
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.components.token_strip import shown_text
from ratioscope.dashboard.components.whole_rows import whole_rows
from ratioscope.inert import safe

_UNBOUNDED = "The plain form does not bound what one token weighs."
# Of a table with so few columns the response is what is read.
_FEW = 6
# Those shown, in this order.
_COLUMNS = {
    "step": st.column_config.NumberColumn("Step", format="%d", width=55),
    "seq_id": st.column_config.NumberColumn("Resp.", format="%d", width=55),
    "share": st.column_config.ProgressColumn("Share", format="percent", min_value=0, max_value=1, width=110),
    "token": st.column_config.TextColumn("Token", width=90, help="The one with the largest part, or the farthest."),
    "position": st.column_config.NumberColumn("at", format="%d", width=50, help="Position of this token, from 0."),
    "ratio": st.column_config.NumberColumn("ρ", format="%.3g", width=70, help="Of this token: current / behavior."),
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
def worst(window: Window, by: str) -> Contributions:
    """The twenty responses of these steps that make a number, or that a criterion puts first."""
    return contributions(window.run(), by, *window.steps)


def in_the_plain_form(window: Window, by: str, found: Contributions) -> str:
    """What that is, of a number in it; what a few responses make of it, where none stands out in the bounded one."""
    if by in PLAIN.values():
        return _UNBOUNDED
    if by not in PLAIN or stands_out(found):
        return ""
    plain = worst(window, PLAIN[by])
    return f"{contributions_sentence(plain, window.words)} {_UNBOUNDED}" if stands_out(plain) else ""


@st.cache_data(max_entries=64, show_spinner=False)
def reading(window: Window, seq_id: int) -> SequenceReading:
    """One response of the window's first step.

    Raises:
        RatioscopeError: there is none.
    """
    return read_sequence(window.run(), window.first, seq_id)


def criterion_label(by: str) -> str:
    """What responses are sorted by, in a list to choose from."""
    return CATALOGUE[by].label if by in CATALOGUE else CRITERIA[by].title


def by_picker(key: str, names: Sequence[str], *, asked: str = "", in_url: bool) -> str:
    """A select box of what responses are sorted by; returns its key.

    Args:
        names: the usual one first.
        asked: a metric that stands there first, as a chart or a finding names it.
    """
    asked = STAND_INS.get(asked, asked)
    if asked in CATALOGUE and asked not in names:
        names = [*names, asked]
    chosen = st.selectbox(
        "Sorted by their part of",
        names,
        index=names.index(asked) if asked in names else 0,
        format_func=criterion_label,
        key=key,
        bind="query-params" if in_url else None,
    )
    return chosen if chosen in names else names[0]


def position_of(frame: pd.DataFrame, place: tuple[int, int]) -> int | None:
    """The position of the token that stands for a response of the table; None where there is none."""
    row = frame[(frame["step"] == place[0]) & (frame["seq_id"] == place[1])]
    return int(row["position"].iloc[0]) if len(row) and pd.notna(row["position"].iloc[0]) else None


def sequence_table(
    frame: pd.DataFrame,
    *,
    key: str,
    alt: str,
    what: str = "",
    chosen: tuple[int, int] | None = None,
    on_choice: Callable[[int, int], None] | None = None,
    rows: int = 8,
) -> tuple[int, int] | None:
    """A table of responses, one of which can be selected.

    Args:
        frame: step, seq_id and any of the columns of `analysis.tokens.contributions`.
        key: of the widget; what the table holds is added to it, so that a selection means the row it was made on.
        what: the shares are of.
        chosen: step and seq_id of the row that is marked.
        on_choice: is called with step and seq_id of the row that the user has chosen, before the page is drawn.
        rows: that are shown at most; the others scroll.

    Returns:
        step and seq_id of the marked row.
    """
    places = list(zip(frame["step"].astype(int), frame["seq_id"].astype(int), strict=True))
    shown = [name for name in _COLUMNS if name in frame and _says_something(name, frame[name])]
    config: dict[str, Any] = {name: _COLUMNS[name] for name in shown}
    if "share" in shown:
        config["share"] = st.column_config.ProgressColumn(
            "Share", format="percent", min_value=0, max_value=1, width=110, help=f"Of {what} in these steps."
        )
    if len(shown) <= _FEW:
        config |= {"response": st.column_config.TextColumn("Response", width=420)}
    table = f"{key}-{hash((what, tuple(places))) & 0xFFFFFFFF:08x}"
    widget = f"{table}-{st.session_state.setdefault(table, chosen)}"
    ticked = st.session_state[widget]["selection"]["rows"] if widget in st.session_state else []
    if chosen in places and ticked and places[ticked[0]] != chosen:  # it was chosen elsewhere: the tick goes with it
        st.session_state[table] = chosen
        widget = f"{table}-{chosen}"

    def choose() -> None:
        rows = st.session_state[widget]["selection"]["rows"]
        if rows and on_choice is not None:
            on_choice(*places[rows[0]])

    selection = st.dataframe(
        _inert(frame[shown]),
        key=widget,
        hide_index=True,
        on_select=choose if on_choice is not None else "rerun",
        selection_mode="single-row",
        selection_default={"selection": {"rows": [places.index(chosen)]}} if chosen in places else None,
        column_config=config,
        height=whole_rows(len(frame), rows),
        alt=alt,
    )
    marked = selection["selection"]["rows"]
    return places[marked[0]] if marked and marked[0] < len(places) else None


def _inert(frame: pd.DataFrame) -> pd.DataFrame:
    """Texts of a log without signs that turn the direction of a cell; of a token, what cannot be seen made visible."""
    frame = frame.copy()
    for name, shown in (("prompt", safe), ("response", safe), ("dropped", safe), ("token", _visible)):
        if name in frame:
            frame[name] = [shown(text) if isinstance(text, str) else None for text in frame[name]]
    return frame


def _visible(token: str) -> str:
    return shown_text(token, None, 0)


def _says_something(name: str, column: "pd.Series[Any]") -> bool:
    """Whether a column is worth its width: it is logged, and not the same in all rows by construction."""
    if name == "step":
        return column.nunique() > 1
    return bool(column.any()) if name == "n_unusable" else name == "seq_id" or bool(column.notna().any())
