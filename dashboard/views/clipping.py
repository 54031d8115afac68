"""What another rule would clip, where the gradient comes from, and the stated gate beside the log: on Clipping."""

import numpy as np
import pandas as pd
import streamlit as st

from ratioscope.analysis.clipping.rule_shape import replay_sentence
from ratioscope.analysis.what_if import MeasureCurve, Rule
from ratioscope.dashboard import state
from ratioscope.dashboard.components.blocks import draw
from ratioscope.dashboard.components.chart import step_chart
from ratioscope.dashboard.components.fold import fold
from ratioscope.dashboard.components.judged import TokensPlace, digest_of, own_of, shares_of, start_of
from ratioscope.dashboard.figures import clipping as figures
from ratioscope.dashboard.formats import escape, share
from ratioscope.dashboard.sections import clipping
from ratioscope.dashboard.sections.subject import Subject
from ratioscope.dashboard.session import session
from ratioscope.dashboard.views.what_if import place_of_tokens, what_if
from ratioscope.errors import RatioscopeError


def whatif(subject: Subject) -> None:
    """What-if, drawn again by itself when a slider moves."""
    what_if(state.lent(subject.opened), state.step_range(), session().clicked_step)


def gradient(subject: Subject) -> None:
    """Tokens and groups that have a gradient, and where it comes from, before and behind the gate."""
    draw(*clipping.logged(subject)[-1:])
    if not clipping.can_judge(subject):
        return
    place = place_of_tokens(subject.opened)
    own = own_of(place.window).rule
    try:
        before = shares_of(place, str(own)) if own else None
    except RatioscopeError:  # what-if has said why
        return
    draw(*clipping.who_drives(subject, place.window, before), caption="below")


def replay(subject: Subject) -> None:
    """The stated gate replayed on the log-probs beside the logged clipping; nothing where neither clips a token."""
    summary, place = subject.opened.summary, place_of_tokens(subject.opened)
    own: Rule | None = own_of(place.window).rule
    if own is None:
        return
    try:
        replayed = digest_of(place, str(own))
    except RatioscopeError:
        return
    curve = replayed.curves["clip_fraction"]
    assert curve is not None
    gate = pd.Series(curve.values, index=list(replayed.steps))
    inside = summary.values["clip_fraction"].loc[place.window.first : place.window.last]
    if not inside.any() and not gate.any():
        return
    beside = f"{share(inside.mean())} by the log" if inside.notna().any() else "the log has no clip mask"
    with fold("replay", "The stated gate against the log", f"{share(gate.mean())} replayed, {beside}") as door:
        if door.open:
            _replayed(place, own, inside, gate, curve)


def _replayed(
    place: TokensPlace, own: Rule, inside: "pd.Series[float]", gate: "pd.Series[float]", curve: MeasureCurve
) -> None:
    logged: np.ndarray = inside.to_numpy(dtype=float)
    lines = {"logged": (list(inside.index), MeasureCurve.bare(logged))}
    frame = pd.DataFrame({"logged": inside, "gate, replayed": gate})
    start = start_of(place, str(own))
    if start is not None and start.curves["clip_fraction"] is not None:
        # After several passes the ratios have moved: raw is what the gate says of the data as they came.
        lines["gate, first pass"] = (list(start.steps), start.curves["clip_fraction"])
        frame["gate, first pass"] = pd.Series(start.curves["clip_fraction"].values, index=list(start.steps))
    else:
        lines["gate, replayed"] = (list(gate.index), curve)
    sentence = replay_sentence(inside, gate)
    st.markdown(escape(sentence))
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
