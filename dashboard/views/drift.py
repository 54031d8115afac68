"""Drift: staleness, engine, or the update?"""

from collections.abc import Callable
from math import isnan
from typing import TypeVar

import pandas as pd
import streamlit as st

from ratioscope.analysis.drift import sentences as drift_answers
from ratioscope.analysis.drift.certificate import Certificate, certificate
from ratioscope.analysis.drift.feasibility import feasibility, recommendation, vocabulary_is_large
from ratioscope.analysis.drift.pairs import PAIRS, Aggregation, Level, measure
from ratioscope.analysis.findings import answers
from ratioscope.analysis.findings.staleness_form import staleness_metric
from ratioscope.analysis.runs.store import open_run
from ratioscope.dashboard import state
from ratioscope.dashboard.components.chart import plain_chart, step_chart
from ratioscope.dashboard.components.drawn import over_steps
from ratioscope.dashboard.components.frame import answer, how_to_read, run_page
from ratioscope.dashboard.components.tile import metric_row
from ratioscope.dashboard.figures import drift as figures
from ratioscope.dashboard.figures.series import Limit
from ratioscope.dashboard.formats import plain, share
from ratioscope.dashboard.opened import Opened
from ratioscope.errors import RatioscopeError

Result = TypeVar("Result")

TILES = ("s_k", "s_k_bounded", "u_k", "tv_new_behavior")

# What looks at single tokens looks at the latest steps with so many of them; at all steps of a brush.
LOOKED_AT = 150_000

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
    opened = run_page("Drift", "Staleness, or the update?")
    if opened is None:
        return
    inside = opened.summary.up_to(*state.step_range())
    if len(inside.values):
        answer(answers.drift(inside, opened.limits))
    else:
        answer("No step of this run lies in the chosen range.")
    metric_row(opened.summary, TILES)
    _over_steps(opened)
    path = st.container()
    _exact(opened)
    bound, feasible = st.container(), st.container()
    _how_to_read()
    with path:  # what reads tokens comes after all that does not
        _path(opened)
    with bound:
        _certificate(opened)
    with feasible:
        _feasibility(opened)


def _over_steps(opened: Opened) -> None:
    summary, mode, steps = opened.summary, state.mode(), state.step_range()
    limits = opened.limits
    keys = ["s_k", "u_k", "tv_new_behavior"]
    step_chart(
        over_steps(
            summary,
            keys,
            mode,
            y_title="total variation",
            limits=[
                Limit(limits.staleness, "ε<sub>stale</sub>/2"),
                Limit(limits.update, "ε/2"),
            ],
            height=340,
            steps=steps,
        ),
        key="path",
        title="Staleness, update, and the distance that PPO clips",
        takeaway=answers.drift(summary, limits),
        data=summary.values[keys],
    )
    left, right = st.columns(2, gap="medium")
    with left:
        if summary.values["tv_new_behavior"].notna().any():
            step_chart(
                figures.triangle(summary, mode, steps),
                key="triangle",
                title="The triangle: U + S against PPO's distance",
                takeaway=drift_answers.triangle_sentence(summary.up_to(*steps)),
                data=summary.values[keys],
            )
        st.caption(drift_answers.triangle_sentence(summary.up_to(*steps)))
        keys = ["kl_k1", "kl_k2", "kl_k3"]
        step_chart(
            over_steps(summary, keys, mode, y_title="nats", steps=steps),
            key="kl",
            title="KL of current from behavior, three estimators",
            takeaway=answers.course(summary.up_to(*steps), "kl_k3"),
            data=summary.values[[*keys, "kl_reverse"]],
        )
    with right:
        step_chart(
            over_steps(summary, ["s_k", "s_k_bounded"], mode, y_title="total variation", steps=steps),
            key="bounded",
            title="Staleness, plain and bounded form",
            takeaway=answers.course(summary.up_to(*steps), "s_k", "s_k_bounded"),
            data=summary.values[["s_k", "s_k_bounded", "ratio_mean"]],
        )
        st.caption("They agree when the mean ratio is 1; no heavy tail can spoil the bounded one.")
        step_chart(
            over_steps(summary, ["ratio_mean"], mode, y_title="mean ρ", limits=[Limit(1.0, "must be 1")], steps=steps),
            key="residual",
            title="Mean ratio: can the denominators be believed?",
            takeaway=answers.course(summary.up_to(*steps), "ratio_mean"),
            data=summary.values[["ratio_mean", "ratio_mean_z"]],
        )
    step_chart(
        over_steps(summary, ["version_lag"], mode, y_title="updates", height=220, steps=steps),
        key="lag",
        title="Age of the data",
        takeaway=answers.course(summary.up_to(*steps), "version_lag"),
        data=summary.values[["version_lag"]],
    )


@st.cache_data(max_entries=64, show_spinner=False)
def _measured(folder: str, signature: str, first: int, last: int, level: str) -> pd.DataFrame:
    of, aggregation = LEVELS[level]
    return measure(open_run(folder), first, last, level=of, aggregation=aggregation)


