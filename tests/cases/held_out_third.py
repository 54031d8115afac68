"""Held-out cases of a third date: the second ones had been looked at, too.

Written by someone who had read neither marks nor causes nor findings, from public reports that no other case has, and
frozen before they were scored. What the verdicts mean, and why the first score is kept, says `held_out`.
"""

from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from tests.cases.case import Register
from tests.cases.faults import (
    BROKEN,
    MISSING_RESPONSES,
    NEVER_ARRIVED,
    SAMPLER_COLUMN,
    TEMPERATURE,
    changing,
    elsewhere,
    evaluated,
    rewards_by,
)
from tests.cases.healthy import NOTHING_BUT_THE_RUN
from tests.cases.held_out import _bfloat16, _of_the_batch
from tests.cases.world import (
    END,
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
    mixed,
    set_advantages,
    share,
    simulate,
)

HELD_OUT_THIRD = Register()

FIRST_SCORE = {
    "held-out a third time faults": "4 found, 7 vague, 13 silent, 3 untrue of 27 logs",
    "held-out a third time sick but true": "4 found, 2 vague, 2 silent of 8 logs",
    "held-out a third time healthy": "12 quiet of 12 logs",
}
"""What was said of them when they were first scored, by the patterns as they were frozen (2026-11-27)."""

_ENGINE = (NEVER_ARRIVED, TEMPERATURE, BROKEN)
_OTHERS = r"belongs? to other|of other responses|row before|shifted by one row"
_FALL = r"(reward|accuracy).{0,40}(fell|fallen|falls|falling|dropped|lost|→)"


def _logp(log: Log, version: NDArray[np.int64], token: NDArray[np.int64]) -> Array:
    """What versions of the weights give tokens, in the states of the log."""
    logp = log_softmax(log.policy.logits(log.policy.weights[version], log.state))
    return np.asarray(logp[np.arange(len(token)), token])


def _in_another_context(call: Call, logits: Array, part: Array, salt: int) -> Array:
    """Logits that are moved a part of the way to those of another context, but where a response may end."""
    moved = np.where(call.state >= call.policy.n_closing, part, 0.0)[:, None]
    return np.asarray((1 - moved) * logits + moved * elsewhere(call, salt))


# Sampler and trainer --------------------------------------------------------------------------------------------------


@HELD_OUT_THIRD("sampler", "The sampler may not draw the end token before position 31; the trainer's values allow it.",
    report="TRL #1002, #1003", columns=("all", "trl"),
    never=(*_ENGINE, r"top-?[pk] (of|was|is)", r"number format|float16"),
    needs=(r"\beos\b|\b(end|stop)\w* tokens?\b|token (id )?0\b|min(imum|imal)?[ _](new[ _])?(tokens|length)|forb[ia]d"
           r"|suppress|(before|until|up to|below) (position|token) \d|first (\d+|thirty) (token|pos)",))  # fmt: skip
def end_forbidden_at_first() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        return np.where((np.arange(logits.shape[1]) == END) & (call.position < 31), -1e9, logits)

    return simulate(Shape(1001, lag=1, closing=0.09, noise=0.003), sampler=sampler)


@HELD_OUT_THIRD("sampler", "The sampler's prompts begin with two BOS tokens: the first tokens of responses disagree.",
    report="TRL #3853", columns=("all", "trl"),
    never=(*_ENGINE, r"(grows|rises) with (the )?position", r"\bcache"),
    needs=(r"\bbos\b|(another|other|different) (context|prompt)|chat.?template|prompt.{0,60}(differ|tokeni)"
           r"|(first|early) (\d+ |few )?(tokens|positions)|(begin|start)\w* of (the |each |a )?resp",))  # fmt: skip
def two_begin_tokens() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        return _in_another_context(call, logits, np.full(len(call.rows), 0.2 * np.exp(-call.position / 8)), 101)

    return simulate(Shape(1002, lag=1), sampler=sampler)


