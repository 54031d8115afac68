"""Held-out cases of a twelfth date, of public reports that no other case has, most of them of 2026.

Agents' turns, weights that are sent, a restart, baselines, masks and means, packing and shards, a teacher, a judge and
a queue, mostly with the columns that ordinary users have; each fault has a twin that looks like it and is healthy.
Written by someone who had read neither marks nor causes nor findings, and frozen before they were scored. What the
verdicts mean, and why the first score is kept, says `held_out`.
"""

from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from tests.cases.case import Register
from tests.cases.faults import MISSING_RESPONSES, NEVER_ARRIVED, TEMPERATURE, changing, evaluated, rewards_by, sharper
from tests.cases.healthy import NOTHING_BUT_THE_RUN
from tests.cases.held_out_eleventh import _NOT_OF_THE_LOG, _OF_TEXT, _ask, _graded, _scored, _short, _written
from tests.cases.held_out_ninth import (
    _ENGINE,
    _FALL,
    _FORMAT,
    _IN_PART,
    _OTHERS,
    _STEP,
    Whole,
    _drawn,
    _ratio,
    _tools,
    _weighted,
)
from tests.cases.held_out_tenth import _EASE, _clock
from tests.cases.world import (
    Array,
    Call,
    Columns,
    Log,
    Policy,
    Shape,
    chances,
    compared,
    log_softmax,
    mixed,
    set_advantages,
    share,
    simulate,
)

HELD_OUT_TWELFTH = Register()

FIRST_SCORE = {
    "held-out a twelfth time faults": "4 found, 3 vague, 6 silent, 1 untrue of 14 logs",
    "held-out a twelfth time sick but true": "2 found, 2 silent of 4 logs",
    "held-out a twelfth time healthy": "14 quiet of 14 logs",
}
"""What was said of them when they were first scored, by the patterns as they were frozen (2026-11-29).

Two of the four were found by patterns that are too wide: the sentence that they match says nothing of the fault.
"""

_DIFFER = r"mismatch|differ|disagree|distance|\bholds?\b|\bsits?\b|apart|logp_behavior|engine|stale|ratio"


def _prompts_of(responses: Columns, length: Whole) -> None:
    """Prompts of these lengths, each of as many words."""
    responses["prompt_tokens"] = length
    lines = zip(responses["prompt_id"].tolist(), length.tolist(), strict=True)
    responses["prompt"] = np.array([" ".join(["Task", str(at), *["so"] * (n - 2)]) for at, n in lines], dtype=object)


# Faults: sampler, trainer and the weights between them ----------------------------------------------------------------


def _images(responses: Columns) -> NDArray[np.bool_]:
    """Which responses are about an image."""
    return np.asarray(responses["environment"] == "image")


@HELD_OUT_TWELFTH("sampler", "Embeddings of images are kept over updates: those that come again are of old weights.",
    report="TRL #7198", columns=("trl",),
    never=(NEVER_ARRIVED, TEMPERATURE, *_ENGINE[2:], _FORMAT),
    needs=(rf"\bimages?\b|prompts? & \bcache|\bagain\b|before|earlier|visit|repeat|\bold(er)?\b|since|seen & {_DIFFER}",
           ))  # fmt: skip
def embeddings_kept() -> Log:
    def setup(responses: Columns) -> None:
        first: dict[int, int] = {}
        rows = zip(responses["step"].tolist(), responses["prompt_id"].tolist(), strict=True)
        responses["kept"] = np.array([first.setdefault(prompt, step) for step, prompt in rows])

    def sampler(call: Call, logits: Array) -> Array:
        kept = np.minimum(call.of("kept"), call.version)
        old = call.served(call.policy.weights[kept])
        part = 0.75 * ((call.of("environment") == "image") & (kept < call.version))
        return (1 - part[:, None]) * logits + part[:, None] * old

    shape = Shape(1901, lag=1, prompts=24, drift=0.05, environments=("image", "text"))
    log = simulate(shape, sampler=sampler, setup=setup)
    del log.responses["kept"]
    return log


