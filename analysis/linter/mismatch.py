"""Why sampler and trainer differ at one version: the causes that the marks of the mismatch tell apart."""

from ratioscope.analysis.findings.cause import Family, Suspect, cause, findings_of
from ratioscope.analysis.findings.finding import Finding, Severity, not_checked, passed
from ratioscope.analysis.frameworks.remedies import framework_of
from ratioscope.analysis.linter.check import ENGINE_COLUMNS, check
from ratioscope.analysis.linter.differing import FEWEST_FRESH, HELD_BY, differing
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.least_length import mass_is_missing_before_any_end
from ratioscope.analysis.linter.mismatch_behind_a_place import manifest_has_that_place, mismatch_begins_at_a_place
from ratioscope.analysis.linter.mismatch_by_version import (
    mismatch_falls_back_each_period,
    mismatch_grows_from_a_version_on,
    sampler_is_nearer_to_the_policy,
)
from ratioscope.analysis.linter.mismatch_in_places import (
    mismatch_from_a_turn_on,
    temperature_of_the_place,
    truncation_of_the_place,
)
from ratioscope.analysis.linter.mismatch_in_responses import (
    identical_then_not,
    mismatch_at_first_tokens,
    mismatch_behind_the_first,
    mismatch_fades_with_position,
    mismatch_grows_with_position,
    mismatch_is_periodic,
    mismatch_near_the_limit,
    mismatch_of_short_prompts,
    mismatch_of_short_responses,
    mismatch_of_some_tokens,
    mismatch_of_the_last_token_at_the_limit,
    mismatch_of_the_longest_prompts,
    one_rank_is_uncorrelated,
    reward_is_low_on_these_ranks,
    sampler_avoids_repeats,
    shifted_from_a_token_on,
)
from ratioscope.analysis.linter.mismatch_of_rare_tokens import rare_tokens_are_rarer_in_the_trainer
from ratioscope.analysis.linter.mismatch_of_some_responses import (
    few_responses_hold_the_mismatch,
    these_responses_earn_less,
)
from ratioscope.analysis.linter.mismatch_over_steps import (
    labels_make_no_difference,
    mismatch_at_the_first_update,
    mismatch_before_a_change,
    mismatch_behind_a_change,
    mismatch_falls_back,
    mismatch_follows_updates,
    mismatch_from_the_first_step,
    mismatch_in_some_steps,
    mismatch_keeps_growing,
    mismatch_of_repeats,
    mismatch_starts_small,
    mismatch_steps_up,
    mismatch_varies,
    sampler_goes_further,
    sampler_is_frozen,
    sampler_is_part_of_the_way,
)
from ratioscope.analysis.linter.noise_floor import HEALTHY_TV
from ratioscope.analysis.linter.place import DIVIDED_BY, places_of, shortfall

_AT_A_PLACE = tuple(
    HELD_BY[name] for name in DIVIDED_BY if name not in ("age", "position", "absolute", "end", "token", "written")
)
_TAILS = ("sampler_not_following", "engine_mismatch", "heavy_tail", "ess_collapse", "variance_regime", "length_trap")
_SETTINGS = (temperature_of_the_place, truncation_of_the_place)
_OTHER_VERSIONS = (
    mismatch_falls_back_each_period, mismatch_grows_from_a_version_on, sampler_is_nearer_to_the_policy,
)  # fmt: skip
"""What tells which weights the sampler has in place of those that labels say."""
_NOT_OF_SOME = (
    *(HELD_BY[name] for name in ("turn_start", "segment", "version_change", "version_ahead", "packed", "routing")),
    shifted_from_a_token_on, mismatch_of_repeats, mismatch_of_the_last_token_at_the_limit, *_OTHER_VERSIONS,
)  # fmt: skip
"""What else makes single responses differ."""
_NOT_AT_A_PLACE = (
    *_AT_A_PLACE, HELD_BY["turn"], mismatch_from_a_turn_on, mismatch_near_the_limit, mismatch_is_periodic,
    mass_is_missing_before_any_end, shifted_from_a_token_on, few_responses_hold_the_mismatch,
)  # fmt: skip
"""What else begins at a position."""
_INPUTS = "Compare the token ids and inputs that both engines see there."

