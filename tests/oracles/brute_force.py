"""Every number of the step summary by the shortest route from its definition: numpy loops over the Parquet files.

Knows the run format and the definitions, nothing of `analysis`. Sums are `math.fsum`; sequence ratios and effective
sample sizes go through mpmath, so that nothing overflows or cancels.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from math import exp, expm1, fsum, inf, isfinite, isinf, isnan, log1p, sqrt
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import stats

Row = dict[str, Any]
Term = Callable[[Row], float]


@cache
def rows_of(folder: Path, table: str) -> list[Row]:
    """All rows of a table of a run."""
    parts = [pq.read_table(path) for path in sorted((folder / table).glob("*.parquet"))]
    return pa.concat_tables(parts, promote_options="default").to_pylist()


def is_valid(row: Row) -> bool:
    """Section 10: c or n = -inf is a ratio of 0; everything else that is not a log-probability is out."""
    b, c, n = row["logp_behavior"], row["logp_current"], row.get("logp_new")
    logged = [b, c] if n is None else [b, c, n]
    return (
        not any(map(isnan, logged))
        and isfinite(b)
        and not any(value > 1e-4 for value in logged)
        and isfinite(row["advantage"])
    )


@cache
def step_numbers(folder: Path, step: int) -> dict[str, float | None]:
    """All metrics of one step; None where there is nothing to average."""
    all_rows = [row for row in rows_of(folder, "tokens") if row["step"] == step]
    sequences = [row for row in rows_of(folder, "sequences") if row["step"] == step]
    rows = [row for row in all_rows if is_valid(row)]
    numbers = {key: _mean([term(row) for row in chosen]) for key, (chosen, term) in _token_means(rows).items()}
    numbers |= _weights("token", [_log_rho(row) for row in rows])
    numbers |= _weights("seq", [log_w for _, log_w in _log_sequence_weights(all_rows)])
    numbers |= _order(rows)
    signals = defaultdict(bool)
    for row in rows:
        signals[row["group_id"]] |= row["advantage"] != 0
    numbers["zero_advantage_group_fraction"] = _mean([float(not signal) for signal in signals.values()])
    numbers["delta_max"] = max(
        (row["tv_current_behavior"] for row in rows if row.get("tv_current_behavior")), default=None
    )
    numbers["ratio_mean_z"] = numbers["log1p_chi2_seq_predicted"] = None
    if rows:
        theta, variance = _ratio_and_variance(*_sums(rows, lambda row: exp(_log_rho(row))))
        numbers["ratio_mean_z"] = (theta - 1) / sqrt(variance)
        length = len(rows) / len({row["seq_id"] for row in all_rows})
        chi2 = mp.fsum(mp.expm1(mp.mpf(_log_rho(row))) ** 2 for row in rows) / len(rows)
        numbers["log1p_chi2_seq_predicted"] = length * float(mp.log1p(chi2))
    for key, name in (("ppl_behavior", "logp_behavior"), ("ppl_current", "logp_current")):
        mean = _mean([-row[name] for row in rows if row.get(name) is not None])
        numbers[key] = None if mean is None else float(mp.exp(mean))
    for key, sampled, exact in (("s_k_exact_z", "s_k_bounded", "s_k_exact"), ("u_k_exact_z", "u_k", "u_k_exact")):
        numbers[key] = _standard_errors_apart(*(_token_means(rows)[name] for name in (sampled, exact)))
    numbers["effective_groups"] = numbers["reliance_token"] = numbers["reliance_seq"] = None
    numbers["group_spread_kl"] = numbers["group_spread_chi2"] = None
    if rows:
        numbers["group_spread_kl"] = _spread(*_sums(rows, lambda row: _log_rho(row) ** 2))
        numbers["group_spread_chi2"] = _spread(*_sums(rows, lambda row: float(mp.expm1(_log_rho(row)) ** 2)))
        sizes = [float(n) for n in Counter(row["group_id"] for row in rows).values()]
        numbers["effective_groups"] = fsum(sizes) ** 2 / fsum(n * n for n in sizes)
        numbers["reliance_token"] = _reliance([(row["group_id"], _log_rho(row)) for row in rows])
    numbers["reliance_seq"] = _reliance(_log_sequence_weights(all_rows))
    numbers["reward"] = _mean([row["reward"] for row in sequences if isfinite(row["reward"])])
    numbers["response_length"] = _mean([row["n_tokens"] for row in sequences])
    return numbers


def mean_interval(folder: Path, step: int, key: str, lowest: float = -inf, highest: float = inf) -> tuple[float, float]:
    """theta +- t sqrt(V) with the jackknife's V; with a lowest value, Wilson's interval of a rate above it."""
    return rate_interval(*_group_sums(folder, step, key), lowest, highest)


def rate_interval(x: list[float], n: list[float], lowest: float = 0.0, highest: float = inf) -> tuple[float, float]:
    """The same from the sums of each group."""
    theta, variance = _ratio_and_variance(x, n)
    half = stats.t.ppf(0.975, degrees_of_freedom(n)) * sqrt(variance)
    if isinf(lowest):
        return theta - half, min(theta + half, highest)
    low, high = _above(theta, half, lowest)
    return low, min(high, highest)


def _above(theta: float, half: float, lowest: float = 0.0) -> tuple[float, float]:
    """Both ends for what cannot be below the lowest value: its variance grows with the distance from there."""
    if not half:
        return theta, theta
    # (t - m)^2 m = h^2 t with m = theta - lowest  <=>  m t^2 - (2 m^2 + h^2) t + m^3 = 0
    with mp.workdps(50):  # nearly a double root
        m, wide = mp.mpf(theta) - lowest, mp.mpf(half)
        roots = mp.polyroots([m, -(2 * m * m + wide * wide), m**3], 200, extraprec=200)
        low, high = sorted(float(mp.re(root) + lowest) for root in roots)
    return low, high


def rewards_are_shares(folder: Path, step: int) -> bool:
    """Whether every finite reward of the step is 0 or 1."""
    rewards = {row["reward"] for row in rows_of(folder, "sequences") if row["step"] == step and isfinite(row["reward"])}
    return rewards <= {0, 1}


def degrees_of_freedom(n: list[float]) -> float:
    """Geometric mean of 1/sum w^2 - 1 and tr(M)^2 / tr(M^2), the quadratic form of the variance in equal means."""
    w = np.array(n) / fsum(n)
    centre = np.eye(len(w)) - np.outer(np.ones(len(w)), w)
    own = np.diag(centre @ centre.T)
    form = centre.T @ np.diag(w**2 / own) @ centre
    bell_mccaffrey = np.trace(form) ** 2 / np.trace(form @ form)
    return max(1.0, sqrt((1 / fsum(w**2) - 1) * bell_mccaffrey))


def wilson_interval(folder: Path, step: int, key: str) -> tuple[float, float]:
    """The two p0 at which |p - p0| = t sqrt(p0 (1 - p0) / n), n effective: p (1 - p) over the cluster variance."""
    x, n = _group_sums(folder, step, key)
    p, variance = _ratio_and_variance(x, n)
    if 0 < p < 1:
        effective = min(max(p * (1 - p) / variance if variance else inf, 1.0), fsum(n))
    else:
        effective = fsum(n) ** 2 / fsum(size * size for size in n)
    t = stats.t.ppf(0.975, degrees_of_freedom(n))
    # (p - p0)^2 n = t^2 p0 (1 - p0)  <=>  (n + t^2) p0^2 - (2 p n + t^2) p0 + p^2 n = 0
    roots = mp.polyroots([effective + t * t, -(2 * p * effective + t * t), p * p * effective])
    low, high = sorted(float(mp.re(root)) for root in roots)
    return max(low, 0.0), min(high, 1.0)


def product_interval(folder: Path, step: int, key: str) -> tuple[float, float]:
    """Of an effective sample size or a chi-square: a product of powers of sums, by the logarithm's linearisation.

    One-sided bounds for responses. An effective sample size is no share above 1: minus its logarithm has Wilson's form.
    """
    all_rows = [row for row in rows_of(folder, "tokens") if row["step"] == step]
    if key == "ess_token":
        weights = [(row["group_id"], _log_rho(row)) for row in all_rows if is_valid(row)]
    else:
        weights = _log_sequence_weights(all_rows)
    of_group: dict[int, list[Any]] = defaultdict(list)
    for group, log_w in weights:
        of_group[group].append(mp.exp(mp.mpf(log_w)))
    first, second, n = (
        [mp.fsum(term(w) for w in of) for of in of_group.values()]
        for term in (lambda w: w, lambda w: w * w, lambda w: mp.mpf(1))
    )
    level = 0.975 if key == "ess_token" else 0.95
    if key.startswith("ess"):
        log, half = _logarithm([(first, 2), (second, -1), (n, -1)], level)
        low, high = _above(-log, half)
        return exp(-high), exp(-low)
    if key == "chi2_seq_raw":
        log, half = _logarithm([(second, 1), (n, -1)], level)
        return expm1(log - half), expm1(log + half)
    centred = [mp.fsum((w - 1) ** 2 for w in of) for of in of_group.values()]
    log, half = _logarithm([(centred, 1), (n, -1)], level)
    ends = exp(log - half), exp(log + half)
    return ends if key == "chi2_seq" else (log1p(ends[0]), log1p(ends[1]))


def _logarithm(powers: list[tuple[list[Any], int]], level: float) -> tuple[float, float]:
    """Of a product of powers of sums over groups, and the half width; each group's influence as if it were left out."""
    totals = [mp.fsum(terms) for terms, _ in powers]
    n, total = powers[-1][0], totals[-1]
    groups = len(n)
    influence = [
        mp.fsum(power * terms[group] / of for (terms, power), of in zip(powers, totals, strict=True))
        / (1 - n[group] / total)
        for group in range(groups)
    ]
    variance = mp.fsum(each**2 for each in influence) * (groups - 1) / groups
    half = stats.t.ppf(level, degrees_of_freedom([float(size) for size in n])) * mp.sqrt(variance)
    log = mp.fsum(power * mp.log(of) for (_, power), of in zip(powers, totals, strict=True))
    return float(log), float(half)


