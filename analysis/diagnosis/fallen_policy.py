"""Marks of a fall in what the policy did: ratios, staleness, updates, gradients, entropy, distance to the reference."""

from math import inf, log, nan

import numpy as np

from ratioscope.analysis.diagnosis.around import (
    FEW_VALUES,
    MORE,
    around_fall,
    begun_in_fall,
    courses_of,
    fall_seen,
    rise,
)
from ratioscope.analysis.diagnosis.evidence import RunEvidence, step_of
from ratioscope.analysis.findings.fall import level_of
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.runs.relations import relations
from ratioscope.catalogue import CATALOGUE
from ratioscope.metric import SAMPLED
from ratioscope.run_format import schema
from ratioscope.run_format.manifest import as_finite

_STRAYED = 0.8
"""Ratio below which a good token has strayed: the lower bound of the usual clip."""
_FEWEST_STRAYED = 20
_SMALLEST = 1e-3
"""A smallest ratio above it is usual on old data."""
_CLEAR_DISTANCE, _NO_DISTANCE = 1e-3, 1e-6
"""KL to the initial policy, nats a token: more than number formats make, and less than they make."""
_SAME_RATE = 1e-3
"""Of the largest learning rate: two that are closer are the same."""
_RATIO: tuple[tuple[str, ...], ...] = (("logp_current",), SAMPLED)


@mark(needs=(), limit=log(100.0))
def smallest_ratio_fell(evidence: RunEvidence) -> MarkReading | None:
    """The smallest ratio falls, after the best level, to a hundredth of what it was before and to less than 1e-3.

    In nats below the smallest one up to the best level.
    """
    around = around_fall(evidence, "ratio_min")
    if around is None or not (around.before.min() > 0 and around.during.min() > 0):
        return None
    lost = log(around.before.min() / around.during.min()) if around.during.min() < _SMALLEST else 0.0
    before, low = (number(float(part.min()), digits=2) for part in (around.before, around.during))
    until = step_of(around.during.idxmin())
    clause = f"smallest ratio {before} → {low} by step {until}, on tokens now hardly sampled"
    steps = tuple(int(step) for step in around.during.index[around.during < around.before.min()])
    return MarkReading(lost, clause, steps, ("logp_current",))


@mark(needs=(*_RATIO, ("advantage",)), limit=0.05)
def good_tokens_lost(evidence: RunEvidence) -> MarkReading | None:
    """Tokens with a positive advantage lose a factor e of their probability, more of them than before.

    Share of all tokens of a step.
    """
    around = around_fall(evidence, "good_lost")
    if around is None:
        return None
    more = around.during.max() > MORE * around.before.max()
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
    around = around_fall(evidence, "version_lag")
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
    if not (over := begun_in_fall(evidence, drift.over)):
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
    if not (over := begun_in_fall(evidence, drift.over)):
        return MarkReading(0.0, "")
    worst = step_of(evidence.values[drift.key].loc[over].idxmax())
    size = float(evidence.values[drift.key].loc[worst])
    clause = f"the update of step {worst} moved the policy by {number(size, digits=2)} (limit {drift.limit:g})"
    return MarkReading(size / drift.limit, clause, tuple(over))


@mark(needs=(), limit=2.0)
def policy_jumped(evidence: RunEvidence) -> MarkReading | None:
    """An update, or the distance to the sampler, is twice as large in the fall as any was before; as a factor.

    A step's update comes after its evaluation: that of the last good one may be the first of the fall.
    """
    if (fall := fall_seen(evidence)) is None:
        return None
    found = None
    for drift, named in ((evidence.facts.update, "update drift"), (evidence.facts.staleness, "staleness")):
        series = evidence.values[drift.key].dropna()
        before, during = series[series.index < fall.still_good], series.loc[fall.still_good : fall.found]
        if len(before) < FEW_VALUES or not len(during) or not before.max() > 0:
            continue
        usual, largest = (number(float(each.max()), digits=2) for each in (before, during))
        clause = f"the {named} was {usual} at most, then {largest} in step {step_of(during.idxmax())}"
        reading = MarkReading(float(during.max() / before.max()), clause)
        found = reading if found is None or found.value <= policy_jumped.limit else found
    return found


