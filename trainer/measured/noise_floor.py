"""How far apart two forward passes with the same weights are: what no ratio below it can mean anything about."""

import copy

import torch
from transformers import PreTrainedModel

from ratioscope.rules.ratios import log_ratio, total_variation
from ratioscope.trainer.model.policy import evaluate
from ratioscope.trainer.model.precision import cast
from ratioscope.trainer.sampling.rollout import Rollout


@torch.no_grad()
def noise_floor(model: PreTrainedModel, rollout: Rollout) -> dict[str, float]:
    """S of the batch where it should be 0: half the mean of |ratio - 1| between two passes with the same weights.

    Returns:
        `noise_floor_shape`: the whole batch against the batch cut in single groups;
        `noise_floor_dtype`: the model's own type against bfloat16.
    """
    whole = evaluate(model, rollout).logp
    groups = range(0, len(rollout.mask), rollout.copies)
    cut = torch.cat([evaluate(model, rollout.rows(slice(start, start + rollout.copies))).logp for start in groups])
    coarse = evaluate(cast(copy.deepcopy(model), torch.bfloat16), rollout).logp
    return {
        "noise_floor_shape": float(total_variation(log_ratio(cut, whole))),
        "noise_floor_dtype": float(total_variation(log_ratio(coarse, whole))),
    }
