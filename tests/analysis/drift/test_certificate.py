"""The improvement certificate: sampled logs against enumeration of small decision problems, bad logs, its parts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ratioscope.analysis.drift.bounds import (
    cpi_step,
    discounted_penalty,
    factors,
    finite_horizon_penalty,
    mean_distance_penalty,
    trust_region_exponent,
)
from ratioscope.analysis.drift.certificate import ABOVE, VACUOUS, WITH_INTERVAL, Certificate, certificate
from ratioscope.analysis.runs.store import open_run
from ratioscope.catalogue import theory
from ratioscope.errors import RatioscopeError
from tests.making.runs import Step, plain_step, write_run
from tests.making.samples import run_of
from tests.oracles.decision_process import (
    ACTIONS,
    FINAL,
    LONGEST,
    OPEN,
    Exact,
    Policy,
    State,
    completed,
    exact_terms,
    improvement_bound,
    is_final,
    random_policy,
    reach,
    tv,
)


def sampled_step(
    rng: np.random.Generator, rewards: Mapping[State, float], versions: list[Policy], current: Policy, new: Policy,
    groups: int, responses: int,
) -> Step:  # fmt: skip
    """Responses drawn from the versions in equal parts, whole responses each (trajectory-level mixing)."""
    rows: dict[str, list[float]] = {name: [] for name in ("b", "c", "n", "sequence", "version")}
    reward = []
    for sequence in range(groups * responses):
        version = int(rng.integers(len(versions)))
        state: State = ()
        while not is_final(state):
            action = int(rng.choice(ACTIONS, p=versions[version][state]))
            policies = (versions[version], current, new)
            for name, policy in zip("bcn", policies, strict=True):
                rows[name].append(np.log(policy[state][action]))
            rows["sequence"].append(sequence)
            rows["version"].append(version)
            state = (*state, action)
        reward.append(rewards[state])
    sequence_ids = np.array(rows["sequence"], dtype=int)
    step = plain_step(
        rows["b"], rows["c"], rows["n"], sequence=sequence_ids, group=sequence_ids // responses,
        behavior_version=np.array(rows["version"], dtype=np.int32), number=3,
    )  # fmt: skip
    step.sequences["reward"] = np.array(reward, dtype=np.float32)
    return step


def bandit_terms(rewards: Mapping[State, float], versions: list[Policy], current: Policy, new: Policy) -> Exact:
    """The responses themselves as the actions of one state."""
    probability = {id(policy): np.array([reach(policy, s) for s in FINAL]) for policy in (*versions, current, new)}
    reward = np.array([rewards[state] for state in FINAL])
    p, q = probability[id(new)], probability[id(current)]
    b = [probability[id(version)] for version in versions]
    staleness = float(np.mean([np.abs(q - i).sum() / 2 for i in b]))
    surrogate = float(np.mean([(p - i) @ reward for i in b]))
    return Exact(surrogate, float(np.abs(p - q).sum() / 2), staleness, float((p - q) @ reward), 1.0)


@pytest.mark.parametrize("gamma", [0.0, 0.7])
def test_the_estimates_converge_to_the_exact_terms(gamma: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    current = random_policy(rng)
    versions, new = [random_policy(rng, current, 0.4) for _ in range(30)], random_policy(rng, current, 0.4)
    rewards = {state: float(np.float32(rng.uniform())) for state in FINAL}
    run = open_run(write_run(tmp_path / "run", [sampled_step(rng, rewards, versions, current, new, 1_500, 4)]))
    row = certificate(run, gamma=gamma, reward_range=(0, 1)).terms.loc[3]
    if gamma:
        exact = exact_terms([completed(rewards, version, gamma) for version in versions], versions, current, new)
    else:
        exact = bandit_terms(rewards, versions, current, new)
    c1, c2 = factors(1, gamma)
    whole = bandit_terms(rewards, versions, current, new)
    undiscounted = exact_terms([completed(rewards, version, 1.0) for version in versions], versions, current, new)
    bound = improvement_bound(exact.surrogate, exact.drift, exact.staleness, 1, gamma)
    distances = [
        np.mean([sum(reach(i, s) * tv(new, i, s) for s in OPEN if len(s) == t) for i in versions])
        for t in range(LONGEST)
    ]
    expected = (
        exact.surrogate, exact.drift, exact.staleness, c1 * exact.drift, c2 * exact.staleness, bound,
        undiscounted.surrogate, undiscounted.surrogate - 2 * (2 * distances[0] + distances[1]), whole.gain,
    )  # fmt: skip
    assert bound <= exact.gain
    assert row["mean_distance_penalty"] == pytest.approx(mean_distance_penalty(1, np.array(distances)), rel=0.03)
    for key, truth in zip(WITH_INTERVAL, expected, strict=True):
        error = (row[f"{key}_high"] - row[f"{key}_low"]) / 2 / stats.t.ppf(0.975, 1_499)
        assert abs(row[key] - truth) <= 4 * error, key
        assert error < 0.03 * max(c2, 1) or truth == 0
    assert (row["n_responses"], row["n_counted"], row["n_groups"]) == (6_000, 6_000, 1_500)


LENGTHS = (1, 3, 2, 4, 2, 2)


def small_step(**columns: Any) -> Step:
    """Two groups of three responses of different lengths."""
    rng = np.random.default_rng(4)
    sequence = np.repeat(np.arange(6), LENGTHS)
    b = -rng.exponential(1, len(sequence)) - 0.1
    c, n = (np.minimum(b + 0.3 * rng.standard_normal(len(b)), 0) for _ in range(2))
    step = plain_step(b, c, n, sequence=sequence, group=sequence // 3, **columns)
    step.sequences["reward"] = np.array([1, 0, 0.5, 0, 0, 1], dtype=np.float32)
    return step


def certified(folder: Path, step: Step, gamma: float | None = 0.6, **arguments: Any) -> Certificate:
    return certificate(open_run(write_run(folder, [step])), gamma=gamma, **arguments)


def by_hand(step: Step, gamma: float) -> dict[str, float]:
    """The terms of `small_step` in loops over responses."""
    t = {name: np.asarray(values, dtype=float) for name, values in step.tokens.items()}
    reward = np.asarray(step.sequences["reward"], dtype=float)
    surrogate, drift, staleness, whole, reach, gain, largest = [], [], [], [], [], [], 0.0
    for i in range(6):
        rows = t["seq_id"] == i
        b, c, n = (t[name][rows] for name in ("logp_behavior", "logp_current", "logp_new"))
        rho, rho_new, weight = np.exp(c - b), np.exp(n - b), gamma ** np.arange(len(b))
        others = [j for j in range(6) if j // 3 == i // 3 and j != i]
        advantage = reward[i] - reward[others].mean()
        whole.append((rho_new - 1).sum() * advantage)
        reach.append((np.maximum(1 - rho_new, 0) * (3 - np.arange(len(b)))).sum())
        gain.append((np.exp((n - b).sum()) - np.exp((c - b).sum())) * advantage)
        if gamma == 0:
            rho, rho_new, weight = np.exp([(c - b).sum()]), np.exp([(n - b).sum()]), np.ones(1)
        surrogate.append((weight * (rho_new - 1)).sum() * advantage)
        drift.append((1 - gamma) * (weight * np.maximum(rho - rho_new, 0)).sum())
        staleness.append((1 - gamma) * (weight * np.maximum(1 - rho, 0)).sum())
        largest = max(largest, abs(advantage))
    means = {
        "surrogate": float(np.mean(surrogate)),
        "drift_discounted": float(np.mean(drift)),
        "staleness_discounted": float(np.mean(staleness)),
    }
    bound = improvement_bound(*means.values(), largest, gamma)
    return means | {
        "improvement_bound": bound,
        "surrogate_whole": float(np.mean(whole)),
        "whole_bound": float(np.mean(whole) - 2 * largest * np.mean(reach)),
        "gain": float(np.mean(gain)),
    }


@pytest.mark.parametrize("gamma", [0.0, 0.3, 0.999])
def test_every_term_is_what_loops_over_the_responses_find(gamma: float, tmp_path: Path) -> None:
    step = small_step()
    row = certified(tmp_path / "run", step, gamma).terms.loc[0]
    for key, value in by_hand(step, gamma).items():
        assert row[key] == pytest.approx(value, rel=1e-9, abs=1e-12)
    c1, c2 = factors(row["advantage_bound"], gamma)
    assert (row["c1"], row["c2"]) == (c1, c2)
    assert row["improvement_bound"] == pytest.approx(
        row["surrogate"] - row["update_penalty"] - row["staleness_penalty"], abs=1e-12
    )


def test_gamma_0_reads_the_response_as_one_action(tmp_path: Path) -> None:
    """L = mean W A (all advantages of a group add up to 0), U drops out, C2 = 2 |A|; responses of one token agree."""
    step = small_step()
    row = certified(tmp_path / "whole", step, 0.0).terms.loc[0]
    log_w = [
        (step.tokens["logp_new"] - step.tokens["logp_behavior"]).astype(float)[step.tokens["seq_id"] == i].sum()
        for i in range(6)
    ]
    advantage = np.array([0.75, -0.75, 0, -0.5, -0.5, 1])
    assert row["surrogate"] == pytest.approx((np.exp(log_w) * advantage).mean(), rel=1e-6)
    assert (row["c1"], row["c2"], row["update_penalty"]) == (0, 2 * row["advantage_bound"], 0)
    one = plain_step(step.tokens["logp_behavior"][:4], step.tokens["logp_current"][:4], step.tokens["logp_new"][:4],
                     group=[0, 0, 1, 1])  # fmt: skip
    one.sequences["reward"] = np.array([0, 1, 0.5, 0], dtype=np.float32)
    bandit, token = (certified(tmp_path / str(g), one, g).terms.loc[0] for g in (0.0, 1e-300))
    for key in WITH_INTERVAL:
        assert bandit[key] == pytest.approx(token[key], rel=1e-9, abs=1e-12)


def test_an_update_that_changes_nothing_is_promised_nothing_even_where_long_answers_are_the_right_ones(
    tmp_path: Path,
) -> None:
    step = plain_step(*[np.full(6, -1.0)] * 3, sequence=[0, 1, 1, 1, 1, 1], group=[0] * 6)
    step.sequences["reward"] = np.array([0, 1], dtype=np.float32)
    row = certified(tmp_path / "run", step).terms.loc[0]
    assert [row[key] for key in WITH_INTERVAL] == [0] * len(WITH_INTERVAL)
    assert row["mark"] == ""


def test_gamma_comes_from_the_mean_length_and_the_reward_range_bounds_the_advantage(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", [small_step()]))
    default = certificate(run)
    assert default.gamma == pytest.approx(1 - 6 / sum(LENGTHS))
    row = default.terms.loc[0]
    assert (row["advantage_bound"], row["lower_estimate"], row["largest_gap"]) == (1, True, 1)
    row = certificate(run, reward_range=(-1, 3)).terms.loc[0]
    assert (row["advantage_bound"], row["lower_estimate"], row["largest_gap"]) == (4, False, 4)


@pytest.mark.parametrize("arguments", [{"gamma": 1.0}, {"gamma": -0.1}, {"reward_range": (1, 0)},
                                       {"reward_range": (0, 0.5)}, {"reward_range": (0, float("inf"))},
                                       {"first": 7}])  # fmt: skip
def test_impossible_wishes_are_refused_in_a_sentence(arguments: dict[str, Any], tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", [small_step()]))
    with pytest.raises(RatioscopeError, match=r"\.$"):
        certificate(run, **arguments)


def test_a_reward_may_lie_on_the_edge_of_its_range_whatever_float32_makes_of_it(tmp_path: Path) -> None:
    row = certified(tmp_path / "run", with_rewards(0.1, 0, 0, 0, 0, 0), reward_range=(0, 0.1)).terms.loc[0]
    assert row["advantage_bound"] == 0.1


def without(step: Step, *names: str) -> Step:
    return step.with_tokens(**dict.fromkeys(names))


def with_rewards(*rewards: float) -> Step:
    step = small_step()
    step.sequences["reward"] = np.array(rewards, dtype=np.float32)
    return step


def alone() -> Step:
    step = small_step()
    step.sequences["group_id"] = np.array([0, 0, 0, 1, 2, 3])
    return step.with_tokens(group_id=np.maximum(step.tokens["seq_id"] - 2, 0))


WHOLE = ("surrogate_whole", "whole_bound", "gain")
NEW = ("surrogate", "drift_discounted", "update_penalty", "improvement_bound", *WHOLE)
# Logs that lack something: what is missing for it, what the note says, how many responses still count.
INCOMPLETE: dict[str, tuple[Step, tuple[str, ...], str, int]] = {
    "logp_new": (without(small_step(), "logp_new"), NEW, "logp_new is not logged", 6),
    "reward": (with_rewards(1, 0, np.nan, 0, 0, 1), (), "1 responses without a finite reward left out", 5),
    "token": (
        small_step().with_tokens(logp_current=np.where(np.arange(14) == 2, np.nan, -1).astype(np.float32)),
        (), "1 responses with a token without a usable ratio left out", 5,
    ),
    "baseline": (alone(), (), "3 responses alone in their group", 3),
    "signal": (
        with_rewards(1, 1, 1, 0, 0, 0), ("update_penalty", "staleness_penalty", "improvement_bound", "whole_bound"),
        "give the reward range", 6,
    ),
    "everything": (with_rewards(*[np.nan] * 6), WITH_INTERVAL, "no response can be used", 0),
    "mixing": (
        small_step(behavior_version=(np.arange(14) % 2).astype(np.int32)), (), "come from several versions", 6,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", INCOMPLETE)
def test_what_is_missing_is_undefined_with_a_reason_and_nothing_else(name: str, tmp_path: Path) -> None:
    step, missing, note, counted = INCOMPLETE[name]
    row = certified(tmp_path / "run", step).terms.loc[0]
    assert {key for key in WITH_INTERVAL if np.isnan(row[key])} == set(missing)
    assert note in row["note"] and row["n_counted"] == counted and row["n_responses"] == 6


def test_a_group_of_one_everywhere_leaves_the_distances(tmp_path: Path) -> None:
    step = plain_step([-1.0, -1.0], [-1.1, -0.9], [-1.2, -0.9])
    row = certified(tmp_path / "run", step).terms.loc[0]
    assert "no baseline, so no advantage" in row["note"]
    assert row["drift_discounted"] > 0 and row["staleness_discounted"] > 0
    assert np.isnan(row["surrogate"]) and np.isnan(row["improvement_bound"])


def test_mixing_is_no_bias_where_the_response_is_one_action(tmp_path: Path) -> None:
    step = INCOMPLETE["mixing"][0]
    assert "several versions" not in certified(tmp_path / "run", step, 0.0).terms.loc[0, "note"]


@pytest.mark.parametrize("gamma", [0.0, 0.6])
@pytest.mark.parametrize("nats", [-1_000.0, 1_000.0, -np.inf])
def test_ratios_beyond_the_floating_point_range_are_no_accident(nats: float, gamma: float, tmp_path: Path) -> None:
    step = small_step()
    values = {name: step.tokens[name].copy() for name in ("logp_behavior", "logp_new")}
    if nats > 0:
        values["logp_behavior"][3] = -1_001
    else:
        values["logp_new"][3] = nats
    row = certified(tmp_path / "run", step.with_tokens(**values), gamma).terms.loc[0]
    if nats > 0:
        assert "floating-point range" in row["note"] and row["mark"] != ABOVE
        assert np.isnan(row["improvement_bound_low"])
    else:
        assert np.isfinite([row[key] for key in WITH_INTERVAL]).all()


def test_a_late_token_has_its_discount_before_it_leaves_log_space(tmp_path: Path) -> None:
    """e^800 at position 1,999, with gamma e^-1: 0 in the limit, not infinity times 0."""
    b, n = np.full(4_000, -1.0), np.full(4_000, -1.0)
    c = b.copy()
    b[1_999], n[1_999] = -801, -2
    step = plain_step(b, c, n, sequence=np.repeat([0, 1], 2_000), group=np.zeros(4_000))
    step.sequences["reward"] = np.array([0, 1], dtype=np.float32)
    row = certified(tmp_path / "run", step, np.exp(-1)).terms.loc[0]
    assert 0 <= row["drift_discounted"] < 1e-300


def test_marks_and_doubts(tmp_path: Path) -> None:
    step = small_step()
    assert certified(tmp_path / "vacuous", step, 0.9).terms.loc[0, "mark"] == VACUOUS
    many = np.arange(400)
    behavior, good = np.full(400, -1.0), many % 2 == 0
    towards = plain_step(behavior, behavior, behavior + np.where(good, 0.1, -0.1), group=many // 4)
    towards.sequences["reward"] = good.astype(np.float32)
    row = certified(tmp_path / "above", towards, 0.0).terms.loc[0]
    assert row["mark"] == ABOVE and 0 < row["improvement_bound_low"] <= row["improvement_bound"]
    towards.sequences["reward"] = (good ^ (many // 4 % 20 >= 11)).astype(np.float32)  # the wrong way in 9 of 20 groups
    row = certified(tmp_path / "unsure", towards, 0.0).terms.loc[0]
    assert row["mark"] == "" and row["improvement_bound"] > 0 > row["improvement_bound_low"]
    rng = np.random.default_rng(5)
    heavy = 4 * np.log(rng.uniform(size=2_000))
    tail = plain_step(heavy - 10, np.full(2_000, -10.0), np.full(2_000, -9.9), group=np.arange(2_000) // 4)
    tail.sequences["reward"] = rng.integers(0, 2, 2_000).astype(np.float32)
    row = certified(tmp_path / "heavy", tail).terms.loc[0]
    assert "the largest term of the gain alone moves it by" in row["note"] and row["gain_doubted"]
    assert np.isfinite([row[f"{key}_low"] for key in WITH_INTERVAL]).all()


def test_the_penalties_of_trpo_take_the_distance_of_the_new_policy_from_the_sampler(tmp_path: Path) -> None:
    """On-policy TV(current, sampler) is 0 everywhere, and the surrogate can be wrong all the same."""
    step = small_step(tv_current_behavior=np.zeros(14), tv_new_current=np.linspace(0, 0.3, 14))
    row = certified(tmp_path / "fresh", step).terms.loc[0]
    assert row["largest_distance"] == pytest.approx(0.3)
    assert row["finite_horizon_penalty"] == pytest.approx(finite_horizon_penalty(1, 4, 0.3))
    assert row["discounted_penalty"] == pytest.approx(discounted_penalty(1, 0.6, 0.3))
    stale = step.with_tokens(tv_current_behavior=np.linspace(0.9, 0.0, 14))
    assert certified(tmp_path / "stale", stale).terms.loc[0, "largest_distance"] == pytest.approx(0.9)  # of one state
    row = certified(tmp_path / "half", without(step, "tv_new_current")).terms.loc[0]
    assert np.isnan([row["largest_distance"], row["finite_horizon_penalty"], row["discounted_penalty"]]).all()


def test_the_sum_of_terms_of_every_sample_step_is_its_bound_and_a_range_of_steps_is_a_part(tmp_path: Path) -> None:
    run = run_of("sync_interval5_mixture4-adaptive_clip-seed0")
    whole = certificate(run, reward_range=(0, 1))
    assert len(whole.terms) == 150 and whole.terms["largest_distance"].notna().all()
    found = whole.terms["surrogate"] - whole.terms["update_penalty"] - whole.terms["staleness_penalty"]
    np.testing.assert_allclose(whole.terms["improvement_bound"], found, atol=1e-12)
    for penalty, name in (
        (finite_horizon_penalty, "finite_horizon_penalty"),
        (discounted_penalty, "discounted_penalty"),
    ):
        row = whole.terms.loc[9]
        second = row["longest"] if penalty is finite_horizon_penalty else whole.gamma
        assert row[name] == pytest.approx(penalty(1, second, row["largest_distance"]))
    part = certificate(run, 10, 20, gamma=whole.gamma, reward_range=(0, 1)).terms
    pd.testing.assert_frame_equal(part, whole.terms.loc[10:20], check_dtype=False)


def test_the_cpi_step_maximises_its_bound() -> None:
    """S4 eq. 60 and 61."""
    alphas = np.linspace(0, 1, 100_001)
    for gain, epsilon, gamma in ((0.8, 100.0, 0.9), (0.5, 0.1, 0.5), (2.0, 1.0, 0.3), (-1.0, 1.0, 0.5)):
        bound = alphas * gain - 2 * gamma * epsilon * alphas**2 / (1 - gamma) ** 2
        assert cpi_step(gain, epsilon, gamma) == pytest.approx(alphas[bound.argmax()], abs=1e-5)
    assert cpi_step(0.01, 1, 0.9) == pytest.approx(0.01 * 0.01 / 3.6)
    assert cpi_step(1, 1, 0.0) == 1
    assert np.isnan([cpi_step(np.nan, 1, 0.5), cpi_step(1, np.nan, 0.5)]).all()


def test_whether_the_trust_region_shrinks_with_the_length() -> None:
    length = np.geomspace(10, 1_000, 30)
    noise = np.exp(0.1 * np.random.default_rng(6).standard_normal(30))
    for power in (-2.0, 0.0):
        found = trust_region_exponent(length, length**power * noise)
        assert found.low < power < found.high and abs(found.value - power) < 0.1
    assert "factor 1.5" in trust_region_exponent(np.linspace(10, 12, 9), np.ones(9)).reason
    unknown = trust_region_exponent(length, np.full(30, np.nan))
    assert np.isnan(unknown.value) and "fewer than three" in unknown.reason


def test_the_terms_are_in_the_catalogue() -> None:
    assert set(WITH_INTERVAL) <= {metric.key for metric in theory.ENTRIES}
