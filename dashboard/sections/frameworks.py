"""The same log as other frameworks report it: what differs and why."""

from collections.abc import Collection
from functools import partial

from ratioscope.analysis.findings.numbers import capital
from ratioscope.analysis.findings.watched import sentence_start
from ratioscope.analysis.frameworks import DIALECTS, theirs
from ratioscope.analysis.frameworks.impossible import impossible
from ratioscope.analysis.frameworks.naming import written_by
from ratioscope.analysis.frameworks.translation import Agreement, TranslatedNumber, Translation, translation
from ratioscope.analysis.frameworks.writing import (
    HEADINGS,
    agreement_sentence,
    difference_in_words,
    loss_named,
    values_used,
    without,
)
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.figures import frameworks as figures
from ratioscope.dashboard.formats import plain_number
from ratioscope.dashboard.sections.model import Cell, Chart, Quantity, Table
from ratioscope.dashboard.sections.page import Page
from ratioscope.dashboard.sections.subject import Subject, chart, steps_in_words

TOKENS = 300_000
"""Every number needs all tokens of a step: the latest steps with about so many, unless steps are chosen."""


def answer(subject: Subject) -> str:
    """What cannot be, then a sentence a framework."""
    asked = _asked(subject)
    first = impossible(subject.opened.run)
    return " ".join([*first, *map(agreement_sentence, asked)])


def tables(subject: Subject) -> list[Table]:
    """Of each framework what it logs, and what a token log cannot give."""
    return [found for each in _asked(subject) for found in (table(subject, each), never(each))]


def _asked(subject: Subject) -> list[Translation]:
    """Of the framework that is asked for, or that the run names; else of all."""
    asked = subject.framework or written_by(subject.opened.run.manifest)
    return [translated(subject, framework) for framework in ([asked] if asked else DIALECTS)]


def translated(subject: Subject, framework: str) -> Translation:
    """The latest steps, or the chosen ones."""
    found = subject.compute(theirs, framework, *subject.window(TOKENS).steps)
    return translation(found, framework, subject.opened.summary, subject.opened.run.manifest)


def table(subject: Subject, found: Translation, metrics: Collection[str] = CATALOGUE.keys()) -> Table:
    """Their numbers near to these metrics beside ours, a row each."""
    title = found.dialect.framework.title
    steps = steps_in_words(found.steps[0], found.steps[1]) if found.steps else "no step with usable tokens"
    head = (f"In {title}", "Its value", "Here", "Our value", "Compared", "What it is, and why it differs")
    rows = tuple(_row(subject, line) for line in near(found, metrics))
    framework = found.dialect.framework
    note = (
        f"Assumed: {found.dialect.settings}; {values_used(found.parameters)}{loss_named(found)}. "
        f"Read from {framework.source}."
    )
    return Table(f"As {title} reports it, {steps}", head, rows, note)


def never(found: Translation) -> Table:
    """What no log of tokens can give."""
    title = found.dialect.framework.title
    return Table(f"What {title} logs and a token log cannot give", ("Name", "Why"),
                 tuple(found.dialect.not_reproducible.items()))  # fmt: skip


def near(found: Translation, metrics: Collection[str]) -> list[TranslatedNumber]:
    """The lines that are nearest to these metrics: what is comparable first."""
    return [line for outcome in HEADINGS for line in found.with_outcome(outcome) if line.row.nearest in metrics]


def series(subject: Subject, line: TranslatedNumber) -> Chart:
    """Their number over the steps, beside ours where there is one."""
    row, words = line.row, compared(line)
    draw = partial(figures.theirs_and_ours, line.by_step, row.name, row.ours, steps=subject.steps)
    takeaway = f"{sentence_start(words)}. {row.why}"
    keys = (row.ours,) if row.ours else ()
    return chart(subject.mode, "as-reported", row.name, draw, takeaway, line.by_step, keys, by_step=True)


def _row(subject: Subject, line: TranslatedNumber) -> tuple[Cell, ...]:
    row = line.row
    value, our_value = line.at(line.step)
    ours: Cell = "–"
    if row.ours and line.step is not None:
        ours = Quantity(subject.opened.run_id, row.ours, line.step, our_value, plain_number(our_value))
    title = CATALOGUE[row.nearest].title
    here = title if row.ours else f"none; nearest: {title}"
    what = capital(row.formula)
    return row.name, plain_number(value), here, ours, compared(line), f"{what}. {row.why}"


def compared(line: TranslatedNumber) -> str:
    """The outcome in words, with the steps where they differ or the column that is missing."""
    match line.outcome:
        case Agreement.DIFFERENT:
            return difference_in_words(line)
        case Agreement.MISSING | Agreement.UNDEFINED:
            return without(line)
        case Agreement.EQUAL:
            words = "equal in every step" if line.row.same else "equal in these steps, but not by definition"
        case Agreement.ALONE:
            words = "no matching number here"
    return f"{words}; {line.note}" if line.note else words


PAGE = Page(
    "frameworks", "In other frameworks", "Which of their numbers matches ours?", 130,
    asks=("tokens",),
    answer=answer,
    report=[tables],
)  # fmt: skip