@HELD_OUT_THIRD("log", "The last token of each shard of 16 has the trainer's value of another token: labels were cut.",
    report="ChatLearn #343", columns=("all", "verl"),
    never=(SAMPLER_COLUMN, NEVER_ARRIVED, TEMPERATURE, r"number format|float16"),
    needs=(r"every (16|sixteen)|multiples? of 16|position.{0,60}\b(15|31|47)\b|\bshard|boundar|chunk|period|parallel"
           r"|(trainer|current|logp_new).{0,120}(other tokens?|wrong token|not the log-prob)",))  # fmt: skip
def labels_cut_at_the_shards() -> Log:
    log = simulate(Shape(1004, lag=1))
    tokens, step = log.tokens, log.tokens["step"]
    versions = {"logp_behavior_train": tokens["behavior_version"], "logp_current": step, "logp_new": step + 1}
    other = np.where(np.roll(tokens["token_id"], 16) == END, 1, np.roll(tokens["token_id"], 16))
    for name, version in versions.items():
        tokens[name] = np.where(tokens["position"] % 16 == 15, _logp(log, version, other), tokens[name])
    return apply_loss(log)


@HELD_OUT_THIRD("sampler", "Prompts above 56 tokens are cut for the trainer and not for the sampler: these disagree.",
    report="TRL #3569, #3601", columns=("all", "trl"),
    never=(*_ENGINE, r"come again|\bcache", r"number format|float16"),
    needs=(r"prompt.{0,100}(\blong|limit|truncat|\bcut\b|\b56\b|length)|prompt_tokens|(long|cut) prompt",))  # fmt: skip
def prompts_cut_for_the_trainer() -> Log:
    def setup(responses: Columns) -> None:
        responses["prompt_tokens"] = np.minimum(20 + (share(responses["prompt_id"], 102) * 60).astype(int), 56)

    def sampler(call: Call, logits: Array) -> Array:
        return _in_another_context(call, logits, 0.15 * (call.of("prompt_tokens") == 56), 103)

    return simulate(Shape(1005, lag=1), sampler=sampler, setup=setup)


@HELD_OUT_THIRD("weights", "Versions are read when a response is done: what was written before the update is older.",
    report="rllm #622; AReaL #1569", columns=("all", "prime-rl"),
    never=(r"never arriv", TEMPERATURE, BROKEN, r"number format|float16"),
    needs=(r"version|label|stamp & too (young|new|recent)|older than|younger|newer|mislabel|switch|not explain"
           r"|more than .{0,60}explain|(within|inside|(first )?part of) (a|the|each|one) resp",))  # fmt: skip
def stamped_when_it_was_done() -> Log:
    log = simulate(Shape(1006, lag=2, schedule="partial", drift=0.2, noise=0.003))
    log.responses["behavior_version_min"] = log.responses["behavior_version_max"].copy()
    log.tokens["behavior_version"] = log.of_token("behavior_version_max")
    log.tokens["logp_behavior_train"] = _logp(log, log.tokens["behavior_version"], log.tokens["token_id"])
    return log


# Rewards and advantages -----------------------------------------------------------------------------------------------


@HELD_OUT_THIRD("log", "The token that ends a response was cut off before the log: nobody learns to stop.",
    report="dynamo #14302", columns=("all", "prime-rl"),
    never=(NEVER_ARRIVED, TEMPERATURE, r"placeholder", r"reach\w* (the|their) (length )?limit"),
    needs=(r"\beos\b|(end|stop|last|final|closing)\w* tokens?|token (id )?0\b|\bends?\b & missing|strip|never|absent"
           r"|without|not (logged|in |there|among)|removed|\bcut\b|left out|lack|does not",))  # fmt: skip
def end_token_stripped() -> Log:
    log = simulate(Shape(1007, longest=96), closing=lambda responses: 0.08 - 0.025 * responses["step"] / 24)
    log.keep(log.tokens["token_id"] != END)
    log.responses["n_tokens"] = log.lengths()
    return apply_loss(log)


