"""The length trap: buckets, spreads by brute force, the growth that independence predicts, and what cannot be said."""

from collections import defaultdict
from math import expm1, inf, nan, sqrt
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.ratios.lengths import COLUMNS, FEWEST_SEQUENCES, bucket_lengths, length_trap
from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.errors import RatioscopeError
from tests.making.runs import plain_step, random_step, write_run
from tests.oracles.brute_force import is_valid, rows_of

B, C, N = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.4, 0.2]), np.array([0.3, 0.45, 0.25])


@pytest.mark.parametrize("seed", range(20))
def test_buckets_hold_every_length_once_and_enough_sequences(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, rng.integers(2, 300), rng.integers(1, 500))
    most = int(rng.integers(1, 8))
    ends = bucket_lengths(lengths, most)
    counts = np.bincount(np.searchsorted(ends, lengths), minlength=len(ends))
    assert ends == sorted(set(ends)) and ends[-1] == lengths.max()
    assert len(ends) <= most and len(counts) == len(ends)
    assert len(ends) == 1 or counts.min() >= FEWEST_SEQUENCES


def test_a_few_short_responses_among_many_of_one_length_have_a_bucket_of_their_own() -> None:
    assert bucket_lengths(np.repeat([1, 2, 4], [15, 15, 5000]), 5) == [2, 4]
    assert bucket_lengths(np.repeat([1, 4], [15, 5000]), 5) == [4]
    assert bucket_lengths(np.repeat([4, 9], [5000, 15]), 5) == [9]


@pytest.mark.parametrize(
    ("pair", "published"),
    [
        ("current/behavior", (0.515397698, 26.8107682, 598206.62)),
        ("new/behavior", (2.451875424, 20156.6969, 1.65106e17)),
    ],
)
def test_the_published_powers_of_the_token_chi_square_are_predicted(
    tmp_path: Path, pair: str, published: tuple[float, ...]
) -> None:
    """Section 9, T = 8, 64, 256: twenty responses of each length, their actions as often as b draws them."""
    lengths = np.repeat([8, 64, 256], FEWEST_SEQUENCES)
    actions = np.resize([0, 0, 0, 0, 0, 1, 1, 1, 2, 2], lengths.sum())
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    step = plain_step(*(np.log(policy)[actions] for policy in (B, C, N)), sequence=sequence)
    buckets = length_trap(open_run(write_run(tmp_path / "run", [step])), pair=pair).buckets
    assert buckets["longest"].tolist() == [8, 64, 256]
    assert [expm1(value) for value in buckets["log1p_chi2_predicted"]] == pytest.approx(published, rel=1e-4)


@pytest.mark.parametrize("pair", ["current/behavior", "new/current"])
def test_every_column_is_what_it_says(tmp_path: Path, pair: str) -> None:
    steps = [random_step(np.random.default_rng(number), number, groups=20, longest=12) for number in range(3)]
    spoilt = steps[2].tokens["logp_current"].copy()
    spoilt[[5, 40]] = nan
    steps[2] = steps[2].with_tokens(logp_current=spoilt)
    folder = write_run(tmp_path / "run", steps)
    trap = length_trap(open_run(folder), 1, 2, pair=pair, most_buckets=3)
    assert tuple(trap.buckets.columns) == COLUMNS
    p, q = (f"logp_{name}" for name in pair.split("/"))
    tokens, undefined = defaultdict(list), set()
    for row in rows_of(folder, "tokens"):
        if row["step"] in (1, 2):
            key = row["step"], row["seq_id"], row["group_id"]
            if not is_valid(row):
                undefined.add(key)
            tokens[key].append((row[p] - row[q], row[q] - row["logp_behavior"]))
    lower = 0
    for _, row in trap.buckets.iterrows():
        inside = {key: values for key, values in tokens.items() if lower < len(values) <= row["longest"]}
        lower = row["longest"]
        used = [np.array(values) for key, values in inside.items() if key not in undefined]
        z, y = np.concatenate(used).T
        log_w, log_q = (np.array([values[:, i].sum() for values in used]) for i in (0, 1))
        length = np.array([len(values) for values in used])
        chi2_token = np.mean(np.exp(y) * np.expm1(z) ** 2)
        expected = {
            "shortest": length.min(),
            "mean_length": length.mean(),
            "n": len(used),
            "n_undefined": len(inside) - len(used),
            "n_groups": len({(step, group) for step, _, group in inside.keys() - undefined}),
            "spread_log_w": log_w.std(ddof=1),
            "spread_geometric": (log_w / length).std(ddof=1),
            "spread_token": z.std(ddof=1),
            "spread_independent": sqrt(length.mean()) * z.std(ddof=1),
            "log1p_chi2": np.log1p(np.mean(np.exp(log_q) * np.expm1(log_w) ** 2)),
            "log1p_chi2_predicted": length.mean() * np.log1p(chi2_token),
        }
        assert {key: row[key] for key in expected} == pytest.approx(expected, rel=1e-9)
        assert row["spread_log_w_low"] < row["spread_log_w"] < row["spread_log_w_high"]
    assert trap.buckets["n_undefined"].sum() == len(undefined) > 0


