"""Held-out cases of a sixth date: the fifth ones had been looked at, too.

Written by someone who had read neither marks nor causes nor findings, from public reports that no other case has, and
frozen before they were scored. What the verdicts mean, and why the first score is kept, says `held_out`.
"""

import numpy as np

from tests.cases.case import Register
from tests.cases.faults import (
    BROKEN,
    MISSING_RESPONSES,
    NEVER_ARRIVED,
    TEMPERATURE,
    WHOLLY_BROKEN,
    changing,
    drawn_at,
    evaluated,
    rewards_by,
)
from tests.cases.healthy import NOTHING_BUT_THE_RUN
from tests.cases.held_out import with_kl
from tests.cases.world import (
    END,
    EPSILON,
    Array,
    Call,
    Columns,
    Log,
    Policy,
    Shape,
    apply_loss,
    chances,
    compared,
    mixed,
    set_advantages,
    share,
    simulate,
)

HELD_OUT_SIXTH = Register()

FIRST_SCORE = {
    "held-out a sixth time faults": "7 found, 12 silent, 4 untrue of 23 logs",
    "held-out a sixth time sick but true": "4 found of 4 logs",
    "held-out a sixth time healthy": "8 quiet of 8 logs",
}
"""What was said of them when they were first scored, by the patterns as they were frozen (2026-11-28)."""

_ENGINE = (NEVER_ARRIVED, TEMPERATURE, BROKEN)
# Where some rows are wrong, that part of the log is.
_IN_PART = (NEVER_ARRIVED, TEMPERATURE, WHOLLY_BROKEN)
_OTHERS = r"belongs? to other|of other responses|row before|shifted by one row"
_FORMAT = r"number format|float16"
_FALL = r"(reward|accuracy).{0,40}(fell|fallen|falls|falling|dropped|lost|→)"


# Sampler and trainer --------------------------------------------------------------------------------------------------


@HELD_OUT_SIXTH("sampler", "The engine takes min-p 0.1 from the model's own defaults: it draws without the tail.",
    report="NeMo-RL #3497; TRL #6608", columns=("all", "verl"),
    never=(*_ENGINE, _FORMAT, r"top-?k (of|was|is) \d"),
    needs=(r"min-?p\b|top-?p|top-?k|nucleus|kept mass|\btails?\b|truncat(es|ed|ion of) .{0,30}(support|tail)"
           r"|(rare|unlikely|improbable).{0,80}(never|not|no longer|cut|left out|removed|missing|forbid)"
           r"|(never|not|no longer|cut|left out|removed).{0,80}(rare|unlikely|improbable)",))  # fmt: skip
def min_p_of_the_model() -> Log:
    def draw(call: Call, logp: Array) -> Array:
        return np.where(logp >= logp.max(axis=1, keepdims=True) + np.log(0.1), logp, -1e9)

    return simulate(Shape(1301, lag=1, drift=0.02), draw=draw)


@HELD_OUT_SIXTH("sampler", "The engine's top-k of 1 makes it greedy: the likeliest token each time, groups are copies.",
    report="tpu-inference #1386; slime #2197; miles #2686", columns=("all", "verl"),
    never=(NEVER_ARRIVED, WHOLLY_BROKEN, r"drew at 0\.[1-9]", r"top-?p (of|was|is)", r"too easy|too hard", _FORMAT),
    needs=(r"greedy|greedily|likeliest|arg-?max|most (likely|probable)|top-?k|temperature (of |is |was )?(0\b|near 0)"
           r"|(identical|same|duplicate\w*|cop(y|ies|ied)).{0,100}(response|token|text|answer|completion)"
           r"|(response|completion|answer)s?.{0,100}(identical|same|duplicate|cop(y|ies))",))  # fmt: skip
def greedy_by_default() -> Log:
    def draw(call: Call, logp: Array) -> Array:
        return np.where(np.arange(logp.shape[1]) == logp.argmax(axis=1)[:, None], 0.0, np.full(logp.shape, -1e9))

    def reward(log: Log) -> Columns:
        text = np.bincount(log.row, log.tokens["token_id"] * (log.tokens["position"] + 1)).astype(int)
        return {"reward": (share(log.responses["prompt_id"], text, 1302) < chances(log)).astype(float)}

    shape = Shape(1302, groups=10, lag=1, closing=0.1, drift=0.02, noise=0.02)
    return simulate(shape, draw=draw, logs_raw=True, reward=reward)


