"""Ratios: how heavy are the tails?"""

from typing import NamedTuple

import pandas as pd
import streamlit as st

from ratioscope.analysis.drift.pairs import PAIRS
from ratioscope.analysis.findings import answers
from ratioscope.analysis.ratios import sentences as heavy_tails
from ratioscope.analysis.ratios.distributions import ByStep, Level, Survival, by_step, survivals
from ratioscope.analysis.ratios.growth import Growth, growth
from ratioscope.analysis.ratios.lengths import LengthTrap, length_trap
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.runs.window import Window
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.dashboard import state, theme
from ratioscope.dashboard.components.chart import plain_chart, step_chart
from ratioscope.dashboard.components.frame import answer, how_to_read, run_page
from ratioscope.dashboard.components.tile import metric_row
from ratioscope.dashboard.figures import ratios as figures
from ratioscope.dashboard.figures import tails as tail_figures
from ratioscope.dashboard.figures.kept import over_steps
from ratioscope.dashboard.figures.series import Limit
from ratioscope.dashboard.formats import count
from ratioscope.dashboard.opened import Opened

TILES = ("khat_token", "ess_token", "ess_seq", "log1p_chi2_seq")
QUANTILES = ["ratio_min", "ratio_p01", "ratio_p50", "ratio_p90", "ratio_p99", "ratio_p999", "ratio_max"]
# What grows with the length is measured on fewer tokens: every response is cut off at ten lengths.
LENGTH_TOKENS = 50_000

_IN_SUMMARY = "current/behavior"  # the pair whose quantiles the step summary has
_SYMBOLS = {
    "current/behavior": "ρ<sub>k</sub>",
    "new/behavior": "ρ<sub>k+1</sub>",
    "new/current": "r",
    "current/behavior_train": "ρ, version only",
    "behavior_train/behavior": "ρ, engine only",
}


class _Drawn(NamedTuple):
    """The pair that was chosen, and how figures show it."""

    name: str
    symbol: str
    colour: str


class _Key(NamedTuple):
    """What expensive results are kept under."""

    folder: str
    signature: str
    first: int
    last: int
    pair: str

    @property
    def where(self) -> str:
        return f"step {self.first}" if self.first == self.last else f"steps {self.first} to {self.last}"


def render() -> None:
    """The page."""
    opened = run_page("Ratios", "How heavy are the tails?")
    if opened is None:
        return
    answer(answers.ratios(opened.summary, opened.limits))
    metric_row(opened.summary, TILES)
    pair = _pair()
    first, last = state.window(opened).steps
    key = _Key(str(opened.run.folder), opened.run.signature, first, last, pair.name)
    with st.spinner(f"Reading the tokens of {key.where}"):
        tails = _tails(key)
    if tails["token"].n or pair.name == _IN_SUMMARY:
        _where_they_are(opened, pair, key)
        _both_tails(pair, key, tails)
        _by_length(opened, key)
    else:
        st.info(f"No ratio {pair.name} in {key.where}: {tails['token'].reason}.", icon=":material/info:")
    _weights(opened)
    _explanation()


def _pair() -> _Drawn:
    """Which ratio the charts of distributions are of."""
    name = st.segmented_control(
        "Ratio",
        list(PAIRS),
        default=_IN_SUMMARY,
        key="ratio",
        bind="query-params",
        help="A pair of policies: the probability of each sampled token under the first, divided by that under the "
        "second. behavior_train is the sampling version in the training engine, where it is logged.",
    )
    name = name if name in PAIRS else _IN_SUMMARY
    st.caption(f"{PAIRS[name].title}. {PAIRS[name].tells}")
    numerator = PAIRS[name].numerator
    colours = {"logp_current": theme.CURRENT, "logp_new": theme.NEW}
    return _Drawn(name, _SYMBOLS[name], colours.get(numerator, state.mode().behavior))


def _where_they_are(opened: Opened, pair: _Drawn, key: _Key) -> None:
    """The heat map and the quantiles over steps, and what was left out of them."""
    mode, steps = state.mode(), state.step_range()
    shown, of = opened.summary, "every step"
    if pair.name != _IN_SUMMARY:
        with st.spinner(f"Reading the tokens of {key.where}"):
            read = _steps(key)
        shown, of, steps = read.in_place_of(opened.summary.up_to(key.first, key.last)), key.where, (key.first, key.last)
    inside = shown.up_to(*steps)
    spread = heavy_tails.spread(inside)
    step_chart(
        figures.heat_map(inside, mode, steps, ratio=pair.symbol),
        key="heat",
        title=f"Where the ratios {pair.name} are: the tokens of {of}",
        takeaway=f"Heat map of the token ratios over the updates, finer near 1. {spread}",
        data=inside.histogram,
    )
    st.caption(spread)
    step_chart(
        figures.quantile_fan(shown, mode, steps, ratio=pair.symbol, colour=pair.colour),
        key="fan",
        title=f"Quantiles of the ratio {pair.name}; the band holds 98 % of the tokens",
        takeaway=spread,
        data=inside.values[QUANTILES],
    )
    _left_out(opened.summary.up_to(*steps), steps)


