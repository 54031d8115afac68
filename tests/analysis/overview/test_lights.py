"""The three lights: each state on a run that has it, and what none of them says."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratioscope.analysis.diagnosis import Severity, diagnose
from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.diagnosis.report import diagnosis_text
from ratioscope.analysis.diagnosis.rule import RULES
from ratioscope.analysis.findings.facts import Cause, facts_of, path_of
from ratioscope.analysis.findings.finding import Finding, Outcome
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.linter.verdict import causes_in_the_run, doubts
from ratioscope.analysis.overview.lights import NAMES, Light, LightState, lights, lights_of, lights_text
from ratioscope.analysis.overview.sentences import overview_headline
from ratioscope.analysis.overview.verdict import CHANGE, WHAT, run_verdict
from tests.analysis.diagnosis.made_up import STEPS, between, first, made_up, remark_of
from tests.analysis.linter import credited
from tests.making.runs import write_run
from tests.making.samples import NAMES as RUNS
from tests.making.samples import SAMPLE_RUNS, summary_of

RISING = 0.3 + 0.6 * np.arange(STEPS) / STEPS
PASSED = [Finding("Nothing.", outcome=Outcome.PASSED, rule=f"check_{number}") for number in range(9)]
NOT_CHECKED = [Finding("No column.", outcome=Outcome.NOT_CHECKED, rule=f"other_{number}") for number in range(20)]
RISERS = ("sync_interval20-grpo-lr0.0003-seed0", "sync_interval5_mixture4-incremental_clip-seed0")


def shown(remarks: list[Finding] = PASSED, *, live: bool = False, width: float = 0.03, **series: Any) -> list[Light]:
    summary = made_up(width=width, **series).summary
    return [*lights(summary, diagnose(summary, remarks=remarks), remarks, Limits(), live=live)]


def test_the_states_are_declared_once_and_a_light_is_as_grave_as_its_state_at_least() -> None:
    assert len({state.word for state in LightState}) == len(LightState)
    for light in shown(eval_accuracy=first(30, 0.5, 0.2)):
        assert light.severity >= light.state.severity and light.words.endswith(".")


def test_a_run_that_rises_is_rising_whatever_its_ratios_do() -> None:
    learning, off_policy, log = shown(eval_accuracy=RISING, khat_token=1.2, top1pct_share=0.5)
    assert (learning.state, learning.severity) == (LightState.RISING, Severity.NONE)
    assert learning.sentence == "Accuracy 31 → 88% (steps 0–3 and 56–59)."
    assert off_policy.state is LightState.HIGH and off_policy.severity is Severity.WARNING
    assert "Heavy tail in 60 of 60 steps" in off_policy.sentence
    assert log.state is LightState.TRUSTED


def test_a_flat_run_is_flat_and_never_just_fine() -> None:
    learning, off_policy, _ = shown(eval_accuracy=0.5)
    assert (learning.state, learning.severity) == (LightState.FLAT, Severity.NOTICE)
    assert learning.sentence == "Accuracy 50 → 50% (steps 0–19 and 40–59), within noise."
    assert off_policy.state is LightState.SMALL


def test_a_lost_share_of_a_level_without_a_fall_is_no_flat_line() -> None:
    learning, *_ = shown(eval_accuracy=0.8 - 0.15 * np.arange(STEPS) / STEPS)
    assert learning.state is LightState.FALLEN and learning.sentence == "Accuracy 80 → 66% (steps 0–3 and 56–59)."


def test_a_fall_that_came_back_is_not_flat_and_no_setback_where_nothing_is_lost() -> None:
    """What stands is said where it is looked for first; the finding below tells when."""
    low = [0.8] * 20 + [0.2] * 15
    learning, *_ = shown(eval_accuracy=np.array(low + [0.5] * 5 + [0.64] * (STEPS - 40)))
    assert learning.state is LightState.SET_BACK and learning.severity is Severity.WARNING
    assert learning.sentence == "Accuracy 80 → 20 → 64%."
    learning, *_ = shown(eval_accuracy=np.array([0.3] * 5 + low + [0.9] * (STEPS - 40)))
    assert learning.state is LightState.RISING and learning.sentence.endswith(", lowest 20%.")


def test_few_values_are_too_few() -> None:
    few = np.where(np.arange(STEPS) < 2, 0.5, np.nan)
    learning, *_ = shown(eval_accuracy=few, reward=np.nan)
    assert learning.words == "Unknown. 2 evaluations and 0 rewards are too few."
    learning, *_ = shown(eval_accuracy=np.nan, reward=np.nan)
    assert learning.words == "Unknown. Neither evaluation accuracy nor reward is logged."


def test_nothing_logged_is_nothing_known() -> None:
    learning, off_policy, log = shown(
        [], eval_accuracy=np.nan, reward=np.nan, s_k_bounded=np.nan, n_tokens=0.0, n_ratios=0.0
    )
    assert {light.state for light in (learning, off_policy, log)} == {LightState.UNKNOWN}


def test_what_is_known_in_few_steps_is_not_known() -> None:
    _, off_policy, _ = shown(s_k_bounded=first(20, 0.05, np.nan))
    assert off_policy.words == "Unknown. Staleness is known in 20 of 60 steps."


def test_what_is_persistent_is_harmful_and_its_number_is_beyond_its_limit() -> None:
    for series in ({"s_k_bounded": 0.3}, {"s_k_engine_bounded": 0.06, "s_k_version_bounded": 0.04}):
        _, off_policy, _ = shown(**series)
        assert off_policy.state is LightState.HARMFUL
        value, limit = map(float, re.findall(r"\d+\.\d+", off_policy.sentence))
        assert value > limit


@pytest.mark.parametrize(
    ("remarks", "state", "severity"),
    [
        (PASSED, LightState.TRUSTED, Severity.NONE),
        ([*PASSED, *NOT_CHECKED], LightState.UNKNOWN, Severity.NONE),
        ([], LightState.UNKNOWN, Severity.NONE),
        ([remark_of(Severity.WARNING), *PASSED], LightState.WITH_CARE, Severity.WARNING),
        ([remark_of(Severity.CRITICAL, steps=(3, 4)), *PASSED], LightState.WITH_CARE, Severity.WARNING),
        ([remark_of(Severity.CRITICAL, "advantage"), *PASSED], LightState.WITH_CARE, Severity.WARNING),
        ([remark_of(Severity.CRITICAL), *PASSED], LightState.BROKEN, Severity.CRITICAL),
    ],
)
def test_a_log_is_broken_where_most_of_what_is_needed_is(
    remarks: list[Finding], state: LightState, severity: Severity
) -> None:
    learning, off_policy, log = shown(remarks, eval_accuracy=RISING)
    assert (log.state, log.severity) == (state, severity)
    # Rewards are whole: whether it learns is known, whatever happened to the log-probabilities.
    assert learning.state is LightState.RISING
    assert (off_policy.state is LightState.UNKNOWN) is (state is LightState.BROKEN)


COLLAPSED = ("sync_offset10-reinforce-seed0", "sync_interval20-reinforce-seed0", "offline-reinforce-seed0")


@pytest.mark.parametrize("name", COLLAPSED)
def test_a_live_fall_is_said_at_once_and_does_not_flip(name: str) -> None:
    """From the first low evaluation on it drops, then it has fallen: until a value makes up half of what was lost."""
    summary = summary_of(name)
    accuracy = summary.values["eval_accuracy"].dropna()
    states: list[LightState] = []
    best, low = 0.0, False
    for step, value in accuracy.items():
        until = summary.up_to(None, int(str(step)))
        learning, *_ = lights(until, [], [], Limits(), live=True)
        was_low, share = low, Limits().reward_fall
        low = value < (1 - (share / 2 if low else share)) * best
        if low:
            assert learning.state in (LightState.DROPPING, LightState.FALLEN), (step, learning)
            assert not (was_low and states[-1] is LightState.FALLEN) or learning.state is LightState.FALLEN
        states.append(learning.state)
        if learning.state is LightState.DROPPING:
            assert low and "Consider stopping." in learning.sentence and learning.severity is Severity.WARNING
        best = max(best, value)
    assert states.count(LightState.DROPPING) >= 2
    # Once the run has ended there is nothing to stop.
    assert lights(summary, [], [], Limits())[0].state is not LightState.DROPPING


def test_a_live_run_is_told_to_consider_stopping(tmp_path: Path) -> None:
    """The same in the finding that `watch` reports, which is there in the step in which accuracy is first low."""
    evidence = made_up(eval_accuracy=first(59, 0.8, 0.27))
    folder = write_run(tmp_path / "run", [], status="running")
    live = open_folder(folder).run
    (found,) = (each for each in diagnose(evidence.summary, replace(live, status="running")) if "drop" in each.rule)
    assert found.sentence == "Dropping now: accuracy 80 → 27% in 1 step."
    assert found.do.startswith("Consider stopping, and go back to step 58. Score an earlier")
    over = replace(live, status="finished")
    (ended,) = (each for each in diagnose(evidence.summary, over) if "drop" in each.rule)
    assert ended.sentence == "Accuracy fell 80 → 27% in 1 step, where the run ends." and "stopping" not in ended.do


def test_a_run_that_fell_again_and_again_is_told_once() -> None:
    """It led with the last of five falls, "80 → 27% in 9 steps", and its second finding told the first, 74 → 48%."""
    opened = open_folder(SAMPLE_RUNS / "sync_offset10-reinforce-seed0")
    (fall,) = (each for each in opened.findings if RULES[each.rule].outcome)
    told = "Accuracy fell 74 → 18% in steps 25–120, came back to 82%, and fell again: 27% in step 149."
    assert fall.sentence.startswith(told) and fall.do.startswith("Go back to step 140.")
    assert lights_of(opened)[0].sentence == "Accuracy 74 → 18 → 82 → 27% (step 149)."
    found = run_verdict(opened.summary, opened.findings, opened.remarks, opened.limits)
    assert found.answers[1].text == "Below 56% first in step 30."


@pytest.mark.parametrize(("last", "state"), [(0.58, LightState.SET_BACK), (0.5, LightState.FALLEN)])
def test_a_last_value_within_the_noise_is_no_second_fall(last: float, state: LightState) -> None:
    """After a setback the last value is below the limit: by less than the lowest of so many does by chance, or more."""
    accuracy = between(20, 30, 0.8, 0.1)
    accuracy[-1] = last
    evidence = made_up(width=0.1, eval_accuracy=accuracy)
    learning, *_ = lights(evidence.summary, [], [], Limits())
    assert learning.state is state and f"80 → 10 → 80 → {100 * last:.0f}%" in learning.sentence


@pytest.mark.parametrize("name", RUNS)
def test_on_every_sample_run_an_adjective_fits_its_number(name: str) -> None:
    opened = open_folder(SAMPLE_RUNS / name)
    learning, off_policy, log = found = lights_of(opened)
    change = re.search(r"([\d.]+) → ([\d.]+)", learning.sentence)
    assert change is not None
    start, end = map(float, change.groups())
    assert (end > start) if learning.state is LightState.RISING else True
    assert (end < start) if learning.state is LightState.FALLEN else True
    for value, limit in re.findall(r"([\d.]+) \(limit ([\d.]+)\)", f"{off_policy.sentence}"):
        assert (float(value) <= float(limit)) or off_policy.state is LightState.HARMFUL
    assert log.state is (LightState.WITH_CARE if opened.problems else LightState.TRUSTED)
    verdict = run_verdict(opened.summary, opened.findings, opened.remarks, opened.limits)
    # What is called fine is within its limit.
    for value, limit in re.findall(r"at most ([\d.]+) \(limit ([\d.]+)", verdict.fine):
        assert float(value) <= float(limit), verdict.fine
    assert all(len(light.sentence.split()) <= 25 for light in found)
    if name in RISERS:
        assert learning.state is LightState.RISING and learning.severity is Severity.NONE
        assert off_policy.state is LightState.HIGH


def test_a_run_on_its_own_data_is_off_policy_by_its_engine_alone() -> None:
    """Its staleness is the engine's mismatch, and the limit of that is the one that counts."""
    _, off_policy, _ = lights_of(open_folder(SAMPLE_RUNS / "mismatch-grpo-seed0"))
    assert off_policy.state is LightState.SMALL
    assert off_policy.sentence == "From the engine alone, 0.011 on average (limit 0.025)."
    facts = facts_of(summary_of("mismatch-grpo-seed0"))
    rounding = path_of({Cause.ENGINE: (5e-8, 5e-8)}, 5e-8, 5e-8, 1)  # as in the first step of a run with one engine
    assert facts.engine_alone and not replace(facts, path=rounding).engine_alone


