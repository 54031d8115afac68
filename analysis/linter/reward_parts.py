"""Marks of the parts that a reward has: their weights in advantages, and scorers that are silent or away."""

import re
from collections.abc import Sequence
from math import log10, nan

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.findings.logged import GROUP
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.watched import REWARD_PART, reward_parts
from ratioscope.analysis.findings.words import listed
from ratioscope.analysis.linter.credited import (
    FEWEST_GROUPS,
    FEWEST_RESPONSES,
    IN_GROUPS,
    SAME,
    whole_groups,
)
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.linter.stated import settings_in
from ratioscope.analysis.runs.relations import quoted
from ratioscope.run_format import schema
from ratioscope.run_format.manifest import as_finite

SAME_SUM = 1e-4
"""Of the largest reward: how far the weighted sum of its parts may be from it."""
_FOLLOWS = 0.999
"""Share of the variance inside groups that is explained by what advantages are made of."""
_FEWEST_AROUND = 3
"""Steps before a stretch of zeros, and steps after it, that say how often a response earns nothing."""
_MOST_AWAY = 1 / 3
"""Of the steps: a part that is 0 in more of them is so by its schedule."""
_AS_EVER = 0.5
"""Of the usual share of responses that earn something: in the steps beside a stretch, else a policy fell and rose."""
_MANY = 200
"""Responses of which not one earned anything of a part, and responses whose turns are compared."""
_TOGETHER, _PROPORTION, _LEAST_GAIN = 0.8, 0.25, 0.1
"""Correlation of turns with what is paid for each, how far that is from a proportion, correlation with the reward."""
_PUNISHED, _BENT, _FEWEST_LENGTHS = 0.98, 2e-3, 8
"""Share of the responses that a penalty reaches, how far it may be from a line, of its range, and lengths on that."""
_BUFFER = re.compile(r"buffer(_(len|length|size|tokens))?$|overlong\w*\.(len|length)$")
_LIMIT = re.compile(r"max_((response|resp|completion|output|new)_)?(tokens|length|len)$")
"""How settings are called, below the names of what they are in."""


def parts_of_responses(evidence: LogEvidence) -> pd.DataFrame:
    """One row for each response that the loss has seen, with its parts: step, seq_id, group_id, reward, part_0, ..."""

    def made() -> pd.DataFrame:
        values = [
            f"try_cast({quoted(name)} as double) as part_{at}" for at, name in enumerate(reward_parts(evidence.run))
        ]
        badly = "failure is not null or coalesce(truncated, false) as ended_badly"
        kept = ["step", "seq_id", "group_id", "grouped", "environment", "n_turns", "reward::double as reward", badly]
        kept += values
        return evidence.frame(f"select {', '.join(kept)} from sequence where dropped is null order by step, seq_id")

    return evidence.once("responses with the parts of their reward", made)


@mark(needs=IN_GROUPS, limit=0.99)
def advantage_of_other_weights(evidence: LogEvidence) -> MarkReading | None:
    """Inside groups the advantage is a line of a weighted sum of the reward's parts, of other weights than its own."""
    names = reward_parts(evidence.run)
    if len(names) < 2 or evidence.spreads_groups:
        return None
    parts = [f"part_{at}" for at in range(len(names))]
    of = parts_of_responses(evidence)[["step", "seq_id", *parts]]
    rows = whole_groups(evidence).merge(of, on=["step", "seq_id"]).dropna(subset=parts)
    if len(rows) < FEWEST_RESPONSES:
        return None
    reward, filled = rows["reward"].to_numpy(dtype=float), rows[parts].to_numpy(dtype=float)
    own = _own_weights(filled, reward)
    if own is None:
        return None
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