def _left_out(inside: StepSummary, steps: tuple[int | None, int | None]) -> None:
    rows, words = heavy_tails.left_out(inside), heavy_tails.left_out_words(inside)
    if rows.empty:
        st.caption(words)
        return
    step_chart(
        figures.left_out(rows, state.mode(), steps),
        key="left-out",
        title="Rows that no ratio can be had of",
        takeaway=words,
        data=rows,
    )
    st.caption(words)


@st.cache_data(max_entries=64, show_spinner=False)
def _steps(key: _Key) -> ByStep:
    return by_step(open_run(key.folder), key.first, key.last, key.pair)


@st.cache_data(max_entries=64, show_spinner=False)
def _tails(key: _Key) -> dict[Level, Survival]:
    return survivals(open_run(key.folder), key.first, key.last, pair=key.pair)


def _both_tails(pair: _Drawn, key: _Key, tails: dict[Level, Survival]) -> None:
    """Survival curves of the token and of the sequence ratios."""
    st.subheader("Both tails", anchor=False)
    st.caption(
        f"{key.where.capitalize()}, {count(tails['token'].n)} tokens. To the right: tokens that the first policy "
        "favours, which make the variance of importance weights. To the left: tokens that it has abandoned. Drag over "
        "a chart over steps to choose other steps."
    )
    kinds: tuple[tuple[Level, str, str], ...] = (
        ("token", "Tails of the token ratio", "tokens"),
        ("sequence", "Tails of the sequence ratio W", "responses"),
    )
    for column, (level, title, unit) in zip(st.columns(2, gap="medium"), kinds, strict=True):
        with column:
            tail = tails[level]
            if not tail.n:
                st.markdown(f"###### {title}")
                st.info(tail.answer, icon=":material/info:")
                continue
            fig = figures.survival_curve(
                tail, state.mode(), ratio=pair.symbol if level == "token" else "W", unit=unit, colour=pair.colour
            )
            plain_chart(
                fig,
                key=f"survival-{level}",
                title=title,
                takeaway=f"{title}, {key.where}. {tail.answer}",
                data=_table(tail),
            )
            out = f" {count(tail.n_undefined)} {unit} have no ratio." if tail.n_undefined else ""
            st.caption(tail.answer + out)


def _table(survival: Survival) -> pd.DataFrame:
    """The points of both curves."""
    rows = [
        pd.DataFrame({"ratio": survival.upper.weight, "tail": "at or above", "share": survival.upper.share}),
        pd.DataFrame({"ratio": 1 / survival.lower.weight, "tail": "at or below", "share": survival.lower.share}),
    ]
    return pd.concat(rows, ignore_index=True)


@st.cache_data(max_entries=64, show_spinner=False)
def _growth(key: _Key) -> tuple[Growth, LengthTrap]:
    run = open_run(key.folder)
    return (
        growth(run, key.first, key.last, pair=key.pair),
        length_trap(run, key.first, key.last, pair=key.pair),
    )


def _by_length(opened: Opened, key: _Key) -> None:
    """The length trap."""
    sizes = opened.summary.values["n_tokens"].loc[key.first : key.last]
    if sizes.sum() > LENGTH_TOKENS:
        first, last = Window.of(opened.run, key.first, key.last).latest(sizes, LENGTH_TOKENS).steps
        key = key._replace(first=first, last=last)
    with st.spinner(f"Measuring the ratios of {key.where} against the length"):
        grown, trap = _growth(key)
    st.subheader("The length trap", anchor=False)
    if grown.rows.empty:
        st.info(grown.answer, icon=":material/info:")
        return
    st.caption(f"{key.where.capitalize()}, {count(grown.n_responses)} responses, cut off after their first tokens.")
    st.markdown(grown.answer)
    left, right = st.columns(2, gap="medium")
    with left:
        if grown.rows["spread"].notna().any():
            plain_chart(
                tail_figures.spread_by_length(grown, state.mode(), trap.buckets),
                key="spread",
                title="Spread of token, geometric and product ratio",
                takeaway=grown.answer,
                data=grown.rows,
            )
        else:
            st.info("A ratio that is 0 or infinite has no spread of its logarithm.", icon=":material/info:")
        st.caption(f"Finished responses by their length: {trap.answer}")
    with right:
        plain_chart(
            tail_figures.ratio_by_length(grown, state.mode()),
            key="lengths",
            title="Median, middle half and middle 90 % of the ratio",
            takeaway=f"Quantiles of the three kinds of ratio against the number of tokens. {grown.answer}",
            data=grown.rows,
        )