@HELD_OUT_SIXTH("weights", "The adapter is unloaded under long responses: behind token 48 the base model writes them.",
    report="TRL #7017", columns=("all", "prime-rl"),
    never=(r"^(?!.*(position|behind|token 4|long)).*never arriv", TEMPERATURE, WHOLLY_BROKEN, _FORMAT),
    needs=(r"(position|behind|token|4[789]\b|\blong|late|end of|second half|rest).{0,240}(base|initial|first weights"
           r"|first version|version 0|old(er)? weights|old(er)? version|stale|adapter|unload|grow|with (the )?steps?"
           r"|other weights|different weights|identical|\bsame\b)"
           r"|(base|initial|old(er)?|stale|adapter).{0,160}(position|behind|4[789]\b|\blong)",))  # fmt: skip
def adapter_unloaded_under_long_ones() -> Log:
    shape = Shape(1303, groups=6, longest=96, closing=0.025, lag=1, drift=0.06, noise=0.004)

    def sampler(call: Call, logits: Array) -> Array:
        if call.position < 48:
            return logits
        return call.served(0 * call.policy.weights[call.version]) + shape.noise * call.noise()

    return simulate(shape, sampler=sampler)


# The log --------------------------------------------------------------------------------------------------------------


@HELD_OUT_SIXTH("log", "The reference is scored at temperature 1, the policy at 0.6: the KL is not 0 at the start.",
    report="OpenRLHF #853; TRL #3029; compose-rl #105", columns=("with reference",),
    never=(NEVER_ARRIVED, BROKEN, _FORMAT, r"the sampler (drew|draws) at 1\b", _OTHERS),
    needs=(r"(reference|\bkl\b).{0,240}(temperature|step 0|first step|start|begin|scaled|not (that|what|the)|another"
           r"|other|disagree|differ|large|too)|temperature.{0,160}(reference|\bkl\b)",))  # fmt: skip
def reference_at_temperature_one() -> Log:
    def trainer(log: Log, which: str, logits: Array) -> Array:
        return logits if which == "reference" else logits / 0.6

    log = simulate(Shape(1304, lag=1, drift=0.015), draw=drawn_at(0.6), trainer=trainer)
    log.responses["temperature"] = np.full(len(log.responses["step"]), 0.6)
    log.manifest["sampler"]["temperature"] = 0.6
    log.manifest["sampled_with"] = "processed"
    log.manifest["algorithm"]["parameters"]["kl_coefficient"] = 0.01
    return with_kl(log)


@HELD_OUT_SIXTH("log", "Ranks 1 to 3 get the completions of other prompts: context and solution are not theirs.",
    report="TRL #3098", columns=("all", "verl"),
    never=(*_IN_PART, _FORMAT, r"too hard", r"row before"),
    needs=(r"\branks?\b.{0,240}(reward|score|mismatch|differ|disagree|hold|sit|apart|context|prompt|first|rank 0)"
           r"|(reward|score|mismatch|disagree|differ|hold|sit).{0,200}\branks?\b"
           r"|(other|another|wrong) (prompt|context|question|row)s?|first (\d+ |few )?(tokens|positions)"
           r"|(early|earliest|begin\w*|start) .{0,40}(token|position|resp)|shrinks? with (the )?pos",))  # fmt: skip
def completions_of_other_prompts() -> Log:
    def trainer(log: Log, which: str, logits: Array) -> Array:
        policy = log.policy
        states = np.uint64(len(policy.base) - policy.n_closing)
        other = policy.n_closing + (mixed(log.state, log.of_token("prompt_id"), 1305) % states).astype(np.int64)
        version = {"train": log.tokens["behavior_version"], "reference": 0 * log.tokens["step"]}
        moved = policy.logits(policy.weights[version.get(which, log.tokens["step"] + (which == "new"))], other)
        part = 0.7 * np.exp(-log.tokens["position"] / 14)
        part = np.where((log.of_token("rank") > 0) & (log.state >= policy.n_closing), part, 0.0)[:, None]
        return (1 - part) * logits + part * moved

    def reward(log: Log) -> Columns:
        chance = np.where(log.responses["rank"] == 0, chances(log), 0.05)
        return {"reward": (log.rng.random(len(chance)) < chance).astype(float)}

    return simulate(Shape(1305, lag=0, drift=0.02), trainer=trainer, reward=reward)


