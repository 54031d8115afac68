"""Bias and variance: which failure mode is it?"""

from typing import TYPE_CHECKING

import pandas as pd
import streamlit as st

from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.variance import failure_mode, gradients
from ratioscope.catalogue import ENTRIES
from ratioscope.dashboard import state
from ratioscope.dashboard.components.chart import plain_chart, step_chart
from ratioscope.dashboard.components.frame import answer, how_to_read, run_page
from ratioscope.dashboard.components.tile import metric_row
from ratioscope.dashboard.figures import variance as figures
from ratioscope.dashboard.figures.kept import over_steps
from ratioscope.dashboard.figures.series import Limit
from ratioscope.dashboard.formats import plain, share
from ratioscope.dashboard.opened import Opened
from ratioscope.errors import RatioscopeError

if TYPE_CHECKING:
    from ratioscope.analysis.variance.truncation import Truncation

TILES = ("s_k", "chi2_token", "log1p_chi2_seq", "ess_seq")

# So many tokens are swept at once; more of them only when asked for.
PREVIEW_TOKENS = 100_000
LEVELS = {"Tokens": "token", "Whole responses": "sequence"}
LEARNING_RATES = [*(float(f"{digit}e{power}") for power in range(-6, 0) for digit in (1, 2, 5)), 1.0]
SMOOTHNESS = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]


def render() -> None:
    """The page."""
    opened = run_page("Bias and variance", "Which failure mode is it?")
    if opened is None:
        return
    inside = opened.summary.up_to(*state.step_range())
    found = failure_mode.answer(inside, opened.limits)
    answer(found.sentence)
    if found.remedy:
        st.markdown(f"**What to do:** {found.remedy} ({found.source})")
    if found.numbers:
        medians = (f"{number.label.removesuffix(', median')} {plain(number.value)}" for number in found.numbers)
        st.caption(f"Medians over these steps: {' · '.join(medians)}.")
    metric_row(opened.summary, TILES)
    _blind_spot(opened)
    _levels(opened)
    responses, sweep = st.container(), st.container()
    _probes(opened)
    _how_to_read()
    with responses:
        _responses(opened)
    with sweep:
        _truncation(opened)


def _blind_spot(opened: Opened) -> None:
    """From the summary alone: every step is in it."""
    limits = opened.limits
    points = failure_mode.blind_spot(opened.summary.up_to(*state.step_range()))
    sentence = failure_mode.blind_spot_sentence(points, limits)
    st.subheader("The blind spot: total variation against χ²", anchor=False)
    st.caption(
        f"{sentence} Bias goes with total variation, variance with χ²; a bound on the one is none on the other. Both "
        "panels have the same axes: what a trust region sees, TV, is the same in both, and only χ² moves. That of "
        "whole responses is shown as the tokens predict it where the sample shows less. The dashed curve is the least "
        "χ² that a total variation can have."
    )
    tv_limit, chi2_limit = limits.staleness, limits.chi2
    axes = figures.blind_spot_axes(points, tv_limit, chi2_limit)
    for column, key, title in zip(
        st.columns(2, gap="medium"),
        ("chi2_token", "chi2_seq"),
        ("χ² of tokens", "χ² of whole responses"),
        strict=True,
    ):
        with column:
            plain_chart(
                figures.blind_spot(points, key, state.mode(), axes=axes, tv_limit=tv_limit, chi2_limit=chi2_limit),
                key=f"blind-{key}",
                title=title,
                takeaway=sentence,
                data=points,
            )


def _levels(opened: Opened) -> None:
    summary, mode, steps = opened.summary, state.mode(), state.step_range()
    st.subheader("Tokens against whole responses", anchor=False)
    sentence = failure_mode.growth_sentence(summary.up_to(*steps))
    st.caption(sentence)
    left, right = st.columns(2, gap="medium")
    with left:
        keys = ["log1p_chi2_seq", "log1p_chi2_seq_predicted"]
        step_chart(
            over_steps(summary, keys, mode, y_title="nats", steps=steps),
            key="growth",
            title="log(1 + χ²) of responses: measured, and predicted",
            takeaway=sentence,
            data=summary.values[[*keys, "chi2_token", "response_length"]],
        )
    with right:
        keys = ["ess_token", "ess_seq"]
        limit = Limit(opened.limits.ess, "limit")
        step_chart(
            over_steps(summary, keys, mode, y_title="share of the sample", limits=[limit], steps=steps),
            key="variance-ess",
            title="Effective sample size of tokens and responses",
            takeaway="Share of the tokens and of the responses that importance weights leave effective.",
            data=summary.values[keys],
        )


@st.cache_data(max_entries=64, show_spinner=False)
def _response_staleness(
    folder: str, signature: str, first: int, last: int, _khat: "pd.Series[float]"
) -> pd.DataFrame:  # the tail index follows from the run's state, which is the signature
    return failure_mode.response_staleness(open_run(folder), first, last, _khat)


