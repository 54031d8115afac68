"""Numbers that are not log-probabilities: legitimate zeros stay, the rest is counted and shown, nothing is replaced."""

import json
from dataclasses import replace
from math import exp, inf, nan
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ratioscope import RunRecorder
from ratioscope.analysis.diagnosis import diagnose
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.metrics import COUNTS, INVALID_CAUSES
from ratioscope.analysis.summary.summary import LOGGED, StepSummary, summarise, summary_json
from ratioscope.catalogue import CATALOGUE
from ratioscope.notes import Kind
from ratioscope.run_format import schema
from tests.making.runs import Step, plain_step, random_step, write_run

INVALID = {
    "logp_behavior": (nan, inf, -inf, 0.01),
    "logp_current": (nan, inf, 0.01),
    "logp_new": (nan, inf, 0.01),
    "advantage": (nan, inf, -inf),
}
CASES = [(column, value) for column, values in INVALID.items() for value in values]


def summary_of(folder: Path, *steps: Step) -> StepSummary:
    return summarise(open_run(write_run(folder, steps)))


def strict_json(folder: Path) -> dict[str, object]:
    run = open_run(folder)
    return json.loads(json.dumps(summary_json(run, summarise(run)), allow_nan=False))


def four_tokens(**columns: object) -> Step:
    b = np.full(4, -1.0)
    return plain_step(b, b + np.array([0.0, -0.1, 0.1, 0.2]), b, sequence=[0, 0, 1, 1]).with_tokens(**columns)


def spoilt(column: str, value: float) -> Step:
    """The second of four tokens has a bad number."""
    values = four_tokens().tokens[column].astype(np.float32).copy()
    values[1] = value
    return four_tokens(**{column: values})


