"""What a section is about, a run and some of its steps, and the pieces that sections share: charts, tables, numbers."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import sep
from typing import Any, Concatenate, ParamSpec, TypeVar

import pandas as pd
import plotly.graph_objects as go

from ratioscope.analysis.clipping.sentences import SHARES, cannot_clip
from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.diagnosis.rule import rule_words
from ratioscope.analysis.findings.facts import Facts, unreliable_steps
from ratioscope.analysis.findings.finding import Finding, Severity
from ratioscope.analysis.findings.logged import Logged, logged
from ratioscope.analysis.findings.numbers import capital
from ratioscope.analysis.findings.words import FEW_GROUPS, are_few, listed
from ratioscope.analysis.linter import lint
from ratioscope.analysis.overview.verdict import Verdict, run_verdict
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.runs.window import FirstLast, Window, window_of
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard import theme
from ratioscope.dashboard.figures.kept import over_steps_json as drawn_over_steps
from ratioscope.dashboard.figures.series import Limit
from ratioscope.dashboard.formats import interval, metric_value
from ratioscope.dashboard.sections.model import Block, Cell, Chart, Paragraph, Quantity, Table
from ratioscope.errors import RatioscopeError
from ratioscope.notes import Kind, text_of

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# What looks at single tokens looks at the latest steps with so many of them, unless steps are chosen.
TOKENS = 100_000
NO_STEP = "No step of this run lies in the chosen range."


@dataclass(frozen=True)
class Subject:
    """A run and the steps of it that a report is about; for a page see `components.blocks.PageSubject`."""

    opened: Opened
    steps: FirstLast = (None, None)
    mode: theme.Mode = theme.LIGHT
    """The colours that figures are drawn in."""
    smoothing: int = 1
    """Lines over steps are running means over so many of them; 1: as logged."""
    logarithmic: bool = False
    """Whether the values over steps have a logarithmic axis, where all are positive."""
    framework: str = ""
    """Whose numbers are asked for, a key of `analysis.frameworks.DIALECTS`; "": the run's, or all."""

    @cached_property
    def summary(self) -> StepSummary:
        """Of these steps alone."""
        return self.opened.summary.up_to(*self.steps)

    @property
    def shown(self) -> StepSummary:
        """What figures over the steps draw."""
        return self.summary

    @cached_property
    def cannot_clip(self) -> str:
        """Why no step of the run clips a token, where its algorithm has no gate to do so; else empty."""
        return cannot_clip(self.opened.run.manifest, self.opened.summary.values)

    def applicable(self, keys: Iterable[str]) -> list[str]:
        """Those of the metrics that the run logs, and that are not 0 or 1 by construction."""
        without: list[str] = []
        if self.cannot_clip:
            gates = self.opened.summary.values["gate_mean"].dropna()
            without = [*SHARES, *["gate_mean"] * bool((gates == 1).all() and len(gates))]
        return [key for key in keys if key not in without and is_logged(self.opened.summary, key)]

    def known(self, keys: Iterable[str]) -> list[str]:
        """Those of the metrics that have a value in some step of the run."""
        return [key for key in keys if self.opened.summary.values[key].notna().any()]

    @property
    def log(self) -> Logged:
        """What the run logs."""
        return logged(self.opened.run)

    @cached_property
    def facts(self) -> Facts:
        """The facts of these steps, which all sentences render."""
        return self.opened.facts(self.steps)

    def compute(
        self,
        function: Callable[Concatenate[Run, Arguments], Result],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Result:
        """`function(run, *arguments, **options)`, computed once. The arguments are small and hashable.

        Raises:
            RatioscopeError: as the function does.
        """
        key = (function, arguments, tuple(options.items()))
        if key not in self._computed:
            self._computed[key] = function(self.opened.run, *arguments, **options)
        result: Result = self._computed[key]
        return result

    @cached_property
    def _computed(self) -> dict[Hashable, Any]:
        return {}

    @cached_property
    def checked(self) -> Window:
        """The steps that the linter looks at."""
        return self.opened.checked if self.steps == (None, None) else self.window()

    @cached_property
    def remarks(self) -> list[Finding]:
        """What the linter says of them."""
        if self.steps == (None, None):
            return self.opened.remarks
        return lint(self.opened.run, *self.checked.steps, limits=self.opened.limits)

    @cached_property
    def verdict(self) -> Verdict:
        """What the run comes to, all of it: rules look at every step."""
        opened = self.opened
        found = run_verdict(
            opened.summary, opened.findings, opened.remarks, opened.limits, live=opened.run.status == "running"
        )
        if self.steps == (None, None):
            return found
        what, *others = found.answers
        return replace(found, answers=(replace(what, question="What happened in the whole run?"), *others))

    @cached_property
    def marks(self) -> tuple[tuple[int, str, str], ...]:
        """Where what is found begins, in words, in the colour of its severity."""
        colours = self.mode.severity
        grave = [found for found in self.opened.findings if found.severity > Severity.NOTICE and found.steps]
        return tuple(
            (min(found.steps), f"{found.severity.word} from here: {rule_words(found.rule)}", colours[found.severity])
            for found in grave
        )

    def window(self, tokens: int = TOKENS) -> Window:
        """The steps that are looked at token by token."""
        return window_of(self.opened.run, self.summary.values["n_tokens"], self.steps, tokens)

    def quantity(self, key: str, step: int) -> Quantity:
        """A metric in a step."""
        summary = self.summary
        value, low, high = (float(frame[key].loc[step]) for frame in (summary.values, summary.low, summary.high))
        return Quantity(self.opened.run_id, key, step, value, metric_value(key, value, low, high))


def is_logged(summary: StepSummary, key: str) -> bool:
    """Whether a metric has a value in some step, or has none for another reason than that something is not logged."""
    if summary.values[key].notna().any():
        return True
    note = summary.last_note(key)
    return note is not None and note.kind is not Kind.NOT_LOGGED and bool(summary.values["n_tokens"].any())


def attempt(subject: Subject, make: Callable[[], Iterable[Block]]) -> list[Block]:
    """What `make` returns, or why it fails in these steps."""
    try:
        return list(make())
    except RatioscopeError as error:
        return [Paragraph(reason(subject, error))]


def reason(subject: Subject, error: RatioscopeError) -> str:
    """Its message, with file names relative to the run: a report is read elsewhere."""
    folder = str(subject.opened.run.folder)
    text = str(error).removeprefix(f"{folder}: ").replace(f"{folder}{sep}", "").replace(folder, "the run")
    return capital(text)


def steps_in_words(first: int, last: int) -> str:
    """Steps in words."""
    return f"step {first}" if first == last else f"steps {first} to {last}"


def chart(
    mode: theme.Mode,
    key: str,
    title: str,
    draw: Callable[[theme.Mode], go.Figure],
    takeaway: str,
    data: pd.DataFrame,
    metrics: Sequence[str] = (),
    *,
    by_step: bool = False,
) -> Chart:
    """A figure of the dashboard, drawn in these colours."""
    return Chart(key, title, str(draw(mode).to_json()), takeaway, data, tuple(metrics), by_step)


def over_steps_chart(
    subject: Subject,
    keys: Sequence[str],
    *,
    key: str,
    title: str,
    takeaway: str,
    unit: str = "",
    limits: Sequence[Limit] = (),
    logarithmic: bool = False,
    height: int = 300,
    beside: Sequence[str] = (),
) -> Chart:
    """Metrics of one unit over the steps, with their intervals; the data hold both, and the metrics `beside`.

    A metric that no step has is not drawn; a chart that has none left is nothing to show (`model.has_content`).
    """
    shown, keys = subject.shown, subject.known(keys) or list(keys)
    figure = drawn_over_steps(
        shown, keys, subject.mode, limits=limits, y_title=unit, logarithmic=logarithmic or subject.logarithmic,
        height=height, steps=subject.steps, smoothing=subject.smoothing, marks=subject.marks,
    )  # fmt: skip
    data = with_intervals(shown, (*keys, *subject.known(beside)))
    return Chart(key, title, figure, takeaway, data, tuple(keys), by_step=True)


def flat(chart: Chart) -> str:
    """What a chart over steps says whose metrics never change; "" where there is something to look at."""
    keys = [key for key in chart.metrics if key in chart.data and chart.data[key].notna().any()]
    if (
        not CATALOGUE.keys() >= {*keys}
        or not chart.by_step
        or not keys
        or len(chart.data) < 2
        or any(chart.data[key].nunique() > 1 for key in keys)
    ):
        return ""
    told = [f"{CATALOGUE[key].title} {metric_value(key, float(chart.data[key].dropna().iloc[0]))}" for key in keys]
    return f"{'; '.join(told)} in every step."


def worst_step(subject: Subject, keys: Sequence[str]) -> str:
    """Where the first of these metrics that has a better side is worst: "ESS, tokens: lowest 0.9%, step 15"; or ""."""
    for key in subject.applicable(keys):
        metric, values = CATALOGUE[key], subject.summary.values[key].dropna()
        if metric.better not in ("lower", "higher") or values.nunique() < 2:
            continue
        rises = metric.better == "lower"
        place, word = int(values.argmax() if rises else values.argmin()), "highest" if rises else "lowest"
        return f"{metric.label}: {word} {metric_value(key, float(values.iloc[place]))}, step {values.index[place]}"
    return ""


def named(subject: Subject, words: Mapping[str, str]) -> str:
    """The names of those metrics that the run has, in one phrase; of all, where it has none."""
    known = [words[key] for key in subject.known(words)] or list(words.values())
    text = listed(known)
    return capital(text)


def with_intervals(summary: StepSummary, keys: Sequence[str]) -> pd.DataFrame:
    """Metrics by step, each beside the ends of its interval where it ever has one."""
    columns: dict[str, pd.Series] = {}
    for key in keys:
        columns[key] = summary.values[key]
        for name, frame in (("low", summary.low), ("high", summary.high)):
            if frame[key].notna().any():
                columns[f"{key}.{name}"] = frame[key]  # as summarize --csv: clip_fraction_low is a metric
    return pd.DataFrame(columns, index=summary.values.index)


def key_numbers(subject: Subject, keys: Sequence[str]) -> Table:
    """Of each metric that is logged the last value with its interval, the smallest, the largest; why, without one."""
    summary = subject.summary
    rows: list[tuple[Cell, ...]] = []
    for key in subject.applicable(keys):
        known = summary.values[key].dropna()
        if not len(known):
            rows.append((CATALOGUE[key].title, "–", "–", "–", "–", _why_missing(summary, key)))
            continue
        last = int(known.index[-1])
        # Infinite values are extremes, too.
        ends = [_at(subject, key, int(known.index[int(place)])) for place in (known.argmin(), known.argmax())]
        rows.append((CATALOGUE[key].title, _at(subject, key, last), _interval(summary, key, last), *ends,
                     _doubts(summary, key)))  # fmt: skip
    head = ("Metric", "Last value", "95% interval", "Smallest", "Largest", "Trust")
    return Table("In numbers", head, tuple(rows), _few_groups(summary))


def _at(subject: Subject, key: str, step: int) -> Quantity:
    found = subject.quantity(key, step)
    return Quantity(found.run, key, step, found.value, f"{found.text} (step {step})")


def _interval(summary: StepSummary, key: str, step: int) -> str:
    low, high = float(summary.low[key].loc[step]), float(summary.high[key].loc[step])
    return interval(key, low, high) or "none"


def _few_groups(summary: StepSummary) -> str:
    """In how many steps intervals rest on few prompt groups; empty where in none."""
    groups = summary.values["effective_groups"].dropna()
    few = groups[groups.map(are_few).astype(bool)]
    if not len(few):
        return ""
    where = f"In {len(few)} of {len(groups)} steps"
    if len(few) == len(groups):
        where = f"In all {len(groups)} steps" if len(groups) > 1 else "In the one step"
    return (
        f"{where} the intervals rest on fewer than {FEW_GROUPS} effective prompt groups "
        f"(median {few.median():.2g}): they hold only as far as the groups are alike."
    )


def _doubts(summary: StepSummary, key: str) -> str:
    unreliable, known = unreliable_steps(summary, key)
    if unreliable:
        return f"unreliable in {unreliable} of {known} steps"
    return "in all steps" if known == len(summary.values) else f"known in {known} of {len(summary.values)} steps"


def _why_missing(summary: StepSummary, key: str) -> str:
    return text_of(summary.last_note(key)) or "not logged"