_ENDED, _PAD = 5, 1


@HELD_OUT_SIXTH("log", "The second end token is unknown to the trainer: padding behind it is in the loss.",
    report="TRL #7039", columns=("all", "trl"),
    never=(*_IN_PART, _FORMAT, r"settled on|mode collapse", r"too easy|too hard", r"entropy (fell|falls)"),
    needs=(r"\bpad(s|ded|ding)?\b|(behind|after|past) (the|their|its|an?) (\w+ )?end|trailing|token (id )?1\b"
           r"|(same|one|single|fixed|repeated) token.{0,80}(end|tail|last|run|row)|runs? of (one|the same|a single)"
           r"|repeat\w*.{0,60}(token|end|tail)|\bend\b.{0,60}(repeat|same token)|not (been )?(drawn|sampled)"
           r"|(length|response)s?.{0,80}(same|equal) .{0,60}(rank|batch)|did not (draw|sample)"
           r"|end.?(of.sequence|token)",))  # fmt: skip
def padding_in_the_loss() -> Log:
    def ends_otherwise(policy: Policy) -> None:
        closing = policy.base[: policy.n_closing]
        policy.base[policy.n_closing :, _ENDED] = -35.0
        closing[:, _ENDED] = closing[:, END]
        policy.base[:, END] = policy.base[:, _PAD] = -35.0

    def sampler(call: Call, logits: Array) -> Array:
        over = (call.written[call.rows, : call.position] == _ENDED).any(axis=1)
        return np.where(over[:, None] & (np.arange(logits.shape[1]) == _PAD), 1e9, logits)

    def trainer(log: Log, which: str, logits: Array) -> Array:
        pad = np.flatnonzero(log.tokens["token_id"] == _PAD)
        first = np.full(len(log.responses["step"]), log.shape.longest)
        np.minimum.at(first, log.row[pad], log.tokens["position"][pad])
        odds = np.minimum(2.0 * (log.tokens["position"][pad] - first[log.row[pad]]) - 8, 3)
        logits[pad, _PAD] = np.log(np.exp(logits[pad]).sum(axis=1)) + odds
        return logits

    log = simulate(Shape(1306, lag=0, closing=0.12, drift=0.02), prepare=ends_otherwise, sampler=sampler,
                   trainer=trainer)  # fmt: skip
    tokens, responses = log.tokens, log.responses
    pad = tokens["token_id"] == _PAD
    noise = 0.01 * log.rng.standard_normal(len(pad))
    tokens["logp_behavior"] = np.where(
        pad, np.minimum(tokens["logp_behavior_train"] + noise, 0), tokens["logp_behavior"]
    )
    batch = responses["step"] * 4 + responses["rank"]
    longest = np.zeros(batch.max() + 1, dtype=int)
    np.maximum.at(longest, batch, np.bincount(log.row, ~pad).astype(int))
    log.keep(tokens["position"] < longest[batch][log.row])
    responses["n_tokens"] = log.lengths()
    return apply_loss(log)


# Rewards and advantages -----------------------------------------------------------------------------------------------


@HELD_OUT_SIXTH("advantage", "The verifier of rank 2 runs in a side thread and raises: whatever it scores counts as 0.",
    report="verl #5635; TRL #5281; torchtitan #4346", columns=("all", "verl"),
    never=(*_ENGINE, _OTHERS, MISSING_RESPONSES, r"too hard", r"one baseline for the step"),
    needs=(r"\brank( |-)?2?\b.{0,160}(reward|score|verif|\b0\b|never|wrong)"
           r"|(reward|score|verif|\b0\b).{0,200}\branks?\b",))  # fmt: skip
def verifier_raises_on_one_rank() -> Log:
    def setup(responses: Columns) -> None:
        responses["rank"] = responses["seq_id"] % 4

    def reward(log: Log) -> Columns:
        right = log.rng.random(len(log.responses["step"])) < chances(log)
        return {"reward": (right & (log.responses["rank"] != 2)).astype(float)}

    return simulate(Shape(1307, lag=1, drift=0.02, level=0.55), setup=setup, reward=reward)


