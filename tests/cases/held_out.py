"""Cases that nobody tuned for: written after the marks and causes, by someone who had not read them, and then frozen.

Faults of further public reports, healthy runs of shapes that `healthy` does not have, and sick runs with a true log.
Their verdicts are counted apart, because they say how well a diagnosis does where it was not made to fit. That is the
first score (`FIRST_SCORE`): later ones are of marks that may have been made with these cases, too, and new ones are
then due.
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
    WHOLLY_BROKEN,
    changing,
    drawn_at,
    elsewhere,
    evaluated,
    rewards_by,
    sharper,
    unclipped,
)
from tests.cases.healthy import NOTHING_BUT_THE_RUN
from tests.cases.world import (
    END,
    RANKS,
    Array,
    Call,
    Columns,
    Log,
    Policy,
    Shape,
    apply_loss,
    compared,
    log_softmax,
    mixed,
    set_advantages,
    share,
    simulate,
)

HELD_OUT = Register()

FIRST_SCORE = {
    "held-out faults": "13 found, 10 vague, 15 silent, 8 untrue of 46 logs",
    "held-out sick but true": "1 found, 10 quiet, 1 vague of 12 logs",
    "held-out healthy": "24 quiet of 24 logs",
}
"""What was said of them when they were first scored, by the patterns as they were frozen (2026-11-25)."""

_OTHER_RESPONSES = r"belongs? to other|of other responses|row before|shifted by one row"
_TRAINER_COLUMNS = {"logp_behavior_train": "train", "logp_current": "current", "logp_new": "new"}


# Sampler and trainer --------------------------------------------------------------------------------------------------


def _dropout(seed: int) -> Log:
    """The trainer's forward pass drops units at random: no two of its passes agree."""

    def trainer(log: Log, which: str, logits: Array) -> Array:
        return logits + 0.6 * log.rng.standard_normal(logits.shape)

    return simulate(Shape(seed, lag=0), trainer=trainer)


@HELD_OUT(
    "sampler",
    "The trainer computes with dropout: its own columns differ from each other where the weights are the same.",
    report="reef #536",
    needs=(
        r"dropout|(trainer|training engine).{0,100}(itself|two passes|twice|own passes|pass to pass|call to call)"
        r"|logp_behavior_train.{0,80}logp_current.{0,80}(differ|disagree|same weights|same version)"
        r"|logp_current.{0,80}logp_behavior_train.{0,80}(differ|disagree|same weights|same version)",
    ),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN),
)
def dropout_in_the_trainer() -> Log:
    return _dropout(801)


@HELD_OUT(
    "sampler",
    "Sampler and trainer compute differently at one version, by noise of .6 in logits: dropout, kernels or precision.",
    report="reef #536",
    needs=(r"dropout|precision|number format|kernels|numeric|engines? .{0,60}(differ|disagree|compute)",),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN),
    columns=("verl",),
)
def dropout_without_a_second_pass() -> Log:
    return _dropout(802)


@HELD_OUT(
    "sampler",
    "The trainer's values depend on the padding: the mismatch sits in responses that are short beside their batch.",
    report="NeMo-Aligner #68; trlx #509",
    needs=(
        r"(mismatch|engine|differ|distance|hold|sits?).{0,160}(short|padd|length)"
        r"|(short|padd|length).{0,160}(mismatch|engine|differ|distance|hold|sits)",
    ),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN, r"in long(er)? responses"),
    columns=("all", "verl"),
)
def padding_moves_the_trainer() -> Log:
    def trainer(log: Log, which: str, logits: Array) -> Array:
        length = log.lengths()
        batch = log.responses["step"] * RANKS + log.responses["rank"]
        longest = np.zeros(batch.max() + 1, dtype=int)
        np.maximum.at(longest, batch, length)
        padding = ((longest[batch] - length) / log.shape.longest)[log.row]
        noise = np.random.default_rng(803).standard_normal(logits.shape)
        return logits + 0.7 * padding[:, None] * noise

    return simulate(Shape(803, lag=0, noise=0.002, closing=0.08), trainer=trainer)


