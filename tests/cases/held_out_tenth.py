"""Held-out cases of a tenth date, of ordinary users' logs: faults that something else is taken for, and their twins.

Many a fault sets in late or is in one place only, beside an age, an entropy or a restart that is real and not the
cause; most healthy runs look like one of them, and the log has the reason. Written by someone who had read neither
marks nor causes nor findings, and frozen before they were scored. What the verdicts mean, and why the first score is
kept, says `held_out`.
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
    elsewhere,
    evaluated,
    rewards_by,
    sharper,
)
from tests.cases.healthy import NOTHING_BUT_THE_RUN, OF_THE_ENGINE, OF_THE_LOG
from tests.cases.held_out import with_kl
from tests.cases.held_out_ninth import (
    _ENGINE,
    _FALL,
    _FORMAT,
    _NO_SIGNAL,
    _OTHERS,
    _STEP,
    Whole,
    _drawn,
    _ratio,
    _tools,
    _version,
    _weighted,
)
from tests.cases.world import (
    Array,
    Call,
    Columns,
    Log,
    Policy,
    Shape,
    apply_loss,
    chances,
    log_softmax,
    mixed,
    set_advantages,
    share,
    simulate,
)

HELD_OUT_TENTH = Register()

FIRST_SCORE = {
    "held-out a tenth time faults": "4 found, 5 vague, 7 silent, 2 untrue of 18 logs",
    "held-out a tenth time sick but true": "2 found, 1 quiet, 2 silent of 5 logs",
    "held-out a tenth time healthy": "17 quiet, 1 false alarm of 18 logs",
}
"""What was said of them when they were first scored, by the patterns as they were frozen (2026-11-29)."""

_EASE = r"too easy|too hard"
_SINCE = (
    r"\b(from|since|at|in|of|by|until|behind|after|before) (step|update) \d|restart|\bsince\b|\bjump|\bsudden"
    r"|\brose\b|\bgrew\b|\bchanged\b|\blater\b|→|second half|sets? in\b"
)


def _clock(log: Log, start: datetime, minutes: float, pauses: dict[int, float]) -> Log:
    """The steps end at equal distances, and pauses of some hours are before some of them."""
    ends = [start + timedelta(minutes=minutes * (step + 1)) for step in log.steps["step"].tolist()]
    late = [sum(hours for at, hours in pauses.items() if at <= step) for step in log.steps["step"].tolist()]
    log.steps["wall_time"] = np.array([end + timedelta(hours=hours) for end, hours in zip(ends, late, strict=True)])
    return log


def _ages(responses: Columns, step: int, before: int, after: int) -> None:
    """All data has one age before a step, and another one from it on."""
    late = np.where(responses["step"] < step, before, after)
    responses["behavior_version_min"] = np.maximum(responses["step"] - late, 0)


def _by_text(log: Log, chance: Array, salt: int) -> Array:
    """Right or wrong, the same for the same answer to a prompt."""
    text = np.bincount(log.row, log.tokens["token_id"] * (log.tokens["position"] + 1) ** 2).astype(int)
    return (share(log.responses["prompt_id"], text, salt) < np.clip(chance, 0.005, 0.995)).astype(float)


def _likeliest(logp: Array) -> Array:
    """All probability on the likeliest token."""
    return np.where(logp >= logp.max(axis=1, keepdims=True), 0.0, np.full(logp.shape, -1e9))


# Faults: sampler, template and weights --------------------------------------------------------------------------------


@HELD_OUT_TENTH("sampler", "From the restart at step 12 on the engine draws at 1, its default; 0.8 is set and scored.",
    report="ms-swift #3696", columns=("verl",),
    never=(rf"^(?!.*server-3).*({NEVER_ARRIVED})", BROKEN, _FORMAT, r"\bcache", r"top-?[pk] (of|was|is)"),
    needs=(rf"temperature|\bhot|\bflat|\bsharp|\bscaled? & {_SINCE}",))  # fmt: skip
def temperature_lost_at_the_restart() -> Log:
    """Data is three updates late from then on, and was one; server-3, a small fault beside, stays at the restart."""

    def setup(responses: Columns) -> None:
        _ages(responses, 12, 1, 3)
        responses["temperature"] = np.full(len(responses["step"]), 0.8)

    def sampler(call: Call, logits: Array) -> Array:
        late = (call.of("engine") == "server-3") & (call.version > 12)
        old = call.served(call.policy.weights[np.minimum(call.version, 12)]) + 0.01 * call.noise()
        served = np.where(late[:, None], old, logits)
        return served / np.where(call.of("step") < 12, 0.8, 1.0)[:, None]

    log = simulate(Shape(1701, drift=0.04), setup=setup, sampler=sampler,
                   trainer=lambda log, which, logits: logits / 0.8)  # fmt: skip
    log.manifest["sampler"]["temperature"], log.manifest["sampled_with"] = 0.8, "processed"
    return _clock(log, datetime(2026, 1, 5, 8, tzinfo=UTC), 6, {12: 3})


@HELD_OUT_TENTH("sampler", "After each fifth step's evaluation the engine is greedy still: a group has one answer.",
    report="TRL #5783", columns=("trl",),
    never=(NEVER_ARRIVED, BROKEN, _FORMAT, _EASE, r"mode collapse|settled on"),
    needs=(r"identical|the same (tokens|text|response|answer)|\bcop(y|ies)\b|duplicat|greed|deterministic|likeliest"
           r"|arg ?max|likelier than|not drawn|different (tokens|texts|responses|answers)"
           r"|(temperature|sharper|colder).{0,240}\bsteps?\b|\bsteps?\b.{0,240}(temperature|sharper|colder)",
           ))  # fmt: skip
def greedy_behind_each_evaluation() -> Log:
    def draw(call: Call, logp: Array) -> Array:
        return np.where((call.of("step") % 5 == 0)[:, None], _likeliest(logp), logp)

    log = simulate(Shape(1702, steps=26, lag=1, drift=0.02, noise=0.001), draw=draw, logs_raw=True,
                   reward=lambda log: {"reward": _by_text(log, chances(log), 1702)})  # fmt: skip
    log.steps["eval_accuracy"] = np.ma.masked_array(log.steps["eval_accuracy"], log.steps["step"] % 5 != 0)
    return log


@HELD_OUT_TENTH("sampler", "From step 10 on the engine works in eight bits with scales of 1, and data is older, too.",
    report="NeMo-RL #3226", columns=("all",),
    never=(NEVER_ARRIVED, TEMPERATURE, BROKEN, r"server-\d", r"\bb?float16"),
    needs=(r"\bengines?\b|kernel|precision|number format|quanti|\bfp8|8.?bit|eight bits|numeric"
           r"|same (version|weights|snapshot|policy)|logp_behavior_train|computes? & " + _SINCE,))  # fmt: skip
def eight_bits_from_step_ten() -> Log:
    table = np.random.default_rng(1703).standard_normal((1500, 24))

    def sampler(call: Call, logits: Array) -> Array:
        return logits + 0.3 * (call.of("step") >= 10)[:, None] * table[call.state]

    return simulate(Shape(1703, drift=0.01), sampler=sampler, setup=lambda responses: _ages(responses, 10, 1, 4))


@HELD_OUT_TENTH("weights", "The router's bias moves in the trainer and is never sent: ever more routes part.",
    report="vLLM #21586; DeepSpeed #8369", columns=("all",),
    never=(NEVER_ARRIVED, TEMPERATURE, BROKEN, r"entropy.{0,40}(collaps|is gone)", r"staleness (is|as) the"),
    needs=(r"expert|\brout(e|es|ed|er|ing)\b|routing_agreement",))  # fmt: skip
def router_bias_not_sent() -> Log:
    """Entropy goes down by a tenth as the policy gets better, and data is up to two updates old."""

    def parted(row: NDArray[np.int64], position: int | Whole, step: Whole) -> NDArray[np.bool_]:
        return np.asarray(share(row, np.broadcast_to(position, row.shape), 1704) < 0.01 + 0.012 * step)

    def sampler(call: Call, logits: Array) -> Array:
        return logits + 0.9 * parted(call.rows, call.position, call.of("step"))[:, None] * call.noise()

    log = simulate(Shape(1704, lag=2, drift=0.015, trend=0.2), sampler=sampler,
                   prepare=sharper(changing(1, 0.0, 0.25, over=24)))  # fmt: skip
    other = parted(log.row, log.tokens["position"], log.tokens["step"])
    log.tokens["routing_agreement"] = 1 - other * log.rng.uniform(0.1, 0.4, len(other))
    return log


@HELD_OUT_TENTH("sampler", "The template has the date: from midnight on, at step 14, the trainer's is of yesterday.",
    report="SGLang #3296; llm-foundry #1474", columns=("verl",),
    never=(NEVER_ARRIVED, TEMPERATURE, BROKEN, _FORMAT, r"\bcache"),
    needs=(r"(first|early|earliest|begin\w*|start|front).{0,80}(tokens?|positions?)|position.{0,60}(\b0\b|first|early"
           r"|begin)|(begin|start)\w* of (a|the|each|their) response|template|\bdate\b"
           r"|(another|other|different|wrong) (prompts?|contexts?)"
           r" & mismatch|differ|disagree|distance|\bholds?\b|\bsits?\b|logp_behavior|sampler|engine",))  # fmt: skip
def date_in_the_template() -> Log:
    """Data is two updates older in the night, too."""

    def sampler(call: Call, logits: Array) -> Array:
        part = (0.3 * np.exp(-call.position / 9) * (call.of("step") >= 14))[:, None]
        return (1 - part) * logits + part * elsewhere(call, 1705)

    log = simulate(Shape(1705, steps=26, drift=0.01), sampler=sampler,
                   setup=lambda responses: _ages(responses, 14, 1, 3))  # fmt: skip
    return _clock(log, datetime(2026, 1, 5, 19, 0, tzinfo=UTC), 20, {})


@HELD_OUT_TENTH("log", "Tokens that are not among the eight of the engine's answer get -100: all unlikely.",
    columns=("verl",),
    never=(NEVER_ARRIVED, TEMPERATURE, WHOLLY_BROKEN, _FORMAT, r"top-?[pk] (of|was|is)"),
    needs=(r"constant|same value|one value|placeholder|\bfloor|sentinel|filled|[-−]100\b|clamp"
           r"|not (among|in) the (top|list)|missing (values|log)",))  # fmt: skip
def floor_for_unlisted_tokens() -> Log:
    log = simulate(Shape(1706, lag=2, drift=0.02))
    logp = log_softmax(log.policy.logits(log.policy.weights[log.tokens["behavior_version"]], log.state))
    own = logp[np.arange(len(log.row)), log.tokens["token_id"]]
    log.tokens["logp_behavior"][(logp > own[:, None]).sum(axis=1) >= 8] = -100.0
    log.manifest["algorithm"]["parts"] |= {"weight": "truncated", "gate": "none"}
    log.manifest["algorithm"]["parameters"] = {"cap": 2.0}
    return _weighted(log, np.minimum(_ratio(log), 2.0))


# Faults: data, rewards and advantages ---------------------------------------------------------------------------------


@HELD_OUT_TENTH("selection", "The second epoch's prompts are shuffled and their answers are not: nothing is right.",
    report="open-instruct #1484", columns=("trl",), never=(*_ENGINE, _FORMAT, MISSING_RESPONSES, _STEP, _EASE),
    needs=(r"scorer|reward function|grader|\bsolutions?\b|\blabels?\b|ground.truth|(wrong|other) answers?"
           r"|(same|again|repeated|seen|second|earlier).{0,60}prompts?|prompts?.{0,60}(again|before|repeat|seen)|epoch"
           r"|more than .{0,80}updates? (can|could)|than (the|these|all) updates? (can|could)"
           r"|reward.{0,120}(accuracy|evaluation).{0,80}(not|stay|same|flat)"
           r"|(accuracy|evaluation).{0,60}(not|stay|same|flat).{0,120}reward",))  # fmt: skip
def answers_left_unshuffled() -> Log:
    def setup(responses: Columns) -> None:
        order = np.random.default_rng(1707).permutation(104)
        group = responses["group_id"]
        responses["prompt_id"] = 1000 + np.where(group < 104, group, order[group % 104])
        responses["prompt"] = np.array([f"Task {at}: solve it." for at in responses["prompt_id"]], dtype=object)

    def reward(log: Log) -> Columns:
        return {"reward": _drawn(log, np.where(log.responses["step"] < 13, chances(log), 0.04))}

    log = simulate(Shape(1707, steps=26, lag=1, drift=0.015, trend=0.2), setup=setup, reward=reward)
    return evaluated(log, np.minimum(0.4 + 0.012 * log.steps["step"], 0.55))


@HELD_OUT_TENTH("advantage", "Advantages below 0 are set to 0: what is wrong is never made less likely.",
    columns=("verl",), never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, _STEP, r"bare reward", _EASE),
    needs=(r"negative|below (0|zero)|less than (0|zero)|smallest.{0,40}\b0\b|(never|not|none).{0,30}\bminus"
           r"|(only|all|just) (the )?positive|positive (only|ones|alone)|one.sided|clamp|≥ ?0|at least 0"
           r"|\bmin\w* .{0,20}0\b|advantages?.{0,160}(do not|does not|not) (sum|balance|average|centre|center|cancel)"
           r"|advantages?.{0,160}(mean|average).{0,60}(above|positive|not 0)",))  # fmt: skip
def negative_advantages_lost() -> Log:
    """Entropy goes down by a third, as it does where only what is right is learned."""
    log = simulate(Shape(1708, lag=1, drift=0.02), prepare=sharper(changing(3, 0.0, 0.7, over=20)))
    return set_advantages(log, np.maximum(log.tokens["advantage"], 0.0))


@HELD_OUT_TENTH("advantage", "'sql' is scored from 0 to 100, others from 0 to 1, without a deviation: it has all.",
    columns=("all",), never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, _STEP),
    needs=(r"\bsql\b & scale|\brange|\b100\b|larger|dominat|\bmost\b|nearly all|\d\d(\.\d+)? ?%|\btimes\b|\bshare\b"
           r"|weigh|spread|varian|deviation",))  # fmt: skip
def one_environment_of_a_hundred() -> Log:
    """Data is up to four updates old, which is real and does not matter."""

    def reward(log: Log) -> Columns:
        graded = np.clip(chances(log) + 0.25 * log.rng.standard_normal(len(log.responses["step"])), 0, 1)
        sql = log.responses["environment"] == "sql"
        flat = log.shape.level + 0.5 * (share(log.responses["prompt_id"], 1709, 6) - 0.5)
        return {"reward": np.where(sql, np.round(100 * graded), _drawn(log, flat))}

    shape = Shape(1709, groups=9, lag=4, drift=0.015, trend=0.3, advantage="group_mean",
                  environments=("chat", "maths", "sql"))  # fmt: skip
    return evaluated(simulate(shape, reward=reward), np.full(shape.steps, 0.5))


@HELD_OUT_TENTH("selection", "From step 11 on a prompt is judged once, and all of its responses get that score.",
    columns=("verl",), never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, _EASE, r"learning.rate (is|was|of) 0"),
    needs=(rf"{_NO_SIGNAL}|same (score|value)|one (score|reward|value)|(scored|judged) once|differ within & {_SINCE}",
           ))  # fmt: skip
def score_once_a_prompt() -> Log:
    """Updates are 0 from then on, and norms, as they must be."""

    def stop(policy: Policy) -> None:
        policy.weights[12:] = policy.weights[11]

    def reward(log: Log) -> Columns:
        each = _drawn(log, chances(log))
        return {"reward": np.where(log.responses["step"] < 11, each, each[np.arange(len(each)) // 6 * 6])}

    log = simulate(Shape(1710, lag=1, drift=0.02, trend=0.0), prepare=stop, reward=reward)
    log.steps["grad_norm"] = np.where(log.steps["step"] < 11, log.steps["grad_norm"], 0.0)
    log.steps["loss"] = np.where(log.steps["step"] < 11, log.steps["loss"], 0.0)
    return evaluated(log, np.full(log.shape.steps, 0.5))


@HELD_OUT_TENTH("advantage", "The judge's '10' is read as 1: the best answers, whose tests pass, get the lowest score.",
    report="openagent-eval #74", columns=("all",),
    never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, _STEP, _EASE),
    needs=(r"(reward|judge|score|advantage).{0,280}(tests|accuracy)|(tests|accuracy).{0,280}(judge|reward|score)"
           r" & lowest|smallest|\b0?\.10?\b|opposite|negativ|against|contradict|disagree|not (agree|follow)|apart"
           r"|pars(e|ed)|misread|less|lower|fell|falls|falling|worse|revers",))  # fmt: skip
def ten_read_as_one() -> Log:
    def reward(log: Log) -> Columns:
        step, n = log.responses["step"], len(log.responses["step"])
        quality = chances(log) + 0.25 * log.rng.standard_normal(n) - 0.14 * step / 23
        score = np.clip(np.round(10 * (quality + 0.22)), 1, 10)
        tests = np.where(score == 10, 1.0, (log.rng.random(n) < (score - 2) / 12).astype(float))
        read = np.where(score == 10, 0.1, score / 10)
        return {"reward": read, "reward_judge": read, "reward_tests": tests}

    log = simulate(Shape(1711, lag=1, drift=0.03, trend=0.0), reward=reward)
    log.manifest["task"]["reward_weights"] = {"judge": 1.0, "tests": 0.0}
    return evaluated(log, changing(3, 0.52, 0.38, over=20)(log.steps["step"]))


@HELD_OUT_TENTH("advantage", "After a time-out in step 9 scores come one prompt late: each group has those of another.",
    columns=("no versions",), never=(*_ENGINE, _FORMAT, MISSING_RESPONSES, _STEP, _EASE, r"advantages? belongs?"),
    needs=(r"(rewards?|scores?|scored).{0,240}(belong|\bother (group|prompt|response)|shift|\border\b|\bnext\b|previous"
           r"|\bvalues?\b|\brange|\bscale|truncat|\bcut\b|length|unrelated|scorer|function|mix)"
           r"|(truncat|\bcut\b|environment|code|maths).{0,200}(rewards?|scores?)|scorer|reward function & " + _SINCE,
           ))  # fmt: skip
def scores_one_prompt_late() -> Log:
    """'code' has quarters, 'maths' -1 or 1, and who is cut has the lowest, until step 8."""

    def reward(log: Log) -> Columns:
        code, chance = log.responses["environment"] == "code", chances(log) + 0.12
        passed = np.round(4 * np.clip(chance + 0.3 * log.rng.standard_normal(len(chance)), 0, 1)) / 4
        right = np.where(code, passed, 2 * _drawn(log, chance) - 1)
        own = np.where(log.responses["truncated"], np.where(code, 0.0, -1.0), right)
        late = np.roll(own.reshape(-1, 6), 1, axis=0).ravel()
        return {"reward": np.where(log.responses["step"] < 9, own, late)}

    shape = Shape(1712, lag=1, drift=0.02, closing=0.055, environments=("code", "maths"))
    return evaluated(simulate(shape, reward=reward), np.minimum(0.42 + 0.012 * np.arange(shape.steps), 0.52))


# Faults: the loss and the update --------------------------------------------------------------------------------------


def _pulled(log: Log, target: float, rate: float) -> Log:
    """The KL to the reference, by the estimate k3, in the gradient; its coefficient follows a target, from .02 on."""
    tokens, step = log.tokens, log.tokens["step"]
    coefficient = [0.02]
    for kl in with_kl(log).steps["kl_to_initial"][:-1].tolist():
        coefficient.append(coefficient[-1] * (1 + rate * min(max(kl / target - 1, -1), 1)))
    pull = np.array(coefficient)[step] * -np.expm1(tokens["logp_reference"] - tokens["logp_current"])
    tokens["gradient_weight"] = tokens["gradient_weight"] - pull / np.bincount(step)[step]
    log.steps["extra_kl_coefficient"] = np.array(coefficient)
    log.manifest["algorithm"]["parameters"] |= {"kl_control": "adaptive", "kl_coefficient": 0.02, "kl_target": target}
    return log


@HELD_OUT_TENTH("loss", "The KL's target is out of reach, its coefficient grows without end and takes over.",
    report="ray #18492; TRL #1178", columns=("with reference",),
    never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, _EASE, r"wrong sign|maximis"),
    needs=(r"(\bkl\b|\bbeta\b|coefficient|reference).{0,280}(coefficient|dominat|\bmost\b|larger than|outweigh|pull"
           r"|gradient|controller|adaptive|target)|(gradient|pull|loss).{0,200}(\bkl\b|\bbeta\b|reference)",
           ))  # fmt: skip
def kl_takes_over() -> Log:
    """The policy goes away until step 10 and is pulled back; the reward with it."""

    def path(policy: Policy) -> None:
        policy.weights += np.arange(len(policy.weights))[:, None] * np.array([0.03, -0.03, 0.02, 0.02])
        policy.weights[11:] = policy.weights[10] * 0.9 ** np.arange(1, len(policy.weights) - 10)[:, None]

    chance = np.concatenate([0.4 + 0.02 * np.arange(11), 0.6 - 0.2 * (1 - 0.9 ** np.arange(1, 16))])
    log = simulate(Shape(1713, steps=26, lag=1, drift=0.03), prepare=path,
                   reward=rewards_by(lambda step: chance[step]))  # fmt: skip
    return evaluated(_pulled(log, 0.0005, 0.5), chance)


def _segmented(seed: int) -> Log:
    """Conversations that are compacted each 32 tokens, of which long ones are right less often."""

    def reward(log: Log) -> Columns:
        return {"reward": _drawn(log, 1.25 * chances(log) - 0.45 * log.responses["n_tokens"] / log.shape.longest)}

    shape = Shape(seed, longest=128, shortest=16, closing=0.025, turns=8, lag=1, drift=0.02, level=0.6,
                  environments=("shell",))  # fmt: skip
    log = _tools(simulate(shape, reward=reward))
    log.tokens["segment_id"] = log.tokens["position"] // 32
    compacted = (log.responses["n_tokens"] > 32).astype(int)
    log.responses["history_break"] = np.array([None, "compaction"], dtype=object)[compacted]
    log.manifest["algorithm"]["parts"]["aggregation"] = "sequence_mean"
    return log


@HELD_OUT_TENTH("loss", "The mean over responses takes each segment for one: a compacted one counts up to four times.",
    report="verl #7580; miles #2710", columns=("all",),
    never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, r"advantage alone", _EASE),
    needs=(r"segment|compact|sequence_mean|token.mean|aggregat|(gradient|weigh)\w*.{0,240}(\blong|length|\bshort|several"
           r"|number of|mean over)|(\blong|length|\bshort)\w*.{0,160}(gradient|weigh)",))  # fmt: skip
def a_share_for_each_segment() -> Log:
    log = _segmented(1714)
    tokens, step = log.tokens, log.tokens["step"]
    _, segment = np.unique(8 * log.row + tokens["segment_id"], return_inverse=True)
    counted = np.bincount(log.responses["step"], 1 + (log.responses["n_tokens"] - 1) // 32)[step]
    tokens["gradient_weight"] *= np.bincount(step)[step] / (counted * np.bincount(segment)[segment])
    return log


@HELD_OUT_TENTH("loss", "From step 9 on rank 2's loss is NaN and taken for 0: its tokens have no gradient.",
    report="prime-rl #1961", columns=("all",), never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, _EASE),
    needs=(r"\brank\D{0,16}2\b",))  # fmt: skip
def rank_without_gradient() -> Log:
    """Entropy goes down by a fifth as the policy gets better."""
    log = simulate(Shape(1715, lag=2, drift=0.02, trend=0.2), prepare=sharper(changing(1, 0.0, 0.22, over=24)))
    out = (log.of_token("rank") == 2) & (log.tokens["step"] >= 9)
    log.tokens["gradient_weight"] = np.where(out, 0.0, log.tokens["gradient_weight"])
    return log


@HELD_OUT_TENTH("loss", "The mask takes calls for tools' answers: the last four tokens before a tool are not learned.",
    report="slime #1418", columns=("all",),
    never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, r"first tokens? of (a|each|the) turn", r"end token"),
    needs=(r"\bturns?\b|\bcalls?\b|\btools?\b & gradient|not (learned|trained|in the loss)|left out|\bmask",
           ))  # fmt: skip
def calls_are_masked() -> Log:
    shape = Shape(1716, longest=84, shortest=14, closing=0.05, lag=1, drift=0.02, turns=12, environments=("browser",))
    log = _tools(simulate(shape))
    position, last = log.tokens["position"], (log.lengths()[log.row] - 1) // 12
    call = (position % 12 >= 8) & (position // 12 < last)
    log.tokens["gradient_weight"] = np.where(call, 0.0, log.tokens["gradient_weight"])
    return log


@HELD_OUT_TENTH("update", "Each eighth step is saved and the moments are lost by it: the next update is too large.",
    report="sparse_autoencoder #115; TorchRL #4188", columns=("all",),
    never=(*_ENGINE, _FORMAT, _OTHERS, _EASE, r"learning.rate.{0,40}too (large|high)",
           r"gradient norm .{0,40}(spike|jump)"),
    needs=(r"(updates?|steps?|polic\w+|moves?).{0,200}(larger|too large|jump|spike|\btimes\b|\bbig|far)|(larger?|big"
           r"|spike|jump)\w*.{0,120}(updates?|steps?) & (step|update)s? (8|16)|\b8, 16|(each|every) (8|eight)|period"
           r"|optimi",))  # fmt: skip
def moments_lost_at_each_save() -> Log:
    """Data is one update old: behind each of these updates it is far from the policy, and rightly so."""

    def path(policy: Policy) -> None:
        moves = np.diff(policy.weights, axis=0)
        moves[[8, 16, 24]] *= 9
        policy.weights[1:] = np.cumsum(moves, axis=0)

    def chance(step: Array) -> Array:
        return np.asarray(0.45 + 0.008 * step - 0.2 * np.where(step > 8, 0.6 ** ((step - 1) % 8), 0.0))

    log = simulate(Shape(1717, steps=28, lag=1, drift=0.03), prepare=path, reward=rewards_by(chance))
    log.manifest["notes"] = "A checkpoint is saved at the end of steps 7, 15 and 23."
    return evaluated(log, chance(log.steps["step"]))


@HELD_OUT_TENTH("update", "After the restart at step 12 the trainer has its first weights: no key of the file matched.",
    report="EgoVerse #636", columns=("with reference",),
    never=(TEMPERATURE, BROKEN, r"never arriv", _FORMAT, r"evaluation set changed|scorer changed", _EASE),
    needs=(r"(initial|first|base|reference|starting|version 0|old(er)?|earlier|other) (weights|polic|model|checkpoint)"
           r"|\bkl\b.{0,160}(\bback\b|again|fell|falls|drop|reset|→)"
           r"|(weights|policy|training|trainer|learned).{0,120}(reset|\blost\b|reverted|undone|jump|again|over|back to)"
           r" & (step|update) 1[12]|restart",))  # fmt: skip
def begins_again_at_the_restart() -> Log:
    """Two steps behind the restart learn from what was sampled before it: the data is old, which is not the cause."""
    lost: list[Array] = []

    def path(policy: Policy) -> None:
        policy.weights += np.arange(len(policy.weights))[:, None] * np.array([0.03, -0.03, 0.02, 0.02])
        lost.append(policy.weights[12].copy())
        policy.weights[12:] -= policy.weights[12].copy()

    def setup(responses: Columns) -> None:
        step = responses["step"]
        responses["behavior_version_min"] = np.maximum(np.where((step == 12) | (step == 13), 11, step - 1), 0)

    def trainer(log: Log, which: str, logits: Array) -> Array:
        at = (log.tokens["step"] == 11) & (which == "new")
        return np.where(at[:, None], log.policy.logits(lost[0], log.state), logits)

    def chance(step: Array) -> Array:
        return np.asarray(0.3 + 0.028 * np.where(step < 12, step, step - 12))

    def reward(log: Log) -> Columns:
        step = log.responses["step"]
        return {"reward": _drawn(log, chance(np.where((step == 12) | (step == 13), 11, step)))}

    log = simulate(Shape(1718, steps=26, drift=0.03), prepare=path, setup=setup, trainer=trainer, reward=reward)
    _clock(log, datetime(2026, 1, 5, tzinfo=UTC), 6, {12: 5})
    return evaluated(with_kl(log), chance(log.steps["step"]))


# Healthy: sampler, template and weights -------------------------------------------------------------------------------

_FINE = "Nothing is wrong."


@HELD_OUT_TENTH("healthy", _FINE, columns=("verl",))
def fine_warmer_from_the_restart_on() -> Log:
    """From the restart at step 12 on the temperature is 1 and was 0.8, on both sides, as said; data is older, too."""

    def setup(responses: Columns) -> None:
        _ages(responses, 12, 1, 3)
        responses["temperature"] = np.where(responses["step"] < 12, 0.8, 1.0)

    log = simulate(Shape(1751, drift=0.02), setup=setup,
                   sampler=lambda call, logits: logits / call.of("temperature")[:, None],
                   trainer=lambda log, which, logits: logits / log.of_token("temperature")[:, None])  # fmt: skip
    log.manifest["sampled_with"] = "processed"
    del log.manifest["sampler"]["temperature"]
    return _clock(log, datetime(2026, 1, 5, 8, tzinfo=UTC), 6, {12: 3})


@HELD_OUT_TENTH("healthy", _FINE, columns=("trl",))
def fine_look_ups_are_alike() -> Log:
    """Answers of 'lookup', a quarter, are nearly certain: most of a group are the same tokens, as the entropy says."""

    def warm(logits: Array, environment: NDArray[np.object_]) -> Array:
        return logits * np.where(environment == "lookup", 16.0, 1.0)[:, None]

    def reward(log: Log) -> Columns:
        sure = log.responses["environment"] == "lookup"
        return {"reward": _by_text(log, chances(log) + 0.2 * sure, 1752)}

    def closing(responses: Columns) -> Array:
        return np.where(responses["environment"] == "lookup", 0.6, 0.06)

    shape = Shape(1752, shortest=4, lag=1, drift=0.012, environments=("lookup", "code", "maths", "proof"))
    log = simulate(shape, reward=reward, closing=closing,
                   sampler=lambda call, logits: warm(logits, call.of("environment")),
                   trainer=lambda log, which, logits: warm(logits, log.of_token("environment")))  # fmt: skip
    log.steps["eval_accuracy"] = np.ma.masked_array(log.steps["eval_accuracy"], log.steps["step"] % 5 != 0)
    return log


@HELD_OUT_TENTH("healthy", _FINE, columns=("all",))
def fine_four_behind_from_step_ten() -> Log:
    """From step 10 on more is in flight, as planned: data is four updates old and was one, and as far as that makes."""
    log = simulate(Shape(1753, drift=0.02), setup=lambda responses: _ages(responses, 10, 1, 4))
    log.manifest["schedule"] = {"kind": "async", "max_staleness": 4}
    log.manifest["notes"] = "From step 10 on four batches are in flight."
    return log


@HELD_OUT_TENTH("healthy", _FINE, columns=("all",))
def fine_routes_of_older_weights() -> Log:
    """Routes differ by two in a hundred for each update of age; at one version values are the trainer's."""
    log = simulate(Shape(1754, lag=4, drift=0.015))
    age = log.tokens["step"] - log.tokens["behavior_version"]
    dice = share(log.row, log.tokens["position"], 1754)
    log.tokens["routing_agreement"] = np.round(1 - (0.005 + 0.04 * age) * dice, 3)
    return log


