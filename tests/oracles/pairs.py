"""Every metric of every pair by its definition, with 50 digits; how tests look at what `measure_pairs` says."""

from collections import defaultdict
from math import inf, isfinite, isnan
from pathlib import Path
from typing import Any

import mpmath as mp
import pandas as pd
import pytest

from ratioscope.analysis.drift.pairs import PAIRS, UNITS, measure_pairs
from ratioscope.analysis.runs.store import open_run
from tests.oracles.brute_force import Row, is_valid, rate_interval

VIEWS = list(UNITS)
each_view = pytest.mark.parametrize("view", VIEWS, ids=["-".join(view) for view in VIEWS])
each_pair = pytest.mark.parametrize("pair", PAIRS)


def by_step(folder: Path, view: tuple[str, str]) -> pd.DataFrame:
    """What `measure_pairs` says, indexed by step, pair and metric."""
    frame = measure_pairs(open_run(folder), level=view[0], aggregation=view[1], by_step=True)  # type: ignore[arg-type]
    return frame.set_index(["step", "pair", "metric"])


def units_of(rows: list[Row], pair: str, view: tuple[str, str]) -> list[tuple[int, Any, Any, Any]]:
    """Prompt group, weight, log p/b and log q/b of every usable unit, with 50 digits."""
    columns = PAIRS[pair].numerator, PAIRS[pair].denominator
    sequences = defaultdict(list)
    for row in rows:
        usable = is_valid(row) and not any(isnan(row[name]) or row[name] > 1e-4 for name in columns)
        logs = [mp.mpf(row[name]) - mp.mpf(row["logp_behavior"]) for name in columns] if usable else None
        sequences[row["group_id"], row["seq_id"]].append(logs)
    units = []
    for (group, _), tokens in sequences.items():
        if view[0] == "token":
            kept = [token for token in tokens if token is not None]
            weight = mp.mpf(1) / len(kept) if view[1] == "sequence" and kept else mp.mpf(1)
            units += [(group, weight, x, y) for x, y in kept]
        elif None not in tokens:
            divisor = len(tokens) if view[0] == "geometric" else 1
            x, y = (mp.fsum(logs) / divisor for logs in zip(*tokens, strict=True))
            units.append((group, mp.mpf(1), x, y))
    return units


def terms(x: Any, y: Any) -> dict[str, Any]:
    """What is averaged, from p/b and q/b themselves."""
    p, q = mp.exp(x), mp.exp(y)
    unseen = 0 if p == 0 else mp.inf
    z = 0 if q == 0 else x - y
    return {
        "tv": abs(p - q) / 2,
        "tv_bounded": max(q - p, 0),
        "chi2": (p - q) ** 2 / q if q else unseen,
        "chi2_raw": p**2 / q if q else unseen,
        "kl_k1": -q * z if q else mp.mpf(0),
        "kl_k2": q * z**2 / 2 if q else mp.mpf(0),
        "kl_k3": p - q - (q * z if q else 0),
        "kl_reverse": (p * (x - y) if p else 0) - p + q,
        "ratio_mean": p,
        "q": q,
    }


def brute_force(units: list[tuple[int, Any, Any, Any]]) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """Values, and intervals of means (section 8)."""
    n, groups = mp.fsum(weight for _, weight, _, _ in units), defaultdict(lambda: defaultdict(list))
    for group, weight, x, y in units:
        for name, term in (terms(x, y) | {"n": mp.mpf(1)}).items():
            groups[name][group].append(weight * term)
    sums = {name: {group: mp.fsum(values) for group, values in of.items()} for name, of in groups.items()}
    totals = {name: mp.fsum(of.values()) for name, of in sums.items()}
    values = {name: total / n for name, total in totals.items() if name not in ("q", "n")}
    values["log1p_chi2"] = mp.log1p(values["chi2"])
    values["ess"] = totals["ratio_mean"] ** 2 / (totals["q"] * totals["chi2_raw"])
    values["chi2_raw"] -= 1
    intervals, sizes = {}, [float(size) for size in sums["n"].values()]
    for name in values.keys() & sums.keys():
        x = [float(sums[name][group]) for group in sums["n"]]
        if len(sizes) > 1 and isfinite(sum(x)):
            low, high = rate_interval(x, sizes, -inf if name == "kl_k1" else 0.0)
            intervals[name] = (low - 1, high - 1) if name == "chi2_raw" else (low, high)
    return {name: float(value) for name, value in values.items()}, intervals