@HELD_OUT_THIRD("advantage", "The format part of the reward is 0 for every response of the run: it teaches nothing.",
    report="TRL #6966", columns=("all", "trl"),
    never=(*_ENGINE, r"too easy|too hard", r"(reward|accuracy) (fell|falls)"),
    needs=(r"reward_format|format (part|reward) & constant|always|never|\b0\b|zero|same|not vary",))  # fmt: skip
def format_part_always_zero() -> Log:
    def reward(log: Log) -> Columns:
        right = (log.rng.random(len(log.responses["step"])) < chances(log)).astype(float)
        return {"reward": right, "reward_accuracy": right, "reward_format": 0.0 * right}

    return simulate(Shape(1008, lag=1, drift=0.015), reward=reward)


@HELD_OUT_THIRD("selection", "The judge is away in steps 10 to 14, and its part of the reward counts as 0 meanwhile.",
    report="NeMo-RL #2479",
    never=(*_ENGINE, r"accuracy (fell|falls)", r"updates? .{0,30}too large", r"prompts .{0,20}harder"),
    needs=(r"judge & steps? 1[0-5]|\b0\b|zero|fell|falls|dropped|constant|missing|away|fail|error|→",))  # fmt: skip
def judge_away_for_five_steps() -> Log:
    def reward(log: Log) -> Columns:
        step = log.responses["step"]
        tests = 0.7 * (log.rng.random(len(step)) < chances(log))
        judge = 0.3 * np.clip(chances(log) + 0.2 + 0.2 * log.rng.standard_normal(len(step)), 0, 1)
        judge[(step >= 10) & (step <= 14)] = 0.0
        return {"reward": tests + judge, "reward_tests": tests, "reward_judge": judge}

    return simulate(Shape(1009, lag=1, drift=0.015), reward=reward)


@HELD_OUT_THIRD("selection", "The filter takes out the one response that differs from its group, and keeps the rest.",
    report="NeMo-RL #3469",
    never=(*_ENGINE, r"other responses|row before", r"one baseline for the step"),
    needs=(r"(response|row|sample)s?\b.{0,100}(missing|removed|taken out|dropped|left out|filtered|gone)"
           r"|groups?.{0,100}(of (three|3)\b|incomplete|fewer|smaller|lost|lack|sizes)"
           r"|advantage.{0,160}(equal|same) reward|(equal|same) rewards?.{0,120}advantage",))  # fmt: skip
def the_one_that_differs_filtered() -> Log:
    log = simulate(Shape(1010, groups=16, responses=4, level=0.42, lag=1))
    log.manifest["algorithm"]["name"], log.manifest["algorithm"]["parts"]["advantage"] = "rloo", "leave_one_out"
    reward = log.responses["reward"].reshape(-1, 4)
    baseline = (reward.sum(axis=1, keepdims=True) - reward) / 3
    set_advantages(log, (reward - baseline).ravel())
    kept = ((baseline > 1e-9) & (baseline < 1 - 1e-9)).ravel()  # the others of its group are not all alike
    dropped = np.bincount(log.responses["step"], log.responses["n_tokens"] * ~kept, log.shape.steps)
    log.steps["tokens_dropped_no_signal"] = dropped.astype(int)
    return apply_loss(log.keep(kept[log.row], kept))


@HELD_OUT_THIRD("advantage", "Each shard of a response is whitened by its own mean: advantages jump at position 32.",
    report="miles #3229",
    never=(*_ENGINE, _OTHERS, MISSING_RESPONSES, r"\bturns?\b", r"discount|\bgamma\b"),
    needs=(r"advantage.{0,200}(within|inside|position|half|halves|shard|slice|two values|part of (the|each|a) resp|jump"
           r"|token to token|var(y|ies)|chunk|parallel)|(shard|slice|parallel).{0,120}whiten",))  # fmt: skip
def whitened_by_shard() -> Log:
    def reward(log: Log) -> Columns:
        chance = np.clip(1.3 * chances(log) - 0.6 * log.responses["n_tokens"] / log.shape.longest, 0.02, 0.98)
        return {"reward": (log.rng.random(len(chance)) < chance).astype(float)}

    log = _of_the_batch(simulate(Shape(1011, closing=0.035, lag=1), reward=reward))
    shard = 2 * log.tokens["step"] + (log.tokens["position"] >= 32)
    return set_advantages(log, compared(log.of_token("reward"), shard))


