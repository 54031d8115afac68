"""The columns of one optimizer step, from the micro-batches that TRL's loss was called with.

A column t of TRL's tensors belongs to completion token t, without a shift. Rows of the tokens table are the sampled
tokens: what a tool wrote into a response is none of them. Where a value is not there it is null, never a placeholder:
TRL pads sampler log-probs with 0 and has NaN where the server gave none.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from ratioscope.adapters.trl.manifest import CLIPPED

KEY = "ratioscope_key"
"""Of the tensor of keys that goes through TRL's shuffle with the responses."""
OLD, SAMPLER = "old_per_token_logps", "sampling_per_token_logps"
"""Columns of TRL's batch."""
TRUNCATED = "truncated"
Masked = np.ma.MaskedArray
Arrays = dict[str, Any]


@dataclass(frozen=True)
class Message:
    """Of a conversation with tools."""

    role: str
    content: str
    tool: str | None
    sampled: bool
    """Part of the completion; what its assistant says are the sampled tokens."""


@dataclass(frozen=True)
class ScoredResponse:
    """What is known of a response when it is scored."""

    group: int
    version: int
    """Of the policy that sampled it: optimizer steps before."""
    prompt: str
    prompt_id: int
    text: str
    reward: float | None
    parts: dict[str, float | None]
    length: int
    """Of the completion, tool tokens included."""
    ended: bool
    messages: tuple[Message, ...] = ()
    """Prompt and completion; empty where no tool spoke."""

    @property
    def turns(self) -> tuple[int, ...]:
        """Places of the sampled messages in the conversation."""
        return tuple(i for i, message in enumerate(self.messages) if message.sampled and message.role == "assistant")

    @property
    def tool_calls(self) -> int:
        """Answers of tools."""
        return sum(message.sampled and message.role == "tool" for message in self.messages)


@dataclass
class Pass:
    """One call of the loss: its inputs, and what it computed from them, tensors of (B, C) unless said otherwise."""

    inputs: dict[str, Any]
    logp: Tensor | None = None
    entropy: Tensor | None = None
    gradient: Tensor | None = None
    """Of the loss by the log-probabilities, when the backward pass has been."""
    shared: Tensor | None = None
    """Tokens whose gradient is also another response's, because one position of a packed row stands for both."""
    kept: Tensor | None = None
    """(B, 1): of the off-policy sequence mask."""
    high_entropy: Tensor | None = None
    loss: Tensor | None = None
    new: Tensor | None = None
    again: partial[Any] | None = None
    """The forward pass, to make it again."""
    scale: float = 1.0
    """Of the loss in the backward pass."""


@dataclass(frozen=True)
class LossRule:
    """What of the loss decides about a token."""

    loss: str
    """"": one of a trainer's own, of which no gate is known."""
    level: str
    """What its ratio is of: token, or of a response the geometric mean or the product (sequence) of its tokens'."""
    epsilon_low: float
    epsilon_high: float
    delta: float | None
    temperatures: tuple[float, float] | None
    """SAPO's, for positive and other advantages."""
    masks_engine: bool
    """Whether a weight of 0 of the engine's correction is a mask."""
    old: str = OLD
    """Column with the denominator of its ratio."""


@dataclass
class StepColumns:
    """The columns of one optimizer step, by table."""

    tokens: dict[str, Any]
    sequences: dict[str, Any]
    messages: dict[str, Any] | None = None
    """None: no tool spoke in any response."""
    scalars: dict[str, Any] = field(default_factory=dict)