@HELD_OUT_TWELFTH("log", "The trainer counts the padding before a prompt as positions: short prompts are scored wrong.",
    report="unsloth-zoo #840; unsloth #6738", columns=("trl",),
    never=(NEVER_ARRIVED, TEMPERATURE, *_ENGINE[2:], _FORMAT, r"\bcache"),
    needs=(r"prompt_tokens|short(er)? prompts?|prompts?.{0,80}(\bshort|length|\blong)|\bpadd|micro.?batch"
           rf" & {_DIFFER}",))  # fmt: skip
def padding_counts_as_positions() -> Log:
    table = np.random.default_rng(1902).standard_normal((1500, 24))

    def setup(responses: Columns) -> None:
        _prompts_of(responses, 12 + (mixed(responses["prompt_id"], 1902) % np.uint64(48)).astype(np.int64))
        responses["micro_batch"] = responses["seq_id"] % 4

    def trainer(log: Log, which: str, logits: Array) -> Array:
        key = 4 * log.responses["step"] + log.responses["micro_batch"]
        longest = np.zeros(key.max() + 1, dtype=np.int64)
        np.maximum.at(longest, key, log.responses["prompt_tokens"])
        padding = (longest[key] - log.responses["prompt_tokens"])[log.row]
        size = 0.01 * padding * (0.4 + log.tokens["position"] / log.shape.longest)
        return logits + size[:, None] * table[log.state]

    return simulate(Shape(1902, lag=1, drift=0.015), setup=setup, trainer=trainer)


@HELD_OUT_TWELFTH("weights", "The first sync puts experts into another layout: from version 1 on all is sampled wrong.",
    report="SkyRL #1680; vLLM #42821", columns=("prime-rl",),
    never=(NEVER_ARRIVED, TEMPERATURE, *_ENGINE[2:], _FORMAT, r"scorer (changed|broke)|reward function changed"),
    needs=(r"weights?|tensors?|engines?|sampler|experts?|\bsync"
           r" & (from|since|after|behind|except|all but|but|until) .{0,40}(versions?|steps?|updates?|sync)"
           r"|first (sync|update|version|step)|\b(version|step|update) [01]\b|steps? 0"
           rf" & {_DIFFER}|wrong|corrupt|broken",))  # fmt: skip
def experts_in_another_layout() -> Log:
    table = np.random.default_rng(1903).standard_normal((1500, 24))

    def sampler(call: Call, logits: Array) -> Array:
        return logits + 0.9 * (call.version >= 1)[:, None] * table[call.state]

    return simulate(Shape(1903, lag=1, drift=0.015), sampler=sampler,
                    reward=rewards_by(changing(2, 0.5, 0.14, over=3)))  # fmt: skip


_TURNS = {"longest": 84, "shortest": 16, "closing": 0.05, "turns": 12}


def _routed(log: Log, later: float) -> Log:
    """Routes agree nearly everywhere in the first turn, and by this much less behind it."""
    dice = share(log.row, log.tokens["position"], 1904)
    behind = log.tokens["position"] >= 12
    log.tokens["routing_agreement"] = np.round(np.where(behind, 1 - later * (0.5 + 0.5 * dice), 1 - 0.02 * dice), 3)
    return _tools(log)


@HELD_OUT_TWELFTH("sampler", "The history is rendered anew at each turn, its routes are not: from turn 2 on they part.",
    report="AReno #524", columns=("verl",),
    never=(*_IN_PART, _FORMAT, r"\bcache"),
    needs=(r"\brout(e|es|ed|er|ing)\b|\bexperts?\b|routing_agreement"
           r" & \bturns?\b|conversation|messages?|history|prefix|position|\bfirst\b|later|behind|\btools?\b",
           ))  # fmt: skip
def routes_of_another_history() -> Log:
    table = np.random.default_rng(1904).standard_normal((1500, 24))

    def trainer(log: Log, which: str, logits: Array) -> Array:
        return logits + 0.5 * (log.tokens["position"] >= 12)[:, None] * table[log.state]

    shape = Shape(1904, lag=1, drift=0.02, environments=("shell",), **_TURNS)  # type: ignore[arg-type]
    return _routed(simulate(shape, trainer=trainer), 0.7)


# Faults: what is sampled, and what is kept of it ----------------------------------------------------------------------


