"""Relations between algorithms: what becomes of one at the edge of its parameters is another one."""

import math
from dataclasses import replace
from math import inf

import pytest
import torch

from ratioscope.trainer.algorithms.losses import AGGREGATIONS, policy_loss
from ratioscope.trainer.algorithms.rows import ALGORITHMS, ALIASES
from tests.making.batches import Groups, Response, parameters_of, random_batch, tensors
from tests.oracles.objectives import decoupled_ppo, objective_gradient

seeds = pytest.mark.parametrize("seed", range(3))


def gradient(
    name: str, groups: Groups, aggregation: str | None = None, advantage_of: str | None = None, **parameters: float
) -> list[float]:
    """The coefficients of grad log pi; `advantage_of` lends the batch of another algorithm."""
    algorithm = ALGORITHMS[name]
    if aggregation is not None:
        algorithm = replace(algorithm, aggregation=aggregation)
    found = tensors(advantage_of or name, groups, **parameters)
    loss = policy_loss(algorithm, parameters_of(name) | parameters, found.logp, found.batch, found.size).loss
    return (-torch.autograd.grad(loss, found.logp)[0]).tolist()


def same(found: list[float], expected: list[float], rel: float = 1e-9) -> bool:
    """And neither of them is nothing."""
    assert any(expected)
    return found == pytest.approx(expected, rel=rel, abs=1e-13)


def importance_weighted(groups: Groups) -> list[float]:
    """(r - r̄) rho grad log pi under the token mean."""
    batch = [y for group in groups for y in group]
    tensors("reinforce", groups)  # tells the responses which group they are in
    mean = {id(y): sum(other.reward for other in y.group) / len(y.group) for y in batch}
    total = sum(map(len, batch))
    return [(y.reward - mean[id(y)]) * y.rho(t) / total for y in batch for t in range(len(y))]


def with_fresh_data(groups: Groups) -> Groups:
    """The same batch, sampled from pi_k."""
    return [[replace(y, behavior=y.current) for y in group] for group in groups]


def without_steps(groups: Groups) -> Groups:
    """The same batch before the first gradient pass: pi_theta is pi_k."""
    return [[replace(y, theta=y.current) for y in group] for group in groups]


def of_one_token(groups: Groups) -> Groups:
    """The first token of every response."""
    return [
        [Response(y.theta[:1], y.current[:1], y.behavior[:1], y.reward, y.value[:1]) for y in group] for group in groups
    ]


@seeds
@pytest.mark.parametrize("name", ["rec_oneside_is", "rec_twoside_is"])
def test_with_infinite_bounds_ppos_gate_leaves_importance_weighted_reinforce(name: str, seed: int) -> None:
    groups = random_batch(seed, spread=1.5)
    assert same(gradient(name, groups, epsilon_low=inf, epsilon_high=inf), importance_weighted(groups))


@seeds
@pytest.mark.parametrize("name", ["rec_oneside_nois", "rec_twoside_nois", "rec_ring_nois"])
def test_with_infinite_bounds_an_unweighted_gate_leaves_reinforce(name: str, seed: int) -> None:
    groups = random_batch(seed, spread=1.5)
    bounds = {"epsilon_low": inf, "epsilon_high": inf, "outer_low": inf, "outer_high": inf}
    assert same(gradient(name, groups, **bounds), gradient("reinforce", groups))


@seeds
def test_trpos_gradient_is_importance_weighted_reinforce(seed: int) -> None:
    groups = random_batch(seed)
    assert same(gradient("trpo", groups), importance_weighted(groups))


@seeds
def test_ppo_with_infinite_bounds_and_ppo_kl_have_the_same_policy_gradient(seed: int) -> None:
    groups = random_batch(seed, spread=1.5)
    assert same(gradient("ppo", groups, epsilon_low=inf, epsilon_high=inf), gradient("ppo_kl", groups))


@seeds
def test_a2c_is_ppo_before_the_first_step_on_fresh_data(seed: int) -> None:
    groups = without_steps(with_fresh_data(random_batch(seed)))
    assert same(gradient("a2c", groups), gradient("ppo", groups, advantage_of="a2c"))


@seeds
def test_a2c_without_a_critic_is_vanilla_policy_gradient_under_the_token_mean(seed: int) -> None:
    groups = [[replace(y, value=[0.0] * len(y)) for y in group] for group in random_batch(seed)]
    assert same(gradient("a2c", groups), gradient("vanilla_pg", groups, aggregation="token_mean"))


@seeds
def test_gspo_on_sequences_of_one_token_is_grpo(seed: int) -> None:
    groups = of_one_token(random_batch(seed, spread=1.5))
    assert same(gradient("gspo", groups), gradient("grpo", groups, aggregation="sequence_mean"))


