"""A translation, or the dictionary behind it, as text for the terminal and as JSON."""

from collections.abc import Iterable, Sequence
from typing import Any

from ratioscope.analysis.findings.numbers import number
from ratioscope.analysis.findings.plain import json_value
from ratioscope.analysis.frameworks import DIALECTS
from ratioscope.analysis.frameworks.definition import Dialect, Parameters, TheirNumber
from ratioscope.analysis.frameworks.naming import Named, numbers_near
from ratioscope.analysis.frameworks.translation import Agreement, TranslatedNumber, Translation
from ratioscope.analysis.runs.store import Run
from ratioscope.catalogue import ENTRIES
from ratioscope.run_format.schema import SCHEMA_VERSION

HEADINGS = {
    Agreement.EQUAL: "The same number in every step",
    Agreement.DIFFERENT: "A different number",
    Agreement.ALONE: "No number like it here",
    Agreement.MISSING: "Not in this log",
    Agreement.UNDEFINED: "Undefined in these steps",
}


def relation(row: TheirNumber) -> str:
    """Which number here it is, and whether it is defined as that one, in words."""
    if row.ours:
        return f"{row.ours}, {'the same definition' if row.same else 'defined differently'}"
    return f"no number like it; {row.instead} is nearest"


def difference_in_words(line: TranslatedNumber) -> str:
    """In how many steps the two differ, and where most; "" where they do not."""
    step = line.furthest
    if step is None:
        return ""
    theirs, ours = line.at(step)
    of = int(line.compared.sum())
    return (
        f"differs in {int(line.differs.sum())} of {of} steps, most in step {step}: {number(theirs)} against "
        f"{number(ours)}"
    )


def without(line: TranslatedNumber) -> str:
    """Why there is no value."""
    if line.outcome is Agreement.MISSING and "micro_batch" not in line.missing:
        return f"{line.missing.replace(', ', ' and ')} not logged"
    return line.note or f"{line.row.ours} is undefined"


def values_used(parameters: Parameters) -> str:
    """The values that numbers are computed with."""
    return ", ".join(f"{name} {value:g}" for name, value in parameters.items())


def loss_named(found: Translation) -> str:
    """The loss that the run names, behind the values; "" where it names none."""
    return f", loss {found.loss}" if found.loss else ""


def agreement_sentence(found: Translation) -> str:
    """How many of a framework's numbers are ours, differ, have no counterpart, or cannot be computed from the log."""
    words = {  # of one, of several
        Agreement.EQUAL: ("equals ours in every step", "equal ours in every step"),
        Agreement.DIFFERENT: ("differs", "differ"),
        Agreement.ALONE: ("has no counterpart", "have no counterpart"),
        Agreement.MISSING: ("needs a column that is not logged", "need a column that is not logged"),
        Agreement.UNDEFINED: ("is undefined", "are undefined"),
    }
    sizes = {outcome: len(found.with_outcome(outcome)) for outcome in Agreement}
    counts = [f"{n} {words[outcome][n > 1]}" for outcome, n in sizes.items() if n]
    return f"Of {len(found.lines)} numbers of {found.dialect.framework.title} {', '.join(counts)}."


def translation_text(found: Translation) -> str:
    """One paragraph an outcome, the reasons below each number."""
    dialect = found.dialect
    steps = f"Steps {found.steps[0]} to {found.steps[1]}" if found.steps else "No step with a usable token"
    head = [
        _head(dialect),
        f"With {values_used(found.parameters)}{loss_named(found)}.",
        f"{steps}; of each number the last value.",
    ]
    parts = ["\n".join(head)]
    for outcome, heading in HEADINGS.items():
        lines = found.with_outcome(outcome)
        if lines:
            shown = [_values(line, found.steps) for line in lines]
            parts.append(f"{heading}:\n" + _paragraphs(shown, [_reasons(line) for line in lines]))
    return "\n\n".join([*parts, _never(dialect)])


def text_by_step(line: TranslatedNumber, framework: str) -> str:
    """One number step by step."""
    row = line.row
    head = f"{row.name} of {DIALECTS[framework].framework.title}: {row.formula}.\nHere: {relation(row)}. {row.why}"
    columns = {"value": "theirs", "our_value": row.ours, "difference": "difference", "note": "note"}
    shown = line.by_step[[name for name in columns if row.ours or name in ("value", "note")]].rename(columns=columns)
    if not len(shown):
        return f"{head}\n\nNo step with a usable token."
    return f"{head}\n\n" + shown.to_string(float_format=lambda value: f"{value:.4g}", na_rep="-")


def dictionary(framework: str) -> str:
    """Every number of a framework: which one here it is, and why it differs."""
    dialect = DIALECTS[framework]
    shown = [(row.name, relation(row)) for row in dialect.rows]
    reasons = [[f"{row.formula}. {row.why}"] for row in dialect.rows]
    return f"{_head(dialect)}\n\n{_paragraphs(shown, reasons)}\n\n{_never(dialect)}"


