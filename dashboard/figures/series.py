"""Metrics over steps: one figure a question, lines with intervals, thresholds and sync ticks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ratioscope.analysis.findings.course import sync_steps
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard import theme
from ratioscope.dashboard.figures import base
from ratioscope.dashboard.formats import is_share, plain_number, share
from ratioscope.dashboard.theme import Mode

# On-policy, float32 log-probabilities leave squares of this size; a logarithmic axis would show nothing else.
AXIS_ROUNDING = 1e-9


def axis_floor(key: str) -> float:
    """What a logarithmic axis shows values above: on-policy, what should be low is 0 but for rounding."""
    return AXIS_ROUNDING if CATALOGUE[key].better == "lower" else 0.0


@dataclass(frozen=True)
class Limit:
    """A threshold to draw."""

    value: float
    name: str

    def words(self, *, percent: bool = False) -> str:
        """Its name with its value."""
        return f"{self.name} {share(self.value) if percent else plain_number(self.value)}"


# Names of two lines this close, by the height of the axis, would be printed over each other.
_CLOSE = 0.15
# An interval that ends so many times as high as every value and limit is cut off.
_FLAT = 2.0
# A limit more than so many times as high as all that is drawn is an arrow at the edge: the axis follows the data.
_FAR = 2.0


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
    smoothing: int = 1,
    marks: Sequence[tuple[int, str, str]] = (),
) -> go.Figure:
    """Metrics of one unit over steps, each with its 95 % band and marks where it is unreliable.

    Args:
        marks: steps with what happened there and in which colour it is marked.
        smoothing: lines are running means over so many steps, of all values there are; in place of the interval a band
            goes from the lowest to the highest of these values, so that no extreme is hidden.
    """
    fig = base.figure(mode, height=height, y_title=y_title)
    if logarithmic:
        base.log_axis(fig)
    percent = any(map(is_share, keys))  # the others are on their scale: a reward of 0 to 1
    smooth = [key for key in keys if smoothing > 1 and not CATALOGUE[key].sparse]
    for key in keys:
        series, colour = summary.values[key], theme.metric_colour(key)
        finite = series.where(series.abs() != float("inf"))
        positive = finite.where(finite > axis_floor(key)) if logarithmic else finite
        # Of 0 or all of n Wilson's interval is as wide as groups are few: drawn, it would be a comb. Tiles quote it.
        inside = ~series.isin([0.0, 1.0]) if is_share(key) else positive.notna()
        inside &= ~(summary.unreliable(key) & (summary.low[key] == CATALOGUE[key].possible[0]))  # an open end
        smoothed = key in smooth
        if smoothed:
            _add_envelope(fig, positive, smoothing, colour, legend=key == smooth[0])
        else:
            base.add_band(fig, summary.low[key].where(inside), summary.high[key].where(inside), colour)
        base.add_line(
            fig,
            _running_mean(positive, smoothing) if smoothed else positive,
            name=label(key),
            colour=colour,
            number=".1%" if percent else ".3g",
            marks=CATALOGUE[key].sparse,
            legend=len(keys) > 1,
            metric=key,
        )
        if smoothed:
            _tell_envelope(fig.data[-1], positive, smoothing)
        base.add_infinite(fig, series, mode)
    drawn = [] if smoothing > 1 else keys
    untrusted = [key for key in drawn if not summary.trusted(key).all() and summary.values[key].notna().any()]
    for row, key in enumerate(untrusted):
        series = summary.values[key]
        base.add_untrusted(
            fig, series.where(series > axis_floor(key)) if logarithmic else series, summary.trusted(key), mode,
            colour=theme.metric_colour(key), row=row,
        )  # fmt: skip
    named = set()
    for trace in fig.select_traces({"legendgroup": base.UNTRUSTED}):
        trace.showlegend = trace.name not in named
        named.add(trace.name)
    far = _beyond(summary, keys, limits) if not logarithmic else []
    near = [limit for limit in limits if limit not in far]
    # One that is drawn may be close to the upper end, where those beyond it are named.
    base.add_beyond(fig, [limit.words(percent=percent) for limit in far], mode, "bottom" if near else "top")
    top = _top(summary, keys, near)
    close = len(near) == 2 and not logarithmic and abs(near[0].value - near[1].value) < _CLOSE * top
    for limit in near:
        is_upper = close and limit.value == max(each.value for each in near)
        side = "top" if far or (close and not is_upper) else "bottom" if is_upper else "middle"
        base.add_threshold(fig, limit.value, limit.words(percent=percent), mode, side)
    if any(trace.name == base.INTERVAL and len(trace.x) > 1 for trace in fig.data):
        base.name_mark(fig, "band: 95%")
    base.add_sync_ticks(fig, sync_steps(summary.values["version_lag"]), mode)
    base.add_marks(fig, marks, summary.values.index)
    if len(keys) == 1 and all(trace.showlegend is False or trace.name == label(keys[0]) for trace in fig.data):
        fig.update_layout(margin={"t": 10})  # no legend
    if percent:
        fig.update_yaxes(tickformat="~p", rangemode="tozero")
        if summary.values[list(keys)].max().max() == 0:
            fig.update_yaxes(range=[0, 0.1])
    elif not logarithmic and keys != ["ratio_mean"] and (summary.values[list(keys)].min() >= 0).all():
        fig.update_yaxes(rangemode="tozero")
        if limits and not smooth and summary.high[list(keys)].max().max() > _FLAT * top:
            fig.update_yaxes(range=[0, 1.1 * top])  # one wide interval would press the curves flat
    return base.set_steps(fig, steps, summary.values.index)


def _top(summary: StepSummary, keys: Sequence[str], limits: Sequence[Limit]) -> float:
    """The largest finite value of these metrics and limits."""
    values = summary.values[list(keys)].to_numpy(float)
    known = [float(values[np.isfinite(values)].max())] if np.isfinite(values).any() else []
    return max([*known, *(limit.value for limit in limits)], default=0.0)


def _beyond(summary: StepSummary, keys: Sequence[str], limits: Sequence[Limit]) -> list[Limit]:
    """Those far above all values and intervals, the highest first."""
    top, ends = _top(summary, keys, ()), summary.high[list(keys)].to_numpy(float)
    highest = max(_FAR * top, float(np.max(ends, where=np.isfinite(ends), initial=0.0)))
    return sorted((limit for limit in limits if limit.value > highest > 0), key=lambda limit: -limit.value)


def _running_mean(series: "pd.Series[float]", width: int) -> "pd.Series[float]":
    """Centred, over the values that there are; gaps stay gaps."""
    return series.rolling(width, center=True, min_periods=1).mean().where(series.notna())


def _extremes(series: "pd.Series[float]", width: int) -> "tuple[pd.Series[float], pd.Series[float]]":
    """The lowest and the highest of the values that `_running_mean` averages."""
    inside = series.rolling(width, center=True, min_periods=1)
    return inside.min().where(series.notna()), inside.max().where(series.notna())


def _add_envelope(fig: go.Figure, series: "pd.Series[float]", width: int, colour: str, *, legend: bool) -> None:
    base.add_band(fig, *_extremes(series, width), colour)
    fig.data[-1].update(name=f"lowest to highest of {width} steps", showlegend=legend, legendrank=2000)


def _tell_envelope(line: go.Scatter, series: "pd.Series[float]", width: int) -> None:
    """Lowest and highest in the tooltip of a running mean."""
    ends = np.stack([base.single(end.reindex(line.x)) for end in _extremes(series, width)], axis=1)
    number = str(line.hovertemplate).removeprefix("%{y").removesuffix("}")
    line.customdata = ends
    line.hovertemplate = f"%{{y{number}}} (%{{customdata[0]{number}}} to %{{customdata[1]{number}}})"


def learning_curves(summary: StepSummary) -> list[tuple[str, list[str], str]]:
    """What shows whether a run learns, as (name, metrics, unit): one figure where reward and accuracy share a scale."""
    reward, accuracy = summary.values["reward"], summary.values["eval_accuracy"]
    if reward.isna().all():
        return [("Evaluation accuracy", ["eval_accuracy"], "share of correct answers")]
    if accuracy.notna().any() and reward.between(0, 1).where(reward.notna(), True).all():
        return [
            ("Training reward, evaluation accuracy", ["reward", "eval_accuracy"], "reward, share of correct answers")
        ]
    found = [("Training reward", ["reward"], "reward")]
    if accuracy.notna().any():
        found.append(("Evaluation accuracy", ["eval_accuracy"], "share of correct answers"))
    return found


def label(key: str) -> str:
    """A metric's short name; symbols in LaTeX would not render in a legend."""
    return CATALOGUE[key].label