@seeds
def test_sequence_weights_on_sequences_of_one_token_are_token_weights(seed: int) -> None:
    groups = of_one_token(random_batch(seed, spread=1.5))
    assert same(gradient("seq_tis", groups), gradient("token_tis", groups))
    assert same(gradient("seq_is", groups), importance_weighted(groups))


@seeds
def test_dr_grpo_is_rec_oneside_is_with_another_divisor(seed: int) -> None:
    groups = random_batch(seed)
    assert same(gradient("dr_grpo", groups), gradient("rec_oneside_is", groups, aggregation="longest_mean"))


@seeds
def test_dapo_with_equal_bounds_is_grpo(seed: int) -> None:
    groups = random_batch(seed)
    assert same(gradient("dapo", groups), gradient("grpo", groups))


@seeds
def test_truncation_at_an_infinite_cap_is_importance_sampling(seed: int) -> None:
    groups = random_batch(seed)
    assert same(gradient("token_tis", groups, cap=inf), importance_weighted(groups))
    assert same(gradient("seq_tis", groups, cap=inf), gradient("seq_is", groups))


@seeds
def test_masking_at_an_infinite_cap_is_importance_sampling(seed: int) -> None:
    groups = random_batch(seed)
    assert same(gradient("seq_mis", groups, cap=inf), gradient("seq_is", groups))


@seeds
def test_masking_is_truncation_of_what_is_left(seed: int) -> None:
    groups = random_batch(seed)
    masked, truncated = gradient("seq_mis", groups), gradient("seq_tis", groups)
    assert 0 in masked
    assert all(one in (0, pytest.approx(other, rel=1e-12)) for one, other in zip(masked, truncated, strict=True))


@seeds
@pytest.mark.parametrize("name", ["adaptive_clip", "incremental_clip"])
def test_methods_one_and_two_on_fresh_data_are_ppo(name: str, seed: int) -> None:
    groups = with_fresh_data(random_batch(seed, spread=1.5))
    ppo = gradient("rec_oneside_is", groups, epsilon_low=0.2, epsilon_high=0.2)
    assert same(gradient(name, groups, epsilon=0.2), ppo)


@seeds
@pytest.mark.parametrize("name", ["adaptive_clip", "incremental_clip"])
def test_methods_one_and_two_stop_nothing_before_the_first_step(name: str, seed: int) -> None:
    groups = without_steps(random_batch(seed, spread=1.5))
    assert same(gradient(name, groups, epsilon=1e-3), importance_weighted(groups))


@seeds
def test_decoupled_ppo_has_the_gradient_of_incremental_clipping(seed: int) -> None:
    """rho_k > 0 passes through the minimum."""
    groups = random_batch(seed, spread=1.0)
    found = gradient("incremental_clip", groups)
    printed = objective_gradient(decoupled_ppo, groups, parameters_of("incremental_clip"))
    assert same(found, printed)


@seeds
@pytest.mark.parametrize("weighted", ["is", "nois"])
def test_a_ring_without_an_outside_is_the_two_sided_band(weighted: str, seed: int) -> None:
    groups = random_batch(seed, spread=1.5)
    ring = gradient(f"rec_ring_{weighted}", groups, outer_low=1.0, outer_high=1e9)
    assert same(ring, gradient(f"rec_twoside_{weighted}", groups))


@seeds
@pytest.mark.parametrize("weighted", ["is", "nois"])
def test_a_ring_without_a_gap_is_the_one_sided_mask(weighted: str, seed: int) -> None:
    """S3 B.3: with both margins on the band, what pulls back is kept everywhere."""
    groups = random_batch(seed, spread=1.5)
    ring = gradient(f"rec_ring_{weighted}", groups, outer_low=0.5, outer_high=1.0)
    assert same(ring, gradient(f"rec_oneside_{weighted}", groups))


@seeds
def test_at_a_high_temperature_red_weight_is_reinforce(seed: int) -> None:
    groups = random_batch(seed)
    assert same(gradient("red_weight", groups, tau=1e12), gradient("reinforce", groups))


@seeds
def test_with_equally_frequent_rewards_pairwise_weighting_is_reinforce(seed: int) -> None:
    groups = random_batch(seed, copies=4)
    for group in groups:
        for place, response in enumerate(group):
            response.reward = float(place % 2)
    assert same(gradient("pairwise_reinforce", groups), gradient("reinforce", groups), rel=1e-6)


@seeds
def test_red_drop_on_balanced_groups_is_reinforce(seed: int) -> None:
    groups = random_batch(seed, copies=4)
    for group in groups:
        for place, response in enumerate(group):
            response.reward = float(place % 2)
    assert same(gradient("red_drop", groups), gradient("reinforce", groups))