@HELD_OUT(
    "sampler",
    "All responses of a group are the same tokens: the sampler was given one seed for all.",
    report="ms-swift #4383",
    needs=(
        r"(identical|duplicated?|copies|same|repeated) (responses|completions|tokens|texts?|answers)"
        r"|responses?.{0,60}(identical|word for word|token for token|same tokens|same text)|\bseed\b",
    ),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN, r"too easy|too hard"),
    columns=("all", "trl"),
)
def one_seed_for_all() -> Log:
    def draw(call: Call, logp: Array) -> Array:
        token = np.arange(logp.shape[1])
        dice = share(call.of("group_id")[:, None], np.full((1, 1), call.position), token[None, :], 61)
        chosen = (logp - np.log(-np.log(dice))).argmax(axis=1)
        return np.where(token == chosen[:, None], 0.0, np.full(logp.shape, -1e9))

    def reward(log: Log) -> Columns:
        group = log.responses["group_id"]
        return {"reward": (share(group, 62) < 0.5).astype(float)}

    return simulate(Shape(804, noise=0.0, trend=0.0), draw=draw, logs_raw=True, reward=reward)


@HELD_OUT(
    "sampler",
    "Turns behind the first were sampled without earlier thinking in the history: all of their tokens disagree.",
    report="ART #726; verl #6854",
    needs=(
        r"turn.{0,120}(mismatch|differ|hold|distance|engine|sits|context|history)"
        r"|(mismatch|differ|hold|distance|engine|sits|context|history|template).{0,120}turn",
    ),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN, r"(first|start|begin\w*) (\w+ )?(tokens? )?of (each|every|a) turn"),
    columns=("all", "prime-rl"),
)
def thinking_left_out_of_the_history() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        if call.position < 16:
            return logits
        inside = (call.state >= call.policy.n_closing)[:, None]  # where a response may end is not of the history
        return np.where(inside, 0.75 * logits + 0.25 * elsewhere(call, 63), logits)

    return simulate(Shape(805, turns=16, lag=1), sampler=sampler)


@HELD_OUT(
    "sampler",
    "The last token of truncated responses was replaced by the end token, which the sampler had not drawn.",
    report="OpenRLHF #238",
    needs=(
        r"(last|final|end) token|\beos\b|token (id )?0\b|end of (truncated|cut)|truncated responses"
        r" & mismatch|log-prob|not (sampled|drawn)|did not (sample|draw)|forced|replaced|placeholder|logp_|hold",
    ),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN, r"number format|float16"),
    columns=("all", "verl"),
)
def end_forced_at_the_limit() -> Log:
    log = simulate(Shape(806, closing=0.035))
    last = np.append(log.row[1:] != log.row[:-1], True)
    forced = np.flatnonzero(last & (log.tokens["token_id"] != END))
    log.tokens["token_id"][forced] = END
    step = log.tokens["step"]
    versions = {"train": log.tokens["behavior_version"], "current": step, "new": step + 1}
    for name, which in _TRAINER_COLUMNS.items():
        logits = log.policy.logits(log.policy.weights[versions[which][forced]], log.state[forced])
        log.tokens[name][forced] = log_softmax(logits)[:, END]
    return apply_loss(log)


@HELD_OUT(
    "sampler",
    "The sampler's log-probabilities before the temperature were divided by it (0.6): they are not normalised.",
    report="prime-rl #697",
    needs=(r"temperature|not normalis|divided|raw\b|(above|below) (1|0|one) (in|at|for) (all|every)|one.sided",),
    never=(NEVER_ARRIVED, r"top-?[pk] (of|was|is)|number format", r"drew at (0\.[0-4]|0\.[7-9]|[1-9])"),
    columns=("all", "verl"),
)
def divided_by_the_temperature() -> Log:
    log = simulate(
        Shape(807, lag=1), draw=drawn_at(0.6), logs_raw=True, trainer=lambda log, which, logits: logits / 0.6
    )
    log.tokens["logp_behavior"] = log.tokens["logp_behavior"] / 0.6
    log.responses["temperature"] = np.full(len(log.responses["step"]), 0.6)
    log.manifest["sampler"]["temperature"] = 0.6
    return apply_loss(log)


@HELD_OUT(
    "sampler",
    "The sampler draws at temperature 1.3, the trainer scores at 1.",
    report="NeMo-RL #935",
    needs=(r"temperature & 1\.[23]|flatter|hotter|trainer.{0,60}(scores|computes|at 1)",),
    # "number format, kernels, or decoding transforms" beside the temperature itself is not untrue.
    never=(NEVER_ARRIVED, BROKEN, r"top-?[pk] (of|was|is)"),
    columns=("all", "verl", "no versions"),
)
def trainer_without_the_temperature() -> Log:
    return simulate(Shape(808), draw=drawn_at(1.3))