def test_the_command_line_has_a_line_for_each() -> None:
    lines = lights_text(lights_of(open_folder(SAMPLE_RUNS / RISERS[0]))).splitlines()
    assert [line.split()[1] for line in lines] == list(NAMES)
    assert lines[0] == "↗ Learning    Rising. Accuracy 63 → 87% (steps 0–10 and 145–149)."


@pytest.mark.parametrize(
    ("fault", "cause", "of_the_run"),
    [
        (credited.paid_by_turn, "paid_by_turn", True),
        (credited.whitened_again, "whitened_again", False),
    ],
)
def test_what_a_true_log_says_of_its_run_is_what_happened(
    tmp_path: Path, fault: Callable[[credited.Batch], None], cause: str, of_the_run: bool
) -> None:
    """A scorer that was wrong made the log doubtful, of a run without a problem."""
    opened = open_folder(credited.written(tmp_path / "run", fault))
    (found,) = (remark for remark in opened.problems if remark.of_cause == cause)
    headline = overview_headline(opened.facts(), opened.findings, opened.remarks)
    log = lights_of(opened)[-1]
    assert (
        (found in causes_in_the_run(opened.problems, opened.findings)) is of_the_run is (found not in doubts([found]))
    )
    assert (headline == found.sentence) is of_the_run is ("credit" not in log.sentence), (headline, log)
    said = diagnosis_text(opened)
    assert f"Do: {(found if of_the_run else doubts(opened.problems)[0]).do}" in said
    assert of_the_run is ("No problem found" not in said)


