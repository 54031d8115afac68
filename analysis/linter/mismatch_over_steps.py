"""Marks of a mismatch over the steps: whether it begins, grows, jumps, falls back, and whether updates arrive whole.

Each step counts by its mismatch over what the probabilities of its tokens explain.
"""

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.check import ENGINE_COLUMNS
from ratioscope.analysis.linter.differing import (
    AT_ONCE,
    FEWEST_FRESH,
    HELD_BY,
    differing,
    engine_columns,
    levels,
    lift,
)
from ratioscope.analysis.linter.evidence import SURE, LogEvidence
from ratioscope.analysis.linter.place import LEAST_LIFT

_FEWEST_STEPS = 6
_FEWEST_BEFORE = 2
"""Steps before a jump."""
_FEWEST_PROMPTS = 5
_LEAST_MOVED = 1e-3
"""Nats by which a policy that learns changes the first token of a prompt."""
_SUDDEN = 10
"""Times the usual distance: more than data grow older within a step."""
_FEWEST_REPEATS, _FEWEST_IN_STEP = 100, 100
"""First tokens of prompts that come again, and unsure tokens of a step."""
_TOGETHER = 0.8
"""Correlation of two paths from which on one of them is a multiple of the other."""
_FIRST_UPDATES = 5
"""Updates behind the start, of which each goes on with the ones before it, as an optimiser's momentum has it."""
_NONE_YET = 0.2
"""Share of the mismatch behind the first updates that there may be ahead of them."""
_AGREED = 50
"""How often the mismatch of the first step goes into the later one where both engines compute the same."""
_NEAR, _FAR_AHEAD = 4, 16
"""Tokens ahead of a change of version that are next to it, and from which on they are not."""
_AT_AN_END, _MOSTLY = 0.2, 0.8
"""Of the way to the next version: so near to either end a token is of one version; and the share of such tokens."""


def _by_step(evidence: LogEvidence) -> "pd.Series[float]":
    """`_apart_by_step` where it is the mismatch alone; where no age is known, nothing."""
    return _apart_by_step(evidence) if evidence.knows_age else pd.Series(dtype=float)


def _apart_by_step(evidence: LogEvidence) -> "pd.Series[float]":
    """The mismatch of each step, as a multiple of what the probabilities of its tokens explain."""

    def make() -> "pd.Series[float]":
        frame = differing(evidence)
        return pd.Series(dtype=float) if frame is None else levels(frame, frame["step"])

    return evidence.once("mismatch by step", make)