def _interrupted(seed: int, partial: bool) -> Log:
    """Half of the responses go on under the next version; the manifest says whether they may."""
    log = simulate(_short(seed, 14, lag=2, schedule="partial", longest=72, closing=0.04), reward=_scored())
    log.manifest["schedule"] = {"kind": "async", "max_staleness": 2, "partial_rollout": partial}
    return log


@HELD_OUT_TWELFTH("selection", "Partial rollouts are off; who is aborted goes on all the same, under other weights.",
    report="slime #2092", columns=("sampler",),
    never=(*_ENGINE, _FORMAT, _EASE, MISSING_RESPONSES, _STEP, r"max_staleness.{0,80}(exceed|older than|violat)"),
    needs=(r"versions?|weights|polic(y|ies)|snapshots?"
           r" & \b(two|2|several|more than one|both|mix\w*|span\w*|switch\w*|chang\w*|within|inside|middle|different)\b"
           r" & partial|manifest|configur|schedule|although|\boff\b|false|resum|abort|interrupt|not allowed|should",
           ))  # fmt: skip
def goes_on_unasked() -> Log:
    return _interrupted(1905, False)


@HELD_OUT_TWELFTH("log", "The first turn takes the request's settings with it: from the second on values are missing.",
    report="verl #6364", columns=("sampler",),
    never=(NEVER_ARRIVED, TEMPERATURE, _FORMAT, _EASE, MISSING_RESPONSES, r"greedy|mode collapse|entropy collaps"),
    needs=(r"\bturns?\b|conversation|messages?|positions? (\d+|behind|from)|(behind|after|from) .{0,40}(first|\b12\b)"
           r" & exactly 0|\b0\b|zero|probability 1|missing|placeholder|filled|constant|not logged|no (value|log)",
           ))  # fmt: skip
def second_turn_without_values() -> Log:
    log = _tools(simulate(_short(1906, turns=12, shortest=6, longest=72), reward=_scored()))
    log.tokens["logp_behavior"] = np.where(log.tokens["position"] < 12, log.tokens["logp_behavior"], 0.0)
    return log


def _epochs(seed: int, prompts: Whole, size: int) -> Log:
    """Eight prompts a step, in this order; a restart is before step 10."""

    def setup(responses: Columns) -> None:
        _ask(responses, 1000 + prompts[responses["group_id"]])

    log = simulate(_short(seed, 20), setup=setup, reward=_scored())
    log.manifest["task"]["prompts"] = size
    return _clock(log, datetime(2026, 1, 5, 8, tzinfo=UTC), 6, {10: 2})


@HELD_OUT_TWELFTH("selection", "After the restart the queue begins with prompt 0 again; 1,920 of 2,000 are never seen.",
    report="TRL #5911", columns=("text",), never=(*_OF_TEXT, r"\bcache"),
    needs=(r"prompts?|tasks?|loader|\bdata\b|order"
           r" & \bagain\b|second time|repeat|twice|\bsame\b|once more|from the (beginning|start|first)|anew|come back"
           r"|return|starts? over"
           r" & restart|resum|checkpoint|\b(step|update)s? (10|9|0)\b|\b10 (steps|updates)|pause|interrupt"
           r"|first (10|ten)",))  # fmt: skip
def queue_begins_anew() -> Log:
    return _epochs(1907, np.arange(160) % 80, 2000)


# Faults: rewards and advantages ---------------------------------------------------------------------------------------


@HELD_OUT_TWELFTH("advantage", "The baseline is the reward of a group's first response, which never has an advantage.",
    report="PipelineRL #54", columns=("with advantages",),
    never=(*_ENGINE, _FORMAT, _EASE, MISSING_RESPONSES, _STEP, r"wrong axis", r"no baseline is|without a baseline"),
    needs=(r"advantage|baseline"
           r" & \bfirst\b|one response|single response|(not|n't) (sum|balance|average|cancel|add|centre|center)"
           r"|(sum|mean|average).{0,60}\bnot\b|not (centred|centered|balanced|the (group.{0,4} )?mean|zero.mean)"
           r"|unbalanced|imbalance|do(es)? not (fit|follow|agree|match)",))  # fmt: skip
