"""Held-out cases of a fourteenth date, of public reports that no other case has, most of them of 2026.

Requests that a kernel spoils, a window, an end token, two clips, groups of one, a replay buffer, a penalty, two
graders, a pool of prompts and a template, mostly with the columns that ordinary users have; each fault has a twin that
looks like it and is healthy. Written by someone who had read neither marks nor causes nor findings, and frozen before
they were scored. What the verdicts mean, and why the first score is kept, says `held_out`.
"""

import numpy as np
from numpy.typing import NDArray

from tests.cases.case import Register
from tests.cases.faults import MISSING_RESPONSES, NEVER_ARRIVED, SAMPLER_COLUMN, TEMPERATURE
from tests.cases.held_out_eleventh import _OF_TEXT, _ask, _graded, _scored, _short, _written
from tests.cases.held_out_ninth import _ENGINE, _FORMAT, _IN_PART, _OTHERS, _STEP, Whole, _drawn, _ratio, _tools
from tests.cases.held_out_tenth import _EASE
from tests.cases.held_out_twelfth import _DIFFER, _prompts_of
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

HELD_OUT_FOURTEENTH = Register()

FIRST_SCORE = {
    "held-out a fourteenth time faults": "4 vague, 5 silent, 3 untrue of 12 logs",
    "held-out a fourteenth time healthy": "9 quiet, 3 false alarm of 12 logs",
}
"""What was said of them when they were first scored, by the patterns as they were frozen (2026-11-29)."""

# Faults: sampler, trainer and the log ---------------------------------------------------------------------------------


def _hit(responses: Columns) -> NDArray[np.bool_]:
    """One of fifteen requests of each step."""
    return np.asarray(share(responses["step"], responses["seq_id"], 2201) < 0.07)


@HELD_OUT_FOURTEENTH("sampler", "7% of the requests meet a long prompt in the engine: word salad from token 5 on.",
    report="vLLM #55894; vllm-metal #488", columns=("trl",),
    never=(*_IN_PART, _FORMAT, r"mode collapse|entropy (collaps|is gone)"),
    needs=(r"(\d ?%|few|some|part|certain|particular|\d+ of \d+|handful|minority|fifteen|fraction|share|single|whole"
           r"|individual) (of )?(the |all )?(responses|requests|rollouts|sequences|completions)"
           r"|(responses|requests|rollouts|sequences) (hold|carry|have|are|make)\b.{0,60}(most|nearly all|all of"
           r"|garbage|apart|\d ?%)"
           rf" & {_DIFFER}|garbage|corrupt|salad|nonsense|noise|spoil",))  # fmt: skip
def word_salad_in_some_requests() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        if call.position < 5:
            return logits
        salad = 2.5 * call.noise()
        salad[:, END] = -35.0
        spoiled = share(call.of("step"), call.of("seq_id"), 2201) < 0.07
        return np.where(spoiled[:, None], salad, logits)

    def reward(log: Log) -> Columns:
        return {"reward": np.where(_hit(log.responses), 0.0, _drawn(log, chances(log)))}

    return simulate(Shape(2201, lag=1, drift=0.02, closing=0.08), sampler=sampler, reward=reward)


_WINDOW = 48


def _windowed(log: Log) -> Log:
    """The manifest says how far back the model looks."""
    log.manifest["model"] = {"name": "qwen", "sliding_window": _WINDOW}
    return log


def _lengths_of_prompts(responses: Columns) -> None:
    """Prompts of eight to 55 tokens."""
    _prompts_of(responses, 8 + (mixed(responses["prompt_id"], 2202) % np.uint64(48)).astype(np.int64))


