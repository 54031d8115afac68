"""Which tokens did it?"""

import math
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import pandas as pd

from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.runs.window import Window
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.analysis.tokens.attribution import OWNED_SUMS, OWNERS, Attribution, shares
from ratioscope.analysis.tokens.attribution import attribution_sentence as carried
from ratioscope.analysis.tokens.contributions import (
    USUAL,
    Contributions,
    contributions,
    contributions_sentence,
    has_parts,
    stands_out,
)
from ratioscope.analysis.tokens.worst_sequences import CRITERIA
from ratioscope.dashboard.figures import tokens as figures
from ratioscope.dashboard.formats import plain_number, share
from ratioscope.dashboard.sections.model import Chart, Paragraph, Piece, Table
from ratioscope.dashboard.sections.page import Page
from ratioscope.dashboard.sections.subject import Subject, chart

TOKENS = 200_000
"""What looks at single tokens looks at the latest steps with so many of them."""
MEASURE, OWNER, TOP = "rho_squared", "token_position", 0.01
"""The sum and its grouping that the answer is about, and the share of the tokens with the largest parts."""

_WORST, _LONGEST = 10, 300
_NONE, _UNLOGGED = "–", "not logged"

_NUMBERS = (
    USUAL, "s_k_bounded", "u_k", "s_k_version", "s_k_engine", "tv_new_behavior", "chi2_token", "log1p_chi2_seq",
    "ess_token", "ess_seq", "kl_k3", "clip_fraction",
)  # fmt: skip
"""Metrics that have parts."""
_NEEDS = {
    "lowest_reward": "reward",
    "highest_reward": "reward",
    "lowest_entropy": "entropy",
    "highest_entropy": "entropy",
    "oldest_version": "version_lag",
    "longest": "response_length",
    "largest_advantage": "",
    "first": "",
}
"""What is no part of any number, and of which metric there must be one; ratios, unless it is named here."""
_COVERED = ("largest_deviation", "largest_chi2", "most_clipped")
"""Criteria that are a metric's parts."""


def sorted_by(summary: StepSummary) -> list[str]:
    """What the responses of a run can be sorted by, metrics and criteria; the first is the usual one."""
    metrics = [key for key in _NUMBERS if summary.values[key].notna().any()]
    needed = {name: _NEEDS.get(name, "ratio_max") for name in CRITERIA if name not in _COVERED}
    others = [name for name, need in needed.items() if not need or summary.values[need].notna().any()]
    return [*metrics, *sorted(others, key=lambda name: not needed[name])]


def usual(subject: Subject) -> str:
    """What responses are sorted by where nothing is asked for."""
    return sorted_by(subject.opened.summary)[0]


def answer(subject: Subject) -> str:
    """Of the latest steps, or the chosen ones: which responses make the staleness, and by which token.

    Raises:
        RatioscopeError: these steps do not tell.
    """
    if not subject.log.has_ratios:
        return without_ratios(subject)
    by, window = usual(subject), subject.window(TOKENS)

    def found(first: int, last: int) -> Contributions:
        return subject.compute(contributions, by, first, last, limit=_WORST)

    return told(found(*window.steps), window, highest(subject.summary, by, window), found)


def highest(summary: StepSummary, by: str, window: Window) -> int | None:
    """Of several steps the one where a metric is highest; None of a single one, or where responses have no part."""
    if not has_parts(by) or window.first == window.last:
        return None
    values = summary.values[by].loc[window.first : window.last].dropna()
    return int(values.index[int(values.argmax())]) if len(values) else None


def told(found: Contributions, window: Window, step: int | None, of: Callable[[int, int], Contributions]) -> str:
    """Which responses make a number; where none stands out, those of the step where it is highest.

    Args:
        step: see `highest`.
        of: the contributions to the same number in other steps.
    """
    inside = named(found, step, of)
    if inside is found:
        return contributions_sentence(found, window.words)
    highest = contributions_sentence(inside, f"step {step}").partition(". ")[0].rstrip(".")
    highest = highest.replace(f" of step {step}", "", 1)
    largest = percent(float(found.frame["share"].iloc[0]))
    return (
        f"In step {step}, where it is highest, {highest[0].lower()}{highest[1:]}. Over {window.words} together none "
        f"stands out: the largest makes {largest}."
    )


def named(found: Contributions, step: int | None, of: Callable[[int, int], Contributions]) -> Contributions:
    """Whose first response `told` names."""
    if step is None or found.half is None or stands_out(found):
        return found
    inside = of(step, step)
    return inside if stands_out(inside) else found


