"""The rules and sentences on the sample runs: each finding fires on the runs that have the fault and on no other."""

from functools import cache
from pathlib import Path

import pytest

from analysis import answers
from analysis.diagnosis import Severity, diagnose
from analysis.store import discover, open_run
from analysis.summary import StepSummary, summarise

SAMPLE_RUNS = Path(__file__).parents[2] / "sample_runs"
NAMES = sorted(run.run_id for run in discover([SAMPLE_RUNS]))


@cache
def summary_of(name: str) -> StepSummary:
    return summarise(open_run(SAMPLE_RUNS / name))


def rules_of(name: str) -> set[str]:
    return {finding.rule for finding in diagnose(summary_of(name))}


def test_the_sample_runs_are_those_of_the_study() -> None:
    assert len(NAMES) == 20
    assert all(open_run(SAMPLE_RUNS / name).status == "finished" for name in NAMES)
    assert sum(path.stat().st_size for path in SAMPLE_RUNS.rglob("*") if path.is_file()) < 25e6


@pytest.mark.parametrize("name", NAMES)
def test_findings_fire_on_runs_that_have_the_fault_and_are_silent_on_the_others(name: str) -> None:
    expected: set[str] = set()
    if "reinforce" in name:
        expected = {"staleness_high", "heavy_tail"}
    elif "_0.6_2" in name:
        expected = {"heavy_tail"}
    assert rules_of(name) == expected


@pytest.mark.parametrize("name", [name for name in NAMES if "sync_interval20-grpo" in name])
def test_the_clip_fraction_has_the_period_of_the_weight_syncs(name: str) -> None:
    summary = summary_of(name)
    assert answers.sawtooth_period(summary.values["version_lag"]) == 20
    assert answers.sync_steps(summary.values["version_lag"]) == [20, 40, 60, 80, 100, 120, 140]
    clipped = summary.values["clip_fraction"]
    assert clipped[summary.values["version_lag"] == 0].max() == 0
    assert clipped[summary.values["version_lag"] >= 15].mean() > 2 * clipped[summary.values["version_lag"] <= 2].mean()
    assert "every 20 updates" in answers.clipping(summary)


def test_figure_3_reinforce_collapses_and_the_clipped_variants_rise_together() -> None:
    """S3 figure 3 under sync_interval 20: the end is the mean of the last five evaluations."""

    def end(name: str) -> float:
        return float(summary_of(name).values["eval_accuracy"].dropna().iloc[-5:].mean())

    for seed in (0, 1):
        clipped = [end(f"sync_interval20-{name}-seed{seed}") for name in ("grpo", "rec_oneside_is", "rec_oneside_nois")]
        assert end(f"sync_interval20-reinforce-seed{seed}") < 0.25
        assert min(clipped) > 0.45
        assert max(clipped) - min(clipped) < 0.06


def test_every_page_opens_with_a_sentence_on_every_run() -> None:
    for name in NAMES:
        summary = summary_of(name)
        sentences = (
            answers.overview(summary, diagnose(summary)),
            answers.drift(summary),
            answers.ratios(summary),
            answers.clipping(summary),
        )
        assert all(sentence.endswith(".") and "nan" not in sentence for sentence in sentences)


def test_findings_come_worst_first_and_name_their_evidence() -> None:
    findings = diagnose(summary_of("offline-reinforce-seed0"))
    assert [finding.severity for finding in findings] == sorted((f.severity for f in findings), reverse=True)
    staleness = findings[0]
    assert staleness.severity is Severity.CRITICAL
    assert staleness.page == "drift"
    values = summary_of("offline-reinforce-seed0").values["s_k"]
    assert all(values[step] > staleness.limit for step in staleness.steps)
