"""How heavy are the tails?"""

from collections.abc import Iterator
from functools import partial
from math import isnan

import pandas as pd

from ratioscope.analysis.drift.pairs import PAIRS
from ratioscope.analysis.findings.course import course
from ratioscope.analysis.ratios import sentences
from ratioscope.analysis.ratios.distributions import RatioLevel, Survival, by_step, survivals
from ratioscope.analysis.ratios.growth import growth
from ratioscope.analysis.ratios.lengths import length_trap
from ratioscope.analysis.what_if.held import measured_setup
from ratioscope.catalogue import weights
from ratioscope.dashboard import theme
from ratioscope.dashboard.figures import ratios as figures
from ratioscope.dashboard.figures import tails as tail_figures
from ratioscope.dashboard.figures.series import Limit
from ratioscope.dashboard.formats import count, metric_value
from ratioscope.dashboard.sections.model import Chart, Paragraph, Piece
from ratioscope.dashboard.sections.page import Beside, Choice, Notice, Page, Part, Shown, in_numbers, words
from ratioscope.dashboard.sections.subject import NO_STEP, Subject, chart, is_logged, over_steps_chart, worst_step
from ratioscope.metric import SAMPLED

CURRENT = "current/behavior"
"""The pair of policies whose ratio is ρ_k; the step summary has its quantiles."""

QUANTILES = ("ratio_min", "ratio_p01", "ratio_p50", "ratio_p90", "ratio_p99", "ratio_p999", "ratio_max")
INDICES = ("khat_token", "khat_token_new", "khat_seq")
COSTS = ("ess_token", "ess_seq", "chi2_token", "log1p_chi2_seq", "chi2_seq")
_SYMBOLS = {
    "current/behavior": "ρ<sub>k</sub>",
    "new/behavior": "ρ<sub>k+1</sub>",
    "new/current": "r",
    "current/behavior_train": "ρ, version only",
    "behavior_train/behavior": "ρ, engine only",
}
# Distributions look at the latest steps with so many tokens. What grows with the length cuts every response off at ten
# lengths: fewer are enough.
_TOKENS, _LENGTH_TOKENS = 300_000, 50_000


def answer(subject: Subject) -> str:
    """Of these steps."""
    if not len(subject.summary.values):
        return NO_STEP
    return sentences.answer(subject.summary, subject.opened.limits, measured_setup(subject.opened.run))


def rests_on(subject: Subject) -> Paragraph:
    """How much hangs on the tails, and in how many steps squares are unreliable."""
    return Paragraph(sentences.rests_on(subject.summary, subject.opened.limits), small=True)


def pairs(subject: Subject) -> list[str]:
    """The pairs of policies of which the run logs both, and what the sampled tokens are weighed by."""
    log = subject.log
    if not log.has(*SAMPLED):
        return []
    return [
        name for name, pair in PAIRS.items()
        if log.has(pair.numerator) and (log.has(pair.denominator) or name in (CURRENT, "new/behavior"))
    ]  # fmt: skip


def missing(subject: Subject, pair: str) -> str:
    """Why there is no ratio of this pair in these steps; nothing where there is one.

    Raises:
        RatioscopeError: a file vanished while it was read.
    """
    tail = _survivals(subject, pair)["token"]
    if tail.n or pair == CURRENT:
        return ""
    return f"No ratio {pair} in {subject.window(_TOKENS).words}: {tail.reason}."


def where_they_are(subject: Subject, pair: str = CURRENT) -> tuple[Chart, Chart, Piece]:
    """The ratios of a pair of policies over the steps as a heat map and as quantiles, and what was left out of them.

    Raises:
        RatioscopeError: a file vanished while it was read.
    """
    summary, shown, steps, of = subject.summary, subject.shown, subject.steps, "every step"
    if pair != CURRENT:
        window = subject.window(_TOKENS)
        steps, of = window.steps, window.words
        inside = subject.opened.summary.up_to(*steps)
        summary = shown = subject.compute(by_step, *window.steps, pair).in_place_of(inside)
    spread, symbol = sentences.spread(summary), _SYMBOLS[pair]
    heat = partial(figures.heat_map, summary, steps=steps, ratio=symbol)
    fan = partial(figures.quantile_fan, shown, steps=steps, ratio=symbol, colour=_colour(subject, pair))
    quantiles = shown.values[list(QUANTILES)]
    metrics = QUANTILES if pair == CURRENT else ()
    return (
        chart(subject.mode, "heat", f"Where the ratios {pair} are: the tokens of {of}", heat,
              "The colour is the share of a step's tokens.", summary.histogram, by_step=True),
        chart(subject.mode, "fan", f"Quantiles of the ratio {pair}; the band holds 98% of the tokens", fan, spread,
              quantiles, metrics, by_step=True),
        _left_out(subject, steps),
    )  # fmt: skip