@HELD_OUT_FOURTEENTH("sampler", "The trainer's shards leave out the sliding window of 48: behind it they score wrong.",
    report="prime-rl #2828, #2418", columns=("verl",),
    never=(NEVER_ARRIVED, TEMPERATURE, *_ENGINE[2:], _FORMAT, r"\bcache"),
    needs=(r"sliding|\bwindow|context|absolute|prompt_tokens|\b48\b|long(er)? prompts?|prompts?.{0,80}(\blong|length)"
           r"|(late|later|last) (tokens|positions)|positions? (\d+ on|from|behind|after|above|beyond)|(grows?|rises?"
           r"|increas\w+|larger|farther) .{0,30}(position|length)|(behind|beyond|after|from) .{0,30}(position|token) \d"
           rf" & {_DIFFER}",))  # fmt: skip
def window_is_left_out() -> Log:
    table = np.random.default_rng(2202).standard_normal((1500, 24))

    def trainer(log: Log, which: str, logits: Array) -> Array:
        beyond = np.maximum(log.of_token("prompt_tokens") + log.tokens["position"] - _WINDOW, 0)
        return logits + 0.5 * (1 - np.exp(-beyond / 12))[:, None] * table[log.state]

    return _windowed(simulate(Shape(2202, lag=1, drift=0.015), setup=_lengths_of_prompts, trainer=trainer))


@HELD_OUT_FOURTEENTH("log", "Padding and end are one token, which the trainer ignores: ends have log-probability 0.",
    report="TorchRL #3580", columns=("verl",),
    never=(*_IN_PART, _FORMAT, SAMPLER_COLUMN),
    needs=(r"\beos\b|\bends?\b|\bending|\bstop|last token|final token|token(_id)? 0\b"
           r" & exactly 0\b|(is|are|of|as|to|has|have|with|at|be|=|log.prob\w*) 0(\.0+)?\b|zero|probability (of )?1\b"
           r"|certain|padd|filled|placeholder|constant|missing|ignor|mask",))  # fmt: skip
def end_is_taken_for_padding() -> Log:
    log = simulate(Shape(2203, lag=1, drift=0.02, closing=0.09))
    ends = log.tokens["token_id"] == END
    for name in ("logp_behavior_train", "logp_current", "logp_new", "logp_reference"):
        log.tokens[name] = np.where(ends, 0.0, log.tokens[name])
    return apply_loss(log)


# Faults: the loss -----------------------------------------------------------------------------------------------------


def _dual(seed: int, runs: bool) -> Log:
    """PPO's clip, and what is worse than its group has no gradient above a ratio of 3, where that is passed on."""
    log = simulate(Shape(seed, lag=8, drift=0.35, sure=0.4, trend=0.2))
    log.manifest["schedule"] = {"kind": "async", "max_staleness": 8}
    log.manifest["algorithm"]["parts"]["gate"] = "dual_clip"
    log.manifest["algorithm"]["parameters"]["dual"] = 3.0
    tokens = log.tokens
    far = (tokens["advantage"] < 0) & (_ratio(log) > 3.0)
    if runs:
        tokens["clipped"], tokens["clip_side"] = tokens["clipped"] | far, np.where(far, 1, tokens["clip_side"])
        tokens["gradient_weight"] = np.where(far, 0.0, tokens["gradient_weight"])
    return log


@HELD_OUT_FOURTEENTH("loss", "The dual clip's 3 is not passed on: bad tokens with far larger ratios keep their weight.",
    report="slime #2247; RLinf #316, #323",
    never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, _EASE, r"advantage alone"),
    needs=(r"\bdual|_c\b|\bdelta\b|(above|beyond|over|than|up to|of|at|by|is|=) 3(\.0+)?\b|negative|(below|under|less"
           r" than) (0|zero)|bad (tokens|responses)"
           r" & gradient|weigh|clip|ratio|bound|\bgate"
           r" & did not (run|act|apply)|not (applied|run|passed|used|clipped|stopped|in effect|bounded)|never|without"
           r"|unbounded|unclipped|beyond|above|exceed|up to|ignor|keep|kept|no effect|still|should|although|despite",
           ))  # fmt: skip
def dual_clip_never_runs() -> Log:
    return _dual(2204, False)


