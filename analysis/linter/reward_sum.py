"""Marks of a reward that is not the sum of its parts: other weights than configured, or one value in its place."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.watched import REWARD_PART, reward_parts
from ratioscope.analysis.findings.words import listed
from ratioscope.analysis.linter.credited import FEWEST_RESPONSES, SAME
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.linter.reward_parts import SAME_SUM, parts_of_responses
from ratioscope.run_format.manifest import as_finite

Floats = NDArray[np.float64]

_ROUNDS = 8
"""Fits of the weights, each without the rows that were farthest away from the one before."""
_LEAST_EXPLAINED = 0.6
"""Share of the responses whose reward is the sum, below which nothing says what it is made of."""
_NEARLY_ALL = 0.95
_APART = 0.05
"""Of the largest weight: weights that differ by less are the same."""


@mark(needs=(("sequences.reward",),), limit=_APART)
def reward_of_other_weights(evidence: LogEvidence) -> MarkReading | None:
    """The reward has its parts by other weights than the manifest's; the largest difference, of the largest weight."""
    found = _fitted(evidence)
    configured = evidence.run.manifest.task.get("reward_weights")
    if found is None or not isinstance(configured, dict):
        return None
    rows, names, parts, weights, off = found
    # Of parts that go together any weights would do.
    if np.linalg.matrix_rank(parts[~off], tol=SAME) < np.any(np.abs(parts) > SAME, axis=0).sum():
        return None
    wanted = [configured.get(name, configured.get(name.removeprefix(REWARD_PART))) for name in names]
    told = [
        (at, want) for at, want in enumerate(map(as_finite, wanted)) if want is not None and np.ptp(parts[:, at]) > SAME
    ]
    if not told or not max(abs(want) for _, want in told) > 0:
        return None
    away, at, want = max((abs(float(weights[at]) - want), at, want) for at, want in told)
    logged = f"has a weight of {number(float(weights[at]))} in the reward"
    logged = logged if abs(weights[at]) > _APART * abs(want) else "is not in the reward"
    return MarkReading(
        away / max(abs(each) for _, each in told),
        f"{names[at]} is configured with a weight of {number(want)}, and {logged}",
        steps_with(rows.groupby("step").size()), ("reward", names[at]), first_of(rows),
    )  # fmt: skip


@mark(needs=(("sequences.reward",),), limit=_NEARLY_ALL)
def reward_stands_for_a_sum(evidence: LogEvidence) -> MarkReading | None:
    """Where the reward is not the sum of its parts it is one value, whenever the sum is one other value; share of both.

    Of responses that have not failed and were not cut off: those may earn a penalty of their own.
    """
    found = _fitted(evidence)
    if found is None:
        return None
    rows, names, parts, weights, off = found
    if off.sum() < FEWEST_RESPONSES:
        return MarkReading(0.0, "")
    reward, total = rows["reward"].to_numpy(dtype=float), parts @ weights
    stands, instead = _commonest(reward[off]), _commonest(total[off])
    alike = off & (np.abs(reward - stands) <= SAME) & (np.abs(total - instead) <= SAME)
    summed = np.abs(total - instead) <= SAME
    # All of the sum's rows, and hardly another one.
    share = min(float(alike.sum() / off.sum()), float(alike.sum() / summed.sum()))
    return MarkReading(
        share,
        f"the reward is {number(stands)} in {percent(float(alike.mean()))} of the responses, those whose parts "
        f"({listed(names)}) add up to {number(instead)}",
        steps_with(rows[alike].groupby("step").size()), ("reward",), first_of(rows[alike]),
    )  # fmt: skip


def _commonest(values: Floats) -> float:
    return float(pd.Series(values.round(6)).mode().iloc[0])


def _fitted(evidence: LogEvidence) -> tuple[pd.DataFrame, tuple[str, ...], Floats, Floats, NDArray[np.bool_]] | None:
    """Responses, names and values of the parts, the weights by which they make the reward of most responses, and the
    responses of which they do not; None where none do."""
    return evidence.once("reward as a sum", lambda: _fit(evidence))


def _fit(evidence: LogEvidence) -> tuple[pd.DataFrame, tuple[str, ...], Floats, Floats, NDArray[np.bool_]] | None:
    names = reward_parts(evidence.run)
    of = [f"part_{at}" for at in range(len(names))]
    rows = parts_of_responses(evidence)
    rows = rows[np.isfinite(rows[["reward", *of]].to_numpy(dtype=float)).all(axis=1) & ~rows["ended_badly"]]
    if len(names) < 2 or len(rows) < FEWEST_RESPONSES:
        return None
    reward, parts = rows["reward"].to_numpy(dtype=float), rows[of].to_numpy(dtype=float)
    near, least = np.ones(len(rows), dtype=bool), SAME_SUM * (1 + np.abs(reward).max())
    weights = np.zeros(len(names))
    for _ in range(_ROUNDS):
        weights = np.linalg.lstsq(parts[near], reward[near], rcond=None)[0]
        apart = np.abs(parts @ weights - reward)
        closest = apart <= max(least, float(np.quantile(apart, _LEAST_EXPLAINED)))
        if (closest == near).all():
            break
        near = closest
    off = np.abs(parts @ weights - reward) > least
    return None if off.mean() > 1 - _LEAST_EXPLAINED else (rows, names, parts, weights, off)