def responses(subject: Subject) -> list[Piece]:
    """The responses that make the staleness, with their texts, and which tokens carry it.

    Raises:
        RatioscopeError: these steps do not tell.
    """
    window = subject.window(TOKENS)
    worst = _worst(subject, window)
    if not subject.log.has_ratios:
        return [worst]
    return [worst, Paragraph(carried(owned(subject, window)), lead=f"{window.words.capitalize()}:")]


def without_ratios(subject: Subject) -> str:
    """What is left of the question where no token has a ratio."""
    what = "responses and their tokens" if subject.log.has_tokens else "responses"
    return f"{PAGE.not_said(subject)} The {what} can be read."


def owners(subject: Subject) -> list[str]:
    """What tokens can be grouped by, as far as it is logged; the first is the usual one."""
    columns = {"prompt": "sequences.prompt", "version_lag": "behavior_version", "sign(advantage)::int": "advantage"}
    log = subject.log
    known = [name for name, owner in OWNERS.items() if all(log.has(columns.get(key, key)) for key in owner.keys)]
    first = OWNER if OWNER in known else "position"
    return [first, *(name for name in known if name != first)]


def measures(subject: Subject) -> list[str]:
    """The sums that the log gives."""
    return [name for name in OWNED_SUMS if name != "update" or subject.log.has_update]


def owned(
    subject: Subject, window: Window, measure: str = MEASURE, owner: str = "", among_top: float | None = TOP
) -> Attribution:
    """Which tokens carry a sum over the tokens of these steps.

    Raises:
        RatioscopeError: these steps do not tell.
    """
    return subject.compute(shares, measure, owner or owners(subject)[0], *window.steps, among_top=among_top)


def extremes(subject: Subject) -> Chart:
    """The largest and the smallest ratio of each step."""
    largest = largest_ratio(subject)
    said = f"The largest token ratio is {largest}." if largest else "No step has a ratio."
    draw = partial(figures.extremes, subject.shown, steps=subject.steps)
    title, columns = "The most extreme tokens of each step", list(figures.COLUMNS)
    return chart(subject.mode, "extremes", title, draw, said, subject.shown.values[columns], columns, by_step=True)


def largest_ratio(subject: Subject) -> str:
    """It and its step, in a few words; "" where no step has a ratio."""
    ratios = subject.summary.values["ratio_max"].dropna()
    return f"{plain_number(ratios.max())} in step {ratios.idxmax()}" if len(ratios) else ""


def _worst(subject: Subject, window: Window) -> Piece:
    found = subject.compute(contributions, usual(subject), *window.steps, limit=_WORST)
    if not len(found.frame):
        return Paragraph(contributions_sentence(found, window.words))
    by = f"by their part of {found.what}" if found.half else f"by {found.what}"
    return _table(found.frame, f"The {len(found.frame)} largest of {window.words} {by}")


def _table(worst: pd.DataFrame, title: str) -> Table:
    columns: dict[str, Callable[[dict[Hashable, Any]], str]] = {
        "Step / response": lambda row: f"{int(row['step'])} / {int(row['seq_id'])}",
        "Share": lambda row: share(row["share"]),
        "Token": lambda row: _text(row["token"]) if pd.notna(row["token"]) else _NONE,
        "ρ": lambda row: plain_number(row["ratio"]),
        "log W": lambda row: plain_number(row["log_w"]),
        "Reward": lambda row: plain_number(row["reward"]),
        "Tokens": lambda row: f"{int(row['n_tokens']):,}" if pd.notna(row["n_tokens"]) else _NONE,
        "Prompt": lambda row: _text(row["prompt"]),
        "Text": lambda row: _text(row["response"]),
    }
    records = worst.astype(object).where(worst.notna(), math.nan).to_dict("records")
    cells = {head: [write(row) for row in records] for head, write in columns.items()}
    kept = {head: told for head, told in cells.items() if not set(told) <= {_NONE, _UNLOGGED}}
    note = "log W in nats; W is the product of a response's token ratios." * ("log W" in kept)
    return Table(title, tuple(kept), tuple(zip(*kept.values(), strict=True)), note)


def _text(text: object) -> str:
    if not isinstance(text, str):
        return _UNLOGGED
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"


PAGE = Page(
    "tokens", "Tokens", "Which tokens did it?", 100, ":material/match_word:", own=True,
    asks=("tokens", "attribution"),
    answer=answer,
    report=[extremes, responses],
    texts=True,
)  # fmt: skip