def _bfloat16(values: Array) -> Array:
    parts, power = np.frexp(values)
    return np.asarray(np.ldexp(np.round(parts * 256) / 256, power))


@HELD_OUT(
    "sampler",
    "The trainer's log-softmax is computed in bfloat16, the sampler's in float32: its columns lie on that lattice.",
    report="minimind #814",
    needs=(r"bfloat16|bf16|lattice|grid|precision|number format|rounded & trainer|logp_current|current",),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN, r"fp8|e4m3|float8"),
    columns=("all", "verl"),
)
def trainer_in_bfloat16() -> Log:
    log = simulate(Shape(809, lag=0, noise=0.0), trainer=lambda log, which, logits: _bfloat16(logits))
    for name in _TRAINER_COLUMNS:
        log.tokens[name] = _bfloat16(log.tokens[name])
    return apply_loss(log)


@HELD_OUT(
    "sampler",
    "The quantised cache turns what is sampled into noise: sampler and trainer are far apart, and nothing is right.",
    report="verl #4435",
    needs=(
        r"sampler|engine & quanti|precision|far apart|differ|disagree|garbage|kernels|number format|distance"
        r"|other model",
    ),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN),
    columns=("all", "verl"),
)
def noise_of_a_quantised_cache() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        return 0.5 * logits + 2.0 * call.noise()

    log = simulate(Shape(810, lag=1), sampler=sampler, reward=rewards_by(lambda step: 0.02 + 0 * step))
    return evaluated(log, np.full(log.shape.steps, 0.01))


@HELD_OUT(
    "weights",
    "The sampler applies the adapter at half of its strength: it has half of every update since the start.",
    report="UniRL #155",
    needs=(r"in part|\bhalf\b|part of (the|each|every) (update|weights)|0\.5\d? of|strength|\blora\b|adapter",),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN),
    columns=("all", "verl"),
)
def adapter_at_half_strength() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        return call.served(0.5 * call.policy.weights[call.version])

    return simulate(Shape(811, lag=0, drift=0.06), sampler=sampler)


# Advantages and the loss ----------------------------------------------------------------------------------------------


@HELD_OUT(
    "advantage",
    "Only the best response of a group should have an advantage; the others keep their rewards and have larger ones.",
    report="EasyR1 #585",
    needs=(
        r"advantage & better|best|larger|smaller|highest|opposite|order|sign|is the reward|bare reward|baseline"
        r"|all (are )?positive|do(es)? not follow",
    ),
    never=(_OTHER_RESPONSES, MISSING_RESPONSES, BROKEN),
    columns=("all", "verl"),
)
def others_keep_their_rewards() -> Log:
    log = simulate(Shape(812, graded=True))
    log.manifest["algorithm"]["name"] = "grpo_passk"
    log.manifest["algorithm"]["parts"]["advantage"] = "best_above_second"
    grouped = log.responses["reward"].reshape(-1, log.shape.responses)
    ordered = np.sort(grouped, axis=1)
    advantage = np.where(grouped == ordered[:, -1:], grouped - ordered[:, -2:-1], grouped)
    return set_advantages(log, advantage.ravel())


@HELD_OUT(
    "advantage",
    "Groups of two responses to a task that is solved 18 times in 100: seven of ten have equal rewards and no signal.",
    report="CoursIA #10603",
    needs=(
        r"zero.signal|no (signal|gradient|difference)|equal rewards?|same reward|all responses|advantage 0"
        r"|two responses|2 responses|groups? of (two|2)",
    ),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN, r"too easy"),
    columns=("all", "trl"),
)
def groups_of_two() -> Log:
    return simulate(Shape(813, groups=16, responses=2), reward=rewards_by(lambda step: 0.18 + 0 * step))


@HELD_OUT(
    "advantage",
    "The overlong penalty counts tokens of tools: it follows the tool calls, and makes most of the advantage.",
    report="OpenRLHF #1246, #1243",
    needs=(r"overlong|tool.{0,40}(calls|tokens) & reward|penalt|advantage",),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN, _OTHER_RESPONSES),
)
def overlong_penalty_counts_tools() -> Log:
    def setup(responses: Columns) -> None:
        responses["n_tool_calls"] = np.random.default_rng(814).poisson(3.0, len(responses["step"]))

    def reward(log: Log) -> Columns:
        solvable = share(log.responses["prompt_id"], 64) < 0.35
        task = (log.rng.random(len(solvable)) < 0.5 * solvable).astype(float)
        counted = log.responses["n_tokens"] + 20 * log.responses["n_tool_calls"]
        penalty = -np.clip((counted - 60) / 60, 0, 1)
        return {"reward": task + penalty, "reward_task": task, "reward_overlong": penalty}

    return simulate(Shape(814, turns=12, trend=0.0), setup=setup, reward=reward)


