"""Held-out cases of a ninth date, of trust: most are healthy and odd, a few are sick with a true log.

Written by someone who had read neither marks nor causes nor findings, of settings and public reports that no other case
has, and frozen before they were scored. What the verdicts mean, and why the first score is kept, says `held_out`.
"""

from datetime import UTC, datetime, timedelta

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
    evaluated,
    rewards_by,
    sharper,
)
from tests.cases.healthy import NOTHING_BUT_THE_RUN
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
    log_softmax,
    mixed,
    set_advantages,
    share,
    simulate,
)

HELD_OUT_NINTH = Register()
Whole = NDArray[np.int64]

FIRST_SCORE = {
    "held-out a ninth time faults": "5 found, 2 vague, 4 silent, 4 untrue of 15 logs",
    "held-out a ninth time sick but true": "10 found, 1 silent, 2 untrue of 13 logs",
    "held-out a ninth time healthy": "38 quiet, 2 false alarm of 40 logs",
}
"""What was said of them when they were first scored, by the patterns as they were frozen (2026-11-28).

One case, `says_that_it_does_not_know`, was mended and scored again: no sampler could have written its log, and that was
said of it.
"""

_ENGINE = (NEVER_ARRIVED, TEMPERATURE, BROKEN)
# Where some rows are wrong, that part of the log is.
_IN_PART = (NEVER_ARRIVED, TEMPERATURE, WHOLLY_BROKEN)
_OTHERS = r"belongs? to other|of other responses|row before|shifted by one row"
_FORMAT = r"number format|float16"
_STEP = r"one baseline for the step"
_FALL = r"(reward|accuracy).{0,40}(fell|fallen|falls|falling|dropped|lost|→)"
_NO_SIGNAL = r"zero.signal|no (signal|gradient)|equal rewards?|same reward|tokens_dropped_no_signal|teach(es)? nothing"


def _logp(log: Log, version: Whole) -> Array:
    """What versions of the weights give the tokens of the log."""
    logp = log_softmax(log.policy.logits(log.policy.weights[version], log.state))
    return np.asarray(logp[np.arange(len(log.row)), log.tokens["token_id"]])


def _version(log: Log, which: str) -> Whole:
    """The version that a column of the trainer is of."""
    step = log.tokens["step"]
    of: Columns = {"train": log.tokens["behavior_version"], "reference": 0 * step, "new": step + 1}
    return np.asarray(of.get(which, step))


def _drawn(log: Log, chance: Array) -> Array:
    """Right or wrong, with these chances."""
    return (log.rng.random(len(chance)) < np.clip(chance, 0.005, 0.995)).astype(float)


def _ratio(log: Log, column: str = "logp_current") -> Array:
    """Ratios to the sampler."""
    return np.asarray(np.exp(log.tokens[column] - log.tokens["logp_behavior"]))


def _weighted(log: Log, weight: Array) -> Log:
    """The loss without a clip: each advantage with a weight of its own, the mean over the tokens of the step."""
    tokens, step = log.tokens, log.tokens["step"]
    tokens["clipped"], tokens["clip_side"] = np.zeros(len(step), dtype=bool), np.zeros(len(step), dtype=int)
    tokens["gradient_weight"] = tokens["advantage"] * weight / np.bincount(step)[step]
    return log


def _clip(log: Log, ratio: Array, epsilon: float) -> Log:
    """The loss with a clip, by these ratios."""
    tokens, step, advantage = log.tokens, log.tokens["step"], log.tokens["advantage"]
    above, below = (advantage > 0) & (ratio > 1 + epsilon), (advantage < 0) & (ratio < 1 - epsilon)
    tokens["clipped"], tokens["clip_side"] = above | below, above.astype(int) - below.astype(int)
    tokens["gradient_weight"] = np.where(above | below, 0.0, advantage * ratio) / np.bincount(step)[step]
    return log


def _tools(log: Log) -> Log:
    """A tool is called between any two turns."""
    log.responses["n_tool_calls"] = log.responses["n_turns"] - 1
    each = np.exp(0.5 + 0.6 * log.rng.standard_normal(len(log.responses["step"])))
    log.responses["seconds_tools"] = log.responses["n_tool_calls"] * each
    return log


# Faults: sampler, weights and versions --------------------------------------------------------------------------------


@HELD_OUT_NINTH("sampler", "What goes on after an interruption replays the routes of its first tokens: experts differ.",
    report="verl #6029", columns=("all", "verl"),
    never=(*_IN_PART, _FORMAT, r"\bcache", r"(grows|rises) with (the )?position"),
    needs=(r"\brout|\bexpert|switch|resum|interrupt|partial|(behind|after|since|newer|second|other|two) .{0,60}version"
           r"|chang\w+ .{0,30}version",))  # fmt: skip
def routes_of_the_first_tokens() -> Log:
    def behind(log: Log) -> NDArray[np.bool_]:
        return np.asarray(log.tokens["behavior_version"] > log.of_token("behavior_version_min"))

    def trainer(log: Log, which: str, logits: Array) -> Array:
        other = np.random.default_rng(1601).standard_normal(logits.shape)  # the same routes in each pass
        return logits + 0.5 * behind(log)[:, None] * other

    log = simulate(Shape(1601, lag=1, schedule="partial", drift=0.02), trainer=trainer)
    dice = share(log.row, log.tokens["position"], 1601)
    log.tokens["routing_agreement"] = np.where(behind(log), 0.35 + 0.3 * dice, 1 - 0.02 * dice)
    return log


@HELD_OUT_NINTH("weights", "Buffers are sent before they are filled: at each update another tensor is the one before.",
    report="ms-swift #9060", columns=("all", "verl"),
    never=(TEMPERATURE, BROKEN, r"never arriv", _FORMAT, r"\bcache"),
    needs=(r"in part|(part|some|one|a quarter|three quarters) of (the )?(weights|tensors|updates?)"
           r"|some (tensors|weights)"
           r"|(weights|updates?|versions?|tensors?)\b.{0,140}(late|behind|older|partly|lag|incomplete|not (all|whole))"
           r"|(follow|arriv|late|behind|older|lag)\w*.{0,140}(weights|update|tensor)",))  # fmt: skip