cause(
    "prefix_cache", Family.MISMATCH, "The sampler reuses a prefix cache of old weights",
    requires=(mismatch_of_repeats, mismatch_at_first_tokens),
    supports={HELD_BY["repeated"]: 1.0, mismatch_falls_back: 1.0},
    refutes=(HELD_BY["prompt"],),
    do="Reset the prefix cache after each weight push.",
    settings={"verl": "actor_rollout_ref.rollout.enable_prefix_caching=False"},
    reports=("NeMo-RL #4018", "NeMo-RL #3152", "prime-rl #1650", "prime-rl #2270"), explains=_TAILS,
)  # fmt: skip
cause(
    "some_prompts", Family.MISMATCH, "Particular prompts are computed differently in sampler and trainer",
    requires=(HELD_BY["prompt"],),
    refutes=(mismatch_in_some_steps, mismatch_of_the_longest_prompts, mismatch_of_repeats, *_SETTINGS),
    do=f"Recompute the same few prompts in both engines. {_INPUTS}",
    reports=("NeMo-RL #2100", "NeMo-RL #2141", "NeMo-RL #4243"), explains=_TAILS,
)  # fmt: skip
cause(
    "kept_of_some_prompts", Family.MISMATCH, "Of some prompts the sampler keeps something of old weights",
    requires=(HELD_BY["prompt"], mismatch_of_repeats),
    refutes=(mismatch_at_first_tokens, mismatch_in_some_steps, mismatch_of_the_longest_prompts, *_SETTINGS),
    do="After each weight push drop what was computed of prompts before, such as the embeddings of images.",
    reports=("TRL #7198",), explains=_TAILS,
)  # fmt: skip
cause(
    "one_environment", Family.MISMATCH, "One environment is computed differently in sampler and trainer",
    requires=(HELD_BY["environment"],), supports={mismatch_at_first_tokens: 1.0}, refutes=_SETTINGS, do=_INPUTS,
    reports=("TRL #6294", "TRL #6401", "OpenRLHF #1220"), explains=_TAILS,
)  # fmt: skip
cause(
    "one_server", Family.MISMATCH, "One inference server differs from the others",
    requires=(HELD_BY["engine"],), refutes=_SETTINGS,
    do="Compare the weight checksum and launch flags of this server with the others'.",
    explains=_TAILS,
)  # fmt: skip
cause(
    "one_rank", Family.MISMATCH, "One rank of the trainer differs from the others",
    requires=(HELD_BY["rank"],), refutes=_SETTINGS,
    do="Compare how this rank packs and gathers log-probabilities with the others.",
    reports=("AReno #511",), explains=_TAILS,
)  # fmt: skip
cause(
    "rank_of_other_tokens", Family.MISMATCH, "The values of one rank of the trainer belong to other tokens",
    requires=(HELD_BY["rank"], one_rank_is_uncorrelated),
    do="Look at the order in which this rank packs and unpacks responses.",
    reports=("AReno #511",), explains=(*_TAILS, "own_token", "denominator_wrong"),
)  # fmt: skip
cause(
    "rank_of_other_prompts", Family.MISMATCH, "Responses of some ranks are trained and scored under other prompts",
    requires=(HELD_BY["rank"], mismatch_fades_with_position, reward_is_low_on_these_ranks),
    do="Gather prompts and responses of all ranks in one order, and compare a response's prompt with the sampler's.",
    reports=("TRL #3098",), explains=(*_TAILS, "zero_signal", "responses_apart"),
)  # fmt: skip
cause(
    "packed_together", Family.MISMATCH, "Responses that share a micro-batch are not computed apart from each other",
    requires=(HELD_BY["packed"],),
    do="Compute a response alone and behind others: attention mask and position ids must begin anew with each.",
    reports=("nanoVLM #201", "nanoVLM #204", "TRL #784"), explains=_TAILS,
)  # fmt: skip
cause(
    "one_adapter", Family.MISMATCH, "One adapter differs in sampler and trainer",
    requires=(HELD_BY["adapter"],), refutes=_SETTINGS,
    do="Compare the adapter weights that the sampler has loaded with the trainer's.", explains=_TAILS,
)  # fmt: skip
cause(
    "temperature_of_one_part", Family.MISMATCH,
    "One part of the data is sampled at another temperature than the trainer computes with",
    requires=(temperature_of_the_place,),
    do="Divide the trainer's logits by the temperature of this part, or sample it at that of the others.",
    reports=("prime-rl #2669", "prime-rl #2637", "tinker-cookbook #86"), explains=(*_TAILS, "temperature"),
)  # fmt: skip
cause(
    "truncation_of_one_part", Family.MISMATCH,
    "One part of the data is sampled with tokens left out, as top-k and top-p do, and the trainer has them",
    requires=(truncation_of_the_place,),
    do="Sample this part without truncation, or apply the same one in the trainer.",
    explains=(*_TAILS, "truncated_support", "mean_ratio", "on_policy_ratio"),
)  # fmt: skip
cause(
    "turns_rendered_anew", Family.MISMATCH, "Turns begin in another context in the trainer than in the sampler",
    requires=(HELD_BY["turn_start"],), do="Train on the sampled token ids; do not render the conversation again.",
    explains=_TAILS,
)  # fmt: skip
cause(
    "turns_of_another_history", Family.MISMATCH,
    "From a turn on sampler and trainer see another history of the conversation",
    requires=(mismatch_from_a_turn_on,),
    refutes=(mismatch_starts_small, mismatch_follows_updates, HELD_BY["turn_start"], HELD_BY["version_change"]),
    do="Compare the token ids before this turn in sampler and trainer: turns that one of them leaves out or shortens.",
    reports=("prime-rl #1383",), explains=_TAILS,
)  # fmt: skip
cause(
    "old_behind_a_change", Family.MISMATCH,
    "Behind a change of version in a response, tokens are in part of older weights",
    requires=(mismatch_behind_a_change,),
    do="Compute the KV cache anew when new weights arrive within a response, or label tokens by what computed them.",
    reports=("SkyRL #2246", "SkyRL #1798", "SkyRL #979"), explains=_TAILS,
)  # fmt: skip
cause(
    "drawn_while_weights_arrive", Family.MISMATCH,
    "Tokens are drawn in the middle of a weight update, with a part of the new weights",
    requires=(mismatch_before_a_change, sampler_is_part_of_the_way),
    do="Pause sampling while weights are copied, or swap them at once.", reports=("NeMo-RL #3839",), explains=_TAILS,
)  # fmt: skip
cause(
    "expert_routing", Family.MISMATCH, "Sampler and trainer choose other experts",
    requires=(HELD_BY["routing"],), do="Replay the sampler's expert routing in the trainer.",
    settings={"verl": "actor_rollout_ref.actor.megatron.router_replay.mode=R3",
              "prime_rl": "trainer.enable_router_replay = true", "slime": "--use-rollout-routing-replay"},
    explains=(*_TAILS, "own_token"),
)  # fmt: skip
cause(
    "some_tokens", Family.MISMATCH, "Particular tokens of the vocabulary are computed differently",
    requires=(mismatch_of_some_tokens,),
    refutes=(*_AT_A_PLACE, sampler_avoids_repeats, mismatch_of_the_last_token_at_the_limit,
             few_responses_hold_the_mismatch),
    do="Compare the rows of these tokens in embedding and output layer of both engines: added tokens, a resized "
    "vocabulary.",
    explains=_TAILS,
)  # fmt: skip
cause(
    "late_from_a_token_on", Family.MISMATCH, "From one token on, values of some responses belong to other tokens",
    requires=(shifted_from_a_token_on,),
    do="Train on the sampled token ids, with their log-probabilities: ids that are made anew from the text differ.",
    reports=("rllm #816", "rllm #898", "eval-protocol #457"), explains=(*_TAILS, "mean_ratio"),
)  # fmt: skip
cause(
    "kernel_boundary", Family.MISMATCH, "Both engines compute the same up to one position and differ from there on",
    requires=(identical_then_not,),
    refutes=(mismatch_from_a_turn_on, few_responses_hold_the_mismatch, manifest_has_that_place),
    do="Look for a block, window or kernel limit there: KV cache, attention, chunks.",
    reports=("SGLang #25790", "vLLM #54035"),
)  # fmt: skip
cause(
    "window_left_out", Family.MISMATCH, "One engine leaves out a window of the context, or has another one",
    requires=(mismatch_begins_at_a_place, manifest_has_that_place), supports={HELD_BY["absolute"]: 1.0},
    refutes=_NOT_AT_A_PLACE,
    do="Look whether sampler and trainer pass this setting to attention, on each shard and in each layer.",
    reports=("prime-rl #2828", "prime-rl #2418"), explains=(*_TAILS, "on_policy_ratio"),
)  # fmt: skip
cause(
    "from_a_place_on", Family.MISMATCH, "From one place of the context on the engines compute otherwise",
    requires=(mismatch_begins_at_a_place,), supports={HELD_BY["absolute"]: 1.0},
    refutes=(*_NOT_AT_A_PLACE, identical_then_not, manifest_has_that_place),
    do="Look for what begins there in one engine alone: a sliding window, scaled rotary positions, a chunk, a block.",
    reports=("prime-rl #2828", "prime-rl #2418"), explains=(*_TAILS, "on_policy_ratio"),
)  # fmt: skip
cause(
    "requests_corrupted", Family.MISMATCH, "The engine corrupts some requests",
    requires=(few_responses_hold_the_mismatch, these_responses_earn_less), refutes=_NOT_OF_SOME,
    do="Leave these responses out of the loss. Find what their requests share, such as server, batch or a long prompt "
    "beside them, and test that kernel.",
    reports=("vLLM #55894", "vllm-metal #488"), explains=(*_TAILS, "on_policy_ratio"),
)  # fmt: skip
cause(
    "some_responses", Family.MISMATCH, "Some whole responses are computed otherwise in sampler and trainer",
    requires=(few_responses_hold_the_mismatch,), refutes=(*_NOT_OF_SOME, these_responses_earn_less),
    do=f"Find what their requests share, such as server, batch or length of the prompt. {_INPUTS}",
    reports=("vLLM #55894",), explains=_TAILS,
)  # fmt: skip
cause(
    "updates_twice", Family.MISMATCH, "The sampler goes too far, as if updates were applied twice",
    requires=(mismatch_starts_small, sampler_goes_further), refutes=_AT_A_PLACE,
    do="Apply an adapter once, merged into the base or beside it, and at the trainer's scale (alpha over rank).",
    reports=("miles #1087", "miles #1091"), explains=_TAILS,
)  # fmt: skip
cause(
    "rounded_update", Family.MISMATCH, "The sampler follows in part: each update is rounded on its way",
    requires=(mismatch_starts_small,),
    refutes=(*_AT_A_PLACE, mismatch_varies, mismatch_at_first_tokens, mismatch_falls_back, mismatch_keeps_growing,
             mismatch_follows_updates, mismatch_steps_up, mismatch_at_the_first_update, sampler_goes_further,
             *_OTHER_VERSIONS),
    do="Send the update in float32, or merge the adapter in float32 before it is rounded.",
    reports=("NeMo-RL #3696", "TRL #6688", "miles_diffusion #129"), explains=("sampler_not_following",),
)  # fmt: skip
cause(
    "other_from_the_first_update", Family.MISMATCH,
    "With the first update the sampler gets other weights than the trainer's",
    requires=(mismatch_at_the_first_update,),
    refutes=(*_AT_A_PLACE, mismatch_keeps_growing, mismatch_falls_back, mismatch_follows_updates, sampler_is_frozen,
             sampler_goes_further, *_OTHER_VERSIONS),
    do="Compare single tensors in sampler and trainer after the first push: layout of experts, names, shards, scales.",
    reports=("SkyRL #1680", "vLLM #42821"), explains=_TAILS,
)  # fmt: skip
cause(
    "labels_too_young", Family.MISMATCH, "Version labels are too young: tokens are older than labelled",
    requires=(mismatch_starts_small,),
    supports={mismatch_at_first_tokens: 0.5, mismatch_follows_updates: 2.0, HELD_BY["age"]: 0.5},
    refutes=(*_AT_A_PLACE, mismatch_keeps_growing, mismatch_falls_back, mismatch_steps_up,
             mismatch_at_the_first_update, sampler_goes_further, labels_make_no_difference, *_OTHER_VERSIONS),
    do="Label each token with the version that sampled it, when it was sampled.", columns=("behavior_version",),
    reports=("AReaL #1736", "verl #7568", "verl #7569", "miles #3334"),
    explains=("sampler_not_following", "engine_mismatch"),
)  # fmt: skip
cause(
    "labels_too_old", Family.MISMATCH, "Version labels are too old: tokens are of newer weights than labelled",
    requires=(sampler_is_nearer_to_the_policy,), supports={HELD_BY["age"]: 1.0}, refutes=_AT_A_PLACE,
    do="Label each token with the version that sampled it, when it was sampled, not when its request came in.",
    columns=("behavior_version",), reports=("vLLM #54443",), explains=("sampler_not_following", "engine_mismatch"),
)  # fmt: skip
cause(
    "weights_sent_each_period", Family.MISMATCH,
    "New weights reach the sampler only every few steps, and version labels count all of them",
    requires=(mismatch_falls_back_each_period,), supports={mismatch_follows_updates: 1.0}, refutes=_AT_A_PLACE,
    do="Label tokens with the version that was last sent to the sampler, or send each version.",
    reports=("verl-omni #374", "TRL #5937"), explains=(*_TAILS, "on_policy_ratio"),
)  # fmt: skip
cause(
    "sampler_stops_following", Family.MISMATCH,
    "From one step on the sampler no longer follows: new weights do not arrive",
    requires=(mismatch_grows_from_a_version_on,), supports={mismatch_follows_updates: 1.0},
    refutes=(*_AT_A_PLACE, mismatch_falls_back, mismatch_falls_back_each_period, mismatch_steps_up, sampler_is_frozen,
             sampler_goes_further),
    do="Compare a checksum of the sampler's weights with the trainer's on either side of this step. Look for a push "
    "that fails, a restart, an adapter loaded anew under a name that is taken.",
    reports=("vLLM #48312", "vllm-metal #351"), explains=(*_TAILS, "on_policy_ratio"),
)  # fmt: skip
cause(
    "first_tokens_older", Family.MISMATCH, "The first tokens of responses are older than their version labels say",
    requires=(mismatch_fades_with_position, mismatch_starts_small), supports={mismatch_follows_updates: 2.0},
    refutes=(*_AT_A_PLACE, mismatch_from_the_first_step, mismatch_of_repeats, mismatch_of_short_responses),
    do="Label each token with the version that sampled it, when it was sampled, not when its response was done.",
    columns=("behavior_version",), reports=("rllm #622", "AReaL #1569"),
    explains=("sampler_not_following", "engine_mismatch"),
)  # fmt: skip
cause(
    "other_context", Family.MISMATCH, "Responses begin in another context in the sampler than in the trainer",
    requires=(mismatch_fades_with_position, mismatch_from_the_first_step), supports={mismatch_at_first_tokens: 1.0},
    refutes=(*_AT_A_PLACE, mismatch_of_repeats, mismatch_of_short_responses, mismatch_follows_updates,
             mismatch_behind_the_first, few_responses_hold_the_mismatch),
    do="Compare the token ids of the prompts that both engines see: a second BOS token, another chat template.",
    reports=("TRL #3853",), explains=_TAILS,
)  # fmt: skip
cause(
    "cached_prompt", Family.MISMATCH,
    "All but the first response of a group begin in another context, as behind a cached prompt",
    requires=(mismatch_behind_the_first, mismatch_fades_with_position),
    supports={mismatch_from_the_first_step: 1.0, mismatch_at_first_tokens: 1.0}, refutes=_AT_A_PLACE,
    do="Compare a group with and without prefix caching: a cached prompt may lack its expert routing.",
    settings={"verl": "actor_rollout_ref.rollout.enable_prefix_caching=False"},
    reports=("vLLM #42346", "vLLM #39917"), explains=_TAILS,
)  # fmt: skip
cause(
    "weights_never_arrive", Family.MISMATCH, "New weights never arrive at the sampler",
    requires=(sampler_is_frozen,), supports={mismatch_starts_small: 1.0, mismatch_keeps_growing: 1.0},
    refutes=_AT_A_PLACE, do="Compare a checksum of the sampler's weights with the trainer's after a push.",
    reports=("verl #7495", "verl #4248"), explains=_TAILS, severity=Severity.CRITICAL,
)  # fmt: skip
cause(
    "labels_without_weights", Family.MISMATCH,
    "The sampler does not follow its version labels: updates do not reach it, or labels are wrong",
    requires=(mismatch_starts_small, labels_make_no_difference, mismatch_varies),
    refutes=(*_AT_A_PLACE, mismatch_falls_back, mismatch_steps_up, sampler_is_frozen, sampler_goes_further,
             *_OTHER_VERSIONS),
    do="Compare a checksum of the sampler's weights with the trainer's after a push.",
    reports=("verl #7495", "verl #4248"), explains=_TAILS,
)  # fmt: skip
cause(
    "part_not_sent", Family.MISMATCH, "Updates are not synced to the sampler, all of them or some tensors",
    requires=(mismatch_starts_small, mismatch_keeps_growing), supports={mismatch_follows_updates: 1.5},
    refutes=(*_AT_A_PLACE, mismatch_falls_back, sampler_is_frozen, mismatch_fades_with_position, sampler_goes_further,
             *_OTHER_VERSIONS),
    do="Compare checksums of single tensors in sampler and trainer after a push.", explains=_TAILS,
)  # fmt: skip
cause(
    "engines_drift_apart", Family.MISMATCH, "The mismatch of the engines grows with training",
    requires=(mismatch_keeps_growing,), supports={mismatch_starts_small: 1.0},
    refutes=(*_AT_A_PLACE, mismatch_falls_back, mismatch_follows_updates, sampler_is_frozen, sampler_goes_further,
             labels_make_no_difference, *_OTHER_VERSIONS),
    do="Compare both engines on the weights of the last step: number format of the last layer, kernels.",
    reports=("verl #6780", "verl #7519"), explains=_TAILS,
)  # fmt: skip
cause(
    "other_from_a_step", Family.MISMATCH, "From one step on sampler and trainer compute differently",
    requires=(mismatch_steps_up,), refutes=(*_AT_A_PLACE, mismatch_follows_updates, sampler_is_frozen),
    do="Look at what happened to the sampler before this step: a restart, waking from sleep, a reload, a new setting.",
    reports=("NeMo-RL #2631", "vLLM #29341", "TRL #5312"), explains=_TAILS,
)  # fmt: skip
cause(
    "older_weights_for_some_steps", Family.MISMATCH, "The sampler had other, older weights in a few steps",
    requires=(mismatch_in_some_steps,), refutes=tuple(each for each in _AT_A_PLACE if each is not HELD_BY["prompt"]),
    do="Push the weights before the first rollout after a start or a restart.", explains=_TAILS,
)  # fmt: skip
cause(
    "long_contexts", Family.MISMATCH, "Kernels of sampler and trainer differ more in long contexts",
    requires=(mismatch_grows_with_position,), supports={HELD_BY["absolute"]: 1.0},
    refutes=(*_AT_A_PLACE, HELD_BY["turn"], identical_then_not, mismatch_near_the_limit, mismatch_is_periodic,
             mismatch_of_short_prompts, few_responses_hold_the_mismatch, mismatch_begins_at_a_place),
    do="Compare attention kernels and the number format of the KV cache.", reports=("Megatron-LM #76",),
)  # fmt: skip
cause(
    "padding", Family.MISMATCH, "Padding reaches the log-probabilities: short responses of a batch differ more",
    requires=(mismatch_of_short_responses,),
    refutes=(*_AT_A_PLACE, identical_then_not, mismatch_near_the_limit, shifted_from_a_token_on, mismatch_is_periodic,
             rare_tokens_are_rarer_in_the_trainer, few_responses_hold_the_mismatch),
    do="Compare a short response alone with the same one in a padded batch: attention mask and position ids.",
    reports=("NeMo-Aligner #68", "trlx #509"), explains=_TAILS,
)  # fmt: skip
cause(
    "padded_prompts", Family.MISMATCH,
    "Short prompts of a batch are scored differently, as where padding counts as positions",
    requires=(mismatch_of_short_prompts,),
    refutes=(*_AT_A_PLACE, mismatch_of_short_responses, mismatch_follows_updates, few_responses_hold_the_mismatch),
    do="Score a short prompt alone and in a padded batch: position ids must begin at its first token.",
    reports=("unsloth-zoo #840", "unsloth #6738"), explains=_TAILS,
)  # fmt: skip
cause(
    "end_forced", Family.MISMATCH, "The token that ends a response is forced at the length limit, and not drawn",
    requires=(mismatch_of_the_last_token_at_the_limit,),
    do="Leave the forced token out of the loss.",
    explains=(*_TAILS, "mean_ratio", "truncated_support"),
)  # fmt: skip
cause(
    "end_forbidden", Family.MISMATCH, "The sampler may not end a response before a least length, and the trainer may",
    requires=(mass_is_missing_before_any_end,),
    do="Set no least length (min_tokens, min_new_tokens), or leave the end token out in the trainer up to there, too.",
    reports=("TRL #1002", "TRL #1003"),
    explains=(*_TAILS, "mean_ratio", "truncated_support", "on_policy_ratio"),
)  # fmt: skip
cause(
    "prompts_cut", Family.MISMATCH, "Long prompts are cut in sampler or trainer alone",
    requires=(mismatch_of_the_longest_prompts,),
    refutes=tuple(each for each in _AT_A_PLACE if each is not HELD_BY["prompt"]),
    do="Give sampler and trainer the same limit of prompt tokens, or leave longer prompts out.",
    reports=("TRL #3569", "TRL #3601"), explains=_TAILS,
)  # fmt: skip
cause(
    "ends_of_blocks", Family.MISMATCH, "Labels are cut, or a kernel is wrong, at the edges of blocks",
    requires=(mismatch_is_periodic,), refutes=_AT_A_PLACE,
    do="Shift labels before a response is cut into shards or chunks, not within each; look at blocks of this size.",
    reports=("ChatLearn #343",), explains=(*_TAILS, "mean_ratio", "on_policy_ratio"),
)  # fmt: skip
cause(
    "near_the_limit", Family.MISMATCH, "The engine is wrong near the length limit",
    requires=(mismatch_near_the_limit,),
    refutes=(*_AT_A_PLACE, identical_then_not, mismatch_of_the_last_token_at_the_limit, mismatch_is_periodic,
             few_responses_hold_the_mismatch),
    do="Raise the context length of the server above the length limit, or leave these positions out.",
    reports=("vLLM #38711", "vLLM #53488"), explains=_TAILS,
)  # fmt: skip
cause(
    "rare_tokens", Family.MISMATCH,
    "The sampler gives rare tokens more than the trainer does, as behind a soft cap of logits or a floor",
    requires=(rare_tokens_are_rarer_in_the_trainer,),
    refutes=(sampler_avoids_repeats, few_responses_hold_the_mismatch, *_SETTINGS),
    do="Compare what both engines do to logits before the softmax: a soft cap, a scale, a logits processor.",
    reports=("TRL #5692", "TRL #5691", "unsloth-zoo #593"), explains=_TAILS,
)  # fmt: skip
cause(
    "repetition_penalty", Family.MISMATCH, "The sampler punishes tokens that it has written before",
    requires=(sampler_avoids_repeats,),
    do="Turn off repetition, presence and frequency penalties of the sampler.", explains=_TAILS,
)  # fmt: skip


@check(order=275, needs=ENGINE_COLUMNS, page="engine", of_the_run=True)
def mismatch_cause(evidence: LogEvidence) -> list[Finding]:
    """Why sampler and trainer differ at one version: a server, prompts, a cache, an update that was rounded."""
    if len(evidence.fresh) < FEWEST_FRESH:
        return not_checked(f"The engine's part is known of fewer than {FEWEST_FRESH:,} tokens.")
    if differing(evidence) is None:
        return passed("With the same weights both engines agree to rounding.")
    found = findings_of(
        Family.MISMATCH, evidence, framework_of(evidence.run.manifest), lambda one: _cost(evidence, one)
    )
    placed = "".join(f" {place.clause}." for place in places_of(evidence)[:1])
    return found or passed(f"No known cause of a mismatch shows its signs.{placed}")


def _cost(evidence: LogEvidence, suspect: Suspect) -> Severity:
    """A notice where the mismatch is that of healthy engines, in its steps and place."""
    level = float(shortfall(evidence.fresh).mean())
    dense = next((sign.reading.value for sign in suspect.speaking if sign.mark in _AT_A_PLACE), 1.0)
    return suspect.cause.severity if level * dense > HEALTHY_TV else Severity.NOTICE
