"""Marks of the parts that a reward has: their weights in advantages, and scorers that are silent or away."""

from math import nan

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number
from ratioscope.analysis.linter.credited import (
    FEWEST_GROUPS,
    FEWEST_RESPONSES,
    IN_GROUPS,
    SAME,
    whole_groups,
)
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.runs.relations import quoted

_SAME_SUM = 1e-4
"""Of the largest reward: how far the weighted sum of its parts may be from it."""
_FOLLOWS = 0.999
"""Share of the variance inside groups that is explained by what advantages are made of."""


def part_names(evidence: LogEvidence) -> list[str]:
    """The columns of parts of the reward."""
    columns = map(str, evidence.frame("select * from sequence limit 0").columns)
    return [name for name in columns if name.startswith("reward_")]


def parts_of_responses(evidence: LogEvidence) -> pd.DataFrame:
    """One row for each response that the loss has seen, with its parts: step, seq_id, group_id, reward, part_0, ..."""

    def made() -> pd.DataFrame:
        values = [f"try_cast({quoted(name)} as double) as part_{at}" for at, name in enumerate(part_names(evidence))]
        kept = ["step", "seq_id", "group_id", "grouped", "environment", "reward::double as reward", *values]
        return evidence.frame(f"select {', '.join(kept)} from sequence where dropped is null order by step, seq_id")

    return evidence.once("responses with the parts of their reward", made)


@mark(needs=IN_GROUPS, limit=0.99)
def advantage_of_other_weights(evidence: LogEvidence) -> MarkReading | None:
    """Inside groups the advantage is a line of a weighted sum of the reward's parts, of other weights than its own."""
    names = part_names(evidence)
    if len(names) < 2 or evidence.spreads_groups:
        return None
    parts = [f"part_{at}" for at in range(len(names))]
    of = parts_of_responses(evidence)[["step", "seq_id", *parts]]
    rows = whole_groups(evidence).merge(of, on=["step", "seq_id"]).dropna(subset=parts)
    if len(rows) < FEWEST_RESPONSES:
        return None
    reward, filled = rows["reward"].to_numpy(dtype=float), rows[parts].to_numpy(dtype=float)
    own = np.linalg.lstsq(filled, reward, rcond=None)[0]
    if np.abs(filled @ own - reward).max() > _SAME_SUM * (1 + np.abs(reward).max()):
        return None  # another rule made the reward
    within = rows[parts] - rows.groupby("group")[parts].transform("mean")
    used = np.flatnonzero((within.abs() > SAME).any())
    weights = _weights(rows, within.to_numpy()[:, used])
    if weights is None:
        return None
    by_parts = _line_inside_groups(rows, filled[:, used] @ weights)
    by_reward = _line_inside_groups(rows, reward)
    if not by_parts > _FOLLOWS or not by_reward < _FOLLOWS:
        return MarkReading(0.0, "")
    theirs = " + ".join(f"{number(w)} × {names[at]}" for at, w in zip(used, weights, strict=True))
    logged = " and ".join(number(float(own[at])) for at in used)
    return MarkReading(
        (by_parts - by_reward) / (1 - by_reward), f"they follow {theirs}, the logged reward has {logged}",
        steps_with(rows.groupby("step").size()), ("reward",), first_of(rows),
    )  # fmt: skip


def _weights(rows: pd.DataFrame, within: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Weights of parts, sizes adding up to 1, that the groups' own fits of the advantage agree on; None: few tell.

    Each group has a scale of its own, as where advantages are divided by its deviation, so groups are fitted alone.
    """
    found = []
    for at in rows.groupby("group").indices.values():
        x, a = within[at], rows["advantage"].to_numpy()[at]
        if len(at) > within.shape[1] + 1 and np.linalg.matrix_rank(x, tol=SAME) == within.shape[1]:
            fit = np.linalg.lstsq(x, a - a.mean(), rcond=None)[0]
            found.append(fit / max(float(np.abs(fit).sum()), SAME))
    if not within.shape[1] or len(found) < FEWEST_GROUPS:
        return None
    weights = np.median(found, axis=0)
    return np.asarray(weights / max(float(np.abs(weights).sum()), SAME))


def _line_inside_groups(rows: pd.DataFrame, values: NDArray[np.float64]) -> float:
    """Share of the advantage's variance inside groups that a line of some values for each group explains."""
    group = rows["group"]
    a, x = (each - each.groupby(group).transform("mean") for each in (rows["advantage"], pd.Series(values, rows.index)))
    sums = pd.DataFrame({"ax": a * x, "xx": x * x, "aa": a * a}).groupby(group).sum()
    total = float(sums["aa"].sum())
    line = sums["ax"] ** 2 / sums["xx"].where(sums["xx"] > SAME**2)
    return float(line.sum()) / total if total > 0 else nan
