"""What a click on a step opens: its numbers and its worst responses, with links to their tokens."""

import streamlit as st

from ratioscope.analysis.clipping.sentences import SHARES, cannot_clip
from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.findings.facts import STALENESS, UPDATE
from ratioscope.analysis.runs.window import Window
from ratioscope.analysis.tokens.worst_sequences import CRITERIA
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.components.leave import leave_for
from ratioscope.dashboard.components.sequences import criterion_picker, sequence_table, worst
from ratioscope.dashboard.components.tile import tooltip
from ratioscope.dashboard.formats import estimate, number
from ratioscope.dashboard.sections.tokens import criteria
from ratioscope.dashboard.session import session
from ratioscope.errors import RatioscopeError

# Those that say what kind of step it was; what is not logged is left out.
NUMBERS = ("reward", STALENESS, UPDATE, "ratio_max", "khat_token", "ess_seq", "clip_fraction", "version_lag")


def show_step(opened: Opened) -> None:
    """The dialog of the step in `session().clicked_step`, until it is closed; without one, nothing."""
    step = session().clicked_step
    if step is None:
        return
    if step not in opened.summary.values.index:
        forget()
        return
    st.dialog(f"Step {step}", width="large", on_dismiss=forget)(_content)(opened, int(step))


def forget() -> None:
    """Close the dialog: the next run of the page does not open it again."""
    session().clicked_step = None


def _content(opened: Opened, step: int) -> None:
    _numbers(opened, step)
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    with left:
        criterion = criterion_picker("step-by", criteria(opened.summary), in_url=False)
    with right, st.container(horizontal=True, horizontal_alignment="right"):
        everything = st.button("All about this step on the Tokens page", icon=":material/match_word:", key="step-all")
    try:
        frame = worst(Window.of(opened.run, step, step), criterion)
    except RatioscopeError as error:
        st.error("The responses of this step cannot be read.", icon=":material/error:")
        st.text(str(error))
        return
    chosen = None
    if len(frame):
        st.markdown("###### Worst responses: select one to read its tokens")
        chosen = sequence_table(
            frame.drop(columns="step").assign(step=step),
            key="step-worst",
            alt=f"The {len(frame)} worst responses of step {step} by: {CRITERIA[criterion].title}",
            criterion=criterion,
        )
        if st.button("Read the worst", icon=":material/arrow_forward:", type="primary", key="step-first"):
            chosen = (step, int(frame["seq_id"].iloc[0]))
    else:
        st.text(f"No response of step {step} has a value for: {CRITERIA[criterion].title}.")
    if chosen or everything:
        forget()
        query = {"run": opened.run_id, "step": str(step), "where": "this step", "by": CRITERIA[criterion].title}
        leave_for("tokens", query | ({"seq": str(chosen[1])} if chosen else {}))


def _numbers(opened: Opened, step: int) -> None:
    """The metrics of the step with their intervals, or why a value is missing or unreliable."""
    summary = opened.summary
    without = SHARES if cannot_clip(opened.run.manifest, summary.values) else ()
    known = [key for key in NUMBERS if key not in without and summary.values[key].notna().any()]
    for start in range(0, len(known), 4):
        for column, key in zip(st.columns(4), known[start : start + 4], strict=False):
            value, low, high = (float(frame[key].loc[step]) for frame in (summary.values, summary.low, summary.high))
            text = number(key, value, low, high)
            beside = estimate(key, value, low, high, summary.note(step, key)).removeprefix(text).strip(" ()–")
            column.metric(
                CATALOGUE[key].label,
                text,
                delta=beside or None,
                delta_color="off",
                delta_arrow="off",
                help=tooltip(key),
            )
