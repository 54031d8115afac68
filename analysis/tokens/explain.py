"""What differs in some steps from the rest of their run: which metrics, and in which responses, tokens, prompts, ages.

found = explain(run, summary, 70, 80)
[said.text for said in sentences(found)]

A metric is compared step by step, in robust standard deviations of the steps outside; one that follows the age of the
data with steps of that age, so that a sawtooth hides nothing; where all its values are above 0 its logarithms must show
a difference as well, so that a skew is none. Of what differs, the sustained changes up to these steps are said in their
order. Where a number's parts sit is said of an owner (a token, a position, a prompt, a version, a lag) with far more of
the number than of the tokens. These are coincidences, not causes.
"""

from dataclasses import dataclass
from math import inf, isfinite, nan

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.findings.change_points import Shift
from ratioscope.analysis.findings.facts import STALENESS, UPDATE_METRIC
from ratioscope.analysis.findings.logged import logged
from ratioscope.analysis.findings.numbers import level, percent
from ratioscope.analysis.findings.watched import (
    OF_TABLES,
    WATCHED_METRICS,
    WatchedCourse,
    changed,
    course_of,
    sentence_start,
    watched,
)
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.analysis.tokens.attribution import OWNERS, shares
from ratioscope.analysis.tokens.contributions import USUAL, Contributions, contributions, has_parts
from ratioscope.analysis.tokens.contributions import contributions_sentence as who
from ratioscope.catalogue import CATALOGUE
from ratioscope.tails import Array

_ALSO = ("s_k", "s_k_version", "log1p_chi2_seq", "ess_seq")
"""Compared beside everything that is watched before a fall."""
_LOGARITHMIC = ("ratio_min",)
"""Compared as logarithms only: most of its values are small, all of them near 0."""
_SETTING = ("reward", "response_length", "version_lag")
"""Said in any case."""
_FAR, _FARTHEST = 3.0, 6.0
"""Robust standard deviations from which the median of the steps has moved, or one step alone, which must also lie
beyond every other step of the run."""
_LEAST_REST = 8
"""So many other steps are a rest to compare with."""
_FOLLOWS = 0.5
"""Rank correlation from which a metric follows the age of the data."""
_OWNERS = ("token", "position", "prompt", "version", "version_lag")
_SHARE, _OVER = 0.25, 2.0
"""What an owner must have of the number, and how many times its share of the tokens."""
_MOST_ORDERED = 3
"""Changes that are named in their order."""
_LONGEST = 60
"""Of a prompt, so many signs are quoted."""
_MEASURES = {"chi2_token": "chi2", "kl_k3": "kl", UPDATE_METRIC: "update", "ess_seq": "rho_squared"}


@dataclass(frozen=True)
class MovedMetric:
    """A metric in the steps and in the rest of the run."""

    key: str
    inside: float
    outside: float
    """Medians over the steps."""
    units: float
    """Their distance in robust standard deviations of the rest; infinite where the rest is constant."""
    step: int
    """The step inside that is farthest from the rest."""
    value: float
    farthest: float
    """Its value, and its distance; 0 where some step outside is as far."""
    there: float
    """What is to be expected in that step, by the rest."""
    at_same_age: bool
    """The rest is the other steps whose data are of the most similar age: the metric follows it."""
    course: WatchedCourse

    @property
    def is_far(self) -> bool:
        """Whether it has moved."""
        return abs(self.units) >= _FAR or abs(self.farthest) >= _FARTHEST

    @property
    def size(self) -> float:
        return max(abs(self.units) / _FAR, abs(self.farthest) / _FARTHEST)


@dataclass(frozen=True)
class PartPlace:
    """Where a part of a number sits."""

    owner: str
    """Of `attribution.OWNERS`."""
    label: str
    share: float
    share_of_tokens: float


@dataclass(frozen=True)
class Explanation:
    """What differs in some steps."""

    first: int
    last: int
    moved: tuple[MovedMetric, ...]
    """The metrics that have moved, the farthest first."""
    farthest: MovedMetric | None
    """The metric that comes first, whether it has moved or not."""
    order: tuple[tuple[WatchedCourse, Shift], ...]
    """Of these, what has changed for good up to the last of the steps, the first change first."""
    setting: tuple[MovedMetric, ...]
    """Reward, length and age, whether they have moved or not."""
    by: str
    """The metric whose parts were looked at; empty where none has moved that has parts."""
    responses: Contributions | None
    places: tuple[PartPlace, ...]
    cannot: str
    """Why nothing can be compared; a clause, empty where it can."""

    @property
    def words(self) -> str:
        return f"step {self.first}" if self.first == self.last else f"steps {self.first} to {self.last}"


@dataclass(frozen=True)
class Said:
    """A sentence, and what shows it: the responses of these steps by a metric."""

    text: str
    metric: str
    first: int
    last: int


