"""Why a run fell: the causes that the marks of a fall speak for, once it fell or all along.

fall = fall_seen(evidence)           # None: nothing fell; all of these marks then have too little data
rivals(Family.FALL, evidence)        # the causes that stand, the likeliest first
"""

from ratioscope.analysis.diagnosis.evidence import RunEvidence
from ratioscope.analysis.diagnosis.fallen_policy import (
    advantage_grew_giant,
    back_at_the_start,
    data_are_old,
    entropy_is_gone,
    entropy_rose,
    far_from_reference,
    fell_from_the_start,
    good_tokens_lost,
    grad_norm_rose,
    kl_rose,
    learning_rate_above_setting,
    learning_rate_jumped,
    loss_without_bound,
    mismatch_grew,
    not_finite,
    policy_jumped,
    ratios_stay_small,
    schedule_repeats,
    smallest_ratio_fell,
    staleness_passed_its_limit,
    strayed_tokens_stopped,
    update_passed_its_limit,
)
from ratioscope.analysis.diagnosis.fallen_reward import (
    fell_beyond_the_bound,
    lengths_moved,
    more_are_cut_off,
    part_carries_the_advantages,
    part_rises_as_another_falls,
    prompts_differ,
    reward_against_evaluation,
    same_prompts_lose,
    that_part_rises,
    truncation_rose,
)
from ratioscope.analysis.diagnosis.fallen_temperature import temperature_changed
from ratioscope.analysis.findings.cause import CAUSES, Family, Suspect, cause, suspects
from ratioscope.analysis.findings.facts import STALENESS, UPDATE_METRIC


def suspects_all_along(evidence: RunEvidence) -> list[Suspect]:
    """Causes whose marks hold for the whole run, where nothing has changed before the fall: suspects, no more."""
    held = {
        "old_data_without_bound": (loss_without_bound, data_are_old),
        "mask_stops_return": (strayed_tokens_stopped,),
        "reward_part_dominates": (part_carries_the_advantages,),
        "learning_rate_not_as_set": (learning_rate_above_setting,),
    }
    known = suspects((CAUSES[name] for name in held), evidence)
    return [each for each in known if all(sign.present for sign in each.of(held[each.cause.name]))]


METRIC_OF = {
    smallest_ratio_fell.name: "ratio_min", good_tokens_lost.name: "ratio_min",
    staleness_passed_its_limit.name: STALENESS,
    update_passed_its_limit.name: UPDATE_METRIC, mismatch_grew.name: "s_k_engine_bounded",
    entropy_is_gone.name: "entropy", far_from_reference.name: "kl_to_initial",
    back_at_the_start.name: "kl_to_initial", truncation_rose.name: "response_length",
    part_carries_the_advantages.name: "reward", fell_beyond_the_bound.name: UPDATE_METRIC,
}  # fmt: skip
"""The metric that shows a mark; of others none does."""

