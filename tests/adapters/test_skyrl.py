"""The SkyRL callback on SkyRL's own trainer, batch, preprocessing and advantages; the dispatch is one model."""

import logging
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from ratioscope.adapters.skyrl import MASKED, RunCallback, step_columns
from ratioscope.analysis.runs.store import open_run

training: Any = None  # tests.adapters.skyrl_training


@pytest.fixture(autouse=True, scope="module")
def _import() -> None:
    """Not before a test needs it: that takes seconds, and every process collects this file."""
    global training
    pytest.importorskip("skyrl", exc_type=ImportError)
    training = import_module("tests.adapters.skyrl_training")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, list[Any]]:
    folder = tmp_path_factory.mktemp("skyrl") / "run"
    callback = RunCallback(folder, new=2)
    made = training.trainer_with(callback)
    seen = training.train(made, 3)
    assert callback.recording.failure == ""
    return folder, made, seen


def table(folder: Path, name: str, step: int) -> pd.DataFrame:
    frame = pd.read_parquet(folder / name)
    return frame[frame["step"] == step].reset_index(drop=True)


def test_rows_are_the_sampled_tokens_of_right_aligned_responses(recorded: tuple[Path, Any, list[Any]]) -> None:
    folder, _, seen = recorded
    batch, before = seen[0]
    tokens, sequences = table(folder, "tokens", 1), table(folder, "sequences", 1)
    mask = batch["loss_mask"][:8].bool()
    width = mask.shape[1]
    for name, column in (
        ("rollout_logprobs", "logp_behavior"),
        ("action_log_probs", "logp_current"),
    ):
        np.testing.assert_array_equal(tokens[column], batch[name][:8][mask].numpy())
    np.testing.assert_array_equal(tokens["token_id"], batch["sequences"][:8, -width:][mask].numpy())
    np.testing.assert_array_equal(tokens["advantage"], before["advantages"][:8][mask].numpy())
    assert len(sequences) == 8
    assert sequences["dropped"].isna().tolist() == [True] * 7 + [False] and sequences["dropped"][7] == MASKED
    assert sequences["n_tokens"].iloc[7] == 0 and sequences["prompt_tokens"][0] == 2
    assert sequences["group_id"].tolist() == [0] * 4 + [1] * 4 and sequences["prompt"][0] == "w1 w1"
    np.testing.assert_allclose(sequences["reward"], before["rewards"][:8].sum(dim=1))
    assert (tokens["behavior_version"] == 0).all() and tokens["logp_behavior"].lt(0).all()
    # The trap: read from the left, as other frameworks pad.
    wrong = [batch["action_log_probs"][row, : int(mask[row].sum())] for row in range(8)]
    assert not np.array_equal(torch.cat(wrong).numpy(), tokens["logp_current"])


def test_the_advantages_that_the_batch_ends_with_are_scaled_for_the_loss(recorded: tuple[Path, Any, list[Any]]) -> None:
    """The trap: SkyRL overwrites them, divided by the number of tokens of the mini-batch."""
    folder, _, seen = recorded
    batch, _ = seen[0]
    mask = batch["loss_mask"][:8].bool()
    ours = table(folder, "tokens", 1)["advantage"].abs().max()
    assert batch["advantages"][:8][mask].abs().max() < ours / 5
    without = step_columns(batch, {})[0]
    assert "advantage" not in without  # not logged, rather than scaled
    assert without["group_id"].tolist() == table(folder, "tokens", 1)["group_id"].tolist()


def test_the_policy_after_the_update_is_scored_every_other_step(recorded: tuple[Path, Any, list[Any]]) -> None:
    folder, made, seen = recorded
    assert table(folder, "tokens", 2)["logp_new"].isna().all()
    tokens, (batch, before) = table(folder, "tokens", 3), seen[2]
    mask = batch["loss_mask"][:8].bool()
    after = made.dispatch.logps(batch, mask.shape[1]).detach()[:8][mask]
    np.testing.assert_allclose(tokens["logp_new"], after.numpy(), rtol=1e-6)
    assert (tokens["logp_new"] - tokens["logp_current"]).abs().max() > 1e-3
    assert not torch.equal(before["table"], made.dispatch.table)


def test_manifest_and_steps(recorded: tuple[Path, Any, list[Any]]) -> None:
    folder, _, _ = recorded
    manifest = open_run(folder).manifest
    assert manifest.source["framework"] == "SkyRL" and manifest.status == "finished"
    assert "logp_reference" in manifest.missing and "logp_new" not in manifest.missing
    assert manifest.algorithm["parameters"]["policy_loss_type"] == "regular" and manifest.assumed
    steps = pd.read_parquet(folder / "steps")
    assert steps["step"].tolist() == [1, 2, 3] and steps["policy_version"].tolist() == [0, 1, 2]
    assert steps["grad_norm"].gt(0).all() and steps["learning_rate"].eq(5).all() and steps["loss"].notna().all()
    assert steps["seconds_training"].gt(0).all()


def test_copies_that_fill_the_ranks_are_left_out(recorded: tuple[Path, Any, list[Any]]) -> None:
    batch = recorded[2][0][0]
    from skyrl.backends.skyrl_train.training_batch import pad_training_input_batch

    padded = pad_training_input_batch(batch, 2)
    tokens, sequences = step_columns(padded, {})
    assert len(padded["loss_mask"]) == 10 and len(sequences["seq_id"]) == 8
    assert len(tokens["seq_id"]) == int(batch["loss_mask"].sum())


def test_losses_without_old_log_probabilities_have_none(tmp_path: Path) -> None:
    callback = RunCallback(tmp_path / "run", texts=False)
    made = training.trainer_with(callback)
    made.cfg.trainer.algorithm.policy_loss_type = "rollout_is"
    batch = made.convert_to_training_input(*training.sampled(made, np.random.default_rng(0)))
    batch = made.fwd_logprobs_values_reward(batch)
    assert batch["action_log_probs"] is None
    tokens, sequences = step_columns(batch, {})
    assert "logp_current" not in tokens and "logp_behavior" in tokens and "response" not in sequences


def test_a_failure_ends_the_recording_with_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "run").write_text("in the way")
    with caplog.at_level(logging.WARNING, logger="ratioscope"):
        seen = training.train(training.trainer_with(RunCallback(tmp_path / "run", new=1)), 3)
    assert len(seen) == 3 and [one.name for one in caplog.records].count("ratioscope") == 1


def test_the_batch_is_left_as_it_was(recorded: tuple[Path, Any, list[Any]]) -> None:
    from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch

    _, _, seen = recorded
    assert isinstance(seen[0][0], TrainingInputBatch)
    assert "rewards" not in seen[0][0] and "uids" not in seen[0][0].metadata
