"""The loss that ran, by what it left in the log: the causes of a loss that is not the configured one."""

from ratioscope.analysis.findings.cause import Family as F
from ratioscope.analysis.findings.cause import Suspect, cause, findings_of
from ratioscope.analysis.findings.finding import Finding, Severity, not_checked, passed
from ratioscope.analysis.linter.alignment import shifted
from ratioscope.analysis.linter.applied_clip import (
    bound_stops_nothing,
    clip_at_another_ratio,
    clip_of_tokens_on_responses,
    clip_stops_nothing,
    clipped_at_the_same_weights,
    gate_is_the_policy_itself,
    lost_bound_held_large_ratios,
    lower_bound_is_epsilon,
    much_is_clipped,
)
from ratioscope.analysis.linter.applied_divisor import divisor_unlike_the_limit, is_a_whole_multiple
from ratioscope.analysis.linter.applied_penalty import (
    configured_penalty_has_no_gradient,
    few_tokens_hold_the_penalty,
    gradient_without_advantage_is_a_constant,
    penalty_outweighs_the_policy,
)
from ratioscope.analysis.linter.applied_weight import (
    end_token_without_gradient,
    first_tokens_without_gradient,
    gradient_against_the_advantage,
    gradient_in_the_last_micro_batch_alone,
    long_responses_weigh_less,
    short_steps_weigh_less,
    weight_counts_padding,
    weight_differs_by_rank,
    weight_is_a_product,
    weight_is_capped,
    weight_is_scaled,
    weight_is_shared_within_micro_batches,
    weight_is_shared_within_responses,
    weight_is_shared_within_segments,
    weight_is_squared,
    weight_is_the_advantage,
    weight_passes_the_cap,
    weight_unlike_configured,
)
from ratioscope.analysis.linter.check import check
from ratioscope.analysis.linter.copies import copied_columns, policy_stands_still
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.identities import recomputed, swapped
from ratioscope.analysis.linter.loss_tokens import tokens_of_loss
from ratioscope.analysis.linter.own_token import own_token
from ratioscope.analysis.linter.stand_ins import constant_columns
from ratioscope.analysis.linter.units import scale
from ratioscope.analysis.linter.unlearned_part import part_without_gradient
from ratioscope.analysis.linter.zeros import zero_filled