cause(
    "scorer_or_prompts_changed", Family.FALL, "The scorer, the prompts or the evaluation changed, not the policy",
    requires=(fell_beyond_the_bound,), supports={reward_against_evaluation: 1.0}, refutes=(temperature_changed,),
    do="Score an earlier checkpoint again with the scorer, prompts and sampling that ran after the fall.",
    source="docs/metrics.md, identities",
)  # fmt: skip
cause(
    "scored_otherwise", Family.FALL, "The same prompts are scored otherwise, not answered worse",
    requires=(same_prompts_lose,), refutes=(temperature_changed, mismatch_grew, truncation_rose),
    do="Compare the scorer and the reference answers on both sides of that step, and whether both were shuffled alike.",
    reports=("open-instruct #1484",),
)  # fmt: skip
cause(
    "temperature_changed", Family.FALL, "Responses are sampled at another temperature",
    requires=(temperature_changed,),
    do="Take the temperature back, if it was not to change; if it was, compare rewards on one side of the change.",
)  # fmt: skip
cause(
    "not_finite", Family.FALL, "A loss or gradient that is not finite went into the weights",
    requires=(not_finite,), do="Skip updates whose gradient norm is not finite, and clip the gradient norm.",
)  # fmt: skip
cause(
    "old_data_without_bound", Family.FALL, "A loss without a clip learns from old data",
    requires=(smallest_ratio_fell, data_are_old, loss_without_bound),
    supports={good_tokens_lost: 1.0, kl_rose: 0.5, staleness_passed_its_limit: 0.5},
    refutes=(fell_beyond_the_bound,), do="Clip the loss, or sample from newer weights.",
    source="S3 figures 3 and 9",
)  # fmt: skip
cause(
    "mask_stops_return", Family.FALL, "The mask stops tokens that would come back",
    requires=(good_tokens_lost, strayed_tokens_stopped), supports={smallest_ratio_fell: 1.0, kl_rose: 0.5},
    refutes=(fell_beyond_the_bound,),
    do="Clip a token only in the direction of its advantage (one_side), or with a ring.", source="S3 B.3, figure 9",
)  # fmt: skip
cause(
    "data_too_old", Family.FALL, "The data became too old for the loss",
    requires=(staleness_passed_its_limit, data_are_old), supports={smallest_ratio_fell: 1.0, kl_rose: 0.5},
    refutes=(fell_beyond_the_bound, loss_without_bound, mismatch_grew), do="Sample from newer weights.",
    source="S0 5.6",
)  # fmt: skip
cause(
    "update_too_large", Family.FALL, "An update was too large",
    requires=(update_passed_its_limit,), supports={grad_norm_rose: 1.0, advantage_grew_giant: 1.0},
    refutes=(fell_beyond_the_bound,), do="Lower the learning rate, or clip the gradient norm.", source="S0 5.2",
)  # fmt: skip
cause(
    "back_at_the_start", Family.FALL, "The policy went back nearly to where training began",
    requires=(back_at_the_start, policy_jumped), refutes=(fell_beyond_the_bound,),
    do="Compare the weights behind the fall with the initial ones: the optimiser's own copy, what a restart loads.",
    reports=("SkyRL #2149", "NeMo-RL #2372"),
)  # fmt: skip
cause(
    "learning_rate_step", Family.FALL, "The learning rate jumped",
    requires=(learning_rate_jumped,), supports={update_passed_its_limit: 1.0, grad_norm_rose: 0.5},
    refutes=(fell_beyond_the_bound, schedule_repeats),
    do="Set the learning rate back to what it was at the best level.",
)  # fmt: skip
cause(
    "schedule_begins_again", Family.FALL, "The schedule of the learning rate began again",
    requires=(learning_rate_jumped, schedule_repeats), supports={update_passed_its_limit: 1.0, grad_norm_rose: 0.5},
    refutes=(fell_beyond_the_bound,),
    do="Load the schedule and the optimiser's state with the weights when a run is resumed.",
    reports=("NeMo-RL #3171", "ART #72"),
)  # fmt: skip
cause(
    "learning_rate_not_as_set", Family.FALL, "The learning rate is not the configured one",
    requires=(learning_rate_above_setting, fell_from_the_start),
    supports={update_passed_its_limit: 1.0, grad_norm_rose: 0.5}, refutes=(fell_beyond_the_bound,),
    do="Set the learning rate again after a checkpoint is loaded: it brings its optimiser's and its schedule's own.",
    reports=("Megatron-LM #963", "Megatron-LM #1138"),
)  # fmt: skip
cause(
    "mismatch_grows", Family.FALL, "Sampler and trainer drift apart",
    requires=(mismatch_grew,), refutes=(fell_beyond_the_bound,),
    do="Align the sampler with the trainer: the Engine page says in which tokens they differ.",
)  # fmt: skip
cause(
    "entropy_gone", Family.FALL, "The policy explores too little",
    requires=(entropy_is_gone,), refutes=(fell_beyond_the_bound,),
    do="Add an entropy bonus or a KL penalty, or raise the temperature.", source="S4 5.4.2",
)  # fmt: skip
cause(
    "over_optimisation", Family.FALL, "The policy went far from the reference while its ratios stayed small",
    requires=(far_from_reference, ratios_stay_small), supports={reward_against_evaluation: 1.0, lengths_moved: 0.5},
    refutes=(fell_beyond_the_bound, mismatch_grew),
    do="Read responses for what the reward pays for (over-optimisation), and raise the KL penalty.",
    reports=("LightRFT #53",),
)  # fmt: skip
cause(
    "reward_hacked", Family.FALL,
    "Over-optimisation: the policy learns what the training reward pays for and evaluation does not measure",
    requires=(reward_against_evaluation,), supports={part_rises_as_another_falls: 1.0, lengths_moved: 0.5},
    refutes=(fell_beyond_the_bound, mismatch_grew, far_from_reference),
    do="Read responses with a high reward, score them as the evaluation does, and raise the KL penalty.",
    reports=("LightRFT #53",),
)  # fmt: skip
cause(
    "reward_part_dominates", Family.FALL, "A part of the reward is learned in place of the task",
    requires=(part_carries_the_advantages, that_part_rises), supports={lengths_moved: 0.5},
    refutes=(fell_beyond_the_bound,),
    do="Leave groups without a difference in the task reward out, or normalise the task reward apart from the others.",
    reports=("NeMo-RL #2431", "verl-recipe #125", "OpenRLHF #1270"),
)  # fmt: skip
cause(
    "entropy_rises", Family.FALL, "The policy becomes random",
    requires=(entropy_rose,), supports={lengths_moved: 0.5}, refutes=(fell_beyond_the_bound, temperature_changed),
    do="Lower the weight of the entropy bonus and look at its sign, or lower the learning rate.",
    reports=("TRL #199", "verl #1770"),
)  # fmt: skip
cause(
    "truncated_earn_less", Family.FALL, "More responses are cut off, and those earn less",
    requires=(more_are_cut_off,), supports={lengths_moved: 0.5, truncation_rose: 0.5},
    do="Raise the length limit, or leave truncated responses out of the loss.", reports=("UniRL #19",),
)  # fmt: skip
cause(
    "truncation", Family.FALL, "Responses run into the length limit",
    requires=(truncation_rose,), supports={lengths_moved: 0.5},
    refutes=(fell_beyond_the_bound, entropy_rose, more_are_cut_off),
    do="Raise the length limit, or leave truncated responses out of the loss.",
)  # fmt: skip
cause(
    "prompts_changed", Family.FALL, "The mixture of prompts changed",
    requires=(prompts_differ,), do="Compare the reward of the same prompts, or evaluate on a fixed set.",
)  # fmt: skip