def _own_weights(parts: NDArray[np.float64], reward: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """The weights with which parts add up to the logged reward; None: another rule made it."""
    own = np.linalg.lstsq(parts, reward, rcond=None)[0]
    apart = np.abs(parts @ own - reward).max()
    return None if apart > SAME_SUM * (1 + np.abs(reward).max()) else np.asarray(own)


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


@mark(needs=(("sequences.reward",),), limit=_MANY)
def reward_part_is_zero(evidence: LogEvidence) -> MarkReading | None:
    """A part of the reward is 0 in every response, while another one varies."""
    rows, names = parts_of_responses(evidence), reward_parts(evidence.run)
    known = {at: rows[f"part_{at}"].dropna() for at in range(len(names))}
    if not any(len(values) and values.max() - values.min() > SAME for values in known.values()):
        return None
    zero = {at: len(values) for at, values in known.items() if len(values) and (values == 0).all()}
    if not zero:
        return MarkReading(0.0, "")
    at = max(zero, key=lambda each: zero[each])
    others = f", and so are {listed([names[each] for each in zero if each != at])}" if len(zero) > 1 else ""
    return MarkReading(
        float(zero[at]), f"{names[at]} is 0 in all {zero[at]:,} responses{others}",
        steps_with(rows.groupby("step").size()), tuple(names[each] for each in zero),
    )  # fmt: skip


@mark(needs=(("sequences.reward",),), limit=6.0)
def scorer_is_away(evidence: LogEvidence) -> MarkReading | None:
    """A part of the reward, or the reward, is 0 in all responses of steps between others where it is not."""
    rows, names = parts_of_responses(evidence), reward_parts(evidence.run)
    columns = {"reward": "reward", **{f"part_{at}": name for at, name in enumerate(names)}}
    found = [each for column, name in columns.items() for each in _stretches(rows, column, name)]
    if not found:
        return MarkReading(0.0, "") if rows["step"].nunique() > 2 * _FEWEST_AROUND else None
    # Where a part alone is away, the reward is not 0; where the reward is, its parts are, too.
    value, steps, name, clause = max(found, key=lambda each: each[0])
    first = first_of(rows[rows["step"].isin(steps)])
    return MarkReading(value, clause, steps, (name,), first)


@mark(needs=(("sequences.reward",),), limit=0.5)
def responses_differ_while_away(evidence: LogEvidence) -> MarkReading | None:
    """Responses of the steps in which nothing was earned are of another length or likelihood than those around them."""
    steps = scorer_is_away(evidence).reading.steps
    if not steps:
        return None
    rows = evidence.frame(
        "select step, ln(count(*)) as length, avg(logp_behavior::double) filter (isfinite(logp_behavior)) as logp "
        "from token group by step, seq_id"
    )
    every = np.array(sorted(rows["step"].unique()))
    beside = [*every[every < steps[0]][-_FEWEST_AROUND:], *every[every > steps[-1]][:_FEWEST_AROUND]]
    there, around = (rows[rows["step"].isin(which)][["length", "logp"]] for which in (steps, beside))
    moved = ((there.mean() - around.mean()).abs() / around.std().clip(lower=SAME)).max()
    return MarkReading(
        float(moved), f"responses of these steps are {number(float(moved))} deviations from those around"
    )


@mark(needs=(("sequences.reward",), ("sequences.n_turns",), GROUP), limit=4.0)
def part_of_every_turn(evidence: LogEvidence) -> MarkReading | None:
    """A part of the reward grows with the turns and makes the reward grow with them, while the rest of it falls.

    Inside of groups; standard errors of reward and rest, the smaller number.
    """
    names = reward_parts(evidence.run)
    of = [f"part_{at}" for at in range(len(names))]
    rows = parts_of_responses(evidence)
    rows = rows[rows["grouped"] & np.isfinite(rows[["reward", "n_turns", *of]].to_numpy(dtype=float)).all(axis=1)]
    group = rows.groupby(["step", "group_id"]).ngroup().to_numpy().astype(np.int64)
    if len(names) < 2 or evidence.spreads_groups or len(rows) < _MANY or group.max() + 1 < FEWEST_GROUPS:
        return None
    reward, parts = rows["reward"].to_numpy(dtype=float), rows[of].to_numpy(dtype=float)
    own = _own_weights(parts, reward)
    if own is None:
        return None
    turns = rows["n_turns"].to_numpy(dtype=float)
    found = MarkReading(0.0, "")
    for at, name in enumerate(names):
        part = own[at] * parts[:, at]
        each, together, _ = _by_turn(part, turns, group)
        # In proportion to the turns, and by nothing else.
        if not (together > _TOGETHER and abs(part.mean() - each * turns.mean()) < _PROPORTION * part.mean()):
            continue
        _, gain, z_reward = _by_turn(reward, turns, group)
        fewer, _, z_rest = _by_turn(reward - part, turns, group)
        if gain > _LEAST_GAIN and min(z_reward, -z_rest) > found.value:
            clause = f"{name} gives {number(each)} a turn, and the rest of the reward falls by {number(-fewer)} a turn"
            found = MarkReading(min(z_reward, -z_rest), clause, steps_with(rows.groupby("step").size()), (name,))
    return found


def _by_turn(
    values: NDArray[np.float64], turns: NDArray[np.float64], group: NDArray[np.int64]
) -> tuple[float, float, float]:
    """Slope, correlation and z (over groups) of some values with the number of turns, inside of groups."""
    size = np.bincount(group)
    x, y = (each - (np.bincount(group, each) / size)[group] for each in (turns, values))
    xx, yy = float((x * x).sum()), float((y * y).sum())
    if not min(xx, yy) > SAME:
        return 0.0, 0.0, 0.0
    slope = float((x * y).sum()) / xx
    error = float((np.bincount(group, x * (y - slope * x)) ** 2).sum()) ** 0.5 / xx
    return slope, slope * (xx / yy) ** 0.5, slope / max(error, SAME)


@mark(needs=(("sequences.n_tokens",),), limit=0.05)
def penalty_of_every_length(evidence: LogEvidence) -> MarkReading | None:
    """A part of the reward is below 0 for nearly all responses and a line in their length, which starts below 0.

    What a response of no token would lose, as a share of what the longest one does: of a cost for each token nothing.
    """
    names = sorted(name for name in evidence.log.columns[schema.SEQUENCES.name] if name.startswith(REWARD_PART))
    values = ", ".join(f"try_cast({quoted(name)} as double) as part_{at}" for at, name in enumerate(names))
    if not names:
        return MarkReading(0.0, "")
    rows = evidence.frame(
        f"select step, seq_id, n_tokens::double as length, {values} from sequence "
        "where n_tokens > 0 and failure is null order by step, seq_id"
    )
    if len(rows) < _MANY:
        return None
    best = MarkReading(0.0, "")
    for at, name in enumerate(names):
        of = rows[np.isfinite(rows[f"part_{at}"])].rename(columns={f"part_{at}": "lost"})
        found = _line_of_length(of)
        if found is None:
            continue
        slope, start = found
        of = of[of["lost"] < 0].sort_values(["length", "step", "seq_id"])
        first, last = of.iloc[0], of.iloc[-1]
        if (value := start / float(last["lost"])) > best.value:
            best = MarkReading(
                value,
                f"{name} is below 0 even for the shortest responses: {number(float(first['lost']))} at "
                f"{number(float(first['length']))} tokens, {number(float(last['lost']))} at "
                f"{number(float(last['length']))}; this line would reach 0 at {number(-start / slope)} tokens"
                f"{_configured(evidence)}",
                steps_with(of.groupby("step").size()), (name,), first_of(of),
            )  # fmt: skip
    return best


def _line_of_length(rows: pd.DataFrame) -> tuple[float, float] | None:
    """Slope, and value at no token, of what nearly all responses lose as a line of their length; None: it is none.

    Beyond some length the loss may be the largest one.
    """
    of = rows[rows["lost"] < 0]
    if len(of) < max(_MANY, _PUNISHED * len(rows)):
        return None
    length, lost = of["length"].to_numpy(dtype=float), of["lost"].to_numpy(dtype=float)
    apart = _BENT * float(np.ptp(lost))
    most = lost <= lost.min() + apart
    if not apart > 0 or len(np.unique(length[~most])) < _FEWEST_LENGTHS:
        return None
    mean = float(length[~most].mean())
    slope, middle = np.polyfit(length[~most] - mean, lost[~most], 1)
    line = middle + slope * (length - mean)
    bent = np.abs(line - lost)[~most].max() > apart or (line - lost)[most].max() > apart
    return None if bent or not slope < 0 else (float(slope), float(middle - slope * mean))


def _configured(evidence: LogEvidence) -> str:
    """The buffer and the limit that the manifest has, a clause of its own; "" where it has none."""
    manifest = evidence.run.manifest
    every = [each for part in (manifest.task, manifest.algorithm, manifest.sampler) for each in settings_in(part)]
    settings = [(path, known) for path, value in every if (known := as_finite(value)) is not None]
    stated = [
        f"{words} of {number(value)}"
        for words, pattern in (("a buffer", _BUFFER), ("a limit", _LIMIT))
        for value in [next((value for path, value in settings if pattern.search(path)), None)]
        if value is not None
    ]
    return f"; the manifest has {listed(stated)}" if stated else ""


def _stretches(rows: pd.DataFrame, column: str, name: str) -> list[tuple[float, tuple[int, ...], str, str]]:
    """Stretches of steps without anything earned, between others: the logarithm of the odds against chance (base 10),
    the steps, the column, and the clause.

    Chance is that of whole groups, as responses of a group earn alike, and of each environment by itself, as a part may
    be for one of them.
    """
    of = rows[["step", "seq_id", "group_id", "grouped", "environment"]].assign(earned=rows[column] != 0)
    of = of[np.isfinite(rows[column])]
    of["key"] = of["group_id"].where(of["grouped"], -1 - of["seq_id"])
    steps = of.groupby("step")["earned"].mean()
    silent = steps == 0
    if silent.mean() > _MOST_AWAY or not silent.any():
        return []
    usual = float(steps[~silent].median())
    found = []
    for _, run in steps[silent].groupby((~silent).cumsum()[silent]):
        before, after = steps[steps.index < run.index[0]], steps[steps.index > run.index[-1]]
        before, after = before.tail(_FEWEST_AROUND), after.head(_FEWEST_AROUND)
        if min(len(before), len(after)) < _FEWEST_AROUND:
            continue
        if min(before.iloc[-1], after.iloc[0]) < _AS_EVER * usual:
            continue
        groups = of.fillna({"environment": ""}).groupby(["environment", "step", "key"])["earned"].any().reset_index()
        here = groups[groups["step"].isin(run.index)]
        sides = [groups[groups["step"].isin(side.index)] for side in (before, after)]
        odds = 0.0
        for environment, n in here.groupby("environment").size().items():
            beside = [side[side["environment"] == environment]["earned"] for side in sides]
            # The larger share of groups that earn nothing, of both sides, with one such group more.
            nothing = max((float((~side).sum()) + 1) / (len(side) + 1) for side in beside)
            odds -= n * log10(nothing)
        n, span = int(of["step"].isin(run.index).sum()), _steps(run.index.tolist())
        share = float(pd.concat([before, after]).mean())
        clause = f"{name} is 0 in all {n:,} responses of {span}, and not in {percent(share)} of those around them"
        found.append((odds - log10(len(steps)), tuple(map(int, run.index)), name, clause))
    return found


def _steps(steps: Sequence[int]) -> str:
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