cause(
    "weight_not_applied", F.LOSS, "The configured importance weight was not applied",
    requires=(weight_unlike_configured, weight_is_the_advantage),
    do="Pass the importance weight into the loss, or configure none.", reports=("Liger-Kernel #1088",),
)  # fmt: skip
cause(
    "updates_without_effect", F.LOSS, "Updates do not reach the weights, and the policy does not move",
    requires=(policy_stands_still,),
    do="Look whether the optimiser steps, and on the parameters that the gradients are of.",
    reports=("open-instruct #1642",),
)  # fmt: skip
cause(
    "end_token_masked", F.LOSS, "The token that ends responses is not in the loss",
    requires=(end_token_without_gradient,),
    do="Build the loss mask from lengths, not from token ids: the end token may be the padding token, too.",
    reports=("TRL #4974",),
)  # fmt: skip
cause(
    "first_token_masked", F.LOSS, "The loss mask begins one token late, or is shifted by one",
    requires=(first_tokens_without_gradient,),
    do="Shift the loss mask as the labels are shifted, once: the first token that was sampled is in the loss.",
    reports=("verl #3287", "OpenRLHF #973"),
)  # fmt: skip
cause(
    "weight_capped", F.LOSS, "The importance weight is capped lower than configured",
    requires=(weight_unlike_configured, weight_is_capped), refutes=(weight_is_the_advantage,),
    do="Compare the cap in the loss with the configured one.",
)  # fmt: skip
cause(
    "cap_is_passed", F.LOSS, "Importance weights pass their configured cap", requires=(weight_passes_the_cap,),
    refutes=(weight_is_the_advantage,),
    do="Look whether the loss truncates the weight at all, and at which value.", reports=("OpenRLHF #1295",),
)  # fmt: skip
cause(
    "another_loss", F.LOSS, "The loss that ran is not the configured one", requires=(weight_unlike_configured,),
    refutes=(weight_is_the_advantage, weight_is_capped, weight_passes_the_cap, weight_differs_by_rank,
             weight_is_squared,
             weight_is_shared_within_micro_batches, weight_is_shared_within_responses,
             weight_is_shared_within_segments, gradient_without_advantage_is_a_constant, few_tokens_hold_the_penalty,
             penalty_outweighs_the_policy),
    do="Compare the loss's weight and clip with the configured ones on the example rows.",
)  # fmt: skip
cause(
    "mean_over_responses", F.LOSS, "The loss is a mean over responses, and not the configured one over tokens",
    requires=(weight_unlike_configured, weight_is_shared_within_responses), refutes=(weight_is_the_advantage,),
    do="Divide the sum over all tokens of the step by their number, or configure a mean over responses.",
    reports=("verl #1233", "verl #957", "rllm #354"),
)  # fmt: skip
cause(
    "mean_over_segments", F.LOSS, "Each segment of a response counts as a response, so that cut ones weigh more",
    requires=(weight_unlike_configured, weight_is_shared_within_segments), refutes=(weight_is_the_advantage,),
    do="Divide by the tokens of the whole response, and by the number of responses, not of segments.",
)  # fmt: skip
cause(
    "ratio_counted_twice", F.LOSS, "The importance ratio is in the gradient twice",
    requires=(weight_unlike_configured, weight_is_squared),
    do="Weight by the ratio in the loss or in the correction for the sampler, not in both.",
    reports=("slime #179", "PufferLib #306"),
)  # fmt: skip
cause(
    "loss_negated", F.LOSS, "The loss has the wrong sign: what was better is made less likely",
    requires=(gradient_against_the_advantage,),
    do="Look where the loss is negated; where the reward rises, log gradient_weight with the advantage's sign.",
    reports=("flash-linear-attention #1073",),
)  # fmt: skip
cause(
    "last_micro_batch_alone", F.LOSS, "Only the last micro-batch of a step is learned from",
    requires=(gradient_in_the_last_micro_batch_alone,),
    do="Zero the gradients once a step, before its first micro-batch, and not between micro-batches.",
    reports=("torchtitan #3575",),
)  # fmt: skip
cause(
    "part_not_learned", F.LOSS, "A part of the tokens is not learned from", requires=(part_without_gradient,),
    refutes=(end_token_without_gradient, first_tokens_without_gradient, gradient_in_the_last_micro_batch_alone),
    do="Look at the loss of these tokens before the backward pass: for a mask, or a NaN that is set to 0.",
    reports=("slime #1418",),
)  # fmt: skip
cause(
    "mean_over_each_rank", F.LOSS, "Each rank takes the mean over its own tokens, so that tokens weigh differently",
    requires=(weight_unlike_configured, weight_differs_by_rank), refutes=(weight_is_the_advantage, weight_is_capped),
    do="Divide the loss by the tokens of all ranks and micro-batches together.", reports=("TRL #3021", "TRL #3231"),
)  # fmt: skip
cause(
    "mean_over_each_micro_batch", F.LOSS,
    "Each micro-batch takes the mean over its own tokens, so that tokens of short ones weigh most",
    requires=(weight_unlike_configured, weight_is_shared_within_micro_batches),
    refutes=(weight_is_the_advantage, weight_differs_by_rank, weight_is_shared_within_responses),
    do="Divide the loss by the tokens of the whole step, or scale each micro-batch by its share of them.",
    reports=("verl #7321", "verl #906"),
)  # fmt: skip
cause(
    "penalty_not_in_loss", F.LOSS, "The configured KL penalty is not in the loss",
    requires=(configured_penalty_has_no_gradient,),
    do="Look whether the penalty is added to the loss, and before the backward pass.",
    reports=("rllm #26", "verl #265"),
)  # fmt: skip
cause(
    "loss_scaled", F.LOSS, "The loss is not divided by the step's tokens", requires=(weight_is_scaled,),
    refutes=(weight_counts_padding,),
    do="Look at what the loss is divided by, once more by gradient accumulation or by the ranks.",
    reports=("ms-swift #10117", "TRL #6024"), severity=Severity.NOTICE,
)  # fmt: skip
cause(
    "divided_by_another_constant", F.LOSS, "The loss divides by another constant than the configured limit",
    requires=(divisor_unlike_the_limit,), refutes=(weight_is_the_advantage,),
    do="Pass the limit of tokens into the loss; where the constant is a whole multiple of it, look at ranks and "
    "accumulation.", reports=("miles #1328",),
)  # fmt: skip
cause(
    "padding_in_the_mean", F.LOSS, "The mean of the loss counts padding as tokens", requires=(weight_counts_padding,),
    do="Divide the sum of the loss by the sum of its mask, over all micro-batches and ranks of the step.",
    reports=("prime-rl #674", "miles #2796"),
)  # fmt: skip
cause(
    "short_steps_divided_as_full", F.LOSS, "A step with fewer responses is divided as a full one is",
    requires=(short_steps_weigh_less,),
    do="Divide by the micro-batches that the step has, or leave out the short step that an epoch ends with.",
    reports=("ms-swift #10084", "transformers #39659"),
)  # fmt: skip
cause(
    "penalty_without_direction", F.LOSS, "The KL penalty's gradient is one constant, as of the bare log-ratio (k1)",
    requires=(gradient_without_advantage_is_a_constant,), explains=("masks",),
    do="Take k2 or k3 as the penalty in the loss, or subtract k1 from the reward: by itself k1 holds back nothing.",
    reports=("NeMo-RL #2506",),
)  # fmt: skip
cause(
    "penalty_explodes", F.LOSS, "The KL penalty explodes far from the reference, as k3 does",
    requires=(few_tokens_hold_the_penalty,),
    refutes=(gradient_without_advantage_is_a_constant,), explains=("masks",),
    do="Take k2 as the penalty, bound k3's log-ratio, or take a nearer policy as the reference.",
    reports=("TRL #3015", "OpenRLHF #1335", "OpenRLHF #931"),
)  # fmt: skip
cause(
    "penalty_takes_over", F.LOSS, "The KL penalty grows until the gradient is mostly its own",
    requires=(penalty_outweighs_the_policy,),
    refutes=(gradient_without_advantage_is_a_constant, few_tokens_hold_the_penalty), explains=("masks",),
    do="Look at the coefficient over the steps: bound an adaptive one, or take a target that the policy can keep to.",
    reports=("TRL #1178",),
)  # fmt: skip
cause(
    "clip_anchored_elsewhere", F.LOSS, "The clip looks at something else than the ratio to the sampler",
    requires=(clip_stops_nothing,), supports={weight_is_the_advantage: 0.5, gate_is_the_policy_itself: 0.5},
    do="Put the sampler's log-probs into the clip's denominator.", explains=("clip_zero",),
    reports=("SkyRL #1315", "miles #1829", "verl #7196"),
)  # fmt: skip
cause(
    "clip_at_another_ratio", F.LOSS, "The clip stops at another ratio than the configured one",
    requires=(clip_at_another_ratio,), refutes=(clip_stops_nothing,),
    do="Compare epsilon_low and epsilon_high of the loss with the configured ones.",
)  # fmt: skip
cause(
    "lower_clip_at_epsilon", F.LOSS, "The lower bound of the clip is epsilon, and not 1 less epsilon",
    requires=(clip_at_another_ratio, lower_bound_is_epsilon), refutes=(clip_stops_nothing,),
    do="Clip ratios to the range from 1 - epsilon_low to 1 + epsilon_high.", reports=("RL2 #21",),
)  # fmt: skip
cause(
    "large_ratios_pass", F.LOSS, "The stated bound on large ratios never acts",
    requires=(bound_stops_nothing, lost_bound_held_large_ratios), refutes=(clip_stops_nothing,),
    do="Pass this bound on to the loss that runs, and count the tokens that it stops.",
    explains=("heavy_tail", "ess_collapse"), reports=("slime #2247", "RLinf #316", "RLinf #323"),
)  # fmt: skip
cause(
    "bound_never_acts", F.LOSS, "One of the stated bounds of the clip never acts", requires=(bound_stops_nothing,),
    refutes=(clip_stops_nothing, lost_bound_held_large_ratios),
    do="Pass this bound on to the loss that runs, and count the tokens that it stops.",
)  # fmt: skip
cause(
    "clip_of_tokens_on_responses", F.LOSS, "The clip range is one of tokens, on ratios of responses",
    requires=(clip_of_tokens_on_responses,),
    do="Set epsilon near the spread of the responses' ratios (GSPO: 3e-4 to 4e-4, for long responses).",
    explains=("clip_zero",), reports=("TRL #3834",),
)  # fmt: skip
cause(
    "products_starve", F.LOSS, "Products of ratios starve the gradient of long responses",
    requires=(long_responses_weigh_less, weight_is_a_product),
    do="Weight tokens in place of responses, or take the geometric mean of a response's ratios.",
    reports=("TRL #4772", "TRL #5814", "TRL #6945", "NeMo-RL #2269"),
)  # fmt: skip
cause(
    "clip_spent_on_numerics", F.LOSS, "The clip is spent on the mismatch of sampler and trainer",
    requires=(clipped_at_the_same_weights,), supports={much_is_clipped: 0.5},
    do="Remove the mismatch first, or clip against logp_behavior_train and weight by the rest.",
    reports=("verl #6280", "RLinf #1534", "Trinity #426"),
)  # fmt: skip


