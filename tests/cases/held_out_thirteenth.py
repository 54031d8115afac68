"""Held-out cases of a thirteenth date, of public reports that no other case has, most of them of 2026.

A cap and a bias of logits, a sync that ends too late, drafts, filters, scales, divisors, graders and mixtures, mostly
with the columns that ordinary users have; each fault has a twin that looks like it and is healthy. Written by someone
who had read neither marks nor causes nor findings, and frozen before they were scored. What the verdicts mean, and why
the first score is kept, says `held_out`.
"""

import numpy as np
from numpy.typing import NDArray

from tests.cases.case import Register
from tests.cases.faults import MISSING_RESPONSES, NEVER_ARRIVED, TEMPERATURE
from tests.cases.held_out_eleventh import _OF_TEXT, _ask, _scored, _short, _written
from tests.cases.held_out_ninth import _ENGINE, _FORMAT, _OTHERS, _STEP, Whole, _drawn, _ratio, _weighted
from tests.cases.held_out_tenth import _EASE
from tests.cases.held_out_twelfth import _DIFFER
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
    set_advantages,
    share,
    simulate,
)

HELD_OUT_THIRTEENTH = Register()

FIRST_SCORE = {
    "held-out a thirteenth time faults": "4 found, 7 silent, 1 untrue of 12 logs",
    "held-out a thirteenth time healthy": "12 quiet of 12 logs",
}
"""What was said of them when they were first scored, by the patterns as they were frozen (2026-11-29)."""

# Faults: sampler, trainer and the weights between them ----------------------------------------------------------------

_CAP = 12.0


def _capped(logits: Array) -> Array:
    """Logits that never pass the cap, on either side."""
    return np.asarray(_CAP * np.tanh(logits / _CAP))


def _model_of_caps(log: Log) -> Log:
    """The manifest says which model it is."""
    log.manifest["model"] = {"name": "gemma", "final_logit_softcapping": _CAP}
    return log


@HELD_OUT_THIRTEENTH("sampler", "The trainer leaves out the cap of logits: what is unlikely is far less likely to it.",
    report="TRL #5692, #5691; unsloth-zoo #593", columns=("trl",),
    never=(NEVER_ARRIVED, TEMPERATURE, *_ENGINE[2:], _FORMAT),
    needs=(r"soft.?cap|\bcap(s|ped|ping)?\b|(large|big|high|extreme) logits|unlikely|improbable|\brare"
           r"|\btails?\b|less likely|sharper|flatter"
           r"|more (sure|certain|confident)|low.probability|(small|low)\w* probabilit"
           rf" & {_DIFFER}|less likely|lower",))  # fmt: skip
def cap_is_left_out() -> Log:
    return _model_of_caps(simulate(Shape(2001, lag=1, drift=0.02), sampler=lambda call, logits: _capped(logits)))


@HELD_OUT_THIRTEENTH("sampler", "The engine leaves out the head's bias: each token is off by an amount of its own.",
    report="vLLM #46835", columns=("verl",),
    never=(NEVER_ARRIVED, TEMPERATURE, *_ENGINE[2:], _FORMAT, r"(grows|rises) with (the )?(position|training)"),
    needs=(r"token.?ids?|\bvocab|\bbias|\bhead\b|which token|(certain|same|particular|specific|individual|single)"
           r" tokens?\b|\btokens? \d+"
           rf" & {_DIFFER}|\boff\b|bias|constant|more likely|less likely",))  # fmt: skip
def bias_of_the_head_is_left_out() -> Log:
    bias = 0.45 * np.random.default_rng(2002).standard_normal(24)
    return simulate(Shape(2002, lag=1, drift=0.015), trainer=lambda log, which, logits: logits + bias)


def _early(responses: Columns) -> NDArray[np.bool_]:
    """The first two of eight groups of a step."""
    return np.asarray(responses["seq_id"] < 12)


