"""Bias and variance: which failure mode is it?"""

from functools import partial

import streamlit as st

from ratioscope.dashboard.components.blocks import beside, computed, draw, page_subject, say
from ratioscope.dashboard.components.fold import fold
from ratioscope.dashboard.components.frame import how_to_read, run_page
from ratioscope.dashboard.components.opening import nothing_here, opening
from ratioscope.dashboard.components.tile import metric_row
from ratioscope.dashboard.sections import clipping, variance
from ratioscope.dashboard.sections.subject import Subject

LEVELS = {"Tokens": "token", "Whole responses": "sequence"}
LEARNING_RATES = [*(float(f"{digit}e{power}") for power in range(-6, 0) for digit in (1, 2, 5)), 1.0]
SMOOTHNESS = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]


def render() -> None:
    """The page."""
    opened = run_page(variance.PAGE)
    if opened is None:
        return
    subject = page_subject(opened)
    if nothing_here(variance.PAGE, subject):
        return
    opening(variance.PAGE, subject, variance.answer(subject))
    if variance.PAGE.is_empty(subject):
        _probes(subject)
        _how_to_read()
        return
    _blind_spot(subject)
    metric_row(opened.summary, variance.PAGE.tiles)
    draw(*variance.remedies(subject))
    with fold("basis", "What this rests on") as door:
        if door.open:
            draw(*variance.rests_on(subject))
    _levels(subject)
    if clipping.can_judge(subject):
        with fold("truncation", "Truncated importance sampling: bias against variance") as door:
            if door.open:
                _truncation(subject)
    _probes(subject)
    _how_to_read()


def _blind_spot(subject: Subject) -> None:
    panels = variance.blind_spot(subject)
    beside(*panels)
    say(f"{panels[0].takeaway} Open circles cannot be trusted.")


def _levels(subject: Subject) -> None:
    with fold("levels", "Tokens against whole responses", metrics=variance.LEVELS) as door:
        if not door.open:
            return
        growth = variance.growth(subject)
        say(growth.takeaway)
        beside(growth, variance.sample_size(subject))
        found = computed(partial(variance.levels, subject), height=320)
        if found is not None:
            draw(found)


def _truncation(subject: Subject) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.selectbox(
            "Truncate the ratio of",
            list(LEVELS),
            key="tislevel",
            bind="query-params",
            width=220,
            help="Tokens: min(ρ, C), as in token-level TIS. Whole responses: min(W, C), W the product over the tokens.",
        )
        everything = st.checkbox(
            "All tokens of these steps",
            key="alltokens",
            bind="query-params",
            help=f"Off: at most {variance.SWEPT:,} tokens, a random sample of whole prompt groups.",
        )
    level, most = LEVELS[chosen], None if everything else variance.SWEPT
    found = computed(partial(variance.truncation, subject, level, most), height=440)
    if found is None:
        return
    curve, caps, unseen = found
    say(curve.takeaway)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        draw(curve)
    with right:
        draw(caps)
    if level == "token":
        draw(unseen)


def _probes(subject: Subject) -> None:
    """The SGA lemma on the run's gradient probes, or how to log probes."""
    estimators = variance.estimators(subject)
    title = "What bias and variance cost a step: the terms of the SGA lemma"
    with fold("probes", title, "" if estimators else "no gradient probe is logged") as door:
        if door.open and estimators:
            _lemma(subject, estimators)
        elif door.open:
            draw(variance.probes_table(variance.probes(subject)))
            say(
                "A probe estimates the true gradient from fresh on-policy samples and the algorithm's own one several "
                "times, on other prompts, and so tells bias from variance. The built-in trainer makes them with the "
                "setting probe_every; other training loops hand them to RunRecorder.record_step as probes."
            )
            st.code("ratioscope train sync_interval probe_every=10 probe_batches=8", language="shell")


def _lemma(subject: Subject, estimators: list[str]) -> None:
    left, middle, right = st.columns(3, gap="medium")
    eta = left.select_slider(
        "Learning rate η", LEARNING_RATES, value=1e-3, format_func=lambda rate: f"{rate:g}", key="eta",
        bind="query-params", help="Of the plain step θ + ηĝ. Adam's learning rate is not comparable.",
    )  # fmt: skip
    smoothness = middle.select_slider(
        "Smoothness L", SMOOTHNESS, value=10.0, format_func=lambda value: f"{value:g}", key="lipschitz",
        bind="query-params", help="How fast the gradient changes: ‖∇J(θ) − ∇J(θ′)‖ ≤ L‖θ − θ′‖. Not measured here.",
    )  # fmt: skip
    chosen = right.selectbox("Estimator", estimators, key="estimator") if len(estimators) > 1 else estimators[0]
    probes = variance.probes(subject, chosen)
    if not len(probes):
        draw(variance.probes_table(probes))
        return
    terms, rates = variance.lemma(subject, probes, eta, smoothness)
    say(terms.takeaway)
    left, right = st.columns(2, gap="medium")
    with left:
        draw(terms)
    with right:
        draw(rates)
    draw(variance.probes_table(probes))


def _how_to_read() -> None:
    how_to_read(
        r"""
Two failures of an off-policy gradient look alike in a loss curve and need opposite remedies (S1 4 to 7). **Bias**
comes from data of another policy that the weights do not correct; total variation measures how large it can be.
**Variance** comes from importance weights; $\chi^2(\pi\Vert\hat\pi)=\mathbb{E}\rho^2-1$ measures it. A small $\chi^2$
makes TV small, never the other way round:

$$\mathrm{TV}\le\tfrac12\sqrt{\chi^2}\ \ (\chi^2\le1),\qquad\mathrm{TV}\le\frac{\chi^2}{1+\chi^2}\ \ (\chi^2>1)$$

is the dashed curve: no policies lie below it, and χ² has no upper limit. Both panels have the same axes; of whole
responses χ² is the value that the tokens predict where the sample shows less. For responses of $T$ independent tokens,
$\log(1+\chi^2_{\mathrm{seq}})=T\log(1+\chi^2_{\mathrm{token}})$: variance grows exponentially with the length.

Truncation at $C$ trades one for the other: $\min(\rho,C)$ removes $\mathbb{E}(\rho-C)^+$ of the mass (bias) and caps
the square (variance). The proxies ignore the rewards: they show what could go wrong, not what did.

A probe measures both on the gradient itself. For the plain step $\theta+\eta\hat g$ on an $L$-smooth objective

$$\mathbb{E}J(\theta+\eta\hat g)-J(\theta)\ge\underbrace{\eta(1-\tfrac{L\eta}2)\lVert\nabla J\rVert^2}_{A}
+\underbrace{\eta(1-L\eta)\langle\nabla J,\mathrm{Bias}\rangle}_{B}
-\underbrace{\tfrac{L\eta^2}2(\mathrm{Var}+\lVert\mathrm{Bias}\rVert^2)}_{C}$$

Open circles are unreliable values: the tail of the ratios is too heavy. Where most of them are open,
the page says that it cannot tell.
"""
    )
