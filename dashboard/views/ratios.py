"""Ratios: how heavy are the tails?"""

from collections.abc import Sequence
from functools import partial

import streamlit as st

from ratioscope.analysis.drift.pairs import PAIRS
from ratioscope.dashboard.components.as_reported import as_reported
from ratioscope.dashboard.components.blocks import beside, computed, draw, page_subject
from ratioscope.dashboard.components.fold import fold
from ratioscope.dashboard.components.frame import how_to_read, run_page
from ratioscope.dashboard.components.opening import nothing_here, opening
from ratioscope.dashboard.components.tile import metric_row
from ratioscope.dashboard.sections import ratios
from ratioscope.dashboard.sections.model import Chart, Paragraph
from ratioscope.dashboard.sections.subject import Subject


def render() -> None:
    """The page."""
    opened = run_page(ratios.PAGE)
    if opened is None:
        return
    subject = page_subject(opened)
    pairs = ratios.pairs(subject)
    if nothing_here(ratios.PAGE, subject):
        return
    opening(ratios.PAGE, subject, ratios.answer(subject))
    if pairs:
        _of_pair(subject, pairs)
    else:
        metric_row(opened.summary, ratios.PAGE.tiles)
    _weights(subject)
    as_reported(subject, "ratios")
    _explanation()


def _of_pair(subject: Subject, pairs: Sequence[str]) -> None:
    """Both tails first; where the ratios are over the steps, and the length trap, folded."""
    above = st.container()
    metric_row(subject.opened.summary, ratios.PAGE.tiles)
    with above:
        pair = _pair(pairs)
        missing = computed(partial(ratios.missing, subject, pair), height=340)
        if missing:
            st.info(missing, icon=":material/info:")
        if missing != "":
            return
        _tails(subject, pair)
    with fold("fan", f"Quantiles of {pair} over the steps", metrics=ratios.QUANTILES) as door:
        if door.open:
            _over_steps(subject, pair, fan=True)
    with fold("heat", f"Every ratio {pair} over the steps") as door:
        if door.open:
            _over_steps(subject, pair, fan=False)
    with fold("lengths", "The length trap: why the product over a response spreads") as door:
        if door.open:
            _lengths(subject, pair)


def _pair(pairs: Sequence[str]) -> str:
    """Which ratio the charts of distributions are of, among those that are logged."""
    told = "\n\n".join(f"**{name}**: {PAIRS[name].title}. {PAIRS[name].tells}" for name in pairs)
    chosen = st.segmented_control(
        "Ratio",
        pairs,
        default=pairs[0],
        key="ratio",
        bind="query-params",
        help="Probability of each sampled token under the first policy, divided by that under the second.\n\n" + told,
    )
    return chosen if chosen is not None and chosen in pairs else pairs[0]


def _tails(subject: Subject, pair: str) -> None:
    """Both tails of the ratio of tokens and of responses, each with its Pareto fit."""
    found = computed(partial(ratios.tails, subject, pair), height=340)
    if found is not None:
        note, *both = found
        beside(*both, caption="below")
        draw(note)


def _over_steps(subject: Subject, pair: str, *, fan: bool) -> None:
    found = computed(partial(ratios.where_they_are, subject, pair), height=340)
    if found is not None:
        heat, quantiles, left_out = found
        if fan:
            draw(quantiles, left_out, caption="below")
        else:
            draw(heat)


def _lengths(subject: Subject, pair: str) -> None:
    trap = computed(partial(ratios.lengths, subject, pair), height=400)
    if trap is None or len(trap) == 1:
        draw(*(trap or ()))
        return
    spread, finished, quantiles = trap
    if isinstance(spread, Chart):
        draw(Paragraph(spread.takeaway))
    left, right = st.columns(2, gap="medium")
    with left:
        draw(spread, finished)
    with right:
        draw(quantiles, caption="below")


def _weights(subject: Subject) -> None:
    """What weighting costs, step by step: tail index, effective sample size, chi-square; always of current/behavior."""
    if ratios.PAGE.is_empty(subject):
        return
    with fold("khat", "Tail index over the steps: can means and squares be estimated?", metrics=ratios.INDICES) as door:
        if door.open:
            draw(*ratios.tail_index(subject), ratios.rests_on(subject))
    with fold("cost", "Effective sample size and χ² over the steps", metrics=ratios.COSTS) as door:
        if door.open:
            beside(ratios.sample_size(subject), ratios.variance(subject), caption="below")


def _explanation() -> None:
    how_to_read(
        r"""
**Ratios.** $\rho_k=\pi_k/\hat\pi$ weighs every importance-sampled number; $\rho_{k+1}=\pi_{k+1}/\hat\pi$ is what PPO
clips, $r=\pi_{k+1}/\pi_k$ the update. For every pair, each sampled token counts the same here.

**Tail index** (Vehtari et al., Pareto-smoothed importance sampling). A generalised Pareto distribution is fitted to the
$\min(n/5,\,3\sqrt n)$ largest weights; its shape is $\hat k$:
$$P(\rho>x)\propto\Bigl(1+\hat k\,\frac{x-u}{\sigma}\Bigr)^{-1/\hat k}\ \text{ for }x>u,\qquad
\text{moments of }\rho\text{ up to }1/\hat k\text{ exist.}$$
Means of $\rho$: below 0.5 good, 0.5 to 0.7 usable, 0.7 to 1 unreliable, above 1 meaningless; with $n$ weights already
unreliable from $\min(1-1/\log_{10}n,\,0.7)$ on. The square of $\rho$ has an index twice as large. The index describes
the tail; whether $\chi^2$ and effective sample size can be trusted depends on how much the largest ratio alone moves
them: above 0.3 standard errors they are marked by open circles, by a strip on the upper edge where these are many,
and their intervals have only one end.
Tails with ties or within rounding are not fitted: an open circle at the bottom, with the reason.

**Both tails.** The upper tail of $\rho$ makes the variance of importance weights. The lower tail is the upper tail of
$1/\rho$, for which $\mathrm{mean}\,1/\rho_k=1+\chi^2(\hat\pi\Vert\pi_k)$: tokens that the policy has abandoned and that
gradients keep pushing on. On these axes a Pareto tail is a straight line of slope $-1/\hat k$.

**Effective sample size** (Kish) and **$\chi^2$** (S1 4.2):
$$\mathrm{ESS}=\frac{(\sum\rho)^2}{n\sum\rho^2}\qquad \chi^2_{\mathrm{token}}=\mathrm{mean}(\rho_k-1)^2\qquad
\chi^2_{\mathrm{seq}}=\mathrm{mean}(W_k-1)^2,\ W_k=\prod_t\rho_{k,t}$$
$1/\mathrm{ESS}-1$ is the self-normalised $\chi^2$.

**The length trap** (S1 7). For independent tokens with spread $\sigma$ of $\log\rho$,
$$\mathrm{Var}\log W=T\sigma^2,\qquad 1+\chi^2_{\mathrm{seq}}=(1+\chi^2_{\mathrm{token}})^T,\qquad
\mathrm{Var}\log W^{1/T}=\sigma^2/T.$$
The dashed lines show this; points above them mean dependence within responses. The geometric mean
$W^{1/T}$ shrinks instead, but it is not an importance ratio: its mean is not 1, and nothing weighted by it is
unbiased. It trades variance for bias.

**Rows left out.** NaN, infinite and positive log-probs and non-finite advantages are excluded from every mean and
counted; one such token leaves its response without $W$. A ratio of exactly 0
($\log\pi_k=-\infty$) is valid and stays.
"""
    )
