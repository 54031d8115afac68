"""Lists a response, as most programs write them, as columns a token."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.importers.values import with_nulls


def flattened(
    lists: Mapping[str, Sequence[Any]],
    *,
    keep: Sequence[Any] | None = None,
    whole: Mapping[str, Sequence[Any]] | None = None,
    ids: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Token columns of some responses, with seq_id and position.

    Args:
        lists: by column, one array a response, all of a response of one length. An array that is None has no values
            for that response: null.
        keep: one array of truth values a response: its sampled tokens. What is masked out is no row, and `position`
            counts without it; the placeholders that stand there never become log-probabilities.
        whole: by column, one value a response, which all of its tokens take; None: null.
        ids: seq_id of each response; without, 0, 1, 2, ...

    Returns:
        Arrays of length (n_tokens,); those with nulls are masked arrays, which pyarrow takes as such.

    Raises:
        ValueError: the lists of a response differ in length; says which.
    """
    count = len(next(iter(lists.values()), ()))
    lengths = np.zeros(count, dtype=np.int64)
    for place in range(count):
        sizes = {name: len(values[place]) for name, values in lists.items() if values[place] is not None}
        if keep is not None:
            sizes["mask"] = len(keep[place])
        if len(set(sizes.values())) > 1:
            raise ValueError(f"response {place} has lists of different lengths: {_said(sizes)}")
        lengths[place] = next(iter(sizes.values()), 0)
    masks = [np.asarray(mask, dtype=bool) for mask in keep or ()]
    # What is kept whole, as most is, is not copied.
    kept: Any = np.concatenate(masks) if masks and not all(mask.all() for mask in masks) else slice(None)
    owner = np.repeat(np.arange(count), lengths)[kept]
    counts = np.bincount(owner, minlength=count)
    columns: dict[str, Any] = {
        "seq_id": (np.arange(count) if ids is None else np.asarray(ids, dtype=np.int64))[owner],
        "position": np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts),
    }
    for name, values in lists.items():
        columns[name] = _joined(values, lengths)[kept]
    for name, per_response in (whole or {}).items():
        columns[name] = _joined([None if value is None else [value] for value in per_response], np.ones(count))[owner]
    return columns


def _joined(parts: Sequence[Any], lengths: NDArray[Any]) -> Any:
    """One array of all parts; what is None is masked out, for as many places as it should have."""
    there = [None if part is None else np.asanyarray(part) for part in parts]  # a masked array has nulls of its own
    kinds = {part.dtype for part in there if part is not None and len(part)}
    kind = np.result_type(*kinds) if kinds else np.dtype(float)
    filled = [
        np.zeros(int(length), dtype=kind) if part is None else part.astype(kind, copy=False)
        for part, length in zip(there, lengths, strict=True)
    ]
    if not filled:
        return np.zeros(0, dtype=kind)
    joined = np.concatenate([np.ma.getdata(part) for part in filled])
    if not any(part is None or isinstance(part, np.ma.MaskedArray) for part in there):
        return joined
    absent = np.repeat([part is None for part in there], np.asarray(lengths, dtype=np.int64))
    absent |= np.concatenate([np.ma.getmaskarray(part) for part in filled])
    if kind.kind == "O":  # words, whose null is None
        joined[absent] = None
        return joined
    return with_nulls(joined, absent)


def _said(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items())