@seeds
def test_opmd_without_its_pull_is_reinforce(seed: int) -> None:
    groups = random_batch(seed)
    assert same(gradient("opmd", groups, tau=1e-12), gradient("reinforce", groups), rel=1e-8)


@seeds
def test_opmd_at_ratio_one_is_reinforce_at_any_strength(seed: int) -> None:
    groups = without_steps(with_fresh_data(random_batch(seed)))
    assert same(gradient("opmd", groups, tau=10.0), gradient("reinforce", groups))


@seeds
def test_asymre_without_a_shift_is_reinforce(seed: int) -> None:
    groups = random_batch(seed)
    assert same(gradient("asymre", groups, baseline_shift=0.0), gradient("reinforce", groups))
    shift = parameters_of("asymre")["baseline_shift"]
    total = sum(len(y) for group in groups for y in group)
    raised = [value + shift / total for value in gradient("reinforce", groups)]
    assert same(gradient("asymre", groups), raised)


@seeds
def test_one_step_of_the_pairwise_consistency_loss_is_reinforce(seed: int) -> None:
    """S3 eq. 7, with the sum inside a sequence as in eq. 1; whatever policy has sampled the data."""
    groups, tau = without_steps(random_batch(seed)), parameters_of("surrogate_pairs")["tau"]
    step = [2 * tau / (1 + tau) ** 2 * value for value in gradient("reinforce", groups, aggregation="sequence_sum")]
    assert same(gradient("surrogate_pairs", groups), step)


@seeds
def test_the_consistent_policy_of_a_group_has_no_gradient(seed: int) -> None:
    """S3 eq. 4, 5: where log pi / pi_k is r / tau up to a constant, the pairwise loss is at its minimum."""
    tau = parameters_of("surrogate_pairs")["tau"]
    groups = [
        [replace(y, theta=[current + (y.reward / tau - 0.7) / len(y) for current in y.current]) for y in group]
        for group in random_batch(seed)
    ]
    assert gradient("surrogate_pairs", groups) == pytest.approx(
        [0.0] * sum(len(y) for g in groups for y in g), abs=1e-12
    )


@seeds
def test_cispo_with_a_high_bound_is_importance_sampling(seed: int) -> None:
    groups = random_batch(seed, spread=1.5)
    plain = gradient("grpo", groups, epsilon_low=inf, epsilon_high=inf)
    assert same(gradient("cispo", groups, epsilon_high=1e9), plain)


@seeds
def test_cispo_is_token_level_truncation_at_its_bound(seed: int) -> None:
    groups = random_batch(seed, spread=1.5)
    assert same(
        gradient("cispo", groups, epsilon_high=1.5), gradient("token_tis", groups, advantage_of="grpo", cap=2.5)
    )


@seeds
def test_sapo_with_a_flat_gate_is_importance_sampling(seed: int) -> None:
    groups = random_batch(seed)
    plain = gradient("grpo", groups, aggregation="sequence_mean", epsilon_low=inf, epsilon_high=inf)
    assert same(gradient("sapo", groups, tau_positive=1e-6, tau_negative=1e-6), plain, rel=1e-8)


@seeds
def test_gmpo_without_clipping_is_gspo_without_clipping(seed: int) -> None:
    groups = random_batch(seed, spread=1.5)
    assert same(gradient("gmpo", groups, epsilon_log=1e9), gradient("gspo", groups, epsilon_low=inf, epsilon_high=inf))


@seeds
def test_gmpo_on_sequences_of_one_token_is_grpo_with_bounds_in_nats(seed: int) -> None:
    groups = of_one_token(random_batch(seed, spread=1.5))
    band = {"epsilon_low": 1 - math.exp(-0.4), "epsilon_high": math.exp(0.4) - 1}
    grpo = gradient("grpo", groups, aggregation="sequence_mean", **band)
    assert same(gradient("gmpo", groups, epsilon_log=0.4), grpo)


@seeds
def test_the_aggregations_agree_on_responses_of_the_longest_length(seed: int) -> None:
    logp, batch, size = tensors("reinforce", of_one_token(random_batch(seed)))
    gradients = []
    for aggregation in AGGREGATIONS:
        algorithm = replace(ALGORITHMS["reinforce"], aggregation=aggregation)
        loss = policy_loss(algorithm, {}, logp, batch, size._replace(longest=1)).loss
        gradients.append((-torch.autograd.grad(loss, logp)[0]).tolist())
    assert all(same(other, gradients[0]) for other in gradients[1:])


def test_every_other_name_leads_to_an_algorithm() -> None:
    assert set(ALIASES.values()) <= ALGORITHMS.keys() and not ALIASES.keys() & ALGORITHMS.keys()
    assert ALIASES["decoupled_ppo"] == ALIASES["method_two"] == "incremental_clip"
    assert ALIASES["method_one"] == "adaptive_clip"