@HELD_OUT(
    "loss",
    "The loss is divided by the four micro-batches once more: gradient_weight is a quarter of a token mean's.",
    report="ms-swift #10117, #10116; TRL #6024",
    needs=(
        r"(gradient_weight|gradient|weight|loss).{0,160}(0\.25|1/4|quarter|four|\b4 (×|times)|factor|scaled?\b"
        r"|normalis|divided|accumulat)",
    ),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN),
)
def divided_by_the_accumulation_again() -> Log:
    log = simulate(Shape(815))
    log.tokens["gradient_weight"] /= 4
    return log


@HELD_OUT(
    "loss",
    "Each rank takes the mean over its own tokens: tokens on ranks with short responses weigh up to twice as much.",
    report="TRL #3021, #3231",
    needs=(
        r"rank.{0,160}(weigh|gradient|aggregat|normalis)"
        r"|(weigh|gradient|aggregat|normalis).{0,160}(rank|micro|batch|\blength|response|short|long)",
    ),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN),
)
def mean_over_each_rank() -> Log:
    log = simulate(Shape(816, closing=0.04))
    step, length = log.responses["step"], log.responses["n_tokens"]
    place = np.empty(len(step), dtype=int)
    place[np.lexsort((length, step))] = np.arange(len(step))
    of_step = log.shape.groups * log.shape.responses
    log.responses["rank"] = place % of_step * RANKS // of_step
    batch = (step * RANKS + log.responses["rank"])[log.row]
    whole = np.bincount(log.tokens["step"])[log.tokens["step"]]
    log.tokens["gradient_weight"] *= whole / (RANKS * np.bincount(batch)[batch])
    return log


@HELD_OUT(
    "loss",
    "The token that ends a response has no gradient: it was taken for padding, and responses grow.",
    report="TRL #4974",
    needs=(
        r"\beos\b|token (id )?0\b|(\bend\b|ends|stop|last|final).{0,60}(tokens?|positions?)"
        r" & gradient|loss|masked|left out|not trained|weight",
    ),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN, r"placeholder"),
    columns=("all", "trl"),
)
def end_token_not_in_the_loss() -> Log:
    def closing(responses: Columns) -> Array:
        return 0.08 - 0.05 * responses["step"] / 24

    log = simulate(Shape(817), closing=closing)
    ends = log.tokens["token_id"] == END
    log.tokens["gradient_weight"][ends] = 0.0
    log.tokens["clipped"][ends], log.tokens["clip_side"][ends] = False, 0
    return log


@HELD_OUT(
    "selection",
    "The filter of overlong responses masks those that end with another end token: most that finished are not learned.",
    report="SkyRL #1319",
    needs=(
        r"overlong|mask|reject|left out|not in the loss"
        r" & finished|stopped|\bstop\b|ended|\bmost\b|\d ?% of (the |all )?(responses|tokens) (are|were) \w+",
    ),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN),
    columns=("all", "trl"),
)
def finished_ones_masked_as_overlong() -> Log:
    log = simulate(Shape(818))
    ends_otherwise = share(log.responses["group_id"], log.responses["seq_id"], 65) < 0.85
    masked = (log.responses["truncated"] | ends_otherwise)[log.row]
    log.tokens["rejected"] = np.where(masked, "overlong", None)
    log.tokens["gradient_weight"][masked] = 0.0
    return log


# The run --------------------------------------------------------------------------------------------------------------


@HELD_OUT(
    "update",
    "The learning rate reaches 0 after half of the planned updates: the schedule counts each mini-batch.",
    report="SkyRL #873, #872",
    needs=(r"learning.rate",),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN, r"\bcop(y|ied)\b"),
    columns=("all", "trl"),
)
def learning_rate_ends_too_early() -> Log:
    def rates(at: NDArray[Any]) -> Array:
        return np.clip(1 - at / 12, 0, 1)

    def path(policy: Policy) -> None:
        moves = np.diff(policy.weights, axis=0) * rates(np.arange(len(policy.weights) - 1))[:, None]
        policy.weights[1:] = np.cumsum(moves, axis=0)

    log = simulate(Shape(819, trend=0.0), prepare=path)
    log.steps["learning_rate"] = 2e-6 * rates(log.steps["step"])
    return log


