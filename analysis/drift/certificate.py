"""The policy-improvement certificate: what theory promises of every update, from what was logged (S0 Corollary 3.2).

found = certificate(run, first=10, last=20, gamma=0.9, reward_range=(0, 1))
found.terms["improvement_bound"], found.terms["improvement_bound_low"]    # indexed by step
found.terms["mark"], found.terms["note"]                                  # "vacuous", "negative"; what to know of it

J(pi_{k+1}) - J(pi_k) >= L - C1 U - C2 S, with C1 = 2 gamma C / (1 - gamma)^2, C2 = C1 + 2 |A| / (1 - gamma), C <= |A|.
The expectations are over the discounted occupancy of the sampler, so every term is a mean over responses of a sum over
positions t. The advantage is the reward minus the mean of the group's other responses, so the return that is bounded
is this one: the policy writes a response until, with probability 1 - gamma after every token, the sampler's policy
takes over and completes it. With gamma = 0 a whole response is one action (bandit reading).

L is taken of rho - 1 in place of rho: the same expectation, because the advantage has mean 0 under the sampler. In the
sample it has not where lengths differ, and an update that changes nothing would be promised a gain.
"""

from dataclasses import dataclass
from math import inf, log
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pandas as pd
from scipy.special import stdtrit

from ratioscope.analysis.runs.database import filled, query
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.intervals import LEVEL, NO_INTERVAL, cluster_interval
from ratioscope.catalogue import theory
from ratioscope.catalogue.denominators import EXACT, NEW
from ratioscope.errors import RatioscopeError
from ratioscope.metric import Moment, doubt
from ratioscope.notes import Note
from ratioscope.tails import Array, kept_size, pareto_khat

WITH_INTERVAL = (
    *("surrogate", "drift_discounted", "staleness_discounted"),
    *("update_penalty", "staleness_penalty", "improvement_bound"),
)


@dataclass(frozen=True)
class Certificate:
    """The terms of every step, for one discount."""

    gamma: float
    terms: pd.DataFrame
    """Indexed by step. The keys of WITH_INTERVAL in units of reward (distances: none), each with <key>_low and
    <key>_high (95 %, cluster-robust over prompt groups, for a given |A|); c1, c2, advantage_bound and whether that is
    a lower_estimate; largest_gap, finite_horizon_penalty, discounted_penalty, delta_max, longest; n_responses,
    n_counted, n_groups; mark ("vacuous": the penalties exceed the largest possible difference of returns;
    "negative"; "") and note. Undefined is NaN, and the note says why."""


class Factors(NamedTuple):
    """What multiplies U and S."""

    update: float
    staleness: float


def factors(advantage_bound: float, gamma: float) -> Factors:
    """C1 and C2 of S0 Corollary 3.2, with C at its bound |A|."""
    update = 2 * gamma * advantage_bound / (1 - gamma) ** 2
    return Factors(update, update + 2 * advantage_bound / (1 - gamma))


def finite_horizon_penalty(advantage_bound: float, horizon: float, largest_tv: float) -> float:
    """|A| T^2 D_TV^max: what the surrogate over T undiscounted tokens can be wrong by (S1 5.3)."""
    return advantage_bound * horizon**2 * largest_tv


def discounted_penalty(advantage_bound: float, gamma: float, largest_tv: float) -> float:
    """4 gamma |A| (D_TV^max)^2 / (1 - gamma)^2: the same with discount (S1 5.3, item 4)."""
    return 4 * gamma * advantage_bound * largest_tv**2 / (1 - gamma) ** 2


def cpi_step(gain: float, advantage_bound: float, gamma: float) -> float:
    """Which share of the candidate policy conservative policy iteration mixes in (S4 eq. 61).

    The maximiser over [0, 1] of alpha g - 2 gamma epsilon alpha^2 / (1 - gamma)^2: without a gain nothing is mixed in.

    Args:
        gain: g, the candidate's surrogate improvement.
        advantage_bound: epsilon, the largest |E A| of a state under the candidate.
    """
    if gain <= 0:
        return 0.0
    curvature = 4 * gamma * advantage_bound
    return float(np.minimum(1.0, (1 - gamma) ** 2 * gain / curvature)) if curvature else 1.0  # NaN stays NaN


@dataclass(frozen=True)
class Exponent:
    """The power of the length that a distance follows, with a 95 % interval; NaN for `reason`."""

    value: float
    low: float
    high: float
    reason: str = ""


# Over a narrower range of lengths a power cannot be told from a constant.
_LEAST_LENGTH_RATIO = 1.5


