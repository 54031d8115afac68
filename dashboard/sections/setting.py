"""What was run: algorithm components, schedule, model, data."""

from collections.abc import Mapping
from typing import Any

from ratioscope.analysis.compare.configuration import flatten
from ratioscope.analysis.compare.grouping import schedule_words
from ratioscope.dashboard.formats import count
from ratioscope.dashboard.sections.model import Block, Section, Table
from ratioscope.dashboard.sections.subject import Subject, where

TITLE = "What was run"
_PARTS = ("algorithm", "schedule", "sampler", "model", "task", "optimiser")


def section(subject: Subject) -> Section:
    """The manifest as tables, and how much of the run is on disk."""
    manifest, summary = subject.opened.run.manifest, subject.summary
    steps = summary.values.index
    tokens, sequences = summary.values["n_tokens"].sum(), summary.values["n_sequences"].sum()
    size = (
        f"{where(int(steps[0]), int(steps[-1]))} with {count(tokens)} tokens in {count(sequences)} responses"
        if len(steps)
        else "no step"
    )
    algorithm = str(manifest.algorithm.get("name", "an unknown algorithm"))
    answer = f"{algorithm} under {schedule_words(manifest.schedule)}: {size}; the run is {subject.opened.run.status}."
    blocks: list[Block] = []
    for name in _PARTS:
        values: Mapping[str, Any] = getattr(manifest, name)
        rows = tuple((key, str(value)) for key, value in flatten(values))
        if rows:
            blocks.append(Table(name.capitalize(), ("Setting", "Value"), rows))
    plan = manifest.planned_updates
    rows = (
        ("run", manifest.name),
        ("created", manifest.created or "not stated"),
        ("written by", " ".join(str(part) for part in manifest.producer.values()) or "not stated"),
        ("seed", "not stated" if manifest.seed is None else str(manifest.seed)),
        ("planned updates", "not stated" if plan is None else f"{plan:,}"),
        ("tags", ", ".join(manifest.tags) or "none"),
        ("notes", manifest.notes or "none"),
    )
    return Section("setting", TITLE, "What was run?", answer, (Table("Run", ("", ""), rows), *blocks))
