"""What changed before a fall: sustained changes are found and dated, and noise, trends and spikes are not blamed."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.diagnosis import diagnose
from ratioscope.analysis.diagnosis.collapse import reward_has_collapsed
from ratioscope.analysis.diagnosis.evidence import RunEvidence
from ratioscope.analysis.findings.change_points import FAMILY, LEAST, find_shift, significant
from ratioscope.analysis.findings.finding import Finding, Severity
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.findings.watched import WATCHED_METRICS, WatchedCourse, moved_along
from ratioscope.analysis.overview.verdict import run_verdict
from ratioscope.analysis.summary.metrics import COUNTS
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE

Series = np.ndarray[Any, Any]
STEPS, FALL = 120, 90
LEVEL = {"u_k": 0.01, "s_k_bounded": 0.05, "khat_token": 0.3, "ess_token": 0.9, "clip_fraction": 0.1, "grad_norm": 1.0,
         "kl_to_initial": 0.2, "entropy": 1.0}  # fmt: skip


def noise(rng: np.random.Generator, n: int, persistence: float) -> Series:
    """An AR(1) of variance 1."""
    made = rng.standard_normal(n + 50)
    for step in range(1, n + 50):
        made[step] = persistence * made[step - 1] + np.sqrt(1 - persistence**2) * made[step]
    return made[50:]


def collapsed(changed: dict[str, Series], seed: int = 0) -> Finding:
    """A run that falls between steps 80 and 90, its metrics noise of 2 % but for some, as multiples of their levels."""
    rng = np.random.default_rng(seed)
    steps = np.arange(STEPS)
    values = pd.DataFrame(np.nan, index=pd.Index(steps, name="step"), columns=[*COUNTS, *CATALOGUE])
    for key, level in LEVEL.items():
        values[key] = level * changed.get(key, np.ones(STEPS)) * (1 + 0.02 * rng.standard_normal(STEPS))
    values["eval_accuracy"] = np.where(steps % 10 == 0, np.where(steps < FALL, 0.5, 0.2), np.nan)
    values["version_lag"] = steps % 4
    summary = StepSummary(values, values - 1e-3, values + 1e-3, {}, pd.DataFrame())
    finding = reward_has_collapsed(RunEvidence(summary))
    assert finding is not None
    return finding


def from_step(step: int, factor: float) -> Series:
    return np.where(np.arange(STEPS) < step, 1.0, factor)


def test_what_changed_before_a_fall_is_named_with_its_date() -> None:
    finding = collapsed({"grad_norm": from_step(50, 3.0), "ess_token": from_step(65, 0.5)})
    assert finding.severity is Severity.CRITICAL
    assert "Gradient norm rose from 1" in finding.sentence and finding.sentence.endswith("in step 50, before it.")
    assert "ESS of tokens fell from 89.7% to 45.4%" in finding.why and "in step 65" in finding.why
    assert "gradient norm" in finding.do and "ESS" not in finding.do and "does not show" not in finding.do


def test_changes_at_the_same_time_have_no_order() -> None:
    finding = collapsed({"grad_norm": from_step(50, 3.0), "u_k": from_step(50, 3.0)})
    assert "their order is unknown" in finding.sure
    assert "gradient norm" in finding.do and "update drift" in finding.do
    with_the_fall = collapsed({"grad_norm": from_step(84, 3.0)})
    assert "radient norm changed at about the same time; which came first is unknown" in with_the_fall.sure
    assert "causes or consequences" in with_the_fall.why and "evaluate more often" in with_the_fall.do


@pytest.mark.parametrize(
    ("key", "course"),
    [
        ("grad_norm", from_step(90, 3.0)),
        ("grad_norm", np.where(np.arange(STEPS) == 60, 9.0, 1.0)),
        ("grad_norm", np.where(np.abs(np.arange(STEPS) - 60) < 2, 3.0, 1.0)),
        ("grad_norm", from_step(50, 0.3)),
        ("ess_token", from_step(50, 1.1)),
        ("entropy", np.linspace(1, 0.5, STEPS)),
        ("u_k", 1 + 4 * (1 - np.exp(-np.arange(STEPS) / 40))),
        ("s_k_bounded", 1 + np.arange(STEPS) % 4),
    ],
    ids=["with it", "spike", "bump", "fell", "rose", "steady trend", "learning", "sync"],
)
def test_what_is_no_change_before_a_fall_is_not_blamed(key: str, course: Series) -> None:
    finding = collapsed({key: course})
    assert "o other metric shows a sustained change before it" in finding.sure or (
        key == "grad_norm" and "which came first is unknown" in finding.sure
    )
    assert CATALOGUE[key].label not in finding.do or "order" in finding.do


def test_too_few_steps_blame_nothing() -> None:
    rng = np.random.default_rng(0)
    short = pd.Series(np.where(np.arange(LEAST - 1) < 15, 1.0, 9.0) + 0.01 * rng.standard_normal(LEAST - 1))
    assert find_shift(short, 1) is None
    assert find_shift(pd.Series(np.ones(100)), 1) is None
    assert find_shift(pd.Series(dtype=float), 1) is None


def test_of_few_steps_only_what_went_clearly_one_way_is_told() -> None:
    steps, wobble = np.arange(18), np.where(np.arange(18) % 2, 1.1, 0.9)
    made = {
        "kl_to_reference": np.r_[0.0, 1e-4 * 2.0 ** steps[1:]],  # begins at 0, as a distance to the start does
        "kl_to_initial": np.r_[0.0, 1e-4 * 2.0 ** steps[1:]],  # the same distance
        "update": 0.01 * wobble, "grad_norm": np.where(steps % 6 < 3, 1.0, 5.0),
        "ess_token": np.where(steps < 9, 0.3, 0.9),  # for the better
        "entropy": np.where(steps < 9, 1.0, 0.3) * wobble,
    }  # fmt: skip
    directions = {"entropy": 0, "ess_token": -1}
    courses = {
        key: WatchedCourse(key, pd.Series(values, index=steps), directions.get(key, 1), share=False)
        for key, values in made.items()
    }
    assert list(moved_along(courses, 0, 17)) == ["kl_to_reference", "entropy"]
    assert moved_along(courses, 0, 17)["entropy"].startswith("entropy fell from 1 to 0.3")
    assert not moved_along(courses, 0, 7)


RUNS, SERIES = 60, len(WATCHED_METRICS)


@pytest.mark.parametrize("persistence", [0.0, 0.8])
@pytest.mark.parametrize("learns", [False, True])
def test_noise_is_blamed_in_one_run_of_fifty_at_most(persistence: float, learns: bool) -> None:
    """Of all series of a run together; the bound is the 99.9 % quantile of a binomial with that chance."""
    rng = np.random.default_rng(3)
    common = 4 * (1 - np.exp(-3 * np.arange(FALL) / FALL)) if learns else np.zeros(FALL)
    blamed = 0
    for _ in range(RUNS):
        found = {}
        for place, direction in enumerate(WATCHED_METRICS.values()):
            shift = find_shift(pd.Series(noise(rng, FALL, persistence) + common * (direction or -1)), direction)
            assert shift is not None
            found[str(place)] = shift
        blamed += bool(significant(found))
    assert blamed <= 5, blamed


@pytest.mark.parametrize(("persistence", "sd", "least"), [(0.0, 3, 0.9), (0.5, 6, 0.9), (0.8, 6, 0.9)])
def test_a_true_change_is_found_and_dated(persistence: float, sd: float, least: float) -> None:
    rng = np.random.default_rng(4)
    found, dated = 0, 0
    for _ in range(RUNS):
        values = noise(rng, STEPS, persistence)
        values[70:] += sd
        shift = find_shift(pd.Series(values), 1)
        assert shift is not None
        if shift.p <= FAMILY / SERIES:
            found, dated = found + 1, dated + (shift.first <= 70 <= shift.last)
    assert found >= least * RUNS and dated >= 0.93 * found, (found, dated)


def test_a_long_and_a_sparse_series_are_dated_by_their_steps() -> None:
    rng = np.random.default_rng(5)
    long = pd.Series(rng.standard_normal(1500))
    long[900:] += 6
    shift = find_shift(long, 1)
    assert shift is not None and shift.first <= 900 <= shift.last and shift.last - shift.first < 20
    sparse = pd.Series(np.where(np.arange(60) < 40, 0.0, 9.0) + rng.standard_normal(60), index=np.arange(60) * 10)
    shift = find_shift(sparse, 1)
    assert shift is not None and shift.first == 391 and shift.last == 400


def test_without_evaluations_the_training_reward_is_judged() -> None:
    steps = np.arange(STEPS)
    values = pd.DataFrame(np.nan, index=pd.Index(steps, name="step"), columns=[*COUNTS, *CATALOGUE])
    values["reward"] = np.where(steps < 30, 0.5, 0.2)
    for width, found in ((1e-3, True), (1.0, False)):
        finding = reward_has_collapsed(
            RunEvidence(StepSummary(values, values - width, values + width, {}, pd.DataFrame()))
        )
        assert (finding is not None) is found and (finding is None or finding.metric == "reward")


def summary_of(**series: Any) -> StepSummary:
    values = pd.DataFrame(np.nan, index=pd.Index(range(STEPS), name="step"), columns=[*COUNTS, *CATALOGUE])
    values = values.assign(**series)
    return StepSummary(values, values - 1e-3, values + 1e-3, {}, pd.DataFrame())


FALLEN = np.where(np.arange(STEPS) < 80, 0.5, 0.2)


@pytest.mark.parametrize(("since", "likely"), [(0, False), (40, False), (78, True)])
def test_only_what_begins_after_the_best_level_is_a_cause(since: int, likely: bool) -> None:
    """Truncation from step 0 on was "likely" behind a fall at step 50; `diagnose` named another cause than Overview."""
    rising = np.where(np.arange(STEPS) < 60, np.linspace(0.1, 0.49, STEPS), FALLEN)
    below = np.arange(STEPS) >= since
    summary = summary_of(
        eval_accuracy=rising, reward=FALLEN, n_tokens=100.0, n_ratios=100.0, version_lag=0.0,
        ratio_mean=np.where(below, 0.9, 1.0), ratio_mean_z=np.where(below, -9.0, 0.0),
    )  # fmt: skip
    findings = diagnose(summary)
    rules = {finding.rule: finding for finding in findings}
    fall = rules["reward_collapse"]
    found = run_verdict(summary, findings, [], Limits())
    assert fall.why.startswith("Likely") is (likely and "truncated_support" in rules)
    assert dict(found.pairs)["Why?"] in fall.why
    assert found.cause is None or found.cause.metric == fall.cause
    if since <= 40:
        assert "truncated_support" in rules and "truncated" in fall.why.split("Also, but there before")[1]


def test_a_lost_training_reward_is_told_beside_an_evaluation_that_holds() -> None:
    """A reward of 0 for 50 steps was not mentioned where evaluations were logged."""
    finding = next(
        one
        for one in diagnose(
            summary_of(eval_accuracy=0.5, reward=np.where(np.arange(STEPS) < 80, 0.5, 0.0), n_tokens=9.0)
        )
        if one.rule == "reward_collapse"
    )
    assert finding.metric == "reward" and finding.severity is Severity.WARNING
    assert "valuation accuracy shows no such fall" in finding.sure
    assert all(one.rule != "reward_collapse" for one in diagnose(summary_of(eval_accuracy=0.5, reward=FALLEN + 0.1)))


def test_a_log_of_responses_alone_is_judged_by_its_rewards() -> None:
    """It was "nothing to judge", critical, beside a collapse that was found."""
    assert [one.rule for one in diagnose(summary_of(reward=FALLEN, n_tokens=0.0, n_invalid=0.0))] == ["reward_collapse"]
    assert not diagnose(summary_of(reward=0.5, n_tokens=0.0, n_invalid=0.0))
    assert [one.rule for one in diagnose(summary_of(n_tokens=0.0, n_invalid=0.0))] == ["nothing_to_judge"]
