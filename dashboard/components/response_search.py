"""The line above the worst responses: find a text in the responses, go to the next wrong or right answer."""

from collections.abc import Callable

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.runs.window import Window
from ratioscope.analysis.tokens.search import (
    MOST_FOUND,
    TOKENS_SEARCHED,
    FoundResponses,
    RewardHalves,
    next_response,
    reward_halves,
    search_responses,
    text_column,
)
from ratioscope.dashboard import state
from ratioscope.dashboard.components.sequences import sequence_table
from ratioscope.dashboard.formats import escape, plain_number
from ratioscope.dashboard.keys import SHORTCUTS
from ratioscope.errors import RatioscopeError
from ratioscope.inert import one_line, safe

Place = tuple[int, int]
"""Step and seq_id."""


def response_search(opened: Opened, here: Place, go: Callable[[int, int], None], line: DeltaGenerator) -> None:
    """The search box and the two buttons in a line; below it, where a text is looked for, the responses that have it.

    Args:
        here: the open response.
        go: is called with the response to open, before the page is drawn.
        line: where box and buttons stand.
    """
    run = opened.run
    logged, halves = text_column(run), _halves(Window.of(run))
    if not logged and halves is None:
        return
    text, window = "", _searched(opened, logged)
    with line:
        if logged:
            text = st.text_input(
                "Find in responses", key="find", bind="query-params", label_visibility="collapsed", width=270,
                icon=":material/search:", placeholder="Find in responses: text or /regex/", max_chars=400,
            ).strip()  # fmt: skip
        if halves is not None:
            for name, high, key in zip(halves.names, (False, True), ("wrong", "right"), strict=True):
                st.button(
                    f"Next {name}", key=f"next-{'high' if high else 'low'}", shortcut=SHORTCUTS[key].press,
                    on_click=_go_on, args=(here, halves, high, text, window, go),
                    help=f"{_column(halves)} {'above' if high else 'at most'} {plain_number(halves.middle)}.",
                )  # fmt: skip
    if text:
        _found(text, window, opened, here, go)


def _searched(opened: Opened, logged: str) -> Window:
    """The chosen steps or all, of a large run the latest of them that are searched in a moment."""
    whole, values = Window.of(opened.run, *state.step_range()), opened.summary.values["n_tokens"]
    return (
        whole.latest(values, TOKENS_SEARCHED[logged]) if logged and len(values.loc[whole.first : whole.last]) else whole
    )


def _found(text: str, window: Window, opened: Opened, here: Place, go: Callable[[int, int], None]) -> None:
    try:
        with st.spinner("Searching"):
            found = _responses_with(window, text)
    except RatioscopeError as error:
        st.text(safe(error))
        return
    chosen = opened.summary.values.loc[state.step_range()[0] or 0 :].index  # empty where a link asks for later steps
    less = " Earlier steps were not searched: choose them." if len(chosen) and window.first > chosen[0] else ""
    more = f" The first {MOST_FOUND} are listed." if found.total > MOST_FOUND else ""
    if not found.total:
        st.caption(escape(f"No response of {window.words} has “{one_line(text)}”.{less}"))
        return
    have = "response has" if found.total == 1 else "responses have"
    st.caption(escape(f"{found.total:,} {have} “{one_line(text)}” in {window.words}.{more}{less}"))
    sequence_table(
        found.frame, key="found", alt=f"{found.total:,} responses in which the text was found", chosen=here,
        on_choice=go, rows=5,
    )  # fmt: skip


def _column(halves: RewardHalves) -> str:
    part = halves.column.removeprefix("reward").removeprefix("_")
    return f"Reward “{escape(part)}”" if part else "Reward"


def _go_on(
    here: Place,
    halves: RewardHalves,
    high: bool,
    text: str,
    window: Window,
    go: Callable[[int, int], None],
) -> None:
    try:
        last = window.last if text else None
        found = next_response(window.run(), here, halves.condition(high=high), text, last)
    except RatioscopeError as error:
        st.toast(escape(safe(error)), icon=":material/error:")
        return
    if found is None:
        beyond = " with this text" if text else ""
        st.toast(f"No {halves.names[high]}{beyond} after step {here[0]}, response {here[1]}.")
    else:
        go(*found)


@st.cache_data(max_entries=64, show_spinner=False)
def _halves(window: Window) -> RewardHalves | None:
    return reward_halves(window.run())


@st.cache_data(max_entries=32, show_spinner=False)
def _responses_with(window: Window, text: str) -> FoundResponses:
    return search_responses(window.run(), text, *window.steps)
