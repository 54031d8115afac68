"""The step summary: every metric of the catalogue for every step, with interval and trust.

summary = summarise(run)
summary.values["s_k"]            # indexed by step
summary.low["s_k"], summary.high["s_k"]
summary.notes[step]["chi2_seq"]  # why it is missing or cannot be trusted
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np
import pandas as pd
from scipy.special import logsumexp

from analysis.intervals import Interval, bootstrap_counts, cluster_interval, fraction_interval, percentile_interval
from analysis.partials import Partials, ScanUnit, partials_of, scan_units
from analysis.store import Run
from analysis.tails import Array, pareto_khat, top_share
from ratioscope.catalogue import CATALOGUE, Moment, khat_limit
from ratioscope.errors import RatioscopeError

QUANTILES = ("ratio_p01", "ratio_p50", "ratio_p90", "ratio_p99", "ratio_p999")
LOGGED = ("eval_accuracy", "kl_to_initial", "grad_norm")
INVALID_CAUSES = ("nan", "infinite", "positive", "advantage")
COUNTS = (
    *("n_tokens", "n_sequences", "n_groups", "n_invalid"),
    *(f"n_invalid_{cause}" for cause in INVALID_CAUSES),
    "n_undefined",  # sequences without a W, because a token of theirs is unusable
)
FLAGGED_INVALID_SHARE = 1e-3


@dataclass(frozen=True)
class StepSummary:
    """Frames with one row a step and one column a metric key; NaN is "undefined", the reason is in `notes`."""

    values: pd.DataFrame
    low: pd.DataFrame
    high: pd.DataFrame
    notes: dict[int, dict[str, str]]
    histogram: pd.DataFrame
    """step, bin, tokens: the log-ratio histogram (`bin_log_ratio`)."""
    steps: pd.DataFrame = field(default_factory=pd.DataFrame)
    """The run's own steps table, indexed by step."""

    @property
    def last_step(self) -> int:
        return int(self.values.index.max()) if len(self.values) else -1

    def trusted(self, key: str) -> pd.Series:
        """Bool by step: the value is there and its moment can be estimated."""
        noted = pd.Series([key in self.notes.get(step, {}) for step in self.values.index], index=self.values.index)
        return self.values[key].notna() & ~noted.astype(bool)

    def up_to(self, first: int | None, last: int | None) -> "StepSummary":
        """The steps first..last, both included."""
        kept = slice(first, last)
        inside = self.histogram["step"].between(
            first if first is not None else -1, last if last is not None else np.inf
        )
        return StepSummary(
            self.values.loc[kept], self.low.loc[kept], self.high.loc[kept], self.notes, self.histogram[inside],
            self.steps.loc[kept] if len(self.steps) else self.steps,
        )  # fmt: skip


def bin_log_ratio(bins: Array) -> Array:
    """The log-ratio at the centre of a histogram bin: bins are even in asinh(log rho / 0.01)."""
    return 0.01 * np.sinh(bins * 0.15)


class Summariser:
    """Keeps what it has computed, so that a live run costs only its new files."""

    def __init__(self) -> None:
        self._units: dict[str, tuple[list[_Row], pd.DataFrame]] = {}

    def summarise(self, run: Run, progress: Callable[[int, int], None] = lambda done, of: None) -> StepSummary:
        """The summary of everything the run holds.

        Raises:
            RatioscopeError: a file that was there at opening cannot be read any more.
        """
        units = scan_units(run)
        known = {}
        for number, unit in enumerate(units):
            if unit.key not in self._units:
                partials = _read(unit)
                self._units[unit.key] = (_rows(partials), partials.histogram)
            known[unit.key] = self._units[unit.key]
            progress(number + 1, len(units))
        self._units = known
        rows = [row for rows, _ in known.values() for row in rows]
        histograms = [histogram for _, histogram in known.values()]
        return _assemble(run, rows, histograms)


def summarise(run: Run) -> StepSummary:
    """The step summary of a run; see `Summariser` for live ones."""
    return Summariser().summarise(run)


def _read(unit: ScanUnit) -> Partials:
    try:
        return partials_of(unit)
    except (duckdb.Error, OSError) as error:
        reason = str(error).splitlines()[0]
        raise RatioscopeError(
            f"{unit.tokens[0].path}: vanished or changed while it was read ({reason}); try again."
        ) from None


@dataclass
class _Row:
    """One step while it is computed."""

    step: int
    values: dict[str, float] = field(default_factory=dict)
    intervals: dict[str, Interval] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


