"""S1's table on synthetic summaries, line by line, and on the sample runs."""

from dataclasses import replace
from math import log, log1p

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.findings.facts import LOG_CHI2, Cause, Concern, Control, facts_of
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.findings.regime import Regime, regime
from ratioscope.analysis.findings.setup import setup_of
from ratioscope.analysis.findings.words import are_few, at_most, whose_staleness
from ratioscope.analysis.summary.metrics import COUNTS
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.analysis.variance.failure_mode import answer
from ratioscope.catalogue import CATALOGUE
from ratioscope.notes import Kind, Note
from ratioscope.run_format.manifest import Manifest
from tests.making import samples

NAN = float("nan")


def summary_of(**values: float) -> StepSummary:
    """Five steps with these metrics in each, and nothing else."""
    frame = pd.DataFrame(NAN, index=pd.Index(range(5), name="step"), columns=[*COUNTS, *CATALOGUE])
    frame = frame.assign(**values)
    return StepSummary(frame, frame * NAN, frame * NAN, {}, pd.DataFrame({"step": [], "bin": [], "tokens": []}))


def regime_of(summary: StepSummary, limits: Limits = Limits()) -> Regime:
    return regime(facts_of(summary, limits))


QUIET = {"n_tokens": 100.0, "n_ratios": 100.0, "s_k_bounded": 0.02, "s_k_version_bounded": 0.02,
         "s_k_engine_bounded": 0.0,
         "u_k": 0.01, "u_k_bounded": 0.01, "log1p_chi2_seq": 0.1, "log1p_chi2_seq_predicted": 0.1,
         "response_length": 8.0}  # fmt: skip
