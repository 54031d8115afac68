"""From group sums and order statistics to metrics, all steps at once: value, interval, and why one is doubtful."""

from dataclasses import dataclass
from math import log

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.summary.intervals import (
    ONE_SIDED,
    TWO_SIDED,
    cluster_intervals,
    cluster_variances,
    effective_groups,
    fraction_intervals,
    log_intervals,
    share_intervals,
    sums,
)
from ratioscope.analysis.summary.order_statistics import QUANTILES
from ratioscope.analysis.summary.partials import Partials
from ratioscope.analysis.summary.sums import NEGATIVE_LOGS
from ratioscope.catalogue import CATALOGUE
from ratioscope.metric import HARMLESS_ERROR, HARMLESS_RATIO, INFINITE, Mean, Metric, Moment, doubt, not_logged
from ratioscope.notes import Kind, Note, from_cells, note_columns, remark
from ratioscope.tails import Array

INVALID_CAUSES = ("nan", "infinite", "positive", "advantage")
COUNTS = (
    *("n_tokens", "n_sequences", "n_groups", "n_invalid"),
    "n_ratios",  # usable tokens that have a ratio
    "n_recomputed",  # of these, ratios to the engine that trains, because the sampler's own value is not logged
    *(f"n_invalid_{cause}" for cause in INVALID_CAUSES),
    "n_undefined",  # sequences without a W, because a token of theirs is unusable
)
FLAGGED_INVALID_SHARE = 1e-3

EVERY_RESPONSE = remark("group_id is not logged: every response counts as a group of its own")

# How far a sampled mean lies from the exact one, in standard errors: the sum of their differences.
_DIFFERENCES = {"s_k_exact_z": "sampled_minus_exact", "u_k_exact_z": "sampled_minus_exact_new"}


@dataclass(frozen=True)
class StepTable:
    """One row a step, one column a metric; NaN in `values` is undefined, in `low` and `high` no interval."""

    values: pd.DataFrame
    low: pd.DataFrame
    high: pd.DataFrame
    notes: pd.DataFrame
    """step, key, note_kind, note: why a number is missing or cannot be trusted."""


def step_table(partials: Partials) -> StepTable:
    """Every metric that the tokens and sequences of some steps give."""
    steps = _Steps(partials)
    with np.errstate(all="ignore"):  # what is not finite is handled, and noted
        steps.count()
        steps.means()
        steps.perplexities()
        steps.distances_from_exact()
        steps.groups_without_signal()
        steps.token_weights()
        steps.sequence_weights()
        steps.order_statistics(partials.order)
        steps.derived()
        steps.judge()
    return steps.table()


def one_sided(metric: Metric, low: Array, high: Array, where: NDArray[np.bool_] | bool = True) -> tuple[Array, Array]:
    """The interval, opened where what was not seen could move the number: to what is possible on its worse side."""
    lowest, highest = metric.possible
    opened = where & np.isfinite(low)
    if metric.better == "higher":
        return np.where(opened, lowest, low), high
    return low, np.where(opened, highest, high)


