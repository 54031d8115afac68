"""The dot plot that page and report begin with: a row a setting, best first."""

from functools import partial

import pandas as pd

from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.figures import compare as figures
from ratioscope.dashboard.sections.compare.baseline import compared_with
from ratioscope.dashboard.sections.compare.comparison import Comparison
from ratioscope.dashboard.sections.model import Chart
from ratioscope.dashboard.sections.subject import chart


def dots(
    comparison: Comparison, baseline: int | None = None, *, most: int = figures.MOST_ROWS, key: str = "dots"
) -> Chart:
    """The settings at the end of their runs, with what the marks are.

    Args:
        baseline: a place among the settings, drawn as a line.
        most: rows that are drawn; of more settings the best of each schedule.
    """
    found, metric = comparison.best, comparison.measure.metric
    partners = {} if baseline is None else compared_with(comparison, baseline)
    lines = set() if baseline is None or len(comparison.settings) < 2 else {baseline, *partners.values()}
    drawn = sum(map(len, figures.rows_drawn(found.groups, most)))
    title = f"{CATALOGUE[metric].title} at the end" + (
        f", best {drawn} of {len(found.rows)} settings" if drawn < len(found.rows) else ""
    )
    draw = partial(
        figures.dot_plot, found.groups, metric, baseline=comparison.settings[baseline or 0].variant if lines else "",
        lines=lines, most=most,
    )  # fmt: skip
    return chart(comparison.mode, key, title, draw, _marks(comparison), _numbers(comparison), (metric,))


def left_out(comparison: Comparison) -> int:
    """How many settings the plot leaves out while it is not unfolded."""
    drawn = sum(map(len, figures.rows_drawn(comparison.best.groups)))
    return len(comparison.best.rows) - drawn


def _marks(comparison: Comparison) -> str:
    """What colours, dots and bars are."""
    found = comparison.best
    told = []
    if any(row.leads for row in found.rows):
        told.append("Blue: the best, and no significant difference to it." if len(found.rows) > 1 else "")
    if any(len(row.seeds) > 1 for row in found.rows):
        told.append("Circles: seeds.")
    if found.basis:
        told.append(f"Bars: {found.basis}.")
    told.append(comparison.standing.where)
    return " ".join(filter(None, told))


def _numbers(comparison: Comparison) -> pd.DataFrame:
    """A row a setting and seed."""
    metric, names = comparison.measure.metric, comparison.labels
    rows = [
        {"setting": names[row.place], "seed": str(seed), metric: float(value), "mean": row.value,
         "low": row.interval.low, "high": row.interval.high, "group": row.letters}
        for row in comparison.best.rows for seed, value in row.seeds.items()
    ]  # fmt: skip
    return pd.DataFrame(rows)