@HELD_OUT_THIRTEENTH("weights", "The engine answers before the sync ends: each step's first quarter is of old weights.",
    report="slime #555", columns=("trl",),
    never=(NEVER_ARRIVED, TEMPERATURE, *_ENGINE[2:], _FORMAT, r"\bcache"),
    needs=(r"seq_id|\bslots?\b|quarter|first (\d+|few|two|groups?|responses|rows|requests)|(beginning|start|first"
           r" part) of (each|every|a|the) (step|batch|update)|early (responses|requests|rows|groups)|earliest"
           r"|(responses|rows|groups) (0|below)|place in the (step|batch)"
           r" & weights?|versions?|\bsync|\bupdates?\b|\bold(er)?\b|stale"
           rf" & {_DIFFER}|\bold(er)?\b|before",))  # fmt: skip
def answers_before_the_sync_is_over() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        weights = call.policy.weights[call.version].copy()
        weights[:, :3] = call.policy.weights[np.maximum(call.version - 1, 0), :3]
        return np.where((call.of("seq_id") < 12)[:, None], call.served(weights), logits)

    return simulate(Shape(2003, lag=0, drift=0.14), sampler=sampler)


# Faults: the log ------------------------------------------------------------------------------------------------------


def _behind_the_end(log: Log, more: Whole, ends: bool) -> Log:
    """So many tokens behind the end token of each response that has one, the last of them an end token or not."""
    last = np.append(np.diff(log.row) != 0, True)
    stopped = last & (log.tokens["token_id"] == END)
    times = 1 + np.where(stopped, more[log.row], 0)
    at = np.repeat(np.arange(len(times)), times)
    extra = np.arange(len(at)) - np.repeat(np.cumsum(times) - times, times)
    added = extra > 0
    rng = np.random.default_rng(log.shape.seed)
    state = np.where(added, rng.integers(log.policy.n_closing, log.shape.states, len(at)), log.state[at])
    logp = log_softmax(log.policy.logits(log.policy.weights[log.tokens["behavior_version"][at]], state))
    heaps = np.cumsum(np.exp(logp), axis=1)
    token = np.minimum((heaps < rng.random((len(at), 1))).sum(axis=1), 23)
    value = logp[np.arange(len(at)), token]
    if ends:
        final = added & (extra == times[at] - 1)
        token, value = np.where(final, END, token), np.where(final, np.log(0.3 + 0.69 * rng.random(len(at))), value)
    log.tokens = {name: values[at] for name, values in log.tokens.items()}
    log.row, log.state = log.row[at], state
    log.tokens["position"] = log.tokens["position"] + extra
    log.tokens["token_id"] = np.where(added, token, log.tokens["token_id"])
    log.tokens["logp_behavior"] = np.where(added, value, log.tokens["logp_behavior"])
    log.responses["n_tokens"] = log.lengths()
    log.manifest["sampler"]["speculative"] = {"method": "ngram", "tokens": 4}
    return log


@HELD_OUT_THIRTEENTH("log", "With drafts, up to four tokens behind the stop string stay; the text ends before them.",
    report="vLLM #47616", columns=("sampler",),
    never=(NEVER_ARRIVED, TEMPERATURE, _FORMAT, _EASE, MISSING_RESPONSES),
    needs=(r"(behind|after|past|beyond|follow\w*|since).{0,60}(\bend|\bstop|\beos|\blast word)|stop (string|sequence)"
           r"|(\bend|\beos|\bstop|token 0).{0,100}(\bnot (the )?last|middle|inside|before the (end|last)|goes? on"
           r"|continu)|text.{0,120}(shorter|fewer|ends (before|earlier)|\bless\b|not (contain|in|have))|(more|longer)"
           r".{0,60}than (the|its|their) text|\bdrafts?\b|speculat",))  # fmt: skip
def tokens_behind_the_stop_string() -> Log:
    log = simulate(_short(2004, steps=16, closing=0.1), reward=_scored())
    more = np.random.default_rng(2104).choice(5, len(log.responses["step"]), p=[0.35, 0.2, 0.2, 0.15, 0.1])
    return _behind_the_end(log, more, False)