class _Steps:
    """The metrics of all steps in the making: arrays over steps from arrays over their groups."""

    def __init__(self, partials: Partials) -> None:
        groups = partials.groups
        self.steps, self.starts = np.unique(groups["step"].to_numpy(dtype=np.int64), return_index=True)
        self.columns = {name: groups[name].to_numpy(dtype=float, na_value=np.nan) for name in groups.columns}
        for name in self.columns:
            if name.startswith("n_"):  # an absent count is 0; an absent sum stays NaN
                self.columns[name] = np.nan_to_num(self.columns[name])
        self.values: dict[str, Array] = {}
        self.intervals: dict[str, tuple[Array, Array]] = {}
        self.notes: dict[str, NDArray[np.object_]] = {}
        """By metric: the note of each step, or None."""

    def column(self, name: str) -> Array:
        """One value a group; a count or sum that was not taken is 0 or NaN."""
        absent = 0.0 if name.startswith("n_") else np.nan
        return self.columns.get(name, np.full(len(self.columns["step"]), absent))

    def total(self, name: str, used: NDArray[np.bool_] | None = None) -> Array:
        """One value a step: the sum over its groups, or over those that are used."""
        column = self.column(name)
        return sums(column if used is None else np.where(used, column, 0.0), self.starts)

    def largest(self, values: Array) -> Array:
        return np.fmax.reduceat(values, self.starts) if len(self.starts) else np.zeros(0)

    def note(self, key: str, where: NDArray[np.bool_], note: Note | NDArray[np.object_]) -> None:
        """Say of a metric, in some steps, what is the matter with it."""
        notes = self.notes.setdefault(key, np.full(len(self.steps), None, dtype=object))
        notes[where] = note if isinstance(note, Note) else note[where]

    def note_missing(self, metric: Metric, missing: NDArray[np.bool_]) -> None:
        """Say why: there is nothing of what it is taken over, or else a reason of its own, unless one is said."""
        self.note(metric.key, missing & (self.notes[metric.key] == None), metric.undefined)  # noqa: E711 elementwise
        for part in metric.over.chain:
            self.note(metric.key, missing & (self.total(part.count) == 0), part.missing)

    def count(self) -> None:
        n_tokens, n_undefined = self.total("n_tokens"), self.total("n_undefined")
        listed, grouped = self.total("n_sequences"), self.total("n_grouped") + self.total("n_listed_in_group")
        self.grouped = grouped > 0
        self.values = {
            "n_tokens": n_tokens,
            "n_sequences": np.where(listed > 0, listed, self.with_tokens()),
            "n_groups": np.where(self.grouped, sums(np.ones(len(self.columns["step"])), self.starts), np.nan),
            "n_invalid": self.total("n_invalid"),
            **{name: self.total(name) for name in ("n_ratios", "n_recomputed")},
            **{f"n_invalid_{cause}": self.total(f"n_invalid_{cause}") for cause in INVALID_CAUSES},
            "n_undefined": n_undefined,
        }
        self.note("n_groups", ~self.grouped, not_logged("group_id"))

    def with_tokens(self) -> Array:
        """Responses with a token, one value a step."""
        return self.total("n_weights") + self.total("n_without_weight") + self.total("n_undefined")

    def means(self) -> None:
        for metric in CATALOGUE.values():
            if metric.mean is not None:
                self._mean(metric, metric.mean)

    def _mean(self, metric: Metric, mean: Mean) -> None:
        weight = self.column(metric.over.count)
        terms = np.where(weight > 0, self.column(metric.numerator) * mean.factor, 0.0)
        self.values[metric.key] = sums(terms, self.starts) / sums(weight, self.starts) + mean.offset
        if metric.share:
            self.intervals[metric.key] = fraction_intervals(terms, weight, self.starts)
            return
        lowest, highest = (end - mean.offset for end in metric.possible)
        ends = cluster_intervals(terms, weight, self.starts, lowest, highest)
        if mean.graded:
            share = self.total(mean.graded) == 0
            of_share = fraction_intervals(terms, weight, self.starts)
            ends = np.where(share, of_share[0], ends[0]), np.where(share, of_share[1], ends[1])
        self.intervals[metric.key] = (ends[0] + mean.offset, ends[1] + mean.offset)

    def perplexities(self) -> None:
        for key in NEGATIVE_LOGS:
            weight = self.column(CATALOGUE[key].over.count)
            terms = np.where(weight > 0, self.column(key), 0.0)
            low, high = cluster_intervals(terms, weight, self.starts, lowest=0.0)
            self.values[key] = np.exp(sums(terms, self.starts) / sums(weight, self.starts))
            self.intervals[key] = np.exp(low), np.exp(high)

    def distances_from_exact(self) -> None:
        for key, difference in _DIFFERENCES.items():
            weight = self.column(CATALOGUE[key].over.count)
            terms = np.where(weight > 0, self.column(difference), 0.0)
            error = np.sqrt(cluster_variances(terms, weight, self.starts))
            self.values[key] = np.where(error > 0, sums(terms, self.starts) / sums(weight, self.starts) / error, np.nan)

    def groups_without_signal(self) -> None:
        weight = ((self.column("n_advantage") > 0) & (self.column("n_grouped") > 0)).astype(float)
        without = weight * (self.column("n_signal") == 0)
        key = "zero_advantage_group_fraction"
        self.values[key] = sums(without, self.starts) / sums(weight, self.starts)
        self.intervals[key] = fraction_intervals(without, weight, self.starts)
        self.note(key, (self.values["n_tokens"] > 0) & (self.total("n_grouped") == 0), not_logged("group_id"))

    def token_weights(self) -> None:
        used = self._used()
        rho, squared, n = (np.where(used, self.column(name), 0.0) for name in ("scaled", "scaled_squared", "n_ratios"))
        self._effective_sample_size("ess_token", rho, squared, n)
        of_tokens, of_responses = (
            effective_groups(self.column(name), self.starts) for name in ("n_tokens", "n_sequences")
        )
        rows = self.values["n_tokens"] + self.values["n_invalid"]
        self.values["effective_groups"] = np.where(rows > 0, of_tokens, of_responses)
        self.note("effective_groups", ~self.grouped, EVERY_RESPONSE)

    def _effective_sample_size(self, key: str, weight: Array, squared: Array, n: Array) -> None:
        totals = (sums(terms, self.starts) for terms in (weight, squared, n))
        total_weight, total_squared, count = totals
        self.values[key] = np.where(total_squared > 0, total_weight**2 / (count * total_squared), np.nan)
        level = ONE_SIDED if CATALOGUE[key].one_sided else TWO_SIDED
        self.intervals[key] = share_intervals([(weight, 2), (squared, -1), (n, -1)], self.starts, level)

    def sequence_weights(self) -> None:
        """chi-square and effective sample size of the sequence ratios, in log space until the very last step."""
        used = self.column("n_weights") > 0
        n = np.where(used, self.column("n_weights"), 0.0)
        groups_of = np.diff(self.starts, append=len(n))
        scaled, scale = {}, {}
        for name, factor in (("lse_w", 1), ("lse_w_squared", 2), ("lse_chi2", 1)):
            logs = np.where(used, self.column(name), -np.inf)
            top = self.largest(np.where(used, self.column("lse_w" if factor == 2 else name), -np.inf)) * factor
            scale[name] = np.where(np.isfinite(top), top, 0.0)
            scaled[name] = np.exp(logs - np.repeat(scale[name], groups_of))
        count = sums(n, self.starts)
        log_chi2 = np.log(sums(scaled["lse_chi2"], self.starts)) + scale["lse_chi2"] - np.log(count)
        self.values |= {"chi2_seq": np.exp(log_chi2), "log1p_chi2_seq": np.logaddexp(0.0, log_chi2)}
        low, high = (
            # Where every ratio is 1 it is 0 like its value, not a logarithm without an interval.
            np.where(np.isneginf(log_chi2), 0.0, np.logaddexp(0.0, end + scale["lse_chi2"]))
            for end in log_intervals([(scaled["lse_chi2"], 1), (n, -1)], self.starts, ONE_SIDED)
        )
        self.intervals |= {"log1p_chi2_seq": (low, high), "chi2_seq": (np.expm1(low), np.expm1(high))}
        squares = scaled["lse_w_squared"]
        self.values["chi2_seq_raw"] = np.expm1(
            np.log(sums(squares, self.starts)) + scale["lse_w_squared"] - np.log(count)
        )
        ends = log_intervals([(squares, 1), (n, -1)], self.starts, ONE_SIDED)
        low, high = (np.expm1(end + scale["lse_w_squared"]) for end in ends)
        self.intervals["chi2_seq_raw"] = low, high
        self.squares = scaled["lse_chi2"], scale["lse_chi2"], n
        self._effective_sample_size("ess_seq", scaled["lse_w"], scaled["lse_w_squared"], n)
        for key in ("chi2_seq", "chi2_seq_raw", "log1p_chi2_seq", "ess_seq"):
            self.values[key] = np.where(count == 0, np.nan, self.values[key])

    def order_statistics(self, order: pd.DataFrame) -> None:
        there = order.set_index("step").reindex(self.steps)
        self.highest = {name: there[name].to_numpy(dtype=float) for name in ("highest", "highest_w")}
        numbers = {name: there[name].to_numpy(dtype=float) for name in ("lowest", "highest", "top_squares", *QUANTILES)}
        self.values |= {"ratio_min": np.exp(numbers["lowest"]), "ratio_max": np.exp(numbers["highest"])}
        self.values |= {key: np.exp(numbers[key]) for key in QUANTILES}
        log_sum_squares = 2 * self.largest(self.column("peak")) + np.log(self.total("scaled_squared", self._used()))
        self.values["top1pct_share"] = np.exp(numbers["top_squares"] - log_sum_squares)
        for key in ("khat_token", "khat_token_new", "khat_seq"):
            self.values[key] = there[key].to_numpy(dtype=float)
            texts = (there[f"{key}_{column}"].fillna("") for column in ("note_kind", "note"))
            notes = [from_cells(kind, text) for kind, text in zip(*texts, strict=True)]
            self.note(key, np.isnan(self.values[key]), np.asarray(notes, dtype=object))

    def _used(self) -> NDArray[np.bool_]:
        """Which groups have a ratio."""
        return self.column("n_ratios") > 0

    def derived(self) -> None:
        """What follows from other numbers of the step, or is a maximum."""
        self.values["delta_max"] = self.largest(self.column("exact_largest"))
        used = self._used()
        rho, n = (np.where(used, self.column(name), 0.0) for name in ("rho", "n_ratios"))
        error = np.sqrt(cluster_variances(rho, n, self.starts))
        z = np.where((error > 0) & np.isfinite(error), (self.values["ratio_mean"] - 1) / error, np.nan)
        self.values["ratio_mean_z"] = z
        length = self.total("n_tokens") / np.maximum(self.with_tokens(), 1)
        highest = self.highest["highest"]
        scale = 2 * np.maximum(highest, 0.0)  # squares of squares may be beyond the floating-point range
        scaled = self.column("deviation_squared") * np.exp(-np.repeat(scale, np.diff(self.starts, append=len(n))))
        squares = np.where(self.column("peak") > 0, self.column("scaled_squared"), scaled)
        self.values["reliance_token"] = self._reliance(highest, np.where(used, squares, 0.0), scale, n)
        self.values["reliance_seq"] = self._reliance(self.highest["highest_w"], *self.squares)
        self.values["group_spread_kl"] = self._spread(np.where(used, self.column("kl_k2"), 0.0), n)
        self.values["group_spread_chi2"] = self._spread(np.where(used, squares, 0.0), n)
        # Beyond the floating-point range of chi-square its logarithm is still a number.
        log_chi2 = np.log(sums(np.where(used, squares, 0.0), self.starts)) + scale - np.log(sums(n, self.starts))
        chi2 = self.values["chi2_token"]
        self.values["log1p_chi2_seq_predicted"] = length * np.where(np.isinf(chi2), log_chi2, np.log1p(chi2))

    def _reliance(self, highest: Array, squares: Array, scale: Array, n: Array) -> Array:
        """What the largest square adds to the mean of squares, in standard errors of that mean; see `doubt`.

        Args:
            highest: log of the largest ratio of each step.
            squares: sums of (ratio - 1)^2 of each group, relative to e^scale of its step.
        """
        log_square = 2 * np.where(highest > 30, highest, np.log(np.abs(np.expm1(highest))))
        error = np.sqrt(cluster_variances(squares, n, self.starts))
        largest = np.exp(log_square - scale) / sums(n, self.starts)
        harmful = np.where(error > 0, largest / error, np.nan)
        return np.where(sums(n, self.starts) > 0, np.where(highest > log(HARMLESS_RATIO), harmful, 0.0), np.nan)

    def _spread(self, terms: Array, n: Array) -> Array:
        """How far groups differ in a mean, as a share of it; see `analysis.summary.over_run`.

        Args:
            terms, n: sums and numbers of tokens of each group.
        """
        error = np.sqrt(cluster_variances(terms, n, self.starts)) * sums(n, self.starts) / sums(terms, self.starts)
        spread = np.where(error > HARMLESS_ERROR, error * np.sqrt(effective_groups(n, self.starts) - 1), 0.0)
        return np.where(np.isfinite(error), spread, np.nan)

    def judge(self) -> None:
        """Mark what cannot be trusted, and open intervals on the side to which what was not seen would move it."""
        for key, metric in CATALOGUE.items():
            value = self.values.get(key)
            if value is None:
                continue
            self.note(key, np.isinf(value), INFINITE)
            self.note_missing(metric, np.isnan(value))
            self._withhold(key, ~np.isfinite(value))
            if metric.moment is Moment.SECOND:
                self._doubt(metric, np.isfinite(value))
        rows = self.values["n_tokens"] + self.values["n_invalid"]
        flagged = self.values["n_invalid"] > FLAGGED_INVALID_SHARE * rows
        pairs = zip(self.values["n_invalid"], rows, strict=True)
        remarks = [Note(Kind.REMARK, f"{invalid:.0f} of {n:.0f} rows cannot be used") for invalid, n in pairs]
        self.note("n_invalid", flagged, np.asarray(remarks, dtype=object))

    def _doubt(self, metric: Metric, finite: NDArray[np.bool_]) -> None:
        reliance = self.values[metric.reliance]
        doubts = np.asarray([doubt(float(value), metric.unit_of_ratio) for value in reliance], dtype=object)
        doubtful = finite & (doubts != None)  # noqa: E711 elementwise
        self.note(metric.key, doubtful, doubts)
        if metric.key in self.intervals:
            opened = doubtful | metric.one_sided
            self.intervals[metric.key] = one_sided(metric, *self.intervals[metric.key], opened)

    def _withhold(self, key: str, where: NDArray[np.bool_]) -> None:
        if key in self.intervals:
            low, high = self.intervals[key]
            self.intervals[key] = (np.where(where, np.nan, low), np.where(where, np.nan, high))

    def table(self) -> StepTable:
        index = pd.Index(self.steps, name="step", dtype="int64")
        keys = [*COUNTS, *CATALOGUE]
        low = {key: ends[0] for key, ends in self.intervals.items()}
        high = {key: ends[1] for key, ends in self.intervals.items()}
        values, low_frame, high_frame = (
            pd.DataFrame(columns, index=index).reindex(columns=keys).astype(float)
            for columns in (self.values, low, high)
        )
        noted = {key: np.flatnonzero(notes != None) for key, notes in self.notes.items()}  # noqa: E711 elementwise
        notes = pd.DataFrame(
            {
                "step": np.concatenate([self.steps[places] for places in noted.values()]),
                "key": np.repeat(list(noted), [len(places) for places in noted.values()]),
                **note_columns(note for key, places in noted.items() for note in self.notes[key][places]),
            }
        )
        return StepTable(values, low_frame, high_frame, notes)
