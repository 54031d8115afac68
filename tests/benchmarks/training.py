"""The trainer: updates of 32 x 8 with recording, against TRL, against a naive loop, and without recording."""

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from ratioscope.trainer import tasks
from ratioscope.trainer.model.warm_start import warm_started
from ratioscope.trainer.sampling.rollout import pad_left
from ratioscope.trainer.settings.config import TrainConfig
from ratioscope.trainer.settings.load import load_settings
from ratioscope.trainer.training.loop import Trainer
from tests.benchmarks import trl_grpo
from tests.benchmarks.timing import row

# Short rounds take turns and are compared pair by pair: whatever else the machine does, it does to both.
UPDATES, ROUNDS = 30, 5


def run() -> None:
    """Print the three comparisons."""
    # The others never evaluate; a run does at its first and last update, here on a few prompts.
    sizes = ["prompts=32", "evaluation_prompts=64", "evaluate_every=1000", f"updates={UPDATES}"]
    config = load_settings("on_policy", [*sizes, "algorithm=grpo", "logging.exact=false"])
    kinds: dict[str, Callable[[], float]] = {
        "recorded": lambda: _trained(config, recording=True),
        "TRL's GRPOTrainer": lambda: trl_grpo.seconds(config, UPDATES),
        "a naive loop": lambda: _naive(config),
        "without recording": lambda: _trained(config, recording=False),
    }
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        for name, kind in kinds.items():
            times[name].append(kind())
    for name in list(kinds)[1:]:
        baseline = ROUNDS * median(times[name])
        ratio = median(ours / theirs for ours, theirs in zip(times["recorded"], times[name], strict=True))
        what = f"{ROUNDS * UPDATES} updates of 32 x 8, all columns, recorded"
        row(what, ratio * baseline, baseline, name)


def _trained(config: TrainConfig, *, recording: bool) -> float:
    """Seconds that the updates take, until everything is on disk."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(config, Path(folder) / "run")
        if not recording:
            trainer.recorder.record_step = lambda step, **columns: None  # type: ignore[method-assign, assignment]
        started = time.perf_counter()
        trainer.run(lambda progress: None)
        return time.perf_counter() - started


def _naive(config: TrainConfig) -> float:
    """Sampling without a cache, one forward and backward pass, nothing logged: the least that any trainer does."""
    task = tasks.make(config.task)
    model, vocabulary = warm_started(config, task, lambda step, accuracy: None)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    draw, generator = random.Random(0), torch.Generator().manual_seed(0)
    started = time.perf_counter()
    for _ in range(UPDATES):
        ids = [prompt_id for prompt_id in task.draw(draw, 32) for _ in range(8)]
        tokens, mask = pad_left([vocabulary.encode(task.prompt(i)) for i in ids], vocabulary.pad_id)
        with torch.no_grad():
            for _ in range(task.response_length):
                logits = model(input_ids=tokens, use_cache=False).logits[:, -1]
                tokens = torch.cat([tokens, torch.multinomial(logits.softmax(-1), 1, generator=generator)], dim=1)
        answers = tokens[:, mask.shape[1] :]
        rewards = [
            task.reward(i, vocabulary.decode(a), ended=a[-1] == vocabulary.end_id)
            for i, a in zip(ids, answers.tolist(), strict=True)
        ]
        reward = torch.tensor(rewards).view(-1, 8)
        advantage = (reward - reward.mean(dim=1, keepdim=True)).flatten()
        states = model(input_ids=tokens[:, :-1], use_cache=False).logits[:, mask.shape[1] - 1 :].log_softmax(-1)
        logp = states.gather(2, answers.unsqueeze(2)).squeeze(2)
        optimiser.zero_grad(set_to_none=True)
        (-(advantage[:, None] * logp).mean()).backward()
        optimiser.step()
    return time.perf_counter() - started
