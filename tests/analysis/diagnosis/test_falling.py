"""Causes of a fall: each on a run made with it, and silent on the same fall with the same sign all along."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.diagnosis import diagnose
from ratioscope.analysis.diagnosis.evidence import RunEvidence
from ratioscope.analysis.diagnosis.fallen_reward import part_rises_as_another_falls
from ratioscope.analysis.findings.cause import CAUSES, Family, rivals
from ratioscope.analysis.findings.finding import Finding
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.metrics import COUNTS
from ratioscope.analysis.summary.summary import StepSummary, summarise
from ratioscope.catalogue import CATALOGUE
from tests.cases.faults import rewards_by
from tests.cases.world import Shape, simulate, write
from tests.making.runs import Step, plain_step, write_run

Series = np.ndarray[Any, Any]
STEPS, BEST, FALL = 60, 30, 45
HEALTHY = {
    "s_k_bounded": 0.05, "s_k_engine_bounded": 0.002, "u_k": 0.02, "ratio_min": 0.3, "ratio_max": 3.0, "kl_k3": 0.01,
    "kl_to_initial": 0.2, "entropy": 1.0, "response_length": 100.0, "version_lag": 2.0, "grad_norm": 1.0,
    "clip_fraction": 0.1, "ess_token": 0.9, "n_tokens": 1000.0, "n_sequences": 100.0, "n_invalid_nan": 0.0,
}  # fmt: skip


def fallen(
    steps: dict[str, Series] | None = None, accuracy: Series | None = None, every: int = 5, **series: Any
) -> RunEvidence:
    """Evaluation accuracy rises to step 30 and has fallen at step 45; metrics are noise of 2 % but for some."""
    rng = np.random.default_rng(0)
    x = np.arange(STEPS)
    values = pd.DataFrame(np.nan, index=pd.Index(x, name="step"), columns=[*COUNTS, *CATALOGUE])
    for key, value in (HEALTHY | series).items():
        values[key] = value * (1 + 0.02 * rng.standard_normal(STEPS)) if np.ndim(value) == 0 and value else value
    if accuracy is None:
        accuracy = np.interp(x, [0, BEST, BEST + 5, FALL, STEPS], [0.3, 0.7, 0.68, 0.2, 0.2])
    values["eval_accuracy"] = np.where(x % every == 0, accuracy, np.nan)
    table = pd.DataFrame(steps or {}, index=values.index)
    return RunEvidence(StepSummary(values, values - 0.02, values + 0.02, {}, pd.DataFrame(), table))


def after(step: int, before: float, then: float) -> Series:
    return np.where(np.arange(STEPS) < step, before, then)


def causes(evidence: RunEvidence) -> list[str]:
    """The leading cause of each set, the likeliest first."""
    return [each[0].cause.name for each in rivals(Family.FALL, evidence)]


def fall_in(evidence: RunEvidence) -> Finding:
    found = diagnose(evidence.summary, evidence.run)
    return next(each for each in found if each.rule in ("reward_collapse", "reward_setback"))


def test_nothing_is_named_where_nothing_changed() -> None:
    assert causes(fallen()) == []
    fall = fall_in(fallen())
    assert fall.unexplained and fall.why.startswith("No early warning in update drift, staleness"), fall.why
    assert fall.do.endswith("evaluate more often, so that the fall can be dated.")
    each_step = fallen(every=1)
    fall = fall_in(each_step)
    assert "evaluate more often" not in fall.do
    assert fall.do.endswith("and is not logged: code, data, a restart.")


# By cause: what is made so between the best level and the fall, and the same all along.
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "update_too_large": ({"u_k": after(36, 0.02, 0.3)}, {"u_k": 0.3}),
    "data_too_old": ({"s_k_bounded": after(36, 0.05, 0.4)}, {"s_k_bounded": 0.4}),
    "mismatch_grows": ({"s_k_engine_bounded": after(36, 0.002, 0.1)}, {"s_k_engine_bounded": 0.1}),
    "entropy_gone": ({"entropy": after(36, 1.0, 0.02)}, {"entropy": 0.02}),
    "entropy_rises": ({"entropy": after(36, 1.0, 2.0)}, {"entropy": 2.0}),
    "over_optimisation": ({"kl_to_initial": after(36, 0.2, 3.0)}, {"kl_to_initial": 3.0}),
    "learning_rate_step": (
        {"steps": {"learning_rate": after(36, 1e-6, 3e-6)}},
        {"steps": {"learning_rate": np.linspace(1e-7, 3e-6, STEPS)}},
    ),
    "back_at_the_start": (
        {"kl_to_initial": after(37, 0.2, 0.001), "u_k": np.where(np.arange(STEPS) == 36, 0.08, 0.02)},
        {"kl_to_initial": after(37, 0.2, 0.001)},  # another reference, say: no update stands out
    ),
    "not_finite": (
        {"steps": {"grad_norm": np.where(np.arange(STEPS) == 36, np.inf, 1.0)}},
        {"steps": {"grad_norm": np.where(np.arange(STEPS) % 10 == 0, np.inf, 1.0)}},
    ),
    "scorer_or_prompts_changed": (
        {"accuracy": after(43, 0.7, 0.1), "u_k": 1e-5}, {"accuracy": after(43, 0.7, 0.1), "u_k": 0.02},
    ),
}  # fmt: skip


@pytest.mark.parametrize("cause", CHANGES)
def test_what_changed_before_the_fall_is_its_cause(cause: str) -> None:
    changed, _ = CHANGES[cause]
    evidence = fallen(**changed)
    assert causes(evidence) == [cause]
    fall = fall_in(evidence)
    assert fall.of_cause == cause and not fall.unexplained
    assert fall.why.startswith(f"Likely cause: {CAUSES[cause].words[0].lower()}{CAUSES[cause].words[1:]} ("), fall.why
    assert all(len(sentence.split()) <= 45 for sentence in fall.why.split(". "))


@pytest.mark.parametrize("cause", CHANGES)
def test_what_was_so_at_the_best_level_is_no_cause(cause: str) -> None:
    _, standing = CHANGES[cause]
    evidence = fallen(**standing)
    assert causes(evidence) == []
    assert not fall_in(evidence).why.startswith("Likely cause")


def test_a_reward_that_rises_while_evaluation_falls_is_over_optimised() -> None:
    rising = np.linspace(0.3, 0.8, STEPS) + 0.02 * np.random.default_rng(1).standard_normal(STEPS)
    assert causes(fallen(reward=rising)) == ["reward_hacked"]
    assert causes(fallen(reward=np.interp(np.arange(STEPS), [0, BEST, FALL, STEPS], [0.3, 0.7, 0.2, 0.2]))) == []


def test_a_reward_that_fell_with_the_evaluation_has_not_stayed() -> None:
    """Of few values the error is large, and "the training reward stayed (0.2 to 0.0483)" was said."""
    noise = 0.2 * np.random.default_rng(3).standard_normal(STEPS)
    assert causes(fallen(reward=after(40, 0.2, 0.05) + noise)) == []
    assert causes(fallen(reward=0.2 + noise)) == ["reward_hacked"]


def test_a_schedule_that_begins_again_has_jumped() -> None:
    """To where it was at first, which is no larger than what it was before the best level."""
    decays = np.linspace(2e-6, 2e-7, 36)
    again = np.concatenate([decays, decays[: STEPS - 36]])
    assert causes(fallen({"learning_rate": again})) == ["schedule_begins_again"]
    other = np.concatenate([decays, decays[: STEPS - 36][::-1] + decays[0]])
    assert causes(fallen({"learning_rate": other})) == ["learning_rate_step"]
    assert causes(fallen({"learning_rate": np.linspace(2e-6, 2e-7, STEPS)})) == []


def test_a_drop_that_has_begun_has_its_cause() -> None:
    """The level is low at the end only: no fall that lasts, and what changed before it is named all the same."""
    level = after(50, 0.7, 0.2)
    evidence = fallen(accuracy=level, u_k=after(46, 0.02, 0.3))
    assert causes(evidence) == ["update_too_large"]
    (drop,) = (each for each in diagnose(evidence.summary) if each.rule == "reward_drop")
    assert drop.of_cause == "update_too_large" and drop.why.startswith("Likely cause: an update was too large (")
    assert causes(fallen(accuracy=level, u_k=0.3)) == []


def test_a_run_that_does_not_fall_has_no_cause_of_a_fall() -> None:
    level = np.full(STEPS, 0.7)
    for changed, _ in CHANGES.values():
        assert causes(fallen(**(changed | {"accuracy": level}))) == []


def test_what_comes_after_the_fall_is_no_cause() -> None:
    late = {"u_k": after(50, 0.02, 0.3), "kl_to_initial": after(50, 0.2, 3.0), "entropy": after(50, 1.0, 0.02)}
    assert causes(fallen(**late)) == []


def test_a_fall_beyond_the_bound_is_no_update_s() -> None:
    """Whatever else has changed: the policy cannot have done it."""
    both = fallen(
        accuracy=after(43, 0.7, 0.1), u_k=1e-5, kl_to_initial=after(36, 0.2, 3.0), entropy=after(36, 1.0, 0.02)
    )
    assert causes(both) == ["scorer_or_prompts_changed"]
    fall = fall_in(both)
    assert "fell by 60 points from step 40 to 45" in fall.why and "at most on the batch's prompts" in fall.why
    assert "Score an earlier checkpoint again" in fall.do


def test_random_falls_have_no_cause_in_one_of_fifty() -> None:
    """Noise of any size and persistence in everything that is watched, below the limits."""
    rng = np.random.default_rng(5)
    blamed = 0
    for _ in range(150):
        persistence, size = rng.choice([0.0, 0.5, 0.8]), rng.uniform(0.02, 0.4)
        made = {}
        for key, level in HEALTHY.items():
            if not key.startswith("n_") and key != "version_lag":
                noise = rng.standard_normal(STEPS)
                for step in range(1, STEPS):
                    noise[step] = persistence * noise[step - 1] + np.sqrt(1 - persistence**2) * noise[step]
                made[key] = level * np.exp(size * noise)
        blamed += bool(causes(fallen(**made)))
    assert blamed <= 3, blamed


def step_of_run(number: int, rng: np.random.Generator, **how: Any) -> Step:
    """16 groups of 4 responses of 10 tokens; `how` gives rewards, parts, ratios."""
    n, length = 64, 10
    sequence = np.repeat(np.arange(n), length)
    group = sequence // 4
    task = (rng.random(n) < how["task"]).astype(float)
    task[how["constant"]] = 0.0
    extra = 0.02 * rng.standard_normal(n) + how["extra"]
    reward = task + extra
    by_group = reward.reshape(-1, 4)
    advantage = ((by_group - by_group.mean(1, keepdims=True)) / (by_group.std(1, keepdims=True) + 1e-6)).ravel()
    behavior = -rng.uniform(0.5, 2.0, n * length)
    current = behavior + 0.02 * rng.standard_normal(n * length)
    new = current + 0.2 * rng.standard_normal(n * length)
    step = plain_step(behavior, current, new, number=number, sequence=sequence, group=group,
                      advantage=advantage[sequence], behavior_version=np.full(n * length, number))  # fmt: skip
    texts = {"reward": reward, "reward_task": task, "reward_format": extra, "prompt_id": np.arange(n) // 4}
    return Step(
        number, step.tokens, step.sequences | texts, {"eval_accuracy": how["accuracy"], "policy_version": number}
    )


@pytest.mark.parametrize(("share", "rises", "found"), [(0.75, True, True), (0.75, False, False), (0.0, True, False)])
def test_a_part_of_the_reward_that_is_learned_in_place_of_the_task(
    tmp_path: Path, share: float, *, rises: bool, found: bool
) -> None:
    """Groups whose task reward is constant, or none; a part that rises, or stays."""
    rng = np.random.default_rng(7)
    steps = []
    for number in range(40):
        level = 0.5 if number < 25 else 0.1
        constant = np.repeat(rng.random(16) < share, 4)
        extra = 0.003 * number if rises else 0.0
        steps.append(step_of_run(number, rng, task=level, constant=constant, extra=extra, accuracy=level))
    run = open_run(write_run(tmp_path / "run", steps))
    evidence = RunEvidence(summarise(run), run)
    assert ("reward_part_dominates" in causes(evidence)) is found
    fall = fall_in(evidence)
    assert ("reward_format carries" in fall.why) is (share > 0)
    if share and not found:
        assert fall.why.startswith("First suspect: a part") and "All along: reward_format carries" in fall.why


@pytest.mark.parametrize("same", [True, False])
def test_a_fall_of_the_mixture_is_told_from_one_of_every_prompt(tmp_path: Path, *, same: bool) -> None:
    """Half of the prompts are hard; later nearly all are. The same prompts earn the same, or all earn less."""
    rng = np.random.default_rng(8)
    steps = []
    for number in range(60):
        late = number >= 35
        hard = np.repeat(rng.random(16) < (0.9 if late and same else 0.3), 4)
        level = np.where(hard, 0.05, 0.95) * (1.0 if same or not late else 0.2)
        step = step_of_run(number, rng, task=level, constant=np.zeros(64, dtype=bool), extra=0.0, accuracy=None)
        prompts = np.repeat(rng.integers(0, 20, 16), 4) + 100 * hard
        steps.append(Step(number, step.tokens, step.sequences | {"prompt_id": prompts}, {"policy_version": number}))
    run = open_run(write_run(tmp_path / "run", steps))
    evidence = RunEvidence(summarise(run), run)
    assert ("prompts_changed" in causes(evidence)) is same
    assert ("The mixture of prompts changed" in fall_in(evidence).why.replace("the mix", "The mix")) is same


@pytest.mark.parametrize("rises", [True, False])
def test_a_part_that_rises_as_another_falls_is_named_with_both(tmp_path: Path, *, rises: bool) -> None:
    rng, nobody = np.random.default_rng(7), np.zeros(64, bool)
    run = write_run(tmp_path / "run", [
        step_of_run(number, rng, task=level, constant=nobody, extra=0.03 * number * rises, accuracy=level)
        for number, level in enumerate(np.repeat([0.5, 0.1], (15, 10)))
    ])  # fmt: skip
    evidence = RunEvidence(summarise(open_run(run)), open_run(run))
    sign = part_rises_as_another_falls(evidence)
    assert sign.known and sign.present is rises
    if rises:
        assert (
            sign.reading.clause.startswith("reward_format rose from ")
            and ", reward_task fell from 0." in sign.reading.clause
        )


_FELL, _ROSE_FIRST = ([0, 40], [0.6, 0.2]), ([0, 20, 40], [0.3, 0.7, 0.2])
_UNKNOWN = "Too few steps come before the fall"


@pytest.mark.parametrize(
    ("configured", "level", "words"),
    [
        (2e-6, _FELL, "Likely cause: the learning rate is not the configured one (in step 0 it is 2.0e-05, 10 × the"),
        (2e-6, _ROSE_FIRST, "First suspect: the learning rate is not the configured one. All along: in step 0 it is"),
        (2e-5, _FELL, _UNKNOWN),
        (None, _FELL, _UNKNOWN),
    ],
)
def test_a_learning_rate_above_its_setting_is_a_suspect_only_where_the_run_was_well_with_it(
    configured: float | None, level: tuple[list[float], list[float]], words: str, tmp_path: Path
) -> None:
    chance = np.interp(np.arange(48), *level)
    log = simulate(
        Shape(1412, steps=48, groups=4, responses=4, lag=1), reward=rewards_by(lambda step: chance[np.asarray(step)])
    )
    log.steps["learning_rate"] = np.full(48, 2e-5)
    log.manifest["optimiser"]["learning_rate"] = configured
    log.steps["eval_accuracy"] = chance
    run = open_run(write(log, tmp_path / "run", "all"))
    assert fall_in(RunEvidence(summarise(run), run)).why.startswith(words)


@pytest.mark.parametrize("what", ["scored otherwise", "answered worse", "other prompts", "slowly"])
def test_a_reward_of_the_same_prompts_that_falls_at_once_and_alone_is_scored_otherwise(
    tmp_path: Path, what: str
) -> None:
    rng, nobody = np.random.default_rng(5), np.zeros(64, bool)
    steps = []
    for number in range(40):
        late = number >= 20
        level = max(0.6 - 0.04 * (number - 20), 0.05) if late and what == "slowly" else 0.05 if late else 0.6
        accuracy = level if what == "answered worse" else 0.5
        step = step_of_run(number, rng, task=level, constant=nobody, extra=0.0, accuracy=accuracy)
        prompts = np.repeat(np.arange(16) + 16 * (number % 4) + 100 * (late and what == "other prompts"), 4)
        steps.append(Step(number, step.tokens, step.sequences | {"prompt_id": prompts}, step.scalars))
    run = open_run(write_run(tmp_path / "run", steps))
    found = causes(RunEvidence(summarise(run), run))
    assert ("scored_otherwise" in found) is (what == "scored otherwise")
