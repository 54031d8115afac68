"""One step: from its group sums and order statistics to metrics with interval and note."""

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import logsumexp

from analysis.intervals import Interval, bootstrap_counts, cluster_interval, fraction_interval, percentile_interval
from analysis.partials import Partials
from ratioscope.catalogue import CATALOGUE
from ratioscope.metric import Moment, khat_limit
from ratioscope.tails import Array, pareto_khat, top_share

QUANTILES = ("ratio_p01", "ratio_p50", "ratio_p90", "ratio_p99", "ratio_p999")
INVALID_CAUSES = ("nan", "infinite", "positive", "advantage")
COUNTS = (
    *("n_tokens", "n_sequences", "n_groups", "n_invalid"),
    *(f"n_invalid_{cause}" for cause in INVALID_CAUSES),
    "n_undefined",  # sequences without a W, because a token of theirs is unusable
)
FLAGGED_INVALID_SHARE = 1e-3


@dataclass
class StepRow:
    """One step's metrics, their intervals, and why one is missing or doubtful."""

    step: int
    values: dict[str, float] = field(default_factory=dict)
    intervals: dict[str, Interval] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


# Metrics that are a ratio of group sums: numerator column, factor, denominator column.
_MEANS: dict[str, tuple[str, float, str]] = {
    "u_k": ("drift", 0.5, "n_new"),
    "s_k": ("deviation", 0.5, "n_tokens"),
    "s_k_bounded": ("shortfall", 1.0, "n_tokens"),
    "s_k_version": ("version_part", 0.5, "n_engine"),
    "s_k_engine": ("engine_part", 0.5, "n_engine"),
    "s_k_exact": ("exact_staleness", 1.0, "n_exact"),
    "u_k_exact": ("exact_drift", 1.0, "n_exact_new"),
    "chi2_token_exact": ("exact_chi2", 1.0, "n_exact"),
    "tv_new_behavior": ("deviation_new", 0.5, "n_new"),
    "tv_new_behavior_bounded": ("shortfall_new", 1.0, "n_new"),
    "ratio_mean": ("rho", 1.0, "n_tokens"),
    "chi2_token": ("deviation_squared", 1.0, "n_tokens"),
    "kl_k1": ("k1", 1.0, "n_tokens"),
    "kl_k2": ("k2", 1.0, "n_tokens"),
    "kl_k3": ("k3", 1.0, "n_tokens"),
    "kl_reverse": ("reverse", 1.0, "n_tokens"),
    "kl_to_reference": ("reference", 1.0, "n_reference"),
    "entropy": ("entropy", 1.0, "n_entropy"),
    "version_lag": ("version_lag", 1.0, "n_tokens"),
    "reward": ("reward", 1.0, "n_reward"),
    "response_length": ("response_length", 1.0, "n_sequences"),
}
# Metrics in [0, 1]: their intervals stay in it.
_FRACTIONS: dict[str, tuple[str, str]] = {
    "gate_mean": ("gate", "n_gate"),
    "effective_token_fraction": ("effective", "n_gate"),
    "clip_fraction": ("clipped", "n_clip"),
    "clip_fraction_low": ("clipped_low", "n_side"),
    "clip_fraction_high": ("clipped_high", "n_side"),
    "clip_fraction_positive": ("clipped_positive", "n_positive"),
    "clip_fraction_negative": ("clipped_negative", "n_negative"),
}
_NO_TOKEN = "no usable token in this step"
_NOT_LOGGED = {
    "n_new": "logp_new is not logged",
    "n_clip": "neither clipped nor clip_side is logged",
    "n_side": "clip_side is not logged",
    "n_gate": "gate is not logged",
    "n_entropy": "entropy is not logged",
    "n_engine": "logp_behavior_train is not logged",
    "n_reference": "logp_reference is not logged",
    "n_exact": "not estimable from samples, and the exact per-state columns are not logged",
    "n_exact_new": "the exact per-state columns are not logged",
    "n_positive": "no token with positive advantage",
    "n_negative": "no token with negative advantage",
    "n_reward": "no finite reward",
    "n_sequences": "the sequences table has no rows for this step",
}


def step_rows(partials: Partials) -> list[StepRow]:
    order = {int(row["step"]): row for row in partials.order.to_dict("records")}
    groups = partials.groups.sort_values(["step", "group_id"])
    columns = {name: groups[name].to_numpy(dtype=float) for name in groups.columns}
    for name in columns:
        if name.startswith(("n_", "clipped")):  # an absent count is 0; an absent sum stays NaN
            columns[name] = np.nan_to_num(columns[name])
    steps, starts = np.unique(columns["step"], return_index=True)
    ends = [*starts[1:], len(groups)]
    return [
        _row(int(step), {name: values[start:end] for name, values in columns.items()}, order.get(int(step)))
        for step, start, end in zip(steps, starts, ends, strict=True)
    ]


