"""The SkyRL callback on SkyRL's own trainer, batch, preprocessing and advantages; the dispatch is one model."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import typing_extensions

pytest.importorskip("skyrl", exc_type=ImportError)
with pytest.MonkeyPatch.context() as patch:
    # Its types are for pydantic's typed dictionaries, which before Python 3.12 are those of typing_extensions.
    patch.setattr("typing.TypedDict", typing_extensions.TypedDict)
    from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch, pad_training_input_batch
    from skyrl.backends.skyrl_train.utils.ppo_utils import PolicyLossRegistry
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.trainer import RayPPOTrainer
    from skyrl.train.utils import Timer
    from skyrl.train.utils.callbacks import CallbackHandler, TrainingControl

from ratioscope.adapters.skyrl import MASKED, RunCallback, step_columns
from ratioscope.analysis.runs.store import open_run

VOCABULARY = 12


class Output:
    def __init__(self, rows: list[dict[str, list[float]]], metrics: dict[str, float]) -> None:
        self.loss_fn_outputs, self.metrics = rows, metrics


class Dispatch:
    """SkyRL's dispatch to its workers, with the model in this process."""

    def __init__(self, config: Any) -> None:
        torch.manual_seed(1)
        self.table = torch.nn.Parameter(torch.randn(VOCABULARY, VOCABULARY))
        self.optimizer = torch.optim.SGD([self.table], lr=5.0)
        self.loss = PolicyLossRegistry.get(config.trainer.algorithm.policy_loss_type)
        self.algorithm = config.trainer.algorithm

    def logps(self, data: Any, width: int) -> torch.Tensor:
        ids = data["sequences"]
        return self.table.log_softmax(-1)[ids[:, :-1], ids[:, 1:]][:, -width:]

    def forward(self, model: str, data: Any) -> Output:
        with torch.no_grad():
            rows = self.logps(data, data.metadata["response_length"])
        return Output([{"logprobs": row.tolist()} for row in rows], {})

    def forward_from_staged(self, model: str, data: Any) -> Output:
        return self.forward(model, data)

    def stage_data(self, model: str, data: Any, boundaries: list[tuple[int, int]]) -> list[Any]:
        return [data[start:end] for start, end in boundaries]

    def forward_backward_from_staged(self, model: str, data: Any) -> Output:
        width = data["loss_mask"].shape[1]
        loss, _ = self.loss(
            self.logps(data, width),
            data["action_log_probs"],
            data["advantages"],
            config=self.algorithm,
            loss_mask=data["loss_mask"],
            rollout_logprobs=data["rollout_logprobs"],
        )
        loss.backward()
        return Output([], {"final_loss": loss.item(), "policy_loss": loss.item(), "policy_lr": 5.0})

    def optim_step(self, model: str) -> float:
        norm = self.table.grad.norm().item()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm

    def get_lcm_dp_size(self) -> int:
        return 1

    def empty_cache(self, model: str | None = None) -> None: ...


class Words:
    pad_token_id = 0

    def batch_decode(self, rows: list[list[int]], skip_special_tokens: bool = False) -> list[str]:
        return [self.decode(row) for row in rows]

    def decode(self, row: list[int]) -> str:
        return " ".join(f"w{token}" for token in row)


def trainer_with(callback: RunCallback) -> Any:
    """SkyRL's trainer without its constructor, which needs Ray."""
    config = SkyRLTrainConfig()
    config.trainer.train_batch_size = config.trainer.policy_mini_batch_size = 2
    config.trainer.critic.model.path = None
    config.generator.n_samples_per_prompt = 4
    made: Any = object.__new__(RayPPOTrainer)
    made.cfg, made.tokenizer, made.ref_model, made.dispatch = config, Words(), None, Dispatch(config)
    made.all_metrics, made.all_timings, made.global_step = {}, {}, 0
    made.train_dataloader, made.total_training_steps, made._current_epoch = None, 3, 0
    made._callback_handler, made._training_control = CallbackHandler([callback]), TrainingControl()
    return made