def _group_sums(folder: Path, step: int, key: str) -> tuple[list[float], list[float]]:
    rows = [row for row in rows_of(folder, "tokens") if row["step"] == step and is_valid(row)]
    if key == "zero_advantage_group_fraction":
        signals = defaultdict(bool)
        for row in rows:
            signals[row["group_id"]] |= row["advantage"] != 0
        return [float(not signal) for signal in signals.values()], [1.0] * len(signals)
    if key in ("reward", "response_length"):
        name = {"reward": "reward", "response_length": "n_tokens"}[key]
        chosen = [row for row in rows_of(folder, "sequences") if row["step"] == step and isfinite(row[name])]
        term: Term = lambda row: row[name]  # noqa: E731
    else:
        chosen, term = _token_means(rows)[key]
    return _sums(chosen, term)


def _sums(rows: list[Row], term: Term) -> tuple[list[float], list[float]]:
    """Sum of the terms and number of rows of each prompt group."""
    x, n = defaultdict(list), defaultdict(int)
    for row in rows:
        x[row["group_id"]].append(term(row))
        n[row["group_id"]] += 1
    return [fsum(values) for values in x.values()], [float(count) for count in n.values()]


def _ratio_and_variance(x: list[float], n: list[float]) -> tuple[float, float]:
    """With the variance of the estimates without one group each, around the one of all."""
    theta, groups = fsum(x) / fsum(n), len(x)
    without = [(fsum(x) - xg) / (fsum(n) - ng) for xg, ng in zip(x, n, strict=True)]
    return theta, (groups - 1) / groups * fsum((other - theta) ** 2 for other in without)