# What is changed in a quiet run: control, concern, words of the sentence, words of the remedy.
LINES: dict[str, tuple[dict[str, float], Control, Concern, str, str]] = {
    "quiet": ({}, Control.CONTROLLED, Concern.NEITHER, "nor the update is a large source.", "reasonable"),
    "blind spot": (
        {"log1p_chi2_seq": 5.0, "top1pct_share": 0.5}, Control.CONTROLLED, Concern.VARIANCE, "does not see",
        "Truncate or mask",
    ),
    "unseen": (
        {"log1p_chi2_seq_predicted": 20.0},
        Control.CONTROLLED, Concern.VARIANCE, "is 4.9e+08", "small. Take no products",
    ),
    "stale": (
        {"s_k_bounded": 0.3, "s_k_version_bounded": 0.3, "log1p_chi2_seq": 3.0},
        Control.UNCONTROLLED, Concern.BIAS, "stale samples", "truncated ratio",
    ),
    "stale, short": (
        {"s_k_bounded": 0.3, "s_k_version_bounded": 0.3},
        Control.UNCONTROLLED, Concern.BIAS, "Bias is the primary", "affordable",
    ),
    "large change": (
        {"u_k": 0.15}, Control.UNCONTROLLED, Concern.NEITHER, "a large policy change", "reasonable",
    ),
    "engine": (
        {"s_k_engine_bounded": 0.03}, Control.UNCONTROLLED, Concern.NEITHER, "engine mismatch", "reasonable",
    ),
    "rounding": (
        {"s_k_bounded": 1e-3, "s_k_version_bounded": 0, "s_k_engine_bounded": 1e-3},
        Control.CONTROLLED, Concern.NEITHER, "nor the update is a large source", "reasonable",
    ),
    "not logged": (
        {"s_k_version_bounded": NAN, "s_k_engine_bounded": NAN, "u_k": NAN, "u_k_bounded": NAN},
        Control.CONTROLLED, Concern.NEITHER,
        "large source. The engine's part and the update are not logged.", "reasonable",
    ),
    "two sources": (
        {"s_k_bounded": 0.5, "s_k_version_bounded": NAN, "s_k_engine_bounded": NAN, "u_k": 0.3},
        Control.UNCONTROLLED, Concern.BIAS,
        "a large policy change and stale samples or engine mismatch, which cannot be separated. The engine's",
        "T²Δ_max",
    ),
    "two halves": (
        {"s_k_bounded": 0.25, "s_k_engine_bounded": 0.12, "s_k_version_bounded": 0.13},
        Control.UNCONTROLLED, Concern.BIAS, "from stale samples and engine mismatch.", "affordable",
    ),
    "a trifle and the rest": (
        {"s_k_bounded": 0.21, "s_k_engine_bounded": 0.02, "s_k_version_bounded": 0.19},
        Control.UNCONTROLLED, Concern.BIAS, "from stale samples.", "affordable",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_every_line_of_the_table(name: str) -> None:
    change, control, concern, words, remedy = LINES[name]
    found = regime_of(summary_of(**(QUIET | change)))
    assert (found.control, found.concern) == (control, concern)
    assert words in found.sentence and remedy in found.remedy
    assert bool(found.sources) == (control is Control.UNCONTROLLED)
    assert found.source.startswith("S1") and all(np.isfinite(number.value) for number in found.numbers)


def test_the_plain_form_and_the_mean_ratio_change_nothing() -> None:
    summary = summary_of(**(QUIET | {"s_k": 7.0, "s_k_version": 3.0, "s_k_engine": 3.0, "ratio_mean": 0.8}))
    summary.values["ratio_mean_z"] = -5.0
    assert regime_of(summary) == regime_of(summary_of(**QUIET))


def test_a_mean_ratio_is_truncated_below_1_beyond_noise_and_rounding_in_most_steps() -> None:
    limits = Limits()
    z, trifle = -1.1 * limits.mean_ratio_z, 1.1 * limits.mean_ratio_trifle
    cases = ((3, z, trifle, True), (2, z, trifle, False), (5, z / 1.2, trifle, False), (5, z, trifle / 1.2, False))
    for n_steps, of_noise, below, truncated in cases:
        summary = summary_of(**QUIET, ratio_mean=1.0, ratio_mean_z=0.0)
        summary.values.loc[: n_steps - 1, ["ratio_mean", "ratio_mean_z"]] = 1 - below, of_noise
        assert facts_of(summary).truncated is truncated


def test_a_single_wild_step_is_not_a_regime() -> None:
    summary = summary_of(**QUIET)
    summary.values.loc[2, ["s_k_bounded", "u_k", "log1p_chi2_seq"]] = 1e6
    wild, quiet = regime_of(summary), regime_of(summary_of(**QUIET))
    assert (wild.control, wild.concern, wild.sentence) == (quiet.control, quiet.concern, quiet.sentence)
    assert [number.value for number in wild.numbers] == [number.value for number in quiet.numbers]


def test_the_scale_of_the_token_level_bias_is_there_where_the_largest_distance_is_exact() -> None:
    numbers = regime_of(summary_of(**QUIET, delta_max=0.05)).numbers
    assert numbers[-1].label.startswith("T²Δ_max") and numbers[-1].value == pytest.approx(64 * 0.05)
    assert not any("T²" in number.label for number in regime_of(summary_of(**QUIET)).numbers)


def test_nothing_is_known_of_an_empty_run() -> None:
    found = regime_of(summary_of())
    assert (found.control, found.concern, found.numbers) == (Control.UNKNOWN, Concern.UNKNOWN, ())
    assert "unknown" in found.sentence and not found.remedy


SAMPLES = {
    "smollm2_sync_interval4-grpo-lr5e-06-seed0": (Control.CONTROLLED, Concern.NEITHER),
    "offline-reinforce-seed0": (Control.CONTROLLED, Concern.VARIANCE),
    "sync_offset10-reinforce-seed0": (Control.CONTROLLED, Concern.VARIANCE),
    "mismatch-grpo-seed0": (Control.UNCONTROLLED, Concern.NEITHER),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_sample_runs(name: str) -> None:
    found = regime_of(samples.summary_of(name))
    assert (found.control, found.concern) == SAMPLES[name]
    early = regime_of(samples.summary_of(name).up_to(0, 0))
    assert early.control is not Control.UNKNOWN


def test_the_limit_of_the_chi_square_is_half_of_the_effective_sample_size() -> None:
    for ess, concern in ((0.51, Concern.NEITHER), (0.49, Concern.VARIANCE)):
        assert regime_of(summary_of(**(QUIET | {"log1p_chi2_seq": -log(ess)}))).concern is concern


def test_a_loss_that_multiplies_by_no_ratio_has_no_variance_of_ratios() -> None:
    """REINFORCE was told "variance is the concern" beside "nothing, for the variance"."""
    facts = facts_of(summary_of(**(QUIET | {"log1p_chi2_seq": 5.0})))
    without = setup_of(Manifest(name="run", algorithm={"parts": {"weight": "none", "gate": "none"}}))
    with_ratio = setup_of(Manifest(name="run", algorithm={"parts": {"weight": "ratio", "gate": "none"}}))
    assert "Variance is the concern" in regime(facts, with_ratio).sentence
    said = f"{regime(facts, without).sentence} {answer(facts, without).sentence}"
    assert "is the concern" not in said and "this loss has none" in said


def test_an_unseen_tail_leaves_the_variance_open_only_within_reach_of_the_limit() -> None:
    """A healthy run with a χ² of .06, limit 1, was told "cannot tell whether variance is"."""
    for chi2, is_open in ((0.05, False), (0.5, True)):
        summary = summary_of(**(QUIET | dict.fromkeys(LOG_CHI2, log1p(chi2))))
        doubt = {key: Note(Kind.UNRELIABLE, "unreliable: a test") for key in LOG_CHI2}
        facts = facts_of(replace(summary, notes=dict.fromkeys(range(5), doubt)))
        assert facts.n_doubtful_chi2 == 5 and facts.variance_is_open is is_open
        assert ("annot tell" in answer(facts).sentence) is is_open
        assert ("runcate or mask" in answer(facts).remedy) is is_open


def test_a_median_below_the_limit_does_not_hide_the_steps_above_it() -> None:
    summary = summary_of(**QUIET)
    summary.values["s_k_bounded"] = [0.1, 0.1, 0.1, 0.1, 0.1]
    assert "above its limit" not in regime_of(summary).origin
    many = pd.concat([summary.values] * 2, ignore_index=True)
    many.loc[:3, "s_k_bounded"] = 0.5
    found = regime_of(StepSummary(many, many * NAN, many * NAN, {}, summary.histogram))
    assert found.control is Control.CONTROLLED and "above its limit in 4 of 10 steps" in found.origin


def test_moved_thresholds_move_the_regime() -> None:
    stale = summary_of(**(QUIET | {"s_k_bounded": 0.3, "s_k_version_bounded": 0.3, "u_k": 0.15}))
    assert regime_of(stale).concern is Concern.BIAS and len(regime_of(stale).sources) == 2
    loose = regime_of(stale, Limits(epsilon_stale=0.8, epsilon=0.5))
    assert loose.concern is Concern.NEITHER and not loose.sources and "total variation is 0.3" in loose.sentence
    heavy = summary_of(**(QUIET | {"log1p_chi2_seq": 1.0}))
    assert regime_of(heavy).concern is Concern.VARIANCE
    assert regime_of(heavy, Limits(chi2=2.0)).concern is Concern.NEITHER


def test_groups_of_nearly_one_size_are_not_few() -> None:
    """Of 12 groups of 8 responses, 11.99 effective ones, it was said that they are fewer than 12."""
    assert [are_few(effective) for effective in (11.99, 12.0, 11.2)] == [False, False, True]


def test_a_largest_value_within_its_noise_of_the_limit_is_said_to_be() -> None:
    """ "Nothing to worry about: staleness at most 0.21 (limit 0.2)"."""
    summary = summary_of(**QUIET)
    summary.values.loc[2, "s_k_bounded"], summary.low.loc[2, "s_k_bounded"] = 0.21, 0.15
    assert "0.21 (limit 0.2, within noise)" in at_most("staleness", facts_of(summary).staleness)
    summary.low.loc[2, "s_k_bounded"] = 0.205
    assert at_most("staleness", facts_of(replace(summary)).staleness).endswith("0.21 (limit 0.2)")


@pytest.mark.parametrize(
    ("lag", "staleness", "cause"),
    [
        ([0, 0, 0, 1, 2], [1e-4, 0, 1e-3, 0.1, 0.2], Cause.AGE),
        ([0, 0, 0, 1, 2], [1e-4, 0, 0.03, 0.1, 0.2], Cause.ENGINE_OR_AGE),  # one fresh batch differs
        ([0, 0, 3, 1, 2], [1e-4, 0, 0.1, 0.1, 0.2], Cause.ENGINE_OR_AGE),  # too few of them
        ([NAN] * 5, [1e-4, 0, 1e-3, 0.1, 0.2], Cause.ENGINE_OR_AGE),
    ],
)
def test_fresh_batches_show_whether_there_is_another_engine(
    lag: list[float], staleness: list[float], cause: Cause
) -> None:
    made = summary_of(**{key: value for key, value in QUIET.items() if key not in (Cause.AGE.key, Cause.ENGINE.key)})
    summary = replace(made, values=made.values.assign(version_lag=lag, s_k_bounded=staleness))
    for window in ((0, 4), (3, 4)):  # what is so of the run holds in a window without a fresh step
        facts = facts_of(summary, Limits(), *window)
        assert facts.cause_of_staleness is cause and facts.split is (cause is Cause.AGE)
        assert ("in 3 steps on fresh data there is none" in whose_staleness(facts)) is (cause is Cause.AGE)
