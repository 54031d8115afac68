"""Which column is which policy: what must be near to what decides whether two columns were exchanged, or whether the
sampler's record was computed anew by the trainer.

On data of the policy's own version the trainer's recomputation of the sampler's weights is the current policy; on data
of any age it is the sampler's but for the engine; and the new policy is one update away from the current one. An
exchange of two columns is claimed where it makes all of that hold, and nothing else does.
"""

from itertools import combinations

import numpy as np

from ratioscope.analysis.findings.finding import Finding, Severity, estimated, not_checked, passed
from ratioscope.analysis.findings.numbers import number
from ratioscope.analysis.linter.alignment import shifted
from ratioscope.analysis.linter.check import AGE, ANY, RATIO, check
from ratioscope.analysis.linter.copies import copied_columns, moved_since
from ratioscope.analysis.linter.distances import FEWEST_ROWS, FLOOR, Distances, distances_of
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.own_token import own_token
from ratioscope.analysis.linter.sample import COLUMNS
from ratioscope.analysis.linter.stand_ins import constant_columns
from ratioscope.analysis.linter.units import scale
from ratioscope.analysis.linter.versions import versions
from ratioscope.analysis.linter.zeros import zero_filled

# By how much an exchange must bring the columns nearer to where they belong, all together: a factor.
LEAST_FACTOR = 3.0
# Standard errors by which one exchange must fit what was drawn and clipped better than another.
LEAST_MISFIT, FEWEST_CLIPPED = 3.0, 20
# The record is the trainer's where it is nearer to logp_current than this share of what the updates since moved.
LARGEST_SHARE = 0.2
# And no further from it than on fresh tokens, but for noise; where there are none, it must be nearer by far: the tokens
# that an update was fitted to move several times as much as others.
_AS_FRESH, _SHARE_UNSEEN = 1.5, 0.02

_B, _T, _C, _N = COLUMNS[:4]
_TOO_COARSE = "The source keeps too few decimals of a log-probability for the distances between columns."


@check(order=200, needs=(*AGE, *ANY), page="drift", compares=True)
def swapped(evidence: LogEvidence) -> list[Finding]:
    """Two log-probability columns that fit each other's name better than their own."""
    if evidence.rounding > FLOOR:
        return not_checked(_TOO_COARSE)
    found = distances_of(evidence)
    logged = [column for column in COLUMNS if evidence.sample.logged(column)]
    right = dict(zip(COLUMNS, COLUMNS, strict=True))
    before = found.cost(right)
    if not np.isfinite(before) or len(logged) < 3:
        return not_checked("Too few columns are logged: it takes logp_new or logp_behavior_train to tell two apart.")
    other = evidence.problems(
        versions, zero_filled, constant_columns, shifted, own_token, scale, copied_columns, recomputed
    )
    if other:
        return not_checked(f"Columns are wrong in another way: {', '.join(other)}.")
    old = evidence.sample.column("version_lag") > 0
    if old.any() and not moved_since(evidence)[old].any():
        return not_checked("No update since the tokens were sampled moved the policy: columns may well be equal.")
    if found.every.get((_B, COLUMNS[4]), 1.0) < 10 * FLOOR:
        return not_checked("logp_behavior is the reference's: the sampler is still the initial policy.")
    costs = {
        (one, two): found.cost(right | {one: two, two: one})
        for one, two in combinations(logged, 2)
        if two != COLUMNS[4] or not _starts_at_reference(evidence, one)
    }  # fmt: skip
    best = min(costs.values())
    # The chain sampler, recomputation, current, new reads the same from its end: what was drawn and clipped decides.
    tied = [pair for pair, cost in costs.items() if cost - best < np.log(LEAST_FACTOR) / 2]
    doubts = {pair: _misfit(evidence, *pair) for pair in tied}
    pair = min(tied, key=lambda each: doubts[each])
    factor = float(np.exp(before - costs[pair]))
    numbers = (estimated("nearer by exchanging the best pair, factor", factor),)
    if not factor > LEAST_FACTOR or _is_copy(found, pair):
        return passed("No two columns fit better where the other one is.", *numbers)
    rivals = [each for each in tied if each != pair and doubts[each] < doubts[pair] + LEAST_MISFIT]
    unsure = f" {rivals[0][0]} and {rivals[0][1]} would fit nearly as well." if rivals else ""
    return [
        Finding(
            f"{pair[0]} and {pair[1]} seem to be exchanged. The distances between the columns fit their names if these "
            f"two change places, and are {number(factor)} × too large together as they are.{unsure}",
            Severity.CRITICAL,
            "Pass the columns to the recorder in their order: sampler, the sampler's weights in the trainer, policy "
            "before the update, policy after it, reference.",
            numbers,
            evidence.all_steps,
            (*pair, *(column for rival in rivals for column in rival if column not in pair)),
            evidence.rows_where(f"invalid is null and abs({pair[0]} - {pair[1]}) > 0.1"),
        )
    ]