def _row(step: int, columns: dict[str, Array], order: dict[Any, Any] | None) -> StepRow:
    row = StepRow(step)
    n_tokens = int(columns["n_tokens"].sum())
    n_sequences = columns["n_sequences"].sum() if "n_sequences" in columns else 0
    row.values = {
        "n_tokens": n_tokens,
        "n_sequences": int(n_sequences or columns["n_weights"].sum() + columns["n_undefined"].sum()),
        "n_groups": len(columns["step"]),
        "n_invalid": int(columns["n_rows"].sum()) - n_tokens,
        **{f"n_invalid_{cause}": int(columns[f"n_invalid_{cause}"].sum()) for cause in INVALID_CAUSES},
        "n_undefined": int(columns["n_undefined"].sum()),
    }
    with warnings.catch_warnings(), np.errstate(all="ignore"):  # what is not finite is handled, and noted, below
        warnings.simplefilter("ignore")
        _means(row, columns)
        _sequence_weights(row, columns)
        if order is not None:
            _order_statistics(row, columns, order, n_tokens)
        else:
            row.notes |= {key: _NO_TOKEN for key in CATALOGUE if key.startswith(("ratio_", "khat_", "top"))}
    _judge(row)
    return row


def _means(row: StepRow, columns: dict[str, Array]) -> None:
    for key, (numerator, factor, denominator) in _MEANS.items():
        weight = columns.get(denominator, np.zeros(1))
        if not weight.sum():
            row.notes[key] = _why_missing(denominator, columns)
            continue
        terms = np.where(weight > 0, columns[numerator] * factor, 0.0)
        row.values[key] = terms.sum() / weight.sum()
        row.intervals[key] = cluster_interval(terms, weight)
    for key, (numerator, denominator) in _FRACTIONS.items():
        weight = columns[denominator]
        if not weight.sum():
            row.notes[key] = _why_missing(denominator, columns)
            continue
        terms = np.where(weight > 0, columns[numerator], 0.0)
        row.values[key] = terms.sum() / weight.sum()
        row.intervals[key] = fraction_interval(terms, weight)
    _derived(row, columns)
    usable = columns["n_tokens"] > 0
    if usable.any():
        without_signal = (columns["n_signal"][usable] == 0).astype(float)
        row.values["zero_advantage_group_fraction"] = without_signal.mean()
        row.intervals["zero_advantage_group_fraction"] = fraction_interval(without_signal, np.ones(len(without_signal)))
        n, squared = columns["n_tokens"][usable], columns["rho_squared"][usable]
        row.values["chi2_token_raw"] = squared.sum() / n.sum() - 1
        low, high = cluster_interval(squared, n)
        row.intervals["chi2_token_raw"] = Interval(low - 1, high - 1)
        rho, squared = columns["scaled"][usable], columns["scaled_squared"][usable]  # a common factor cancels
        row.values["ess_token"] = rho.sum() ** 2 / (n.sum() * squared.sum())
        if len(n) > 1:
            counts = bootstrap_counts(len(n))
            draws = (counts @ rho) ** 2 / ((counts @ n) * (counts @ squared))
            row.intervals["ess_token"] = percentile_interval(draws)
    else:
        keys = ("zero_advantage_group_fraction", "chi2_token_raw", "ess_token")
        row.notes |= dict.fromkeys(keys, _NO_TOKEN)


def _derived(row: StepRow, columns: dict[str, Array]) -> None:
    """What follows from other numbers of the step, or is a maximum."""
    exact = columns["n_exact"] > 0
    if exact.any():
        row.values["delta_max"] = columns["exact_largest"][exact].max()
    else:
        row.notes["delta_max"] = _why_missing("n_exact", columns)
    low, high = row.intervals.get("ratio_mean", (np.nan, np.nan))
    if high > low:
        groups = int((columns["n_tokens"] > 0).sum())
        error = (high - low) / 2 / stats.t.ppf(0.975, groups - 1)
        row.values["ratio_mean_z"] = (row.values["ratio_mean"] - 1) / error
    elif "ratio_mean" in row.values:
        row.notes["ratio_mean_z"] = "the mean ratio has no standard error here"
    else:
        row.notes["ratio_mean_z"] = _NO_TOKEN
    if "chi2_token" in row.values:
        length = columns["n_tokens"].sum() / max(columns["n_weights"].sum() + columns["n_undefined"].sum(), 1)
        row.values["log1p_chi2_seq_predicted"] = length * np.log1p(row.values["chi2_token"])
    else:
        row.notes["log1p_chi2_seq_predicted"] = _NO_TOKEN


