"""Each rule on evidence that has the fault, and silent on a near miss; what every finding must say."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratioscope.analysis.diagnosis import RULES, Finding, RunEvidence, Severity, diagnose
from ratioscope.analysis.diagnosis.groups import Group
from ratioscope.analysis.findings.facts import Concern
from ratioscope.analysis.overview.sentences import fine
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.staleness.following import decoding_distance
from ratioscope.analysis.summary.summary import summarise
from ratioscope.catalogue import CATALOGUE
from ratioscope.stopping import OF_THE_LOG
from tests.analysis.diagnosis.made_up import (
    FROM_TOKENS,
    MADE_UP,
    RAMP,
    faulty,
    finding_of,
    first,
    made_up,
    remark_of,
    spread,
    with_parts,
)
from tests.making.runs import plain_step, write_run

_WITHOUT_LIMIT = (
    "not_learning", "environment_forgotten", "evaluation_turns", "responses_apart", "reward_decided",
    "prompts_in_order", "relative_reward", "update_period", "reward_part_rise",
)  # fmt: skip
every_rule = pytest.mark.parametrize("rule", RULES)


def test_every_rule_has_a_fault_and_a_near_miss() -> None:
    assert set(MADE_UP) | set(FROM_TOKENS) == set(RULES)


@every_rule
def test_a_rule_fires_on_its_fault_and_is_silent_on_the_near_miss(rule: str, tmp_path: Path) -> None:
    assert finding_of(rule, faulty(rule, tmp_path / "faulty")).rule == rule
    near_miss = MADE_UP[rule][1] if rule in MADE_UP else FROM_TOKENS[rule][1](tmp_path / "fine")
    assert RULES[rule](near_miss) is None


@every_rule
def test_no_rule_fires_on_a_healthy_run(rule: str) -> None:
    assert RULES[rule](made_up()) is None


@every_rule
def test_every_finding_is_complete(rule: str, tmp_path: Path) -> None:
    evidence = faulty(rule, tmp_path)
    finding = finding_of(rule, evidence)
    assert finding.sentence.endswith(".") and len(finding.sentence) <= 240
    for text in (finding.sentence, finding.why, finding.do):
        assert text.strip() == text and "nan" not in text and "  " not in text
        assert text.endswith((".", ")"))
    assert finding.source and finding.numbers and all(number.label for number in finding.numbers)
    assert finding.metric in CATALOGUE
    # Of what is compared between responses the metric itself has no limit.
    assert np.isfinite(finding.limit) or RULES[rule].absence or rule in _WITHOUT_LIMIT
    assert (finding.steps or RULES[rule].absence) and set(finding.steps) <= set(evidence.values.index)
    assert list(finding.steps) == sorted(finding.steps)


@every_rule
def test_no_group_is_called_fine_while_one_of_its_rules_speaks(rule: str, tmp_path: Path) -> None:
    evidence = faulty(rule, tmp_path)
    finding, group = finding_of(rule, evidence), RULES[rule].group
    summary, facts = evidence.summary, evidence.facts
    said, alone = fine(summary, facts, [finding]), group.fine(summary, facts) if group else ""
    assert not alone or alone not in said
    # Whoever finds something in the metric of a group belongs to it.
    of_others = {each.metric for each in Group if each is not group}
    assert RULES[rule].absence or finding.metric not in of_others
    assert not (said and RULES[rule].of_the_log)


def test_what_is_said_of_the_log_stops_no_training() -> None:
    assert {name for name, declared in RULES.items() if declared.of_the_log} == OF_THE_LOG


def test_of_an_empty_run_only_its_emptiness_is_said(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", []))
    for evidence in (RunEvidence(summarise(run), run), RunEvidence(summarise(run))):
        assert [rule for rule in RULES if RULES[rule](evidence) is not None] == ["nothing_to_judge"]


def test_no_rule_fails_on_a_run_of_one_step(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", [plain_step([-1.0, -2.0], [-1.5, -1.0])]))
    evidence = RunEvidence(summarise(run), run)
    for rule in RULES.values():
        rule(evidence)


def test_what_rests_on_broken_columns_is_held_back_and_counted() -> None:
    """A warning of the linter holds nothing back, nor does a fault of a few steps."""
    summary = made_up(s_k_bounded=0.45, u_k=0.15, entropy=np.exp(-3 * RAMP), eval_accuracy=first(30, 0.5, 0.2)).summary
    found = [each.rule for each in diagnose(summary)]
    assert len(found) > 3
    broken, *others = diagnose(summary, remarks=[remark_of(Severity.CRITICAL)])
    assert (broken.rule, broken.severity) == ("log_broken", Severity.CRITICAL)
    assert broken.sentence == "The log is broken: logp_current is late."
    assert [each.rule for each in others] == ["reward_collapse", "entropy_collapse"]
    assert f"{len(found) - 2} other findings are held back until logp_current is mended" in broken.why
    # Rewards are whole, what else changed is not known.
    assert others[0].unexplained and "broken" in others[0].why and others[0].cause == ""
    doubted = diagnose(summary, remarks=[remark_of(Severity.WARNING)])
    assert [each.rule for each in doubted] == found


def test_a_fault_of_few_rows_or_of_one_column_holds_back_what_rests_on_it() -> None:
    summary = made_up(s_k_bounded=0.25, zero_advantage_group_fraction=0.7).summary
    found = {each.rule for each in diagnose(summary)}
    for remark, held in (
        (remark_of(Severity.CRITICAL, steps=(3, 4)), set()),
        (remark_of(Severity.CRITICAL, "advantage"), {"zero_signal"}),
    ):
        said = {each.rule: each for each in diagnose(summary, remarks=[remark])}
        assert said.keys() == (found - held) | {"log_broken_in_part"}
        about = said["log_broken_in_part"]
        assert about.severity is Severity.WARNING and "What does not rest on the broken columns is judged." in about.why
        assert ("1 other finding is held back until advantage is mended" in about.why) is bool(held)


def test_a_drop_is_said_at_once_and_until_it_is_made_up() -> None:
    """It stays said while the level is low, and the collapse takes its place once it lasts."""
    said = []
    for end in range(50, 60):
        course = np.where(np.arange(60) < 52, 0.8, np.where(np.arange(60) < 54, 0.3, 0.45))
        series = np.where(np.arange(60) <= end, course, np.nan)
        found = {each.rule for each in diagnose(made_up(eval_accuracy=series).summary)}
        said.append(sorted(found & {"reward_drop", "reward_collapse"}))
    assert said == [[]] * 2 + [["reward_drop"]] * 2 + [["reward_collapse"]] * 6


def test_an_engine_that_explains_the_staleness_is_a_notice() -> None:
    evidence = made_up(s_k_engine_bounded=0.015, s_k_version_bounded=0.002, u_k=0.01)
    finding = finding_of("engine_mismatch", evidence)
    assert finding.severity is Severity.NOTICE and "more than old weights add" in finding.sentence.lower()
    changes: list[dict[str, Any]] = [
        {"u_k": 0.04}, {"s_k_version_bounded": 0.02}, {"dropped": {"noise_floor_dtype": 0.02}},
        {"s_k_engine_bounded": 0.008},
    ]  # fmt: skip
    for harmless in changes:
        series = {"s_k_engine_bounded": 0.015, "s_k_version_bounded": 0.002} | harmless
        assert RULES["engine_mismatch"](made_up(**series)) is None


def test_on_data_of_the_current_policy_staleness_is_the_engines_without_the_recomputed_column() -> None:
    for staleness, severity in ((0.05, Severity.WARNING), (0.02, Severity.NOTICE)):
        finding = finding_of("engine_mismatch", made_up(s_k_bounded=staleness, version_lag=0.0))
        assert finding.severity is severity and finding.metric == "s_k_bounded"
        assert "versions call every batch fresh" in finding.why and "old" not in finding.do
    assert RULES["engine_mismatch"](made_up(s_k_bounded=0.05, version_lag=1.0)) is None  # cannot be told apart
    for lag, words in ((0.0, "staleness is engine mismatch"), (1.0, "engine and age together")):
        evidence = made_up(s_k_bounded=0.25, version_lag=lag)
        assert words in finding_of("staleness_high", evidence).why
        assert ("logp_behavior_train" in finding_of("staleness_high", evidence).do) == (lag > 0)


def test_a_mean_ratio_beyond_the_limits_of_verl_is_critical_on_either_side() -> None:
    for mean in (0.4, 2.5):
        finding = finding_of("denominator_wrong", made_up(ratio_mean=mean))
        assert finding.severity is Severity.CRITICAL
        assert finding.limit == (0.5 if mean < 1 else 2.0)


def test_much_missing_support_is_a_warning() -> None:
    for mean, severity in ((0.97, Severity.NOTICE), (0.9, Severity.WARNING)):
        assert finding_of("truncated_support", made_up(ratio_mean=mean, ratio_mean_z=-5.0)).severity is severity


def test_a_significant_trifle_is_no_finding() -> None:
    for mean, z, rule in ((0.9995, -9.0, "truncated_support"), (1.0005, 9.0, "denominator_wrong")):
        assert RULES[rule](made_up(ratio_mean=mean, ratio_mean_z=z)) is None


def test_what_is_dropped_by_its_ratio_weighs_more_than_what_is_dropped_to_balance() -> None:
    by_ratio, balanced = (
        finding_of("survivor_bias", made_up(dropped={f"tokens_dropped_{reason}": 400.0}))
        for reason in ("stale", "excess_negative")
    )
    assert by_ratio.severity > balanced.severity
    assert by_ratio.numbers[0].value == pytest.approx(400 / 1400)
    assert "beyond ε_stale" in by_ratio.why and "balance" in balanced.why


def test_weights_matter_more_where_the_loss_uses_them(tmp_path: Path) -> None:
    for parts, severity in (({"weight": "none"}, Severity.NOTICE), ({"weight": "ratio"}, Severity.WARNING)):
        run = open_run(write_run(tmp_path / str(severity), [], algorithm={"parts": parts}))
        for rule in ("variance_regime", "ess_collapse", "heavy_tail"):
            assert finding_of(rule, RunEvidence(MADE_UP[rule][0].summary, run)).severity is severity
    run = open_run(write_run(tmp_path / "gspo", [], algorithm={"parts": {"weight": "ratio", "level": "sequence"}}))
    assert finding_of("length_trap", RunEvidence(MADE_UP["length_trap"][0].summary, run)).severity is Severity.WARNING
    assert finding_of("length_trap", MADE_UP["length_trap"][0]).severity is Severity.NOTICE


def test_bias_and_variance_are_those_of_the_regime(tmp_path: Path) -> None:
    """One definition: whatever the evidence, a rule fires exactly where the regime names its concern."""
    rules = {Concern.BIAS: "bias_regime", Concern.VARIANCE: "variance_regime"}
    for staleness in (0.05, 0.19, 0.21):
        for log_chi2 in (0.1, 0.69, 0.70, 5.0):
            evidence = made_up(s_k_bounded=staleness, log1p_chi2_seq=log_chi2)
            fired = {rule for rule in rules.values() if RULES[rule](evidence) is not None}
            assert fired == {rules[concern] for concern in [evidence.facts.concern] if concern in rules}


def test_a_variance_that_the_loss_does_not_pay_for_is_a_notice(tmp_path: Path) -> None:
    for level, chi2, severity in (
        ("token", 5.0, Severity.WARNING), ("token", 0.1, Severity.NOTICE), ("sequence", 0.1, Severity.WARNING),
    ):  # fmt: skip
        parts = {"weight": "ratio", "level": level}
        run = open_run(write_run(tmp_path / f"{level}{chi2:g}", [], algorithm={"parts": parts}))
        evidence = RunEvidence(made_up(chi2_token=chi2, log1p_chi2_seq=1.0).summary, run)
        assert finding_of("variance_regime", evidence).severity is severity


def test_a_length_trap_is_seen_where_the_sample_is_too_small_to_show_it() -> None:
    assert finding_of("length_trap", made_up(log1p_chi2_seq_predicted=np.log(100) + 0.1)).rule == "length_trap"
    assert RULES["length_trap"](made_up(log1p_chi2_seq_predicted=np.log(100) - 0.1)) is None
    said = finding_of("length_trap", made_up(log1p_chi2_seq_predicted=np.log(100) + 0.1)).sentence
    assert "prove nothing" in said  # the measured 90 % is not what is wrong
    assert RULES["length_trap"](made_up(n_sequences=1.0, ess_seq=1.0)) is None


def test_a_heavy_tail_is_critical_where_it_leaves_a_weighted_loss_no_sample() -> None:
    heavy = {"khat_token": 1.2, "top1pct_share": 0.5}
    assert finding_of("heavy_tail", made_up(**heavy)).severity is Severity.WARNING
    finding = finding_of("heavy_tail", made_up(**heavy, ess_token=0.1))
    assert finding.severity is Severity.CRITICAL and "50% of Σρ²" in finding.sentence


def test_no_total_variation_above_1_is_quoted() -> None:
    finding = finding_of("update_large", made_up(u_k=3.2, u_k_bounded=0.6, version_lag=0.0))
    assert max(number.value for number in finding.numbers) <= 1 and "3.2" not in finding.sentence


def test_a_clip_may_be_saturated_for_one_sign_of_the_advantage() -> None:
    sides = {"clip_fraction_low": 0.004, "clip_fraction_high": 0.0}
    few = finding_of("clip_saturated", made_up(clip_fraction=0.005, clip_fraction_negative=0.6, **sides))
    assert "outside of the clip's band: 0.4% of all tokens are below" in few.why
    finding = finding_of("clip_saturated", made_up(clip_fraction_negative=0.6))
    assert finding.metric == "clip_fraction_negative" and "negative advantage" in finding.sentence
    assert "does not say on which side" in finding.why


def test_what_no_bound_stopped_is_not_said_to_be_outside_of_the_band() -> None:
    other = finding_of("clip_saturated", made_up(clip_fraction=0.6, clip_fraction_low=0.0, clip_fraction_high=0.01))
    assert "Something other than the band" in other.why and "learning rate" not in other.do


def test_a_clip_that_never_binds_is_found_on_stale_data_only(tmp_path: Path) -> None:
    assert RULES["clip_zero"](made_up(clip_fraction=0.0)) is None  # there is nothing to clip
    assert RULES["clip_zero"](made_up(clip_fraction=0.0, ratio_max=first(2, 5.0, 1.4))) is None
    stale = made_up(clip_fraction=0.0, ratio_max=5.0)
    assert finding_of("clip_zero", stale).severity is Severity.NOTICE  # nobody says that the loss has a clip
    assert finding_of("clip_zero", with_parts(tmp_path, stale, gate="one_side")).severity is Severity.WARNING
    assert RULES["clip_zero"](with_parts(tmp_path, stale, gate="none")) is None


def test_a_clip_stops_only_what_goes_further_in_the_direction_of_the_advantage(tmp_path: Path) -> None:
    stale = made_up(clip_fraction=0.0, ratio_max=9.0)
    behavior, current = np.full(40, -3.0), np.where(np.arange(40) % 2, -0.8, -3.0)  # every second ratio is 9

    def found(gate: str, sign: float) -> Finding | None:
        advantage = np.where(current > behavior, sign, -sign).astype(np.float32)
        steps = [plain_step(behavior, current, number=k, advantage=advantage) for k in range(len(stale.values))]
        folder = tmp_path / f"{gate}{sign}"
        run = open_run(write_run(folder, steps, algorithm={"parts": {"gate": gate}}))
        return RULES["clip_zero"](RunEvidence(stale.summary, run))

    assert found("one_side", -1.0) is None
    assert found("one_side", 1.0) is not None and found("two_side", -1.0) is not None


def test_stated_top_p_and_smoothing_explain_a_distance_up_to_their_bound(tmp_path: Path) -> None:
    assert decoding_distance({"top_p": 0.8, "smoothing": 0.05}) == pytest.approx(0.19)
    assert decoding_distance({"top_p": "0.8"}) == decoding_distance({"top_p": None}) == decoding_distance({}) == 0
    for largest, top_p, speaks in ((0.15, 0.8, False), (0.4, 0.8, True), (0.15, 1.0, True)):
        grown = made_up(s_k_bounded=largest * RAMP, version_lag=0.0)
        run = open_run(write_run(tmp_path / f"{largest} {top_p}", [], sampler={"top_p": top_p}))
        assert (RULES["sampler_not_following"](RunEvidence(grown.summary, run)) is not None) == speaks


def test_nobody_is_told_to_log_what_is_logged() -> None:
    unknown = made_up(s_k_bounded=0.4 * RAMP, version_lag=1.0)
    assert "Log logp_behavior_train" in finding_of("sampler_not_following", unknown).do
    logged = made_up(s_k_engine_bounded=0.4 * RAMP, s_k_version_bounded=0.01)
    assert "Log logp_behavior_train" not in finding_of("sampler_not_following", logged).do


def test_a_short_run_without_any_signal_is_not_healthy() -> None:
    whole = made_up(zero_advantage_group_fraction=1.0, reward=0.0).summary
    for steps, words in ((60, "mean of 10 steps"), (8, "mean of 6 steps")):
        short = replace(whole, values=whole.values[:steps], low=whole.low[:steps], high=whole.high[:steps])
        finding = finding_of("zero_signal", RunEvidence(short))
        assert finding.sentence.startswith("Up to 100% of the prompt") and words in finding.sentence
        assert len(finding.steps) == steps


def without_signal(
    folder: Path, rewards: list[float], advantage: float = 0.0, *, truncated: bool = False, by_step: bool = False
) -> RunEvidence:
    """Twelve steps of 12 groups with 2 responses, whose rewards are these in turn; or one of them in each step."""
    steps = []
    for number in range(12):
        step = plain_step(np.full(24, -2.0), np.full(24, -2.0), number=number, group=np.arange(24) // 2,
                          advantage=np.full(24, advantage, dtype=np.float32))  # fmt: skip
        given = [rewards[number]] if by_step else rewards
        step.sequences["reward"] = np.resize(np.asarray(given, dtype=np.float32), 24)
        step.sequences["truncated"] = np.full(24, truncated)
        steps.append(step)
    run = open_run(write_run(folder, steps))
    return RunEvidence(summarise(run), run)


def test_zero_signal_is_explained_by_the_rewards_of_the_groups_without_one(tmp_path: Path) -> None:
    right, wrong, differ = [1.0, 1.0], [0.0, 0.0], [0.0, 1.0]
    for name, rewards, words in (
        ("easy", 9 * right + wrong + 2 * differ, "prompts are too easy now"),
        ("hard", right + 9 * wrong + 2 * differ, "prompts are too hard"),
        ("both", 5 * right + 5 * wrong + 2 * differ, "others too hard"),
        ("else", 12 * differ, "equal rewards do not explain"),
        ("same", 12 * wrong, "has the same reward (0)"),
    ):
        found = finding_of("zero_signal", without_signal(tmp_path / name, rewards))
        assert words in found.why
        assert found.severity is (Severity.NOTICE if name == "easy" else Severity.WARNING)
    # A trend of the mean reward explains nothing, whichever way it goes.
    unlogged = made_up(zero_advantage_group_fraction=0.9, reward=0.5 + 0.01 * RAMP)
    finding = finding_of("zero_signal", unlogged)
    assert "every advantage was 0" in finding.sentence and "become" not in finding.why


def test_prompts_are_not_blamed_for_what_is_cut_off_or_for_a_reward_of_the_step(tmp_path: Path) -> None:
    cut = finding_of("zero_signal", without_signal(tmp_path / "cut", [1.0, 1.0] + 18 * [0.0], truncated=True))
    assert "100% of the responses of all these groups are cut off" in cut.why and "length limit" in cut.do
    of_step = finding_of("zero_signal", without_signal(tmp_path / "step", [0.0, 1.0] * 6, by_step=True))
    assert "All responses of a step have one reward" in of_step.why and "reward function" in of_step.do


def test_without_a_reward_nothing_is_said_of_it() -> None:
    series = {"zero_advantage_group_fraction": 0.9, "entropy": np.exp(-3 * RAMP), "reward": np.nan}
    for rule, claims in (("zero_signal", ("prompts are too hard",)), ("entropy_collapse", ("better reward", "rose"))):
        why = finding_of(rule, made_up(**series)).why
        assert "nan" not in why and not [claim for claim in claims if claim in why], why


def test_an_entropy_collapse_weighs_less_while_the_reward_rises() -> None:
    entropy = np.exp(-3 * RAMP)
    assert finding_of("entropy_collapse", made_up(entropy=entropy, reward=RAMP)).severity is Severity.NOTICE
    assert finding_of("entropy_collapse", made_up(entropy=entropy, reward=1 - RAMP)).severity is Severity.WARNING


STALE = {"s_k_bounded": 0.3, "log1p_chi2_seq": 3.0, "chi2_token": 5.0, "ess_token": 0.2, "khat_token": 1.2,
         "top1pct_share": 0.5, "u_k": 0.15, "u_k_bounded": 0.15,
         "clip_fraction": 0.6}  # fmt: skip


def advice(folder: Path, schedule: dict[str, Any] | None = None, lag: float = 2.0, **parts: Any) -> str:
    """Every remedy that a stale, heavy-tailed run with large updates gets."""
    made = with_parts(folder, made_up(**STALE | {"version_lag": lag}), schedule, **parts)
    low = with_parts(folder / "low", made_up(**STALE | {"s_k_bounded": 0.1, "version_lag": lag}), schedule, **parts)
    found = [rule(evidence) for evidence in (made, low) for rule in RULES.values()]
    return " ".join(finding.do for finding in found if finding is not None)


def test_advice_fits_the_loss(tmp_path: Path) -> None:
    reinforce = advice(tmp_path / "reinforce", gate="none", weight="none", level="token", epochs=1)
    for part in ("Keep token-level", "Keep to ratios", "fewer passes", "centre the clip", "clip-higher", "denominator"):
        assert part not in reinforce
    assert "centred at ρ_k" not in reinforce and "no importance weights" in reinforce  # of no effect in one pass
    passes = advice(tmp_path / "passes", gate="none", weight="none", level="token", epochs=4)
    assert "This loss has no clip" in passes
    grpo = advice(tmp_path / "grpo", gate="one_side", weight="ratio", level="token", epochs=4)
    assert "fewer passes over a batch (4 now)" in grpo and "centre the clip" in grpo and "Truncate or mask" in grpo
    assert "no clip" not in grpo
    assert "centre the clip" not in advice(tmp_path / "one", gate="adaptive", weight="ratio", level="token")
    unknown = advice(tmp_path / "unknown")
    assert "if there are several" in unknown and "if the loss multiplies" in unknown


def test_what_a_rule_says_of_the_weight_is_what_was_run(tmp_path: Path) -> None:
    """ "A few very large ratios … truncate" and "does not multiply by such ratios" were said of every run."""
    wide = {"chi2_token": 0.1, "log1p_chi2_seq": 3.0}
    few = finding_of("variance_regime", made_up(**wide | {"top1pct_share": 0.5}))
    many = finding_of("variance_regime", made_up(**wide))
    assert "large ratios of few tokens" in few.why and "runcate or mask" in few.do
    assert "Moderate ratios" in many.why and "mask" not in many.do
    for level, weight, said in (
        ("sequence", "truncated", "is bounded"),
        ("sequence", "gamma_kernel", "is bounded"),
        ("geometric", "ratio", "geometric means"),
        ("token", "none", "multiplies by no ratio"),
    ):
        evidence = with_parts(tmp_path / f"{level}-{weight}", made_up(**wide), level=level, weight=weight)
        finding = finding_of("variance_regime", evidence)
        assert said in finding.why and finding.severity is Severity.NOTICE, (level, weight, finding.why)
    many_versions = finding_of("trust_region_infeasible", spread(tmp_path / "ppo", 0.5))
    assert many_versions.do.startswith("With several passes over a batch: ")


def test_advice_fits_the_schedule(tmp_path: Path) -> None:
    def said(name: str, lag: float = 2.0, **schedule: Any) -> str:
        return advice(tmp_path / name, schedule, lag, gate="one_side", weight="ratio", level="token")

    assert "ower sync_interval (4 now)" in said("sync", sync_interval=4, sync_offset=0)
    offset = said("offset", sync_interval=1, sync_offset=8)
    assert "ower sync_offset (8 now)" in offset and "sync_interval" not in offset
    offline = said("offline", sync_interval=1, sync_offset=0, offline=True)
    assert "ix in on-policy samples" in offline and "sync_" not in offline
    fresh = said("fresh", lag=0.0, sync_interval=1, sync_offset=0)
    assert "sync_" not in fresh and "more often" not in fresh and "Align both engines" in fresh


def test_a_clip_that_is_centred_at_the_current_policy_is_always_feasible(tmp_path: Path) -> None:
    assert RULES["trust_region_infeasible"](spread(tmp_path / "one", 0.5, gate="adaptive")) is None
    finding = finding_of("trust_region_infeasible", spread(tmp_path / "ppo", 0.5))
    assert finding.numbers[0].value == pytest.approx(0.1)
    assert finding.numbers[1].value == pytest.approx(0.5)
    assert "Method Two" in finding.do


def test_rules_that_need_the_tokens_are_silent_without_them() -> None:
    for rule in FROM_TOKENS:
        assert RULES[rule](made_up()) is None
