"""Measures from sums over prompt groups: values, intervals, and why a value is missing or cannot be trusted."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import log, nan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.summary.intervals import (
    NO_INTERVAL,
    Index,
    Interval,
    cluster_variance,
    cluster_variances,
    sums,
)
from ratioscope.analysis.what_if.measures import MEASURES, WHY_EMPTY, Measure
from ratioscope.analysis.what_if.permitted import why_unbounded
from ratioscope.analysis.what_if.rule import Rule
from ratioscope.analysis.what_if.tails import Top
from ratioscope.catalogue.denominators import NEW
from ratioscope.metric import HARMLESS_RATIO, doubt
from ratioscope.notes import Kind, Note, is_unreliable
from ratioscope.tails import Array

Sums = Mapping[str, Array]
"""What the measures are ratios of, by prompt group, (n_groups,) each."""

Keys = Collection[str] | None
"""The only measures that are wanted; None: all."""

ESS = {"ess": ("v", "kept", "applied"), "ess_raw": ("rho", "signal", "raw")}
"""Effective sample size: the weights it is of, how many there are, their name in `TAILS`."""
LARGEST = {"max_weight": ("kept", "applied"), "max_weight_raw": ("signal", "raw")}


@dataclass(frozen=True)
class Numbers:
    """The measures of some tokens; a value without an estimate is NaN, and `notes` says why, or why not to trust it."""

    values: dict[str, float]
    intervals: dict[str, Interval]
    """95 %, cluster-robust over prompt groups; only where there is one, open above where it cannot be trusted."""
    notes: dict[str, Note]

    def unreliable(self, key: str) -> bool:
        """Whether the measure has a value that cannot be trusted."""
        return is_unreliable(self.notes.get(key))

    @property
    def row(self) -> dict[str, float | str]:
        """Every value, and each mean's interval as <measure>_lower and <measure>_upper, NaN where there is none.

        Not _low and _high: `clip_fraction_low` and `clip_fraction_high` are measures themselves. `unreliable` names
        what has a value that cannot be trusted.
        """
        ends = {key: self.intervals.get(key, NO_INTERVAL) for key in MEASURES}
        lower = {f"{key}_lower": interval.low for key, interval in ends.items()}
        upper = {f"{key}_upper": interval.high for key, interval in ends.items()}
        unreliable = ", ".join(key for key in self.notes if self.unreliable(key))
        return {**self.values, **lower, **upper, "unreliable": unreliable}


class MeasureCurve(NamedTuple):
    """One measure step by step, (n_steps,) each; intervals are NaN where there are none."""

    values: Array
    low: Array
    high: Array
    trusted: NDArray[np.bool_]
    """Neither missing nor resting on the largest weight."""

    @classmethod
    def bare(cls, values: Array) -> "MeasureCurve":
        """Values without intervals; NaN is missing."""
        nothing = np.full(len(values), np.nan)
        return cls(values, nothing, nothing, np.isfinite(values))


def needed(keys: Sequence[str]) -> set[str]:
    """The sums that some measures are made of."""
    names: set[str] = set()
    for key in keys:
        if key in MEASURES:
            names |= {MEASURES[key].numerator, MEASURES[key].denominator}
        elif key in ESS:
            weights, n, _ = ESS[key]
            names |= {weights, f"{weights}_squared", n}
        else:
            names.add(LARGEST[key][0])
    return names


def tails_of(keys: Sequence[str]) -> set[str]:
    """The weights that some measures rest on, of `TAILS`."""
    of = {key: tail for key, (*_, tail) in (*ESS.items(), *LARGEST.items())}
    names = {of[key] if key in of else MEASURES[key].tail for key in keys}
    return names - {""}


def ends_of(found: Sums, starts: Index, keys: Keys = None) -> dict[str, tuple[Array, Array]]:
    """Both ends of the intervals of every wanted measure that has its sums, one for each start of groups."""
    return {
        key: measure.intervals(found[measure.numerator], found[measure.denominator], starts)
        for key, measure in MEASURES.items()
        if measure.numerator in found and (keys is None or key in keys)
    }


def measures_of(
    rule: Rule,
    found: Sums,
    groups: slice,
    tops: Mapping[str, Top],
    intervals: Mapping[str, Interval],
    keys: Keys = None,
) -> Numbers:
    """The measures of some prompt groups.

    Args:
        found: sums of all groups, as many as were computed.
        groups: which of them.
        tops: the largest weights, by the names of `TAILS`.
        intervals: of the measures.
        keys: the only measures that are wanted.
    """
    totals = {name: float(values[groups].sum()) for name, values in found.items()}
    values: dict[str, float] = {}
    notes: dict[str, Note | None] = {}

    def doubted(tail: str, numerator: str, denominator: str) -> Note | None:
        if not tail:
            return None
        error = cluster_variance(found[numerator][groups], found[denominator][groups]) ** 0.5
        return doubt(float(_reliance(tops[tail], np.float64(error))))

    for key, measure in MEASURES.items():
        if keys is not None and key not in keys:
            continue
        values[key] = float("nan")
        if not totals[measure.denominator]:
            notes[key] = WHY_EMPTY[measure.denominator]
        elif measure.numerator not in totals:
            notes[key] = _why_absent(key, rule)
        else:
            values[key] = totals[measure.numerator] / totals[measure.denominator]
            notes[key] = _not_finite(values[key]) or doubted(measure.tail, measure.numerator, measure.denominator)
    for key, (weights, n, tail) in ESS.items():
        if keys is None or key in keys:
            values[key], notes[key] = float("nan"), WHY_EMPTY[n]
            if totals[n]:
                total, squares = totals[weights], totals[f"{weights}_squared"]
                # Squares of tiny weights may be 0, and large ones infinite: then there is no telling.
                values[key] = total / squares * (total / totals[n]) if squares else float("nan")
                notes[key] = _not_finite(values[key]) or doubted(tail, f"{weights}_squared", n)
    for key, (n, tail) in LARGEST.items():
        if keys is None or key in keys:
            values[key] = tops[tail].largest if totals[n] else float("nan")
            notes[key] = _not_finite(values[key]) if totals[n] else WHY_EMPTY[n]
    noted = {key: note for key, note in notes.items() if note}
    there = {key: i for key, i in intervals.items() if np.isfinite(i.low) and np.isfinite(values[key])}
    opened = {key: Interval(i.low, np.inf) if is_unreliable(noted.get(key)) else i for key, i in there.items()}
    return Numbers(values, opened, noted)


def curve_of(measure: Measure, found: Sums, starts: Index, tops: Sequence[Top] | None) -> MeasureCurve | None:
    """A measure step by step; None where the rule, or the log, has no such sums.

    Args:
        starts: where each step's groups start, (n_steps,).
        tops: the largest weight that it rests on, of each step; None: it is no second moment.
    """
    if measure.numerator not in found:
        return None
    numerator, denominator = sums(found[measure.numerator], starts), sums(found[measure.denominator], starts)
    with np.errstate(all="ignore"):
        values = np.where(denominator != 0, numerator / denominator, np.nan)
    sides = found[measure.numerator], found[measure.denominator]
    low, high = measure.intervals(*sides, starts)
    trusted = np.isfinite(values)
    if tops is not None:
        errors = np.sqrt(cluster_variances(*sides, starts))
        reliance = (float(_reliance(top, error)) for top, error in zip(tops, errors, strict=True))
        reliable = np.array([doubt(value) is None for value in reliance], dtype=bool)
        trusted, high = trusted & reliable, np.where(reliable | np.isnan(high), high, np.inf)
    return MeasureCurve(
        values, np.where(np.isfinite(values), low, np.nan), np.where(np.isfinite(values), high, np.nan), trusted
    )


def _reliance(top: Top, error: "np.float64") -> float:
    """What the largest weight adds to a mean of squares, in its standard errors; see `doubt`."""
    if top.log_largest <= log(HARMLESS_RATIO):
        return 0.0
    with np.errstate(all="ignore"):
        return float(np.expm1(top.log_largest) ** 2 / top.n / error) if error > 0 else nan


def _why_absent(key: str, rule: Rule) -> Note:
    """Why a measure has no sums."""
    if key == "permitted_drift":
        return Note(Kind.UNDEFINED, why_unbounded(rule))
    if key in ("truncated_mass", "masked_mass", "bias_proxy"):
        return Note(
            Kind.UNDEFINED,
            "a geometric mean is not an importance ratio: its mean need not be 1, so missing mass cannot be seen",
        )
    return NEW.missing


def _not_finite(value: float) -> Note | None:
    """Why a number is none; None where it is one."""
    if np.isinf(value):
        return Note(Kind.INFINITE, "infinite: a weight is beyond the floating-point range")
    return Note(Kind.UNDEFINED, "undefined") if np.isnan(value) else None