@HELD_OUT_SIXTH("advantage", "The format is scored anew at each turn and added up: who needs most turns has the most.",
    report="SkyRL #2104", columns=("all", "verl"),
    never=(*_ENGINE, _OTHERS, MISSING_RESPONSES, r"one baseline for the step", r"too easy|too hard"),
    needs=(r"(reward|score|format|advantage).{0,240}(\bturns?\b|\blength\b|\blong(er|est)?\b|tokens)"
           r"|(\bturns?\b|\blength\b|\blong(er|est)?\b).{0,240}(reward|score|format|advantage)",))  # fmt: skip
def format_of_every_turn_added() -> Log:
    def reward(log: Log) -> Columns:
        turns = log.responses["n_turns"]
        right = (log.rng.random(len(turns)) < np.clip(chances(log) - 0.04 * (turns - 4), 0.02, 0.98)).astype(float)
        form = 0.25 * log.rng.binomial(turns, 0.92)
        return {"reward": right + form, "reward_correct": right, "reward_format": form}

    return simulate(Shape(1308, longest=96, shortest=8, closing=0.035, turns=8, lag=1, drift=0.02), reward=reward)


@HELD_OUT_SIXTH("selection", "The site is not reset between a group's rollouts: late ones find the task half done.",
    report="WebAgent-R1 #6; AgenticArXiv-RL #69", columns=("all", "verl"),
    never=(*_ENGINE, _OTHERS, MISSING_RESPONSES, r"too easy|too hard", r"one baseline for the step"),
    needs=(r"(reward|score|advantage).{0,240}(place in|place of|\border\b|\bindex|seq_id|(first|last|late|later|earlier"
           r"|early) (ones|responses?|rollouts?)|first to (the )?last|rank|row in|number in)"
           r"|(place in|place of|\border\b|seq_id|later|earlier|first|last).{0,160}\bgroups?\b.{0,160}(reward|score)"
           r"|not reset|share (a|one|the) (state|environment)|state.{0,60}(leak|left|reset|shared)",))  # fmt: skip
def site_that_is_not_reset() -> Log:
    def reward(log: Log) -> Columns:
        place = log.responses["seq_id"] % log.shape.responses
        chance = np.clip(chances(log) + 0.1 * (place - 3.5), 0.02, 0.98)
        return {"reward": (log.rng.random(len(chance)) < chance).astype(float)}

    shape = Shape(1309, groups=6, responses=8, lag=1, drift=0.02, turns=16, environments=("browser",))
    log = simulate(shape, reward=reward)
    return evaluated(log, np.full(shape.steps, 0.15))


# The loss, the update and the order of the data -----------------------------------------------------------------------


@HELD_OUT_SIXTH("loss", "Each epoch's last step has two micro-batches and is divided by four: its gradient is halved.",
    report="ms-swift #10084; transformers #39659", columns=("all", "trl"),
    never=(*_ENGINE, MISSING_RESPONSES, _OTHERS, r"advantage alone", r"weight .{0,60}did not run"),
    needs=(r"(gradient|loss|denominator|normalis).{0,240}(half|halved|steps? (5|11)|some steps|short(er)? steps?|fewer"
           r"|small(er)? (batch|step)|accumulat|micro.?batch|divid|incomplete|partial|last (step|batch|window)"
           r"|from step to step|0\.5|\b2 (×|times))"
           r"|(half|halved|accumulat|micro.?batch|incomplete|partial).{0,200}(gradient|loss)",))  # fmt: skip
def last_window_of_an_epoch() -> Log:
    log = simulate(Shape(1310, groups=8, lag=1, drift=0.02))
    step, short = log.responses["step"], log.responses["step"] % 6 == 5
    kept = ~short | (log.responses["group_id"] % 8 < 4)
    log.responses["micro_batch"] = log.responses["seq_id"] // 12
    log.keep(kept[log.row], kept)
    log.steps["grad_norm"] = log.steps["grad_norm"] * np.where(np.arange(step.max() + 1) % 6 == 5, 0.72, 1.0)
    apply_loss(log)
    log.tokens["gradient_weight"] = log.tokens["gradient_weight"] * np.where(log.tokens["step"] % 6 == 5, 0.5, 1.0)
    return log