def _filtered(seed: int) -> tuple[Log, Array]:
    """Sixteen groups of a step were sampled, the first eight with unequal rewards are kept; and the first rewards."""
    log = simulate(Shape(seed, groups=16, lag=1, drift=0.02, level=0.72))
    reward, group, step = log.responses["reward"], log.responses["group_id"], log.responses["step"]
    right = np.bincount(group, reward)
    mixed = (right > 0) & (right < 6)
    of_step = np.arange(len(right)) // 16
    before: Whole = np.cumsum(mixed) - mixed
    kept = mixed & (before - before[16 * of_step] < 8)
    rows = kept[group]
    sizes = np.bincount(step[rows])
    first = np.concatenate([reward[step == at][:size] for at, size in enumerate(sizes.tolist())])
    log.keep(rows[log.row], rows)
    number = np.arange(len(first)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    log.responses["seq_id"], log.responses["rank"] = number, number % 48 // 12
    log.tokens["seq_id"] = number[log.row]
    log.manifest["task"]["dynamic_sampling"] = {"groups_generated": 16, "groups_kept": 8}
    apply_loss(log)
    return log, first


@HELD_OUT_THIRTEENTH("log", "Rewards are of all that was sampled, rows are what the filter kept: they do not fit.",
    report="NeMo-RL #3794", columns=("verl",),
    never=(*_ENGINE, _FORMAT, _EASE, MISSING_RESPONSES, _STEP),
    needs=(r"rewards?|scores? & advantages?|groups?|rows?|responses?"
           r" & (belong|of) .{0,40}(other|another|different)|other (responses?|rows?|groups?)|shift|misalign|\bslots?\b"
           r"|(not|n't) (fit|match|follow|agree|belong|correspond|explain)|unfiltered|before (the )?filter|inconsistent"
           r"|disagree|contradict|mismatch|wrong (row|response|group|order)|nothing to do with",))  # fmt: skip
def rewards_from_before_the_filter() -> Log:
    log, first = _filtered(2005)
    log.responses["reward"] = first
    return log


# Faults: rewards and advantages ---------------------------------------------------------------------------------------


def _overlong(seed: int, buffer: int) -> Log:
    """The answer, less what is lost in the buffer before the limit of 64 tokens."""

    def reward(log: Log) -> Columns:
        right = _drawn(log, chances(log))
        lost = -np.clip((log.responses["n_tokens"] - (64 - buffer)) / buffer, 0.0, 1.0)
        return {"reward": right + lost, "reward_answer": right, "reward_overlong": lost}

    log = simulate(_short(seed, 20, closing=0.045), reward=_scored(reward))
    log.manifest["task"]["overlong"] = {"max_response_length": 64, "buffer": buffer, "penalty_factor": 1.0}
    return log


@HELD_OUT_THIRTEENTH("advantage", "The overlong penalty's buffer, 96, is above the limit, 64: every response loses.",
    report="verl #2107", columns=("text",), never=_OF_TEXT,
    needs=(r"overlong|penalt|\bbuffer|length|\blong|\bshort"
           r" & \b(all|every|each|any|no)\b.{0,40}(responses?|answers?|ones?|completions?|length)\b|buffer|shortest"
           r"|even (the )?short|never 0|always (negative|below|loses?|penal)|below the limit|from the first token",
           ))  # fmt: skip
def buffer_is_above_the_limit() -> Log:
    return _overlong(2006, 96)


def _spread(log: Log) -> Columns:
    """Scores of some prompts lie close together, those of others far apart."""
    width = 0.02 + 0.33 * share(log.responses["prompt_id"], log.shape.seed) ** 2
    n = len(width)
    return {"reward": np.round(np.clip(chances(log) + width * log.rng.standard_normal(n), 0, 1), 3)}


def _scaled(seed: int, batch: bool) -> Log:
    """Advantages by the deviation of the batch, as configured, or by that of each group."""
    log = simulate(Shape(seed, lag=1, drift=0.02), reward=_spread)
    log.manifest["algorithm"]["parameters"]["scale_rewards"] = "batch"
    if not batch:
        return log
    reward, step = log.responses["reward"], log.responses["step"]
    deviation = np.array([reward[step == at].std(ddof=1) for at in range(log.shape.steps)])
    return set_advantages(log, compared(reward, log.responses["group_id"], "group_mean") / (deviation[step] + 1e-4))


@HELD_OUT_THIRTEENTH("advantage", "Rewards should be scaled by the batch's deviation, and each group's own is taken.",
    report="TRL #3991", columns=("trl",),
    never=(*_ENGINE, _FORMAT, _OTHERS, _EASE, MISSING_RESPONSES, _STEP),
    needs=(r"\bgroups?\b|\bown\b|prompts? & deviation|\bstd\b|scal|normali[sz]|spread|divid"
           r" & \bbatch|configured|manifest|scale_rewards|\bstep'?s? (deviation|std)",))  # fmt: skip
def scaled_by_the_group() -> Log:
    return _scaled(2007, False)


# Faults: the loss -----------------------------------------------------------------------------------------------------


def _divided(seed: int, by: float) -> Log:
    """Each response's sum is divided by a constant, which is 64 as configured, and the mean is over responses."""
    log = simulate(Shape(seed, lag=1, drift=0.02, advantage="group_mean"))
    log.manifest["algorithm"]["name"] = "dr_grpo"
    log.manifest["algorithm"]["parts"] |= {"aggregation": "longest_mean", "advantage": "group_mean"}
    log.manifest["sampler"]["max_tokens"] = log.shape.longest
    step = log.tokens["step"]
    log.tokens["gradient_weight"] *= np.bincount(step)[step] / (48 * by)
    log.steps["grad_norm"] *= 64 / by
    return log


@HELD_OUT_THIRTEENTH("loss", "Sums are divided by a constant of 1000 in the code; 64, the limit, is configured.",
    report="miles #1328", never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, _EASE, r"advantage alone"),
    needs=(r"gradient|\bweigh|\bloss\b|aggregat|divis|divid|normali[sz]|scale"
           r" & \b1,?000\b|\b64\b|divis|divid|constant|denominator|normali[sz]er|too small|smaller|\btimes\b|factor"
           r"|\b(0?\.06\d*|15\.6\d*|1[56])\b|fraction",))  # fmt: skip