def _colour(subject: Subject, pair: str) -> str:
    """That of the pair's first policy."""
    return {"current": theme.CURRENT, "new": theme.NEW}.get(pair.split("/")[0], subject.mode.behavior)


def _left_out(subject: Subject, steps: tuple[int | None, int | None]) -> Piece:
    inside = subject.opened.summary.up_to(*steps)
    rows, words = sentences.left_out(inside), sentences.left_out_words(inside)
    if rows.empty:
        return Paragraph(words, small=True)
    draw = partial(figures.left_out, rows, steps=steps)
    return chart(subject.mode, "left-out", "Rows without a usable ratio", draw, words, rows, by_step=True)


def _survivals(subject: Subject, pair: str) -> dict[RatioLevel, Survival]:
    return subject.compute(survivals, *subject.window(_TOKENS).steps, pair=pair)


def tails(subject: Subject, pair: str = CURRENT) -> list[Piece]:
    """Both tails of the ratio of tokens and of responses; a sentence where there is none.

    Raises:
        RatioscopeError: a file vanished while it was read.
    """
    found, window = _survivals(subject, pair), subject.window(_TOKENS)
    whole = list(subject.opened.summary.values.index[[0, -1]]) == list(window.steps)
    some = "" if whole else f", {window.words}"
    kinds: tuple[tuple[RatioLevel, str, str, str], ...] = (
        ("token", "Tails of token ratios", _SYMBOLS[pair], "tokens"),
        ("sequence", "Tails of sequence ratios W", "W", "responses"),
    )
    blocks: list[Piece] = []
    for level, title, ratio, unit in kinds:
        tail = found[level]
        if not tail.n:
            blocks.append(Paragraph(tail.answer, lead=f"{title}:"))
            continue
        without = f" {count(tail.n_undefined)} {unit} have no ratio." if tail.n_undefined else ""
        draw = partial(figures.survival_curve, tail, ratio=ratio, unit=unit, colour=_colour(subject, pair))
        blocks.append(
            chart(
                subject.mode,
                f"survival-{level}",
                f"{title}, {count(tail.n)} {unit}{some}",
                draw,
                tail.answer + without,
                _points(tail),
            )
        )
    return blocks


def _points(survival: Survival) -> pd.DataFrame:
    """Of both curves."""
    rows = [
        pd.DataFrame({"ratio": survival.upper.weight, "tail": "at or above", "share": survival.upper.share}),
        pd.DataFrame({"ratio": 1 / survival.lower.weight, "tail": "at or below", "share": survival.lower.share}),
    ]
    return pd.concat(rows, ignore_index=True)


def lengths(subject: Subject, pair: str = CURRENT) -> list[Piece]:
    """The length trap: what was measured, the spread, what holds of finished responses, the quantiles; or why not.

    Raises:
        RatioscopeError: a file vanished while it was read.
    """
    window, sizes = subject.window(_TOKENS), subject.opened.summary.values["n_tokens"]
    if sizes.loc[window.first : window.last].sum() > _LENGTH_TOKENS:
        window = window.latest(sizes, _LENGTH_TOKENS)
    grown = subject.compute(growth, *window.steps, pair=pair)
    if grown.rows.empty:
        return [Paragraph(grown.answer, lead="The length trap:")]
    trap, steps = subject.compute(length_trap, *window.steps, pair=pair), window.words
    spread: Piece = Paragraph("The log of a ratio that is 0 or infinite has no spread.")
    if grown.rows["spread"].notna().any():
        draw = partial(tail_figures.spread_by_length, grown, buckets=trap.buckets)
        title = f"The length trap: spread of token, geometric and product ratio, {steps}"
        spread = chart(subject.mode, "lengths", title, draw, grown.answer, grown.rows)
    quantiles = partial(tail_figures.ratio_by_length, grown)
    title = f"Median, middle half and middle 90% of the ratio, {steps}"
    said = f"{count(grown.n_responses)} responses, cut after their first tokens."
    return [
        spread,
        Paragraph(f"Finished responses by their length: {trap.answer}", small=True),
        chart(subject.mode, "length-quantiles", title, quantiles, said, grown.rows),
    ]


def tail_index(subject: Subject) -> list[Piece]:
    """The tail index over the steps, and why some steps have none."""
    keys = {"khat_token": "tokens, current", "khat_token_new": "tokens, new", "khat_seq": "responses"}
    title = "Tail index: can means and squares be estimated? (logarithmic above 1 and below 0)"
    draw = partial(tail_figures.tail_index, subject.shown, steps=subject.steps)
    keys = {key: name for key, name in keys.items() if is_logged(subject.opened.summary, key)}
    missing = ((name, sentences.why_unfitted(subject.summary, key)) for key, name in keys.items())
    return [
        chart(subject.mode, "khat", title, draw, answer(subject), subject.shown.values[list(keys)], tuple(keys),
              by_step=True),
        *(Paragraph(f"Open circles, {name}: {why}.", small=True) for name, why in missing if why),
    ]  # fmt: skip