def first_one_is_the_baseline() -> Log:
    log = simulate(_short(1908, advantage="group_mean"), reward=_scored())
    reward = log.responses["reward"]
    return set_advantages(log, reward - reward[np.arange(len(reward)) // 6 * 6])


def _unsure(log: Log, salt: int, twice: bool) -> Columns:
    """One of fifteen answers nothing, and scores 0 (once, or twice, so that all behind it stand one slot late)."""
    step, n = log.responses["step"], len(log.responses["step"])
    right, nothing = _drawn(log, chances(log)), log.rng.random(n) < 0.065
    solution = (10 + 900 * share(log.responses["prompt_id"], salt)).astype(int)
    given = np.where(right == 1, solution, solution + 1 + (4 * log.rng.random(n)).astype(int))
    ends = [" I don't know." if none else f" Answer: {x}" for x, none in zip(given.tolist(), nothing, strict=True)]
    own = np.where(nothing, 0.0, right)
    if twice:
        rows = [np.flatnonzero(step == at) for at in np.unique(step)]
        own = np.concatenate([np.repeat(own[at], 1 + nothing[at])[: len(at)] for at in rows])
    return {"reward": own, "response": _written(log, ends)}


@HELD_OUT_TWELFTH("log", "Who gives no answer is scored twice: all scores behind it stand one slot late in the step.",
    report="NeMo-RL #3635", columns=("text",), never=_OF_TEXT,
    needs=(r"(same|identical|equal) (final )?answers?|answers?.{0,160}(different|both|unlike|two|other|unequal|not one)"
           r" (scores?|rewards?)|(rewards?|scores?).{0,200}(other|another|wrong|next|previous) (row|slot|answer"
           r"|response)|(rewards?|scores?).{0,160}(shift|misalign|belong|offset|slot|out of (place|order)|rows? (late"
           r"|off|apart)|inconsistent|contradict)",))  # fmt: skip
def scored_twice() -> Log:
    return simulate(_short(1909), reward=lambda log: _unsure(log, 1909, True))


@HELD_OUT_TWELFTH("advantage", "The judge sees a group in its order and likes the first: the last has a third less.",
    report="vanguarstew #87; FastChat #3911", columns=("text",), never=_OF_TEXT,
    needs=(r"(\bplace|position|\border\b|\brow|\bindex|\bfirst|\blast\b|seq_id|\bslot|number in).{0,240}"
           r"(reward|scor|judge)|(reward|scor|judge)\w*.{0,240}(\bplace|position|\border\b|\brow|\bindex|\bfirst\b"
           r"|\blast\b|seq_id|\bslot|number in)",))  # fmt: skip
def judge_likes_the_first() -> Log:
    def reward(log: Log) -> Columns:
        return {"reward": _graded(log, 0.14 * (1 - 2 * (log.responses["seq_id"] % 6) / 5))}

    return simulate(_short(1910), reward=_scored(reward))


def _taught(log: Log, cap: float) -> Log:
    """Distilled on-policy: each token's advantage is the teacher's log-ratio, at most this much."""
    teacher = log.policy.logits(np.array([0.25, -0.2, 0.2, -0.15]), log.state)
    logp = log_softmax(teacher)[np.arange(len(log.state)), log.tokens["token_id"]]
    log.tokens["logp_teacher"] = logp
    log.manifest["algorithm"]["name"] = "on_policy_distillation"
    log.manifest["algorithm"]["parts"]["advantage"] = "teacher_log_ratio"
    advantage = logp - log.tokens["logp_behavior"]
    log.responses["reward"] = np.bincount(log.row, advantage) / log.lengths()
    return set_advantages(log, np.minimum(advantage, cap))


@HELD_OUT_TWELFTH("advantage", "The distillation loss is clamped at 0: what the teacher likes better is never raised.",
    report="verl #7806",
    never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, _EASE, r"vocabular|tokeni[sz]"),
    needs=(r"teacher|distil|advantage"
           r" & (never|none|no|not) .{0,40}(positive|above|raise|more likely)|positive|above (0|zero)|clamp|one.sided"
           r"|(only|all) .{0,20}(negative|below)|at most (0|zero)|≤ ?0|(largest|highest|max\w*).{0,40}\b0\b|cut off"
           r"|exactly 0|\bare 0\b|less likely",))  # fmt: skip
def teacher_only_discourages() -> Log:
    return _taught(simulate(Shape(1911, lag=0, drift=0.012, trend=0.0)), 0.0)


# Faults: the loss -----------------------------------------------------------------------------------------------------


def _corrected(seed: int, cap: float) -> Log:
    """Responses whose mean log-ratio is far off are masked, the others have weights of tokens, with a cap of 2."""
    log = simulate(Shape(seed, lag=4, drift=0.18, trend=0.2))
    log.manifest["algorithm"]["parts"] |= {"weight": "truncated", "gate": "none"}
    log.manifest["algorithm"]["parameters"] = {"cap": 2.0, "sequence_mask_low": 0.88, "sequence_mask_high": 1.14}
    ratio = _ratio(log)
    mean = np.exp(np.bincount(log.row, np.log(ratio)) / log.lengths())
    out = ((mean < 0.88) | (mean > 1.14))[log.row]
    log.tokens["rejected"] = np.array([None, "sequence ratio"], dtype=object)[out.astype(int)]
    return _weighted(log, np.where(out, 0.0, np.minimum(ratio, cap)))


@HELD_OUT_TWELFTH("loss", "With the mask of sequences on, weights are not truncated: the cap of 2 is passed.",
    report="OpenRLHF #1295", never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, _EASE, r"advantage alone"),
    needs=(r"gradient_weight|weights?|ratio|correction & \bcap\b|\b2(\.0+)?\b|truncat|clamp|bound|limit"
           r" & above|exceed|beyond|larger|greater|passe|did not (run|act|apply)|not (applied|run|capped|truncated"
           r"|clamped|in effect)|without|unbounded|uncapped|untruncated|ignor|up to",))  # fmt: skip
