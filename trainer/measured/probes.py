"""Gradient probes: bias and variance of the algorithm's gradient estimate, in the terms of the SGA lemma (S1 2).

At some updates the policy's true gradient is estimated from fresh on-policy samples, and the gradient that the
algorithm would take is estimated several times from the samples that it is given; all on different prompts. Products
of independent estimates have no noise bias, so all squared norms are means over pairs of different batches.
"""

import random
import time
from dataclasses import replace

import torch
from torch import Tensor

from ratioscope.trainer.algorithms.advantages import leave_one_out
from ratioscope.trainer.algorithms.losses import Size, policy_loss
from ratioscope.trainer.model.policy import evaluate
from ratioscope.trainer.sampling.collector import ScheduledCollector, assemble
from ratioscope.trainer.sampling.rollout import TrainingBatch
from ratioscope.trainer.sampling.sample import Version, encoded, sample
from ratioscope.trainer.training.update import Learner

# Both gradients are means over responses of sums over tokens, whatever the algorithm divides by: otherwise lengths
# would make up most of the bias.
NORMALISER = "sequence_sum"
SELF_NORMALISED = "self_normalised"


def probe(learner: Learner, collector: ScheduledCollector, step: int) -> dict[str, float | int | str]:
    """One row of the probes table; neither the policy nor the course of the run is changed by it.

    Args:
        learner: the policy and its algorithm.
        collector: samples as the schedule has them.
        step: the update that is about to be made.
    """
    started = time.perf_counter()
    config, device = learner.config, learner.model.device
    batches, size = config.logging.probe_batches, config.sampler.prompts
    seed = (config.seed * 1_000_003 + step) % 2**63
    choice, generator = random.Random(seed), torch.Generator(device).manual_seed(seed)
    prompts = collector.task.draw(choice, 2 * batches * size)  # no prompt twice
    parts = [prompts[start : start + size] for start in range(0, len(prompts), size)]
    true = torch.stack([_true_gradient(learner, collector, part, generator) for part in parts[:batches]])
    estimate = torch.stack(
        [_estimate(learner, step, collector.batch(step, part, choice, generator)) for part in parts[batches:]]
    )
    products = (true @ true.T, true @ estimate.T, estimate @ estimate.T)
    return {
        "estimator": learner.algorithm.name,
        "batches": batches,
        **sga_terms(*products),
        **{f"{name}_se": error for name, error in _jackknife(*products).items()},
        "seconds": time.perf_counter() - started,
    }


def sga_terms(true: Tensor, cross: Tensor, estimate: Tensor) -> dict[str, float]:
    """The terms from inner products of independent gradient estimates, without noise bias.

    Args:
        true: (n, n) products of the on-policy ones among themselves.
        cross: (n, n) of on-policy with off-policy ones.
        estimate: (n, n) of the off-policy ones among themselves.
    """
    truth, product, mean = _off_diagonal(true), float(cross.mean()), _off_diagonal(estimate)
    length = max(truth, 0.0) ** 0.5 * max(mean, 0.0) ** 0.5
    return {
        "gradient_norm_squared": truth,
        "gradient_dot_bias": product - truth,
        "bias_norm_squared": mean - 2 * product + truth,
        "variance": float(estimate.diagonal().mean()) - mean,
        "cosine": product / length if length > 0 else float("nan"),
        "rescaling": product / mean if mean > 0 else float("nan"),
    }


def _off_diagonal(gram: Tensor) -> float:
    n = len(gram)
    return float(gram.sum() - gram.diagonal().sum()) / (n * (n - 1))


def _jackknife(true: Tensor, cross: Tensor, estimate: Tensor) -> dict[str, float]:
    """Standard errors: each on-policy and each off-policy batch is left out once, and the two variances add up."""
    n = len(true)
    if n < 3:
        return dict.fromkeys(sga_terms(true, cross, estimate), float("nan"))
    rest = [torch.tensor([other for other in range(n) if other != left]) for left in range(n)]
    without_true = [sga_terms(true[keep][:, keep], cross[keep], estimate) for keep in rest]
    without_estimate = [sga_terms(true, cross[:, keep], estimate[keep][:, keep]) for keep in rest]
    errors = {}
    for name in without_true[0]:
        variance = 0.0
        for left_out in (without_true, without_estimate):
            values = torch.tensor([terms[name] for terms in left_out])
            variance += float((n - 1) / n * ((values - values.mean()) ** 2).sum())
        errors[name] = variance**0.5
    return errors


def _true_gradient(
    learner: Learner, collector: ScheduledCollector, prompt_ids: list[int], generator: torch.Generator
) -> Tensor:
    """Of J, without bias: reward minus the mean of the others, times grad log pi of the response (S3 2.1).

    The samples are the current policy's own, drawn by the training engine at temperature 1.
    """
    task, vocabulary = collector.task, collector.vocabulary
    prompts, prompt_mask = encoded(task, vocabulary, prompt_ids, learner.model.device)
    rollout = sample(
        Version(learner.model),
        prompts,
        prompt_mask,
        vocabulary,
        copies=learner.config.sampler.samples_per_prompt,
        length=task.response_length,
        generator=generator,
    )
    batch = assemble([rollout], prompt_ids, task, vocabulary)
    found = evaluate(learner.model, rollout)
    sequence, _ = rollout.mask.nonzero(as_tuple=True)
    grouped = batch.reward.view(-1, rollout.copies)
    advantage = leave_one_out(grouped, torch.ones_like(grouped, dtype=torch.bool)).flatten()
    objective = (advantage.to(found.logp.device)[sequence] * found.logp).sum() / len(batch.reward)
    return _flat_gradient(learner, objective)


def _estimate(learner: Learner, step: int, batch: TrainingBatch) -> Tensor:
    """The gradient of the algorithm's first pass on a batch, under the common normaliser.

    Division by the sum of the weights is the estimator itself: there a constant, the mean length, makes it comparable.
    """
    normalises = learner.algorithm.aggregation == SELF_NORMALISED
    algorithm = learner.algorithm if normalises else replace(learner.algorithm, aggregation=NORMALISER)
    prepared = learner.prepare(step, batch, gradient=True)
    size = Size(tokens=0, sequences=sum(reason is None for reason in prepared.dropped), longest=learner.longest)
    loss = policy_loss(
        algorithm, learner.parameters, prepared.seen.logp, prepared.tokens, size, learner.reference_kl
    ).loss
    length = len(prepared.tokens.sequence) / max(size.sequences, 1) if normalises else 1.0
    return _flat_gradient(learner, -loss * length)


def _flat_gradient(learner: Learner, objective: Tensor) -> Tensor:
    parameters = learner.weights.computing
    gradients = torch.autograd.grad(objective, parameters, allow_unused=True)
    return torch.cat(
        [
            (torch.zeros_like(parameter) if gradient is None else gradient).flatten().double().cpu()
            for parameter, gradient in zip(parameters, gradients, strict=True)
        ]
    )
