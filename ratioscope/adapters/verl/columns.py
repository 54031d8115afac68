"""A batch of verl as columns of the run format: the current trainer's jagged tensors, the old one's padded ones.

In both, place t of `rollout_log_probs`, `old_log_probs`, `ref_log_prob`, `entropy` and `advantages` belongs to token t
of `responses`; `response_mask` is 0 on what a tool wrote. Rejection sampling overwrites `response_mask`, so the mask as
it was before is given apart. `teacher_ids` and `teacher_logprobs` have a place for each token of prompt and response,
with what the teacher expects next: its likeliest tokens, or the one that came.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ratioscope.adapters.tensors import (
    MadeColumns,
    as_numpy,
    counts,
    group_numbers,
    null_where,
    sampled_spans,
    sampling_versions,
    token_columns,
    totals,
)

Decode = Callable[[list[list[int]]], list[str]]

# Names of the fields of a batch, in the words of the run format; the advantage is not there where a mask took it.
TOKEN_FIELDS = {
    "responses": "token_id",
    "rollout_log_probs": "logp_behavior",
    "old_log_probs": "logp_current",
    "ref_log_prob": "logp_reference",
    "entropy": "entropy",
    "advantages": "advantage",
    "rollout_is_weights": "extra_rollout_is_weight",
}


def step_columns(
    fields: Mapping[str, Any],
    *,
    sampled: Any = None,
    rejection: str = "rejection sampling",
    bypass: bool = False,
    current: Any = None,
    new: Any = None,
    synthetic: Sequence[bool] | None = None,
    decode: Decode | None = None,
) -> tuple[MadeColumns, MadeColumns]:
    """The tokens and the sequences of one update.

    Args:
        fields: verl's fields by their names: tensors of (responses, length), jagged or padded; `uid`, `data_source`,
            `min_global_steps`, `max_global_steps`, `segment_id` and `reward_<part>` one value a response.
        sampled: `response_mask` before rejection sampling; None: there was none.
        rejection: what took tokens out of the loss, for `rejected`.
        bypass: `old_log_probs` is a copy of `rollout_log_probs`, and no policy's own.
        current: log-probabilities of the policy before the update, where they were computed all the same; NaN: not.
        new: those of the policy after the update.
        synthetic: responses that verl made up to fill the batch; they are left out.
        decode: token ids of several texts to their texts; None: no texts.

    Returns:
        Columns of the tokens table, of length (n_tokens,), and of the sequences table, of length (n_sequences,).
    """
    kept = fields["response_mask"]
    mask = kept if sampled is None else sampled
    lengths = counts(mask)
    real = np.ones(len(lengths), dtype=bool) if synthetic is None else ~np.asarray(synthetic, dtype=bool)
    uids = list(fields["uid"]) if "uid" in fields else None
    groups = np.zeros(len(lengths), dtype=np.int64)
    if uids is not None:
        groups[real] = group_numbers([uid for uid, there in zip(uids, real, strict=True) if there])

    values = {name: fields[field] for field, name in TOKEN_FIELDS.items() if field in fields}
    if bypass:
        values["logp_current"] = current
    if "teacher_ids" in fields and "teacher_logprobs" in fields:
        values["logp_teacher"] = _of_teacher(fields)
    versions = _versions(fields)
    whole = {"group_id": groups if uids is not None else None, "behavior_version": versions.get("behavior_version")}
    pieces = {"segment_id": np.asarray(fields["segment_id"], dtype=np.int16)} if "segment_id" in fields else {}
    tokens = token_columns(
        mask,
        {**values, "logp_new": new, **whole, **pieces},
        kept=kept if sampled is not None else None,
        reason=rejection,
    )
    if "rejected" in tokens and "advantage" in tokens:
        tokens["advantage"] = null_where(tokens["advantage"], tokens["rejected"].is_valid())  # verl leaves a 0 there
    for name in {"logp_teacher", *(["logp_current"] if bypass else [])} & tokens.keys():
        tokens[name] = null_where(tokens[name], np.isnan(tokens[name]))

    sequences: MadeColumns = {"seq_id": np.arange(len(lengths)), "n_tokens": lengths, **whole, **versions}
    scores = next((fields[name] for name in ("token_level_scores", "rm_scores") if name in fields), None)
    sequences["reward"] = None if scores is None else totals(scores)
    sequences |= {name: values for name, values in fields.items() if name.startswith("reward_")}
    sequences["environment"] = [str(name) for name in fields["data_source"]] if "data_source" in fields else None
    if "prompts" in fields:
        prompts = _unpadded(fields["prompts"], fields.get("attention_mask"), "left")
        sequences["prompt_tokens"] = np.array([len(ids) for ids in prompts], dtype=np.int32)
    spans = sampled_spans(mask)
    sequences["n_turns"] = spans if spans.max(initial=0) > 1 else None
    if sampled is not None:
        gone = (lengths > 0) & (counts(kept) == 0)
        sequences["dropped"] = pa.array([rejection if one else None for one in gone], pa.string())
    if decode is not None:
        sequences |= _texts(fields, uids, decode)
    sequences.pop("behavior_version", None)
    return tokens, {name: _those(values, real) for name, values in sequences.items() if values is not None}


def _of_teacher(fields: Mapping[str, Any]) -> list[np.ndarray]:
    """The teacher's log-probability of each token of the responses; NaN where it is not among those that it gives."""
    found = []
    names = ("teacher_ids", "teacher_logprobs", "responses")
    for ids, logps, tokens in zip(*(fields[name].unbind() for name in names), strict=True):
        before = slice(-len(tokens) - 1, -1)
        same = as_numpy(ids)[before] == as_numpy(tokens)[:, None]
        found.append(np.where(same.any(axis=1), np.where(same, as_numpy(logps)[before], 0.0).sum(axis=1), np.nan))
    return found


def _versions(fields: Mapping[str, Any]) -> MadeColumns:
    if "min_global_steps" not in fields or "max_global_steps" not in fields:
        return {}
    return sampling_versions(fields["min_global_steps"], fields["max_global_steps"])


def _texts(fields: Mapping[str, Any], uids: list[Any] | None, decode: Decode) -> MadeColumns:
    """Prompts, decoded once a group, and responses with what tools wrote into them."""
    found: MadeColumns = {}
    if "prompts" in fields:
        rows = _unpadded(fields["prompts"], fields.get("attention_mask"), "left")
        keys = uids or list(range(len(rows)))
        firsts = {key: row for row, key in reversed(list(enumerate(keys)))}
        texts = dict(zip(firsts, decode([rows[row] for row in firsts.values()]), strict=True))
        found["prompt"] = [texts[key] for key in keys]
    found["response"] = decode(_unpadded(fields["responses"], fields.get("attention_mask"), "right"))
    return found


def _unpadded(ids: Any, attention_mask: Any, side: str) -> list[list[int]]:
    """Token ids of each row: of jagged tensors all, of padded ones what the attention mask of the whole says."""
    if attention_mask is None:
        return [row.tolist() for row in ids.unbind()]
    width = ids.shape[1]
    there = attention_mask[:, :width] if side == "left" else attention_mask[:, -width:]
    return [row[mask.bool()].tolist() for row, mask in zip(ids, there, strict=True)]


def _those(values: Any, which: np.ndarray) -> Any:
    if which.all():
        return values
    return values.filter(pa.array(which)) if isinstance(values, pa.Array) else np.asarray(values)[which]
