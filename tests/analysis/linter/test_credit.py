"""Wrong credit is named, by its baseline, its row or its turn; its near misses are not."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from ratioscope import Manifest
from ratioscope.analysis.diagnosis import Severity, diagnose
from ratioscope.analysis.linter import Finding, lint
from ratioscope.analysis.linter.verdict import causes_in_the_run
from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.summary.summary import summarise
from tests.analysis.linter import credited
from tests.analysis.linter.remarks import asked
from tests.cases.world import Shape, simulate, write
from tests.making.loops import in_one_loop

NAMED = {"name": "grpo", "parts": {"advantage": "group_normalised"}}
UNKNOWN = {"name": "our_own"}
WHITENED = {"name": "ours", "parts": {"advantage": "whitened"}}


def found(folder: Path, fault: Callable[[credited.Batch], None], **how: Any) -> list[Finding]:
    return [remark for remark in lint(open_run(credited.written(folder, fault, **how))) if remark.severity]


def causes(folder: Path, fault: Callable[[credited.Batch], None], **how: Any) -> set[str]:
    return causes_in(open_run(credited.written(folder, fault, **how)))


def causes_in(run: Run) -> set[str]:
    return {remark.of_cause for remark in asked(run, "credit") if remark.severity}


def without_a_kind_and_with_one(folder: Path, fault: Callable[[credited.Batch], None], seed: int = 0) -> Iterator[Run]:
    """One log, whose manifest first names no parts of its algorithm and then the kind of its advantages."""
    credited.written(folder, fault, seed=seed)
    yield open_run(folder)
    manifest = Manifest.read(folder)
    manifest.algorithm = NAMED
    manifest.write(folder)
    yield open_run(folder)


class Case(NamedTuple):
    fault: Callable[[credited.Batch], None]
    cause: str
    words: str
    """What the sentence must have in it."""


FAULTS = {
    case.cause + " " + case.fault.__name__: case
    for case in (
        Case(credited.of_the_step, "step_baseline", "one baseline for the whole step"),
        Case(credited.of_two_groups, "prompt_baseline", "two groups of one prompt"),
        Case(credited.over_the_batch_axis, "batch_axis", "across groups"),
        Case(credited.whitened_again, "whitened_again", "one number for each step"),
        Case(credited.by_stride, "fixed_stride", "blocks of 8 responses"),
        Case(credited.discounted, "discounted", "0.9 × that of the next token"),
        Case(credited.bare, "bare_reward", "no baseline"),
        Case(credited.alone, "single_responses", "prompt group of its own"),
        Case(credited.alone_and_centred, "single_responses_cancel", "its advantage is 0"),
        Case(credited.resampled, "advantages_of_other_responses", "other responses"),
        Case(credited.of_the_neighbour, "advantages_of_other_responses", "other responses"),
        Case(credited.with_kl, "kl_in_advantage", "KL to the reference"),
        Case(credited.with_length, "length_in_advantage", "the length"),
        Case(credited.penalised, "side_part", "reward_length"),
        Case(credited.heavily_penalised, "side_part", "reward_length"),
        Case(credited.without_weights, "other_weights", "0.2 × reward_format + 0.8 × reward_task"),
        Case(credited.replaced, "reward_replaced", "those whose parts (reward_bonus and reward_tests) add up to 0"),
        Case(credited.silent_part, "silent_part", "reward_format is 0 in all 1,024 responses"),
        Case(credited.paid_by_turn, "paid_by_turn", "reward_format gives 0.2"),
        Case(credited.judge_away, "scorer_away", "reward_judge is 0 in all 256 responses of steps 6 to 9"),
        Case(credited.giant, "giant", "the median"),
        Case(credited.last_turn_only, "last_turn_only", "before the last one"),
        Case(credited.by_overlap, "credit_ends_early", "last tokens"),
        Case(credited.drifting, "credit_drifts", "between turns"),
        Case(credited.lost_behind_a_tool, "lost_behind_a_tool", "it is 0 in 100% of 198"),
        Case(credited.unrewarded_behind_a_tool, "unrewarded_behind_a_tool", "as if they had earned 0"),
        Case(credited.in_another_order, "rewards_of_other_responses", "reward_length fits the length in"),
        Case(credited.scored_one_group_late, "rewards_of_another_environment", "from step 6 on code has rewards that"),
        Case(credited.by_turn, "counted_by_part", "100% of the advantages counted once for each turn"),
        Case(credited.cut_off_at_the_end, "cut_batch", "of them are the last of their step"),
        Case(credited.two_agents, "mixed_origins", "source planner is"),
        Case(credited.scored_by_the_prompt, "scores_of_the_prompt", "inside of groups they are nearly the same"),
        Case(credited.replayed_in_part, "replayed_in_part", "groups 2 of 8 have one, the others 0, although rewards"),
        Case(credited.prompts_replayed_in_part, "replayed_in_part", "are of prompts that came in an earlier step"),
        Case(credited.kept_by_one_of_a_group, "torn_groups", "groups 1 of 8 has one, the others 0, although rewards"),
        Case(credited.of_parts, "parts_of_responses", "they change at position 6"),
    )
}
CONTROLS = {
    fault.__name__: fault
    for fault in (
        credited.nothing,
        credited.mildly_penalised,
        credited.solved_and_penalised,
        credited.with_weights,
        credited.bounded,
        credited.failed_ones_punished,
        credited.normalised_by_part,
        credited.judge_away_to_the_end,
        credited.rarely_earned,
        credited.lost_and_learned_again,
        credited.sampler_broken,
        credited.large_without_a_jump,
        credited.turn_rewards,
        credited.scaled_by_step,
        credited.incomplete,
        credited.discounted_by_turn,
        credited.with_a_value_function,
        credited.ended_by_a_tool,
        credited.cut_off_without_credit,
        credited.graded_more_finely_later,
        credited.of_another_count,
        credited.by_length,
        credited.paid_for_useful_turns,
        credited.paid_once,
        credited.cut_before_the_baseline,
        credited.two_agents_apart,
        credited.with_demonstrations,
        credited.graded_demonstrations,
        credited.scored_by_a_little_length,
        credited.of_another_difficulty,
        credited.replayed_whole,
        credited.long_ones_without_advantage,
        credited.best_alone_in_some_groups,
        credited.worse_ones_without_advantage_in_some_groups,
        credited.lost_here_and_there,
        credited.kept_by_one_of_few_groups,
    )
}


@in_one_loop("case", FAULTS)
def test_a_fault_is_named_without_a_kind_and_with_one(tmp_path: Path, case: Case) -> None:
    for run in without_a_kind_and_with_one(tmp_path / case.fault.__name__, case.fault):
        remarks = [remark for remark in asked(run, "credit", "advantages") if remark.severity]
        named = [remark for remark in remarks if remark.rule == "credit"]
        assert [remark.of_cause for remark in named] == [case.cause]
        assert case.words in named[0].sentence + named[0].why
        # Nothing else is made of the same advantages.
        said = " ".join(remark.sentence for remark in remarks if remark.rule != "credit")
        assert "responses of these groups are missing" not in said and "shifted by one row" not in said


@in_one_loop("fault", CONTROLS)
def test_a_near_miss_is_not_named(tmp_path: Path, fault: Callable[[credited.Batch], None]) -> None:
    for seed in range(2):
        for run in without_a_kind_and_with_one(tmp_path / f"{fault.__name__} {seed}", fault, seed):
            assert causes_in(run) == set()


def test_a_baseline_is_a_fault_where_responses_of_a_group_are_compared(tmp_path: Path) -> None:
    of_step = credited.of_the_step
    (unknown,) = (each for each in found(tmp_path / "a", of_step, algorithm=UNKNOWN) if each.rule == "credit")
    (grouped,) = (each for each in found(tmp_path / "b", of_step) if each.rule == "credit")
    assert (unknown.severity, grouped.severity) == (Severity.NOTICE, Severity.WARNING)
    assert causes(tmp_path / "c", of_step, algorithm=WHITENED) == set()
    assert causes(tmp_path / "d", credited.bare, algorithm={"name": "reinforce"}) == set()


def test_one_shift_in_all_steps_is_no_second_whitening(tmp_path: Path) -> None:
    for name in ("asymre", "our_own"):
        assert causes(tmp_path / name, credited.shifted_alike, algorithm={"name": name}) == set()


@pytest.mark.parametrize(
    ("made", "weights", "words"),
    [
        (credited.with_weights, {"task": 0.8, "format": 0.5}, "a weight of 0.5, and has a weight of 0.2 in the reward"),
        (credited.with_weights, {"task": 0.8, "format": 0.2}, ""),
        (credited.with_weights, {"reward_task": 0.8, "unknown": 3.0}, ""),
        (credited.with_weights, {}, ""),
        (credited.of_one_part_twice, {"task": 1.0, "format": 0.0}, ""),
    ],
)
def test_a_reward_by_other_weights_than_the_configured_ones_is_named(
    made: Callable[[credited.Batch], None], weights: dict[str, float], words: str, tmp_path: Path
) -> None:
    run = credited.written(tmp_path / "run", made, task={"reward_weights": weights})
    said = [each for each in asked(open_run(run), "credit") if each.severity]
    assert [each.of_cause for each in said] == ["reward_not_as_weighted"] * bool(words)
    assert not words or words in said[0].sentence


def test_a_value_behind_the_end_is_named(tmp_path: Path) -> None:
    ppo = {"name": "ppo"}
    (remark,) = asked(
        open_run(credited.written(tmp_path / "a", credited.value_behind_the_end, algorithm=ppo)), "credit"
    )
    assert remark.of_cause == "value_behind_the_end" and "worse ones that the length limit cut end on" in remark.why
    for fault in (credited.good_critic, credited.critic_below_all_rewards, credited.bonus_for_finishing):
        assert causes(tmp_path / fault.__name__, fault, algorithm=ppo) == set(), fault.__name__
    # Advantages of tokens that no critic gave are another matter.
    assert causes(tmp_path / "b", credited.value_behind_the_end, algorithm=UNKNOWN) == set()


def test_missing_responses_are_named_without_a_kind(tmp_path: Path) -> None:
    def lost(batch: credited.Batch) -> None:
        batch.missing = batch.rng.random(credited.N) < 0.04

    (remark,) = asked(open_run(credited.written(tmp_path / "run", lost)), "advantages")
    assert remark.severity and "those of whole groups do. Responses of these groups are missing" in remark.sentence


def test_responses_without_a_reward_do_not_make_a_group_small(tmp_path: Path) -> None:
    def unscored(batch: credited.Batch) -> None:
        batch.logged = np.where(np.arange(credited.N) >= credited.N - 3, np.nan, batch.reward)

    assert causes(tmp_path / "run", unscored) == set()


def test_another_kind_than_the_stated_one_is_named(tmp_path: Path) -> None:
    def stated(kind: str) -> dict[str, Any]:
        return {"name": "grpo", "parts": {"advantage": kind}}

    assert causes(tmp_path / "a", credited.nothing, algorithm=stated("group_mean")) == {"another_kind"}
    assert causes(tmp_path / "b", credited.nothing, algorithm=stated("group_normalised")) == set()
    assert causes(tmp_path / "c", credited.nothing, algorithm=stated("shifted")) == set()


BY_BATCH = {"scale_rewards": "batch"}
OWN, OF_BATCH = credited.by_own_deviation, credited.by_the_deviation_of_the_batch


@pytest.mark.parametrize(
    ("made", "algorithm", "cause"),
    [
        (OWN, {"parameters": BY_BATCH}, "scaled_by_the_group"),
        (credited.by_own_deviation_of_a_sample, BY_BATCH, "scaled_by_the_group"),
        (OWN, {"parts": {"advantage": "batch_normalised"}}, "scaled_by_the_group"),
        (OWN, {"parameters": {"scale_rewards": False}}, "scaled_by_the_group"),
        (OWN, {"parameters": {"norm_adv_by_std_in_grpo": False}}, "scaled_by_the_group"),
        (OF_BATCH, {"parameters": {"scale_rewards": "group"}}, "scaled_by_the_batch"),
        (OF_BATCH, {"parameters": {"scale_rewards": True}}, "scaled_by_the_batch"),
        (OF_BATCH, {"parts": {"advantage": "group_normalised"}}, "scaled_by_the_batch"),
        # As configured, or nothing is.
        (OF_BATCH, {"parameters": BY_BATCH}, ""),
        (OF_BATCH, {"parts": {"advantage": "batch_normalised"}}, ""),
        (OF_BATCH, {}, ""),
        (OWN, {"parameters": {"scale_rewards": "group"}}, ""),
        (OWN, {}, ""),
        (OWN, {"parameters": {"scale_rewards": "of our own"}}, ""),
        # Of another estimator a setting that is always there says nothing.
        (OF_BATCH, {"name": "ours", "parameters": {"norm_adv_by_std_in_grpo": True}}, ""),
        # Neither one nor the other, and both.
        (credited.by_own_deviation_and_whitened, {"parameters": BY_BATCH}, ""),
        (credited.by_own_deviation_and_whitened, {"parameters": {"scale_rewards": "group"}}, ""),
        (credited.of_one_deviation, {"parameters": BY_BATCH}, ""),
        (credited.bare, {"parameters": BY_BATCH}, "bare_reward"),
    ],
)
def test_another_deviation_than_the_configured_one_is_named(
    made: Callable[[credited.Batch], None], algorithm: dict[str, Any], cause: str, tmp_path: Path
) -> None:
    run = credited.written(tmp_path / "run", made, algorithm={"name": "grpo"} | algorithm)
    said = [each for each in asked(open_run(run), "credit") if each.severity]
    assert [each.of_cause for each in said] == [cause] * bool(cause)
    if cause.startswith("scaled"):
        assert said[0].severity is Severity.WARNING and ("100% of" in said[0].sentence) and said[0].examples
        key = next(iter(algorithm.get("parameters", BY_BATCH if "scale_rewards" in algorithm else {})), "kind")
        assert key in said[0].sentence


def test_responses_of_equal_reward_have_one_advantage(tmp_path: Path) -> None:
    def another_reward(batch: credited.Batch) -> None:
        judge = batch.reward + batch.rng.normal(0, 0.3, len(batch.reward))
        batch.advantage = credited.normalised(judge, batch.group)

    (remark,) = (each for each in found(tmp_path / "run", another_reward) if each.rule == "advantages")
    assert remark.severity is Severity.NOTICE and "equal reward have different advantages" in remark.sentence


def test_the_sign_of_an_own_kind_is_checked(tmp_path: Path) -> None:
    def flipped(batch: credited.Batch) -> None:
        batch.advantage = -batch.advantage

    own = {"name": "ours", "parts": {"advantage": "our_function"}}
    (remark,) = (each for each in found(tmp_path / "run", flipped, algorithm=own) if each.rule == "advantages")
    assert remark.severity is Severity.CRITICAL and "wrong sign" in remark.sentence


@pytest.mark.parametrize("equal", [True, False])
def test_groups_of_one_cancel_whatever_kind_is_stated_where_rewards_differ(equal: bool, tmp_path: Path) -> None:
    def fault(batch: credited.Batch) -> None:
        credited.alone_and_centred(batch)
        if equal:
            batch.reward[:] = 1.0

    run = open_run(credited.written(tmp_path / "run", fault))
    run.manifest.algorithm = {"name": "reinforce", "parts": {"advantage": "reward"}}
    remarks = lint(run)
    found = [each for each in remarks if each.of_cause == "single_responses_cancel"]
    assert len(found) == (not equal) and all(each.is_problem for each in found)
    assert [each.rule for each in causes_in_the_run(remarks, [])] == ["credit"] * (not equal)
    (zeros,) = (each for each in remarks if each.rule == "zero_filled")
    assert zeros.is_problem is equal and "nothing to learn" not in zeros.sentence
    assert ("although rewards differ from group to group" in zeros.sentence) is not equal


@pytest.mark.parametrize("fault", [credited.alone, credited.alone_and_centred])
def test_responses_of_no_group_are_no_groups_without_a_signal(
    tmp_path: Path, fault: Callable[[credited.Batch], None]
) -> None:
    run = open_run(credited.written(tmp_path / "run", fault))
    findings = diagnose(summarise(run), run, remarks=lint(run))
    assert "zero_signal" not in {finding.rule for finding in findings}


def test_a_healthy_log_says_what_was_looked_at(tmp_path: Path) -> None:
    remarks = lint(open_run(credited.written(tmp_path / "run", credited.nothing)))
    (remark,) = (each for each in remarks if each.rule == "credit")
    assert remark.sentence.startswith("The advantages of 1,024 responses") and not remark.severity


@pytest.mark.parametrize(("kept", "advantage"), [(3, "group_normalised"), (6, "group_normalised"), (3, "group_mean")])
def test_advantages_of_larger_groups_than_are_logged(tmp_path: Path, kept: int, advantage: str) -> None:
    """Half of each group is logged: its deviation, that of a sample, says of how many. Without it nothing does."""
    log = simulate(Shape(61, steps=16, advantage=advantage))
    there = log.responses["seq_id"] % 6 < kept
    run = open_run(write(log.keep(there[log.row], there), tmp_path / "run", "verl"))
    said = [remark.sentence for remark in asked(run, "advantages") if remark.severity]
    assert any("do not add up to 0, where those of whole groups do" in each for each in said) is (
        kept == 3 and advantage == "group_normalised"
    ), said