def _gspo(seed: int, low: float, high: float) -> Log:
    """One ratio a response, the geometric mean of its tokens', with a clip of this width."""
    log = simulate(Shape(seed, lag=4, drift=0.1, trend=0.2))
    log.manifest["algorithm"]["name"] = "gspo"
    log.manifest["algorithm"]["parts"] |= {"level": "geometric", "aggregation": "sequence_mean"}
    log.manifest["algorithm"]["parameters"] = {"epsilon_low": low, "epsilon_high": high}
    tokens, length = log.tokens, log.lengths()
    mean = np.bincount(log.row, tokens["logp_current"] - tokens["logp_behavior"]) / length
    ratio, advantage = np.exp(mean)[log.row], tokens["advantage"]
    above, below = (advantage > 0) & (ratio > 1 + high), (advantage < 0) & (ratio < 1 - low)
    tokens["clipped"], tokens["clip_side"] = above | below, above.astype(int) - below.astype(int)
    responses = np.bincount(log.responses["step"])[tokens["step"]]
    tokens["gradient_weight"] = np.where(above | below, 0.0, advantage * ratio) / responses / length[log.row]
    return log


@HELD_OUT_FOURTEENTH("loss", "GSPO has PPO's clip of 0.2: ratios of responses never come near it, nothing is clipped.",
    report="TRL #3834", columns=("trl",),
    never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, _EASE),
    needs=(r"\bclip|epsilon|trust region|\bgate"
           r" & never|\bno\b|\bnone\b|(is|of|are|=) 0\b|\b0(\.0+)? ?%|not (once|one|a single|a token)|nothing|inactive"
           r"|\bidle|without effect|no effect|too (wide|large|broad|loose|far)|far (inside|within|from)|within|inside"
           r"|\bwider"
           r" & sequence|responses?|geometric|\bmean\b|gspo|length",))  # fmt: skip
def clip_of_tokens_on_responses() -> Log:
    return _gspo(2205, 0.2, 0.2)


# Faults: advantages ---------------------------------------------------------------------------------------------------


def _alone(seed: int, grouping: str) -> Log:
    """One response to each of 32 tasks of an agent, compared with itself, or with all of the step."""
    shape = Shape(seed, steps=14, groups=32, responses=1, lag=1, drift=0.02, turns=12, longest=72, closing=0.05,
                  level=0.4, advantage="group_mean", environments=("swe",))  # fmt: skip
    log = _tools(simulate(shape, reward=_scored()))
    log.manifest["algorithm"]["name"] = "reinforce"
    log.manifest["algorithm"]["parameters"] |= {"reward_normalization": {"grouping": grouping, "method": "mean"}}
    return set_advantages(log, compared(log.responses["reward"], log.responses[
        "step" if grouping == "batch" else "group_id"], "group_mean"))  # fmt: skip


@HELD_OUT_FOURTEENTH("advantage", "Each response is a group of one, whose mean is taken off: all advantages are 0.",
    report="ROLL #397", columns=("with advantages",),
    never=(*_ENGINE, _FORMAT, _EASE, MISSING_RESPONSES, r"learning.rate (is|was|of) 0|reward function (is )?constant"),
    needs=(r"advantages?"
           r" & (is|are|of|=|all|exactly) 0\b|zero|nothing|no (signal|gradient|learning)|vanish|cancel|empty"
           r" & (groups?|trajector\w+) (of|with|has|have) (size )?(one|1|a single)\b|single|\balone|one (response"
           r"|rollout|trajectory|member|row)|group.?size|(its|their) own|itself|although|though|despite"
           r"|rewards? (that )?(do )?(differ|var)",))  # fmt: skip
def own_mean_is_taken_off() -> Log:
    return _alone(2206, "traj_group_id")