def _path(opened: Opened) -> None:
    first, last = state.window(opened, LOOKED_AT).steps
    st.subheader("The path, edge by edge", anchor=False)
    level = st.selectbox(
        "Ratio of",
        list(LEVELS),
        key="pathlevel",
        bind="query-params",
        width=340,
        help="A geometric mean and a mean of means describe; they are no importance ratios, so their mean need not "
        "be 1.",
    )
    frame = _cached(lambda: _measured(*_run(opened), first, last, level), height=430)
    if frame is None:
        return
    sentence = drift_answers.path_sentence(frame)
    st.caption(sentence)
    plain_chart(
        figures.path_diagram(frame, state.mode()),
        key="edges",
        title=f"behavior → current → new, steps {first} to {last}; width is total variation",
        takeaway=sentence,
        data=frame,
    )
    words = st.column_config.TextColumn
    st.dataframe(
        _path_table(frame),
        hide_index=True,
        alt="Distances of every policy pair with intervals",
        column_config={
            "pair": words("Pair", width="medium"),
            "tv": words("TV", help="½ mean |p/b − q/b|, with its 95 % interval."),
            "tv_bounded": words("TV, bounded", help="mean (q/b − p/b)⁺: no heavy tail in p can spoil it."),
            "kl_k3": words("KL (nats)", help="KL(q‖p) by the estimator k3."),
            "chi2": words("χ²", help="Variance of p/q under q."),
            "ratio_mean": words("Mean ratio", help="1 where q covers p."),
            "ess": words("ESS", help="Effective sample size, as a share of the sample."),
            "n": st.column_config.NumberColumn("Units", help="Tokens or responses that are averaged over."),
            "note": words("Note"),
        },
    )


