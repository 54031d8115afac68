"""What is sick and logged as it is: no check calls a column wrong, and faults are still found in such logs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratioscope.analysis.diagnosis import diagnose
from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.linter import lint
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from tests.analysis.linter.remarks import answer, asked, problems, the
from tests.analysis.linter.true_logs import TRUE_LOGS, steps_of
from tests.making.loops import in_one_loop
from tests.making.runs import write_run

SAMPLER = {"smoothing": {"top_p": 0.8, "smoothing": 0.05}}


def written(folder: Path, name: str, **changed: Any) -> Path:
    return write_run(folder, steps_of(**TRUE_LOGS[name] | changed), sampler=SAMPLER.get(name, {}))


@in_one_loop("name", {name: name for name in TRUE_LOGS})
def test_a_true_column_is_never_called_wrong(tmp_path: Path, name: str) -> None:
    remarks = lint(open_run(written(tmp_path / name, name)))
    # A sampler that truncates is another engine, and that is said.
    assert problems(remarks) <= ({"on_policy_ratio"} if name == "smoothing" else set()), [
        remark.sentence for remark in remarks if remark.is_problem
    ]


def test_true_logs_have_the_zeros_that_they_are_for(tmp_path: Path) -> None:
    tokens = open_run(written(tmp_path / "run", "mixture, many exact zeros")).read("tokens")
    assert (tokens["logp_behavior"] == 0).mean() > 0.1
    doubted = (tokens["logp_behavior"] == 0) & (tokens["logp_current"] < -0.7)
    collapsed = open_run(written(tmp_path / "old", "collapsed offline, seed 0, rate 2.0")).read("tokens")
    assert doubted.any() or ((collapsed["logp_behavior"] == 0) & (collapsed["logp_current"] < -0.7)).any()


@pytest.mark.parametrize("name", ["mixture, many exact zeros", "collapsed offline, seed 0, rate 0.6"])
def test_faults_are_found_in_sick_logs_all_the_same(tmp_path: Path, name: str) -> None:
    rng, steps = np.random.default_rng(0), list(steps_of(**TRUE_LOGS[name]))

    def late(column: Any) -> Any:
        return np.where(np.arange(len(column)) % 6, np.roll(column, 1), -0.01).astype(np.float32)

    def some_zero(column: Any) -> Any:
        return np.where(rng.random(len(column)) < 0.1, 0, column).astype(np.float32)

    # Where the policy has left its sampler, zeros are what states that are shared say.
    by_state = "zero_filled" if name.startswith("mixture") else "own_token"
    for fault, check in ((late, "shifted"), (some_zero, by_state)):
        damaged = [step.with_tokens(logp_behavior=fault(step.tokens["logp_behavior"])) for step in steps]
        (remark, *_) = asked(open_run(write_run(tmp_path / check, damaged)), check)
        assert remark.is_problem and remark.columns == ("logp_behavior",), remark.sentence


def test_tokens_without_a_samplers_value_have_no_ratio(tmp_path: Path) -> None:
    remark = answer(open_run(written(tmp_path / "run", "experts")), "mean_ratio")
    assert remark.numbers[0].value == pytest.approx(1, abs=1e-6)


def test_smoothing_is_no_weight_that_never_arrived(tmp_path: Path) -> None:
    run = open_run(written(tmp_path / "run", "smoothing", steps=24, sharpness=0.3))
    findings = {finding.rule: finding for finding in diagnose(summarise(run), run, remarks=lint(run))}
    assert "sampler_not_following" not in findings
    said = [finding.sentence + finding.why + finding.do for finding in findings.values()]
    assert not any("never draws" in text or "smooth the" in text for text in said)


def test_where_earlier_steps_were_not_looked_at_the_onset_is_at_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [step.with_tokens(logp_behavior=np.abs(step.tokens["logp_behavior"])) for step in
             steps_of(0, rate=0.1, steps=8)]  # fmt: skip
    folder = write_run(tmp_path / "run", steps)
    whole = the(lint(open_run(folder)), "invalid_values")
    assert "(first 0, last 7)" in whole.sentence and not whole.begins_unseen
    monkeypatch.setattr("ratioscope.analysis.diagnosis.kept.CHECKED_TOKENS", 3 * 576)
    monkeypatch.setattr("ratioscope.analysis.diagnosis.kept._SMALL", 0)
    opened = open_folder(folder)
    (broken,) = (finding for finding in opened.findings if finding.rule == "log_broken")
    first = opened.judged.checked[0]
    assert first and broken.begins_unseen and f"(since step {first} at least, last 7)" in broken.sentence
