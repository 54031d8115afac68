"""Filters: each against its formula a token at a time, and properties that every filter has."""

from collections.abc import Callable
from math import copysign, exp, inf, log

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ratioscope.rules.filters import FILTERS, Rows
from ratioscope.rules.gates import GATES, two_side
from ratioscope.rules.parameters import Judged
from ratioscope.rules.ratios import LEVELS, LogRatios
from tests.making.loops import in_one_loop
from tests.oracles.gates import far, sweep

# log rho, log rho_k, advantage, sequence, log-probability when sampled, version lag.
Row = tuple[float, float, float, int, float, int]

FILTER_PARAMETERS: dict[str, dict[str, float]] = {
    "opposite_sign": {"delta": 0.1},
    "probability_difference": {"difference_low": 0.1, "difference_high": 0.15},
    "stale": {"epsilon_stale": 0.3},
    "window": {"max_lag": 2},
    **{name: {"threshold": 0.05} for name in FILTERS if name.startswith("reject_")},
    **{name: {"threshold": 0.005} for name in FILTERS if name.endswith("_binary")},
    **{name: {"difference": 0.05} for name in FILTERS if name.endswith("_tv")},
    **{name: {"floor": 0.8, "cap": 1.1} for name in FILTERS if name.endswith("staleness_band")},
    "binary_divergence": {"threshold": 0.005},
    "second_moment": {"moment": 0.02},
    "covariance_band": {
        "epsilon_low": 0.5,
        "epsilon_high": 0.5,
        "covariance_low": 0.2,
        "covariance_high": 0.9,
        "covariance_share": 0.1,
    },
    "top_entropy": {"entropy_share": 0.2},
}
OF_ESTIMATOR: dict[str, Callable[[float], float]] = {
    "k1": lambda x: -x, "k2": lambda x: x * x / 2, "k3": lambda x: exp(x) - 1 - x,
}  # fmt: skip
OVER: dict[str, Callable[[list[float]], float]] = {
    "sum": sum, "max": max, "mean": lambda values: sum(values) / len(values),
}  # fmt: skip


def filter_side(name: str, batch: list[Row], place: int, **p: float) -> int:
    """Every filter, a token at a time."""
    x, x_k, a, sequence, b, _ = batch[place]
    mates = [row for row in batch if row[3] == sequence]
    if a == 0:
        return 0
    if name == "opposite_sign":
        return -1 if a < 0 and sum(-row[0] for row in mates) / len(mates) > p["delta"] else 0
    if name == "probability_difference":
        moved = exp(b + x) - exp(b)
        return 1 if a > 0 and moved > p["difference_high"] else -1 if a < 0 and moved < -p["difference_low"] else 0
    if name == "stale":
        return 0 if abs(exp(x_k) - 1) <= p["epsilon_stale"] else 1 if x_k > 0 else -1
    if name == "window":
        return -1 if max(row[5] for row in mates) > p["max_lag"] else 0
    if name.endswith("staleness_band"):
        mean = sum(row[1] for row in mates) / (len(mates) if name.startswith("geometric") else 1)
        rho = exp(x_k if name == "staleness_band" else mean)
        return -1 if rho < p["floor"] else 1 if rho > p["cap"] else 0
    if name == "binary_divergence":
        return int(copysign(1, a)) if x * a > 0 and of_token("binary", x, b) > p["threshold"] else 0
    if name == "second_moment":
        smaller = [row[0] ** 2 for row in batch if row[0] * row[2] > 0 and row[0] ** 2 <= x * x]
        return int(copysign(1, x)) if x * a > 0 and sum(smaller) / len(smaller) > p["moment"] else 0
    if name == "covariance_band":
        return covariance_side(batch, place, **p)
    if name == "top_entropy":  # here the entropy of a token is minus its log-probability when it was sampled
        return -1 if -b < np.quantile([-row[4] for row in batch], 1 - p["entropy_share"]) else 0
    _, over, estimator = name.split("_")
    chosen = mates if over != "token" else [batch[place]]
    divergence = OVER.get(over, sum)([of_token(estimator, row[0], row[4]) for row in chosen])
    (largest,) = p.values()
    return 0 if divergence <= largest else 1 if sum(row[0] for row in chosen) > 0 else -1


