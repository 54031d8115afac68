"""Which trainers are recorded, and why another one is not: seen from its methods, before the training begins."""

import inspect
from collections.abc import Callable
from typing import Any

from ratioscope.adapters.methods import function_behind, names_used, reaches

FORWARD = ("_get_per_token_logps_and_entropies", "_get_per_token_logps")
"""The pass that the loss differentiates, in newer and older versions."""
_NEEDED = ("_generate_and_score_completions", "_compute_loss")
_LOSS = "_compute_loss"
_OF_TRL = ("trl.trainer.grpo_trainer", "trl.trainer.rloo_trainer")


_OF_QUEUE = ("rollout_queue", "rollout_worker", "model_version")


def is_asynchronous(trainer: Any) -> bool:
    """Return whether it is an AsyncGRPOTrainer, whose responses come out of a queue."""
    loss = function_behind(getattr(trainer, "compute_loss", None))
    return all(hasattr(trainer, name) for name in _OF_QUEUE) and loss is not None and "fused_lm_head" in _words(loss)


def _words(function: Any) -> set[str]:
    """Names of what a function calls with, keyword arguments included."""
    constants = [one for found in function.__code__.co_consts if isinstance(found, tuple) for one in found]
    return {str(one) for one in constants}


def not_recorded(trainer: Any) -> str:
    """Return why a trainer cannot be recorded, in one sentence; "" where it can."""
    kind = type(trainer)
    name = kind.__name__ if kind.__module__.startswith(("trl.", "builtins")) else f"{kind.__module__}.{kind.__name__}"
    has_forward = any(hasattr(trainer, method) for method in FORWARD)
    absent = next((method for method in _NEEDED if not hasattr(trainer, method)), "" if has_forward else FORWARD[0])
    if absent or not (hasattr(trainer, "loss_type") or hasattr(trainer, "normalize_advantages")):
        return (
            f"{name} is not a trainer that this recorder knows: it has no {absent or 'loss_type'}, as TRL's "
            "GRPOTrainer and RLOOTrainer have."
        )
    loss = function_behind(getattr(trainer, _LOSS))
    taken = [parameter for parameter in inspect.signature(loss).parameters if parameter != "self"] if loss else []
    if "grpo_batch" in taken:
        return f"{name} is ms-swift's: record it with ratioscope.adapters.ms_swift."
    if loss and len(taken) > 2 and any(_is_needed(loss, parameter) for parameter in taken[2:]):
        return f"{name} is not recorded: its {_LOSS} takes {', '.join(taken)}, and TRL's takes model, inputs."
    if not reaches(kind, "compute_loss", (_LOSS,)):
        return (
            f"{name} is not recorded: its compute_loss, replaced as by Unsloth, does not call {_LOSS}; train with "
            "TRL's own trainer."
        )
    if any(getattr(trainer, switch, False) is True for switch in ("use_liger_kernel", "use_liger_loss")):
        # Newer versions of TRL have no such way round the loss, and no such attribute.
        return f"{name} is not recorded: with use_liger_kernel it has no log-probabilities of tokens; set it to False."
    if not reaches(kind, _LOSS, FORWARD):
        return (
            f"{name} is not recorded: its {_LOSS} does not call {FORWARD[0]}, which returns what its loss is made of."
        )
    return ""


def own_loss(trainer: Any) -> str:
    """Return the class that computes a loss of its own, whose clip is not known here; "" where the loss is TRL's."""
    for owner in type(trainer).__mro__:
        function = function_behind(vars(owner)[_LOSS]) if _LOSS in vars(owner) else None
        if function is not None and names_used(function) & {*FORWARD}:
            return "" if owner.__module__ in _OF_TRL else owner.__name__
    return ""


def _is_needed(function: Callable[..., Any], parameter: str) -> bool:
    found = inspect.signature(function).parameters[parameter]
    return found.default is found.empty and found.kind not in (found.VAR_POSITIONAL, found.VAR_KEYWORD)
