"""Findings from disk are those that the rules found, and never another run's."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ratioscope import RunRecorder
from ratioscope.analysis.diagnosis import diagnose
from ratioscope.analysis.diagnosis import kept as kept_findings
from ratioscope.analysis.diagnosis.kept import judged
from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.findings.finding import Finding
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.linter import lint
from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.summary.summary import StepSummary, Summariser, summarise
from ratioscope.errors import RatioscopeError
from tests.making.runs import random_step, write_run

LIMITS = Limits()


def _agree(found: list[Finding], others: list[Finding]) -> None:
    """The same but for the rounding of sums in another order."""
    assert [replace(finding, numbers=()) for finding in found] == [replace(other, numbers=()) for other in others]
    for finding, other in zip(found, others, strict=True):
        for one, two in zip(finding.numbers, other.numbers, strict=True):
            assert (one.label, one.note) == (two.label, two.note)
            assert [one.value, one.low, one.high] == pytest.approx([two.value, two.low, two.high], nan_ok=True)


def test_findings_are_kept_for_the_same_run_and_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    write_run(tmp_path / "run", [random_step(rng, number, spread=0.9) for number in range(12)])
    run = open_run(tmp_path / "run")
    summary = summarise(run)
    found = judged(run, lambda: summary, LIMITS).findings
    assert found
    _agree(found, diagnose(summary, run, LIMITS, judged(run, lambda: summary, LIMITS).remarks))
    monkeypatch.setattr(kept_findings, "diagnose", _refuse)
    _agree(judged(run, lambda: summary, LIMITS).findings, found)
    with pytest.raises(AssertionError, match="diagnosed again"):
        judged(run, lambda: summary, Limits(epsilon=0.01))
    manifest = replace(run.manifest, algorithm={"name": "another"})
    with pytest.raises(AssertionError, match="diagnosed again"):
        judged(replace(run, manifest=manifest), lambda: summary, LIMITS)


def test_who_comes_while_a_run_is_judged_waits_for_what_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "run", [random_step(np.random.default_rng(0))])
    run = open_run(tmp_path / "run")
    summary, asked = summarise(run), []

    def slow(*arguments: Any) -> list[Finding]:
        asked.append(1)
        time.sleep(0.1)
        return diagnose(*arguments)

    monkeypatch.setattr(kept_findings, "diagnose", slow)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: judged(run, lambda: summary, LIMITS).findings, range(2)))
    assert asked == [1]
    _agree(*found)


def _refuse(*arguments: object) -> list[Finding]:
    raise AssertionError("diagnosed again")


def test_findings_of_a_live_run_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = random_step(np.random.default_rng(0))
    with RunRecorder(tmp_path / "live", flush_seconds=0.0) as recorder:
        recorder.record_step(0, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
        recorder.flush()
        run = open_run(tmp_path / "live")
        judged(run, lambda: summarise(run), LIMITS)
        monkeypatch.setattr(kept_findings, "diagnose", _refuse)
        with pytest.raises(AssertionError, match="diagnosed again"):
            judged(run, lambda: summarise(run), LIMITS)


def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The summary waits for the checks to begin and the checks for the summary's: who takes turns never ends."""
    summing, checking = Event(), Event()

    def summed(self: Summariser, run: Run, *rest: Any) -> StepSummary:
        summing.set()
        assert checking.wait(20)
        return summarised(self, run, *rest)

    def checked(*arguments: Any, **named: Any) -> list[Finding]:
        checking.set()
        assert summing.wait(20)
        return lint(*arguments, **named)

    summarised = Summariser.summarise
    monkeypatch.setattr(Summariser, "summarise", summed)
    monkeypatch.setattr(kept_findings, "lint", checked)


def test_a_small_run_is_summed_up_while_its_log_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path / "run", [random_step(np.random.default_rng(0))])
    alone = open_folder(folder)
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path / "cache"))
    _at_once(monkeypatch)
    together = open_folder(folder)
    assert together.remarks == alone.remarks
    pd.testing.assert_frame_equal(together.summary.values, alone.summary.values)


def test_what_stops_the_summary_of_a_small_run_stops_who_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path / "run", [random_step(np.random.default_rng(0))])

    def gone(self: Summariser, run: Run) -> StepSummary:
        raise RatioscopeError("The file has gone.")

    monkeypatch.setattr(Summariser, "summarise", gone)
    with pytest.raises(RatioscopeError, match="has gone"):
        open_folder(folder)