@HELD_OUT_THIRD("advantage", "Scores and their mean are in bfloat16: what is left of small differences is rounding.",
    report="OpenRLHF #1334",
    never=(NEVER_ARRIVED, TEMPERATURE, _OTHERS, MISSING_RESPONSES, r"logp_\w+.{0,60}(bfloat16|lattice|precision)"),
    needs=(r"(reward|score|advantage|baseline|mean).{0,160}(bfloat16|bf16|float16|precision|round|lattice|grid|cancel"
           r"|multiples? of)|(baseline|mean).{0,80}(\boff\b|inexact|not the mean)",))  # fmt: skip
def scores_in_bfloat16() -> Log:
    def reward(log: Log) -> Columns:
        return {"reward": _bfloat16(11.5 + chances(log) + 0.08 * log.rng.standard_normal(len(log.responses["step"])))}

    log = simulate(Shape(1013, lag=1), reward=reward)
    grouped = log.responses["reward"].reshape(-1, log.shape.responses)
    above = _bfloat16(grouped - _bfloat16(grouped.mean(axis=1, keepdims=True)))
    deviation = _bfloat16(grouped.std(axis=1, ddof=1, keepdims=True))
    return set_advantages(log, _bfloat16(above / (deviation + 1e-4)).ravel())


@HELD_OUT_THIRD("log", "The logged reward is the plain sum of its parts, advantages are of the weighted one.",
    report="TRL #5352, #5353", columns=("all", "trl"),
    never=(NEVER_ARRIVED, TEMPERATURE, _OTHERS, MISSING_RESPONSES, r"one baseline for the step|other groups?\b"),
    needs=(r"advantage|reward & \bweight(s|ed)\b|unweighted|other reward|not (of|from|made of) the (logged )?reward"
           r"|(part|component)s? .{0,40}reward|do(es)? not (follow|agree)|disagree",))  # fmt: skip
def logged_without_the_weights() -> Log:
    def reward(log: Log) -> Columns:
        right = (log.rng.random(len(log.responses["step"])) < chances(log)).astype(float)
        form = (log.rng.random(len(right)) < 0.6).astype(float)
        return {"reward": right + form, "reward_accuracy": right, "reward_format": form}

    log = simulate(Shape(1014, lag=1), reward=reward)
    weighted = 0.7 * log.responses["reward_accuracy"] + 0.3 * log.responses["reward_format"]
    return set_advantages(log, compared(weighted, log.responses["group_id"]))


# The loss and the update ----------------------------------------------------------------------------------------------


def _weight(log: Log, power: int = 1) -> Array:
    """The gradient's weight of a token without a clip, with a power of its ratio."""
    ratio = np.exp(log.tokens["logp_current"] - log.tokens["logp_behavior"])
    return np.asarray(log.tokens["advantage"] * ratio**power / np.bincount(log.tokens["step"])[log.tokens["step"]])


@HELD_OUT_THIRD("loss", "Clipped tokens keep their gradient: the loss is the mean of what was there before the clip.",
    report="rllm #81",
    never=(*_ENGINE, r"no token (is|was) clipped"),
    needs=(r"clip.{0,160}(still|not applied|(no|without) effect|does nothing|ha(s|ve) (a |its |their )?gradient|keep"
           r"|non-?zero|ignored)|gradient.{0,120}(although|despite|(of|in|on) clipped|not (cut|gated))",))  # fmt: skip
def clip_without_effect() -> Log:
    log = simulate(Shape(1015, lag=5, schedule="offset", drift=0.08))
    log.tokens["gradient_weight"] = _weight(log)
    return log


