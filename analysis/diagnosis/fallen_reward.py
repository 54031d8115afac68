"""Marks of a fall in what was rewarded: against evaluation, by length, prompts, parts, and by what updates can do."""

from collections.abc import Sequence
from math import log, nan, sqrt
from typing import NamedTuple

import numpy as np
import pandas as pd

from ratioscope.analysis.diagnosis.around import CLEAR, FEW_VALUES, around_fall, courses_of, fall_seen, noise_of_one
from ratioscope.analysis.diagnosis.bound import beyond_bound
from ratioscope.analysis.diagnosis.evidence import RunEvidence, step_of
from ratioscope.analysis.findings.change_points import FAMILY, find_shift
from ratioscope.analysis.findings.facts import UPDATE_METRIC
from ratioscope.analysis.findings.fall import Fall, evaluated, finite_values, noise_of_mean
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import level, number, percent
from ratioscope.analysis.findings.watched import finite_parts, reward_parts
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.catalogue import CATALOGUE
from ratioscope.run_format import schema

_FEWEST_PROMPTS = 8
_FIT = 0.99
"""R² of the reward on its parts from which they are its parts."""


MOST_LOST = 0.5
"""Of a fall: where the same prompts, or environments, lose less, it is one of what is asked."""
_FELL_TOO = 0.5
"""Of the share that evaluation lost."""


