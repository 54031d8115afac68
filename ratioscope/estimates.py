"""The numbers of a batch on its own device: 0-dimensional float64 tensors by metric key, NaN where there is nothing.

Definitions: the catalogue, and `analysis/summary/` for the same numbers of a recorded run.
"""

from math import log

from ratioscope import terms
from ratioscope.batch import Batch, Segments
from ratioscope.metric import HARMLESS_RATIO
from ratioscope.tails import QUANTILES, kept_size
from ratioscope.tensors import Tensor, torch

_QUANTILES = {"ratio_min": 0.0, **QUANTILES, "ratio_max": 1.0}

LOG_SUM_SQUARES = "log_sum_squares"
"""Of the token ratios: no metric, but what the share of the largest is a share of."""


def numbers(batch: Batch) -> dict[str, Tensor]:
    """All numbers and counts that the columns of the batch allow, but for those of the tails."""
    found = batch.counts() | _divergences(batch) | _learning(batch) | _weights(batch) | _quantiles(batch)
    length = found["n_tokens"] / found["n_sequences"]
    return found | {"log1p_chi2_seq_predicted": length * torch.log1p(found["chi2_token"])}


def largest_weights(batch: Batch) -> dict[str, Tensor]:
    """By tail index: the largest log-weights that it is fitted on, descending; -inf where there are no more."""
    log_w, defined = batch.log_weights()
    logs = {"khat_token": torch.where(batch.usable, batch.log_rho(), -torch.inf)}
    if "logp_new" in batch.columns:
        logs["khat_token_new"] = torch.where(batch.usable, batch.log_rho("logp_new"), -torch.inf)
    logs["khat_seq"] = torch.where(defined, log_w, -torch.inf)
    return {key: values.topk(min(kept_size(len(values)), len(values))).values for key, values in logs.items()}


def _count(rows: Tensor) -> Tensor:
    return rows.sum(dtype=torch.float64)  # a quotient of integers would be float32


def _mean(values: Tensor, rows: Tensor) -> Tensor:
    """Mean over the chosen rows; NaN where there are none."""
    return torch.where(rows, values.double(), 0.0).sum() / _count(rows)


def _divergences(batch: Batch) -> dict[str, Tensor]:
    usable, log_rho = batch.usable, batch.log_rho()
    deviation = torch.expm1(log_rho)  # rho - 1
    found = {
        "s_k": _mean(deviation.abs(), usable) / 2,
        "s_k_bounded": _mean((-deviation).clamp(min=0), usable),
        "ratio_mean": _mean(log_rho.exp(), usable),
        "ratio_mean_z": _z(batch, deviation),
        "chi2_token": _mean(deviation**2, usable),
        "chi2_token_raw": _mean(torch.expm1(2 * log_rho), usable),
        "abs_log_ratio": _mean(log_rho.abs(), usable),
        "kl_k1": _mean(-log_rho, usable),
        "kl_k2": _mean(log_rho**2 / 2, usable),
        "kl_k3": _mean(terms.expm1_minus(log_rho), usable),
        "kl_reverse": _mean(terms.reverse_kl(log_rho), usable),
    }
    if "logp_new" in batch.columns:
        log_rho_new = batch.log_rho("logp_new")
        deviation_new = torch.expm1(log_rho_new)
        drift = terms.ratio_distance(log_rho_new, log_rho)
        found["u_k"] = _mean(drift, usable) / 2
        found["u_k_bounded"] = _mean(torch.where(log_rho_new < log_rho, drift, 0.0), usable)
        found["tv_new_behavior"] = _mean(deviation_new.abs(), usable) / 2
        found["tv_new_behavior_bounded"] = _mean((-deviation_new).clamp(min=0), usable)
    if "logp_behavior_train" in batch.columns:
        log_engine = batch.log_rho("logp_behavior_train")
        rows = usable & log_engine.isfinite()
        version, engine = terms.ratio_distance(log_rho, log_engine), torch.expm1(log_engine)
        found["s_k_version"] = _mean(version, rows) / 2
        found["s_k_version_bounded"] = _mean(torch.where(log_rho < log_engine, version, 0.0), rows)
        found["s_k_engine"] = _mean(engine.abs(), rows) / 2
        found["s_k_engine_bounded"] = _mean((-engine).clamp(min=0), rows)
    if "logp_reference" in batch.columns:
        log_reference = batch.log_rho("logp_reference")
        rows = usable & log_reference.isfinite()
        found["kl_to_reference"] = _mean(terms.weighted_reference(log_rho, log_reference), rows)
    return found


def _z(batch: Batch, deviation: Tensor) -> Tensor:
    """Mean deviation over its cluster-robust standard error (`docs/metrics.md`, uncertainty); NaN where it has none."""
    theta, error = _with_error(batch.groups.sum(torch.where(batch.usable, deviation, 0.0)), _sizes(batch))
    return torch.where(error.isfinite() & (error > 0), theta / error, torch.nan)


