"""Whose advantages they are, which baseline they have, and which tokens they reach: the causes of wrong credit.

A token's advantage should be its own response's, against a baseline of its own prompt group, in every turn.
"""

from ratioscope.analysis.findings.cause import Family as F
from ratioscope.analysis.findings.cause import Suspect, cause, findings_of
from ratioscope.analysis.findings.finding import Finding, Severity, not_checked, passed
from ratioscope.analysis.linter.baselines import (
    advantage_above_one_place,
    advantage_by_place_in_group,
    advantage_by_prompt,
    advantage_by_step,
    advantage_counts_parts,
    advantage_discounted,
    advantage_is_the_reward,
    advantage_is_zero,
    advantage_moved_by_step,
    advantage_of_a_stride,
    advantage_of_another_kind,
    advantage_of_equal_rewards,
    another_kind_is_stated,
    better_responses_have_no_advantage,
    groups_of_one_response,
    worse_responses_have_no_advantage,
)
from ratioscope.analysis.linter.check import check
from ratioscope.analysis.linter.credit_of_turns import (
    advantage_changes_at_a_position,
    advantage_drifts_by_turn,
    advantage_ends_early,
    advantage_high_at_ends,
    advantage_in_last_turn_only,
    advantage_lost_behind_a_tool,
    credit_as_long_as_last_turn,
    cut_off_ends_lack_it,
    reward_lost_behind_a_tool,
)
from ratioscope.analysis.linter.credited import FEWEST_RESPONSES, compares, responses_with_advantage
from ratioscope.analysis.linter.deviations import divided_by_one_deviation, divided_by_the_own_deviation
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.final_answers import right_inside_of_a_longer_number
from ratioscope.analysis.linter.keys import prompts, sequence_rows
from ratioscope.analysis.linter.members import (
    advantages_magnify_rewards,
    off_centre_groups_are_last,
    origins_are_scored_otherwise,
    origins_share_a_baseline,
    reward_goes_with_the_response,
    rewards_differ_between_groups_alone,
    small_groups_are_off_centre,
)
from ratioscope.analysis.linter.reward_order import reward_of_another_environment, reward_of_another_length
from ratioscope.analysis.linter.reward_parts import (
    advantage_of_other_weights,
    part_of_every_turn,
    penalty_of_every_length,
    responses_differ_while_away,
    reward_part_is_zero,
    scorer_is_away,
)
from ratioscope.analysis.linter.reward_sum import reward_of_other_weights, reward_stands_for_a_sum
from ratioscope.analysis.linter.scored_by_kind import (
    answer_form_never_earns,
    capped_for_some,
    least_beyond_a_length,
    one_value_since_a_step,
    several_lines_never_earn,
    sign_never_earns,
)
from ratioscope.analysis.linter.teacher import (
    impossible_by_token_id,
    likelier_by_the_teacher_without_advantage,
    teacher_finds_sure_tokens_impossible,
)
from ratioscope.analysis.linter.torn_groups import part_of_a_group_has_advantages, torn_groups_come_again
from ratioscope.analysis.linter.unearned import (
    advantage_follows_kl,
    advantage_follows_length,
    advantage_from_a_side_part,
    advantage_of_another_row,
    advantage_of_the_neighbour,
    advantage_unlike_the_reward,
    giant_advantage,
    gradient_of_giant_advantage,
    one_environment_has_the_advantages,
)
from ratioscope.analysis.linter.unpaid_penalty import stated_penalty_is_not_paid

_STATED = (another_kind_is_stated,)

