"""Held-out cases of an eighth date: the seventh ones had been looked at, too.

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
    TEMPERATURE,
    WHOLLY_BROKEN,
    changing,
    evaluated,
    rewards_by,
)
from tests.cases.healthy import NOTHING_BUT_THE_RUN
from tests.cases.held_out import with_kl
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

HELD_OUT_EIGHTH = Register()

FIRST_SCORE = {
    "held-out an eighth time faults": "8 found, 6 vague, 10 silent, 4 untrue of 28 logs",
    "held-out an eighth time sick but true": "1 found, 1 silent of 2 logs",
    "held-out an eighth time healthy": "8 quiet of 8 logs",
}
"""What was said of them when they were first scored, by the patterns as they were frozen (2026-11-28)."""

_ENGINE = (NEVER_ARRIVED, TEMPERATURE, BROKEN)
# Where some rows are wrong, that part of the log is.
_IN_PART = (NEVER_ARRIVED, TEMPERATURE, WHOLLY_BROKEN)
_OTHERS = r"belongs? to other|of other responses|row before|shifted by one row"
_FORMAT = r"number format|float16"
_EASE = r"too easy|too hard"
_STEP = r"one baseline for the step"
_FALL = r"(reward|accuracy).{0,40}(fell|fallen|falls|falling|dropped|lost|→)"


def _logp(log: Log, version: NDArray[np.int64]) -> Array:
    """What versions of the weights give the tokens of the log."""
    logp = log_softmax(log.policy.logits(log.policy.weights[version], log.state))
    return np.asarray(logp[np.arange(len(log.row)), log.tokens["token_id"]])


def _drawn(log: Log, chance: Array) -> Array:
    """Right or wrong, with these chances."""
    return (log.rng.random(len(chance)) < np.clip(chance, 0.02, 0.98)).astype(float)


def _cut(log: Log, limit: NDArray[np.int64]) -> Log:
    """The log with each response cut at a limit of its own."""
    log.responses["truncated"] = log.responses["truncated"] | (log.lengths() > limit)
    log.keep(log.tokens["position"] < limit[log.row])
    log.responses["n_tokens"] = log.lengths()
    log.responses["finish_reason"] = np.where(log.responses["truncated"], "length", "stop").astype(object)
    return log


def _sorted_by_length(log: Log) -> Log:
    """Responses dealt to the ranks by length, in four micro-batches of those of one length."""
    order = np.lexsort((log.responses["n_tokens"], log.responses["step"]))
    place = np.empty(len(order), dtype=int)
    place[order] = np.arange(len(order)) % 48
    log.responses["rank"], log.responses["micro_batch"] = place % 4, place // 12
    return log


# Sampler, weights and versions ----------------------------------------------------------------------------------------


@HELD_OUT_EIGHTH("sampler", "'chat' is sampled at its own temperature of 0.6, and the trainer scores it at 1.",
    report="prime-rl #2669, #2637; tinker-cookbook #86", columns=("all", "prime-rl"),
    never=(NEVER_ARRIVED, WHOLLY_BROKEN, _FORMAT, r"top-?[pk] (of|was|is)",
           r"^(?!.*chat).*(drew at \d|× the temperature)"),
    needs=(r"\bchat\b & temperature|\bcold|\bsharp|\bscaled?\b|\bflat",))  # fmt: skip
def temperature_of_one_environment() -> Log:
    def setup(responses: Columns) -> None:
        responses["temperature"] = np.where(responses["environment"] == "chat", 0.6, 1.0)

    def sampler(call: Call, logits: Array) -> Array:
        return logits / call.of("temperature")[:, None]

    log = simulate(Shape(1501, lag=1, drift=0.02, environments=("chat", "maths")), setup=setup, sampler=sampler)
    log.manifest["sampled_with"] = "processed"
    del log.manifest["sampler"]["temperature"]
    return log


@HELD_OUT_EIGHTH("weights", "From the restart on adapters have the old one's name: that of step 12 is served.",
    report="vLLM #48312; vllm-metal #351", columns=("all", "verl"),
    never=(TEMPERATURE, BROKEN, _FORMAT, r"\bcop(y|ied)\b of", r"accumulat"),
    needs=(r"never arriv|does not follow the|(no longer|not|never|stopp\w*|ceas\w*).{0,60}(follow|receiv|arriv|updated"
           r"|synced)|(old|older|same|earlier|stale|first) (weights|adapter|version)|stuck|frozen|froze|stands? still"
           r"|stood still|(weights|adapter|version|update) of (step |version |update )?1[12]",))  # fmt: skip
def adapter_of_the_same_name() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        served = call.served(call.policy.weights[np.minimum(call.version, 12)])
        return served + 0.01 * call.noise()

    log = simulate(Shape(1502, steps=28, lag=1, drift=0.05), sampler=sampler)
    log.responses["adapter"] = np.full(len(log.responses["step"]), "policy", dtype=object)
    hours = [timedelta(hours=0.1 * step + 2 * (step >= 12)) for step in log.steps["step"].tolist()]
    log.steps["wall_time"] = np.array([datetime(2026, 1, 5, tzinfo=UTC) + each for each in hours], dtype=object)
    return log


@HELD_OUT_EIGHTH("weights", "Weights are sent each sixth step, versions count each step: data is older than it says.",
    report="verl-omni #374; TRL #5937", columns=("all", "verl"),
    never=(TEMPERATURE, BROKEN, _FORMAT, r"never arriv", r"\bcache"),
    needs=(r"(every|each) (6|six)|period|saw.?tooth|cycl|interval|(skip|miss)\w*.{0,80}(sync|updates?|weights)"
           r"|(sync|sent|refresh|arriv)\w*.{0,80}(skipp|missed|rare|seldom|only|not (every|each))"
           r"|(label|version|stamp)s?.{0,120}(too (young|new|recent)|older than|younger than)"
           r"|older than (it|they|the|its|their) (say|label|version|claim)|(old|older|stale) weights"
           r"|(do|does) not follow the|more than .{0,60}(updates?|versions?|age) (can )?explain",))  # fmt: skip
def synced_each_sixth_step() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        return call.served(call.policy.weights[call.version // 6 * 6]) + 0.005 * call.noise()

    return simulate(Shape(1503, steps=30, lag=0, drift=0.06), sampler=sampler)


@HELD_OUT_EIGHTH("weights", "Versions are those of admission: who waited was drawn by newer weights than it says.",
    report="vLLM #54443",
    never=(r"never arriv", TEMPERATURE, BROKEN, _FORMAT, r"too (young|new|recent)", r"older than (it|they) say"),
    needs=(r"(label|version|stamp|\bages?\b).{0,200}(too old|newer (than|weights|version)|younger|mislabel|wrong|untrue"
           r"|over-?stat|not explain|(does|do) not (grow|show|matter|fit)|closer|nearer|unrelated|independent|admi)"
           r"|(newer|younger|more recent) (weights|versions?|polic\w+)|closer to (the )?(current|newer)",))  # fmt: skip
def labelled_at_admission() -> Log:
    log = simulate(Shape(1504, lag=1, drift=0.12, noise=0.003))
    step, seq = log.responses["step"], log.responses["seq_id"]
    waited = np.where(share(step, seq, 1504) < 0.35, 2 + (mixed(step, seq, 1505) % np.uint64(3)).astype(int), 0)
    said = np.maximum(log.responses["behavior_version_min"] - waited, 0)
    log.responses["behavior_version_min"], log.responses["behavior_version_max"] = said, said.copy()
    log.tokens["behavior_version"] = said[log.row]
    log.tokens["logp_behavior_train"] = _logp(log, said[log.row])
    return log


@HELD_OUT_EIGHTH("weights", "A version counts calls, of which each update takes four: it runs ahead of the trainer's.",
    report="UniRL #324",
    never=(*_ENGINE, _FORMAT, r"starts? again|started again|went back"),
    needs=(r"version.{0,200}(ahead|above|beyond|exceed|newer than|larger than|greater|higher than|later than|future"
           r"|faster|not (yet|there)|negative|below 0|(4|four) (×|times|a|per|each)|too (large|high)|impossible"
           r"|before (it|they) (was|were|exist))|\bages?\b.{0,80}(negative|below 0|impossible|-\d|−\d)",))  # fmt: skip
def versions_count_calls() -> Log:
    log = simulate(Shape(1506, lag=1, drift=0.02))
    log.tokens["behavior_version"] = 4 * log.tokens["behavior_version"]
    for name in ("behavior_version_min", "behavior_version_max"):
        log.responses[name] = 4 * log.responses[name]
    return log


@HELD_OUT_EIGHTH("selection", "Data may be two updates old, says the manifest: a fifth of it is five to eight old.",
    report="open-instruct #1738, #1799", columns=("all", "prime-rl"),
    never=(*_ENGINE, _FORMAT, MISSING_RESPONSES, r"(version|label)s? .{0,40}(wrong|mislabel|too (young|old))"),
    needs=(r"max_staleness|exceed|(above|beyond|over) (the|its|this) (limit|maximum|bound|window)|not kept"
           r"|(manifest|configured|allow|permit|run\.json).{0,200}(\bold|\bage|stale|\blag|behind|updates? (old|late))"
           r"|(\bold|\bage|stale|\blag|behind).{0,200}(manifest|configured|allow|permit|run\.json|limit of (2|two))",
           ))  # fmt: skip
def older_than_the_limit() -> Log:
    def setup(responses: Columns) -> None:
        dice = share(responses["group_id"], 1507)
        late = np.where(dice < 0.2, 5 + (20 * dice).astype(int), (mixed(responses["group_id"], 8) % np.uint64(3)))
        responses["behavior_version_min"] = np.maximum(responses["step"] - late.astype(int), 0)

    log = simulate(Shape(1507, steps=28, drift=0.03), setup=setup)
    log.manifest["schedule"] = {"kind": "async", "max_staleness": 2}
    return log


# Conversations --------------------------------------------------------------------------------------------------------


@HELD_OUT_EIGHTH("log", "From the third turn on the trainer's history is one turn, the sampler's is all of it.",
    report="prime-rl #1383",
    never=(*_IN_PART, _FORMAT, r"\bcache", r"end of (the )?context"),
    needs=(r"\b(third|later|late|last) turns?\b|\bturns? ([2-7]|two|three|five)\b|histor"
           r"|(from|behind|after|since|beyond|but) (the )?(first|second|third) (turn|message)"
           r"|\bturns?\b.{0,200}(context|mismatch|hold|\bsit|differ|disagree)",))  # fmt: skip
def history_of_one_turn() -> Log:
    def trainer(log: Log, which: str, logits: Array) -> Array:
        policy, step = log.policy, log.tokens["step"]
        states = np.uint64(len(policy.base) - policy.n_closing)
        other = policy.n_closing + (mixed(log.state, log.of_token("prompt_id"), 1508) % states).astype(np.int64)
        version = {"train": log.tokens["behavior_version"], "reference": 0 * step, "new": step + 1}.get(which, step)
        part = np.where((log.state >= policy.n_closing) & (log.tokens["turn"] >= 5), 0.12, 0.0)[:, None]
        return np.asarray((1 - part) * logits + part * policy.logits(policy.weights[version], other))

    shape = Shape(1508, longest=80, shortest=20, closing=0.025, lag=1, drift=0.02, turns=14, environments=("shell",))
    log = simulate(shape, trainer=trainer)
    log.responses["n_tool_calls"] = log.responses["n_turns"] - 1
    return log


@HELD_OUT_EIGHTH("selection", "Two branches of a trace have their first two turns in common, and both learn them.",
    report="prime-rl #2975",
    never=(*_ENGINE, _FORMAT, r"\bseeds?\b", r"mode collapse|settled on", _EASE, r"greedy|deterministic"),
    needs=(r"prefix|\bbranch|\bfork|duplicat|\btwice\b|more than once|two times|\bcop(y|ies)\b"
           r"|(identical|the same|shared?|in common) .{0,60}(first|begin|start|tokens|turns)"
           r"|(begin|start)\w* .{0,60}(identical|same|alike|equal)|first .{0,40}(identical|same|alike|equal)",
           ))  # fmt: skip
def shared_turns_in_each_branch() -> Log:
    def setup(responses: Columns) -> None:
        responses["engine"] = np.repeat(responses["engine"][::2], 2)

    def draw(call: Call, logp: Array) -> Array:
        branch = call.of("seq_id") if call.position >= 24 else call.of("seq_id") // 2 + 1000
        uniform = share(call.of("prompt_id"), call.of("step"), branch, np.full(len(logp), call.position), 1509)
        heaps = np.cumsum(np.exp(logp), axis=1)
        token = (heaps < uniform[:, None] * heaps[:, -1:]).sum(axis=1)
        return np.where(np.arange(logp.shape[1]) == token[:, None], 0.0, np.full(logp.shape, -1e9))

    def reward(log: Log) -> Columns:
        pair = share(log.responses["step"], log.responses["seq_id"] // 2, 1510)
        return {"reward": (pair < np.repeat(chances(log)[::2], 2)).astype(float)}

    shape = Shape(1509, groups=6, responses=8, longest=60, shortest=28, closing=0.05, lag=1, drift=0.02, turns=12,
                  noise=0.0)  # fmt: skip
    log = simulate(shape, draw=draw, logs_raw=True, setup=setup, reward=reward)
    noise = 0.004 * (share(log.state, log.tokens["token_id"], log.tokens["step"], 1511) - 0.5)
    log.tokens["logp_behavior"] = np.minimum(log.tokens["logp_behavior"] + noise, 0.0)
    log.responses["n_tool_calls"] = log.responses["n_turns"] - 1
    return apply_loss(log)


@HELD_OUT_EIGHTH("selection", "The trainer cuts conversations at 40 tokens, the limit of a turn: late turns are lost.",
    report="rllm #575", columns=("all", "verl"),
    never=(*_IN_PART, _FORMAT, MISSING_RESPONSES, r"ranks?.{0,20} missing", _EASE),
    needs=(r"n_tokens|(fewer|less) (rows|tokens)|position 39|first 40|late(r)? turns|\bat (position |token )?(39|40)\b"
           r"|(tokens|rows|turns|\bends?) .{0,80}(missing|\blost\b|absent|dropped|left out|\bcut\b|not (in|logged"
           r"|learned|trained))|(behind|after|beyond|past|above) (position|token)s? ?(39|40)",))  # fmt: skip
def late_turns_cut_off() -> Log:
    shape = Shape(1512, longest=96, shortest=16, closing=0.03, lag=1, drift=0.02, turns=12, environments=("search",))
    log = simulate(shape)
    log.responses["n_tool_calls"] = log.responses["n_turns"] - 1
    return apply_loss(log.keep(log.tokens["position"] < 40))


@HELD_OUT_EIGHTH("sampler", "Token 1 ends a turn and is not among the engine's stop tokens: all goes on to the limit.",
    report="TRL #3425, #2387",
    never=(*_ENGINE, _FORMAT, _EASE, r"loops?\b.{0,40}until", r"limit is (too small|below)"),
    needs=(r"\beos\b|\b(end|stop)[- ]?\w* tokens?\b|stop_token|\btoken (id )?1\b|ignore_eos"
           r"|(behind|after|past|beyond) (the|their|its|an?) (\w+ )?end\b|(do|does|did) not stop (at|there)",
           ))  # fmt: skip
def ends_are_passed() -> Log:
    def prepare(policy: Policy) -> None:
        closing = policy.base[: policy.n_closing]
        closing[:, 1] = closing[:, END]
        policy.base[policy.n_closing :, 1] = -35.0
        policy.base[:, END] = -35.0

    log = simulate(Shape(1513, lag=1, drift=0.02, longest=56, closing=0.08, level=0.35), prepare=prepare)
    log.manifest["model"] = {"name": "base-1b", "eos_token_id": 1}
    log.manifest["sampler"] |= {"max_tokens": 56, "stop_token_ids": [END]}
    return log


# Rewards --------------------------------------------------------------------------------------------------------------


@HELD_OUT_EIGHTH("selection", "The server of 'browser' is gone from step 13 on: tools answer at once, with nothing.",
    report="NeMo-Gym #1351", columns=("all", "verl"),
    never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, _EASE, _STEP, r"updates?.{0,40}too large", r"over-?optimi"),
    needs=(r"browser & \btools?\b|\bservers?\b|seconds|crash|\bbroke|outage|unavailable|not (of )?the policy|scorer"
           r"|infrastruct|updates? (can|could)|at once",))  # fmt: skip
def browser_server_is_gone() -> Log:
    def gone(log: Log) -> NDArray[np.bool_]:
        return np.asarray((log.responses["environment"] == "browser") & (log.responses["step"] >= 13))

    def reward(log: Log) -> Columns:
        return {"reward": _drawn(log, np.where(gone(log), 0.04, chances(log)))}

    def closing(responses: Columns) -> Array:
        return np.where((responses["environment"] == "browser") & (responses["step"] >= 13), 0.025, 0.05)

    shape = Shape(1514, longest=80, shortest=14, lag=1, drift=0.02, turns=12, environments=("browser", "tables"))
    log = simulate(shape, reward=reward, closing=closing)
    log.responses["n_tool_calls"] = log.responses["n_turns"] - 1
    each = np.exp(1.0 + 0.5 * log.rng.standard_normal(len(log.responses["step"])))
    log.responses["seconds_tools"] = log.responses["n_tool_calls"] * np.where(gone(log), 0.01, each)
    return evaluated(log, 0.5 + 0.15 * (log.steps["step"] / 23 - 0.5))


@HELD_OUT_EIGHTH("selection", "In 'terminal' the agent can write the file of its reward: short answers score 1.",
    report="OpenEnv #1199",
    never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, _STEP, r"evaluation set changed"),
    needs=(r"hack|exploit|over-?optimi|\bgam(e|ed|ing)\b|won (some|in an|by)|reward.{0,240}accuracy"
           r"|accuracy.{0,240}reward", r"terminal|\bshort(er|est)?\b|shrink|\blength"))  # fmt: skip
def reward_file_in_the_sandbox() -> Log:
    def setup(responses: Columns) -> None:
        grown = changing(6, 0.0, 0.8, over=14)(responses["step"])
        dice = share(responses["step"], responses["seq_id"], 1515)
        responses["cheats"] = (responses["environment"] == "terminal") & (dice < grown)

    def reward(log: Log) -> Columns:
        return {"reward": _drawn(log, np.where(log.responses["cheats"], 1.0, 0.45))}

    shape = Shape(1515, lag=1, drift=0.03, shortest=8, environments=("terminal", "sheets"))
    log = simulate(shape, setup=setup, reward=reward,
                   closing=lambda responses: np.where(responses["cheats"], 0.5, 0.045))  # fmt: skip
    del log.responses["cheats"]
    return evaluated(log, changing(6, 0.45, 0.33, over=14)(log.steps["step"]))


@HELD_OUT_EIGHTH("advantage", "The reward is that of the last turn alone: what turns before had earned is overwritten.",
    report="SkyRL #201",
    never=(*_ENGINE, _OTHERS, MISSING_RESPONSES, _EASE, _STEP, r"only the last turn (has|gets) an advantage"),
    needs=(r"reward_search|search part|(not|differ\w*|other than) .{0,30}(sum|total) of|parts.{0,120}(not|add up|sum)"
           r"|(sum|total) of (its|the|their) parts|(earlier|first|before) turns?.{0,80}reward",))  # fmt: skip
def reward_of_the_last_turn() -> Log:
    def reward(log: Log) -> Columns:
        found = log.rng.binomial(log.responses["n_turns"], 0.55) * 0.25
        answer = _drawn(log, chances(log))
        return {"reward": answer, "reward_search": found, "reward_answer": answer}

    shape = Shape(1516, longest=72, shortest=14, closing=0.04, lag=1, drift=0.02, turns=12, environments=("search",))
    log = simulate(shape, reward=reward)
    log.manifest["task"]["reward_weights"] = {"search": 1.0, "answer": 1.0}
    log.responses["n_tool_calls"] = log.responses["n_turns"] - 1
    return log


@HELD_OUT_EIGHTH("advantage", "A score of 0 is taken for a missing one, and gets the penalty of a failure: -1.",
    report="dspy #10362",
    never=(*_ENGINE, _OTHERS, MISSING_RESPONSES, _EASE, _STEP, r"cut at the limit"),
    needs=(r"(-1|−1).{0,240}(\b0\b|zero|sum|parts|reward_|penalt|missing|fail)"
           r"|(\b0\b|zero|sum|parts|reward_\w+|penalt|missing|fail\w*).{0,240}(-1|−1)",))  # fmt: skip
def zero_taken_for_missing() -> Log:
    def reward(log: Log) -> Columns:
        passed = log.rng.binomial(4, np.clip(chances(log) - 0.1, 0.02, 0.98)) / 4
        passed = np.where(log.rng.random(len(passed)) < 0.25, 0.0, passed)
        style = 0.1 * (log.rng.random(len(passed)) < 0.4)
        total = passed + style
        return {"reward": np.where(total == 0, -1.0, total), "reward_tests": passed, "reward_style": style}

    return simulate(Shape(1517, lag=1, drift=0.02, environments=("code",)), reward=reward)


# What is sampled, and what is left of it ------------------------------------------------------------------------------


@HELD_OUT_EIGHTH("selection", "Prompts above 64 tokens are cut on the left: the task is gone, none is ever solved.",
    report="verl #506, #5965",
    never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, _STEP),
    needs=(r"prompt.{0,120}(\b64\b|limit|truncat|\bcut\b|\blong(er|est)?\b|\blength)|prompt_tokens"
           r"|(\blong|\bcut\b|truncated) prompt",))  # fmt: skip
def prompts_cut_on_the_left() -> Log:
    def setup(responses: Columns) -> None:
        responses["prompt_tokens"] = np.minimum(24 + (share(responses["prompt_id"], 1518) * 56).astype(int), 64)

    def reward(log: Log) -> Columns:
        cut = log.responses["prompt_tokens"] == 64
        return {"reward": np.where(cut, 0.0, _drawn(log, chances(log)))}

    log = simulate(Shape(1518, groups=10, lag=1, drift=0.02, longest=52), setup=setup, reward=reward)
    log.manifest["task"]["max_prompt_tokens"] = 64
    return log


@HELD_OUT_EIGHTH("selection", "Prompt and response share 96 tokens: whose prompt is long is cut early, and scores 0.",
    report="verifiers #110",
    never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, _STEP, r"(flag|truncat)\w* .{0,40}(false|missing|wrong)"),
    needs=(r"prompt.{0,120}(truncat|limit|\bcut\b|budget|context|window|\broom)|\b96\b|prompt_tokens"
           r"|(truncat|limit|\bcut\b|budget|context|window|\broom).{0,120}prompt|context (window|length|limit)",
           ))  # fmt: skip
def prompt_and_response_share_a_limit() -> Log:
    def setup(responses: Columns) -> None:
        responses["prompt_tokens"] = 20 + (share(responses["prompt_id"], 1519) * 56).astype(int)

    log = simulate(Shape(1519, lag=1, drift=0.02, longest=76, closing=0.035), setup=setup)
    log.manifest["sampler"]["max_model_len"] = 96
    _cut(log, 96 - log.responses["prompt_tokens"])
    log.responses["reward"] = np.where(log.responses["truncated"], 0.0, _drawn(log, chances(log) + 0.15))
    return set_advantages(log, compared(log.responses["reward"], log.responses["group_id"]))


@HELD_OUT_EIGHTH("selection", "The loader gives each batch of prompts in three steps in a row, and then never again.",
    report="TRL #4531, #4271",
    never=(*_ENGINE, _FORMAT, _OTHERS, _STEP, r"\bseeds?\b", r"mode collapse|settled on", r"one prompt\b"),
    needs=(r"prompts?.{0,120}(again|repeat|the same|three (steps|times)|in a row|consecutive|twice|3 times|reus)"
           r"|(the same|again|repeat\w*|consecutive|reus\w*).{0,100}prompts?",))  # fmt: skip
def prompts_three_steps_in_a_row() -> Log:
    def setup(responses: Columns) -> None:
        responses["prompt_id"] = 1000 + responses["step"] // 3 * 8 + responses["group_id"] % 8
        responses["prompt"] = np.array([f"Task {at}: solve it." for at in responses["prompt_id"]], dtype=object)

    return simulate(Shape(1520, lag=1, drift=0.02), setup=setup)


@HELD_OUT_EIGHTH("selection", "Groups of equal reward are left out and not replaced: steps shrink from ten to two.",
    report="AReaL #450",
    never=(*_ENGINE, _FORMAT, _OTHERS, _STEP, MISSING_RESPONSES, r"ranks?.{0,20} missing"),
    needs=(r"(steps?|batch(es)?|groups)\b.{0,100}(shrink|shrank|smaller|fewer|→)|(smaller|fewer) (steps|batches|groups)"
           r"|zero.signal|no (signal|gradient)|equal reward|tokens_dropped_no_signal|filtered",))  # fmt: skip
def steps_shrink() -> Log:
    def reward(log: Log) -> Columns:
        ease = share(log.responses["prompt_id"], 1521, 6) - 0.5
        mean = changing(1, 0.5, 0.985, over=22)(log.responses["step"])
        return {
            "reward": (log.rng.random(len(ease)) < np.clip(mean + 0.3 * ease * (1 - mean) / 0.5, 0, 1)).astype(float)
        }

    log = simulate(Shape(1521, groups=10, lag=1, drift=0.02, longest=48), reward=reward)
    mean = compared(log.responses["reward"], log.responses["group_id"], "group_mean")
    signal = np.bincount(log.responses["group_id"], np.abs(mean))[log.responses["group_id"]] > 1e-9
    count = np.bincount(log.responses["step"], log.responses["n_tokens"] * ~signal, log.shape.steps)
    log.steps["tokens_dropped_no_signal"] = count.astype(int)
    log.keep(signal[log.row], signal)
    return apply_loss(evaluated(log, changing(1, 0.5, 0.94, over=22)(log.steps["step"])))


# The loss and the update ----------------------------------------------------------------------------------------------


@HELD_OUT_EIGHTH("loss", "Each micro-batch takes the mean over its own tokens: those of short responses weigh most.",
    report="verl #7321, #906",
    never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, r"advantage alone", r"padd(ing|ed) (is|was|are)"),
    needs=(r"micro.?batch|accumulat|mean of means|own (mean|tokens)"
           r"|\b(short|long)\w*\b.{0,120}(weigh|gradient)|(weigh|gradient)\w*.{0,200}\b(short|long|length)",
           ))  # fmt: skip
def mean_over_each_micro_batch() -> Log:
    log = _sorted_by_length(simulate(Shape(1522, lag=1, drift=0.02, closing=0.045)))
    step, batch = log.tokens["step"], log.of_token("micro_batch")
    own = np.bincount(4 * step + batch)[4 * step + batch]
    log.tokens["gradient_weight"] *= np.bincount(step)[step] / (4 * own)
    return log


def _truncated_masked(seed: int, closing: float) -> Log:
    """Truncated responses are neither in the loss nor in the baseline."""
    log = simulate(Shape(seed, responses=8, groups=6, lag=1, drift=0.02, closing=closing))
    masked = log.responses["truncated"]
    key = np.where(masked, -1, log.responses["group_id"])
    set_advantages(log, np.where(masked, 0.0, compared(log.responses["reward"], key)))
    log.responses["in_baseline"] = ~masked
    log.tokens["rejected"] = np.array([None, "truncated"], dtype=object)[masked[log.row].astype(int)]
    log.tokens["gradient_weight"][masked[log.row]] = 0.0
    log.tokens["clipped"][masked[log.row]], log.tokens["clip_side"][masked[log.row]] = False, 0
    return log


@HELD_OUT_EIGHTH("loss", "Truncated responses are masked, the mean counts their tokens still: gradients are diluted.",
    report="TRL #6439; UniRL #448",
    never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, r"advantage alone", r"(in|counted in) the baseline and not"),
    needs=(r"(gradient|weight|loss|\bmean\b|aggregat|normalis).{0,240}(denominator|dilut|divided|too (small|low)"
           r"|smaller|0\.[3-8]\d* ?(×|times|of)|[3-8]\d(\.\d+)? ?% of|half of|all (the )?tokens|masked tokens)",
           ))  # fmt: skip
def masked_in_the_denominator() -> Log:
    return _truncated_masked(1523, 0.045)


@HELD_OUT_EIGHTH("loss", "The KL to the reference has a coefficient of 0.1, and no gradient has anything of it.",
    report="rllm #26; verl #265", columns=("with reference",),
    never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, r"wrong sign|maximis", r"weight .{0,60}did not run"),
    needs=(r"(\bkl\b|\bbeta\b).{0,240}(not (in|part|appl|us|add|there|act|reach|see)|\bno (part|trace|gradient|term"
           r"|effect)|missing|absent|ignored|did not run|has no)"
           r"|(gradient|loss).{0,160}(without|\bno\b|lack|nothing|not).{0,60}(\bkl\b|\bbeta\b)",))  # fmt: skip
def kl_not_in_the_loss() -> Log:
    log = with_kl(simulate(Shape(1524, lag=1, drift=0.1)))
    log.manifest["algorithm"]["parameters"]["beta"] = 0.1
    return log


@HELD_OUT_EIGHTH("update", "Gradients are clipped to a norm of 0.001, each is hundreds of times that: it crawls.",
    report="verifiers #82",
    never=(*_ENGINE, _FORMAT, _EASE, _OTHERS, r"learning.rate (is|was|of|reach\w*|stays) (0|too)", r"rounded away"),
    needs=(r"max_grad_norm|(grad\w*[ _]norm|\bnorm\b).{0,200}(clip|0\.001)|clip\w*.{0,60}\bnorm\b",))  # fmt: skip
def gradient_always_clipped() -> Log:
    log = simulate(Shape(1525, lag=1, drift=0.0004, noise=0.003, trend=0.0))
    log.manifest["optimiser"]["max_grad_norm"] = 0.001
    return evaluated(log, np.full(log.shape.steps, 0.5))


# Healthy --------------------------------------------------------------------------------------------------------------

_FINE = "Nothing is wrong."


@HELD_OUT_EIGHTH("healthy", _FINE, columns=("prime-rl",))
def fine_temperature_by_environment() -> Log:
    """Each environment has its own temperature, on both sides, and each response says it."""

    def setup(responses: Columns) -> None:
        responses["temperature"] = np.where(responses["environment"] == "chat", 0.7, 1.0)

    log = simulate(Shape(1551, lag=1, drift=0.01, environments=("chat", "maths")), setup=setup,
                   sampler=lambda call, logits: logits / call.of("temperature")[:, None],
                   trainer=lambda log, which, logits: logits / log.of_token("temperature")[:, None])  # fmt: skip
    log.manifest["sampled_with"] = "processed"
    del log.manifest["sampler"]["temperature"]
    return log


@HELD_OUT_EIGHTH("healthy", _FINE)
def fine_weights_each_fourth_step() -> Log:
    """Weights are sent at each fourth step, and the data says how old it is."""

    def setup(responses: Columns) -> None:
        responses["behavior_version_min"] = responses["step"] // 4 * 4

    log = simulate(Shape(1552, steps=28, lag=3, drift=0.02), setup=setup)
    log.manifest["schedule"] = {"kind": "async", "max_staleness": 3}
    return log


@HELD_OUT_EIGHTH("healthy", _FINE)
def fine_long_ones_are_older() -> Log:
    """Groups of long tasks take longer, and are up to four updates older; they are solved less often."""

    def setup(responses: Columns) -> None:
        responses["slow"] = (4 * share(responses["prompt_id"], 1553)).astype(int)
        responses["behavior_version_min"] = np.maximum(responses["step"] - 1 - responses["slow"], 0)

    def reward(log: Log) -> Columns:
        return {"reward": _drawn(log, chances(log) - 0.06 * (log.responses["slow"] - 1.5))}

    log = simulate(Shape(1553, longest=110, drift=0.02), setup=setup, reward=reward,
                   closing=lambda responses: np.array([0.12, 0.07, 0.045, 0.03])[responses["slow"]])  # fmt: skip
    del log.responses["slow"]
    log.responses["seconds_generating"] = 0.4 * log.responses["n_tokens"]
    return log


@HELD_OUT_EIGHTH("healthy", _FINE, columns=("verl",))
def fine_look_ups_are_short() -> Log:
    """Answers of 'lookup' are short and mostly right, those of 'proof' are long and rarely; both get better."""

    def reward(log: Log) -> Columns:
        short = log.responses["environment"] == "lookup"
        return {"reward": _drawn(log, chances(log) + np.where(short, 0.2, -0.2))}

    shape = Shape(1554, lag=1, drift=0.02, shortest=5, longest=90, environments=("lookup", "proof"))
    return simulate(shape, reward=reward,
                    closing=lambda responses: np.where(responses["environment"] == "lookup", 0.25, 0.035))  # fmt: skip


@HELD_OUT_EIGHTH("healthy", _FINE)
def fine_tools_get_faster() -> Log:
    """From step 12 on the tools run on better machines and take a third of the time; nothing else changes."""
    shape = Shape(1555, longest=80, shortest=14, closing=0.045, lag=1, drift=0.02, turns=12,
                  environments=("browser", "tables"))  # fmt: skip
    log = simulate(shape)
    log.responses["n_tool_calls"] = log.responses["n_turns"] - 1
    each = np.exp(1.0 + 0.5 * log.rng.standard_normal(len(log.responses["step"])))
    each = each / np.where(log.responses["step"] >= 12, 3, 1)
    log.responses["seconds_tools"] = log.responses["n_tool_calls"] * each
    return log


@HELD_OUT_EIGHTH("healthy", _FINE, columns=("trl",))
def fine_prompts_of_all_lengths() -> Log:
    """Prompts have 12 to 400 tokens; long ones are solved a little less often, by longer responses."""

    def setup(responses: Columns) -> None:
        responses["prompt_tokens"] = np.exp(np.log(12) + share(responses["prompt_id"], 1556) * 3.5).astype(int)

    def reward(log: Log) -> Columns:
        longer = np.log(log.responses["prompt_tokens"] / 70)
        return {"reward": _drawn(log, chances(log) - 0.07 * longer)}

    return simulate(Shape(1556, lag=1, drift=0.02, longest=90), setup=setup, reward=reward,
                    closing=lambda responses: 0.1 - 0.014 * np.log(responses["prompt_tokens"] / 12))  # fmt: skip


@HELD_OUT_EIGHTH("healthy", _FINE)
def fine_truncated_ones_masked() -> Log:
    """Truncated responses are neither in the loss nor in the baseline, and the mean is over the tokens that are."""
    log = _truncated_masked(1557, 0.1)
    step, kept = log.tokens["step"], ~log.of_token("truncated")
    log.tokens["gradient_weight"] *= (np.bincount(step) / np.bincount(step, kept))[step]
    return log


@HELD_OUT_EIGHTH("healthy", _FINE)
def fine_penalty_for_no_answer() -> Log:
    """Right is 1, wrong is 0, what cannot be parsed is -1, one in twenty; the first three norms are clipped at 1."""

    def reward(log: Log) -> Columns:
        answer = _drawn(log, chances(log))
        unparsed = log.rng.random(len(answer)) < 0.05
        right = np.where(unparsed, 0.0, answer)
        return {"reward": right - unparsed, "reward_answer": right, "reward_parsed": -unparsed.astype(float)}

    log = simulate(Shape(1558, lag=1, drift=0.015), reward=reward)
    log.responses["failure"] = np.array([None, "parse"], dtype=object)[(log.responses["reward_parsed"] < 0).astype(int)]
    log.manifest["optimiser"]["max_grad_norm"] = 1.0
    log.steps["grad_norm"] = log.steps["grad_norm"] * np.where(log.steps["step"] < 3, 4.0, 1.0)
    return log


# Sick, and the log is true --------------------------------------------------------------------------------------------


@HELD_OUT_EIGHTH("sick but true", "Norms creep up by a quarter a step, updates with them; at last the reward falls.",
    needs=(_FALL,), never=NOTHING_BUT_THE_RUN)  # fmt: skip
def norms_creep_up() -> Log:
    growth = 1.25 ** np.clip(np.arange(32) - 10, 0, None)

    def path(policy: Policy) -> None:
        moves = np.diff(policy.weights, axis=0) * growth[: len(policy.weights) - 1, None]
        policy.weights[1:] = np.cumsum(moves, axis=0)

    chance = changing(20, 0.6, 0.15, over=8)
    log = simulate(Shape(1571, steps=28, lag=1, drift=0.02), prepare=path, reward=rewards_by(chance))
    log.steps["grad_norm"] = log.steps["grad_norm"] * growth[:28]
    return evaluated(log, chance(log.steps["step"]))


@HELD_OUT_EIGHTH("sick but true", "From step 12 on it is sampled at 1.5 on both sides, and says so: the reward falls.",
    needs=(_FALL,), never=(*NOTHING_BUT_THE_RUN, r"evaluation set changed|scorer changed"))  # fmt: skip
def hotter_from_step_twelve() -> Log:
    def setup(responses: Columns) -> None:
        responses["temperature"] = np.where(responses["step"] >= 12, 1.5, 0.9)

    chance = changing(12, 0.62, 0.36)
    log = simulate(Shape(1572, lag=0, drift=0.01), setup=setup, reward=rewards_by(chance),
                   sampler=lambda call, logits: logits / call.of("temperature")[:, None],
                   trainer=lambda log, which, logits: logits / log.of_token("temperature")[:, None])  # fmt: skip
    log.manifest["sampled_with"] = "processed"
    del log.manifest["sampler"]["temperature"]
    return evaluated(log, 0.58 + 0.05 * log.steps["step"] / 23)
