"""Why a run fell: the marks of a fall, and the causes that they speak for.

fall = fall_seen(evidence)           # None: nothing fell; all of these marks then have too little data
rivals(Family.FALL, evidence)        # the causes that stand, the likeliest first

A mark is present where something has changed between the best level and the fall: what was so while the run was at its
best is no cause of its fall (`suspects_all_along`). The fall's steps are those after the best level up to where it was
found, and a clause quotes no later one: what came after the fall is no cause of it.
"""

from collections.abc import Sequence
from math import inf, log, nan, sqrt

import numpy as np
import pandas as pd

from ratioscope.analysis.diagnosis.bound import beyond_bound
from ratioscope.analysis.diagnosis.evidence import RunEvidence, step_of
from ratioscope.analysis.findings.cause import Family, Suspect, cause, suspects
from ratioscope.analysis.findings.drop import as_fall, drop_of
from ratioscope.analysis.findings.facts import STALENESS, UPDATE_METRIC
from ratioscope.analysis.findings.fall import (
    Fall,
    fall_of,
    finite_values,
    level_of,
    noise_of_mean,
    own_noise,
    setback_of,
)
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import level, number, percent
from ratioscope.analysis.findings.watched import WatchedCourse, reward_parts, watched
from ratioscope.analysis.runs.relations import relations
from ratioscope.catalogue import CATALOGUE
from ratioscope.metric import SAMPLED
from ratioscope.run_format import schema

_FEW = 3
"""Values whose median is a level before or at the fall."""
_MORE = 1.5
"""Times what it was up to the best level: less is no change."""
_STRAYED = 0.8
"""Ratio below which a good token has strayed: the lower bound of the usual clip."""
_FEWEST_STRAYED = 20
_SMALLEST = 1e-3
"""A smallest ratio above it is usual on old data."""
_FEWEST_PROMPTS = 8
_CLEAR = 4.0
"""Standard errors between the means of the first and the last values."""
_FIT = 0.99
"""R² of the reward on its parts from which they are its parts."""
_RATIO: tuple[tuple[str, ...], ...] = (("logp_current",), SAMPLED)


def fall_seen(evidence: RunEvidence) -> Fall | None:
    """The fall that lasts, else the one that lasted for a time, else the drop that the run ends in."""

    def look() -> Fall | None:
        summary, limits = evidence.summary, evidence.limits
        if fall := fall_of(summary, limits) or setback_of(summary, limits):
            return fall
        drop = drop_of(summary, limits)
        return as_fall(summary, drop) if drop is not None and drop.is_low else None

    return evidence.once("fall", look)


def courses_of(evidence: RunEvidence) -> dict[str, WatchedCourse]:
    """What is watched of this run; tokens are read once, and only where something fell."""
    return evidence.once("watched", lambda: watched(evidence.summary, evidence.run if fall_seen(evidence) else None))


def _well(evidence: RunEvidence, fall: Fall) -> "pd.Index[int]":
    """The steps in which the run was well: up to the best level, and between values at that level up to noise."""

    def look() -> "pd.Index[int]":
        steps = evidence.values.index
        level = level_of(evidence.summary, fall.metric, fall.window)
        good = (level >= fall.best - sqrt(2) * fall.noise).astype(float)
        both = good.reindex(steps).ffill().eq(1) & good.reindex(steps).bfill().eq(1)
        return steps[(steps <= fall.best_step) | (both & (steps <= fall.still_good))]

    return evidence.once("well", look)


class _Around:
    """A series while the run was well, and from there to where the fall was found."""

    def __init__(self, series: "pd.Series[float]", fall: Fall, well: "pd.Index[int]") -> None:
        known = series.replace([inf, -inf], nan).dropna()
        self.before: pd.Series[float] = known[known.index.isin(well)]
        after = known[(known.index > fall.best_step) & ~known.index.isin(well)]
        self.during: pd.Series[float] = after[after.index <= fall.found]

    @property
    def known(self) -> bool:
        return len(self.before) > 0 and len(self.during) > 0


