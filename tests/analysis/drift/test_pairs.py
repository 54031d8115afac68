"""Every pair at every level: known answers, and the definitions by brute force."""

from itertools import product
from math import log1p, nan
from pathlib import Path

import mpmath as mp
import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.drift.pairs import METRICS, PAIRS, measure_pairs
from ratioscope.analysis.runs.store import open_run
from ratioscope.metric import Moment
from ratioscope.notes import Kind
from ratioscope.run_format import schema
from tests.making.runs import plain_step, random_step, write_run
from tests.oracles.brute_force import rows_of
from tests.oracles.pairs import brute_force, by_step, each_pair, each_view, terms, units_of

B, C, N = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.4, 0.2]), np.array([0.3, 0.45, 0.25])
KL_C_N, KL_C_B, KL_B_C, KL_B_N = 0.0233309045, 0.0258154085, 0.0252671539, 0.0891445692


# ---------------------------------------------------------------------------------------------- known answers


def worked_example(folder: Path, length: int) -> pd.DataFrame:
    """Section 9: every sequence of `length` actions as often as b draws it; b' is the current policy; one group."""
    times = np.array([5, 3, 2])
    drawn = [actions for actions in product(range(3), repeat=length) for _ in range(np.prod(times[list(actions)]))]
    actions = np.array(drawn).ravel()
    step = plain_step(
        np.log(B)[actions], np.log(C)[actions], np.log(N)[actions],
        sequence=np.repeat(np.arange(len(drawn)), length), group=np.zeros(len(actions)),
        logp_behavior_train=np.log(C)[actions].astype(np.float32),
    )  # fmt: skip
    frame = measure_pairs(open_run(write_run(folder, [step])), level="sequence")
    return frame.pivot(index="metric", columns="pair", values="value")


