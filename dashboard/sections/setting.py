"""What was run: algorithm components, schedule, model, data."""

from collections.abc import Mapping
from typing import Any

from ratioscope.analysis.compare.configuration import flatten_settings
from ratioscope.analysis.compare.grouping import SCHEDULE_UNKNOWN, schedule_words
from ratioscope.analysis.findings.numbers import capital
from ratioscope.dashboard.formats import count
from ratioscope.dashboard.sections.model import Paragraph, Table
from ratioscope.dashboard.sections.page import Page
from ratioscope.dashboard.sections.subject import Subject, steps_in_words
from ratioscope.run_format.manifest import Manifest

_PARTS = ("algorithm", "schedule", "sampler", "model", "task", "optimiser")


def in_a_line(manifest: Manifest) -> str:
    """What was run, as far as the manifest says: algorithm, schedule, learning rate, model, task; text of the log."""
    schedule = schedule_words(manifest.schedule, manifest.sampler)
    rate = manifest.optimiser.get("learning_rate")
    model = str(manifest.model.get("path") or manifest.model.get("architecture") or "").rpartition("/")[2]
    parameters = manifest.model.get("parameters")
    size = f"{count(parameters)} parameters" if isinstance(parameters, int) else ""
    named = f"{model} of {size}" if model and size else model or size
    task = manifest.task.get("name")
    return "; ".join(
        filter(
            None,
            (
                manifest.algorithm_name or "algorithm not stated",
                schedule if schedule != SCHEDULE_UNKNOWN else "",
                "" if rate is None else f"learning rate {rate}",
                named,
                f"task {task}" if task else "",
            ),
        )
    )


def origin(subject: Subject) -> list[Table]:
    """Where a run of another program comes from, what is assumed of it, and which columns it does not have; text of the
    log."""
    manifest = subject.opened.run.manifest
    source = tuple((name, str(value)) for name, value in flatten_settings(manifest.source) if value not in ("", None))
    missing = tuple((name, str(why)) for name, why in manifest.missing.items())
    return [
        Table("Where it comes from", ("", ""), source),
        Table("What is assumed", ("Assumption",), tuple((text,) for text in manifest.assumed)),
        Table("Columns that the source does not have", ("Column", "Why"), missing),
    ]


def cautions(subject: Subject) -> list[Paragraph]:
    """What holds for all numbers of the run, without the assumptions of `origin`, which tokens they are of, and what
    holds for its limits."""
    log = subject.log
    said = [text for text in log.cautions if text not in log.assumed]
    both = subject.opened.populations
    said += [both.words] if both else []
    return [Paragraph(text, small=True) for text in (*said, subject.opened.moved_limits) if text]


def answer(subject: Subject) -> str:
    """What was run, and how much of it is on disk."""
    manifest, summary = subject.opened.run.manifest, subject.summary
    steps = summary.values.index
    tokens, sequences = summary.values["n_tokens"].sum(), summary.values["n_sequences"].sum()
    held = f"{count(tokens)} tokens in " if subject.log.has_tokens else ""
    size = (
        f"{steps_in_words(int(steps[0]), int(steps[-1]))} with {held}{count(sequences)} responses"
        if len(steps)
        else "no step"
    )
    named = manifest.algorithm_name or "an unknown algorithm"
    if manifest.source.get("framework"):
        named += f" of {manifest.source['framework']}"
    words = schedule_words(manifest.schedule, manifest.sampler)
    under = "" if words == SCHEDULE_UNKNOWN else f" under {words}"
    return f"{capital(named)}{under}: {size}; the run is {subject.opened.run.status}."


def parts(subject: Subject) -> list[Table]:
    """The manifest, a table a part."""
    manifest, found = subject.opened.run.manifest, []
    for name in _PARTS:
        values: Mapping[str, Any] = getattr(manifest, name)
        rows = tuple((key, str(value)) for key, value in flatten_settings(values))
        if rows:
            found.append(Table(name.capitalize(), ("Setting", "Value"), rows))
    return found


def run(subject: Subject) -> Table:
    """When, by which program, and for how long."""
    manifest = subject.opened.run.manifest
    plan = manifest.planned_updates
    rows = (
        ("run", manifest.name),
        ("created", manifest.created or "not stated"),
        ("written by", _producer(manifest.producer)),
        ("seed", "not stated" if manifest.seed is None else str(manifest.seed)),
        ("planned updates", "not stated" if plan is None else f"{plan:,}"),
        ("tags", ", ".join(manifest.tags) or "none"),
        ("notes", manifest.notes or "none"),
    )
    return Table("Run", ("", ""), rows)


def _producer(producer: Mapping[str, str]) -> str:
    """A program, and what it ran with, each with its version."""
    parts = dict(producer)
    named = " ".join(str(parts.pop(key)) for key in ("name", "version") if key in parts)
    others = ", ".join(f"{key} {version}" for key, version in sorted(parts.items()))
    return ", with ".join(filter(None, (named, others))) or "not stated"


PAGE = Page("setting", "What was run", "What was run?", 120, answer=answer, report=[cautions, run, origin, parts])
