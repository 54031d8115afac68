"""How heavy are the tails?"""

from functools import partial

import pandas as pd

from ratioscope.analysis.findings import answers
from ratioscope.analysis.ratios import sentences as heavy_tails
from ratioscope.analysis.ratios.distributions import Survival, survivals
from ratioscope.analysis.ratios.growth import growth
from ratioscope.analysis.ratios.lengths import length_trap
from ratioscope.dashboard import theme
from ratioscope.dashboard.figures import ratios as figures
from ratioscope.dashboard.figures import tails as tail_figures
from ratioscope.dashboard.figures.series import Limit
from ratioscope.dashboard.sections.model import Block, Paragraph, Section
from ratioscope.dashboard.sections.subject import Subject, attempt, chart, key_numbers, over_steps, where

_QUANTILES = ["ratio_min", "ratio_p01", "ratio_p50", "ratio_p90", "ratio_p99", "ratio_p999", "ratio_max"]
_KHATS = ["khat_token", "khat_token_new", "khat_seq"]
# What grows with the length cuts every response off at ten lengths: fewer tokens are enough.
_LENGTH_TOKENS = 50_000
_TAIL_TOKENS = 300_000


def section(subject: Subject) -> Section:
    """Where the ratios are, both tails, the length trap, and whether weights can be trusted."""
    summary, steps = subject.summary, subject.steps
    spread, sentence = heavy_tails.spread(summary), answers.ratios(summary, subject.opened.limits)
    blocks: list[Block] = [
        key_numbers(subject, ("khat_token", "khat_seq", "ess_token", "ess_seq", "chi2_token", "log1p_chi2_seq",
                              "ratio_max", "top1pct_share")),
        chart(subject.mode, "heat", "Where the ratios ρ are", partial(figures.heat_map, summary, steps=steps), spread,
              summary.histogram),
        chart(subject.mode, "fan", "Quantiles of the ratio; the band holds 98 % of the tokens",
              partial(figures.quantile_fan, summary, steps=steps), spread, summary.values[_QUANTILES],
              tuple(_QUANTILES)),
        chart(subject.mode, "khat", "Tail index: can means and squares be estimated?",
              partial(tail_figures.tail_index, summary, steps=steps), sentence, summary.values[_KHATS], tuple(_KHATS)),
        over_steps(subject, ["ess_token", "ess_seq"], key="ess", title="Effective sample size",
                   unit="share of the sample", limits=[Limit(subject.opened.limits.ess, "limit")],
                   takeaway=heavy_tails.cost(summary)),
    ]  # fmt: skip
    left_out = heavy_tails.left_out(summary)
    if not left_out.empty:
        blocks.append(
            chart(subject.mode, "left-out", "Rows that no ratio can be had of",
                  partial(figures.left_out, left_out, steps=steps),
                  heavy_tails.left_out_words(summary), left_out)
        )  # fmt: skip
    blocks += attempt(partial(_tails, subject)) + attempt(partial(_lengths, subject))
    return Section("ratios", "Ratios", "How heavy are the tails?", sentence, tuple(blocks))


def _tails(subject: Subject) -> list[Block]:
    first, last = subject.window(_TAIL_TOKENS).steps
    found = survivals(subject.opened.run, first, last)
    blocks: list[Block] = []
    for level, title, ratio, unit in (
        ("token", "Tails of the token ratio", "ρ<sub>k</sub>", "tokens"),
        ("sequence", "Tails of the sequence ratio W", "W", "responses"),
    ):
        tail = found[level]  # type: ignore[index]
        if not tail.n:
            blocks.append(Paragraph(f"{title}: {tail.answer}"))
            continue
        draw = partial(figures.survival_curve, tail, ratio=ratio, unit=unit, colour=theme.CURRENT)
        blocks.append(
            chart(subject.mode, f"survival-{level}", f"{title}, {where(first, last)}", draw, tail.answer, _points(tail))
        )
    return blocks


def _points(survival: Survival) -> pd.DataFrame:
    rows = [
        pd.DataFrame({"ratio": survival.upper.weight, "tail": "at or above", "share": survival.upper.share}),
        pd.DataFrame({"ratio": 1 / survival.lower.weight, "tail": "at or below", "share": survival.lower.share}),
    ]
    return pd.concat(rows, ignore_index=True)


def _lengths(subject: Subject) -> list[Block]:
    first, last = subject.window().latest(subject.summary.values["n_tokens"], _LENGTH_TOKENS).steps
    run = subject.opened.run
    grown = growth(run, first, last)
    if grown.rows.empty or not grown.rows["spread"].notna().any():
        return [Paragraph(f"The length trap: {grown.answer}")]
    buckets = length_trap(run, first, last).buckets
    draw = partial(tail_figures.spread_by_length, grown, buckets=buckets)
    title = f"The length trap: spread of token, geometric and product ratio, {where(first, last)}"
    return [chart(subject.mode, "lengths", title, draw, grown.answer, grown.rows)]
