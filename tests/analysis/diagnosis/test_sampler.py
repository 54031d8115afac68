"""The sampler that does not follow: found where versions advance and log-probs stay those of the start, never else."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.diagnosis import Finding, RunEvidence, Severity, diagnose
from ratioscope.analysis.diagnosis.sampler import sampler_does_not_follow
from ratioscope.analysis.findings.facts import facts_of
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.staleness.following import FACTOR, explained_staleness, following
from ratioscope.analysis.summary.summary import summarise
from tests.making.faults import damage
from tests.making.runs import Step, plain_step, write_run
from tests.making.samples import SAMPLE_RUNS, run_of, summary_of

Change = Callable[[pd.DataFrame], pd.DataFrame]
# Those that come closest to what their updates explain, and a language model; the others are diagnosed elsewhere.
CLOSEST = (
    "sync_interval20-reinforce-seed0", "sync_interval20-rec_oneside_nois_0.6_2-seed1", "offline-reinforce-seed0",
    "sync_offset10-reinforce-seed0", "smollm2_sync_interval4-grpo-lr5e-06-seed0",
)  # fmt: skip
# Samples of version 0 in every step: what a sampler draws whose weights never arrive.
FROZEN = "offline-grpo-seed0"


def claiming(lag: int, **columns: object) -> Change:
    """The versions that a log has whose writer believes in its syncs."""
    return lambda frame: frame.assign(behavior_version=np.maximum(frame["step"] - lag, 0).astype(np.int32), **columns)


def found_in(folder: Path, name: str, change: Change) -> Finding | None:
    run = open_run(damage(SAMPLE_RUNS / name, folder / "run", "tokens", change))
    return sampler_does_not_follow(RunEvidence(summarise(run), run))


def test_sample_runs_follow_with_a_margin() -> None:
    """The lower end of staleness stays below 1.2 of the sum of the updates, and the rule asks for `FACTOR` times it."""
    largest = 0.0
    for name in CLOSEST:
        summary = summary_of(name)
        assert sampler_does_not_follow(RunEvidence(summary)) is None
        explained = explained_staleness(summary)
        largest = max(largest, (summary.low["s_k_bounded"] / explained)[explained > 0.01].max())
    assert 0.8 < largest < 0.6 * FACTOR


@pytest.mark.parametrize("lag", [0, 1])
def test_a_frozen_sampler_is_found_whatever_lag_it_reports(tmp_path: Path, lag: int) -> None:
    run = open_run(damage(SAMPLE_RUNS / FROZEN, tmp_path / "run", "tokens", claiming(lag)))
    findings = diagnose(summarise(run), run)
    assert findings[0].rule == "sampler_not_following" and findings[0].severity is Severity.CRITICAL
    assert "grown from almost nothing" in findings[0].why and "checksum" in findings[0].do
    # Fresher weights or another number format are no remedies for it.
    assert {"staleness_high", "staleness_growing", "engine_mismatch"}.isdisjoint({f.rule for f in findings})


def test_versions_that_are_stale_by_ten_are_found(tmp_path: Path) -> None:
    finding = found_in(tmp_path, "sync_offset10-grpo-seed0", claiming(1))
    assert finding is not None and finding.severity is Severity.CRITICAL


def test_a_sync_that_brings_nothing_is_found_without_logged_updates(tmp_path: Path) -> None:
    def every_five(frame: pd.DataFrame) -> pd.DataFrame:
        version = np.maximum(frame["step"] - 1 - frame["step"] % 5, 0).astype(np.int32)
        return frame.assign(behavior_version=version, logp_new=None)

    finding = found_in(tmp_path, FROZEN, every_five)
    assert finding is not None and "after a reported sync" in finding.sentence


def test_a_sampler_that_is_still_the_reference_is_found_without_logged_updates(tmp_path: Path) -> None:
    def still(frame: pd.DataFrame) -> pd.DataFrame:
        return claiming(5, logp_new=None, logp_reference=frame["logp_behavior"])(frame)

    finding = found_in(tmp_path / "sick", FROZEN, still)
    assert finding is not None and "reference policy" in finding.sentence
    # The same reference beside a sampler that moves with the policy says nothing.
    near = found_in(
        tmp_path / "fine", "sync_offset10-grpo-seed0", lambda f: f.assign(logp_reference=-2.0, logp_new=None)
    )
    assert near is None


def test_a_recomputed_version_that_is_not_the_samplers_shows_in_the_engines_part(tmp_path: Path) -> None:
    """The trainer recomputes what it believes to have sent; the sampler still has version 0."""
    finding = found_in(tmp_path, FROZEN, lambda f: claiming(1, logp_behavior_train=f["logp_current"])(f))
    assert finding is not None and finding.metric.startswith("s_k_engine")


def noisy(level: float, lag: int) -> list[Step]:
    """An engine of another precision on a policy that hardly moves: the same distance from the first step on."""
    rng = np.random.default_rng(0)
    steps = []
    for number in range(20):
        behavior = -rng.exponential(1.0, 2000) - 0.1
        current = behavior + level * rng.standard_normal(2000)
        new = current + 0.001 * rng.standard_normal(2000)
        steps.append(
            plain_step(
                behavior, current, new, number=number, sequence=np.arange(2000) // 10, group=np.arange(2000) // 100,
                behavior_version=np.full(2000, max(number - lag, 0), dtype=np.int32),
            )
        )  # fmt: skip
    return steps


@pytest.mark.parametrize("lag", [0, 1])
def test_an_engines_noise_is_no_sampler_that_stays_behind(tmp_path: Path, lag: int) -> None:
    run = open_run(write_run(tmp_path / "run", noisy(0.02, lag)))
    assert sampler_does_not_follow(RunEvidence(summarise(run), run)) is None


def test_a_large_distance_from_the_start_may_be_an_engine_and_is_a_warning(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", noisy(0.2, 1)))
    finding = sampler_does_not_follow(RunEvidence(summarise(run), run))
    assert finding is not None and finding.severity is Severity.WARNING and "engine" in finding.why


def test_explained_is_the_sum_of_the_updates_over_the_lag() -> None:
    summary = summary_of("sync_offset10-grpo-seed0")
    explained, updates = explained_staleness(summary), summary.values["u_k_bounded"]
    assert explained.loc[50] == pytest.approx(updates.loc[40:49].sum())
    (found,) = following(summary, facts_of(summary))
    assert found.explained.equals(explained)
    assert run_of("sync_offset10-grpo-seed0").manifest.schedule["sync_offset"] == 10
