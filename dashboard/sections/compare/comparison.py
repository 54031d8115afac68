"""What a comparison is about: settings, the measure, and how their curves are drawn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Concatenate

from ratioscope.analysis.compare.aggregates import StatisticName
from ratioscope.analysis.compare.alignment import Axis
from ratioscope.analysis.compare.curves import SettingCurve, curves
from ratioscope.analysis.compare.grouping import Setting
from ratioscope.analysis.compare.sentences import StandingWords, standing_words
from ratioscope.analysis.compare.standing import Standing, short_names, standing
from ratioscope.analysis.runs.window import FirstLast
from ratioscope.dashboard.sections.subject import Arguments, Result
from ratioscope.dashboard.theme import LIGHT, Mode


@dataclass(frozen=True)
class ComparedMeasure:
    """What is compared."""

    metric: str
    by: Axis = "step"
    statistic: StatisticName = "mean"
    """Over the seeds."""
    window: int = 3
    """Each run's running mean is over so many logged values; 1: none. S3 draws its curves with 3."""


@dataclass(frozen=True)
class Look:
    """How curves are drawn: by what colours, dashes and panels tell settings apart (`analysis.compare.attribute`)."""

    colour: str = "variant"
    dash: str = "variant"
    facet: str = "schedule"
    seeds: bool = False
    """Whether each seed is drawn, too."""
    logarithmic: bool = False


@dataclass(frozen=True)
class Comparison:
    """Settings and the measure; for a page see `views.compare.data.PageComparison`."""

    settings: Sequence[Setting]
    measure: ComparedMeasure
    steps: FirstLast = (None, None)
    """What is shown of the axis where it is the step."""
    mode: Mode = LIGHT

    def compute(
        self,
        function: Callable[Concatenate[Sequence[Setting], Arguments], Result],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Result:
        """`function(settings, *arguments, **options)`. The arguments are small and hashable."""
        return function(self.settings, *arguments, **options)

    @cached_property
    def labels(self) -> list[str]:
        """Of each setting what tells it from the others."""
        return short_names(self.settings)

    @cached_property
    def standing(self) -> Standing:
        """Which setting leads at the end, and whether that is more than chance."""
        return self.compute(standing, self.measure.metric, self.measure.by)

    @cached_property
    def words(self) -> StandingWords:
        """Who leads, in words."""
        return standing_words(self.standing)

    @property
    def curves(self) -> list[SettingCurve]:
        """Of all settings, in their order."""
        measure = self.measure
        return self.compute(curves, measure.metric, measure.by, measure.statistic, measure.window)
