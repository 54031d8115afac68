"""A training of verl without a cluster: its own trainer class, config, batch classes and losses, on one small model.

What is not verl's here is what needs Ray and GPUs: the transport of TransferQueue (a dictionary, with verl's own
conversion of rows to a TensorDict), the worker group (one model in this process) and the sampling.
"""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl import DataProto
from verl.trainer.ppo import core_algos, padding_utils
from verl.trainer.ppo.ray_trainer import RayPPOTrainer, compute_advantage
from verl.trainer.ppo.v1 import trainer_base
from verl.utils import tensordict_utils as tu

VOCABULARY, PROMPTS, GROUP = 12, 3, 4
OUTPUTS = 1
"""Of a session."""


class Queue:
    """Rows by key, put and got as TransferQueue does."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.tags: dict[str, dict[str, Any]] = {}

    def kv_batch_put(self, keys: list[str], partition_id: str, fields: Any = None, tags: Any = None) -> KVBatchMeta:
        for place, key in enumerate(keys):
            row = self.rows.setdefault(key, {})
            for name in fields.keys() if fields is not None else ():
                value = fields[name]
                row[name] = value.unbind()[place] if isinstance(value, torch.Tensor) else list(value)[place]
            self.tags.setdefault(key, {}).update(tags[place] if tags is not None else {})
        return KVBatchMeta(keys=list(keys), tags=[self.tags[key] for key in keys], partition_id=partition_id)

    def kv_batch_get(
        self, keys: list[str], partition_id: str, select_fields: Sequence[str] | None = None
    ) -> TensorDict:
        rows = [self.rows[key] for key in keys]
        names = [name for name in (select_fields or rows[0]) if all(name in row for row in rows)]
        return tu.list_of_dict_to_tensordict([{name: row[name] for name in names} for row in rows])


class Policy(torch.nn.Module):
    """Logits of the next token from this one."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.table = torch.nn.Parameter(torch.randn(VOCABULARY, VOCABULARY))

    def logps(self, ids: torch.Tensor) -> torch.Tensor:
        """Of the tokens from the second on, (length - 1,)."""
        return self.table.log_softmax(-1)[ids[:-1], ids[1:]]


class Workers:
    """The actor's worker group in this process: its columns belong to the whole text, place t to token t + 1."""

    def __init__(self, queue: Queue, loss_config: Any) -> None:
        self.queue, self.policy, self.loss_config = queue, Policy(1), loss_config
        self.optimizer = torch.optim.SGD(self.policy.parameters(), lr=2.0)
        self._dispatch_info = {"actor": [0]}
        self.passes = 0

    def _rows(self, ids: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.cat([self.policy.logps(row), torch.zeros(1)]) for row in ids]

    def compute_log_prob(self, batch: Any) -> Any:
        self.passes += 1
        if isinstance(batch, TensorDict):  # the old trainer's: the workers get and give the data itself
            with torch.no_grad():
                rows = self._rows(batch["input_ids"].unbind())
            nested = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
            found = tu.get_tensordict({"log_probs": nested, "entropy": nested})
            tu.assign_non_tensor(found, metrics={"mfu": 0.0})
            return found
        data = self.queue.kv_batch_get(batch.keys, batch.partition_id, ["input_ids"])
        with torch.no_grad():
            rows = self._rows(data["input_ids"].unbind())
        fields = {"log_probs": torch.nested.as_nested_tensor(rows, layout=torch.jagged)}
        if batch.extra_info["calculate_entropy"]:
            fields["entropy"] = torch.nested.as_nested_tensor([-row for row in rows], layout=torch.jagged)
        self.queue.kv_batch_put(batch.keys, batch.partition_id, TensorDict(fields, batch_size=len(batch)))
        return batch

    def update_actor(self, batch: Any) -> Any:
        """One optimizer step on verl's own loss."""
        names = ["input_ids", "response_mask", "old_log_probs", "advantages", "rollout_is_weights"]
        old_trainer = isinstance(batch, TensorDict)
        data = batch if old_trainer else self.queue.kv_batch_get(batch.keys, batch.partition_id, names)
        mask = data["response_mask"]
        width = max(len(row) for row in mask.unbind())

        def padded(name: str) -> torch.Tensor:
            rows = [torch.nn.functional.pad(row, (0, width - len(row))) for row in data[name].unbind()]
            return torch.stack(rows).float()

        logps = []
        for ids, row, attended in zip(
            data["input_ids"].unbind(),
            mask.unbind(),
            data["attention_mask"].unbind() if old_trainer else mask.unbind(),
            strict=True,
        ):
            length = int(attended[-len(row) :].sum()) if old_trainer else len(row)
            logps.append(torch.nn.functional.pad(self.policy.logps(ids)[-length:], (0, width - length)))
        loss, metrics = core_algos.compute_policy_loss_vanilla(
            padded("old_log_probs"),
            torch.stack(logps),
            padded("advantages"),
            padded("response_mask"),
            config=self.loss_config,
            rollout_is_weights=padded("rollout_is_weights") if "rollout_is_weights" in data else None,
        )
        self.optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.optimizer.step()
        named = {name.removeprefix("actor/"): [value] for name, value in metrics.items()}
        named |= {"pg_loss": [loss.item()], "grad_norm": [norm.item()], "lr": [2.0], "mfu": 0.0}
        result = TensorDict({}, batch_size=[])
        tu.assign_non_tensor(result, metrics=named)
        return result if old_trainer else {"metrics": named}


