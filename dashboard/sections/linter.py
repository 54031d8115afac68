"""Can this log be trusted?"""

from collections.abc import Iterable
from functools import partial

import pandas as pd

from ratioscope.analysis.findings.finding import Finding
from ratioscope.analysis.linter import CHECKS
from ratioscope.analysis.linter.columns import impossible_values, undefined_metrics
from ratioscope.analysis.linter.verdict import log_verdict, ranges
from ratioscope.dashboard.figures import linter as figures
from ratioscope.dashboard.formats import plain_number, share
from ratioscope.dashboard.sections.drift import rounding
from ratioscope.dashboard.sections.model import Paragraph, Piece, Table
from ratioscope.dashboard.sections.page import Page
from ratioscope.dashboard.sections.subject import Subject, chart


def checks(subject: Subject) -> Table:
    """Every check with its outcome."""
    head = ("Check", "Outcome", "What was seen", "What to do", "Steps")
    return Table(f"Checks of {subject.checked.words}", head, tuple(map(_row, subject.remarks)))


def _row(remark: Finding) -> tuple[str, ...]:
    return (remark.rule.replace("_", " "), remark.word, remark.sentence, remark.do, ranges(remark.steps))


def listed(remarks: Iterable[Finding], seen: str) -> Table:
    """What some checks look for and what they saw, under this head."""
    rows = tuple((title(remark.rule), _question(remark.rule), remark.sentence) for remark in remarks)
    return Table("", ("Check", "Looks for", seen), rows, sentences=True)


def title(check: str) -> str:
    """A check's name in words."""
    return check.replace("_", " ").capitalize()


def _question(check: str) -> str:
    """What a check looks at: the first paragraph of its own description."""
    return CHECKS[check].question


def impossible(found: pd.DataFrame) -> list[Table]:
    """Values that are not finite, of `analysis.linter.columns.impossible_values`, where there are any."""
    rows = tuple(
        (str(row["column"]), str(row["cause"]), f"{int(row['values']):,}", share(row["share"]))
        for row in found.to_dict("records")
    )
    note = (
        "-∞ under the current or the new policy is a valid ratio of 0, and an infinite exact χ² is what a "
        "truncated support gives. Nothing is replaced."
    )
    head = ("Column", "Cause", "Values", "Share of rows")
    return [Table("Values that are not finite, by column and cause", head, rows, note)] if rows else []


def noise_floor(subject: Subject) -> list[Piece]:
    """Staleness and engine mismatch beside the noise floor of two passes of one model, where that was measured."""
    rounded = rounding(subject)
    steps = subject.shown.steps
    measured = [name for name in figures.FLOORS if name in steps and steps[name].notna().any()]
    if not measured:
        unmeasured = (
            "The noise floor was not measured: neither noise_floor_shape nor noise_floor_dtype is logged. On "
            "the same weights, float32 rounding is taken as the floor."
        )
        return [Paragraph(unmeasured, small=True), *rounded]
    floors = steps[measured].dropna(how="all")
    largest = "; ".join(f"{figures.FLOORS[name][0]}, at most {plain_number(floors[name].max())}" for name in measured)
    said = Paragraph(f"Measured: {largest}. Values of 0 are not drawn on the logarithmic axis.", small=True)
    if not (floors > 0).any(axis=None):
        return [said, *rounded]
    draw = partial(figures.noise_floor, subject.shown, steps=subject.steps)
    heading = "Staleness and engine mismatch against the noise floor of two passes of one model"
    sentence = "At the noise floor it is rounding; above it, old weights or an engine mismatch."
    return [chart(subject.mode, "floor", heading, draw, sentence, floors, by_step=True), said, *rounded]


def undefined(subject: Subject) -> list[Table]:
    """Metrics that are missing in all steps because something is not logged, where there are any."""
    found = undefined_metrics(subject.summary)
    rows = tuple(zip(found["reason"].astype(str), found["metrics"].astype(str), strict=True))
    head = ("What is missing", "Metrics")
    return [Table("Metrics that this log cannot give", head, rows, sentences=True)] if rows else []


PAGE = Page(
    "linter", "Linter", "Can this log be trusted?", 105, ":material/fact_check:", own=True,
    answer=lambda subject: log_verdict(subject.remarks),
    tiles=("ratio_mean", "ratio_mean_z", "s_k_engine_bounded", "s_k_exact_z"),
    report=[
        checks,
        lambda subject: impossible(subject.compute(impossible_values, *subject.checked.steps)),
        noise_floor, undefined,
    ],
)  # fmt: skip
