"""ms-swift's own trainer, recorded: what the files hold is what it logged."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

from ratioscope.adapters.cost import Cost
from ratioscope.adapters.ms_swift import SwiftRecorder, record
from ratioscope.adapters.trl.columns import Pass
from ratioscope.analysis.importers.formats import ms_swift
from ratioscope.analysis.linter import lint
from ratioscope.analysis.runs.store import open_run
from ratioscope.errors import RatioscopeError
from tests.adapters.trl_training import score
from tests.making.foreign.reading import steps_of


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the recorded trainings of `swift_training`."""
    if not all(find_spec(package) for package in ("swift", "modelscope", "einops", "dacite", "json_repair")):
        pytest.skip("ms-swift is not installed")
    folder = tmp_path_factory.mktemp("swift")
    found = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.adapters.swift_training", str(folder), "plain", "turns"],
        env=found | {"MODELSCOPE_CACHE": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def tables(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    return tuple(pq.read_table(folder / "run" / one).to_pandas() for one in ("tokens", "sequences", "steps"))  # type: ignore[return-value]


def test_its_trainer_is_recorded_as_it_computed(trained: Path) -> None:
    tokens, sequences, steps = tables(trained / "plain")
    steps = steps.set_index("step")
    written = json.loads((trained / "plain" / "logged.json").read_text())
    logged = pd.DataFrame([one for one in written if "loss" in one]).set_index("step")
    run = open_run(trained / "plain" / "run")
    assert run.manifest.status == "finished" and run.manifest.source["framework"] == "ms-swift"
    assert {remark.rule for remark in lint(run) if remark.is_problem} <= {"rewards"}
    np.testing.assert_allclose(steps["loss"], logged["loss"], atol=1e-6)
    # Two generations, each trained on for two updates twice; a step is two micro-batches, of a group each.
    assert sequences.groupby("step").size().tolist() == [8] * 4 and sequences["seq_id"].nunique() == 16
    assert [*tokens.groupby("step")["behavior_version"].unique().map(list)] == [[0]] * 4
    assert (sequences.groupby("group_id")["prompt"].nunique() == 1).all()
    assert not run.manifest.schedule["groups_span_steps"]
    np.testing.assert_allclose(sequences["reward_Right"], sequences["response"].map(score))
    by = [tokens["step"], tokens["seq_id"].map(sequences.drop_duplicates("seq_id").set_index("seq_id")["micro_batch"])]
    of_batches = {
        "clip_ratio/low_mean": tokens["clip_side"] < 0,
        "clip_ratio/high_mean": tokens["clip_side"] > 0,
        "clip_ratio/region_mean": tokens["clip_side"] != 0,
    }
    for name, of_token in of_batches.items():
        np.testing.assert_allclose(of_token.groupby(by).mean().groupby("step").mean(), logged[name], atol=1e-6)
    gap = (tokens["logp_reference"] - tokens["logp_current"]).astype(float)
    k3 = (np.exp(gap) - gap - 1).clip(upper=10)  # as ms-swift does
    np.testing.assert_allclose(k3.groupby(by).mean().groupby("step").mean(), logged["kl"], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        tokens.groupby(["step", "seq_id"])["entropy"].mean().groupby("step").mean(), logged["entropy/mean"], rtol=1e-4
    )
    first = tokens[tokens["step"] == 0]
    np.testing.assert_allclose(first["logp_current"], first["logp_behavior_train"], atol=1e-6)
    # The gradient of a mean over responses of means over tokens, where the penalty has none yet. With TRL before 1
    # transformers divides it by the number of micro-batches.
    n = first.groupby("seq_id")["position"].transform("size")
    factor = first["gradient_weight"] / (first["advantage"] / n / 4)
    np.testing.assert_allclose(factor, factor.iloc[0], rtol=1e-4)
    assert factor.iloc[0] in (pytest.approx(1.0), pytest.approx(0.5))
    assert (tokens["logp_new"] != tokens["logp_current"]).any()


def test_turns_and_a_sampler_that_says_its_log_probabilities(trained: Path) -> None:
    tokens, sequences, _ = tables(trained / "turns")
    messages = pq.read_table(trained / "turns" / "run" / "messages").to_pandas()
    two = sequences["n_turns"] == 2
    assert two.any() and sequences["prompt_tokens"].isna()[two].all()
    said = messages.sort_values("turn").groupby(["step", "seq_id"])["role"].agg(list)
    assert {tuple(one) for one in said} == {("system", "user", "assistant", "tool", "assistant")}
    of_two = tokens.merge(sequences[two][["step", "seq_id"]], on=["step", "seq_id"])
    place = of_two.groupby(["step", "seq_id", "turn"]).cumcount()
    np.testing.assert_allclose(of_two["logp_behavior"], -2 - place / 8, atol=1e-6)
    ratio = np.exp(tokens["logp_behavior_train"] - tokens["logp_behavior"])
    assert ((tokens["rejected"] == "importance sampling mask") == (ratio > 1)).all()
    assert "n_tool_calls" in sequences and (messages["content"] == "3 4")[messages["role"] == "tool"].all()


@pytest.mark.parametrize("kind", ["plain", "turns"])
def test_the_completions_that_it_writes_itself_are_imported_as_they_were_recorded(trained: Path, kind: str) -> None:
    """The four updates are of one generation, which ms-swift logs as far as it has been trained on."""
    (file,) = (trained / kind / "output").glob("*/completions.jsonl")
    steps, (_, recorded, _) = steps_of(ms_swift.IMPORTER, file.parent), tables(trained / kind)
    assert [step.number for step in steps] == [1, 2]
    for step in steps:
        found, expected = step.sequences, recorded[recorded["step"] == step.number - 1].reset_index()
        assert found["group_id"] == pd.factorize(expected["group_id"])[0].tolist() == [0] * 4 + [1] * 4
        assert found["reward"] == expected["reward"].tolist()
        last = expected["response"].str.rpartition("assistant: ")[2]  # of several turns, the others are in the prompt
        assert found["response"] == last.tolist()


def test_its_mask_of_whole_responses_is_kept_as_trls() -> None:
    recorder = SwiftRecorder.__new__(SwiftRecorder)
    recorder._pass, recorder.cost = Pass({}), Cost()
    assert recorder._kept(lambda: torch.tensor([True, False])).tolist() == [True, False]
    assert recorder._pass.kept is not None and recorder._pass.kept.tolist() == [[True], [False]]


def _loss(self: Any, model: Any, model_inputs: Any, grpo_batch: Any, origin_data: Any = None) -> None: ...


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ({"use_liger_kernel": True}, "with use_liger_kernel it has no log-probabilities"),
        ({"async_generate": True}, "with async_generate its batch does not say"),
        ({"sequence_parallel_size": 2}, "with sequence_parallel_size a process has parts"),
    ],
)
def test_what_is_not_seen_is_refused_before_the_training(setting: dict[str, Any], why: str, tmp_path: Path) -> None:
    made = type("GRPOTrainer", (), {"_compute_loss": _loss, "_postprocess_batch": _loss})()
    usual = {"use_liger_kernel": False, "async_generate": False, "sequence_parallel_size": 1} | setting
    made.args = made.template = SimpleNamespace(**usual)
    with pytest.raises(RatioscopeError, match=why) as problem:
        record(made, tmp_path / "run")
    assert len(str(problem.value).split()) <= 25
    with pytest.raises(RatioscopeError, match="int is not a trainer that this recorder knows"):
        record(3, tmp_path / "run")