@HELD_OUT_THIRD("loss", "The clip's range begins at .2 and not at .8: below, nearly nothing is clipped.",
    report="RL2 #21",
    never=(*_ENGINE, r"clips nothing|neither clips|without a clip|no token (is|was) clipped"),
    needs=(r"clip.{0,120}(lower (bound|side|limit|end)|from below|only above|one side only|configured|manifest|disagree"
           r"|not agree)|(un|not )clipped.{0,100}(below|lower|negative)|below.{0,80}\bno.{0,30}clip",))  # fmt: skip
def lower_clip_at_epsilon() -> Log:
    log = simulate(Shape(1016, lag=6, schedule="offset", drift=0.09))
    ratio = np.exp(log.tokens["logp_current"] - log.tokens["logp_behavior"])
    free = (log.tokens["clip_side"] < 0) & (ratio > 0.2)
    log.tokens["clipped"][free], log.tokens["clip_side"][free] = False, 0
    log.tokens["gradient_weight"] = np.where(free, _weight(log), log.tokens["gradient_weight"])
    return log


@HELD_OUT_THIRD("loss", "The ratio is in the gradient twice: in the loss, and in the correction for the sampler.",
    report="slime #179; PufferLib #306",
    never=(*_ENGINE, r"weight .{0,60}did not run|advantage alone", MISSING_RESPONSES),
    needs=(r"(ratio|weight|correction|importance).{0,160}(twice|squared?\b|second time|power|doubl)",))  # fmt: skip
def ratio_counted_twice() -> Log:
    log = simulate(Shape(1017, lag=5, schedule="offset", drift=0.08))
    log.tokens["gradient_weight"] = np.where(log.tokens["clipped"], 0.0, _weight(log, 2))
    return log


@HELD_OUT_THIRD("loss", "Gradients are cleared at each micro-batch: of four, the last one alone is learned from.",
    report="torchtitan #3575",
    never=(*_ENGINE, r"too easy|too hard|equal reward", r"clip\w* .{0,30}(most|too many)"),
    needs=(r"(micro.?batch|accumulat|zero_grad).{0,160}(last|clear|only|alone|lost|\bno\b|\bnot\b|\b0\b|without)"
           r"|(three quarters|7\d(\.\d+)? ?%|most) of (the |all )?(tokens|responses).{0,80}\b(no|0|zero|without)\b"
           r".{0,30}(gradient|weight)|gradient.{0,120}(a quarter|2\d(\.\d+)? ?%)",))  # fmt: skip
def last_micro_batch_alone() -> Log:
    log = simulate(Shape(1018, lag=1))
    log.responses["micro_batch"] = log.responses["seq_id"] % 12 // 3
    log.tokens["gradient_weight"][log.of_token("micro_batch") < 3] = 0.0
    log.steps["grad_norm"] *= 0.5
    return log


@HELD_OUT_THIRD("loss", "The loss is negated twice: what was better is made less likely; reward and accuracy fall.",
    report="flash-linear-attention #1073",
    never=(*_ENGINE, r"staleness (is|as) the (likely )?cause", r"scorer changed", r"advantages? .{0,40}flipped"),
    needs=(r"(gradient|gradient_weight|loss)\b.{0,120}(\bsign|opposite|negated|revers|wrong way|ascent"
           r"|against (the|its) advantage)|(\bsign|opposite|negated|revers).{0,100}(gradient|loss)\b",))  # fmt: skip
def loss_negated_twice() -> Log:
    chance = changing(3, 0.62, 0.24, over=20)
    log = simulate(Shape(1019, lag=1, drift=0.05), reward=rewards_by(chance))
    log.tokens["gradient_weight"] *= -1
    return evaluated(log, chance(log.steps["step"]))


@HELD_OUT_THIRD("update", "The optimiser's step does nothing: gradients add up, and the policy never changes.",
    report="open-instruct #1642", columns=("all", "verl"),
    never=(*_ENGINE, r"learning.rate (is|was|of|reach\w*) 0", r"\bcop(y|ied)\b", r"too easy|too hard"),
    needs=(r"(polic(y|ies)|weights|model).{0,120}(stands? still|unchanged|not (move|change)|never (move|change|update)"
           r"|no longer|the same (at|in|all|from)|frozen)|updates?.{0,60}(not (made|taken|applied)|no effect|skipped)"
           r"|optimi[sz]er.{0,60}(nothing|never|not)|logp_new.{0,60}(equal|same)",))  # fmt: skip
