"""Every pair at every level: known answers, the definitions by brute force, identities, and numbers that are not."""

import warnings
from collections import defaultdict
from dataclasses import replace
from itertools import product
from math import isnan, log, log1p, nan
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.pairs import COLUMNS, METRICS, PAIRS, UNITS, measure
from analysis.store import Run, open_run
from analysis.summary import StepSummary, summarise
from ratioscope import schema
from ratioscope.errors import RatioscopeError
from ratioscope.metric import Moment
from tests.numbers.brute_force import Row, is_valid, rows_of
from tests.runs import plain_step, random_step, write_run

B, C, N = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.4, 0.2]), np.array([0.3, 0.45, 0.25])
KL_C_N, KL_C_B, KL_B_C, KL_B_N = 0.0233309045, 0.0258154085, 0.0252671539, 0.0891445692
VIEWS = list(UNITS)
each_view = pytest.mark.parametrize("view", VIEWS, ids=["-".join(view) for view in VIEWS])
each_pair = pytest.mark.parametrize("pair", PAIRS)


def by_step(folder: Path, view: tuple[str, str]) -> pd.DataFrame:
    """What `measure` says, indexed by step, pair and metric."""
    frame = measure(open_run(folder), level=view[0], aggregation=view[1], by_step=True)  # type: ignore[arg-type]
    return frame.set_index(["step", "pair", "metric"])


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
    frame = measure(open_run(write_run(folder, [step])), level="sequence")
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
    length = 3
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
        step = random_step(rng, number, groups=7, responses=3, longest=6, spread=spread)
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
    count = len(sums["n"])
    intervals = {}
    for name in values.keys() & sums.keys():
        mean = totals[name] / n
        squares = mp.fsum((sums[name][group] - mean * sums["n"][group]) ** 2 for group in sums["n"])
        half = stats.t.ppf(0.975, count - 1) * float(mp.sqrt(squares * count / (count - 1)) / n)
        intervals[name] = float(values[name]) - half, float(values[name]) + half
    return {name: float(value) for name, value in values.items()}, intervals


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
            if np.isfinite(line["low"]) and metric in intervals:
                bounds = pytest.approx(intervals[metric], rel=1e-7, abs=1e-8 * abs(value) + 1e-13)
                assert (line["low"], line["high"]) == bounds, (step, pair, metric)
            elif np.isfinite(line["low"]):
                assert line["low"] < line["value"] < line["high"]
            else:
                assert line["note"]
        counted = found.loc[(step, pair, "tv")]
        assert counted["n"] == round(sum(weight for _, weight, _, _ in units))
        assert counted["n_groups"] == len({group for group, *_ in units})
        every = rows if view[0] == "token" else {row["seq_id"] for row in rows}
        assert counted["n_undefined"] == len(every) - len(units)


# ---------------------------------------------------------------------------------------------- identities

METRIC_OF_SUMMARY = {
    ("token", "current/behavior"): {
        "tv": "s_k", "tv_bounded": "s_k_bounded", "chi2": "chi2_token", "chi2_raw": "chi2_token_raw", "kl_k1": "kl_k1",
        "kl_k2": "kl_k2", "kl_k3": "kl_k3", "kl_reverse": "kl_reverse", "ratio_mean": "ratio_mean", "ess": "ess_token",
        "khat": "khat_token",
    },
    ("token", "new/behavior"): {
        "tv": "tv_new_behavior", "tv_bounded": "tv_new_behavior_bounded", "khat": "khat_token_new",
    },
    ("token", "new/current"): {"tv": "u_k"},
    ("token", "current/behavior_train"): {"tv": "s_k_version"},
    ("token", "behavior_train/behavior"): {"tv": "s_k_engine"},
    ("sequence", "current/behavior"): {
        "chi2": "chi2_seq", "log1p_chi2": "log1p_chi2_seq", "ess": "ess_seq", "khat": "khat_seq",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[str, str], pd.DataFrame]]:
    """Random steps from nearly on-policy to far off, some with impossible actions; every view, by step, as tables."""
    rng, steps = np.random.default_rng(11), []
    for number, spread in enumerate([1e-7, 1e-4, 0.01, 0.3, 2.0, 6.0] * 2):
        step = random_step(rng, number, groups=int(rng.integers(1, 9)), longest=12, spread=spread)
        if number >= 6:
            impossible = rng.random(len(step.tokens["seq_id"])) < 0.03
            for name in ("logp_current", "logp_new", "logp_behavior_train")[: number % 3 + 1]:
                step = step.with_tokens(**{name: np.where(impossible, np.float32(-np.inf), step.tokens[name])})
        steps.append(step)
    folder = write_run(tmp_path_factory.mktemp("swept") / "run", steps)
    return folder, {view: by_step(folder, view) for view in VIEWS}


