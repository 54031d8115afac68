"""One update: from a batch to a new policy, and what happened to every token on the way.

In the terms of the seeds, update k goes
  1. the batch's log-probs under pi_k, and what follows from them         -> logp_current, entropy, advantage
  2. epochs x minibatches of gradient passes; a token's last one is kept   -> logp_gate, gate, gradient_weight
  3. one more forward pass under pi_{k+1}                                 -> logp_new
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ratioscope.errors import RatioscopeError
from ratioscope.rules.ratios import log_ratio
from ratioscope.trainer.algorithms.losses import ReferenceKL, Size, policy_loss
from ratioscope.trainer.algorithms.parameters import taken_by
from ratioscope.trainer.algorithms.trust_region import trust_region_step
from ratioscope.trainer.model import adapters
from ratioscope.trainer.model.policy import ValueHead, dtype_of, entropy_of, evaluate
from ratioscope.trainer.model.precision import MasterWeights, cast
from ratioscope.trainer.sampling.rollout import Evaluated, TrainingBatch
from ratioscope.trainer.settings.config import Optimiser, TrainConfig
from ratioscope.trainer.training.preparation import BatchPart, Preparation, Prepared, Seen

# The adaptive KL penalty is doubled or halved where the KL leaves this band around its target (S4 4.7.4).
KL_BAND = 1.5


@dataclass
class UpdateOutcome:
    """What one update did to a prepared batch; `columns` are over its eligible tokens."""

    prepared: Prepared
    columns: dict[str, Tensor | None]
    scalars: dict[str, float | None] = field(default_factory=dict)
    new: Tensor | None = None
    """Full distributions under pi_{k+1}, where they are kept."""


class Learner:
    """The policy in training, and everything that changes it.

    Args:
        config: of the run.
        model: the policy, in float32; changed in place, and rounded to what it computes in.
        longest: most tokens of a response.
        reference: the frozen policy that a KL penalty pulls to.
    """

    def __init__(self, config: TrainConfig, model: PreTrainedModel, longest: int, reference: PreTrainedModel) -> None:
        self.config, self.model, self.longest = config, model, longest
        self.algorithm = config.declared
        self.parameters = config.parameters
        hidden = int(model.config.get_text_config().hidden_size)
        self.critic = ValueHead(hidden).to(model.device) if self.algorithm.has_critic else None
        self.weights = MasterWeights([*adapters.trained(model).values()], dtype_of(config.model))
        cast(model, dtype_of(config.model))  # what is not trained, too
        self.trained = [*self.weights.exact, *(self.critic.parameters() if self.critic else [])]
        settings = config.optimiser
        self.optimiser = adamw(self.trained, settings)
        self.kl_coefficient = self.parameters.get("kl_start", 0.0)
        penalty, estimator = config.algorithm.reference_kl, config.algorithm.reference_kl_estimator
        self.reference_kl = ReferenceKL(penalty, estimator) if penalty and estimator != "in_reward" else None
        keeps = config.logging.exact or self.algorithm.keeps_distributions
        self.preparation = Preparation(config, self.algorithm, model, self.critic, reference, longest, keeps)
        # A batch that is one pass's can be looked at and learned from in the same forward pass.
        self.whole = config.algorithm.minibatches == 1 and not settings.micro_batch

    def prepare(self, step: int, batch: TrainingBatch, *, gradient: bool) -> Prepared:
        """A batch for update `step`, under the policy as it is now."""
        # What is drawn at random here needs no state of its own in a checkpoint.
        return self.preparation.prepare(step, batch, self._generator(step), gradient=gradient)

    def update(self, step: int, batch: TrainingBatch) -> UpdateOutcome:
        """Train on a batch.

        Raises:
            RatioscopeError: the gradient is not finite, or the policy that it leads to.
        """
        prepared = self.prepare(step, batch, gradient=self.whole and self.algorithm.step == "adamw")
        tokens, seen = prepared.tokens, prepared.seen
        log = _Log.empty(tokens.logp_current)
        outcome = UpdateOutcome(prepared, columns={})
        if len(tokens.sequence):
            if self.algorithm.step == "trust_region":
                outcome.scalars = self._trust_region(prepared, log)
            else:
                outcome.scalars = self._descend(prepared, log, step)
        with torch.no_grad():
            new = self.preparation.look(prepared.rollout, prepared.select)
        if new.logp.isnan().any():
            raise RatioscopeError(
                f"Update {step}: the policy's probabilities are no longer numbers. Start a new run with a lower "
                "optimiser.learning_rate or max_kl."
            )
        if self.algorithm.regulariser == "adaptive_kl" and len(tokens.sequence):
            outcome.scalars |= self._adapt_kl(prepared.current, new.distribution)
        outcome.new = new.distribution
        outcome.columns = {
            "logp_behavior": tokens.logp_behavior,
            "logp_current": tokens.logp_current,
            "logp_new": new.logp,
            "logp_gate": log.logp_gate if self.config.epochs * self.config.algorithm.minibatches > 1 else None,
            "logp_reference": tokens.logp_reference,
            "advantage": tokens.advantage,
            "clipped": log.side != 0,
            "clip_side": log.side,
            "gate": log.gate,
            "gradient_weight": log.gradient_weight,
            "entropy": seen.entropy,
        }
        return outcome

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs to go on."""
        return {
            "model": dict(zip(self._names(), self.weights.exact, strict=True)),
            "critic": self.critic.state_dict() if self.critic else {},
            "optimiser": self.optimiser.state_dict(),
            "kl_coefficient": self.kl_coefficient,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()`."""
        with torch.no_grad():
            for name, weight in zip(self._names(), self.weights.exact, strict=True):
                weight.copy_(state["model"][name])
        self.weights.publish()
        if self.critic is not None:
            self.critic.load_state_dict(state["critic"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.kl_coefficient = state["kl_coefficient"]

    def _names(self) -> list[str]:
        return [*adapters.trained(self.model)]

    # The passes -----------------------------------------------------------------------------------------------------

    def _descend(self, prepared: Prepared, log: "_Log", step: int) -> dict[str, float | None]:
        """Epochs x minibatches steps of AdamW."""
        settings, minibatches = self.config.optimiser, self.config.algorithm.minibatches
        rate = settings.learning_rate * min(1.0, (step + 1) / (settings.warmup_updates or 1))
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        generator, everyone = self._generator(step), torch.arange(prepared.n_groups)
        loss = norm = 0.0
        for epoch in range(self.config.epochs):
            order = everyone[torch.randperm(len(everyone), generator=generator)] if minibatches > 1 else everyone
            for groups in order.chunk(minibatches):
                size = prepared.size(groups, self.longest)
                if not size.tokens:
                    continue
                ready = prepared.seen if self.whole and epoch == 0 else None
                self.optimiser.zero_grad(set_to_none=True)
                loss = sum(self._backward(part, size, log, ready) for part in self._parts(prepared, groups))
                norm = float(torch.nn.utils.clip_grad_norm_(self.trained, settings.max_grad_norm))
                if not norm < float("inf"):
                    raise RatioscopeError(
                        f"Update {step}: the gradient is not finite. Lower optimiser.learning_rate, or choose an "
                        "algorithm whose weights are bounded."
                    )
                self.optimiser.step()
                self.weights.publish()
        return {"loss": loss, "grad_norm": norm, "learning_rate": rate}

    def _parts(self, prepared: Prepared, groups: Tensor) -> Iterator[BatchPart]:
        """What fits into memory at once, of the groups of one optimiser step."""
        if self.whole:
            yield prepared.everything()
        else:
            for some in torch.split(groups, self.config.optimiser.micro_batch or len(groups)):
                yield prepared.part(some)

    def _backward(self, part: BatchPart, size: Size, log: "_Log", ready: Seen | None) -> float:
        """Add the gradient of one part; returns its loss."""
        if ready is not None:
            logp, distribution, value = ready.logp, ready.distribution, ready.value
        else:
            checkpointing = self.config.optimiser.gradient_checkpointing
            logp, distribution, value = evaluate(
                self.model, part.rollout, part.select, critic=self.critic, checkpointing=checkpointing
            )
        logp.retain_grad()
        loss, gate = policy_loss(self.algorithm, self.parameters, logp, part.tokens, size, self.reference_kl)
        if value is not None and part.target is not None:
            error = ((value - part.target) ** 2).sum() / size.tokens
            loss = loss + self.parameters["value_coefficient"] * error
        if self.parameters.get("entropy_coefficient") and distribution is not None:
            loss = loss - self.parameters["entropy_coefficient"] * entropy_of(distribution).sum() / size.tokens
        if self.algorithm.regulariser == "adaptive_kl" and part.current is not None and distribution is not None:
            loss = loss + self.kl_coefficient * _kl(part.current, distribution).sum() / size.tokens
        loss.backward()  # type: ignore[no-untyped-call]
        assert logp.grad is not None  # retained above
        log.gate[part.ids], log.side[part.ids] = gate.value, gate.side
        log.gradient_weight[part.ids], log.logp_gate[part.ids] = -logp.grad, logp.detach()
        return float(loss.detach())

    def _trust_region(self, prepared: Prepared, log: "_Log") -> dict[str, float | None]:
        """One step of TRPO on the whole batch."""
        part, tokens = prepared.everything(), prepared.tokens
        size = prepared.size(torch.arange(prepared.n_groups), self.longest)

        def forward() -> Evaluated:
            return evaluate(self.model, part.rollout, part.select)

        def objective(found: Evaluated) -> Tensor:
            return -policy_loss(self.algorithm, self.parameters, found.logp, tokens, size).loss

        def surrogate(found: Evaluated) -> Tensor:
            return (tokens.advantage * log_ratio(found.logp, tokens.logp_behavior).exp()).mean()

        logp = tokens.logp_current.clone().requires_grad_(True)
        loss, gate = policy_loss(self.algorithm, self.parameters, logp, tokens, size)
        log.gradient_weight[:] = -torch.autograd.grad(loss, logp)[0]
        log.gate[:], log.side[:] = gate.value, gate.side
        step = trust_region_step(
            self.weights,
            forward,
            objective,
            surrogate,
            **taken_by(trust_region_step, self.parameters),
        )
        return {
            "loss": float(loss.detach()),
            "grad_norm": step.gradient_norm,
            "extra_trust_region_step": step.accepted,
            "extra_trust_region_kl": step.kl,
            "extra_trust_region_trials": float(step.trials),
            "extra_trust_region_improvement": step.improvement,
        }

    def _adapt_kl(self, current: Tensor | None, new: Tensor | None) -> dict[str, float | None]:
        """Double or halve the penalty where KL(pi_k || pi_{k+1}) has left the band around its target."""
        assert current is not None  # kept because the algorithm needs it
        assert new is not None
        kl, used = float(_kl(current, new).mean()), self.kl_coefficient
        target = self.parameters["kl_target"]
        if kl > KL_BAND * target:
            self.kl_coefficient *= 2
        elif kl < target / KL_BAND:
            self.kl_coefficient /= 2
        return {"extra_kl_penalty": used, "extra_kl_new_current": kl}

    def _generator(self, step: int) -> torch.Generator:
        return torch.Generator().manual_seed((self.config.seed * 1_000_003 + step) % 2**63)


def adamw(weights: list[torch.nn.Parameter], settings: Optimiser) -> torch.optim.AdamW:
    """The optimiser of a run."""
    betas = (settings.beta1, settings.beta2)
    return torch.optim.AdamW(
        weights, lr=settings.learning_rate, betas=betas, weight_decay=settings.weight_decay, fused=True
    )


@dataclass(frozen=True)
class _Log:
    """What the last pass over each token did."""

    gate: Tensor
    side: Tensor
    gradient_weight: Tensor
    logp_gate: Tensor

    @classmethod
    def empty(cls, logp: Tensor) -> "_Log":
        return cls(
            gate=torch.ones_like(logp, dtype=torch.float64),
            side=torch.zeros_like(logp, dtype=torch.int8),
            gradient_weight=torch.zeros_like(logp),
            logp_gate=logp.clone(),
        )


def _kl(fixed: Tensor, moving: Tensor) -> Tensor:
    """KL(fixed || moving) of each state from full log-probabilities, nats."""
    return (fixed.exp() * (fixed - moving)).sum(dim=-1)