def _path_table(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a pair: value and interval in words."""
    rows = []
    for pair, of_pair in frame.groupby("pair", sort=False):
        of = of_pair.set_index("metric")
        row: dict[str, object] = {"pair": PAIRS[str(pair)].title}
        for key in ("tv", "tv_bounded", "kl_k3", "chi2", "ratio_mean", "ess"):
            value, low, high = (float(of[name].astype(float)[key]) for name in ("value", "low", "high"))
            write = share if key == "ess" else plain
            row[key] = write(value) + ("" if isnan(low) else f" ({write(low)} to {write(high)})")
        rows.append(row | {"n": int(of["n"].iloc[0]), "note": "; ".join(dict.fromkeys(filter(None, of["note"])))})
    return pd.DataFrame(rows)


def _exact(opened: Opened) -> None:
    summary, mode, steps = opened.summary, state.mode(), state.step_range()
    st.subheader("Exact against sampled", anchor=False)
    sentence = drift_answers.exact_sentence(summary.up_to(*steps))
    logged = [key for key in ("s_k", "u_k") if summary.values[f"{key}_exact"].notna().any()]
    if not logged:
        st.info(
            "Full distributions were not logged, so nothing checks the samples. A training loop that has all "
            "logits can log tv_current_behavior and tv_new_current for every token; the built-in trainer does with "
            "exact=true.",
            icon=":material/info:",
        )
        return
    st.caption(sentence or "No step of these has an exact distance.")
    titles = {"s_k": "Staleness: sampled and exact", "u_k": "Update drift: sampled and exact"}
    for column, key in zip(st.columns(len(logged), gap="medium"), logged, strict=True):
        with column:
            step_chart(
                figures.sampled_and_exact(summary, key, mode, steps),
                key=f"exact-{key}",
                title=titles[key],
                takeaway=sentence,
                data=summary.values[[key, f"{key}_exact", f"{key}_exact_z"]],
            )
    if summary.values[[f"{key}_exact_z" for key in logged]].notna().any(axis=None):
        step_chart(
            figures.standard_errors(summary, mode, steps),
            key="exact-z",
            title="Distance of the sampled from the exact value, in standard errors",
            takeaway=sentence,
            data=summary.values[["s_k_exact_z", "u_k_exact_z"]],
        )


@st.cache_data(max_entries=64, show_spinner=False)
def _bound(folder: str, signature: str, first: int, last: int, gamma: float | None) -> Certificate:
    return certificate(open_run(folder), first, last, gamma=gamma)


def _certificate(opened: Opened) -> None:
    first, last = state.window(opened, LOOKED_AT).steps
    st.subheader("What theory promises: the certificate", anchor=False)
    chosen = st.select_slider(
        "Discount γ",
        list(DISCOUNTS),
        key="gamma",
        bind="query-params",
        width=420,
        help="How far an update's effect reaches: 1/(1 − γ) tokens. By length: 1 − 1/mean length of the responses. "
        "0 reads the whole response as one action.",
    )
    found = _cached(lambda: _bound(*_run(opened), first, last, DISCOUNTS[chosen]), height=400)
    if found is None:
        return
    sentence = drift_answers.certificate_sentence(found)
    st.caption(sentence)
    if not found.terms["improvement_bound"].notna().any():
        return
    step_chart(
        figures.certificate_terms(found.terms, state.mode(), _shown(first, last)),
        key="certificate",
        title=f"The bound's terms, steps {first} to {last}, γ = {found.gamma:.3g}",
        takeaway=sentence,
        data=found.terms,
    )
    if found.terms["lower_estimate"].astype("boolean").any():
        st.caption(
            "|A| is the largest advantage of each step's sample, a lower estimate: with the true range of rewards the "
            "penalties can only be larger."
        )


@st.cache_data(max_entries=64, show_spinner=False)
def _feasible(folder: str, signature: str, first: int, last: int, epsilon: float) -> tuple[pd.DataFrame, bool]:
    run = open_run(folder)
    return feasibility(run, first, last, epsilon=epsilon), vocabulary_is_large(run, first, last)


def _feasibility(opened: Opened) -> None:
    first, last = state.window(opened, LOOKED_AT).steps
    limits = opened.limits
    st.subheader("Can a clip around 1 be met?", anchor=False)
    result = _cached(lambda: _feasible(*_run(opened), first, last, limits.epsilon), height=300)
    if result is None:
        return
    found, large = result
    sentence = drift_answers.feasibility_sentence(found, limits.epsilon)
    st.markdown(f"Steps {first} to {last}. {sentence}")
    inside = opened.summary.up_to(first, last)
    several = found["n_versions"].astype(float) > 1 if len(found) else pd.Series(dtype=bool)
    if several.any():
        shares = found["infeasible_share"].astype(float)
        staleness = float(inside.values[staleness_metric(inside)].mean())
        advice = recommendation(float(shares.mean()), staleness, large, epsilon_stale=limits.epsilon_stale)
        if advice:
            st.markdown(f"**Which clip:** {drift_answers.advice_sentence(advice)} ({advice.source})")
        if shares.notna().any():
            step_chart(
                figures.infeasible_share(found, state.mode(), _shown(first, last)),
                key="infeasible",
                title=f"States where no policy is within ε/2 of all versions (ε = {limits.epsilon:g})",
                takeaway=sentence,
                data=found,
            )
    caveat = drift_answers.feasibility_caveat(found)
    if caveat:
        st.caption(caveat)


def _run(opened: Opened) -> tuple[str, str]:
    """What results of a run are kept under."""
    return str(opened.run.folder), opened.run.signature


def _cached(compute: Callable[[], Result], height: int) -> Result | None:
    """The result, with a placeholder while it is computed; None after having said why there is none."""
    try:
        with st.skeleton(height=height):
            return compute()
    except RatioscopeError as error:
        st.text(str(error))
        return None


def _shown(first: int, last: int) -> tuple[int, int]:
    """The x range of a chart of some steps only: the brushed ones, else those that it is about."""
    chosen = state.step_range()
    return (first, last) if chosen[0] is None or chosen[1] is None else (chosen[0], chosen[1])


def _how_to_read() -> None:
    how_to_read(
        r"""
Samples come from the sampler $\hat\pi$; the update starts at $\pi_k$ and ends at $\pi_{k+1}$. All distances are total
variations, estimated from the sampled tokens:

$$S_k=\tfrac12\,\mathrm{mean}|\rho_k-1|\qquad U_k=\tfrac12\,\mathrm{mean}|\rho_{k+1}-\rho_k|\qquad
\mathrm{TV}(\pi_{k+1},\hat\pi)=\tfrac12\,\mathrm{mean}|\rho_{k+1}-1|\le U_k+S_k$$

Staleness is what the schedule and the engine do; the update is what the loss does. Standard PPO clips their sum: when
$S_k$ alone comes near $\varepsilon/2$, its clip leaves no room to learn, and the remedy is fresher data or a clip
centred at $\rho_k$. Where the training engine has recomputed what the sampler drew, $S_k$ splits into engine and age.

The certificate (S0 Corollary 3.2) bounds the improvement from below,

$$J(\pi_{k+1})-J(\pi_k)\ge L-C_1U_k^\gamma-C_2S_k^\gamma,\qquad C_1=\frac{2\gamma\lVert A\rVert}{(1-\gamma)^2},\quad
C_2=C_1+\frac{2\lVert A\rVert}{1-\gamma}$$

and is vacuous where the penalties exceed every possible gap of returns. That is no fault of a run: the factors grow
with the square of the horizon. Its axis is linear near 0 and logarithmic beyond.

A clip of width $\varepsilon$ around 1 keeps the new policy within $\varepsilon/2$ of the version that sampled. Where
two versions are further than $\varepsilon$ apart in a state, no policy is that near to both (S0 Observation 3.1).

Bands are 95 % intervals over prompt groups. Open circles and dotted edges are values that this log cannot support,
because the tail of the ratios is too heavy.
"""
    )
