"""Tails, quantiles by step and growth with the length, against plain numpy loops over the same tokens."""

from math import inf, nan, sqrt
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.drift.pairs import PAIRS
from ratioscope.analysis.ratios.distributions import FAR, RatioLevel, by_step, survival, survivals
from ratioscope.analysis.ratios.growth import COLUMNS, KINDS, SHARES, _spread_interval, growth
from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.summary.order_statistics import LAST_BIN, bin_log_ratio
from ratioscope.analysis.summary.summary import summarise
from ratioscope.errors import RatioscopeError
from ratioscope.tails import pareto_khat
from tests.making.runs import Step, plain_step, random_step, write_run

PAIR_NAMES = list(PAIRS)


@pytest.fixture(scope="module")
def steps() -> list[Step]:
    """Four steps with an unusable token, a ratio of 0 and a missing new log-probability."""
    rng = np.random.default_rng(5)
    steps = [random_step(rng, number, groups=12, responses=5, longest=14, spread=0.2) for number in range(4)]
    behavior, current = steps[1].tokens["logp_behavior"].copy(), steps[2].tokens["logp_current"].copy()
    behavior[3], current[7] = nan, -inf
    steps[1] = steps[1].with_tokens(logp_behavior=behavior)
    steps[2] = steps[2].with_tokens(logp_current=current)
    return steps


@pytest.fixture(scope="module")
def run(steps: list[Step], tmp_path_factory: pytest.TempPathFactory) -> Run:
    return open_run(write_run(tmp_path_factory.mktemp("runs") / "run", steps, flush_seconds=0))


def log_ratios(step: Step, pair: str) -> dict[int, list[float] | None]:
    """The log-ratios of each response in order; None for one with an unusable token."""
    tokens, sides = step.tokens, (PAIRS[pair].numerator, PAIRS[pair].denominator)
    found: dict[int, list[float] | None] = {}
    for row, sequence in enumerate(tokens["seq_id"].tolist()):
        values = [float(tokens[name][row]) for name in sides]
        usable = all(value <= 1e-4 for value in [*values, float(tokens["logp_behavior"][row])])
        so_far = found.setdefault(sequence, [])
        if not usable or so_far is None:
            found[sequence] = None
        else:
            so_far.append(0.0 if values[0] == values[1] else values[0] - values[1])
    return found


def usable_tokens(step: Step, pair: str) -> np.ndarray:
    sides = (PAIRS[pair].numerator, PAIRS[pair].denominator)
    numerator, denominator = (np.asarray(step.tokens[name], float) for name in sides)
    used = (numerator <= 1e-4) & (denominator <= 1e-4) & np.isfinite(step.tokens["logp_behavior"])
    return (numerator - denominator)[used]


@pytest.mark.parametrize("pair", PAIR_NAMES)
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_both_tails_are_shares_of_all_ratios(run: Run, steps: list[Step], pair: str, level: RatioLevel) -> None:
    found = survival(run, 1, 3, pair=pair, level=level)
    if level == "token":
        logs = np.concatenate([usable_tokens(step, pair) for step in steps[1:]])
        every = sum(len(step.tokens["seq_id"]) for step in steps[1:])
    else:
        responses = [values for step in steps[1:] for values in log_ratios(step, pair).values()]
        logs = np.array([sum(values) for values in responses if values is not None])
        every = len(responses)
    assert (found.n, found.n_undefined) == (len(logs), every - len(logs))
    assert (found.n_zero, found.n_infinite) == (np.isneginf(logs).sum(), np.isposinf(logs).sum())
    assert found.far_below == pytest.approx((logs < -np.log(FAR)).mean())
    assert found.far_above == pytest.approx((logs > np.log(FAR)).mean())
    with np.errstate(over="ignore", divide="ignore"):
        for tail, weights in ((found.upper, np.exp(logs)), (found.lower, np.exp(-logs))):
            expected = [(weights >= x * (1 - 1e-12)).mean() for x in tail.weight]
            assert tail.share.tolist() == pytest.approx(expected)
            assert (np.diff(tail.weight) > 0).all() and (np.diff(tail.share) < 0).all()
            finite = weights[np.isfinite(weights) & (weights > 0)]
            assert tail.weight[-1] == pytest.approx(finite.max()), "the most extreme ratio is on the curve"
            assert tail.share[0] >= 0.5
            assert tail.khat == pytest.approx(pareto_khat(np.sort(np.log(weights))[::-1], len(weights))[0])


