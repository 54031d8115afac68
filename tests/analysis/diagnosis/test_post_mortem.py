"""The last stable step: before what changed first, before the fall, or before the first step that shows a finding."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.diagnosis.opened import Opened, open_folder
from ratioscope.analysis.diagnosis.post_mortem import post_mortem
from ratioscope.analysis.findings.finding import Finding, Severity
from tests.making.commands import command
from tests.making.runs import random_step, write_run
from tests.making.samples import run_of

STEPS, FALLS = 60, 40


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """A quiet run whose accuracy is lost in step 40."""
    rng, steps = np.random.default_rng(0), []
    for number in range(STEPS):
        step = random_step(rng, number, groups=3, responses=4, spread=0.02)
        accuracy = (0.08 if number >= FALLS else 0.8) + 0.01 * float(rng.standard_normal())
        steps.append(replace(step, scalars=step.scalars | {"eval_accuracy": accuracy}))
    return open_folder(write_run(tmp_path_factory.mktemp("fallen") / "run", steps))


def having(opened: Opened, metric: str, values: "pd.Series[float]") -> Opened:
    """The run with other values of a metric."""
    changed = opened.summary.values.assign(**{metric: values})
    return replace(opened, summary=replace(opened.summary, values=changed))


def with_findings(opened: Opened, *findings: Finding) -> Opened:
    return replace(opened, judged=replace(opened.judged, findings=list(findings)))


def finding(rule: str, metric: str, steps: tuple[int, ...], severity: Severity = Severity.CRITICAL) -> Finding:
    return Finding(
        sentence="It is so.", severity=severity, metric=metric, steps=steps, numbers=(), why="why", do="do",
        source="source", limit=0.1, rule=rule,
    )  # fmt: skip


def test_before_a_fall_it_is_the_last_step_that_was_still_good(opened: Opened) -> None:
    found = post_mortem(opened)
    assert found is not None and found.last_stable == 38 and found.first.step == FALLS  # 39 is below, by noise
    assert found.first.finding.rule == "reward_collapse" and found.last == STEPS - 1
    assert found.sentence.startswith("The last stable step is 38: Evaluation accuracy was at its best level")


def test_what_changed_before_the_fall_comes_first(opened: Opened) -> None:
    rng = np.random.default_rng(1)
    norm = pd.Series(np.where(np.arange(STEPS) < 30, 1.0, 5.0) + 0.05 * rng.standard_normal(STEPS), range(STEPS))
    found = post_mortem(having(opened, "grad_norm", norm))
    assert found is not None and found.last_stable == 29 and found.first.by == "grad_norm"
    assert "Gradient norm changed for good from step 30 on" in found.sentence


def test_any_other_finding_begins_with_its_steps_or_with_the_change_of_its_metric(opened: Opened) -> None:
    later, earlier = finding("update_large", "u_k", (50, 51)), finding("staleness_high", "s_k_bounded", (45,))
    found = post_mortem(with_findings(opened, later, earlier))
    assert found is not None and [onset.step for onset in found.onsets] == [45, 50] and found.last_stable == 44
    rng = np.random.default_rng(2)
    drift = pd.Series(np.where(np.arange(STEPS) < 25, 0.1, 0.4) + 0.005 * rng.standard_normal(STEPS), range(STEPS))
    dated = post_mortem(with_findings(having(opened, "u_k", drift), later))
    assert dated is not None and dated.last_stable == 24 and "changed for good from step 25" in dated.sentence


def test_from_the_first_step_on_no_step_is_stable(opened: Opened) -> None:
    found = post_mortem(with_findings(opened, finding("heavy_tail", "khat_token", tuple(range(STEPS)))))
    assert found is not None and found.last_stable is None and found.sentence.startswith("No step on disk is stable: ")


def test_what_is_wrong_with_the_log_or_not_critical_ends_no_run(opened: Opened) -> None:
    broken = finding("log_broken", "s_k_bounded", (0,))
    assert (
        post_mortem(with_findings(opened, broken, finding("heavy_tail", "khat_token", (3,), Severity.WARNING))) is None
    )
    assert post_mortem(with_findings(opened)) is None


def test_the_command_says_so_where_there_is_nothing_to_look_back_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    healthy, target = str(run_of("sync_interval20-grpo-seed0").folder), str(tmp_path / "why.html")
    outcome = command(monkeypatch, capsys, "report", healthy, "--post-mortem", "-o", target)
    assert outcome.code == 2 and "nothing to look back on" in outcome.err
    outcome = command(monkeypatch, capsys, "report", healthy, "--post-mortem", "--steps", "1:2", "-o", target)
    assert outcome.code == 2 and "leave the others out" in outcome.err
