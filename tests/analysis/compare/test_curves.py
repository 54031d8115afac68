"""What the Compare page draws and says: running means by brute force, curves over seeds, who leads."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as options
from hypothesis import strategies as st

from ratioscope.analysis.compare.curves import attribute, attributes, curves, smoothed
from ratioscope.analysis.compare.grouping import Member, Setting, grouped_settings
from ratioscope.analysis.compare.sentences import standing_words, with_other_seeds
from ratioscope.analysis.compare.standing import short_names, standing
from ratioscope.errors import RatioscopeError
from tests.making.members import member, setting

_VALUES = st.lists(st.one_of(st.just(math.nan), st.just(math.inf), st.floats(-9, 9)), min_size=1, max_size=30)


def _one(curve: list[float]) -> Setting:
    return Setting("grpo", "grpo", "on-policy", (member(curve),))


@options(deadline=None)
@given(_VALUES, st.integers(1, 6))
def test_a_running_mean_is_over_the_last_logged_values(curve: list[float], window: int) -> None:
    (found,) = smoothed([_one(curve)], "eval_accuracy", window)
    got = found.members[0].summary.values["eval_accuracy"].to_numpy()
    logged: list[float] = []
    for place, value in enumerate(curve):
        if math.isnan(value):
            assert math.isnan(got[place])
            continue
        logged.append(value)
        assert got[place] == pytest.approx(np.mean(logged[-window:]), abs=1e-12)


def test_a_band_is_that_of_the_running_means() -> None:
    runs = [member([0, 4, 0, 4], 0), member([4, 0, 4, 0], 1)]
    (curve,) = curves(grouped_settings(runs), "eval_accuracy", window=2)
    assert curve.frame["value"].tolist() == [2, 2, 2, 2]
    assert curve.frame["low"].tolist() == [0, 2, 2, 2]
    assert curve.frame["high"].tolist() == [4, 2, 2, 2]
    assert curve.raw.tolist() == [2, 2, 2, 2]
    assert curve.seeds.loc[1].tolist() == [4, 0]


@pytest.mark.parametrize("by", ["step", "tokens"])
def test_the_interquartile_mean_leaves_out_the_outer_quarters(by: Any) -> None:
    found = curves([setting("grpo", [0.0, 1.0, 2.0, 100.0])], "eval_accuracy", by, "iqm")
    np.testing.assert_allclose(found[0].frame["value"], 1.5)
    np.testing.assert_allclose(found[0].raw, 1.5)


def test_without_some_seeds_the_raw_curve_is_that_of_the_others() -> None:
    runs = [member([1.0, math.nan], 0), member([3.0, 7.0], 1), member([5.0, 9.0], 2)]
    for statistic in ("mean", "iqm"):
        (curve,) = curves(grouped_settings(runs), "eval_accuracy", statistic=statistic)  # type: ignore[arg-type]
        assert curve.raw.tolist() == curve.frame["value"].tolist() == [3.0, 8.0]
        assert curve.frame["seeds"].tolist() == [3, 2]


def test_infinite_values_have_their_places() -> None:
    (curve,) = curves([_one([1.0, math.inf, 2.0])], "eval_accuracy")
    assert curve.infinite.tolist() == [1]


def test_unknown_metrics_are_refused() -> None:
    for window in (1, 3):
        with pytest.raises(RatioscopeError, match="metric"):
            curves([_one([1.0])], "nonsense", window=window)


def test_settings_are_told_apart_by_every_key_that_differs() -> None:
    runs = [member([1.0], name=f"run-{rate}", optimiser={"lr": rate}) for rate in (0.1, 0.2)]
    first, second = found = grouped_settings(runs)
    assert attributes(found) == ["algorithm", "variant", "schedule", "optimiser.lr"]
    assert [attribute(each, "optimiser.lr") for each in (first, second)] == ["0.1", "0.2"]
    assert [attribute(first, key) for key in ("nothing", "model.path")] == ["", "-"]


def test_labels_are_different_where_words_are_the_same() -> None:
    """A key of the schedule that has no words of its own is in no label."""
    runs: list[Member] = [member([1.0], name=name, schedule={"unheard_of": name}) for name in ("one", "two")]
    assert len(set(short_names(grouped_settings(runs)))) == 2


def test_the_best_of_a_schedule_meets_the_others_of_it() -> None:
    good, bad, worse = (setting(name, ends) for name, ends in (("a", [3, 3.1]), ("b", [2, 2.1]), ("c", [1, 1.2])))
    found = standing([bad, good, worse], "eval_accuracy")
    assert [(each.a, each.b) for each in found.contrasts] == [(1, 0), (1, 2), (0, 2)]
    assert [(each.a, each.b) for each in found.against_best] == [(1, 0), (1, 2)]
    assert with_other_seeds(found.contrasts[1]).startswith("With other seeds: a is ahead in 2 of 2 pairs")
    assert "steps 5–7" in standing_words(found).measure


def test_the_answer_on_most_seeds_comes_first() -> None:
    def pair(schedule: str, seeds: int) -> list[Setting]:
        made = (setting(name, [end + seed / 10 for seed in range(seeds)]) for name, end in (("a", 2), ("b", 1)))
        return [Setting(each.algorithm, each.variant, schedule, each.members) for each in made]

    numbers = (("s1", 1), ("s2", 3), ("s3", 1), ("s4", 1), ("s5", 1))
    many = [each for schedule, seeds in numbers for each in pair(schedule, seeds)]
    found = standing(many, "eval_accuracy")
    assert [group.schedule for group in found.groups] == ["s2", "s1", "s3", "s4", "s5"]
    (said,) = standing_words(found).sentences
    assert said.startswith("Best: a (") and said.count(" under s") == 5 and "below" not in said


def test_what_has_no_value_is_said() -> None:
    nothing = standing([setting("a", [1, 1]), setting("b", [2, 2])], "reward")
    assert nothing.without == (0, 1)
    (said,) = standing_words(nothing).said
    assert "has no value in any of these runs" in said and not nothing.rows
    assert standing_words(nothing).measure == "Training reward at the end"
    alone = standing([setting("a", [1, 1])], "eval_accuracy")
    assert standing_words(alone).sentences == ("One setting is chosen: nothing to compare yet.",)
