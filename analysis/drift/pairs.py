"""Which policy is measured against which: the distances of every logged pair (`docs/metrics.md`, divergences).

frame = measure(open_run("runs/x"), first=10, last=20)                    # one row a pair and metric
frame = measure(run, level="sequence", by_step=True)                      # one row a step, pair and metric

A pair p/q is measured on what the behavior policy b sampled, so every expectation under q carries the weight q/b
(section 1): with x = log p/b, y = log q/b, z = log p/q,

    tv            1/2 mean |e^x - e^y|                tv_bounded   mean (e^y - e^x)^+
    chi2          mean e^y (e^z - 1)^2                chi2_raw     mean e^y e^2z - 1         log1p_chi2   log(1 + chi2)
    kl_k1, _k2    mean -e^y z, mean e^y z^2 / 2       kl_k3        mean e^y (e^z - 1 - z)    (all three: KL(q||p))
    kl_reverse    mean (e^x z - e^x + e^y): KL(p||q)  ratio_mean   mean e^x: the mean of p/q under q, 1 when q covers p
    ess           (sum e^x)^2 / (sum e^y sum e^(y + 2z)): 1 / (1 + self-normalised chi2)
    khat          the larger Pareto index of p/b and q/b
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import duckdb
import numpy as np
import pandas as pd

from ratioscope.analysis.runs.database import query
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.intervals import (
    NO_INTERVAL,
    ONE_SIDED,
    TWO_SIDED,
    Interval,
    cluster_interval,
    cluster_variance,
    log_intervals,
    share_intervals,
)
from ratioscope.errors import unknown
from ratioscope.metric import HARMLESS_RATIO, INFINITE, Moment, doubt, not_logged
from ratioscope.notes import Kind, Note, cells, joined
from ratioscope.tails import Array, pareto_khat, tail_size

PairLevel = Literal["token", "sequence", "geometric"]
Aggregation = Literal["token", "sequence"]


@dataclass(frozen=True)
class Pair:
    """A policy p measured against a policy q, by the columns of their log-probabilities.

    Where a sampler's own value is not logged, its recomputation stands for it (`logp_sampled`).
    """

    numerator: str
    denominator: str
    title: str
    tells: str

    @property
    def weighted(self) -> bool:
        """The denominator is not what sampled: every mean carries the weight q/b, and its tail."""
        return self.denominator != "logp_behavior"


PAIRS = {
    "current/behavior": Pair(
        "logp_current", "logp_behavior", "Current policy against behavior",
        "Staleness: how far the data are from the policy before the update, whatever the reason.",
    ),
    "new/behavior": Pair(
        "logp_new", "logp_behavior", "New policy against behavior",
        "What PPO clips: staleness and the update together.",
    ),
    "new/current": Pair(
        "logp_new", "logp_current", "New policy against current", "The update: how far this step moved the policy.",
    ),
    "current/behavior_train": Pair(
        "logp_current", "logp_behavior_train", "Current policy against the sampling version",
        "Version staleness: the policy has moved since the version that sampled, both in the training engine.",
    ),
    "behavior_train/behavior": Pair(
        "logp_behavior_train", "logp_behavior", "Sampling version, training engine against sampler",
        "Engine mismatch: one and the same version, computed by the training engine and by the sampler.",
    ),
}  # fmt: skip

# The metrics, and the moment of the ratio that each needs.
METRICS = {
    "tv": Moment.FIRST,
    "tv_bounded": Moment.BOUNDED,
    "chi2": Moment.SECOND,
    "chi2_raw": Moment.SECOND,
    "log1p_chi2": Moment.SECOND,
    "kl_k1": Moment.BOUNDED,
    "kl_k2": Moment.BOUNDED,
    "kl_k3": Moment.FIRST,
    "kl_reverse": Moment.SECOND,
    "ratio_mean": Moment.FIRST,
    "ess": Moment.SECOND,
    "khat": Moment.BOUNDED,
}

# The view of pair_units.sql for each level and aggregation.
UNITS: dict[tuple[PairLevel, Aggregation], str] = {
    ("token", "token"): "token_unit",
    ("token", "sequence"): "token_by_sequence_unit",
    ("sequence", "token"): "sequence_unit",
    ("geometric", "token"): "geometric_unit",
}
_DESCRIPTIONS = {
    "geometric_unit": "a description: a geometric mean is not an importance ratio, its mean need not be 1",
    "token_by_sequence_unit": "a description: 1/length depends on the sampled actions, the mean ratio need not be 1",
}

COLUMNS = ("pair", "metric", "value", "low", "high", "note_kind", "note", "n", "n_undefined", "n_groups")


def measure_pairs(
    run: Run,
    first: int | None = None,
    last: int | None = None,
    *,
    level: PairLevel = "token",
    aggregation: Aggregation = "token",
    by_step: bool = False,
) -> pd.DataFrame:
    """Every metric of every pair over the steps first..last, with interval and note; a pair that is not logged is NaN.

    Args:
        first, last: both included; None is the first or last step there is.
        level: whose ratio it is: of each `token`; of each `sequence`, the product over its tokens; or their `geometric`
            mean. A geometric mean is not an importance ratio: E is not 1 and nothing is unbiased; it describes.
        aggregation: `token`: every unit weighs the same. `sequence`: mean inside a sequence, then over sequences;
            a description too, for level `token` only.
        by_step: a row for each step instead of one for the whole range.

    Returns:
        (step,) pair, metric, value, low, high (95 %; the end that what was not seen could move is 0 or infinite),
        note_kind and note (why it is missing, unreliable or only describes), n (tokens or sequences that are averaged
        over), n_undefined (those that have no ratio, because a log-probability is missing or cannot be used), n_groups
        (prompt groups of n).

    Raises:
        RatioscopeError: no such level or aggregation, or a file vanished while it was read.
    """
    view = UNITS.get((level, aggregation))
    if view is None:
        raise unknown("a level/aggregation of pairs", f"{level}/{aggregation}", map("/".join, UNITS))
    frames = []
    with relations(run, first, last) as connection:
        for name, pair in PAIRS.items():
            create_units(connection, pair)
            units = f"select *, {'step' if by_step else '0'} as stratum from {view}"
            found = measure_units(connection, name, units, _DESCRIPTIONS.get(view, ""), whole=level == "sequence")
            if found.empty and not by_step:
                nothing = {"stratum": 0, "pair": name, "n": 0, "n_undefined": 0, "n_groups": 0}
                found = _frame(_rows(nothing, _missing(_NO_TOKEN)))
            frames.append(found)
    frame = pd.concat(frames, ignore_index=True)
    return frame.rename(columns={"stratum": "step"}) if by_step else frame.drop(columns="stratum")


def create_units(connection: duckdb.DuckDBPyConnection, pair: Pair) -> None:
    """Create the views of `UNITS` for a pair, on a connection that has `token` (see `relations`)."""
    denominator = pair.denominator
    if denominator == "logp_behavior" and pair.numerator != "logp_behavior_train":
        denominator = "logp_sampled"  # as every ratio: what the log has of the sampling policy
    text = query("drift/pair_units").replace("$numerator", pair.numerator).replace("$denominator", denominator)
    connection.execute(text)


def measure_units(
    connection: duckdb.DuckDBPyConnection, name: str, units: str, description: str = "", *, whole: bool = False
) -> pd.DataFrame:
    """The metrics of a pair in each stratum of its units.

    Args:
        name: of the pair whose units `create_units` made.
        units: a query on one of their views that adds the integer column `stratum`.
        description: said in the note of every metric, where it is not more than that.
        whole: units are whole responses, of whose second moments a sample can only say "at least".

    Returns:
        stratum, and the columns of `measure_pairs`; no row where there is no unit.
    """
    connection.execute(f"create or replace view unit as {units}")
    groups = connection.execute(query("drift/pair_moments")).df()
    kept = tail_size(int(groups.groupby("stratum")["n_usable"].sum().max())) + 1 if len(groups) else 1
    tops = connection.execute(
        f"select stratum, max(x, {kept}) as p, max(y, {kept}) as q from unit where usable group by stratum"
    ).df()
    top_of = {row["stratum"]: row for row in tops.to_dict("records")}
    rows: list[dict[str, Any]] = []
    for stratum, of_stratum in groups.groupby("stratum"):
        used = of_stratum[of_stratum["n_usable"] > 0]
        counts = {
            "stratum": stratum,
            "pair": name,
            "n": round(used["n"].sum()),
            "n_undefined": int(of_stratum["n_units"].sum() - used["n_usable"].sum()),
            "n_groups": len(used),
        }
        if len(used):
            lines = _lines(used, top_of[stratum], description, whole=whole)
        else:
            missing = of_stratum["missing"].dropna().unique()
            lines = _missing(
                not_logged(missing[0]) if len(missing) else Note(Kind.UNDEFINED, "no token or response is usable")
            )
        rows += _rows(counts, lines)
    return _frame(rows)


class _Line(NamedTuple):
    """One metric: its value, why it is missing or doubtful, and its interval where there is one."""

    value: float
    note: Note | None = None
    interval: Interval = NO_INTERVAL


def _missing(note: Note) -> dict[str, _Line]:
    return dict.fromkeys(METRICS, _Line(np.nan, note))


def _rows(counts: Mapping[Any, Any], lines: Mapping[str, _Line]) -> list[dict[str, Any]]:
    return [
        {**counts, "metric": metric, "value": line.value, **line.interval._asdict(), **cells(line.note)}
        for metric, line in lines.items()
    ]


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["stratum", *COLUMNS])


def _lines(groups: pd.DataFrame, top: Mapping[Any, Any], description: str, *, whole: bool) -> dict[str, _Line]:
    """All metrics of one stratum; second moments are judged by what they rest on."""
    n = int(groups["n_usable"].sum())
    khats = {name: pareto_khat(np.asarray(top[name], dtype=float), n) for name in ("p", "q")}
    heaviest = max((khat for khat, _ in khats.values() if khat is not None), default=-np.inf)
    with np.errstate(all="ignore"):  # what is not finite is noted
        sums = {name: groups[name].to_numpy(dtype=float) for name in _SUMS}
        estimates = _estimates(sums, ONE_SIDED if whole else TWO_SIDED)
        doubtful = doubt(_reliance(sums), "ratio of a response" if whole else "ratio")
    lines = {"khat": _Line(heaviest) if heaviest > -np.inf else _Line(np.nan, khats["p"][1])}
    for metric, (value, interval) in estimates.items():
        if not np.isfinite(value):
            lines[metric] = _Line(value, INFINITE if np.isinf(value) else _UNDEFINED)
        elif (doubtful or whole) and METRICS[metric] is Moment.SECOND and not np.isnan(interval.low):
            lines[metric] = _Line(value, doubtful, _opened(metric, interval))
        elif len(groups) == 1:
            lines[metric] = _Line(value, Note(Kind.REMARK, "no interval: one prompt group"))
        elif np.isnan(interval.low):
            lines[metric] = _Line(value, Note(Kind.REMARK, "no interval: not finite, or too few prompt groups"))
        elif metric == "tv_bounded" and value <= 1:
            lines[metric] = _Line(value, None, Interval(interval.low, min(interval.high, 1.0)))
        else:
            lines[metric] = _Line(value, None, interval)
    return {
        metric: line._replace(note=joined(line.note, description))
        for metric, line in ((metric, lines[metric]) for metric in METRICS)
    }


_NO_TOKEN = Note(Kind.UNDEFINED, "no token in this range of steps")
_UNDEFINED = Note(
    Kind.UNDEFINED, "undefined: every ratio is 0, or terms of both signs are beyond the floating-point range"
)
_SCALED = ("p", "q", "square", "chi2")
_MEANS = ("tv", "tv_bounded", "kl_k1", "kl_k2", "kl_k3", "kl_reverse")
_LOWEST = {"kl_k1": -np.inf}
"""Of a mean that can be negative; of all others it is 0."""
_SUMS = ("n", *_MEANS, *_SCALED, *(f"peak_{name}" for name in _SCALED))


def _reliance(sums: Mapping[str, Array]) -> float:
    """What the largest term of chi-square adds to it, in its standard errors; see `doubt`."""
    highest = float(sums["peak_square"].max()) / 2  # log of the largest p/sqrt(q b), which is the ratio where q is b
    if highest <= np.log(HARMLESS_RATIO):
        return 0.0
    peak, chi2 = _at_one_scale(sums["peak_chi2"], sums["chi2"])
    if not chi2.sum() > 0:
        return 0.0  # equal everywhere, whatever the weights
    error = np.sqrt(cluster_variance(chi2, sums["n"])) * sums["n"].sum()
    log_square = 2 * (highest if highest > 30 else np.log(np.expm1(highest)))
    # Where the denominator did not sample, a large weight is on a term that is small all the same: p is near q.
    return float(np.exp(min(log_square - peak, 0.0)) / error) if error > 0 else np.nan


def _opened(metric: str, interval: Interval) -> Interval:
    """What is left of the interval of a second moment when what was not seen could move it."""
    return Interval(0.0, interval.high) if metric == "ess" else Interval(interval.low, np.inf)


def _estimates(sums: Mapping[str, Array], level: float) -> dict[str, tuple[float, Interval]]:
    """Value and interval of every metric but khat from the sums of the groups, each (n_groups,).

    Args:
        level: the quantile of t for second moments; `ONE_SIDED` makes bounds of them.
    """
    n = sums["n"]
    numerators = {name: sums[name] for name in _MEANS}
    numerators |= {
        metric: np.exp(sums[f"peak_{name}"]) * sums[name]
        for metric, name in (("ratio_mean", "p"), ("chi2", "chi2"), ("chi2_raw", "square"))
    }
    found = {
        name: (float(sum_.sum() / n.sum()), cluster_interval(sum_, n, _LOWEST.get(name, 0.0)))
        for name, sum_ in numerators.items()
    }
    raw, (low, high) = found["chi2_raw"]
    found["chi2_raw"] = raw - 1, Interval(low - 1, high - 1)

    scaled = {name: _at_one_scale(sums[f"peak_{name}"], sums[name]) for name in _SCALED}
    (peak_p, p), (peak_q, q), (peak_square, square), (peak_chi2, chi2) = (scaled[name] for name in _SCALED)
    powers, shift = [(p, 2), (q, -1), (square, -1), (n, 0)], 2 * peak_p - peak_q - peak_square
    value = sum(exponent * np.log(terms.sum()) for terms, exponent in powers) + shift
    (low,), (high,) = share_intervals(powers, np.zeros(1, dtype=np.intp), level, shift)
    found["ess"] = float(np.exp(value)), Interval(float(low), float(high))
    value = np.log(chi2.sum() / n.sum()) + peak_chi2
    (low,), (high,) = log_intervals([(chi2, 1), (n, -1)], np.zeros(1, dtype=np.intp), level)
    log1p = [float(np.logaddexp(0.0, log)) for log in (value, low + peak_chi2, high + peak_chi2)]
    if np.isneginf(value):  # every ratio is 1: 0 like its chi-square, not a logarithm without an interval
        log1p = [0.0] * len(log1p)
    found["log1p_chi2"] = log1p[0], Interval(*log1p[1:])
    if level == ONE_SIDED:
        ends = Interval(*(float(np.expm1(end)) for end in log1p[1:]))
        found["chi2"] = found["chi2"][0], ends
    return found


def _at_one_scale(peaks: Array, sums: Array) -> tuple[float, Array]:
    """The largest peak, and every group's sum relative to e^ that peak; sums of nothing but zeros have peak 0."""
    peak = float(peaks.max())
    if np.isneginf(peak):
        return 0.0, np.zeros_like(sums)
    return peak, np.where(peaks == peak, sums, sums * np.exp(peaks - peak))