@HELD_OUT_SIXTH("update", "The warm-up lasts 380 updates and the run 24: the learning rate gets to 6% of what is set.",
    report="Search-R1 #28; axolotl #2897", columns=("all", "verl"),
    never=(*_ENGINE, r"learning.rate (is|was|of|reach\w*|stays) 0\b(?!\.)", r"too easy|too hard", r"\bcop(y|ied)\b"),
    needs=(r"warm-?up|learning.rate.{0,160}(small|low|ris(es|ing)|below|%|planned|configured|manifest|far|tiny|never|part)"
           r"|(small|low|tiny).{0,30}learning.rate|(polic(y|ies)|weights|updates?|model).{0,120}(hardly|barely|scarcely"
           r"|too (small|little)|tiny|very small|stands? still|not move)",))  # fmt: skip
def warm_up_without_an_end() -> Log:
    def path(policy: Policy) -> None:
        rate = (np.arange(1, len(policy.weights)) / 380)[:, None]
        policy.weights[1:] = np.cumsum(np.diff(policy.weights, axis=0) * rate, axis=0)

    log = simulate(Shape(1311, lag=1, drift=0.03, noise=0.004, trend=0.0), prepare=path)
    log.steps["learning_rate"] = 2e-6 * (log.steps["step"] + 1) / 380
    log.manifest["planned_updates"] = 400
    return evaluated(log, np.full(log.shape.steps, 0.47))


@HELD_OUT_SIXTH("selection", "Prompts are taken in the order of the file, which is sorted by difficulty, each epoch.",
    report="miles_diffusion #238; TRL #6351; Spec-RL #13", columns=("all", "verl"),
    never=(*_ENGINE, r"accuracy.{0,30}(fell|falls|falling|lost|dropped)", r"over-?optimi", r"scorer changed", _OTHERS),
    needs=(r"shuffl|sorted|\border (of|in)\b|(same|fixed|file) order|epoch|period|wave|cycl"
           r"|every (8|eight|eighth)|swing|up and down|oscillat|fluctuat"
           r"|(mixture|environment|prompts?).{0,120}(chang|share|→|from step to step|one (at a time|a step)|alternat"
           r"|harder|easier)|(harder|easier|other) prompts",))  # fmt: skip