def covariance_side(batch: list[Row], place: int, **p: float) -> int:
    """Of the tokens that PPO's mask keeps and that have a covariance in the band those with the largest."""
    logp = [row[4] + row[0] for row in batch]
    mean_a, mean = sum(row[2] for row in batch) / len(batch), sum(logp) / len(batch)
    covariance = [(row[2] - mean_a) * (value - mean) for row, value in zip(batch, logp, strict=True)]

    def clipped(x: float, a: float) -> bool:
        return (a > 0 and exp(x) > 1 + p["epsilon_high"]) or (a < 0 and exp(x) < 1 - p["epsilon_low"])

    able = [
        value
        for row, value in zip(batch, covariance, strict=True)
        if row[2] and not clipped(row[0], row[2]) and p["covariance_low"] < value < p["covariance_high"]
    ]
    able = sorted(able)[-max(1, int(p["covariance_share"] * len(batch))) :]
    x, _, a, *_ = batch[place]
    return int(copysign(1, a)) if a and not clipped(x, a) and covariance[place] in able else 0


def of_token(estimator: str, x: float, b: float) -> float:
    """One token's divergence, from its log-ratio and its log-probability when it was sampled."""
    if estimator in OF_ESTIMATOR:
        return OF_ESTIMATOR[estimator](x)
    if estimator == "tv":
        return abs(exp(b + x) - exp(b))
    p, q = (min(max(exp(value), 1e-6), 1 - 1e-6) for value in (b, b + x))
    return p * log(p / q) + (1 - p) * log((1 - p) / (1 - q))


def rows_of(batch: list[Row]) -> Rows:
    x, x_k, a, sequence, b, lag = zip(*batch, strict=True)
    ratios = LogRatios(torch.tensor(x, dtype=torch.float64), torch.tensor(x_k, dtype=torch.float64))
    behavior = torch.tensor(b)
    return Rows(ratios, torch.tensor(a), torch.tensor(sequence), behavior, torch.tensor(lag), -behavior)


def random_rows(seed: int, n: int = 60, spread: float = 0.4) -> list[Row]:
    rng = np.random.default_rng(seed)
    steps = rng.normal(0, spread, (n, 2)) * rng.choice([0.1, 1.0], (n, 1))
    return [
        (float(x), float(y), float(rng.choice([-1.5, 0, 0.5])), int(rng.integers(0, 12)),
         float(-rng.exponential()), int(rng.integers(0, 4)))
        for x, y in steps
    ]  # fmt: skip


# Bounds of theirs are not wider the larger they are.
OTHERWISE = {name for name in FILTERS if name.endswith("_band")} | {"top_entropy"}
every_filter = in_one_loop("name", {name: name for name in FILTERS})
seeds = pytest.mark.parametrize("seed", range(3))


def test_every_filter_has_parameters_here_and_a_name_of_its_own() -> None:
    assert FILTERS.keys() == FILTER_PARAMETERS.keys() and not FILTERS.keys() & GATES.keys()
    assert all(stop.function.__doc__ for stop in FILTERS.values())