@pytest.fixture(scope="module")
def one_step(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    return worked_example(tmp_path_factory.mktemp("one") / "run", 1)


def test_the_published_answers_come_out(one_step: pd.DataFrame) -> None:
    chi2_n_c = 0.09 / 0.4 + 0.2025 / 0.4 + 0.0625 / 0.2 - 1
    expected = {
        "current/behavior": (0.1, 0.8 / 15, KL_B_C, KL_C_B),
        "new/behavior": (0.2, 0.1675, KL_B_N, float(N @ np.log(N / B))),
        "new/current": (0.1, chi2_n_c, KL_C_N, float(N @ np.log(N / C))),
        "behavior_train/behavior": (0.1, 0.8 / 15, KL_B_C, KL_C_B),
        "current/behavior_train": (0, 0, 0, 0),
    }
    assert set(expected) == set(PAIRS)
    for pair, (tv, chi2, kl, reverse) in expected.items():
        answers = {
            "tv": tv, "tv_bounded": tv, "chi2": chi2, "chi2_raw": chi2, "log1p_chi2": log1p(chi2), "kl_k1": kl,
            "kl_k3": kl, "kl_reverse": reverse, "ratio_mean": 1, "ess": 1 / (1 + chi2),
        }  # fmt: skip
        assert one_step.loc[list(answers), pair].to_dict() == pytest.approx(answers, abs=1e-6), pair


def test_the_answers_hold_to_nine_digits_for_the_rounded_logs(one_step: pd.DataFrame) -> None:
    b, c, n = ([mp.mpf(float(x)) for x in np.log(policy).astype(np.float32)] for policy in (B, C, N))
    logs = {"behavior": b, "current": c, "new": n, "behavior_train": c}
    with mp.workdps(30):
        for pair in PAIRS:
            p, q = (logs[name] for name in pair.split("/"))
            found = [terms(p[i] - b[i], q[i] - b[i]) for i in range(3)]
            for metric in found[0].keys() & set(METRICS):
                mean = mp.fsum(times * term[metric] for times, term in zip((5, 3, 2), found, strict=True)) / 10
                expected = float(mean - 1 if metric == "chi2_raw" else mean)
                assert one_step.loc[metric, pair] == pytest.approx(expected, rel=1e-9, abs=1e-14), (pair, metric)


def test_chi_square_of_independent_steps_is_a_power_for_every_pair(tmp_path: Path, one_step: pd.DataFrame) -> None:
    length = 2
    found = worked_example(tmp_path / "run", length)
    for pair in PAIRS:
        power = (1 + one_step.loc["chi2_raw", pair]) ** length
        assert found.loc["chi2_raw", pair] == pytest.approx(power - 1, rel=1e-9, abs=1e-9)
        assert found.loc["chi2", pair] == pytest.approx(power - 1, abs=1e-6)
        assert found.loc["log1p_chi2", pair] == pytest.approx(length * log1p(one_step.loc["chi2", pair]), abs=1e-6)
        assert found.loc["kl_k1", pair] == pytest.approx(length * one_step.loc["kl_k1", pair], abs=1e-6)


# ---------------------------------------------------------------------------------------------- by brute force


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps: usual, nearly on-policy, far off; the first and last with ratios of 0 and rows of no use."""
    rng, steps = np.random.default_rng(2), []
    for number, spread in enumerate([0.3, 3e-5, 3.0]):
        step = random_step(rng, number, groups=6, responses=3, longest=4, spread=spread)
        columns = {name: step.tokens[name].copy() for name in step.tokens if name.startswith(("logp_", "adv"))}
        for name, value in BAD if number != 1 else []:
            columns[name][rng.integers(len(columns[name]))] = value
        if number == 2:  # an action that neither of two policies would take
            columns["logp_current"][7] = columns["logp_new"][7] = -np.inf
        steps.append(step.with_tokens(**columns))
    return write_run(tmp_path_factory.mktemp("logs") / "run", steps)


BAD = [
    ("logp_current", -np.inf), ("logp_new", -np.inf), ("logp_behavior_train", -np.inf), ("logp_behavior_train", nan),
    ("logp_behavior_train", np.inf), ("logp_behavior_train", 0.01), ("logp_current", nan), ("logp_new", 0.01),
    ("logp_behavior", -np.inf), ("advantage", nan),
]  # fmt: skip


@each_view
def test_every_number_is_what_its_definition_says(logs: Path, view: tuple[str, str]) -> None:
    found = by_step(logs, view)
    for step, pair in product(range(3), PAIRS):
        rows = [row for row in rows_of(logs, "tokens") if row["step"] == step]
        with mp.workdps(50):
            units = units_of(rows, pair, view)
            values, intervals = brute_force(units)
        # A difference from 1 of a mean near 1, or a mean of both signs: the largest term sets the scale.
        scale = {"chi2_raw": 1e-9, "kl_k1": 1e-12}
        for metric, value in values.items():
            line = found.loc[(step, pair, metric)]
            assert line["value"] == pytest.approx(value, rel=1e-9, abs=scale.get(metric, 0)), (step, pair, metric)
            if METRICS[metric] is Moment.SECOND and (view[0] == "sequence" or line["note_kind"] == Kind.UNRELIABLE):
                assert np.isnan(line["low"]) or line["low"] <= line["value"] <= line["high"]
                assert np.isnan(line["low"]) or line["low"] == 0 or np.isinf(line["high"])
            elif np.isfinite(line["low"]) and metric in intervals:
                low, high = intervals[metric]
                high = min(high, 1.0) if metric == "tv_bounded" and value <= 1 else high
                bounds = pytest.approx((low, high), rel=1e-7, abs=1e-8 * abs(value) + 1e-13)
                assert (line["low"], line["high"]) == bounds, (step, pair, metric)
            elif np.isfinite(line["low"]):
                assert line["low"] <= line["value"] <= line["high"]
            else:
                assert line["note"]
        counted = found.loc[(step, pair, "tv")]
        assert counted["n"] == round(sum(weight for _, weight, _, _ in units))
        assert counted["n_groups"] == len({group for group, *_ in units})
        every = rows if view[0] == "token" else {row["seq_id"] for row in rows}
        assert counted["n_undefined"] == len(every) - len(units)


@each_pair
def test_pairs_name_logged_columns_and_themselves(pair: str) -> None:
    row = PAIRS[pair]
    assert f"{row.numerator}/{row.denominator}".replace("logp_", "") == pair
    assert all(schema.TOKENS.column(name) for name in (row.numerator, row.denominator))
    assert row.title and row.tells.endswith(".")


def test_policies_that_are_the_same_are_at_distance_zero_with_an_interval(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    logp = rng.uniform(-2, -0.1, 400)
    step = plain_step(logp + rng.normal(0, 0.1, 400), logp, logp_behavior_train=logp.astype(np.float32),
                      group=np.arange(400) // 40)  # fmt: skip
    found = measure_pairs(open_run(write_run(tmp_path / "run", [step])))
    same = found[(found["pair"] == "current/behavior_train") & found["metric"].isin(["tv", "chi2", "log1p_chi2"])]
    assert (same[["value", "low", "high"]] == 0).all(axis=None)
    assert not same["note"].astype(str).str.contains("no interval").any()
