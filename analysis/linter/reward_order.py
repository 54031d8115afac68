"""Marks of rewards that stand at other responses than those that earned them.

A part of the reward that is made of the length tells: sorted inside of each step it is one function of the sorted
lengths, and unsorted it is not. So do environments whose rewards have values that no other one's have.
"""

from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.findings.watched import reward_parts
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.linter.reward_parts import parts_of_responses

_FEWEST_ROWS, _FEWEST_STEPS = 100, 4
_FEWEST_VALUES = 8
"""Of a part, and of lengths: of fewer a function tells little."""
_SAME_VALUE = 4e-3
"""Of a part's range: how far two values may be apart by rounding (bfloat16) and by the line between two lengths."""
_FOLLOWS = 0.5
"""Rank correlation with their length, inside of steps: a part that is the length and some noise has more."""
_ALL, _BY_CHANCE = 0.95, 0.2
"""Share of the sorted pairs that are on the function; and of the others, against how many are off it with lengths of
the step before.

In large steps sorted values of any two columns are nearly a function of each other, and of another step's as well.
"""
_FEWEST_BEFORE, _MOST_VALUES = 20, 20
"""Rewards of values that there would have been before, if as many as later; and different rewards of an environment."""


@mark(needs=(("sequences.reward",), ("sequences.n_tokens",)), limit=0.5)
def reward_of_another_length(evidence: LogEvidence) -> MarkReading | None:
    """A part of the reward, or it all, is one function of the length where both are sorted inside of a step, and is
    not so of its own response; share of the responses."""
    rows, names = parts_of_responses(evidence), reward_parts(evidence.run)
    columns = {"reward": "reward", **{f"part_{at}": name for at, name in enumerate(names)}}
    columns = {column: name for column, name in columns.items() if rows[column].nunique() > _FEWEST_VALUES}
    if not columns:  # of right and wrong alone, as most are
        return MarkReading(0.0, "") if len(rows) >= _FEWEST_ROWS else None
    lengths = evidence.frame("select step, seq_id, n_tokens::double as length from sequence")
    rows = rows.merge(lengths, on=["step", "seq_id"])
    rows = rows[np.isfinite(rows["length"])]
    if len(rows) < _FEWEST_ROWS or rows["step"].nunique() < _FEWEST_STEPS:
        return None
    if rows["length"].nunique() < _FEWEST_VALUES:
        return MarkReading(0.0, "")
    best = MarkReading(0.0, "")
    for column, name in columns.items():
        of = rows[np.isfinite(rows[column])]
        for rises in (False, True):
            if (found := _displaced(of, column, rises)) is None:
                continue
            own, displaced = found
            if 1 - own > best.value:
                best = MarkReading(
                    1 - own,
                    f"{name} fits the length in {percent(own)} of them, and in all once a step is sorted",
                    steps_with(displaced.groupby("step").size()), (name,), first_of(displaced),
                )  # fmt: skip
    return best


@mark(needs=(("sequences.reward",), ("sequences.environment",)), limit=0.1)
def reward_of_another_environment(evidence: LogEvidence) -> MarkReading | None:
    """From one step on two environments have reward values that the other one alone had before; share of the rewards
    since then that are such values, of the environment with fewer."""
    rows = parts_of_responses(evidence)
    rows = rows[np.isfinite(rows["reward"]) & rows["environment"].notna()]
    rows = rows.assign(reward=rows["reward"].round(6))
    counts = rows.groupby("environment")["reward"].agg(["size", "nunique"])
    fit = counts.index[(counts["size"] >= _FEWEST_ROWS) & (counts["nunique"] <= _MOST_VALUES)]
    if len(fit) < 2:
        return MarkReading(0.0, "") if len(counts) and counts["size"].min() >= _FEWEST_ROWS else None
    rows = rows[rows["environment"].isin(fit)]
    seen = rows.groupby(["reward", "environment"])["step"].agg(["min", "size"]).unstack("environment")
    first, counts = seen["min"].fillna(np.inf), seen["size"].fillna(0)
    each = {
        name: _Seen(first[name].to_numpy(), counts[name].to_numpy(), np.sort(of.to_numpy()))
        for name, of in rows.groupby("environment")["step"]
    }
    share, since, pair = max(
        (
            (min(of.late(beside, since), beside.late(of, since)), since, (one, other))
            for (one, of), (other, beside) in combinations(each.items(), 2)
            for since in sorted({*of.first[of.first > beside.first], *beside.first[beside.first > of.first]} - {np.inf})
        ),
        default=(0.0, 0.0, ("", "")), key=lambda found: found[0],
    )  # fmt: skip
    if not share:
        return MarkReading(0.0, "")
    one, other = pair
    foreign = pd.concat(
        rows[(rows["environment"] == name) & rows["reward"].isin(first.index[each[name].foreign(each[beside], since)])]
        for name, beside in (pair, pair[::-1])
    ).sort_values(["step", "seq_id"])
    return MarkReading(
        share,
        f"from step {since:.0f} on {one} has rewards that {other} alone had before, and {other} those of {one}, at "
        f"least {percent(share)} of either",
        steps_with(foreign.groupby("step").size()), ("reward", "environment"), first_of(foreign),
    )  # fmt: skip


