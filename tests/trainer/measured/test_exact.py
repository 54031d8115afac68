"""Exact per-state distances: against sums in plain Python, and against the sampled estimates of the same means."""

import math
from pathlib import Path

import pytest
import torch

from ratioscope.trainer.measured import exact
from tests.making.training import Recorded, small, train
from tests.oracles.replay import distributions, steps_of

# Metrics page, section 9: one state, three actions.
BEHAVIOR, CURRENT, NEW = (0.5, 0.3, 0.2), (0.4, 0.4, 0.2), (0.3, 0.45, 0.25)


def logs(*states: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor(states, dtype=torch.float64).log()


def random_states(n: int, vocabulary: int, seed: int) -> torch.Tensor:
    return (torch.randn(n, vocabulary, generator=torch.Generator().manual_seed(seed)) * 2).log_softmax(dim=-1)


def test_the_known_answers_come_out() -> None:
    b, c, n = logs(BEHAVIOR), logs(CURRENT), logs(NEW)
    assert float(exact.exact_total_variation(c, b)) == pytest.approx(0.1)
    assert float(exact.exact_total_variation(n, b)) == pytest.approx(0.2)
    assert float(exact.chi_square(c, b)) == pytest.approx(0.0533333333)
    assert float(exact.chi_square(n, b)) == pytest.approx(0.1675)
    assert float(exact.kl(b, c)) == pytest.approx(0.0252671539)
    assert float(exact.kl(c, n)) == pytest.approx(0.0233309045)


def test_every_distance_is_its_sum_over_all_tokens() -> None:
    p, q = random_states(6, 9, seed=0), random_states(6, 9, seed=1)
    for state in range(len(p)):
        pairs = [(math.exp(a), math.exp(b)) for a, b in zip(p[state].tolist(), q[state].tolist(), strict=True)]
        expected = (
            sum(abs(a - b) for a, b in pairs) / 2,
            sum((a - b) ** 2 / b for a, b in pairs),
            sum(a * math.log(a / b) for a, b in pairs),
        )
        for distance, value in zip((exact.exact_total_variation, exact.chi_square, exact.kl), expected, strict=True):
            assert float(distance(p, q)[state]) == pytest.approx(value, rel=1e-5)


def test_what_a_truncated_sampler_leaves_out_counts_as_it_should() -> None:
    inside, outside = logs((0.6, 0.4, 0.0)), logs((0.5, 0.3, 0.2))
    assert float(exact.exact_total_variation(outside, inside)) == pytest.approx(0.2)
    assert float(exact.chi_square(outside, inside)) == math.inf
    assert float(exact.chi_square(inside, outside)) == pytest.approx(0.1**2 / 0.5 + 0.1**2 / 0.3 + 0.2)
    assert float(exact.kl(inside, outside)) == pytest.approx(0.6 * math.log(1.2) + 0.4 * math.log(4 / 3))
    assert float(exact.kl(outside, inside)) == math.inf


def test_two_policies_that_leave_out_the_same_are_compared_on_the_rest() -> None:
    p, q = logs((0.6, 0.4, 0.0)), logs((0.5, 0.5, 0.0))
    assert float(exact.exact_total_variation(p, q)) == pytest.approx(0.1)
    assert float(exact.chi_square(p, q)) == pytest.approx(0.04)
    assert float(exact.kl(p, q)) == pytest.approx(0.6 * math.log(1.2) + 0.4 * math.log(0.8))


@pytest.mark.parametrize("chunk", [1, 20, 10_000])
def test_the_size_of_a_chunk_changes_nothing(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    p, q = random_states(17, 9, seed=2), random_states(17, 9, seed=3)
    whole = [distance(p, q) for distance in (exact.exact_total_variation, exact.chi_square, exact.kl)]
    monkeypatch.setattr(exact, "CHUNK", chunk)
    for before, distance in zip(whole, (exact.exact_total_variation, exact.chi_square, exact.kl), strict=True):
        assert torch.equal(before, distance(p, q))


def test_no_state_has_no_distance() -> None:
    assert exact.exact_total_variation(torch.zeros(0, 5), torch.zeros(0, 5)).shape == (0,)


@pytest.fixture(scope="module")
def stale(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Recorded:
    """A large batch of a sampler that is one to three updates behind."""
    overrides = ("sync_interval=4", "prompts=60", "samples_per_prompt=16", "learning_rate=0.003", "updates=4")
    return train(small(*overrides), tmp_path_factory.mktemp("stale") / "run")


def test_logged_distances_are_those_of_the_policies(stale: Recorded) -> None:
    for step, tokens in enumerate(steps_of(stale.folder)):
        b, c, n = (distributions(stale, step, stale.policies[version]) for version in (0, step, step + 1))
        assert tokens["tv_current_behavior"] == pytest.approx(exact.exact_total_variation(c, b).float(), abs=1e-5)
        assert tokens["chi2_current_behavior"] == pytest.approx(exact.chi_square(c, b).float(), rel=1e-3, abs=1e-5)
        assert tokens["kl_behavior_current"] == pytest.approx(exact.kl(b, c).float(), rel=1e-3, abs=1e-5)
        assert tokens["tv_new_current"] == pytest.approx(exact.exact_total_variation(n, c).float(), abs=1e-5)


def test_sampled_estimates_agree_with_the_exact_means(stale: Recorded) -> None:
    """Given its state, a token's ratio is all that is random; groups are the clusters."""
    for tokens in steps_of(stale.folder)[1:]:
        log_ratio = tokens["logp_current"].double() - tokens["logp_behavior"].double()
        estimates = {
            "tv_current_behavior": torch.expm1(log_ratio).abs() / 2,
            "chi2_current_behavior": torch.expm1(log_ratio) ** 2,
            "kl_behavior_current": torch.expm1(log_ratio) - log_ratio,
        }
        for name, sampled in estimates.items():
            differences = sampled - tokens[name].double()
            sums = torch.zeros(60, dtype=torch.float64).index_add(0, tokens["group_id"], differences)
            assert abs(sums.sum()) < 4 * (60 * sums.var()) ** 0.5, name
            assert tokens[name].mean() > 1e-6


def test_versions_of_a_batch_are_compared_with_its_oldest(tmp_path: Path) -> None:
    run = train(small("mixture=[1, 1, 1]", "learning_rate=0.01", "prompts=20"), tmp_path / "run")
    for step, tokens in enumerate(steps_of(run.folder)):
        version = tokens["behavior_version"]
        oldest = int(version.min())
        old, expected = distributions(run, step, run.policies[oldest]), torch.zeros(len(version))
        for number in version.unique().tolist():
            mine = distributions(run, step, run.policies[number])
            expected = torch.where(version == number, exact.exact_total_variation(mine, old).float(), expected)
        assert tokens["tv_version_spread"] == pytest.approx(expected, abs=1e-5)
        assert not tokens["tv_version_spread"][version == oldest].any()
        assert oldest == step or tokens["tv_version_spread"].max() > 0.01


def test_exact_columns_are_logged_only_where_they_are_asked_for(tmp_path: Path) -> None:
    tokens = steps_of(train(small("exact=false", "updates=2"), tmp_path / "run").folder)[1]
    assert not {name for name in tokens if name.startswith(("tv_", "chi2_", "kl_"))}
    assert "entropy" in tokens