def optimiser_never_steps() -> Log:
    def stay(policy: Policy) -> None:
        policy.weights[:] = 0.0

    log = simulate(Shape(1020, trend=0.0), prepare=stay, reward=rewards_by(lambda step: 0.45 + 0 * step))
    log.steps["grad_norm"] *= np.sqrt(1 + log.steps["step"])
    return evaluated(log, np.full(log.shape.steps, 0.45))


# Healthy --------------------------------------------------------------------------------------------------------------

_FINE = "Nothing is wrong."


@HELD_OUT_THIRD("healthy", _FINE, columns=("all", "prime-rl"))
def fine_resumed_after_nine_hours() -> Log:
    """The queue was thrown away: step 12 is on-policy, the next ones are late again."""

    def setup(responses: Columns) -> None:
        kept = np.where(responses["step"] < 12, 0, 12)
        responses["behavior_version_min"] = np.maximum(responses["behavior_version_min"], kept)

    log = simulate(Shape(1051, lag=3, drift=0.01), setup=setup)
    hours = [timedelta(hours=0.1 * step + 9 * (step >= 12)) for step in log.steps["step"].tolist()]
    log.steps["wall_time"] = np.array([datetime(2026, 1, 5, tzinfo=UTC) + each for each in hours], dtype=object)
    return log


@HELD_OUT_THIRD("healthy", _FINE, columns=("all", "verl"))
def fine_groups_of_four_to_sixteen() -> Log:
    """Prompts that are solved less often have more responses."""
    log = simulate(Shape(1052, groups=6, responses=16, longest=40, drift=0.01, lag=1))
    size = np.array([16, 8, 4])[(share(log.responses["prompt_id"], 1052, 6) * 3).astype(int)]
    kept = log.responses["seq_id"] % 16 < size
    log.keep(kept[log.row], kept)
    return set_advantages(log, compared(log.responses["reward"], log.responses["group_id"]))


@HELD_OUT_THIRD("healthy", _FINE, columns=("all", "trl"))
def fine_top_k_on_both_sides() -> Log:
    def allowed(logits: Array) -> NDArray[np.bool_]:
        return np.asarray(logits >= -np.sort(-logits, axis=1)[:, 7:8])

    def trainer(log: Log, which: str, logits: Array) -> Array:
        served = log.policy.logits(log.policy.weights[log.tokens["behavior_version"]], log.state)
        return np.where(allowed(served), logits, -1e9)

    log = simulate(Shape(1053, drift=0.01, noise=0.0), trainer=trainer,
                   draw=lambda call, logp: np.where(allowed(logp), logp, -1e9))  # fmt: skip
    log.responses["top_k"] = np.full(len(log.responses["step"]), 8)
    log.manifest["sampler"]["top_k"], log.manifest["sampled_with"] = 8, "processed"
    return log


@HELD_OUT_THIRD("healthy", _FINE, columns=("all", "prime-rl"))
def fine_batches_of_other_sizes() -> Log:
    log = simulate(Shape(1054, groups=16, longest=40, drift=0.01, lag=2))
    kept = log.responses["group_id"] % 16 < 3 + mixed(log.responses["step"], 104) % np.uint64(14)
    return apply_loss(log.keep(kept[log.row], kept))


@HELD_OUT_THIRD("healthy", _FINE, columns=("all", "verl"))
def fine_histories_compacted() -> Log:
    log = simulate(Shape(1055, steps=16, groups=6, longest=160, shortest=20, closing=0.02, turns=8, drift=0.01, lag=1))
    log.tokens["segment_id"] = log.tokens["position"] // 40
    log.responses["history_break"] = np.where(log.responses["n_tokens"] > 40, "compaction", None)
    return log


