"""What ended a run: the last stable step, and its numbers beside those of the end."""

import numpy as np

from ratioscope.analysis.diagnosis.post_mortem import PostMortem
from ratioscope.analysis.findings.watched import WATCHED_METRICS
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.sections.model import Cell, Paragraph, Section, Table
from ratioscope.dashboard.sections.subject import Subject

TITLE = "Post-mortem"


def section(subject: Subject, found: PostMortem) -> Section:
    """The critical findings by when they began, and the numbers at the last stable step, where they began, and last."""
    began = Table(
        "What began when",
        ("Last stable step", "First seen in step", "By", "Finding"),
        tuple(
            (
                "none" if onset.stable is None else str(onset.stable),
                str(onset.step),
                CATALOGUE[onset.by].title,
                onset.finding.sentence,
            )
            for onset in found.onsets
        ),
    )
    todo = Paragraph(found.first.finding.do, lead="What to do.")
    return Section(
        "post-mortem", TITLE, "Which was the last stable step?", found.sentence, (todo, began, _numbers(subject, found))
    )


def _numbers(subject: Subject, found: PostMortem) -> Table:
    """The metrics that can go wrong, at these steps; the last value before a step where it has none itself."""
    steps = [step for step in (found.last_stable, found.first.step, found.last) if step is not None]
    heads = {found.last: "last", found.first.step: "first touched", found.last_stable: "last stable"}
    keys = dict.fromkeys([*(onset.by for onset in found.onsets), "reward", "eval_accuracy", *WATCHED_METRICS])
    values, rows = subject.opened.summary.values, []
    for key in subject.applicable(keys):
        known = values[key].dropna()
        if not len(known):
            continue
        cells: list[Cell] = []
        for step in dict.fromkeys(steps):
            there = known.index[known.index <= step]
            cells.append(subject.quantity(key, int(there[-1])) if len(there) else "–")
        if np.isfinite(known).any():
            rows.append((CATALOGUE[key].title, *cells))
    head = ("Metric", *(f"Step {step} ({heads[step]})" for step in dict.fromkeys(steps)))
    return Table("Then and now", head, tuple(rows), "Where a step has no value, the last one before it.")
