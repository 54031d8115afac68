"""Drift: staleness, engine, or the update?"""

from functools import partial

import streamlit as st

from ratioscope.analysis.drift.pairs import Aggregation, Level
from ratioscope.dashboard.components.as_reported import as_reported
from ratioscope.dashboard.components.blocks import beside, computed, draw, draw_computed, page_subject, say
from ratioscope.dashboard.components.fold import fold
from ratioscope.dashboard.components.frame import how_to_read, run_page
from ratioscope.dashboard.components.opening import nothing_here, opening
from ratioscope.dashboard.components.tile import metric_row
from ratioscope.dashboard.sections import drift
from ratioscope.dashboard.sections.subject import Subject

TILES = ("s_k_bounded", "u_k", "tv_new_behavior_bounded")

# Whose ratio the path is measured in: words for (level, aggregation) of `analysis.drift.pairs`.
LEVELS: dict[str, tuple[Level, Aggregation]] = {
    "Tokens": ("token", "token"),
    "Tokens, averaged within responses first": ("token", "sequence"),
    "Whole responses": ("sequence", "token"),
    "Geometric means of responses": ("geometric", "token"),
}
# Discounts of the certificate; the first is 1 - 1 / mean length.
DISCOUNTS: dict[str, float | None] = {"by length": None} | {
    f"{gamma:g}": gamma for gamma in (0.0, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
}


def render() -> None:
    """The page."""
    opened = run_page("Drift", drift.QUESTION)
    if opened is None:
        return
    subject = page_subject(opened)
    if nothing_here(subject, "drift"):
        return
    opening(subject, "drift", drift.answer(subject))
    draw(drift.distances(subject))
    metric_row(opened.summary, TILES)
    _path(subject)
    if parts := drift.triangle(subject):
        with fold("triangle", "Staleness and update against what PPO clips") as door:
            if door.open:
                draw(*parts, caption="above")
    metrics = ("s_k", "kl_k1", "kl_k2", "kl_k3", "ratio_mean")
    with fold("forms", "Plain form, KL and mean ratio", metrics=metrics) as door:
        if door.open:
            beside(drift.bounded(subject), drift.divergence(subject), drift.mean_ratio(subject), across=2)
            say(drift.FORMS)
    _exact(subject)
    _certificate(subject)
    _clip(subject)
    as_reported(subject, "drift")
    _how_to_read()


def _path(subject: Subject) -> None:
    with fold("path", "The path of policies", drift.path_in_words(subject), opened=True) as door:
        if not door.open:
            return
        level = st.selectbox(
            "Ratio of",
            list(LEVELS),
            key="pathlevel",
            bind="query-params",
            width=340,
            help="Geometric means and means of means are not importance ratios, so their mean need not be 1.",
        )
        found = computed(partial(drift.path, subject, *LEVELS[level]), height=310)
    if found is None:
        return
    with door:
        beside_answer = drift.path_beside(subject, *LEVELS[level])
        say(beside_answer)
        draw(found[0], caption="" if beside_answer else "above")
    with fold("pathnumbers", "The path in numbers") as numbers:
        if numbers.open:
            draw(*found[1:], *drift.rounding(subject))


def _exact(subject: Subject) -> None:
    compared = drift.exact(subject)
    with fold("exact", "Exact against sampled", "" if compared else "full distributions are not logged") as door:
        if not door.open:
            return
        if not compared:
            say(
                "Nothing checks the samples here. A training loop that has all logits can log tv_current_behavior and "
                "tv_new_current for every token; the built-in trainer does with exact=true."
            )
            return
        say(compared[0].takeaway)
        beside(*compared)
        draw(*drift.standard_errors(subject))


def _certificate(subject: Subject) -> None:
    absent = subject.log.absent("certificate")
    with fold("certificate", "What theory says of the updates", "not known here" if absent else "") as door:
        if not door.open:
            return
        if absent:
            draw(*drift.bound(subject))
            return
        gamma = st.select_slider(
            "Discount γ",
            list(DISCOUNTS),
            key="gamma",
            bind="query-params",
            width=420,
            help="How far the effect of an update reaches: 1/(1 − γ) tokens. By length: γ = 1 − 1/mean response "
            "length. 0: the whole response is one action.",
        )
        draw_computed(partial(drift.bound, subject, DISCOUNTS[gamma]), height=400, caption="above")


def _clip(subject: Subject) -> None:
    with fold("clip", "Can a clip around 1 be met?") as door:
        if door.open:
            draw_computed(partial(drift.clip, subject), height=300)


def _how_to_read() -> None:
    how_to_read(
        r"""
Samples come from the sampler $\hat\pi$; the update starts at $\pi_k$ and ends at $\pi_{k+1}$. All distances are total
variations, estimated from the sampled tokens:

$$S_k^+=\mathrm{mean}(1-\rho_k)^+\qquad \mathrm{TV}^+(\pi_{k+1},\hat\pi)=\mathrm{mean}(1-\rho_{k+1})^+\le S_k^++U_k^+
\qquad U_k^+=\mathrm{mean}(\rho_k-\rho_{k+1})^+$$

This bounded form lies in $[0,1]$ for distances from the sampler and is exact where the sampler excludes tokens; parts
in it add up to at least the whole. The plain form $S_k=\tfrac12\,\mathrm{mean}|\rho_k-1|$ (S0 4.6) is equal to it where
the mean ratio is 1. As a number of its own the update is $U_k=\tfrac12\,\mathrm{mean}|\rho_{k+1}-\rho_k|$, which has
less noise and which a clip of width $\varepsilon$ keeps below $\varepsilon/2$.

Schedule and engine cause staleness; the loss causes the update. Standard PPO clips their sum: when
$S_k^+$ alone comes near $\varepsilon/2$, its clip leaves no room to learn, and the remedy is fresher data or a clip
centred at $\rho_k$. Where the training engine has recomputed the sampled log-probs, $S_k^+$ splits into engine and age.

The certificate (S0 Corollary 3.2) bounds the improvement from below,

$$J(\pi_{k+1})-J(\pi_k)\ge L-C_1U_k^\gamma-C_2S_k^\gamma,\qquad C_1=\frac{2\gamma\lVert A\rVert}{(1-\gamma)^2},\quad
C_2=C_1+\frac{2\lVert A\rVert}{1-\gamma}$$

with distances in their bounded form, and is vacuous where the penalties exceed every possible difference of returns.
The run is not to blame: the factors grow with the square of the horizon. The gain is in-sample: it is measured on the
responses that the update was fitted to, so it looks larger than it is, and even a lower end above 0 proves nothing.
The axis is linear near 0 and logarithmic beyond.

A clip of width $\varepsilon$ around 1 keeps the new policy within $\varepsilon/2$ of the version that sampled. Where
two versions are further than $\varepsilon$ apart in a state, no policy is that close to both (S0 Observation 3.1).

Bands are 95% intervals over prompt groups. Open circles, a strip on the upper edge where they are
many, and dotted edges are unreliable values: the tail of the ratios is too heavy.
"""
    )