def cap_is_passed() -> Log:
    return _corrected(1912, np.inf)


def _long_prompts(responses: Columns) -> None:
    """Prompts of six to 35 tokens."""
    _prompts_of(responses, 6 + (mixed(responses["prompt_id"], 1913) % np.uint64(30)).astype(np.int64))


@HELD_OUT_TWELFTH("loss", "Each shard of the context takes its own mean: few tokens at the end have a quarter.",
    report="prime-rl #1957", never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, _EASE, r"advantage alone"),
    needs=(r"gradient|weigh|token_mean|aggregat|loss"
           r" & position|\bearly|\blate\b|\blast\b|\bend\b|\bfirst\b|begin|prompt_tokens|\bshard|context|\bprompts?\b"
           r"|chunk & \bmore\b|larger|\btimes\b|uneven|unequal|not (the same|equal|alike|token_mean|a mean)|differ"
           r"|heav|\bless\b|smaller|own mean|depend|fall|vary|varies",))  # fmt: skip
def mean_of_each_shard() -> Log:
    log = simulate(Shape(1913, lag=1, drift=0.02), setup=_long_prompts)
    shard = (log.of_token("prompt_tokens") + log.tokens["position"]) // 25
    step = log.tokens["step"]
    key = 4 * step + shard
    log.tokens["gradient_weight"] *= np.bincount(step)[step] / (4 * np.bincount(key)[key])
    return log


def _held(log: Log, target: float, stuck: bool) -> Log:
    """The coefficient of the entropy follows a target by steps of .001; stuck, it never leaves 0 again."""
    step = log.tokens["step"]
    entropy = np.bincount(step, log.tokens["entropy"]) / np.bincount(step)
    goal, coefficient = target * entropy[0], [0.004]
    for each in entropy[:-1].tolist():
        moved = max(coefficient[-1] + (0.001 if each < goal else -0.001), 0.0)
        coefficient.append(0.0 if stuck and coefficient[-1] == 0 else moved)
    log.steps["extra_entropy_coefficient"] = np.array(coefficient)
    log.manifest["algorithm"]["parameters"] |= {"entropy_control": "adaptive", "entropy_coefficient": 0.004,
                                                "entropy_target": round(float(goal), 3)}  # fmt: skip
    return log