@mark(needs=(("sequences.reward",), ("steps.eval_accuracy",)), limit=3.0)
def reward_against_evaluation(evidence: RunEvidence) -> MarkReading | None:
    """The training reward rises, or stays, while evaluation accuracy falls.

    Standard errors between what the two did; the reward is that of old samplers, whose age is waited for.
    """
    fall = fall_seen(evidence)
    if fall is None or fall.metric != "eval_accuracy":
        return None
    lag = evidence.values["version_lag"].fillna(0.0)
    reward = finite_values(evidence.summary, "reward")
    # By the version that sampled it, the reward is one of that version's step.
    at = reward.index.to_numpy() - np.ceil(lag.reindex(reward.index).to_numpy())
    width = max(FEW_VALUES, int(fall.found - fall.best_step) // 2)
    before = reward[(at > fall.best_step - width) & (at <= fall.best_step + width)]
    after = reward[(at >= fall.found) & (at <= int(fall.low.index[-1]))]
    if len(before) < FEW_VALUES or len(after) < FEW_VALUES:
        return None
    noise = noise_of_one(reward, min(len(before), len(after)))
    error = noise * sqrt(1 / len(before) + 1 / len(after))
    moved, of_evaluation = float(after.mean() - before.mean()), fall.after - fall.best
    # Of few values the error is large: a reward that lost as much of itself as the evaluation did has not stayed.
    fell_too = before.mean() > 0 and moved / before.mean() < _FELL_TOO * of_evaluation / fall.best
    if not error > 0 or moved < -2 * error or fell_too:
        return MarkReading(0.0, "")
    apart = float(np.hypot(error, noise_of_mean(evidence.summary, fall.metric)))
    verb = "rose" if moved > 2 * error else "stayed"
    clause = f"the training reward {verb} ({number(float(before.mean()))} to {number(float(after.mean()))}) while "
    return MarkReading((moved - of_evaluation) / apart, f"{clause}evaluation fell", columns=("sequences.reward",))


@mark(needs=(("sequences.reward",), ("steps.eval_accuracy",)), limit=3.0)
def part_rises_as_another_falls(evidence: RunEvidence) -> MarkReading | None:
    """One part of the training reward rises and another one falls, while evaluation accuracy falls.

    Standard errors of the smaller one of both.
    """
    fall = fall_seen(evidence)
    if fall is None or evidence.run is None or fall.metric != "eval_accuracy":
        return None
    moved: dict[str, tuple[float, str]] = {}
    for name in reward_parts(evidence.run):
        series = courses_of(evidence)[name].series.dropna()
        before, after = series.loc[: fall.best_step + FEW_VALUES], series.loc[fall.found : int(fall.low.index[-1])]
        if len(before) < FEW_VALUES or len(after) < FEW_VALUES:
            return None
        noise = noise_of_one(series, min(len(before), len(after))) * sqrt(1 / len(before) + 1 / len(after))
        ends = f"from {number(float(before.mean()), digits=2)} to {number(float(after.mean()), digits=2)}"
        moved[name] = (float(after.mean() - before.mean()) / noise if noise > 0 else 0.0, ends)
    if len(moved) < 2:
        return None
    rising, falling = max(moved, key=lambda name: moved[name][0]), min(moved, key=lambda name: moved[name][0])
    clause = f"{rising} rose {moved[rising][1]}, {falling} fell {moved[falling][1]}"
    return MarkReading(min(moved[rising][0], -moved[falling][0]), clause, columns=(f"sequences.{rising}",))


@mark(needs=(("sequences.n_tokens", "position"),), limit=0.22)
def lengths_moved(evidence: RunEvidence) -> MarkReading | None:
    """Responses become longer or shorter by a quarter from the start to the fall, beyond their noise.

    The logarithm of the factor.
    """
    fall = fall_seen(evidence)
    lengths = finite_values(evidence.summary, "response_length")
    lengths = lengths[lengths.index <= fall.found] if fall else lengths
    few = max(FEW_VALUES, len(lengths) // 6)
    if fall is None or len(lengths) < 2 * few or not (lengths > 0).all():
        return None
    first, last = lengths.head(few), lengths.tail(few)
    clear = abs(last.mean() - first.mean()) > CLEAR * noise_of_one(lengths, few) * sqrt(2 / few)
    clause = f"response length went from {number(float(first.mean()))} to {number(float(last.mean()))} tokens"
    return MarkReading(abs(log(last.mean() / first.mean())) if clear else 0.0, clause)


@mark(needs=(("sequences.truncated", "sequences.finish_reason"),), limit=0.1)
def truncation_rose(evidence: RunEvidence) -> MarkReading | None:
    """More responses are cut off at the length limit than up to the best level; in shares of them."""
    around = around_fall(evidence, "truncated")
    if around is None:
        return None
    before = float(around.before.rolling(FEW_VALUES, min_periods=1).mean().max())
    reached = float(around.during.tail(FEW_VALUES).mean())
    clause = f"truncated responses rose from {percent(before)} to {percent(reached)} before the fall"
    return MarkReading(reached - before, clause, columns=("sequences.truncated",))


@mark(needs=(), limit=2.0)
def fell_beyond_the_bound(evidence: RunEvidence) -> MarkReading | None:
    """The level falls by several times what the updates between two values of it can do.

    By `diagnosis.bound`.
    """
    fall = fall_seen(evidence)
    if fall is None or evidence.values[UPDATE_METRIC].notna().sum() == 0:
        return None
    span = 1.0
    if fall.metric == "reward":
        rewards = evidence.equal_rewards
        if rewards is not None:
            span = float(rewards["highest"].max() - rewards["lowest"].min())
    drop = beyond_bound(evidence.summary, fall, span)
    if drop is None:
        return MarkReading(0.0, "")
    size, bound = (_amount(value, share=CATALOGUE[fall.metric].share) for value in (drop.size, drop.bound))
    clause = f"it fell by {size} from step {drop.first} to {drop.last}, and the updates between can do {bound} at most "
    return MarkReading(drop.times, f"{clause}on the batch's prompts", (drop.last,), ("logp_new",))


def _amount(value: float, *, share: bool) -> str:
    """A difference of two levels."""
    return f"{number(100 * value, digits=2)} points" if share else number(value, digits=2)


@mark(needs=(("sequences.reward",), ("sequences.environment", "sequences.prompt_id")), limit=0.5)
def prompts_differ(evidence: RunEvidence) -> MarkReading | None:
    """A fall of the training reward is one of its mixture: the same environments, or prompts, earn what they did.

    Share of the fall that goes with the mixture, at least.
    """
    fall = fall_seen(evidence)
    if fall is None or fall.metric != "reward" or evidence.run is None:
        return None
    key = "environment" if evidence.log.has("sequences.environment") else "prompt_id"
    mixture = _of_mixture(evidence, fall, key, 2 if key == "environment" else _FEWEST_PROMPTS)
    if mixture is None:
        return None
    share, before, after, moved, shares = mixture
    named = "environments" if key == "environment" else "prompts"
    clause = f"{moved} went from {shares[0]} to {shares[1]} of the responses; " if key == "environment" else ""
    clause += f"the same {named} earn {number(after)} after the fall, and {number(before)} before"
    return MarkReading(share, clause, columns=(f"sequences.{key}",))


@mark(needs=(("sequences.reward",), ("sequences.truncated", "sequences.finish_reason")), limit=0.5)
def more_are_cut_off(evidence: RunEvidence) -> MarkReading | None:
    """A fall of the training reward is one of truncated responses, of which there are more: others earn what they did.

    Share of the fall that goes with the truncated share, at least.
    """
    fall = fall_seen(evidence)
    if fall is None or fall.metric != "reward" or evidence.run is None:
        return None
    mixture = _of_mixture(evidence, fall, "coalesce(truncated, finish_reason = 'length')", 2)
    if mixture is None:
        return None
    share, _, _, _, shares = mixture
    clause = (
        f"truncated responses, which earn less, went from {shares[0]} to {shares[1]}; all others earn what they did"
    )
    return MarkReading(share, clause, columns=("sequences.truncated",))


def _of_mixture(
    evidence: RunEvidence, fall: Fall, key: str, fewest: int
) -> tuple[float, float, float, str, tuple[str, str]] | None:
    """How much of a fall of the reward goes with what the responses are.

    Args:
        key: what they are, of the sequences table.
        fewest: kinds that there must be before the fall and after it.

    Returns:
        The share of the fall, at least; what the same kinds earn before and after, by their shares afterwards; the kind
        whose share moved most, and from where to where. None: too little is known, or nothing was lost.
    """
    assert evidence.run is not None
    with relations(evidence.run, tables=(schema.SEQUENCES,)) as connection:
        frame = connection.execute(
            f"""
            select {key} as part, step >= $found as after, avg(reward) as reward, count(*) as n from sequence
            where isfinite(reward) and (step between $start and $best or step between $found and $last)
              and {key} is not null group by all
            """,
            {
                "found": fall.found, "start": fall.best_step - 2 * fall.window, "best": fall.still_good,
                "last": int(fall.low.index[-1]),
            },
        ).df()  # fmt: skip
    wide = frame.pivot(index="part", columns="after", values=["reward", "n"])
    if wide.shape[1] < 4:
        return None
    both = wide.dropna()
    if len(both) < fewest:
        return None
    n = wide["n"].fillna(0.0)
    whole = {after: float((wide["reward"][after] * n[after]).sum() / n[after].sum()) for after in (False, True)}
    weights = both["n"][True] / both["n"][True].sum()
    apart = both["reward"][False] - both["reward"][True]
    same = float((weights * apart).sum())
    error = float(np.sqrt((weights**2 * (apart - same) ** 2).sum() * len(both) / max(len(both) - 1, 1)))
    lost = whole[False] - whole[True]
    if not lost > (fall.best - fall.after) / 2:
        return None
    shares = n / n.sum()
    moved = (shares[True] - shares[False]).abs().idxmax()
    before, after = (float((weights * both["reward"][when]).sum()) for when in (False, True))
    told = percent(float(shares[False][moved])), percent(float(shares[True][moved]))
    return 1 - max(same + 2 * error, 0.0) / lost, before, after, str(moved), told


def _parts(evidence: RunEvidence) -> pd.DataFrame | None:
    """Of each part of the reward up to the fall: its share of Σ|A| and of the reward's variance; None: not known."""

    def look() -> pd.DataFrame | None:
        fall = fall_seen(evidence)
        if fall is None or evidence.run is None or not (names := reward_parts(evidence.run)):
            return None
        with relations(evidence.run, 0, fall.found) as connection:
            frame = connection.execute(
                f"""
                with size as (select step, seq_id, sum(abs(advantage)) as size from usable group by all)
                select step, group_id, size, reward::double as reward, {finite_parts(names)}
                from sequence join size using (step, seq_id)
                where isfinite(reward) and size is not null and dropped is null
                """
            ).df()
        frame = frame.dropna(subset=[*names])
        return _shares_of_parts(frame, names) if len(frame) > 10 * len(names) else None

    return evidence.once("reward parts", look)


def _shares_of_parts(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame | None:
    """A group's |A| is divided as the parts divide the variance of its rewards.

    The parts count with the weights with which they make up the reward, by least squares.
    """
    values = frame[[*names]].to_numpy(dtype=float)
    reward = frame["reward"].to_numpy(dtype=float)
    centred = values - values.mean(axis=0)
    weights, *_ = np.linalg.lstsq(centred, reward - reward.mean(), rcond=None)
    variance = float(reward.var())
    if not variance > 0 or (reward - reward.mean() - centred @ weights).var() > (1 - _FIT) * variance:
        return None
    weighted = pd.DataFrame(centred * weights, columns=[*names], index=frame.index)
    weighted["reward"] = weighted.sum(axis=1)
    by_group = weighted.groupby([frame["step"], frame["group_id"]])
    within = weighted - by_group.transform("mean")
    products = within[[*names]].mul(within["reward"], axis=0).assign(square=within["reward"] ** 2, size=frame["size"])
    sums = products.groupby([frame["step"], frame["group_id"]]).sum()
    sums = sums[sums["square"] > 1e-12 * variance]
    shares = sums[[*names]].div(sums["square"], axis=0).mul(sums["size"], axis=0).sum() / sums["size"].sum()
    of_variance = weighted[[*names]].mul(weighted["reward"], axis=0).mean() / variance
    return pd.DataFrame({"advantage": shares, "variance": of_variance, "weight": weights}, index=[*names])


@mark(needs=(("advantage",), ("sequences.reward",)), limit=0.5)
def part_carries_the_advantages(evidence: RunEvidence) -> MarkReading | None:
    """A part with little of the reward's variance carries most of the advantages; share of Σ|A|.

    Groups whose task reward is constant are trained on the rest of it, at full size where advantages are normalised.
    """
    parts = _parts(evidence)
    if parts is None:
        return None
    name, part = _dominating(parts)
    little = part["variance"] < part["advantage"] / 2
    clause = f"{name} carries {percent(part['advantage'])} of Σ|A| and {percent(max(part['variance'], 0.0))} of the "
    clause += "reward's variance"
    return MarkReading(float(part["advantage"]) if little else 0.0, clause, columns=(f"sequences.{name}",))


def _dominating(parts: pd.DataFrame) -> tuple[str, dict[str, float]]:
    """The part with the most of the advantages beyond its share of the variance."""
    name = str((parts["advantage"] - parts["variance"]).idxmax())
    return name, {str(key): float(value) for key, value in parts.loc[name].to_dict().items()}


@mark(needs=(("advantage",), ("sequences.reward",)), limit=CLEAR)
def that_part_rises(evidence: RunEvidence) -> MarkReading | None:
    """The part of the reward that carries most of the advantages rises while the level falls; in standard errors."""
    parts, fall = _parts(evidence), fall_seen(evidence)
    if parts is None or fall is None:
        return None
    name, part = _dominating(parts)
    series = courses_of(evidence)[name].series.dropna()
    series = series[series.index <= step_of(fall.low.idxmin())]
    few = max(FEW_VALUES, len(series) // 4)
    if len(series) < 3 * few:
        return None
    first, last = float(series.head(few).mean()), float(series.tail(few).mean())
    error = noise_of_one(series, few) * sqrt(2 / few)
    clause = f"{name} rose from {number(first, digits=2)} to {number(last, digits=2)}"
    return MarkReading(float((last - first) * np.sign(part["weight"]) / error) if error > 0 else nan, clause)


def accuracy_held(evidence: RunEvidence, step: int) -> str:
    """From where to where evaluation accuracy went around a step; "": it fell beyond its noise, or is not known."""
    accuracy, over = evaluated(evidence.summary)
    before, after = accuracy[accuracy.index < step], accuracy[accuracy.index >= step]
    if min(len(before), len(after)) < FEW_VALUES:
        return ""
    before, after = before.tail(2 * FEW_VALUES), after.head(2 * FEW_VALUES)
    noise = noise_of_mean(evidence.summary, "eval_accuracy", over) * sqrt(1 / len(before) + 1 / len(after))
    if float(after.mean()) < float(before.mean()) - noise:
        return ""
    return " to ".join(level(float(each.mean()), share=True) for each in (before, after))


class LostByTheSame(NamedTuple):
    """What the same prompts, or else environments, lose."""

    lost: float
    n: int
    of_prompts: bool


def lost_by_the_same(run: Run, step: int) -> LostByTheSame | None:
    """What those that come before a step and after it lose; None: neither is logged, or too few come in both."""
    with relations(run, tables=(schema.SEQUENCES,)) as connection:
        rows = connection.execute(
            "select prompt_id, environment, step >= $step as late, reward::double as reward from sequence "
            "where isfinite(reward) and dropped is null",
            {"step": step},
        ).df()
    for key, fewest in (("prompt_id", _FEWEST_PROMPTS), ("environment", 2)):
        both = rows.dropna(subset=[key]).groupby([key, "late"])["reward"].mean().unstack("late").dropna()
        if both.shape[1] == 2 and len(both) >= fewest:
            counts = rows[rows["late"]].groupby(key).size().reindex(both.index)
            lost = (both[False] - both[True]) * counts / counts.sum()
            return LostByTheSame(float(lost.sum()), len(both), key == "prompt_id")
    return None


@mark(needs=(("sequences.reward",), ("steps.eval_accuracy",), ("sequences.prompt_id",)), limit=MOST_LOST)
def same_prompts_lose(evidence: RunEvidence) -> MarkReading | None:
    """Of a training reward that fell in one step, for good, the share that is lost by prompts which come before and
    after it, while evaluation accuracy does not fall."""
    fall = fall_seen(evidence)
    if fall is None or fall.metric != "reward" or evidence.run is None:
        return None
    shift = find_shift(finite_values(evidence.summary, "reward"), -1)
    if shift is None or shift.p > FAMILY or shift.first != shift.last:
        return MarkReading(0.0, "")
    held, asked = accuracy_held(evidence, shift.last), lost_by_the_same(evidence.run, shift.last)
    if asked is None or not asked.of_prompts or not held:
        return None
    clause = (
        f"{asked.n} prompts that come before and after step {shift.last} earn {number(asked.lost, digits=2)} less "
        f"since, while evaluation accuracy went from {held}"
    )
    return MarkReading(asked.lost / (shift.before - shift.after), clause, columns=("sequences.reward",))