def divided_by_a_thousand() -> Log:
    return _divided(2008, 1000.0)


def _cispo(seed: int, kept: bool) -> Log:
    """Weights are ratios up to a cap of 1.2; above it a token keeps the cap as its weight, or has none."""
    log = simulate(Shape(seed, lag=3, drift=0.18, trend=0.2))
    log.manifest["algorithm"]["name"] = "cispo"
    log.manifest["algorithm"]["parts"] |= {"weight": "truncated", "gate": "none"}
    log.manifest["algorithm"]["parameters"] = {"cap": 1.2}
    ratio = _ratio(log)
    return _weighted(log, np.minimum(ratio, 1.2) if kept else np.where(ratio > 1.2, 0.0, ratio))


@HELD_OUT_THIRTEENTH("loss", "CISPO's clamp is in the gradient: tokens above the cap have none, and should have it.",
    report="open-instruct #1269", never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, _EASE, r"advantage alone"),
    needs=(r"gradient|\bweigh & \bcap\b|\b1\.20*\b|above|beyond|clamp|truncat|clip|upper|bound"
           r" & \b0\b|\bzero|\bno (gradient|weight)|\bnone\b|\blost?\b|vanish|drop|remov|mask|cut|nothing|without"
           r"|\bgated?\b",))  # fmt: skip
def nothing_above_the_cap() -> Log:
    return _cispo(2009, False)


# Faults: what is asked, kept and scored -------------------------------------------------------------------------------


def _part_of(responses: Columns, kind: str, other: str, part: Array, easy: int) -> None:
    """Of the eight groups of each step, this part are of a kind, whose prompts have numbers of their own."""
    step, place = responses["step"], responses["seq_id"] // 6
    mine = place < np.round(8 * part[step])
    responses["environment"] = np.where(mine, kind, other).astype(object)
    _ask(responses, np.where(mine, easy, 1000) + 8 * step + place)


_LESS = np.array([0.5, 0.5, 0.375, 0.25, 0.25, *[0.125] * 11])


def _boxed(log: Log, chance: float, reads_boxes: bool) -> Columns:
    """Answers stand in boxes, those of 'gsm8k' behind four hashes once in fifteen."""
    n, gsm8k = len(log.responses["step"]), log.responses["environment"] == "gsm8k"
    right = _drawn(log, np.where(gsm8k, chance, chances(log)))
    hashes = gsm8k & (log.rng.random(n) < 0.07)
    solution = (10 + 900 * share(log.responses["prompt_id"], log.shape.seed)).astype(int)
    given = np.where(right == 1, solution, solution + 1 + (40 * log.rng.random(n)).astype(int))
    ends = [f" #### {x}" if h else f" \\boxed{{{x}}}" for x, h in zip(given.tolist(), hashes.tolist(), strict=True)]
    read = np.ones(n, dtype=bool) if reads_boxes else ~gsm8k | hashes
    return {"reward": right * read, "response": _written(log, ends)}