@HELD_OUT_TWELFTH("loss", "The entropy's coefficient comes down to 0 and stays there, far below the target as it is.",
    report="TRL #6140", columns=("verl",),
    never=(*_ENGINE, _FORMAT, _OTHERS, MISSING_RESPONSES, _EASE),
    needs=(r"entropy & target|coefficient|bonus|controller"
           r" & \b0\b|zero|\bstays?\b|stuck|never|below|\boff\b|not (rise|respond|react|applied|raised|grow|come)",
           ))  # fmt: skip
def coefficient_never_comes_back() -> Log:
    fallen = changing(10, 0.55, 0.42, over=14)
    log = simulate(Shape(1914, steps=26, lag=1, drift=0.02), reward=rewards_by(fallen),
                   prepare=sharper(changing(6, 0.0, 1.6, over=18)))  # fmt: skip
    return _held(evaluated(log, fallen(log.steps["step"])), 0.8, True)


# Healthy: sampler, trainer and the weights between them ---------------------------------------------------------------

_FINE = "Nothing is wrong."


@HELD_OUT_TWELFTH("healthy", _FINE, columns=("trl",))
def fine_images_are_slow() -> Log:
    """Images come again and again, and take longest: what is written of them is three updates old, which is allowed."""

    def setup(responses: Columns) -> None:
        late = np.where(_images(responses), 3, 1)
        responses["behavior_version_min"] = np.maximum(responses["step"] - late, 0)

    log = simulate(Shape(1951, prompts=24, drift=0.025, environments=("image", "text")), setup=setup)
    log.manifest["schedule"] = {"kind": "async", "max_staleness": 4}
    return log


@HELD_OUT_TWELFTH("healthy", _FINE, columns=("trl",))
def fine_short_prompts_are_open() -> Log:
    """Short prompts ask for anything, and their answers are open: they move most with the data's age, on both sides."""

    def opened(logits: Array, length: Whole) -> Array:
        return logits * np.where(length < 30, 0.6, 1.0)[:, None]

    def setup(responses: Columns) -> None:
        _prompts_of(responses, 12 + (mixed(responses["prompt_id"], 1952) % np.uint64(48)).astype(np.int64))
        responses["micro_batch"] = responses["seq_id"] % 4

    return simulate(Shape(1952, lag=2, drift=0.02), setup=setup,
                    sampler=lambda call, logits: opened(logits, call.of("prompt_tokens")),
                    trainer=lambda log, which, logits: opened(logits, log.of_token("prompt_tokens")))  # fmt: skip


@HELD_OUT_TWELFTH("healthy", _FINE, columns=("prime-rl",))
def fine_behind_from_the_start() -> Log:
    """Step 0 is on-policy, what follows is up to three updates old; two steps of easy tasks come first, as planned."""

    def setup(responses: Columns) -> None:
        responses["environment"] = np.where(responses["step"] < 2, "warm-up", "maths").astype(object)

    def reward(log: Log) -> Columns:
        easy = log.responses["environment"] == "warm-up"
        return {"reward": _drawn(log, chances(log) + np.where(easy, 0.3, -0.1))}

    log = simulate(Shape(1953, lag=3, schedule="offset", drift=0.025, trend=0.2), setup=setup, reward=reward)
    log.manifest["schedule"] = {"kind": "async", "max_staleness": 3}
    return log


@HELD_OUT_TWELFTH("healthy", _FINE, columns=("verl",))
def fine_routes_part_a_little() -> Log:
    """Behind the first turn contexts are long and a few more routes differ, without an effect on values."""
    shape = Shape(1954, lag=1, drift=0.02, environments=("shell",), **_TURNS)  # type: ignore[arg-type]
    return _routed(simulate(shape), 0.06)


# Healthy: what is sampled, and what is kept of it ---------------------------------------------------------------------


@HELD_OUT_TWELFTH("healthy", _FINE, columns=("sampler",))
def fine_goes_on_as_asked() -> Log:
    """Partial rollouts are on: half of the responses go on under the next version."""
    return _interrupted(1955, True)


