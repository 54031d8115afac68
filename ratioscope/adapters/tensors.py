"""What a trainer holds, padded tensors, jagged ones or lists of arrays, as columns of the run format.

No module of a framework is imported here, not even torch: a tensor is what can be detached.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ratioscope.errors import RatioscopeError

MadeColumns = dict[str, Any]


def token_columns(
    mask: Any,
    columns: Mapping[str, Any],
    *,
    kept: Any = None,
    reason: str = "rejected",
    seq_id: Any = None,
) -> MadeColumns:
    """Columns of the tokens table: a row wherever `mask` is set, in the order of the responses.

    The side that is padded does not matter, and neither do tool tokens between sampled ones: `position` counts the
    places that are set.

    Args:
        mask: which places hold a sampled token: [responses, length], a jagged nested tensor, or one array a response.
        columns: values of the places, in a shape like the mask's, or one value a response, (responses,) or
            (responses, 1). None: not logged, the column is left out.
        kept: like `mask`, which of them the loss kept; the others stay rows, with `rejected` saying `reason`.
        seq_id: numbers of the responses, (responses,); default: their place in the batch.

    Returns:
        seq_id, position, the given columns, and `rejected` where `kept` is given: arrays of length (n_tokens,).

    Raises:
        RatioscopeError: a column has another shape than the mask.
    """
    flags, lengths = _flat(mask)
    chosen = np.flatnonzero(flags != 0)
    row = np.repeat(np.arange(len(lengths)), lengths)[chosen]
    counts = np.bincount(row, minlength=len(lengths))
    starts = np.cumsum(counts) - counts
    numbers = np.arange(len(lengths)) if seq_id is None else np.asarray(as_numpy(seq_id))
    result: MadeColumns = {"seq_id": numbers[row], "position": np.arange(len(chosen)) - starts[row]}

    def rows_of(name: str, values: Any) -> Any:
        per_response = _per_response(values, len(lengths))
        if per_response is not None:
            return per_response.take(pa.array(row)) if isinstance(per_response, pa.Array) else per_response[row]
        flat, found = _flat(values)
        if not np.array_equal(found, lengths):
            raise RatioscopeError(
                f"{name} has {len(found)} responses of {_range(found)} places, the mask {len(lengths)} of "
                f"{_range(lengths)}."
            )
        return flat[chosen]

    result |= {name: rows_of(name, values) for name, values in columns.items() if values is not None}
    if kept is not None:
        stays = rows_of("kept", kept) != 0
        why = pa.array(np.zeros(len(chosen), dtype=np.int8), mask=stays)
        result["rejected"] = pa.DictionaryArray.from_arrays(why, [reason])
    return result


def counts(mask: Any) -> np.ndarray:
    """How many places of each response are set, (responses,): the number of its sampled tokens."""
    flags, lengths = _flat(mask)
    row = np.repeat(np.arange(len(lengths)), lengths)
    return np.bincount(row[flags != 0], minlength=len(lengths))


def sampled_spans(mask: Any) -> np.ndarray:
    """How many stretches of sampled tokens each response has: between two of them stands what a tool wrote."""
    if getattr(mask, "is_nested", False):
        rows = [row.cpu().numpy() for row in mask.unbind()]
    else:
        rows = [np.asarray(row) for row in mask]
    return np.array([np.count_nonzero(np.diff(np.concatenate([[0], row != 0])) == 1) for row in rows], dtype=np.int64)


def totals(values: Any) -> np.ndarray:
    """Sum over the places of each response, (responses,), float64: a reward that stands on its last token."""
    flat, lengths = _flat(values)
    row = np.repeat(np.arange(len(lengths)), lengths)
    return np.bincount(row, weights=flat.astype(np.float64), minlength=len(lengths))


def group_numbers(uids: Iterable[Any]) -> np.ndarray:
    """Group ids as int64, in the order in which they first occur; whole numbers keep their value."""
    listed = list(np.asarray(as_numpy(uids)).tolist() if hasattr(uids, "detach") else uids)
    if all(isinstance(uid, int | np.integer) and not isinstance(uid, bool) for uid in listed):
        return np.array(listed, dtype=np.int64)
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(uid, len(numbers)) for uid in listed], dtype=np.int64)


def sampling_versions(oldest: Sequence[Any] | Any, newest: Sequence[Any] | Any) -> MadeColumns:
    """Versions of responses of which only the first and the last policy are known.

    Args:
        oldest, newest: policy version at the start and at the end of sampling, (responses,); None or "": unknown.

    Returns:
        `behavior_version_min` and `behavior_version_max`, and `behavior_version`, which is null where two policies
        sampled the response: which of its tokens came from which is not known.
    """
    first, last = _whole_numbers(oldest), _whole_numbers(newest)
    same = [a if a == b else None for a, b in zip(first, last, strict=True)]
    arrays = {"behavior_version_min": first, "behavior_version_max": last, "behavior_version": same}
    return {name: pa.array(values, pa.int32()) for name, values in arrays.items()}


def as_numpy(values: Any) -> Any:
    """A torch tensor as a numpy array, in float32 where numpy lacks its type; everything else as it is."""
    if not hasattr(values, "detach"):
        return values
    values = values.detach().cpu()
    return (values.float() if str(values.dtype) in ("torch.bfloat16", "torch.float16") else values).numpy()


def null_where(values: Any, missing: Any) -> pa.Array:
    """Values with nulls where `missing` is set: "not logged" there."""
    return pa.array(np.asarray(as_numpy(values)), mask=np.asarray(as_numpy(missing), dtype=bool))


def _flat(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """All places in a row, response after response, and how many there are of each response."""
    if getattr(values, "is_nested", False):
        values = list(values.unbind())
    if isinstance(values, list | tuple):
        arrays = [np.asarray(as_numpy(one)).reshape(-1) for one in values]
        lengths = np.array([len(one) for one in arrays], dtype=np.int64)
        return (np.concatenate(arrays) if arrays else np.zeros(0)), lengths
    array = np.asarray(as_numpy(values))
    if array.ndim != 2:
        raise RatioscopeError(f"A tensor of shape {array.shape} is not one of responses, [responses, length].")
    return array.reshape(-1), np.full(len(array), array.shape[1], dtype=np.int64)


def _per_response(values: Any, responses: int) -> Any:
    """One value a response, (responses,); None where the values are those of places."""
    if isinstance(values, pa.Array):
        return values if len(values) == responses else None
    if getattr(values, "is_nested", False):
        return None
    if isinstance(values, list | tuple):
        if any(hasattr(one, "__len__") and not isinstance(one, str) for one in values):
            return None
        return np.array(values) if len(values) == responses else None
    array = np.asarray(as_numpy(values))
    return array.reshape(-1) if array.shape in ((responses,), (responses, 1)) else None


def _whole_numbers(values: Any) -> list[int | None]:
    """Versions as numbers; frameworks also write them as text, and None or "" where there is none."""
    listed = np.asarray(as_numpy(values)).tolist() if hasattr(values, "detach") else list(values)
    return [None if value is None or value == "" else int(value) for value in listed]


def _range(lengths: np.ndarray) -> str:
    if not len(lengths):
        return "0"
    return str(lengths.min()) if lengths.min() == lengths.max() else f"{lengths.min()} to {lengths.max()}"