def _replayed(seed: int, whole: bool) -> Log:
    """Groups of equal reward are replaced by earlier ones: with all of their advantages, or with the first alone."""
    log = simulate(Shape(seed, lag=1, drift=0.02, level=0.74))
    responses, rng = log.responses, np.random.default_rng(seed)
    own = compared(responses["reward"], responses["group_id"])
    unequal = np.ptp(responses["reward"].reshape(-1, 6), axis=1) > 0
    step_of = responses["step"][::6]
    taken = np.arange(len(unequal))
    for group in np.flatnonzero(~unequal).tolist():
        age = step_of[group] - step_of
        if (donors := np.flatnonzero(unequal & (age >= 1) & (age <= 6))).size:
            taken[group] = rng.choice(donors)
    source = (6 * taken[:, None] + np.arange(6)).ravel()
    replayed = source != np.arange(len(source))
    first = np.arange(len(source)) % 6 == 0
    return set_advantages(_copied(log, source, replayed), own[source] if whole else np.where(first, own[source], own))


def _copied(log: Log, source: Whole, replayed: NDArray[np.bool_]) -> Log:
    """Each row has the response of its source, scored by the policy of its own step."""
    places = ("step", "seq_id", "group_id", "rank")
    length, ends = log.lengths(), np.cumsum(log.lengths())
    at = np.concatenate([np.arange(ends[row] - length[row], ends[row]) for row in source.tolist()])
    log.row, log.state = np.repeat(np.arange(len(source)), length[source]), log.state[at]
    log.tokens = {name: values[at] for name, values in log.tokens.items()}
    log.responses = {name: each if name in places else each[source] for name, each in log.responses.items()}
    log.responses["source"] = np.where(replayed, "replay", "fresh").astype(object)
    for name in places[:3]:
        log.tokens[name] = log.of_token(name)
    for name, ahead in (("logp_current", 0), ("logp_new", 1)):
        logp = log_softmax(log.policy.logits(log.policy.weights[log.tokens["step"] + ahead], log.state))
        log.tokens[name] = logp[np.arange(len(at)), log.tokens["token_id"]]
        if not ahead:
            log.tokens["entropy"] = -(np.exp(logp) * logp).sum(axis=1)
    log.manifest["task"]["replay_buffer"] = {"replaces": "groups of equal reward", "newest_steps": 6}
    return log


@HELD_OUT_FOURTEENTH("advantage", "Of a replayed group the first response alone has its advantage, the others have 0.",
    report="TRL #6804, #6821", columns=("trl",),
    never=(*_ENGINE, _FORMAT, MISSING_RESPONSES, _STEP, _EASE, r"row before|shifted by one row"),
    needs=(r"advantages?"
           r" & \b0\b|zero|\bnone\b|without|no advantage|missing|do(es)? not (fit|match|follow|agree|sum|balance|add)"
           r"|inconsistent|contradict|one (row|response)"
           r" & replay|buffer|cop(y|ies)\b|copied|repeat|earlier|source|\bold(er)?\b|first|only one|five|5 of 6"
           r"|rewards? .{0,30}(differ|unequal|var)|(differ\w*|unequal) rewards?",))  # fmt: skip
def replayed_without_advantages() -> Log:
    return _replayed(2207, False)


# Faults: how it is scored ---------------------------------------------------------------------------------------------


def _unended(seed: int, applied: bool) -> Log:
    """Scores of a reward model, less 1 where the end token is missing, which the prompt has already."""

    def setup(responses: Columns) -> None:
        prompts = [f"<|im_start|>user\nTask {at}: solve it.<|im_end|>\n" for at in responses["prompt_id"].tolist()]
        responses["prompt"] = np.array(prompts, dtype=object)

    def reward(log: Log) -> Columns:
        score = _graded(log)
        return {"reward": score - 1.0 * applied * log.responses["truncated"], "reward_model": score}

    log = simulate(_short(seed, 16, closing=0.045), setup=setup, reward=_scored(reward))
    log.manifest["algorithm"]["parameters"]["missing_eos_penalty"] = 1.0
    return log


