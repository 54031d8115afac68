"""A training of SkyRL without a cluster: its own trainer, batch, preprocessing, losses; the dispatch is one model."""

from typing import Any

import numpy as np
import pytest
import torch
import typing_extensions

from ratioscope.adapters.skyrl import RunCallback

with pytest.MonkeyPatch.context() as patch:
    # Its types are for pydantic's typed dictionaries, which before Python 3.12 are those of typing_extensions.
    patch.setattr("typing.TypedDict", typing_extensions.TypedDict)
    from skyrl.backends.skyrl_train.utils.ppo_utils import PolicyLossRegistry
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.trainer import RayPPOTrainer
    from skyrl.train.utils import Timer
    from skyrl.train.utils.callbacks import CallbackHandler, TrainingControl

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