def _responses(opened: Opened) -> None:
    summary = opened.summary
    first, last = state.window(opened).steps
    title = f"Staleness of tokens and of whole responses, steps {first} to {last}"
    try:
        with st.skeleton(height=320):
            frame = _response_staleness(
                str(opened.run.folder), opened.run.signature, first, last, summary.values["khat_seq"]
            )
    except RatioscopeError as error:
        st.text(str(error))
        return
    if not len(frame):
        st.info(f"Steps {first} to {last} hold no response without an unusable token.", icon=":material/info:")
        return
    steps = state.step_range()
    shown = steps if steps[0] is not None else (first, last)
    step_chart(
        figures.staleness_of_levels(summary, frame, state.mode(), shown),
        key="levels",
        title=title,
        takeaway=failure_mode.staleness_sentence(summary, frame),
        data=frame,
    )


@st.cache_data(max_entries=32, show_spinner=False)
def _sweep(folder: str, signature: str, first: int, last: int, level: str, most: int | None) -> "Truncation":
    from ratioscope.analysis.variance.truncation import truncation  # brings torch along, whose import takes seconds

    return truncation(open_run(folder), first, last, level, most)


def _truncation(opened: Opened) -> None:
    st.subheader("Truncated importance sampling: bias against variance", anchor=False)
    first, last = state.window(opened).steps
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
            help=f"Off: at most {PREVIEW_TOKENS:,} tokens, a random sample of whole prompt groups.",
        )
    level = LEVELS[chosen]
    most = None if everything else PREVIEW_TOKENS
    try:
        with st.skeleton(height=440):
            found = _sweep(str(opened.run.folder), opened.run.signature, first, last, level, most)
    except RatioscopeError as error:
        st.text(str(error))
        return
    where = f"steps {first} to {last}, {found.n_tokens:,} tokens"
    if found.fraction < 1:
        where += f", a preview: a random {share(found.fraction)} of the tokens there"
    st.caption(found.sentence)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        plain_chart(
            figures.truncation_curve(found.caps, found.doubted("variance_proxy"), found.own, state.mode()),
            key="truncation",
            title=f"Over the cap C ({where})",
            takeaway=found.sentence,
            data=found.caps,
        )
    with right:
        st.markdown("###### Each cap in numbers")
        st.dataframe(
            _caps_table(found),
            hide_index=True,
            height="content",
            alt="Bias proxy, variance proxy and effective sample size at each cap",
            column_config={
                "C": st.column_config.TextColumn("Cap C", help="The weight is min(ratio, C)."),
                "bias": st.column_config.TextColumn("Bias", help="Mean (ratio − C)⁺: the mass that is taken away."),
                "variance": st.column_config.TextColumn("Variance", help="Mean v² of the tokens that teach (A ≠ 0)."),
                "ess": st.column_config.TextColumn("ESS", help="Effective sample size, as a share of the sample."),
                "note": st.column_config.TextColumn("Not reliable", help="Where the tail is too heavy for a number."),
            },
        )
        st.text(found.own_words)
    if level == "token":
        st.caption(
            "Not in this picture: weights of tokens leave the prefix uncorrected, a bias of the order T²Δ_max that no "
            "cap changes. Whole responses have none at an unlimited C."
        )


_CAP_WORDS = {"bias_proxy": "bias", "variance_proxy": "variance", "ess": "ESS"}


def _caps_table(found: "Truncation") -> pd.DataFrame:
    caps = found.caps
    doubted = {key: found.doubted(key) for key in _CAP_WORDS}
    return pd.DataFrame(
        {
            "C": ["none" if cap == float("inf") else plain(cap) for cap in caps.index],
            "bias": [plain(value) for value in caps["bias_proxy"]],
            "variance": [plain(value) for value in caps["variance_proxy"]],
            "ess": [share(value) for value in caps["ess"]],
            "note": [
                ", ".join(word for key, word in _CAP_WORDS.items() if doubted[key].iloc[place])
                for place in range(len(caps))
            ],
        }
    )


