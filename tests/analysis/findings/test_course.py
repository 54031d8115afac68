"""What a series did, in words: rises, falls, rises and falls, and what is only noise; and a fall, decided once."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.diagnosis.collapse import reward_has_collapsed
from ratioscope.analysis.diagnosis.evidence import RunEvidence
from ratioscope.analysis.findings.course import change, course, learning, level_trend, turning_points
from ratioscope.analysis.findings.drop import drop_of
from ratioscope.analysis.findings.facts import facts_of
from ratioscope.analysis.findings.fall import fall_of, find_fall, own_noise
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.overview.sentences import overview_headline
from ratioscope.analysis.summary.intervals import of_share
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.notes import Kind, Note
from tests.making.samples import NAMES, run_of, summary_of

COLLAPSED = "sync_interval20-reinforce-lr0.0003-seed0"


def accuracy(values: list[float], every: int = 10) -> "pd.Series[float]":
    return pd.Series(values, index=every * np.arange(len(values)))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.linspace(0.2, 0.6, 12), "A rose from 0.2 (step 0) to 0.6 (step 110), each ±0.04."),
        (np.linspace(0.6, 0.2, 12), "A fell from 0.6 (step 0) to 0.2 (step 110), each ±0.04."),
        ([0.2, 0.3, 0.38, 0.3, 0.2, 0.07], "A rose from 0.2 (step 0) to 0.38 (step 20) and fell to 0.07 (step 50)"),
        ([0.38, 0.1, 0.06, 0.2, 0.3, 0.34], "A fell from 0.38 (step 0) to 0.06 (step 20) and rose to 0.34 (step 50)"),
        ([0.4, 0.2, 0.4, 0.2, 0.4, 0.2], "A goes up and down between 0.2 (step 10) and 0.4 (step 40), each ±0.04"),
        ([0.4, 0.39, 0.41, 0.4, 0.4, 0.41], "A shows no clear trend: 0.4 to 0.403 (means of the first and last 3"),
        ([0.4, 0.6], "A rose from 0.4 (step 0) to 0.6 (step 10), each ±0.04."),
        ([0.4, 0.42], "A shows no clear trend: 0.4 to 0.42."),
        ([0.4], ""),
        ([], ""),
    ],
    ids=["rise", "fall", "rise and fall", "dip", "to and fro", "flat", "two", "two alike", "one", "none"],
)  # fmt: skip
def test_a_course_is_told_as_it_is(values: list[float], said: str) -> None:
    told = change(accuracy(list(values)), "A", "evaluations", 0.04, 0.01)
    assert told.startswith(said) and bool(told) == bool(said), told


def test_noise_has_no_course() -> None:
    rng = np.random.default_rng(0)
    for n, noise in ((8, 1.96), (16, 1.96), (16, 0.0), (40, 1.96), (150, 0.0), (1000, 0.0)):
        told = [change(pd.Series(rng.standard_normal(n)), "A", "steps", noise) for _ in range(60)]
        assert sum("no clear trend" in text for text in told) >= 49, (n, noise)


def test_a_slow_rise_within_the_noise_of_single_values_is_told_by_means() -> None:
    rng = np.random.default_rng(1)
    values = np.linspace(0.40, 0.47, 16) + 0.01 * rng.standard_normal(16)
    told = change(pd.Series(values), "A", "evaluations", 0.043, 0.01)
    assert told.startswith("A rose from 0.4") and "means of the first and last 5 evaluations" in told


def test_turning_points_are_those_beyond_the_noise() -> None:
    assert turning_points([0, 5, 1, 5, 0], 3) == [0, 1, 2, 3, 4]
    assert turning_points([0, 5, 1, 5, 0], 4) == [0, 1, 4]
    assert turning_points([0, 1, 0, 1], 2) == [] == turning_points([], 1)


@pytest.mark.parametrize("name", NAMES)
def test_finding_and_headline_tell_one_course(name: str) -> None:
    """The headline said "no clear trend: 0.202 to 0.229" of a run whose finding said 0.38 → 0.07."""
    summary, limits = summary_of(name), Limits()
    fall, told = fall_of(summary, limits), learning(summary, limits)
    assert "±" in told or "means of the first and last" in told or (fall is not None and fall.noise_words)
    finding = reward_has_collapsed(RunEvidence(summary))
    if fall is None:
        assert finding is None and " fell from" not in told.replace("on the whole it fell", "")
        return
    assert finding is not None
    assert told == f"{fall.words}." and finding.sentence.startswith(told)
    assert overview_headline(facts_of(summary), [finding]) == finding.sentence


def test_the_collapsed_run_is_told_from_its_peak_to_its_end() -> None:
    said = learning(summary_of(COLLAPSED), Limits())
    assert said == "Accuracy fell 4 times, 49 → 3 → 15%."


def test_evaluation_accuracy_has_the_interval_of_its_prompts() -> None:
    summary = summary_of(COLLAPSED)
    value, low, high = (
        frame["eval_accuracy"].dropna().iloc[0] for frame in (summary.values, summary.low, summary.high)
    )
    # Wilson: the shares from which this one is 1.96 standard errors away.
    for end in (low, high):
        assert abs(value - end) == pytest.approx(1.95996 * np.sqrt(end * (1 - end) / 512), rel=1e-4)
    assert summary.low["eval_accuracy"].notna().sum() == summary.values["eval_accuracy"].notna().sum()
    low, high = of_share(np.array([0.0, 1.0, np.nan, 48.5, -1.0]), 20)
    assert low[0] == 0 < high[0] < 0.2 and 0.8 < low[1] < 1 == high[1]
    assert np.isnan([*low[2:], *high[2:]]).all()
    assert run_of(COLLAPSED).manifest.evaluation_prompts == 512


@pytest.mark.parametrize("count", [0, -3, True, "512", None, 5.5])
def test_a_number_of_prompts_that_is_none_is_not_used(count: object) -> None:
    manifest = run_of(COLLAPSED).manifest
    assert type(manifest)(name="other", task={"evaluation_prompts": count}).evaluation_prompts == 0


@pytest.mark.parametrize("way", [1, -1])
def test_a_trend_is_clear_from_three_standard_errors_on(way: int) -> None:
    """Of a third's mean against another's; against the first value, of one that is learned at once."""
    sd, third = 0.02, 4
    later, at_once = np.repeat([0.0, 1.0], [6, 6]), np.repeat([0.0, 1.0], [1, 11])
    for shape, error in ((later, sd * np.sqrt(2 / third)), (at_once, sd * np.sqrt(1 + 1 / third))):
        for errors in (2.95, 3.05):
            series = accuracy([*(0.5 + way * errors * error * shape)])
            values = pd.DataFrame({"eval_accuracy": series})
            summary = StepSummary(values, values - 1.96 * sd, values + 1.96 * sd, {}, pd.DataFrame())
            trend = level_trend(summary)
            clear = errors > 3 and (way > 0 or shape is later)
            assert trend is not None and trend.clear == (("rose" if way > 0 else "fell") if clear else "")


def test_not_logged_and_undefined_are_told_apart() -> None:
    values = pd.DataFrame({"entropy": [np.nan] * 3, "clip_fraction": [np.nan] * 3, "ess_token": [np.nan] * 3})
    notes = {
        step: {
            "clip_fraction": Note(Kind.NOT_LOGGED, "clipped is not logged"),
            "ess_token": Note(Kind.UNDEFINED, "no usable token"),
        }
        for step in range(3)
    }
    summary = StepSummary(values, values, values, notes, pd.DataFrame())
    assert course(summary, "clip_fraction", "ess_token") == (
        "Clip fraction is not logged. Effective sample size, tokens is undefined in every step."
    )


def test_first_last_and_extremes_are_told_and_a_constant_is_one() -> None:
    def said(*values: float) -> str:
        of = pd.DataFrame({"entropy": list(values)})
        return course(StepSummary(of, of, of, {}, pd.DataFrame()), "entropy")

    assert said(0.5, 0.2, 0.9, 0.4).endswith(
        ": 0.5 in step 0, 0.4 in step 3; lowest 0.2 in step 1, highest 0.9 in step 2."
    )
    assert said(0.5, 0.5, 0.5).endswith(": 0.5 in every step from 0 to 2.")
    assert said(0.5).endswith(": 0.5 in step 0.")


def test_means_of_blocks_say_of_how_many_values_they_are() -> None:
    """Of 128 values a block has eight, and five blocks of either end are compared."""
    values = np.repeat([0.40, 0.41], 64) + 0.02 * np.tile([1, -1], 64)
    told = change(pd.Series(values), "A", "steps", 0.2, 0.02)
    assert told == "A shows no clear trend: 0.4 to 0.41 (means of the first and last 40 steps).", told


# ------------------------------------------------------------------------------------------------------- a fall


def test_a_fall_is_found_where_it_begins() -> None:
    level = accuracy([0.3, 0.5, 0.49, 0.48, 0.3, 0.2, 0.22, 0.25])
    fall = find_fall(level, 0.25)
    assert fall is not None
    assert (fall.best, fall.best_step, fall.still_good, fall.found) == (0.5, 10, 10, 40)
    assert list(fall.low.index) == [40, 50, 60, 70]
    noisy = find_fall(level, 0.25, noise=0.02)
    assert noisy is not None and (noisy.best_step, noisy.still_good) == (10, 30)
    mean = find_fall(level, 0.25, window=2, noise=0.02)
    assert mean is not None and mean.still_good == 20
    assert "stayed low" in fall.words
    once = find_fall(accuracy([0.5, 0.5, 0.2, 0.2, 0.2, 0.2, 0.2, 0.5, 0.2, 0.2]), 0.25, noise=0.02)
    assert once is not None and once.words == "Training reward fell twice, 0.5 → 0.2 → 0.2"
    assert once.since == "After step 10; below 0.375 in steps 20–60, and since step 80"
    twice = find_fall(accuracy([0.5, 0.5, 0.2, 0.2, 0.4, 0.2, 0.2, 0.2, 0.2, 0.4]), 0.25, noise=0.02)
    assert twice is not None and twice.since == "After step 10; below 0.375 in steps 20–30 and 50–80"
    thrice = find_fall(accuracy([0.5, 0.5, 0.2, 0.5, 0.2, 0.5, 0.2, 0.2, 0.2, 0.2]), 0.25, noise=0.02)
    assert thrice is not None and (thrice.times, thrice.since) == (3, "Steps 20, 40 and 60")
    assert twice.times == len(twice.stretches) == 2  # a page shades as many as its headline counts
    within = find_fall(accuracy([0.5, 0.5, 0.2, 0.2, 0.4, 0.2, 0.2, 0.2, 0.2, 0.4]), 0.25, noise=0.04)
    assert within is not None and within.times == 1 and "times" not in within.words  # no more above it than noise
    assert (once.found, once.last_good, once.recovered) == (20, 70, (70,))
    assert (fall.recovered, fall.last_good, fall.since) == ((), 10, "Below 0.375 since step 40")


@pytest.mark.parametrize(
    ("values", "noise"),
    [
        ([0.3, 0.4, 0.5, 0.5, 0.5, 0.5], 0.0),
        ([0.5, 0.5, 0.2, 0.5, 0.5, 0.5], 0.0),
        ([0.5, 0.5, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.6, 0.2], 0.02),
        ([0.5, 0.5, 0.5, 0.5, 0.2, 0.2], 0.0),
        ([0.5, 0.5, 0.3, 0.3, 0.3, 0.3], 0.2),
        ([-1.0, -1.0, -1.2, -1.2, -1.2, -1.2], 0.0),
        ([], 0.0),
    ],
    ids=["rise", "dip", "came-back", "too-late-to-know", "noise", "small-fall-below-0", "empty"],
)
def test_what_is_no_fall(values: list[float], noise: float) -> None:
    assert find_fall(pd.Series(values, dtype=float), 0.25, noise=noise) is None


@pytest.mark.parametrize("length", [12, 100])
def test_evaluations_that_only_scatter_have_hardly_ever_fallen(length: int) -> None:
    """The best of many is far above the others by chance: a tenth to a quarter would be called fallen for that."""
    rng = np.random.default_rng(3)
    scatter = [pd.Series(0.2 + 0.06 * rng.standard_normal(length)) for _ in range(150)]
    falls = [find_fall(level, 0.25, noise=1.96 * own_noise(level)) for level in scatter]
    assert sum(fall is not None for fall in falls) <= 6


def test_a_fall_of_a_negative_reward_is_measured_by_its_size() -> None:
    fall = find_fall(pd.Series([-1.0, -1.0, -2.0, -2.0, -2.0]), 0.25)
    assert fall is not None and fall.best == -1.0


@pytest.mark.parametrize(
    ("name", "steady"),
    [
        ("sync_interval20-red_weight-seed0", False),
        ("sync_interval20-asymre-seed0", False),
        ("sync_interval20-grpo-seed0", True),
        ("sync_interval20-opmd-seed0", False),
        ("sync_interval20-rec_oneside_nois_0.6_2-seed0", True),
    ],
)
def test_of_a_run_whose_evaluations_swing_this_is_said(name: str, steady: bool) -> None:
    summary = summary_of(name)
    said = learning(summary, Limits())
    assert ("goes up and down" in said) is not steady


@pytest.mark.parametrize(("last", "falling"), [(0.15, True), (0.4, False)])
def test_the_reward_of_a_short_run_falls_beyond_its_noise(last: float, falling: bool) -> None:
    made = summary_of("sync_interval20-grpo-seed0").up_to(0, 11)
    level = pd.Series([*np.tile([0.48, 0.42], 3), *np.linspace(0.45, last, 6)], index=made.values.index)
    columns = {"values": level, "low": level - 0.14, "high": level + 0.14}
    summary = replace(
        made, **{name: getattr(made, name).assign(eval_accuracy=np.nan, reward=each) for name, each in columns.items()}
    )
    drop = drop_of(summary, Limits())
    assert (drop is not None) is falling and (drop is None or (drop.metric == "reward" and drop.window == 4))


@pytest.mark.parametrize(("last", "falling"), [(0.41, True), (0.79, False)])
def test_a_fall_that_one_evaluation_shows_is_a_drop(last: float, falling: bool) -> None:
    """Before a second one confirms it there is no finding, and still it fell."""
    values = [0.42, 0.43, 0.50, 0.58, 0.62, 0.60, 0.64, 0.63, 0.66, 0.80, last]
    made = summary_of("sync_interval20-grpo-seed0").up_to(0, 10)
    level = pd.Series(values, index=made.values.index)
    columns = {"values": level, "low": level - 0.043, "high": level + 0.043}
    summary = replace(made, **{name: getattr(made, name).assign(eval_accuracy=each) for name, each in columns.items()})
    assert fall_of(summary, Limits()) is None
    assert (drop_of(summary, Limits()) is not None) is falling
    said = learning(summary, Limits())
    assert ("fell to 41% (step 10)" in said) is falling