@mark(needs=(("steps.kl_to_initial",),), limit=20.0)
def back_at_the_start(evidence: RunEvidence) -> MarkReading | None:
    """KL to the initial policy falls to a twentieth at once, after the best level and before the fall; as a factor."""
    around, course = around_fall(evidence, "kl_to_initial"), courses_of(evidence).get("kl_to_initial")
    if around is None or course is None:
        return None
    kl = course.series.dropna()
    before = kl.rolling(FEW_VALUES).min().shift().reindex(around.during.index)
    fallen = (before / around.during.clip(lower=_NO_DISTANCE)).where(before > _CLEAR_DISTANCE, 1.0)
    if not len(fallen):
        return None
    step = step_of(fallen.idxmax())
    earlier, now = (number(float(each.loc[step]), digits=2) for each in (before, kl))
    clause = f"KL to the initial policy fell from {earlier} to {now} in step {step}"
    return MarkReading(float(fallen.max()), clause, (step,), ("steps.kl_to_initial",))


@mark(needs=(), limit=3.0)
def kl_rose(evidence: RunEvidence) -> MarkReading | None:
    """KL from the sampler grows to three times what it was up to the best level."""
    return rise(evidence, "kl_k3", "KL from the sampler rose from {} to {} by step {}")


@mark(needs=(), limit=3.0)
def grad_norm_rose(evidence: RunEvidence) -> MarkReading | None:
    """The gradient norm grows to three times what it was up to the best level."""
    return rise(evidence, "grad_norm", "the gradient norm rose from {} to {} by step {}")


@mark(needs=(*_RATIO, ("advantage",)), limit=10.0)
def advantage_grew_giant(evidence: RunEvidence) -> MarkReading | None:
    """The largest advantage grows to ten times what it was up to the best level."""
    return rise(evidence, "largest_advantage", "the largest |A| rose from {} to {} in step {}")


@mark(needs=(), limit=MORE)
def learning_rate_jumped(evidence: RunEvidence) -> MarkReading | None:
    """The learning rate rises by half or more in one step, beyond what it was at the best level.

    A warm-up rises in smaller steps, and a schedule that begins again comes back to where it was; as a factor.
    """
    around, fall = around_fall(evidence, "learning_rate"), fall_seen(evidence)
    if around is None or fall is None or len(around.before) < FEW_VALUES or not around.before.max() > 0:
        return None
    rate = courses_of(evidence)["learning_rate"].series.dropna()
    earlier = rate.shift()
    # A step's update comes after its evaluation: that of the last good one may be the first that is too large.
    until = rate.loc[fall.still_good : fall.found]
    jumps = (rate / earlier).where(rate > earlier.reindex(until.index[:1]).max(), 1.0).reindex(until.index).fillna(1.0)
    step = step_of(jumps.idxmax())
    clause = f"the learning rate rose from {number(float(earlier.loc[step]))} to {number(float(rate.loc[step]))} in "
    return MarkReading(float(jumps.max()), f"{clause}step {step}", (step,), ("steps.learning_rate",))


@mark(needs=(("steps.learning_rate",),), limit=0.5)
def schedule_repeats(evidence: RunEvidence) -> MarkReading | None:
    """From its jump on the learning rate takes the values that it had from the first step on, which differed."""
    jumped = learning_rate_jumped(evidence)
    if not jumped.present:
        return MarkReading(0.0, "") if jumped.known else None
    rate, (step,) = courses_of(evidence)["learning_rate"].series.dropna(), jumped.reading.steps
    again = rate.loc[step:].to_numpy()
    n = min(len(again), len(rate) - len(again))
    first, again = rate.to_numpy()[:n], again[:n]
    if n < FEW_VALUES or not np.ptp(first) > _SAME_RATE * first.max():
        return None
    same = bool((np.abs(again - first) <= _SAME_RATE * first.max()).all())
    clause = f"{n} rates from step {step} on are those from step {int(rate.index[0])} on"
    return MarkReading(float(same), clause, (step,), ("steps.learning_rate",))


