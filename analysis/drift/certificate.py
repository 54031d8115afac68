"""The policy-improvement certificate: what theory promises of every update, from what was logged (S0 Corollary 3.2).

found = certificate(run, first=10, last=20, gamma=0.9, reward_range=(0, 1))
found.terms["improvement_bound"], found.terms["improvement_bound_low"]    # indexed by step
found.terms["mark"], found.terms["note"]                                  # "vacuous", "above 0"; what to know of it

J(pi_{k+1}) - J(pi_k) >= L - C1 U - C2 S, with C1 = 2 gamma C / (1 - gamma)^2, C2 = C1 + 2 |A| / (1 - gamma), C <= |A|.
The expectations are over the discounted occupancy of the sampler, so every term is a mean over responses of a sum over
positions t. The advantage is the reward minus the mean of the group's other responses, so the return that is bounded
is this one: the policy writes a response until, with probability 1 - gamma after every token, the sampler's policy
takes over and completes it. With gamma = 0 a whole response is one action (bandit reading).

L is taken of rho - 1 in place of rho: the same expectation, because the advantage has mean 0 under the sampler. In the
sample it has not where lengths differ, and an update that changes nothing would be promised a gain.

A gain that is measured on the responses that the update was fitted to is in-sample: with rewards by the flip of a
coin it is above 0 in every step. It is a description of the update, and promises nothing.
"""

from dataclasses import dataclass
from math import inf, log, nan
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from ratioscope.analysis.drift.bounds import (
    coupled_penalty,
    cpi_step,
    discounted_penalty,
    factors,
    finite_horizon_penalty,
    mean_distance_penalty,
)
from ratioscope.analysis.findings.logged import Logged, logged
from ratioscope.analysis.runs.database import filled, query
from ratioscope.analysis.runs.relations import may_hold_out, relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.intervals import cluster_interval
from ratioscope.catalogue.denominators import EXACT, NEW
from ratioscope.errors import RatioscopeError
from ratioscope.metric import HARMLESS_RATIO, doubt
from ratioscope.notes import Note
from ratioscope.tails import Array

WITH_INTERVAL = (
    *("surrogate", "drift_discounted", "staleness_discounted"),
    *("update_penalty", "staleness_penalty", "improvement_bound"),
    *("surrogate_whole", "whole_bound", "gain"),
)
VACUOUS, ABOVE = "vacuous", "above 0"
"""Marks of a bound: the penalties exceed the largest possible difference of returns; its interval lies above 0."""


@dataclass(frozen=True)
class Certificate:
    """The terms of every step, for one discount."""

    gamma: float
    terms: pd.DataFrame
    """Indexed by step. The keys of WITH_INTERVAL in units of reward (distances: none), each with <key>_low and
    <key>_high (95 %, cluster-robust over prompt groups, for a given |A|); gain_doubted: whether ratios of
    responses that were not drawn could change the gain, because it rests on its largest term; c1, c2,
    advantage_bound and whether that is a lower_estimate; largest_gap, finite_horizon_penalty, discounted_penalty,
    mean_distance_penalty, coupled_penalty, largest_distance (the largest of new policy and sampler in a visited
    state, at most), distance (their mean), longest and length (the mean) of the responses; cpi_step; n_responses,
    n_counted, n_groups; mark (VACUOUS, ABOVE or "") and note. Undefined is NaN, and the note says why."""
    held_out: bool = False
    """Whether they are of prompt groups that their update did not see: of others, nothing is certified."""


