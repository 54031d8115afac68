"""Number formats and memory: float32 weights of a model that computes in a coarser format, recomputed activations."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils.checkpoint import checkpoint

from ratioscope.errors import RatioscopeError

# Algorithms are explained where only runs are looked at, and transformers is not installed.
if TYPE_CHECKING:
    from transformers import PreTrainedModel


def cast(model: "PreTrainedModel", dtype: torch.dtype) -> "PreTrainedModel":
    """The same model with its weights in a format; buffers stay: coarse rotary frequencies move far positions."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


class MasterWeights:
    """What the optimiser moves: float32 copies of weights that are computed with in a coarser format.

    In bfloat16 itself an AdamW step at a learning rate of 1e-6 would be rounded away for all but the smallest weights.
    Where the formats agree there are no copies, and the two lists are one.

    Args:
        computing: of the model, in float32 or above; they are rounded to `dtype` in place. None: left as they are.
    """

    def __init__(self, computing: list[Parameter], dtype: torch.dtype | None = None) -> None:
        self.computing = self.exact = computing
        if dtype not in (None, *(parameter.dtype for parameter in computing)):
            self.exact = [Parameter(parameter.detach().clone()) for parameter in computing]
            for exact, parameter in zip(self.exact, computing, strict=True):
                parameter.register_post_accumulate_grad_hook(partial(_hand_over, exact))  # type: ignore[no-untyped-call]
            for parameter in computing:
                parameter.data = parameter.data.to(dtype)

    @torch.no_grad()
    def publish(self) -> None:
        """Round them into the model."""
        if self.exact is not self.computing:
            for exact, parameter in zip(self.exact, self.computing, strict=True):
                parameter.copy_(exact)


def _hand_over(exact: Parameter, parameter: Tensor) -> None:
    """Gradients of several backward passes add up in float32."""
    assert parameter.grad is not None  # the hook of its accumulation
    fine = parameter.grad.to(exact.dtype)
    exact.grad = fine if exact.grad is None else exact.grad + fine
    parameter.grad = None


@contextmanager
def recomputing(model: "PreTrainedModel") -> Iterator[None]:
    """Forward passes inside keep no activations of the layers; the backward pass computes them again.

    Layers that do so ignore caches, so that this must not be left on while something samples.

    Raises:
        RatioscopeError: the architecture cannot do it.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise RatioscopeError(
            f"optimiser.gradient_checkpointing=true: transformers cannot do it for {model.config.model_type} models."
        )
    for layer in layers:
        layer._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)
        layer.gradient_checkpointing = layer.training = True  # the layer's own flag: its dropout stays off
    try:
        yield
    finally:
        for layer in layers:
            layer.gradient_checkpointing = layer.training = False


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Inside, torch takes algorithms that give the same bits every time, and warns where it has none."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    if wanted:
        torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
