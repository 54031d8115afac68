"""Which tokens did it?"""

from functools import partial

import pandas as pd

from ratioscope.analysis.runs.window import Window
from ratioscope.analysis.tokens.attribution import MEASURES, OWNERS, Attribution, sentence, shares
from ratioscope.analysis.tokens.worst_sequences import CRITERIA, worst_sequences
from ratioscope.dashboard.figures import tokens as figures
from ratioscope.dashboard.formats import plain, share
from ratioscope.dashboard.sections.absent import not_said
from ratioscope.dashboard.sections.model import Block, Chart, Paragraph, Piece, Section, Table
from ratioscope.dashboard.sections.subject import Subject, attempt, chart, reason
from ratioscope.errors import RatioscopeError

QUESTION = "Which tokens did it?"
TOKENS = 200_000
"""What looks at single tokens looks at the latest steps with so many of them."""
MEASURE, OWNER, TOP = "rho_squared", "token_position", 0.01
"""The sum and its grouping that the answer is about, and the share of the tokens with the largest parts."""

_CRITERION, _WORST, _LONGEST = "largest_log_weight", 10, 300


def section(subject: Subject) -> Section:
    """The extremes, the worst responses with their texts, and which tokens carry Σρ²."""
    window = subject.window(TOKENS)
    blocks: list[Block] = [extremes(subject), *attempt(subject, lambda: [_worst(subject, window)])]
    if not subject.log.has_ratios:
        return Section("tokens", "Tokens", QUESTION, without_ratios(subject), tuple(blocks))
    try:
        said = answer(subject, window)
    except RatioscopeError as error:
        said = reason(subject, error)
    return Section("tokens", "Tokens", QUESTION, said, tuple(blocks))


def answer(subject: Subject, window: Window) -> str:
    """Which tokens carry Σρ².

    Raises:
        RatioscopeError: these steps do not tell.
    """
    return f"{window.words.capitalize()}: {sentence(owned(subject, window))}"


def without_ratios(subject: Subject) -> str:
    """What is left of the question where no token has a ratio."""
    what = "responses and their tokens" if subject.log.has_tokens else "responses"
    return f"{not_said(subject, 'tokens')} The {what} can be read."


def owners(subject: Subject) -> list[str]:
    """What tokens can be grouped by, as far as it is logged; the first is the usual one."""
    columns = {"prompt": "sequences.prompt", "version_lag": "behavior_version", "sign(advantage)::int": "advantage"}
    log = subject.log
    known = [name for name, owner in OWNERS.items() if all(log.has(columns.get(key, key)) for key in owner.keys)]
    first = OWNER if OWNER in known else "position"
    return [first, *(name for name in known if name != first)]


def measures(subject: Subject) -> list[str]:
    """The sums that the log gives."""
    return [name for name in MEASURES if name != "update" or subject.log.has_update]


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
    largest = subject.summary.values["ratio_max"].dropna()
    said = "No step has a ratio."
    if len(largest):
        said = f"The largest token ratio is {plain(largest.max())}, in step {largest.idxmax()}."
    draw = partial(figures.extremes, subject.shown, steps=subject.steps)
    title, columns = "The most extreme tokens of each step", list(figures.COLUMNS)
    return chart(subject.mode, "extremes", title, draw, said, subject.shown.values[columns], columns, by_step=True)


def _worst(subject: Subject, window: Window) -> Piece:
    found = subject.compute(worst_sequences, _CRITERION, *window.steps, limit=_WORST)
    if not len(found):
        return Paragraph(f"No response in {window.words} has a usable weight.")
    return _table(found, f"{CRITERIA[_CRITERION].title}: the {len(found)} worst of {window.words}")


def _table(worst: pd.DataFrame, title: str) -> Table:
    rows = tuple(
        (
            f"{int(row['step'])} / {int(row['seq_id'])}", plain(row["log_w"]), plain(row["max_log_ratio"]),
            plain(row["min_log_ratio"]), share(row["clipped"]) if pd.notna(row["clipped"]) else "–",
            plain(row["reward"]) if pd.notna(row["reward"]) else "–", f"{int(row['n_tokens']):,}",
            _text(row.get("prompt")), _text(row.get("response")),
        )
        for row in worst.to_dict("records")
    )  # fmt: skip
    head = ("Step / response", "log W", "max log ρ", "min log ρ", "Clipped", "Reward", "Tokens", "Prompt", "Text")
    return Table(title, head, rows, "Ratios in nats; W is the product of a response's token ratios.")


def _text(text: object) -> str:
    if not isinstance(text, str):
        return "not logged"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"