def of_two_lengths(folder: Path, log_ratio: np.ndarray) -> Run:
    """Forty responses of 4 and forty of 16 tokens, in pairs of one prompt group; log_ratio is (40 * 20,)."""
    lengths = np.repeat([4, 16], 40)
    sequence = np.repeat(np.arange(80), lengths)
    behavior = np.full(len(sequence), -3.0)
    return open_run(
        write_run(folder, [plain_step(behavior, behavior + log_ratio, sequence=sequence, group=sequence // 2)])
    )


def test_dependent_tokens_spread_faster_than_independent_ones(tmp_path: Path) -> None:
    """All tokens of a response go the same way: log W grows like the length, not like its root."""
    sign = np.repeat(np.where(np.arange(80) % 2, 1.0, -1.0), np.repeat([4, 16], 40))
    trap = length_trap(of_two_lengths(tmp_path / "run", 0.1 * sign))
    assert trap.answer == (
        "log W spreads 4.0 × (4.0 to 4.0) as much in the longest responses (16 tokens) as in the shortest (4 tokens); "
        "independent tokens would give 2.0 ×."
    )


def test_independent_tokens_spread_like_the_root_of_the_length(tmp_path: Path) -> None:
    steps = [random_step(np.random.default_rng(7), groups=200, responses=8, longest=60, spread=0.1)]
    steps = [steps[0].with_tokens(logp_behavior=steps[0].tokens["logp_behavior"] - 1)]
    buckets = length_trap(open_run(write_run(tmp_path / "run", steps))).buckets
    centred = buckets["spread_geometric"] * np.sqrt(buckets["mean_length"])  # log W grows with T; its mean does not
    assert (centred[1:] / buckets["spread_token"][1:]).tolist() == pytest.approx([1] * 4, abs=0.15)


def test_on_policy_data_do_not_spread(tmp_path: Path) -> None:
    trap = length_trap(of_two_lengths(tmp_path / "run", np.zeros(800)))
    assert "does not spread" in trap.answer
    zeros = ["spread_log_w", "spread_geometric", "spread_token", "log1p_chi2", "log1p_chi2_predicted"]
    assert (trap.buckets[zeros] == 0).all(axis=None)


def test_a_ratio_of_zero_has_no_spread_and_says_so(tmp_path: Path) -> None:
    log_ratio = np.random.default_rng(0).normal(0, 0.1, 800)
    log_ratio[-1] = -inf
    trap = length_trap(of_two_lengths(tmp_path / "run", log_ratio))
    long = trap.buckets.iloc[-1]
    assert np.isnan([long[name] for name in COLUMNS if name.startswith("spread")]).all()
    assert long["note"].startswith("1 responses have W 0 or infinite") and np.isfinite(long["log1p_chi2"])
    assert trap.answer.startswith("The spread of log W cannot be compared: among the longest responses, 1 responses")
    assert np.isfinite(trap.buckets.iloc[0]["spread_log_w"])


def test_a_thousand_nats_stay_in_log_space(tmp_path: Path) -> None:
    log_ratio = np.where(np.arange(800) % 2, 100.0, -100.0)
    log_ratio[-16:] = 100.0
    run = of_two_lengths(tmp_path / "run", log_ratio - 97)
    long = length_trap(run).buckets.iloc[-1]
    assert long["spread_log_w"] == pytest.approx(1600 / sqrt(40), rel=1e-6)
    assert np.isfinite(long["log1p_chi2_predicted"])


def test_what_cannot_be_said_is_said_in_words(tmp_path: Path) -> None:
    step = plain_step([-1] * 6, [-1.1, -0.9] * 3, sequence=[0, 0, 1, 1, 2, 2])
    run = open_run(write_run(tmp_path / "run", [step]))
    spoilt = open_run(write_run(tmp_path / "spoilt", [step.with_tokens(logp_current=np.full(6, nan, np.float32))]))
    alike = length_trap(run)
    assert len(alike.buckets) == 1
    assert alike.answer.startswith("The 3 responses are too few or too alike in length (2 tokens)")
    for trap, reason in (
        (length_trap(run, pair="new/current"), "logp_new is not logged"),
        (length_trap(run, 5, 9), "there is no token"),
        (length_trap(spoilt), "every response has an unusable token"),
    ):
        assert trap.buckets.empty and tuple(trap.buckets.columns) == COLUMNS
        assert trap.answer == f"No sequence ratio in these steps: {reason}."
    with pytest.raises(RatioscopeError, match="'a/b' is not a pair"):
        length_trap(run, pair="a/b")
