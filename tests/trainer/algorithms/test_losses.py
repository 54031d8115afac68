"""Every loss against the gradient that its source prints, and against the objective that it is the derivative of."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings

from ratioscope.rules.gates import GATES, GateKind
from ratioscope.trainer.algorithms.losses import AGGREGATIONS, ReferenceKL, Size, TokenBatch, policy_loss
from ratioscope.trainer.algorithms.regularisers import KL_ESTIMATORS
from ratioscope.trainer.algorithms.rows import ALGORITHMS
from tests.making.batches import (
    EXACT_RATIOS,
    Groups,
    Response,
    Tensors,
    batches,
    gradient,
    parameters_of,
    random_batch,
    tensors,
)
from tests.making.loops import in_one_loop
from tests.oracles import formulas
from tests.oracles.gradients import FORMULAS, expected_gradient
from tests.oracles.objectives import OBJECTIVES, objective_gradient, objective_value

every_algorithm = in_one_loop("name", {name: name for name in sorted(ALGORITHMS)})
quick = settings(max_examples=15, deadline=None)
# Algorithms that weigh each token with an unbounded ratio, whatever the ratio is.
UNBOUNDED = {"trpo", "ppo_kl", "seq_is", "dppo_kl"}
# What looks at all tokens of an optimiser step depends on how it is divided.
of_any_part = in_one_loop("name", {name: name for name, row in sorted(ALGORITHMS.items()) if not row.sees_whole_steps})
PULLS = {"squared_log_ratio", "squared_token_log_ratio", "covariance_kl", "pair_consistency"}


def at_every_bound() -> Groups:
    """One-token responses at all exact ratios of pi_theta and pi_k, with better, average and worse rewards."""
    logs = [math.log(ratio) for ratio in EXACT_RATIOS]
    return [
        [Response([theta], [current], [0.0], reward, [0.0]) for reward in (1.0, 0.0, -1.0)]
        for theta in logs
        for current in logs
    ]


def test_every_algorithm_has_its_formula_written_out() -> None:
    assert FORMULAS.keys() == ALGORITHMS.keys()


@every_algorithm
@quick
@given(groups=batches())
def test_the_gradient_is_the_one_of_the_source_equation(name: str, groups: Groups) -> None:
    found = gradient(name, tensors(name, groups))
    assert found == pytest.approx(expected_gradient(name, groups, parameters_of(name)), rel=1e-6, abs=1e-9)


@every_algorithm
def test_the_gradient_at_every_exact_bound_is_the_one_of_the_source_equation(name: str) -> None:
    groups = at_every_bound()
    found = gradient(name, tensors(name, groups))
    assert found == pytest.approx(expected_gradient(name, groups, parameters_of(name)), rel=1e-6, abs=1e-12)


@every_algorithm
@pytest.mark.parametrize("seed", range(2))
def test_the_gradient_of_a_realistic_batch_is_the_one_of_the_source_equation(name: str, seed: int) -> None:
    groups = random_batch(seed)
    found = gradient(name, tensors(name, groups))
    assert found == pytest.approx(expected_gradient(name, groups, parameters_of(name)), rel=1e-6, abs=1e-12)


@in_one_loop("name", {name: name for name in sorted(OBJECTIVES)})
@quick
@given(groups=batches())
def test_the_gradient_is_the_derivative_of_the_printed_objective(name: str, groups: Groups) -> None:
    found = gradient(name, tensors(name, groups))
    printed = objective_gradient(OBJECTIVES[name], groups, parameters_of(name))
    assert found == pytest.approx(printed, rel=1e-6, abs=1e-9)


@in_one_loop("name", {name: name for name in sorted(formulas.FORMULAS)})  # test_verl_oracle.py has others
@pytest.mark.parametrize("groups", [random_batch(0, spread=1.5), at_every_bound()], ids=["random", "bounds"])
def test_the_loss_that_is_printed_is_the_one_of_the_source(name: str, groups: Groups) -> None:
    """Minus the objective where weights have a derivative; elsewhere they are constants before log pi."""
    found, parameters = tensors(name, groups), parameters_of(name)
    printed = float(policy_loss(ALGORITHMS[name], parameters, found.logp, found.batch, found.size).loss)
    constants = sum(g * logp for g, logp in zip(gradient(name, found), found.logp.tolist(), strict=True))
    expected = objective_value(OBJECTIVES[name], groups, parameters) if name in OBJECTIVES else constants
    masked = GATES[ALGORITHMS[name].gate].kind is GateKind.MASK and ALGORITHMS[name].weight == "ratio"
    if masked:  # rho A of what is kept: the gradient has the same coefficients, without log pi
        length = torch.bincount(found.batch.sequence)[found.batch.sequence].tolist()
        shared = ALGORITHMS[name].level == "sequence"
        expected = sum(g / (n if shared else 1) for g, n in zip(gradient(name, found), length, strict=True))
    assert printed == pytest.approx(-expected, rel=1e-9, abs=1e-12)


@in_one_loop("name", {name: name for name in sorted(OBJECTIVES)})
def test_the_gradient_at_every_exact_bound_is_the_derivative_of_the_printed_objective(name: str) -> None:
    groups = at_every_bound()
    found = gradient(name, tensors(name, groups))
    printed = objective_gradient(OBJECTIVES[name], groups, parameters_of(name))
    assert found == pytest.approx(printed, rel=1e-6, abs=1e-12)


# What every loss has in common --------------------------------------------------------------------------------------


@every_algorithm
@pytest.mark.parametrize("seed", range(2))
def test_the_order_of_tokens_sequences_and_groups_does_not_matter(name: str, seed: int) -> None:
    found = tensors(name, random_batch(seed))
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randperm(len(found.logp), generator=generator)
    sequences = torch.randperm(int(found.batch.sequence.max()) + 1, generator=generator)
    groups = torch.randperm(int(found.batch.group.max()) + 1, generator=generator)
    shuffled = TokenBatch(*(None if column is None else column[tokens] for column in found.batch))
    shuffled = shuffled._replace(sequence=sequences[shuffled.sequence], group=groups[shuffled.group])
    plain = gradient(name, found)
    before = [plain[place] for place in tokens.tolist()]
    logp = found.logp.detach()[tokens].requires_grad_(True)
    assert gradient(name, Tensors(logp, shuffled, found.size)) == pytest.approx(before, rel=1e-9, abs=1e-15)


@of_any_part
@pytest.mark.parametrize("first", [1, 3])
def test_the_parts_of_a_batch_add_up_to_the_whole(name: str, first: int) -> None:
    """Micro-batches of whole groups, with the size of the whole."""
    algorithm, parameters = ALGORITHMS[name], parameters_of(name)
    logp, batch, size = tensors(name, random_batch(first))
    whole = policy_loss(algorithm, parameters, logp, batch, size)
    losses, gates, gradients = [], [], []
    for chosen in (batch.group < first, batch.group >= first):
        columns = (None if column is None else column[chosen] for column in batch)
        some = TokenBatch(*columns)
        some = some._replace(sequence=some.sequence - some.sequence.min(), group=some.group - some.group.min())
        part = logp.detach()[chosen].requires_grad_(True)
        output = policy_loss(algorithm, parameters, part, some, size)
        losses.append(output.loss.item())
        gates += output.gate.value.tolist()
        gradients += (-torch.autograd.grad(output.loss, part)[0]).tolist()
    assert sum(losses) == pytest.approx(whole.loss.item(), rel=1e-9, abs=1e-12)
    assert gates == pytest.approx(whole.gate.value.tolist(), rel=1e-12)
    assert gradients == pytest.approx(gradient(name, Tensors(logp, batch, size)), rel=1e-9, abs=1e-15)


@every_algorithm
def test_without_advantages_there_is_no_policy_gradient_and_nothing_is_clipped(name: str) -> None:
    logp, batch, size = tensors(name, random_batch(0, spread=2.0))
    batch = batch._replace(advantage=torch.zeros_like(batch.advantage))
    assert not policy_loss(ALGORITHMS[name], parameters_of(name), logp, batch, size).gate.clipped.any()
    if ALGORITHMS[name].regulariser in PULLS:
        # They pull without advantages too, but not where there is nothing to pull back.
        logp, batch = batch.logp_behavior.clone().requires_grad_(True), batch._replace(logp_current=batch.logp_behavior)
    assert gradient(name, Tensors(logp, batch, size)) == pytest.approx([0.0] * len(logp), abs=0)


# A ratio on each bound of each gate, with the advantage that the gate could stop; theta, current, advantage.
ON_BOUNDS = {
    "one_side": [(2.0, 1.0, 1.0), (0.5, 1.0, -1.0)],
    "dual_clip": [(2.0, 1.0, 1.0), (0.5, 1.0, -1.0), (2.0, 1.0, -1.0)],
    "two_side": [(2.0, 1.0, 1.0), (2.0, 1.0, -1.0), (0.5, 1.0, 1.0), (0.5, 1.0, -1.0)],
    "ring": [(2.0, 1.0, 1.0), (0.5, 1.0, -1.0), (0.25, 1.0, 1.0), (4.0, 1.0, -1.0)],
    "adaptive": [(1.5, 1.0, 1.0), (0.5, 1.0, -1.0), (2.0, 1.5, 1.0), (1.5, 2.0, -1.0)],
    "incremental": [(1.5, 1.0, 1.0), (0.5, 1.0, -1.0), (1.0, 2.0, -1.0)],
    "one_side_log": [(2.0, 1.0, 1.0), (0.5, 1.0, -1.0)],
    "masked": [(2.0, 1.0, 1.0), (2.0, 1.0, -1.0)],
}


def test_every_hard_gate_has_its_bounds_here() -> None:
    assert ON_BOUNDS.keys() == {name for name, gate in GATES.items() if gate.stops}


@every_algorithm
def test_a_ratio_on_a_bound_is_kept_and_one_beyond_it_is_not(name: str) -> None:
    rows = ON_BOUNDS.get(ALGORITHMS[name].gate, [(2.0, 1.0, 1.0), (0.5, 1.0, -1.0)])
    theta, current, advantage = (torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True))
    places = torch.arange(len(rows))
    batch = TokenBatch(torch.zeros_like(theta), current.log(), advantage, places, places, torch.ones_like(theta))
    size = Size(len(rows), len(rows), 1)
    algorithm, parameters = ALGORITHMS[name], parameters_of(name)
    algorithm = replace(algorithm, filter="none")  # tests/floor/test_filters.py has the bounds of filters
    gate = policy_loss(algorithm, parameters, theta.log().requires_grad_(True), batch, size).gate
    assert gate.side.tolist() == [0] * len(rows) and bool((gate.value > 0).all())
    if algorithm.gate in ("one_side", "two_side", "adaptive", "incremental", "one_side_log"):
        outwards = theta.log() + 1e-9 * (theta - current).sign()
        assert policy_loss(algorithm, parameters, outwards.requires_grad_(True), batch, size).gate.clipped.all()


@every_algorithm
def test_an_empty_response_changes_nothing_but_the_count(name: str) -> None:
    """A response of which every token was dropped still has a number; the middle one here has no tokens."""
    found = tensors(name, random_batch(3))
    middle = int(found.batch.sequence.max()) // 2
    moved = found.batch.sequence + (found.batch.sequence >= middle).long()
    grown = found.size._replace(sequences=found.size.sequences + 1)
    with_gap = gradient(name, Tensors(found.logp, found.batch._replace(sequence=moved), grown))
    ratio = 1.0
    if ALGORITHMS[name].aggregation not in ("token_mean", "self_normalised"):
        ratio = found.size.sequences / grown.sequences
    assert with_gap == pytest.approx([ratio * value for value in gradient(name, found)], rel=1e-12, abs=1e-15)


@every_algorithm
def test_a_batch_without_tokens_has_no_loss(name: str) -> None:
    nothing, nowhere = torch.zeros(0), torch.zeros(0, dtype=torch.long)
    batch = TokenBatch(nothing, nothing, nothing, nowhere, nowhere, nothing, nothing, nothing)
    logp = nothing.clone().requires_grad_(True)
    output = policy_loss(ALGORITHMS[name], parameters_of(name), logp, batch, Size(0, 0, 5), ReferenceKL(0.1, "k2"))
    assert output.loss.item() == 0 and len(output.gate.value) == 0


@every_algorithm
@pytest.mark.parametrize("seed", range(2))
def test_at_ratio_one_every_algorithm_is_its_unclipped_policy_gradient(name: str, seed: int) -> None:
    if ALGORITHMS[name].filter in ("covariance_band", "top_entropy"):
        return  # they drop tokens of fresh data, too
    logp, batch, size = tensors(name, random_batch(seed))
    fresh = batch._replace(logp_behavior=logp.detach(), logp_current=logp.detach())
    length = torch.bincount(batch.sequence)[batch.sequence]
    share = {
        "token_mean": torch.full_like(length, size.tokens),
        "self_normalised": torch.full_like(length, size.tokens),
        "sequence_mean": size.sequences * length,
        "sequence_sum": torch.full_like(length, size.sequences),
        "longest_mean": torch.full_like(length, size.sequences * size.longest),
    }[ALGORITHMS[name].aggregation]
    plain = (batch.advantage * batch.sample_weight / share).tolist()
    assert gradient(name, Tensors(logp, fresh, size)) == pytest.approx(plain, rel=1e-9, abs=1e-15)


@of_any_part
@pytest.mark.parametrize(("advantage", "weight"), [(0.0, 1.0), (1.0, 0.0), (1.0, 1.0)])
def test_a_weight_that_overflows_where_nothing_is_weighted_leaves_the_others_alone(
    name: str, advantage: float, weight: float
) -> None:
    """exp(800) is infinite: with A = 0 or w = 0 the token counts for nothing, with A > 0 the gate stops it."""
    log_ratio = torch.tensor([800.0, 0.0, 0.0], dtype=torch.float64)
    places = torch.arange(3)
    batch = TokenBatch(
        logp_behavior=torch.zeros_like(log_ratio),
        logp_current=torch.zeros_like(log_ratio),
        advantage=torch.tensor([advantage, 1.0, -1.0], dtype=torch.float64),
        sequence=places,
        group=places,
        sample_weight=torch.tensor([weight, 1.0, 1.0], dtype=torch.float64),
    )
    size = Size(tokens=3, sequences=3, longest=1)
    found = gradient(name, Tensors(log_ratio.requires_grad_(True), batch, size))
    assert found[1:] == pytest.approx([1 / 3, -1 / 3])
    algorithm = ALGORITHMS[name]
    kept = 0 if algorithm.filter != "none" and name not in UNBOUNDED else advantage * weight
    if algorithm.regulariser.startswith("squared"):
        assert found[0] == pytest.approx((kept - parameters_of(name)["tau"] * 800) / 3)
    elif kept == 0 or algorithm.gate not in ("none", "soft"):
        assert found[0] == 0
    elif name not in UNBOUNDED:
        assert math.isfinite(found[0])
    assert not math.isnan(found[0])


@every_algorithm
def test_single_precision_changes_the_gradient_by_rounding_only(name: str) -> None:
    groups = random_batch(5, groups=8)
    exact, rounded = gradient(name, tensors(name, groups)), gradient(name, tensors(name, groups, torch.float32))
    assert rounded == pytest.approx(exact, rel=1e-5, abs=1e-7)


# The penalty on the distance to the reference policy ----------------------------------------------------------------

# Of x = log pi_theta / ref: the log-ratio, half its square, and ref / pi - 1 + x.
ESTIMATES = {"k1": lambda x: x, "k2": lambda x: x**2 / 2, "k3": lambda x: (-x).exp() - 1 + x}


def test_every_estimator_has_its_estimate_written_out() -> None:
    assert ESTIMATES.keys() == KL_ESTIMATORS.keys()


@every_algorithm
@pytest.mark.parametrize("estimator", sorted(ESTIMATES))
def test_the_penalty_is_the_weighted_derivative_of_its_estimate(name: str, estimator: str) -> None:
    """beta rho grad k, in the algorithm's own aggregation, next to whatever its policy gradient is."""
    if ALGORITHMS[name].aggregation == "self_normalised":
        return  # the loss itself knows the sum of the weights
    logp, batch, size = tensors(name, random_batch(4))
    reference = logp.detach() + torch.randn(len(logp), generator=torch.Generator().manual_seed(4)).double()
    found = Tensors(logp, batch._replace(logp_reference=reference), size)
    rho = (logp.detach() - batch.logp_behavior).exp()
    estimate = AGGREGATIONS[ALGORITHMS[name].aggregation](
        rho * ESTIMATES[estimator](logp - reference), batch.sequence, size
    )
    pull = torch.autograd.grad(estimate.sum(), logp)[0]
    expected = torch.tensor(gradient(name, found), dtype=torch.float64) - 0.3 * pull
    with_penalty = gradient(name, found, ReferenceKL(0.3, estimator))
    assert with_penalty == pytest.approx(expected.tolist(), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("behavior", [(1, 1, 1, 1), (5, 1, 1, 1), (1, 2, 4, 1)])
@pytest.mark.parametrize("estimator", sorted(ESTIMATES))
def test_in_expectation_k2_and_k3_are_the_two_divergences_and_k1_is_nothing(
    estimator: str, behavior: tuple[int, ...]
) -> None:
    """All actions of one state, each as often as the behavior policy draws it: pi is another one, and so is ref."""
    logits = torch.tensor([0.3, -1.0, 0.8, 0.0], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([0.5, 0.1, 0.2, 0.2], dtype=torch.float64).log()
    actions = torch.repeat_interleave(torch.arange(4), torch.tensor(behavior))
    drawn = (torch.tensor(behavior, dtype=torch.float64) / sum(behavior)).log()[actions]
    policy = logits.log_softmax(dim=0)
    places, nothing = torch.arange(len(actions)), torch.zeros(len(actions), dtype=torch.float64)
    batch = TokenBatch(drawn, drawn, nothing, places, places, nothing, reference[actions])
    size, penalty = Size(len(actions), len(actions), 1), ReferenceKL(1.0, estimator)
    loss = policy_loss(ALGORITHMS["grpo"], {}, policy[actions], batch, size, penalty).loss
    found = torch.autograd.grad(loss, logits, retain_graph=True)[0]
    divergence = {
        "k1": 0 * logits.sum(),
        "k2": (policy.exp() * (policy - reference)).sum(),
        "k3": (reference.exp() * (reference - policy)).sum(),
    }[estimator]
    assert found.tolist() == pytest.approx(torch.autograd.grad(divergence, logits)[0].tolist(), abs=1e-12)