def another_tensor_behind() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        weights, at = call.policy.weights[call.version].copy(), np.arange(len(call.version))
        late = (mixed(call.version, 1602) % np.uint64(weights.shape[1])).astype(int)
        weights[at, late] = call.policy.weights[np.maximum(call.version - 1, 0), late]
        return call.served(weights) + 0.004 * call.noise()

    return simulate(Shape(1602, lag=1, drift=0.12), sampler=sampler)


@HELD_OUT_NINTH("log", "Who is tried again keeps the values of the first try in front: values stand tokens late.",
    report="slime #1861", columns=("all", "prime-rl"),
    never=(*_IN_PART, _FORMAT, r"\bcache", r"top-?[pk] (of|was|is)"),
    needs=(r"\bshift|other tokens|tokens? late|offset|\bbelongs?\b|not the log-prob|misaligned|broken in part|retri"
           r"|(\d ?%|few|some|part|\d+ of \d+) (of )?(the )?responses",))  # fmt: skip
def values_of_the_first_try() -> Log:
    log = simulate(Shape(1603, lag=1, drift=0.02))
    again = np.flatnonzero(share(log.responses["step"], log.responses["seq_id"], 1603) < 0.12)
    first, values = np.cumsum(log.lengths()) - log.lengths(), log.tokens["logp_behavior"]
    before = values.copy()
    for at in again.tolist():
        length, other = int(log.lengths()[at]), at + 1 if at % 6 < 5 else at - 1
        kept = min(3 + int(mixed(at, 1604) % np.uint64(18)), int(log.lengths()[other]))
        joined = np.concatenate([before[first[other] : first[other] + kept], before[first[at] : first[at] + length]])
        values[first[at] : first[at] + length] = joined[:length]
    return apply_loss(log)


@HELD_OUT_NINTH("log", "Each turn but the first begins with a line feed of the template, which is learned and has 0.",
    report="codescout #60", columns=("all", "verl"),
    never=(*_IN_PART, _FORMAT, r"top-?[pk] (of|was|is)", r"\bcache"),
    needs=(r"\bturns?\b.{0,120}(first|begin|start|head)|(first|begin|start|head)\w*.{0,120}\bturns?\b|\btoken (id )?2\b"
           r"|exactly 0|probability 1|template|not (sampled|drawn)|position 12\b",))  # fmt: skip
def line_feed_of_the_template() -> Log:
    def draw(call: Call, logp: Array) -> Array:
        if call.position == 0 or call.position % 12:
            return logp
        return np.where(np.arange(logp.shape[1]) == 2, 0.0, np.full(logp.shape, -1e9))

    shape = Shape(1605, longest=84, shortest=16, closing=0.05, lag=1, drift=0.02, turns=12, environments=("repo",))
    log = simulate(shape, draw=draw, logs_raw=True)
    forced = (log.tokens["position"] > 0) & (log.tokens["position"] % 12 == 0)
    log.tokens["logp_behavior"][forced] = 0.0
    return apply_loss(_tools(log))


# Faults: advantages and the loss --------------------------------------------------------------------------------------


@HELD_OUT_NINTH("advantage", "Each turn has its response's advantage only where the last turn has tokens, and else 0.",
    report="SkyRL #1507", columns=("all", "verl"),
    never=(*_ENGINE, _FORMAT, MISSING_RESPONSES, _STEP, r"only the last turn", r"\brejected\b"),
    needs=(r"(advantage|credit).{0,240}(\bturns?\b|\b0\b|zero|within (a|one|the) response|differ|vary|several|inside)",
           ))  # fmt: skip
def where_the_last_turn_has_tokens() -> Log:
    shape = Shape(1606, longest=84, shortest=14, closing=0.05, lag=1, drift=0.02, turns=12, environments=("tables",))
    log = _tools(simulate(shape))
    place, length = log.tokens["position"] % 12, log.lengths()[log.row]
    there = (log.tokens["position"] // 12 == (length - 1) // 12) | (place >= 11 - (length - 1) % 12)
    return set_advantages(log, np.where(there, log.tokens["advantage"], 0.0))


@HELD_OUT_NINTH("advantage", "The KL of tools' tokens is in the returns: who is before many calls has the less.",
    report="slime #1370", columns=("all", "verl"),
    never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, r"only the last turn", r"\bdiscount"),
    needs=(r"advantage.{0,300}(\bturns?\b|\btools?\b|\bcalls?\b)|(\bturns?|\btools?|\bcalls?)\b.{0,300}advantage",
           ))  # fmt: skip
def kl_of_tools_in_the_returns() -> Log:
    shape = Shape(1607, longest=84, shortest=10, closing=0.05, lag=1, drift=0.02, turns=12, environments=("search",))
    log = _tools(simulate(shape))
    log.manifest["algorithm"]["name"] = "reinforce_plus_plus"
    log.manifest["algorithm"]["parts"]["advantage"] = "batch_normalised"
    log.manifest["algorithm"]["parameters"]["kl_coefficient"] = 0.01
    turn, step = log.tokens["position"] // 12, log.tokens["step"]
    own = log.tokens["logp_current"] - log.tokens["logp_reference"]
    heap, last = np.cumsum(own), np.cumsum(log.lengths()) - 1
    answers = 14 + 10 * share(log.row[:, None], np.arange(8)[None, :], 1607)  # nats of each tool's answer
    to_come = np.arange(8)[None, :] >= turn[:, None]
    to_come &= np.arange(8)[None, :] < (log.of_token("n_turns") - 1)[:, None]
    returns = log.of_token("reward") - 0.01 * ((heap[last][log.row] - heap + own) + (answers * to_come).sum(axis=1))
    return set_advantages(log, compared(returns, step))


