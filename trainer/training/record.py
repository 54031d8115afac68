"""What a run of the trainer logs: the columns of its tokens and responses, and what its manifest says."""

from typing import Any

import pyarrow as pa
import torch

from ratioscope.run_format.manifest import library_versions
from ratioscope.trainer.algorithms import own
from ratioscope.trainer.algorithms.algorithm import Algorithm
from ratioscope.trainer.measured import exact
from ratioscope.trainer.sampling.rollout import EXPERT, Rollout, TrainingBatch
from ratioscope.trainer.settings.config import TrainConfig
from ratioscope.trainer.tasks.task import Task
from ratioscope.trainer.training.recompute import Recomputed
from ratioscope.trainer.training.update import UpdateOutcome

PRODUCER = "ratioscope trainer"
# What is not known of tokens that no version of the policy sampled.
OF_THE_SAMPLER = ("behavior_version", "tv_current_behavior", "chi2_current_behavior", "kl_behavior_current")


def tokens(rollout: Rollout, outcome: UpdateOutcome, recomputed: Recomputed) -> dict[str, Any]:
    """The columns of the tokens that the loss saw, (n_tokens,) each; None where one is not logged."""
    select = outcome.prepared.select
    sequence, position = select.nonzero(as_tuple=True)
    columns: dict[str, Any] = {
        "seq_id": sequence,
        "group_id": sequence // rollout.copies,
        "position": position,
        "token_id": rollout.responses[select],
        "behavior_version": rollout.version[select],
        "logp_behavior_train": None if recomputed.logp is None else recomputed.logp[select],
        "tv_version_spread": None if recomputed.spread is None else recomputed.spread[select],
    } | outcome.columns
    behavior, current, new = rollout.distribution, outcome.prepared.current, outcome.new
    if behavior is not None and current is not None and new is not None:
        columns |= {
            "tv_current_behavior": exact.exact_total_variation(current, behavior[select]),
            "chi2_current_behavior": exact.chi_square(current, behavior[select]),
            "kl_behavior_current": exact.kl(behavior[select], current),
            "tv_new_current": exact.exact_total_variation(new, current),
        }
    expert = columns["behavior_version"] == EXPERT
    if expert.any():
        unknown = dict.fromkeys(OF_THE_SAMPLER, expert) | {"logp_behavior": columns["logp_behavior"].isnan()}
        for name in columns.keys() & unknown.keys():
            columns[name] = pa.array(columns[name].cpu().numpy(), mask=unknown[name].cpu().numpy())
    return columns


def sequences(batch: TrainingBatch, outcome: UpdateOutcome, task: Task, algorithm: Algorithm) -> dict[str, Any]:
    """The columns of the responses, (n,) each, also of those that the loss left out; None where one is not logged."""
    rollout, prepared = batch.rollout, outcome.prepared
    n = len(batch.prompt_ids)
    version = rollout.version
    texts = {i: task.prompt(i) for i in set(batch.prompt_ids)}
    expert = ((version == EXPERT) & rollout.mask).any(dim=1).cpu().numpy()
    of_versions = {
        "min": torch.where(rollout.mask, version, version.max()).amin(dim=1),
        "max": torch.where(rollout.mask, version, 0).amax(dim=1),
    }
    weighted = algorithm.sample_weight != "equal"
    return {
        "seq_id": torch.arange(n),
        "group_id": torch.arange(n) // rollout.copies,
        "prompt_id": batch.prompt_ids,
        "prompt": [texts[i] for i in batch.prompt_ids],
        "response": batch.responses,
        "n_tokens": rollout.mask.sum(dim=1),
        "reward": prepared.reward,
        **{f"reward_{name}": part for name, part in prepared.reward_parts.items()},
        **{f"behavior_version_{end}": pa.array(of.cpu().numpy(), mask=expert) for end, of in of_versions.items()},
        "finish_reason": ["stop" if end else "length" for end in batch.ended.tolist()],
        "sample_weight": prepared.sample_weight if weighted else None,
        "dropped": prepared.dropped if any(prepared.dropped) else None,
        **({} if rollout.greedy_reward is None else {"extra_greedy_reward": rollout.greedy_reward}),
        "source": ["expert" if wrote else "policy" for wrote in expert.tolist()] if expert.any() else None,
    }


def manifest_fields(config: TrainConfig) -> dict[str, Any]:
    """What a run's manifest says of its configuration."""
    algorithm = config.declared
    parts = {part: own.short(choice) for part, choice in algorithm.parts().items()}
    code = own.digests({"algorithm": config.algorithm.name, **algorithm.parts()})
    parameters: dict[str, Any] = {
        **config.parameters,
        "epochs": config.epochs,
        "minibatches": config.algorithm.minibatches,
    }
    if config.algorithm.reference_kl:
        parameters["reference_kl"] = config.algorithm.reference_kl
        parameters["reference_kl_estimator"] = config.algorithm.reference_kl_estimator
    return {
        "name": config.run_name(),
        "producer": {"name": PRODUCER} | library_versions("ratioscope"),
        "algorithm": {"name": algorithm.name, "parts": parts, "parameters": parameters},
        "schedule": config.schedule.model_dump(),
        "sampler": config.sampler.model_dump(),
        "model": config.model.model_dump(),
        "task": config.task.model_dump(),
        "optimiser": config.optimiser.model_dump(),
        "planned_updates": config.updates,
        "seed": config.seed,
        "libraries": library_versions("torch", "transformers", "pyarrow"),
        "tags": config.tags,
        "notes": config.notes,
        "extra": {"config": config.model_dump()} | ({"own_code": code} if code else {}),
    }