class Words:
    """Text of token ids, as a tokenizer gives it."""

    eos_token_id = pad_token_id = 0

    def batch_decode(self, rows: list[list[int]], skip_special_tokens: bool = False) -> list[str]:
        return [self.decode(row, skip_special_tokens) for row in rows]

    def decode(self, row: Sequence[int], skip_special_tokens: bool = False) -> str:
        special = (self.pad_token_id,) if skip_special_tokens else ()
        return " ".join(f"w{token}" for token in row if token not in special)


class Sampler:
    """Responses of a policy that is `age` steps old, under a noise that only the sampler has; some use a tool."""

    def __init__(self, trainer: Any, queue: Queue) -> None:
        self.trainer, self.queue, self.random = trainer, queue, np.random.default_rng(0)
        self.frozen: dict[int, torch.Tensor] = {}

    def responses(self, version: int) -> list[dict[str, Any]]:
        policy = self.trainer.actor_rollout_wg.policy
        self.frozen[version] = policy.table.detach().clone()
        age = min(version, 1)  # of the second response of each group
        rows = []
        for prompt in range(PROMPTS):
            for member in range(GROUP):
                oldest = version - age if member == 1 else version
                engine = Policy(0)
                noise = torch.from_numpy(self.random.normal(0, 0.05, engine.table.shape)).float()
                engine.table.data = self.frozen[oldest] + noise
                rows.append(self._response(engine, prompt, member, oldest, version))
        return rows

    def _response(self, engine: Policy, prompt: int, member: int, oldest: int, newest: int) -> dict[str, Any]:
        prompts = torch.tensor([1 + prompt] * (2 + prompt))
        ids, mask = prompts.tolist(), []
        for place in range(int(self.random.integers(3, 9))):
            tool = member == 2 and place == 2
            weights = engine.table.detach().softmax(-1)[ids[-1]].double().numpy()
            ids.append(11 if tool else int(self.random.choice(VOCABULARY, p=weights / weights.sum())))
            mask.append(0 if tool else 1)
        input_ids, response_mask = torch.tensor(ids), torch.tensor(mask)
        with torch.no_grad():
            logps = engine.logps(input_ids)[-len(mask) :] * response_mask  # verl has 0.0 on what a tool wrote
        score = torch.zeros(len(mask))
        score[-1] = float(np.mean(np.array(ids) % 2))
        return {
            "uid": f"prompt-{prompt}",
            "prompts": prompts,
            "responses": input_ids[len(prompts) :],
            "input_ids": input_ids,
            "attention_mask": torch.ones_like(input_ids),
            "position_ids": torch.arange(len(ids)),
            "response_mask": response_mask,
            "loss_mask": response_mask,
            "rollout_log_probs": logps,
            "rm_scores": score,
            "num_turns": 2,
            "data_source": "odd words",
            "extra_fields": {"reward_extra_info": {"odd": score[-1].item(), "word": "w"}},
            "min_global_steps": oldest,
            "max_global_steps": newest,
        }

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict[str, float]]:
        """What verl's replay buffer gives: keys and tags of responses that are in the queue."""
        trigger = self.trainer.local_trigger_step
        rows = self.responses(global_steps - 1)
        keys = [
            f"{row['uid']}-{global_steps}-{trigger}_{place % GROUP // OUTPUTS}_{place % OUTPUTS}"
            for place, row in enumerate(rows)
        ]
        tags = []
        for row in rows:
            versions = {name: row.pop(name) for name in ("min_global_steps", "max_global_steps")}
            tags.append({"seq_len": len(row["input_ids"]), **versions})
        return self.queue.kv_batch_put(keys, "train", tu.list_of_dict_to_tensordict(rows), tags), {}


