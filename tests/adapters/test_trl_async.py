"""TRL's own AsyncGRPOTrainer, recorded: what the files hold is what was drawn, and what it logged."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from ratioscope.adapters.trl import record
from ratioscope.adapters.trl.asynchronous import AsyncRecorder, _Sample
from ratioscope.analysis.linter import lint
from ratioscope.analysis.runs.store import open_run
from tests.adapters.async_training import GROUP, Worker, asynchronous


def test_samples_of_its_queue_are_recorded_as_they_were_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = asynchronous(tmp_path, monkeypatch)
    recorder = record(made, tmp_path / "run", quiet=True)
    made.train()
    assert recorder.failure == ""
    run = open_run(tmp_path / "run")
    assert run.manifest.status == "finished" and not [one.rule for one in lint(run) if one.is_problem]
    tokens, sequences, messages = (
        pq.read_table(tmp_path / "run" / name).to_pandas() for name in ("tokens", "sequences", "messages")
    )
    steps = run.steps.set_index("step")
    drawn = [one for one in made.rollout_worker.seen if int(one.completion_mask.sum())][: len(sequences)]
    # Four groups of four a step, one after the other: the trainer puts the longer one of a micro-batch first.
    assert sequences.groupby("step").size().tolist() == [4 * GROUP] * 4
    by_key = sequences.sort_values("seq_id").reset_index()
    place_of = {group: place for place, group in enumerate(by_key["group_id"].drop_duplicates())}
    drawn = sorted(drawn, key=lambda one: place_of[one.group_id])
    assert by_key["group_id"].tolist() == [one.group_id for one in drawn]
    np.testing.assert_allclose(by_key["reward_right"], [one.metrics["reward"] for one in drawn])
    for place, sample in enumerate(drawn):
        own = sample.completion_mask.astype(bool)
        of_one = tokens[tokens["seq_id"] == by_key["seq_id"][place]].sort_values("position")
        assert of_one["token_id"].tolist() == sample.input_ids[own].tolist()
        np.testing.assert_array_equal(of_one["logp_behavior"], sample.old_log_probs[own])
        np.testing.assert_allclose(of_one["advantage"], sample.advantage, rtol=1e-6)
        # Weights are sent before the first step and after every second: version 1 is of step 0, version 2 of step 2.
        assert (of_one["behavior_version"] == 2 * (sample.model_version - 1)).all()
    assert set(tokens["behavior_version"]) == {0, 2}
    tools = by_key["n_tool_calls"] == 1
    assert tools.any() and by_key["prompt_tokens"].isna()[tools].all() and by_key["prompt_tokens"].notna()[~tools].all()
    said = " ".join(["8", "9"])  # of the words with the numbers of Worker.TOOL
    assert Worker.TOOL == (10, 11) and (messages["content"][messages["role"] == "tool"] == said).all()

    batch = [tokens["step"], tokens["seq_id"].map(by_key.set_index("seq_id")["micro_batch"])]
    ratio = np.exp(tokens["logp_current"].astype(float) - tokens["logp_behavior"])
    of_token = {
        "ratio": ratio,
        "kl": ratio - 1 - np.log(ratio),
        "entropy": tokens["entropy"],
        "clip_ratio_low_mean": tokens["clip_side"] < 0,
        "clip_ratio_high_mean": tokens["clip_side"] > 0,
    }
    for name, values in of_token.items():
        of_step = values.groupby(batch).mean().groupby("step").mean()
        np.testing.assert_allclose(of_step, steps[f"extra_{name}"], rtol=1e-4, atol=1e-6)
    known = tokens["gradient_weight"].notna()
    expected = tokens["advantage"] * ratio * tokens["gate"] / tokens.groupby(batch)["position"].transform("size") / 2
    assert 0.8 < known.mean() < 1
    np.testing.assert_allclose(tokens["gradient_weight"][known], expected[known], rtol=1e-3, atol=1e-7)

    monkeypatch.undo()
    (tmp_path / "again").mkdir()
    without = asynchronous(tmp_path / "again", monkeypatch)
    without.train()
    for one, other in zip(made.model.parameters(), without.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_after_a_resume_groups_have_numbers_of_their_own() -> None:
    """The worker counts from 0 again, and asks other prompts."""
    recorder = AsyncRecorder.__new__(AsyncRecorder)
    ids = np.array([5, 6, 1])
    recorder._trainer, found = SimpleNamespace(eos_token_ids=[1]), []
    for first_step in (0, 3):
        recorder.number_from(first_step)
        recorder._queued = {id(ids): _Sample("asked", "said", 0)}
        example = {"input_ids": ids, "completion_mask": np.array([0, 1, 1]), "group_id": 7, "metrics": {"reward": 1.0}}
        found.append(recorder._facts(example))
    assert [one["group"] for one in found] == [7, (3 << 32) + 7]
    assert found[0]["key"] != found[1]["key"] and found[0]["places"] == [0, 1] and found[0]["ended"]