def sampled(made: Any, random: np.random.Generator) -> tuple[dict[str, Any], list[str]]:
    """A generator's output: two prompts of four responses; in the second one of each a tool wrote one token."""
    prompts, responses, logps, masks, rewards = [], [], [], [], []
    for place in range(8):
        ids = [1 + place // 4] * (2 + place // 4)
        prompts.append(list(ids))
        noise = torch.from_numpy(random.normal(0, 0.05, (VOCABULARY, VOCABULARY))).float()
        table = (made.dispatch.table.detach() + noise).log_softmax(-1)
        mask, found = [], []
        for index in range(int(random.integers(3, 8))):
            tool = place % 4 == 1 and index == 1
            token = 11 if tool else int(torch.multinomial(table[ids[-1]].exp(), 1))
            mask.append(0 if tool else 1)
            found.append(0.0 if tool else table[ids[-1], token].item())
            ids.append(token)
        responses.append(ids[len(prompts[-1]) :])
        logps.append(found)
        masks.append([0] * len(mask) if place == 7 else mask)  # as for a response that is too long
        rewards.append([0.0] * (len(mask) - 1) + [float(np.mean(np.array(ids) % 2))])
    output = {
        "prompt_token_ids": prompts,
        "response_ids": responses,
        "rollout_logprobs": logps,
        "loss_masks": masks,
        "rewards": rewards,
    }
    return output, ["b"] * 4 + ["a"] * 4


def train(made: Any, steps: int) -> list[tuple[Any, dict[str, Any]]]:
    """What `RayPPOTrainer.train` does with a generator's output, by the same methods in the same order."""
    torch.manual_seed(0)
    random, seen = np.random.default_rng(0), []
    made._fire("on_train_start")
    for _ in range(steps):
        made.global_step += 1
        made._fire("on_step_start")
        batch = made.convert_to_training_input(*sampled(made, random))
        batch = made.compute_advantages_and_returns(made.fwd_logprobs_values_reward(batch))
        before = {
            "advantages": batch["advantages"].clone(),
            "rewards": batch.pop("rewards"),
            "table": made.dispatch.table,
        }
        before["table"] = made.dispatch.table.detach().clone()
        batch.metadata.pop("uids")
        with Timer("train_critic_and_policy", made.all_timings):
            status = made.train_critic_and_policy(batch)
        made._fire("on_step_end", batch=batch, metrics=status)
        seen.append((batch, before))
    made._fire("on_train_end")
    return seen


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, list[Any]]:
    folder = tmp_path_factory.mktemp("skyrl") / "run"
    callback = RunCallback(folder, new=2)
    made = trainer_with(callback)
    seen = train(made, 3)
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
    assert sequences["n_tokens"].iloc[7] == 0
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
    padded = pad_training_input_batch(batch, 2)
    tokens, sequences = step_columns(padded, {})
    assert len(padded["loss_mask"]) == 10 and len(sequences["seq_id"]) == 8
    assert len(tokens["seq_id"]) == int(batch["loss_mask"].sum())


def test_losses_without_old_log_probabilities_have_none(tmp_path: Path) -> None:
    callback = RunCallback(tmp_path / "run", texts=False)
    made = trainer_with(callback)
    made.cfg.trainer.algorithm.policy_loss_type = "rollout_is"
    batch = made.convert_to_training_input(*sampled(made, np.random.default_rng(0)))
    batch = made.fwd_logprobs_values_reward(batch)
    assert batch["action_log_probs"] is None
    tokens, sequences = step_columns(batch, {})
    assert "logp_current" not in tokens and "logp_behavior" in tokens and "response" not in sequences


def test_a_failure_ends_the_recording_with_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "run").write_text("in the way")
    with caplog.at_level(logging.WARNING, logger="ratioscope"):
        seen = train(trainer_with(RunCallback(tmp_path / "run", new=1)), 3)
    assert len(seen) == 3 and [one.name for one in caplog.records].count("ratioscope") == 1


def test_the_batch_is_left_as_it_was(recorded: tuple[Path, Any, list[Any]]) -> None:
    _, _, seen = recorded
    assert isinstance(seen[0][0], TrainingInputBatch)
    assert "rewards" not in seen[0][0] and "uids" not in seen[0][0].metadata