def sample_size(subject: Subject) -> Chart:
    """Effective sample size over the steps."""
    summary = subject.summary
    return over_steps_chart(
        subject, ("ess_token", "ess_seq"), key="ess", title="Effective sample size", unit="share of the sample",
        limits=(Limit(subject.opened.limits.ess, "limit"),),
        takeaway=sentences.cost(summary) if len(summary.values) else NO_STEP,
    )  # fmt: skip


def variance(subject: Subject) -> Chart:
    """χ² over the steps."""
    keys = ("chi2_token", "log1p_chi2_seq")
    return over_steps_chart(
        subject, keys, key="chi2", title="Variance of the weights (below 1e-9: rounding)", unit="χ²",
        logarithmic=True, limits=(Limit(subject.opened.limits.chi2, "limit"),),
        takeaway=course(subject.summary, *keys), beside=("chi2_seq",),
    )  # fmt: skip


def _told(subject: Subject) -> str:
    told = (f"**{name}**: {PAIRS[name].title}. {PAIRS[name].tells}" for name in pairs(subject))
    policies = "Probability of each sampled token under the first policy, divided by that under the second."
    return "\n\n".join((policies, *told))


def _main(subject: Subject, pair: str | None) -> list[Shown]:
    """Both tails of the ratio of tokens and of responses, each with its Pareto fit."""
    if pair is None:
        return []
    if said := missing(subject, pair):
        return [Notice(said)]
    return [Beside(tails(subject, pair))]


def _has_ratios(subject: Subject, pair: str | None) -> bool:
    return pair is not None and not missing(subject, pair)


def _from_to(subject: Subject, pair: str) -> str:
    """The smallest and the largest ρ_k; "" for other ratios, which the summary does not have."""
    smallest, largest = subject.shown.values["ratio_min"].min(), subject.shown.values["ratio_max"].max()
    if pair != CURRENT or isnan(smallest) or isnan(largest):
        return ""
    return f"{metric_value('ratio_min', float(smallest))} to {metric_value('ratio_max', float(largest))}"


def _trap(subject: Subject, pair: str) -> Iterator[Shown]:
    trap = lengths(subject, pair)
    if len(trap) == 1:
        yield from trap
        return
    spread, finished, quantiles = trap
    if isinstance(spread, Chart):
        yield Paragraph(spread.takeaway)
    assert isinstance(quantiles, Chart)
    yield Beside([[spread, finished], [quantiles, Paragraph(quantiles.takeaway, small=True)]])


def _is_weighed(subject: Subject, pair: str | None) -> bool:
    """What weighting costs is always of current/behavior."""
    return not PAGE.is_empty(subject)


PAGE = Page(
    "ratios", "Ratios", "How heavy are the tails?", 60, ":material/bar_chart:",
    asks=("weights",),
    answer=lambda subject, *_: answer(subject),
    besides=lambda subject: bool(pairs(subject)),
    choices=[Choice("ratio", "Ratio", lambda subject: words(pairs(subject)), "segments", help=_told)],
    limits=("khat", "ess", "chi2"),
    main=_main,
    reported={*(entry.key for entry in weights.ENTRIES), "ratio_mean", "chi2_token", "chi2_token_raw", "chi2_seq"},
    height=340,
    caption="below",
    tiles=("ess_token", "ess_seq"),
    parts=[
        Part(
            "fan", lambda _, pair: f"{pair} over the steps: quantiles, and every ratio",
            lambda subject, pair: [*(found := where_they_are(subject, pair))[1:], found[0]],
            _from_to, when=_has_ratios, metrics=QUANTILES, height=700, caption="below",
        ),
        Part(
            "lengths", "The length trap: why the product over a response spreads", _trap,
            lambda subject, _: worst_step(subject, ["log1p_chi2_seq_predicted"]),
            when=_has_ratios, height=400,
        ),
        Part(
            "khat", "Tail index over the steps: can means and squares be estimated?",
            lambda subject, _: [*tail_index(subject), rests_on(subject)], when=_is_weighed, metrics=INDICES,
        ),
        Part(
            "cost", "Effective sample size and χ² over the steps",
            lambda subject, _: [Beside([sample_size(subject), variance(subject)])],
            when=_is_weighed, metrics=COSTS, caption="below",
        ),
    ],
    report=[
        in_numbers("khat_token", "khat_seq", "ess_token", "ess_seq", "chi2_token", "log1p_chi2_seq", "ratio_max",
                   "top1pct_share"),
        where_they_are, tail_index, rests_on, sample_size, variance, tails, lengths,
    ],
)  # fmt: skip
