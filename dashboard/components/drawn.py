"""Charts over steps that are kept as they were drawn: most of a page's time goes into drawing the same ones again."""

from collections.abc import Sequence
from functools import lru_cache

from analysis.summary import StepSummary
from dashboard.figures import series
from dashboard.figures.series import Limit
from dashboard.theme import Mode

# About 50 kB each; a page has up to ten.
_KEPT = 200


def over_steps(
    summary: StepSummary,
    keys: Sequence[str],
    mode: Mode,
    *,
    limits: Sequence[Limit] = (),
    y_title: str = "",
    logarithmic: bool = False,
    height: int = 300,
    steps: tuple[int | None, int | None] = (None, None),
) -> str:
    """`figures.series.over_steps` as JSON, drawn once for each state of a run, range of steps and colours."""
    return _drawn(summary, tuple(keys), mode, tuple(limits), y_title, logarithmic, height, steps)


@lru_cache(maxsize=_KEPT)
def _drawn(
    summary: StepSummary,
    keys: tuple[str, ...],
    mode: Mode,
    limits: tuple[Limit, ...],
    y_title: str,
    logarithmic: bool,
    height: int,
    steps: tuple[int | None, int | None],
) -> str:
    figure = series.over_steps(
        summary,
        list(keys),
        mode,
        limits=limits,
        y_title=y_title,
        logarithmic=logarithmic,
        height=height,
        steps=steps,
    )
    return str(figure.to_json())
