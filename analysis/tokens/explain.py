"""What differs in some steps from the rest of their run: which metrics, and in which responses, tokens, prompts, ages.

found = explain(run, summary, 70, 80)
[said.text for said in sentences(found)]

A metric is compared step by step, in robust standard deviations of the steps outside; where all its values are above 0
its logarithms must show a difference as well, so that a skew is none. Where a number's parts sit is said of an owner
(a token, a position, a prompt, a version, a lag) with far more of the number than of the tokens. These are
coincidences, not causes.
"""

from dataclasses import dataclass
from math import inf, isfinite, nan

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.facts import STALENESS, UPDATE
from ratioscope.analysis.findings.logged import logged
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.analysis.tokens.attribution import OWNERS, shares
from ratioscope.analysis.tokens.contributions import USUAL, Contributions, contributions, has_parts
from ratioscope.analysis.tokens.contributions import sentence as who
from ratioscope.catalogue import CATALOGUE
from ratioscope.tails import Array

_METRICS = (
    "s_k", STALENESS, UPDATE, "s_k_engine", "s_k_version", "chi2_token", "log1p_chi2_seq", "ess_seq", "ratio_max",
    "kl_k3", "clip_fraction", "entropy", "kl_to_reference", "kl_to_initial", "grad_norm",
)  # fmt: skip
_SETTING = ("reward", "response_length", "version_lag")
"""Said in any case."""
_FAR, _FARTHEST = 3.0, 6.0
"""Robust standard deviations from which the median of the steps has moved, or one step alone, which must also lie
beyond every other step of the run."""
_LEAST_REST = 8
"""So many other steps are a rest to compare with."""
_OWNERS = ("token", "position", "prompt", "version", "version_lag")
_SHARE, _OVER = 0.25, 2.0
"""What an owner must have of the number, and how many times its share of the tokens."""
_LONGEST = 60
"""Of a prompt, so many signs are quoted."""
_MEASURES = {"chi2_token": "chi2", "kl_k3": "kl", UPDATE: "update", "ess_seq": "rho_squared"}


@dataclass(frozen=True)
class Moved:
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

    @property
    def is_far(self) -> bool:
        """Whether it has moved."""
        return abs(self.units) >= _FAR or abs(self.farthest) >= _FARTHEST

    @property
    def size(self) -> float:
        return max(abs(self.units) / _FAR, abs(self.farthest) / _FARTHEST)


@dataclass(frozen=True)
class Place:
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
    moved: tuple[Moved, ...]
    """The metrics that have moved, the farthest first."""
    farthest: Moved | None
    """The metric that comes first, whether it has moved or not."""
    setting: tuple[Moved, ...]
    """Reward, length and age, whether they have moved or not."""
    by: str
    """The metric whose parts were looked at; empty where none has moved that has parts."""
    responses: Contributions | None
    places: tuple[Place, ...]
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
        return Explanation(first, last, (), None, (), "", None, (), why)
    every = {key: found for key in (*_METRICS, *_SETTING) if (found := _compared(key, summary, first, last))}
    ordered = sorted(every.values(), key=lambda found: -found.size)
    moved = [found for found in ordered if found.is_far]
    by = next((found.key for found in moved if has_parts(found.key)), "")
    by = by or USUAL * bool(moved and USUAL in every)
    one = next((found.step for found in moved if found.key == by and abs(found.units) < _FAR), None)
    steps = (first, last) if one is None else (one, one)
    return Explanation(
        first,
        last,
        tuple(found for found in moved if found.key not in _SETTING),
        next((found for found in ordered if found.key not in _SETTING), None),
        tuple(every[key] for key in _SETTING if key in every),
        by,
        contributions(run, by, *steps, limit=5) if by else None,
        _places(run, by, *steps) if by and logged(run).has_ratios else (),
        "",
    )


def _compared(key: str, summary: StepSummary, first: int, last: int) -> Moved | None:
    series = summary.values[key].replace([inf, -inf], nan).dropna()
    outside = series[(series.index < first) | (series.index > last)]
    inside = series.loc[first:last]
    if not len(inside) or len(outside) < _LEAST_REST:
        return None
    step = int(inside.index[int((inside - outside.median()).abs().argmax())])
    value, median = float(inside[step]), float(inside.median())
    beyond = value > outside.max() or value < outside.min()
    units, farthest = _units(median, outside), _units(value, outside) if beyond else 0.0
    return Moved(key, median, float(outside.median()), units, step, value, farthest)


