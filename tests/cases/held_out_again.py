"""Held-out cases of a second date: once the first ones had been looked at, they said less of the next log.

Written by someone who had read neither marks nor causes nor findings, from public reports that no other case has, and
frozen before they were scored. What the verdicts mean, and why the first score is kept, says `held_out`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.cases.case import Register
from tests.cases.faults import (
    BROKEN,
    MISSING_RESPONSES,
    NEVER_ARRIVED,
    TEMPERATURE,
    changing,
    elsewhere,
    evaluated,
    rewards_by,
    sharper,
    unclipped,
)
from tests.cases.healthy import NOTHING_BUT_THE_RUN
from tests.cases.held_out import with_kl
from tests.cases.world import (
    Array,
    Call,
    Columns,
    Log,
    Policy,
    Shape,
    apply_loss,
    chances,
    compared,
    log_softmax,
    set_advantages,
    share,
    simulate,
)

HELD_OUT_AGAIN = Register()

FIRST_SCORE = {
    "held-out again faults": "9 found, 6 vague, 12 silent, 12 untrue of 39 logs",
    "held-out again sick but true": "4 found, 6 quiet, 2 untrue of 12 logs",
    "held-out again healthy": "16 quiet of 16 logs",
}
"""What was said of them when they were first scored, by the patterns as they were frozen (2026-11-27)."""

_NOT_THE_ENGINE = r"drew at \d|number format|compare precision|kernels"
_FALL = r"(reward|accuracy).{0,40}(fell|fallen|falls|falling|dropped|lost|→)"


# Sampler and trainer --------------------------------------------------------------------------------------------------


@HELD_OUT_AGAIN(
    "sampler",
    "The sampler's value is that of the likeliest token, not of the sampled one: the first of the list was taken.",
    report="TRL #3867",
    needs=(
        r"likeliest|most likely|most probable|arg ?max|greedy|top-?1|of (an)?other tokens?|different token|wrong token"
        r"|not (that )?of the (sampled|drawn)|not the log-probabilit|never below|maximum",
    ),
    never=(NEVER_ARRIVED, r"number format|float16", r"which a temperature explains"),
    columns=("all", "trl"),
)
def likeliest_token_logged() -> Log:
    log = simulate(Shape(901, lag=1))
    logp = log_softmax(log.policy.logits(log.policy.weights[log.tokens["behavior_version"]], log.state))
    sampled = logp.argmax(axis=1) == log.tokens["token_id"]
    log.tokens["logp_behavior"] = np.where(sampled, log.tokens["logp_behavior"], logp.max(axis=1))
    return apply_loss(log)


@HELD_OUT_AGAIN(
    "log",
    "Of a quarter of the responses the ids were made anew from the text: from there on, values are one token late.",
    report="rllm #816, #898; eval-protocol #457",
    needs=(
        r"tokeni[sz]|one (token|position|row) (late|early|off)|shift|misalign|off by one|other tokens|belong"
        r"|from (some|one|a|the|that) (token|position|place)|late by one|one late|not the log-probabilit",
    ),
    never=(NEVER_ARRIVED, TEMPERATURE, r"number format|float16", r"grows with (the )?position"),
    columns=("all", "verl"),
)
def ids_made_anew_from_text() -> Log:
    log = simulate(Shape(902, lag=1))
    length = log.lengths()
    chosen = log.rng.random(len(length)) < 0.25
    place = (3 + log.rng.random(len(length)) * (length / 2 - 3)).astype(int)
    at = log.tokens["position"] - np.where(chosen, place, 10**6)[log.row]
    sampled = log.tokens["logp_behavior"][~(chosen[log.row] & (log.tokens["position"] == length[log.row] - 1))]
    merged = np.flatnonzero(at == 0)
    log.tokens["token_id"][merged] = log.rng.integers(1, log.shape.vocabulary, len(merged))
    for name in ("logp_behavior_train", "logp_current", "logp_new"):
        log.tokens[name][merged] += log.tokens[name][merged + 1]
    log.keep(at != 1)
    log.tokens["logp_behavior"] = sampled
    log.tokens["position"] -= (at[at != 1] > 1).astype(int)
    log.responses["n_tokens"] = log.lengths()
    return apply_loss(log)


@HELD_OUT_AGAIN(
    "sampler",
    "Draft tokens are accepted where they equal a draw: tokens are likelier than the probabilities that are logged.",
    report="transformers #47932; mlx-swift-lm #459",
    needs=(
        r"not drawn|were drawn|drew|drawn (from|with)|sampled from|speculative|draft|likelier than|more likely than"
        r"|too (likely|certain|probable)|surpris|sharper|favou?rs? (likely|probable)",
    ),
    never=(
        NEVER_ARRIVED,
        r"top-?[pk] (of|was|is)",
        r"number format|float16",
        r"entropy.{0,60}(temperature|of another)",
    ),
    columns=("all", "verl"),
)
def drafts_accepted_where_equal() -> Log:
    def draw(call: Call, logp: Array) -> Array:
        p = np.exp(logp)
        drafted = (call.rng.random(len(p)) < 0.75)[:, None]
        return np.where(drafted, logp + np.log(np.maximum(p + 1 - (p**2).sum(axis=1, keepdims=True), 1e-300)), logp)

    return simulate(Shape(903, lag=1), draw=draw, logs_raw=True)


@HELD_OUT_AGAIN(
    "sampler",
    "From step 2 on, when it has slept once, the engine writes garbage: what it reloads lacks its positions.",
    report="NeMo-RL #2631; vLLM #29341; TRL #5312",
    needs=(
        r"(since|from|after|behind|at|in|before|until) step [12]\b|step [12] on|first (two|2) steps"
        r"|\bwak(e|ing)|\bsleep|\bslept|reload|garbage",
    ),
    never=(NEVER_ARRIVED, TEMPERATURE, BROKEN, r"grows with training|follows? in part"),
    columns=("all", "verl"),
)
def asleep_once() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        inside = (call.state >= call.policy.n_closing) & (call.of("step") >= 2)
        return np.where(inside[:, None], 0.6 * logits + 0.4 * elsewhere(call, 91), logits)

    chance = changing(2, 0.5, 0.04)
    log = simulate(Shape(904, lag=0, trend=0.0), sampler=sampler, reward=rewards_by(chance))
    return evaluated(log, chance(log.steps["step"]))


@HELD_OUT_AGAIN(
    "weights",
    "Responses that go on with new weights keep the cache of the old: their first tokens behind the switch differ.",
    report="SkyRL #2246, #1798, #979",
    needs=(
        r"(switch|new(er)? (version|weights)|change of (version|weights)|version changes?|in.flight|mid.?response"
        r"|partial|within a response|inside (of )?(a |the )?responses?|interrupted|resum|continu|updated while).{0,160}"
        r"(mismatch|differ|distance|disagree|hold|sits|cache|\bold|stale|behind)|\bkv\b|\bcache",
    ),
    never=(r"never arriv", TEMPERATURE, BROKEN, r"prompts? (was|were|that (was|were)) (sampled|seen)|come again"),
    columns=("all", "prime-rl"),
)
def cache_of_the_weights_before() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        behind = call.position - call.of("switch")
        part = np.where(behind >= 0, 0.95 * np.exp(-np.clip(behind, 0, None) / 12), 0.0)[:, None]
        return (1 - part) * logits + part * call.served(call.policy.weights[np.maximum(call.version - 1, 0)])

    return simulate(Shape(905, lag=1, schedule="partial", drift=0.18, noise=0.003), sampler=sampler)


@HELD_OUT_AGAIN(
    "sampler",
    "In the environment 'json' a grammar forbids tokens: the sampler's values are over those that it allows.",
    needs=(
        r"json & mismatch|differ|distance|disagree|sits|hold|support|kept|ratio|fewer|allowed|grammar|constrain"
        r"|renormali|\bmass|truncat|mask|sampler|engine",
    ),
    never=(NEVER_ARRIVED, TEMPERATURE, BROKEN, r"number format|float16"),
    columns=("all", "prime-rl"),
)
def grammar_in_one_environment() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        token = np.arange(logits.shape[1])
        state = np.asarray(call.state)
        bound = (share(state, 92) < 0.4) & (state >= call.policy.n_closing) & (call.of("environment") == "json")
        allowed = share(state[:, None], token[None, :], 93) < 0.5
        allowed[np.arange(len(state)), logits.argmax(axis=1)] = True
        return np.where(bound[:, None] & ~allowed, -1e9, logits)

    return simulate(Shape(906, lag=0, environments=("chat", "json", "math")), sampler=sampler)


@HELD_OUT_AGAIN(
    "weights",
    "Rows of the added tokens 5, 9 and 14 are not the trainer's: the mismatch sits where one of them was drawn.",
    needs=(
        r"token.{0,30}\b(5|9|14)\b|token.?ids?\b|(these|few|some|particular|certain|same|three|3) (\w+ )?tokens"
        r"|tokens? of the vocabulary|vocabulary|embedding|added token|special token",
    ),
    never=(NEVER_ARRIVED, TEMPERATURE, BROKEN, r"number format|float16"),
    columns=("all", "verl"),
)
def added_tokens_not_sent() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        logits = logits.copy()
        for token in (5, 9, 14):
            logits[:, token] += 2.4 * (share(call.state, np.full(len(call.state), token), 95) - 0.5)
        return logits

    return simulate(Shape(907, lag=0, noise=0.004), sampler=sampler)


@HELD_OUT_AGAIN(
    "log",
    "The reference is the base model, not the one that training began with: the KL to it is large in step 0 already.",
    report="TRL #3194, #3196",
    needs=(
        r"reference & step 0|first step|\bstart|initial|begin|began|other model|another|not the|base model|already"
        r"|adapter|wrong|different",
    ),
    never=(NEVER_ARRIVED, TEMPERATURE, BROKEN, r"over-?optimi"),
    columns=("with reference",),
)
def reference_is_the_base_model() -> Log:
    def trainer(log: Log, which: str, logits: Array) -> Array:
        if which != "reference":
            return logits
        return log.policy.logits(np.array([0.7, -0.6, 0.6, 0.5]), log.state)

    return with_kl(simulate(Shape(908, lag=1), trainer=trainer))


# Advantages and the loss ----------------------------------------------------------------------------------------------


@HELD_OUT_AGAIN(
    "advantage",
    "Advantages of the groups are whitened again over the tokens of the step: groups of equal reward have some.",
    report="gem #113; reskill #12",
    needs=(
        r"advantage.{0,200}(twice|again|second time|whiten|(whole|over the|of the) (step|batch)|equal reward"
        r"|same reward|zero.signal|not (of|in) (its|their) group|sum to|balance|mean of (a|the|each|their) group|add up"
        r"|across groups|centred|not 0)",
    ),
    never=(TEMPERATURE, NEVER_ARRIVED, MISSING_RESPONSES, r"other responses"),
    columns=("all", "verl"),
)
def whitened_again() -> Log:
    def reward(log: Log) -> Columns:
        chance = np.clip(1.3 * chances(log) - log.responses["n_tokens"] / log.shape.longest * 0.6, 0.02, 0.98)
        return {"reward": (log.rng.random(len(chance)) < chance).astype(float)}

    log = simulate(Shape(909), reward=reward)
    step, advantage = log.tokens["step"], log.tokens["advantage"]
    count = np.bincount(step)
    above = advantage - (np.bincount(step, advantage) / count)[step]
    return set_advantages(log, above / np.sqrt(np.bincount(step, above**2) / count)[step])


@HELD_OUT_AGAIN(
    "advantage",
    "Groups are cut by a fixed stride: behind a missing response baselines are those of parts of two groups.",
    report="AReaL #1419",
    needs=(
        r"(advantage|baseline).{0,200}(stride|(an)?other groups?|two groups|neighbour|fixed size|group size|incomplete"
        r"|partial group|(of|in|from) (its|their) (own )?group|mixed? |across groups|wrong group|missing response)"
        r"|(incomplete|partial|smaller|missing).{0,200}(advantage|baseline)",
    ),
    never=(
        TEMPERATURE,
        NEVER_ARRIVED,
        r"of other responses|row before|shifted by one row",
        r"one baseline for the step",
    ),
    columns=("all", "trl"),
)
def groups_by_a_fixed_stride() -> Log:
    log = simulate(Shape(910, steps=30))
    there = log.rng.random(len(log.responses["step"])) > 0.05
    log.keep(there[log.row], there)
    step, size = log.responses["step"], log.shape.responses
    place = np.arange(len(step)) - np.searchsorted(step, step)
    stride = step * 1000 + place // size
    advantage = compared(log.responses["reward"], stride)
    whole = place < np.bincount(step)[step] // size * size
    return set_advantages(log, np.where(whole, advantage, log.responses["reward"]))


@HELD_OUT_AGAIN(
    "advantage",
    "Advantages are in standard deviations of the group, though the manifest says that they are not.",
    report="rllm #447",
    needs=(r"advantage & standard deviation|normali[sz]|configured|manifest|scaled|divided|\bstd\b|group_mean",),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN, MISSING_RESPONSES, r"other responses"),
)
def deviation_in_spite_of_the_manifest() -> Log:
    log = simulate(Shape(911, graded=True))
    log.manifest["algorithm"]["parts"]["advantage"] = "group_mean"
    return log


@HELD_OUT_AGAIN(
    "advantage",
    "Advantages are discounted by 0.9 a token from the end: the first tokens of long responses have none.",
    report="TorchRL #3679",
    needs=(
        r"(advantage|gradient|credit).{0,160}(position|early|earlier|first tokens|beginning|end of|last tokens"
        r"|fade|decay|shrink|within (a|each|one) response|inside (of )?(a |each )?response|vary|varies|token to token)"
        r"|discount|\bgamma\b",
    ),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN, r"other responses", MISSING_RESPONSES),
    columns=("all", "trl"),
)
def discounted_from_the_end() -> Log:
    log = simulate(Shape(912))
    left = log.lengths()[log.row] - 1 - log.tokens["position"]
    return set_advantages(log, log.tokens["advantage"] * 0.9**left)


@HELD_OUT_AGAIN(
    "loss",
    "Tokens that the mask rejects still have a gradient: it is applied to the count and not to the sum.",
    report="ROLL #444",
    needs=(
        r"(reject|mask).{0,200}(gradient|weight|still|in the loss|not applied|(no|without) effect|learn|trained on)"
        r"|(gradient|weight).{0,200}(reject|mask)",
    ),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN),
    columns=("all", "trl"),
)
def mask_without_effect() -> Log:
    log = simulate(Shape(913, lag=5, schedule="offset", drift=0.08))
    far = np.abs(log.tokens["logp_current"] - log.tokens["logp_behavior"]) > 0.12
    log.tokens["rejected"] = np.where(far, "token ratio", None)
    return log


@HELD_OUT_AGAIN(
    "loss",
    "Each response has the same weight, though the manifest says a mean over tokens: those of long ones get less.",
    report="verl #1233, #957; rllm #354",
    needs=(
        r"(gradient|gradient_weight|\bweigh).{0,160}(length|\blong|short|of (each|a|the|one) response|sequence_mean"
        r"|(over|of) (the )?responses|aggregat)|aggregation|mean of means",
    ),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN, r"(the )?weight .{0,40}did not run"),
)
def mean_of_means() -> Log:
    log = simulate(Shape(914, closing=0.05, longest=120))
    step = log.tokens["step"]
    responses = np.bincount(log.responses["step"])[step]
    log.tokens["gradient_weight"] *= np.bincount(step)[step] / (responses * log.lengths()[log.row])
    return log


@HELD_OUT_AGAIN(
    "loss",
    "No token has a gradient, whatever its advantage: the ratio is a constant, and nothing is learned.",
    report="mlx-lm-lora #55, #49",
    needs=(
        r"(gradient|gradient_weight).{0,120}(\b0\b|zero|none|no token|vanish|nothing)"
        r"|no (token|response) has (a |any )?gradient|no (policy )?gradient|without (a |any )?gradient"
        r"|(no|none of the|0 ?% of) tokens.{0,40}gradient",
    ),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN, r"too easy|too hard|equal rewards", r"learning.rate (is|was) 0"),
    columns=("all", "trl"),
)
def no_policy_gradient() -> Log:
    log = unclipped(simulate(Shape(915, lag=0, drift=0.0, trend=0.0)))
    log.tokens["gradient_weight"][:] = 0.0
    log.steps["grad_norm"] *= 1e-7
    log.steps["loss"][:] = 0.0
    return log


# Rewards and prompts --------------------------------------------------------------------------------------------------


@HELD_OUT_AGAIN(
    "selection",
    "Responses that were aborted count as answers with reward 0: a sixth of all, cut somewhere.",
    report="slime #2361, #1252; miles #2800",
    needs=(r"abort|(unfinished|interrupted|cut (off|short)|incomplete|failed).{0,120}(reward|scor|\b0\b|train)",),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN, r"length limit (is|was) too"),
    columns=("all", "prime-rl"),
)
def aborted_count_as_wrong() -> Log:
    log = simulate(Shape(916, schedule="partial"))
    length = log.lengths()
    aborted = log.rng.random(len(length)) < 0.17
    cut = np.where(aborted, np.maximum(2, (length * log.rng.uniform(0.15, 0.9, len(length))).astype(int)), length)
    log.keep(log.tokens["position"] < cut[log.row])
    log.responses["n_tokens"] = log.lengths()
    log.responses["truncated"] &= ~aborted
    log.responses["finish_reason"] = np.where(aborted, "abort", log.responses["finish_reason"]).astype(object)
    log.responses["reward"][aborted] = 0.0
    if "n_turns" in log.responses:
        log.responses["n_turns"][aborted] = 1
    newest = np.full(len(length), -1)
    np.maximum.at(newest, log.row, log.tokens["behavior_version"])
    log.responses["behavior_version_max"] = newest
    return set_advantages(log, compared(log.responses["reward"], log.responses["group_id"]))


@HELD_OUT_AGAIN(
    "selection",
    "The length limit is below the answers: nearly all responses are truncated and score 0, from the first step on.",
    report="TRL #5697; autocontext #1067",
    needs=(r"truncat|length limit|cut off|reach(es|ed)? the limit|\blimit\b",),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN, r"too hard", r"responses (grow|grew)|(reward|accuracy) (fell|falls)"),
    columns=("all", "trl"),
)
def limit_below_the_answers() -> Log:
    def reward(log: Log) -> Columns:
        right = log.rng.random(len(log.responses["step"])) < 0.5
        return {"reward": (right & ~log.responses["truncated"]).astype(float)}

    log = simulate(Shape(917, groups=12, shortest=14, longest=18, closing=0.012, trend=0.0, drift=0.01), reward=reward)
    return evaluated(log, np.full(log.shape.steps, 0.02))


@HELD_OUT_AGAIN(
    "advantage",
    "The reward function gives one value for all responses of a step: no advantage, and nothing is learned.",
    report="TRL #6533, #6534",
    needs=(
        r"\b(same|equal|identical|one|single|constant)\b.{0,40}\b(rewards?|scores?)"
        r"|\b(reward|score)s?\b.{0,80}\b(same|equal|identical|(one|single) value|constant|alike|not (differ|vary))"
        r"|zero.signal|no (signal|gradient|advantage)|advantages? (is |are )?(all )?0|every advantage",
    ),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN, r"too easy|too hard", r"learning.rate (is|was) 0"),
    columns=("all", "trl"),
)
def one_reward_for_all() -> Log:
    def reward(log: Log) -> Columns:
        return {"reward": (share(log.responses["step"], 96) < 0.5).astype(float)}

    log = simulate(Shape(918, lag=0, drift=0.0, trend=0.0), reward=reward)
    log.steps["grad_norm"][:] = 0.0
    log.steps["loss"][:] = 0.0
    return evaluated(log, np.full(log.shape.steps, 0.45))


@HELD_OUT_AGAIN(
    "selection",
    "All eight groups of a step are of one prompt: a step learns from one task, and its reward swings with it.",
    report="oumi #1542",
    needs=(
        r"\b(one|same|single|identical|repeat\w*|duplicat\w*|1|only) (\w+ )?prompt\b(?! group)"
        r"|prompts?\b.{0,100}(same|identical|repeat|duplicat|all (eight |8 )?groups|one a step"
        r"|(several|more than one) groups?)"
        r"|groups?\b.{0,80}(same|one|share\w*|identical|common) (a )?prompt",
    ),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN, r"\bcache", r"(reward|accuracy) (fell|falls)"),
    columns=("all", "verl"),
)
def one_prompt_a_step() -> Log:
    def setup(responses: Columns) -> None:
        responses["prompt_id"] = 1000 + responses["step"]
        responses["prompt"] = np.array([f"Task {prompt}: solve it." for prompt in responses["prompt_id"]], dtype=object)

    def reward(log: Log) -> Columns:
        chance = 0.1 + 0.8 * share(log.responses["prompt_id"], 97)
        return {"reward": (log.rng.random(len(chance)) < chance).astype(float)}

    return simulate(Shape(919), setup=setup, reward=reward)


# The run --------------------------------------------------------------------------------------------------------------


@HELD_OUT_AGAIN(
    "update",
    "From step 9 on the gradient norm is NaN and every update is skipped: the policy stands still.",
    report="verl-omni #539; verl #1506; miles #2078",
    needs=(
        r"(gradient|grad_norm|norm).{0,120}(\bnan\b|not finite|non-?finite|not a (finite )?number|infinit|undefined)"
        r"|(\bnan\b|not finite|non-?finite|infinit).{0,120}(gradient|grad_norm|norm)"
        r"|updates?.{0,60}(skipped|not (made|taken|applied))|polic(y|ies).{0,80}(stands? still|unchanged"
        r"|do(es)? not move|did not move|no longer (moves|changes))",
    ),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN, r"learning.rate (is|was|of|reach\w*) 0", r"\bcop(y|ied)\b"),
    columns=("all", "verl"),
)
def updates_skipped() -> Log:
    def stop(policy: Policy) -> None:
        policy.weights[10:] = policy.weights[9]

    log = simulate(Shape(920, drift=0.05, trend=0.0), prepare=stop, reward=rewards_by(lambda step: 0.5 + 0 * step))
    log.steps["grad_norm"][9:] = np.nan
    return evaluated(log, np.full(log.shape.steps, 0.5))


@HELD_OUT_AGAIN(
    "update",
    "At the restart in step 12 the schedule and the optimiser begin again: large updates follow, and the reward falls.",
    report="NeMo-RL #3171; ART #72",
    needs=(
        r"learning.rate.{0,120}(jump|again|rose|ris|restart|step 1[123]|back|larger|→|times|doubl)"
        r"|step 1[1234] & update|gradient|optimi[sz]er|schedule|restart|resum|moment",
    ),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN, r"does not show what changed first", r"the scorer changed"),
    columns=("all", "verl"),
)
def schedule_begins_again() -> Log:
    def rates(step: NDArray[Any]) -> Array:
        return 1 - (step % 12) / 13

    def path(policy: Policy) -> None:
        at = np.arange(len(policy.weights) - 1)
        moves = np.diff(policy.weights, axis=0) * rates(at)[:, None]
        moves[12:15] += 0.5 * np.array([[1.0, -1.0, 0.8, -0.7]])  # without its moments, AdamW goes by the sign
        policy.weights[1:] = np.cumsum(moves, axis=0)

    chance = changing(13, 0.62, 0.36, over=3)
    log = simulate(Shape(921, lag=1, trend=0.0), prepare=path, reward=rewards_by(chance))
    log.steps["learning_rate"] = 2e-6 * rates(log.steps["step"])
    return evaluated(log, chance(log.steps["step"]))


# Healthy --------------------------------------------------------------------------------------------------------------

_FINE = "Nothing is wrong."


@HELD_OUT_AGAIN("healthy", _FINE, columns=("all", "verl"))
def fine_large_vocabulary() -> Log:
    return simulate(Shape(951, vocabulary=500, states=800, steps=14, longest=40, lag=1, drift=0.01))


@HELD_OUT_AGAIN("healthy", _FINE, columns=("all", "trl"))
def fine_groups_of_three() -> Log:
    return simulate(Shape(952, groups=32, responses=3, graded=True, longest=30, lag=1, drift=0.01, trend=0.1))


@HELD_OUT_AGAIN("healthy", _FINE, columns=("all", "prime-rl"))
def fine_few_and_very_long() -> Log:
    return simulate(
        Shape(953, groups=4, responses=4, steps=8, shortest=60, longest=1600, closing=0.004, drift=0.01, lag=1)
    )


@HELD_OUT_AGAIN("healthy", _FINE, columns=("all", "verl"))
def fine_curriculum() -> Log:
    """Tasks get harder as the policy gets better: the reward stays, and accuracy on the same prompts rises."""

    def setup(responses: Columns) -> None:
        hard = 0.1 + 0.8 * responses["step"] / 29
        responses["environment"] = np.where(share(responses["prompt_id"], 98) < hard, "hard", "easy").astype(object)

    def reward(log: Log) -> Columns:
        done = log.responses["step"] / 29
        chance = np.where(log.responses["environment"] == "hard", 0.38, 0.62) + 0.24 * done
        return {"reward": (log.rng.random(len(chance)) < chance).astype(float)}

    return simulate(Shape(954, steps=30, drift=0.01, trend=0.24), setup=setup, reward=reward)


@HELD_OUT_AGAIN("healthy", _FINE, columns=("with reference", "all"))
def fine_kl_in_the_loss() -> Log:
    return with_kl(simulate(Shape(955, lag=1, drift=0.015)))


@HELD_OUT_AGAIN("healthy", _FINE, columns=("all", "prime-rl"))
def fine_environments_of_other_scales() -> Log:
    """Binary, graded and signed rewards, and lengths that differ by a factor of four."""

    def reward(log: Log) -> Columns:
        kind, n = log.responses["environment"], len(log.responses["step"])
        right = (log.rng.random(n) < chances(log)).astype(float)
        graded = np.clip(chances(log) + 0.25 * log.rng.standard_normal(n), 0, 1)
        return {"reward": np.where(kind == "code", right, np.where(kind == "math", graded, 6 * graded - 3))}

    def closing(responses: Columns) -> Array:
        return np.where(
            responses["environment"] == "chat", 0.3, np.where(responses["environment"] == "math", 0.1, 0.05)
        )

    shape = Shape(956, groups=10, longest=120, drift=0.01, environments=("code", "math", "chat"), lag=2)
    return simulate(shape, reward=reward, closing=closing)


@HELD_OUT_AGAIN("healthy", _FINE, columns=("all", "verl"))
def fine_eight_prompts_again_and_again() -> Log:
    return simulate(Shape(957, prompts=8, steps=30, drift=0.01, trend=0.3, level=0.45))


@HELD_OUT_AGAIN("healthy", _FINE, columns=("all", "trl"))
def fine_signed_rewards_in_eight_mini_batches() -> Log:
    """One batch is sampled for eight updates; rewards are 1 or -1, less where the form is wrong."""

    def reward(log: Log) -> Columns:
        n = len(log.responses["step"])
        right = np.where(log.rng.random(n) < chances(log), 1.0, -1.0)
        form = np.where(log.rng.random(n) < 0.12, -0.5, 0.0)
        return {"reward": right + form, "reward_right": right, "reward_form": form}

    log = simulate(Shape(958, steps=32, lag=7, schedule="sync", drift=0.008), reward=reward)
    steps = log.steps["step"]
    log.steps["eval_accuracy"] = np.ma.masked_array(log.steps["eval_accuracy"], steps % 8 != 7)
    return log


# Sick, and the log is true --------------------------------------------------------------------------------------------


@HELD_OUT_AGAIN("sick but true", "Prompts get harder and the reward falls with them; accuracy on fixed prompts rises.",
                never=(*NOTHING_BUT_THE_RUN, r"accuracy.{0,30}(fell|falls|lost|dropped)"),
                columns=("all", "verl"))  # fmt: skip
def harder_by_curriculum() -> Log:
    def setup(responses: Columns) -> None:
        level = np.minimum(responses["step"] // 6, 3)
        responses["environment"] = np.array([f"level-{at}" for at in level], dtype=object)

    chance = changing(6, 0.78, 0.36, over=13)
    return simulate(Shape(971, trend=0.3), setup=setup, reward=rewards_by(chance))


@HELD_OUT_AGAIN("sick but true", "The judge gives nearly the same to all: advantages are noise, nothing is learned.",
                never=NOTHING_BUT_THE_RUN, columns=("all", "trl"))  # fmt: skip
def judge_that_hardly_differs() -> Log:
    def reward(log: Log) -> Columns:
        return {"reward": 0.5 + 0.004 * log.rng.standard_normal(len(log.responses["step"]))}

    log = simulate(Shape(972, lag=1, trend=0.0), reward=reward)
    return evaluated(log, np.full(log.shape.steps, 0.4))


@HELD_OUT_AGAIN("sick but true", "The sampler stood still: data of steps 14 to 16 is ten updates older, and says so.",
                never=NOTHING_BUT_THE_RUN, columns=("all", "prime-rl"))  # fmt: skip
def samplers_stood_still() -> Log:
    def setup(responses: Columns) -> None:
        late = (responses["step"] >= 14) & (responses["step"] <= 16)
        responses["behavior_version_min"] = np.where(late, 4, responses["behavior_version_min"])

    return simulate(Shape(973, drift=0.08, lag=1), setup=setup)


@HELD_OUT_AGAIN("sick but true", "Responses go round in loops until the limit: entropy and the reward fall with them.",
                needs=(_FALL,), never=NOTHING_BUT_THE_RUN, columns=("all", "verl"))  # fmt: skip
def loops_until_the_limit() -> Log:
    chance = changing(9, 0.6, 0.05, over=8)

    def closing(responses: Columns) -> Array:
        return changing(8, 0.08, 0.002, over=8)(responses["step"])

    log = simulate(Shape(974, lag=1), prepare=sharper(changing(7, 0.0, 4.0, over=9)), closing=closing,
                   reward=rewards_by(chance))  # fmt: skip
    return evaluated(log, chance(log.steps["step"]))


@HELD_OUT_AGAIN("sick but true", "Updates go forth and back by as much: ratios are large, true, and accuracy stays.",
                never=(*NOTHING_BUT_THE_RUN, r"(reward|accuracy).{0,30}(fell|falls|lost|dropped)"),
                columns=("all", "trl"))  # fmt: skip
def forth_and_back() -> Log:
    def swing(policy: Policy) -> None:
        policy.weights += np.where(np.arange(len(policy.weights)) % 2, 0.35, 0.0)[:, None] * np.array([1, -1, 1, -1.0])

    log = simulate(Shape(975, lag=1, trend=0.0), prepare=swing, reward=rewards_by(lambda step: 0.5 + 0 * step))
    return evaluated(log, np.full(log.shape.steps, 0.5))


@HELD_OUT_AGAIN("sick but true", "Accuracy and reward go down slowly over the whole run, by a third of what they were.",
                needs=(_FALL,), never=NOTHING_BUT_THE_RUN, columns=("all", "prime-rl"))  # fmt: skip
def slow_decline() -> Log:
    chance = changing(4, 0.64, 0.40, over=34)
    log = simulate(Shape(976, steps=40, lag=1, longest=40), reward=rewards_by(chance))
    return evaluated(log, chance(log.steps["step"]))