def explain(run: Run, summary: StepSummary, first: int, last: int) -> Explanation:
    """What differs in the steps first..last, both included, from the rest of the run.

    Args:
        summary: of the whole run.

    Raises:
        RatioscopeError: a file that was there at opening cannot be read any more.
    """
    inside = summary.values.loc[first:last]
    if not len(inside) or len(summary.values) - len(inside) < _LEAST_REST:
        why = f"fewer than {_LEAST_REST} other steps are logged" if len(inside) else "none of these steps is logged"
        return Explanation(first, last, (), None, (), (), "", None, (), why)
    courses = watched(summary, run) | {key: course_of(summary, key) for key in (*_ALSO, *_SETTING)}
    every = {key: found for key, course in courses.items() if (found := _compared(key, course, summary, first, last))}
    ordered = sorted(every.values(), key=lambda found: -found.size)
    moved = [found for found in ordered if found.is_far]
    by = next((found.key for found in moved if has_parts(found.key)), "")
    by = by or USUAL * bool(moved and USUAL in every)
    one = next((found.step for found in moved if found.key == by and abs(found.units) < _FAR), None)
    steps = (first, last) if one is None else (one, one)
    judged = changed({each.key: each.course for each in moved}, summary.values["version_lag"], last)
    return Explanation(
        first,
        last,
        tuple(found for found in moved if found.key not in _SETTING),
        next((found for found in ordered if found.key not in _SETTING), None),
        tuple((courses[key], shift) for key, shift in judged.items() if shift is not None),
        tuple(every[key] for key in _SETTING if key in every),
        by,
        contributions(run, by, *steps, limit=5) if by else None,
        _places(run, by, *steps) if by and logged(run).has_ratios else (),
        "",
    )


def _compared(key: str, course: WatchedCourse, summary: StepSummary, first: int, last: int) -> MovedMetric | None:
    series = course.series.replace([inf, -inf], nan).dropna()
    is_inside = (series.index >= first) & (series.index <= last)
    inside, outside = series[is_inside], series[~is_inside]
    if not len(inside) or len(outside) < _LEAST_REST:
        return None
    age = summary.values["version_lag"].reindex(series.index)
    ages = age if key != "version_lag" and _follows(outside, age[~is_inside]) else None
    # A skew is no difference: of logarithms a metric above 0 must show it as well.
    scales: list[pd.Series[float]] = [series]
    if (series > 0).all():
        scales.append(pd.Series(np.log(series.to_numpy()), index=series.index))
    if key in _LOGARITHMIC:
        scales = scales[-1:]
    units, farthest, step = min(
        (_distances(scale, is_inside, ages) for scale in scales), key=lambda found: abs(found[0])
    )
    if key in OF_TABLES or (course.direction and farthest * course.direction < 0 and key in WATCHED_METRICS):
        farthest = 0.0  # one response of a step is no more than one; and one better step needs no explanation
    rest, value = _expected(series, is_inside, ages), float(inside[step])
    middle, there = float(rest[is_inside].median()), float(rest[step])
    aged = ages is not None
    return MovedMetric(key, float(inside.median()), middle, units, step, value, farthest, there, aged, course)


def _follows(values: "pd.Series[float]", age: "pd.Series[float]") -> bool:
    """Whether a metric goes up and down with the age of the data, as all do that weights pushed at intervals move."""
    if age.isna().any() or age.nunique() < 2 or values.nunique() < 2:
        return False
    return abs(float(values.corr(age, method="spearman"))) >= _FOLLOWS


def _expected(
    series: "pd.Series[float]", is_inside: "NDArray[np.bool_]", ages: "pd.Series[float] | None"
) -> "pd.Series[float]":
    """Of every step the median of the rest, or of those other steps in it whose data are of the most similar age."""
    outside = series[~is_inside]
    if ages is None:
        return pd.Series(float(outside.median()), index=series.index)
    rest = ages[~is_inside]
    nearest = {
        step: (rest.drop(step, errors="ignore") - age).abs().nsmallest(_LEAST_REST, keep="all").index
        for step, age in ages.items()
    }
    return pd.Series({step: float(outside[steps].median()) for step, steps in nearest.items()})


def _distances(
    series: "pd.Series[float]", is_inside: "NDArray[np.bool_]", ages: "pd.Series[float] | None"
) -> tuple[float, float, int]:
    """In robust standard deviations of the rest: of the median of the steps, of the farthest of them, and which it is.

    The second is 0 where some step outside is as far.
    """
    left = series - _expected(series, is_inside, ages)
    inside, outside = left[is_inside], left[~is_inside]
    size = abs(float(series[~is_inside].median()))
    step = int(inside.index[int((inside - outside.median()).abs().argmax())])
    value = float(inside[step])
    beyond = value > outside.max() or value < outside.min()
    rest: Array = np.asarray(outside, dtype=np.float64)
    return _distance(float(inside.median()), rest, size), _distance(value, rest, size) if beyond else 0.0, step


