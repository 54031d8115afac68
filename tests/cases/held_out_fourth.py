"""Held-out cases of a fourth date: the third ones had been looked at, too.

Written by someone who had read neither marks nor causes nor findings, from public reports that no other case has, and
frozen before they were scored. What the verdicts mean, and why the first score is kept, says `held_out`.
"""

import numpy as np
from numpy.typing import NDArray

from tests.cases.case import Register
from tests.cases.faults import BROKEN, NEVER_ARRIVED, TEMPERATURE, changing, evaluated, rewards_by, sharper
from tests.cases.healthy import NOTHING_BUT_THE_RUN
from tests.cases.held_out import with_kl
from tests.cases.held_out_third import _logp
from tests.cases.world import (
    RANKS,
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

HELD_OUT_FOURTH = Register()

FIRST_SCORE = {
    "held-out a fourth time faults": "12 found, 7 vague, 10 silent, 2 untrue of 31 logs",
    "held-out a fourth time sick but true": "6 found, 2 quiet of 8 logs",
    "held-out a fourth time healthy": "12 quiet of 12 logs",
}
"""What was said of them when they were first scored, by the patterns as they were frozen (2026-11-27)."""

_ENGINE = (NEVER_ARRIVED, TEMPERATURE, BROKEN)
_FORMAT = r"number format|float16"
_FALL = r"(reward|accuracy).{0,40}(fell|fallen|falls|falling|dropped|lost|→)"


def _repeated(log: Log, rows: NDArray[np.int64], **columns: NDArray[np.int64]) -> Log:
    """The log with some responses once more, behind the others, where they have these columns."""
    lengths, first = log.lengths(), len(log.responses["step"])
    starts = np.cumsum(lengths) - lengths
    at = np.concatenate([np.arange(starts[row], starts[row] + lengths[row]) for row in rows])
    of = np.repeat(np.arange(len(rows)), lengths[rows])
    responses = {name: values[rows] for name, values in log.responses.items()} | columns
    tokens = {name: columns[name][of] if name in columns else values[at] for name, values in log.tokens.items()}
    log.responses = {name: np.concatenate([values, responses[name]]) for name, values in log.responses.items()}
    log.tokens = {name: np.concatenate([values, tokens[name]]) for name, values in log.tokens.items()}
    log.row, log.state = np.concatenate([log.row, first + of]), np.concatenate([log.state, log.state[at]])
    return log


def _cut(log: Log, limit: NDArray[np.int64]) -> Log:
    """The log with each response cut at a limit of its own."""
    log.responses["truncated"] = log.responses["truncated"] | (log.lengths() > limit)
    log.keep(log.tokens["position"] < limit[log.row])
    log.responses["n_tokens"] = log.lengths()
    log.responses["finish_reason"] = np.where(log.responses["truncated"], "length", "stop").astype(object)
    newest = np.zeros(len(limit), dtype=np.int64)
    np.maximum.at(newest, log.row, log.tokens["behavior_version"])
    log.responses["behavior_version_max"] = newest
    return apply_loss(log)


# Sampler and trainer --------------------------------------------------------------------------------------------------


@HELD_OUT_FOURTH("weights", "The adapter is merged into the base and applied again: the sampler has each update twice.",
    report="miles #1087, #1091", columns=("all", "with reference"),
    never=(*_ENGINE, r"dead zone|follows? .{0,20}in part", r"\bcache"),
    needs=(r"twice|double|\b2(\.0\d?)? ?(×|times)|1\.9\d? ?(×|times|of)|overshoot|too (far|strong|much)|beyond"
           r"|ahead of|more than (each|every|the) update",))  # fmt: skip
def adapter_applied_twice() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        return call.served(2.0 * call.policy.weights[call.version])

    return simulate(Shape(1101, lag=0, drift=0.04), sampler=sampler)


@HELD_OUT_FOURTH("sampler", "The sampler divides by the temperature of 0.7 twice: it draws at 0.49.",
    report="RL-Kernel #81", columns=("all", "trl"),
    never=(NEVER_ARRIVED, BROKEN, _FORMAT, r"top-?[pk] (of|was|is)"),
    needs=(r"temperature & 0\.49|0\.5\b|0\.7\d? ?×|twice|squared|colder|sharper|divided",))  # fmt: skip
def temperature_twice() -> Log:
    log = simulate(Shape(1102, lag=1), sampler=lambda call, logits: logits / 0.49,
                   trainer=lambda log, which, logits: logits / 0.7)  # fmt: skip
    log.responses["temperature"] = np.full(len(log.responses["step"]), 0.7)
    log.manifest["sampler"]["temperature"], log.manifest["sampled_with"] = 0.7, "processed"
    return log


@HELD_OUT_FOURTH("weights", "Ranks never share their gradients: 1 to 3 drift away from rank 0, which the sampler gets.",
    report="minimind #853", columns=("all", "verl"),
    never=(*_ENGINE, r"of other (tokens|responses)", r"row before", _FORMAT),
    needs=(r"\branks?\b.{0,200}(grow|drift|apart|differ|mismatch|disagree|hold|sit\b|own|rank 0)"
           r"|(grow|drift|apart|differ|mismatch|disagree|hold|sit).{0,200}\branks?\b",))  # fmt: skip
def ranks_drift_apart() -> Log:
    def trainer(log: Log, which: str, logits: Array) -> Array:
        own = np.cumsum(0.03 * np.random.default_rng(1103).standard_normal((RANKS, log.shape.steps + 2, 4)), axis=1)
        own = (own - own[:, :1]) * (np.arange(RANKS) > 0)[:, None, None]
        step = log.tokens["step"]
        later = {"train": log.tokens["behavior_version"] - step, "current": 0, "new": 1, "reference": -step}
        version = step + later[which]
        return log.policy.logits(log.policy.weights[version] + own[log.of_token("rank"), version], log.state)

    return simulate(Shape(1103, lag=1), trainer=trainer)


# The data -------------------------------------------------------------------------------------------------------------


@HELD_OUT_FOURTH("selection", "Steps are filled up with copies of their first responses: 12 of 60 are learned twice.",
    report="Agent-R1 #88", columns=("all", "verl"),
    never=(*_ENGINE, r"\bseed\b", r"mode collapse|settled on|entropy (fell|is 0)", r"\bcache"),
    needs=(r"\bcop(y|ies|ied)\b|duplicat|twice|identical|same (tokens|response|text)|padd",))  # fmt: skip
def filled_up_with_copies() -> Log:
    log = simulate(Shape(1104, lag=1))
    rows = np.flatnonzero(log.responses["seq_id"] < 12)
    return apply_loss(_repeated(log, rows, seq_id=log.responses["seq_id"][rows] + 48))


@HELD_OUT_FOURTH("selection", "After the restart at step 12 the trainer takes the batches of steps 9 to 11 once more.",
    report="marin #1833", columns=("all", "prime-rl"),
    never=(*_ENGINE, r"\bseed\b", r"mode collapse|settled on", r"one prompt|same prompt in"),
    needs=(r"(again|twice|once more|repeat|identical|duplicat|\bcop(y|ies)\b|same (response|batch|token))"
           r".{0,200}(step|batch|restart|response|token|rollout|prompt)|replay"
           r"|(step 1[2-4]|restart).{0,200}(again|twice|once more|identical|repeat|same|already)",))  # fmt: skip
def batches_taken_again() -> Log:
    log = simulate(Shape(1105, lag=1))
    step = log.responses["step"]
    kept = (step < 12) | (step > 14)
    log.keep(kept[log.row], kept)
    rows = np.flatnonzero((log.responses["step"] >= 9) & (log.responses["step"] <= 11))
    group = log.responses["group_id"][rows] + 3 * log.shape.groups
    _repeated(log, rows, step=log.responses["step"][rows] + 3, group_id=group)
    for name, later in {"logp_current": 0, "logp_new": 1}.items():
        log.tokens[name] = _logp(log, log.tokens["step"] + later, log.tokens["token_id"])
    logp = log_softmax(log.policy.logits(log.policy.weights[log.tokens["step"]], log.state))
    log.tokens["entropy"] = -(np.exp(logp) * logp).sum(axis=1)
    return apply_loss(log)


@HELD_OUT_FOURTH("selection", "Each rank begins the same list of prompts: a step has two prompts, on every rank.",
    report="unsloth-zoo #832; verifiers #112, #135", columns=("all", "verl"),
    never=(*_ENGINE, r"one baseline for the step", r"too easy|too hard"),
    needs=(r"\b(distinct|the same|only (two|2)|(two|2) (distinct|different)) prompts?|prompts?.{0,90}(every|each) rank"
           r"|groups?.{0,60}(same|one).{0,20}prompt|prompts?.{0,40}(repeat|four times)",))  # fmt: skip
def ranks_with_the_same_prompts() -> Log:
    def setup(responses: Columns) -> None:
        responses["prompt_id"] = 1000 + 2 * responses["step"] + responses["group_id"] % 2
        responses["prompt"] = np.array([f"Task {at}: solve it." for at in responses["prompt_id"]], dtype=object)

    return simulate(Shape(1106, lag=1), setup=setup)


@HELD_OUT_FOURTH("sampler", "Responses that go on after an abort get the whole budget again and pass the limit of 48.",
    report="slime #2260, #2122; verl #7207", columns=("all", "verl"),
    never=(*_ENGINE, r"(flag|truncat)\w* .{0,40}(false|missing|wrong)", r"version.{0,40}(too young|mislabel)"),
    needs=(r"(limit|budget|\b48\b|max_tokens).{0,200}(resum|continu|partial|versions|switch|abort|went on)"
           r"|(resum|continu|partial|versions|switch|abort|went on).{0,200}(limit|budget|\b48\b)",))  # fmt: skip
def budget_given_again() -> Log:
    log = simulate(Shape(1107, longest=96, closing=0.035, schedule="partial", lag=1))
    before = np.bincount(log.row, log.tokens["behavior_version"] == log.of_token("behavior_version_min"))
    again = (before < log.lengths()) & (before < 48)
    log.manifest["sampler"]["max_tokens"] = 48
    return _cut(log, np.where(again, before + 48, 48).astype(np.int64))


@HELD_OUT_FOURTH("selection", "Where the context is full, each further turn is one token long, not flagged as cut.",
    report="Trinity #608", columns=("all", "verl"),
    never=(*_ENGINE, r"tokenised again", r"thinking"),
    needs=(r"\bturns?\b.{0,200}(one token|single token|1 token|short|truncat|context|limit)"
           r"|(one|single|1)[- ]token.{0,120}(turn|message)|(context|limit|truncat).{0,160}\bturn",))  # fmt: skip
def turns_of_one_token() -> Log:
    def setup(responses: Columns) -> None:
        responses["prompt_tokens"] = 20 + (share(responses["prompt_id"], 110) * 50).astype(int)

    log = simulate(Shape(1108, longest=84, shortest=30, closing=0.03, turns=12, lag=1), setup=setup)
    full = (124 - log.responses["prompt_tokens"]) // 12 * 12
    log.responses["reward"][log.responses["n_tokens"] > full] = 0.0
    log.keep(log.tokens["position"] < full[log.row] + 10)
    over = np.clip(log.tokens["position"] - full[log.row] + 1, 0, None)
    log.tokens["turn"] = 2 * (np.minimum(log.tokens["position"], full[log.row] - 1) // 12 + over) + 1
    log.responses["n_tokens"] = log.lengths()
    np.maximum.at(log.responses["n_turns"], log.row, (log.tokens["turn"] + 1) // 2)
    log.responses["truncated"][:], log.responses["finish_reason"][:] = False, "stop"
    return set_advantages(log, compared(log.responses["reward"], log.responses["group_id"]))


# Rewards and advantages -----------------------------------------------------------------------------------------------


@HELD_OUT_FOURTH("log", "Responses were sorted by length and rewards were not: they belong to other responses.",
    report="verl #2185", columns=("all", "verl"),
    never=(*_ENGINE, r"advantages? (are|is|belongs?) .{0,30}(of )?other responses", r"reward hack"),
    needs=(r"reward.{0,200}(other (response|row)|another response|\border\b|shuffl|misalign|permut|exchanged|sorted"
           r"|(its|their) own|wrong response)|length.{0,160}reward_length.{0,120}(not|unrelated|no )",))  # fmt: skip
def rewards_in_another_order() -> Log:
    def reward(log: Log) -> Columns:
        right = (log.rng.random(len(log.responses["step"])) < chances(log)) & ~log.responses["truncated"]
        short = -0.5 * log.responses["n_tokens"] / log.shape.longest
        order = np.lexsort((log.responses["n_tokens"], log.responses["step"]))
        task, length = np.empty(len(order)), np.empty(len(order))
        task[order], length[order] = right, short  # the first reward goes to the shortest response of its step
        return {"reward": task + length, "reward_task": task, "reward_length": length}

    return simulate(Shape(1109, closing=0.04, lag=1), reward=reward)


@HELD_OUT_FOURTH("advantage", "One response without a score makes the advantages of its whole group NaN.",
    report="TRL #5773; miles #1573", columns=("all", "trl"),
    never=(NEVER_ARRIVED, TEMPERATURE, r"responses are missing", r"of other responses"),
    needs=(r"(nan\b|not finite|non-?finite|without a (score|reward)|missing reward|unscored).{0,240}(group|advantage)"
           r"|(group|advantage).{0,240}(nan\b|not finite|non-?finite|unscored)",))  # fmt: skip
def one_score_missing_in_a_group() -> Log:
    def reward(log: Log) -> Columns:
        right = (log.rng.random(len(log.responses["step"])) < chances(log)).astype(float)
        return {"reward": np.where(log.rng.random(len(right)) < 0.04, np.nan, right)}

    log = simulate(Shape(1110, lag=1), reward=reward)
    log.tokens["gradient_weight"] = np.nan_to_num(log.tokens["gradient_weight"])
    return log


@HELD_OUT_FOURTH("advantage", "Two prompts take turns in the rows, which are cut into sixes: baselines mix the two.",
    report="R1-V #67", columns=("all", "trl"),
    never=(*_ENGINE, r"one baseline for the step", r"responses are missing", r"row before"),
    needs=(r"(baseline|advantage|group).{0,240}(other (group|prompt)|two (groups|prompts)|mix|interleav|merged|of both"
           r"|across (groups|prompts)|stride|halves|parts of)|equal rewards?.{0,120}advantage",))  # fmt: skip
def two_prompts_in_turns() -> Log:
    log = simulate(Shape(1111, lag=1))
    pair = log.responses["group_id"] // 2
    return set_advantages(log, compared(log.responses["reward"], 2 * pair + (log.responses["seq_id"] % 6 >= 3)))


@HELD_OUT_FOURTH("advantage", "The reward stands on a masked token where a tool has the last word: no advantage.",
    report="miles #1827",
    never=(*_ENGINE, r"of other responses", r"too easy|too hard", r"equal reward.{0,40}no (signal|advantage)"),
    needs=(r"(tool|finish_?reason|ends? (in|with)).{0,200}(advantage|credit|gradient)"
           r"|(advantage|credit|gradient).{0,200}(tool|finish_?reason|although|unequal|rewards? differ)",))  # fmt: skip
def reward_lost_behind_the_last_tool() -> Log:
    log = simulate(Shape(1112, longest=80, turns=10, lag=1))
    last = share(log.responses["step"], log.responses["seq_id"], 111) < 0.22
    log.responses["n_tool_calls"] = log.responses["n_turns"] - 1 + last
    log.responses["finish_reason"] = np.where(last, "tool_calls", log.responses["finish_reason"]).astype(object)
    advantage = compared(log.responses["reward"], log.responses["group_id"])
    return set_advantages(log, np.where(last, 0.0, advantage))


# The loss and the update ----------------------------------------------------------------------------------------------


@HELD_OUT_FOURTH("loss", "The KL estimate k3 explodes far from the reference: few tokens make the gradient.",
    report="TRL #3015; OpenRLHF #1335, #931", columns=("with reference", "all"),
    never=(*_ENGINE, r"advantages? .{0,60}(giant|cancelled)", _FORMAT),
    needs=(r"(\bkl\b|reference|\bk3\b).{0,240}(gradient|expon|explo|overflow|dominat)"
           r"|(gradient|few tokens).{0,240}(\bkl\b|reference|\bk3\b)"
           r"|(few|\d+(\.\d+)? ?%|single) (of the )?tokens?.{0,120}gradient",))  # fmt: skip
def kl_estimate_explodes() -> Log:
    def trainer(log: Log, which: str, logits: Array) -> Array:
        far = np.array([4.5, -4.5, 3.6, -2.7])  # the run goes on with a policy that was trained for long
        return log.policy.logits(far, log.state) if which == "reference" else logits

    log = with_kl(simulate(Shape(1113, lag=1), trainer=trainer))
    log.manifest["algorithm"]["parameters"]["beta"] = 0.1
    step, size = log.tokens["step"], np.bincount(log.tokens["step"])
    term = 0.1 * np.expm1(log.tokens["logp_reference"] - log.tokens["logp_current"]) / size[step]
    plain = np.bincount(step, log.tokens["gradient_weight"] ** 2)
    log.tokens["gradient_weight"] = log.tokens["gradient_weight"] + term
    log.steps["grad_norm"] *= np.sqrt(np.bincount(step, log.tokens["gradient_weight"] ** 2) / plain)
    return log


@HELD_OUT_FOURTH("loss", "The KL term is the bare log-ratio: its gradient is one constant for all tokens.",
    report="NeMo-RL #2506", columns=("with reference", "all"),
    never=(*_ENGINE, r"clip.{0,40}(without|no) effect"),
    needs=(r"(advantage (is |of )?0|(without|no|zero) (an )?advantage|equal reward).{0,200}gradient"
           r"|gradient(_weight)?.{0,200}(constant|offset|same amount|\bkl\b|\bk1\b|without an advantage|advantage of 0)"
           r"|\bkl\b.{0,160}(constant|\bk1\b|gradient)",))  # fmt: skip
def kl_with_a_constant_gradient() -> Log:
    log = with_kl(simulate(Shape(1114, lag=1, drift=0.05)))
    log.manifest["algorithm"]["parameters"]["beta"] = 0.1
    log.tokens["gradient_weight"] -= 0.1 / np.bincount(log.tokens["step"])[log.tokens["step"]]
    return log


@HELD_OUT_FOURTH("log", "The adapter stays on for the reference: it is the policy itself, and the KL is 0.",
    report="unsloth-zoo #832", columns=("with reference",),
    never=(*_ENGINE, r"logp_current is a copy", r"learning.rate (is|was) 0"),
    needs=(r"reference.{0,200}(same|equal|identical|\bcop(y|ied)|itself|moves|follow|not frozen|updated|adapter)"
           r"|\bkl\b.{0,100}(\b0\b|zero)|(equal|identical|same|\bcop(y|ied)).{0,120}reference",))  # fmt: skip
def reference_is_the_policy() -> Log:
    def trainer(log: Log, which: str, logits: Array) -> Array:
        if which != "reference":
            return logits
        return log.policy.logits(log.policy.weights[log.tokens["step"]], log.state)

    return with_kl(simulate(Shape(1115, lag=1, drift=0.06), trainer=trainer))


@HELD_OUT_FOURTH("loss", "The mean counts the padding of each micro-batch as tokens: weights are two thirds of it.",
    report="prime-rl #674; miles #2796",
    never=(*_ENGINE, r"responses are missing", r"advantage alone"),
    needs=(r"\bmean\b.{0,60}padd|(gradient|denominator|normalis|aggregat).{0,240}(padd|smaller|micro.?batch"
           r"|0\.[5-8]|[5-8]\d(\.\d+)? ?%|(number|count) of)",))  # fmt: skip
def padding_in_the_mean() -> Log:
    log = simulate(Shape(1116, longest=128, closing=0.03, lag=1))
    log.responses["micro_batch"] = log.responses["seq_id"] % 12 // 3
    step = log.responses["step"]
    batch = (step * RANKS + log.responses["rank"]) * 4 + log.responses["micro_batch"]
    longest = np.zeros(batch.max() + 1)
    np.maximum.at(longest, batch, log.responses["n_tokens"])
    padded = np.bincount(step, longest[batch])
    log.tokens["gradient_weight"] *= (np.bincount(log.tokens["step"]) / padded)[log.tokens["step"]]
    return log


@HELD_OUT_FOURTH("loss", "The mask begins one token late in each turn: the first token of a turn has no gradient.",
    report="verl #3287; OpenRLHF #973",
    never=(*_ENGINE, r"\bend(s|ing)? token", r"only the last turn|last turn alone"),
    needs=(r"(first|begin|start).{0,60}(token|\bturn).{0,200}(gradient|mask|loss)"
           r"|(gradient|mask|not in the loss).{0,200}(first|begin|start|every (8|eight)|period)",))  # fmt: skip
def first_token_of_a_turn_masked() -> Log:
    log = simulate(Shape(1117, turns=8, closing=0.03, lag=1))
    log.tokens["gradient_weight"][log.tokens["position"] % 8 == 0] = 0.0
    return log


@HELD_OUT_FOURTH("update", "Weights are kept in bfloat16: small updates are rounded away, the policy moves rarely.",
    report="NeMo-RL #2322; AReaL #1292, #1369",
    never=(*_ENGINE, r"learning.rate (is|was|reach\w*) 0", r"too easy|too hard", r"never (changes|moves)"),
    needs=(r"\bround|bfloat16|bf16|low precision|stands? still|stood still|unchanged|not (move|change)|no effect"
           r"|(logp_new|updates?\b).{0,60}(identical|equals?|too small|without effect)",))  # fmt: skip
def updates_rounded_away() -> Log:
    def rounded(policy: Policy) -> None:
        policy.weights[1:] = 0.08 * np.cumsum(np.round(np.diff(policy.weights, axis=0) / 0.08), axis=0)

    log = simulate(Shape(1118, lag=1, trend=0.04, drift=0.03), prepare=rounded)
    return evaluated(log, np.full(log.shape.steps, 0.5))


# Healthy --------------------------------------------------------------------------------------------------------------

_FINE = "Nothing is wrong."


@HELD_OUT_FOURTH("healthy", _FINE, columns=("all", "verl"))
def fine_two_temperatures() -> Log:
    """Half of the responses are drawn at 0.8 and half at 1.2, and the trainer computes each at its own."""

    def setup(responses: Columns) -> None:
        responses["temperature"] = np.where(responses["seq_id"] % 2 == 0, 0.8, 1.2)

    log = simulate(Shape(1151, lag=1, drift=0.01), setup=setup,
                   sampler=lambda call, logits: logits / call.of("temperature")[:, None],
                   trainer=lambda log, which, logits: logits / log.of_token("temperature")[:, None])  # fmt: skip
    log.manifest["sampled_with"] = "processed"
    del log.manifest["sampler"]["temperature"]
    return log


@HELD_OUT_FOURTH("healthy", _FINE, columns=("all", "trl"))
def fine_limit_raised() -> Log:
    """The length limit goes from 40 to 80 tokens at step 12, as planned."""
    log = simulate(Shape(1152, longest=80, closing=0.05, lag=1, drift=0.01))
    return _cut(log, np.where(log.responses["step"] < 12, 40, 80))


@HELD_OUT_FOURTH("healthy", _FINE, columns=("all", "verl"))
def fine_warm_up_and_cosine() -> Log:
    """The learning rate rises for six steps and falls to a tenth; updates follow it."""
    rate = np.minimum(np.arange(1, 33) / 6, 0.55 + 0.45 * np.cos(np.pi * np.clip(np.arange(32) - 5, 0, 24) / 24))

    def path(policy: Policy) -> None:
        policy.weights[1:] = np.cumsum(np.diff(policy.weights, axis=0) * rate[:, None], axis=0)

    log = simulate(Shape(1153, steps=30, lag=1, drift=0.02, trend=0.25), prepare=path)
    log.steps["learning_rate"] = 3e-6 * rate[:30]
    return log


@HELD_OUT_FOURTH("healthy", _FINE, columns=("all", "prime-rl"))
def fine_one_slow_server() -> Log:
    """One server gets its weights three updates late, and its responses say so."""

    def setup(responses: Columns) -> None:
        late = np.where(responses["engine"] == "server-3", 3, 0)
        responses["behavior_version_min"] = np.maximum(responses["step"] - late, 0)

    return simulate(Shape(1154, lag=0, drift=0.01), setup=setup)


@HELD_OUT_FOURTH("healthy", _FINE, columns=("all", "trl"))
def fine_means_alone_and_rare_evaluations() -> Log:
    """Advantages without a deviation, of a task that is solved once in five, and an evaluation each sixth step."""
    log = simulate(Shape(1155, level=0.22, trend=0.2, responses=12, groups=6, lag=1, drift=0.01,
                         advantage="group_mean"))  # fmt: skip
    log.manifest["algorithm"]["name"] = "dr_grpo"
    log.steps["eval_accuracy"] = np.where(log.steps["step"] % 6 == 5, log.steps["eval_accuracy"], np.nan)
    return log


@HELD_OUT_FOURTH("healthy", _FINE, columns=("all", "verl"))
def fine_longer_as_it_learns() -> Log:
    """Responses grow from 20 tokens to 50, few of them reach the limit, and reward and accuracy rise."""
    shape = Shape(1156, steps=30, longest=240, lag=1, drift=0.015, level=0.5, trend=0.4)
    return simulate(shape, closing=lambda responses: 0.1 * np.exp(-responses["step"] / 24))


# Sick, and the log is true --------------------------------------------------------------------------------------------


@HELD_OUT_FOURTH("sick but true", "After an outage three steps learn from data ten updates old, and the reward falls.",
    needs=(_FALL,), never=NOTHING_BUT_THE_RUN, columns=("all", "prime-rl"))  # fmt: skip
def outage_and_a_fall() -> Log:
    def setup(responses: Columns) -> None:
        step = responses["step"]
        responses["behavior_version_min"] = np.where((step >= 14) & (step <= 16), 4, np.maximum(step - 1, 0))

    chance = changing(15, 0.62, 0.22, over=5)
    log = simulate(Shape(1171, steps=28, lag=1, drift=0.07), setup=setup, reward=rewards_by(chance))
    return evaluated(log, chance(log.steps["step"]))


@HELD_OUT_FOURTH("sick but true", "Ten prompts are learned by heart: the training reward rises to .9, accuracy falls.",
    needs=(r"accuracy.{0,60}(fell|fallen|falls|falling|dropped|lost|→)",), never=NOTHING_BUT_THE_RUN,
    columns=("all", "trl"))  # fmt: skip
def learned_by_heart() -> Log:
    log = simulate(Shape(1172, steps=30, prompts=10, lag=1, drift=0.03), reward=rewards_by(changing(1, 0.4, 0.9, 26)))
    return evaluated(log, changing(8, 0.46, 0.24, over=20)(log.steps["step"]))


@HELD_OUT_FOURTH("sick but true", "The policy turns to noise: entropy rises from step 8 on, and the reward falls.",
    needs=(_FALL,), never=NOTHING_BUT_THE_RUN, columns=("all", "verl"))  # fmt: skip
def turns_to_noise() -> Log:
    chance = changing(10, 0.58, 0.06, over=10)
    log = simulate(Shape(1173, lag=1, drift=0.02), prepare=sharper(changing(8, 0.0, -0.75, over=13)),
                   reward=rewards_by(chance))  # fmt: skip
    return evaluated(log, chance(log.steps["step"]))


@HELD_OUT_FOURTH("sick but true", "The learning rate is far too small: the policy hardly moves, nothing is learned.",
    never=NOTHING_BUT_THE_RUN, columns=("all", "prime-rl"))  # fmt: skip
def hardly_moves() -> Log:
    log = simulate(Shape(1174, lag=2, drift=0.0005, noise=0.004, trend=0.0))
    log.steps["learning_rate"] = np.full(log.shape.steps, 1e-9)
    return evaluated(log, np.full(log.shape.steps, 0.5))