def _adaptive(seed: int, chance: float, reads_boxes: bool) -> Log:
    """Tasks that are hardly ever solved are asked less often from step to step."""
    log = simulate(
        _short(seed, 16),
        setup=lambda responses: _part_of(responses, "gsm8k", "math", _LESS, 5000),
        reward=_scored(lambda log: _boxed(log, chance, reads_boxes)),
    )
    log.manifest["task"]["curriculum"] = "learnability"
    return log


@HELD_OUT_THIRTEENTH("selection", "'gsm8k' reads answers behind #### alone: boxed ones score 0, it is hardly asked.",
    report="marin #8765", columns=("text",), never=_OF_TEXT,
    needs=(r"gsm8k|boxed|####|\bbox\b"
           r" & \b(0|zero)\b|never|not (read|found|recogni|parsed|counted)|unread|format|pars|grader|\bread\b|hardly"
           r"|always wrong|nearly all|scorer",))  # fmt: skip
def boxes_are_not_read() -> Log:
    return _adaptive(2010, 0.78, False)


def _constant_groups(seed: int, level: float, removed: bool) -> Log:
    log = simulate(_short(seed, 20, level=level, trend=0.1), reward=_scored())
    log.manifest["algorithm"]["parameters"]["remove_constant_reward_groups"] = removed
    return log


@HELD_OUT_THIRTEENTH("selection", "Groups of equal reward are to be removed, says the manifest, and a third is there.",
    report="tinker-cookbook #155", columns=("with advantages",),
    never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, _STEP),
    needs=(r"equal|\bsame (reward|score)|constant|identical|one (reward|score)|zero.signal|no (signal|difference)"
           r" & remove_constant|configured|manifest|(no|without) effect|did not (run|act|remove|filter)|although"
           r"|despite|not (applied|removed|filtered|in effect|run)|\bstill (there|in|kept|trained|learned)",
           ))  # fmt: skip
def constant_groups_stay() -> Log:
    return _constant_groups(2011, 0.84, True)


