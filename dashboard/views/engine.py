"""Engine: is the engine mismatch hurting?"""

from functools import partial

import streamlit as st

from ratioscope.analysis.engine import sentences
from ratioscope.analysis.engine.remedies import title_of
from ratioscope.analysis.engine.verdict import Verdict
from ratioscope.analysis.findings.facts import STALENESS
from ratioscope.dashboard.components.blocks import draw, draw_computed, page_subject, say
from ratioscope.dashboard.components.fold import fold
from ratioscope.dashboard.components.frame import how_to_read, run_page
from ratioscope.dashboard.components.opening import opening
from ratioscope.dashboard.components.tile import metric_row
from ratioscope.dashboard.sections import engine
from ratioscope.dashboard.sections.subject import Subject


def render() -> None:
    """The page."""
    opened = run_page(engine.PAGE)
    if opened is None:
        return
    subject = page_subject(opened)
    said = st.container()
    if len(subject.summary.values):
        with said, st.skeleton(height=48):
            sentence = engine.answer(subject)
    else:
        sentence = engine.answer(subject)
    with said:
        opening(engine.PAGE, subject, sentence)
    if len(subject.summary.values):
        draw(*engine.parts(subject), caption="below")
        repeated = engine.repeats_staleness(subject)
        metric_row(opened.summary, [key for key in engine.PAGE.tiles if not (repeated and key == STALENESS)])
        _folds(subject)
    _how_to_read()


def _folds(subject: Subject) -> None:
    if engine.differs(subject):
        with fold("where", "Where it sits", sentences.sits(engine.placed(subject)), icon=":material/place:") as door:
            if door.open:
                draw_computed(partial(engine.places, subject), height=300)
        signs = engine.like(subject)
        with fold("kind", "What it is like", signs.like.value if signs else "", icon=":material/fingerprint:") as door:
            if door.open:
                draw_computed(partial(engine.kind, subject), height=300)
    facts = engine.facts(subject)
    if facts.effects and not facts.broken:
        with fold("effects", "What it does", "size, variance, clip, bias, each against its limit") as door:
            if door.open:
                draw(*engine.effects(subject))
    if own := engine.own_framework(subject):
        with fold("remedy", "What to set", title_of(own), opened=facts.verdict is Verdict.HURTS) as door:
            if door.open:
                _advice(subject, own)
    others = engine.frameworks(subject)
    title = "The same in other frameworks" if own else "What to set"
    with fold("others", title, ", ".join(map(title_of, others))) as door:
        if door.open:
            chosen = st.selectbox(
                "Framework", others, format_func=title_of, key="framework", bind="query-params", width=340
            )
            _advice(subject, chosen)


def _advice(subject: Subject, framework: str) -> None:
    """The settings as one copies them."""
    for one in engine.advice(subject, framework):
        say(f"{one.purpose.value}: {one.effect}.")
        st.code(one.setting, language=None, wrap_lines=True)


def _how_to_read() -> None:
    how_to_read(
        r"""
Two engines that hold the same weights should give a token the same probability: the sampler's $b$ and the trainer's
$b'$. With $x=b'-b$ of their log-probabilities, the engine's part is $\mathrm{mean}(1-e^{x})^+$, a total variation in
the form of all parts of the path. It is known where the trainer recomputes the version that sampled
(logp_behavior_train), and on tokens that the policy's own version sampled (lag 0).

It *hurts* where one of these is beyond its limit: its size in a tenth of the steps (three at least), beyond noise; the
variance of its ratio, $\mathrm{mean}(e^x-1)^2$, for a loss that multiplies by ratios; the share of the clipped tokens
that would be kept without it; and its bias, $\sum A(e^x-1)$ against what the update gains,
$\sum A(\rho_{k+1}-\rho_k)$: the engine then decides more of the surrogate than the update does. A finding about the
sampler that is more than good to know counts as well.

Skew compares corrections $-(r-1)A$ by the trainer's and by the sampler's denominators, by the sign of the advantage:
a KL does not see it.

A difference of logits moves a log-probability by about $1-p$ times itself, so that rounding and other weights follow
the dashed line. A temperature does not; truncation shifts all of them down, and the mean ratio is the mass that was
kept.
"""
    )
