"""The training around the recorder: its weights, failures, checkpoints, costs and processes."""

import logging
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from ratioscope.adapters.trl import record
from ratioscope.analysis.frameworks import theirs
from ratioscope.analysis.linter import lint
from ratioscope.analysis.runs.store import open_run
from ratioscope.errors import RatioscopeError
from ratioscope.recorder import RunRecorder
from ratioscope.run_format.manifest import Manifest
from tests.adapters.trl_training import (
    GROUP,
    REUSE,
    ROWS,
    read,
    recorded,
    right,
    score,
    trainer,
)

# Not imported before a test needs it: that takes a second, and every process collects this file.
if TYPE_CHECKING:
    from trl import GRPOTrainer


def weights(made: "GRPOTrainer") -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in made.model.parameters()])


@pytest.fixture(scope="module")
def unrecorded(tmp_path_factory: pytest.TempPathFactory) -> torch.Tensor:
    made = trainer(tmp_path_factory.mktemp("unrecorded"), max_steps=8, **REUSE)
    made.train()
    return weights(made)


def test_recording_changes_no_bit_of_the_training(tmp_path: Path, unrecorded: torch.Tensor) -> None:
    assert torch.equal(weights(recorded(tmp_path, trainer(tmp_path, max_steps=8, **REUSE), new=3).trainer), unrecorded)


@pytest.mark.parametrize("where", ["record_step", "columns", "forward"])
def test_a_failure_ends_the_recording_and_not_the_training(
    where: str,
    tmp_path: Path,
    unrecorded: torch.Tensor,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(*arguments: Any, **more: Any) -> None:
        raise OSError(28, "No space left on device")

    made = trainer(tmp_path, max_steps=8, **REUSE)
    recorder = record(made, tmp_path / "run", new=True, quiet=True)
    if where == "record_step":
        monkeypatch.setattr(RunRecorder, "_flush", fails)
    elif where == "columns":
        monkeypatch.setattr("ratioscope.adapters.trl.recorder.columns_of", fails)
    else:
        monkeypatch.setattr("ratioscope.adapters.trl.recorder._scored_again", fails)
    with caplog.at_level(logging.WARNING, "ratioscope"):
        made.train()
    assert torch.equal(weights(made), unrecorded)
    said = [record.getMessage() for record in caplog.records if str(tmp_path) in record.getMessage()]
    assert all("No space left on device" in line for line in said)
    # What may pass is waited for, which is said once, until the training is over.
    assert len(said) == 1 + (where == "record_step") and "the training goes on" in said[-1]
    manifest = Manifest.read(tmp_path / "run")
    assert manifest.status == "failed" and "No space left" in manifest.status_reason
    assert "No space left" in recorder.failure


def test_a_training_that_fails_is_a_failed_run(tmp_path: Path) -> None:
    made = trainer(tmp_path, **REUSE)
    calls = []

    def breaks(completions: list[str], **more: Any) -> list[float]:
        calls.append(1)
        if len(calls) > 1:
            raise ValueError("the judge is gone")
        return right(completions)

    made.reward_funcs[0] = breaks
    record(made, tmp_path / "run", quiet=True)
    with pytest.raises(ValueError, match="the judge is gone"):
        made.train()
    manifest = Manifest.read(tmp_path / "run")
    assert (manifest.status, manifest.status_reason) == ("failed", "ValueError: the judge is gone")
    assert pq.read_table(tmp_path / "run" / "steps")["step"].to_pylist() == [0, 1, 2, 3]


def test_going_on_from_a_checkpoint(tmp_path: Path) -> None:
    saving = {"save_strategy": "steps", "save_steps": 4}
    made = trainer(tmp_path, max_steps=4, **REUSE, **saving)
    record(made, tmp_path / "run", quiet=True)
    made.train()
    again = trainer(tmp_path, max_steps=6, **REUSE, **saving)
    with pytest.raises(RatioscopeError, match="already holds a run"):
        record(again, tmp_path / "run")
    recorder = record(again, tmp_path / "run", resume=True, quiet=True)
    again.train(resume_from_checkpoint=True)
    assert recorder.failure == ""
    found = read(tmp_path / "run", again, recorder, [])
    assert found.steps.index.tolist() == list(range(6)) and found.manifest.status == "finished"
    assert found.manifest.planned_updates == 6  # not the 4 of the first part
    later = found.sequences[found.sequences["step"] >= 4]
    assert (later["behavior_version_min"] == 4).all()
    assert not {*later["group_id"]} & {*found.sequences["group_id"][found.sequences["step"] < 4]}


def test_what_it_costs_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = trainer(tmp_path, max_steps=2)
    record(made, tmp_path / "run", new=True)
    made.train()
    said = capsys.readouterr().out
    assert "2 steps recorded" in said and "MB a step" in said and "logp_new" in said and "nan" not in said


def test_another_kind_of_trainer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RatioscopeError, match="int is not a trainer that this recorder knows"):
        record(3, tmp_path / "run")