def trust_region_exponent(length: Array, distance: Array) -> Exponent:
    """How a trust region goes with the length: theory asks for -2, a constant clip gives 0 (S1 5.4).

    The slope of log distance on log length. Steps of one run depend on each other, which the interval does not know.

    Args:
        length: horizon of each step or run, (n,), tokens.
        distance: largest total variation of a state, or update drift, of each, (n,).
    """
    used = np.isfinite(length) & np.isfinite(distance) & (length > 0) & (distance > 0)
    length, distance = length[used], distance[used]
    if len(length) < 3:
        return Exponent(np.nan, np.nan, np.nan, "fewer than three positive distances")
    if length.max() < _LEAST_LENGTH_RATIO * length.min():
        reason = f"lengths differ by less than a factor {_LEAST_LENGTH_RATIO:g}, so no power of them can be seen"
        return Exponent(np.nan, np.nan, np.nan, reason)
    (slope, _), covariance = np.polyfit(np.log(length), np.log(distance), 1, cov=True)
    half = stdtrit(len(length) - 2, (1 + LEVEL) / 2) * np.sqrt(covariance[0, 0])
    return Exponent(float(slope), float(slope - half), float(slope + half))


def certificate(
    run: Run,
    first: int | None = None,
    last: int | None = None,
    *,
    gamma: float | None = None,
    reward_range: tuple[float, float] | None = None,
) -> Certificate:
    """The certificate of the steps first..last, both included.

    Args:
        gamma: discount in [0, 1); None: 1 - 1 / mean response length.
        reward_range: lowest and highest reward there can be; its width bounds |A|. Without it the largest advantage
            of the step's sample stands for |A|, a lower estimate.

    Raises:
        RatioscopeError: gamma or the range is impossible, a reward lies outside of it, or there is no response.
    """
    if gamma is not None and not 0 <= gamma < 1:
        raise RatioscopeError(f"gamma is {gamma:g}; a certificate needs a discount of at least 0 and less than 1.")
    if reward_range is not None and not -inf < reward_range[0] < reward_range[1] < inf:
        raise RatioscopeError(f"The reward range {reward_range} is not a finite lowest and a larger highest reward.")
    with relations(run, first, last) as connection:
        gamma = _default_gamma(connection, run) if gamma is None else gamma
        reading = (
            filled("drift/certificate_tokens", log_gamma=repr(log(gamma)))
            if gamma
            else query("drift/certificate_responses")
        )
        connection.execute(reading)
        groups = connection.execute(query("drift/certificate_groups")).df()
        largest = connection.execute("select max(n) from (select count(*) n from action group by step)").fetchall()
        kept = kept_size(largest[0][0] or 0)
        steps = connection.execute(filled("drift/certificate_steps", kept=str(kept))).df().set_index("step")
    by_step = dict(list(groups.groupby("step")))
    rows = {int(step): _row(by_step[step], steps.loc[step], gamma, reward_range) for step in by_step}
    listed = run.read("steps", ["step"])["step"]
    inside = listed.between(first if first is not None else 0, last if last is not None else inf)
    empty = {int(step): {"note": "no token of this step is on disk", "mark": ""} for step in listed[inside]}
    terms = pd.DataFrame.from_dict({**empty, **rows}, orient="index", columns=_COLUMNS).sort_index()
    return Certificate(gamma, terms.rename_axis("step"))


# Rewards are stored as float32: 0.1 comes back a little above the range's own 0.1.
_REWARD_ROUNDING = 1e-6
_COLUMNS = [
    *(f"{key}{end}" for key in WITH_INTERVAL for end in ("", "_low", "_high")),
    *("c1", "c2", "advantage_bound", "lower_estimate", "largest_gap"),
    *("finite_horizon_penalty", "discounted_penalty", "delta_max", "longest"),
    *("n_responses", "n_counted", "n_groups", "mark", "note"),
]


def _default_gamma(connection: duckdb.DuckDBPyConnection, run: Run) -> float:
    length = connection.execute("select avg(n_tokens) from sequence where n_tokens > 0").fetchall()[0][0]
    if length is None:
        raise RatioscopeError(f"{run.folder}: no response in these steps, so there is no length to take gamma from.")
    return 1 - 1 / float(length)