# Metrics that are a ratio of group sums: numerator column, factor, denominator column.
_MEANS: dict[str, tuple[str, float, str]] = {
    "u_k": ("drift", 0.5, "n_new"),
    "s_k": ("deviation", 0.5, "n_tokens"),
    "s_k_bounded": ("shortfall", 1.0, "n_tokens"),
    "tv_new_behavior": ("deviation_new", 0.5, "n_new"),
    "tv_new_behavior_bounded": ("shortfall_new", 1.0, "n_new"),
    "ratio_mean": ("rho", 1.0, "n_tokens"),
    "chi2_token": ("deviation_squared", 1.0, "n_tokens"),
    "kl_k1": ("k1", 1.0, "n_tokens"),
    "kl_k2": ("k2", 1.0, "n_tokens"),
    "kl_k3": ("k3", 1.0, "n_tokens"),
    "kl_reverse": ("reverse", 1.0, "n_tokens"),
    "gate_mean": ("gate", 1.0, "n_gate"),
    "effective_token_fraction": ("effective", 1.0, "n_gate"),
    "entropy": ("entropy", 1.0, "n_entropy"),
    "version_lag": ("version_lag", 1.0, "n_tokens"),
    "reward": ("reward", 1.0, "n_reward"),
    "response_length": ("response_length", 1.0, "n_sequences"),
}
_FRACTIONS: dict[str, tuple[str, str]] = {
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
    "n_positive": "no token with positive advantage",
    "n_negative": "no token with negative advantage",
    "n_reward": "no finite reward",
    "n_sequences": "the sequences table has no rows for this step",
}


def _rows(partials: Partials) -> list[_Row]:
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


def _row(step: int, columns: dict[str, Array], order: dict[Any, Any] | None) -> _Row:
    row = _Row(step)
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


def _means(row: _Row, columns: dict[str, Array]) -> None:
    for key, (numerator, factor, denominator) in _MEANS.items():
        weight = columns.get(denominator, np.zeros(1))
        if not weight.sum():
            row.notes[key] = _why_missing(denominator, columns)
            continue
        terms = np.where(weight > 0, columns[numerator] * factor, 0.0)
        row.values[key] = terms.sum() / weight.sum()
        row.intervals[key] = cluster_interval(terms, weight)
    for key, (numerator, denominator) in _FRACTIONS.items():
        if not columns[denominator].sum():
            row.notes[key] = _why_missing(denominator, columns)
            continue
        row.values[key] = columns[numerator].sum() / columns[denominator].sum()
        row.intervals[key] = fraction_interval(columns[numerator], columns[denominator])
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


def _why_missing(denominator: str, columns: dict[str, Array]) -> str:
    if denominator not in ("n_reward", "n_sequences") and not columns["n_tokens"].sum():
        return _NO_TOKEN
    if denominator in ("n_positive", "n_negative") and not columns["n_clip"].sum():
        return _NOT_LOGGED["n_clip"]
    return _NOT_LOGGED[denominator]


def _sequence_weights(row: _Row, columns: dict[str, Array]) -> None:
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


def _order_statistics(row: _Row, columns: dict[str, Array], order: dict[Any, Any], n_tokens: int) -> None:
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


def _judge(row: _Row) -> None:
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


def _empty_row(step: int) -> _Row:
    """A step that the run lists and that no token can be read of: nulls, not zeros and not a missing line."""
    reasons = {key: "no token of this step is on disk" for key in CATALOGUE if key not in LOGGED}
    return _Row(step, values=dict.fromkeys(COUNTS, 0), notes=reasons)


def _assemble(run: Run, rows: list[_Row], histograms: list[pd.DataFrame]) -> StepSummary:
    steps = run.read("steps").set_index("step").sort_index()
    steps = steps[~steps.index.duplicated(keep="last")]
    empty = steps.index.difference([row.step for row in rows])
    rows = sorted([*rows, *(_empty_row(int(step)) for step in empty)], key=lambda row: row.step)
    index = pd.Index([row.step for row in rows], name="step", dtype="int64")
    keys = [*COUNTS, *CATALOGUE]
    values = pd.DataFrame([row.values for row in rows], index=index).reindex(columns=keys).astype(float)
    low, high = (
        pd.DataFrame([{k: interval[end] for k, interval in row.intervals.items()} for row in rows], index=index)
        .reindex(columns=keys)
        .astype(float)
        for end in (0, 1)
    )
    notes = {row.step: row.notes for row in rows}
    for key in LOGGED:
        values[key] = steps[key].reindex(index).astype(float)
    histogram = pd.concat(histograms) if histograms else pd.DataFrame({"step": [], "bin": [], "tokens": []})
    return StepSummary(values, low, high, notes, histogram.reset_index(drop=True), steps)


def to_json(run: Run, summary: StepSummary) -> dict[str, Any]:
    """The stable shape of `ratioscope summarize --json`: undefined is null, with its reason in notes."""
    steps = []
    for step, values in summary.values.iterrows():
        number = int(step)  # type: ignore[call-overload]
        low, high, notes = summary.low.loc[number], summary.high.loc[number], summary.notes.get(number, {})
        entry: dict[str, Any] = {"step": number}
        for key, value in values.items():
            finite = bool(np.isfinite(value))
            entry[str(key)] = (int(value) if key in COUNTS else float(value)) if finite else None
            if not finite and key not in notes:
                notes = notes | {str(key): "not logged for this step"}
        entry["intervals"] = {
            str(key): [float(low[key]), float(high[key])] for key in values.index if np.isfinite(low[key])
        }
        entry["notes"] = notes
        steps.append(entry)
    return {"schema_version": run.manifest.schema_version, "run": run.manifest.name, "steps": steps}