def _sizes(batch: Batch) -> Tensor:
    """Usable tokens of each group."""
    return batch.groups.sum(batch.usable)


def _with_error(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """A ratio of sums over groups and its standard error: the twin of `cluster_variances` of the step summary."""
    groups, theta = _count(n > 0), x.sum() / n.sum()
    residual = (x - theta * n) / (n.sum() - n)
    error = ((groups - 1) / groups * residual.square().sum()).sqrt()
    return theta, torch.where(groups > 1, error, torch.nan)


def _reliance(log_weights: Tensor, there: Tensor, groups: Segments) -> Tensor:
    """What the largest (w - 1)^2 adds to their mean, in standard errors of it (`ratioscope.metric.doubt`)."""
    logs = torch.where(there, log_weights, -torch.inf)
    highest, squares = logs.max(), torch.where(there, 2 * terms.log_abs_expm1(log_weights), -torch.inf)
    top = squares.max()
    scaled = torch.where(there, (squares - top).exp(), 0.0)
    n = groups.sum(there)
    error = _with_error(groups.sum(scaled), n)[1] * n.sum()
    largest = (2 * terms.log_abs_expm1(highest) - top).exp()
    harmful = torch.where(error > 0, largest / error, torch.nan)
    return torch.where(highest > log(HARMLESS_RATIO), harmful, torch.where(n.sum() > 0, 0.0, torch.nan))


def _learning(batch: Batch) -> dict[str, Tensor]:
    """What the loss threw away, as far as it is given, and the entropy."""
    usable, found = batch.usable, {}
    clipped, side, gate, advantage, entropy = (
        batch.columns.get(name) for name in ("clipped", "clip_side", "gate", "advantage", "entropy")
    )
    if side is not None:
        found["clip_fraction_low"], found["clip_fraction_high"] = _mean(side < 0, usable), _mean(side > 0, usable)
        clipped = side if clipped is None else clipped
    if clipped is not None:
        found["clip_fraction"] = _mean(clipped != 0, usable)
        if advantage is not None:
            found["clip_fraction_positive"] = _mean(clipped != 0, usable & (advantage > 0))
            found["clip_fraction_negative"] = _mean(clipped != 0, usable & (advantage < 0))
    if gate is not None:
        found["gate_mean"] = _mean(gate, usable)
        if advantage is not None:
            found["effective_token_fraction"] = _mean(torch.where(advantage != 0, gate, 0.0), usable)
    if advantage is not None:
        without_signal = ~batch.groups.any(usable & (advantage != 0))
        found["zero_advantage_group_fraction"] = _mean(without_signal, batch.groups.any(usable))
    if entropy is not None:
        found["entropy"] = _mean(entropy, usable & entropy.isfinite())
    return found


def _weights(batch: Batch) -> dict[str, Tensor]:
    """Effective sample sizes, and the chi-square of the sequence ratios: in log space until the very last step."""
    ess_token, log_sum_squares = _effective(batch.log_rho(), batch.usable)
    log_w, defined = batch.log_weights()
    squares = torch.where(defined, 2 * terms.log_abs_expm1(log_w), -torch.inf)
    log_chi2 = squares.logsumexp(dim=0) - _count(defined).log()
    n = _sizes(batch)
    groups_of_sequences = Segments(batch.sequences.largest(batch.groups.index), batch.groups.size)
    return {
        "reliance_token": _reliance(batch.log_rho(), batch.usable, batch.groups),
        "reliance_seq": _reliance(log_w, defined, groups_of_sequences),
        "effective_groups": n.sum().square() / n.square().sum(),
        "chi2_seq": log_chi2.exp(),
        "log1p_chi2_seq": torch.logaddexp(torch.zeros_like(log_chi2), log_chi2),
        "ess_seq": _effective(log_w, defined)[0],
        "ess_token": ess_token,
        LOG_SUM_SQUARES: log_sum_squares,
    }


def _effective(log_weights: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """(sum w)^2 / (n sum w^2), and log sum w^2; relative to the largest weight, so that nothing overflows."""
    largest = torch.where(rows, log_weights, -torch.inf).max()
    weights = torch.where(rows, (log_weights - largest).exp(), 0.0)
    squares = (weights**2).sum()
    return weights.sum() ** 2 / (_count(rows) * squares), 2 * largest + squares.log()


def _quantiles(batch: Batch) -> dict[str, Tensor]:
    """Quantiles of the ratio: linear interpolation between sorted log-ratios."""
    ordered, n = torch.where(batch.usable, batch.log_rho(), torch.inf).sort().values, _count(batch.usable)
    places = torch.stack([(n - 1).clamp(min=0) * q for q in _QUANTILES.values()])
    below, above = ordered.gather(0, places.floor().long()), ordered.gather(0, places.ceil().long())
    # A ratio of 0 has nothing between itself and the next one.
    between = torch.where(below.isinf() | (below == above), below, torch.lerp(below, above, places.frac()))
    values = torch.where(n > 0, between.exp(), torch.nan)
    return dict(zip(_QUANTILES, values.unbind(), strict=True))
