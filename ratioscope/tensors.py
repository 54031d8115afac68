"""PyTorch for the modules that compute with tensors, or the sentence that says how to get it.

`torch` is imported when something is first computed: what a gate or a weight is can be asked for without it.
"""

from typing import TYPE_CHECKING, Any

from ratioscope.extras import needing

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:

    class _Torch:
        def __getattr__(self, name: str) -> Any:
            with needing("Computing with tensors (metrics, gates, weights)", "torch"):
                import torch
            value = getattr(torch, name)
            setattr(self, name, value)  # the next time it is found at once
            return value

    torch, Tensor = _Torch(), Any

__all__ = ["Tensor", "torch"]