def columns_of(passes: Iterable[Pass], responses: dict[int, ScoredResponse], rule: LossRule, step: int) -> StepColumns:
    """Put the micro-batches of one optimizer step together.

    A response that the step has twice (the same buffer again before the weights change) is recorded once, with its
    count as `sample_weight`.

    Args:
        passes: in order; their inputs hold the keys of the responses under `KEY`.
        responses: by key.
        step: index of the step, which is the version of the policy before it.
    """
    counts: dict[int, int] = {}
    parts, keys, dropped, micro_batches = [], [], [], []
    prompts: list[int | None] = []
    for number, one in enumerate(passes):
        found = one.inputs[KEY].tolist()
        fresh = [row for row, key in enumerate(found) if key not in counts and key in responses]
        for key in found:
            counts[key] = counts.get(key, 0) + 1
        rows = torch.tensor(fresh, dtype=torch.long)
        part, left_out, before = _tokens(
            one, rows, [responses[found[row]] for row in fresh], [found[r] for r in fresh], rule, step
        )
        parts.append(part)
        keys += [found[row] for row in fresh]
        micro_batches += [number] * len(fresh)
        dropped += left_out
        prompts += before
    tokens = {name: _joined([part[name] for part in parts]) for name in parts[0]} if parts else {}
    if any(count > 1 for count in counts.values()):
        tokens["gradient_weight"] *= np.array([counts[key] for key in tokens["seq_id"].tolist()], dtype=np.float32)
    sequences = _sequences(keys, dropped, prompts, counts, tokens, responses)
    if all(count == 1 for count in counts.values()):  # else a response is in several
        sequences["micro_batch"] = micro_batches
    return StepColumns(
        _with_nulls(tokens),
        sequences,
        _messages(keys, tokens, responses),
    )


def _tokens(
    one: Pass, rows: Tensor, responses: list[ScoredResponse], keys: list[int], rule: LossRule, step: int
) -> tuple[Arrays, list[str | None], list[int | None]]:
    """The token columns of one micro-batch, floats masked where null; of responses why the loss lacks them, and their
    prompts' lengths."""
    inputs = one.inputs
    ids = inputs["completion_ids"].cpu()[rows]
    width = ids.shape[1]
    length = torch.tensor([response.length for response in responses], dtype=torch.long)
    in_response = torch.arange(width) < length.unsqueeze(1)
    in_loss = inputs["completion_mask"].cpu()[rows].bool()
    left_out = [TRUNCATED if n and not any_ else None for n, any_ in zip(length, in_loss.any(dim=1), strict=True)]
    sampled = in_response
    if "tool_mask" in inputs:
        # Zeroed as a whole for a truncated response: which of its tokens are a tool's is not known any more.
        sampled = sampled & inputs["tool_mask"].cpu()[rows].bool()
    live = sampled & in_loss
    row, column = sampled.nonzero(as_tuple=True)
    position = (sampled.long().cumsum(dim=1) - 1)[row, column]

    responses_at, place = rows[row], rows[row] * width + column
    unseen = ~live[row, column].numpy()
    of_others = False if one.shared is None else one.shared.cpu().reshape(-1)[place].numpy()

    def at(values: Tensor | None, null: Any = False) -> Masked:
        """A float column; null where there is none, and where `null` says so."""
        if values is None:
            return np.ma.array(np.zeros(len(row), dtype=np.float32), mask=True)
        values = values.detach().cpu()
        found = values[responses_at, 0] if values.shape[1] == 1 else values.reshape(-1)[place]
        return np.ma.array(found.float().numpy(), mask=null)

    logp, old, sampler = one.logp, inputs.get(OLD), inputs.get(SAMPLER)
    fresh = torch.tensor([response.version == step for response in responses], dtype=torch.bool)
    # TRL leaves the recomputation out where the weights have not changed since: this pass is it.
    old_at = at(logp, unseen | ~fresh[row].numpy()) if old is None else at(old, unseen)
    gate, side = _gate(one, rule, live, rows)
    advantage = inputs["advantages"]
    columns = {
        "seq_id": np.asarray(keys, dtype=np.int64)[row],
        "group_id": np.asarray([response.group for response in responses], dtype=np.int64)[row],
        "position": position.numpy().astype(np.int32),
        "token_id": ids[row, column].numpy().astype(np.int32),
        "behavior_version": np.asarray([response.version for response in responses], dtype=np.int32)[row],
        "logp_behavior": np.ma.masked_invalid(at(sampler)),  # NaN: the server gave none
        "logp_behavior_train": old_at,
        "logp_current": at(logp, unseen),
        "logp_new": at(one.new, unseen),
        "logp_reference": at(inputs.get("ref_per_token_logps"), unseen),
        "logp_teacher": at(inputs.get("teacher_per_token_logps"), unseen),
        "advantage": at(advantage if advantage.dim() == 2 else advantage.unsqueeze(1)),
        "clip_side": at(side, unseen).astype(np.int8),
        "gate": at(gate, unseen),
        "gradient_weight": at(None if one.gradient is None else -one.gradient, unseen | of_others),
        "entropy": at(one.entropy, unseen),
        "rejected": _rejected(one, rule, rows, width, left_out)[row, column],
        "turn": np.ma.masked_less(_turns(sampled, responses, "tool_mask" in inputs)[row, column], 0),
    }
    return columns, left_out, _prompt_tokens(one, rows, sampled)