def explain(named: Named) -> str:
    """One number of a framework, for `ratioscope explain`."""
    dialect = DIALECTS[named.framework]
    lines = [f"{named.name} in {dialect.framework.title}", ""]
    if named.row is None:
        return "\n".join([*lines, f"  here      cannot be reproduced from a log of tokens: {named.reason}"])
    row = named.row
    entry = ENTRIES[row.nearest]
    told = [
        ("what", row.formula),
        ("here", f"{relation(row)} ({entry.title.lower()})"),
        ("why", row.why),
        ("assumed", f"{dialect.settings} ({values_used(dialect.parameters)})"),
        ("source", dialect.framework.source),
    ]
    return "\n".join([*lines, *(f"  {label:<9} {words}" for label, words in told)])


def elsewhere(key: str) -> str:
    """What the frameworks call a metric, below its explanation: one line each; "" where none has it."""
    near = [named for named in numbers_near(key) if named.row and named.row.ours]
    return "".join(
        f"\n  in {DIALECTS[named.framework].framework.title:<9} {named.name}"
        f"{'' if named.row and named.row.same else ', defined differently'}"
        for named in near
    )


def translation_json(
    run: Run | None, found: Sequence[Translation], frameworks: Iterable[str] = (), first: Sequence[str] = ()
) -> dict[str, Any]:
    """The stable shape of `ratioscope translate --json`: undefined is null, and without a run so is every value.

    Args:
        found: the translations of the run.
        frameworks: without a run, whose dictionaries.
        first: what is to be known before any number is read (`impossible.impossible`).
    """
    steps = next((each.steps for each in found if each.steps), None)
    described = [_framework(each.framework, each.parameters, each.lines) for each in found]
    described += [_framework(name, DIALECTS[name].parameters, DIALECTS[name].rows) for name in frameworks]
    return {
        "schema_version": run.manifest.schema_version if run else SCHEMA_VERSION,
        "run": run.manifest.name if run else None,
        "steps": list(steps) if steps else None,
        "first": list(first),
        "frameworks": described,
    }


def _framework(key: str, parameters: Parameters, numbers: Iterable[TranslatedNumber | TheirNumber]) -> dict[str, Any]:
    dialect = DIALECTS[key]
    return {
        "framework": key,
        "title": dialect.framework.title,
        "source": dialect.framework.source,
        "settings": dialect.settings,
        "parameters": dict(parameters),
        "numbers": [_number(each) for each in numbers],
        "not_reproducible": dict(dialect.not_reproducible),
    }


def _number(of: TranslatedNumber | TheirNumber) -> dict[str, Any]:
    row, line = (of.row, of) if isinstance(of, TranslatedNumber) else (of, None)
    theirs, ours = line.at(line.step) if line else (None, None)
    return {
        "name": row.name,
        "metric": row.ours or None,
        "same_definition": row.same,
        "nearest": row.nearest,
        "formula": row.formula,
        "why": row.why,
        "outcome": line.outcome.value if line else None,
        "step": line.step if line else None,
        "value": json_value(theirs),
        "our_value": json_value(ours),
        "missing": line.missing.split(", ") if line and line.missing else [],
        "by_step": _by_step(line) if line else [],
    }


def _by_step(line: TranslatedNumber) -> list[dict[str, Any]]:
    frame = line.by_step[["value", "our_value", "difference", "clamped", "note"]].reset_index()
    return [{str(name): json_value(value) for name, value in row.items()} for row in frame.to_dict("records")]


def _head(dialect: Dialect) -> str:
    return f"{dialect.framework.title} ({dialect.framework.source})\nAssumed: {dialect.settings}."


def _never(dialect: Dialect) -> str:
    names = dialect.not_reproducible
    lines = [f"  {name}\n      {reason}" for name, reason in names.items()]
    return "\n".join(["Cannot be reproduced from a log of tokens:", *lines])


def _values(line: TranslatedNumber, steps: tuple[int, int] | None) -> tuple[str, ...]:
    """Name, their value, our key and value, and the step where it is not the last."""
    if line.outcome in (Agreement.MISSING, Agreement.UNDEFINED):
        return line.name, without(line)
    theirs, ours = line.at(line.step)
    step = f"(step {line.step})" if steps and line.step != steps[1] else ""
    return line.name, f"{theirs:.4g}", *((line.row.ours, f"{ours:.4g}") if line.row.ours else ()), step


def _reasons(line: TranslatedNumber) -> list[str]:
    """What is to be said below a number; of one that is ours nothing."""
    note = line.note if line.outcome not in (Agreement.MISSING, Agreement.UNDEFINED) else ""
    if line.outcome is Agreement.EQUAL:
        by_chance = "" if line.row.same else f"Equal in these steps, not by definition: {line.row.why}"
        return list(filter(None, [by_chance, note]))
    see = f" Nearest here: {line.row.instead}." if line.row.instead else ""
    return [*filter(None, [difference_in_words(line), note]), f"{line.row.formula}. {line.row.why}{see}"]


def _paragraphs(rows: Sequence[tuple[str, ...]], reasons: Sequence[Sequence[str]]) -> str:
    """Rows in columns, each with its reasons below."""
    columns = max(map(len, rows))
    widths = [max((len(row[place]) for row in rows if place < len(row) - 1), default=0) for place in range(columns)]
    lines = []
    for row, below in zip(rows, reasons, strict=True):
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False))
        lines += [f"  {'  '.join(cells)}".rstrip(), *(f"      {reason}" for reason in below)]
    return "\n".join(lines)
