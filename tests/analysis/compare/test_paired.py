"""A minus B: along the axis and at the end; is A better than B, and which is best."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ratioscope.analysis.compare.aggregates import welch_interval
from ratioscope.analysis.compare.alignment import align, common_end, ends
from ratioscope.analysis.compare.contrast import (
    difference_over,
    difference_over_runs,
    probability_of_improvement,
    seeds_needed,
)
from ratioscope.analysis.compare.grouping import Member, Setting, grouped_settings
from ratioscope.analysis.compare.possible import possible
from ratioscope.analysis.compare.prompts import pairs_by_seed, prompt_difference
from ratioscope.analysis.compare.sentences import improvement, in_these_runs, with_other_seeds
from ratioscope.analysis.compare.standing import Contrast, standing
from ratioscope.analysis.runs.store import open_run
from ratioscope.errors import RatioscopeError
from tests.making.members import member, setting
from tests.making.runs import random_step, write_run
from tests.making.samples import run_of, summary_of

NAN = float("nan")
TASK = {"name": "addition", "evaluation_prompts": 512}


def numbers(*values: float, first: int = 0) -> "pd.Series[float]":
    return pd.Series(values, index=[f"seed {first + place}" for place in range(len(values))])


def minus(a: Setting, b: Setting, metric: str = "eval_accuracy") -> Contrast:
    return standing([a, b], metric).contrast(0, 1)


# Alignment --------------------------------------------------------------------------------------------------------


def test_by_step_every_value_stands_at_its_step() -> None:
    runs = [member({0: 1.0, 10: NAN, 20: 3.0}, 0), member({0: 5.0, 10: 6.0, 30: 7.0}, 1)]
    frame = align(runs, "eval_accuracy").frame
    assert frame.index.tolist() == [0, 10, 20, 30]
    assert frame["grpo-seed0"].tolist() == pytest.approx([1, NAN, 3, NAN], nan_ok=True)
    assert frame["grpo-seed1"].tolist() == pytest.approx([5, 6, NAN, 7], nan_ok=True)


def test_by_tokens_a_run_is_interpolated_between_its_values_and_nowhere_else() -> None:
    slow, fast = member([1.0, 2.0, 3.0, 4.0], 0, tokens=100), member([1.0, 2.0], 1, tokens=300)
    frame = align([slow, fast], "eval_accuracy", by="tokens").frame
    grid = np.linspace(100, 600, 4)
    assert frame.index.to_numpy() == pytest.approx(grid)
    assert frame["grpo-seed0"].to_numpy() == pytest.approx([1, grid[1] / 100, NAN, NAN], nan_ok=True)
    assert frame["grpo-seed1"].to_numpy() == pytest.approx([NAN, NAN, grid[2] / 300, 2], nan_ok=True)


def test_by_time_seconds_count_from_the_first_update() -> None:
    late = member([0.0, 1.0, 2.0], 0, seconds=[50, 60, 80])
    frame = align([late], "eval_accuracy", by="time").frame
    assert frame.index.tolist() == [0, 15, 30]
    assert frame["grpo-seed0"].to_numpy() == pytest.approx([0, 1.25, 2])


@pytest.mark.parametrize(
    ("run", "by", "reason"),
    [
        (member([1.0, 2.0]), "time", "logs no wall time"),
        (member([1.0, 2.0], seconds=[5, 3]), "time", "runs backwards"),
        (member([1.0, 2.0], tokens=0), "tokens", "no tokens are on disk"),
    ],
)
def test_a_run_without_the_axis_says_so(run: Member, by: str, reason: str) -> None:
    good = member([1.0, 2.0], 1, seconds=[0, 1])
    aligned = align([run, good], "eval_accuracy", by=by)  # type: ignore[arg-type]
    assert list(aligned.frame) == [good.run_id]
    assert reason in aligned.absent[run.run_id]
    with pytest.raises(RatioscopeError, match=reason):
        common_end(grouped_settings([run, good]), "eval_accuracy", by)  # type: ignore[arg-type]


def test_infinities_and_missing_values_survive_the_alignment() -> None:
    runs = [member([1.0, np.inf, 2.0, 2.0], 0), member([NAN] * 4, 1)]
    frame = align(runs, "eval_accuracy", by="tokens").frame
    assert frame["grpo-seed0"].to_numpy() == pytest.approx([1, np.inf, 2, 2])
    assert frame["grpo-seed1"].isna().all()
    assert not len(align(runs[1:], "eval_accuracy", by="tokens").frame)


def test_the_end_is_that_of_the_shortest_run() -> None:
    a = Setting("a", "a", "s", (member(np.arange(20.0).tolist(), 0), member(np.arange(12.0).tolist(), 1)))
    end = common_end([a], "eval_accuracy")
    assert end.until == 11
    assert ends(a, "eval_accuracy", end).to_dict() == {"seed 0": 9.5, "seed 1": 9.5}
    b = Setting("b", "b", "s", (member(np.arange(20.0).tolist(), 0, tokens=50),))
    end = common_end([a, b], "eval_accuracy", "tokens")
    assert end.until == 1_000
    assert ends(a, "eval_accuracy", end)["seed 0"] == pytest.approx(np.mean([7, 7.5, 8, 8.5, 9]))
    assert ends(b, "eval_accuracy", end)["seed 0"] == pytest.approx(17)


def test_two_runs_of_one_seed_are_one_repetition() -> None:
    runs = (member([1.0] * 5, 0, name="x"), member([2.0] * 5, 0, name="y"), member([4.0] * 5, None, name="z"))
    a = Setting("a", "a", "s", runs)
    assert ends(a, "eval_accuracy", common_end([a], "eval_accuracy")).to_dict() == {"run z": 4.0, "seed 0": 1.5}


# Differences ------------------------------------------------------------------------------------------------------


def test_shared_seeds_are_compared_seed_by_seed() -> None:
    a, b = numbers(0.5, 0.7, 0.9), numbers(0.4, 0.65, 0.7, 0.1)
    found = difference_over_runs(a, b)
    expected = stats.ttest_rel(a, b.iloc[:3]).confidence_interval(0.95)
    assert found.paired
    assert found.seeds == (3, 3)
    assert (found.value, *found.interval) == pytest.approx((0.35 / 3, expected.low, expected.high))
    assert found.wins == (3, 0, 3)
    assert np.isnan(found.probability[0])  # of three seeds it would read as certainty
    assert found.p_value == pytest.approx(stats.ttest_rel(a, b.iloc[:3]).pvalue)


def test_other_seeds_are_independent_samples() -> None:
    a, b = numbers(0.5, 0.7, 0.9), numbers(0.4, 0.65, 0.7, 0.1, first=2)
    found = difference_over_runs(a, b)
    expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert not found.paired
    assert found.seeds == (3, 4)
    assert (found.value, *found.interval) == pytest.approx((a.mean() - b.mean(), expected.low, expected.high))
    assert found.wins == (9, 2, 12)
    assert found.p_value == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue)


@pytest.mark.parametrize("first", [0, 3, 100])
@pytest.mark.parametrize("seeds", [1, 2, 5, 9])
def test_everything_is_antisymmetric(first: int, seeds: int) -> None:
    rng = np.random.default_rng(seeds)
    a, b = numbers(*rng.normal(0.2, 1, seeds)), numbers(*rng.normal(0, 1, seeds + 1), first=first)
    one, other = difference_over_runs(a, b), difference_over_runs(b, a)
    assert one.value == -other.value
    assert np.isnan(one.probability[0]) == (min(one.seeds) < 4)
    assert one.probability[0] + other.probability[0] == pytest.approx(NAN if min(one.seeds) < 4 else 1, nan_ok=True)
    assert one.wins == (other.wins[1], other.wins[0], other.wins[2])
    assert one.p_value == pytest.approx(other.p_value, nan_ok=True)
    assert tuple(one.interval) == pytest.approx((-other.interval.high, -other.interval.low), nan_ok=True)
    mine, theirs = one.probability[1], other.probability[1]
    assert tuple(mine) == pytest.approx((1 - theirs.high, 1 - theirs.low), nan_ok=True)
    assert one.seeds_needed == other.seeds_needed
    shuffled = difference_over_runs(a.sample(frac=1, random_state=1), b.sample(frac=1, random_state=2))
    assert repr(shuffled) == repr(one)


def test_the_difference_along_the_axis_is_scipys_at_every_step() -> None:
    rng = np.random.default_rng(0)
    curves = rng.normal(size=(2, 3, 6))
    curves[0, 1, 3] = NAN

    def made(name: str, part: np.ndarray, first: int = 0) -> Setting:
        members = [member(c.tolist(), first + s, algorithm=name, metric="kl_k1") for s, c in enumerate(part)]
        return Setting(name, name, "s", tuple(members))

    a, b = made("a", curves[0]), made("b", curves[1])
    table = difference_over(a, b, "kl_k1")
    assert table["seeds"].tolist() == [3, 3, 3, 2, 3, 3]
    for step in table.index:
        x, y = curves[:, ~np.isnan(curves[0, :, step]), step]
        expected = stats.ttest_rel(x, y).confidence_interval(0.95)
        assert table.loc[step, ["difference", "low", "high"]].tolist() == pytest.approx([(x - y).mean(), *expected])
    apart = made("b", curves[1], 7)
    table = difference_over(a, apart, "kl_k1")
    expected = stats.ttest_ind(*curves[:, :, 0], equal_var=False).confidence_interval(0.95)
    assert table.loc[0, ["low", "high"]].tolist() == pytest.approx(list(expected))
    mirrored = difference_over(apart, a, "kl_k1")
    assert mirrored["low"].to_numpy() == pytest.approx(-table["high"].to_numpy())


def test_probability_of_improvement_by_hand() -> None:
    x, y = np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0, 0.0])
    assert probability_of_improvement(x, y)[0] == pytest.approx((1 + 2 + 3) / 9)
    assert probability_of_improvement(x, y)[0] == pytest.approx(stats.mannwhitneyu(x, y).statistic / 9)
    assert np.isnan(probability_of_improvement(x, y)[1]).all()
    value, interval = probability_of_improvement(x, y[:0])
    assert np.isnan([value, *interval]).all()


def test_the_probability_of_improvement_has_a_bootstrap_interval() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(0.5, 1, 6), rng.normal(0, 1, 5)
    value, interval = probability_of_improvement(x, y)
    drawn = [(rng.choice(x, len(x))[:, None] > rng.choice(y, len(y))).mean() for _ in range(4_000)]
    assert tuple(interval) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=0.03)
    assert interval.low < value < interval.high


@pytest.mark.parametrize("paired", [True, False])
def test_with_the_seeds_that_are_needed_the_difference_is_found_four_times_in_five(paired: bool) -> None:
    rng = np.random.default_rng(0)
    x, y = stats.norm.ppf((np.arange(9) + 0.5) / 9), np.zeros(9)
    x = x / x.std(ddof=1) + 0.7
    y = y if paired else (x - 0.7)[::-1]
    needed = seeds_needed(x, y, paired=paired)
    assert needed is not None and needed.high is not None
    n = needed.about
    assert needed.low < n < needed.high
    assert seeds_needed(x[:3], y[:3], paired=paired) is None
    a = rng.normal(0.7, 1, (4_000, n))
    test = stats.ttest_1samp(a, 0, axis=1) if paired else stats.ttest_ind(a, rng.normal(0, 1, (4_000, n)), axis=1)
    assert 0.77 < (test.pvalue < 0.05).mean() < 0.86


def test_the_intervals_cover_the_true_difference() -> None:
    rng = np.random.default_rng(1)
    _, low, high = welch_interval(rng.normal(1, 1, (5_000, 5)), rng.normal(0, 3, (5_000, 4)))
    assert 0.93 < ((low < 1) & (high > 1)).mean() < 0.97


# The verdict ------------------------------------------------------------------------------------------------------


def test_what_these_runs_say_and_what_other_seeds_would_are_two_answers() -> None:
    a, b = (setting(name, ends, task=TASK) for name, ends in (("a", [0.50, 0.52, 0.51]), ("b", [0.40, 0.41, 0.41])))
    low, high = stats.ttest_rel([0.50, 0.52, 0.51], [0.40, 0.41, 0.41]).confidence_interval(0.95)
    for contrast in (minus(a, b), minus(b, a)):
        here, other = in_these_runs(contrast), with_other_seeds(contrast)
        assert here.startswith("a ends better than b in these runs: 51% against 40.7%, 10.3 points [")
        assert "(noise of 512 evaluation prompts)" in here
        found = f"a is ahead in 3 of 3 pairs of seeds, by 10.3 points [{100 * low:.1f}, {100 * high:.1f}]"
        assert other == f"With other seeds: {found}"
        assert (contrast.differs_here, contrast.differs_over_seeds) == (True, True)


def test_one_seed_of_each_says_whether_the_runs_differ_and_nothing_of_other_seeds() -> None:
    one, other = (setting(name, [end], task=TASK) for name, end in (("a", 0.47), ("b", 0.23)))
    contrast = minus(one, other)
    assert (contrast.differs_over_seeds, contrast.differs_here) == (None, True)
    assert with_other_seeds(contrast).startswith("Whether other seeds would repeat it is undecided: there is one seed")
    alike = in_these_runs(minus(one, setting("b", [0.46], task=TASK)))
    assert alike.startswith("Of a and b neither is worse in these runs: 47% against 46%, 1.0 points [")
    silent = minus(one, setting("b", [0.23]))
    assert silent.differs_here is None
    assert "which is worse is undecided: b-seed0 does not say on how many prompts it evaluates" in in_these_runs(silent)


def test_from_four_seeds_on_there_is_a_probability_with_its_interval() -> None:
    a, b = setting("a", [0.5, 0.6, 0.4, 0.55]), setting("b", [0.3, 0.45, 0.35, 0.4])
    contrast = minus(a, b)
    chance, (low, high) = contrast.over_seeds.probability
    assert low < chance < high
    assert f"probability of ending better {chance:.2f} [" in with_other_seeds(contrast)
    assert with_other_seeds(minus(b, a)) == with_other_seeds(contrast)


def test_of_a_metric_that_should_be_low_the_lower_is_better() -> None:
    a, b = setting("a", [0.2, 0.21], metric="s_k"), setting("b", [0.4, 0.42], metric="s_k")
    contrast = minus(a, b, "s_k")
    assert contrast.over_seeds.value < 0
    assert with_other_seeds(contrast).startswith("With other seeds: a is ahead in 2 of 2 pairs of seeds, by 0.205 [")
    more = [setting(name, ends, metric="s_k") for name, ends in (("a", [0.2, 0.21, 0.22, 0.2]), ("b", [0.4] * 4))]
    assert improvement(minus(*more, "s_k"))[0] == 1
    entropy = minus(setting("a", [1, 1.2], metric="entropy"), setting("b", [9, 9.1], metric="entropy"), "entropy")
    assert with_other_seeds(entropy).startswith("With other seeds: b is ahead in 2 of 2 pairs of seeds, by 7.95 [")


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ([0.5, 0.6, 0.4], [0.5, 0.5, 0.3], "3 seeds leave that interval; run more of each"),
        ([0.5, 0.6, 0.4, 0.5], [0.5, 0.5, 0.3, 0.6], "a difference of this size needs about "),
        ([0.5, 0.6, 0.4, 0.3], [0.6, 0.4, 0.5000001, 0.3], "more than 1,000 seeds"),
        ([0.5], [0.4], "there is one seed of each; run at least 3"),
        ([0.5, 0.6], {7: 0.4}, "one of them has a single seed"),
        ([0.5, 0.75], [0.25, 0.5], "every seed gives the same"),
        ([NAN, NAN], [0.25, 0.5], "a has no value of eval_accuracy"),
        ([np.inf, 0.5], [0.25, 0.5], "not finite"),
        ([np.inf, np.inf], [np.inf, np.inf], "not finite"),
    ],
)
def test_what_seeds_cannot_tell_says_why(a: list[float], b: list[float], reason: str) -> None:
    contrast = minus(setting("a", a), setting("b", b))
    assert not contrast.differs_over_seeds
    said = with_other_seeds(contrast)
    assert reason in said and "nan" not in said + in_these_runs(contrast)
    assert ("ahead in" in said) == (min(contrast.over_seeds.seeds) > 1 and "finite" not in reason)


@pytest.mark.parametrize(
    ("metric", "words"),
    [("eval_acuracy", "did you mean eval_accuracy"), ("foo", "'foo' is not a metric"), ("surrogate", "no series over")],
)
def test_a_metric_that_is_none_is_a_sentence_everywhere(metric: str, words: str) -> None:
    a, b = setting("a", [0.5, 0.6]), setting("b", [0.1, 0.3])
    for ask in (
        lambda: standing([a, b], metric),
        lambda: align(a.members, metric, "tokens"),
        lambda: difference_over(a, b, metric),
    ):
        with pytest.raises(RatioscopeError, match=words):
            ask()


def test_settings_under_other_schedules_are_named_in_full() -> None:
    a, b = setting("a", [0.5, 0.6]), replace(setting("b", [0.1, 0.3]), schedule="offline")
    assert minus(a, b).names == ("a, on-policy", "b, offline")


# Rankings ---------------------------------------------------------------------------------------------------------


def test_the_ranking_is_best_first_with_its_intervals() -> None:
    groups = [setting("a", [0.1, 0.2, 0.3]), setting("b", [0.7, 0.8, 0.9, 0.85]), setting("c", [0.95])]
    rows = standing(groups, "eval_accuracy").rows
    assert [row.name for row in rows] == ["c", "b", "a"]
    assert [row.place for row in rows] == [2, 1, 0]
    values = [0.7, 0.8, 0.9, 0.85]
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert (rows[1].value, *rows[1].over_seeds) == pytest.approx((np.mean(values), low, high))
    assert rows[1].middle[0] == pytest.approx(stats.trim_mean(values, 0.25))
    assert np.isnan(rows[0].over_seeds).all()


# Sample runs ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sample_settings() -> list[Setting]:
    names = [
        f"sync_interval20-{name}-seed{seed}" for name in ("grpo", "rec_oneside_is", "reinforce") for seed in (0, 1)
    ]
    return grouped_settings(Member(name, run_of(name), summary_of(name)) for name in names)


def test_the_sample_runs_tell_collapse_from_learning(sample_settings: list[Setting]) -> None:
    grpo, is_, reinforce = sample_settings
    found = minus(grpo, reinforce).over_seeds
    assert found.paired
    values = [
        [m.summary.values["eval_accuracy"].dropna().iloc[-5:].mean() for m in s.members] for s in (grpo, reinforce)
    ]
    expected = stats.ttest_rel(*values).confidence_interval(0.95)
    assert tuple(found.interval) == pytest.approx((expected.low, expected.high)) and found.interval.low > 0
    assert not minus(grpo, is_).differs_over_seeds
    assert standing(sample_settings, "eval_accuracy").rows[-1].place == 2
    backwards = [replace(s, members=s.members[::-1]) for s in (grpo, reinforce)]
    assert repr(minus(*backwards)) == repr(minus(grpo, reinforce))


@pytest.mark.parametrize("by", ["step", "tokens", "time"])
def test_the_sample_runs_can_be_brought_in_line_by_every_axis(sample_settings: list[Setting], by: str) -> None:
    grpo, _, reinforce = sample_settings
    table = difference_over(grpo, reinforce, "eval_accuracy", by)  # type: ignore[arg-type]
    assert len(table) >= 10
    assert table["difference"].iloc[-1] > 0.1
    contrast = standing([grpo, reinforce], "eval_accuracy", by).contrast(0, 1)  # type: ignore[arg-type]
    assert contrast.over_seeds.value > 0.1


def test_runs_of_one_seed_saw_the_same_prompts(sample_settings: list[Setting]) -> None:
    grpo, is_, reinforce = sample_settings
    found = prompt_difference(pairs_by_seed(grpo, is_))
    assert found.pairs == 3_600
    assert found.interval.low < found.value < found.interval.high
    assert prompt_difference(pairs_by_seed(grpo, reinforce), first=100).interval.low > 0


def test_no_interval_over_seeds_reaches_beyond_what_is_possible(tmp_path: Path) -> None:
    """Accuracies of 60 and 96 % had one of -151 to 307 %; a total variation is 1 at most."""
    ends = {"eval_accuracy": (0.0, 1.0), "u_k": (0.0, 1.0), "grad_norm": (0.0, np.inf)}
    for metric, (lowest, highest) in ends.items():
        a, b = (setting(name, [low, 0.96], metric=metric) for name, low in (("a", 0.6), ("b", 0.1)))
        low, high = zip(*(row.over_seeds for row in standing([a, b], metric).rows), strict=True)
        assert (min(low), max(high)) == pytest.approx((lowest, min(highest, max(high))))
        found, along = minus(a, b, metric).over_seeds, difference_over(a, b, metric)
        most = highest - lowest
        assert -most <= found.interval.low < 0 < found.interval.high <= most
        assert along["low"].min() >= -most and along["high"].max() <= most
        if np.isfinite(most):
            assert found.interval == (-most, most)
    rewarded = write_run(tmp_path / "run", [random_step(np.random.default_rng(0), 0)])
    rewards = open_run(rewarded).read("sequences")["reward"]
    c = setting("c", [0.6, 0.9], metric="reward")
    c = replace(c, members=tuple(replace(each, run=open_run(rewarded)) for each in c.members))
    assert possible("reward", [c], np.array([0.6, 0.9])) == (min(*rewards, 0.6), max(*rewards, 0.9))
    assert possible("u_k", [c], np.array([0.6, 1.4])) == (0, 1.4)  # what was measured is never beyond