def test_the_fit_starts_at_the_cut_off_and_follows_a_pareto_tail(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    logs = rng.exponential(0.5, 40_000) * rng.choice([-1.0, 1.0], 40_000)  # both tails have index 0.5
    run = open_run(write_run(tmp_path / "run", [plain_step(np.full(40_000, -40.0), -40 + logs)]))
    both = survival(run, 0, 0)
    for tail in (both.upper, both.lower):
        assert tail.khat == pytest.approx(0.5, abs=0.12)
        assert tail.fit_weight[-1] == pytest.approx(tail.weight[-1])
        observed = np.interp(np.log(tail.fit_weight[:20]), np.log(tail.weight), np.log(tail.share))
        assert np.log(tail.fit_share[:20]).tolist() == pytest.approx(observed.tolist(), abs=0.2)
    assert both.answer.startswith("Both tails: the mean is reliable, the variance is not; ")


def test_a_few_ratios_behind_the_fitted_tail_are_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    logs = rng.exponential(0.2, 40_000) * rng.choice([-1.0, 1.0], 40_000)
    logs[:3] = 6.0  # by the fit one of a million ratios is 15
    both = survival(open_run(write_run(tmp_path / "run", [plain_step(np.full(40_000, -40.0), -40 + logs)])), 0, 0)
    assert both.upper.khat is not None and both.upper.khat < 0.7
    assert both.answer.startswith("Upper tail: the largest ratios lie beyond the fit, so k̂ is too small. Lower tail")


def test_levels_read_together_are_those_read_one_by_one(run: Run) -> None:
    together = survivals(run, 0, 3, pair="new/behavior")
    for level, found in together.items():
        alone = survival(run, 0, 3, pair="new/behavior", level=level)
        assert found.answer == alone.answer
        assert found.upper.share.tolist() == alone.upper.share.tolist()


@pytest.mark.parametrize("pair", PAIR_NAMES)
def test_quantiles_and_histogram_by_step(run: Run, steps: list[Step], pair: str) -> None:
    found = by_step(run, 0, 3, pair)
    assert found.quantiles.index.tolist() == [0, 1, 2, 3]
    edges = [-inf, *bin_log_ratio(np.arange(-LAST_BIN, LAST_BIN) + 0.5), inf]
    for step in steps:
        logs = usable_tokens(step, pair)
        row = found.quantiles.loc[step.number]
        with np.errstate(over="ignore"):
            assert row["ratio_min"] == pytest.approx(np.exp(logs.min()))
            assert row["ratio_max"] == pytest.approx(np.exp(logs.max()))
        finite = logs[np.isfinite(logs)]
        if len(finite) == len(logs):
            assert row["ratio_p90"] == pytest.approx(np.exp(np.quantile(logs, 0.9)))
        bins = found.histogram[found.histogram["step"] == step.number].set_index("bin")["tokens"]
        assert bins.sum() == len(logs)
        for number, tokens in bins.items():
            low, high = edges[int(number) + LAST_BIN], edges[int(number) + LAST_BIN + 1]
            # A log-ratio on an edge may fall to either side: edges are computed in another order here.
            between = ((logs > low) & (logs <= high)).sum() + (np.isneginf(logs).sum() if low == -inf else 0)
            assert abs(tokens - between) <= np.isclose(logs, low).sum() + np.isclose(logs, high).sum()


def test_by_step_agrees_with_the_step_summary_where_it_has_the_same_pair(run: Run) -> None:
    summary, found = summarise(run), by_step(run, 0, 3, "current/behavior")
    for key in found.quantiles:
        assert found.quantiles[key].tolist() == pytest.approx(summary.values[key].tolist(), rel=1e-12)
    columns = ["step", "bin", "tokens"]
    assert found.histogram[columns].to_numpy().tolist() == summary.histogram[columns].to_numpy().tolist()
    shown = found.in_place_of(summary)
    assert shown.values["s_k"].equals(summary.values["s_k"])
    assert shown.histogram is found.histogram


@pytest.mark.parametrize("pair", ["current/behavior", "new/current"])
def test_growth_is_measured_on_the_first_tokens_of_every_response(run: Run, steps: list[Step], pair: str) -> None:
    found = growth(run, 0, 1, pair=pair)
    responses = [values for step in steps[:2] for values in log_ratios(step, pair).values() if values is not None]
    assert found.n_responses == len(responses)
    assert set(found.rows["kind"]) == set(KINDS)
    assert found.rows["tokens"].min() == 1
    for row in found.rows.to_dict("records"):
        t = row["tokens"]
        long = [values[:t] for values in responses if len(values) >= t]
        tokens = np.concatenate(long)
        logs = {"token": tokens, "product": np.array([sum(values) for values in long])}
        logs["geometric"] = logs["product"] / t
        values = logs[row["kind"]]
        assert row["n"] == len(long) >= 20
        assert row["spread"] == pytest.approx(values.std(ddof=1))
        factor = {"token": 1, "product": sqrt(t), "geometric": 1 / sqrt(t)}[row["kind"]]
        assert row["spread_independent"] == pytest.approx(factor * tokens.std(ddof=1))
        assert row["spread_low"] < row["spread"] < row["spread_high"]
        for name, share in SHARES.items():
            assert row[name] == pytest.approx(np.exp(np.quantile(values, share, method="lower")))


def test_intervals_of_the_spread_cover_what_groups_vary_by() -> None:
    """95 % over prompt groups: of many samples of one distribution, most intervals hold its spread."""
    rng, inside = np.random.default_rng(1), 0
    for _ in range(200):
        group = np.repeat(np.arange(40), 4)
        values = rng.standard_normal(160) + 0.5 * rng.standard_normal(40)[group]
        low, high = _spread_interval(values, group)
        inside += low <= sqrt(1.25) <= high
    assert inside >= 175


def test_dependent_tokens_lie_above_the_line_of_independent_ones(tmp_path: Path) -> None:
    sequence = np.repeat(np.arange(60), 9)
    sign = np.where(sequence % 2, 0.1, -0.1)
    step = plain_step(np.full(540, -3.0), -3 + sign, sequence=sequence, group=sequence // 2)
    found = growth(open_run(write_run(tmp_path / "run", [step])), 0, 0)
    assert found.answer.startswith("Over the first 9 tokens the log of the product spreads 9.1 × (")
    assert "Independent tokens would give 3.0 ×" in found.answer
    product = found.rows[found.rows["kind"] == "product"]
    assert (product["spread"] / product["spread_independent"]).iloc[-1] == pytest.approx(3, rel=0.01)


def test_a_ratio_of_0_has_quantiles_and_no_spread(run: Run) -> None:
    rows = growth(run, 2, 2).rows
    last = rows[(rows["kind"] == "product")].iloc[-1]
    hit = rows[rows["note"] != ""]
    assert len(hit)
    assert hit["spread"].isna().all() and hit["spread_low"].isna().all()
    assert np.isfinite(last["p50"])


@pytest.mark.parametrize(
    ("steps_", "pair", "reason"),
    [((7, 9), "current/behavior", "there is no token"), ((0, 0), "new/behavior", "logp_new is not logged")],
)
def test_without_a_ratio_the_reason_is_said(tmp_path: Path, steps_: tuple[int, int], pair: str, reason: str) -> None:
    run = open_run(write_run(tmp_path / "run", [plain_step([-1.0, -2.0], [-1.1, -2.1])]))
    assert survival(run, *steps_, pair=pair).answer == f"No ratio in these steps: {reason}."
    assert growth(run, *steps_, pair=pair).answer == f"No sequence ratio in these steps: {reason}."
    assert tuple(growth(run, *steps_, pair=pair).rows.columns) == COLUMNS
    nothing = by_step(run, *steps_, pair)
    assert nothing.quantiles.empty and nothing.histogram.empty


def test_single_tokens_and_equal_ratios_are_survived(tmp_path: Path) -> None:
    one = open_run(write_run(tmp_path / "one", [plain_step([-1.0], [-1.5])]))
    same = open_run(write_run(tmp_path / "same", [plain_step([-1.0] * 50, [-1.0] * 50)]))
    assert survival(one, 0, 0).upper.weight.tolist() == pytest.approx([np.exp(-0.5)])
    assert survival(same, 0, 0).upper.share.tolist() == [1.0]
    assert survival(same, 0, 0).upper.reason == "the largest weights agree to within rounding"
    assert "single tokens" in growth(one, 0, 0).answer


def test_an_unknown_pair_is_a_mistake_of_the_caller(run: Run) -> None:
    for measure in (survival, by_step, growth):
        with pytest.raises(RatioscopeError, match="'a/b' is not a pair"):
            measure(run, 0, 1, pair="a/b")  # type: ignore[operator]
