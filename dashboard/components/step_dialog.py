"""What a click on a step opens: the responses that make the clicked chart's number, and the worst of them to read."""

import streamlit as st

from ratioscope.analysis.clipping.sentences import SHARES, cannot_clip
from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.findings.facts import STALENESS, UPDATE_METRIC
from ratioscope.analysis.runs.window import Window
from ratioscope.analysis.tokens.contributions import STAND_INS, contributions_sentence
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.annotations import LONGEST_PIN, MOST_PINS, annotation_of, write_annotation
from ratioscope.dashboard.components.blocks import say
from ratioscope.dashboard.components.leave import leave_for
from ratioscope.dashboard.components.sequence_reader import short_reader
from ratioscope.dashboard.components.sequences import (
    by_picker,
    criterion_label,
    in_the_plain_form,
    position_of,
    sequence_table,
    worst,
)
from ratioscope.dashboard.components.tile import tooltip
from ratioscope.dashboard.formats import escape, estimate, metric_value
from ratioscope.dashboard.sections.tokens import sorted_by
from ratioscope.dashboard.session import session
from ratioscope.errors import RatioscopeError
from ratioscope.inert import safe

# Beside the number that was clicked; what is not logged is left out.
NUMBERS = (STALENESS, "reward", "ratio_max", UPDATE_METRIC, "clip_fraction", "version_lag")
_ACROSS = 4


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
    session().clicked_step, session().clicked_metric = None, ""


def _content(opened: Opened, step: int) -> None:
    said = st.container()
    asked = session().clicked_metric
    by = by_picker("step-by", sorted_by(opened.summary), asked=asked, in_url=False)
    window = Window.of(opened.run, step, step)
    try:
        found = worst(window, by)
    except RatioscopeError as error:
        st.error("The responses of this step cannot be read.", icon=":material/error:")
        st.text(safe(error))
        return
    with said:
        st.markdown(f"**{escape(contributions_sentence(found, window.words))}**")
        if asked in STAND_INS:
            say(
                f"{CATALOGUE[asked].title} is not made of this step's responses; they are sorted by their part of "
                f"another number, {CATALOGUE[STAND_INS[asked]].title}."
            )
        say(in_the_plain_form(window, by, found))
        _numbers(opened, step, by if by in CATALOGUE else asked)
    chosen: tuple[int, int] | None = None
    if len(found.frame):
        first = (step, int(found.frame["seq_id"].iloc[0]))
        alt = f"The first {len(found.frame)} responses of step {step} by: {criterion_label(by)}"
        chosen = sequence_table(found.frame, key="step-worst", alt=alt, what=found.what, chosen=first, rows=5)
    _note(opened, step)
    place = {"seq": str(chosen[1])} if chosen else {}
    if st.button("Open on the Tokens page", icon=":material/arrow_forward:", type="primary", key="step-open"):
        forget()
        leave_for(
            "tokens", {"run": opened.run_id, "step": str(step), "where": "this step", "by": criterion_label(by)} | place
        )
    if chosen:
        short_reader(opened, *chosen, position_of(found.frame, chosen))


def _note(opened: Opened, step: int) -> None:
    """The user's note on the step."""
    folder, key, failed = opened.run.folder, f"pin-{opened.run_id}-{step}", f"pin-failed-{step}"
    noted = dict(annotation_of(folder).pins)

    def save() -> None:
        text = st.session_state[key]
        if len(text) > LONGEST_PIN:
            st.session_state[failed] = f"It has {len(text):,} characters; {LONGEST_PIN} are the most."
            return
        try:  # what the run's tags and notes are now, not what they were when the dialog opened
            write_annotation(folder, annotation_of(folder).pinned(step, text))
            st.session_state.pop(failed, None)
        except OSError as error:
            st.session_state[failed] = safe(error)

    full = step not in noted and len(noted) >= MOST_PINS
    hint = "drawn as a line in charts over the steps of this run, and in reports"
    st.text_input(
        "Your note on this step", noted.get(step, ""), key=key, on_change=save, disabled=full,
        placeholder=f"{MOST_PINS} steps have a note: empty one of them first" if full else hint,
        icon=":material/push_pin:",
    )  # fmt: skip
    if noted.get(step):
        st.caption("Noted. The charts show it when this is closed.")
    if failed in st.session_state:
        st.error("The note could not be saved.", icon=":material/error:")
        st.text(st.session_state[failed])


def _numbers(opened: Opened, step: int, asked: str) -> None:
    """The metrics of the step with their intervals, or why a value is missing or unreliable."""
    summary = opened.summary
    without = SHARES if cannot_clip(opened.run.manifest, summary.values) else ()
    wanted = dict.fromkeys(key for key in (asked, *NUMBERS) if key in CATALOGUE and key not in without)
    known = [key for key in wanted if summary.values[key].notna().any()][:_ACROSS]
    for column, key in zip(st.columns(_ACROSS), known, strict=False):
        value, low, high = (float(frame[key].loc[step]) for frame in (summary.values, summary.low, summary.high))
        text = metric_value(key, value, low, high)
        beside = estimate(key, value, low, high, summary.note(step, key)).removeprefix(text).strip(" ()–")
        column.metric(
            CATALOGUE[key].label,
            text,
            delta=beside or None,
            delta_color="off",
            delta_arrow="off",
            help=tooltip(key),
        )