@HELD_OUT(
    "selection",
    "After the restart at step 12 the prompts of the first steps come again: the reward jumps, accuracy does not.",
    report="EasyR1 #57; OpenRLHF #1103",
    needs=(
        r"(same|repeat\w*|again|twice|already|seen|second|earlier).{0,60}prompts?"
        r"|prompts?.{0,80}(again|repeat|twice|seen before|come back|a second time|already)",
    ),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN, r"\bcache"),
    columns=("all", "verl"),
)
def prompts_come_again() -> Log:
    def setup(responses: Columns) -> None:
        responses["prompt_id"] -= np.where(responses["step"] < 12, 0, 12 * 8)
        responses["prompt"] = np.array([f"Task {prompt}: solve it." for prompt in responses["prompt_id"]], dtype=object)

    log = simulate(Shape(820), setup=setup, reward=rewards_by(changing(12, 0.45, 0.72)))
    return evaluated(log, np.full(log.shape.steps, 0.45))


@HELD_OUT(
    "selection",
    "Responses grow, and the truncated ones score 0 in training alone: the reward falls and accuracy does not.",
    report="UniRL #19",
    needs=(r"truncat|length limit|cut off & reward|scor|ris|rose|grow|grew|from|→",),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN, r"accuracy (fell|falls)"),
    columns=("all", "trl"),
)
def truncated_ones_score_zero() -> Log:
    def reward(log: Log) -> Columns:
        right = log.rng.random(len(log.responses["step"])) < 0.58
        return {"reward": (right & ~log.responses["truncated"]).astype(float)}

    def closing(responses: Columns) -> Array:
        return 0.12 * np.exp(-np.clip(responses["step"] - 6, 0, None) / 8)

    log = simulate(Shape(821), reward=reward, closing=closing)
    return evaluated(log, np.full(log.shape.steps, 0.58))


@HELD_OUT(
    "update",
    "The KL to the reference is maximised, its term has the wrong sign: it grows without end, and the reward falls.",
    report="Logic-RL #58; RAGEN #58",
    needs=(r"\bkl\b & reference|initial|start",),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN),
    columns=("with reference",),
)
def kl_is_maximised() -> Log:
    def away(policy: Policy) -> None:
        step = np.clip(np.arange(len(policy.weights)) - 2, 0, None)
        policy.weights += 0.05 * (1.16**step - 1)[:, None] * np.array([1.0, -1.0, 0.8, -0.6])

    chance = changing(12, 0.6, 0.2, over=10)
    log = with_kl(simulate(Shape(822, lag=1), prepare=away, reward=rewards_by(chance)))
    return evaluated(log, chance(log.steps["step"]))


def with_kl(log: Log) -> Log:
    """The KL to the reference, by its usual estimate, in the steps."""
    moved = log.tokens["logp_reference"] - log.tokens["logp_current"]
    log.steps["kl_to_initial"] = np.bincount(log.tokens["step"], np.expm1(moved) - moved) / np.bincount(
        log.tokens["step"]
    )
    return log


@HELD_OUT(
    "log",
    "At the restart in step 12 the policy of that step became the reference: the KL to it begins again at 0.",
    report="NeMo-RL #3722",
    needs=(r"reference & step 12|restart|changed|moved|jump|fell|falls|drop|anchor|another|other|again",),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN),
    columns=("with reference",),
)
def reference_moved_at_the_restart() -> Log:
    def trainer(log: Log, which: str, logits: Array) -> Array:
        if which != "reference":
            return logits
        of_restart = log.policy.logits(log.policy.weights[12], log.state)
        return np.where((log.tokens["step"] >= 12)[:, None], of_restart, logits)

    return with_kl(simulate(Shape(823, drift=0.1), trainer=trainer))


@HELD_OUT(
    "update",
    "Every update is far too large from the start, by the learning rate: accuracy falls slowly and never rises.",
    report="AReaL #1634",
    needs=(r"(update|policy).{0,100}(large|far|too|moves)|learning.rate|step size",),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN),
    columns=("all", "trl"),
)
def updates_too_large_from_the_start() -> Log:
    chance = changing(3, 0.62, 0.42, over=20)
    log = simulate(Shape(824, lag=1, drift=0.3, trend=0.0), reward=rewards_by(chance))
    log.steps["learning_rate"][:] = 1.7e-5
    log.manifest["optimiser"]["learning_rate"] = 1.7e-5
    return evaluated(log, chance(log.steps["step"]))