@HELD_OUT_NINTH("advantage", "A group is split by its agents' names: who is alone has the bare reward as advantage.",
    report="rllm #605, #667", columns=("all", "verl"),
    never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, _STEP, r"wrong axis"),
    needs=(r"\bsource|\bagents?\b|solver|checker|planner|parts? of (the|each|a|its) group|smaller groups?|split"
           r"|baseline.{0,200}(\bnot\b|\bown\b|other|part|\bno\b|bare)|(no|without a) baseline"
           r"|advantages?.{0,120}(do|does) not (sum|balance|add|fit|agree|follow)|bare reward",))  # fmt: skip
def groups_by_agent() -> Log:
    log = simulate(Shape(1608, lag=1, drift=0.02))
    responses = log.responses
    names = np.array(["solver", "solver", "solver", "checker", "checker", "planner"], dtype=object)
    responses["source"] = names[responses["seq_id"] % 6]
    key = 3 * responses["group_id"] + np.array([0, 0, 0, 1, 1, 2])[responses["seq_id"] % 6]
    alone = responses["source"] == "planner"
    return set_advantages(log, np.where(alone, responses["reward"], compared(responses["reward"], key)))


@HELD_OUT_NINTH("loss", "The loss gets advantages where its mask should be: gradients are of their squares.",
    report="verl #2506",
    never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, r"advantage alone", r"\bpadd", r"micro.?batch"),
    needs=(r"gradient.{0,240}(\bsign|opposite|wrong way|squar|disagree|not (agree|follow|fit)|advantage|worse|explain)"
           r"|(\bsign|squar)\w*.{0,200}gradient|gradient_weight",))  # fmt: skip
def advantages_for_a_mask() -> Log:
    chance = changing(2, 0.5, 0.44, over=20)
    log = simulate(Shape(1609, lag=1, drift=0.02), reward=rewards_by(chance))
    tokens, step, advantage = log.tokens, log.tokens["step"], log.tokens["advantage"]
    squares = np.where(tokens["clipped"], 0.0, advantage**2 * _ratio(log))
    tokens["gradient_weight"] = squares / np.bincount(step, advantage)[step]
    return evaluated(log, chance(log.steps["step"]))


# Healthy: what is learned from ----------------------------------------------------------------------------------------

_FINE = "Nothing is wrong."


