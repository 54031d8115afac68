"""TRL's own AsyncGRPOTrainer on the CPU: its responses come from a worker in this process, its attention is plain."""

import queue
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.adapters.trl_training import LONGEST, WORDS, policy, score
from tests.making import language_model

GROUP = 4


class Worker:
    """Draws from its own copy of the weights, as a server does; the middle of every second conversation is a tool's."""

    TOOL = (10, 11)

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.version, self.trainer = tokenizer, 0, None
        self.rollout_buffer: Any = self
        self.metrics_queue: queue.Queue[Any] = queue.Queue()
        self.generator = torch.Generator().manual_seed(0)
        self.samples: Iterator[Any] = self.drawn()
        self.seen: list[Any] = []

    def qsize(self) -> int:
        return 0

    def get(self, timeout: float | None = None) -> Any:
        self.seen.append(next(self.samples))
        return self.seen[-1]

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def check_health(self, stale_after_s: float) -> None: ...

    def update_model_version(self, model_version: int) -> None:
        self.version = model_version

    @torch.no_grad()
    def drawn(self) -> Iterator[Any]:
        from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

        for group in range(10**6):
            if group % 2 == 0 or group == 1:  # every second group with the weights of the one before
                version, model = self.version, policy()
                state = {name: one.float() for name, one in self.trainer.model.state_dict().items()}
                model.load_state_dict(state)
            asked = f"{group % 5} plus {group % 3} is"
            prompt = self.tokenizer(asked)["input_ids"]
            said = [self.answer(model, prompt, tools=group % 2 == 1) for _ in range(GROUP)]
            rewards = np.array([score(" ".join(WORDS[t] for t, _, own in one if own)) for one in said])
            advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-8)
            for one, reward, advantage in zip(said, rewards, advantages, strict=True):
                mask = [0] * len(prompt) + [own for _, _, own in one]
                yield RolloutSample(
                    prompt=[{"role": "user", "content": asked}],
                    completion=self.messages(one),
                    input_ids=np.array([*prompt, *(token for token, _, _ in one)], dtype=np.int64),
                    completion_mask=np.array(mask, dtype=np.int64),
                    old_log_probs=np.array([0.0] * len(prompt) + [logp for _, logp, _ in one], dtype=np.float32),
                    advantage=float(advantage),
                    model_version=version,
                    group_id=group,
                    metrics={"reward": float(reward), "reward_std": 1.0, "rewards/right": float(reward)},
                )

    def answer(self, model: Any, prompt: list[int], *, tools: bool) -> list[tuple[int, float, int]]:
        said: list[tuple[int, float, int]] = []
        while len(said) < LONGEST and not (said and said[-1][0] == 1):
            if tools and len(said) == 3:
                said += [(token, 0.0, 0) for token in self.TOOL]
            ids = torch.tensor([prompt + [token for token, _, _ in said]])
            logits = model(ids).logits[0, -1].float().log_softmax(-1)
            token = int(torch.multinomial(logits.exp(), 1, generator=self.generator))
            said.append((token, float(logits[token]), 1))
        return said

    def messages(self, said: list[tuple[int, float, int]]) -> list[dict[str, str]]:
        spans = [said[:3], said[3:5], said[5:]] if any(not own for _, _, own in said) else [said]
        texts = [" ".join(WORDS[token] for token, _, _ in span) for span in spans]
        roles = ["assistant", "tool", "assistant"]
        return [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]


def plain_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, ends: torch.Tensor, ends_k: torch.Tensor,
    *_: int, softmax_scale: float, **more: Any,
) -> torch.Tensor:  # fmt: skip
    """The kernel that TRL takes for its packed trees, a segment after the other."""
    found = []
    for place in range(len(ends) - 1):
        q = query[ends[place] : ends[place + 1]].transpose(0, 1)
        k = key[ends_k[place] : ends_k[place + 1]].transpose(0, 1)
        v = value[ends_k[place] : ends_k[place + 1]].transpose(0, 1)
        k, v = (one.repeat_interleave(len(q) // len(one), dim=0) for one in (k, v))
        before = torch.ones(q.shape[1], k.shape[1]).tril(k.shape[1] - q.shape[1]).bool()
        scores = (q @ k.transpose(1, 2) * softmax_scale).masked_fill(~before, -torch.inf)
        found.append((scores.softmax(-1) @ v).transpose(0, 1))
    return torch.cat(found)


def asynchronous(folder: Path, patch: pytest.MonkeyPatch, **settings: Any) -> Any:
    """An AsyncGRPOTrainer with a worker of ours."""
    from datasets import Dataset
    from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_grpo_trainer, packing

    patch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda *_: None)  # asks for a GPU's name
    patch.setattr(packing, "_flash_attn", lambda: SimpleNamespace(flash_attn_varlen_func=plain_attention))
    tokenizer = language_model.tokenizer(WORDS)
    policy().save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    worker = Worker(tokenizer)
    nothing = SimpleNamespace(
        init_weight_transfer=lambda: None, pause=lambda: None, resume=lambda: None, destroy=lambda: None,
        send_weights=lambda named: [*named],
    )  # fmt: skip
    common = {
        "per_device_train_batch_size": 8, "num_generations": GROUP, "gradient_accumulation_steps": 2, "max_steps": 4,
        "max_completion_length": LONGEST, "learning_rate": 5e-3, "use_cpu": True, "bf16": False, "report_to": "none",
        "save_strategy": "no", "logging_steps": 1, "disable_tqdm": True, "token_budget": 0, "seed": 0,
        "weight_sync_steps": 2, "activation_checkpointing": False, "gradient_checkpointing": False,
        "model_init_kwargs": {"dtype": "float32"},
    }  # fmt: skip
    made = AsyncGRPOTrainer(
        model=str(folder / "model"),
        args=AsyncGRPOConfig(output_dir=str(folder / "output"), **(common | settings)),
        train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": "1 plus 1 is"}]}] * 64),
        processing_class=tokenizer,
        rollout_worker=worker,
        weight_transfer=nothing,
    )
    worker.trainer = made
    return made