@HELD_OUT(
    "update",
    "Entropy rises without end, by its own bonus, and responses become noise: then the reward falls.",
    report="TRL #199; verl #1770",
    needs=(r"entropy.{0,100}(ris|rose|grow|grew|increas|doubl|times|→|climb|higher)",),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN, r"entropy.{0,30}(fell|falls|collapse|gone|lost)"),
    columns=("all", "verl"),
)
def entropy_rises() -> Log:
    chance = changing(13, 0.6, 0.08, over=8)
    flatter = changing(6, 0.0, -0.8, over=14)
    log = simulate(Shape(825, lag=1), prepare=sharper(flatter), reward=rewards_by(chance))
    return evaluated(log, chance(log.steps["step"]))


@HELD_OUT(
    "log",
    "Entropies stand in the order of the micro-batches, sorted by length: they are those of other tokens.",
    report="JustRL #5",
    needs=(
        r"entropy.{0,160}(other|belong|not (that|those|of|the)|shift|permut|order|disagree|not agree|unrelated|fit"
        r"|too (large|small|high|low)|explain)",
    ),
    never=(NEVER_ARRIVED, WHOLLY_BROKEN, r"entropy.{0,80}temperature", r"drew at \d"),
    columns=("all", "verl"),
)
def entropies_of_other_tokens() -> Log:
    log = simulate(Shape(826))
    length = log.lengths()[log.row]
    order = np.lexsort((log.tokens["position"], log.row, length, log.tokens["step"]))
    log.tokens["entropy"] = log.tokens["entropy"][order]
    return log


# Healthy --------------------------------------------------------------------------------------------------------------

_FINE = "Nothing is wrong."


@HELD_OUT("healthy", _FINE, columns=("verl", "all"))
def fine_two_prompts_a_step() -> Log:
    return simulate(Shape(851, groups=2, responses=64, steps=30, longest=40, lag=1, drift=0.01))


@HELD_OUT("healthy", _FINE, columns=("all", "prime-rl"))
def fine_long_tail_of_lengths() -> Log:
    def closing(responses: Columns) -> Array:
        return np.where(share(responses["prompt_id"], 66) < 0.8, 0.15, 0.004)

    return simulate(Shape(852, groups=6, responses=6, steps=16, shortest=8, longest=500, drift=0.01), closing=closing)


@HELD_OUT("healthy", _FINE, columns=("all", "verl"))
def fine_ppo_with_values() -> Log:
    log = simulate(Shape(853, drift=0.01))
    log.manifest["algorithm"]["name"] = "ppo"
    log.manifest["algorithm"]["parts"]["advantage"] = "gae"
    length, position = log.lengths()[log.row], log.tokens["position"]
    known = position / length
    reward = log.of_token("reward")
    ease = np.clip(0.5 + 0.5 * (share(log.of_token("prompt_id"), 853, 6) - 0.5), 0, 1)
    value = (1 - known) * ease + known * (0.3 * ease + 0.7 * reward) + 0.05 * log.rng.standard_normal(len(reward))
    advantage = 0.98 ** (length - 1 - position) * (reward - value)
    step = log.tokens["step"]
    count = np.bincount(step)
    above = advantage - (np.bincount(step, advantage) / count)[step]
    return set_advantages(log, above / np.sqrt(np.bincount(step, above**2) / count)[step])


def _of_the_batch(log: Log) -> Log:
    """Advantages of REINFORCE++: rewards above the mean of the step, in its standard deviations."""
    log.manifest["algorithm"]["name"] = "reinforce_plus_plus"
    log.manifest["algorithm"]["parts"]["advantage"] = "batch_normalised"
    return set_advantages(log, compared(log.responses["reward"], log.responses["step"]))


@HELD_OUT("healthy", _FINE, columns=("all", "verl"))
def fine_reinforce_plus_plus() -> Log:
    return _of_the_batch(simulate(Shape(854, drift=0.01)))


@HELD_OUT("healthy", _FINE, columns=("all", "trl"))
def fine_leave_one_out() -> Log:
    log = simulate(Shape(855, drift=0.01, lag=0))
    log.manifest["algorithm"]["name"] = "rloo"
    log.manifest["algorithm"]["parts"]["advantage"] = "leave_one_out"
    above = compared(log.responses["reward"], log.responses["group_id"], "group_mean")
    return set_advantages(log, above * log.shape.responses / (log.shape.responses - 1))


