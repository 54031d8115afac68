"""The rules and sentences on the sample runs: each finding fires on the runs that have the fault and on no other."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from ratioscope.analysis.clipping import sentences as clipping
from ratioscope.analysis.diagnosis import Severity, diagnose
from ratioscope.analysis.drift import sentences as drift
from ratioscope.analysis.findings.course import sync_period, sync_steps
from ratioscope.analysis.findings.facts import Concern, facts_of
from ratioscope.analysis.overview import sentences as overview
from ratioscope.analysis.ratios import sentences as ratios
from ratioscope.trainer.settings.ablation import plan
from tests.making.samples import NAMES, RECORDED, SAMPLE_RUNS, TRAINED, end_of, findings_of, run_of, summary_of
from tests.test_words import LONGEST, sentences


def rules_of(name: str, least: Severity = Severity.NOTICE) -> set[str]:
    return {finding.rule for finding in findings_of(name) if finding.severity >= least}


COLLAPSE = "sync_interval20-reinforce-lr0.0003-seed0"
# What has to be found at least as a warning; a run that is not named here is healthy.
WARNINGS = {
    "offline-reinforce-seed0": {"reward_collapse", "staleness_high"},
    "sync_interval20-grpo-lr0.0003-seed0": {"heavy_tail"},
    "sync_interval20-rec_ring_is-lr0.0003-seed0": {"heavy_tail"},
    "sync_interval5_mixture4-adaptive_clip-seed0": {"heavy_tail"},
    "sync_interval5_mixture4-incremental_clip-seed0": {"heavy_tail"},
    "sync_interval5_mixture4-rec_oneside_is-seed0": {"heavy_tail"},
    "sync_interval20-rec_twoside_is-lr0.0003-seed0": {"reward_collapse", "zero_signal"},
    "sync_interval20-rec_twoside_nois-lr0.0003-seed0": {"reward_setback", "staleness_high"},
    "sync_interval20-red_drop-seed0": {"reward_setback", "zero_signal"},
    "sync_interval20-red_weight-seed0": {"reward_setback"},
    "sync_interval20-reinforce-seed0": {"reward_setback", "zero_signal"},
    "sync_interval20-reinforce-lr0.0003-seed0": {"reward_collapse", "staleness_high", "zero_signal"},
    "sync_interval20-reinforce-seed1": {"reward_setback", "staleness_high", "zero_signal"},
    "sync_offset10-reinforce-seed0": {"reward_setback"},
}
# What is said besides, where nothing need be wrong: a loss that does not multiply by the ratio pays for no heavy tail,
# and a run that has learned its task has few groups left with a signal.
NOTICES = {
    "mismatch-grpo-seed0": {"engine_mismatch", "truncated_support", "zero_signal"},
    "offline-rec_oneside_nois_0.6_2-seed0": {"heavy_tail", "kl_high", "length_trap", "variance_regime"},
    "offline-reinforce-seed0": {"ess_collapse", "heavy_tail", "kl_high", "length_trap", "variance_regime"},
    "sync_interval20-rec_twoside_nois-lr0.0003-seed0": {
        "ess_collapse",
        "heavy_tail",
        "kl_high",
        "length_trap",
        "variance_regime",
    },
    "sync_interval20-reinforce-lr0.0003-seed0": {
        "ess_collapse",
        "heavy_tail",
        "kl_high",
        "length_trap",
        "variance_regime",
    },
    "sync_offset10-reinforce-seed0": {"ess_collapse", "heavy_tail", "kl_high", "length_trap", "variance_regime"},
    "smollm2_sync_interval4-grpo-lr5e-06-seed0": {"entropy_collapse", "zero_signal"},
    "sync_interval20-asymre-seed0": {"heavy_tail"},
    "sync_interval20-grpo-lr0.0003-seed0": {"zero_signal"},
    "sync_interval20-grpo-seed0": {"zero_signal"},
    "sync_interval20-grpo-seed1": {"zero_signal"},
    "sync_interval20-rec_oneside_is-seed0": {"zero_signal"},
    "sync_interval20-rec_oneside_is-seed1": {"zero_signal"},
    "sync_interval20-rec_oneside_nois-seed0": {"zero_signal"},
    "sync_interval20-rec_oneside_nois-seed1": {"zero_signal"},
    "sync_interval20-rec_oneside_nois_0.6_2-seed0": {"zero_signal"},
    "sync_interval20-rec_ring_is-lr0.0003-seed0": {"zero_signal"},
    "sync_interval5_mixture4-adaptive_clip-seed0": {"zero_signal"},
    "sync_interval5_mixture4-incremental_clip-seed0": {"zero_signal"},
    "sync_offset10-grpo-seed0": {"zero_signal"},
    "sync_offset10-rec_oneside_is-seed0": {"zero_signal"},
    "sync_offset10-rec_oneside_nois-seed0": {"zero_signal"},
    "sync_offset10-rec_oneside_nois_0.6_2-seed0": {"zero_signal"},
    "sync_interval20-opmd-seed0": {"heavy_tail", "zero_signal"},
    "sync_interval20-rec_oneside_nois_0.6_2-seed1": {"heavy_tail", "zero_signal"},
    "sync_interval20-rec_ring_nois-lr0.0003-seed0": {"heavy_tail", "zero_signal"},
    "sync_interval20-rec_twoside_is-lr0.0003-seed0": {
        "ess_collapse",
        "heavy_tail",
        "kl_high",
        "length_trap",
        "variance_regime",
    },
    "sync_interval20-red_drop-seed0": {"heavy_tail", "kl_high", "survivor_bias"},
    "sync_interval20-red_weight-seed0": {"heavy_tail", "kl_high", "length_trap"},
    "sync_interval20-reinforce-seed1": {"heavy_tail", "kl_high", "length_trap"},
    "sync_interval20-reinforce-seed0": {"heavy_tail", "kl_high"},
    "sync_interval5_mixture4-rec_oneside_is-seed0": {"trust_region_infeasible", "zero_signal"},
    "trl-smollm2-gcd": {"length_trap"},
}


def test_the_sample_runs_are_those_of_the_study() -> None:
    assert sorted(cell.config.run_name() for cell in plan("samples", []).cells) == TRAINED
    assert {*NAMES} == {*TRAINED, *RECORDED}
    assert all(run_of(name).status == "finished" for name in NAMES)
    assert sum(path.stat().st_size for path in SAMPLE_RUNS.rglob("*") if path.is_file()) < 24e6


# A run for each set of findings, healthy ones under every schedule among them; other seeds and twins add nothing new.
DIAGNOSED = (
    "mismatch-grpo-seed0",
    "offline-grpo-seed0",
    "offline-rec_oneside_nois_0.6_2-seed0",
    "offline-reinforce-seed0",
    "smollm2_sync_interval4-grpo-lr5e-06-seed0",
    "sync_interval20-asymre-seed0",
    "sync_interval20-grpo-lr0.0003-seed0",
    "sync_interval20-grpo-seed0",
    "sync_interval20-opmd-seed0",
    "sync_interval20-rec_oneside_nois_0.6_2-seed0",
    "sync_interval20-rec_twoside_is-lr0.0003-seed0",
    "sync_interval20-rec_twoside_nois-lr0.0003-seed0",
    "sync_interval20-red_drop-seed0",
    "sync_interval20-red_weight-seed0",
    "sync_interval20-reinforce-lr0.0003-seed0",
    "sync_interval20-reinforce-seed0",
    "sync_interval20-reinforce-seed1",
    "sync_interval5_mixture4-rec_oneside_is-seed0",
    "sync_offset10-rec_oneside_is-seed0",
    "sync_offset10-reinforce-seed0",
    "trl-smollm2-gcd",
)


def test_every_set_of_findings_is_diagnosed() -> None:
    def expected(names: Iterable[str]) -> set[tuple[frozenset[str], frozenset[str]]]:
        return {(frozenset(WARNINGS.get(name, ())), frozenset(NOTICES.get(name, ()))) for name in names}

    assert expected(DIAGNOSED) == expected(NAMES)


@pytest.mark.parametrize("name", DIAGNOSED)
def test_findings_fire_on_runs_that_have_the_fault_and_are_silent_on_the_others(name: str) -> None:
    assert rules_of(name, Severity.WARNING) == WARNINGS.get(name, set())
    assert rules_of(name) == WARNINGS.get(name, set()) | NOTICES.get(name, set())


@pytest.mark.parametrize("name", DIAGNOSED)
def test_no_sentence_of_a_finding_is_long(name: str) -> None:
    texts = [text for of in findings_of(name) for text in (of.sentence, of.why, of.do, of.sure)]
    long = [said for text in texts for said in sentences(text) if len(said.split()) > LONGEST]
    assert long == []


@pytest.mark.parametrize("name", DIAGNOSED)
def test_the_rules_say_of_bias_and_variance_what_the_regime_says(name: str) -> None:
    of_concern = {Concern.BIAS: {"bias_regime"}, Concern.VARIANCE: {"variance_regime"}}
    expected = of_concern.get(facts_of(summary_of(name)).concern, set())
    assert rules_of(name) & {"bias_regime", "variance_regime"} == expected


def test_an_infeasible_trust_region_is_found_under_the_clip_around_1_only() -> None:
    """Of the three runs on the same mixture, Methods One and Two ask for nothing impossible (S0 5.5)."""
    (found,) = (f for f in findings_of("sync_interval5_mixture4-rec_oneside_is-seed0") if "infeasible" in f.rule)
    assert "4 versions" in found.sentence and "Method" in found.do
    assert 0.04 < found.numbers[0].low < found.numbers[0].value < 0.5


# What each fallen run is said to have fallen from; where nothing changed before the fall, what held all along.
MECHANISMS = {
    "offline-reinforce-seed0": ("old_data_without_bound", "(smallest ratio "),
    "sync_interval20-rec_twoside_is-lr0.0003-seed0": ("", "All along: 100% of the good tokens below ρ = 0.8"),
    "sync_interval20-rec_twoside_nois-lr0.0003-seed0": ("mask_stops_return", "100% of the good tokens below ρ = 0.8"),
    "sync_interval20-red_drop-seed0": ("old_data_without_bound", "→ 2.1e-08 by step 35"),
    "sync_interval20-red_weight-seed0": ("old_data_without_bound", "(smallest ratio "),
    "sync_interval20-reinforce-lr0.0003-seed0": (
        "old_data_without_bound",
        "(smallest ratio 1 → 5.1e-08 by step 13, on tokens now hardly sampled)",
    ),
    "sync_interval20-reinforce-seed0": (
        "old_data_without_bound",
        "by step 35, on tokens now hardly sampled). Also in the window: an update drift of 0.36",
    ),
    "sync_interval20-reinforce-seed1": ("old_data_without_bound", "→ 7.9e-07 by step 34"),
    "sync_offset10-reinforce-seed0": ("old_data_without_bound", "(smallest ratio "),
}


@pytest.mark.parametrize("name", DIAGNOSED)
def test_a_fallen_run_names_its_mechanism(name: str) -> None:
    """All of them were "None of 6 metrics has a sustained change", while the smallest ratio fell to 1e-10."""
    falls = [finding for finding in findings_of(name) if finding.rule in ("reward_collapse", "reward_setback")]
    assert bool(falls) is (name in MECHANISMS)
    for fall in falls:
        cause, said = MECHANISMS[name]
        assert fall.of_cause == cause and said in fall.why, fall.why
        assert fall.why.startswith("Likely cause: " if cause else "First suspect: ")
        assert "does not show" not in fall.why + fall.do and "None of" not in fall.why


@pytest.mark.parametrize("metric", ["eval_accuracy", "reward"])
@pytest.mark.parametrize("name", ["sync_interval20-grpo-seed0", "sync_offset10-grpo-seed0", "mismatch-grpo-seed0"])
def test_a_scorer_that_breaks_is_never_the_policy_s_fault(name: str, metric: str) -> None:
    """From step 100 on it gives one point of twenty; the updates of one batch can do a tenth of that fall."""
    broken = []
    for frame in (summary_of(name).values, summary_of(name).low, summary_of(name).high):
        changed = frame.copy()
        changed.loc[100:, metric] *= 0.05
        if metric == "reward":
            changed["eval_accuracy"] = np.nan
        broken.append(changed)
    values, low, high = broken
    findings = diagnose(replace(summary_of(name), values=values, low=low, high=high), run_of(name))
    fall = next(finding for finding in findings if finding.rule == "reward_collapse")
    assert fall.of_cause == "scorer_or_prompts_changed"
    assert "Score an earlier checkpoint again" in fall.do and "loss" not in fall.why


def test_no_metric_is_blamed_for_a_fall_in_the_first_steps() -> None:
    """The best evaluation is the first one: no other metric can be known to have changed before it."""
    (collapse,) = (finding for finding in findings_of(COLLAPSE) if finding.rule == "reward_collapse")
    assert collapse.sentence.startswith("Accuracy fell 4 times, 49 → 3 → 15%.")
    assert not [metric for metric in ("ESS", "Gradient") if metric in collapse.sentence + collapse.why]


def test_the_ring_holds_where_the_two_side_mask_collapses() -> None:
    """S3 figure 9, at three times the usual learning rate; the mask was at .7 before."""
    for weight in ("is", "nois"):
        ring, two_side = (f"sync_interval20-rec_{shape}_{weight}-lr0.0003-seed0" for shape in ("ring", "twoside"))
        assert end_of(ring) > end_of(two_side) + 0.25
        accuracy = run_of(two_side).read("steps")["eval_accuracy"].dropna()
        assert accuracy.max() > 0.7 and accuracy.loc[accuracy.idxmax() :].min() < 0.4


def test_clips_around_the_current_policy_learn_more_from_a_mixture_than_one_around_1() -> None:
    """S0 5.5, with a lower clip fraction and a smaller update."""
    ppo, one, two = (
        f"sync_interval5_mixture4-{name}-seed0" for name in ("rec_oneside_is", "adaptive_clip", "incremental_clip")
    )
    assert min(end_of(one), end_of(two)) > end_of(ppo) + 0.02
    for metric in ("clip_fraction", "u_k"):
        means = [summary_of(name).values[metric].mean() for name in (one, two, ppo)]
        assert max(means[:2]) < means[2]


def test_a_truncated_sampler_shows_in_the_mean_of_the_ratio_and_a_language_model_learns() -> None:
    values = summary_of("mismatch-grpo-seed0").values
    assert 0.98 < values["ratio_mean"].mean() < 0.995
    assert values["s_k_bounded"].mean() > values["s_k"].mean()
    assert end_of("smollm2_sync_interval4-grpo-lr5e-06-seed0") > 0.6


def test_the_clip_fraction_has_the_period_of_the_weight_syncs() -> None:
    summary = summary_of("sync_interval20-grpo-seed0")
    assert sync_period(summary.values["version_lag"]) == 20
    assert sync_steps(summary.values["version_lag"]) == [20, 40, 60, 80, 100, 120, 140]
    clipped = summary.values["clip_fraction"]
    assert clipped[summary.values["version_lag"] == 0].max() == 0
    assert clipped[summary.values["version_lag"] >= 15].mean() > 2 * clipped[summary.values["version_lag"] <= 2].mean()
    assert "Between weight syncs clipping rises: 1.3% on fresh data, 6.9% on" in clipping.clipping_headline(summary)


def test_figure_3_reinforce_collapses_and_the_clipped_variants_rise_together() -> None:
    """S3 figure 3 under sync_interval 20: the end is the mean of the last five evaluations.

    REINFORCE comes half back, unless the learning rate is larger; a wide clip is faster and as good.
    """
    for seed in (0, 1):
        clipped = [
            end_of(f"sync_interval20-{name}-seed{seed}") for name in ("grpo", "rec_oneside_is", "rec_oneside_nois")
        ]
        accuracy = run_of(f"sync_interval20-reinforce-seed{seed}").read("steps")["eval_accuracy"].dropna()
        assert accuracy.iloc[:13].max() > 0.65 and accuracy.iloc[10:18].min() < 0.26
        assert end_of(f"sync_interval20-reinforce-seed{seed}") < 0.7
        assert min(clipped) > 0.9
        assert max(clipped) - min(clipped) < 0.02
        usual, wide = (
            run_of(f"sync_interval20-{name}-seed{seed}").read("steps")["eval_accuracy"].dropna()
            for name in ("rec_oneside_nois", "rec_oneside_nois_0.6_2")
        )
        assert wide.iloc[:10].mean() > usual.iloc[:10].mean() + 0.02
        assert end_of(f"sync_interval20-rec_oneside_nois_0.6_2-seed{seed}") > clipped[-1] - 0.05
    assert end_of(COLLAPSE) < 0.1 < 0.8 < end_of("sync_interval20-grpo-lr0.0003-seed0")


def test_every_page_opens_with_a_sentence_on_every_run() -> None:
    for name in DIAGNOSED:
        summary = summary_of(name)
        sentences = (
            overview.overview_headline(facts_of(summary), findings_of(name)),
            drift.drift_headline(facts_of(summary)),
            ratios.answer(summary),
            clipping.clipping_headline(summary),
        )
        assert all(sentence.endswith(".") and "nan" not in sentence for sentence in sentences)


def test_findings_come_worst_first_and_name_their_evidence() -> None:
    findings = findings_of("offline-reinforce-seed0")
    assert [finding.severity for finding in findings] == sorted((f.severity for f in findings), reverse=True)
    staleness = next(finding for finding in findings if finding.rule == "staleness_high")
    assert staleness.severity is Severity.CRITICAL
    values = summary_of("offline-reinforce-seed0").values["s_k_bounded"]
    assert all(values[step] > staleness.limit for step in staleness.steps)