def table(swept: tuple[Path, dict[tuple[str, str], pd.DataFrame]], view: tuple[str, str], what: str) -> pd.DataFrame:
    return swept[1][view][what].unstack("metric")


def assert_close(left: pd.Series, right: pd.Series, *others: pd.Series | float) -> None:
    """To 1e-9 relative to the largest term of the equation; where a term is infinite there is nothing to compare."""
    scale = np.max([np.abs(left), np.abs(right), *(np.broadcast_to(other, left.shape) for other in others)], axis=0)
    compared = np.isfinite(scale)
    assert compared.sum() > 10
    assert (np.abs(left - right)[compared] <= 1e-9 * scale[compared]).all()


def mean_weight(swept: tuple[Path, Any], view: tuple[str, str]) -> pd.Series:
    """The mean of q/b of each (step, pair): 1, or the mean ratio of q's own pair."""
    ratio = table(swept, view, "value")["ratio_mean"].unstack("pair")
    weight = pd.DataFrame(1.0, index=ratio.index, columns=ratio.columns)
    weight["new/current"] = ratio["current/behavior"]
    weight["current/behavior_train"] = ratio["behavior_train/behavior"]
    return weight.stack()


@each_view
def test_plain_and_bounded_total_variation_differ_by_half_the_residual(swept: Any, view: tuple[str, str]) -> None:
    value, weight = table(swept, view, "value"), mean_weight(swept, view)
    assert_close(value["tv"], value["tv_bounded"] + (value["ratio_mean"] - weight) / 2, value["ratio_mean"], weight)


@each_view
def test_effective_sample_size_is_the_self_normalised_chi_square(swept: Any, view: tuple[str, str]) -> None:
    value, weight, n = table(swept, view, "value"), mean_weight(swept, view), table(swept, view, "n")["ess"]
    square = (value["chi2_raw"] + 1) * weight / value["ratio_mean"] ** 2
    assert_close(1 / value["ess"], square)
    ess = value["ess"].dropna()
    assert len(ess) > 40 and (ess <= 1 + 1e-9).all()
    if view == ("token", "sequence"):  # n counts sequences, the weights are those of tokens
        return
    plain = [pair for pair in PAIRS if not PAIRS[pair].weighted]
    among = ess[ess.index.get_level_values("pair").isin(plain)]
    assert (among >= (1 - 1e-9) / n[among.index]).all()


@each_view
def test_total_variation_is_at_most_half_the_root_of_chi_square(swept: Any, view: tuple[str, str]) -> None:
    """Identity 4; under a weight, by Cauchy and Schwarz, with the mean weight."""
    value, weight = table(swept, view, "value"), mean_weight(swept, view)
    finite = np.isfinite(value["chi2"])
    bound = (value["chi2"] * weight)[finite]
    assert ((2 * value["tv"][finite]) ** 2 <= bound * (1 + 1e-9)).all()
    assert (np.isinf(value["chi2"]) == np.isinf(value["log1p_chi2"])).all()
    assert_close(value["log1p_chi2"], np.log1p(value["chi2"]))


