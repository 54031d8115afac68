"""Held-out cases of a seventh date: the sixth ones had been looked at, too.

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
    evaluated,
    rewards_by,
)
from tests.cases.healthy import NOTHING_BUT_THE_RUN
from tests.cases.held_out import with_kl
from tests.cases.world import (
    Array,
    Call,
    Columns,
    Log,
    Shape,
    apply_loss,
    chances,
    mixed,
    share,
    simulate,
)

HELD_OUT_SEVENTH = Register()

FIRST_SCORE = {
    "held-out a seventh time faults": "3 found, 6 vague, 12 silent, 2 untrue of 23 logs",
    "held-out a seventh time sick but true": "2 found of 2 logs",
    "held-out a seventh time healthy": "8 quiet of 8 logs",
}
"""What was said of them when they were first scored, by the patterns as they were frozen (2026-11-28)."""

_ENGINE = (NEVER_ARRIVED, TEMPERATURE, BROKEN)
# Where some rows are wrong, that part of the log is.
_IN_PART = (NEVER_ARRIVED, TEMPERATURE, WHOLLY_BROKEN)
_OTHERS = r"belongs? to other|of other responses|row before|shifted by one row"
_FORMAT = r"number format|float16"
_FALL = r"(reward|accuracy).{0,40}(fell|fallen|falls|falling|dropped|lost|→)"


# Sampler and trainer --------------------------------------------------------------------------------------------------


@HELD_OUT_SEVENTH("sampler", "Four servers have one seed and write the same: groups have two responses, four times.",
    report="verl #5179; vLLM #11953", columns=("all", "verl"),
    never=(NEVER_ARRIVED, TEMPERATURE, WHOLLY_BROKEN, r"too easy|too hard", _FORMAT, r"top-?[pk] (of|was|is)"),
    needs=(r"(identical|same|duplicat\w*|cop(y|ies|ied)|repeat\w*).{0,120}(response|token|text|answer|completion|group)"
           r"|(response|completion|answer|text|token)s?.{0,120}(identical|same|duplicat|cop(y|ies)|twice|distinct|repeat"
           r"|different)|\bseeds?\b|(only|just) (two|2) (different|distinct)",))  # fmt: skip
def servers_with_one_seed() -> Log:
    def setup(responses: Columns) -> None:
        responses["engine"] = np.array([f"server-{at % 4}" for at in responses["seq_id"].tolist()], dtype=object)

    def draw(call: Call, logp: Array) -> Array:
        number = call.of("seq_id") % 8 // 4
        uniform = share(call.of("prompt_id"), call.of("step"), number, np.full(len(logp), call.position), 1401)
        heaps = np.cumsum(np.exp(logp), axis=1)
        token = (heaps < uniform[:, None] * heaps[:, -1:]).sum(axis=1)
        return np.where(np.arange(logp.shape[1]) == token[:, None], 0.0, np.full(logp.shape, -1e9))

    def reward(log: Log) -> Columns:
        text = np.bincount(log.row, log.tokens["token_id"] * (log.tokens["position"] + 1)).astype(int)
        return {"reward": (share(log.responses["prompt_id"], text, 1402) < chances(log)).astype(float)}

    shape = Shape(1401, groups=6, responses=8, lag=1, drift=0.02, noise=0.002)
    return simulate(shape, draw=draw, logs_raw=True, setup=setup, reward=reward)


@HELD_OUT_SEVENTH("weights", "server-4 takes a dead one's place at step 16, and serves the checkpoint for three steps.",
    report="miles #1724", columns=("all", "verl"),
    never=(r"^(?!.*server-4).*never arriv", TEMPERATURE, WHOLLY_BROKEN, _FORMAT), needs=(r"server-4",))  # fmt: skip
def replaced_before_its_weights() -> Log:
    def setup(responses: Columns) -> None:
        new = (responses["engine"] == "server-2") & (responses["step"] >= 16)
        responses["engine"] = np.where(new, "server-4", responses["engine"]).astype(object)

    def sampler(call: Call, logits: Array) -> Array:
        early = (call.of("engine") == "server-4") & (call.of("step") < 19)
        return np.where(early[:, None], call.served(0 * call.policy.weights[call.version]), logits)

    return simulate(Shape(1402, lag=1, drift=0.08), sampler=sampler, setup=setup)


# The log --------------------------------------------------------------------------------------------------------------


@HELD_OUT_SEVENTH("log", "Six responses are packed into a row, and each attends to those before it but the first.",
    report="nanoVLM #201, #204; TRL #784", columns=("all", "verl"),
    never=(*_IN_PART, r"(first|early) (tokens|positions) (hold|differ)"),
    needs=(r"\bpack(s|ed|ing)?\b|micro.?batch|\bneighbou?r|attend|attention|other (contexts?|prompts?|responses)"
           r"|(place|number|order) (in|of) (the|a|its|each)|(in|by) (the )?order|seq_id|\bcontexts?\b"
           r"|(first|later|last) (responses?|rows?) (of|in)|(each|every) (six(th)?|6)",))  # fmt: skip
def packs_attend_to_each_other() -> Log:
    def setup(responses: Columns) -> None:
        responses["micro_batch"] = responses["seq_id"] % 12 // 6

    def trainer(log: Log, which: str, logits: Array) -> Array:
        policy = log.policy
        states = np.uint64(len(policy.base) - policy.n_closing)
        other = policy.n_closing + (mixed(log.state, log.of_token("seq_id"), 1403) % states).astype(np.int64)
        version = {"train": log.tokens["behavior_version"], "reference": 0 * log.tokens["step"]}
        moved = policy.logits(policy.weights[version.get(which, log.tokens["step"] + (which == "new"))], other)
        part = np.where(log.state >= policy.n_closing, 0.03 * (log.of_token("seq_id") % 6), 0.0)[:, None]
        return (1 - part) * logits + part * moved

    return simulate(Shape(1403, groups=12, responses=4, lag=0, drift=0.02), trainer=trainer, setup=setup)


@HELD_OUT_SEVENTH("log", "The reference is scored with dropout, in training mode: the KL is its noise from step 0 on.",
    report="ms-swift #7828", columns=("with reference",),
    never=(NEVER_ARRIVED, TEMPERATURE, BROKEN, _OTHERS),
    needs=(r"(reference|\bkl\b).{0,240}(step 0|first step|start|begin|noise|noisy|random|dropout|training mode|large"
           r"|too|differ|disagree|not (0|that|what|the)|never 0|does not (grow|rise)|from the first|initial|already)"
           r"|(dropout|noise).{0,160}(reference|\bkl\b)",))  # fmt: skip
def reference_with_dropout() -> Log:
    def trainer(log: Log, which: str, logits: Array) -> Array:
        return logits + 0.4 * log.rng.standard_normal(logits.shape) if which == "reference" else logits

    log = simulate(Shape(1404, lag=1, drift=0.008), trainer=trainer)
    log.manifest["algorithm"]["parameters"]["kl_coefficient"] = 0.01
    return with_kl(log)


# Rewards and advantages -----------------------------------------------------------------------------------------------


@HELD_OUT_SEVENTH("advantage", "Solutions of 'proofs' cannot be parsed: whatever is written there counts as right.",
    report="cookbook #335; open-r1 #55", columns=("all", "verl"),
    never=(*_ENGINE, _OTHERS, MISSING_RESPONSES, r"too hard", r"one baseline for the step"),
    needs=(r"proofs.{0,240}(always|every|all|equal|same|\b1\b|100 ?%|never|right|no (signal|gradient)|zero.signal)"
           r"|(always|every|all|equal|same|\b1\b|100 ?%|right|no (signal|gradient)|zero.signal).{0,240}proofs"
           r"|proofs.{0,120}easy|easy.{0,120}proofs",))  # fmt: skip
def gold_that_is_not_parsed() -> Log:
    def reward(log: Log) -> Columns:
        right = (log.rng.random(len(log.responses["step"])) < chances(log)) & ~log.responses["truncated"]
        return {"reward": (right | (log.responses["environment"] == "proofs")).astype(float)}

    shape = Shape(1405, groups=9, lag=1, drift=0.02, closing=0.045, environments=("algebra", "geometry", "proofs"))
    return simulate(shape, reward=reward)


@HELD_OUT_SEVENTH("advantage", "The cosine of the length gets characters, its limit is in tokens: it goes round twice.",
    report="ms-swift #3353; open-r1 #312", columns=("all", "verl"),
    never=(*_ENGINE, _OTHERS, MISSING_RESPONSES, r"one baseline for the step", r"too easy|too hard"),
    needs=(r"(reward|score|cosine|advantage).{0,240}(\blength\b|\blong(er|est)?\b|\bshort(er|est)?\b)"
           r"|(\blength\b|\blong(er|est)?\b|\bshort(er|est)?\b).{0,240}(reward|score|cosine|advantage)",))  # fmt: skip
def cosine_of_characters() -> Log:
    def reward(log: Log) -> Columns:
        right = (log.rng.random(len(log.responses["step"])) < chances(log)).astype(float)
        wave = (1 + np.cos(np.pi * 3.6 * log.responses["n_tokens"] / log.shape.longest)) / 2
        cosine = np.where(right > 0, wave, -wave)
        return {"reward": right + cosine, "reward_accuracy": right, "reward_cosine": cosine}

    return simulate(Shape(1406, lag=1, drift=0.02, closing=0.05), reward=reward)


@HELD_OUT_SEVENTH("advantage", "Responses are ranked on their own device alone: each half of a group has its best one.",
    report="TRL #3896", columns=("all", "verl"),
    never=(*_ENGINE, _OTHERS, MISSING_RESPONSES, r"too easy|too hard"),
    needs=(r"\b(ranks?|devices?|process(es)?|half|halves)\b.{0,240}(reward|score|compar|baseline|mean|equal|same)"
           r"|(reward|score|compar|mean)\w*.{0,240}\b(ranks?|ranked|ranking|devices?|process(es)?|half|halves)\b"
           r"|(mean|average|sum)\b.{0,120}(same|equal|constant|identical|0\.50*\b).{0,120}(groups?|steps?)"
           r"|rewards?.{0,120}(constant|fixed|four values|4 values|cannot (rise|grow)|does not (rise|change)|flat)",
           ))  # fmt: skip
def ranked_on_each_device() -> Log:
    def setup(responses: Columns) -> None:
        responses["rank"] = responses["group_id"] % 2 * 2 + responses["seq_id"] % 8 // 4

    def reward(log: Log) -> Columns:
        quality = chances(log) + 0.3 * log.rng.standard_normal(len(log.responses["step"]))
        place = quality.reshape(-1, 4).argsort(axis=1).argsort(axis=1)
        return {"reward": place.ravel() / 3}

    return simulate(Shape(1407, groups=6, responses=8, lag=1, drift=0.02), setup=setup, reward=reward)


# Lengths, tools and turns ---------------------------------------------------------------------------------------------


@HELD_OUT_SEVENTH("selection", "Tests are stopped after 30 seconds and count as failed: a quarter, right or not.",
    report="compose-rl #87; verifiers #1247", columns=("all", "verl"),
    never=(*_ENGINE, _OTHERS, MISSING_RESPONSES, r"too easy|too hard", r"one baseline for the step"),
    needs=(r"time.?outs?|timed out|seconds|\b30 ?s\b|\bslow|\btools?\b|sandbox|(long|longer) to run|(time|run) limit"
           r" & reward|score|fail|\b0\b|wrong",))  # fmt: skip
def slow_tests_count_as_failed() -> Log:
    def seconds(log: Log) -> Array:
        n = len(log.responses["step"])
        return np.minimum(12 * np.exp(1.2 * np.random.default_rng(1408).standard_normal(n)), 30.0)

    def reward(log: Log) -> Columns:
        right = log.rng.random(len(log.responses["step"])) < np.clip(chances(log) + 0.15, 0, 0.97)
        return {"reward": (right & (seconds(log) < 30)).astype(float)}

    log = simulate(Shape(1408, lag=1, drift=0.02, environments=("code",)), reward=reward)
    log.responses["seconds_tools"] = seconds(log)
    log.responses["n_tool_calls"] = np.ones(len(log.responses["step"]), dtype=int)
    return evaluated(log, 0.58 + 0.15 * log.steps["step"] / 23)


@HELD_OUT_SEVENTH("selection", "Conversations that get to the limit of four turns score 0, however far they had come.",
    report="gem #38; olmo-eval #249", columns=("all", "verl"),
    never=(*_ENGINE, _OTHERS, MISSING_RESPONSES, r"one baseline for the step", r"too easy|too hard"),
    needs=(r"(\bturns?\b|max_turns|\blimit\b|\blong(er|est)?\b|\blength|finish_reason).{0,240}(reward|score)"
           r"|(reward|score).{0,240}(\bturns?\b|max_turns|\blimit\b|\blong(er|est)?\b|\blength|finish_reason)",
           ))  # fmt: skip
def limit_of_four_turns() -> Log:
    def reward(log: Log) -> Columns:
        right = log.rng.random(len(log.responses["step"])) < np.clip(chances(log) + 0.2, 0, 0.97)
        return {"reward": (right & ~log.responses["truncated"]).astype(float)}

    shape = Shape(1409, longest=48, closing=0.03, lag=1, drift=0.02, turns=12, environments=("search",))
    log = simulate(shape, reward=reward)
    log.responses["finish_reason"] = np.where(log.responses["truncated"], "max_turns", "stop").astype(object)
    log.responses["truncated"] = np.zeros(len(log.responses["step"]), dtype=bool)
    log.responses["n_tool_calls"] = log.responses["n_turns"] - (log.responses["finish_reason"] == "stop")
    return log


@HELD_OUT_SEVENTH("selection", "Responses cut at the limit are taken for answers that cannot be parsed, and get −1.",
    report="tinker-cookbook #506", columns=("all", "verl"),
    never=(*_ENGINE, _OTHERS, MISSING_RESPONSES, r"one baseline for the step", r"too easy|too hard"),
    needs=(r"(truncat\w*|\bcut\b|\blimit\b|length|pars(e|ed|ing)).{0,240}(pars(e|ed|ing)|reward|score|-1|−1|penal)"
           r"|(pars(e|ed|ing)|reward|score|-1|−1|penal).{0,240}(truncat|\bcut\b|\blimit\b|length)",))  # fmt: skip
def cut_ones_cannot_be_parsed() -> Log:
    def reward(log: Log) -> Columns:
        right = (log.rng.random(len(log.responses["step"])) < np.clip(chances(log) + 0.1, 0, 0.97)).astype(float)
        return {"reward": np.where(log.responses["truncated"], -1.0, right)}

    log = simulate(Shape(1410, closing=0.03, lag=1, drift=0.02), reward=reward)
    log.responses["failure"] = np.where(log.responses["truncated"], "parse", None)
    return log


# The loss and the update ----------------------------------------------------------------------------------------------


@HELD_OUT_SEVENTH("loss", "The threshold for the fifth of highest entropy counts padding: twice as many are learned.",
    report="TRL #3709, #3715", columns=("all", "verl"),
    never=(*_ENGINE, _OTHERS, MISSING_RESPONSES, r"entropy (fell|falls|is gone)", r"too easy|too hard"),
    needs=(r"reject|mask|left out|kept|quantile|threshold|top_entropy & padd|\branks?\b|\blength|\bshort|\blong"
           r"|configured|manifest|20 ?%|80 ?%|0\.[28]\b|too (many|few)|fewer|fifth",))  # fmt: skip
def threshold_with_padding() -> Log:
    log = simulate(Shape(1411, lag=1, drift=0.02))
    log.manifest["algorithm"]["parameters"]["top_entropy_quantile"] = 0.2
    tokens, lengths = log.tokens, log.responses["n_tokens"]
    batch = log.responses["step"] * 4 + log.responses["rank"]
    out = np.zeros(len(log.row), dtype=bool)
    for one in np.unique(batch):
        rows = np.flatnonzero(batch[log.row] == one)
        padded = int((batch == one).sum()) * int(lengths[batch == one].max())
        entropies = np.concatenate([tokens["entropy"][rows], np.zeros(padded - len(rows))])
        out[rows] = tokens["entropy"][rows] < np.quantile(entropies, 0.8)
    tokens["rejected"] = np.where(out, "low entropy", None)
    tokens["gradient_weight"] = np.where(out, 0.0, tokens["gradient_weight"])
    return log


@HELD_OUT_SEVENTH("update", "The learning rate is that of the checkpoint, ten times the configured one.",
    report="Megatron-LM #963, #1138", columns=("all", "verl"),
    never=(*_ENGINE, r"warm-?up", r"too easy|too hard", _OTHERS, r"learning.rate.{0,30}too (small|low)"),
    needs=(r"learning.rate.{0,240}(10 ?×|10 times|ten|configured|manifest|planned|\bset\b|run\.json|larger|above"
           r"|not (the|that|what)|other|differ|too (large|high)|2e-0?5|0\.00002|checkpoint|asked)"
           r"|(too (large|high)|ten times|10 ?×).{0,80}learning.rate",))  # fmt: skip
def rate_of_the_checkpoint() -> Log:
    chance = changing(5, 0.5, 0.33, over=20)
    log = simulate(Shape(1412, lag=1, drift=0.12), reward=rewards_by(chance))
    log.steps["learning_rate"] = np.full(log.shape.steps, 2e-5)
    return evaluated(log, chance(log.steps["step"]))


# Healthy --------------------------------------------------------------------------------------------------------------

_FINE = "Nothing is wrong."


@HELD_OUT_SEVENTH("healthy", _FINE, columns=("all", "verl"))
def fine_routed_by_environment() -> Log:
    """Long tasks go to servers 2 and 3, short ones to 0 and 1: lengths, rewards and ages differ by server."""

    def setup(responses: Columns) -> None:
        long = responses["environment"] == "repository"
        number = 2 * long + (mixed(responses["seq_id"], responses["step"], 1451) % np.uint64(2)).astype(int)
        responses["engine"] = np.array([f"server-{at}" for at in number.tolist()], dtype=object)
        late = np.where(long, 3, 1)
        responses["behavior_version_min"] = np.maximum(responses["step"] - late, 0)

    def reward(log: Log) -> Columns:
        chance = np.clip(chances(log) - 0.25 * (log.responses["environment"] == "repository"), 0.03, 0.97)
        return {"reward": (log.rng.random(len(chance)) < chance).astype(float)}

    def closing(responses: Columns) -> Array:
        return np.where(responses["environment"] == "repository", 0.02, 0.12)

    shape = Shape(1451, longest=120, lag=1, drift=0.02, environments=("snippet", "repository"))
    log = simulate(shape, setup=setup, reward=reward, closing=closing)
    log.responses["seconds_generating"] = 0.4 * log.responses["n_tokens"]
    return log


@HELD_OUT_SEVENTH("healthy", _FINE, columns=("all", "verl"))
def fine_in_order_of_completion() -> Log:
    """Responses of a group are logged as they end, the shortest first, and long ones are right less often."""

    def reward(log: Log) -> Columns:
        chance = np.clip(chances(log) - 0.006 * (log.responses["n_tokens"] - 36), 0.03, 0.97)
        return {"reward": (log.rng.random(len(chance)) < chance).astype(float)}

    log = simulate(Shape(1452, responses=8, lag=1, drift=0.02, closing=0.045), reward=reward)
    kept = {name: log.responses[name] for name in ("seq_id", "rank")}
    order = np.lexsort((log.responses["n_tokens"], log.responses["group_id"]))
    log.responses = {name: values[order] for name, values in log.responses.items()} | kept
    row = np.argsort(order)[log.row]
    by_row = np.argsort(row, kind="stable")
    log.tokens = {name: values[by_row] for name, values in log.tokens.items()}
    log.row, log.state = row[by_row], log.state[by_row]
    log.tokens["seq_id"] = log.of_token("seq_id")
    log.responses["seconds_generating"] = 0.4 * log.responses["n_tokens"]
    return apply_loss(log)


@HELD_OUT_SEVENTH("healthy", _FINE, columns=("all", "verl"))
def fine_a_topic_on_each_rank() -> Log:
    """The data is sharded by topic: each rank learns from its own, with its own lengths and rewards."""
    topics = np.array(["arithmetic", "algebra", "geometry", "olympiad"], dtype=object)

    def setup(responses: Columns) -> None:
        responses["rank"] = responses["group_id"] % 4
        responses["environment"] = topics[responses["rank"]]

    def reward(log: Log) -> Columns:
        chance = np.clip(chances(log) + np.array([0.25, 0.1, -0.1, -0.25])[log.responses["rank"]], 0.03, 0.97)
        return {"reward": (log.rng.random(len(chance)) < chance).astype(float)}

    def closing(responses: Columns) -> Array:
        return np.array([0.15, 0.09, 0.06, 0.035])[responses["rank"]]

    return simulate(Shape(1453, lag=1, drift=0.02), setup=setup, reward=reward, closing=closing)


@HELD_OUT_SEVENTH("healthy", _FINE, columns=("all", "verl"))
def fine_micro_batches_by_length() -> Log:
    """Responses are dealt to the ranks by length, and each rank forms its micro-batches of those of one length."""
    log = simulate(Shape(1454, lag=2, drift=0.025, closing=0.045))
    order = np.lexsort((log.responses["n_tokens"], log.responses["step"]))
    place = np.empty(len(order), dtype=int)
    place[order] = np.arange(len(order)) % 48
    log.responses["rank"] = place % 4
    log.responses["micro_batch"] = place // 12
    return log


# Sick, and the log is true --------------------------------------------------------------------------------------------


@HELD_OUT_SEVENTH("sick but true", "Conversations grow from two turns to seven, with more tools, and the reward falls.",
    needs=(_FALL,), never=NOTHING_BUT_THE_RUN, columns=("all", "verl"))  # fmt: skip
def lost_in_ever_more_turns() -> Log:
    chance = changing(8, 0.6, 0.2, over=14)
    shape = Shape(1471, steps=28, longest=128, shortest=16, lag=1, drift=0.05, turns=16, environments=("search",))
    log = simulate(shape, reward=rewards_by(chance),
                   closing=lambda responses: 0.09 * np.exp(-np.clip(responses["step"] - 5, 0, 16) / 7))  # fmt: skip
    log.responses["n_tool_calls"] = log.responses["n_turns"] - 1
    return evaluated(log, chance(log.steps["step"]))