def _standard_errors_apart(sampled: tuple[list[Row], Term], exact: tuple[list[Row], Term]) -> float | None:
    """The mean difference of two terms over the rows that have the second, over its standard error."""
    rows = exact[0]
    if not rows:
        return None
    theta, variance = _ratio_and_variance(*_sums(rows, lambda row: sampled[1](row) - exact[1](row)))
    return theta / sqrt(variance)


def _token_means(rows: list[Row]) -> dict[str, tuple[list[Row], Term]]:
    """Rows and term of each metric that is a mean over tokens (sections 2 and 5)."""
    with_new = [row for row in rows if row.get("logp_new") is not None]
    with_clip = [row for row in rows if row.get("clip_side") is not None]
    with_gate = [row for row in rows if row.get("gate") is not None]
    with_entropy = [row for row in rows if row.get("entropy") is not None and isfinite(row["entropy"])]
    with_engine = [row for row in rows if row.get("logp_behavior_train") is not None]
    with_reference = [row for row in rows if row.get("logp_reference") is not None]
    with_teacher = [row for row in rows if row.get("logp_teacher") is not None]
    with_exact = [row for row in rows if row.get("tv_current_behavior") is not None]
    with_exact_new = [row for row in rows if row.get("tv_new_current") is not None]
    positive = [row for row in with_clip if row["advantage"] > 0]
    negative = [row for row in with_clip if row["advantage"] < 0]
    return {
        "u_k": (with_new, lambda r: _ratio_distance(_log_rho_new(r), _log_rho(r)) / 2),
        "u_k_bounded": (with_new, lambda r: _loss(_log_rho(r), _log_rho_new(r))),
        "s_k": (rows, lambda r: abs(expm1(_log_rho(r))) / 2),
        "s_k_bounded": (rows, lambda r: max(-expm1(_log_rho(r)), 0.0)),
        "s_k_version": (with_engine, lambda r: _ratio_distance(_log_rho(r), _log_engine(r)) / 2),
        "s_k_engine": (with_engine, lambda r: abs(expm1(_log_engine(r))) / 2),
        "s_k_version_bounded": (with_engine, lambda r: _loss(_log_engine(r), _log_rho(r))),
        "s_k_engine_bounded": (with_engine, lambda r: max(-expm1(_log_engine(r)), 0.0)),
        "s_k_exact": (with_exact, lambda r: r["tv_current_behavior"]),
        "u_k_exact": (with_exact_new, lambda r: r["tv_new_current"]),
        "chi2_token_exact": (with_exact, lambda r: r["chi2_current_behavior"]),
        "kl_to_reference": (with_reference, _reference_term),
        "kl_to_teacher": (with_teacher, lambda r: _reference_term(r, "logp_teacher")),
        "tv_new_behavior": (with_new, lambda r: abs(expm1(_log_rho_new(r))) / 2),
        "tv_new_behavior_bounded": (with_new, lambda r: max(-expm1(_log_rho_new(r)), 0.0)),
        "ratio_mean": (rows, lambda r: exp(_log_rho(r))),
        "chi2_token": (rows, lambda r: expm1(_log_rho(r)) ** 2),
        "chi2_token_raw": (rows, lambda r: exp(2 * _log_rho(r)) - 1),
        "abs_log_ratio": (rows, lambda r: abs(_log_rho(r))),
        "kl_k1": (rows, lambda r: -_log_rho(r)),
        "kl_k2": (rows, lambda r: _log_rho(r) ** 2 / 2),
        "kl_k3": (rows, lambda r: float(_k3(_log_rho(r)))),
        "kl_reverse": (rows, lambda r: float(_reverse(_log_rho(r)))),
        "clip_fraction": (with_clip, lambda r: float(r["clipped"])),
        "clip_fraction_low": (with_clip, lambda r: float(r["clip_side"] == -1)),
        "clip_fraction_high": (with_clip, lambda r: float(r["clip_side"] == 1)),
        "clip_fraction_positive": (positive, lambda r: float(r["clipped"])),
        "clip_fraction_negative": (negative, lambda r: float(r["clipped"])),
        "gate_mean": (with_gate, lambda r: r["gate"]),
        "effective_token_fraction": (with_gate, lambda r: r["gate"] * (r["advantage"] != 0)),
        "entropy": (with_entropy, lambda r: r["entropy"]),
        "version_lag": (rows, lambda r: r["step"] - r["behavior_version"]),
    }


