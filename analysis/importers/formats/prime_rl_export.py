"""prime-rl: a line of the token export as token columns, and the trace that it belongs to.

Read from prime-rl 559b4477, the last to write it: `src/prime_rl/trainer/rl/token_export.py`, `loss.py`. Column i of a
list belongs to token i; at tokens that are not in the loss stand placeholders (log-probability 0.0, at token 0 that of
a uniform draw).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.importers.formats.traces import Told
from ratioscope.analysis.importers.values import numbers, scattered, segments

EXPORT_VERSION = 1
_LISTS = ("token_ids", "loss_mask", "advantages", "inference_logprobs", "trainer_logprobs", "entropy")
ARRAYS = (*_LISTS, "is_masked", "is_masked_high", "rl_weights", "ce_weights", "ref_kl_weights", "log_importance_ratio")
WANTED = (*ARRAYS, "schema_version", "env_name")


def problem(record: Mapping[str, Any]) -> str:
    """What is wrong with a line of the export; "" when it is one."""
    version = record.get("schema_version")
    if version != EXPORT_VERSION:
        return f"schema_version {version!r} of the token export is not known, {EXPORT_VERSION} is"
    absent = [name for name in _LISTS if not isinstance(record.get(name), list | np.ndarray)]
    if absent:
        return f"a sample without {', '.join(absent)}"
    sizes = {name: len(record[name]) for name in _LISTS}
    if len(set(sizes.values())) > 1:
        return "lists of different lengths: " + ", ".join(f"{name} {size}" for name, size in sizes.items())
    return ""


def exported(record: Mapping[str, Any], ids: NDArray[np.int32], mask: NDArray[np.bool_]) -> dict[str, Any]:
    """Token columns of a line of the export, of its loss tokens: what stands at the others is a placeholder."""
    columns: dict[str, Any] = {
        "token_id": ids[mask],
        "turn": segments(mask)[mask],
        "logp_current": _of(record, "trainer_logprobs", mask),
        "advantage": _of(record, "advantages", mask),
        "entropy": _of(record, "entropy", mask),
    }
    if _is_there(record.get("log_importance_ratio", [0])):
        # Without a single ratio there is no token that the policy sampled: the column is filled with zeros then.
        columns["logp_behavior"] = _of(record, "inference_logprobs", mask)
    if _is_there(record.get("is_masked")) and _is_there(record.get("is_masked_high")):
        stopped = np.array(record["is_masked"], dtype=bool)[mask]
        high = np.array(record["is_masked_high"], dtype=bool)[mask]
        columns["clipped"] = stopped
        columns["clip_side"] = np.where(high, np.int8(1), np.int8(-1)) * stopped
        columns["gate"] = (~stopped).astype(np.float32)
    of_loss, *of_others = (_of(record, name, mask) for name in ("rl_weights", "ce_weights", "ref_kl_weights"))
    out = of_loss == 0
    if out.any():
        other = np.zeros(len(out), dtype=bool)
        for weights in of_others:
            other |= False if _unset(weights) else weights != 0
        columns["rejected"] = scattered(out, "weight 0 in the loss")
        columns["rejected"][out & (columns["advantage"] == 0)] = "advantage 0"
        columns["rejected"][out & other] = "trained by another loss"
    return columns


def _is_there(values: Any) -> bool:
    """Whether a list that the export may leave empty holds anything."""
    return isinstance(values, np.ndarray) or any(value is not None for value in values or ())


def _of(record: Mapping[str, Any], name: str, mask: NDArray[np.bool_]) -> Any:
    """The values of a list at the loss tokens; of one that is not logged, NaN."""
    values = record.get(name)
    if not _is_there(values):
        return np.full(np.count_nonzero(mask), np.nan, dtype=np.float32)
    return numbers(values)[mask]  # type: ignore[index]


def _unset(weights: NDArray[np.float32]) -> bool:
    return bool(np.isnan(weights).all())


def partner_of(
    ids: NDArray[np.int32], tokens: Mapping[str, Any], by_tokens: Mapping[bytes, list[Told]], traced: Sequence[Told]
) -> Told | None:
    """The branch that a sample of the export was made of: equal tokens, or those before the trainer's length limit."""
    found = [one for one in by_tokens.get(ids.tobytes(), ()) if not one.used]
    if not found and len(ids):
        found = [one for one in traced if not one.used and np.array_equal(one.ids[: len(ids)], ids)]
    if len(found) > 1 and "logp_behavior" in tokens:  # equal responses: the rounded log-probabilities tell them apart
        found.sort(key=lambda one: _distance(one, tokens["logp_behavior"]))
    return found[0] if found else None


def _distance(one: Told, sampled: NDArray[np.float32]) -> float:
    own = (one.tokens or {}).get("logp_behavior")
    if own is None:
        return float("inf")
    size = min(len(own), len(sampled))
    return float(np.abs(np.ma.getdata(own)[:size] - sampled[:size]).max(initial=0.0))
