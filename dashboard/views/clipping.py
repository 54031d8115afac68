"""What another rule would clip, and the stated one beside the log: on the Clipping page."""

import pandas as pd
import streamlit as st

from ratioscope.analysis.clipping.rule_shape import replay_sentence
from ratioscope.analysis.what_if import MeasureCurve, Rule
from ratioscope.dashboard import state
from ratioscope.dashboard.components.blocks import draw
from ratioscope.dashboard.components.chart import step_chart
from ratioscope.dashboard.components.judged import digest_of, own_of, shares_of, start_of
from ratioscope.dashboard.figures import clipping as figures
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.sections import clipping
from ratioscope.dashboard.sections.subject import Subject
from ratioscope.dashboard.session import session
from ratioscope.dashboard.views.what_if import place_of_tokens, what_if
from ratioscope.errors import RatioscopeError
from ratioscope.inert import one_line


def whatif(subject: Subject) -> None:
    """What-if, drawn again by itself when a slider moves."""
    what_if(subject.opened, state.step_range(), session().clicked_step)


def gradient(subject: Subject) -> None:
    """Where the gradient comes from, before and behind the gate."""
    place = place_of_tokens(subject.opened)
    own = own_of(place.window).rule
    try:
        before = shares_of(place, str(own)) if own else None
    except RatioscopeError:  # what-if has said why
        return
    draw(*clipping.who_drives(subject, place.window, before), caption="below")


def replay(subject: Subject) -> None:
    """Raw beside applied: the stated gate replayed on the log-probs, and the clipping that was logged."""
    summary, place = subject.opened.summary, place_of_tokens(subject.opened)
    own: Rule | None = own_of(place.window).rule
    if own is None:
        return
    try:
        replayed, start = digest_of(place, str(own)), start_of(place, str(own))
    except RatioscopeError:
        return
    curve = replayed.curves["clip_fraction"]
    assert curve is not None
    gate = pd.Series(curve.values, index=list(replayed.steps))
    logged = summary.values["clip_fraction"]
    inside = logged.loc[place.window.first : place.window.last]
    lines = {"logged": (list(inside.index), MeasureCurve.bare(inside.to_numpy(dtype=float)))}
    frame = pd.DataFrame({"logged": inside, "gate, replayed": gate})
    if start is not None and start.curves["clip_fraction"] is not None:
        # After several passes the ratios have moved: raw is what the gate says of the data as they came.
        lines["gate, first pass"] = (list(start.steps), start.curves["clip_fraction"])
        frame["gate, first pass"] = pd.Series(start.curves["clip_fraction"].values, index=list(start.steps))
    else:
        lines["gate, replayed"] = (list(replayed.steps), curve)
    sentence = replay_sentence(inside, gate)
    st.markdown(escape(sentence))
    if not inside.any() and not gate.any():
        return
    step_chart(
        figures.against(lines, state.mode(), share=True, steps=state.step_range(), height=300),
        key="replay",
        metric="clip_fraction",
        title="Raw beside applied: the gate, the log",
        takeaway=sentence,
        data=frame.rename_axis("step"),
    )
    if place.sampled:
        st.caption("The replay uses a sample of the tokens.")


def stated(subject: Subject) -> None:
    """The rule in the words of the run."""
    algorithm = subject.opened.run.manifest.algorithm
    told = [f"{name}: {algorithm[name]}" for name in ("parts", "parameters") if algorithm.get(name)]
    if told:
        with st.expander("The rule as the run states it", icon=":material/rule:"):
            st.text(one_line(f"Algorithm {algorithm.get('name', 'not stated')}. {'; '.join(told)}"))