@HELD_OUT_NINTH("healthy", _FINE, columns=("all", "verl"))
def fine_levels_of_difficulty() -> Log:
    """Each sixth step the tasks get harder, as planned: the reward is a saw that goes down, accuracy rises."""

    def setup(responses: Columns) -> None:
        responses["environment"] = np.array([f"level-{step // 6 + 1}" for step in responses["step"]], dtype=object)

    log = simulate(Shape(1621, lag=1, drift=0.02), setup=setup,
                   reward=rewards_by(lambda step: 0.66 - 0.09 * (step // 6) + 0.025 * (step % 6)))  # fmt: skip
    return evaluated(log, 0.3 + 0.25 * log.steps["step"] / 23)


@HELD_OUT_NINTH("healthy", _FINE, columns=("all", "prime-rl"))
def fine_replayed_with_its_age() -> Log:
    """A quarter of each step is replayed from one to six steps before, the same responses, with their own versions."""
    log = simulate(Shape(1622, steps=28, lag=0, drift=0.012))
    responses, at = log.responses, np.arange(28 * 48)
    old = (responses["group_id"] % 8 >= 6) & (responses["step"] >= 6)
    back = 1 + (mixed(responses["group_id"], 1622) % np.uint64(6)).astype(int)
    other = (mixed(responses["group_id"], 1623) % np.uint64(6)).astype(int)
    take = np.where(old, at - 48 * back + 6 * (other - responses["group_id"] % 8), at)
    length = log.lengths()
    first = np.cumsum(length) - length
    log.row = np.repeat(at, length[take])
    rows = first[take][log.row] + np.arange(len(log.row)) - np.repeat(np.cumsum(length[take]), length[take])
    rows += length[take][log.row]
    log.state, log.tokens = log.state[rows], {name: values[rows] for name, values in log.tokens.items()}
    kept = {name: responses[name] for name in ("step", "seq_id", "group_id", "rank")}
    log.responses = {name: values[take] for name, values in responses.items()} | kept
    log.responses["source"] = np.where(old, "replay", "fresh").astype(object)
    log.tokens |= {name: log.of_token(name) for name in ("step", "seq_id", "group_id")}
    step = log.tokens["step"]
    log.tokens["logp_current"], log.tokens["logp_new"] = _logp(log, step), _logp(log, step + 1)
    logp = log_softmax(log.policy.logits(log.policy.weights[step], log.state))
    log.tokens["entropy"] = -(np.exp(logp) * logp).sum(axis=1)
    log.manifest["schedule"] = {"kind": "replay", "replayed_share": 0.25, "max_staleness": 6}
    return set_advantages(log, compared(log.responses["reward"], log.responses["group_id"]))


@HELD_OUT_NINTH("healthy", _FINE)
def fine_best_and_worst_of_sixteen() -> Log:
    """Of sixteen responses the four best and the four worst are learned from; the rest is dropped, and said to be."""
    log = simulate(Shape(1624, groups=5, responses=16, longest=48, closing=0.12, graded=True, lag=1, drift=0.015))
    responses = log.responses
    order = np.lexsort((responses["reward"], responses["group_id"]))
    place = np.empty(len(order), dtype=int)
    place[order] = np.arange(len(order)) % 16
    kept = (place < 4) | (place >= 12)
    responses["dropped"] = np.array(["down-sampled", None], dtype=object)[kept.astype(int)]
    responses["in_baseline"] = kept
    advantage = np.zeros(len(kept))
    advantage[kept] = compared(responses["reward"][kept], responses["group_id"][kept])
    return set_advantages(log.keep(kept[log.row]), advantage)


@HELD_OUT_NINTH("healthy", _FINE)
def fine_right_from_the_start() -> Log:
    """Training begins at 92% right, with 24 responses a prompt; the evaluation is harder and rises."""
    log = simulate(Shape(1625, groups=5, responses=24, longest=40, closing=0.15, lag=1, drift=0.015),
                   reward=rewards_by(changing(1, 0.92, 0.95, over=24)))  # fmt: skip
    return evaluated(log, 0.55 + 0.13 * log.steps["step"] / 23)


@HELD_OUT_NINTH("healthy", _FINE, columns=("all", "prime-rl"))
def fine_right_once_in_fifty() -> Log:
    """One response in fifty is right at first, of 64 a prompt; it gets to one in twelve."""
    chance = changing(1, 0.02, 0.085, over=24)
    log = simulate(Shape(1626, groups=4, responses=64, shortest=6, longest=32, closing=0.16, lag=1, drift=0.015),
                   reward=rewards_by(chance))  # fmt: skip
    return evaluated(log, chance(log.steps["step"]))


@HELD_OUT_NINTH("healthy", _FINE, columns=("all", "trl"))
def fine_six_steps_of_three_prompts() -> Log:
    """A first try: six updates on three prompts, sixteen responses to each."""
    return simulate(Shape(1627, steps=6, groups=3, responses=16, prompts=3, lag=0, drift=0.02))


@HELD_OUT_NINTH("healthy", _FINE, columns=("all", "prime-rl"))
def fine_answers_of_one_token() -> Log:
    """An answer is A, B, C or D and the end, which is certain; the policy learns which, and its entropy goes down."""

    def right(state: Whole) -> Whole:
        return 1 + (mixed(state, 1628) % np.uint64(4)).astype(np.int64)

    def prepare(policy: Policy) -> None:
        ends, open_ = slice(0, policy.n_closing), slice(policy.n_closing, None)
        policy.base[ends], policy.directions[:, ends] = -30.0, 0.0
        policy.base[ends, END] = 0.0
        policy.base[open_, 5:] = -30.0
        policy.base[open_, 1:5] *= 0.4
        policy.directions[0] = 0.0
        states = np.arange(policy.n_closing, len(policy.base))
        policy.directions[0][states, right(states)] = 1.0
        policy.weights[:, 0] = 0.05 * np.arange(len(policy.weights))

    def reward(log: Log) -> Columns:
        first = log.tokens["position"] == 0
        return {"reward": (log.tokens["token_id"][first] == right(log.state[first])).astype(float)}

    shape = Shape(1628, steps=30, groups=24, responses=8, vocabulary=8, shortest=2, longest=2, closing=1.0, sure=0.0,
                  lag=1, drift=0.02)  # fmt: skip
    log = simulate(shape, prepare=prepare, reward=reward)
    states = np.arange(log.policy.n_closing, shape.states)
    logp = [log_softmax(log.policy.logits(weights, states)) for weights in log.policy.weights[: shape.steps]]
    return evaluated(log, np.array([np.exp(each[np.arange(len(states)), right(states)]).mean() for each in logp]))


@HELD_OUT_NINTH("healthy", _FINE, columns=("all", "verl"))
def fine_self_play() -> Log:
    """White plays black, who wins has 1 and who loses -1: the mean reward is 0 for ever, and the policy gets better."""

    def setup(responses: Columns) -> None:
        responses["environment"] = np.array(["white", "black"], dtype=object)[responses["group_id"] % 2]

    def reward(log: Log) -> Columns:
        dice = share(log.responses["group_id"] // 2 * 6 + log.responses["seq_id"] % 6, 1629)
        white = np.where(dice < 0.45, 1.0, np.where(dice < 0.6, 0.0, -1.0))
        return {"reward": np.where(log.responses["environment"] == "white", white, -white)}

    log = simulate(Shape(1629, lag=1, drift=0.02), setup=setup, reward=reward)
    return evaluated(log, 0.4 + 0.22 * log.steps["step"] / 23)


# Healthy: rewards and advantages --------------------------------------------------------------------------------------


@HELD_OUT_NINTH("healthy", _FINE, columns=("all", "trl"))
def fine_parts_with_weights() -> Log:
    """Parts are logged as they are, and the reward is their sum with the weights of the manifest; length costs."""

    def reward(log: Log) -> Columns:
        n = len(log.responses["step"])
        right, form = _drawn(log, chances(log)), (log.rng.random(n) < 0.9).astype(float)
        length = -np.clip((log.responses["n_tokens"] - 30) / 34, 0, 1)
        return {"reward": right + 0.25 * form + 0.5 * length, "reward_accuracy": right, "reward_format": form,
                "reward_length": length}  # fmt: skip

    log = simulate(Shape(1641, lag=1, drift=0.02, trend=0.2), reward=reward)
    log.manifest["task"]["reward_weights"] = {"accuracy": 1.0, "format": 0.25, "length": 0.5}
    return log


@HELD_OUT_NINTH("healthy", _FINE, columns=("all", "trl"))
def fine_costs_without_a_deviation() -> Log:
    """Rewards are costs, from -12 to -2; Dr. GRPO: no deviation, and each response's sum over the limit of tokens."""

    def reward(log: Log) -> Columns:
        cost = 2 + 9 * (1 - chances(log))
        return {"reward": -np.clip(cost * np.exp(0.35 * log.rng.standard_normal(len(cost))), 0.5, 25)}

    log = simulate(Shape(1642, lag=1, drift=0.02, trend=0.25, advantage="group_mean"), reward=reward)
    log.manifest["algorithm"]["name"] = "dr_grpo"
    log.manifest["algorithm"]["parts"]["aggregation"] = "longest_mean"
    log.manifest["sampler"]["max_tokens"] = log.shape.longest
    step = log.tokens["step"]
    responses = np.bincount(log.responses["step"])[step]
    log.tokens["gradient_weight"] *= np.bincount(step)[step] / (responses * log.shape.longest)
    return log


@HELD_OUT_NINTH("healthy", _FINE)
def fine_credit_by_turn() -> Log:
    """A turn's advantage is of what comes from it on, beside the same turn of the group: it differs between turns."""
    shape = Shape(1643, longest=84, shortest=14, closing=0.05, lag=1, drift=0.02, turns=12, environments=("search",))
    log = _tools(simulate(shape))
    responses, turn = log.responses, log.tokens["position"] // 12
    _, index, pair = np.unique(8 * log.row + turn, return_index=True, return_inverse=True)
    row, turn = log.row[index], turn[index]
    found = 0.2 * (share(row, turn, 1643) < 0.4)
    total = np.bincount(row, found)
    before = np.cumsum(found) - found - (np.cumsum(total) - total)[row]
    responses["reward_answer"], responses["reward_search"] = responses["reward"], total
    to_come = responses["reward"][row] + total[row] - before
    responses["reward"] = responses["reward"] + total
    log.manifest["algorithm"]["name"] = "turn_grpo"
    log.manifest["algorithm"]["parts"]["advantage"] = "turn_returns"
    return set_advantages(log, compared(to_come, 8 * responses["group_id"][row] + turn)[pair])


@HELD_OUT_NINTH("healthy", _FINE, columns=("all", "verl"))
def fine_greedy_baseline() -> Log:
    """ReMax: the baseline is the reward of the greedy response, which is logged: advantages are -1, 0 and 1."""
    log = simulate(Shape(1644, groups=12, responses=4, lag=1, drift=0.02, level=0.45, trend=0.2))
    log.manifest["algorithm"]["name"] = "remax"
    log.manifest["algorithm"]["parts"]["advantage"] = "greedy_baseline"
    log.responses["greedy_reward"] = greedy = (share(log.responses["group_id"], 1644) < chances(log)).astype(float)
    return set_advantages(log, log.responses["reward"] - greedy)


# Healthy: sampler, versions and conversations -------------------------------------------------------------------------


@HELD_OUT_NINTH("healthy", _FINE, columns=("all", "verl"))
def fine_eight_bits_and_truncated() -> Log:
    """The sampler works in FP8 and differs a little everywhere; the ratio is truncated at 2, as configured."""
    log = simulate(Shape(1651, lag=1, drift=0.015, noise=0.03, bias=0.03))
    log.manifest["sampler"]["quantization"] = "fp8"
    log.manifest["algorithm"]["parts"] |= {"weight": "truncated", "gate": "none"}
    log.manifest["algorithm"]["parameters"] = {"cap": 2.0}
    return _weighted(log, np.minimum(_ratio(log), 2.0))


@HELD_OUT_NINTH("healthy", _FINE, columns=("all", "prime-rl"))
def fine_one_call_or_twenty() -> Log:
    """Conversations have no call or twenty, turns two tokens or forty; tools' tokens are no rows."""

    def closing(responses: Columns) -> Array:
        return np.array([0.4, 0.4, 0.06, 0.012])[(4 * share(responses["prompt_id"], 1652)).astype(int)]

    shape = Shape(1652, steps=16, groups=6, longest=260, shortest=6, lag=2, schedule="partial", drift=0.012, turns=6,
                  environments=("shell", "browser"))  # fmt: skip
    log = simulate(shape, closing=closing)
    position = log.tokens["position"]
    turn = np.cumsum((position > 0) & (share(log.row, position, 1653) < 0.09))
    turn -= turn[position == 0][log.row]
    log.tokens["turn"] = 2 * turn + 1
    log.responses["n_turns"] = 1 + turn[np.cumsum(log.lengths()) - 1]
    return _tools(log)


@HELD_OUT_NINTH("healthy", _FINE, columns=("all", "prime-rl"))
def fine_weights_in_flight() -> Log:
    """Each 24 tokens new weights arrive under a response: it has up to four versions, and each token its own."""

    def version(start: Whole, position: int | Whole, step: Whole) -> Whole:
        return np.asarray(np.minimum(start + position // 24, step))

    def sampler(call: Call, logits: Array) -> Array:
        at = version(call.of("behavior_version_min"), call.position, call.of("step"))
        return call.served(call.policy.weights[at]) + 0.005 * call.noise()

    log = simulate(Shape(1654, steps=26, longest=96, shortest=16, closing=0.04, lag=3, schedule="offset", drift=0.015),
                   sampler=sampler)  # fmt: skip
    at = version(log.of_token("behavior_version_min"), log.tokens["position"], log.tokens["step"])
    log.tokens["behavior_version"], log.tokens["logp_behavior_train"] = at, _logp(log, at)
    log.responses["behavior_version_max"] = at[np.cumsum(log.lengths()) - 1]
    return log


@HELD_OUT_NINTH("healthy", _FINE, columns=("all", "verl"))
def fine_first_steps_of_another_stage() -> Log:
    """The first two steps learn from responses of the stage before, which says so and has no version here."""
    before = np.array([-0.12, 0.1, -0.1, 0.08])

    def sampler(call: Call, logits: Array) -> Array:
        return np.where((call.of("step") < 2)[:, None], call.served(before) + 0.005 * call.noise(), logits)

    def trainer(log: Log, which: str, logits: Array) -> Array:
        at = (log.tokens["step"] < 2) & (which == "train")
        return np.where(at[:, None], log.policy.logits(before, log.state), logits)

    log = simulate(Shape(1655, lag=1, drift=0.015), sampler=sampler, trainer=trainer)
    early = log.responses["step"] < 2
    log.responses["source"] = np.where(early, "stage-1", "policy").astype(object)
    for name in ("behavior_version_min", "behavior_version_max"):
        log.responses[name] = np.ma.masked_array(log.responses[name], early)
    log.tokens["behavior_version"] = np.ma.masked_array(log.tokens["behavior_version"], early[log.row])
    log.manifest["assumed"] = ["Steps 0 and 1 are from the last checkpoint of stage 1, which has no version here."]
    return log


@HELD_OUT_NINTH("healthy", _FINE, columns=("all", "verl"))
def fine_adapters_take_turns() -> Log:
    """Even steps train the adapter of 'sql', odd ones that of 'chat', which is easier: the reward goes to and fro."""

    def own(environment: NDArray[np.object_], version: Whole) -> Whole:
        return np.where(environment == "sql", 2 * ((version + 1) // 2), version // 2 * 2)

    def setup(responses: Columns) -> None:
        responses["environment"] = np.array(["sql", "chat"], dtype=object)[responses["step"] % 2]
        responses["adapter"] = np.array(["sql-lora", "chat-lora"], dtype=object)[responses["step"] % 2]

    def sampler(call: Call, logits: Array) -> Array:
        return call.served(call.policy.weights[own(call.of("environment"), call.version)]) + 0.008 * call.noise()

    def trainer(log: Log, which: str, logits: Array) -> Array:
        version = own(log.of_token("environment"), _version(log, which))
        return log.policy.logits(log.policy.weights[version], log.state)

    def reward(log: Log) -> Columns:
        easy = np.where(log.responses["environment"] == "chat", 0.17, -0.17)
        return {"reward": _drawn(log, chances(log) + easy)}

    return simulate(Shape(1656, lag=2, drift=0.02, trend=0.2), setup=setup, sampler=sampler, trainer=trainer,
                    reward=reward)  # fmt: skip


@HELD_OUT_NINTH("healthy", _FINE, columns=("all", "verl"))
def fine_nucleus_on_both_sides() -> Log:
    """Top-p is 0.95, the sampler's values are over what it leaves, and so are the trainer's; its mass is logged."""

    def allowed(logp: Array) -> NDArray[np.bool_]:
        falling = -np.sort(-logp, axis=1)
        last = (np.cumsum(np.exp(falling), axis=1) < 0.95).sum(axis=1).clip(max=logp.shape[1] - 1)
        return np.asarray(logp >= falling[np.arange(len(logp)), last][:, None] - 1e-12)

    def served(log: Log) -> Array:
        return log_softmax(log.policy.logits(log.policy.weights[log.tokens["behavior_version"]], log.state))

    log = simulate(Shape(1657, lag=1, drift=0.01, noise=0.0),
                   draw=lambda call, logp: np.where(allowed(logp), logp, -1e9),
                   trainer=lambda log, which, logits: np.where(allowed(served(log)), logits, -1e9))  # fmt: skip
    log.tokens["kept_mass"] = np.minimum((np.exp(served(log)) * allowed(served(log))).sum(axis=1), 1.0)
    log.responses["top_p"] = np.full(len(log.responses["step"]), 0.95)
    log.manifest["sampler"]["top_p"], log.manifest["sampled_with"] = 0.95, "processed"
    return log


@HELD_OUT_NINTH("healthy", _FINE)
def fine_three_decimals() -> Log:
    """Log-probabilities have three decimals, as the manifest says, and accuracy is evaluated each twentieth step."""
    log = simulate(Shape(1658, steps=41, groups=6, longest=44, closing=0.12, lag=1, drift=0.015))
    log.tokens |= {name: np.round(log.tokens[name], 3) for name in log.tokens if name.startswith("logp_")}
    log.manifest["log_probability_decimals"] = 3
    log.steps["eval_accuracy"] = np.ma.masked_array(log.steps["eval_accuracy"], log.steps["step"] % 20 != 0)
    return log


@HELD_OUT_NINTH("healthy", _FINE)
def fine_prefix_learned_once() -> Log:
    """Two branches of a tree have their first 24 tokens in common, which the second one masks and says why."""

    def setup(responses: Columns) -> None:
        responses["engine"] = np.repeat(responses["engine"][::2], 2)

    def draw(call: Call, logp: Array) -> Array:
        branch = call.of("seq_id") if call.position >= 24 else call.of("seq_id") // 2 + 1000
        uniform = share(call.of("prompt_id"), call.of("step"), branch, np.full(len(logp), call.position), 1659)
        heaps = np.cumsum(np.exp(logp), axis=1)
        token = (heaps < uniform[:, None] * heaps[:, -1:]).sum(axis=1)
        return np.where(np.arange(logp.shape[1]) == token[:, None], 0.0, np.full(logp.shape, -1e9))

    shape = Shape(1659, groups=6, responses=8, longest=72, shortest=28, closing=0.08, lag=1, drift=0.02, noise=0.0,
                  bias=0.01)  # fmt: skip
    log = simulate(shape, draw=draw, logs_raw=True, setup=setup)
    tokens, step = log.tokens, log.tokens["step"]
    again = (tokens["seq_id"] % 2 == 1) & (tokens["position"] < 24)
    tokens["rejected"] = np.array([None, "shared prefix"], dtype=object)[again.astype(int)]
    tokens["clipped"][again], tokens["clip_side"][again] = False, 0
    tokens["gradient_weight"] *= ~again * (np.bincount(step) / np.bincount(step, ~again))[step]
    return log


# Healthy: the loss ----------------------------------------------------------------------------------------------------


@HELD_OUT_NINTH("healthy", _FINE, columns=("with reference",))
def fine_reference_that_is_averaged() -> Log:
    """Each fourth step half of the policy goes into the reference; the KL to it (k3, .02) is in the gradient."""

    def averaged(weights: Array) -> Array:
        found = [weights[0]]
        for step in range(1, len(weights)):
            found.append(found[-1] if step % 4 else 0.5 * found[-1] + 0.5 * weights[step])
        return np.array(found)

    def trainer(log: Log, which: str, logits: Array) -> Array:
        if which != "reference":
            return logits
        return log.policy.logits(averaged(log.policy.weights)[log.tokens["step"]], log.state)

    log = simulate(Shape(1671, lag=1, drift=0.03), trainer=trainer)
    tokens, step = log.tokens, log.tokens["step"]
    log.manifest["algorithm"]["parameters"] |= {"beta": 0.02, "ref_model_sync_steps": 4, "ref_model_mixup_alpha": 0.5}
    pull = 0.02 * -np.expm1(tokens["logp_reference"] - tokens["logp_current"])
    tokens["gradient_weight"] = tokens["gradient_weight"] - pull / np.bincount(step)[step]
    return log


@HELD_OUT_NINTH("healthy", _FINE, columns=("all", "verl"))
def fine_weights_clipped_above() -> Log:
    """CISPO: the ratio is cut at 1.28 in the weight, each token keeps its gradient, and data is four updates old."""
    log = simulate(Shape(1672, steps=28, lag=4, drift=0.03))
    log.manifest["algorithm"]["name"] = "cispo"
    log.manifest["algorithm"]["parts"] |= {"weight": "upper_clipped", "gate": "none"}
    log.manifest["algorithm"]["parameters"] = {"epsilon_high": 0.28}
    return _weighted(log, np.minimum(_ratio(log), 1.28))


@HELD_OUT_NINTH("healthy", _FINE, columns=("verl",))
def fine_entropy_as_wished() -> Log:
    """A bonus of .002 on the entropy makes it rise by a third over the run, as wished; reward and accuracy rise."""
    log = simulate(Shape(1673, steps=30, lag=1, drift=0.015, level=0.52, trend=0.22),
                   prepare=sharper(changing(1, 0.0, -0.25, over=30)))  # fmt: skip
    log.manifest["algorithm"]["parameters"]["entropy_coefficient"] = 0.002
    return log


@HELD_OUT_NINTH("healthy", _FINE)
def fine_four_passes() -> Log:
    """Four passes over each batch: at the last one ratios have moved by three quarters of it, and few clip."""
    log = simulate(Shape(1674, lag=0, drift=0.12))
    log.manifest["algorithm"]["epochs"] = 4
    tokens, step = log.tokens, log.tokens["step"]
    weights = 0.25 * log.policy.weights[step] + 0.75 * log.policy.weights[step + 1]
    logp = log_softmax(log.policy.logits(weights, log.state))
    tokens["logp_gate"] = logp[np.arange(len(step)), tokens["token_id"]]
    return _clip(log, _ratio(log, "logp_gate"), EPSILON)


# Sick, and the log is true --------------------------------------------------------------------------------------------


@HELD_OUT_NINTH("sick but true", "It learns to say that it does not know: the reward rises to 0, accuracy falls to 0.",
    needs=(r"accuracy.{0,60}(fell|fallen|falls|falling|dropped|lost|→)|reward.{0,240}accuracy",),
    never=(*NOTHING_BUT_THE_RUN, r"evaluation set changed"), columns=("all", "verl"))  # fmt: skip
def says_that_it_does_not_know() -> Log:
    grown = changing(5, 0.05, 0.96, over=14)

    def spoken(logits: Array, position: Whole, first: Whole, version: Whole) -> Array:
        """Who begins with token 1 says 1, 2, 3 and ends; how many do depends on the version."""
        logp, chance = log_softmax(logits), grown(version)
        others = np.log(np.exp(np.delete(logp, 1, axis=1)).sum(axis=1))
        logp[:, 1] = np.where(position == 0, others + np.log(chance / (1 - chance)), logp[:, 1])
        said = np.array([1, 2, 3, END])[np.clip(position, 0, 3)]
        certain = np.where(np.arange(logp.shape[1]) == said[:, None], 0.0, np.full(logp.shape, -30.0))
        return np.where(((first == 1) & (position > 0))[:, None], certain, logp)

    def sampler(call: Call, logits: Array) -> Array:
        return spoken(logits, np.full(len(logits), call.position), call.written[call.rows, 0], call.version)

    def first_of(log: Log) -> Whole:
        return np.asarray(log.tokens["token_id"][log.tokens["position"] == 0])

    def trainer(log: Log, which: str, logits: Array) -> Array:
        return spoken(logits, log.tokens["position"], first_of(log)[log.row], _version(log, which))

    def reward(log: Log) -> Columns:
        answer = 2 * _drawn(log, np.full(len(log.responses["step"]), 0.4)) - 1
        return {"reward": np.where(first_of(log) == 1, 0.0, answer)}

    log = simulate(Shape(1681, lag=1, drift=0.04), sampler=sampler, trainer=trainer, reward=reward)
    return evaluated(log, 0.4 * (1 - grown(log.steps["step"])))


@HELD_OUT_NINTH("sick but true", "Tools run out of time more and more, from 3% to 60%, which is said and scored 0.",
    needs=(r"time.?out|\bfail(s|ed|ure|ures)?\b",),
    never=(*NOTHING_BUT_THE_RUN, r"evaluation set changed"), columns=("all", "prime-rl"))  # fmt: skip
def tools_run_out_of_time() -> Log:
    def setup(responses: Columns) -> None:
        grown = changing(7, 0.03, 0.6, over=12)(responses["step"])
        responses["late"] = share(responses["step"], responses["seq_id"], 1682) < grown

    def reward(log: Log) -> Columns:
        return {"reward": np.where(log.responses["late"], 0.0, _drawn(log, chances(log) + 0.1))}

    shape = Shape(1682, longest=72, shortest=14, closing=0.045, lag=1, drift=0.02, turns=12, environments=("shell",))
    log = _tools(simulate(shape, setup=setup, reward=reward))
    late = log.responses.pop("late")
    log.responses["failure"] = np.array([None, "timeout"], dtype=object)[late.astype(int)]
    log.responses["seconds_tools"] = np.where(late, 600.0, log.responses["seconds_tools"])
    return evaluated(log, 0.55 + 0.05 * log.steps["step"] / 23)


@HELD_OUT_NINTH("sick but true", "At step 14 it goes on from the checkpoint of step 4: what was learned is lost.",
    needs=(_FALL,), never=(*NOTHING_BUT_THE_RUN, r"evaluation set changed|scorer changed"))  # fmt: skip
def goes_on_from_an_old_checkpoint() -> Log:
    lost: list[Array] = []  # what the update of step 13 had made

    def path(policy: Policy) -> None:
        lost.append(policy.weights[14].copy())
        policy.weights[14:] -= policy.weights[14] - policy.weights[4]

    def trainer(log: Log, which: str, logits: Array) -> Array:
        at = (log.tokens["step"] == 13) & (which == "new")
        return np.where(at[:, None], log.policy.logits(lost[0], log.state), logits)

    def chance(step: Array) -> Array:
        return np.asarray(0.3 + 0.03 * np.where(step < 14, step, step - 10))

    log = simulate(Shape(1683, steps=26, lag=0, drift=0.06), prepare=path, trainer=trainer,
                   reward=rewards_by(chance))  # fmt: skip
    hours = [timedelta(hours=0.1 * step + 5 * (step >= 14)) for step in log.steps["step"].tolist()]
    log.steps["wall_time"] = np.array([datetime(2026, 1, 5, tzinfo=UTC) + each for each in hours], dtype=object)
    log.manifest["notes"] = "After a crash in step 14 the run went on from the checkpoint of step 4."
    return evaluated(log, chance(log.steps["step"]))


@HELD_OUT_NINTH("sick but true", "The clip is configured at .003: it takes half of what the update would teach.",
    needs=(r"clip.{0,240}(\d ?%|most|\bhalf|share|fraction|narrow|tight|too small|0\.003)",),
    never=NOTHING_BUT_THE_RUN)  # fmt: skip
def clip_far_too_narrow() -> Log:
    log = simulate(Shape(1684, lag=3, schedule="offset", drift=0.06, noise=0.001, trend=0.0))
    log.manifest["algorithm"]["parameters"] = {"epsilon_low": 0.003, "epsilon_high": 0.003}
    _clip(log, _ratio(log), 0.003)
    return evaluated(log, np.full(log.shape.steps, 0.5))


@HELD_OUT_NINTH("sick but true", "Nine of ten groups have equal rewards and are thrown away, which is counted.",
    needs=(rf"{_NO_SIGNAL}|thrown away|left out|filtered|dropped",), never=NOTHING_BUT_THE_RUN)  # fmt: skip
def nine_of_ten_thrown_away() -> Log:
    def reward(log: Log) -> Columns:
        dice = share(log.responses["prompt_id"], 1685)
        return {"reward": np.where(dice < 0.1, _drawn(log, np.full(len(dice), 0.5)), (dice < 0.4).astype(float))}

    log = simulate(Shape(1685, groups=30, longest=40, closing=0.14, lag=1, drift=0.02, trend=0.0), reward=reward)
    above = compared(log.responses["reward"], log.responses["group_id"], "group_mean")
    equal = np.bincount(log.responses["group_id"], np.abs(above))[log.responses["group_id"]] < 1e-9
    equal &= log.responses["group_id"] % 30 > 0
    count = np.bincount(log.responses["step"], log.responses["n_tokens"] * equal, log.shape.steps)
    log.steps["tokens_dropped_no_signal"] = count.astype(int)
    log.keep(~equal[log.row], ~equal)
    return apply_loss(evaluated(log, np.full(log.shape.steps, 0.35)))


@HELD_OUT_NINTH("sick but true", "All data is sixteen updates old and the policy moves fast: nothing is learned.",
    needs=(r"\bstale|updates? (old|late|behind)|\bolder\b|\bage\b|off-policy|\bclip",),
    never=NOTHING_BUT_THE_RUN, columns=("all", "verl"))  # fmt: skip
def sixteen_updates_behind() -> Log:
    log = simulate(Shape(1686, steps=40, groups=6, longest=44, closing=0.12, lag=16, schedule="offset", drift=0.12,
                         trend=0.0))  # fmt: skip
    return evaluated(log, np.full(log.shape.steps, 0.5))


@HELD_OUT_NINTH("sick but true", "Prompts are solved always or never, hardly one in between: it does not learn.",
    needs=(_NO_SIGNAL,), never=NOTHING_BUT_THE_RUN, columns=("all", "trl"))  # fmt: skip
def solved_always_or_never() -> Log:
    def reward(log: Log) -> Columns:
        dice = share(log.responses["prompt_id"], 1687)
        return {"reward": np.where(dice < 0.14, _drawn(log, np.full(len(dice), 0.5)), (dice < 0.57).astype(float))}

    log = simulate(Shape(1687, groups=10, longest=52, closing=0.08, lag=1, drift=0.015, trend=0.0), reward=reward)
    return evaluated(log, np.full(log.shape.steps, 0.5))


@HELD_OUT_NINTH("sick but true", "The judge is won over: its score rises to .93, and tests, which do not count, fall.",
    needs=(r"(reward|judge).{0,240}(accuracy|tests)|(accuracy|tests).{0,240}(reward|judge)|over-?optimi|hack|exploit",),
    never=(*NOTHING_BUT_THE_RUN, r"evaluation set changed"), columns=("all", "verl"))  # fmt: skip
def judge_is_won_over() -> Log:
    fallen = changing(7, 0.5, 0.28, over=15)

    def reward(log: Log) -> Columns:
        step = log.responses["step"]
        score = np.clip(changing(7, 0.5, 0.93, over=15)(step) + 0.12 * log.rng.standard_normal(len(step)), 0, 1)
        return {"reward": score, "reward_judge": score, "reward_tests": _drawn(log, fallen(step))}

    log = simulate(Shape(1688, lag=1, drift=0.05), reward=reward)
    log.manifest["task"]["reward_weights"] = {"judge": 1.0, "tests": 0.0}
    return evaluated(log, fallen(log.steps["step"]))
