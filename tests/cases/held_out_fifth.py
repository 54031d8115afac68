"""Held-out cases of a fifth date: the fourth ones had been looked at, too.

Written by someone who had read neither marks nor causes nor findings, from public reports that no other case has, and
frozen before they were scored. What the verdicts mean, and why the first score is kept, says `held_out`.
"""

from datetime import UTC, datetime, timedelta

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
    unclipped,
)
from tests.cases.healthy import NOTHING_BUT_THE_RUN
from tests.cases.held_out import with_kl
from tests.cases.held_out_third import _logp
from tests.cases.world import (
    END,
    SERVERS,
    TENSORS,
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

HELD_OUT_FIFTH = Register()

FIRST_SCORE = {
    "held-out a fifth time faults": "7 found, 2 vague, 12 silent, 7 untrue of 28 logs",
    "held-out a fifth time sick but true": "2 found, 2 quiet, 2 silent of 6 logs",
    "held-out a fifth time healthy": "10 quiet of 10 logs",
}
"""What was said of them when they were first scored, by the patterns as they were frozen (2026-11-27)."""

_ENGINE = (NEVER_ARRIVED, TEMPERATURE, BROKEN)
# Where some rows are wrong, that part of the log is.
_IN_PART = (NEVER_ARRIVED, TEMPERATURE, WHOLLY_BROKEN)
_OTHERS = r"belongs? to other|of other responses|row before|shifted by one row"
_FALL = r"(reward|accuracy).{0,40}(fell|fallen|falls|falling|dropped|lost|→)"


# Sampler and trainer --------------------------------------------------------------------------------------------------


@HELD_OUT_FIFTH("sampler", "At position 30 the engine forces token 7 where thinking has not ended: nobody drew it.",
    report="vLLM #54864", columns=("all", "verl"),
    never=(*_IN_PART, r"top-?[pk] (of|was|is)", r"number format|float16", r"(grows|rises) with (the )?position"),
    needs=(r"position (29|30|31)\b|tokens? (id )?7\b|\bforced?\b|budget|thinking|inserted|not (been )?(drawn|sampled)"
           r"|did not (draw|sample)|(same|fixed|single|one) position|(same|single) token id",))  # fmt: skip
def thinking_ended_by_force() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        late = (call.position == 30) & ~(call.written[call.rows, :30] == 7).any(axis=1)
        return np.where(late[:, None] & (np.arange(logits.shape[1]) == 7), 1e9, logits)

    return simulate(Shape(1201, lag=1, shortest=16, longest=72, closing=0.04, noise=0.006), sampler=sampler)


@HELD_OUT_FIFTH("sampler", "Behind a cached prompt its routes are missing: all but the first of a group disagree.",
    report="vLLM #42346, #39917", columns=("all", "verl"),
    never=(*_ENGINE, r"old weights|earlier visit", r"number format|float16", r"server-\d|grows with (the )?pos"),
    needs=(r"(first|others?|rest|later|behind|all but).{0,100}\bgroups?\b|\bgroups?\b.{0,120}(first|all but|others)"
           r"|prefix.?cach|cached prompt|(first|early|earliest) (\d+ |few )?(tokens|positions)"
           r"|(begin|start)\w* of (the |each |a )?resp|another context|shrinks? with (the )?position",))  # fmt: skip
def routes_of_a_cached_prompt() -> Log:
    def trainer(log: Log, which: str, logits: Array) -> Array:
        if which == "reference":
            return logits
        wrong = np.random.default_rng(1202).standard_normal(log.policy.base.shape)  # the same in each pass
        cached = log.of_token("seq_id") % log.shape.responses > 0
        part = 0.45 * np.exp(-log.tokens["position"] / 18) * cached
        return logits + part[:, None] * wrong[log.state]

    log = simulate(Shape(1202, lag=1, noise=0.006), trainer=trainer)
    log.tokens["routing_agreement"] = np.ones(len(log.row))  # choices of sampled tokens are replayed
    return log


@HELD_OUT_FIFTH("weights", "Weights arrive while tokens are drawn: the last six before a switch have half of them new.",
    report="NeMo-RL #3839", columns=("all", "trl"),
    never=(r"never arriv", TEMPERATURE, WHOLLY_BROKEN, r"number format|float16", r"\bcache"),
    needs=(r"(before|around|near|beside|close to).{0,60}(switch|swap|new version|versions? chang|border)|\btorn\b"
           r"|last (\d+ |few |six )?(tokens|positions) before|between (the )?(two )?versions"
           r"|half.{0,50}(weights|updated|new|tensors)|(mixed|mixture).{0,40}(weights|versions?)"
           r"|(weights|versions?).{0,40}(mixed|mixture)|(during|while|in the middle of).{0,50}(update|sync|transfer"
           r"|refit|weights)",))  # fmt: skip
def drawn_while_weights_arrive() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        until = call.of("switch") - call.position
        arriving = (until > 0) & (until <= 6) & (call.of("switch") < shape.longest)
        older, newer = call.policy.weights[call.version], call.policy.weights[call.version + 1]
        half = call.served(np.where(np.arange(TENSORS) < TENSORS // 2, newer, older))
        return np.where(arriving[:, None], half + shape.noise * call.noise(), logits)

    shape = Shape(1203, lag=1, schedule="partial", drift=0.2, noise=0.003)
    return simulate(shape, sampler=sampler)


# The log --------------------------------------------------------------------------------------------------------------


@HELD_OUT_FIFTH("log", "Assistant turns of the prompt are in the loss: the first tokens of 'dialogue' were not drawn.",
    report="NeMo-RL #2176, #1956", columns=("all", "verl"),
    never=(*_IN_PART, r"\bseeds?\b", r"mode collapse|settled on", r"\bimages?\b", r"number format|float16"),
    needs=(r"(first|begin|start|early|prompt|histor|position|dialogue).{0,200}(exactly 0|probability 1|not (been )?"
           r"(sampled|drawn)|did not (draw|sample)|same tokens?|identical|in the loss|placeholder|of the prompt)"
           r"|(exactly 0|probability 1|not (been )?(sampled|drawn)|did not (draw|sample)).{0,200}"
           r"(first|begin|start|prompt|histor|position|dialogue)",))  # fmt: skip
def turns_of_the_prompt_in_the_loss() -> Log:
    def setup(responses: Columns) -> None:
        dialogue = share(responses["prompt_id"], 1204, 3) < 0.4
        responses["environment"] = np.where(dialogue, "dialogue", "question").astype(object)

    def sampler(call: Call, logits: Array) -> Array:
        if call.position >= 8:
            return logits
        heaps = np.cumsum(np.exp(log_softmax(0.8 * call.policy.base[call.state])), axis=1)
        dice = share(call.of("prompt_id"), np.full(len(call.rows), call.position), 1204)
        written = (heaps < dice[:, None] * heaps[:, -1:]).sum(axis=1)  # by whoever wrote the prompt
        there = call.of("environment") == "dialogue"
        return np.where(there[:, None] & (np.arange(logits.shape[1]) == written[:, None]), 1e9, logits)

    return simulate(Shape(1204, lag=1, longest=72), sampler=sampler, setup=setup)


@HELD_OUT_FIFTH("log", "The teacher reads the student's ids by another vocabulary: its values are of other tokens.",
    report="TRL #4561", columns=("all", "trl"),
    never=(*_ENGINE, _OTHERS, MISSING_RESPONSES, r"too easy|too hard"),
    needs=(r"teacher.{0,240}(vocabular|tokeni[sz]|token ids?|other tokens?|wrong|unrelated|impossible|far (from|below)"
           r"|(very|too) (low|unlikely)|unlikely|disagree|mismatch|not the log-prob|permut|exchanged)"
           r"|(vocabular|tokeni[sz]er|other tokens?|unrelated|impossible).{0,200}teacher",))  # fmt: skip
def teacher_of_another_vocabulary() -> Log:
    log = simulate(Shape(1205, lag=0, drift=0.01, trend=0.0))
    ids = np.arange(log.shape.vocabulary)
    ids[8:] = np.random.default_rng(1205).permutation(ids[8:])
    teacher = log_softmax(log.policy.logits(np.array([0.25, -0.2, 0.2, -0.15]), log.state))
    log.tokens["logp_teacher"] = teacher[np.arange(len(log.row)), ids[log.tokens["token_id"]]]
    log.manifest["algorithm"]["name"] = "on_policy_distillation"
    log.manifest["algorithm"]["parts"]["advantage"] = "teacher_log_ratio"
    advantage = log.tokens["logp_teacher"] - log.tokens["logp_behavior"]
    log.responses["reward"] = np.bincount(log.row, advantage) / log.lengths()
    return set_advantages(evaluated(log, np.full(log.shape.steps, 0.4)), advantage)


@HELD_OUT_FIFTH("selection", "Rollouts that failed in 'tools' are one pad token with reward 0, and are learned from.",
    report="agentcore-rl-toolkit #122", columns=("all", "verl"),
    never=(*_IN_PART, r"too hard", r"reach\w* (the|their) (length )?limit", r"number format|float16"),
    needs=(r"(one|single|1)[- ]token|\bpad(s|ding|ded)?\b|placeholder|(length|n_tokens) (of |is |are )?(1|one)\b"
           r"|(response|rollout|episode|environment|tool)s?.{0,60}\bfail(ed|ures?|s)?\b|not (been )?(sampled|drawn)"
           r"|did not (draw|sample)|exactly 0 \(probability 1\)",))  # fmt: skip
def failed_ones_are_a_pad_token() -> Log:
    shape = Shape(1206, lag=1, longest=80, closing=0.04, turns=12, environments=("tools", "maths"))
    log = simulate(shape)
    dice = share(log.responses["step"], log.responses["seq_id"], 1206)
    failed = (log.responses["environment"] == "tools") & (dice < 0.16)
    log.keep(~failed[log.row] | (log.tokens["position"] == 0))
    pad, tokens = failed[log.row], log.tokens
    tokens["token_id"] = np.where(pad, END, tokens["token_id"])
    tokens["logp_behavior"] = np.where(pad, 0.0, tokens["logp_behavior"])
    step = tokens["step"]
    versions = {"logp_behavior_train": tokens["behavior_version"], "logp_current": step, "logp_new": step + 1}
    for name, version in (versions | {"logp_reference": 0 * step}).items():
        tokens[name] = np.where(pad, _logp(log, version, tokens["token_id"]), tokens[name])
    log.responses["n_tokens"] = log.lengths()
    log.responses["n_turns"] = np.where(failed, 1, log.responses["n_turns"])
    log.responses["response"] = np.where(failed, "", log.responses["response"]).astype(object)
    log.responses["truncated"] &= ~failed
    log.responses["finish_reason"] = np.where(log.responses["truncated"], "length", "stop").astype(object)
    log.responses["reward"] = np.where(failed, 0.0, log.responses["reward"])
    return set_advantages(log, compared(log.responses["reward"], log.responses["group_id"]))


@HELD_OUT_FIFTH("selection", "The batch is cut to a multiple of 16 rows: its last group loses rows of its baseline.",
    report="rllm #924", columns=("all", "verl"),
    never=(*_ENGINE, _OTHERS, r"one baseline for the step", r"half of the ranks|ranks? .{0,20}missing", r"\bslow"),
    needs=(r"(multiple of|divisib|\b(16|32|48)\b).{0,160}(row|response|group|batch)|last group"
           r"|(cut|tail|end) of (the|a|each) (batch|step)|groups?.{0,120}(incomplete|fewer|smaller|\bcut\b|missing"
           r"|lack|lost|sizes?|not whole)"
           r"|(response|row)s?.{0,100}(missing|dropped|left out|removed|cut off|gone)",))  # fmt: skip
def cut_to_a_multiple() -> Log:
    log = simulate(Shape(1207, groups=14, responses=5, lag=1, longest=48, level=0.4))
    above = compared(log.responses["reward"], log.responses["group_id"], "group_mean")
    signal = np.bincount(log.responses["group_id"], np.abs(above))[log.responses["group_id"]] > 1e-9
    step = log.responses["step"]
    place = np.cumsum(signal) - 1
    first = np.searchsorted(step, np.arange(log.shape.steps))
    place = place - place[first][step] + signal[first][step] - 1
    whole = np.bincount(step, signal, log.shape.steps).astype(int) // 16 * 16
    count = np.bincount(step, log.responses["n_tokens"] * ~signal, log.shape.steps)
    log.steps["tokens_dropped_no_signal"] = count.astype(int)
    kept = signal & (place < whole[step])
    return apply_loss(log.keep(kept[log.row], kept))


# Rewards and advantages -----------------------------------------------------------------------------------------------


@HELD_OUT_FIFTH("advantage", "Each segment of a conversation counts in the baseline: long ones count up to four times.",
    report="slime #2302, #2062; agent-lightning #445", columns=("all", "verl"),
    never=(*_ENGINE, _OTHERS, MISSING_RESPONSES, r"one baseline for the step", r"too easy|too hard"),
    needs=(r"(baseline|advantage|group mean).{0,240}(segment|several times|more than once|weighted|by (their )?length"
           r"|not the mean|(sum|mean|average)s?.{0,40}not|centred|centered|balance|counted|too (low|high)"
           r"|shifted|offset|do(es)? not (follow|agree|match)|disagree)"
           r"|segment.{0,160}(baseline|advantage|count)",))  # fmt: skip
def segments_in_the_baseline() -> Log:
    def reward(log: Log) -> Columns:
        chance = np.clip(1.25 * chances(log) - 0.55 * log.responses["n_tokens"] / log.shape.longest, 0.02, 0.98)
        return {"reward": (log.rng.random(len(chance)) < chance).astype(float)}

    shape = Shape(1208, responses=8, longest=128, shortest=16, closing=0.022, turns=8, lag=1, level=0.6)
    log = simulate(shape, reward=reward)
    log.tokens["segment_id"] = log.tokens["position"] // 32
    segments = 1 + (log.responses["n_tokens"] - 1) // 32
    log.responses["history_break"] = np.where(segments > 1, "compaction", None)
    each, group = log.responses["reward"], log.responses["group_id"]
    rows = np.bincount(group, segments)
    above = each - (np.bincount(group, segments * each) / rows)[group]
    deviation = np.sqrt(np.bincount(group, segments * above**2) / np.maximum(rows - 1, 1))
    return set_advantages(log, above / (deviation[group] + 1e-4))


@HELD_OUT_FIFTH("advantage", "Two agents share each group: the planner's rewards are higher, so its side always wins.",
    report="prime-rl #3108", columns=("all", "prime-rl"),
    never=(*_ENGINE, _OTHERS, MISSING_RESPONSES, r"one baseline for the step", r"too easy|too hard"),
    needs=(r"(planner|solver|sources?\b|agents\b|roles?\b).{0,240}(group|baseline|advantage|reward|mix|scale)"
           r"|(group|baseline|advantage).{0,240}(planner|solver|sources?\b|agents\b|roles?\b)",))  # fmt: skip
def two_agents_in_a_group() -> Log:
    def setup(responses: Columns) -> None:
        planner = responses["seq_id"] % 8 < 4
        responses["source"] = np.where(planner, "planner", "solver").astype(object)

    def reward(log: Log) -> Columns:
        planner, n = log.responses["source"] == "planner", len(log.responses["step"])
        graded = np.clip(0.4 + 0.7 * chances(log) + 0.1 * log.rng.standard_normal(n), 0, 1)
        return {"reward": np.where(planner, graded, (log.rng.random(n) < 0.6 * chances(log)).astype(float))}

    def closing(responses: Columns) -> Array:
        return np.where(responses["source"] == "planner", 0.12, 0.04)

    return simulate(Shape(1209, responses=8, lag=1), setup=setup, reward=reward, closing=closing)


@HELD_OUT_FIFTH("advantage", "The reward model is read inside of the prompt: a group's scores differ by rounding.",
    report="TRL #6952", columns=("all", "trl"),
    never=(*_ENGINE, _OTHERS, MISSING_RESPONSES, r"too easy|too hard", r"one baseline for the step"),
    needs=(r"(reward|score)s?.{0,160}(nearly|almost|hardly|barely|practically|virtually) .{0,30}(same|equal|differ|one)"
           r"|(within|inside|in) (a|each|every|the|their|its) groups?.{0,120}(tiny|small|noise|rounding|equal|same)"
           r"|(tiny|rounding|noise|numerical).{0,160}(reward|score|normalis|deviation|advantage)"
           r"|(reward|advantage)s?.{0,160}(tiny|rounding|\bnoise\b|by the prompt|prompt alone)"
           r"|(only|alone|all) .{0,20}(by|on|of) (the|their) prompt",))  # fmt: skip
def scored_inside_of_the_prompt() -> Log:
    def reward(log: Log) -> Columns:
        score = 3 * share(log.responses["prompt_id"], 1210) - 1.2
        return {"reward": score + 0.0015 * log.rng.standard_normal(len(score))}

    log = simulate(Shape(1210, lag=1, drift=0.02), reward=reward)
    return evaluated(log, np.full(log.shape.steps, 0.41))


@HELD_OUT_FIFTH("advantage", "The value of padding follows the end: advantages are high there, right or wrong.",
    report="ROLL #447", columns=("all", "verl"),
    never=(*_ENGINE, _OTHERS, MISSING_RESPONSES, r"one baseline for the step", r"too easy|too hard"),
    needs=(r"advantage.{0,240}(padd|bootstrap|critic|value (of|function|head)|last tokens?|towards? (the|their) end"
           r"|\bends?\b|position|length|\bshort|whatever the reward|rewards? (of |is )?0|wrong (answer|response)"
           r"|right or wrong|not follow (the|their) reward)"
           r"|(padd|bootstrap|critic|value function).{0,200}advantage",))  # fmt: skip
def value_of_the_padding() -> Log:
    log = simulate(Shape(1211, lag=1, closing=0.05, drift=0.02))
    log.manifest["algorithm"]["name"] = "ppo"
    log.manifest["algorithm"]["parts"]["advantage"] = "gae"
    log.manifest["algorithm"]["parameters"] |= {"gamma": 1.0, "lambda": 0.95}
    length, position, reward = log.lengths(), log.tokens["position"], log.of_token("reward")
    known = (position + 1) / length[log.row]
    ease = np.clip(log.shape.level + 0.5 * (share(log.of_token("prompt_id"), 1211, 6) - 0.5), 0, 1)
    value = (1 - 0.6 * known) * ease + 0.6 * known * reward + 0.05 * log.rng.standard_normal(len(reward))
    padded = length < log.shape.longest
    behind = np.where(padded, 1.6 + 0.1 * log.rng.standard_normal(len(length)), 0.0)
    last = position == length[log.row] - 1
    following = np.where(last, behind[log.row], np.append(value[1:], 0.0))
    delta = np.where(last, reward, 0.0) + following - value
    advantage = np.zeros(len(delta))
    carried = 0.0
    for at in range(len(delta) - 1, -1, -1):
        carried = delta[at] + (0.0 if last[at] else 0.95 * carried)
        advantage[at] = carried
    step, count = log.tokens["step"], np.bincount(log.tokens["step"])
    above = advantage - (np.bincount(step, advantage) / count)[step]
    return set_advantages(log, above / np.sqrt(np.bincount(step, above**2) / count)[step])


# The loss, the update and its evaluation ------------------------------------------------------------------------------


@HELD_OUT_FIFTH("loss", "The correction's weight has a gradient: on unlikely tokens the loss pushes the wrong way.",
    report="verl #4105", columns=("all", "no versions"),
    never=(*_ENGINE, r"negated", r"advantages?.{0,40}flipped", r"advantage alone", MISSING_RESPONSES),
    needs=(r"gradient.{0,240}(\bsigns?\b|opposite|against|wrong way|revers|log-prob|unlikely|rare|improbable|detach"
           r"|surpris)|(\bsigns?\b|opposite|unlikely|rare|improbable|detach).{0,200}gradient",))  # fmt: skip
def weight_with_a_gradient() -> Log:
    log = unclipped(simulate(Shape(1212, lag=4, schedule="offset", drift=0.04)))
    log.manifest["algorithm"]["name"] = "reinforce"
    log.manifest["algorithm"]["parts"] |= {"weight": "truncated", "gate": "none"}
    log.manifest["algorithm"]["parameters"] = {"cap": 2.0}
    tokens = log.tokens
    ratio = np.exp(tokens["logp_current"] - tokens["logp_behavior"])
    slope = np.minimum(ratio, 2.0) + np.where(ratio < 2.0, ratio * tokens["logp_current"], 0.0)  # of ratio × logp
    tokens["gradient_weight"] = tokens["advantage"] * slope / np.bincount(tokens["step"])[tokens["step"]]
    return log


@HELD_OUT_FIFTH("update", "The optimiser kept its copy of the first weights: the update of step 12 undoes all others.",
    report="SkyRL #2149; NeMo-RL #2372", columns=("with reference", "all"),
    never=(*_ENGINE, r"scorer changed", r"evaluation set", r"learning.rate (is|was|of|reach\w*) (0|too)", _OTHERS),
    needs=(r"(update|weights|polic(y|ies)|model|logp_new).{0,200}(times (the|as|those)|far (too )?large|largest|jump"
           r"|back to|went back|revert|undo|thrown away|starts? again|started again|initial|reset)"
           r"|(\bkl\b|reference).{0,160}(fell|falls|drop|back|again|→|near 0|reset|smaller)",))  # fmt: skip
def undone_after_the_restart() -> Log:
    def path(policy: Policy) -> None:
        policy.weights[13:] -= policy.weights[12]

    def chance(step: Array) -> Array:
        return np.asarray(0.34 + 0.024 * np.where(step < 13, step, step - 13))

    log = with_kl(simulate(Shape(1213, steps=26, lag=1, drift=0.1), prepare=path, reward=rewards_by(chance)))
    hours = [timedelta(hours=0.1 * step + 3 * (step >= 12)) for step in log.steps["step"].tolist()]
    log.steps["wall_time"] = np.array([datetime(2026, 1, 5, tzinfo=UTC) + each for each in hours], dtype=object)
    return evaluated(log, chance(log.steps["step"]))


@HELD_OUT_FIFTH("update", "Each evaluation takes the next quarter of its prompts: accuracy swings from step to step.",
    report="torchtitan #3602", columns=("all", "trl"),
    never=(*_ENGINE, r"accuracy.{0,30}(fell|falls|falling|lost|dropped)", r"over-?optimi", r"scorer changed"),
    needs=(r"(accuracy|evaluat).{0,200}(subset|(other|different|another) (prompts|questions|set|part|quarter)|swing"
           r"|up and down|(beyond|more than|above|larger than|exceed\w*).{0,40}noise|period|every (4|four|fourth)"
           r"|fluctuat|jump|oscillat|scatter|not the same (prompts|set|questions)|cycl|rotat)",))  # fmt: skip
def another_quarter_each_time() -> Log:
    log = simulate(Shape(1214, steps=28, lag=1, drift=0.02, trend=0.25))
    ease = np.array([0.17, -0.06, 0.03, -0.16])  # the prompts are sorted by subject
    step = log.steps["step"]
    return evaluated(log, 0.38 + 0.2 * step / 27 + ease[step % 4])


# Healthy --------------------------------------------------------------------------------------------------------------

_FINE = "Nothing is wrong."


@HELD_OUT_FIFTH("healthy", _FINE, columns=("with reference", "all"))
def fine_reference_that_follows() -> Log:
    """The reference becomes the policy at each eighth step, as configured."""

    def trainer(log: Log, which: str, logits: Array) -> Array:
        if which != "reference":
            return logits
        return log.policy.logits(log.policy.weights[log.tokens["step"] // 8 * 8], log.state)

    log = simulate(Shape(1251, steps=32, lag=1, drift=0.02), trainer=trainer)
    log.manifest["algorithm"]["parameters"]["reference_updated_every"] = 8
    return log


@HELD_OUT_FIFTH("healthy", _FINE, columns=("all", "verl"))
def fine_colder_as_planned() -> Log:
    """The temperature goes from 1.2 to 0.8 over the run, on both sides, and each response says its own."""

    def setup(responses: Columns) -> None:
        responses["temperature"] = np.round(1.2 - 0.4 * responses["step"] / 23, 3)

    log = simulate(Shape(1252, lag=1, drift=0.01), setup=setup,
                   sampler=lambda call, logits: logits / call.of("temperature")[:, None],
                   trainer=lambda log, which, logits: logits / log.of_token("temperature")[:, None])  # fmt: skip
    log.manifest["sampled_with"] = "processed"
    del log.manifest["sampler"]["temperature"]
    return log


@HELD_OUT_FIFTH("healthy", _FINE, columns=("all", "prime-rl"))
def fine_answers_of_few_tokens() -> Log:
    """Multiple choice: an answer is two to twelve tokens, of which half are open."""
    shape = Shape(1253, groups=32, responses=8, shortest=2, longest=12, closing=0.5, states=3000, sure=0.5, lag=1,
                  drift=0.01, trend=0.2)  # fmt: skip
    return simulate(shape)


@HELD_OUT_FIFTH("healthy", _FINE, columns=("all", "prime-rl"))
def fine_servers_replaced() -> Log:
    """From step 12 on four other machines sample, two of them only until step 18."""

    def setup(responses: Columns) -> None:
        step = responses["step"]
        number = (share(step, responses["seq_id"], 1254) * np.where(step < 18, SERVERS, 2)).astype(int)
        number = number + SERVERS * (step >= 12)
        responses["engine"] = np.array([f"server-{each}" for each in number.tolist()], dtype=object)

    return simulate(Shape(1254, lag=2, drift=0.01), setup=setup)


@HELD_OUT_FIFTH("healthy", _FINE, columns=("all", "verl"))
def fine_more_tools_as_it_learns() -> Log:
    """Conversations go from two turns to six, tools are called more often, and reward and accuracy rise."""
    shape = Shape(1255, groups=6, steps=28, longest=160, shortest=8, turns=8, lag=1, drift=0.015, level=0.45, trend=0.4)
    log = simulate(shape, closing=lambda responses: 0.14 * np.exp(-responses["step"] / 18))
    calls = log.responses["n_turns"] - 1
    log.responses["n_tool_calls"] = calls
    log.responses["seconds_tools"] = calls * log.rng.gamma(2.0, 1.5, len(calls))
    return log


# Sick, and the log is true --------------------------------------------------------------------------------------------


@HELD_OUT_FIFTH("sick but true", "The policy stops calling tools: conversations shrink to one turn, the reward falls.",
    needs=(_FALL,), never=NOTHING_BUT_THE_RUN, columns=("all", "prime-rl"))  # fmt: skip
def tools_called_no_more() -> Log:
    chance = changing(8, 0.6, 0.2, over=14)
    shape = Shape(1271, groups=6, steps=28, longest=128, shortest=8, turns=8, lag=1, drift=0.05)
    log = simulate(shape, reward=rewards_by(chance),
                   closing=lambda responses: 0.03 * np.exp(np.clip(responses["step"] - 6, 0, 16) / 7))  # fmt: skip
    log.responses["n_tool_calls"] = log.responses["n_turns"] - 1
    return evaluated(log, chance(log.steps["step"]))


@HELD_OUT_FIFTH("sick but true", "Weight decay pulls the adapter back to the base: it stays there, nothing is learned.",
    report="unsloth #5747", never=NOTHING_BUT_THE_RUN, columns=("with reference", "all"))  # fmt: skip
def pulled_back_to_the_base() -> Log:
    def decayed(policy: Policy) -> None:
        moves = np.diff(policy.weights, axis=0)
        for at, move in enumerate(moves):
            policy.weights[at + 1] = 0.45 * policy.weights[at] + move

    log = with_kl(simulate(Shape(1272, steps=30, lag=1, drift=0.03, trend=0.0), prepare=decayed))
    log.manifest["optimiser"]["weight_decay"] = 0.5
    return evaluated(log, np.full(log.shape.steps, 0.5))


@HELD_OUT_FIFTH("sick but true", "The format is unlearned: its part of the reward falls, and the whole falls with it.",
    needs=(r"(reward|format).{0,60}(fell|fallen|falls|falling|dropped|lost|→)",), never=NOTHING_BUT_THE_RUN,
    columns=("all", "trl"))  # fmt: skip
def format_unlearned() -> Log:
    kept = changing(9, 0.92, 0.12, over=12)

    def reward(log: Log) -> Columns:
        n, step = len(log.responses["step"]), log.responses["step"]
        right = (log.rng.random(n) < chances(log)).astype(float)
        form = 0.5 * (log.rng.random(n) < kept(step))
        return {"reward": right + form, "reward_accuracy": right, "reward_format": form}

    return simulate(Shape(1273, steps=28, lag=1, drift=0.05, trend=0.05), reward=reward)
