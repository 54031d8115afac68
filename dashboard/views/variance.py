"""The SGA lemma on a run's gradient probes, on the page of bias and variance."""

import streamlit as st

from ratioscope.dashboard.components.blocks import draw, say
from ratioscope.dashboard.sections import variance
from ratioscope.dashboard.sections.subject import Subject

LEARNING_RATES = [*(float(f"{digit}e{power}") for power in range(-6, 0) for digit in (1, 2, 5)), 1.0]
SMOOTHNESS = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]


def probes(subject: Subject) -> None:
    """Its terms at a learning rate and a smoothness, or how to log probes."""
    if estimators := variance.estimators(subject):
        _lemma(subject, estimators)
        return
    draw(variance.probes_table(variance.probes(subject)))
    say(
        "A probe estimates the true gradient from fresh on-policy samples, and the algorithm's own one several "
        "times on other prompts. So it tells bias from variance. The built-in trainer makes them with the "
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