@mark(needs=ENGINE_COLUMNS, limit=2.5)
def mismatch_starts_small(evidence: LogEvidence) -> MarkReading | None:
    """The mismatch of the first step is a small part of the later one: what differs came with the updates."""
    level = _by_step(evidence)
    if len(level) < _FEWEST_STEPS or evidence.begins_unseen(evidence.all_steps):
        return None
    first, later = float(level.iloc[0]), level.iloc[len(level) // 2 :]
    times = float(later.median()) / max(first, 1e-3)
    return MarkReading(
        times,
        f"the mismatch is {number(times)} × as large in the second half of the run as in step {level.index[0]}",
        tuple(map(int, later.index)),
        engine_columns(evidence),
    )


@mark(needs=ENGINE_COLUMNS, limit=0.5)
def mismatch_from_the_first_step(evidence: LogEvidence) -> MarkReading | None:
    """The first step, ahead of any update, has at least half of the usual mismatch: no update brought it."""
    level = _apart_by_step(evidence)
    if len(level) < _FEWEST_STEPS or evidence.begins_unseen(evidence.all_steps) or not level.median() > 0:
        return None
    share = float(level.iloc[0] / level.median())
    return MarkReading(
        share,
        f"step {level.index[0]}, ahead of any update, has {percent(share)} of the usual mismatch",
        evidence.all_steps,
        engine_columns(evidence),
    )


@mark(needs=ENGINE_COLUMNS, limit=0.2)
def mismatch_varies(evidence: LogEvidence) -> MarkReading | None:
    """In the second half of the run the mismatch differs from step to step, as that of rounding does not."""
    later = _by_step(evidence).iloc[len(_by_step(evidence)) // 2 :]
    if len(later) < _FEWEST_STEPS // 2 or not later.mean() > 0:
        return None
    spread = float(later.std() / later.mean())
    return MarkReading(spread, f"the mismatch varies by {percent(spread)} between later steps")


@mark(needs=ENGINE_COLUMNS, limit=1.5)
def mismatch_keeps_growing(evidence: LogEvidence) -> MarkReading | None:
    """The last third of the run has a larger mismatch than the middle third, in nearly all of its steps."""
    level = _by_step(evidence)
    third = len(level) // 3
    if third < _FEWEST_STEPS // 2:
        return None
    middle, last = level.iloc[third : 2 * third], level.iloc[-third:]
    # Half of the last third beyond all of the middle one but its largest value: no run of noise.
    grows = last.median() / middle.median() if last.median() > middle.quantile(0.9) and middle.median() > 0 else 1.0
    return MarkReading(
        float(grows),
        f"the mismatch of the last third of the run is {number(float(grows))} × that of the middle third",
        tuple(map(int, last.index)),
        engine_columns(evidence),
    )


@mark(needs=ENGINE_COLUMNS, limit=5.0)
def mismatch_steps_up(evidence: LogEvidence) -> MarkReading | None:
    """From one step on every step has many times the mismatch of those before, and it stays as it began."""
    level = _by_step(evidence)
    if len(level) < _FEWEST_STEPS:
        return None
    values, at, times = level.to_numpy(), 0, 1.0
    # Updates that do not arrive begin at a step, too: later than that, and flat behind, is no growth with them.
    for each in range(_FEWEST_BEFORE, len(values) - _FEWEST_STEPS // 2 + 1):
        before, behind = max(values[:each].max(), 1e-3), values[each:]
        flat = behind[: _FEWEST_STEPS // 2].min() > AT_ONCE * np.median(behind)
        if flat and behind.min() / before > times and _updated_before(evidence, int(level.index[each])):
            at, times = each, float(behind.min() / before)
    return MarkReading(
        times,
        f"the mismatch is at least {number(times)} × as large from step {level.index[at]} on as in every step before, "
        "at once",
        tuple(map(int, level.index[at:])),
        engine_columns(evidence),
    )


@mark(needs=ENGINE_COLUMNS, limit=0.1)
def mismatch_at_the_first_update(evidence: LogEvidence) -> MarkReading | None:
    """The nats between sampler and trainer where they agree in the first step and not in the second, nor since.

    What rounding leaves of an update is a part of it, and smaller; updates that do not arrive add up.
    """
    level = _by_step(evidence)
    if len(level) < _FEWEST_STEPS or evidence.begins_unseen(evidence.all_steps):
        return None
    behind = level.iloc[1:]
    at_once = behind.iloc[0] > AT_ONCE * behind.median() and level.iloc[0] < _NONE_YET * behind.min()
    fresh = evidence.fresh
    apart = fresh[fresh["step"].isin(behind.index) & (fresh["logp_behavior"] < SURE)]["fresh"].abs()
    if not at_once or not len(apart):
        return MarkReading(0.0, "")
    nats = float(apart.mean())
    return MarkReading(
        nats,
        f"both agree in step {level.index[0]}, and from step {behind.index[0]} on unsure tokens differ by "
        f"{number(nats)} nats",
        tuple(map(int, behind.index)),
        engine_columns(evidence),
    )


def _updated_before(evidence: LogEvidence, step: int) -> bool:
    """Whether some update had come to the sampler before a step, as far as versions are logged.

    Labels that are too young are right as long as all data are of the first version.
    """
    versions = evidence.once(
        "versions by step",
        lambda: evidence.frame(
            "select step, min(behavior_version) as low, max(behavior_version) as high from examined group by step"
        ).set_index("step").sort_index(),
    )  # fmt: skip
    known = versions[versions.index < step].dropna()
    return len(known) == 0 or bool(known["high"].max() > known["low"].iloc[0])


@mark(needs=ENGINE_COLUMNS, limit=2.0)
def mismatch_falls_back(evidence: LogEvidence) -> MarkReading | None:
    """The mismatch rises over several steps and falls back to its start within one, as after a restart."""
    level = _by_step(evidence)
    if len(level) < _FEWEST_STEPS:
        return None
    values = level.to_numpy()
    before = pd.Series(values).rolling(3).min().shift(1).to_numpy()
    after = pd.Series(values[::-1]).rolling(3).max().to_numpy()[::-1]
    with np.errstate(invalid="ignore", divide="ignore"):
        fall = np.nan_to_num(before / after)
    at = int(np.argmax(fall))
    return MarkReading(
        float(fall[at]),
        f"the mismatch falls to 1/{number(float(fall[at]))} at step {level.index[at]} and stays low",
        (int(level.index[at]),),
        engine_columns(evidence),
    )


@mark(needs=ENGINE_COLUMNS, limit=3.0)
def mismatch_in_some_steps(evidence: LogEvidence) -> MarkReading | None:
    """A stretch of a few steps has several times the mismatch of all others, before it and after it."""
    level = _apart_by_step(evidence)
    if len(level) < _FEWEST_STEPS:
        return None
    usual = float(level.median())
    high = level[level > 3 * usual]
    calm = level.drop(high.index).max() <= 2 * usual
    if not evidence.knows_age and len(high):  # age goes up and down, step by step
        calm &= high.min() > _SUDDEN * usual and high.max() < 3 * high.min()
    stretch = calm and len(high) > 1 and high.index[-1] - high.index[0] < 2 * len(high) and len(high) < len(level) / 3
    if not stretch or usual <= 0:
        return MarkReading(1.0, "")
    times = float(high.median()) / usual
    return MarkReading(
        times,
        f"the mismatch is {number(times)} × the usual one in steps {high.index[0]}–{high.index[-1]} alone",
        tuple(map(int, high.index)),
        engine_columns(evidence),
    )


@mark(needs=(*ENGINE_COLUMNS, ("behavior_version", "sequences.behavior_version_min")), limit=0.95)
def labels_make_no_difference(evidence: LogEvidence) -> MarkReading | None:
    """Both engines agree in the first step, and later tokens that are labelled older than the policy differ no more
    from it than those of the same steps that are labelled its own.

    What the latter differ over that of the former, in the half of the groups where it is less. Beside an engine's own
    difference, which is there ahead of any update, that of few updates would not be seen.
    """
    small = mismatch_starts_small(evidence)
    if not small.known:
        return None
    if small.reading.value < _AGREED:
        return MarkReading(0.0, "")
    frame = evidence.frame(
        f"""
        select step, group_id, logp_behavior, log_rho as fresh, coalesce(version_lag, response_lag) > 0 as older
        from examined
        where hash(step, group_id) % {evidence.sampled} = 0 and logp_behavior is not null and invalid is null
            and isfinite(log_rho) and coalesce(version_lag, response_lag) >= 0
        """
    )
    frame = frame[frame.groupby("step")["older"].transform("nunique") > 1]
    side, older = frame.groupby(["step", "group_id"], sort=False).ngroup() % 2, frame["older"].astype(bool)
    if min(older.sum(), (~older).sum()) < 2 * FEWEST_FRESH:
        return None
    times = max(lift(frame[side == half], older[side == half]) for half in (0, 1))
    return MarkReading(
        1 / times,
        f"tokens that are labelled older differ {number(times)} × as much as those labelled current",
        evidence.all_steps,
        engine_columns(evidence),
    )


@mark(needs=(*ENGINE_COLUMNS, ("sequences.prompt_id",)), limit=2.2)
def mismatch_of_repeats(evidence: LogEvidence) -> MarkReading | None:
    """Prompts have a larger mismatch when they come again than when they came first."""
    frame = differing(evidence)
    if frame is None:
        return None
    frame = frame[frame.groupby("prompt_id")["step"].transform("nunique") > 1]
    first = frame.groupby("prompt_id")["step"].transform("min") == frame["step"]
    if len(frame) < FEWEST_FRESH or frame["prompt_id"].nunique() < _FEWEST_PROMPTS:
        return None
    times = lift(frame, ~first)
    return MarkReading(
        times,
        f"prompts that come again have {number(times)} × the mismatch of their first time",
        evidence.all_steps,
        engine_columns(evidence),
    )


@mark(needs=(*ENGINE_COLUMNS, ("behavior_version",)), limit=LEAST_LIFT)
def mismatch_behind_a_change(evidence: LogEvidence) -> MarkReading | None:
    """The first tokens behind a change of version within a response hold more of the mismatch than they should."""
    return _next_to_a_change(evidence, "version_change")


@mark(needs=(*ENGINE_COLUMNS, ("behavior_version",)), limit=LEAST_LIFT)
def mismatch_before_a_change(evidence: LogEvidence) -> MarkReading | None:
    """The last tokens before a change of version within a response hold more of the mismatch than they should."""
    return _next_to_a_change(evidence, "version_ahead")


def _next_to_a_change(evidence: LogEvidence, dimension: str) -> MarkReading | None:
    """The mark of a place whose levels count from a change of version, where it begins there."""
    sign = HELD_BY[dimension](evidence)
    if not sign.known:
        return None
    begins = sign.present and sign.reading.place.partition(": ")[2].startswith("0")
    return sign.reading if begins else MarkReading(1.0, "")


@mark(needs=(("logp_behavior",), ("logp_behavior_train",), ("logp_current",), ("behavior_version",)), limit=0.15)
def sampler_is_part_of_the_way(evidence: LogEvidence) -> MarkReading | None:
    """Next to a change of version the sampler is part of the way to the next version, and further ahead it is not."""
    frame = differing(evidence)
    if frame is None:
        return None
    # One version behind the update, the next version is the current policy.
    frame = frame[(frame["version_lag"] == 1) & (frame["logp_behavior"] < SURE) & (frame["onward"].abs() < 1)]
    frame = frame[frame["before_change"].notna() & (frame["fresh"].abs() < 1)]
    half = frame.groupby(["step", "group_id"], sort=False).ngroup() % 2
    parts = [frame["before_change"] < _NEAR, frame["before_change"] >= _FAR_AHEAD]
    way = [[_way(frame[part & (half == side)]) for part in parts] for side in (0, 1)]
    shares = np.array([near - far for near, far in way])
    # Labels that change late in some responses have tokens of either version, not of a part of one.
    near, far = (frame[part] for part in parts)
    moved = near[near["onward"].abs() >= near["onward"].abs().quantile(0.75)]
    told = far["fresh"].abs().median() < _AT_AN_END / 2 * moved["onward"].abs().median()
    if not np.isfinite(shares).all() or not told:
        return None
    done = -moved["fresh"] / moved["onward"]
    whole = np.minimum(done.abs(), (done - 1).abs()) < _AT_AN_END
    return MarkReading(
        float(shares.min()) if whole.mean() < _MOSTLY else 0.0,
        f"there the sampler is {percent(float(shares.mean()))} of the way to the next version",
        evidence.all_steps,
        engine_columns(evidence),
    )


def _way(frame: pd.DataFrame) -> float:
    """How far the sampler is on the way to the current policy, by least squares; NaN of few tokens."""
    ahead, onward = -frame["fresh"].to_numpy(dtype=float), frame["onward"].to_numpy(dtype=float)
    if len(frame) < _FEWEST_REPEATS or not onward.std() > _LEAST_MOVED:
        return float("nan")
    return float(ahead @ onward / (onward @ onward))


@mark(needs=(*ENGINE_COLUMNS, ("logp_new",)), limit=0.2)
def mismatch_follows_updates(evidence: LogEvidence) -> MarkReading | None:
    """The trainer is beyond the sampler where the next update goes on to move it: the sampler has older weights.

    Rounding and other kernels know nothing of the next update.
    """
    found = evidence.frame(
        f"""
        select count(*) as n, corr(fresh, (logp_new - logp_current)::double) as together
        from examined
        where invalid is null and isfinite(fresh) and isfinite(logp_new) and abs(fresh) < 1
            and abs(logp_new - logp_current) < 1 and logp_behavior < {SURE}
        """
    ).iloc[0]
    if found["n"] < FEWEST_FRESH or pd.isna(found["together"]):
        return None
    together = float(found["together"])
    return MarkReading(
        together,
        f"the mismatch and the next update move tokens the same way (correlation {number(together)})",
        evidence.all_steps,
        ("behavior_version",),
    )


@mark(needs=(*ENGINE_COLUMNS, ("sequences.prompt_id",), ("token_id",)), limit=0.9)
def sampler_is_frozen(evidence: LogEvidence) -> MarkReading | None:
    """The sampler gives the first token of a prompt the same probability in all steps, and the trainer does not."""
    found = _spread_of_first_tokens(evidence, sampled_once=False)
    if len(found) and found["sampler"].mean() < (1 - sampler_is_frozen.limit) * found["trainer"].mean():
        found = _spread_of_first_tokens(evidence, sampled_once=True)
    moved = float(found["trainer"].mean()) if len(found) >= _FEWEST_PROMPTS else 0.0
    if moved < _LEAST_MOVED:
        return None
    still = 1 - float(found["sampler"].mean()) / moved
    return MarkReading(
        still,
        f"the sampler's log-probabilities of a prompt's first token vary by {number(found['sampler'].mean())} nats "
        f"over the run, the trainer's by {number(moved)}",
        evidence.all_steps,
        engine_columns(evidence),
    )


def _spread_of_first_tokens(evidence: LogEvidence, *, sampled_once: bool) -> pd.DataFrame:
    """By prompt and first token that came in several steps, the spread of each engine's log-probability.

    Args:
        sampled_once: leave out responses that a buffer brings again.
    """
    paths = "(select step, seq_id, sum(hash(token_id, position)) as path from examined group by all)"
    return evidence.frame(
        f"""
        with first as (
            select step, prompt_id, token_id, logp_behavior, logp_current
            from examined join (select distinct on (step, seq_id) step, seq_id, prompt_id from sequence)
                using (step, seq_id)
                {f"join {paths} using (step, seq_id)" if sampled_once else ""}
            where position = 0 and invalid is null and isfinite(logp_behavior) and isfinite(logp_current)
            {"qualify step = min(step) over (partition by prompt_id, path)" if sampled_once else ""}
        )
        select stddev_pop(logp_behavior) as sampler, stddev_pop(logp_current) as trainer
        from first where prompt_id is not null group by prompt_id, token_id having count(distinct step) > 2
        """
    )


@mark(needs=ENGINE_COLUMNS, limit=0.2)
def sampler_goes_further(evidence: LogEvidence) -> MarkReading | None:
    """The sampler has moved further from the start than the trainer, or is ahead of it at the first updates."""
    if differing(evidence) is None:
        return None
    for since, found in (("the reference", _from_the_reference), ("each prompt's mean", _from_each_prompts_mean)):
        paths = found(evidence)
        if paths is not None and abs(paths[1]) > _TOGETHER:
            return MarkReading(
                paths[0],
                f"the sampler moved {number(1 + paths[0])} × as far from {since} as the trainer (correlation "
                f"{number(paths[1])})",
                evidence.all_steps,
                engine_columns(evidence),
            )
    return _ahead_at_the_first_updates(evidence)


def _from_the_reference(evidence: LogEvidence) -> tuple[float, float] | None:
    """By how much more the sampler moved from the frozen reference, as a multiple, and how well that fits."""
    if not evidence.log.has("logp_reference"):
        return None
    return _further(evidence, FEWEST_FRESH, f"""
        select -fresh as further, logp_same_engine - logp_reference::double as moved from examined
        where isfinite(logp_reference) and abs(logp_same_engine - logp_reference) < 1 and logp_behavior < {SURE}
            and abs(fresh) < 1
        """)  # fmt: skip


def _from_each_prompts_mean(evidence: LogEvidence) -> tuple[float, float] | None:
    """The same from the mean over the steps, of first tokens of prompts that come again."""
    if not evidence.log.has("token_id") or not evidence.log.has("sequences.prompt_id"):
        return None
    return _further(evidence, _FEWEST_REPEATS, f"""
        with first as (
            select step, prompt_id, token_id, avg(fresh) as fresh, avg(logp_same_engine) as trainer
            from examined join (select distinct on (step, seq_id) step, seq_id, prompt_id from sequence)
                using (step, seq_id)
            where position = 0 and prompt_id is not null and isfinite(fresh) and logp_behavior < {SURE} group by all
        )
        select avg(fresh) over again - fresh as further, trainer - avg(trainer) over again as moved
        from first window again as (partition by prompt_id, token_id) qualify count(*) over again > 1
        """)  # fmt: skip


def _further(evidence: LogEvidence, fewest: int, paths: str) -> tuple[float, float] | None:
    found = evidence.frame(
        f"select count(*) as n, regr_slope(further, moved) as slope, corr(further, moved) as together, "
        f"stddev_pop(moved) as moves from ({paths})"
    ).iloc[0]
    if found["n"] < fewest or pd.isna(found["together"]) or not found["moves"] > _LEAST_MOVED:
        return None
    return float(found["slope"]), float(found["together"])


def _ahead_at_the_first_updates(evidence: LogEvidence) -> MarkReading | None:
    """Whether it is ahead where each of the first updates goes on to move the trainer, once there is a mismatch."""
    if not evidence.log.has("logp_new") or evidence.begins_unseen(evidence.all_steps):
        return None
    steps = evidence.frame(
        f"""
        select step, count(*) as n, corr(fresh, (logp_new - logp_current)::double) as together,
            sqrt(avg(fresh * fresh)) as apart
        from examined
        where invalid is null and isfinite(fresh) and isfinite(logp_new) and abs(fresh) < 1
            and abs(logp_new - logp_current) < 1 and logp_behavior < {SURE}
        group by step order by step
        """
    )
    first, early = steps.iloc[:1], steps.iloc[1 : 1 + _FIRST_UPDATES]
    if len(early) < _FIRST_UPDATES or steps["n"].iloc[: 1 + _FIRST_UPDATES].min() < _FEWEST_IN_STEP:
        return None
    # Noise of the trainer's pass is in both, and makes them go apart from the first step on.
    if not first["apart"].iloc[0] < _NONE_YET * early["apart"].median() or early["together"].isna().any():
        return MarkReading(0.0, "")
    ahead = -float(np.average(early["together"], weights=early["n"]))
    return MarkReading(
        ahead,
        f"behind each of the first {_FIRST_UPDATES} updates the sampler is ahead, the way of the next update "
        f"(correlation {number(ahead)})",
        tuple(map(int, early["step"])),
        engine_columns(evidence),
    )
