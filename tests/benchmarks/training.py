"""The trainer: 150 updates of 32 x 8 with recording, against a naive loop; and what recording costs of an update."""

import random
import tempfile
import time
from pathlib import Path

import torch

from ratioscope.recorder import RunRecorder
from tests.benchmarks.timing import row
from trainer import policy
from trainer.config import TrainConfig, load
from trainer.loop import Trainer
from trainer.sampling import pad_left
from trainer.tasks.addition import Addition

UPDATES = 150


def run() -> None:
    """Print the two comparisons."""
    config = load("on_policy", [f"updates={UPDATES}", "prompts=32", "algorithm=grpo"])
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(config, Path(folder) / "run")
        waited = _count_waiting(trainer.recorder)
        processor = time.process_time()
        started = time.perf_counter()
        trainer.run(lambda progress: None)
        recorded = time.perf_counter() - started
        processor = time.process_time() - processor
    naive = _naive(config)
    row(f"{UPDATES} updates of 32 x 8, all columns, recorded", recorded, naive, "naive loop")
    row("  of it the loop waited for the recorder", waited[0], recorded, "the whole")
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(config, Path(folder) / "run")
        trainer.recorder.record_step = lambda step, **columns: None  # type: ignore[method-assign]
        started = time.process_time()
        trainer.run(lambda progress: None)
        bare = time.process_time() - started
    row("  processor time with recording", processor, bare, "without recording")


def _count_waiting(recorder: RunRecorder) -> list[float]:
    """Seconds that calls of `record_step` take, summed in the only element."""
    waited, record = [0.0], recorder.record_step

    def timed(*args: object, **columns: object) -> None:
        started = time.perf_counter()
        record(*args, **columns)  # type: ignore[arg-type]
        waited[0] += time.perf_counter() - started

    recorder.record_step = timed  # type: ignore[method-assign]
    return waited


def _naive(config: TrainConfig) -> float:
    """Sampling without a cache, one forward and backward pass, nothing logged: the least that any trainer does."""
    task = Addition(config.task.digits, config.task.evaluation_prompts)
    model = policy.warm_started(config, task, lambda step, accuracy: None)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    draw, generator = random.Random(0), torch.Generator().manual_seed(0)
    started = time.perf_counter()
    for _ in range(UPDATES):
        ids = [prompt_id for prompt_id in task.draw(draw, 32) for _ in range(8)]
        tokens, _mask = pad_left([task.vocabulary.encode(task.prompt(i)) for i in ids], task.prompt_length)
        with torch.no_grad():
            for _ in range(task.response_length):
                logits = model(input_ids=tokens, use_cache=False).logits[:, -1]
                tokens = torch.cat([tokens, torch.multinomial(logits.softmax(-1), 1, generator=generator)], dim=1)
        answers = tokens[:, task.prompt_length :]
        rewards = [task.reward(i, task.vocabulary.decode(a)) for i, a in zip(ids, answers.tolist(), strict=True)]
        reward = torch.tensor(rewards).view(-1, 8)
        advantage = (reward - reward.mean(dim=1, keepdim=True)).flatten()
        states = model(input_ids=tokens[:, :-1], use_cache=False).logits[:, task.prompt_length - 1 :].log_softmax(-1)
        logp = states.gather(2, answers.unsqueeze(2)).squeeze(2)
        optimiser.zero_grad(set_to_none=True)
        (-(advantage[:, None] * logp).mean()).backward()
        optimiser.step()
    return time.perf_counter() - started