@pytest.fixture(scope="module")
def spoilt_steps(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """One run, one step a case."""
    steps = [replace(spoilt(column, value), number=number) for number, (column, value) in enumerate(CASES)]
    return summary_of(tmp_path_factory.mktemp("spoilt") / "run", *steps).values


each_case = pytest.mark.parametrize("case", range(len(CASES)), ids=[f"{column}={value}" for column, value in CASES])


@each_case
def test_a_bad_row_is_left_out_and_counted(spoilt_steps: pd.DataFrame, case: int) -> None:
    values = spoilt_steps.loc[case]
    assert (values["n_tokens"], values["n_invalid"], values["n_sequences"]) == (3, 1, 2)
    kept = np.exp(np.float32([-1.0, -0.9, -0.8]).astype(float) + 1)
    assert values["ratio_mean"] == pytest.approx(kept.mean(), rel=1e-9)
    assert values["s_k"] == pytest.approx(abs(kept - 1).mean() / 2, rel=1e-6)


@each_case
def test_a_bad_row_leaves_its_sequence_without_a_weight(spoilt_steps: pd.DataFrame, case: int) -> None:
    """Only the second sequence has a W: e^(0.1 + 0.2)."""
    values = spoilt_steps.loc[case]
    assert values["chi2_seq"] == pytest.approx((exp(0.3) - 1) ** 2, rel=1e-5)
    assert values["ess_seq"] == pytest.approx(1)
    assert values["n_undefined"] == 1


@each_case
def test_bad_rows_are_counted_by_cause(spoilt_steps: pd.DataFrame, case: int) -> None:
    column, value = CASES[case]
    if column == "advantage":
        cause = "advantage"
    else:
        cause = "nan" if np.isnan(value) else "infinite" if np.isinf(value) else "positive"
    found = {name: spoilt_steps.loc[case, f"n_invalid_{name}"] for name in INVALID_CAUSES}
    assert found == {name: float(name == cause) for name in INVALID_CAUSES}


def test_log_probabilities_a_rounding_error_above_zero_are_usable(tmp_path: Path) -> None:
    values = summary_of(tmp_path / "run", spoilt("logp_current", 9e-5)).values.loc[0]
    assert values["n_invalid"] == 0 and values["ratio_max"] == pytest.approx(np.exp(1), rel=1e-3)


@pytest.mark.parametrize("column", ["logp_current", "logp_new"])
def test_an_impossible_action_is_a_ratio_of_zero(tmp_path: Path, column: str) -> None:
    values = summary_of(tmp_path / "run", spoilt(column, -inf)).values.loc[0]
    assert (values["n_tokens"], values["n_invalid"]) == (4, 0)
    if column == "logp_current":
        assert values["ratio_min"] == 0
        assert values["s_k_bounded"] == pytest.approx(0.25)
        assert values["kl_k1"] == values["kl_k3"] == inf
        assert values["kl_reverse"] == pytest.approx(
            0.25 * (1 + sum((x - 1) * exp(x) + 1 for x in (0.1, 0.2))), rel=1e-5
        )
    else:
        assert values["tv_new_behavior_bounded"] == pytest.approx(0.25)
        assert np.isfinite(values["u_k"])


def test_quantiles_of_ratios_that_are_mostly_zero_are_zero(tmp_path: Path) -> None:
    b = np.full(101, -1.0)
    c = np.where(np.arange(101) < 60, -inf, -1.0)
    values = summary_of(tmp_path / "run", plain_step(b, c)).values.loc[0]
    ladder = values[["ratio_min", "ratio_p01", "ratio_p50", "ratio_p90", "ratio_p99", "ratio_max"]].tolist()
    assert ladder == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("n", [2, 3, 5, 10, 29])
def test_quantiles_between_zero_and_a_ratio_are_numbers(tmp_path: Path, n: int) -> None:
    c = np.where(np.arange(n) < n // 2, -inf, -1.0)
    summary = summary_of(tmp_path / "run", plain_step(np.full(n, -1.0), c))
    assert summary.values.loc[0, ["ratio_p01", "ratio_p50", "ratio_p90", "ratio_p99", "ratio_p999"]].isin([0, 1]).all()


@pytest.mark.parametrize(("n", "flagged"), [(999, True), (1001, False)])
def test_more_than_one_bad_row_in_a_thousand_is_flagged(tmp_path: Path, n: int, flagged: bool) -> None:
    b = np.full(n, -1.0)
    c = b.copy()
    c[5] = nan
    summary = summary_of(tmp_path / "run", plain_step(b, c))
    assert ("n_invalid" in summary.notes[0]) == flagged
    assert not flagged or summary.notes[0]["n_invalid"].text.startswith("1 of 999 rows cannot be used")


@pytest.mark.parametrize("nats", [1000.0, -1000.0, 300.0, -300.0])
def test_log_ratios_of_any_size_keep_the_log_chi_square_finite(tmp_path: Path, nats: float) -> None:
    b, c = np.full(8, -1500.0), np.full(8, -1500.0)
    c[3] += nats
    c[6] += nats / 2
    summary = summary_of(tmp_path / "run", plain_step(b, c, c, group=np.arange(8)))
    values = summary.values.loc[0]
    squares = [2 * nats, nats] if nats > 0 else [0.0, 0.0]
    assert values["log1p_chi2_seq"] == pytest.approx(np.logaddexp(0, np.logaddexp(*squares) - np.log(8)), rel=1e-9)
    assert values["ess_token"] == pytest.approx(1 / 8 if nats > 0 else 6 / 8, rel=1e-9)
    assert values["ess_seq"] == pytest.approx(values["ess_token"], rel=1e-9)
    assert values["u_k"] == 0 and 0 <= values["s_k_bounded"] <= 1
    for key in CATALOGUE:
        assert np.isfinite(values[key]) or summary.notes[0].get(key) or key in LOGGED, key
    strict_json(tmp_path / "run")


def test_an_infinite_number_is_said_to_be_infinite(tmp_path: Path) -> None:
    b, c = np.full(4, -1500.0), np.full(4, -1500.0)
    c[0] = -500.0
    summary = summary_of(tmp_path / "run", plain_step(b, c))
    for key in ("ratio_mean", "s_k", "chi2_token", "kl_k3", "kl_reverse", "ratio_max"):
        assert summary.values.loc[0, key] == inf and summary.notes[0][key].kind is Kind.INFINITE
        assert np.isnan(summary.low.loc[0, key])


def test_a_step_of_nothing_but_bad_rows_has_nulls_with_a_reason(tmp_path: Path) -> None:
    step = random_step(np.random.default_rng(0), 0)
    bad = step.with_tokens(logp_current=np.full(len(step.tokens["seq_id"]), nan))
    summary = summary_of(tmp_path / "run", bad, random_step(np.random.default_rng(1), 1))
    values = summary.values.loc[0]
    assert values["n_tokens"] == 0 and values["n_invalid"] == len(step.tokens["seq_id"])
    for key in set(CATALOGUE) - {"reward", "response_length", *LOGGED}:
        assert np.isnan(values[key]), key
        assert summary.notes[0][key], key
    assert "no usable token" in summary.notes[0]["u_k"].text
    assert np.isfinite(summary.values.loc[1, "s_k"])


def test_a_step_without_tokens_has_nulls_and_keeps_what_was_logged(tmp_path: Path) -> None:
    """Dynamic sampling may leave an update empty: that is a line of nulls, not a missing line."""
    full = random_step(np.random.default_rng(0), 0)
    none = np.zeros(0, dtype=int)
    empty = Step(
        1, full.rows(none, none).tokens, full.rows(none, none).sequences, {"policy_version": 1, "grad_norm": 9}
    )
    summary = summary_of(tmp_path / "run", full, empty, random_step(np.random.default_rng(1), 2))
    assert summary.values.index.tolist() == [0, 1, 2]
    assert summary.values.loc[1, "grad_norm"] == 9
    assert summary.values.loc[1, [key for key in CATALOGUE if key != "grad_norm"]].isna().all()
    assert (summary.values.loc[1, list(COUNTS)] == 0).all()
    assert "no token" in summary.notes[1]["s_k"].text
    assert strict_json(tmp_path / "run")["steps"][1]["s_k"] is None


def test_an_empty_run_has_an_empty_summary(tmp_path: Path) -> None:
    with RunRecorder(tmp_path / "run"):
        pass
    run = open_run(tmp_path / "run")
    summary = summarise(run)
    assert len(summary.values) == 0 and summary.last_step == -1 and run.last_step == -1
    assert set(summary.values.columns) == {*COUNTS, *CATALOGUE}
    assert len(summary.up_to(None, None).values) == 0 and not summary.trusted("s_k").any()
    assert strict_json(tmp_path / "run") == {"schema_version": schema.SCHEMA_VERSION, "run": "run", "steps": []}


@pytest.mark.parametrize(
    ("columns", "keys", "reason"),
    [
        (
            ["logp_new"],
            ["u_k", "u_k_bounded", "tv_new_behavior", "tv_new_behavior_bounded", "u_k_exact_z"],
            "logp_new is not logged",
        ),
        (["clipped", "clip_side"], [key for key in CATALOGUE if key.startswith("clip_")], "logged"),
        (["clip_side"], ["clip_fraction_low", "clip_fraction_high"], "clip_side is not logged"),
        (["gate"], ["gate_mean", "effective_token_fraction"], "gate is not logged"),
        (["entropy"], ["entropy"], "entropy is not logged"),
        (
            ["logp_behavior_train"],
            ["s_k_version_bounded", "s_k_engine_bounded", "s_k_version", "s_k_engine"],
            "logp_behavior_train is not logged",
        ),
        (["logp_reference"], ["kl_to_reference"], "logp_reference is not logged"),
        (["logp_teacher"], ["kl_to_teacher"], "logp_teacher is not logged"),
        (
            ["tv_current_behavior"],
            ["s_k_exact", "delta_max", "s_k_exact_z"],
            "not estimable from samples",
        ),
        (["chi2_current_behavior"], ["chi2_token_exact"], "not estimable from samples"),
        (["tv_new_current"], ["u_k_exact", "u_k_exact_z"], "exact per-state columns are not logged"),
    ],
)
def test_what_was_not_logged_is_null_and_says_so(
    tmp_path: Path, columns: list[str], keys: list[str], reason: str
) -> None:
    step = random_step(np.random.default_rng(0)).with_tokens(**dict.fromkeys(columns))
    summary = summary_of(tmp_path / "run", step)
    for key in CATALOGUE:
        if key in keys:
            assert np.isnan(summary.values.loc[0, key]) and reason in summary.notes[0][key].text, key
    others = [key for key in CATALOGUE if key not in keys and not key.startswith("khat")]
    logged = [key for key in others if key not in ("kl_to_initial",)]
    assert summary.values.loc[0, logged].notna().all()
    written = strict_json(tmp_path / "run")["steps"][0]
    assert all(written[key] is None and reason in written["notes"][key] for key in keys)


def test_either_clip_column_alone_gives_the_clip_fraction(tmp_path: Path) -> None:
    step = random_step(np.random.default_rng(0))
    expected = step.tokens["clipped"].mean()
    for name in ("clipped", "clip_side"):
        summary = summary_of(tmp_path / name, step.with_tokens(**{name: None}))
        assert summary.values.loc[0, "clip_fraction"] == pytest.approx(expected)


def test_trusted_values_are_those_without_a_note(tmp_path: Path) -> None:
    summary = summary_of(tmp_path / "run", spoilt("logp_current", -inf))
    assert summary.trusted("s_k_bounded").tolist() == [True]
    assert summary.trusted("kl_k1").tolist() == [False]
    assert summary.trusted("kl_to_initial").tolist() == [False]


@pytest.mark.parametrize("unusable", [[1], [2], [0, 1, 2]])
def test_steps_without_one_usable_token_are_summarised_and_diagnosed(tmp_path: Path, unusable: list[int]) -> None:
    rng = np.random.default_rng(0)
    steps = [random_step(rng, number) for number in range(3)]
    steps = [
        step.with_tokens(logp_behavior=np.full_like(step.tokens["logp_behavior"], nan))
        if step.number in unusable
        else step
        for step in steps
    ]
    write_run(tmp_path / "run", steps, flush_seconds=0)
    run = open_run(tmp_path / "run")
    summary = summarise(run)
    assert summary.values["s_k"].isna().tolist() == [step in unusable for step in range(3)]
    diagnose(summary, run)