cause(
    "step_baseline", F.CREDIT, "Advantages have one baseline for the whole step, not one for each prompt group",
    requires=(advantage_of_equal_rewards, advantage_by_step), refutes=(advantage_is_the_reward, *_STATED),
    do="Take mean and deviation of rewards over the responses of one prompt.", explains=("advantages",),
    reports=("slime #1918", "slime #1414"),
)  # fmt: skip
cause(
    "prompt_baseline", F.CREDIT, "Advantages compare responses of two groups of one prompt",
    requires=(advantage_of_equal_rewards, advantage_by_prompt), refutes=(advantage_by_step, *_STATED),
    do="Key the baseline by the group, or log both groups under one group_id if they are meant to be one.",
    explains=("advantages",), reports=("NeMo-RL #3882", "miles #1325"),
)  # fmt: skip
cause(
    "batch_axis", F.CREDIT, "Advantages compare responses across groups: the baseline is over the wrong axis",
    requires=(advantage_of_equal_rewards, advantage_by_place_in_group),
    refutes=(advantage_by_step, advantage_by_prompt, *_STATED),
    do="Reshape rewards to (groups, responses) and take the baseline over responses.", explains=("advantages",),
)  # fmt: skip
cause(
    "whitened_again", F.CREDIT, "Advantages of all groups are moved together, as whitening them again does",
    requires=(advantage_moved_by_step,), refutes=(advantage_by_step, advantage_is_the_reward, *_STATED),
    do="Leave out the second whitening, or name the kind of advantage in algorithm.parts.",
    explains=("advantages",), reports=("gem #113", "reskill #12"),
)  # fmt: skip
cause(
    "fixed_stride", F.CREDIT, "Baselines are of blocks of a fixed size, which cut through groups",
    requires=(advantage_of_a_stride,), refutes=(advantage_by_step, advantage_is_the_reward, *_STATED),
    do="Key the baseline by the group of a response, not by its row.", explains=("advantages",),
    reports=("AReaL #1419",),
)  # fmt: skip
cause(
    "one_response_as_baseline", F.CREDIT, "Each group's baseline is one response's reward",
    requires=(advantage_above_one_place,), refutes=(advantage_is_the_reward, *_STATED),
    do="Subtract the mean reward of the group, or of the others; if this response is a baseline by design, say so in "
    "its source.", explains=("advantages",), reports=("PipelineRL #54",),
)  # fmt: skip
cause(
    "counted_by_part", F.CREDIT, "Baselines count a response several times",
    requires=(advantage_counts_parts,), refutes=(advantage_by_step, *_STATED),
    do="Take mean and deviation over responses, one reward each, before they are split.", explains=("advantages",),
    reports=("slime #2302", "slime #2062", "agent-lightning #445"),
)  # fmt: skip
cause(
    "cut_batch", F.CREDIT, "Batches, or their log, are cut inside of groups",
    requires=(small_groups_are_off_centre, off_centre_groups_are_last), refutes=_STATED,
    do="Cut batches between groups, or before advantages are computed; log every response of the loss.",
    explains=("advantages",), reports=("rllm #924",), columns=("sequences",),
)  # fmt: skip
cause(
    "mixed_origins", F.CREDIT, "Two sources of responses that are scored differently share a baseline",
    requires=(origins_share_a_baseline, origins_are_scored_otherwise), refutes=_STATED,
    do="Give each of them groups of its own, so that a response is compared with those that are scored alike.",
    reports=("prime-rl #3108",),
)  # fmt: skip
cause(
    "scores_of_the_prompt", F.CREDIT, "Rewards tell prompts apart and hardly their responses",
    requires=(rewards_differ_between_groups_alone, advantages_magnify_rewards),
    refutes=(reward_goes_with_the_response,),
    do="Check at which token the scorer reads a response, and do not divide by so small a deviation.",
    reports=("TRL #6952",),
)  # fmt: skip
cause(
    "another_kind", F.CREDIT, "Advantages are of another kind than the manifest says",
    requires=(advantage_of_another_kind,),
    do="Compare the setting that divides by the group's deviation with algorithm.parts.advantage.",
    reports=("rllm #447",),
)  # fmt: skip
cause(
    "scaled_by_the_group", F.CREDIT, "Advantages are divided by each group's own deviation, not as configured",
    requires=(divided_by_the_own_deviation,), refutes=(advantage_of_another_kind,),
    do="Divide by what the setting names: by their own deviation, groups of nearly equal rewards weigh as much as all "
    "others.", reports=("TRL #3991",),
    of_the_run=True,
)  # fmt: skip
cause(
    "scaled_by_the_batch", F.CREDIT,
    "All groups' advantages are scaled alike, and not by their own deviation as configured",
    requires=(divided_by_one_deviation,), refutes=(advantage_of_another_kind,),
    do="Divide the rewards of each group by their deviation, or change the setting that says so.",
    of_the_run=True,
)  # fmt: skip
cause(
    "discounted", F.CREDIT, "Advantages are discounted token by token from the end of a response",
    requires=(advantage_discounted,), refutes=_STATED,
    do="Discount by 1, or name the kind of advantage in algorithm.parts.", explains=("advantages",),
    reports=("TorchRL #3679",),
)  # fmt: skip
cause(
    "bare_reward", F.CREDIT, "The advantage has no baseline", requires=(advantage_is_the_reward,),
    refutes=(groups_of_one_response, *_STATED), do="Subtract the mean reward of the prompt group.",
    explains=("advantages", "zero_signal"),
)  # fmt: skip
cause(
    "negative_lost", F.CREDIT, "Negative advantages are set to 0, so that nothing is made less likely",
    requires=(worse_responses_have_no_advantage,), refutes=(advantage_is_the_reward, *_STATED),
    do="Look for a clamp or a mask between the advantage and the loss; a method that learns from the best alone drops "
    "the others.",
)  # fmt: skip
cause(
    "replayed_in_part", F.CREDIT, "Of replayed groups a part of the responses alone has its advantage",
    requires=(part_of_a_group_has_advantages, torn_groups_come_again), refutes=_STATED,
    do="Keep the advantages of all responses of a group in the buffer, or compute them again from its rewards.",
    explains=("advantages",), reports=("TRL #6804", "TRL #6821"), of_the_run=True,
)  # fmt: skip
cause(
    "torn_groups", F.CREDIT, "Of some groups a part of the responses alone has its advantage",
    requires=(part_of_a_group_has_advantages,), refutes=(torn_groups_come_again, *_STATED),
    do="Look where advantages of a group are written to its responses: each one needs its own.",
    explains=("advantages",), of_the_run=True,
)  # fmt: skip
cause(
    "positive_lost", F.CREDIT, "Positive advantages are set to 0, so that nothing is made more likely",
    requires=(better_responses_have_no_advantage,), refutes=(advantage_is_the_reward, *_STATED),
    do="Look for a clamp or a mask between the advantage and the loss; a method that learns from failures alone drops "
    "the others.",
)  # fmt: skip
cause(
    "single_responses", F.CREDIT, "Each response is a prompt group of its own, so the advantage has no baseline",
    requires=(groups_of_one_response, advantage_is_the_reward), refutes=_STATED,
    do="Give all responses to one prompt the same group_id before advantages are computed.",
    explains=("advantages", "zero_signal"), reports=("rllm #776",),
)  # fmt: skip
cause(
    "single_responses_cancel", F.CREDIT, "Each response is a prompt group of its own, so its advantage is 0",
    requires=(groups_of_one_response, advantage_is_zero),
    do="Give all responses to one prompt the same group_id before advantages are computed; where each prompt has one, "
    "take another baseline, as the mean of the step.",
    explains=("advantages", "zero_signal", "zero_filled"), reports=("ROLL #397",), of_the_run=True,
)  # fmt: skip
cause(
    "advantages_of_other_responses", F.CREDIT, "Advantages belong to other responses than rewards do",
    requires=(advantage_unlike_the_reward, advantage_of_another_row), supports={advantage_of_the_neighbour: 0.5},
    refutes=_STATED, do="Reorder advantages, rewards and responses together where a batch is resampled or split.",
    severity=Severity.CRITICAL, explains=("advantages",), reports=("verl #7956",),
)  # fmt: skip
cause(
    "rewards_of_other_responses", F.CREDIT, "Rewards belong to other responses",
    requires=(reward_of_another_length,),
    do="Reorder rewards with their responses wherever a batch is sorted by length or balanced over ranks.",
    explains=("advantages",), reports=("verl #2185",),
)  # fmt: skip
cause(
    "rewards_of_another_environment", F.CREDIT, "Rewards belong to responses of another environment",
    requires=(reward_of_another_environment,),
    do="Look for scores that went missing in that step: those behind them stand one place too far on.",
    explains=("advantages",),
)  # fmt: skip
cause(
    "nothing_beyond_a_length", F.CREDIT, "Responses beyond a length all score the least",
    requires=(least_beyond_a_length,),
    do="Look how much of a response the scorer or judge is given, and whether the answer stands behind that.",
    reports=("agent-health #326", "skill #96"),
    of_the_run=True,
)  # fmt: skip
cause(
    "capped_for_some", F.CREDIT, "Responses of one kind cannot earn more than a cap", requires=(capped_for_some,),
    refutes=(least_beyond_a_length,),
    do="Look for a minimum or a cap that the scorer applies to them: where all reach it none is better than another.",
    reports=("AgenticArXiv-RL #76",),
    of_the_run=True,
)  # fmt: skip
cause(
    "answer_form_never_earns", F.CREDIT, "Answers of one form are never rewarded", requires=(answer_form_never_earns,),
    do="Score one of them by hand: the parser may not read this form. If it should not, let the prompt ask for another "
    "one.", reports=("marin #8765",),
    of_the_run=True,
)  # fmt: skip
cause(
    "sign_never_earns", F.CREDIT, "Responses with one sign in them earn nothing", requires=(sign_never_earns,),
    refutes=(answer_form_never_earns, several_lines_never_earn),
    do="Score one of them by hand: the parser may not read what stands in or behind that sign.",
    reports=("EasyR1 #382",),
    of_the_run=True,
)  # fmt: skip
cause(
    "several_lines_never_earn", F.CREDIT, "Texts of several lines earn nothing where others do",
    requires=(several_lines_never_earn,), refutes=(answer_form_never_earns,),
    do="Score one of them by hand: the dot of a pattern matches no line break without DOTALL. If one line is wanted, "
    "let the prompt ask for it.", reports=("open-r1 #237",),
    of_the_run=True,
)  # fmt: skip
cause(
    "right_inside_of_a_longer_number", F.CREDIT, "An answer counts as right where it contains the right one",
    requires=(right_inside_of_a_longer_number,),
    do="Compare the whole answer with the right one, numbers as numbers: the longer an answer, the more it contains.",
    reports=("verifiers #763", "tau-bench #89"),
    of_the_run=True,
)  # fmt: skip
cause(
    "penalty_is_not_paid", F.CREDIT, "The penalty that is configured for unfinished responses is not in their rewards",
    requires=(stated_penalty_is_not_paid,),
    do="Look for the end token in the response alone: a prompt or padding may have one. Take the penalty off before "
    "advantages are made.",
    reports=("TRL #6805", "TRL #6813", "TRL #3750", "TRL #5338"),
    of_the_run=True,
)  # fmt: skip
cause(
    "one_value_for_missing_scores", F.CREDIT, "One value stands in place of scores since a step",
    requires=(one_value_since_a_step,), refutes=(capped_for_some, scorer_is_away),
    do="Tell a score that is missing from one that was given: leave it empty, or ask the judge again.",
    reports=("gptme-contrib #1458", "evals #1712"),
)  # fmt: skip
cause(
    "kl_in_advantage", F.CREDIT, "A KL penalty is in the advantage and not in the logged reward",
    requires=(advantage_of_equal_rewards, advantage_follows_kl), refutes=(advantage_by_step,),
    do="Log the reward with its penalty, or move the penalty into the loss.", severity=Severity.NOTICE,
    explains=("advantages",),
)  # fmt: skip
cause(
    "length_in_advantage", F.CREDIT, "A length term is in the advantage and not in the logged reward",
    requires=(advantage_of_equal_rewards, advantage_follows_length), refutes=(advantage_by_step, advantage_follows_kl),
    do="Log the reward with its length term, and the term as reward_length.", severity=Severity.NOTICE,
    explains=("advantages",),
)  # fmt: skip
cause(
    "side_part", F.CREDIT, "A secondary part of the reward drives learning where the task has no signal",
    requires=(advantage_from_a_side_part,),
    do="Apply the part only in groups whose task reward differs, or lower its weight.",
    reports=("NeMo-RL #2431", "OpenRLHF #1270"),
    of_the_run=True,
)  # fmt: skip
cause(
    "other_weights", F.CREDIT, "Advantages weight the parts of the reward otherwise than the logged reward does",
    requires=(advantage_of_other_weights,),
    do="Log the sum of the parts with the weights that fit the advantages, or give the trainer those of the reward.",
    reports=("TRL #5352", "TRL #5353"), explains=("advantages",),
)  # fmt: skip
cause(
    "reward_not_as_weighted", F.CREDIT, "The reward is not the sum of its parts by the configured weights",
    requires=(reward_of_other_weights,),
    do="Add the parts up where the reward is made; look whether a later one overwrites an earlier one.",
    reports=("SkyRL #201",),
)  # fmt: skip
cause(
    "reward_replaced", F.CREDIT, "One value stands in place of the sum of the reward's parts",
    requires=(reward_stands_for_a_sum,), refutes=(reward_of_other_weights,),
    do="Tell a sum that is 0 from one that is missing, and give the penalty to responses that failed alone.",
    reports=("dspy #10362",),
)  # fmt: skip
cause(
    "silent_part", F.CREDIT, "A part of the reward teaches nothing", requires=(reward_part_is_zero,),
    do="Call its function on a response that should earn it; leave it be if it is a penalty that nothing incurs.",
    severity=Severity.NOTICE, reports=("TRL #6966",),
    of_the_run=True,
)  # fmt: skip
cause(
    "paid_by_turn", F.CREDIT, "A part of the reward is paid again for each turn", requires=(part_of_every_turn,),
    do="Score this part once for a response, or divide it by the number of turns.", reports=("SkyRL #2104",),
    of_the_run=True,
)  # fmt: skip
cause(
    "penalty_of_every_length", F.CREDIT, "A length penalty begins before the first token",
    requires=(penalty_of_every_length,),
    do="Make the buffer of the penalty shorter than the length limit, so that it is 0 until near that limit.",
    reports=("verl #2107",),
    of_the_run=True,
)  # fmt: skip
cause(
    "scorer_away", F.CREDIT, "What scores responses failed, and its failures count as 0", requires=(scorer_is_away,),
    refutes=(responses_differ_while_away,),
    do="Look for the scorer's errors in these steps, and leave out responses that it did not score.",
    reports=("NeMo-RL #2479",),
)  # fmt: skip
cause(
    "giant", F.CREDIT, "One advantage dominates an update", requires=(giant_advantage, gradient_of_giant_advantage),
    do="Look at the reward of the example row, and bound rewards or advantages.",
)  # fmt: skip
cause(
    "environment_of_another_scale", F.CREDIT, "One environment is learned from, by the scale of its rewards",
    requires=(one_environment_has_the_advantages,),
    do="Bring the rewards of all environments to one range, or divide advantages by the deviation of their group.",
    of_the_run=True,
)  # fmt: skip
cause(
    "last_turn_only", F.CREDIT, "Credit does not reach the turns before the last one",
    requires=(advantage_in_last_turn_only,),
    do="Give the response's advantage to the sampled tokens of all its turns.",
    explains=("advantages",), reports=("verl #6376", "SkyRL #1492", "slime #1370"),
)  # fmt: skip
cause(
    "credit_ends_early", F.CREDIT, "Credit ends before the response does", requires=(advantage_ends_early,),
    supports={credit_as_long_as_last_turn: 1.0}, refutes=(advantage_of_another_row,),
    do="Build the mask of advantages over all tokens of the response, turns before the last one included.",
    explains=("advantages",), reports=("verl #6376", "SkyRL #1492", "slime #1370"),
)  # fmt: skip
cause(
    "credit_drifts", F.CREDIT, "The advantage depends on the turn, whatever the response earned",
    requires=(advantage_drifts_by_turn,), do="Add the reward of a response once, not once more for each turn.",
    explains=("advantages",), reports=("verl #6376", "SkyRL #1492", "slime #1370"),
)  # fmt: skip
cause(
    "lost_behind_a_tool", F.CREDIT, "Responses that end with a tool's turn have no advantage, whatever they earned",
    requires=(advantage_lost_behind_a_tool,),
    do="Put the reward on the last sampled token, not on the last one; or say in dropped that they are left out.",
    explains=("advantages", "zero_signal"), reports=("miles #1827",),
)  # fmt: skip
cause(
    "unrewarded_behind_a_tool", F.CREDIT, "Responses that end with a tool's turn count as if they had earned 0",
    requires=(reward_lost_behind_a_tool,), refutes=(advantage_lost_behind_a_tool,),
    do="Put the reward on the last sampled token of a response: that of a tool's answer is outside of the mask.",
    explains=("advantages",), reports=("miles #1827",),
)  # fmt: skip
cause(
    "value_behind_the_end", F.CREDIT, "Finished responses end on high advantages, whatever they earned",
    requires=(advantage_high_at_ends, cut_off_ends_lack_it),
    do="Take the value behind the last token as 0, not that of padding; log a bonus for finishing in the reward.",
    reports=("ROLL #447",),
)  # fmt: skip