@HELD_OUT_TENTH("healthy", _FINE, columns=("verl",))
def fine_open_beginnings() -> Log:
    """How a response begins is open: its first tokens move most with the data's age, before midnight and after."""

    def opened(logits: Array, base: Array, position: int | Whole) -> Array:
        """Less of what is certain, and as much of what moves."""
        return logits - np.where(np.broadcast_to(position, len(logits)) < 6, 0.75, 0.0)[:, None] * base

    log = simulate(Shape(1755, steps=26, lag=3, drift=0.025, noise=0.004),
                   sampler=lambda call, logits: opened(logits, call.policy.base[call.state], call.position),
                   trainer=lambda log, which, logits: opened(
                       logits, log.policy.base[log.state], log.tokens["position"]))  # fmt: skip
    return _clock(log, datetime(2026, 1, 5, 19, 0, tzinfo=UTC), 20, {})


@HELD_OUT_TENTH("healthy", _FINE, columns=("verl",))
def fine_mostly_boilerplate() -> Log:
    """Two of three tokens of a form are certain, and with three decimals they are exactly 0, on both sides."""
    log = simulate(Shape(1756, sure=0.93, lag=1, drift=0.02, environments=("form",)))
    log.tokens |= {name: np.round(log.tokens[name], 3) for name in log.tokens if name.startswith("logp_")}
    log.manifest["log_probability_decimals"] = 3
    return apply_loss(log)


