"""PyTorch for the modules that compute with tensors, or the sentence that says how to get it."""

from ratioscope.extras import needing

with needing("Computing with tensors (metrics, gates, weights)", "torch"):
    import torch
    from torch import Tensor

__all__ = ["Tensor", "torch"]
