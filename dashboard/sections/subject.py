"""What a report over one run is about, and the pieces that its sections share: quantities, tables, charts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite

import pandas as pd
import plotly.graph_objects as go

from ratioscope.analysis.linter import Remark, lint
from ratioscope.analysis.runs.window import Steps, Window, window_of
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard import theme
from ratioscope.dashboard.figures import series
from ratioscope.dashboard.figures.series import Limit
from ratioscope.dashboard.formats import number
from ratioscope.dashboard.opened import Opened
from ratioscope.dashboard.sections.model import Block, Cell, Chart, Paragraph, Quantity, Table
from ratioscope.errors import RatioscopeError
from ratioscope.notes import is_unreliable, text_of

# What looks at single tokens looks at the latest steps with so many of them, unless steps are chosen.
TOKENS = 100_000


@dataclass(frozen=True)
class Subject:
    """A run and the steps of it that the report is about."""

    opened: Opened
    steps: Steps = (None, None)

    @cached_property
    def summary(self) -> StepSummary:
        """Of these steps alone."""
        return self.opened.summary.up_to(*self.steps)

    @cached_property
    def checked(self) -> Window:
        """The steps that the linter looks at."""
        return self.window()

    @cached_property
    def remarks(self) -> list[Remark]:
        """What the linter says of them."""
        first, last = self.checked.steps
        index = self.opened.summary.values.index
        # Steps that only one table has may lie before the first or behind the last step with tokens.
        whole = first <= index[0] and last >= index[-1]
        run, limits = self.opened.run, self.opened.limits
        return lint(run, limits=limits) if whole else lint(run, first, last, limits=limits)

    def window(self, tokens: int = TOKENS) -> Window:
        """The steps that are looked at token by token."""
        return window_of(self.opened.run, self.summary.values["n_tokens"], self.steps, tokens)

    def quantity(self, key: str, step: int) -> Quantity:
        """A metric in a step."""
        value = float(self.summary.values[key].loc[step])
        return Quantity(self.opened.run_id, key, step, value, number(key, value))


def attempt(make: Callable[[], list[Block]]) -> list[Block]:
    """What `make` returns, or why these steps do not give it."""
    try:
        return make()
    except RatioscopeError as error:
        return [Paragraph(str(error))]


def where(first: int, last: int) -> str:
    """Steps in words."""
    return f"step {first}" if first == last else f"steps {first} to {last}"


def chart(
    key: str,
    title: str,
    draw: Callable[[theme.Mode], go.Figure],
    takeaway: str,
    data: pd.DataFrame,
    metrics: Sequence[str] = (),
) -> Chart:
    """A figure of the dashboard for the report."""
    return Chart(key, title, draw(theme.LIGHT).to_json(), takeaway, data, tuple(metrics))


def over_steps(
    subject: Subject,
    keys: Sequence[str],
    *,
    key: str,
    title: str,
    takeaway: str,
    unit: str = "",
    limits: Sequence[Limit] = (),
    logarithmic: bool = False,
    mark: Callable[[go.Figure, theme.Mode], None] = lambda fig, mode: None,
) -> Chart:
    """Metrics of one unit over the steps, with their intervals; the data hold both. `mark` adds to the figure."""
    summary = subject.summary

    def draw(mode: theme.Mode) -> go.Figure:
        fig = series.over_steps(
            summary, keys, mode, limits=limits, y_title=unit, logarithmic=logarithmic, steps=subject.steps
        )
        mark(fig, mode)
        return fig

    return chart(key, title, draw, takeaway, with_intervals(summary, keys), keys)


def with_intervals(summary: StepSummary, keys: Sequence[str]) -> pd.DataFrame:
    """Metrics by step, each beside the ends of its interval where it ever has one."""
    columns: dict[str, pd.Series] = {}
    for key in keys:
        columns[key] = summary.values[key]
        for name, frame in (("low", summary.low), ("high", summary.high)):
            if frame[key].notna().any():
                columns[f"{key}.{name}"] = frame[key]  # as summarize --csv: clip_fraction_low is a metric
    return pd.DataFrame(columns, index=summary.values.index)


def key_numbers(subject: Subject, keys: Sequence[str], title: str = "In numbers") -> Table:
    """Of each metric the last value with its interval, the smallest and the largest; why, where there is none."""
    summary = subject.summary
    rows: list[tuple[Cell, ...]] = []
    for key in keys:
        known = summary.values[key].dropna()
        if not len(known):
            rows.append((CATALOGUE[key].title, "–", "–", "–", "–", _why_missing(summary, key)))
            continue
        last = int(known.index[-1])
        # Infinite values are extremes, too.
        ends = [_at(subject, key, int(known.index[int(place)])) for place in (known.argmin(), known.argmax())]
        rows.append((CATALOGUE[key].title, _at(subject, key, last), _interval(summary, key, last), *ends,
                     _doubts(summary, key)))  # fmt: skip
    head = ("Metric", "Last value", "95 % interval", "Smallest", "Largest", "Trust")
    return Table(title, head, tuple(rows))


def _at(subject: Subject, key: str, step: int) -> Quantity:
    found = subject.quantity(key, step)
    return Quantity(found.run, key, step, found.value, f"{found.text} (step {step})")


def _interval(summary: StepSummary, key: str, step: int) -> str:
    low, high = float(summary.low[key].loc[step]), float(summary.high[key].loc[step])
    if isfinite(low) and isfinite(high):
        return f"{number(key, low)} to {number(key, high)}"
    return "withheld: the tail is too heavy" if is_unreliable(summary.note(step, key)) else "none"


def _doubts(summary: StepSummary, key: str) -> str:
    known = summary.values[key].notna()
    doubtful = int((known & ~summary.trusted(key)).sum())
    if not doubtful:
        return "in all steps" if known.all() else f"in the {int(known.sum())} steps that have it"
    return f"doubtful in {doubtful} of {int(known.sum())} steps"


def _why_missing(summary: StepSummary, key: str) -> str:
    return text_of(summary.last_note(key)) or "not logged"