def _around(evidence: RunEvidence, key: str) -> _Around | None:
    """The series of a metric around the fall; None where nothing fell, or where it is not known on both sides."""
    fall, course = fall_seen(evidence), courses_of(evidence).get(key)
    if fall is None or course is None:
        return None
    found = _Around(course.series, fall, _well(evidence, fall))
    return found if found.known else None


def _begun(evidence: RunEvidence, steps: Sequence[int]) -> list[int]:
    """Those of some steps that lie between the best level and the fall; none where the run was well in one of them."""
    fall = fall_seen(evidence)
    if fall is None or {*steps} & {*_well(evidence, fall)}:
        return []
    return [step for step in steps if fall.best_step < step <= fall.found]


def _noise(series: "pd.Series[float]", few: int) -> float:
    """Standard deviation of one value: by successive differences, and about the means of the first and last values."""
    around = sqrt(float(series.head(few).var() + series.tail(few).var()) / 2)
    return max(around, float(np.nan_to_num(own_noise(series))))


def _rise(evidence: RunEvidence, key: str, clause: str) -> MarkReading | None:
    """How often its largest value before the fall is that up to the best level.

    Args:
        clause: takes the two values and the step.
    """
    around = _around(evidence, key)
    if around is None:
        return None
    before, during = float(around.before.max()), float(around.during.max())
    share = courses_of(evidence)[key].share
    ratio = during / before if before > 0 else (inf if during > 0 else 1.0)
    steps = tuple(int(step) for step in around.during.index[around.during > before])
    told = clause.format(level(before, share=share), level(during, share=share), step_of(around.during.idxmax()))
    return MarkReading(ratio, told, steps)


@mark(needs=(), limit=log(100.0))
def smallest_ratio_fell(evidence: RunEvidence) -> MarkReading | None:
    """The smallest ratio falls, after the best level, to a hundredth of what it was before and to less than 1e-3.

    In nats below the smallest one up to the best level.
    """
    around = _around(evidence, "ratio_min")
    if around is None or not (around.before.min() > 0 and around.during.min() > 0):
        return None
    lost = log(around.before.min() / around.during.min()) if around.during.min() < _SMALLEST else 0.0
    before, low = (number(float(part.min()), digits=2) for part in (around.before, around.during))
    clause = f"smallest ratio {before} → {low} by step {step_of(around.during.idxmin())}"
    steps = tuple(int(step) for step in around.during.index[around.during < around.before.min()])
    return MarkReading(lost, clause, steps, ("logp_current",))


@mark(needs=(*_RATIO, ("advantage",)), limit=0.05)
def good_tokens_lost(evidence: RunEvidence) -> MarkReading | None:
    """Tokens with a positive advantage lose a factor e of their probability, more of them than before.

    Share of all tokens of a step.
    """
    around = _around(evidence, "good_lost")
    if around is None:
        return None
    more = around.during.max() > _MORE * around.before.max()
    share, step = percent(float(around.during.max())), step_of(around.during.idxmax())
    clause = f"{share} of tokens had a positive advantage and a ratio below 1/e by step {step}"
    return MarkReading(float(around.during.max()) if more else 0.0, clause, columns=("logp_current",))


@mark(needs=(), limit=0.5)
def loss_without_bound(evidence: RunEvidence) -> MarkReading | None:
    """The loss neither clips tokens nor weights them by their ratio.

    1 where the manifest says so, 0 where it names another loss.
    """
    setup = evidence.setup
    if setup.stops is None or setup.weighted is None:
        return None
    return MarkReading(float(bool(setup.unbounded)), setup.unbounded)


@mark(needs=(), limit=0.5)
def data_are_old(evidence: RunEvidence) -> MarkReading | None:
    """The data before the fall are older than the policy; in updates."""
    around = _around(evidence, "version_lag")
    if around is None:
        return None
    return MarkReading(float(around.during.max()), f"its data are up to {around.during.max():.0f} updates old")