@each_view
def test_divergences_are_never_negative_and_agree_up_to_the_residual(swept: Any, view: tuple[str, str]) -> None:
    value, weight = table(swept, view, "value"), mean_weight(swept, view)
    assert (value[["kl_k2", "kl_k3", "kl_reverse", "tv", "tv_bounded", "chi2", "log1p_chi2"]] >= 0).all(axis=None)
    assert_close(value["kl_k1"], value["kl_k3"] + weight - value["ratio_mean"], value["ratio_mean"], weight)
    assert (np.isinf(value["kl_k1"]) == np.isinf(value["kl_k3"])).all()


@each_view
def test_equal_policies_are_exactly_at_no_distance(tmp_path: Path, view: tuple[str, str]) -> None:
    """Step 0: every policy is the behavior policy. Step 1: all others are one policy, far from it."""
    step = random_step(np.random.default_rng(1), groups=9, spread=2)
    behavior, current = step.tokens["logp_behavior"], step.tokens["logp_current"].copy()
    current[3] = -np.inf
    columns = [pair.numerator for pair in PAIRS.values()]
    steps = [
        replace(step, number=number).with_tokens(**dict.fromkeys(columns, values))
        for number, values in enumerate([behavior, current])
    ]
    found = by_step(write_run(tmp_path / "run", steps), view)["value"].unstack("metric")
    distances = ["tv", "tv_bounded", "chi2", "log1p_chi2", "kl_k1", "kl_k2", "kl_k3", "kl_reverse"]
    assert (found.loc[0, [*distances, "chi2_raw"]] == 0).all(axis=None)
    assert (found.loc[0, ["ratio_mean", "ess"]] == 1).all(axis=None)
    assert found.loc[0, "khat"].isna().all()
    equal = found.loc[[(1, "new/current"), (1, "current/behavior_train")]]
    assert (equal[distances] == 0).all(axis=None) and (equal["ess"] == 1).all()


@each_pair
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_pairs_agree_with_the_step_summary(swept: Any, level: str, pair: str) -> None:
    folder, frames = swept
    summary: StepSummary = summarise(open_run(folder))
    found = frames[level, "token"].xs(pair, level="pair")
    for metric, key in METRIC_OF_SUMMARY.get((level, pair), {}).items():
        ours = found.xs(metric, level="metric")
        # The summary leaves rows out whose logp_behavior_train is -inf; here they are ratios of 0.
        same = (summary.values.index < 6) | ("train" not in pair)
        scale = 1e-9 if metric == "chi2_raw" else 1e-13
        for step in summary.values.index[same]:
            theirs = [frame.loc[step, key] for frame in (summary.values, summary.low, summary.high)]
            compared = 3 if pair in ("current/behavior", "new/behavior") else 1  # others it judges by these two's tails
            mine = ours.loc[step, ["value", "low", "high"]].tolist()[:compared]
            expected = pytest.approx(theirs[:compared], rel=1e-9, abs=scale, nan_ok=True)
            assert mine == expected, (step, metric)


# ---------------------------------------------------------------------------------------------- what is not there


def one_line(frame: pd.DataFrame, pair: str, metric: str) -> pd.Series:
    return frame[(frame["pair"] == pair) & (frame["metric"] == metric)].iloc[0]