def in_the_order_of_the_file() -> Log:
    def setup(responses: Columns) -> None:
        place = responses["step"] % 8 * 8 + responses["group_id"] % 8
        responses["prompt_id"] = 1000 + place
        responses["prompt"] = np.array([f"Task {1000 + each}: solve it." for each in place.tolist()], dtype=object)
        kinds = np.array(["arithmetic", "algebra", "geometry", "olympiad"], dtype=object)
        responses["environment"] = kinds[place // 16]

    def reward(log: Log) -> Columns:
        chance = 0.86 - 0.76 * (log.responses["prompt_id"] - 1000) / 63 + 0.08 * log.responses["step"] / 31
        return {"reward": (log.rng.random(len(chance)) < chance).astype(float)}

    log = simulate(Shape(1312, steps=32, lag=1, drift=0.02, longest=48), setup=setup, reward=reward)
    return evaluated(log, 0.45 + 0.08 * log.steps["step"] / 31)


# Healthy --------------------------------------------------------------------------------------------------------------

_FINE = "Nothing is wrong."


@HELD_OUT_SIXTH("healthy", _FINE, columns=("all", "verl"))
def fine_decayed_to_nothing() -> Log:
    """The learning rate goes down in a line and is 0 behind the last planned update."""
    rate = 1 - np.arange(30) / 30

    def path(policy: Policy) -> None:
        steps = np.append(rate, [0.0, 0.0])[:, None]
        policy.weights[1:] = np.cumsum(np.diff(policy.weights, axis=0) * steps, axis=0)

    log = simulate(Shape(1351, steps=30, lag=1, drift=0.02, trend=0.2), prepare=path)
    log.steps["learning_rate"] = 2e-6 * rate
    return log


@HELD_OUT_SIXTH("healthy", _FINE, columns=("all", "verl"))
def fine_failures_left_out() -> Log:
    """Rollouts whose sandbox ran out of time are named, and are neither in the loss nor in the baseline."""
    log = simulate(Shape(1352, responses=8, lag=1, drift=0.01, turns=16, environments=("shell",)))
    responses = log.responses
    failed = share(responses["step"], responses["seq_id"], 1352) < 0.03
    responses["failure"] = np.where(failed, "timeout", None)
    responses["dropped"] = np.where(failed, "failed", None)
    responses["in_baseline"] = ~failed
    responses["reward"] = np.where(failed, 0.0, responses["reward"])
    advantage = np.zeros(len(failed))
    advantage[~failed] = compared(responses["reward"][~failed], responses["group_id"][~failed])
    log.keep(~failed[log.row])
    return set_advantages(log, advantage)


@HELD_OUT_SIXTH("healthy", _FINE, columns=("all", "verl"))
def fine_clip_higher() -> Log:
    """Right is 1, wrong is -1, long ones lose a little, and the clip is at .28 above and at .2 below, as configured."""

    def reward(log: Log) -> Columns:
        right = np.where(log.rng.random(len(log.responses["step"])) < chances(log), 1.0, -1.0)
        over = -0.5 * np.clip((log.responses["n_tokens"] - 56) / 8, 0, 1)
        return {"reward": right + over, "reward_accuracy": right, "reward_overlong": over}

    log = simulate(Shape(1353, lag=3, drift=0.03, level=0.45, trend=0.2), reward=reward)
    log.manifest["algorithm"]["name"] = "dapo"
    log.manifest["algorithm"]["parameters"] = {"epsilon_low": EPSILON, "epsilon_high": 0.28}
    tokens = log.tokens
    ratio = np.exp(tokens["logp_current"] - tokens["logp_behavior"])
    above = (tokens["advantage"] > 0) & (ratio > 1.28)
    tokens["clipped"] = above | (tokens["clip_side"] < 0)
    tokens["clip_side"] = np.where(above, 1, np.minimum(tokens["clip_side"], 0))
    weight = np.where(tokens["clipped"], 0.0, tokens["advantage"] * ratio)
    tokens["gradient_weight"] = weight / np.bincount(tokens["step"])[tokens["step"]]
    return log


@HELD_OUT_SIXTH("healthy", _FINE, columns=("all", "verl"))
def fine_format_learned_first() -> Log:
    """The format is learned in ten steps and is then nearly always right; answers get better all along."""
    kept = changing(1, 0.35, 0.98, over=10)

    def reward(log: Log) -> Columns:
        n = len(log.responses["step"])
        right = (log.rng.random(n) < chances(log)).astype(float)
        form = 0.5 * (log.rng.random(n) < kept(log.responses["step"]))
        return {"reward": right + form, "reward_accuracy": right, "reward_format": form}

    return simulate(Shape(1354, steps=28, lag=1, drift=0.03, level=0.45, trend=0.25), reward=reward)


# Sick, and the log is true --------------------------------------------------------------------------------------------


@HELD_OUT_SIXTH("sick but true", "Thinking is given up: responses shrink to a third, and the reward falls with them.",
    needs=(_FALL,), never=NOTHING_BUT_THE_RUN, columns=("all", "verl"))  # fmt: skip
def thinking_given_up() -> Log:
    chance = changing(8, 0.62, 0.24, over=12)
    shape = Shape(1371, steps=28, longest=96, shortest=6, lag=1, drift=0.05)
    log = simulate(shape, reward=rewards_by(chance),
                   closing=lambda responses: 0.025 * np.exp(np.clip(responses["step"] - 6, 0, 14) / 7))  # fmt: skip
    return evaluated(log, chance(log.steps["step"]))


@HELD_OUT_SIXTH("sick but true", "Three updates are far too large; after each the reward falls, and half comes back.",
    needs=(_FALL,), never=NOTHING_BUT_THE_RUN, columns=("all", "verl"))  # fmt: skip
def three_steps_too_large() -> Log:
    large = (7, 14, 21)

    def path(policy: Policy) -> None:
        moves = np.diff(policy.weights, axis=0)
        moves[list(large)] *= 20
        policy.weights[1:] = np.cumsum(moves, axis=0)

    def chance(step: Array) -> Array:
        lost = sum(np.where(step > at, 0.14 + 0.12 * np.exp(-(step - at - 1) / 2), 0.0) for at in large)
        return np.asarray(np.clip(0.64 - lost, 0.02, 1))

    log = simulate(Shape(1372, steps=29, lag=1, drift=0.03), prepare=path, reward=rewards_by(chance))
    log.steps["grad_norm"] = log.steps["grad_norm"] * np.where(np.isin(log.steps["step"], large), 14.0, 1.0)
    return evaluated(log, chance(log.steps["step"]))
