"""The dot plot that page and report begin with: a row a setting, best first."""

from functools import partial

import pandas as pd

from ratioscope.analysis.compare import rank_words, unnamed_values
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.figures import compare as figures
from ratioscope.dashboard.sections.compare.baseline import compared_with
from ratioscope.dashboard.sections.compare.comparison import Comparison, Look
from ratioscope.dashboard.sections.compare.curves import looks
from ratioscope.dashboard.sections.model import Chart
from ratioscope.dashboard.sections.subject import chart

_USUAL = Look()


def dots(
    comparison: Comparison, baseline: int | None = None, look: Look = _USUAL, *, most: int = figures.MOST_ROWS,
    key: str = "dots",
) -> Chart:  # fmt: skip
    """The settings at the end of their runs, with what the marks are.

    Args:
        baseline: a place among the settings, drawn as a line.
        look: of the curves, whose colours the settings have here, too.
        most: rows that are drawn; of more settings the best of each schedule.
    """
    found, metric = comparison.standing, comparison.measure.metric
    partners = {} if baseline is None else compared_with(comparison, baseline)
    lines = set() if baseline is None or len(comparison.settings) < 2 else {baseline, *partners.values()}
    left = left_out(comparison, most)
    title = f"{CATALOGUE[metric].title} at the end" + (
        f", {len(found.rows) - left} of {len(found.rows)} settings" if left else ""
    )
    draw = partial(
        figures.dot_plot, found.groups, metric, called=rank_words(found),
        baseline=comparison.settings[baseline or 0].variant if lines else "",
        colours={place: style.colour for place, style in looks(comparison, look).items()}, lines=lines, most=most,
    )  # fmt: skip
    return chart(comparison.mode, key, title, draw, _marks(comparison), _numbers(comparison), (metric,))


def left_out(comparison: Comparison, most: int = figures.MOST_ROWS) -> int:
    """How many settings the plot leaves out."""
    found = comparison.standing
    return len(found.rows) - sum(map(len, figures.rows_drawn(found.groups, most)))


def _marks(comparison: Comparison) -> str:
    """What bars are, and what settings have that do not name it."""
    found, words = comparison.standing, comparison.words
    told = [f"Bars: {words.basis}."] if words.basis else []
    if any(row.rank is not None for row in found.rows):
        told.append(f"Right: against the best{' of the schedule' if len(found.ranked) > 1 else ''}.")
    if unnamed := unnamed_values(found.settings):
        told.append(f"Unless named: {unnamed}.")
    return " ".join(filter(None, (*told, words.where)))


def _numbers(comparison: Comparison) -> pd.DataFrame:
    """A row a setting and seed."""
    metric, names, called = comparison.measure.metric, comparison.labels, rank_words(comparison.standing)
    rows = [
        {"setting": names[row.place], "seed": str(seed), metric: float(value), "mean": row.value,
         "low": row.interval.low, "high": row.interval.high, "group": row.letters,
         "to the best": called[row.rank] if row.rank else ""}
        for row in comparison.standing.rows for seed, value in row.seeds.items()
    ]  # fmt: skip
    return pd.DataFrame(rows)
