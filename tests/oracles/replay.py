"""A finished run read back, and recomputed from the policies that it went through."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ratioscope.rules.filters import FILTERS, Rows
from ratioscope.rules.gates import GATES, Gate, both
from ratioscope.rules.ratios import LEVELS, LogRatios, log_ratio
from ratioscope.trainer.algorithms.losses import ReferenceKL, Size, TokenBatch, policy_loss
from ratioscope.trainer.algorithms.parameters import taken_by
from ratioscope.trainer.algorithms.rows import ALGORITHMS
from ratioscope.trainer.model.vocabulary import CharacterVocabulary
from ratioscope.trainer.tasks.addition import Addition
from tests.making.training import Recorded, table

Run = Callable[[str], Recorded]
Tokens = dict[str, Tensor]


@lru_cache(maxsize=100)
def steps_of(folder: Path) -> list[Tokens]:
    """The tokens table, a dictionary of tensors a step; null columns are left out."""
    tokens = table(folder, "tokens")
    columns = {
        name: torch.tensor(tokens[name].to_numpy()) for name in tokens.column_names if not tokens[name].null_count
    }
    return [
        {name: values[columns["step"] == step] for name, values in columns.items()}
        for step in table(folder, "steps")["step"].to_pylist()
    ]


@lru_cache(maxsize=1_000)
def sequences_of(folder: Path, step: int) -> pa.Table:
    """The sequences of one step, in the order of their ids."""
    return table(folder, "sequences").filter(pa.compute.field("step") == step)


def task_of(run: Recorded) -> Addition:
    return Addition(run.config.task.digits, run.config.task.evaluation_prompts)


@torch.no_grad()
def distributions(run: Recorded, step: int, model: PreTrainedModel) -> Tensor:
    """A policy's log-probabilities of all tokens in the states of a step's tokens, (n_tokens, vocabulary)."""
    return with_gradient(run, step, model)


def with_gradient(run: Recorded, step: int, model: PreTrainedModel) -> Tensor:
    """The same: one plain forward pass over texts of the sequences table; no cache, no mask, nothing of the trainer."""
    sequences, task = sequences_of(run.folder, step), task_of(run)
    encode = CharacterVocabulary(task.characters).encode
    rows = [
        encode(prompt + response.ljust(task.response_length, "0"))
        for prompt, response in zip(sequences["prompt"].to_pylist(), sequences["response"].to_pylist(), strict=True)
    ]
    logits = model(input_ids=torch.tensor(rows)).logits[:, task.prompt_length - 1 : -1]
    tokens = steps_of(run.folder)[step]
    return logits[tokens["seq_id"], tokens["position"].long()].float().log_softmax(dim=-1)


def recomputed(run: Recorded, step: int, version: int) -> Tensor:
    """Log-probabilities of a step's tokens under a version of the policy, (n_tokens,)."""
    token = steps_of(run.folder)[step]["token_id"].long().unsqueeze(1)
    return distributions(run, step, run.policies[version]).gather(1, token).squeeze(1)


def recomputed_by_own_version(run: Recorded, step: int) -> Tensor:
    """Of each token under the version that it says it was sampled by, (n_tokens,)."""
    version = steps_of(run.folder)[step]["behavior_version"]
    found = torch.zeros(len(version))
    for number in version.unique().tolist():
        found = torch.where(version == number, recomputed(run, step, number), found)
    return found


@torch.no_grad()
def greedy_rewards(run: Recorded, step: int) -> list[float]:
    """What the likeliest tokens after each sequence's prompt earn, of the version that sampled it; without a cache."""
    sequences, task = sequences_of(run.folder, step), task_of(run)
    vocabulary = CharacterVocabulary(task.characters)
    found = []
    for row in sequences.select(["prompt", "prompt_id", "behavior_version_min"]).to_pylist():
        tokens = vocabulary.encode(row["prompt"])
        for _ in range(task.response_length):
            logits = run.policies[row["behavior_version_min"]](input_ids=torch.tensor([tokens])).logits
            tokens.append(int(logits[0, -1].argmax()))
            if tokens[-1] == vocabulary.end_id:
                break
        response = vocabulary.decode(tokens[task.prompt_length :])
        found.append(task.reward(row["prompt_id"], response, ended=tokens[-1] == vocabulary.end_id))
    return found


def token_ratios(tokens: Tokens) -> LogRatios:
    """Of tokens, as the loss saw them at its last pass."""
    theta = tokens.get("logp_gate", tokens["logp_current"])
    return LogRatios(
        behavior=log_ratio(theta, tokens["logp_behavior"]),
        current=log_ratio(tokens["logp_current"], tokens["logp_behavior"]),
    )


def logged_ratios(run: Recorded, tokens: Tokens) -> LogRatios:
    """The same at the level of the run's algorithm."""
    return LEVELS[ALGORITHMS[run.config.algorithm.name].level].of(token_ratios(tokens), tokens["seq_id"])


def replayed_gate(run: Recorded, tokens: Tokens) -> Gate:
    """What gate and filter say of the logged columns."""
    declared = ALGORITHMS[run.config.algorithm.name]
    gate = GATES[declared.gate].function
    found: Gate = gate(logged_ratios(run, tokens), tokens["advantage"], **taken_by(gate, run.config.parameters))
    if declared.filter == "none":
        return found
    keep, logp = FILTERS[declared.filter].function, tokens["logp_behavior"]
    rows = Rows(token_ratios(tokens), tokens["advantage"], tokens["seq_id"], logp, None, tokens["entropy"])
    return both(found, keep(rows, **taken_by(keep, run.config.parameters)))


def replayed_gradient(run: Recorded, step: int) -> Tensor:
    """The coefficient of grad log pi that the loss gives to the logged columns of a step in one part, (n_tokens,)."""
    tokens, sequences = steps_of(run.folder)[step], sequences_of(run.folder, step)
    dropped, weight = [None] * len(sequences), torch.ones(len(sequences))
    if "dropped" in sequences.column_names:
        dropped = sequences["dropped"].to_pylist()
    if "sample_weight" in sequences.column_names:
        weight = torch.tensor(sequences["sample_weight"].to_numpy())
    logp = tokens.get("logp_gate", tokens["logp_current"]).clone().requires_grad_(True)
    batch = TokenBatch(
        logp_behavior=tokens["logp_behavior"],
        logp_current=tokens["logp_current"],
        advantage=tokens["advantage"],
        sequence=tokens["seq_id"],
        group=tokens["group_id"],
        sample_weight=weight[tokens["seq_id"]],
        logp_reference=tokens.get("logp_reference"),
        entropy=tokens["entropy"],
    )
    size = Size(len(logp), sum(reason is None for reason in dropped), task_of(run).response_length)
    settings = run.config.algorithm
    penalty = None
    if settings.reference_kl and settings.reference_kl_estimator != "in_reward":
        penalty = ReferenceKL(settings.reference_kl, settings.reference_kl_estimator)
    policy_loss(ALGORITHMS[settings.name], run.config.parameters, logp, batch, size, penalty).loss.backward()
    assert logp.grad is not None
    return -logp.grad
