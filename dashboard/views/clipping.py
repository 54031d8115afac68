"""Clipping: what did the loss throw away?"""

import pandas as pd
import streamlit as st

from ratioscope.analysis.clipping.rule_shape import replay_sentence
from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.what_if import Curve, Rule
from ratioscope.dashboard import state
from ratioscope.dashboard.components.as_reported import as_reported
from ratioscope.dashboard.components.blocks import beside, draw, page_subject, say
from ratioscope.dashboard.components.chart import step_chart
from ratioscope.dashboard.components.fold import fold
from ratioscope.dashboard.components.frame import how_to_read, run_page
from ratioscope.dashboard.components.judged import Place, digest_of, own_of, shares_of, start_of
from ratioscope.dashboard.components.opening import nothing_here, opening
from ratioscope.dashboard.components.tile import metric_row
from ratioscope.dashboard.figures import clipping as figures
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.sections import clipping
from ratioscope.dashboard.sections.subject import Subject
from ratioscope.dashboard.session import session
from ratioscope.dashboard.views.what_if import place_of, what_if
from ratioscope.errors import RatioscopeError
from ratioscope.inert import one_line


def render() -> None:
    """The page."""
    opened = run_page(clipping.PAGE)
    if opened is None:
        return
    subject = page_subject(opened)
    can_judge = clipping.can_judge(subject)
    if nothing_here(clipping.PAGE, subject):
        return
    opening(clipping.PAGE, subject, clipping.answer(subject))
    if can_judge and not clipping.answer(subject):
        say("What a rule would clip follows from the log-probs: see what-if below.")
    *clipped, used = clipping.logged(subject)
    if any(chart.data["clip_fraction"].any() for chart in clipped if "clip_fraction" in chart.data):
        beside(*clipped)
    elif clipped and clipping.answer(subject):
        say("No token was clipped in any step.")
    if can_judge and subject.cannot_clip:  # then this is what the page is for
        what_if(opened, state.step_range(), session().clicked_step)
        metric_row(opened.summary, subject.applicable(clipping.PAGE.tiles))
    else:
        metric_row(opened.summary, subject.applicable(clipping.PAGE.tiles))
        if can_judge:
            what_if(opened, state.step_range(), session().clicked_step)
    with fold("used", "What is left to learn from") as door:
        if door.open:
            draw(used)
    if can_judge:
        place = place_of(opened)
        with fold("gradient", "Where the gradient comes from", "by the sign of the advantage and the ratio") as door:
            if door.open:
                _who_drives(subject, place)
        with fold("replay", "The stated gate against the log", "raw beside applied") as door:
            if door.open:
                _replay(opened, place)
    as_reported(subject, "clipping")
    _explanation(opened)


def _who_drives(subject: Subject, place: Place) -> None:
    own = own_of(place.window).rule
    try:
        before = shares_of(place, str(own)) if own else None
    except RatioscopeError:  # what-if has said why
        return
    draw(*clipping.who_drives(subject, place.window, before), caption="below")


def _replay(opened: Opened, place: Place) -> None:
    """Raw beside applied: the stated gate replayed on the log-probs, and the clipping that was logged."""
    summary = opened.summary
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
    lines = {"logged": (list(inside.index), Curve.bare(inside.to_numpy(dtype=float)))}
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


def _explanation(opened: Opened) -> None:
    how_to_read(
        r"""
One-sided gates (S3 eq. 8) stop a token's gradient when $A>0$ and $\rho>1+\varepsilon_{high}$, or $A<0$ and
$\rho<1-\varepsilon_{low}$: the policy has already moved that way. The first charts show what the loss did at its
last pass, not a mask derived later. A mask stops gradients; it does not pull ratios back, and it does not bound
the update.

**What-if** applies any gate, filter and weight to the logged tokens. With gate $m$, weight $w$ and ratio $\rho$,
the applied weight of a token is $v=m\,w$, and over the tokens with $A\neq0$:

$$\text{kept gradient}=\frac{\sum v\,|A|}{\sum w\,|A|}\qquad
\text{ESS}=\frac{(\sum v)^2}{n\sum v^2}\qquad
\text{variance proxy}=\overline{v^2}\qquad
\text{bias proxy}=\overline{m\,(\rho-w)^+}+\overline{(1-m)\,\rho}$$

The *permitted drift* is half the mean step that a gate's bounds leave to the ratios: the largest $U_k$ that its masked
gradient asks for. The logged tokens stay as they are: under another rule, training would have led to other policies
and other tokens, which are not in the log.
"""
    )
    algorithm = opened.run.manifest.algorithm
    stated = [f"{name}: {algorithm[name]}" for name in ("parts", "parameters") if algorithm.get(name)]
    if stated:
        with st.expander("The rule as the run states it", icon=":material/rule:"):
            st.text(one_line(f"Algorithm {algorithm.get('name', 'not stated')}. {'; '.join(stated)}"))
