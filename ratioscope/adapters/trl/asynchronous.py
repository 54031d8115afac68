"""The recorder of an AsyncGRPOTrainer: its responses come out of a queue, and a row of its batch is a packed tree.

The main process makes the batches. What it knows of their responses (version, prompt, reward) goes along with them as
bytes, a row for each process, so that each process can write its own share.
"""

import json
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from ratioscope.adapters.trl import manifest
from ratioscope.adapters.trl.columns import KEY, SAMPLER, LossRule, Message, ScoredResponse
from ratioscope.adapters.trl.recorder import GRPORecorder, Method, keep_gradient
from ratioscope.adapters.trl.responses import conversation_messages, conversation_text, prompt_id

_REWARD, _OF_FUNCTION = "reward", "rewards/"


class AsyncRecorder(GRPORecorder):
    """Watches one AsyncGRPOTrainer; made by `record`."""

    def __init__(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(trainer, *args, **kwargs)
        self._new = 0  # one position of a packed row stands for several responses, so it is not scored again
        self._published: dict[int, int] = {}
        """Optimizer steps before each version of the weights that the sampler was given."""
        self._queued: dict[int, _Sample] = {}
        """Taken out of the queue and not dropped since, by the identity of their tokens."""
        if trainer.rollout_queue is not None:
            trainer.rollout_queue = _Watched(trainer.rollout_queue, self._taken)

    def watched(self) -> dict[str, Method]:
        """Return what is done around each method of the trainer, by its name."""
        return {
            "train": self._train,
            "compute_loss": self._loss,
            "get_train_dataloader": self._loader,
        }

    def number_from(self, first_step: int) -> None:
        """Begin above the numbers of what was recorded before: a step has fewer responses and groups than this.

        The worker counts its groups from 0 again after a resume.
        """
        self._next_key = self._next_group = first_step << 32

    def forget(self) -> None:
        """Drop the responses of the step: none is trained on again."""
        self._responses.clear()

    def rule(self) -> LossRule:
        """Return the clip of its loss: PPO's, of the trainer's over the sampler's probability."""
        trainer = self._trainer
        low, high = float(trainer.epsilon_low), float(trainer.epsilon_high)
        return LossRule("grpo", "token", low, high, None, None, False, old=SAMPLER)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open the run; the trainer has sent its weights to the sampler by now."""
        super().on_train_begin(args, state, control, **kwargs)
        self._publish(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Put the columns of the step together; weights that were sent after it are in the batches to come."""
        self._publish(state)
        super().on_step_end(args, state, control, **kwargs)

    def _publish(self, state: Any) -> None:
        with self._safely():
            self._published.setdefault(int(self._trainer.model_version), int(state.global_step))

    def _taken(self, sample: Any) -> None:
        if self._run is None:
            return
        with self._safely():
            key, version = id(sample.input_ids), int(sample.model_version)
            self._queued[key] = _Sample(sample.prompt, sample.completion, self._published.get(version, 0))
            # The trainer drops what is too old or too long, and says so to nobody.
            weakref.finalize(sample.input_ids, self._queued.pop, key, None)

    def _loader(self, original: Method, *args: Any, **kwargs: Any) -> Any:
        loader = original(*args, **kwargs)
        with self._safely():
            collator = loader.collate_fn
            collator.torch_call = partial(self._collated, collator.torch_call)
        return loader

    def _collated(self, original: Method, examples: list[Any]) -> Any:
        batch = original(examples)
        if self._run is None:
            return batch
        with self._safely():
            (rows,) = examples
            told = [json.dumps([self._facts(one) for one in row.samples]).encode() for row in rows]
            batch[KEY] = torch.zeros(len(told), max(map(len, told)), dtype=torch.uint8)
            for place, facts in enumerate(told):
                batch[KEY][place, : len(facts)] = torch.frombuffer(bytearray(facts), dtype=torch.uint8)
        return batch

    def _facts(self, example: Mapping[str, Any]) -> dict[str, Any]:
        """What is known of a response of the batch; its numbers are those of this process."""
        sample = self._queued.pop(id(example["input_ids"]))
        mask = example["completion_mask"].tolist()
        first = mask.index(1) if 1 in mask else len(mask)
        key, self._next_key = self._next_key, self._next_key + 1
        prompt, said = conversation_text(sample.prompt), sample.completion
        metrics = {name: None if value != value else float(value) for name, value in example["metrics"].items()}
        messages = conversation_messages(sample.prompt, said)
        runs = [len([*run]) for own, run in groupby(mask[first:]) if own]
        if len(runs) != sum(one.sampled and one.role == "assistant" for one in messages):
            messages = ()  # a part of a conversation that forked, or a turn of it is context here
        return {
            "key": key,
            "group": self._next_group + int(example["group_id"]),
            "version": sample.version,
            "prompt": prompt,
            "text": conversation_text(said),
            "reward": metrics.get(_REWARD),
            "parts": {
                name.removeprefix(_OF_FUNCTION): value
                for name, value in metrics.items()
                if name.startswith(_OF_FUNCTION)
            },
            "ended": int(example["input_ids"][-1]) in self._trainer.eos_token_ids,
            "messages": [[one.role, one.content, one.tool, one.sampled] for one in messages],
            "before": first,
            "places": [place - first for place, own in enumerate(mask) if own],
        }

    def inputs(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        """Return TRL's columns of the responses of a packed row, a response a row."""
        if KEY not in inputs:
            return None
        facts = json.loads(bytes(inputs[KEY][0].tolist()).rstrip(b"\0"))
        places = [one["places"] for one in facts]
        width = max((place[-1] + 1 for place in places if place), default=0)
        chosen = inputs["token_index"] >= 0
        row = inputs["segment_id"][chosen].cpu()
        spots = (row, torch.tensor([place for one in places for place in one], dtype=torch.long))
        own = torch.zeros(len(facts), width, dtype=torch.bool)
        own[spots] = True
        packed = inputs["attention_mask"].bool()
        index = inputs["token_index"][chosen]

        def spread(values: Tensor) -> Tensor:
            found = torch.zeros(own.shape, dtype=values.dtype)
            found[spots] = values.cpu()
            return found

        advantages = torch.zeros(len(facts)).index_put_((row,), inputs["advantages"][chosen].cpu())
        self._responses |= {one["key"]: _response(one) for one in facts}
        columns = {
            KEY: torch.tensor([one["key"] for one in facts]),
            "completion_ids": spread(inputs["shift_labels"][packed][index]),
            "completion_mask": own,
            "tool_mask": own,
            "prompt_mask": torch.arange(max(one["before"] for one in facts))
            < torch.tensor([[one["before"]] for one in facts]),
            "advantages": advantages,
            SAMPLER: spread(inputs["old_log_probs"][chosen]),
        }
        hook = model.register_forward_hook(partial(self._scored_row, spread, index))
        self._hook = hook
        return columns

    def _loss(self, original: Method, *args: Any, **kwargs: Any) -> Any:
        self._hook = None
        try:
            return super()._loss(original, *args, **kwargs)
        finally:
            if self._hook is not None:
                self._hook.remove()

    def _scored_row(self, spread: Any, index: Tensor, module: Any, inputs: Any, output: Any) -> None:
        this = self._pass
        if this is None or this.logp is not None:
            return
        with self._safely():
            logp = output.log_probs
            this.logp = spread(logp.detach().flatten()[index])
            this.entropy = spread(output.entropy.detach().flatten()[index])
            this.shared = spread(torch.bincount(index, minlength=logp.numel())[index] > 1)
            if logp.requires_grad and not self._trainer.is_deepspeed_enabled:
                this.scale = self.loss_scale()
                logp.register_hook(lambda gradient: keep_gradient(this, spread(gradient.flatten()[index])))

    def manifest_fields(self) -> dict[str, Any]:
        """Return fields of the manifest."""
        trainer, args = self._trainer, self._trainer.args
        sync = int(args.weight_sync_steps)
        return manifest.common_fields(trainer, task=self._task) | {
            "algorithm": {
                "name": "async_grpo",
                "parts": {
                    "advantage": "group_normalised",
                    "selection": "all",
                    "sample_weight": "equal",
                    "level": "token",
                    "weight": "ratio",
                    "gate": "one_side",
                    "aggregation": manifest.token_mean(args),
                    "regulariser": "none",
                    "step": manifest.optimiser_of(args),
                },
                "parameters": {
                    "epochs": 1,
                    "minibatches": 1,
                    "epsilon_low": float(trainer.epsilon_low),
                    "epsilon_high": float(trainer.epsilon_high),
                },
            },
            "schedule": {
                "sync_interval": sync,
                "sync_offset": 0,
                "offline": False,
                "max_staleness": int(args.max_staleness),
                "gradient_accumulation_steps": int(args.gradient_accumulation_steps),
                "groups_span_steps": True,
                "processes": int(trainer.accelerator.num_processes),
                "processes_recorded": int(trainer.accelerator.num_processes),
            },
            "sampler": manifest.sampling(args) | {"samples_per_prompt": int(args.num_generations), "engine": "vllm"},
            "missing": {
                "logp_new": "A position of a packed row stands for several responses, so it is not scored again.",
                "logp_reference": "The loss has no reference policy.",
            },
            "assumed": [
                "behavior_version is the optimizer step after which the weights that a response was begun with were "
                "sent to vLLM.",
                "gradient_weight is empty where responses share a token and what follows it: they have one gradient.",
            ],
        }


@dataclass(frozen=True)
class _Sample:
    """What the batch does not keep of a sample of the queue."""

    prompt: Any
    completion: Any
    version: int


class _Watched:
    """A queue that shows what is taken out of it."""

    def __init__(self, queue: Any, taken: Any) -> None:
        self._queue, self._taken = queue, taken

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """Take the next sample."""
        sample = self._queue.get(*args, **kwargs)
        self._taken(sample)
        return sample

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


def _response(facts: dict[str, Any]) -> ScoredResponse:
    return ScoredResponse(
        group=facts["group"],
        version=facts["version"],
        prompt=facts["prompt"],
        prompt_id=prompt_id(facts["prompt"]),
        text=facts["text"],
        reward=facts["reward"],
        parts=facts["parts"],
        length=facts["places"][-1] + 1 if facts["places"] else 0,
        ended=facts["ended"],
        messages=tuple(Message(*one) for one in facts["messages"]),
    )
