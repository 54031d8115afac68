"""Two settings against each other: A minus B along the axis, at the end, and on the prompts that both saw."""

from collections.abc import Sequence
from functools import partial
from math import isfinite

import pandas as pd

from ratioscope.analysis.compare.alignment import Axis
from ratioscope.analysis.compare.contrast import difference_over
from ratioscope.analysis.compare.curves import smoothed
from ratioscope.analysis.compare.grouping import Setting
from ratioscope.analysis.compare.prompts import PromptDifference, pairs_by_seed, prompt_difference
from ratioscope.analysis.compare.sentences import in_these_runs
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.figures import compare as figures
from ratioscope.dashboard.formats import share
from ratioscope.dashboard.sections.compare.comparison import Comparison
from ratioscope.dashboard.sections.model import Paragraph, Piece
from ratioscope.dashboard.sections.subject import chart, steps_in_words


def along(comparison: Comparison, a: int, b: int) -> pd.DataFrame:
    """A minus B along the axis, of running means; both by their places among the settings."""
    measure = comparison.measure
    return comparison.compute(_along, a, b, measure.metric, measure.by, measure.window)


def _along(settings: Sequence[Setting], a: int, b: int, metric: str, by: Axis, window: int) -> pd.DataFrame:
    one, other = smoothed((settings[a], settings[b]), metric, window)
    return difference_over(one, other, metric, by)


def pair_difference(comparison: Comparison, a: int, b: int) -> list[Piece]:
    """A minus B along the axis, and what its band is."""
    measure, table, contrast = comparison.measure, along(comparison, a, b), comparison.standing.contrast(a, b)
    if not len(table):
        return [Paragraph("Nowhere on this axis do both have a value.")]
    by_step, name = measure.by == "step", " minus ".join(contrast.names)
    draw = partial(
        figures.differences, [(name, None, table)], measure.metric, name=name, by=measure.by,
        x=comparison.steps if by_step else (None, None),
    )  # fmt: skip
    if min(contrast.over_seeds.seeds) < 2:
        said = "One seed has no spread: no band. The ends decide."
    else:
        how = "paired by seed" if contrast.over_seeds.paired else "unpaired (Welch)"
        said = f"Band: 95% over seeds, {how}, at each point by itself. The ends decide."
    title = f"{CATALOGUE[measure.metric].title}: {name}"
    return [
        chart(comparison.mode, "difference", title, draw, f"{in_these_runs(contrast)}.", table, (measure.metric,),
              by_step=by_step),
        Paragraph(said, small=True),
    ]  # fmt: skip


def on_prompts(comparison: Comparison, a: int, b: int) -> list[Paragraph]:
    """The reward on the prompts that both saw; reads the sequences of all runs of both.

    Raises:
        RatioscopeError: a file that was there at opening cannot be read any more.
    """
    first, last = comparison.steps
    found = comparison.compute(_on_prompts, a, b, first, last)
    if not found.pairs:
        return [Paragraph(f"The prompts cannot be compared: {found.reason}.")]
    low, high = found.interval
    within = f" (95%: {share(low, low, high)} to {share(high, low, high)})" if isfinite(low) else ""
    steps = "all steps" if first is None or last is None else steps_in_words(first, last)
    text = f"{share(found.value, low, high)}{within}, over {found.pairs:,} pairs of {found.prompts:,} prompts, {steps}."
    caveat = "The interval is over prompts and holds for these runs only; it does not cover other seeds."
    return [Paragraph(text, "Difference of the reward on the same prompts:"), Paragraph(caveat, small=True)]


def _on_prompts(settings: Sequence[Setting], a: int, b: int, first: int | None, last: int | None) -> PromptDifference:
    return prompt_difference(pairs_by_seed(settings[a], settings[b]), first, last)
