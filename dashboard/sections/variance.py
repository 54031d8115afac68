"""Which failure mode is it: bias or variance?"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from ratioscope.analysis.findings.facts import LOG_CHI2, STALENESS
from ratioscope.analysis.findings.words import chi2_key
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.variance import failure_mode, gradients
from ratioscope.analysis.what_if.held import measured_setup
from ratioscope.catalogue import ENTRIES
from ratioscope.dashboard.figures import variance as figures
from ratioscope.dashboard.figures.series import Limit
from ratioscope.dashboard.formats import plain_number, share
from ratioscope.dashboard.sections.clipping import can_judge
from ratioscope.dashboard.sections.model import Chart, Paragraph, Piece, Table
from ratioscope.dashboard.sections.page import Beside, Choice, Page, Part, Shown, in_numbers
from ratioscope.dashboard.sections.subject import Subject, chart, over_steps_chart, worst_step
from ratioscope.sources import titled

if TYPE_CHECKING:
    from ratioscope.analysis.variance.truncation import Truncation

SWEPT = 100_000
"""So many tokens are swept over the cap, a random sample of whole prompt groups."""

LEVELS = ("log1p_chi2_seq", "log1p_chi2_seq_predicted", "ess_token", "ess_seq")
"""What is shown of tokens and of whole responses."""

# Of whole responses it is what the tokens predict where that is more: not the catalogue's chi2_seq.
_COLUMNS = {"chi2_seq": "chi2_seq_or_predicted", "chi2_seq_trusted": "chi2_seq_or_predicted_trusted"}
# What looks at single tokens looks at the latest steps with so many of them.
_TOKENS = 300_000


def answer(subject: Subject) -> str:
    """Of these steps."""
    return _answer(subject).sentence


def _answer(subject: Subject) -> failure_mode.FailureModeAnswer:
    return failure_mode.answer(subject.facts, measured_setup(subject.opened.run))


def remedies(subject: Subject) -> list[Paragraph]:
    """What to do, where something is wrong."""
    found = _answer(subject)
    return [Paragraph(found.remedy, lead="What to do:")] if found.remedy else []


def rests_on(subject: Subject) -> list[Piece]:
    """What the answer rests on: where the off-policyness comes from, what is doubtful, and the medians."""
    found = _answer(subject)
    rows = tuple((number.label.removesuffix(", median"), plain_number(number.value)) for number in found.numbers)
    said = [Paragraph(found.rests_on, small=True)] if found.rests_on else []
    if found.remedy:
        said.append(Paragraph(f"{titled(found.source)}.", lead="Theory:", small=True))
    return [*said, Table("Medians over these steps", ("Metric", "Median"), rows)]


def blind_spot(subject: Subject) -> list[Chart]:
    """Total variation against χ², of tokens and of whole responses on the same axes."""
    limits, points = subject.opened.limits, failure_mode.blind_spot(subject.summary)
    sentence, data = failure_mode.blind_spot_sentence(points, limits), points.rename(columns=_COLUMNS)
    axes = figures.blind_spot_axes(points, limits.staleness, limits.chi2)
    keys = ("chi2_token", "log1p_chi2_seq", "log1p_chi2_seq_predicted")
    return [
        chart(
            subject.mode, f"blind-{level}", f"Blind spot: {whose}",
            partial(figures.blind_spot, points, f"chi2_{level}", axes=axes, tv_limit=limits.staleness,
                    chi2_limit=limits.chi2),
            sentence, data, keys,
        )
        for level, whose in (("token", "tokens"), ("seq", "whole responses"))
    ]  # fmt: skip


def growth(subject: Subject) -> Chart:
    """χ² of whole responses, measured and as the tokens predict it."""
    return over_steps_chart(
        subject, LEVELS[:2], key="growth",
        title="log(1 + χ²) of responses: measured, and predicted", unit="nats",
        takeaway=failure_mode.growth_sentence(subject.summary), beside=("chi2_token", "response_length"),
    )  # fmt: skip


def sample_size(subject: Subject) -> Chart:
    """Effective sample size of tokens and responses."""
    return over_steps_chart(
        subject, LEVELS[2:], key="variance-ess", unit="share of the sample",
        title="Effective sample size of tokens and responses", limits=(Limit(subject.opened.limits.ess, "limit"),),
        takeaway="Share of the tokens and of the responses that importance weights leave effective.",
    )  # fmt: skip


def levels(subject: Subject) -> Piece:
    """Staleness of tokens and of whole responses.

    Raises:
        RatioscopeError: these steps do not give it.
    """
    window, summary = subject.window(_TOKENS), subject.opened.summary
    frame = subject.compute(failure_mode.response_staleness, *window.steps)
    if not len(frame):
        return Paragraph(f"{window.words.capitalize()} hold no response whose tokens are all usable.")
    title = f"Staleness of tokens and of whole responses, {window.words}"
    draw = partial(figures.staleness_of_levels, summary, frame, steps=window.steps)
    said = failure_mode.staleness_sentence(summary, frame)
    return chart(subject.mode, "levels", title, draw, said, frame, (STALENESS,), by_step=True)


def truncation(subject: Subject, level: str = "token", most: int | None = SWEPT) -> tuple[Chart, Table, Paragraph]:
    """Bias against variance as the cap varies: the curve, each cap in numbers, and what they leave out.

    Args:
        level: token or sequence.
        most: tokens of a random sample; None: all.

    Raises:
        RatioscopeError: these steps do not give it.
    """
    window = subject.window(_TOKENS)
    found = subject.compute(_truncation, *window.steps, level, most)
    where = f"{window.words}, {found.n_tokens:,} tokens"
    if found.fraction < 1:
        where += f", a random {share(found.fraction)} of them all"
    draw = partial(figures.truncation_curve, found.caps, found.doubted("variance_proxy"), found.own)
    title = f"Truncated importance sampling over the cap C ({where})"
    unseen = (
        "Not shown: token weights leave the prefix uncorrected, a bias of the order T²Δ_max that no cap "
        "changes. Weights of whole responses have no such bias without a cap."
    )
    return (
        chart(subject.mode, "truncation", title, draw, f"{found.sentence} {found.own_words}".strip(), found.caps),
        _caps_table(found),
        Paragraph(unseen, small=True),
    )


def _truncation(run: Run, first: int, last: int, level: str, most: int | None) -> "Truncation":
    # With torch, which takes seconds: while other sections are read.
    from ratioscope.analysis.variance.truncation import truncation as sweep

    return sweep(run, first, last, level, most)


_CAPS = {
    "Cap C": "The weight is min(ratio, C).",
    "Bias": "Mean (ratio − C)⁺: the mass removed by the cap.",
    "Variance": "Mean v² of the tokens with A ≠ 0.",
    "ESS": "Effective sample size, as a share of the sample.",
    "Unreliable": "Estimates that fail because the tail is too heavy.",
}


def _caps_table(found: "Truncation") -> Table:
    caps, words = found.caps, {"bias_proxy": "bias", "variance_proxy": "variance", "ess": "ESS"}
    doubted = {key: found.doubted(key) for key in words}
    rows = tuple(
        (
            "none" if cap == float("inf") else plain_number(cap),
            *(
                write(caps[key].iloc[place])
                for key, write in zip(words, (plain_number, plain_number, share), strict=True)
            ),
            ", ".join(word for key, word in words.items() if doubted[key].iloc[place]),
        )
        for place, cap in enumerate(caps.index)
    )
    return Table("Each cap in numbers", tuple(_CAPS), rows, help=_CAPS)


def estimators(subject: Subject) -> list[str]:
    """The estimators whose gradients the run has probed, in any step."""
    return list(dict.fromkeys(subject.compute(gradients.probes)["estimator"]))


def probes(subject: Subject, estimator: str | None = None) -> pd.DataFrame:
    """The gradient probes of these steps, of one estimator or of all."""
    found = subject.compute(gradients.probes)
    first, last = subject.steps
    if estimator is not None:
        found = found[found["estimator"] == estimator]
    if first is not None and last is not None and len(found):
        found = found[found["step"].between(first, last)]
    return found.reset_index(drop=True)


def lemma(subject: Subject, found: pd.DataFrame, eta: float, smoothness: float) -> tuple[Chart, Chart]:
    """The terms of the SGA lemma at this learning rate and smoothness: of every probe, and of the latest over rates.

    Args:
        found: probes of one estimator, at least one.
    """
    latest, terms = found.iloc[-1], failure_mode.lemma_terms(found, eta, smoothness)
    sentence = f"The latest probe, at step {int(latest['step'])}. {gradients.answer(latest, eta, smoothness)}"
    curve = failure_mode.lemma_curve(latest, eta, smoothness)
    return (
        chart(subject.mode, "lemma", f"A, B and −C of every probe at η = {eta:g}, L = {smoothness:g}",
              partial(figures.lemma_bars, terms, steps=subject.steps), sentence, terms, by_step=True),
        chart(subject.mode, "lemma-eta", f"A + B − C over the learning rate, probe at step {int(latest['step'])}",
              partial(figures.lemma_over_learning_rates, curve, eta), sentence, curve),
    )  # fmt: skip


def probes_table(found: pd.DataFrame) -> Piece:
    """What the probes measured, each with its jackknife error."""
    if not len(found):
        return Paragraph("No gradient probe in these steps: bias and variance of the gradient itself are not known.")
    titles = {"gradient_norm_squared": "‖∇J‖²", "gradient_dot_bias": "⟨∇J, Bias⟩", "bias_norm_squared": "‖Bias‖²",
              "variance": "Var(ĝ)", "cosine": "Cosine", "rescaling": "Best factor"}  # fmt: skip
    rows = tuple(
        (
            str(int(row["step"])),
            str(row["estimator"]),
            *(_with_error(row[term], row[f"{term}_se"]) for term in titles),
            str(row["note"] or ""),
        )
        for row in found.to_dict("records")
    )  # fmt: skip
    explained = {title: f"{ENTRIES[term].title}. {ENTRIES[term].definition}" for term, title in titles.items()}
    head = ("Step", "Estimator", *titles.values(), "Note")
    return Table("What the probes measured, ± jackknife standard error", head, rows, help=explained)


def _with_error(value: float, error: float) -> str:
    """A probe's estimate ± its standard error, both to the error's second digit."""
    ends = value - error, value + error
    return plain_number(value, *ends) + ("" if pd.isna(error) else f" ± {plain_number(error, *ends)}")


def _main(subject: Subject) -> list[Shown]:
    if PAGE.is_empty(subject):
        return []
    _, of_responses = blind_spot(subject)
    predicted = " χ²: the larger of measured and predicted by tokens."
    legend = f"Open circles: not trusted.{predicted if of_responses.data['predicted'].any() else ''}"
    return [of_responses, Paragraph(f"{of_responses.takeaway} {legend}", small=True)]


def _is_weighed(subject: Subject) -> bool:
    return not PAGE.is_empty(subject)


def _first_median(subject: Subject) -> str:
    """The number that the answer rests on first."""
    numbers = _answer(subject).numbers
    return f"{numbers[0].label} {plain_number(numbers[0].value)}" if numbers else ""


def _probed(subject: Subject) -> str:
    """How many probes there are, and which is the latest."""
    found = probes(subject, estimators(subject)[0])
    return f"{len(found)} probes, the latest at step {int(found['step'].max())}" if len(found) else ""


def _of_levels(subject: Subject) -> Iterator[Shown]:
    yield from blind_spot(subject)[:1]
    grown = growth(subject)
    yield Paragraph(grown.takeaway, small=True)
    yield Beside([grown, sample_size(subject)])
    yield levels(subject)


def _truncated(subject: Subject, level: str, most: int | None) -> Iterator[Shown]:
    curve, caps, unseen = truncation(subject, level, most)
    yield Paragraph(curve.takeaway, small=True)
    yield Beside([curve, caps], widths=(3, 2))
    if level == "token":
        yield unseen


PAGE = Page(
    "variance", "Bias and variance", "Which failure mode is it?", 80, ":material/balance:",
    asks=("weights",),
    answer=answer,
    besides=lambda subject: bool(estimators(subject)),
    limits=("epsilon_stale", "chi2", "ess"),
    main=_main,
    tiles=("chi2_token", *LOG_CHI2),
    without=lambda subject: {*LOG_CHI2} - {chi2_key(subject.facts)},
    parts=[
        Part("", "", remedies, when=_is_weighed),
        Part("basis", "What this rests on", rests_on, _first_median, when=_is_weighed),
        Part(
            "levels", "Tokens against whole responses", _of_levels, when=_is_weighed, metrics=LEVELS, height=320,
        ),
        Part(
            "truncation", "Truncated importance sampling: bias against variance", _truncated,
            lambda subject: worst_step(subject, LEVELS[2:]),
            when=lambda subject: _is_weighed(subject) and can_judge(subject),
            choices=[
                Choice(
                    "tislevel", "Truncate the ratio of", {"Tokens": "token", "Whole responses": "sequence"}, width=220,
                    help="Tokens: min(ρ, C), as in token-level TIS. Whole responses: min(W, C), W the product over "
                    "the tokens.",
                ),
                Choice(
                    "alltokens", "All tokens of these steps", {"sample": SWEPT, "all": None}, "tick",
                    help=f"Off: at most {SWEPT:,} tokens, a random sample of whole prompt groups.",
                ),
            ],
            height=440,
        ),
        Part(
            "probes", "What bias and variance cost a step: the terms of the SGA lemma", "probes",
            lambda subject: _probed(subject) if estimators(subject) else "no gradient probe is logged",
        ),
    ],
    report=[
        remedies, rests_on, in_numbers(STALENESS, "chi2_token", "log1p_chi2_seq", "ess_token", "ess_seq"),
        blind_spot, growth, lambda subject: truncation(subject) if can_judge(subject) else (),
        lambda subject: probes_table(probes(subject)),
    ],
)  # fmt: skip