@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_a_thousand_nats_stay_in_log_space(tmp_path: Path, direction: int, level: str) -> None:
    """Ten tokens of ±100 nats make a sequence, or one token has ±1,000; the other seven are on-policy."""
    tokens = 10 if level == "sequence" else 1
    far, near = np.full(tokens, -1000.0 / tokens), np.full(7, -1.0)
    sequence = [0] * tokens + list(range(1, 8))
    high, low = np.concatenate([np.zeros(tokens), near]), np.concatenate([far, near])
    behavior, current = (low, high) if direction > 0 else (high, low)
    folder = write_run(tmp_path / "run", [plain_step(behavior, current, behavior, sequence=sequence)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = measure(open_run(folder), level=level)  # type: ignore[arg-type]
    of = {metric: one_line(frame, "current/behavior", metric) for metric in METRICS}
    update = {metric: one_line(frame, "new/current", metric) for metric in METRICS}
    if direction > 0:
        assert of["log1p_chi2"]["value"] == pytest.approx(2000 - log(8), rel=1e-12)
        assert of["ess"]["value"] == pytest.approx(1 / 8)
        assert of["kl_k1"]["value"] == -125 and of["kl_k2"]["value"] == 62500
        for metric in ("tv", "chi2", "chi2_raw", "kl_k3", "kl_reverse", "ratio_mean"):
            assert of[metric]["value"] == np.inf and of[metric]["note"].startswith("infinite")
            assert np.isnan(of[metric]["low"])
        assert update["tv"]["value"] == update["kl_k1"]["value"] == np.inf
        assert update["log1p_chi2"]["value"] == pytest.approx(1000 - log(8), rel=1e-12)
    else:
        assert of["tv"]["value"] == of["tv_bounded"]["value"] / 2 == 1 / 16
        assert of["chi2"]["value"] == of["kl_reverse"]["value"] == 1 / 8
        assert of["kl_k1"]["value"] == 125 and of["kl_k3"]["value"] == (1000 - 1) / 8
        assert of["ess"]["value"] == pytest.approx(7 / 8)
        assert update["chi2"]["value"] == np.inf and update["chi2"]["note"].startswith("infinite")
        assert update["log1p_chi2"]["value"] == pytest.approx(1000 - log(8), rel=1e-12)
        assert update["kl_k1"]["value"] == 0  # e^-1000 times 1,000


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Nothing but the required columns."""
    return open_run(write_run(tmp_path_factory.mktemp("imported") / "run", [plain_step([-1, -2], [-1.1, -1.9])]))


@each_view
def test_a_pair_that_is_not_logged_says_so_and_so_does_a_description(imported: Run, view: Any) -> None:
    frame = measure(imported, level=view[0], aggregation=view[1])
    assert tuple(frame.columns) == COLUMNS and len(frame) == len(PAIRS) * len(METRICS)
    for pair, column in (
        ("new/behavior", "logp_new"), ("new/current", "logp_new"),
        ("current/behavior_train", "logp_behavior_train"), ("behavior_train/behavior", "logp_behavior_train"),
    ):  # fmt: skip
        lines = frame[frame["pair"] == pair]
        assert lines[["value", "low", "high"]].isna().all(axis=None)
        assert set(lines["note"]) == {f"{column} is not logged"}
        assert set(lines["n"]) == {0} and set(lines["n_undefined"]) == {2}
    logged = frame[frame["pair"] == "current/behavior"]
    assert set(logged["n"]) == {2}
    describes = view in (("token", "sequence"), ("geometric", "token"))
    assert all(("a description" in note) == describes for note in logged["note"])


def test_steps_without_the_new_policy_count_as_undefined(tmp_path: Path) -> None:
    steps = [plain_step([-1, -2], [-1.1, -1.9], [-1, -2]), plain_step([-1] * 3, [-1.1] * 3, number=1)]
    frame = measure(open_run(write_run(tmp_path / "run", steps, flush_seconds=0)))
    line = one_line(frame, "new/behavior", "tv")
    assert (line["value"], line["n"], line["n_undefined"], line["n_groups"]) == (0, 2, 3, 2)


def test_an_unusable_token_leaves_its_sequence_undefined(tmp_path: Path) -> None:
    step = plain_step([-1] * 4, [-1, nan, -1.1, -1.2], sequence=[0, 0, 1, 1])
    run = open_run(write_run(tmp_path / "run", [step]))
    token, sequence = (
        one_line(measure(run, level=level), "current/behavior", "ratio_mean") for level in ("token", "sequence")
    )
    assert (token["n"], token["n_undefined"], token["n_groups"]) == (3, 1, 2)
    assert (sequence["n"], sequence["n_undefined"], sequence["n_groups"]) == (1, 1, 1)
    assert sequence["value"] == pytest.approx(np.exp(-0.3), rel=1e-6)
    spoilt = step.with_tokens(logp_current=np.full(4, nan, np.float32))
    nothing = measure(open_run(write_run(tmp_path / "spoilt", [spoilt])), level="sequence")
    line = one_line(nothing, "current/behavior", "tv")
    assert np.isnan(line["value"]) and line["note"] == "nothing without an unusable token"


def test_one_group_has_no_interval(tmp_path: Path) -> None:
    step = plain_step([-1, -2, -1], [-1.1, -1.9, -1.3], group=[4, 4, 4])
    frame = measure(open_run(write_run(tmp_path / "run", [step])))
    lines = frame[(frame["pair"] == "current/behavior") & (frame["metric"] != "khat")]
    assert lines["value"].notna().all() and lines[["low", "high"]].isna().all(axis=None)
    assert set(lines["note"]) == {"no interval: one prompt group"}


def test_an_empty_range_is_nothing_and_not_an_error(imported: Run) -> None:
    frame = measure(imported, 5, 9)
    assert tuple(frame.columns) == COLUMNS and len(frame) == len(PAIRS) * len(METRICS)
    assert frame["value"].isna().all() and set(frame["note"]) == {"no token in this range of steps"}
    assert set(frame["n"]) == {0}
    assert measure(imported, 5, 9, by_step=True).empty


def test_a_range_pools_its_steps(tmp_path: Path) -> None:
    steps = [random_step(np.random.default_rng(number), number) for number in range(4)]
    run = open_run(write_run(tmp_path / "run", steps))
    each = measure(run, by_step=True)
    pooled, pair = measure(run, 1, 2), "new/current"
    parts = [one_line(each[each["step"] == step], pair, "chi2") for step in (1, 2)]
    line = one_line(pooled, pair, "chi2")
    assert line["n"] == sum(part["n"] for part in parts) and line["n_groups"] == sum(part["n_groups"] for part in parts)
    assert line["value"] == pytest.approx(sum(part["n"] * part["value"] for part in parts) / line["n"], rel=1e-12)


def test_intervals_are_withheld_where_the_moment_cannot_be_estimated(tmp_path: Path) -> None:
    """Weights with a Pareto tail of index .5 have a mean and no variance; of index 1.5, not even a mean."""
    rng = np.random.default_rng(4)
    for index, first_moments in ((0.5, True), (1.5, False)):
        log_ratio = index * rng.exponential(size=4000)
        behavior = -np.full(4000, 40.0)
        step = plain_step(behavior, behavior + log_ratio, behavior, group=np.arange(4000) // 10)
        frame = measure(open_run(write_run(tmp_path / str(index), [step])))
        low = {
            pair: frame[frame["pair"] == pair].set_index("metric")["low"].notna()
            for pair in ("current/behavior", "new/current")
        }
        notes = frame[frame["pair"] == "current/behavior"].set_index("metric")["note"]
        for metric, moment in METRICS.items():
            shown = {Moment.BOUNDED: metric != "khat", Moment.FIRST: first_moments, Moment.SECOND: False}[moment]
            assert low["current/behavior"][metric] == shown, metric
            assert notes[metric].startswith("unreliable") != (shown or metric == "khat")
        # Where the denominator is the far policy, bounded terms carry its weight, and its tail.
        assert low["new/current"][["tv_bounded", "kl_k1", "kl_k2"]].eq(first_moments).all()


@pytest.mark.parametrize(
    ("level", "aggregation"), [("sequence", "sequence"), ("geometric", "sequence"), ("word", "token")]
)
def test_what_has_no_meaning_is_refused(imported: Run, level: Any, aggregation: Any) -> None:
    with pytest.raises(RatioscopeError, match="choose one of"):
        measure(imported, level=level, aggregation=aggregation)


@each_pair
def test_pairs_name_logged_columns_and_themselves(pair: str) -> None:
    row = PAIRS[pair]
    assert f"{row.numerator}/{row.denominator}".replace("logp_", "") == pair
    assert all(schema.TOKENS.column(name) for name in (row.numerator, row.denominator))
    assert row.title and row.tells.endswith(".")