def _why_missing(denominator: str, columns: dict[str, Array]) -> str:
    if denominator not in ("n_reward", "n_sequences") and not columns["n_tokens"].sum():
        return _NO_TOKEN
    if denominator in ("n_positive", "n_negative") and not columns["n_clip"].sum():
        return _NOT_LOGGED["n_clip"]
    return _NOT_LOGGED[denominator]


def _sequence_weights(row: StepRow, columns: dict[str, Array]) -> None:
    """chi-square and effective sample size of the sequence ratios, in log space until the very last step."""
    keys = ("chi2_seq", "log1p_chi2_seq", "ess_seq")
    used = columns["n_weights"] > 0
    n = columns["n_weights"][used]
    if not len(n):
        row.notes |= dict.fromkeys(keys, "no sequence without an unusable token")
        return
    lse_chi2, lse_w, lse_squared = (columns[name][used] for name in ("lse_chi2", "lse_w", "lse_w_squared"))
    log_chi2 = logsumexp(lse_chi2) - np.log(n.sum())
    row.values["log1p_chi2_seq"] = np.logaddexp(0.0, log_chi2)
    row.values["chi2_seq"] = np.exp(log_chi2)
    log_ess = 2 * logsumexp(lse_w) - np.log(n.sum()) - logsumexp(lse_squared)
    if np.isfinite(log_ess):
        row.values["ess_seq"] = np.exp(log_ess)
    else:
        row.notes["ess_seq"] = "every sequence ratio is 0"
    row.intervals["chi2_seq"] = cluster_interval(np.exp(lse_chi2), n)
    if len(n) > 1:
        counts = bootstrap_counts(len(n))
        scale = max(lse_chi2.max(), -700.0)  # a common scale keeps the resampled sums finite
        log_draws = np.log(counts @ np.exp(lse_chi2 - scale)) + scale - np.log(counts @ n)
        row.intervals["log1p_chi2_seq"] = percentile_interval(np.logaddexp(0.0, log_draws))
        if "ess_seq" in row.values:
            w, squared = np.exp(lse_w - lse_w.max()), np.exp(lse_squared - 2 * lse_w.max())
            row.intervals["ess_seq"] = percentile_interval((counts @ w) ** 2 / ((counts @ n) * (counts @ squared)))


def _order_statistics(row: StepRow, columns: dict[str, Array], order: dict[Any, Any], n_tokens: int) -> None:
    row.values["ratio_min"], row.values["ratio_max"] = np.exp(order["lowest"]), np.exp(order["highest"])
    row.values |= dict(zip(QUANTILES, np.exp(np.asarray(order["quantiles"], dtype=float)), strict=True))
    tails = (
        ("khat_token", "top_token", n_tokens),
        ("khat_token_new", "top_token_new", int(columns["n_new"].sum())),
        ("khat_seq", "top_sequence", int(columns["n_weights"].sum())),
    )
    for key, name, n in tails:
        top = order[name]
        khat, reason = pareto_khat(np.asarray([] if top is None else top, dtype=float), n)
        if khat is None:
            row.notes[key] = f"not estimable: {reason}"
        else:
            row.values[key] = khat
    log_sum_squares = 2 * np.nanmax(columns["peak"]) + np.log(np.nansum(columns["scaled_squared"]))
    share = top_share(np.asarray(order["top_token"], dtype=float), n_tokens, log_sum_squares)
    if share is None:
        row.notes["top1pct_share"] = "every ratio is 0"
    else:
        row.values["top1pct_share"] = share


def _judge(row: StepRow) -> None:
    """Mark what cannot be trusted, and withhold intervals that would only look narrow."""
    for key, metric in CATALOGUE.items():
        value = row.values.get(key)
        if value is not None and not np.isfinite(value):
            row.notes[key] = (
                "infinite: a ratio of 0 or beyond the floating-point range" if np.isinf(value) else "undefined"
            )
            row.intervals.pop(key, None)
            continue
        if value is None or metric.moment is Moment.BOUNDED:
            continue
        n = int(row.values["n_sequences"] if "khat_seq" in metric.khat else row.values["n_tokens"])
        limit = khat_limit(metric.moment, n)
        for tail in metric.khat:
            khat = row.values.get(tail)
            if khat is not None and limit is not None and khat >= limit:
                row.notes[key] = f"unreliable: {tail} is {khat:.2f}, from {limit:.2f} on its moment cannot be estimated"
                row.intervals.pop(key, None)
    n_rows = row.values["n_tokens"] + row.values["n_invalid"]
    if row.values["n_invalid"] > FLAGGED_INVALID_SHARE * n_rows:
        row.notes["n_invalid"] = f"{row.values['n_invalid']:.0f} of {n_rows:.0f} rows cannot be used"