def _log_rho(row: Row) -> float:
    return row["logp_current"] - row["logp_behavior"]


def _log_engine(row: Row) -> float:
    return row["logp_behavior_train"] - row["logp_behavior"]


def _reference_term(row: Row, column: str = "logp_reference") -> float:
    """rho (e^x - 1 - x), x = f - c, multiplied out: at rho = 0 only e^(f - b) is left."""
    with mp.workdps(50):
        b, c, f = (mp.mpf(row[name]) for name in ("logp_behavior", "logp_current", column))
        return float(mp.exp(f - b) - (0 if mp.isinf(c) else mp.exp(c - b) * (1 + f - c)))


def _log_rho_new(row: Row) -> float:
    return row["logp_new"] - row["logp_behavior"]


def _ratio_distance(y: float, x: float) -> float:
    return abs(float(mp.exp(y) - mp.exp(x)))


def _loss(x: float, y: float) -> float:
    return max(float(mp.exp(x) - mp.exp(y)), 0.0)


def _k3(x: float) -> Any:
    return inf if isinf(x) else mp.expm1(x) - mp.mpf(x)


def _reverse(x: float) -> Any:
    return 1 if isinf(x) else mp.mpf(x) * mp.exp(x) - mp.expm1(x)


def _mean(terms: list[float]) -> float | None:
    return fsum(terms) / len(terms) if terms else None