class _Seen(NamedTuple):
    """The rewards of an environment, by value: in which step each is first, and how many there are."""

    first: NDArray[np.float64]
    """inf: in none."""
    counts: NDArray[np.float64]
    steps: NDArray[np.int64]
    """Of all its rewards, in order."""

    def foreign(self, other: "_Seen", since: float) -> NDArray[np.bool_]:
        """The values that are here from a step on, and at the other one alone before."""
        return (other.first < since) & (self.first >= since) & (self.first < np.inf)

    def late(self, other: "_Seen", since: float) -> float:
        """The share of such values since then; 0 where there may have been none before by chance."""
        before = int(np.searchsorted(self.steps, since))
        share = float(self.counts[self.foreign(other, since)].sum()) / max(len(self.steps) - before, 1)
        return share if share * before >= _FEWEST_BEFORE else 0.0


def _displaced(rows: pd.DataFrame, column: str, rises: bool) -> tuple[float, pd.DataFrame] | None:
    """The share of the responses with the value of their own length, and the others; None: no function of lengths.

    The function is read off every other step, and the steps between them are held against it: any values of one step,
    sorted, are a function of sorted lengths.
    """
    value = rows[column]
    other = value != value.mode().iloc[0] if len(value) else value.astype(bool)
    # A penalty of the longest alone is 0 in most: what it is where it is something counts.
    if other.sum() < _FEWEST_ROWS / 2 or value[other].round(6).nunique() < _FEWEST_VALUES:
        return None
    by = rows.assign(signed=value if rises else -value)
    by_length = rows.iloc[np.lexsort((rows["seq_id"], rows["length"], rows["step"]))]
    by_value = by.iloc[np.lexsort((rows["seq_id"], by["signed"], rows["step"]))]
    sorted_value, sorted_other = by_value[column].to_numpy(), other[by_value.index].to_numpy()
    odd = by_length["step"].rank(method="dense").to_numpy() % 2 == 1
    spread = _SAME_VALUE * float(value.max() - value.min())
    # Where the sorted pairs of some steps give the function, those of the others have to be on it.
    length = by_length["length"].to_numpy()
    own = by_length[column].to_numpy()
    others = _of_the_step_before(by_length)
    fits, by_chance, owns, counted = (np.zeros(len(rows), dtype=bool) for _ in range(4))
    for learnt in (odd, ~odd):
        if not learnt.any():
            return None
        of = pd.Series(sorted_value[learnt]).groupby(length[learnt]).median()
        known = ~learnt & (length >= of.index[0]) & (length <= of.index[-1])
        expected: NDArray[np.float64] = np.interp(length, of.index.to_numpy(dtype=float), of.to_numpy(dtype=float))
        there: NDArray[np.float64] = np.interp(others, of.index.to_numpy(dtype=float), of.to_numpy(dtype=float))
        fits |= known & (np.abs(sorted_value - expected) <= spread)
        by_chance |= known & (np.abs(sorted_value - there) <= spread)
        owns |= known & (np.abs(own - expected) <= spread)
        counted |= known
    counted &= sorted_other | other[by_length.index].to_numpy()
    if counted.sum() < _FEWEST_ROWS / 2 or fits[counted].mean() < _ALL:
        return None
    if (~fits[counted]).mean() > _BY_CHANCE * (~by_chance[counted]).mean():
        return None
    ranks = rows[["length", column]].groupby(rows["step"]).rank()
    within = ranks - ranks.groupby(rows["step"]).transform("mean")
    if abs(float(within["length"].corr(within[column]))) > _FOLLOWS:
        return None
    return float(owns[counted].mean()), by_length[counted & ~owns].sort_values(["step", "seq_id"])


def _of_the_step_before(rows: pd.DataFrame) -> NDArray[np.float64]:
    """Of rows that are sorted by step and length, the length at the same place in the step before; the first one's is
    the last one's."""
    steps = [np.asarray(each, dtype=float) for _, each in rows.groupby("step")["length"]]
    return np.concatenate([
        before[(np.arange(len(here)) * len(before)) // len(here)]
        for before, here in zip([steps[-1], *steps[:-1]], steps, strict=True)
    ])  # fmt: skip