@mark(needs=(("steps.learning_rate",),), limit=MORE)
def learning_rate_above_setting(evidence: RunEvidence) -> MarkReading | None:
    """The learning rate is above the configured one by half or more up to the fall; as a factor."""
    fall, manifest = fall_seen(evidence), evidence.run.manifest if evidence.run else None
    configured = as_finite(manifest.optimiser.get("learning_rate")) if manifest else None
    if fall is None or configured is None or not configured > 0:
        return None
    rate = courses_of(evidence)["learning_rate"].series.dropna().loc[: fall.found]
    if not len(rate):
        return None
    step, times = step_of(rate.idxmax()), float(rate.max()) / configured
    clause = f"in step {step} it is {number(float(rate.max()))}, {number(times, digits=2)} × the configured "
    return MarkReading(times, f"{clause}{number(float(configured))}", (step,), ("steps.learning_rate",))


@mark(needs=(), limit=0.5)
def fell_from_the_start(evidence: RunEvidence) -> MarkReading | None:
    """The best level is where the run began: no time in which it was well clears what was so from the start."""
    fall = fall_seen(evidence)
    if fall is None:
        return None
    before = len(level_of(evidence.summary, fall.metric, fall.window).loc[: fall.best_step].dropna())
    return MarkReading(float(before < FEW_VALUES), f"it was best in step {fall.best_step} and fell from there")


@mark(needs=(), limit=2.0)
def mismatch_grew(evidence: RunEvidence) -> MarkReading | None:
    """The engine mismatch grows to twice what it was up to the best level, and beyond its limit.

    As a factor; 0 below the limit.
    """
    reading = rise(evidence, "s_k_engine_bounded", "the engine mismatch rose from {} to {} by step {}")
    around = around_fall(evidence, "s_k_engine_bounded")
    if reading is None or around is None or around.during.max() > evidence.limits.engine:
        return reading
    return MarkReading(0.0, "")


_BEGUN = 1.2
"""Times the largest entropy up to the best level: a rise that has begun."""


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
    if len(best) < FEW_VALUES or len(later) < FEW_VALUES:
        return None
    at_start, at_best, found = (
        float(each.median()) for each in (best.head(10), best.tail(FEW_VALUES), later.tail(FEW_VALUES))
    )
    return at_start, at_best, float(best.max()), found


@mark(needs=(), limit=MORE)
def entropy_rose(evidence: RunEvidence) -> MarkReading | None:
    """Entropy rises, after the best level and before the fall, by half or more of all that it was; as a factor.

    What has begun before the fall may reach that in it.
    """
    fall = fall_seen(evidence)
    if (around := _entropies(evidence)) is None or fall is None:
        return None
    _, before, largest, during = around
    clause = f"entropy rose from {number(before, digits=2)} to {number(during, digits=2)} nats before the fall"
    in_fall = evidence.values["entropy"].loc[fall.found : step_of(fall.low.idxmin())].dropna()
    if _BEGUN * largest < during < MORE * largest and len(in_fall) >= FEW_VALUES:
        further = float(in_fall.tail(FEW_VALUES).median())
        if further > MORE * largest:
            clause = f"{clause}, and further to {number(further, digits=2)} in it"
            return MarkReading(further / largest, clause)
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
        around = around_fall(evidence, key)
        if around is None:
            continue
        reached = float(around.during.tail(FEW_VALUES).median())
        grew = reached > MORE * float(around.before.tail(FEW_VALUES).median())
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
    begun = {said: begun_in_fall(evidence, [int(step) for step in steps]) for said, steps in bad.items()}
    begun = {said: found for said, found in begun.items() if found}
    if not begun:
        return MarkReading(0.0, "")
    said, found = min(begun.items(), key=lambda one: one[1][0])
    return MarkReading(float(len(found)), f"{said} in step {found[0]}", tuple(found))


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
