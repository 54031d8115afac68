"""What a metric did over the steps: a sentence for each, when weights were synced, and whether it changed."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri, stdtrit

from ratioscope.analysis.findings.drop import drop_of
from ratioscope.analysis.findings.fall import (
    LEVEL_WORDS,
    evaluated,
    fall_of,
    finite_values,
    noise_of_mean,
    own_noise,
)
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.findings.numbers import capital, half_width, level, level_change
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE
from ratioscope.notes import Kind


def course(summary: StepSummary, *keys: str) -> str:
    """What some metrics did over the steps, a sentence each: first and last value, and the extreme in between.

    One without a value is named only where all are.
    """
    known = [key for key in keys if summary.values[key].notna().any()]
    return " ".join(_course(summary, key) for key in known or keys)


def _course(summary: StepSummary, key: str) -> str:
    title, series = CATALOGUE[key].title, summary.values[key].dropna()
    if not len(series):
        return f"{title} {why_missing(summary, key)}."
    say = partial(level, share=CATALOGUE[key].share)
    first, last = series.index[0], series.index[-1]
    text = f"{title}: {say(series.iloc[0])} in step {first}"
    if first == last:
        return f"{text}."
    low, high = series.min(), series.max()
    if low == high:
        return f"{title}: {say(low)} in every step from {first} to {last}."
    text += f", {say(series.iloc[-1])} in step {last}"
    return f"{text}; lowest {say(low)} in step {series.idxmin()}, highest {say(high)} in step {series.idxmax()}."


def why_missing(summary: StepSummary, key: str) -> str:
    """Of a metric without a value, what is said after its name: not logged, or logged and undefined."""
    notes = [note for step in summary.values.index if (note := summary.note(step, key)) is not None]
    if all(note.kind is Kind.NOT_LOGGED for note in notes):
        return "is not logged"
    return "is undefined in every step"


def sync_steps(lag: "pd.Series[float]") -> list[int]:
    """Steps at which fresh weights had reached the sampler: the lag fell."""
    return [int(step) for step in lag.index[1:][np.diff(lag.to_numpy()) < -0.5]]


def sync_period(lag: "pd.Series[float]") -> int | None:
    """Steps between weight syncs, where the version lag rises and falls back regularly."""
    values = lag.to_numpy()
    falls = np.flatnonzero(np.diff(values) < -0.5) + 1
    if len(falls) < 2 or len(set(np.diff(falls))) != 1:
        return None
    return int(np.diff(falls)[0])


_BLOCKS = 16
"""A longer series is described by the means of so many blocks at most."""
_FEW_TURNS = 3
"""What turns more often goes up and down."""
_LEVEL = 0.05
_LEAST = {"eval_accuracy": 0.01}
_TIMES = {"eval_accuracy": "evaluations", "reward": "steps"}
_LEAST_VALUES = {"eval_accuracy": 4, "reward": 10}
"""With fewer there is no trend."""
_CHANCE = 1.35e-3
"""Of a difference in one direction that is called clear: three standard deviations."""


def learning(summary: StepSummary, limits: Limits) -> str:
    """What evaluation accuracy did, or the reward where there is none: its fall, where the finding of it is made."""
    fall = fall_of(summary, limits)
    if fall is not None:
        return f"{fall.words}."
    told = (_learning(summary, metric) for metric in _TIMES)
    return next(filter(None, told), "")


def _learning(summary: StepSummary, metric: str) -> str:
    title, noise = CATALOGUE[metric].title, _noise(summary, metric)
    least, share = _LEAST.get(metric, 0.0), CATALOGUE[metric].share
    return change(finite_values(summary, metric), title, _TIMES[metric], noise, least, share=share)


def _noise(summary: StepSummary, metric: str, window: int = 1) -> float:
    known = bool((summary.high[metric] > summary.low[metric]).any())
    return noise_of_mean(summary, metric, window) if known else 0.0


class LevelTrend(NamedTuple):
    """Where a level began and where it is, and whether it moved beyond its noise."""

    metric: str
    clear: str
    """"rose", "fell", or "" where neither is clear."""
    start: float
    end: float
    first: tuple[int, int]
    last: tuple[int, int]
    """The steps that these two are the means of."""

    @property
    def where(self) -> str:
        """These steps: "steps 0–45 and 105–149"."""
        began, ended = (f"{low}–{high}" if low < high else f"{low}" for low, high in (self.first, self.last))
        return f"steps {began} and {ended}"

    @property
    def words(self) -> str:
        """From where to where: "Accuracy 53 → 91%"."""
        said = level_change(self.start, self.end, share=CATALOGUE[self.metric].share)
        return f"{LEVEL_WORDS[self.metric].capitalize()} {said}"


def level_trend(summary: StepSummary) -> LevelTrend | None:
    """The trend of evaluation accuracy, or of the training reward where there are few evaluations; None: too few.

    The mean of the last third is held against that of the first, and against the first value alone: what is learned at
    once is flat afterwards. Noise is that of the values' intervals or of their successive differences, whichever is
    larger: a policy goes up and down more than its prompts.
    """
    for metric, least_values in _LEAST_VALUES.items():
        series, over = evaluated(summary) if metric == "eval_accuracy" else (finite_values(summary, metric), 1)
        if len(series) < least_values:
            continue
        third = len(series) // 3
        start, end = float(series.iloc[:third].mean()), float(series.iloc[-third:].mean())
        steps = series.index.astype(int).tolist()
        ends = (steps[0], steps[third - 1]), (steps[-third], steps[-1])
        of_prompts, own = _noise(summary, metric, over) / -ndtri(_LEVEL / 2), float(np.nan_to_num(own_noise(series)))
        if not of_prompts and not own and start != end:
            return None
        least, rises, declines = _LEAST.get(metric, 0.0), -ndtri(_CHANCE), -stdtrit(len(series) / 3, _CHANCE)
        sd = max(of_prompts, own)
        since_first = end - float(series.iloc[0]) > max(least, rises * sd * np.sqrt(1 + 1 / third))
        rose = bool(since_first or end - start > max(least, rises * sd * np.sqrt(2 / third)))
        # Few differences know their spread badly, and a decline alarms.
        fell = not rose and start - end > max(least, max(rises * of_prompts, declines * own) * np.sqrt(2 / third))
        _, points, values, _ = _turns(series, 0.0, 0.0)
        if rose or fell:  # the ends themselves, where they say the same
            first, last = points[0], points[-1]
            if (last.value > first.value) is rose:
                start, end, ends = first.value, last.value, ((first.first, first.last), (last.first, last.last))
        else:  # as the sentence about its course has them
            few, _, (start, end) = _ends(values, 0.0, 0.0)
            ends = (points[0].first, points[few - 1].last), (points[-few].first, points[-1].last)
        return LevelTrend(metric, "rose" if rose else "fell" if fell else "", start, end, *ends)
    return None


def level_moved(summary: StepSummary, limits: Limits) -> str:
    """From where to where the level went, "Accuracy 53 → 91%": its fall, where it fell, else its trend; "": too few
    values."""
    if (fall := fall_of(summary, limits)) is not None:
        said = level_change(fall.best, fall.last, share=CATALOGUE[fall.metric].share)
        return f"{LEVEL_WORDS[fall.metric].capitalize()} {said}"
    if (drop := drop_of(summary, limits)) is not None and drop.is_low:
        return capital(drop.change)
    trend = level_trend(summary)
    return trend.words if trend is not None else ""


class Turn(NamedTuple):
    """A place at which a course begins, turns or ends."""

    value: float
    first: int
    last: int
    """Its steps."""
    share: bool = False
    """Whether the value is one."""

    def __str__(self) -> str:
        steps = f"step {self.first}" if self.first == self.last else f"steps {self.first} to {self.last}"
        return f"{level(self.value, share=self.share)} ({steps})"


def change(
    series: "pd.Series[float]", what: str, times: str, noise: float = 0.0, least: float = 0.0, *, share: bool = False
) -> str:
    """What a series did, beyond its noise: rose, fell, rose and fell, went up and down, or nothing that is clear.

    Args:
        what: the subject of the sentence.
        times: what there is a value of, in the plural.
        noise: half width of the 95 % interval of one value; 0: unknown, and estimated from the differences of
            successive values where there are enough.
        least: a change that is smaller is none.
        share: the values are shares, and said in percent.
    """
    if len(series) < (2 if least or noise else 4):
        return ""
    size, points, values, turns = _turns(series, noise, least, share=share)
    few, clear, (start, end) = _ends(values, noise / np.sqrt(size), least)
    ends = f"{level(start, share=share)} to {level(end, share=share)}"
    outer = [f"the {name} is {points[at]}" for name, at in (("first", 0), ("last", -1)) if points[at] not in turns]
    last = f"; {', '.join(outer)}" if outer else ""
    about = f", each {half_width(noise / np.sqrt(size), share=share)}" if noise else ""
    means = f" (means of the first and last {few * size} {times})" if few * size > 1 else ""
    if len(turns) > _FEW_TURNS:
        low, high = min(turns), max(turns)
        whole = f"; on the whole it {clear} from {ends}{means}" * bool(clear)
        return f"{what} goes up and down between {low} and {high}{about}{last}{whole}."
    if turns:
        ways = [f"{'rose' if after > before else 'fell'} to {after}" for before, after in pairwise(turns)]
        verb, path = ways[0].split(" ", 1)
        return f"{what} {' and '.join((f'{verb} from {turns[0]} {path}', *ways[1:]))}{about}{last}."
    return f"{what} {clear} from {ends}{means}." if clear else f"{what} shows no clear trend: {ends}{means}."


def _turns(
    series: "pd.Series[float]", noise: float, least: float, *, share: bool = False
) -> tuple[int, list[Turn], "pd.Series[float]", list[Turn]]:
    """How many values a block has, the blocks' means with their steps, the means alone, and those at which it turns."""
    size = -(-len(series) // _BLOCKS)
    blocks = [series.iloc[places] for places in np.array_split(np.arange(len(series)), len(series) // size)]
    points = [Turn(float(part.mean()), int(part.index[0]), int(part.index[-1]), share) for part in blocks]
    values = pd.Series([point.value for point in points])
    places = turning_points(values, threshold(values, noise / np.sqrt(size), least))
    return size, points, values, [points[place] for place in places]


def _ends(values: "pd.Series[float]", noise: float, least: float) -> tuple[int, str, tuple[float, float]]:
    """How many of the first and last values are compared; "rose", "fell" or, where neither is clear, ""; the means."""
    few = max(1, min(5, len(values) // 2))
    start, end = values.iloc[:few], values.iloc[-few:]
    moved = end.mean() - start.mean()
    spread = np.sqrt((start.var() + end.var()) / few) * stdtrit(2 * few - 2, 1 - _LEVEL / 2) if few > 1 else 0.0
    clear = abs(moved) > max(least, spread, noise * np.sqrt(2 / few))
    return few, ("rose" if moved > 0 else "fell") * bool(clear), (float(start.mean()), float(end.mean()))


def threshold(values: "pd.Series[float]", noise: float, least: float) -> float:
    """By how much any two of these values differ by chance in one of 20 series at most; infinite where it is unknown.

    Args:
        noise: half width of the 95 % interval of one; 0: unknown.
    """
    pairs = len(values) * (len(values) - 1) / 2
    # The differences of few values know their spread badly: t with as many degrees of freedom as they are worth.
    tail = _LEVEL / 2 / pairs
    if noise:
        far, sd = -ndtri(tail), noise / -ndtri(_LEVEL / 2)
    else:
        far, sd = -stdtrit(len(values) / 3, tail), own_noise(values)
    return max(float(far * np.sqrt(2) * sd), least) if np.isfinite(sd) else np.inf


def turning_points(values: "Sequence[float] | pd.Series[float]", least: float) -> list[int]:
    """Where a series turns by more than `least`: its first extreme, every turn, its last extreme; none: it never does.

    Extremes are those between which it goes back by `least` at most.
    """
    return list(_turning_points(np.asarray(values, dtype=float), least))


def _turning_points(values: "np.ndarray[tuple[int], np.dtype[np.float64]]", least: float) -> Iterator[int]:
    low = high = 0
    up: bool | None = None
    for place in range(1, len(values)):
        if up is not False and values[place] > values[high]:
            high = place
        if up is not True and values[place] < values[low]:
            low = place
        if up is not False and values[high] - values[place] > least:
            yield high
            up, low = False, place
        elif up is not True and values[place] - values[low] > least:
            yield low
            up, high = True, place
    if up is not None:
        yield high if up else low