def _prompt_tokens(one: Pass, rows: Tensor, sampled: Tensor) -> list[int | None]:
    """Tokens before each response; None where a tool spoke: a position counts none of its tokens."""
    there = one.inputs.get("prompt_mask")
    if there is None:
        return [None] * len(rows)
    runs = (sampled & ~torch.nn.functional.pad(sampled[:, :-1], (1, 0))).sum(dim=1)
    counts = there.cpu()[rows].sum(dim=1).tolist()
    return [None if n > 1 else count for n, count in zip(runs.tolist(), counts, strict=True)]


def _gate(one: Pass, rule: LossRule, live: Tensor, rows: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """What the loss did to each token of the micro-batch, (B, C): its gate, and on which side it stopped it.

    In the numbers that TRL compares: its dtype, its masked mean for sequences. The gradient says what came of it.
    """
    if one.logp is None or not rule.loss:
        return None, None
    logp, inputs = one.logp.detach().cpu(), one.inputs
    old = inputs.get(rule.old)
    log_ratio = logp - (logp if old is None else old.cpu())
    if rule.level != "token":
        mask = torch.zeros(log_ratio.shape, dtype=log_ratio.dtype)
        mask[rows] = live.to(log_ratio.dtype)
        of_response = (log_ratio * mask).sum(-1, keepdim=True)
        if rule.level == "geometric":
            of_response = of_response / mask.sum(-1, keepdim=True).clamp(min=1.0)
        log_ratio = of_response.expand(log_ratio.shape)
    ratio = log_ratio.exp()
    advantage = inputs["advantages"].detach().cpu()
    advantage = (advantage if advantage.dim() == 2 else advantage.unsqueeze(1)).expand(ratio.shape)
    gate, side = torch.ones(ratio.shape), torch.zeros(ratio.shape)
    if rule.loss in CLIPPED:
        low = (ratio < 1 - rule.epsilon_low) & (advantage < 0)
        high = (ratio > 1 + rule.epsilon_high) & (advantage > 0)
        if rule.delta is not None:
            # Their second bound: a bad token whose ratio is beyond it has a constant loss.
            high = high | ((ratio > rule.delta) & (advantage < 0))
        side = high.float() - low.float()
        gate = 1 - side.abs()
    elif rule.temperatures is not None:
        positive, other = rule.temperatures
        tau = torch.full_like(gate, other).masked_fill(advantage > 0, positive)
        gate = torch.cosh(tau * (ratio.float() - 1) / 2) ** -2
    return gate, side


def _rejected(one: Pass, rule: LossRule, rows: Tensor, width: int, left_out: list[str | None]) -> np.ndarray:
    """Why a mask took a token out of the loss, (B, C) of text; None: none did."""
    reasons = np.full((len(rows), width), None, dtype=object)

    def because(reason: str, taken: Tensor | None) -> None:
        if taken is not None:
            reasons[taken.cpu()[rows].expand(-1, width).numpy()] = reason

    weight = one.inputs.get("importance_sampling_ratio")
    because("importance sampling mask", None if weight is None or not rule.masks_engine else weight == 0)
    because("low entropy", None if one.high_entropy is None else one.high_entropy == 0)
    because("off-policy sequence mask", None if one.kept is None else one.kept == 0)
    for index, reason in enumerate(left_out):
        if reason is not None:
            reasons[index] = reason
    return reasons


def _turns(sampled: Tensor, responses: list[ScoredResponse], has_tools: bool) -> np.ndarray:
    """The message that a token belongs to, (B, C): a run of sampled tokens is one; -1 where that does not come out."""
    turn = np.full(sampled.shape, -1, dtype=np.int16)
    if not has_tools:
        return turn
    before = torch.nn.functional.pad(sampled[:, :-1], (1, 0))
    run = ((sampled & ~before).long().cumsum(dim=1) - 1).numpy()
    for index, response in enumerate(responses):
        if response.turns and run[index].max(initial=-1) + 1 == len(response.turns):
            turn[index] = np.asarray(response.turns, dtype=np.int16)[np.maximum(run[index], 0)]
    return turn


def _joined(arrays: list[Any]) -> Any:
    if len(arrays) == 1:
        return arrays[0]
    return np.ma.concatenate(arrays) if isinstance(arrays[0], np.ma.MaskedArray) else np.concatenate(arrays)  # type: ignore[no-untyped-call]


def _with_nulls(tokens: Arrays) -> Arrays:
    """Without columns that have no value; `clipped` beside its side. A masked value becomes null in the writer."""
    result = {name: values for name, values in tokens.items() if name in _ALWAYS or not _all_null(values)}
    if "clip_side" in result:
        result["clipped"] = result["clip_side"] != 0
    return result


_ALWAYS = ("logp_current", "logp_behavior_train")


def _all_null(values: Any) -> bool:
    if isinstance(values, np.ma.MaskedArray):
        return bool(np.ma.getmaskarray(values).all())
    return values.dtype == object and not any(value is not None for value in values)


def _sequences(
    keys: list[int],
    dropped: list[str | None],
    prompts: list[int | None],
    counts: dict[int, int],
    tokens: Arrays,
    responses: dict[int, ScoredResponse],
) -> dict[str, Any]:
    of = [responses[key] for key in keys]
    rows: dict[int, int] = {}
    if tokens:
        found, n = np.unique(tokens["seq_id"], return_counts=True)
        rows = dict(zip(found.tolist(), n.tolist(), strict=True))
    versions = [response.version for response in of]
    columns: dict[str, Any] = {
        "seq_id": keys,
        "group_id": [response.group for response in of],
        "prompt_id": [response.prompt_id for response in of],
        "prompt": [response.prompt for response in of],
        "response": [response.text for response in of],
        "n_tokens": [rows.get(key, 0) for key in keys],
        "reward": pa.array([response.reward for response in of], pa.float32()),
        "behavior_version_min": versions,
        "behavior_version_max": versions,
        "finish_reason": ["stop" if response.ended else "length" for response in of],
        "truncated": [not response.ended for response in of],
    }
    for name in sorted({name for response in of for name in response.parts}):
        columns[f"reward_{name}"] = pa.array([response.parts.get(name) for response in of], pa.float32())
    if any(count > 1 for count in counts.values()):
        columns["sample_weight"] = [float(counts[key]) for key in keys]
    if any(prompt is not None for prompt in prompts):
        columns["prompt_tokens"] = pa.array(prompts, pa.int32())
    if any(reason is not None for reason in dropped):
        columns["dropped"] = pa.array(dropped, pa.string())
    if any(response.messages for response in of):
        columns["n_turns"] = [len(response.turns) or 1 for response in of]
        columns["n_tool_calls"] = [response.tool_calls for response in of]
    return columns


def _messages(keys: list[int], tokens: Arrays, responses: dict[int, ScoredResponse]) -> dict[str, Any] | None:
    """Rows of the messages table: the conversations in which a tool spoke."""
    rows = []
    for key in keys:
        messages = responses[key].messages
        own = tokens["seq_id"] == key if messages else None
        for turn, message in enumerate(messages):
            places = tokens["position"][own & (tokens["turn"] == turn)]
            rows.append(
                {
                    "seq_id": key,
                    "turn": turn,
                    "role": message.role,
                    "content": message.content,
                    "tool": message.tool,
                    "n_tokens": len(places) or None,
                    "first_position": int(places.min()) if len(places) else None,
                }
            )
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else None