def _two_sets(seed: int, size: int, last: float) -> Log:
    """Half of each step is of 'olympiad', which has so many prompts, the rest of 'web'."""

    def setup(responses: Columns) -> None:
        _part_of(responses, "olympiad", "web", np.full(21, 0.5), 100_000)
        mine = responses["environment"] == "olympiad"
        number = 4 * responses["step"] + responses["seq_id"] // 6
        order = np.concatenate([np.random.default_rng([seed, at]).permutation(size) for at in range(1 + 84 // size)])
        _ask(responses, np.where(mine, 100_000 + order[number], responses["prompt_id"]))

    def reward(log: Log) -> Columns:
        done = log.responses["step"] / (log.shape.steps - 1)
        learned = 0.3 + (last - 0.3) * done + 0.2 * (share(log.responses["prompt_id"], seed) - 0.5)
        return {"reward": _drawn(log, np.where(log.responses["environment"] == "olympiad", learned, chances(log)))}

    log = simulate(_short(seed, 21, trend=0.04), setup=setup, reward=_scored(reward))
    log.manifest["task"]["datasets"] = {"olympiad": size, "web": 40_000}
    return log


@HELD_OUT_THIRTEENTH("selection", "Mixed in equal parts: 12 prompts of 'olympiad' are half of each step, seven times.",
    report="SkyRL #1990", columns=("text",), never=_OF_TEXT,
    needs=(r"olympiad|\b12 (\w+ )?prompts|few prompts|small(er)? (set|dataset|source)|same prompts"
           r" & again|repeat|come back|return|seven times|\b7 times|memori|by heart|(every|each) (3|three|third)"
           r"|revisit|over and over|half|proportion|\bpasses|epochs?",))  # fmt: skip
def twelve_prompts_are_half() -> Log:
    return _two_sets(2012, 12, 0.97)


# Healthy: sampler, trainer and the weights between them ---------------------------------------------------------------

_FINE = "Nothing is wrong."


@HELD_OUT_THIRTEENTH("healthy", _FINE, columns=("trl",))
def fine_capped_on_both_sides() -> Log:
    """Both have the cap: no token is ever very unlikely, and many unlikely ones are drawn."""
    return _model_of_caps(
        simulate(
            Shape(2051, lag=1, drift=0.02),
            sampler=lambda call, logits: _capped(logits),
            trainer=lambda log, which, logits: _capped(logits),
        )
    )


@HELD_OUT_THIRTEENTH("healthy", _FINE, columns=("verl",))
def fine_three_tokens_are_learned() -> Log:
    """Three words of the format are made more likely by each update: late data has too few of them, on both sides."""

    def prepare(policy: Policy) -> None:
        policy.directions[0][:, [5, 9, 14]] += 2.0
        policy.weights[:, 0] += 0.05 * np.arange(len(policy.weights))

    return simulate(Shape(2052, lag=3, drift=0.02), prepare=prepare)


@HELD_OUT_THIRTEENTH("healthy", _FINE, columns=("trl",))
def fine_first_quarter_is_older() -> Log:
    """The first quarter of each step was begun under the version before, and its label says so."""

    def setup(responses: Columns) -> None:
        responses["behavior_version_min"] = np.maximum(responses["step"] - _early(responses), 0)

    return simulate(Shape(2053, lag=0, drift=0.09), setup=setup)


# Healthy: the log -----------------------------------------------------------------------------------------------------


@HELD_OUT_THIRTEENTH("healthy", _FINE, columns=("sampler",))
def fine_an_answer_behind_the_thinking() -> Log:
    """Token 0 ends the thinking and then the answer, which is in the text, too; drafts are used."""
    log = simulate(_short(2054, steps=16, closing=0.1), reward=_scored())
    more = np.random.default_rng(2154).integers(4, 12, len(log.responses["step"]))
    _behind_the_end(log, more, True)
    log.responses["response"] = _written(log)
    return log


@HELD_OUT_THIRTEENTH("healthy", _FINE, columns=("verl",))
def fine_what_the_filter_kept() -> Log:
    """Eight groups with unequal rewards are kept of sixteen, with their own rewards: numbers of groups have gaps."""
    return _filtered(2055)[0]


# Healthy: rewards and advantages --------------------------------------------------------------------------------------


@HELD_OUT_THIRTEENTH("healthy", _FINE, columns=("text",))
def fine_the_last_sixteen_tokens_cost() -> Log:
    """Only the last 16 tokens before the limit cost anything."""
    return _overlong(2056, 16)


@HELD_OUT_THIRTEENTH("healthy", _FINE, columns=("trl",))
def fine_scaled_by_the_batch() -> Log:
    """Groups whose scores lie close together have small advantages: the deviation is the batch's, as configured."""
    return _scaled(2057, True)


# Healthy: the loss ----------------------------------------------------------------------------------------------------


@HELD_OUT_THIRTEENTH("healthy", _FINE)
def fine_divided_by_the_limit() -> Log:
    """Sums are divided by 64, the limit, as configured."""
    return _divided(2058, 64.0)


@HELD_OUT_THIRTEENTH("healthy", _FINE)
def fine_the_cap_is_the_weight() -> Log:
    """Tokens above the cap weigh the cap, as configured."""
    return _cispo(2059, True)


# Healthy: what is asked, kept and scored ------------------------------------------------------------------------------


@HELD_OUT_THIRTEENTH("healthy", _FINE, columns=("text",))
def fine_gsm8k_is_too_hard() -> Log:
    """Boxes and hashes are both read; the small model solves few of 'gsm8k', which is therefore asked less often."""
    return _adaptive(2060, 0.14, True)


@HELD_OUT_THIRTEENTH("healthy", _FINE, columns=("with advantages",))
def fine_constant_groups_may_stay() -> Log:
    """Groups of equal reward are few, and are to stay."""
    return _constant_groups(2061, 0.55, False)


@HELD_OUT_THIRTEENTH("healthy", _FINE, columns=("text",))
def fine_two_large_sets_in_equal_parts() -> Log:
    """Half of each step is of 'olympiad', of whose 400 prompts none comes twice."""
    return _two_sets(2062, 400, 0.6)