# Healthy: data, rewards and advantages --------------------------------------------------------------------------------


@HELD_OUT_TENTH("healthy", _FINE, columns=("trl",))
def fine_second_epoch_is_better() -> Log:
    """From step 13 on the same prompts come again in another order, and are solved more often; so is the evaluation."""

    def setup(responses: Columns) -> None:
        order = np.random.default_rng(1757).permutation(104)
        group = responses["group_id"]
        responses["prompt_id"] = 1000 + np.where(group < 104, group, order[group % 104])
        responses["prompt"] = np.array([f"Task {at}: solve it." for at in responses["prompt_id"]], dtype=object)

    log = simulate(Shape(1757, steps=26, lag=1, drift=0.02, level=0.55, trend=0.25), setup=setup)
    return evaluated(log, 0.4 + 0.2 * log.steps["step"] / 25)


@HELD_OUT_TENTH("healthy", _FINE, columns=("all",))
def fine_right_ones_alone() -> Log:
    """RAFT: of each prompt the right responses are learned, all with 1; the wrong ones are dropped, and said to be."""
    log = simulate(Shape(1758, responses=8, lag=0, drift=0.015, level=0.45, trend=0.25))
    log.manifest["algorithm"]["name"] = "raft"
    log.manifest["algorithm"]["parts"] |= {"advantage": "reward", "weight": "none", "gate": "none"}
    log.manifest["algorithm"]["parameters"] = {}
    right = log.responses["reward"] == 1
    log.responses["dropped"] = np.array(["wrong answer", None], dtype=object)[right.astype(int)]
    log.responses["in_baseline"] = np.zeros(len(right), dtype=bool)
    set_advantages(log.keep(right[log.row]), np.ones(len(right)))
    return _weighted(log, np.ones(len(log.row)))


