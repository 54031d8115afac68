"""Runs that take a second: a policy of a few thousand parameters that adds digits."""

import copy
import multiprocessing
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import settings
from transformers import LlamaForCausalLM

from ratioscope.run_format import schema
from ratioscope.trainer.settings.config import TrainConfig
from ratioscope.trainer.settings.load import load_settings
from ratioscope.trainer.training.loop import Trainer

SMALL = (
    "hidden_size=32",
    "intermediate_size=64",
    "layers=1",
    "heads=2",
    # Right answers only, until some are right: the usual start takes minutes.
    "warm_start.right_share=1",
    "warm_start.accuracy=0.35",
    "warm_start.learning_rate=0.01",
    "warm_start.max_steps=400",
    "digits=1",
    "evaluation_prompts=20",
    "prompts=6",
    "samples_per_prompt=4",
    "updates=8",
    "device=cpu",
    "checkpoint_every=3",
    "evaluate_every=4",
)


def fork_processes(patch: pytest.MonkeyPatch) -> None:
    """Have the trainer fork its processes, which then import nothing.

    Not where PyTorch sees a GPU: the threads that differentiate, one a device, do not come along.
    """
    if not torch.cuda.is_available():
        fork = multiprocessing.get_context("fork")
        patch.setattr(multiprocessing, "get_context", lambda method: fork)


# Examples cost milliseconds on an idle machine and seconds on a busy one.
QUICK = settings(max_examples=40, deadline=None)

# Old snapshots, a half-full buffer, several passes and the optimiser's moments all have to survive a stop.
RESUMABLE = ("algorithm=adaptive_clip", "sync_interval=2", "sync_offset=3", "learning_rate=0.01", "updates=12")

# What no two runs share.
CLOCKS = {
    "steps": ("wall_time", "seconds_sampling", "seconds_training", "seconds_probing", "seconds_logging"),
    "probes": ("seconds",),
}


def small(*overrides: str) -> TrainConfig:
    """The on-policy preset made small, with overrides on top."""
    return load_settings("on_policy", [*SMALL, *overrides])


class Policies(Sequence[LlamaForCausalLM]):
    """The policy at every version, made of its weights when it is asked for: most tests of a run ask for none."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        self._model = model
        self._weights: list[dict[str, torch.Tensor]] = []
        self._made: dict[int, LlamaForCausalLM] = {}
        self.keep()

    def keep(self) -> None:
        """Keep what the policy is now."""
        self._weights.append({name: weight.clone() for name, weight in self._model.state_dict().items()})

    def __len__(self) -> int:
        return len(self._weights)

    def __getitem__(self, version: int) -> LlamaForCausalLM:  # type: ignore[override]
        version = range(len(self))[version]
        if version not in self._made:
            self._made[version] = _copied(self._model)
            self._made[version].load_state_dict(self._weights[version])
        return self._made[version]


class Recorded(NamedTuple):
    """A run, and the policy at every version: `policies[k]` is pi_k."""

    folder: Path
    config: TrainConfig
    status: str
    policies: Sequence[LlamaForCausalLM]


def train(
    config: TrainConfig,
    folder: Path,
    *,
    resume: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
    on_start: Callable[[], None] = lambda: None,
) -> Recorded:
    """Train in this process, keeping the policy after every update."""
    trainer = Trainer(config, folder, resume=resume)
    on_start()
    policies = Policies(trainer.model)
    status = trainer.run(lambda progress: policies.keep(), should_stop)
    return Recorded(folder, config, status, policies)


def _copied(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """A policy with weights of its own; their configuration, which takes longer to copy, the two share."""
    shared = [model.generation_config, *(module.config for module in model.modules() if hasattr(module, "config"))]
    return copy.deepcopy(model, {id(configuration): configuration for configuration in shared})


def table(folder: Path, name: str) -> pa.Table:
    """One table of a run, in the order of its key, without the clocks; null where a file lacks a column."""
    return _table(name, tuple((path, path.stat().st_mtime_ns) for path in sorted((folder / name).glob("*.parquet"))))


@lru_cache(maxsize=300)
def _table(name: str, versions: tuple[tuple[Path, int], ...]) -> pa.Table:
    # A folder read at once would have the columns of its first file only.
    whole = pa.concat_tables([pq.read_table(path) for path, _ in versions], promote_options="default")
    whole = whole.select(sorted(set(whole.column_names) - set(CLOCKS.get(name, ()))))
    key = schema.ALL_TABLES[name].key
    return whole.sort_by([(column, "ascending") for column in key])


def same_tables(one: Path, other: Path) -> bool:
    """Whether two runs hold the same rows, bit for bit."""
    # Probes may hold NaN, which equals nothing.
    probes = [repr(table(run, "probes").to_pylist()) if (run / "probes").exists() else "" for run in (one, other)]
    return probes[0] == probes[1] and all(table(one, name).equals(table(other, name)) for name in schema.TABLES)