def _starts_at_reference(evidence: LogEvidence, other: str) -> bool:
    """Whether the first step's current policy is the reference and not another column: they keep their names then."""
    sample = evidence.sample
    first = sample.column("step") == sample.column("step").min()
    current = sample.column(_C)[first]
    apart = [np.abs(current - sample.column(name)[first]) for name in (COLUMNS[4], other)]
    near, far = (float(each[np.isfinite(each)].mean()) if np.isfinite(each).any() else np.nan for each in apart)
    return near < FLOOR < far


def _misfit(evidence: LogEvidence, one: str, other: str) -> float:
    """What contradicts an exchange, in standard errors: tokens not drawn with the sampler's column, clips on the wrong
    side of the ratio."""
    sample, names = evidence.sample, {_B: _B, _C: _C} | {one: other, other: one}
    keep = sample.rows["invalid"].isna().to_numpy()
    z = sample.collisions(names[_B], keep).z if evidence.log.has("token_id") else 0.0
    at = sample.column(names[_C]) - sample.column(names[_B])
    side = np.nan_to_num(sample.column("clip_side"))
    clipped = (side != 0) & np.isfinite(at)
    wrong = float((np.sign(at) != np.sign(side))[clipped].mean()) if clipped.sum() >= FEWEST_CLIPPED else 0.0
    return float(abs(np.nan_to_num(z)) + 100 * wrong)


def _is_copy(found: Distances, pair: tuple[str, str]) -> bool:
    """Whether the two are equal everywhere, so that an exchange changes nothing."""
    apart = [of[pair] for of in (found.fresh, found.old) if np.isfinite(of.get(pair, np.nan))]
    return bool(apart) and max(apart) < FLOOR


@check(order=190, needs=(*RATIO, ("logp_behavior",), *AGE), page="drift")
def recomputed(evidence: LogEvidence) -> list[Finding]:
    """logp_behavior of old data is the sampler's, not the current policy's computed anew with another
    engine's noise."""
    if evidence.rounding > FLOOR:
        return not_checked(_TOO_COARSE)
    found = distances_of(evidence)
    to_current, to_train = (found.old.get((_B, other), float("nan")) for other in (_C, _T))
    moved = found.old.get((_C, _N), float("nan"))
    if not np.isfinite(to_current):
        return not_checked(f"Fewer than {FEWEST_ROWS} tokens are older than their update.")
    other = evidence.problems(versions, copied_columns, zero_filled, constant_columns, shifted, own_token, scale)
    if other:
        return not_checked(f"Columns are wrong in another way: {', '.join(other)}.")
    if not (np.isfinite(moved) or np.isfinite(to_train)):
        return not_checked("Neither logp_new nor logp_behavior_train is logged: nothing says how far it should be.")
    away = found.old.get((_T, _C), float("nan"))
    # The recomputation of old weights is far from the current policy, and the record beside the latter.
    fresh_move = found.fresh.get((_C, _N), float("nan"))
    # Where current and recomputation, or sampler and new policy, are exchanged, the update seems to grow with age.
    if np.isfinite(moved) and (moved > found.old.get((_T, _N), np.inf) or moved > 3 * max(fresh_move, FLOOR)):
        return passed("logp_new is not one update from logp_current on old tokens: see whether columns are exchanged.")
    by_train = np.isfinite(to_train) and away > 4 * FLOOR and to_current < LARGEST_SHARE * min(away, to_train)
    fresh = found.fresh.get((_B, _C), float("nan"))
    near = to_current < (
        min(LARGEST_SHARE * moved, _AS_FRESH * max(fresh, FLOOR)) if np.isfinite(fresh) else _SHARE_UNSEEN * moved
    )
    by_update = not np.isfinite(to_train) and near and moved > 4 * FLOOR
    numbers = (
        estimated("mean |logp_behavior - logp_current|, older versions", to_current),
        estimated("mean |logp_new - logp_current| there", moved),
        estimated("mean |logp_behavior_train - logp_current| there", away),
    )
    if not (by_train or by_update):
        return passed(
            f"Log-probs of older versions' tokens are {number(to_current)} nats off those of the current policy "
            "(mean), as their age says.",
            *numbers,
        )
    against = (
        f"its own weights, recomputed, are {number(away)} from it" if by_train else f"one update moves {number(moved)}"
    )
    return [
        Finding(
            "logp_behavior is the current policy computed anew, not what the sampler recorded. On tokens of older "
            f"versions it is {number(to_current)} from logp_current, where {against} (mean |difference|, at most 1).",
            Severity.CRITICAL,
            "Log what the sampler returned with the tokens, and train against it: a recomputed denominator hides the "
            "staleness from every ratio.",
            numbers,
            evidence.all_steps,
            (_B,),
            evidence.rows_where("invalid is null and version_lag > 0 and uncertain"),
        )
    ]