def _weights(opened: Opened) -> None:
    """What weighting costs, step by step: tail index, effective sample size, chi-square; always of current/behavior."""
    summary, mode, steps = opened.summary, state.mode(), state.step_range()
    inside = summary.up_to(*steps)
    st.subheader("Can weights be trusted, step by step?", anchor=False)
    sentence = answers.ratios(summary, opened.limits)
    keys = ["khat_token", "khat_token_new", "khat_seq"]
    step_chart(
        tail_figures.tail_index(summary, mode, steps),
        key="khat",
        title="Tail index: can means and squares be estimated? (logarithmic above 1 and below 0)",
        takeaway=sentence,
        data=summary.values[keys],
    )
    missing = [(name, heavy_tails.why_unfitted(inside, key)) for key, name in zip(keys, _TAIL_NAMES, strict=True)]
    for name, why in missing:
        if why:
            st.caption(f"Open circles, {name.lower()}: {why}.")
    left, right = st.columns(2, gap="medium")
    with left:
        step_chart(
            over_steps(
                summary,
                ["ess_token", "ess_seq"],
                mode,
                y_title="share of the sample",
                limits=[Limit(opened.limits.ess, "limit")],
                steps=steps,
            ),
            key="ess",
            title="Effective sample size",
            takeaway=heavy_tails.cost(inside) if len(inside.values) else "No step in this range.",
            data=summary.values[["ess_token", "ess_seq"]],
        )
    with right:
        step_chart(
            over_steps(
                summary,
                ["chi2_token", "log1p_chi2_seq"],
                mode,
                y_title="χ²",
                logarithmic=True,
                limits=[Limit(opened.limits.chi2, "limit")],
                steps=steps,
            ),
            key="chi2",
            title="Variance of the weights (below 1e-9 lies rounding)",
            takeaway="Token chi-square and the log form of the sequence chi-square over the updates.",
            data=summary.values[["chi2_token", "chi2_seq", "log1p_chi2_seq"]],
        )


_TAIL_NAMES = ("Tokens, current", "Tokens, new", "Sequences")


def _explanation() -> None:
    how_to_read(
        r"""
**Ratios.** $\rho_k=\pi_k/\hat\pi$ weighs every importance-sampled number; $\rho_{k+1}=\pi_{k+1}/\hat\pi$ is what PPO
clips, $r=\pi_{k+1}/\pi_k$ the update. Whatever the pair, every sampled token counts the same here.

**Tail index** (Vehtari et al., Pareto-smoothed importance sampling). A generalised Pareto distribution is fitted to the
$\min(n/5,\,3\sqrt n)$ largest weights; its shape is $\hat k$:
$$P(\rho>x)\propto\Bigl(1+\hat k\,\frac{x-u}{\sigma}\Bigr)^{-1/\hat k}\ \text{ for }x>u,\qquad
\text{moments of }\rho\text{ up to }1/\hat k\text{ exist.}$$
Means of $\rho$: below 0.5 good, 0.5 to 0.7 usable, 0.7 to 1 unreliable, above 1 meaningless; with $n$ weights already
unreliable from $\min(1-1/\log_{10}n,\,0.7)$ on. The square of $\rho$ has an index twice as large, so $\chi^2$ and
effective sample size fail from 0.35 on (half the limit): such values are open circles, their intervals are withheld.
A tail that is tied or lies within rounding is not fitted: an open circle at the bottom, with the reason.

**Both tails.** The upper tail of $\rho$ owns the variance of importance weights. The lower tail is the upper tail of
$1/\rho$, for which $\mathrm{mean}\,1/\rho_k=1+\chi^2(\hat\pi\Vert\pi_k)$: tokens that the policy has abandoned and that
gradients keep pushing on. On these axes a Pareto tail is a straight line of slope $-1/\hat k$.

**Effective sample size** (Kish) and **$\chi^2$** (S1 4.2):
$$\mathrm{ESS}=\frac{(\sum\rho)^2}{n\sum\rho^2}\qquad \chi^2_{\mathrm{token}}=\mathrm{mean}(\rho_k-1)^2\qquad
\chi^2_{\mathrm{seq}}=\mathrm{mean}(W_k-1)^2,\ W_k=\prod_t\rho_{k,t}$$
$1/\mathrm{ESS}-1$ is the self-normalised $\chi^2$.

**The length trap** (S1 7). For independent tokens with spread $\sigma$ of $\log\rho$,
$$\mathrm{Var}\log W=T\sigma^2,\qquad 1+\chi^2_{\mathrm{seq}}=(1+\chi^2_{\mathrm{token}})^T,\qquad
\mathrm{Var}\log W^{1/T}=\sigma^2/T.$$
The dashed lines are this; points above them are dependence inside responses. The geometric mean
$W^{1/T}$ shrinks instead, but it is no importance ratio: its mean is not 1, and nothing weighted by it is
unbiased. What it gains in variance it pays in bias.

**Rows left out.** NaN, infinite and positive log-probs and non-finite advantages are excluded from every mean and
counted; one such token leaves its response without $W$. A ratio of exactly 0
($\log\pi_k=-\infty$) is legitimate and stays.

S1 is Li and Liu, "Why Off-Policy Breaks RL: An SGA Analysis Framework".
"""
    )