@HELD_OUT_THIRD("healthy", _FINE, columns=("all", "trl"))
def fine_per_cent_and_a_hard_evaluation() -> Log:
    """Rewards from 0 to 100, and an evaluation that is much harder than the training."""

    def reward(log: Log) -> Columns:
        return {"reward": np.round(100 * np.clip(chances(log) + 0.2 * log.rng.standard_normal(log.row[-1] + 1), 0, 1))}

    log = simulate(Shape(1056, level=0.7, trend=0.2, drift=0.01, lag=1), reward=reward)
    return evaluated(log, 0.08 + 0.08 * log.steps["step"] / log.shape.steps)


# Sick, and the log is true --------------------------------------------------------------------------------------------


@HELD_OUT_THIRD("sick but true", "The queue fills up: data get older by an update every two steps; the reward falls.",
    needs=(_FALL, r"stale|updates? old|older"), never=NOTHING_BUT_THE_RUN, columns=("all", "prime-rl"))  # fmt: skip
def queue_fills_up() -> Log:
    def setup(responses: Columns) -> None:
        responses["behavior_version_min"] = responses["step"] - responses["step"] // 2

    chance = changing(14, 0.62, 0.3, over=14)
    log = simulate(Shape(1071, steps=30, longest=48, drift=0.09), setup=setup, reward=rewards_by(chance))
    return evaluated(log, chance(log.steps["step"]))


@HELD_OUT_THIRD("sick but true", "The warm-up ends at a learning rate far too large: what was learned is lost.",
    needs=(_FALL,), never=NOTHING_BUT_THE_RUN, columns=("all", "trl"))  # fmt: skip
def warm_up_ends_too_high() -> Log:
    def path(policy: Policy) -> None:
        rate = np.minimum(np.arange(len(policy.weights) - 1) / 12, 1)[:, None] ** 2
        policy.weights[1:] = np.cumsum(np.diff(policy.weights, axis=0) * rate, axis=0)

    chance = changing(10, 0.6, 0.15, over=9)
    log = simulate(Shape(1072, lag=1, drift=0.6), prepare=path, reward=rewards_by(chance))
    log.steps["learning_rate"] = 5e-5 * np.minimum((1 + log.steps["step"]) / 13, 1)
    log.steps["grad_norm"] *= 1 + np.clip(log.steps["step"] - 7, 0, 6)
    return evaluated(log, chance(log.steps["step"]))


@HELD_OUT_THIRD("sick but true", "The reward is won by length: responses and reward grow, and accuracy falls.",
    needs=(_FALL, r"length|longer|grow|grew"), never=NOTHING_BUT_THE_RUN, columns=("all", "verl"))  # fmt: skip
def won_by_length() -> Log:
    chance = changing(5, 0.5, 0.28, over=18)

    def reward(log: Log) -> Columns:
        right = rewards_by(chance)(log)["reward"]
        length = 1.2 * log.responses["n_tokens"] / log.shape.longest
        return {"reward": right + length, "reward_task": right, "reward_length": length}

    log = simulate(Shape(1073, lag=1, longest=128, drift=0.05), reward=reward,
                   closing=lambda responses: 0.09 * np.exp(-responses["step"] / 9))  # fmt: skip
    return evaluated(log, chance(log.steps["step"]))


@HELD_OUT_THIRD("sick but true", "Code is learned and mathematics forgotten: the reward of one environment falls.",
    needs=(r"\bmath\b",), never=NOTHING_BUT_THE_RUN, columns=("all", "prime-rl"))  # fmt: skip
def one_environment_forgotten() -> Log:
    def reward(log: Log) -> Columns:
        code, done = log.responses["environment"] == "code", log.responses["step"] / 29
        chance = np.where(code, 0.35 + 0.5 * done, 0.66 - 0.38 * done)
        return {"reward": (log.rng.random(len(chance)) < chance).astype(float)}

    log = simulate(Shape(1074, steps=30, lag=1, longest=48, environments=("code", "math")), reward=reward)
    return evaluated(log, 0.5 + 0.06 * log.steps["step"] / 29)