@every_filter
def test_the_row_of_a_filter_says_what_it_looks_at(name: str) -> None:
    rows, rng = rows_of(random_rows(5, 300)), torch.Generator().manual_seed(5)
    row, rows = FILTERS[name], rows._replace(sequence=torch.arange(300) // 3)
    order = torch.randperm(300, generator=rng)

    def side(changed: Rows) -> list[int]:
        found: list[int] = row.function(changed, **FILTER_PARAMETERS[name]).side.tolist()
        return found

    changed = {
        Judged.STALENESS: rows._replace(ratios=rows.ratios._replace(current=rows.ratios.current[order])),
        Judged.RATIO: rows._replace(ratios=rows.ratios._replace(behavior=rows.ratios.behavior[order])),
        Judged.AGE: rows._replace(version_lag=rows.version_lag[order]),
        Judged.PROBABILITY: rows._replace(logp_behavior=rows.logp_behavior[order]),
        Judged.ENTROPY: rows._replace(entropy=None if rows.entropy is None else rows.entropy[order]),
    }
    looks_at = {judged for judged, other in changed.items() if side(other) != side(rows)}
    assert row.judged in looks_at and looks_at <= {row.judged, Judged.RATIO}
    alone = rows._replace(sequence=torch.arange(300))
    assert row.sequences == (side(alone) != side(rows))


@every_filter
@seeds
def test_a_filter_is_its_formula(name: str, seed: int) -> None:
    batch = random_rows(seed)
    found = FILTERS[name].function(rows_of(batch), **FILTER_PARAMETERS[name])
    expected = [filter_side(name, batch, place, **FILTER_PARAMETERS[name]) for place in range(len(batch))]
    assert found.side.tolist() == expected and any(expected) and not all(expected)
    assert found.value.tolist() == [1.0 - abs(side) for side in expected]
    assert found.value.dtype == torch.float64 and found.side.dtype == torch.int8


@every_filter
@seeds
def test_a_filter_does_not_look_at_the_order_of_the_tokens(name: str, seed: int) -> None:
    batch = random_rows(seed)
    order = np.random.default_rng(seed).permutation(len(batch))
    before = FILTERS[name].function(rows_of(batch), **FILTER_PARAMETERS[name]).side[order].tolist()
    after = FILTERS[name].function(rows_of([batch[place] for place in order]), **FILTER_PARAMETERS[name])
    assert after.side.tolist() == before


@every_filter
@seeds
def test_a_filter_with_a_wider_bound_drops_a_subset(name: str, seed: int) -> None:
    rows = rows_of(random_rows(seed, spread=1.0))
    previous = torch.ones(60, dtype=torch.bool)
    if name in OTHERWISE:
        return
    for scale in (0.0, 0.5, 1.0, 2.0, inf):
        parameters = {key: value * scale if scale else 0.0 for key, value in FILTER_PARAMETERS[name].items()}
        dropped = FILTERS[name].function(rows, **parameters).clipped
        assert not (dropped & ~previous).any()
        previous = dropped
    assert not previous.any()


@every_filter
@seeds
def test_fresh_tokens_pass_every_filter(name: str, seed: int) -> None:
    batch = [(0.0, 0.0, a, sequence, b, 0) for _, _, a, sequence, b, _ in random_rows(seed)]
    strictest = FILTER_PARAMETERS[name] if name in OTHERWISE else dict.fromkeys(FILTER_PARAMETERS[name], 0.0)
    dropped = FILTERS[name].function(rows_of(batch), **strictest).clipped
    assert bool(dropped.any()) == (name in ("covariance_band", "top_entropy"))


@every_filter
def test_a_token_without_advantage_passes_every_filter(name: str) -> None:
    batch = [(x, y, 0.0, sequence, b, 9) for x, y, _, sequence, b, _ in random_rows(0, spread=3.0)]
    assert not FILTERS[name].function(rows_of(batch), **FILTER_PARAMETERS[name]).clipped.any()


@every_filter
@given(batch=st.lists(st.tuples(far, far, st.sampled_from([-1.0, 0.0, 1.0]), st.integers(0, 3), st.floats(-900, 0), st.integers(0, 9)), min_size=1))  # fmt: skip  # noqa: E501
@sweep
def test_no_ratio_is_too_large_for_a_filter(name: str, batch: list[Row]) -> None:
    found = FILTERS[name].function(rows_of(batch), **FILTER_PARAMETERS[name])
    assert set(found.value.tolist()) <= {0.0, 1.0} and set(found.side.tolist()) <= {-1, 0, 1}


def test_the_bounds_of_filters_are_inclusive() -> None:
    half, two = log(0.5), log(2.0)
    for name, x, advantage, parameters in (
        ("stale", two, 1.0, {"epsilon_stale": 1.0}),
        ("stale", half, 1.0, {"epsilon_stale": 0.5}),
        ("probability_difference", two, 1.0, {"difference_low": 0.0, "difference_high": 0.25}),
        ("probability_difference", half, -1.0, {"difference_low": 0.125, "difference_high": 0.0}),
        ("opposite_sign", -0.25, -1.0, {"delta": 0.25}),
        ("reject_token_k1", -0.25, 1.0, {"threshold": 0.25}),
        ("reject_sum_k2", 0.5, 1.0, {"threshold": 0.125}),
        ("window", 0.0, 1.0, {"max_lag": 3}),
    ):
        rows = rows_of([(x, x, advantage, 0, log(0.25), 3)])
        assert not FILTERS[name].function(rows, **parameters).clipped.any(), name
        tighter = {key: value - 1e-6 for key, value in parameters.items()}
        assert FILTERS[name].function(rows, **tighter).clipped.all(), name


def test_a_ratio_of_0_is_rejected_by_every_divergence() -> None:
    rows = rows_of([(-inf, -inf, 1.0, 0, -1.0, 0), (0.1, 0.1, 1.0, 0, -1.0, 0)])
    for over in ("sum", "mean", "max"):
        for estimator in OF_ESTIMATOR:
            assert FILTERS[f"reject_{over}_{estimator}"].function(rows, threshold=1e6).side.tolist() == [-1, -1]


def test_rejection_by_k1_is_a_lower_bound_on_the_ratio_of_the_level() -> None:
    """The sum of k1 is minus the log of the product, its mean minus the log of the geometric mean."""
    rows = rows_of(random_rows(5))
    for level, over in (("token", "token"), ("sequence", "sum"), ("geometric", "mean")):
        ratios = LEVELS[level].of(rows.ratios, rows.sequence)
        below = two_side(ratios, rows.advantage, epsilon_low=1 - exp(-0.1), epsilon_high=inf)
        assert FILTERS[f"reject_{over}_k1"].function(rows, threshold=0.1).side.tolist() == below.side.tolist()
