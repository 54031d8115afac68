"""Can this log be trusted?"""

from functools import partial

from ratioscope.analysis.linter import Remark
from ratioscope.analysis.linter.columns import impossible_values, undefined_metrics
from ratioscope.analysis.linter.verdict import ranges, verdict
from ratioscope.dashboard.figures import linter as figures
from ratioscope.dashboard.formats import share
from ratioscope.dashboard.sections.model import Block, Section, Table
from ratioscope.dashboard.sections.subject import Subject, chart


def section(subject: Subject) -> Section:
    """Every check with its outcome, impossible values, the noise floor, metrics that are nowhere defined."""
    remarks, (first, last) = subject.remarks, subject.checked.steps
    checks = Table(
        f"Checks of steps {first} to {last}", ("Check", "Outcome", "What was seen", "What to do", "Steps"),
        tuple(map(_row, remarks)),
    )  # fmt: skip
    blocks: list[Block] = [checks]
    impossible = impossible_values(subject.opened.run, first, last)
    if len(impossible):
        rows = tuple(
            (str(row["column"]), str(row["cause"]), f"{int(row['values']):,}", share(row["share"]))
            for row in impossible.to_dict("records")
        )
        note = (
            "-∞ under the current or the new policy is a legitimate ratio of 0, and an infinite exact χ² is what a "
            "truncated support looks like; nothing is replaced."
        )
        blocks.append(Table("Values that are no finite numbers", ("Column", "Cause", "Values", "Share"), rows, note))
    blocks += _noise_floor(subject)
    undefined = undefined_metrics(subject.summary)
    if len(undefined):
        reasons = tuple(zip(undefined["reason"].astype(str), undefined["metrics"].astype(str), strict=True))
        blocks.append(Table("Metrics that this log cannot give", ("What is missing", "Metrics"), reasons))
    return Section("linter", "Linter", "Can this log be trusted?", verdict(remarks), tuple(blocks))


def _row(remark: Remark) -> tuple[str, ...]:
    word = remark.severity.word if remark.severity else remark.outcome.value
    return (remark.check.replace("_", " "), word, remark.sentence, remark.do, ranges(remark.steps))


def _noise_floor(subject: Subject) -> list[Block]:
    summary = subject.summary
    measured = [name for name in figures.FLOORS if name in summary.steps and summary.steps[name].notna().any()]
    if not measured:
        return []
    draw = partial(figures.noise_floor, summary, steps=subject.steps)
    sentence = "What lies at the noise floor is rounding; what lies above it is old weights or another engine."
    title = "Staleness and engine mismatch against what two passes of one model differ by"
    return [chart(subject.mode, "floor", title, draw, sentence, summary.steps[measured].dropna(how="all"))]
