"""PyTorch for the modules that compute with tensors, or the sentence that says how to get it; and what rules compute
with, which are tensors in a training loop and NumPy arrays where a log is read.

`torch` is imported when something is first computed: what a gate or a weight is can be asked for without it, and of
arrays it is computed without it. A function of `xp` is NumPy's where it is given an array, else torch's: what both have
under one name, as `exp`, `where` and `clip`. What they have under two names stands below.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from ratioscope.extras import needing

if TYPE_CHECKING:
    import torch
    import torch as xp
    from torch import Tensor
else:

    class _Torch:
        def __getattr__(self, name: str) -> Any:
            with needing("Computing with tensors (metrics, gates, weights)", "torch"):
                import torch
            value = getattr(torch, name)
            setattr(self, name, value)  # the next time it is found at once
            return value

    class _Either:
        def __getattr__(self, name: str) -> Any:
            def function(*of: Any, **more: Any) -> Any:
                return getattr(np if any(map(_is_array, of)) else torch, name)(*of, **more)

            setattr(self, name, function)
            return function

    torch, xp, Tensor = _Torch(), _Either(), Any

__all__ = ["Tensor", "as_type", "highest_by", "sum_by", "torch", "xp"]


def _is_array(values: object) -> bool:
    return isinstance(values, np.ndarray)


def as_type(values: Tensor, name: str) -> Tensor:
    """The values as "float64", "int8" or "bool"."""
    return values.astype(name, copy=False) if _is_array(values) else values.to(getattr(torch, name))  # type: ignore[attr-defined]


def sum_by(values: Tensor, place: Tensor, n: int) -> Tensor:
    """Sums, (n,), of the values whose place it is; `place` counts from 0."""
    if _is_array(values):
        return np.bincount(place, values, n)  # type: ignore[return-value]
    return torch.zeros(n, dtype=values.dtype, device=values.device).index_add(0, place, values)


def highest_by(values: Tensor, place: Tensor, n: int) -> Tensor:
    """The largest, (n,), of the values whose place it is, -inf where there is none."""
    if _is_array(values):
        highest = np.full(n, -np.inf)
        np.maximum.at(highest, place, values)
        return highest  # type: ignore[return-value]
    lowest = torch.full((n,), -torch.inf, dtype=values.dtype, device=values.device)
    return lowest.scatter_reduce(0, place, values, "amax")
