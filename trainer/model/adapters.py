"""Low-rank adapters (LoRA, Hu et al. 2021): a model keeps its weights, and a product of two small matrices is added to
each of its linear layers.

Where a model has adapters they alone are trained, kept as versions and saved. New ones add exactly nothing, so that
the initial policy, which a KL penalty pulls to, is the model as it was loaded.
"""

import copy
import importlib.util
import warnings
from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter
from transformers import PreTrainedModel

from ratioscope.errors import RatioscopeError

_T = TypeVar("_T")


def check_installed(rank: int) -> None:
    """Whether adapters can be made.

    Raises:
        RatioscopeError: the package that makes them is missing.
    """
    if importlib.util.find_spec("peft") is None:
        raise RatioscopeError(f"model.lora_rank={rank} needs the package peft: pip install peft.")


def attach(model: PreTrainedModel, rank: int, alpha: float) -> PreTrainedModel:
    """The same model with new adapters beside every linear layer but the head; nothing else takes a gradient any more.

    They are the same in every run, as a warm start is.

    Args:
        rank: of the products.
        alpha: a product is multiplied with alpha / rank.

    Raises:
        RatioscopeError: no linear layers that it knows.
    """
    from peft import LoraConfig, inject_adapter_in_model  # takes a second

    settings = LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear")
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings(action="ignore"):  # it warns, and does it right
        torch.manual_seed(0)
        try:
            inject_adapter_in_model(settings, model)
        except ValueError as error:
            kind = model.config.model_type
            raise RatioscopeError(
                f"model.lora_rank={rank}: peft has no adapters for {kind} models ({error})."
            ) from None
    return model


def trained(model: PreTrainedModel) -> dict[str, Parameter]:
    """The weights that training moves, by name: those of adapters where there are any, otherwise all."""
    return _of_adapters(dict(model.named_parameters()))


def version_of(model: PreTrainedModel) -> dict[str, Tensor]:
    """What tells one version of a policy from the others, by name: weights of adapters, otherwise all and buffers."""
    return _of_adapters(model.state_dict())


def copied(model: PreTrainedModel) -> PreTrainedModel:
    """A copy that shares the weights that training leaves as they are."""
    own = {id(parameter) for parameter in trained(model).values()}
    shared = {id(parameter): parameter for parameter in model.parameters() if id(parameter) not in own}
    return copy.deepcopy(model, shared)


def _of_adapters(named: Mapping[str, _T]) -> dict[str, _T]:
    return {name: value for name, value in named.items() if ".lora_" in name} or dict(named)