@HELD_OUT_FOURTEENTH("advantage", "A missing end should cost 1: it is looked for in the prompt, too, and nobody pays.",
    report="TRL #6805, #6813, #3750, #5338", columns=("with advantages",),
    never=(*_ENGINE, _FORMAT, _EASE, MISSING_RESPONSES, _STEP),
    needs=(r"\beos\b|missing_eos|end token|truncat|\bcut\b|limit|unfinished|\bends?\b"
           r" & penalt|missing_eos_penalty|\bcosts?\b|\bpay|\b(subtract|deduct|take)\w*"
           r" & \bnot\b|never|without|\bnone\b|no (effect|penalty|deduction|difference|truncated|response)|although"
           r"|despite|the same|unpenali[sz]|ignor|\bas (much|high|many)|nobody|nothing",))  # fmt: skip
def nobody_pays_the_penalty() -> Log:
    return _unended(2208, False)


def _thought(log: Log, lines: Array, closes: Array, dot_matches_all: bool) -> Columns:
    """Thinking and an answer between tags, on one line or on several; some never close the first tag."""
    n = len(log.responses["step"])
    several = log.rng.random(n) < lines
    closed = (log.rng.random(n) < closes) & ~log.responses["truncated"]
    right = _drawn(log, chances(log)) * closed
    solution = (10 + 900 * share(log.responses["prompt_id"], log.shape.seed)).astype(int)
    given = np.where(right == 1, solution, solution + 1 + (9 * log.rng.random(n)).astype(int))
    texts = []
    for words, x, line, end in zip(_written(log), given.tolist(), several, closed, strict=True):
        gap, half = ("\n" if line else " "), words.split(" ")
        middle = gap.join([" ".join(half[: len(half) // 2]), " ".join(half[len(half) // 2 :])])
        closing = f"{gap}</think>{gap}<answer>{x}</answer>" if end else ""
        texts.append(f"<think>{gap}{middle}{closing}")
    formed = closed & (dot_matches_all | ~several)
    return {"reward": right + 0.5 * formed, "reward_answer": right, "reward_format": formed.astype(float),
            "response": np.array(texts, dtype=object)}  # fmt: skip


@HELD_OUT_FOURTEENTH("selection", "The format's dot matches no new line: who thinks on several lines gets 0 for it.",
    report="open-r1 #237", columns=("text",), never=_OF_TEXT,
    needs=(r"new.?lines?|line.?breaks?|\blines?\b|\\n|multi.?line|paragraph"
           r" & format|reward|scor|regex|pattern"
           r" & \b0\b|never|zero|fail|not (match|count|recogni|read|accept)|reject|\bonly\b|\ball\b|\bno\b|always|lose",
           ))  # fmt: skip
def several_lines_are_no_format() -> Log:
    def reward(log: Log) -> Columns:
        done = log.responses["step"] / (log.shape.steps - 1)
        return _thought(log, 0.85 - 0.5 * done, np.full(len(done), 0.97), False)

    return simulate(_short(2209, 16, closing=0.1), reward=_scored(reward))


def _files(responses: Columns) -> None:
    """Each prompt asks for one of nine."""
    prompts = [f"Task {at}: which of the nine files has the secret?" for at in responses["prompt_id"].tolist()]
    responses["prompt"] = np.array(prompts, dtype=object)


def _named(log: Log, digits: Array, contains: bool) -> Columns:
    """A file's number, right or wrong, or a number of several digits, which may contain the right one."""
    n = len(log.responses["step"])
    right = _drawn(log, chances(log) - 0.15) == 1
    file = 1 + (9 * share(log.responses["prompt_id"], log.shape.seed)).astype(int)
    forms = ("{}", "{}", "{}.0", "0{}", "file {}") if not contains else ("{}",)
    which = (len(forms) * log.rng.random(n)).astype(int)
    numbers = ["".join(map(str, log.rng.integers(1, 10, max(int(many), 1)).tolist())) for many in digits.tolist()]
    given = [forms[form].format(own) if ok else number
             for ok, own, form, number in zip(right, file.tolist(), which, numbers, strict=True)]  # fmt: skip
    same = np.array([each == str(own) for each, own in zip(given, file.tolist(), strict=True)])
    inside = np.array([str(own) in each for each, own in zip(given, file.tolist(), strict=True)])
    return {"reward": (inside if contains else right | same).astype(float),
            "response": _written(log, [f" Answer: {each}" for each in given])}  # fmt: skip


@HELD_OUT_FOURTEENTH("selection", "An answer is right where it contains the right one: 7 is in 172, long numbers win.",
    report="verifiers #763; tau-bench #89", columns=("text",), never=_OF_TEXT,
    needs=(r"contain|substring|anywhere|part of|\binside\b|\bin (it|them)\b|includ|(several|different|unlike|two|many"
           r"|other|unequal|more than one|distinct) (final )?answers?.{0,120}(right|scor|reward|\b1\b|full)"
           r"|answers?.{0,120}(differ|unequal|disagree|several|distinct|unlike).{0,120}(same|both|all|right|full|scor"
           r"|reward|\b1\b)"
           r"|(long|more digits|larger)\w* (numbers|answers)|false positive|too (lenient|generous|lax)",))  # fmt: skip
def an_answer_that_contains_it() -> Log:
    def reward(log: Log) -> Columns:
        done = log.responses["step"] / (log.shape.steps - 1)
        return _named(log, 2 + 6 * done * log.rng.random(len(done)), True)

    return simulate(_short(2210, 16), setup=_files, reward=_scored(reward))


# Faults: what is asked ------------------------------------------------------------------------------------------------


def _pooled(seed: int, recycles: bool) -> Log:
    """Prompts that all or none of the six solve are set aside, for good or for five steps; 88 there are."""
    rng, steps = np.random.default_rng(seed), 36
    kind = rng.random(88)
    ability = np.where(kind < 0.42, 0.97, np.where(kind < 0.84, 0.02, rng.uniform(0.3, 0.55, 88)))
    aside = np.full(88, -100)
    there = np.ones(88, dtype=bool)
    asked, solved = [], []
    for step in range(steps):
        if recycles:
            there |= step - aside > 5
        pool = np.flatnonzero(there)
        chosen = rng.choice(pool, 8, replace=len(pool) < 8)
        chance = np.clip(ability[chosen] + 0.1 * step / steps, 0.0, 0.99)
        right = (rng.random((8, 6)) < chance[:, None]).astype(float)
        extreme = (right.mean(axis=1) > 0.9) | (right.mean(axis=1) < 0.1)
        there[chosen[extreme]], aside[chosen[extreme]] = False, step
        asked.append(np.repeat(chosen, 6))
        solved.append(right.ravel())

    def reward(log: Log) -> Columns:
        right = np.concatenate(solved)
        solution = (10 + 900 * share(log.responses["prompt_id"], seed)).astype(int)
        given = np.where(right == 1, solution, solution + 1 + (40 * log.rng.random(len(right))).astype(int))
        return {"reward": right, "response": _written(log, [f" Answer: {x}" for x in given.tolist()])}

    log = simulate(_short(seed, steps, shortest=8, longest=32, closing=0.15), reward=reward,
                   setup=lambda responses: _ask(responses, 1000 + np.concatenate(asked)))  # fmt: skip
    buffer: dict[str, float] = {"easy_threshold": 0.9, "hard_threshold": 0.1}
    log.manifest["task"] |= {"prompts": 88, "buffer": buffer | ({"recycle_after_steps": 5} if recycles else {})}
    return log


@HELD_OUT_FOURTEENTH("selection", "What is set aside as easy or hard never comes back: 88 prompts shrink to a few.",
    report="prime-rl #2667", columns=("text",), never=(*_ENGINE, _FORMAT, MISSING_RESPONSES, _STEP, r"restart"),
    needs=(r"prompts?|tasks?|\bpool|questions"
           r" & fewer|shrink|shrank|shrunk|narrow|\bdry\b|drain|exhaust|over and over|more and more often"
           r"|(same|last|only) (\w+ )?(few|\d+|eight|nine|ten|eleven|twelve|dozen|handful)"
           r"|\bfew (distinct|different|prompts|tasks)"
           r"|(distinct|different) (prompts|tasks).{0,80}(fall|fell|→|\bto \d|declin|drop)"
           r"|never (come|asked|seen|return|sampled)"
           r"|(again|repeat\w*).{0,80}(late|end|last|later|from step|since|ever more|more often)",))  # fmt: skip
def pool_runs_dry() -> Log:
    return _pooled(2211, False)


def _half(responses: Columns) -> NDArray[np.bool_]:
    """The first four of eight groups."""
    return np.asarray(responses["seq_id"] < 24)


def _agents(seed: int, kind: str, template: str, level: float, closing: float) -> Log:
    """Half of each step is of a kind, whose prompts are made of a template, the rest of 'web'."""

    def setup(responses: Columns) -> None:
        responses["environment"] = np.where(_half(responses), kind, "web").astype(object)
        rows = zip(_half(responses), responses["prompt_id"].tolist(), strict=True)
        prompts = [(template if mine else "Find page @, read its date.").replace("@", str(at)) for mine, at in rows]
        responses["prompt"] = np.array(prompts, dtype=object)

    def reward(log: Log) -> Columns:
        return {"reward": _drawn(log, np.where(_half(log.responses), level, chances(log)))}

    shape = _short(seed, 14, turns=12, shortest=6, longest=84)
    return _tools(simulate(shape, setup=setup, reward=_scored(reward),
                           closing=lambda responses: np.where(_half(responses), closing, 0.07)))  # fmt: skip


@HELD_OUT_FOURTEENTH("selection", "The template of 'repo' is not filled in: no agent knows where it is, few solve it.",
    report="codescout #50", columns=("sampler",),
    never=(*_ENGINE, _FORMAT, _EASE, MISSING_RESPONSES, _STEP),
    needs=(r"\{\{|\}\}|placeholder|template|unfilled|un-?rendered|not (filled|rendered|replaced|substituted|resolved)"
           r"|working_dir|literal|\bbraces?\b|curly|variable",))  # fmt: skip
def template_is_not_filled_in() -> Log:
    return _agents(2212, "repo", "The repository is in {{ working_dir }}. Solve issue @ of it.", 0.05, 0.02)


# Healthy: sampler, trainer and the log --------------------------------------------------------------------------------

_FINE = "Nothing is wrong."


@HELD_OUT_FOURTEENTH("healthy", _FINE, columns=("trl",))
def fine_some_write_freely() -> Log:
    """One group of fifteen writes freely: unlikely words to the limit, on both sides, and seldom what is asked for."""

    def setup(responses: Columns) -> None:
        free = share(responses["group_id"], 2251) < 0.07
        responses["environment"] = np.where(free, "stories", "maths").astype(object)

    def freely(logits: Array, environment: NDArray[np.object_]) -> Array:
        loose = 0.25 * logits
        loose[:, END] = -35.0
        return np.where((environment == "stories")[:, None], loose, logits)

    def reward(log: Log) -> Columns:
        return {"reward": _drawn(log, chances(log) - 0.3 * (log.responses["environment"] == "stories"))}

    return simulate(Shape(2251, lag=1, drift=0.02, closing=0.08), setup=setup, reward=reward,
                    sampler=lambda call, logits: freely(logits, call.of("environment")),
                    trainer=lambda log, which, logits: freely(logits, log.of_token("environment")))  # fmt: skip


@HELD_OUT_FOURTEENTH("healthy", _FINE, columns=("verl",))
def fine_open_behind_the_window() -> Log:
    """Both have the window; behind it text is open, on both sides, and moves most with the age of the data."""

    def opened(logits: Array, place: Whole) -> Array:
        return logits * np.where(place < _WINDOW, 1.0, 0.6)[:, None]

    return _windowed(simulate(
        Shape(2252, lag=2, drift=0.02), setup=_lengths_of_prompts,
        sampler=lambda call, logits: opened(logits, call.of("prompt_tokens") + call.position),
        trainer=lambda log, which, logits: opened(logits, log.of_token("prompt_tokens") + log.tokens["position"]),
    ))  # fmt: skip


@HELD_OUT_FOURTEENTH("healthy", _FINE, columns=("verl",))
def fine_ends_are_certain() -> Log:
    """Where a response may end, it does, nearly certainly, to both sampler and trainer."""

    def prepare(policy: Policy) -> None:
        policy.base[: policy.n_closing, END] += 8.0

    return simulate(Shape(2253, lag=1, drift=0.02, closing=0.09), prepare=prepare)


# Healthy: the loss ----------------------------------------------------------------------------------------------------


@HELD_OUT_FOURTEENTH("healthy", _FINE)
def fine_dual_clip_runs() -> Log:
    """What is worse than its group has no gradient above a ratio of 3, as configured."""
    return _dual(2254, True)


@HELD_OUT_FOURTEENTH("healthy", _FINE, columns=("trl",))
def fine_clip_of_responses() -> Log:
    """The clip is as narrow as ratios of responses are close to 1, and takes one token of nine."""
    return _gspo(2255, 0.015, 0.015)


# Healthy: advantages --------------------------------------------------------------------------------------------------


@HELD_OUT_FOURTEENTH("healthy", _FINE, columns=("with advantages",))
def fine_one_response_a_task() -> Log:
    """There is one response to each task, and the baseline is the mean of the step, as configured."""
    return _alone(2256, "batch")


@HELD_OUT_FOURTEENTH("healthy", _FINE, columns=("trl",))
def fine_replayed_with_advantages() -> Log:
    """Groups of equal reward are replaced by earlier ones, whose advantages come with them."""
    return _replayed(2257, True)


# Healthy: how it is scored --------------------------------------------------------------------------------------------


@HELD_OUT_FOURTEENTH("healthy", _FINE, columns=("with advantages",))
def fine_all_pay_the_penalty() -> Log:
    """Who does not end loses 1, as configured."""
    return _unended(2258, True)


@HELD_OUT_FOURTEENTH("healthy", _FINE, columns=("text",))
def fine_some_never_close_the_tag() -> Log:
    """One of six never closes the tag of its thinking, which is no format; lines do not matter."""
    return simulate(_short(2259, 16, closing=0.1), reward=_scored(
        lambda log: _thought(log, np.full(len(log.responses["step"]), 0.65), 0.8 + 0.1 * chances(log), True)
    ))  # fmt: skip


@HELD_OUT_FOURTEENTH("healthy", _FINE, columns=("text",))
def fine_a_number_in_several_forms() -> Log:
    """7, 7.0, 07 and 'file 7' are one answer, and are right; numbers that contain it are not."""
    return simulate(_short(2260, 16), setup=_files, reward=_scored(
        lambda log: _named(log, 1 + 3 * log.rng.random(len(log.responses["step"])), False)
    ))  # fmt: skip


# Healthy: what is asked -----------------------------------------------------------------------------------------------


@HELD_OUT_FOURTEENTH("healthy", _FINE, columns=("text",))
def fine_pool_is_filled_again() -> Log:
    """What is set aside as easy or hard is asked again six steps later, as configured."""
    return _pooled(2261, True)


@HELD_OUT_FOURTEENTH("healthy", _FINE, columns=("sampler",))
def fine_tasks_about_templates() -> Log:
    """Half of the tasks are about templates, and say so: braces are what they ask for."""
    return _agents(2262, "jinja", "Write a line that prints {{ user_@.name }} in capitals.", 0.4, 0.04)
