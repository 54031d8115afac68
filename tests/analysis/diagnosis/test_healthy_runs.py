"""Fifty healthy runs of many sizes, schedules and algorithms: neither the rules nor the linter warn of any."""

from pathlib import Path

import pytest

from ratioscope.analysis.diagnosis import Severity, diagnose
from ratioscope.analysis.linter import lint
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from tests.making.healthy import Shape, healthy_steps, manifest_of, shapes
from tests.making.runs import write_run

RUNS = 50


@pytest.mark.parametrize("shape", shapes(RUNS), ids=lambda shape: f"{shape.seed}-{shape.schedule.replace(' ', '_')}")
def test_nothing_is_wrong_with_a_healthy_run(shape: Shape, tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", healthy_steps(shape), **manifest_of(shape)))
    remarks = lint(run)
    assert [(remark.rule, remark.sentence) for remark in remarks if remark.is_problem] == []
    findings = diagnose(summarise(run), run, remarks=remarks)
    warnings = [finding for finding in findings if finding.severity >= Severity.WARNING]
    assert [(finding.rule, finding.sentence) for finding in warnings] == []