def _log_sequence_weights(rows: Iterable[Row]) -> list[tuple[int, float]]:
    """Group and log W of every sequence whose tokens are all valid."""
    by_sequence = defaultdict(list)
    for row in rows:
        by_sequence[row["group_id"], row["seq_id"]].append(_log_rho(row) if is_valid(row) else None)
    return [(group, fsum(terms)) for (group, _), terms in by_sequence.items() if None not in terms]


def _reliance(weights: list[tuple[int, float]]) -> float | None:
    """Of (group, log-weight): the largest (w - 1)^2 over n standard errors of the mean; 0 with no weight above 1.5."""
    if not weights:
        return None
    highest = max(log_w for _, log_w in weights)
    if highest <= np.log(1.5):
        return 0.0
    squares = defaultdict(list)
    for group, log_w in weights:
        squares[group].append(float(mp.expm1(log_w) ** 2))
    if len(squares) < 2:
        return None
    _, variance = _ratio_and_variance(
        [fsum(of) for of in squares.values()], [float(len(of)) for of in squares.values()]
    )
    return float(mp.expm1(highest) ** 2) / len(weights) / sqrt(variance)


def _spread(x: list[float], n: list[float]) -> float | None:
    """Standard deviation of groups over their mean, from the standard error; 0 where that is at most a tenth of it."""
    theta, variance = _ratio_and_variance(x, n)
    if not 0 < theta < inf:
        return None
    error = sqrt(variance) / theta
    return error * sqrt(fsum(n) ** 2 / fsum(size * size for size in n) - 1) if error > 0.1 else 0.0


def _weights(name: str, logs: list[float]) -> dict[str, float | None]:
    """Effective sample size; for sequences also chi-square, with as many digits as it takes."""
    keys = ["ess_token"] if name == "token" else ["ess_seq", "chi2_seq", "log1p_chi2_seq", "chi2_seq_raw"]
    if not logs:
        return dict.fromkeys(keys)
    with mp.workdps(50):
        weights = [mp.exp(mp.mpf(value)) for value in logs]
        squares = mp.fsum(w * w for w in weights)
        ess = float(mp.fsum(weights) ** 2 / (len(weights) * squares)) if squares else None
        chi2 = mp.fsum((w - 1) ** 2 for w in weights) / len(weights)
        raw = squares / len(weights) - 1
        return dict(zip(keys, (ess, float(chi2), float(mp.log1p(chi2)), float(raw)), strict=False))


def _order(rows: list[Row]) -> dict[str, float | None]:
    """Quantiles by linear interpolation of the sorted log-ratios; weight of the top 1 %, rounded up."""
    logs = sorted(map(_log_rho, rows))
    quantiles = {"p01": 0.01, "p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
    if not logs:
        return dict.fromkeys(["ratio_min", "ratio_max", "top1pct_share", *(f"ratio_{name}" for name in quantiles)])
    numbers: dict[str, float | None] = {"ratio_min": exp(logs[0]), "ratio_max": exp(logs[-1])}
    for name, q in quantiles.items():
        low, fraction = divmod(q * (len(logs) - 1), 1)
        here = logs[int(low)]
        after = logs[min(int(low) + 1, len(logs) - 1)]
        numbers[f"ratio_{name}"] = exp(
            here if here == after or not fraction or isinf(here) else here + fraction * (after - here)
        )
    squares = [exp(2 * value) for value in logs]
    top = squares[-max(1, -(-len(squares) // 100)) :]
    numbers["top1pct_share"] = fsum(top) / fsum(squares) if fsum(squares) else None
    return numbers