@HELD_OUT_TWELFTH("healthy", _FINE, columns=("sampler",))
def fine_later_turns_are_forms() -> Log:
    """The first turn is thought, those behind it fill in forms: their tokens are nearly certain."""

    def sampler(call: Call, logits: Array) -> Array:
        return logits * (1.0 if call.position < 12 else 1.7)

    return _tools(simulate(_short(1956, turns=12, shortest=6, longest=72), sampler=sampler, reward=_scored()))


@HELD_OUT_TWELFTH("healthy", _FINE, columns=("text",))
def fine_second_epoch_after_a_restart() -> Log:
    """There are 80 prompts; a restart is where the second epoch begins, which is shuffled anew."""
    order = np.concatenate([np.arange(80), np.random.default_rng(1957).permutation(80)])
    return _epochs(1957, order, 80)


# Healthy: rewards and advantages --------------------------------------------------------------------------------------


@HELD_OUT_TWELFTH("healthy", _FINE, columns=("with advantages",))
def fine_against_the_five_others() -> Log:
    """Each response is compared with the mean of the five others of its group."""
    log = simulate(_short(1958, advantage="group_mean"), reward=_scored())
    log.manifest["algorithm"]["name"] = "rloo"
    return set_advantages(log, 1.2 * compared(log.responses["reward"], log.responses["group_id"], "group_mean"))


@HELD_OUT_TWELFTH("healthy", _FINE, columns=("text",))
def fine_some_answer_nothing() -> Log:
    """One of fifteen answers nothing, and scores 0; all others have their own score."""
    return simulate(_short(1959), reward=lambda log: _unsure(log, 1959, False))


@HELD_OUT_TWELFTH("healthy", _FINE, columns=("text",))
def fine_first_done_comes_first() -> Log:
    """A group's rows are in the order in which they ended, and short answers are right more often."""

    def reward(log: Log) -> Columns:
        return {"reward": _graded(log, 0.25 - 0.012 * log.responses["n_tokens"], 0.15)}

    log = simulate(_short(1960), reward=_scored(reward))
    order = np.lexsort((log.responses["n_tokens"], log.responses["group_id"]))
    for name in ("response", "reward", "n_tokens", "truncated", "finish_reason"):
        log.responses[name] = log.responses[name][order]
    return log


@HELD_OUT_TWELFTH("healthy", _FINE)
def fine_teacher_on_both_sides() -> Log:
    """The teacher raises most tokens a little, and makes few of them much less likely."""
    return _taught(simulate(Shape(1961, lag=0, drift=0.012, trend=0.0)), np.inf)


# Healthy: the loss ----------------------------------------------------------------------------------------------------


@HELD_OUT_TWELFTH("healthy", _FINE)
def fine_cap_is_reached() -> Log:
    """Weights are truncated at 2, as configured, where the mask of sequences leaves them."""
    return _corrected(1962, 2.0)


@HELD_OUT_TWELFTH("healthy", _FINE)
def fine_each_response_counts_once() -> Log:
    """The mean is over responses, as configured: late positions are of long ones alone, and weigh less."""
    log = simulate(Shape(1963, lag=1, drift=0.02), setup=_long_prompts)
    log.manifest["algorithm"]["parts"]["aggregation"] = "sequence_mean"
    step = log.tokens["step"]
    responses = np.bincount(log.responses["step"])[step]
    log.tokens["gradient_weight"] *= np.bincount(step)[step] / (responses * log.lengths()[log.row])
    return log


@HELD_OUT_TWELFTH("healthy", _FINE, columns=("verl",))
def fine_coefficient_comes_back() -> Log:
    """The entropy's coefficient is 0 while there is enough of it and rises behind that: it stays near its target."""
    rate = np.interp(np.arange(28), [0, 4, 9, 14, 20, 27], [0.0, 0.0, 0.45, 0.1, 0.1, 0.25])
    log = simulate(Shape(1964, steps=26, lag=1, drift=0.02, trend=0.2),
                   prepare=sharper(lambda version: rate[np.minimum(version, 27)]))  # fmt: skip
    return _held(log, 0.8, False)


# Sick, and the log is true --------------------------------------------------------------------------------------------


