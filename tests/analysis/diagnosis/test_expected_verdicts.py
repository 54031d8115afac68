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
SET_BACK = rules("reward_setback")
LEARNED = rules("zero_signal")
"""Most groups are all right in the end."""

EXPECTED = {
    "mismatch-grpo-seed0": Expected(
        Range(1, 1), (0.010, 0.016), (0.430, 0.893), must=rules("engine_mismatch", "truncated_support", "zero_signal")
    ),
    "offline-grpo-seed0": Expected(FINE, (0.082, 0.122), (0.434, 0.695)),
    "offline-rec_oneside_is-seed0": Expected(FINE, (0.083, 0.124), (0.430, 0.715)),
    "offline-rec_oneside_nois-seed0": Expected(FINE, (0.085, 0.124), (0.430, 0.709)),
    "offline-rec_oneside_nois_0.6_2-seed0": Expected(FINE, (0.137, 0.186), (0.430, 0.877), may=VARIANCE),
    "offline-reinforce-seed0": Expected(Range(3, 3), (0.192, 0.463), (0.430, 0.383), 23, must=COLLAPSED, may=VARIANCE),
    "smollm2_sync_interval4-grpo-lr5e-06-seed0": Expected(
        FINE, (0.008, 0.067), (0.275, 0.812), must=rules("entropy_collapse", "zero_signal")
    ),
    "sync_interval20-asymre-seed0": Expected(FINE, (0.042, 0.198), (0.430, 0.826), may=VARIANCE),
    "sync_interval20-grpo-lr0.0003-seed0": Expected(
        REMARKED, (0.030, 0.175), (0.494, 0.879), must=LEARNED, may=VARIANCE
    ),
    "sync_interval20-grpo-seed0": Expected(FINE, (0.012, 0.089), (0.434, 0.910), must=LEARNED),
    "sync_interval20-grpo-seed1": Expected(FINE, (0.009, 0.083), (0.418, 0.947), must=LEARNED),
    "sync_interval20-opmd-seed0": Expected(FINE, (0.033, 0.140), (0.430, 0.854), must=LEARNED, may=VARIANCE),
    "sync_interval20-rec_oneside_is-seed0": Expected(FINE, (0.012, 0.091), (0.430, 0.910), must=LEARNED),
    "sync_interval20-rec_oneside_is-seed1": Expected(FINE, (0.010, 0.085), (0.418, 0.939), must=LEARNED),
    "sync_interval20-rec_oneside_nois-seed0": Expected(FINE, (0.011, 0.091), (0.430, 0.906), must=LEARNED),
    "sync_interval20-rec_oneside_nois-seed1": Expected(FINE, (0.009, 0.088), (0.418, 0.938), must=LEARNED),
    "sync_interval20-rec_oneside_nois_0.6_2-seed0": Expected(FINE, (0.021, 0.133), (0.430, 0.902), must=LEARNED),
    "sync_interval20-rec_oneside_nois_0.6_2-seed1": Expected(
        FINE, (0.020, 0.129), (0.418, 0.936), must=LEARNED, may=VARIANCE
    ),
    "sync_interval20-rec_ring_is-lr0.0003-seed0": Expected(
        REMARKED, (0.053, 0.183), (0.494, 0.842), must=LEARNED, may=VARIANCE
    ),
    "sync_interval20-rec_ring_nois-lr0.0003-seed0": Expected(
        FINE, (0.036, 0.164), (0.494, 0.814), must=LEARNED, may=VARIANCE
    ),
    "sync_interval20-rec_twoside_is-lr0.0003-seed0": Expected(
        SICK, (0.115, 0.246), (0.494, 0.619), must=rules("reward_collapse", "zero_signal"), may=VARIANCE
    ),
    "sync_interval20-rec_twoside_nois-lr0.0003-seed0": Expected(
        SICK, (0.112, 0.308), (0.494, 0.600), 2, must=rules("reward_setback", "staleness_high"), may=VARIANCE
    ),
    "sync_interval20-red_drop-seed0": Expected(
        WARNED,
        (0.053, 0.199),
        (0.432, 0.602),
        must=rules("reward_setback", "survivor_bias", "zero_signal"),
        may=VARIANCE,
    ),
    "sync_interval20-red_weight-seed0": Expected(WARNED, (0.052, 0.200), (0.432, 0.672), must=SET_BACK, may=VARIANCE),
    "sync_interval20-reinforce-lr0.0003-seed0": Expected(
        Range(3, 3), (0.158, 0.430), (0.494, 0.154), 28, must=NO_SIGNAL, may=VARIANCE
    ),
    "sync_interval20-reinforce-seed0": Expected(
        REMARKED, (0.063, 0.222), (0.430, 0.641), must=rules("reward_setback", "zero_signal"), may=VARIANCE
    ),
    "sync_interval20-reinforce-seed1": Expected(
        SICK,
        (0.056, 0.231),
        (0.418, 0.662),
        1,
        must=rules("reward_setback", "staleness_high", "zero_signal"),
        may=VARIANCE,
    ),
    "sync_interval5_mixture4-adaptive_clip-seed0": Expected(
        REMARKED, (0.034, 0.148), (0.502, 0.893), must=LEARNED, may=VARIANCE
    ),
    "sync_interval5_mixture4-incremental_clip-seed0": Expected(
        REMARKED, (0.025, 0.145), (0.502, 0.902), must=LEARNED, may=VARIANCE
    ),
    "sync_interval5_mixture4-rec_oneside_is-seed0": Expected(
        REMARKED, (0.044, 0.119), (0.502, 0.883), must=rules("trust_region_infeasible", "zero_signal"), may=VARIANCE
    ),
    "sync_offset10-grpo-seed0": Expected(FINE, (0.011, 0.076), (0.434, 0.922), must=LEARNED),
    "sync_offset10-rec_oneside_is-seed0": Expected(FINE, (0.012, 0.077), (0.430, 0.916), must=LEARNED),
    "sync_offset10-rec_oneside_nois-seed0": Expected(FINE, (0.010, 0.080), (0.430, 0.922), must=LEARNED),
    "sync_offset10-rec_oneside_nois_0.6_2-seed0": Expected(FINE, (0.019, 0.123), (0.430, 0.863), must=LEARNED),
    "sync_offset10-reinforce-seed0": Expected(
        WARNED, (0.108, 0.195), (0.430, 0.270), must=rules("reward_setback"), may=VARIANCE
    ),
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
    problems = [remark.rule for remark in opened.remarks if remark.is_problem]
    assert problems == []
    assert (facts.staleness.median, facts.staleness.largest) == pytest.approx(expected.staleness, abs=1e-3)
    # The verdict's are t intervals of the logarithm: a step at the limit may fall on either side.
    assert len(facts.staleness.over) == pytest.approx(expected.above, abs=max(2, expected.above // 3))
    assert len(facts.update.over) == 0
    accuracy = values["eval_accuracy"].dropna()
    assert (accuracy.iloc[0], accuracy.iloc[-1]) == pytest.approx(expected.accuracy, abs=1e-3)
    if name == "mismatch-grpo-seed0":
        assert facts.fresh and facts.cause_of_staleness is Cause.ENGINE
    else:  # the column that would tell is not logged: fresh batches show it, where there are some
        shown = (values["version_lag"] == 0).sum() >= 3
        assert not facts.fresh and facts.cause_of_staleness is (Cause.AGE if shown else Cause.ENGINE_OR_AGE)