def certificate(
    run: Run,
    first: int | None = None,
    last: int | None = None,
    *,
    gamma: float | None = None,
    reward_range: tuple[float, float] | None = None,
    held_out: bool = False,
) -> Certificate:
    """The certificate of the steps first..last, both included.

    Args:
        gamma: discount in [0, 1); None: 1 - 1 / mean response length.
        reward_range: lowest and highest reward there can be; its width bounds |A|. Without it the largest advantage
            of the step's sample stands for |A|, a lower estimate; of held-out responses, the range of all rewards.
        held_out: of the prompt groups that their update did not see (`schema.HELD_OUT`), and of the steps that have
            some. Only this one is a promise.

    Raises:
        RatioscopeError: gamma or the range is impossible, a reward lies outside of it, or there is no response.
    """
    if gamma is not None and not 0 <= gamma < 1:
        raise RatioscopeError(f"gamma is {gamma:g}; a certificate needs a discount of at least 0 and less than 1.")
    if reward_range is not None and not -inf < reward_range[0] < reward_range[1] < inf:
        raise RatioscopeError(f"The reward range {reward_range} is not a finite lowest and a larger highest reward.")
    listed = run.read("steps", ["step"])["step"] if not held_out else pd.Series(dtype=int)
    inside = listed.between(first if first is not None else 0, last if last is not None else inf)
    if why := _why_none(logged(run)):
        without = {int(step): {"note": why, "mark": ""} for step in listed[inside]}
        return Certificate(nan if gamma is None else gamma, _terms(without), held_out)
    with relations(run, first, last, held_out=held_out) as connection:
        gamma = _default_gamma(connection, run) if gamma is None else gamma
        reading = (
            filled("drift/certificate_tokens", log_gamma=repr(log(gamma)))
            if gamma
            else query("drift/certificate_responses")
        )
        connection.execute(reading)
        connection.execute(query("drift/certificate_whole"))
        groups = connection.execute(query("drift/certificate_groups")).df()
        steps = connection.execute(query("drift/certificate_steps")).df().set_index("step")
    by_step = dict(list(groups.groupby("step")))
    seen = _rewards_seen(run) if held_out and reward_range is None else None
    rows = {int(step): _row(by_step[step], steps.loc[step], gamma, reward_range or seen) for step in by_step}
    if seen:
        rows = {step: row | {"lower_estimate": True} for step, row in rows.items()}
    empty = {int(step): {"note": "no token of this step is on disk", "mark": ""} for step in listed[inside]}
    return Certificate(gamma, _terms({**empty, **rows}), held_out)


def _terms(rows: dict[int, Any]) -> pd.DataFrame:
    return pd.DataFrame.from_dict(rows, orient="index", columns=_COLUMNS).sort_index().rename_axis("step")


def _why_none(log: Logged) -> str:
    """What is not logged so that not one term can be computed, a clause; without the new policy some of them can."""
    absent = [need for need in log.needs_of("certificate") if need != NEW.columns]
    return log.why(*absent[0]) if absent else ""


def has_held_out(run: Run, first: int | None = None, last: int | None = None) -> bool:
    """Whether there are responses of prompt groups that their update did not see."""
    if not any(map(may_hold_out, run.files["sequences"])):
        return False
    with relations(run, first, last, held_out=True) as connection:
        return bool(connection.execute("select count(*) from token").fetchall()[0][0])


def _rewards_seen(run: Run) -> tuple[float, float] | None:
    """Lowest and highest reward of the run; None where they do not differ."""
    reward = run.read("sequences", ["reward"])["reward"].astype(float)
    reward = reward[np.isfinite(reward)]
    return (float(reward.min()), float(reward.max())) if reward.nunique() > 1 else None


# Rewards are stored as float32: 0.1 comes back a little above the range's own 0.1.
_REWARD_ROUNDING = 1e-6
_COLUMNS = [
    *(f"{key}{end}" for key in WITH_INTERVAL for end in ("", "_low", "_high")),
    *("c1", "c2", "advantage_bound", "lower_estimate", "largest_gap", "gain_doubted"),
    *(
        "finite_horizon_penalty",
        "discounted_penalty",
        "mean_distance_penalty",
        "coupled_penalty",
        "largest_distance",
        "longest",
        "length",
        "distance",
    ),
    *("cpi_step", "n_responses", "n_counted", "n_groups", "mark", "note"),
]


def _default_gamma(connection: duckdb.DuckDBPyConnection, run: Run) -> float:
    length = connection.execute("select avg(n_tokens) from sequence where n_tokens > 0").fetchall()[0][0]
    if length is None:
        raise RatioscopeError(f"{run.folder}: no response in these steps, so there is no length to take gamma from.")
    return 1 - 1 / float(length)


