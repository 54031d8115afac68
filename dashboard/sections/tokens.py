"""Which tokens did it?"""

from functools import partial

import pandas as pd

from ratioscope.analysis.tokens.attribution import sentence, shares
from ratioscope.analysis.tokens.worst_sequences import CRITERIA, worst_sequences
from ratioscope.dashboard.figures import tokens as figures
from ratioscope.dashboard.formats import plain, share
from ratioscope.dashboard.sections.model import Block, Paragraph, Section, Table
from ratioscope.dashboard.sections.subject import Subject, chart, where
from ratioscope.errors import RatioscopeError

_CRITERION, _WORST, _LONGEST = "largest_log_weight", 10, 300


def section(subject: Subject) -> Section:
    """The extremes, the worst responses with their texts, and who owns Σρ²."""
    run, summary = subject.opened.run, subject.summary
    first, last = subject.window().steps
    largest = summary.values["ratio_max"].dropna()
    extreme = "No step has a ratio."
    if len(largest):
        extreme = f"The largest ratio of a token is {plain(largest.max())}, in step {largest.idxmax()}."
    columns = list(figures.COLUMNS)
    blocks: list[Block] = [
        chart(subject.mode, "extremes", "The most extreme tokens of each step",
              partial(figures.extremes, summary, steps=subject.steps), extreme, summary.values[columns],
              tuple(columns)),
    ]  # fmt: skip
    try:
        owned = shares(run, "rho_squared", "token_position", first, last, among_top=0.01)
        answer = f"{where(first, last).capitalize()}: {sentence(owned)}"
    except RatioscopeError as error:
        answer = str(error)
    worst = worst_sequences(run, _CRITERION, first, last, limit=_WORST)
    if len(worst):
        blocks.append(_table(worst, f"{CRITERIA[_CRITERION].title}: the {len(worst)} worst of {where(first, last)}"))
    else:
        blocks.append(Paragraph(f"No response of {where(first, last)} has a usable weight."))
    return Section("tokens", "Tokens", "Which tokens did it?", answer, tuple(blocks))


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
