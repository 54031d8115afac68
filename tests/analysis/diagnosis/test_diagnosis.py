"""The diagnosis of made-up logs: two limits end to end, the bounded form, silence on clean runs, order of findings."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.clipping import sentences as clipping
from ratioscope.analysis.diagnosis import RULES, diagnose
from ratioscope.analysis.drift import sentences as drift_sentences
from ratioscope.analysis.findings.facts import facts_of
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.overview import sentences as overview
from ratioscope.analysis.overview.verdict import run_verdict
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import StepSummary, summarise
from ratioscope.catalogue import EPSILON, EPSILON_STALE
from tests.making.runs import Step, plain_step, write_run

GROUPS, TOKENS = 24, 480


def summary_with(folder: Path, staleness: float, drift: float, steps: int = 6) -> StepSummary:
    """Ratios 1 ± 2 S_k, half of each, so that S_k is `staleness` and the mean ratio 1; likewise for the update."""
    sign = np.where(np.arange(TOKENS) % 2 == 0, 1.0, -1.0)
    behavior = np.full(TOKENS, -2.0)

    def step(number: int) -> Step:
        current = np.log1p(2 * staleness * sign)
        new = np.log(1 + 2 * staleness * sign + 2 * drift * np.roll(sign, 1))
        return plain_step(
            behavior,
            behavior + current,
            behavior + new,
            number=number,
            group=np.repeat(np.arange(GROUPS), TOKENS // GROUPS),
        )

    return summarise(open_run(write_run(folder, [step(number) for number in range(steps)])))


def test_a_quiet_run_has_no_finding(tmp_path: Path) -> None:
    summary = summary_with(tmp_path / "run", staleness=0.005, drift=0.01)
    assert diagnose(summary) == []
    assert overview.overview_headline(facts_of(summary), []).startswith("No problem found in 6 steps")


def test_of_a_run_without_a_usable_token_nothing_is_claimed(tmp_path: Path) -> None:
    quiet = summary_with(tmp_path / "run", staleness=0.02, drift=0.01)
    summary = replace(quiet, values=quiet.values * np.nan)
    assert overview.overview_headline(facts_of(summary), []).startswith(
        "Cannot tell from 6 steps: no step has a usable"
    )
    found = run_verdict(summary, [], [], Limits())
    assert not found.fine and "no step has a usable token" in found.answers[0].text


@pytest.mark.parametrize(("factor", "fires"), [(0.9, False), (1.1, True)])
def test_staleness_is_found_above_half_of_epsilon_stale(tmp_path: Path, factor: float, fires: bool) -> None:
    summary = summary_with(tmp_path / "run", staleness=factor * EPSILON_STALE.value / 2, drift=0.01)
    assert ("staleness_high" in {finding.rule for finding in diagnose(summary)}) is fires


@pytest.mark.parametrize(("factor", "fires"), [(0.9, False), (1.1, True)])
def test_an_update_is_found_above_half_of_epsilon(tmp_path: Path, factor: float, fires: bool) -> None:
    summary = summary_with(tmp_path / "run", staleness=0.02, drift=factor * EPSILON.value / 2)
    assert ("update_large" in {finding.rule for finding in diagnose(summary)}) is fires


def test_a_finding_quotes_the_summary(tmp_path: Path) -> None:
    summary = summary_with(tmp_path / "run", staleness=0.3, drift=0.01)
    finding = next(finding for finding in diagnose(summary) if finding.rule == "staleness_high")
    worst = finding.numbers[0]
    assert worst.value == pytest.approx(0.3, abs=1e-6)
    assert finding.steps == tuple(range(6))
    assert f"up to {0.3:g} in step" in finding.sentence
    assert "staleness is engine mismatch" in finding.why and "engines" in finding.do


def test_staleness_of_a_truncated_support_is_not_halved(tmp_path: Path) -> None:
    """All ratios below 1: the mean ratio is significantly below 1, and the plain form is half of the bounded one."""
    rng = np.random.default_rng(0)
    behavior = np.full(TOKENS, -2.0)
    current = behavior + np.log(0.6) + 0.01 * rng.standard_normal(TOKENS)
    group = np.repeat(np.arange(GROUPS), TOKENS // GROUPS)
    summary = summarise(open_run(write_run(tmp_path / "run", [plain_step(behavior, current, current, group=group)])))
    assert facts_of(summary).staleness.median == pytest.approx(0.4, abs=0.01)
    assert {finding.metric for finding in diagnose(summary)} == {"s_k_bounded"}


def test_findings_come_worst_first_and_causes_before_consequences(tmp_path: Path) -> None:
    findings = diagnose(summary_with(tmp_path / "run", staleness=0.45, drift=0.02))
    places = list(RULES)
    order = [(-finding.severity, places.index(finding.rule)) for finding in findings]
    assert order == sorted(order) and len(order) > 1


def test_limits_move_the_verdict(tmp_path: Path) -> None:
    summary = summary_with(tmp_path / "run", staleness=0.25, drift=0.02)
    loose = Limits(epsilon_stale=0.8, kl=1, mult_prob_error=2, engine_to_update=100)
    assert {finding.rule for finding in diagnose(summary, limits=loose)} == set()
    usual = {finding.rule for finding in diagnose(summary)}
    assert {finding.rule for finding in diagnose(summary, limits=Limits(epsilon=0.03))} == usual | {"update_large"}
    assert "staleness_high" in usual and "update_large" not in usual


def test_a_run_without_the_new_policy_is_judged_by_what_it_logs(tmp_path: Path) -> None:
    behavior = np.full(TOKENS, -2.0)
    summary = summarise(open_run(write_run(tmp_path / "run", [plain_step(behavior, behavior)])))
    assert diagnose(summary) == []
    assert "unknown" in drift_sentences.drift_headline(facts_of(summary))
    assert "not logged" in clipping.clipping_headline(summary)


def test_the_opening_sentences_name_the_limits_that_hold(tmp_path: Path) -> None:
    summary = summary_with(tmp_path / "run", staleness=0.25, drift=0.01)
    moved = Limits(epsilon_stale=0.8, epsilon=0.1, kl=1, mult_prob_error=2)
    found = run_verdict(summary, diagnose(summary, limits=moved), [], moved)
    said = f"{found.lights[1].sentence} {found.fine}"
    assert "(limit 0.5)" in said and "(limit 0.05)" in said  # of the engine: the data are the policy's own
    assert "above its limit of 0.2 in 6 of 6 steps" in drift_sentences.drift_headline(facts_of(summary))
    assert "below its limit of 0.4" in drift_sentences.drift_headline(facts_of(summary, moved))