@mark(needs=(), limit=1.0)
def staleness_passed_its_limit(evidence: RunEvidence) -> MarkReading | None:
    """Staleness is above its limit, beyond its noise, for the first time between the best level and the fall."""
    fall = fall_seen(evidence)
    drift = evidence.facts.staleness
    if fall is None or not drift.n_known:
        return None
    if not (over := _begun(evidence, drift.over)):
        return MarkReading(0.0, "")
    size = float(evidence.values[drift.key].loc[over].max())
    clause = f"staleness was above its limit of {drift.limit:g} for the first time in step {over[0]}"
    return MarkReading(size / drift.limit, clause, tuple(over))


@mark(needs=(), limit=1.0)
def update_passed_its_limit(evidence: RunEvidence) -> MarkReading | None:
    """The update drift is above its limit, beyond its noise, for the first time between the best level and the fall."""
    fall = fall_seen(evidence)
    drift = evidence.facts.update
    if fall is None or not drift.n_known:
        return None
    if not (over := _begun(evidence, drift.over)):
        return MarkReading(0.0, "")
    worst = step_of(evidence.values[drift.key].loc[over].idxmax())
    size = float(evidence.values[drift.key].loc[worst])
    clause = f"the update of step {worst} moved the policy by {number(size, digits=2)} (limit {drift.limit:g})"
    return MarkReading(size / drift.limit, clause, tuple(over))


@mark(needs=(), limit=3.0)
def kl_rose(evidence: RunEvidence) -> MarkReading | None:
    """KL from the sampler grows to three times what it was up to the best level."""
    return _rise(evidence, "kl_k3", "KL from the sampler rose from {} to {} by step {}")


@mark(needs=(), limit=3.0)
def grad_norm_rose(evidence: RunEvidence) -> MarkReading | None:
    """The gradient norm grows to three times what it was up to the best level."""
    return _rise(evidence, "grad_norm", "the gradient norm rose from {} to {} by step {}")


@mark(needs=(*_RATIO, ("advantage",)), limit=10.0)
def advantage_grew_giant(evidence: RunEvidence) -> MarkReading | None:
    """The largest advantage grows to ten times what it was up to the best level."""
    return _rise(evidence, "largest_advantage", "the largest |A| rose from {} to {} in step {}")


@mark(needs=(), limit=_MORE)
def learning_rate_jumped(evidence: RunEvidence) -> MarkReading | None:
    """The learning rate rises by half or more in one step, beyond what it was at the best level.

    A warm-up rises in smaller steps, and a schedule that begins again comes back to where it was; as a factor.
    """
    around, fall = _around(evidence, "learning_rate"), fall_seen(evidence)
    if around is None or fall is None or len(around.before) < _FEW or not around.before.max() > 0:
        return None
    rate = courses_of(evidence)["learning_rate"].series.dropna()
    earlier = rate.shift()
    # A step's update comes after its evaluation: that of the last good one may be the first that is too large.
    until = rate.loc[fall.still_good : fall.found]
    jumps = (rate / earlier).where(rate > earlier.reindex(until.index[:1]).max(), 1.0).reindex(until.index).fillna(1.0)
    step = step_of(jumps.idxmax())
    clause = f"the learning rate rose from {number(float(earlier.loc[step]))} to {number(float(rate.loc[step]))} in "
    return MarkReading(float(jumps.max()), f"{clause}step {step}", (step,), ("steps.learning_rate",))


@mark(needs=(), limit=2.0)
def mismatch_grew(evidence: RunEvidence) -> MarkReading | None:
    """The engine mismatch grows to twice what it was up to the best level, and beyond its limit.

    As a factor; 0 below the limit.
    """
    reading = _rise(evidence, "s_k_engine_bounded", "the engine mismatch rose from {} to {} by step {}")
    around = _around(evidence, "s_k_engine_bounded")
    if reading is None or around is None or around.during.max() > evidence.limits.engine:
        return reading
    return MarkReading(0.0, "")


