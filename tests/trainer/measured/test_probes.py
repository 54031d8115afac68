"""Gradient probes and noise floor: unbiased, with honest errors, and without any influence on the run."""

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from ratioscope.trainer.measured.probes import _estimate, _jackknife, _true_gradient, sga_terms
from ratioscope.trainer.sampling.collector import ScheduledCollector
from ratioscope.trainer.training.loop import Trainer
from tests.making.training import Recorded, same_tables, small, table, train

PROBED = ("probe_every=3", "probe_batches=3")


def synthetic(
    batches: int, noise: float, *, repetitions: int, errors: bool
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Terms of many probes of known gradients, (repetitions,) each, with their errors; and the exact terms."""
    generator = torch.Generator().manual_seed(batches)
    size = 6
    mu = torch.randn(size, generator=generator, dtype=torch.float64)
    bias = torch.randn(size, generator=generator, dtype=torch.float64) / 2
    rows: list[dict[str, float]] = []
    for _ in range(repetitions):
        draws = torch.randn(2, batches, size, generator=generator, dtype=torch.float64) * noise
        true, estimate = mu + draws[0], mu + bias + draws[1]
        products = (true @ true.T, true @ estimate.T, estimate @ estimate.T)
        spread = _jackknife(*products) if errors else {}
        rows.append(sga_terms(*products) | {f"{name}_se": error for name, error in spread.items()})
    found = {name: torch.tensor([row[name] for row in rows], dtype=torch.float64) for name in rows[0]}
    exact = {
        "gradient_norm_squared": float(mu @ mu),
        "gradient_dot_bias": float(mu @ bias),
        "bias_norm_squared": float(bias @ bias),
        "variance": size * noise**2,
        "cosine": float(mu @ (mu + bias) / (mu.norm() * (mu + bias).norm())),
        "rescaling": float(mu @ (mu + bias) / ((mu + bias) @ (mu + bias))),
    }
    return found, exact


@pytest.mark.parametrize(("batches", "noise"), [(2, 1.0), (4, 0.5), (8, 2.0)])
def test_squares_and_products_are_unbiased_however_noisy_the_gradients(batches: int, noise: float) -> None:
    found, exact = synthetic(batches, noise, repetitions=1_000, errors=False)
    for name in ("gradient_norm_squared", "gradient_dot_bias", "bias_norm_squared", "variance"):
        standard_error = float(found[name].std()) / 1_000**0.5
        assert abs(float(found[name].mean()) - exact[name]) < 4 * standard_error, name


def test_standard_errors_are_about_the_spread_of_the_terms() -> None:
    found, exact = synthetic(batches=8, noise=0.3, repetitions=200, errors=True)
    for name, value in exact.items():
        claimed = float(found[f"{name}_se"].square().mean()) ** 0.5
        assert 0.5 < claimed / float(found[name].std()) < 2, name
        if name in ("cosine", "rescaling"):  # ratios are right for many batches only
            assert float(found[name].mean()) == pytest.approx(value, abs=0.05)


def test_terms_that_do_not_exist_are_not_made_up() -> None:
    """Noise may leave a squared norm below zero; two batches have no jackknife."""
    terms = sga_terms(*(torch.tensor([[1.0, -1.0], [-1.0, 1.0]]) for _ in range(3)))
    assert terms["gradient_norm_squared"] == -1
    assert terms["cosine"] != terms["cosine"]
    assert terms["rescaling"] != terms["rescaling"]
    found, _ = synthetic(batches=2, noise=1.0, repetitions=3, errors=True)
    assert found["variance_se"].isnan().all()


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Recorded:
    return train(small("sync_interval=2", *PROBED), tmp_path_factory.mktemp("probed") / "run")


@pytest.mark.parametrize(
    "overrides",
    [["algorithm=ppo", "sync_interval=2"], ["algorithm=red_drop", "mixture=[1, 1]", "switch_probability=0.3"]],
    ids=" ".join,
)
def test_a_probe_does_not_change_the_run(tmp_path: Path, overrides: list[str]) -> None:
    plain = train(small(*overrides, "updates=5"), tmp_path / "plain").folder
    watched = train(small(*overrides, "updates=5", *PROBED, "noise_floor_every=2"), tmp_path / "watched").folder
    assert not (plain / "probes").exists()
    for name in ("tokens", "sequences"):
        assert table(plain, name).equals(table(watched, name))
    floors = ["noise_floor_shape", "noise_floor_dtype"]
    assert table(plain, "steps").equals(table(watched, "steps").drop_columns(floors))


def test_probes_are_recorded_at_their_steps(probed: Recorded) -> None:
    rows = pq.read_table(probed.folder / "probes").to_pylist()
    assert [row["step"] for row in rows] == [0, 3, 6]
    for row in rows:
        assert (row["estimator"], row["batches"]) == ("grpo", 3)
        assert row["seconds"] > 0
        for name in ("gradient_norm_squared", "gradient_dot_bias", "bias_norm_squared", "variance"):
            assert row[f"{name}_se"] > 0
            assert abs(row[name]) < float("inf")
    steps = pq.read_table(probed.folder / "steps")["seconds_probing"].to_pylist()
    assert [step for step, seconds in enumerate(steps) if seconds] == [0, 3, 6]


def test_the_same_seed_makes_the_same_probes(probed: Recorded, tmp_path: Path) -> None:
    again = train(small("sync_interval=2", *PROBED), tmp_path / "again")
    assert same_tables(probed.folder, again.folder)


@pytest.mark.parametrize("copies", [2, 4])
def test_on_policy_reinforce_is_the_true_gradient_shrunk_by_its_own_baseline(tmp_path: Path, copies: int) -> None:
    """The group mean contains the response itself: on equal dice the estimate is (K - 1)/K of the unbiased one."""
    trainer = Trainer(small("algorithm=reinforce", f"samples_per_prompt={copies}"), tmp_path / "run")
    with trainer.recorder:
        trainer.collector.publish(0, trainer.model)
        assert isinstance(trainer.collector, ScheduledCollector)
        prompts = trainer.task.draw(random.Random(0), 30)
        dice = [torch.Generator().manual_seed(5) for _ in "ab"]
        true = _true_gradient(trainer.learner, trainer.collector, prompts, dice[0])
        batch = trainer.collector.batch(0, prompts, random.Random(0), dice[1])
        estimate = _estimate(trainer.learner, 0, batch)
    assert true.norm() > 0.1
    assert estimate == pytest.approx(true * (copies - 1) / copies, abs=1e-5)


def test_self_normalised_weights_are_divided_by_their_sum(tmp_path: Path) -> None:
    """On old data the estimate is that of sequence weights, but for their mean; on fresh data it is the same."""
    found = {}
    for algorithm in ("seq_is", "snis"):
        trainer = Trainer(small(f"algorithm={algorithm}"), tmp_path / algorithm)
        with trainer.recorder:
            trainer.collector.publish(0, trainer.model)
            assert isinstance(trainer.collector, ScheduledCollector)
            prompts = trainer.task.draw(random.Random(0), 30)
            batch = trainer.collector.batch(0, prompts, random.Random(0), torch.Generator().manual_seed(5))
            found[algorithm, "fresh"] = _estimate(trainer.learner, 0, batch)
            dice = torch.Generator().manual_seed(1)
            with torch.no_grad():
                for weights in trainer.model.parameters():
                    weights += 0.02 * torch.randn(weights.shape, generator=dice)
            found[algorithm, "old"] = _estimate(trainer.learner, 0, batch)
    assert found["snis", "fresh"] == pytest.approx(found["seq_is", "fresh"], abs=1e-5)
    one, other = found["snis", "old"], found["seq_is", "old"]
    assert torch.cosine_similarity(one, other, dim=0) == pytest.approx(1, abs=1e-4)
    assert abs(one.norm() / other.norm() - 1) > 0.01


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_noise_floor_is_that_of_the_number_format(tmp_path: Path, dtype: str) -> None:
    run = train(small("noise_floor_every=3", f"model.dtype={dtype}"), tmp_path / "run")
    steps = table(run.folder, "steps")
    floors = {name: steps[f"noise_floor_{name}"].to_pylist() for name in ("shape", "dtype")}
    for values in floors.values():
        assert [step for step, value in enumerate(values) if value is not None] == [0, 3, 6]
    if dtype == "float32":
        assert max(filter(None, floors["shape"]), default=0) < 1e-5
        assert all(value is None or 1e-5 < value < 0.2 for value in floors["dtype"])
    else:
        assert all(value is None or value < 0.2 for value in floors["shape"])
        assert not any(floors["dtype"])
