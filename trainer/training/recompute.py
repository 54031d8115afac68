"""Old versions once more, in the training engine: what the sampler's record is compared with."""

from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ratioscope.trainer.measured.exact import exact_total_variation
from ratioscope.trainer.model.policy import evaluate
from ratioscope.trainer.sampling.engine import Engine, Weights
from ratioscope.trainer.sampling.rollout import Rollout


class Recomputed(NamedTuple):
    """Of a rollout, (n, response_length) each and 0 off its mask; None where it is not logged."""

    logp: Tensor | None = None
    spread: Tensor | None = None


class Recomputer:
    """Log-probabilities and distributions of past versions, without decoding transforms, at the trainer's precision."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.engine = Engine(model)

    def recomputed(self, rollout: Rollout, weights: dict[int, Weights], *, logp: bool, spread: bool) -> Recomputed:
        """What is asked for, of every token of the rollout."""
        mask = rollout.mask
        found = Recomputed(
            torch.zeros(mask.shape, device=mask.device) if logp else None,
            torch.zeros(mask.shape, dtype=torch.float64, device=mask.device) if spread else None,
        )
        if found.logp is not None:
            found.logp[mask] = self.logp(rollout, mask, weights)
        if found.spread is not None:
            found.spread[mask] = self.spread(rollout, mask, weights)
        return found

    @torch.no_grad()
    def logp(self, rollout: Rollout, select: Tensor, weights: dict[int, Weights]) -> Tensor:
        """log pi of each selected token under the version that sampled it, (n_tokens,)."""
        return self._per_version(rollout, select, weights)[0]

    @torch.no_grad()
    def spread(self, rollout: Rollout, select: Tensor, weights: dict[int, Weights]) -> Tensor:
        """Exact TV in each state between the version that sampled it and the oldest of the batch, (n_tokens,)."""
        _, sampling = self._per_version(rollout, select, weights, distributions=True)
        oldest = int(rollout.version[select].min())
        old = evaluate(self.engine.load(weights[oldest], oldest), rollout, select).distribution
        return exact_total_variation(sampling, old)

    def _per_version(
        self, rollout: Rollout, select: Tensor, weights: dict[int, Weights], *, distributions: bool = False
    ) -> tuple[Tensor, Tensor]:
        version = rollout.version[select]
        logp = torch.zeros(len(version), device=select.device)
        full = torch.zeros(0, device=select.device)
        for number in torch.unique(version).tolist():
            found = evaluate(self.engine.load(weights[number], number), rollout, select)
            mine = version == number
            logp[mine] = found.logp[mine]
            if distributions:
                full = found.distribution if not len(full) else torch.where(mine.unsqueeze(1), found.distribution, full)
        return logp, full