@check(order=277, needs=(("advantage",), ("logp_current",), ("clipped", "clip_side", "gradient_weight")),
       page="clipping", of_the_run=True)  # fmt: skip
def applied_loss(evidence: LogEvidence) -> list[Finding]:
    """The configured weight and clip against gradient_weight and what was clipped, and what the clip was spent on."""
    other = evidence.problems(
        zero_filled, constant_columns, shifted, own_token, scale, copied_columns, recomputed, swapped
    )
    if other:
        return not_checked(f"Other columns are wrong: {', '.join(other)}.")
    found = findings_of(F.LOSS, evidence, severity=lambda suspect: _severity(evidence, suspect))
    if found:
        return found
    if weight_unlike_configured(evidence).known:
        return passed("gradient_weight is the advantage times the configured weight.")
    if clip_stops_nothing(evidence).known or clipped_at_the_same_weights(evidence).known:
        return passed(
            f"What was clipped of {len(tokens_of_loss(evidence)):,} tokens with an advantage shows no known fault."
        )
    return not_checked("Too little is clipped, or too little of the loss is configured in the manifest, to compare.")


def _severity(evidence: LogEvidence, suspect: Suspect) -> Severity:
    """A clip that stops hardly a token costs little, whatever it is spent on; to count ranks twice scales all alike."""
    if suspect.cause.name == "clip_spent_on_numerics" and not much_is_clipped(evidence).present:
        return Severity.NOTICE
    if suspect.cause.name == "divided_by_another_constant" and is_a_whole_multiple(evidence):
        return Severity.NOTICE
    return suspect.cause.severity
