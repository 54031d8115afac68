"""`stop_on_critical`: a run that has collapsed is stopped and reported on, a healthy one is left alone."""

import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch import distributed
from transformers import TrainerControl, TrainerState, TrainingArguments

from ratioscope import RatioscopeError, stop_on_critical
from ratioscope.stopping import StopOnCritical
from tests.making.runs import random_step, write_run


def recorded(folder: Path, *, collapsed: bool) -> Path:
    """Forty steps; the accuracy of a collapsed run falls to a tenth in the middle."""
    rng, steps = np.random.default_rng(0), []
    for number in range(40):
        step = random_step(rng, number, groups=3, responses=4, spread=0.02)
        accuracy = 0.08 if collapsed and number >= 20 else 0.8
        noisy = accuracy + 0.01 * float(rng.standard_normal())
        steps.append(replace(step, scalars=step.scalars | {"eval_accuracy": noisy}))
    return write_run(folder / "run", steps)


def until_judged(guard: StopOnCritical) -> None:
    """Updates go on while a diagnosis is under way."""
    until = time.monotonic() + 120
    while not guard.checks and not guard.stop and time.monotonic() < until:
        guard.step()
        time.sleep(0.05)


def test_a_collapsed_run_is_stopped_and_has_a_post_mortem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recorded(tmp_path, collapsed=True)
    guard = stop_on_critical(folder, every=2, report=tmp_path / "why.json")
    assert not guard.step() and not guard.step() and not guard.checks  # it does not wait
    until_judged(guard)
    assert guard.stop and guard.step() and guard.finding["rule"] == "reward_collapse"
    guard.close()
    assert "The last stable step is 19: " in guard.report.read_text()
    said = capsys.readouterr().err
    assert guard.sentence in said and "1 diagnosis took" in said
    other = stop_on_critical(folder, every=1, rules=["heavy_tail"])
    until_judged(other)
    assert other.checks == 1 and not other.stop


def test_the_cost_is_a_share_of_the_time_since_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratioscope.stopping.time.monotonic", lambda: 100.0)
    guard = stop_on_critical(tmp_path)
    guard.checks, guard.seconds = 2, 5.0
    monkeypatch.setattr("ratioscope.stopping.time.monotonic", lambda: 150.0)
    assert guard.cost == "2 diagnoses took 5.0 s of other processes, 10.0% of the time since the start."


def test_a_healthy_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    guard = stop_on_critical(SimpleNamespace(folder=recorded(tmp_path, collapsed=False)), every=1)
    until_judged(guard)
    assert guard.checks == 1 and not guard.stop
    guard.step()
    assert guard._check is None  # for 19 times as long as the first one took
    guard.close()
    assert not guard.report.exists() and "critical" not in capsys.readouterr().err


def test_what_goes_wrong_with_a_diagnosis_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    guard = stop_on_critical(tmp_path / "nothing\x1b[31m", every=1, share=1.0)
    until_judged(guard)
    until_judged(guard)
    guard.close()
    said = capsys.readouterr().err
    assert not guard.stop and said.count("a diagnosis failed") == 1 and "there is no such folder" in said
    assert "\x1b" not in said


def test_without_an_interpreter_there_is_no_diagnosis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    guard = stop_on_critical(tmp_path, every=1)
    assert not guard.step() and not guard.step()
    assert capsys.readouterr().err.count("no diagnosis is made") == 1


def test_values_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    inside, nowhere = tmp_path / "why.html", tmp_path.parent / "no" / "why.html"
    for options in ({"every": 0}, {"share": 0.0}, {"report": "why.txt"}, {"report": nowhere}, {"report": inside}):
        with pytest.raises(RatioscopeError):
            stop_on_critical(tmp_path, **options)


@pytest.mark.parametrize("ranks", [False, True])
def test_a_trainer_is_asked_to_stop_and_waits_for_the_report_at_the_end(ranks: bool, tmp_path: Path) -> None:
    called: list[str] = []

    class Told(StopOnCritical):
        def step(self) -> bool:
            called.append("step")
            return len(called) == 2

        def close(self, seconds: float = 0.0) -> None:
            called.append("close")

    callback: Any = Told(tmp_path, 1, tmp_path / "why.html", 0.05).callback()
    state, args = TrainerState(), TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[])
    if ranks:
        distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'ranks'}", rank=0, world_size=1)
    try:
        stops = []
        for _ in range(2):
            control = callback.on_step_end(args, state, TrainerControl())
            stops.append(control.should_training_stop)
    finally:
        if ranks:
            distributed.destroy_process_group()
    callback.on_train_end(args, state, TrainerControl())
    assert stops == [False, True] and called == ["step", "step", "close"]