cause(
    "parts_of_responses", F.CREDIT, "Advantages are computed for parts of responses, not for each as a whole",
    requires=(advantage_changes_at_a_position,), refutes=(advantage_ends_early,),
    do="Gather a response from all shards before its advantage is centred or whitened.",
    explains=("advantages",), reports=("miles #3229",),
)  # fmt: skip
cause(
    "teacher_of_other_ids", F.CREDIT, "The teacher reads token ids by another vocabulary",
    requires=(teacher_finds_sure_tokens_impossible, impossible_by_token_id),
    do="Compare the tokenizers of policy and teacher id by id, and score the text by the teacher's own.",
    reports=("TRL #4561",), columns=("logp_teacher",),
)  # fmt: skip
cause(
    "teacher_disagrees", F.CREDIT, "The teacher finds impossible what the sampler is sure of",
    requires=(teacher_finds_sure_tokens_impossible,), refutes=(impossible_by_token_id,),
    do="Let the teacher score a text of its own by the same code, and compare the prompt that it reads.",
    columns=("logp_teacher",),
)  # fmt: skip

cause(
    "teacher_raises_nothing", F.CREDIT, "The teacher's positive advantages are lost",
    requires=(likelier_by_the_teacher_without_advantage,),
    do="Look for a clamp at 0 between the teacher's log-ratio and the loss: without it some tokens are made more "
    "likely.", reports=("verl #7806",),
)  # fmt: skip

_BASELINES = ("step_baseline", "prompt_baseline", "batch_axis", "whitened_again", "discounted", "bare_reward",
              "counted_by_part", "one_response_as_baseline", "single_responses")  # fmt: skip


@check(order=225, needs=(("advantage", "sequences.reward"),))
def credit(evidence: LogEvidence) -> list[Finding]:
    """Which baseline advantages have, whose they are, and which tokens they reach."""
    other = evidence.problems(sequence_rows, prompts)
    if other:
        return not_checked(f"Groups are not what they seem: {', '.join(other)}.")
    found = findings_of(F.CREDIT, evidence, severity=lambda suspect: _severity(evidence, suspect))
    rows = responses_with_advantage(evidence)
    if not found and len(rows) < FEWEST_RESPONSES:
        return not_checked(f"Fewer than {FEWEST_RESPONSES} responses have an advantage.")
    return found or passed(f"The advantages of {len(rows):,} responses show no known fault of baseline, row or turn.")


def _severity(evidence: LogEvidence, suspect: Suspect) -> Severity:
    """A baseline of its own is a fault where the run says that the responses of a group are compared."""
    if suspect.cause.name in _BASELINES and not compares(evidence):
        return Severity.NOTICE
    return suspect.cause.severity
