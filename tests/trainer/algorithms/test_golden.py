"""Twenty updates that were written down once: a change of any number on the way shows here first.

After a change that is meant to be one: python -m tests.trainer.algorithms.test_golden
"""

import json
import platform
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from ratioscope.trainer.training.loop import Trainer
from tests.making.training import small, table
from tests.oracles.replay import sequences_of, steps_of

GOLDEN = Path(__file__).parent / "golden.json"
RATE = "learning_rate=0.001"
ALGORITHMS = {
    "grpo": (RATE,),
    "ppo": (RATE,),
    "gspo": (RATE,),
    # With the usual damping the first trial of the line search stands on its bound, and rounding decides.
    "trpo": ("damping=1", "cg_steps=4"),
}
MODEL = ("hidden_size=16", "intermediate_size=16")
OVERRIDES = (
    *MODEL, "warm_start.max_steps=0", "updates=20", "sync_interval=4", "prompts=10",
    "exact=false", "evaluate_every=100",
)  # fmt: skip
NUMBERS = ("reward", "drift", "clip_fraction", "grad_norm")
# Two processors round differently, and an optimiser makes more of it from step to step.
EARLY, EARLY_TOLERANCE, LATE_TOLERANCE = 3, 1e-4, 5e-2

Weights = dict[str, list[Any]]


def environment() -> dict[str, str]:
    return {"python": platform.python_version(), "torch": torch.__version__, "machine": platform.machine()}


def initial_weights(folder: Path) -> Weights:
    """A policy that is right now and then, in four digits. It is written down, too: training one rounds too often."""
    trainer = Trainer(small(*MODEL, "warm_start.seed=1"), folder)
    trainer.recorder.close()
    return {name: (value * 1e4).round().long().tolist() for name, value in trainer.initial.state_dict().items()}


def trajectory(algorithm: str, weights: Weights, folder: Path) -> dict[str, list[float]]:
    """Mean reward, mean log pi_{k+1}/pi_k, clip fraction and gradient norm of every update."""
    trainer = Trainer(small(f"algorithm={algorithm}", *ALGORITHMS[algorithm], *OVERRIDES), folder)
    trainer.model.load_state_dict({name: torch.tensor(rows) / 1e4 for name, rows in weights.items()})
    trainer.run(lambda progress: None)
    tokens = steps_of(folder)
    return {
        "reward": [float(sequences_of(folder, step)["reward"].to_numpy().mean()) for step in range(20)],
        "drift": [float((step["logp_new"].double() - step["logp_current"].double()).mean()) for step in tokens],
        "clip_fraction": [float(step["clipped"].double().mean()) for step in tokens],
        "grad_norm": table(folder, "steps")["grad_norm"].to_pylist(),
    }


def written_down() -> dict[str, Any]:
    return dict(json.loads(GOLDEN.read_text(encoding="utf-8")))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_twenty_updates_are_those_that_were_written_down(tmp_path: Path, algorithm: str) -> None:
    golden = written_down()
    found = trajectory(algorithm, golden["weights"], tmp_path / "run")
    for name in NUMBERS:
        expected = golden["trajectories"][algorithm][name]
        where = f"{name} of {algorithm}, written down with {golden['environment']}, this is {environment()}"
        assert found[name][:EARLY] == pytest.approx(expected[:EARLY], rel=EARLY_TOLERANCE, abs=1e-5), where
        assert found[name][EARLY:] == pytest.approx(expected[EARLY:], rel=LATE_TOLERANCE, abs=5e-3), where


def test_what_was_written_down_is_worth_comparing() -> None:
    """Rewards differ, gates bind, policies move; otherwise nothing could show."""
    for algorithm, numbers in written_down()["trajectories"].items():
        assert all(len(numbers[name]) == 20 for name in NUMBERS)
        assert len(set(numbers["reward"])) > 4
        assert all(norm > 0 for norm in numbers["grad_norm"])
        assert any(numbers["clip_fraction"]) == (algorithm != "trpo")
        assert all(numbers["drift"])


def regenerate() -> None:
    """Write the file anew."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        weights = initial_weights(Path(folder) / "start")
        trajectories = {name: trajectory(name, weights, Path(folder) / name) for name in ALGORITHMS}
    parts = {"environment": environment(), "trajectories": trajectories, "weights": weights}
    lines = [f' "{name}": {json.dumps(part)}' for name, part in parts.items()]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    regenerate()
