"""The metrics of one batch, inside any training loop: tensors in, a dictionary out; computed where the tensors lie.

    from ratioscope.metrics import batch_metrics

    # TRL, verl, own code: padded [batch, length] log-probabilities of the sampled tokens, one advantage a response
    metrics = batch_metrics(
        inputs["sampling_per_token_logps"],  # the sampler's own
        inputs["old_per_token_logps"],       # the policy before the update
        logp_new=new_per_token_logps,        # the policy after it, where there is a forward pass to spare
        advantage=inputs["advantages"],      # [batch] or [batch, length]
        mask=inputs["completion_mask"],
        group=torch.arange(batch, device=device) // num_generations,
    )
    wandb.log(metrics)                       # {"s_k_bounded": 0.031, "chi2_token": 0.012, "khat_token": 0.21, ...}
    str(metrics.notes["chi2_seq"])           # "unreliable: the largest ratio of a response alone ..."

Keys and definitions are those of `ratioscope.catalogue` and of the step summary (`analysis.summary`), which computes
the same numbers from a recorded run. Arithmetic is float64; nothing is clamped. A GPU is waited for once.
Intervals need the whole step with its groups: record it (`RunRecorder`) and let the summary compute them.
"""

from collections.abc import Mapping
from itertools import chain
from math import isinf, isnan, nan

import numpy as np

from ratioscope import estimates
from ratioscope.batch import flatten
from ratioscope.catalogue import CATALOGUE
from ratioscope.metric import ALL_TOKENS, INFINITE, RATIOS, UNDEFINED, Metric, Moment, doubt
from ratioscope.notes import Kind, Note
from ratioscope.tails import Array, pareto_khat, top_share
from ratioscope.tensors import Tensor, torch

# What `batch_metrics` may be given, of the columns of the run format.
_GIVEN = {
    "logp_new", "logp_behavior_train", "logp_reference", "logp_teacher", "advantage", "clip_side", "clipped", "gate",
    "entropy",
}  # fmt: skip
_REQUIRED = {"logp_behavior", "logp_current"}
_NO_TOKEN = ALL_TOKENS.missing.text.replace("step", "batch")


class BatchMetrics(dict[str, float]):
    """Value by metric key, and the counts of the batch. What is undefined has no key: loggers would draw it as 0."""

    def __init__(self, values: Mapping[str, float], notes: dict[str, Note]) -> None:
        super().__init__(values)
        self.notes = notes
        """Why a key is missing, infinite or not to be trusted; one sentence a key."""


@torch.no_grad()
def batch_metrics(
    logp_behavior: Tensor,
    logp_current: Tensor,
    *,
    logp_new: Tensor | None = None,
    logp_behavior_train: Tensor | None = None,
    logp_reference: Tensor | None = None,
    logp_teacher: Tensor | None = None,
    advantage: Tensor | None = None,
    sequence: Tensor | None = None,
    group: Tensor | None = None,
    mask: Tensor | None = None,
    clip_side: Tensor | None = None,
    clipped: Tensor | None = None,
    gate: Tensor | None = None,
    entropy: Tensor | None = None,
) -> BatchMetrics:
    """Every metric of the catalogue that the given tensors allow, and the counts of the step summary.

    Unusable tokens (NaN, infinite, positive log-probabilities, non-finite advantages) are left out and counted in
    `n_invalid`; a ratio of 0 is a number like any other. A sequence with an unusable token has no sequence ratio.

    Args:
        logp_behavior, logp_current, logp_new, logp_behavior_train, logp_reference, logp_teacher: log-probabilities of
            the sampled tokens in nats, [tokens] or [batch, length]; all of one shape and on one device. The names are
            those of the run format (`ratioscope explain format`).
        mask: true (or non-zero) where a token is eligible for the loss; without it every token is.
        sequence: integer ids of the tokens' sequences; of padded tensors every row is one, flat ones need it.
        group: integer ids of the prompt groups; without it every sequence is a group of its own.
        advantage, clip_side, clipped, gate, entropy: as in the run format. All but the log-probabilities may have one
            value a row, [batch] or [batch, 1], where the log-probabilities are [batch, length].

    Raises:
        RatioscopeError: a tensor has another shape, or flat log-probabilities come without `sequence`.
    """
    optional = {
        "logp_new": logp_new, "logp_behavior_train": logp_behavior_train, "logp_reference": logp_reference,
        "logp_teacher": logp_teacher,
        "advantage": advantage, "sequence": sequence, "group": group, "mask": mask,
        "clip_side": clip_side, "clipped": clipped, "gate": gate, "entropy": entropy,
    }  # fmt: skip
    given = {"logp_behavior": logp_behavior, "logp_current": logp_current}
    given |= {name: tensor for name, tensor in optional.items() if tensor is not None}
    batch = flatten(given)
    return _judged(*_transferred(estimates.numbers(batch), estimates.largest_weights(batch)))