def test_causes_of_a_run_stand_among_its_findings_by_severity_and_before_equals(tmp_path: Path) -> None:
    opened = open_folder(credited.written(tmp_path / "run", credited.paid_by_turn))
    (cause,) = causes_in_the_run(opened.problems, [])
    made = [Finding(f"Of {each.word}.", each, "Do.", rule="heavy_tail") for each in reversed(Severity) if each]
    named = Finding("Of padding.", Severity.WARNING, "Do.", rule="mismatch_cause", of_cause="padding")
    said = diagnosis_text(replace(opened, judged=replace(opened.judged, findings=[*made, named])))
    places = [said.index(each.sentence) for each in (made[0], named, cause, made[1], made[2])]
    assert cause.severity is Severity.WARNING and places == sorted(places)


@pytest.mark.parametrize(
    ("rule", "severity", "leads"),
    [
        ("heavy_tail", Severity.WARNING, True),
        ("mismatch_cause", Severity.WARNING, False),
        ("heavy_tail", Severity.CRITICAL, False),
        ("reward_collapse", Severity.WARNING, False),
        ("reward_collapse", Severity.NOTICE, True),
    ],
)
def test_a_cause_of_the_run_says_what_happened_before_a_rule_that_is_no_graver(
    rule: str, severity: Severity, leads: bool, tmp_path: Path
) -> None:
    opened = open_folder(credited.written(tmp_path / "run", credited.paid_by_turn))
    (cause,) = causes_in_the_run(opened.problems, [])
    of_cause = "padding" if rule == "mismatch_cause" else ""
    findings = [Finding("It is so: here.", severity, "Do this.", rule=rule, why="It shows.", of_cause=of_cause)]
    verdict = run_verdict(opened.summary, findings, opened.remarks, opened.limits)
    said = {answer.question: answer.whole for answer in verdict.answers}
    assert (said[WHAT] == cause.sentence) is leads is cause.do.startswith(said[CHANGE]) is (verdict.lead is None)
    assert overview_headline(opened.facts(), findings, opened.remarks) == (cause if leads else findings[0]).sentence