def _units(value: float, rest: "pd.Series[float]") -> float:
    """Distance from the rest's median in robust standard deviations; of the logarithms, where these say less."""
    values: Array = np.asarray(rest, dtype=np.float64)
    found = _distance(value, values)
    if value > 0 and (values > 0).all():
        in_logs = _distance(float(np.log(value)), np.log(values))
        found = min(found, in_logs, key=abs)
    return found


def _distance(value: float, rest: Array) -> float:
    middle = float(np.median(rest))
    sizes = np.abs(rest - middle)
    spread = 1.4826 * float(np.median(sizes)) or 1.2533 * float(np.mean(sizes))
    if spread > 1e-9 * max(abs(middle), 1e-9):
        return (value - middle) / spread
    return 0.0 if np.isclose(value, middle) else float(np.copysign(inf, value - middle))


def _places(run: Run, by: str, first: int, last: int) -> tuple[Place, ...]:
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
            found.append(Place(name, str(top["label"]), float(top["share"]), float(top["share_of_tokens"])))
    return tuple(found)


def sentences(found: Explanation) -> list[Said]:
    """What differs, in six sentences at most; one, where nothing does or nothing can be compared."""

    def said(text: str, metric: str = "", step: int | None = None) -> Said:
        steps = (found.first, found.last) if step is None else (step, step)
        return Said(text, metric or found.by or STALENESS, *steps)

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
        names = ", ".join(f"{_name(moved.key)} ({_far(moved)})" for moved in found.moved[2:5])
        lines[-1] = said(f"{lines[-1].text} Also: {names}.", lines[-1].metric)
    if found.responses is not None and len(found.responses.frame) and found.by:
        step = next((_alone(moved) for moved in found.moved if moved.key == found.by), None)
        lines.append(said(who(found.responses, words if step is None else f"step {step}"), found.by, step))
    if found.places:
        parts = [_place(place) for place in found.places]
        of = _name(found.by)
        lines.append(said(f"Of {of}, {'; '.join(parts)}."))
    if found.setting:
        lines.append(said(f"{'; '.join(map(_setting, found.setting))}.", found.by))
    return [Said(f"{line.text[0].upper()}{line.text[1:]}", line.metric, line.first, line.last) for line in lines]


def _alone(moved: Moved) -> int | None:
    """The one step that is far where the median is not."""
    return moved.step if moved.is_far and abs(moved.units) < _FAR else None


def _moved(moved: Moved, words: str) -> str:
    rest = f"{_number(moved.key, moved.outside)} in the rest"
    if _alone(moved) is not None:
        return f"{_name(moved.key)} is {_number(moved.key, moved.value)} in step {moved.step} ({rest}: {_far(moved)})."
    return f"{_name(moved.key)} is {_number(moved.key, moved.inside)} in {words} ({rest}: {_far(moved)})."


def _far(moved: Moved) -> str:
    units = moved.units if _alone(moved) is None else moved.farthest
    return f"{units:+.2g} robust SD" if isfinite(units) else "constant there"


def _setting(moved: Moved) -> str:
    name = _name(moved.key)
    if not moved.is_far:
        return f"{name} as in the rest ({_number(moved.key, moved.inside)})"
    return f"{name} {_number(moved.key, moved.inside)} against {_number(moved.key, moved.outside)} in the rest"


def _place(place: Place) -> str:
    label = " ".join(place.label.split())
    owner = OWNERS[place.owner].phrase.format(label if len(label) <= _LONGEST else f"{label[:_LONGEST]}…")
    return f"{percent(place.share)} is {owner} ({percent(place.share_of_tokens)} of the tokens)"


def _name(key: str) -> str:
    label = CATALOGUE[key].label
    return f"{label[0].lower()}{label[1:]}" if label[1:2].islower() else label


def _number(key: str, value: float) -> str:
    return percent(value) if CATALOGUE[key].share else number(value)