def _row(
    groups: pd.DataFrame, step: "pd.Series[Any]", gamma: float, reward_range: tuple[float, float] | None
) -> dict[str, Any]:
    """One step, from the sums of its groups."""
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
    sums = _group_sums(groups[groups["n"] > 0], advantage_bound, gamma)
    n = groups["n"][groups["n"] > 0].to_numpy(dtype=float)
    values = {key: float(terms.sum() / n.sum()) if len(n) else np.nan for key, terms in sums.items()}
    if np.isinf(list(values.values())).any():
        notes.append("a ratio is beyond the floating-point range")
    doubted = _doubt(groups)
    notes += [doubted.text] if doubted else []
    intervals: dict[str, float] = {}
    for key, terms in sums.items():
        interval = cluster_interval(terms, n)
        intervals |= {f"{key}_low": interval.low, f"{key}_high": interval.high}
    penalty = np.nansum([values["update_penalty"], values["staleness_penalty"]])
    above = intervals["improvement_bound_low"] > 0
    return {
        **values,
        **intervals,
        "c1": c1,
        "c2": c2,
        "advantage_bound": advantage_bound,
        "lower_estimate": reward_range is None,
        "gain_doubted": doubted is not None,
        "largest_gap": largest_gap,
        "finite_horizon_penalty": finite_horizon_penalty(advantage_bound, step["longest"], step["largest_distance"]),
        "discounted_penalty": discounted_penalty(advantage_bound, gamma, step["largest_distance"]),
        **_penalties_by_position(step, advantage_bound),
        "largest_distance": step["largest_distance"],
        "longest": step["longest"],
        "length": step["length"],
        "distance": step["distance"],
        "cpi_step": cpi_step(values["surrogate"], advantage_bound, gamma),
        "n_responses": groups["n_responses"].sum(),
        "n_counted": n.sum(),
        "n_groups": len(n),
        "mark": VACUOUS if penalty > largest_gap else ABOVE if above else "",
        "note": "; ".join(notes),
    }


def _group_sums(groups: pd.DataFrame, advantage_bound: float, gamma: float) -> dict[str, Array]:
    """Every term summed over the responses of a group, (n_groups,); NaN where its columns are not logged."""
    names = ("surrogate", "drift", "staleness", "surrogate_whole", "reach", "gain")
    surrogate, drift, staleness, surrogate_whole, reach, gain = (groups[name].to_numpy(dtype=float) for name in names)
    drift, staleness = (1 - gamma) * drift, (1 - gamma) * staleness
    c1, c2 = factors(advantage_bound, gamma)
    with np.errstate(invalid="ignore"):  # infinities that cancel: undefined
        update_penalty = c1 * np.where(np.isinf(drift) & (c1 == 0), 0, drift)  # in the bandit reading U drops out
        staleness_penalty = c2 * staleness
        bound = surrogate - update_penalty - staleness_penalty
        whole_bound = surrogate_whole - 2 * advantage_bound * reach
    terms = (surrogate, drift, staleness, update_penalty, staleness_penalty, bound, surrogate_whole, whole_bound, gain)
    return dict(zip(WITH_INTERVAL, terms, strict=True))


def _penalties_by_position(step: "pd.Series[Any]", advantage_bound: float) -> dict[str, float]:
    moved = step["moved"]
    if not isinstance(moved, np.ndarray):  # no token with logp_new
        return {}
    distances = np.asarray(moved, dtype=float) / step["n_moved"]
    return {
        "mean_distance_penalty": mean_distance_penalty(advantage_bound, distances),
        "coupled_penalty": coupled_penalty(advantage_bound, distances, step["largest_distance"]),
    }


def _doubt(groups: pd.DataFrame) -> Note | None:
    """Why the gain of whole responses cannot be trusted: it rests on the largest of its terms."""
    if not groups["log_largest"].max() > log(HARMLESS_RATIO):
        return None
    with np.errstate(invalid="ignore"):  # infinite terms: no standard error
        reliance = groups["largest_gain"].max() / np.sqrt(groups["squared_gain"].sum())
    return doubt(float(reliance), "term of the gain") if groups["largest_gain"].max() > 0 else None


_LEFT_OUT = {
    "n_invalid": "with a token without a usable ratio",
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
        notes.append(f"biased: {n['n_mixed']:.0f} responses come from several versions, the advantage assumes one")
    if pd.isna(step["largest_distance"]):
        notes.append(f"largest distance of a state: {EXACT.missing}")
    return notes