def unreliable(metrics: BatchMetrics) -> dict[str, Note]:
    """Which of the metrics are infinite or cannot be estimated from this many samples, and why.

    Args:
        metrics: as `batch_metrics` returns them; a second moment is judged by its reliance on the largest weight.
    """
    notes = dict[str, Note]()
    for key, value in metrics.items():
        if key not in CATALOGUE:
            continue
        metric = CATALOGUE[key]
        if isinf(value):
            notes[key] = INFINITE
            continue
        if metric.moment is Moment.SECOND and (note := doubt(metrics.get(metric.reliance, nan), metric.unit_of_ratio)):
            notes[key] = note
    return notes


def _why_undefined(metric: Metric) -> str:
    """Of a number whose columns are given, in a batch with usable tokens."""
    if metric.undefined is not UNDEFINED:
        return metric.undefined.text
    if metric.over.columns and metric.over is not RATIOS:
        return f"no finite {' or '.join(metric.over.columns)}"
    return (metric.undefined if metric.over in (ALL_TOKENS, RATIOS) else metric.over.missing).text


def _transferred(numbers: dict[str, Tensor], tops: dict[str, Tensor]) -> tuple[dict[str, float], dict[str, Array]]:
    """Everything on the host: the one moment at which the device is waited for."""
    scalars = torch.stack(list(numbers.values()))
    here = torch.cat([scalars, *tops.values()]).cpu().numpy()
    values, *largest = np.split(here, np.cumsum([len(scalars), *map(len, tops.values())])[:-1])
    return dict(zip(numbers, values.tolist(), strict=True)), dict(zip(tops, largest, strict=True))


def _judged(values: dict[str, float], tops: dict[str, Array]) -> BatchMetrics:
    """The defined values with what the tails add, and a note for everything else."""
    notes = {
        key: Note(Kind.NOT_LOGGED, f"{' and '.join(map(' or '.join, needs))} not given")
        for key, metric in CATALOGUE.items()
        if (needs := [part for part in metric.needs if not _REQUIRED & {*part}])
        and _GIVEN.issuperset(chain(*needs))
        and key not in (*values, *tops)
    }
    n_tokens, n_weights = int(values["n_tokens"]), int(values["n_sequences"] - values["n_undefined"])
    for key, top in tops.items():
        khat, note = pareto_khat(top, n_weights if key == "khat_seq" else n_tokens)
        if khat is not None:
            values[key] = khat
        elif note:
            notes[key] = note
    share = top_share(tops["khat_token"], n_tokens, values.pop(estimates.LOG_SUM_SQUARES))
    values["top1pct_share"] = float("nan") if share is None else share
    for key, value in values.items():
        if isnan(value):
            notes[key] = Note(Kind.UNDEFINED, _why_undefined(CATALOGUE[key]) if n_tokens else _NO_TOKEN)
    defined = {key: value for key, value in values.items() if not isnan(value)}
    return BatchMetrics(defined, notes | unreliable(BatchMetrics(defined, notes)))