class Trainer(trainer_base.PPOTrainer):
    """verl's trainer without its constructor, which starts Ray."""

    def on_step_end(self) -> None: ...

    def on_sample_end(self) -> None: ...

    def prepare_step(self) -> dict[str, Any]:
        return {}


def configuration(*overrides: str) -> DictConfig:
    """verl's own default configuration."""
    import verl.trainer

    folder = Path(verl.trainer.__file__).parent / "config"
    with initialize_config_dir(config_dir=str(folder), version_base=None):
        config = compose(
            "ppo_trainer",
            overrides=[
                "algorithm.adv_estimator=grpo",
                "actor_rollout_ref.rollout.name=vllm",
                f"actor_rollout_ref.rollout.n={GROUP}",
                "actor_rollout_ref.rollout.calculate_log_probs=true",
                f"data.train_batch_size={PROMPTS}",
                f"actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS}",
                *overrides,
            ],
        )
    OmegaConf.set_struct(config, False)
    return config


def trainer(config: DictConfig, queue: Queue, triggers: int = 1) -> Trainer:
    """The current trainer, ready for `step`; `triggers`: mini-batches between two transfers of weights."""
    made: Trainer = object.__new__(Trainer)
    made.config, made.use_critic, made.use_reference_policy, made.use_teacher_policy = config, False, False, False
    made.parameter_sync_step, made.local_trigger_step, made.global_steps = triggers, 0, 1
    made.tokenizer = Words()
    made.actor_rollout_wg = Workers(queue, loss_config())
    made.replay_buffer = Sampler(made, queue)
    made.reward_loop_manager = type("Rewards", (), {"reward_loop_worker_handles": [None]})()
    made.curr_step_profile = False
    trainer_base.tq = padding_utils.tq = queue
    return made


def loss_config() -> Any:
    from verl.workers.config import ActorConfig

    return ActorConfig(strategy="fsdp", rollout_n=GROUP, ppo_micro_batch_size_per_gpu=1)


def steps(made: Trainer, count: int) -> list[dict[str, Any]]:
    """Run verl's step some times; returns its metrics."""
    found = []
    for _ in range(count):
        metrics: dict[str, Any] = {}
        made.step(metrics, {})
        made.global_steps += 1
        found.append(metrics)
    return found


def old_trainer(config: DictConfig, queue: Queue) -> RayPPOTrainer:
    """The old trainer, ready for `_update_actor`."""
    made: RayPPOTrainer = object.__new__(RayPPOTrainer)
    made.config, made.global_steps, made.tokenizer = config, 1, Words()
    made.actor_rollout_wg = Workers(queue, loss_config())
    return made


