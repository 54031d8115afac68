"""Whether two runs differ: the noise of their evaluations, by simulation with known truth, and several at once."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from ratioscope.analysis.compare.alignment import common_end, ends
from ratioscope.analysis.compare.chosen_metric import chosen_metric
from ratioscope.analysis.compare.grouping import Member, Setting, grouped_settings
from ratioscope.analysis.compare.run_noise import Noise, evaluation_noise, holm, noise_of_runs, run_difference
from ratioscope.analysis.compare.sentences import standing_words
from ratioscope.analysis.compare.standing import Rank, letters_of, standing
from ratioscope.analysis.compare.tasks import tasks
from ratioscope.errors import RatioscopeError
from tests.making.members import member, setting

EVALUATIONS = 5


def accuracies(truths: list[float], prompts: int, rng: np.random.Generator, *, same_dice: bool) -> np.ndarray:
    """Evaluations of runs with these true accuracies on the same prompts, (n_runs, EVALUATIONS).

    Prompts differ in difficulty, for all runs alike. With the same dice all evaluations of a run are one.
    """
    difficulty = rng.normal(0, 1, prompts)
    # Their mean over the prompts' difficulties is the truth: the probit of a sum of two normal variables.
    spread = np.sqrt(1 + 1.702**2) / 1.702
    right = expit(1.702 * spread * stats.norm.ppf(truths)[:, None] - difficulty)
    dice = rng.random((len(truths), 1 if same_dice else EVALUATIONS, prompts))
    found = (dice < right[:, None, :]).mean(axis=2)
    return np.broadcast_to(found, (len(truths), EVALUATIONS))


def called(truths: list[float], prompts: int, *, same_dice: bool, times: int = 300) -> np.ndarray:
    """Whether each pair is called different, (times, n_pairs), by itself."""
    rng = np.random.default_rng(prompts)
    found = []
    for _ in range(times):
        curves = accuracies(truths, prompts, rng, same_dice=same_dice)
        noise = [evaluation_noise(float(curve.mean()), [curve], prompts) for curve in curves]
        found.append([run_difference(a, b).p_value for a, b in combinations(noise, 2)])
    return np.array(found)


@pytest.mark.parametrize("prompts", [200, 500])
@pytest.mark.parametrize("same_dice", [True, False])
def test_runs_of_one_accuracy_are_rarely_called_different(prompts: int, same_dice: bool) -> None:
    wrong = (called([0.45, 0.45], prompts, same_dice=same_dice) < 0.05).sum()
    assert wrong <= stats.binom.ppf(0.999, 300, 0.05)


@pytest.mark.parametrize("prompts", [200, 500])
@pytest.mark.parametrize("same_dice", [True, False])
def test_a_difference_of_a_tenth_is_found_about_as_often_as_theory_says(prompts: int, same_dice: bool) -> None:
    found = (called([0.5, 0.4], prompts, same_dice=same_dice) < 0.05).mean()
    spread = np.sqrt((0.25 + 0.24) / prompts)
    theory = stats.norm.sf(1.96 - 0.1 / spread)
    assert found > theory - 3 * np.sqrt(theory * (1 - theory) / 300)


def test_over_five_runs_a_false_difference_is_rarer_than_one_in_twenty() -> None:
    p_values = called([0.45] * 5, 300, same_dice=True)
    assert sum(any(holm(row)) for row in p_values) <= stats.binom.ppf(0.999, 300, 0.05)
    assert (p_values < 0.05).any(axis=1).sum() > sum(any(holm(row)) for row in p_values)


def test_holm_is_what_it_is_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == [True, False, False, True]  # .005 < .05/4, .01 < .05/3, .03 > .05/2
    assert holm([0.04, float("nan")]) == [True, False]
    assert holm([]) == []


def test_the_interval_is_newcombes_and_the_p_value_agrees_with_it() -> None:
    """Newcombe 1998, table II (a): 56/70 against 48/80 gives .0524 to .3339 by his method 10."""
    found = run_difference(Noise(56 / 70, 70), Noise(48 / 80, 80))
    assert tuple(found.interval) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    for value in np.linspace(0.3, 0.7, 41):
        found = run_difference(Noise(0.5, 300), Noise(float(value), 300))
        assert found.differs == (found.p_value < 0.05)
    assert run_difference(Noise(1.0, 300), Noise(1.0, 300)).p_value > 0.9


def test_what_swings_from_one_evaluation_to_the_next_is_noise() -> None:
    curves = [0.4] * 16, [0.3, 0.5, 0.4, 0.3, 0.5, 0.4, 0.3, 0.5] * 2
    groups = [replace(setting("a", []), members=(member(curve, task={"evaluation_prompts": 400}),)) for curve in curves]
    end = common_end(groups, "eval_accuracy")
    quiet, loud = (noise_of_runs(group, "eval_accuracy", end, ends(group, "eval_accuracy", end)) for group in groups)
    assert loud.value == pytest.approx(0.4)
    assert tuple(quiet.interval) == pytest.approx(tuple(stats.binomtest(160, 400).proportion_ci(method="wilson")))
    swing = stats.t.ppf(0.975, 4) * np.sqrt((np.var(curves[1][-5:], ddof=1) - 0.24 / 400) / 5)
    assert loud.interval.high - 0.4 == pytest.approx(np.hypot(quiet.interval.high - 0.4, swing))


def test_of_metrics_of_a_step_the_prompt_groups_are_the_noise() -> None:
    a, b = setting("a", [0.5], metric="reward"), setting("b", [0.4], metric="reward")
    assert "gives the same" in standing([a, b], "reward").contrast(0, 1).here.reason
    wide = [replace(each, members=tuple(map(_with_interval, each.members))) for each in (a, b)]
    found = standing(wide, "reward").contrast(0, 1)
    half = 0.06 / np.sqrt(3)  # the end of eight values is the mean of three
    assert found.here.interval == pytest.approx((0.1 - np.sqrt(2) * half, 0.1 + np.sqrt(2) * half))
    assert found.here.differs and found.differs_here


def _with_interval(run: Member) -> Member:
    summary = run.summary
    return replace(run, summary=replace(summary, low=summary.values - 0.06, high=summary.values + 0.06))


def test_a_swinging_run_is_lower_than_a_steady_one_and_equal_ones_that_swing_are_not() -> None:
    """By simulation: of five equal settings whose evaluations swing independently, few pairs are called different."""
    rng, task = np.random.default_rng(0), {"evaluation_prompts": 512}

    def of(curves: list[list[float]]) -> list[Setting]:
        named = enumerate("abcdefgh"[: len(curves)])
        return [Setting(name, name, "s", (member(curves[place], task=task, name=name),)) for place, name in named]

    steady, swinging = [0.93, 0.91, 0.92, 0.92, 0.93], [0.52, 0.82, 0.80, 0.45, 0.27]
    near = [0.9, 0.92, 0.88, 0.86, 0.9]
    found = standing(of([[0.5] * 10 + each for each in (steady, near, near, near, swinging)]), "eval_accuracy")
    assert [row.rank for row in found.rows] == [Rank.BEST, *[Rank.UNDECIDED] * 3, Rank.WORSE]
    assert standing_words(found).sentences[-1] == "Worse: e (57%)."
    wrong = 0
    for _ in range(40):
        truths = np.clip(rng.normal(0.6, 0.05, (5, 15)), 0, 1)
        curves = (rng.binomial(512, truths) / 512).tolist()
        wrong += any(each.differs_here for each in standing(of(curves), "eval_accuracy").contrasts)
    assert wrong <= stats.binom.ppf(0.999, 40, 0.05)


# Several settings -------------------------------------------------------------------------------------------------


def test_settings_that_share_a_letter_are_not_told_apart() -> None:
    """A above C and D, B above D: A and B, B and C, C and D are alike."""
    assert letters_of((0, 1, 2, 3), [(0, 2), (0, 3), (1, 3)]) == {0: "a", 1: "ab", 2: "bc", 3: "c"}


def test_correction_is_over_the_pairs_of_all_schedules() -> None:
    """A p value of .03 is below .05 alone, and not beside another of its size."""
    a, b = (setting(name, [end], task={"evaluation_prompts": 400}) for name, end in (("a", 0.5), ("b", 0.424)))
    (alone,) = standing([a, b], "eval_accuracy").contrasts
    assert 0.025 < alone.here.p_value < 0.05 and alone.differs_here
    elsewhere = [replace(each, schedule="offline") for each in (a, b)]
    both = standing([a, b, *elsewhere], "eval_accuracy").contrasts
    assert [each.differs_here for each in both] == [False, False]
    assert [each.differs_over_seeds for each in both] == [None, None]


# What is not compared ---------------------------------------------------------------------------------------------


def test_runs_of_different_tasks_share_no_ranking() -> None:
    fields = {"a": {"name": "addition", "digits": 2}, "b": {"name": "addition", "digits": 3}, "c": {"name": "chess"}}
    one, other, _ = groups = [setting(name, [0.5], task=task) for name, task in fields.items()]
    assert tasks(groups) == ["addition (digits 2)", "addition (digits 3)", "chess"]
    found = standing(groups, "eval_accuracy")
    assert not found.contrasts
    assert "no two of these settings have the same task" in standing_words(found).sentences[0]
    assert "not ranked against each other" in standing_words(found).remarks[-1]
    same = replace(setting("d", [0.2], task=fields["a"] | {"evaluation_prompts": 9}))
    assert tasks([one, same]) == ["", ""]
    assert tasks([one, setting("e", [0.2])]) == ["", ""]  # what a log does not say separates nothing
    (contrast,) = standing([one, other, same], "eval_accuracy").contrasts
    assert (contrast.a, contrast.b) == (0, 2)


def test_a_shorter_run_is_named_where_it_shortens_the_comparison() -> None:
    long, short = member([0.4] * 20, name="long", algorithm="a"), member([0.5] * 8, name="short", algorithm="b")
    found = standing(grouped_settings([long, short]), "eval_accuracy")
    assert found.until == 7
    assert "short ends at step 7, and all runs are compared there: the other run goes on to step 19" in " ".join(
        standing_words(found).remarks
    )
    elsewhere = replace(short, run=replace(short.run, manifest=replace(short.run.manifest, task={"name": "x"})))
    there = replace(long, run=replace(long.run, manifest=replace(long.run.manifest, task={"name": "y"})))
    assert [end.until for end in standing(grouped_settings([there, elsewhere]), "eval_accuracy").ends] == [19, 7]


def test_the_end_is_at_the_steps_that_all_runs_have() -> None:
    a = member(dict.fromkeys(range(0, 60, 5), 0.4), name="a", algorithm="a")
    b = member({step: 0.4 + step / 1000 for step in range(0, 60, 10)}, name="b", algorithm="b")
    end = common_end(grouped_settings([a, b]), "eval_accuracy")
    assert end.common and end.places.tolist() == [40, 50]
    long = member([0.5] * 200, name="long", metric="reward")
    assert len(common_end(grouped_settings([long]), "reward").places) == 20  # the last tenth


def test_a_metric_that_no_run_has_gives_way_to_a_sensible_one() -> None:
    groups = [setting(name, [0.5], metric="reward") for name in "ab"]
    metric, said = chosen_metric(groups)
    assert metric == "reward"
    assert said.startswith("No run has a value of evaluation accuracy") and said.endswith(
        "compared by training reward."
    )
    assert chosen_metric(groups, "reward") == ("reward", "")
    one = [setting("a", [0.5]), setting("b", [0.5], metric="reward")]
    assert chosen_metric(one) == ("eval_accuracy", "")  # no metric is in both
    with pytest.raises(RatioscopeError, match="is not a metric"):
        chosen_metric(groups, "acuracy")
