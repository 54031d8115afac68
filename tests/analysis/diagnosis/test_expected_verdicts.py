"""What an engineer says of each sample run from its tables alone, and that the rules say the same.

The verdicts were written down from the Parquet files, with scripts of their own and without a look at what the rules
find: accuracy at the start, at its best and at the end; bounded staleness in the median and at most; steps in which it
is above its limit of 0.2, and the update above 0.1, beyond the 95 % interval over prompt groups.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.findings.facts import Cause
from tests.making.samples import SAMPLE_RUNS, TRAINED

HEALTHY, NOTICE, WARNING, CRITICAL = range(4)


class Range(NamedTuple):
    least: float
    most: float


@dataclass(frozen=True)
class Expected:
    """A verdict: `worst` is what the run may be called, from the mildest to the worst."""

    worst: Range
    staleness: tuple[float, float]
    """Bounded: median over the steps, and largest."""
    accuracy: tuple[float, float]
    """Evaluation accuracy in the first and in the last evaluation."""
    above: int = 0
    """Steps with staleness above its limit beyond noise."""
    must: frozenset[str] = field(default_factory=frozenset)
    may: frozenset[str] = field(default_factory=frozenset)


def rules(*names: str) -> frozenset[str]:
    return frozenset(names)


FINE, REMARKED, WARNED, SICK = Range(0, 1), Range(0, 2), Range(1, 2), Range(2, 3)
# What one heavy tail is called depends on what the loss does with it.
VARIANCE = rules("variance_regime", "heavy_tail", "ess_collapse", "length_trap", "kl_high")
COLLAPSED = rules("reward_collapse", "staleness_high")
NO_SIGNAL = rules(*COLLAPSED, "zero_signal")
LATE = VARIANCE | rules("staleness_growing", "bias_regime")

EXPECTED = {
    "mismatch-grpo-seed0": Expected(
        Range(1, 1), (0.012, 0.017), (0.369, 0.484), must=rules("engine_mismatch", "truncated_support")
    ),
    "offline-grpo-seed0": Expected(FINE, (0.043, 0.084), (0.379, 0.465)),
    "offline-rec_oneside_is-seed0": Expected(FINE, (0.042, 0.082), (0.381, 0.451)),
    "offline-rec_oneside_nois-seed0": Expected(FINE, (0.051, 0.095), (0.381, 0.457)),
    "offline-rec_oneside_nois_0.6_2-seed0": Expected(FINE, (0.101, 0.166), (0.381, 0.469), may=VARIANCE),
    "offline-reinforce-seed0": Expected(Range(3, 3), (0.319, 0.413), (0.381, 0.102), 124, COLLAPSED, LATE),
    "smollm2_sync_interval4-grpo-lr5e-06-seed0": Expected(
        REMARKED, (0.008, 0.067), (0.275, 0.812), must=rules("zero_signal", "entropy_collapse")
    ),
    "sync_interval20-asymre-seed0": Expected(
        WARNED, (0.101, 0.275), (0.397, 0.461), 3, rules("staleness_high"), VARIANCE
    ),
    "sync_interval20-grpo-seed0": Expected(FINE, (0.025, 0.068), (0.379, 0.480)),
    "sync_interval20-grpo-seed1": Expected(FINE, (0.024, 0.077), (0.393, 0.494)),
    "sync_interval20-opmd-seed0": Expected(REMARKED, (0.068, 0.156), (0.381, 0.459), may=VARIANCE),
    "sync_interval20-rec_oneside_is-seed0": Expected(FINE, (0.024, 0.069), (0.381, 0.484)),
    "sync_interval20-rec_oneside_is-seed1": Expected(FINE, (0.025, 0.075), (0.389, 0.502)),
    "sync_interval20-rec_oneside_nois-seed0": Expected(FINE, (0.025, 0.079), (0.381, 0.488)),
    "sync_interval20-rec_oneside_nois-seed1": Expected(FINE, (0.026, 0.083), (0.389, 0.473)),
    "sync_interval20-rec_oneside_nois_0.6_2-seed0": Expected(FINE, (0.064, 0.143), (0.381, 0.469), may=VARIANCE),
    "sync_interval20-rec_oneside_nois_0.6_2-seed1": Expected(FINE, (0.074, 0.142), (0.389, 0.457), may=VARIANCE),
    "sync_interval20-rec_ring_is-lr0.0003-seed0": Expected(WARNED, (0.081, 0.168), (0.391, 0.398), may=VARIANCE),
    "sync_interval20-rec_ring_nois-lr0.0003-seed0": Expected(REMARKED, (0.085, 0.164), (0.391, 0.440), may=VARIANCE),
    "sync_interval20-rec_twoside_is-lr0.0003-seed0": Expected(
        SICK, (0.139, 0.278), (0.391, 0.285), 1, COLLAPSED, VARIANCE | rules("zero_signal")
    ),
    "sync_interval20-rec_twoside_nois-lr0.0003-seed0": Expected(
        SICK, (0.162, 0.356), (0.391, 0.229), 16, NO_SIGNAL, VARIANCE
    ),
    "sync_interval20-red_drop-seed0": Expected(
        SICK, (0.095, 0.320), (0.367, 0.242), 13, NO_SIGNAL, VARIANCE | rules("survivor_bias")
    ),
    "sync_interval20-red_weight-seed0": Expected(WARNED, (0.077, 0.206), (0.402, 0.451), may=VARIANCE),
    "sync_interval20-reinforce-seed0": Expected(SICK, (0.106, 0.338), (0.381, 0.342), 17, NO_SIGNAL, VARIANCE),
    "sync_interval20-reinforce-seed1": Expected(SICK, (0.106, 0.355), (0.389, 0.273), 16, NO_SIGNAL, VARIANCE),
    "sync_interval5_mixture4-adaptive_clip-seed0": Expected(REMARKED, (0.077, 0.151), (0.383, 0.580), may=VARIANCE),
    "sync_interval5_mixture4-incremental_clip-seed0": Expected(REMARKED, (0.076, 0.137), (0.383, 0.525), may=VARIANCE),
    "sync_interval5_mixture4-rec_oneside_is-seed0": Expected(
        REMARKED, (0.073, 0.138), (0.383, 0.504), must=rules("trust_region_infeasible"), may=VARIANCE
    ),
    "sync_offset10-grpo-seed0": Expected(FINE, (0.030, 0.071), (0.379, 0.473)),
    "sync_offset10-rec_oneside_is-seed0": Expected(FINE, (0.034, 0.070), (0.381, 0.447)),
    "sync_offset10-rec_oneside_nois-seed0": Expected(FINE, (0.032, 0.079), (0.381, 0.477)),
    "sync_offset10-rec_oneside_nois_0.6_2-seed0": Expected(FINE, (0.071, 0.143), (0.381, 0.445), may=VARIANCE),
    "sync_offset10-reinforce-seed0": Expected(SICK, (0.177, 0.288), (0.381, 0.229), 16, NO_SIGNAL, LATE),
}


def test_every_sample_run_has_a_verdict() -> None:
    assert sorted(EXPECTED) == TRAINED


@pytest.mark.parametrize("name", TRAINED)
def test_the_rules_say_what_the_tables_say(name: str) -> None:
    expected, opened = EXPECTED[name], open_folder(SAMPLE_RUNS / name)
    values, facts = opened.summary.values, opened.facts()
    found = {finding.rule for finding in opened.findings}
    assert expected.must <= found <= expected.must | expected.may
    worst = max((int(finding.severity) for finding in opened.findings), default=HEALTHY)
    assert expected.worst.least <= worst <= expected.worst.most
    assert not [remark for remark in opened.remarks if remark.is_problem]
    assert (facts.staleness.median, facts.staleness.largest) == pytest.approx(expected.staleness, abs=1e-3)
    # The verdict's intervals are plain t intervals: a step at the limit may fall on either side.
    assert len(facts.staleness.over) == pytest.approx(expected.above, abs=max(2, expected.above // 3))
    assert len(facts.update.over) == 0
    accuracy = values["eval_accuracy"].dropna()
    assert (accuracy.iloc[0], accuracy.iloc[-1]) == pytest.approx(expected.accuracy, abs=1e-3)
    if name == "mismatch-grpo-seed0":
        assert facts.fresh and facts.cause_of_staleness is Cause.ENGINE
    else:  # the column that would tell is not logged: fresh batches show it, where there are some
        shown = (values["version_lag"] == 0).sum() >= 3
        assert not facts.fresh and facts.cause_of_staleness is (Cause.AGE if shown else Cause.ENGINE_OR_AGE)