def _entropies(evidence: RunEvidence) -> tuple[float, float, float, float] | None:
    """Entropy at the start, at the best level, the largest one until then, and where the fall was found.

    None: not known at one of them.

    The level holds for a while with another entropy: what counts is how it was when the level was at its best.
    """
    fall, course = fall_seen(evidence), courses_of(evidence).get("entropy")
    if fall is None or course is None:
        return None
    entropy = course.series.replace([inf, -inf], nan).dropna()
    best, later = entropy[entropy.index <= fall.best_step], entropy[entropy.index > fall.best_step]
    later = later[later.index <= fall.found]
    if len(best) < _FEW or len(later) < _FEW:
        return None
    at_start, at_best, found = (float(each.median()) for each in (best.head(10), best.tail(_FEW), later.tail(_FEW)))
    return at_start, at_best, float(best.max()), found


@mark(needs=(), limit=_MORE)
def entropy_rose(evidence: RunEvidence) -> MarkReading | None:
    """Entropy rises, after the best level and before the fall, by half or more of all that it was; as a factor."""
    if (around := _entropies(evidence)) is None:
        return None
    _, before, largest, during = around
    clause = f"entropy rose from {number(before, digits=2)} to {number(during, digits=2)} nats before the fall"
    return MarkReading(during / largest if largest > 0 else nan, clause)


@mark(needs=(), limit=1.0)
def entropy_is_gone(evidence: RunEvidence) -> MarkReading | None:
    """Entropy falls, after the best level, below the share of its start at which it counts as collapsed.

    The limit over the entropy.
    """
    if (around := _entropies(evidence)) is None:
        return None
    start, before, _, during = around
    limit = evidence.limits.entropy_share * start
    gone = before >= limit > during
    clause = f"entropy fell from {number(start, digits=2)} to {number(during, digits=2)} nats before the fall"
    return MarkReading(limit / during if gone and during > 0 else (inf if gone else 0.0), clause)


@mark(needs=(), limit=1.0)
def far_from_reference(evidence: RunEvidence) -> MarkReading | None:
    """KL to the reference, or to the initial policy, grows after the best level beyond one nat per token."""
    for key in ("kl_to_reference", "kl_to_initial"):
        around = _around(evidence, key)
        if around is None:
            continue
        reached = float(around.during.tail(_FEW).median())
        grew = reached > _MORE * float(around.before.tail(_FEW).median())
        last = float(around.during.iloc[-1])
        clause = f"{CATALOGUE[key].label} grew from {number(float(around.before.iloc[-1]), digits=2)} nats (step "
        clause += f"{int(around.before.index[-1])}) to {number(last, digits=2)} (step {int(around.during.index[-1])})"
        return MarkReading(reached if grew else 0.0, clause)
    return None