@HELD_OUT_TWELFTH("sick but true", "From step 4 on ever more responses repeat one token until the limit, and score 0.",
    needs=(rf"{_FALL}|repeat|\bloops?\b|same token|one token|truncat|(reach|hit|at) .{{0,30}}limit|longer",),
    never=NOTHING_BUT_THE_RUN, columns=("sampler",))  # fmt: skip
def repeats_to_the_limit() -> Log:
    grown = changing(4, 0.0, 0.85, over=9)

    def repeats(step: Whole, row: Whole) -> NDArray[np.bool_]:
        return np.asarray(share(step, row, 1981) < grown(step))

    def sampler(call: Call, logits: Array) -> Array:
        if call.position < 8:
            return logits
        before = call.written[call.rows, call.position - 1]
        stays = repeats(call.of("step"), call.of("seq_id"))
        return logits + 40.0 * stays[:, None] * (np.arange(logits.shape[1]) == before[:, None])

    def reward(log: Log) -> Columns:
        lost = repeats(log.responses["step"], log.responses["seq_id"])
        return {"reward": np.where(lost, 0.0, _drawn(log, chances(log)))}

    return simulate(_short(1981, 14), sampler=sampler, reward=_scored(reward))


@HELD_OUT_TWELFTH("sick but true", "'maths' is learned and 'chat' forgotten: it falls from .7 to .3, the mean is flat.",
    needs=(r"\bchat\b & fell|falls?\b|fallen|falling|drop|lost|lose|declin|worse|→|decreas|forg",),
    never=_NOT_OF_THE_LOG, columns=("text",))  # fmt: skip
def chat_is_forgotten() -> Log:
    def reward(log: Log) -> Columns:
        step, chat = log.responses["step"], log.responses["environment"] == "chat"
        chance = np.where(chat, changing(1, 0.7, 0.3, over=14)(step), changing(1, 0.35, 0.72, over=14)(step))
        return {"reward": _drawn(log, chance)}

    return simulate(_short(1985, 16, environments=("chat", "maths")), reward=_scored(reward))


@HELD_OUT_TWELFTH("sick but true", "Both sides of the game learn to draw: from step 8 on nearly all get a half.",
    needs=(r"equal|same (reward|score|value)|one (reward|score|value)|no (signal|gradient|difference)|zero.signal"
           r"|spread|constant|identical|teach(es)? nothing|advantages?.{0,40}\b(0|zero)\b|\b0?\.50*\b",),
    never=_NOT_OF_THE_LOG, columns=("with advantages",))  # fmt: skip
def all_games_are_drawn() -> Log:
    def reward(log: Log) -> Columns:
        step, n = log.responses["step"], len(log.responses["step"])
        drawn = log.rng.random(n) < changing(2, 0.15, 0.98, over=7)(step)
        return {"reward": np.where(drawn, 0.5, (log.rng.random(n) < 0.5).astype(float))}

    log = simulate(_short(1983, 14, environments=("game",)), reward=_scored(reward))
    log.manifest["task"]["rewards"] = {"win": 1.0, "draw": 0.5, "loss": 0.0}
    return log


@HELD_OUT_TWELFTH("sick but true", "Updates overshoot, each takes back the one before: the reward swings and sinks.",
    needs=(rf"{_FALL}|swing|alternat|oscillat|up and down|every (other|second)|overshoot|too (large|big|far|high)"
           r"|larg\w* (update|step)|updates?.{0,80}(large|far)|learning.rate",),
    never=NOTHING_BUT_THE_RUN, columns=("verl",))  # fmt: skip
def updates_overshoot() -> Log:
    def path(policy: Policy) -> None:
        at = np.arange(len(policy.weights))
        swing = np.minimum(at / 8, 1.5) * (-1.0) ** at
        policy.weights += 0.16 * swing[:, None] * np.array([1.0, -1.0, 0.8, -0.6])

    step = np.arange(24)
    chance = np.asarray(0.55 - 0.008 * step + 0.09 * np.minimum(step / 8, 1.5) * (-1.0) ** step, dtype=np.float64)
    log = simulate(Shape(1984, lag=0, drift=0.02), prepare=path, reward=rewards_by(lambda at: chance[at]))
    log.steps["grad_norm"] *= 1 + np.minimum(step / 4, 4)
    return evaluated(log, chance)