def _probes(opened: Opened) -> None:
    """The SGA lemma on what the run probed, or how to have it probed."""
    st.subheader("What bias and variance cost a step: the terms of the SGA lemma", anchor=False)
    probes = gradients.probes(opened.run)
    if not len(probes):
        st.info(
            "This run made no gradient probes. A probe estimates the true gradient from fresh on-policy samples and "
            "the algorithm's own one several times, on other prompts, and so tells bias from variance. The built-in "
            "trainer makes them with the setting probe_every; other training loops hand them to "
            "`RunRecorder.record_step` as `probes`.",
            icon=":material/science:",
        )
        st.code("ratioscope train sync_interval probe_every=10 probe_batches=8", language="shell")
        return
    left, middle, right = st.columns(3, gap="medium")
    eta = left.select_slider(
        "Learning rate η", LEARNING_RATES, value=1e-3, format_func=lambda rate: f"{rate:g}", key="eta",
        bind="query-params", help="Of the plain step θ + ηĝ. Adam's learning rate is another thing.",
    )  # fmt: skip
    smoothness = middle.select_slider(
        "Smoothness L", SMOOTHNESS, value=10.0, format_func=lambda value: f"{value:g}", key="lipschitz",
        bind="query-params", help="How fast the gradient changes: ‖∇J(θ) − ∇J(θ′)‖ ≤ L‖θ − θ′‖. Not measured here.",
    )  # fmt: skip
    names = list(dict.fromkeys(probes["estimator"]))
    chosen = right.selectbox("Estimator", names, key="estimator") if len(names) > 1 else names[0]
    probes = probes[probes["estimator"] == chosen].reset_index(drop=True)
    first, last = state.step_range()
    if first is not None and last is not None:
        probes = probes[probes["step"].between(first, last)].reset_index(drop=True)
    if not len(probes):
        st.info(f"No probe lies in the steps {first} to {last}.", icon=":material/info:")
        return
    latest = probes.iloc[-1]
    sentence = gradients.answer(latest, eta, smoothness)
    st.caption(f"The latest probe, at step {int(latest['step'])}. {sentence}")
    terms = failure_mode.lemma_terms(probes, eta, smoothness)
    mode = state.mode()
    left, right = st.columns(2, gap="medium")
    with left:
        step_chart(
            figures.lemma_bars(terms, mode, (first, last)),
            key="lemma",
            title=f"A, B and −C of every probe at η = {eta:g}, L = {smoothness:g}",
            takeaway=sentence,
            data=terms,
        )
    with right:
        curve = failure_mode.lemma_curve(latest, eta, smoothness)
        plain_chart(
            figures.lemma_over_learning_rates(curve, eta, mode),
            key="lemma-eta",
            title=f"What is left over the learning rate, probe at step {int(latest['step'])}",
            takeaway=sentence,
            data=curve,
        )
    _probe_table(probes)


_TERM_TITLES = {
    "gradient_norm_squared": "‖∇J‖²",
    "gradient_dot_bias": "⟨∇J, Bias⟩",
    "bias_norm_squared": "‖Bias‖²",
    "variance": "Var(ĝ)",
    "cosine": "Cosine",
    "rescaling": "Best factor",
}


def _probe_table(probes: pd.DataFrame) -> None:
    """What the probes measured, each with its jackknife error."""
    columns = {
        term: [
            plain(value) if pd.isna(error) else f"{plain(value)} ± {plain(error)}"
            for value, error in zip(probes[term].astype(float), probes[f"{term}_se"].astype(float), strict=True)
        ]
        for term in _TERM_TITLES
    }
    frame = pd.DataFrame({"step": probes["step"].astype(int), **columns, "note": probes["note"]})
    st.markdown("###### What the probes measured, ± jackknife standard error")
    st.dataframe(
        frame,
        hide_index=True,
        alt="Squared gradient, bias and variance of each probe with standard errors",
        column_config={
            "step": st.column_config.NumberColumn("Step"),
            **{
                term: st.column_config.TextColumn(title, help=f"{ENTRIES[term].title}. {ENTRIES[term].definition}")
                for term, title in _TERM_TITLES.items()
            },
            "note": st.column_config.TextColumn("Note"),
        },
    )


def _how_to_read() -> None:
    how_to_read(
        r"""
Two failures of an off-policy gradient look alike in a loss curve and ask for opposite remedies (S1 4 to 7). **Bias**
comes from data of another policy that the weights do not correct; total variation measures what there can be of it.
**Variance** comes from importance weights; $\chi^2(\pi\Vert\hat\pi)=\mathbb{E}\rho^2-1$ measures it. A small $\chi^2$
makes TV small, never the other way round:

$$\mathrm{TV}\le\tfrac12\sqrt{\chi^2}\ \ (\chi^2\le1),\qquad\mathrm{TV}\le\frac{\chi^2}{1+\chi^2}\ \ (\chi^2>1)$$

is the dashed curve: no policies lie below it, and above it there is no ceiling. For responses of $T$ independent tokens
$\log(1+\chi^2_{\mathrm{seq}})=T\log(1+\chi^2_{\mathrm{token}})$: variance grows exponentially with the length.

Truncation at $C$ trades one for the other: $\min(\rho,C)$ takes $\mathbb{E}(\rho-C)^+$ of the mass away (bias) and caps
what the square can be (variance). The proxies do not know the rewards; they say what could go wrong, not what did.

A probe measures both on the gradient itself. For the plain step $\theta+\eta\hat g$ on an $L$-smooth objective

$$\mathbb{E}J(\theta+\eta\hat g)-J(\theta)\ge\underbrace{\eta(1-\tfrac{L\eta}2)\lVert\nabla J\rVert^2}_{A}
+\underbrace{\eta(1-L\eta)\langle\nabla J,\mathrm{Bias}\rangle}_{B}
-\underbrace{\tfrac{L\eta^2}2(\mathrm{Var}+\lVert\mathrm{Bias}\rVert^2)}_{C}$$

Open circles are values that this log cannot support: the tail of the ratios is too heavy. Where most of them are open,
the page says that it cannot tell.
"""
    )