def _distance(value: float, rest: Array, size: float) -> float:
    middle = float(np.median(rest))
    sizes = np.abs(rest - middle)
    spread = 1.4826 * float(np.median(sizes)) or 1.2533 * float(np.mean(sizes))
    if spread > 1e-9 * max(size, 1e-9):
        return (value - middle) / spread
    return 0.0 if np.isclose(value, middle, atol=1e-8 * max(size, 1e-9)) else float(np.copysign(inf, value - middle))


def _places(run: Run, by: str, first: int, last: int) -> tuple[PartPlace, ...]:
    found = []
    log = logged(run)
    for name in _OWNERS:
        if not all(log.meets(need) for need in OWNERS[name].needs):
            continue
        owned = shares(run, _MEASURES.get(by, "deviation"), name, first, last, top=1)
        if owned.undefined or owned.n_owners < 2 or not len(owned.frame):
            continue
        top = owned.frame.iloc[0]
        if top["share"] >= _SHARE and top["share"] >= _OVER * top["share_of_tokens"]:
            found.append(PartPlace(name, str(top["label"]), float(top["share"]), float(top["share_of_tokens"])))
    return tuple(found)


def sentences(found: Explanation) -> list[Said]:
    """What differs, in six sentences at most; one, where nothing does or nothing can be compared."""

    def said(text: str, metric: str = "", step: int | None = None) -> Said:
        steps = (found.first, found.last) if step is None else (step, step)
        shown = metric if metric in CATALOGUE else found.by
        return Said(text, shown or STALENESS, *steps)

    words = found.words
    if found.cannot:
        return [said(f"What differs in {words} from the rest of the run is unknown: {found.cannot}.")]
    lines = []
    if not found.moved:
        least = f"{_FAR:g} robust standard deviations (SD)"
        text = f"No metric differs in {words} from the rest of the run by {least} or more."
        lines.append(said(text))
        if found.farthest is not None:
            nearest = f"The farthest: {_moved(found.farthest, words)}"
            lines.append(said(nearest, found.farthest.key, _alone(found.farthest)))
    for place, moved in enumerate(found.moved[:2]):
        lines.append(said(_moved(moved, words if place == 0 else "these steps"), moved.key, _alone(moved)))
    if len(found.moved) > 2:
        names = ", ".join(f"{moved.course.label} ({_far(moved)})" for moved in found.moved[2:5])
        lines[-1] = said(f"{lines[-1].text} Also: {names}.", lines[-1].metric)
    if found.order:
        told = "; then ".join(course.dated(shift) for course, shift in found.order[:_MOST_ORDERED])
        lines.append(said(f"For good, {told}."))
    if found.responses is not None and len(found.responses.frame) and found.by:
        step = next((_alone(moved) for moved in found.moved if moved.key == found.by), None)
        lines.append(said(who(found.responses, words if step is None else f"step {step}"), found.by, step))
    if found.places:
        parts = [_place(place) for place in found.places]
        of = _name(found.by)
        lines.append(said(f"Of {of}, {'; '.join(parts)}."))
    if found.setting:
        lines.append(said(f"{'; '.join(map(_setting, found.setting))}.", found.by))
    return [Said(sentence_start(line.text), line.metric, line.first, line.last) for line in lines]


def _alone(moved: MovedMetric) -> int | None:
    """The one step that is far where the median is not."""
    return moved.step if moved.is_far and abs(moved.units) < _FAR else None


def _moved(moved: MovedMetric, words: str) -> str:
    alone = _alone(moved) is not None
    rest = f"{_number(moved, moved.there if alone else moved.outside)} in the rest"
    rest += " at the same age" * moved.at_same_age
    if alone:
        return f"{moved.course.label} is {_number(moved, moved.value)} in step {moved.step} ({rest}: {_far(moved)})."
    return f"{moved.course.label} is {_number(moved, moved.inside)} in {words} ({rest}: {_far(moved)})."


def _far(moved: MovedMetric) -> str:
    units = moved.units if _alone(moved) is None else moved.farthest
    return f"{units:+.2g} robust SD" if isfinite(units) else "constant there"


def _setting(moved: MovedMetric) -> str:
    name, inside, outside = moved.course.label, _number(moved, moved.inside), _number(moved, moved.outside)
    return f"{name} as in the rest ({inside})" if inside == outside else f"{name} {inside}, {outside} in the rest"


def _place(place: PartPlace) -> str:
    label = " ".join(place.label.split())
    owner = OWNERS[place.owner].phrase.format(label if len(label) <= _LONGEST else f"{label[:_LONGEST]}…")
    return f"{percent(place.share)} is {owner} ({percent(place.share_of_tokens)} of the tokens)"


def _name(key: str) -> str:
    label = CATALOGUE[key].label
    return f"{label[0].lower()}{label[1:]}" if label[1:2].islower() else label


def _number(moved: MovedMetric, value: float) -> str:
    return level(value, share=moved.course.share)
