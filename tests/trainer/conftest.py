"""What the tests of the trainer share: one thread, a policy that can add a little, a recorded run an algorithm."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from ratioscope.trainer.algorithms.field_rows import ROWS
from ratioscope.trainer.algorithms.rows import ALGORITHMS
from ratioscope.trainer.model.warm_start import warm_started
from ratioscope.trainer.tasks.addition import Addition
from tests.making.training import Recorded, fork_processes, small, train

# Gates bind only where ratios move: a stale sampler and a large learning rate see to that.
RESTLESS = ("sync_interval=3", "learning_rate=0.01")
FIELD = {algorithm.name for algorithm in ROWS}


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """A policy this small gains nothing from a second thread, and waits for it on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Actors that need not import anything."""
    fork_processes(monkeypatch)


@pytest.fixture(scope="package")
def tiny_policy(one_thread: None) -> LlamaForCausalLM:
    """A warm-started policy of a few thousand parameters; tests do not train it."""
    config = small()
    task = Addition(config.task.digits, config.task.evaluation_prompts)
    model, _ = warm_started(config, task, lambda step, accuracy: None)
    return model.requires_grad_(False)


@pytest.fixture(scope="package")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Recorded]:
    """A short, restless run of an algorithm, trained when it is first asked for."""
    runs: dict[str, Recorded] = {}

    def run_of(algorithm: str) -> Recorded:
        if algorithm not in runs:
            folder: Path = tmp_path_factory.mktemp("recorded") / algorithm
            restless = RESTLESS if ALGORITHMS[algorithm].step == "adamw" else RESTLESS[:1]
            shorter = ("updates=5",) if algorithm in FIELD else ()
            runs[algorithm] = train(small(f"algorithm={algorithm}", *restless, *shorter), folder)
        return runs[algorithm]

    return run_of