def _replaced(self: Any, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
    """As Unsloth's: it makes the loss itself."""
    return self._get_per_token_logps_and_entropies(model, inputs["prompt_ids"])[0].mean()


def _of_swift(self: Any, model: Any, model_inputs: Any, grpo_batch: Any, origin_data: Any = None) -> Any:
    return self._get_per_token_logps_and_entropies(model, model_inputs, grpo_batch)[0].mean()


def _without_forward(self: Any, model: Any, inputs: Any) -> Any:
    return model(**inputs).loss


@pytest.mark.parametrize(
    ("methods", "why"),
    [
        ({"compute_loss": _replaced}, "Other is not recorded: its compute_loss, replaced as by Unsloth, does not call"),
        ({"_compute_loss": _of_swift}, "Other is ms-swift's: record it with ratioscope.adapters.ms_swift"),
        ({"_compute_loss": _without_forward}, "does not call _get_per_token_logps_and_entropies"),
        ({"_compute_loss": lambda self, model, inputs, groups: None}, "takes model, inputs, groups"),
        ({"use_liger_kernel": True}, "with use_liger_kernel it has no log-probabilities of tokens"),
    ],
)
def test_a_trainer_whose_loss_is_not_seen_is_refused_before_it_trains(
    methods: dict[str, Any], why: str, tmp_path: Path
) -> None:
    import trl

    other = type("Other", (trl.GRPOTrainer,), methods)
    made = other.__new__(other)
    made.loss_type = "grpo"
    with pytest.raises(RatioscopeError, match=why) as problem:
        record(made, tmp_path / "run")
    assert not (tmp_path / "run").exists() and len(str(problem.value).split()) <= 25


def test_trl_s_other_trainers_are_recorded_or_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import trl
    from trl.experimental.gmpo import GMPOConfig, GMPOTrainer
    from trl.experimental.tpo import TPOTrainer

    with pytest.raises(RatioscopeError, match="TPOTrainer is not a trainer that this recorder knows: it has no"):
        record(TPOTrainer.__new__(TPOTrainer), tmp_path / "tpo")
    monkeypatch.setattr(trl, "GMPOTrainer", GMPOTrainer, raising=False)
    monkeypatch.setattr(trl, "GMPOConfig", GMPOConfig, raising=False)
    made = trainer(tmp_path, kind="GMPO", max_steps=2)
    recorder = record(made, tmp_path / "run", quiet=True)
    made.train()
    found = read(tmp_path / "run", made, recorder, [])
    assert recorder.failure == "" and found.steps.index.tolist() == [0, 1]
    assert {"gate", "clipped", "clip_side"}.isdisjoint(found.tokens) and found.tokens["gradient_weight"].notna().any()
    assert found.manifest.algorithm["parts"]["gate"] == "GMPOTrainer" == found.manifest.algorithm["name"]
    assert "GMPOTrainer computes a loss of its own" in found.manifest.assumed[0]


def test_several_processes_record_one_run(tmp_path: Path) -> None:
    """All of each batch is in it, in groups that lie across processes, with the gradient that the optimizer takes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "ACCELERATE_USE_CPU": "true"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.adapters.trl_training", str(tmp_path)],
            env=os.environ | world | {"OMP_NUM_THREADS": "1", "RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    said = [process.communicate(timeout=300) for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], said
    assert [out.count("steps recorded") for out, _ in said] == [1, 0]
    run = open_run(tmp_path / "run")
    tokens, sequences = (pq.read_table(tmp_path / "run" / name).to_pandas() for name in ("tokens", "sequences"))
    assert run.manifest.status == "finished" and len(run.manifest.writers) == 2
    assert sequences.groupby(["step", "rank"]).size().tolist() == [ROWS // 2] * 8
    assert not sequences.duplicated(["step", "seq_id"]).any()
    once = sequences.drop_duplicates("seq_id")
    assert (once.groupby("group_id").size() == GROUP).all() and len(once) == 2 * ROWS
    assert (sequences.groupby("group_id")["prompt"].nunique() == 1).all()
    np.testing.assert_allclose(sequences["reward_right"], sequences["response"].map(score))
    kept = tokens[tokens["gradient_weight"] != 0]
    ratio = np.exp((kept["logp_current"] - kept["logp_behavior_train"]).astype(float))
    factor = kept["advantage"] * ratio / kept["gradient_weight"]
    # DAPO's, their default: of a generation's tokens, those of all processes, what falls on a step.
    np.testing.assert_allclose(factor, len(tokens) / 4, rtol=1e-3)
    assert {remark.rule for remark in lint(run) if remark.is_problem} <= {"rewards"}
    steps = run.steps.set_index("step")
    assert steps["policy_version"].tolist() == [0, 1, 2, 3]
    found = theirs(run, "trl").pivot(index="step", columns="name", values="value")
    np.testing.assert_allclose(found["entropy"], steps["extra_entropy"], rtol=1e-4)
    for name in ("low_mean", "high_mean", "region_mean", "low_min", "high_max"):
        np.testing.assert_allclose(found[f"clip_ratio/{name}"], steps[f"extra_clip_ratio_{name}"], atol=1e-5)
    assert run.manifest.schedule["processes"] == run.manifest.schedule["processes_recorded"] == 2
