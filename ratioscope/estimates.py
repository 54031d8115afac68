"""The numbers of a batch on its own device: 0-dimensional float64 tensors by metric key, NaN where there is nothing.

Definitions: the catalogue, and `analysis/summary/` for the same numbers of a recorded run.
"""

from math import log

from ratioscope.batch import Batch, Segments
from ratioscope.catalogue import CATALOGUE
from ratioscope.metric import HARMLESS_ERROR, HARMLESS_RATIO
from ratioscope.tails import QUANTILES, kept_size
from ratioscope.tensors import Tensor, torch
from ratioscope.terms import Term, column, evaluate_term, log_abs_expm1

_QUANTILES = {"ratio_min": 0.0, **QUANTILES, "ratio_max": 1.0}

LOG_SUM_SQUARES = "log_sum_squares"
"""Of the token ratios: no metric, but what the share of the largest is a share of."""


def numbers(batch: Batch) -> dict[str, Tensor]:
    """All numbers and counts that the columns of the batch allow, but for those of the tails."""
    found = batch.counts() | _means(_columns(batch), batch.usable) | {"ratio_mean_z": _z(batch)}
    found |= _without_signal(batch) | _weights(batch) | _quantiles(batch)
    length = found["n_tokens"] / found["n_sequences"]
    # Beyond the floating-point range of chi-square its logarithm is still a number.
    chi2, (squares, top) = found["chi2_token"], _scaled_squares(batch.log_rho(), batch.usable)
    log_chi2 = squares.sum().log() + top - _count(batch.usable).log()
    predicted = length * torch.where(chi2.isinf(), log_chi2, torch.log1p(chi2))
    return found | {"log1p_chi2_seq_predicted": predicted} | _perplexities(batch)


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


def _columns(batch: Batch) -> dict[str, Tensor]:
    """What terms of the catalogue are made of, as far as it is given: see `analysis/runs/tokens.sql`."""
    ratios = {
        "log_rho": "logp_current", "log_rho_new": "logp_new", "log_engine": "logp_behavior_train",
        "log_reference": "logp_reference", "log_teacher": "logp_teacher",
    }  # fmt: skip
    found = {name: batch.log_rho(column) for name, column in ratios.items() if column in batch.columns}
    side = batch.columns.get("clip_side")
    return found | ({} if side is None else {"clipped": side != 0}) | batch.columns


def _means(columns: dict[str, Tensor], usable: Tensor) -> dict[str, Tensor]:
    """The metrics that are means over tokens."""
    means, computed = dict[str, Tensor](), dict[Term, Tensor]()
    for key, metric in CATALOGUE.items():
        mean, where = metric.mean, metric.over.where
        if mean is None or where is None or not mean.term.columns | where.columns <= columns.keys():
            continue
        values, rows = (evaluate_term(term, columns, torch, computed) for term in (mean.term, where))
        means[key] = _mean(values, usable & rows) * mean.factor + mean.offset
    return means


def _perplexities(batch: Batch) -> dict[str, Tensor]:
    """Exponentials of the mean negative log-probabilities of the tokens."""
    columns = {"ppl_behavior": "logp_behavior", "ppl_current": "logp_current"}
    return {key: _mean(-batch.columns[name], batch.usable).exp() for key, name in columns.items()}


def _z(batch: Batch) -> Tensor:
    """Mean deviation over its cluster-robust standard error (`docs/metrics.md`, uncertainty); NaN where it has none."""
    deviation = torch.expm1(batch.log_rho())
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


_LOG_SIZE = log_abs_expm1(column("log_weight"))


def _log_square(log_weights: Tensor) -> Tensor:
    """log (w - 1)^2."""
    found: Tensor = 2 * evaluate_term(_LOG_SIZE, {"log_weight": log_weights}, torch)
    return found


def _scaled_squares(log_weights: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
    """(w - 1)^2 relative to the largest one, which does not overflow, and the logarithm of that."""
    squares = torch.where(there, _log_square(log_weights), -torch.inf)
    top = squares.max()
    return torch.where(there, (squares - top).exp(), 0.0), top


def _reliance(log_weights: Tensor, there: Tensor, groups: Segments) -> Tensor:
    """What the largest (w - 1)^2 adds to their mean, in standard errors of it (`ratioscope.metric.doubt`)."""
    logs = torch.where(there, log_weights, -torch.inf)
    highest, (scaled, top) = logs.max(), _scaled_squares(log_weights, there)
    n = groups.sum(there)
    error = _with_error(groups.sum(scaled), n)[1] * n.sum()
    largest = (_log_square(highest) - top).exp()
    harmful = torch.where(error > 0, largest / error, torch.nan)
    return torch.where(highest > log(HARMLESS_RATIO), harmful, torch.where(n.sum() > 0, 0.0, torch.nan))


def _spread(terms: Tensor, batch: Batch) -> Tensor:
    """How far groups differ in a mean over tokens, as a share of it (`analysis.summary.over_run`)."""
    n = _sizes(batch)
    theta, error = _with_error(batch.groups.sum(torch.where(batch.usable, terms, 0.0)), n)
    relative, effective = error / theta, n.sum().square() / n.square().sum()
    spread = torch.where(relative > HARMLESS_ERROR, relative * (effective - 1).sqrt(), 0.0)
    return torch.where(relative.isfinite(), spread, torch.nan)


def _without_signal(batch: Batch) -> dict[str, Tensor]:
    """The share of groups that contribute no gradient, where advantages are given."""
    advantage = batch.columns.get("advantage")
    if advantage is None:
        return {}
    without_signal = ~batch.groups.any(batch.usable & (advantage != 0))
    return {"zero_advantage_group_fraction": _mean(without_signal, batch.groups.any(batch.usable))}


def _weights(batch: Batch) -> dict[str, Tensor]:
    """Effective sample sizes, and the chi-square of the sequence ratios: in log space until the very last step."""
    ess_token, log_sum_squares = _effective(batch.log_rho(), batch.usable)
    log_w, defined = batch.log_weights()
    squares = torch.where(defined, _log_square(log_w), -torch.inf)
    log_chi2 = squares.logsumexp(dim=0) - _count(defined).log()
    log_w_squared = torch.where(defined, 2 * log_w, -torch.inf).logsumexp(dim=0) - _count(defined).log()
    n = _sizes(batch)
    groups_of_sequences = Segments(batch.sequences.largest(batch.groups.index), batch.groups.size)
    return {
        "reliance_token": _reliance(batch.log_rho(), batch.usable, batch.groups),
        "reliance_seq": _reliance(log_w, defined, groups_of_sequences),
        "group_spread_kl": _spread(batch.log_rho().square(), batch),
        "group_spread_chi2": _spread(_scaled_squares(batch.log_rho(), batch.usable)[0], batch),
        "effective_groups": n.sum().square() / n.square().sum(),
        "chi2_seq": log_chi2.exp(),
        "log1p_chi2_seq": torch.logaddexp(torch.zeros_like(log_chi2), log_chi2),
        "chi2_seq_raw": torch.expm1(log_w_squared),
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