def _row(
    groups: pd.DataFrame, step: "pd.Series[Any]", gamma: float, reward_range: tuple[float, float] | None
) -> dict[str, Any]:
    """One step, from the sums of its groups and its tails."""
    lowest, highest = groups["lowest_reward"].min(), groups["highest_reward"].max()
    advantage_bound = groups["largest_advantage"].max()
    notes = _notes(groups.filter(regex="^n").sum(), step, gamma)
    if reward_range is not None:
        rounding = _REWARD_ROUNDING * max(map(abs, reward_range))
        if lowest < reward_range[0] - rounding or highest > reward_range[1] + rounding:
            raise RatioscopeError(
                f"The rewards of step {groups['step'].iloc[0]} go from {lowest:g} to {highest:g}, outside of the range "
                f"{reward_range[0]:g} to {reward_range[1]:g}; give a range that holds every reward."
            )
        lowest, highest = reward_range
        advantage_bound = highest - lowest
    elif advantage_bound == 0:
        advantage_bound = np.nan
        notes.append("all advantages are 0, so the largest possible one cannot be estimated: give the reward range")
    largest_gap = highest - lowest
    c1, c2 = factors(advantage_bound, gamma)
    sums = _group_sums(groups[groups["n"] > 0], c1, c2, gamma)
    n = groups["n"][groups["n"] > 0].to_numpy(dtype=float)
    values = {key: float(terms.sum() / n.sum()) if len(n) else np.nan for key, terms in sums.items()}
    if np.isinf(list(values.values())).any():
        notes.append("a ratio is beyond the floating-point range")
    unreliable = _unreliable(step)
    notes += sorted({note.text for note in unreliable.values()})
    intervals: dict[str, float] = {}
    for key, terms in sums.items():
        interval = NO_INTERVAL if key in unreliable else cluster_interval(terms, n)
        intervals |= {f"{key}_low": interval.low, f"{key}_high": interval.high}
    penalty = np.nansum([values["update_penalty"], values["staleness_penalty"]])
    return {
        **values,
        **intervals,
        "c1": c1,
        "c2": c2,
        "advantage_bound": advantage_bound,
        "lower_estimate": reward_range is None,
        "largest_gap": largest_gap,
        "finite_horizon_penalty": finite_horizon_penalty(advantage_bound, step["longest"], step["delta_max"]),
        "discounted_penalty": discounted_penalty(advantage_bound, gamma, step["delta_max"]),
        "delta_max": step["delta_max"],
        "longest": step["longest"],
        "n_responses": groups["n_responses"].sum(),
        "n_counted": n.sum(),
        "n_groups": len(n),
        "mark": "vacuous" if penalty > largest_gap else "negative" if values["improvement_bound"] < 0 else "",
        "note": "; ".join(notes),
    }


def _group_sums(groups: pd.DataFrame, c1: float, c2: float, gamma: float) -> dict[str, Array]:
    """Every term summed over the responses of a group, (n_groups,); NaN where its columns are not logged."""
    surrogate, drift, staleness = (groups[name].to_numpy(dtype=float) for name in ("surrogate", "drift", "staleness"))
    drift, staleness = (1 - gamma) * drift, (1 - gamma) * staleness
    with np.errstate(invalid="ignore"):  # infinities that cancel: undefined
        update_penalty = c1 * np.where(np.isinf(drift) & (c1 == 0), 0, drift)  # in the bandit reading U drops out
        staleness_penalty = c2 * staleness
        bound = surrogate - update_penalty - staleness_penalty
    return dict(
        zip(WITH_INTERVAL, (surrogate, drift, staleness, update_penalty, staleness_penalty, bound), strict=True)
    )


def _unreliable(step: "pd.Series[Any]") -> dict[str, Note]:
    """Terms whose mean cannot be trusted because of a tail, and the sentence that says so."""
    n = 0 if pd.isna(step["n_actions"]) else int(step["n_actions"])  # no usable token
    found = {}
    for name, column, policy in (("khat_token", "top", "current"), ("khat_token_new", "top_new", "new")):
        top = step[column]
        if not isinstance(top, np.ndarray):  # not logged, or no usable token, which is noted already
            continue
        khat, why_not = pareto_khat(np.asarray(top, dtype=float), n)
        found[name] = doubt(f"k-hat of the {policy} policy's ratios", khat, Moment.FIRST, n, why_not)
    return {
        metric.key: note
        for metric in theory.ENTRIES
        if metric.key in WITH_INTERVAL
        for name in metric.khat
        if (note := found.get(name))
    }


_LEFT_OUT = {
    "n_invalid": "with an unusable token",
    "n_no_reward": "without a finite reward",
    "n_no_new": "without logp_new",
    "n_alone": "alone in their group, so without a baseline,",
}


def _notes(n: "pd.Series[Any]", step: "pd.Series[Any]", gamma: float) -> list[str]:
    """What was left out of a step and what is missing or biased in it; `n` are its counts of responses."""
    notes = [f"{n[name]:.0f} responses {why} left out" for name, why in _LEFT_OUT.items() if n[name]]
    if n["n"] == 0:
        notes.append("no response can be used")
    elif n["n_new"] == 0:
        notes.append(f"{NEW.missing}: no surrogate and no update drift")
    elif n["n_baseline"] == 0:
        notes.append("no group has a second response: no baseline, so no advantage")
    if n["n_shortened"]:
        notes.append(
            f"{n['n_shortened']:.0f} responses lack tokens that the loss dropped: their distances are underestimated"
        )
    if n["n_mixed"] and gamma > 0:
        notes.append(
            f"biased: {n['n_mixed']:.0f} responses come from several versions, the advantage assumes one (S0 6.3)"
        )
    if pd.isna(step["delta_max"]):
        notes.append(f"largest distance of a state: {EXACT.missing}")
    return notes