@HELD_OUT("healthy", _FINE, columns=("all", "trl"))
def fine_ratios_of_responses() -> Log:
    log = simulate(Shape(856, drift=0.01, lag=2))
    log.manifest["algorithm"]["name"] = "gspo"
    log.manifest["algorithm"]["parts"] |= {"level": "geometric", "aggregation": "sequence_mean"}
    low, high = 0.003, 0.004
    log.manifest["algorithm"]["parameters"] = {"epsilon_low": low, "epsilon_high": high}
    tokens, length = log.tokens, log.lengths()
    mean = np.bincount(log.row, tokens["logp_current"] - tokens["logp_behavior"]) / length
    ratio, advantage = np.exp(mean)[log.row], tokens["advantage"]
    above, below = (advantage > 0) & (ratio > 1 + high), (advantage < 0) & (ratio < 1 - low)
    tokens["clipped"], tokens["clip_side"] = above | below, above.astype(int) - below.astype(int)
    responses = np.bincount(log.responses["step"])[tokens["step"]]
    tokens["gradient_weight"] = np.where(above | below, 0.0, advantage * ratio) / responses / length[log.row]
    return log


@HELD_OUT("healthy", _FINE, columns=("all", "prime-rl"))
def fine_agents_of_many_turns() -> Log:
    shape = Shape(857, steps=14, groups=6, responses=6, longest=240, shortest=40, closing=0.02, turns=6, lag=3,
                  schedule="partial", drift=0.01, environments=("shell", "browser", "search"))  # fmt: skip
    log = simulate(shape)
    calls = log.responses["n_turns"] - 1
    log.responses["n_tool_calls"] = calls
    log.responses["seconds_tools"] = calls * log.rng.gamma(2.0, 1.5, len(calls))
    log.responses["seconds_generating"] = log.responses["n_tokens"] * log.rng.gamma(20.0, 0.001, len(calls))
    return log


@HELD_OUT("healthy", _FINE, columns=("all", "prime-rl"))
def fine_eight_behind_and_truncated() -> Log:
    log = unclipped(simulate(Shape(858, lag=8, schedule="partial", drift=0.01, steps=30)))
    log.manifest["algorithm"]["parts"] |= {"weight": "truncated", "gate": "none"}
    log.manifest["algorithm"]["parameters"] = {"cap": 2.0}
    log.tokens["gradient_weight"] *= np.minimum(np.exp(log.tokens["logp_current"] - log.tokens["logp_behavior"]), 2.0)
    return log


@HELD_OUT("healthy", _FINE, columns=("all", "verl"))
def fine_equal_groups_sampled_again() -> Log:
    log = simulate(Shape(859, groups=12, drift=0.01))
    above = compared(log.responses["reward"], log.responses["group_id"], "group_mean")
    equal = np.bincount(log.responses["group_id"], np.abs(above))[log.responses["group_id"]] < 1e-9
    count = np.bincount(log.responses["step"], log.responses["n_tokens"] * equal, log.shape.steps)
    log.steps["tokens_dropped_no_signal"] = count.astype(int)
    log.manifest["algorithm"]["name"] = "dapo"
    log.manifest["algorithm"]["parameters"]["epsilon_high"] = 0.28
    apply_loss(log.keep(~equal[log.row], ~equal))
    ratio = np.exp(log.tokens["logp_current"] - log.tokens["logp_behavior"])
    kept = (log.tokens["advantage"] > 0) & (ratio > 1.2) & (ratio <= 1.28)
    log.tokens["clipped"][kept], log.tokens["clip_side"][kept] = False, 0
    weight = log.tokens["advantage"] * ratio / np.bincount(log.tokens["step"])[log.tokens["step"]]
    log.tokens["gradient_weight"] = np.where(kept, weight, log.tokens["gradient_weight"])
    return log


@HELD_OUT("healthy", _FINE, columns=("all", "prime-rl"))
def fine_distilled_on_policy() -> Log:
    log = simulate(Shape(860, lag=0, drift=0.01))
    teacher = log.policy.logits(np.array([0.25, -0.2, 0.2, -0.15]), log.state)
    logp = log_softmax(teacher)[np.arange(len(log.state)), log.tokens["token_id"]]
    log.manifest["algorithm"]["name"] = "on_policy_distillation"
    log.manifest["algorithm"]["parts"]["advantage"] = "teacher_log_ratio"
    advantage = logp - log.tokens["logp_behavior"]
    log.responses["reward"] = np.bincount(log.row, advantage) / log.lengths()
    return set_advantages(log, advantage)


