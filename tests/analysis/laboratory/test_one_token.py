"""One token against the trainer's loss, the gates and weights, finite differences, and the dashboard's tails."""

import math

import numpy as np
import pytest
import torch

from ratioscope.analysis.laboratory import one_token as lab
from ratioscope.rules.gates import GATES
from ratioscope.rules.ratios import LogRatios
from ratioscope.rules.weights import WEIGHTS
from ratioscope.tails import pareto_khat
from ratioscope.trainer.algorithms.losses import Size, TokenBatch, policy_loss
from ratioscope.trainer.algorithms.parameters import taken_by
from ratioscope.trainer.algorithms.rows import ALGORITHMS

_FIRST = torch.zeros(1, dtype=torch.long)


def _drawn(seed: int, count: int = 120) -> list[tuple[float, float, float, float, float]]:
    """(ρ_k, ρ, sign, ε, π_k)."""
    random = np.random.default_rng(seed)
    return [
        (*np.exp(random.uniform(-3, 3, 2)), float(random.choice([1, -1])), random.uniform(0.05, 0.6),
         random.uniform(1e-4, 0.02))
        for _ in range(count)
    ]  # fmt: skip


def _settings(name: str, epsilon: float) -> dict[str, float]:
    """The trainer's defaults with the slider's ε; the ring's outer margins are S3's, as they are there."""
    given = ALGORITHMS[name].parameters
    return {**given, **{key: epsilon for key in given if key in ("epsilon", "epsilon_low", "epsilon_high")}}


@pytest.mark.parametrize(("place", "name"), enumerate(lab.ALGORITHMS))
def test_objective_and_gradient_are_those_of_the_trainers_loss(place: int, name: str) -> None:
    for rho_k, rho, sign, epsilon, pi_k in _drawn(place):
        data = pi_k / rho_k
        logp = torch.tensor([math.log(rho * data)], dtype=torch.float64, requires_grad=True)
        batch = TokenBatch(
            torch.tensor([math.log(data)], dtype=torch.float64), torch.tensor([math.log(pi_k)], dtype=torch.float64),
            torch.tensor([sign], dtype=torch.float64), _FIRST, _FIRST, torch.ones(1, dtype=torch.float64),
        )  # fmt: skip
        out = policy_loss(ALGORITHMS[name], _settings(name, epsilon), logp, batch, Size(1, 1, 1))
        out.loss.backward()
        assert logp.grad is not None
        where = f"{name}: ρ_k {rho_k}, ρ {rho}, A {sign}, ε {epsilon}"
        wanted = lab.objective(place, rho_k, rho, sign, epsilon, math.log(rho * data))
        assert -float(out.loss) == pytest.approx(wanted, rel=1e-6), where
        assert -float(logp.grad) == pytest.approx(lab.gradient(place, rho_k, rho, sign, epsilon), rel=1e-6), where


@pytest.mark.parametrize(("place", "name"), enumerate(lab.ALGORITHMS))
def test_gate_and_weight_are_those_of_the_rules(place: int, name: str) -> None:
    of = ALGORITHMS[name]
    gate, weight = GATES[of.gate].function, WEIGHTS[of.weight].function
    for rho_k, rho, sign, epsilon, _ in _drawn(10 + place):
        ratios = LogRatios(torch.tensor([rho]).double().log(), torch.tensor([rho_k]).double().log())
        advantage, settings = torch.tensor([sign]).double(), _settings(name, epsilon)
        assert float(gate(ratios, advantage, **taken_by(gate, settings)).value) == pytest.approx(
            lab.kept(place, rho_k, rho, sign, epsilon), rel=1e-9
        )
        there = weight(ratios, advantage, _FIRST, **taken_by(weight, settings))
        assert float(there) == pytest.approx(lab.weight(place, rho), rel=1e-6)


@pytest.mark.parametrize("place", range(len(lab.ALGORITHMS)))
def test_the_gradient_is_the_slope_of_the_objective(place: int) -> None:
    """By a finite difference in log π_θ, away from the bounds, where a constant weight is held."""
    h = 1e-6
    for rho_k, rho, sign, epsilon, pi_k in _drawn(20 + place, 60):
        data = pi_k / rho_k
        here = lab.gradient(place, rho_k, rho, sign, epsilon)
        if lab.gradient(place, rho_k, rho * (1 + 1e-4), sign, epsilon) * here == 0 != here:
            continue
        if place == 7 and rho < lab.CAP:  # the weight moves with ρ, but is a constant of the objective
            continue
        ends = [
            lab.objective(place, rho_k, rho * math.exp(d), sign, epsilon, math.log(rho * data) + d) for d in (-h, h)
        ]
        assert (ends[1] - ends[0]) / (2 * h) == pytest.approx(here, abs=1e-4)


def test_numbers_of_the_seed() -> None:
    found = lab.EXPERIMENT.at(rho_k=5, rho=5, epsilon=0.2)
    assert lab.EXPERIMENT.question.right == 2
    assert found["ppo"] == 0
    assert found["room_incremental"] == pytest.approx(1.0)
    assert found["room_adaptive"] == pytest.approx(0.2)
    for name, wide in (("adaptive", 0.2), ("incremental", 1.0)):
        place = lab.ALGORITHMS.index(f"{name}_clip")
        assert found[name] == 5
        for sign in (1, -1):
            inside, outside = 5 + sign * (wide - 1e-6), 5 + sign * (wide + 1e-6)
            assert lab.kept(place, 5, inside, sign, 0.2) == 1
            assert lab.kept(place, 5, outside, sign, 0.2) == 0
    rare = lab.EXPERIMENT.at(**lab.EXPERIMENT.tries["rare now, common in the data"])
    assert rare["change_incremental"] == pytest.approx(2e-7)
    assert rare["change_adaptive"] == pytest.approx(0.02)


def test_reinforce_has_no_floor_on_an_old_mistake_and_clips_have_one() -> None:
    found = lab.EXPERIMENT.at(A=1, rho_k=0.9, rho=0.9)
    drop = np.diff(np.log(found["course_reinforce"]))
    assert drop == pytest.approx(np.full(lab.STEPS, -lab.RATE), rel=0.05)
    assert found["course_ppo"][-1] == found["course_ppo"][1] < 0.8  # one step beyond the bound, then none
    assert min(found["course_adaptive"]) < found["course_incremental"][-1]
    updates = np.array(found["course_incremental"][:: lab.PASSES])
    assert (updates[1:] < 0.8 * updates[:-1]).all()  # a floor in each update, no floor for all of them


@pytest.mark.parametrize(("rho_k", "rho"), [(1.5, 1.6), (5, 3), (0.2, 0.1), (20, 40)])
def test_the_tail_index_is_that_of_the_dashboard(rho_k: float, rho: float) -> None:
    drawn = [new for _, new in lab.batch(rho_k, rho)]
    there, _ = pareto_khat(np.sort(np.log(drawn))[::-1], len(drawn))
    assert lab.khat(drawn) == pytest.approx(there, rel=1e-6)
    assert math.isnan(lab.khat([1.0] * 100))


def test_the_batch_is_drawn_from_the_data() -> None:
    """Ratios have mean 1 under the policy that sampled, within what 1,000 draws leave open."""
    drawn = np.array(lab.batch(1.5, 1.3))
    error = drawn.std(axis=0) / math.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - 1) < 3 * error).all()
