"""The dot plot that page and report begin with: a row a setting, best first."""

from functools import partial

import pandas as pd

from ratioscope.analysis.compare.configuration import UNSET
from ratioscope.analysis.compare.differences import component_differences
from ratioscope.analysis.compare.sentences import rank_words
from ratioscope.dashboard.figures import dots as figures
from ratioscope.dashboard.sections.compare.comparison import Comparison, Look
from ratioscope.dashboard.sections.compare.curves import looks
from ratioscope.dashboard.sections.model import Chart
from ratioscope.dashboard.sections.subject import chart

_USUAL = Look()


def dots(comparison: Comparison, look: Look = _USUAL, *, most: int = figures.MOST_ROWS, key: str = "dots") -> Chart:
    """The settings at the end of their runs.

    Args:
        look: of the curves, whose colours the settings have here, too.
        most: rows that are drawn; of more settings the best of each schedule.
    """
    found, metric = comparison.standing, comparison.measure.metric
    colours = {place: style.colour for place, style in looks(comparison, look).items()}
    called, made = rank_words(found), _made(comparison)
    draw = partial(figures.dot_plot, found.groups, metric, called=called, made=made, colours=colours, most=most)
    what = "differences from the best, " * bool(called)
    said = f"Bars: {what}{comparison.words.basis}." if comparison.words.basis else ""
    return chart(comparison.mode, key, comparison.words.measure, draw, said, _numbers(comparison), (metric,))


def _made(comparison: Comparison) -> dict[int, list[str]]:
    """Of each setting the parts and parameters of its algorithm that the others do not share: a name says little."""
    table = component_differences(comparison.settings)
    return {
        place: [f"{part} {value}" for part, value in table.iloc[:, place].items() if value != UNSET]
        for place in range(table.shape[1])
    }


def left_out(comparison: Comparison, most: int = figures.MOST_ROWS) -> int:
    """How many settings the plot leaves out."""
    found = comparison.standing
    return len(found.rows) - sum(map(len, figures.rows_drawn(found.groups, most)))


def _numbers(comparison: Comparison) -> pd.DataFrame:
    """A row a setting and seed."""
    metric, names, called = comparison.measure.metric, comparison.labels, rank_words(comparison.standing)
    rows = [
        {"setting": names[row.place], "seed": str(seed), metric: float(value), "mean": row.value,
         "low": row.interval.low, "high": row.interval.high, "from best, low": row.from_best.low,
         "from best, high": row.from_best.high, "group": row.letters, "to the best": called.get(row.place, "")}
        for row in comparison.standing.rows for seed, value in row.seeds.items()
    ]  # fmt: skip
    return pd.DataFrame(rows)