@mark(needs=_RATIO, limit=2.0)
def ratios_stay_small(evidence: RunEvidence) -> MarkReading | None:
    """Up to the fall staleness stays below half of its limit, and no ratio falls below 1e-3.

    The limit over the largest staleness; 0 where some ratio is smaller.
    """
    fall = fall_seen(evidence)
    drift = evidence.facts.staleness
    if fall is None:
        return None
    staleness = evidence.values[drift.key].loc[: fall.found].dropna()
    smallest = evidence.values["ratio_min"].loc[: fall.found].dropna()
    if not len(staleness) or not len(smallest):
        return None
    largest = float(staleness.max())
    inverse = drift.limit / largest if largest > 0 else inf
    clause = f"staleness is {number(largest, digits=2)} at most"
    return MarkReading(inverse if smallest.min() >= _SMALLEST else 0.0, clause)


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
    width = max(_FEW, int(fall.found - fall.best_step) // 2)
    before = reward[(at > fall.best_step - width) & (at <= fall.best_step + width)]
    after = reward[(at >= fall.found) & (at <= int(fall.low.index[-1]))]
    if len(before) < _FEW or len(after) < _FEW:
        return None
    noise = _noise(reward, min(len(before), len(after)))
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


@mark(needs=(("sequences.n_tokens", "position"),), limit=0.22)
def lengths_moved(evidence: RunEvidence) -> MarkReading | None:
    """Responses become longer or shorter by a quarter from the start to the fall, beyond their noise.

    The logarithm of the factor.
    """
    fall = fall_seen(evidence)
    lengths = finite_values(evidence.summary, "response_length")
    lengths = lengths[lengths.index <= fall.found] if fall else lengths
    few = max(_FEW, len(lengths) // 6)
    if fall is None or len(lengths) < 3 * few or not (lengths > 0).all():
        return None
    first, last = lengths.head(few), lengths.tail(few)
    clear = abs(last.mean() - first.mean()) > _CLEAR * _noise(lengths, few) * sqrt(2 / few)
    clause = f"response length went from {number(float(first.mean()))} to {number(float(last.mean()))} tokens"
    return MarkReading(abs(log(last.mean() / first.mean())) if clear else 0.0, clause)


@mark(needs=(("sequences.truncated", "sequences.finish_reason"),), limit=0.1)
def truncation_rose(evidence: RunEvidence) -> MarkReading | None:
    """More responses are cut off at the length limit than up to the best level; in shares of them."""
    around = _around(evidence, "truncated")
    if around is None:
        return None
    before = float(around.before.rolling(_FEW, min_periods=1).mean().max())
    reached = float(around.during.tail(_FEW).mean())
    clause = f"truncated responses rose from {percent(before)} to {percent(reached)} before the fall"
    return MarkReading(reached - before, clause, columns=("sequences.truncated",))


@mark(needs=(), limit=0.5)
def not_finite(evidence: RunEvidence) -> MarkReading | None:
    """Loss or gradient norm are infinite, or log-probs NaN, in a step after the best level and in none before.

    In steps between the best level and the fall.
    """
    fall = fall_seen(evidence)
    if fall is None:
        return None
    table, tokens = evidence.summary.steps, evidence.values["n_invalid_nan"]
    bad = {"log-probs are NaN": tokens.index[tokens > 0]}
    for name in ("loss", "grad_norm"):
        if name in table:
            bad[f"{name} is infinite"] = table.index[np.isinf(table[name].astype(float))]
    begun = {said: found for said, steps in bad.items() if (found := _begun(evidence, [int(step) for step in steps]))}
    if not begun:
        return MarkReading(0.0, "")
    said, found = min(begun.items(), key=lambda one: one[1][0])
    return MarkReading(float(len(found)), f"{said} in step {found[0]}", tuple(found))


@mark(needs=(), limit=2.0)
def fell_beyond_the_bound(evidence: RunEvidence) -> MarkReading | None:
    """The level falls by several times what the updates between two values of it can do (`diagnosis.bound`)."""
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


@mark(needs=(*_RATIO, ("advantage",), ("clipped", "clip_side")), limit=0.9)
def strayed_tokens_stopped(evidence: RunEvidence) -> MarkReading | None:
    """Good tokens (A > 0) with a ratio below 0.8, whose gradient would bring them back, are clipped; share of them."""
    fall = fall_seen(evidence)
    if fall is None or evidence.run is None:
        return None
    with relations(evidence.run, 0, fall.found, tables=(schema.TOKENS,)) as connection:
        n, stopped = connection.execute(
            "select count(*), avg(clipped::int) from usable where advantage > 0 and log_rho < ln($least) "
            "and clipped is not null",
            {"least": _STRAYED},
        ).fetchone() or (0, None)
    if n < _FEWEST_STRAYED or stopped is None:
        return None
    clause = f"{percent(stopped)} of the good tokens below ρ = {_STRAYED:g} are clipped, so nothing brings them back"
    return MarkReading(float(stopped), clause, columns=("clipped",))


def _parts(evidence: RunEvidence) -> pd.DataFrame | None:
    """Of each part of the reward up to the fall: its share of Σ|A| and of the reward's variance; None: not known."""

    def look() -> pd.DataFrame | None:
        fall = fall_seen(evidence)
        if fall is None or evidence.run is None or not (names := reward_parts(evidence.run)):
            return None
        listed = ", ".join(f'"{name}"' for name in names)
        with relations(evidence.run, 0, fall.found) as connection:
            frame = connection.execute(
                f"""
                with size as (select step, seq_id, sum(abs(advantage)) as size from usable group by all)
                select step, group_id, size, reward::double as reward, {listed}
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


@mark(needs=(("advantage",), ("sequences.reward",)), limit=_CLEAR)
def that_part_rises(evidence: RunEvidence) -> MarkReading | None:
    """The part of the reward that carries most of the advantages rises while the level falls; in standard errors."""
    parts, fall = _parts(evidence), fall_seen(evidence)
    if parts is None or fall is None:
        return None
    name, part = _dominating(parts)
    series = courses_of(evidence)[name].series.dropna()
    series = series[series.index <= step_of(fall.low.idxmin())]
    few = max(_FEW, len(series) // 4)
    if len(series) < 3 * few:
        return None
    first, last = float(series.head(few).mean()), float(series.tail(few).mean())
    error = _noise(series, few) * sqrt(2 / few)
    clause = f"{name} rose from {number(first, digits=2)} to {number(last, digits=2)}"
    return MarkReading(float((last - first) * np.sign(part["weight"]) / error) if error > 0 else nan, clause)


def suspects_all_along(evidence: RunEvidence) -> list[Suspect]:
    """Causes whose marks hold for the whole run, where nothing has changed before the fall: suspects, no more."""
    known = suspects(Family.FALL, evidence)
    held = {
        "mask_stops_return": (strayed_tokens_stopped,),
        "old_data_without_bound": (loss_without_bound, data_are_old),
        "reward_part_dominates": (part_carries_the_advantages,),
    }
    return [
        each
        for each in known
        if each.cause.name in held and all(sign.present for sign in each.of(held[each.cause.name]))
    ]


METRIC_OF = {
    smallest_ratio_fell.name: "ratio_min", good_tokens_lost.name: "ratio_min",
    staleness_passed_its_limit.name: STALENESS,
    update_passed_its_limit.name: UPDATE_METRIC, mismatch_grew.name: "s_k_engine_bounded",
    entropy_is_gone.name: "entropy", far_from_reference.name: "kl_to_initial", truncation_rose.name: "response_length",
    part_carries_the_advantages.name: "reward", fell_beyond_the_bound.name: UPDATE_METRIC,
}  # fmt: skip
"""The metric that shows a mark; of others none does."""

cause(
    "scorer_or_prompts_changed", Family.FALL, "The scorer, the prompts or the evaluation changed, not the policy",
    requires=(fell_beyond_the_bound,), supports={reward_against_evaluation: 1.0},
    do="Score an earlier checkpoint again with the scorer, prompts and sampling that ran after the fall.",
    source="docs/metrics.md, identities",
)  # fmt: skip
cause(
    "not_finite", Family.FALL, "A loss or gradient that is not finite went into the weights",
    requires=(not_finite,), do="Skip updates whose gradient norm is not finite, and clip the gradient norm.",
)  # fmt: skip
cause(
    "old_data_without_bound", Family.FALL, "A loss without a clip learns from old data",
    requires=(smallest_ratio_fell, data_are_old, loss_without_bound),
    supports={good_tokens_lost: 1.0, kl_rose: 0.5, staleness_passed_its_limit: 0.5},
    refutes=(fell_beyond_the_bound,), do="Take a loss with a clip, or sample from newer weights.",
    source="S3 figures 3 and 9",
)  # fmt: skip
cause(
    "mask_stops_return", Family.FALL, "The mask stops tokens that would come back",
    requires=(good_tokens_lost, strayed_tokens_stopped), supports={smallest_ratio_fell: 1.0, kl_rose: 0.5},
    refutes=(fell_beyond_the_bound,),
    do="Clip a token only in the direction of its advantage (one_side), or with a ring.", source="S3 B.3, figure 9",
)  # fmt: skip
cause(
    "data_too_old", Family.FALL, "The data became too old for the loss",
    requires=(staleness_passed_its_limit, data_are_old), supports={smallest_ratio_fell: 1.0, kl_rose: 0.5},
    refutes=(fell_beyond_the_bound, loss_without_bound, mismatch_grew), do="Sample from newer weights.",
    source="S0 5.6",
)  # fmt: skip
cause(
    "update_too_large", Family.FALL, "An update was too large",
    requires=(update_passed_its_limit,), supports={grad_norm_rose: 1.0, advantage_grew_giant: 1.0},
    refutes=(fell_beyond_the_bound,), do="Lower the learning rate, or clip the gradient norm.", source="S0 5.2",
)  # fmt: skip
cause(
    "learning_rate_step", Family.FALL, "The learning rate jumped",
    requires=(learning_rate_jumped,), supports={update_passed_its_limit: 1.0, grad_norm_rose: 0.5},
    refutes=(fell_beyond_the_bound,), do="Set the learning rate back to what it was at the best level.",
)  # fmt: skip
cause(
    "mismatch_grows", Family.FALL, "Sampler and trainer drift apart",
    requires=(mismatch_grew,), refutes=(fell_beyond_the_bound,),
    do="Align the sampler with the trainer: the Engine page says in which tokens they differ.",
)  # fmt: skip
cause(
    "entropy_gone", Family.FALL, "The policy explores too little",
    requires=(entropy_is_gone,), refutes=(fell_beyond_the_bound,),
    do="Add an entropy bonus or a KL penalty, or raise the temperature.", source="S4 5.4.2",
)  # fmt: skip
cause(
    "over_optimisation", Family.FALL, "The policy went far from the reference while its ratios stayed small",
    requires=(far_from_reference, ratios_stay_small), supports={reward_against_evaluation: 1.0, lengths_moved: 0.5},
    refutes=(fell_beyond_the_bound, mismatch_grew),
    do="Read responses for what the reward pays for (over-optimisation), and raise the KL penalty.",
    reports=("LightRFT #53",),
)  # fmt: skip
cause(
    "reward_hacked", Family.FALL,
    "Over-optimisation: the policy learns what the training reward pays for and evaluation does not measure",
    requires=(reward_against_evaluation,), supports={lengths_moved: 0.5},
    refutes=(fell_beyond_the_bound, mismatch_grew, far_from_reference),
    do="Read responses with a high reward, score them as the evaluation does, and raise the KL penalty.",
    reports=("LightRFT #53",),
)  # fmt: skip
cause(
    "reward_part_dominates", Family.FALL, "A part of the reward is learned in place of the task",
    requires=(part_carries_the_advantages, that_part_rises), supports={lengths_moved: 0.5},
    refutes=(fell_beyond_the_bound,),
    do="Leave groups without a difference in the task reward out, or normalise the task reward apart from the others.",
    reports=("NeMo-RL #2431", "verl-recipe #125", "OpenRLHF #1270"),
)  # fmt: skip
cause(
    "entropy_rises", Family.FALL, "The policy becomes random",
    requires=(entropy_rose,), supports={lengths_moved: 0.5}, refutes=(fell_beyond_the_bound,),
    do="Lower the weight of the entropy bonus and look at its sign, or lower the learning rate.",
    reports=("TRL #199", "verl #1770"),
)  # fmt: skip
cause(
    "truncated_earn_less", Family.FALL, "More responses are cut off, and those earn less",
    requires=(more_are_cut_off,), supports={lengths_moved: 0.5, truncation_rose: 0.5},
    do="Raise the length limit, or leave truncated responses out of the loss.", reports=("UniRL #19",),
)  # fmt: skip
cause(
    "truncation", Family.FALL, "Responses run into the length limit",
    requires=(truncation_rose,), supports={lengths_moved: 0.5},
    refutes=(fell_beyond_the_bound, entropy_rose, more_are_cut_off),
    do="Raise the length limit, or leave truncated responses out of the loss.",
)  # fmt: skip
cause(
    "prompts_changed", Family.FALL, "The mixture of prompts changed",
    requires=(prompts_differ,), do="Compare the reward of the same prompts, or evaluate on a fixed set.",
)  # fmt: skip
