"""A warm-up is too long where it takes most of the planned run, and not where the log ends within it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratioscope.analysis.diagnosis import diagnose
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from tests.cases.world import Columns, Log, Shape, simulate, write

RATE = 2e-6


def said(folder: Path, rate: Any, planned: int | None, configured: float | None = RATE) -> list[str]:
    """What is said of learning for the learning rates of the steps, planned updates and a configured learning rate."""
    log = simulate(Shape(41, steps=16, groups=4, responses=4, lag=1))
    log.steps["learning_rate"] = RATE * np.clip(rate, 0, 1)
    log.manifest["planned_updates"], log.manifest["optimiser"]["learning_rate"] = planned, configured
    run = open_run(write(log, folder, "verl"))
    return [each.sentence for each in diagnose(summarise(run), run) if each.rule == "not_learning"]


STEP = np.arange(1, 17)


def test_a_warm_up_over_most_of_the_run_is_named(tmp_path: Path) -> None:
    (sentence,) = said(tmp_path / "planned", STEP / 180, 200)
    assert sentence == (
        "Most of the run is warm-up: at step 15 the learning rate is 8.9% of its setting, which it reaches at step "
        "179 of 200."
    )
    (sentence,) = said(tmp_path / "over", STEP / 180, None)
    assert sentence.endswith("at step 179, behind the 16 of the run.")


@pytest.mark.parametrize(
    ("rate", "planned", "configured"),
    [
        (STEP / 180, 2000, RATE),  # the log ends early
        (STEP / 20, 16, RATE),  # it is nearly there
        (1 - STEP / 18, 16, RATE),
        (np.minimum(STEP / 180, 0.06), 200, RATE),  # no warm-up: it stays
        (STEP / 180, 200, None),
    ],
)
def test_another_course_is_no_long_warm_up(tmp_path: Path, rate: Any, planned: int, configured: float | None) -> None:
    assert said(tmp_path / "run", rate, planned, configured) == []


@pytest.mark.parametrize(
    ("largest", "learns", "named"),
    [(1e-3, False, True), (1.0, False, False), (1e-3, True, False), (None, False, False)],
)
def test_gradients_that_are_all_cut_short_are_named_where_nothing_is_learned(
    largest: float | None, learns: bool, named: bool, tmp_path: Path
) -> None:
    log = simulate(Shape(42, steps=16, groups=4, responses=4, lag=1))
    log.manifest["optimiser"]["max_grad_norm"] = largest
    log.steps["eval_accuracy"] = np.linspace(0.3, 0.8, 16) if learns else np.resize([0.5, 0.52, 0.48], 16)
    run = open_run(write(log, tmp_path / "run", "all"))
    said = [each for each in diagnose(summarise(run), run) if each.rule == "not_learning"]
    assert [each.of_cause for each in said] == ["gradients_cut_short"] * named
    if named:
        assert "max_grad_norm is 0.001, and the gradient norm is 0." in said[0].sentence


@pytest.mark.parametrize(
    ("bound", "level", "learns", "named"),
    [
        (0.003, "token", False, True),
        (0.003, "token", True, False),
        (0.003, "sequence", False, False),  # what such bounds are for
        (0.2, "token", False, False),
    ],
)
def test_a_clip_that_is_far_too_narrow_is_named_where_nothing_is_learned(
    bound: float, level: str, learns: bool, named: bool, tmp_path: Path
) -> None:
    log = simulate(Shape(43, steps=16, groups=4, responses=4, lag=1, drift=0.05))
    beyond = np.resize([False, False, True, False], len(log.tokens["step"]))
    log.tokens["clipped"], log.tokens["clip_side"] = beyond, beyond.astype(np.int8)
    parts = {"gate": "one_side", "level": level, "weight": "ratio", "filter": "none"}
    log.manifest["algorithm"] |= {"parts": parts, "parameters": {"epsilon_low": bound, "epsilon_high": bound}}
    log.steps["eval_accuracy"] = np.linspace(0.3, 0.8, 16) if learns else np.resize([0.5, 0.52, 0.48], 16)
    run = open_run(write(log, tmp_path / "run", "all"))
    said = [each for each in diagnose(summarise(run), run) if each.rule == "not_learning"]
    assert [each.of_cause for each in said] == ["clip_too_narrow"] * named
    if named:
        assert "tokens are clipped from 0.003 beyond 1 on, 25% of them (median)" in said[0].sentence


@pytest.mark.parametrize(
    ("alone", "known_from", "says"),
    [(True, 0, "the reward of terminal rose from 0.4"), (False, 0, "1 of 2 signs"), (True, 8, "no other sign")],
)
def test_the_environment_that_a_reward_is_won_in_is_named(
    alone: bool, known_from: int, says: str, tmp_path: Path
) -> None:
    def reward(log: Log) -> Columns:
        rises = (log.responses["environment"] == "terminal") | (not alone)
        chance = np.where(rises, np.interp(log.responses["step"], [4, 16], [0.45, 0.95]), 0.45)
        return {"reward": (log.rng.random(len(chance)) < chance).astype(float)}

    log = simulate(Shape(43, steps=24, groups=12, lag=1, environments=("terminal", "sheets")), reward=reward)
    log.steps["eval_accuracy"] = np.resize([0.4, 0.42, 0.38], 24)
    log.responses["environment"] = np.where(log.responses["step"] < known_from, None, log.responses["environment"])
    run = open_run(write(log, tmp_path / "run", "all"))
    (said,) = (each for each in diagnose(summarise(run), run) if each.rule == "not_learning")
    assert said.of_cause == "reward_without_evaluation" and says in said.why
