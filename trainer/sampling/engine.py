"""The sampling engine: a copy of the policy that holds some version's weights, perhaps in a lower precision."""

import copy
from typing import Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ratioscope.trainer.model import adapters
from ratioscope.trainer.model.precision import cast

Weights = dict[str, Tensor]
Precision = Literal["same", "bfloat16", "int8"]


class Engine:
    """A policy beside the one in training; it is never trained itself.

    Args:
        model: what it is a copy of.
        precision: of its weights. "int8" rounds each row of each matrix to 8 bits with a scale of its own, as
            weight-only quantisation does; the arithmetic stays in the model's type.
    """

    def __init__(self, model: PreTrainedModel, precision: Precision = "same") -> None:
        self.model = (adapters.copied(model) if precision == "same" else copy.deepcopy(model)).requires_grad_(False)
        self.precision: Precision = precision
        self.version: int | None = None
        if precision == "bfloat16":
            cast(self.model, torch.bfloat16)
        self._round(dict(self.model.named_parameters()))

    def load(self, weights: Weights, version: int) -> PreTrainedModel:
        """The engine's model with the weights of a policy version."""
        if version != self.version:
            self.model.load_state_dict(weights, strict=False)  # of a model with adapters they are all that changes
            self._round(weights)
            self.version = version
        return self.model

    def _round(self, loaded: Weights) -> None:
        """What was loaded, as the precision has it."""
        for name, parameter in self.model.named_parameters():
            if self.precision == "int8" and name in loaded:
                parameter.copy_(rounded_to_int8(parameter))


def rounded_to_int8(weight: Tensor) -> Tensor:
    """A matrix with every row rounded to the 255 multiples of its largest entry / 127; other shapes as they are."""
    if weight.dim() != 2:
        return weight
    scale = weight.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
    return (weight / scale).round() * scale