def old_batch(rows: list[dict[str, Any]]) -> tuple[DataProto, dict[str, Any]]:
    """Padded rows as the old trainer has them after the rewards, and the parts of the rewards."""
    width, depth = (max(len(row[name]) for row in rows) for name in ("responses", "prompts"))
    tensors = {
        name: torch.stack([torch.nn.functional.pad(row[column], (0, width - len(row[column]))) for row in rows])
        for name, column in (("responses", "responses"), ("token_level_scores", "rm_scores"))
    }
    tensors["prompts"] = torch.stack(
        [torch.nn.functional.pad(row["prompts"], (depth - len(row["prompts"]), 0)) for row in rows]
    )
    truths = np.array([{"ground_truth": "odd"} for _ in rows], dtype=object)
    batch = DataProto.from_dict(tensors=tensors, non_tensors={"reward_model": truths})
    return batch, {"odd": np.array([row["rm_scores"].sum().item() for row in rows])}


def old_step(made: RayPPOTrainer, rows: list[dict[str, Any]]) -> None:
    """What `RayPPOTrainer.fit` does with a batch after sampling, by the same functions of verl."""
    made._update_actor(ready_for_the_update(made, rows))


def ready_for_the_update(made: RayPPOTrainer, rows: list[dict[str, Any]]) -> DataProto:
    """What `RayPPOTrainer.fit` hands to the update."""
    from verl.trainer.ppo import rollout_corr_helper as helper

    width, depth = (max(len(row[name]) for row in rows) for name in ("responses", "prompts"))

    def right(name: str) -> torch.Tensor:
        return torch.stack([torch.nn.functional.pad(row[name], (0, width - len(row[name]))) for row in rows])

    def whole(name: str) -> torch.Tensor:
        sides = [(depth - len(row["prompts"]), width - len(row["responses"])) for row in rows]
        return torch.stack([torch.nn.functional.pad(row[name], side) for row, side in zip(rows, sides, strict=True)])

    masks = {row["uid"]: None for row in rows}
    assert len(masks) == PROMPTS
    tensors = {name: right(name) for name in ("responses", "rollout_log_probs")}
    tensors |= {name: whole(name) for name in ("input_ids", "attention_mask", "position_ids")}
    tensors["prompts"] = tensors["input_ids"][:, :depth]
    tensors["response_mask"] = torch.stack(
        [torch.nn.functional.pad(row["loss_mask"], (0, width - len(row["responses"]))) for row in rows]
    )
    tensors["token_level_scores"] = tensors["token_level_rewards"] = right("rm_scores")
    lists = {name: np.array([row[name] for row in rows], dtype=object) for name in ("uid", "data_source")}
    lists |= {f"{end}_global_steps": np.zeros(len(rows), dtype=int) for end in ("min", "max")}
    batch = DataProto.from_dict(tensors=tensors, non_tensors=lists)
    correction = made.config.algorithm.rollout_correction
    if correction.bypass_mode:
        helper.apply_bypass_mode(batch, correction, made.config.actor_rollout_ref.actor.policy_loss)
    else:
        batch = batch.union(made._compute_old_log_prob(batch)[0].select(batch_keys=["old_log_probs"]))
        batch, _ = helper.compute_rollout_correction_and_add_to_batch(batch, correction)
    return compute_advantage(batch, adv_estimator="grpo", norm_adv_by_std_in_grpo=True, config=made.config.algorithm)


class DirectWorkers:
    """Workers that take and give what those of verl before 0.7 do, by the conversions of the newer trainer."""

    def __init__(self, made: RayPPOTrainer) -> None:
        self.trainer = made

    def update_actor(self, batch: DataProto) -> DataProto:
        updated: DataProto = inspect.unwrap(RayPPOTrainer._update_actor)(self.trainer, batch)
        return updated

    def compute_log_prob(self, batch: DataProto) -> DataProto:
        found: DataProto = self.trainer._compute_old_log_prob(batch)[0]
        return found