@HELD_OUT_TENTH("healthy", _FINE, columns=("all",))
def fine_weights_of_environments() -> Log:
    """'sql' counts twice in the loss, as configured: each response says its weight, the mean is over the weights."""
    log = simulate(Shape(1759, groups=9, lag=2, drift=0.015, environments=("chat", "maths", "sql")))
    log.responses["sample_weight"] = np.where(log.responses["environment"] == "sql", 2.0, 1.0)
    log.manifest["task"]["environment_weights"] = {"chat": 1.0, "maths": 1.0, "sql": 2.0}
    weight, step = log.of_token("sample_weight"), log.tokens["step"]
    log.tokens["gradient_weight"] *= weight * (np.bincount(step) / np.bincount(step, weight))[step]
    return log


@HELD_OUT_TENTH("healthy", _FINE, columns=("verl",))
def fine_teams_of_two() -> Log:
    """Two responses are a team, which wins or loses as one: rewards come in pairs, and four teams are compared."""

    def setup(responses: Columns) -> None:
        names = np.array(["team-a", "team-b", "team-c", "team-d"], dtype=object)
        responses["source"] = names[responses["seq_id"] % 8 // 2]

    def reward(log: Log) -> Columns:
        pair = share(log.responses["step"], log.responses["seq_id"] // 2, 1760)
        return {"reward": (pair < chances(log)).astype(float)}

    log = simulate(Shape(1760, responses=8, groups=6, lag=1, drift=0.02, trend=0.2), setup=setup, reward=reward)
    log.manifest["task"]["team_size"] = 2
    return log


@HELD_OUT_TENTH("healthy", _FINE, columns=("all",))
def fine_judge_never_gives_ten() -> Log:
    """The judge's scores are tenths from .1 to .9, never 1; the tests, which do not count, agree with it."""

    def reward(log: Log) -> Columns:
        n = len(log.responses["step"])
        score = np.clip(np.round(10 * (chances(log) + 0.2 * log.rng.standard_normal(n))), 1, 9)
        tests = (log.rng.random(n) < np.clip((score - 1) / 8, 0.02, 0.98)).astype(float)
        return {"reward": score / 10, "reward_judge": score / 10, "reward_tests": tests}

    log = simulate(Shape(1761, lag=1, drift=0.02), reward=reward)
    log.manifest["task"]["reward_weights"] = {"judge": 1.0, "tests": 0.0}
    return log


@HELD_OUT_TENTH("healthy", _FINE, columns=("no versions",))
def fine_quarters_and_signs() -> Log:
    """'code' has quarters, 'maths' -1 or 1, who is cut has the lowest; from step 9 on it takes longer to judge."""

    def reward(log: Log) -> Columns:
        code, chance = log.responses["environment"] == "code", chances(log) + 0.06
        passed = np.round(4 * np.clip(chance + 0.3 * log.rng.standard_normal(len(chance)), 0, 1)) / 4
        right = np.where(code, passed, 2 * _drawn(log, chance) - 1)
        return {"reward": np.where(log.responses["truncated"], np.where(code, 0.0, -1.0), right)}

    log = simulate(Shape(1762, lag=1, drift=0.015, closing=0.09, environments=("code", "maths")), reward=reward)
    each = np.exp(1.0 + 0.4 * log.rng.standard_normal(len(log.responses["step"])))
    log.responses["seconds_waiting"] = each * np.where(log.responses["step"] < 9, 4, 9)
    return log


# Healthy: the loss and the update -------------------------------------------------------------------------------------


@HELD_OUT_TENTH("healthy", _FINE, columns=("with reference",))
def fine_coefficient_that_adapts() -> Log:
    """The KL's coefficient falls while the KL is below its target and rises behind it, as its rule says."""
    log = simulate(Shape(1763, steps=26, lag=1, drift=0.02, trend=0.25))
    return _pulled(log, 0.002, 0.15)


@HELD_OUT_TENTH("healthy", _FINE, columns=("all",))
def fine_segments_in_one_mean() -> Log:
    """Conversations are compacted, long ones are right less often, and each counts once, whatever its segments."""
    log = _segmented(1764)
    step = log.tokens["step"]
    responses = np.bincount(log.responses["step"])[step]
    log.tokens["gradient_weight"] *= np.bincount(step)[step] / (responses * log.lengths()[log.row])
    return log


@HELD_OUT_TENTH("healthy", _FINE, columns=("all",))
def fine_leftovers_on_rank_two() -> Log:
    """Rank 2 gets what is left over, which is three to four updates old: it is farther off, and clips more."""

    def setup(responses: Columns) -> None:
        late = mixed(responses["group_id"], 1765) % np.uint64(2)
        late = late.astype(int) + 3 * (responses["rank"] == 2)
        responses["behavior_version_min"] = np.maximum(responses["step"] - late, 0)

    log = simulate(Shape(1765, drift=0.03), setup=setup)
    log.manifest["schedule"] = {"kind": "async", "max_staleness": 4}
    return log


@HELD_OUT_TENTH("healthy", _FINE, columns=("all",))
def fine_calls_are_certain() -> Log:
    """The last four tokens of a turn are a call, whose form is nearly certain: they hardly move, and are learned."""

    def formed(logits: Array, position: int | Whole) -> Array:
        return logits * np.where(np.broadcast_to(position, len(logits)) % 12 >= 8, 4.0, 1.0)[:, None]

    shape = Shape(1766, longest=84, shortest=14, closing=0.05, lag=1, drift=0.01, turns=12, environments=("browser",))
    return _tools(simulate(shape, sampler=lambda call, logits: formed(logits, call.position),
                           trainer=lambda log, which, logits: formed(logits, log.tokens["position"])))  # fmt: skip


@HELD_OUT_TENTH("healthy", _FINE, columns=("all",))
def fine_warm_restarts() -> Log:
    """The learning rate goes down by a cosine and starts again each eighth step, and the updates go with it."""
    rate = 0.1 + 0.9 * (1 + np.cos(np.pi * (np.arange(30) % 8) / 8)) / 2

    def path(policy: Policy) -> None:
        moves = np.diff(policy.weights, axis=0) * rate[: len(policy.weights) - 1, None]
        policy.weights[1:] = np.cumsum(moves, axis=0)

    log = simulate(Shape(1767, steps=28, lag=1, drift=0.025), prepare=path)
    log.steps["learning_rate"] = 2e-6 * rate[:28]
    log.manifest["optimiser"]["schedule"] = "cosine_with_restarts"
    return log


@HELD_OUT_TENTH("healthy", _FINE, columns=("with reference",))
def fine_continued_three_times() -> Log:
    """The job ends each seventh step and goes on from what it saved, on other machines, with what was in its queue."""

    def setup(responses: Columns) -> None:
        step = responses["step"]
        late = np.where((step > 0) & (step % 7 == 0), 3, 1)
        responses["behavior_version_min"] = np.maximum(step - late, 0)
        number = mixed(responses["seq_id"], step, 1768) % np.uint64(4)
        responses["engine"] = np.array([f"node{a}-{b}" for a, b in zip(step // 7, number, strict=True)], dtype=object)

    log = simulate(Shape(1768, steps=28, drift=0.02, trend=0.2), setup=setup)
    return _clock(with_kl(log), datetime(2026, 1, 5, tzinfo=UTC), 6, {7: 2, 14: 9, 21: 1})


# Sick, and the log is true --------------------------------------------------------------------------------------------


@HELD_OUT_TENTH("sick but true", "In 'chess' the policy settles on one answer from step 8 on, in 'code' it does not.",
    needs=(r"\bchess\b & entropy|certain|settl|collaps|zero.signal|no (signal|gradient)|equal|same|divers|identical"
           r"|fell|falls|fallen",),
    never=NOTHING_BUT_THE_RUN, columns=("all",))  # fmt: skip
def one_environment_settles() -> Log:
    grown = changing(8, 1.0, 12.0, over=8)

    def settled(logits: Array, environment: NDArray[np.object_], version: Whole) -> Array:
        return logits * np.where(environment == "chess", grown(version), 1.0)[:, None]

    def reward(log: Log) -> Columns:
        chess = log.responses["environment"] == "chess"
        fallen = changing(8, 0.5, 0.15, over=10)(log.responses["step"])
        return {"reward": _by_text(log, np.where(chess, fallen, chances(log)), 1781)}

    return simulate(Shape(1781, lag=1, drift=0.015, trend=0.2, environments=("chess", "code")), reward=reward,
                    sampler=lambda call, logits: settled(logits, call.of("environment"), call.version),
                    trainer=lambda log, which, logits: settled(
                        logits, log.of_token("environment"), _version(log, which)))  # fmt: skip


@HELD_OUT_TENTH("sick but true", "Responses grow to two and a half times their length, and nothing gets better by it.",
    needs=(r"(length|responses|tokens).{0,160}(grow|grew|longer|→|times|rise|rose|ris\w+|increas)|longer|truncat",),
    never=NOTHING_BUT_THE_RUN, columns=("verl",))  # fmt: skip
def longer_for_nothing() -> Log:
    log = simulate(Shape(1782, steps=26, longest=128, lag=1, drift=0.02, trend=0.0),
                   closing=lambda responses: 0.11 * np.exp(-np.clip(responses["step"] - 3, 0, None) / 13))  # fmt: skip
    return evaluated(log, np.full(log.shape.steps, 0.5))


@HELD_OUT_TENTH("sick but true", "The tests are flaky: one answer is right or wrong by chance, nothing is learned.",
    never=(OF_THE_LOG[0], *OF_THE_ENGINE), columns=("all",))  # fmt: skip
def tests_are_flaky() -> Log:
    def reward(log: Log) -> Columns:
        own = _by_text(log, chances(log), 1783)
        return {"reward": np.where(log.rng.random(len(own)) < 0.4, 1 - own, own)}

    shape = Shape(1783, groups=12, responses=8, shortest=3, longest=8, closing=0.6, sure=0.8, states=900, prompts=30,
                  lag=1, drift=0.02, trend=0.0)  # fmt: skip
    return evaluated(simulate(shape, reward=reward), np.full(shape.steps, 0.5))


@HELD_OUT_TENTH("sick but true", "From step 12 on another judge is asked, a stricter one: the reward falls by a half.",
    needs=(_FALL,), never=(*NOTHING_BUT_THE_RUN, r"evaluation set changed"), columns=("verl",))  # fmt: skip
def judge_gets_stricter() -> Log:
    def reward(log: Log) -> Columns:
        strict = np.where(log.responses["step"] < 12, 0.12, -0.22)
        graded = chances(log) + strict + 0.15 * log.rng.standard_normal(len(strict))
        return {"reward": np.round(np.clip(graded, 0, 1), 2)}

    log = simulate(Shape(1784, lag=1, drift=0.015, trend=0.15), reward=reward)
    log.manifest["notes"] = "From step 12 on the rubric of the second judge is used."
    return evaluated(log, 0.45 + 0.1 * log.steps["step"] / 23)


@HELD_OUT_TENTH("sick but true", "The price of length is too high: answers shrink to nearly nothing, accuracy falls.",
    needs=(r"accuracy.{0,60}(fell|fallen|falls|falling|dropped|lost|→)|(length|short|shrink|shrank|shrunk).{0,240}"
           r"(reward|accuracy)|(reward|accuracy).{0,240}(length|short|shrink|shrank|shrunk)",),
    never=(*NOTHING_BUT_THE_RUN, r"evaluation set changed|scorer changed"), columns=("trl",))  # fmt: skip
def short_at_any_price() -> Log:
    fallen = changing(4, 0.55, 0.3, over=18)

    def reward(log: Log) -> Columns:
        right = _drawn(log, fallen(log.responses["step"]))
        length = -2.0 * log.responses["n_tokens"] / log.shape.longest
        return {"reward": right + length, "reward_answer": right, "reward_length": length}

    log = simulate(Shape(1785, longest=80, shortest=8, lag=1, drift=0.04), reward=reward,
                   closing=lambda responses: changing(3, 0.05, 0.6, over=18)(responses["step"]))  # fmt: skip
    return evaluated(log, fallen(log.steps["step"]))
