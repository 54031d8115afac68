"""What one change of an algorithm does, and who leads: by hand, by brute force, on sample runs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ratioscope.analysis.compare import (
    LAST_VALUES,
    Member,
    Setting,
    SingleChange,
    collapses,
    common_end,
    difference_over_runs,
    ends,
    grouped_settings,
    single_changes,
    standing,
    standing_words,
)
from ratioscope.analysis.diagnosis import diagnose
from ratioscope.analysis.summary.intervals import of_share
from ratioscope.errors import RatioscopeError
from tests.making.members import member
from tests.making.samples import run_of, summary_of

GATED = {"gate": "one_side", "weight": "ratio"}
OPEN = {"gate": "none", "weight": "ratio"}
CLIP = {"epsilon_low": 0.2, "epsilon_high": 0.2}
TASK = {"evaluation_prompts": 512}
SCHEDULES: list[dict[str, Any]] = [{"sync_interval": 20}, {"sync_offset": 10}, {"offline": True}]


def run(
    curve: Sequence[float],
    parts: Mapping[str, str],
    parameters: Mapping[str, float] | None = None,
    *,
    seed: int = 0,
    schedule: Mapping[str, Any] | None = None,
    algorithm: str = "",
    metric: str = "eval_accuracy",
    **fields: Any,
) -> Member:
    """A run of an algorithm that is its parts and parameters; unnamed, its name tells them."""
    told = " ".join((*parts.values(), *map(str, (parameters or {}).values())))
    run_id = f"{algorithm} {told} {schedule} {fields} {seed}"
    made = member(curve, seed, name=run_id, metric=metric, schedule=schedule or {}, **fields)
    described = {"name": algorithm or told, "parts": dict(parts), "parameters": dict(parameters or {})}
    return replace(made, run=replace(made.run, manifest=replace(made.run.manifest, algorithm=described)))


def of(*members: Member, metric: str = "eval_accuracy") -> tuple[SingleChange, ...]:
    return single_changes(grouped_settings(members), metric)


def flat(end: float, *args: Any, **fields: Any) -> Member:
    return run([end] * 8, *args, **fields)


@pytest.mark.parametrize(
    ("one", "other", "what"),
    [
        ((GATED, CLIP), (OPEN, {}), "gate: one_side → none"),  # its bounds go with the gate
        ((GATED, CLIP | {"epochs": 1}), (OPEN, {"epochs": 1}), "gate: one_side → none"),
        ((GATED, CLIP | {"epochs": 4}), (OPEN, {"epochs": 1}), None),
        ((GATED, CLIP), ({"gate": "ring", "weight": "ratio"}, CLIP | {"outer_low": 0.6}), "gate: one_side → ring"),
        ((GATED, CLIP), ({"gate": "none", "weight": "none"}, {}), None),  # two parts
        (
            (GATED, CLIP),
            (GATED, {"epsilon_low": 0.6, "epsilon_high": 2.0}),
            "epsilon_low, epsilon_high: (0.2, 0.2) → (0.6, 2.0)",
        ),
        ((GATED, {"epsilon": 10.0}), (GATED, {"epsilon": 9.0}), "epsilon: 9.0 → 10.0"),  # by size, not by letters
        ((GATED, CLIP | {"epochs": 1}), (GATED, {"epsilon_low": 0.6, "epsilon_high": 0.2, "epochs": 4}), None),
        ((GATED, {}), (GATED, {"reference_kl": 0.1}), "reference_kl: - → 0.1"),
        (({}, {}), (GATED, CLIP), None),  # a log that does not say its parts
        (({}, {"epsilon": 0.1}), ({}, {"epsilon": 0.2}), "epsilon: 0.1 → 0.2"),
        ((GATED, CLIP), (GATED | {"regulariser": "none"}, CLIP), None),  # an older log does not name what is not there
    ],
)
def test_a_change_is_exactly_one_component(one: Any, other: Any, what: str | None) -> None:
    for order in ((one, other), (other, one)):
        found = of(*(flat(0.5, *side, algorithm="x") for side in order))
        assert [change.what for change in found] == ([what] if what else [])


def test_another_key_of_the_configuration_is_a_change_where_it_is_the_only_one() -> None:
    slow, fast = ({"learning_rate": rate, "beta1": 0.9} for rate in (1e-5, 3e-4))
    [change] = of(flat(0.4, GATED, optimiser=fast), flat(0.5, GATED, optimiser=slow))
    assert (change.what, change.end.value) == ("optimiser.learning_rate: 1e-05 → 0.0003", pytest.approx(-0.1))
    assert not of(flat(0.4, GATED, optimiser=fast), flat(0.5, GATED, optimiser=slow | {"beta1": 0.5}))
    assert not of(flat(0.4, GATED, optimiser=fast), flat(0.5, OPEN, optimiser=slow))
    # What one log does not say is no difference, and neither is how long a run was to be.
    [change] = of(flat(0.4, GATED, optimiser=fast, planned_updates=8), flat(0.5, OPEN, planned_updates=9))
    assert change.what == "gate: one_side → none"


def test_settings_of_different_schedules_make_no_change() -> None:
    assert not of(flat(0.4, GATED, schedule=SCHEDULES[0]), flat(0.5, OPEN, schedule=SCHEDULES[1]))
    # The words leave some keys out.
    assert not of(flat(0.4, GATED, schedule={"mixture": [1, 2]}), flat(0.5, OPEN, schedule={"mixture": [2, 1]}))


def test_the_numbers_of_a_change_are_those_of_a_hand_computation() -> None:
    """Ten values each; the ends are means of the last three, the first half the first five."""
    before = [[0.4] * 10, [0.5] * 10, [0.6] * 10]
    after = [[0.5] * 5 + [0.2] * 5, [0.5] * 5 + [0.3] * 5, [0.7] * 5 + [0.4] * 5]
    runs = [run(curve, GATED, CLIP, schedule=schedule) for curve, schedule in zip(before, SCHEDULES, strict=True)]
    runs += [run(curve, OPEN, schedule=schedule) for curve, schedule in zip(after, SCHEDULES, strict=True)]
    [change] = of(*runs)
    assert [place.schedule for place in change.schedules] == ["sync_interval = 20", "sync_offset = 10", "offline"]
    assert [place.end.value for place in change.schedules] == pytest.approx([-0.2] * 3)
    assert [place.speed.value for place in change.schedules] == pytest.approx([0.1, 0.0, 0.1])
    assert [place.fall.value for place in change.schedules] == pytest.approx([0.3, 0.2, 0.3])
    assert [place.verdict for place in change.schedules] == ["cannot tell"] * 3
    # Equal differences say nothing of the spread.
    assert (change.end.value, change.verdict) == (pytest.approx(-0.2), "cannot tell")
    # -.2, -.2, -.26 have mean -.22, standard deviation .0346, t(2) = 4.303: +- .0861.
    runs[-1] = run([0.7] * 5 + [0.34] * 5, OPEN, schedule=SCHEDULES[2])
    [change] = of(*runs)
    assert change.end.value == pytest.approx(-0.22)
    assert change.end.interval == pytest.approx((-0.3061, -0.1339), abs=1e-4)
    assert (change.end.basis, change.verdict) == ("paired over 3 schedules", "worse")


@pytest.mark.parametrize("by", ["step", "tokens"])
def test_a_second_computation_finds_the_same_effects(by: Any) -> None:
    random = np.random.default_rng(3)
    seeds, length = range(3), 14
    curves = {key: random.uniform(0.2, 0.8, length) for key in product((0, 1), seeds, range(len(SCHEDULES)))}
    runs = [
        run(curve.tolist(), (GATED, OPEN)[side], CLIP if side == 0 else {}, seed=seed, schedule=SCHEDULES[place])
        for (side, seed, place), curve in curves.items()
    ]
    groups = grouped_settings(runs)
    [change] = single_changes(groups, "eval_accuracy", by)
    numbers: dict[str, list[list[float]]] = {"end": [], "speed": [], "fall": []}
    for place in range(len(SCHEDULES)):
        rows: dict[str, list[float]] = {name: [] for name in numbers}
        for seed in seeds:
            found = []
            for side in (0, 1):
                curve = curves[side, seed, place]
                means = [curve[max(0, n - LAST_VALUES + 1) : n + 1].mean() for n in range(length)]
                found.append((means[-1], curve[: length // 2].mean(), max(means) - means[-1]))
            for name, before, after in zip(numbers, *found, strict=True):
                rows[name].append(after - before)
        for name, values in rows.items():
            numbers[name].append(values)
    for name, blocks in numbers.items():
        means = [np.mean(values) for values in blocks]
        interval = stats.ttest_1samp(means, 0).confidence_interval()
        effect = getattr(change, name)
        assert (effect.value, *effect.interval) == pytest.approx((np.mean(means), interval.low, interval.high))
        for under, values in zip(change.schedules, blocks, strict=True):
            interval = stats.ttest_1samp(values, 0).confidence_interval()
            single = getattr(under, name)
            assert (single.value, *single.interval) == pytest.approx((np.mean(values), interval.low, interval.high))
    end = common_end(groups, "eval_accuracy", by)
    for under in change.schedules:
        pair = (ends(each, "eval_accuracy", end) for each in (under.after, under.before))
        assert repr(under.end) == repr(difference_over_runs(*pair, 1.0))


@pytest.mark.parametrize(
    ("metric", "before", "after", "verdict"),
    [
        ("eval_accuracy", [0.40, 0.41, 0.42], [0.50, 0.52, 0.53], "better"),
        ("eval_accuracy", [0.40, 0.41, 0.42], [0.30, 0.32, 0.33], "worse"),
        ("eval_accuracy", [0.40, 0.41, 0.42], [0.41, 0.43, 0.44], "alike"),  # surely higher, by less than matters
        ("eval_accuracy", [0.40, 0.41, 0.42], [0.30, 0.62, 0.53], "cannot tell"),
        ("eval_accuracy", [0.40], [0.40], "cannot tell"),
        ("reward", [4.0, 4.1, 4.2], [4.1, 4.3, 4.4], "alike"),  # a tenth of 4.1
        ("reward", [0.40, 0.41, 0.42], [0.50, 0.52, 0.53], "better"),
        ("s_k", [0.40, 0.41, 0.42], [0.50, 0.52, 0.53], "worse"),
        ("eval_accuracy", [0.40, 0.41], [float("inf"), 0.41], "cannot tell"),
    ],
)
def test_the_verdict_follows_interval_and_margin(
    metric: str, before: list[float], after: list[float], verdict: str
) -> None:
    runs = [flat(end, GATED, CLIP, seed=seed, metric=metric) for seed, end in enumerate(before)]
    [change] = of(*runs, *(flat(end, OPEN, seed=n, metric=metric) for n, end in enumerate(after)), metric=metric)
    assert change.verdict == change.schedules[0].verdict == verdict
    assert bool(change.reason) == (verdict == "cannot tell")


def test_a_collapse_is_what_the_rule_finds() -> None:
    names = ("sync_interval20-reinforce-lr0.0003-seed0", "sync_interval20-grpo-lr0.0003-seed0")
    groups = grouped_settings(Member(name, run_of(name), summary_of(name)) for name in names)
    fallen = [(collapse.setting.members[0].run_id, collapse.best) for collapse in collapses(groups)]
    for name in names:
        found = [finding for finding in diagnose(summary_of(name)) if finding.rule == "reward_collapse"]
        assert [finding.numbers[0].value for finding in found] == [best for run_id, best in fallen if run_id == name]
    found = standing_words(standing(groups, "eval_accuracy"))
    assert found.collapsed == "Collapsed: reinforce (since step 15)."
    assert found.sentences == ("Best: grpo (85%, 1 seed).", "Worse: reinforce.")


@pytest.fixture(scope="module")
def figure3() -> list[Setting]:
    """The fifteen runs of figure 3, their evaluations without the tokens: nothing else is looked at here."""
    algorithms = ("reinforce", "grpo", "rec_oneside_is", "rec_oneside_nois", "rec_oneside_nois_0.6_2")
    names = [
        f"{schedule}-{algorithm}-seed0"
        for schedule, algorithm in product(("sync_interval20", "sync_offset10", "offline"), algorithms)
    ]
    runs = [run_of(name) for name in names]
    curves = [found.read("steps").set_index("step")["eval_accuracy"].dropna().to_dict() for found in runs]
    return grouped_settings(
        _with_intervals(replace(member(curve), run_id=name, run=found))
        for name, curve, found in zip(names, curves, runs, strict=True)
    )


def _with_intervals(made: Member) -> Member:
    """As the summary of a run that says on how many prompts it evaluates."""
    values = made.summary.values
    low, high = of_share(values["eval_accuracy"].to_numpy(), made.run.manifest.evaluation_prompts)
    ends = {"low": values.assign(eval_accuracy=low), "high": values.assign(eval_accuracy=high)}
    return replace(made, summary=replace(made.summary, **ends))


def test_the_sample_runs_say_of_figure_3_what_they_bear_out(figure3: list[Setting]) -> None:
    found = standing_words(standing(figure3, "eval_accuracy"))
    assert found.sentences == (
        "Best under sync_interval = 20: rec_oneside_nois (epsilon 0.2) (91%, 1 seed); undecided: grpo, "
        "rec_oneside_is and rec_oneside_nois (epsilon 0.6/2.0); worse: reinforce.",
        "Best under sync_offset = 10: grpo (92%, 1 seed); undecided: all 4 others (to 57%).",
        "Best offline: rec_oneside_nois (epsilon 0.6/2.0) (88%, 1 seed); worse: all 4 others (to 44%).",
    )
    assert found.collapsed == "Collapsed: reinforce, offline (since step 130)."
    changes = {(change.of, change.to): change for change in single_changes(figure3, "eval_accuracy")}
    ungated = changes["rec_oneside_nois (epsilon 0.2)", "reinforce"]
    assert (ungated.what, ungated.verdict) == ("gate: one_side → none", "worse") and ungated.end.value < -0.28
    wide = changes["rec_oneside_nois (epsilon 0.2)", "rec_oneside_nois (epsilon 0.6/2.0)"]
    assert wide.verdict == "cannot tell" and wide.schedules[2].end.value == pytest.approx(0.171, abs=5e-4)
    for same in (("rec_oneside_is", "grpo"), ("rec_oneside_is", "rec_oneside_nois (epsilon 0.2)")):
        assert changes[same].verdict == "alike" and changes[same].end.basis == "paired over 3 schedules"


def test_nothing_depends_on_the_order_of_the_runs(figure3: list[Setting]) -> None:
    members = [member for setting in figure3 for member in setting.members]
    one, other = (standing(groups, "eval_accuracy") for groups in (figure3, grouped_settings(members[::-1])))
    assert standing_words(one).said == standing_words(other).said
    assert [row.name for row in one.rows] == [row.name for row in other.rows]


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([flat(0.5, GATED)], ("One setting is chosen: nothing to compare yet.",)),
        ([flat(float("nan"), GATED), flat(float("nan"), OPEN)],
         ("Evaluation accuracy has no value in any of these runs: nothing to compare. Choose another metric.",)),
        ([flat(float("nan"), GATED), flat(0.5, OPEN)],
         ("Evaluation accuracy has values in one setting only: nothing to compare yet.",)),
        ([run([0.1, 0.2, 0.4, np.inf], GATED), flat(0.5, OPEN)],
         ("Best: unknown, a run does not end with a finite number.",)),
        ([flat(0.5, GATED, task=TASK), flat(0.4, OPEN, task=TASK)],
         ("Best: one_side ratio (50%, 1 seed).", "Worse: none ratio.")),
    ],
)  # fmt: skip
def test_odd_runs_say_what_is_there(runs: list[Member], said: tuple[str, ...]) -> None:
    found = standing_words(standing(grouped_settings(runs), "eval_accuracy"))
    assert found.sentences[: len(said)] == said
    assert not any(words in sentence for sentence in found.said for words in ("nan", "inf "))


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(RatioscopeError, match="is not a metric"):
        single_changes(grouped_settings([flat(0.5, GATED)]), "acuracy")