@HELD_OUT("healthy", _FINE, columns=("all", "trl"))
def fine_one_response_a_prompt() -> Log:
    return _of_the_batch(simulate(Shape(861, groups=48, responses=1, drift=0.01, lag=1)))


@HELD_OUT("healthy", _FINE, columns=("verl", "trl"))
def fine_at_temperature_point_six() -> Log:
    log = simulate(Shape(862, drift=0.01), draw=drawn_at(0.6), trainer=lambda log, which, logits: logits / 0.6)
    log.responses["temperature"] = np.full(len(log.responses["step"]), 0.6)
    log.manifest["sampler"]["temperature"] = 0.6
    log.manifest["sampled_with"] = "processed"
    return log


# Sick, and the log is true --------------------------------------------------------------------------------------------


@HELD_OUT("sick but true", "The policy settles on one answer: entropy goes, and the reward stays where it was.",
          never=NOTHING_BUT_THE_RUN, columns=("all", "verl"))  # fmt: skip
def settled_on_one_answer() -> Log:
    return simulate(Shape(871, lag=1, trend=0.0), prepare=sharper(changing(5, 0.0, 12.0, over=15)))


@HELD_OUT("sick but true", "Responses shrink to the shortest there are, and the reward falls with them.",
          needs=(r"(reward|accuracy).{0,40}(fell|fallen|falls|falling|dropped|lost|→)",),
          never=NOTHING_BUT_THE_RUN, columns=("all", "prime-rl"))  # fmt: skip
def responses_shrink() -> Log:
    chance = changing(8, 0.6, 0.12, over=8)
    log = simulate(Shape(872, lag=1), reward=rewards_by(chance), closing=lambda responses: changing(
        6, 0.05, 0.7, over=8)(responses["step"]))  # fmt: skip
    return evaluated(log, chance(log.steps["step"]))


@HELD_OUT("sick but true", "Half of each batch is replayed from up to 20 updates ago: large ratios, true ones.",
          never=NOTHING_BUT_THE_RUN, columns=("all", "verl"))  # fmt: skip
def half_from_a_replay_buffer() -> Log:
    def setup(responses: Columns) -> None:
        replayed = share(responses["group_id"], 67) < 0.5
        age = (mixed(responses["group_id"], 68) % np.uint64(21)).astype(int)
        responses["behavior_version_min"] = np.maximum(responses["step"] - np.where(replayed, age, 0), 0)
        responses["source"] = np.where(replayed, "replay", "fresh").astype(object)

    return simulate(Shape(873, steps=30, drift=0.08), setup=setup)


@HELD_OUT("sick but true", "Sampler and trainer both work at temperature 1.5, and the log says so.",
          never=NOTHING_BUT_THE_RUN, columns=("all", "trl"))  # fmt: skip
def hot_on_both_sides() -> Log:
    log = simulate(Shape(874, trend=0.0), draw=drawn_at(1.5), trainer=lambda log, which, logits: logits / 1.5)
    log.responses["temperature"] = np.full(len(log.responses["step"]), 1.5)
    log.manifest["sampler"]["temperature"] = 1.5
    log.manifest["sampled_with"] = "processed"
    return log


@HELD_OUT("sick but true", "Accuracy is evaluated on 16 prompts: it swings by .3, which is its noise.",
          never=(*NOTHING_BUT_THE_RUN, r"accuracy.{0,30}(fell|falls|lost|dropped)"),
          columns=("all", "verl"))  # fmt: skip
def evaluated_on_sixteen_prompts() -> Log:
    log = simulate(Shape(875))
    log.manifest["task"]["evaluation_prompts"] = 16
    log.steps["eval_accuracy"] = log.rng.binomial(16, 0.5, log.shape.steps) / 16
    return log


@HELD_OUT("sick but true", "From step 16 on three of four machines are gone: steps have a quarter of their groups.",
          never=NOTHING_BUT_THE_RUN, columns=("all", "prime-rl"))  # fmt: skip
def three_machines_lost() -> Log:
    log = simulate(Shape(876, groups=12))
    there = (log.responses["step"] < 16) | (log.responses["group_id"] % 4 == 0)
    return apply_loss(log.keep(there[log.row], there))
