"""Held-out cases of an eleventh date, of what strangers import: logs without a trainer's values, or without any token.

Text and rewards, or the sampler's tokens and values, at most with advantages, of eight to sixteen steps; each fault has
a twin that looks like it and is healthy. Written by someone who had read neither marks nor causes nor findings, and
frozen before they were scored. What the verdicts mean, and why the first score is kept, says `held_out`.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from tests.cases.case import Register
from tests.cases.faults import MISSING_RESPONSES, NEVER_ARRIVED, TEMPERATURE, changing, sharper
from tests.cases.healthy import NOTHING_BUT_THE_RUN, OF_THE_ENGINE, OF_THE_LOG
from tests.cases.held_out_ninth import _ENGINE, _FALL, _FORMAT, _STEP, _drawn, _tools
from tests.cases.held_out_tenth import _EASE, _clock
from tests.cases.world import (
    Array,
    Call,
    Columns,
    Log,
    Reward,
    Shape,
    chances,
    compared,
    mixed,
    set_advantages,
    share,
    simulate,
    success,
)

HELD_OUT_ELEVENTH = Register()

FIRST_SCORE = {
    "held-out an eleventh time faults": "1 found, 1 vague, 11 silent, 1 untrue of 14 logs",
    "held-out an eleventh time sick but true": "4 silent of 4 logs",
    "held-out an eleventh time healthy": "14 quiet of 14 logs",
}
"""What was said of them when they were first scored, by the patterns as they were frozen (2026-11-29)."""

_OF_TEXT = (*_ENGINE, _FORMAT, _EASE, MISSING_RESPONSES, _STEP)


def _short(seed: int, steps: int = 12, **changed: object) -> Shape:
    """A short run on recent data."""
    return Shape(**({"seed": seed, "steps": steps, "lag": 1, "drift": 0.02} | changed))  # type: ignore[arg-type]


def _ask(responses: Columns, prompt: NDArray[np.int64]) -> None:
    """Each response is to this prompt."""
    responses["prompt_id"] = prompt
    responses["prompt"] = np.array([f"Task {number}: solve it." for number in prompt.tolist()], dtype=object)


def _written(log: Log, ends: Iterable[str] | None = None) -> NDArray[np.object_]:
    """The whole text of each response, with an end of its own."""
    last = np.cumsum(log.lengths())
    words = [f"w{token}" for token in log.tokens["token_id"].tolist()]
    texts = [" ".join(words[a:b]) for a, b in zip([0, *last[:-1].tolist()], last.tolist(), strict=True)]
    texts = texts if ends is None else [text + end for text, end in zip(texts, ends, strict=True)]
    return np.array(texts, dtype=object)


def _scored(reward: Reward = success) -> Reward:
    """With the whole texts; the same answer to a prompt has the same score."""

    def scored(log: Log) -> Columns:
        found = {"response": _written(log)} | reward(log)
        keys = [f"{at} {text}" for at, text in zip(log.responses["prompt_id"], found["response"], strict=True)]
        _, first, which = np.unique(keys, return_index=True, return_inverse=True)
        return {name: each[first[which]] if name.startswith("reward") else each for name, each in found.items()}

    return scored


def _graded(log: Log, level: Array | float = 0.0, noise: float = 0.2) -> Array:
    """Hundredths around the chances of each response."""
    each = chances(log) + level + noise * log.rng.standard_normal(len(log.responses["step"]))
    return np.asarray(np.round(np.clip(each, 0.02, 0.98), 2))


# Faults: who is compared with whom ------------------------------------------------------------------------------------


@HELD_OUT_ELEVENTH("selection", "Prompts are repeated as a list and cut by six: a group has responses to six prompts.",
    report="prime-rl #600", columns=("with advantages",),
    never=(*_ENGINE, _FORMAT, _EASE, MISSING_RESPONSES, _STEP, r"groups? of one\b"),
    needs=(r"groups?\b.{0,200}\b(several|different|distinct|more than one|unlike|many|mix\w*|unequal|not (of )?(one|the"
           r" same)|six|6|other) (\w+ )?prompts?|prompts?\b.{0,160}\b(several|different|distinct|more than one|many|six"
           r"|6|other|mixed) (\w+ )?groups?|prompts?\b.{0,80}(differ|mixed|not the same) .{0,40}groups?",
           ))  # fmt: skip
def groups_of_six_prompts() -> Log:
    def setup(responses: Columns) -> None:
        _ask(responses, 1000 + 8 * responses["step"] + responses["seq_id"] % 8)

    return simulate(_short(1801), setup=setup, reward=_scored())


def _evaluated_among(seed: int) -> Log:
    """Each fourth step has 24 rows more: one response to each prompt of the evaluation."""

    def more(responses: Columns) -> NDArray[np.bool_]:
        return np.asarray(responses["seq_id"] >= 48)

    def setup(responses: Columns) -> None:
        other, number = more(responses), responses["seq_id"] - 48
        _ask(responses, np.where(other, 5000 + number, responses["prompt_id"]))
        alone = 100_000 + 24 * responses["step"] + number
        responses["group_id"] = np.where(other, alone, responses["group_id"])

    def reward(log: Log) -> Columns:
        return {"reward": _drawn(log, chances(log) + np.where(more(log.responses), 0.3, 0.0))}

    log = simulate(_short(seed, 14, groups=12, level=0.45), setup=setup, reward=_scored(reward))
    there = ~more(log.responses) | (log.responses["step"] % 4 == 0)
    log.keep(there[log.row], there)
    return log


@HELD_OUT_ELEVENTH("selection", "Each fourth step has the evaluation's 24 rows among those that are learned from.",
    report="TRL #7059", columns=("sampler",),
    never=(*_ENGINE, _FORMAT, _EASE, MISSING_RESPONSES, _STEP),
    needs=(r"evaluat|validat|held.?out|groups? (of|with|have|has) (one|1|a single)\b|single (response|rollout)"
           r"|one response (each|a prompt|per)|\balone\b|of size 1"
           r" & (each|every) (4|four|fourth)|\b0, 4|\b4, 8|\b24\b|period|same prompts|among|mixed"
           r"|prompts?.{0,80}(again|repeat|come back|return)",))  # fmt: skip
def evaluation_among_the_rows() -> Log:
    return _evaluated_among(1802)


@HELD_OUT_ELEVENTH("advantage", "The baseline is of bare rewards, what is above it of rewards that length divides.",
    report="prime-rl #2040", columns=("with advantages",),
    never=(*_ENGINE, _FORMAT, _EASE, MISSING_RESPONSES, _STEP, r"belongs? to other|of other responses|row before"),
    needs=(r"advantage & baseline|balance|\bsum\b|add up|centred|centered|cancel|\bmean\b|average|below (0|zero)"
           r"|negative|\blength|\blong|\bshort",))  # fmt: skip
def baseline_of_bare_rewards() -> Log:
    log = simulate(_short(1803, level=0.6, closing=0.045), reward=_scored())
    reward, length, group = log.responses["reward"], log.responses["n_tokens"], log.responses["group_id"]
    typical = (np.bincount(group, length) / np.maximum(np.bincount(group), 1))[group]
    mean = reward - compared(reward, group, "group_mean")
    return set_advantages(log, reward / (1 + 0.5 * length / typical) - mean)


# Faults: how it is scored ---------------------------------------------------------------------------------------------


def _answers(log: Log, salt: int, reads_dollars: bool) -> Columns:
    """Four of ten answers stand between dollars; all are right as often."""
    n = len(log.responses["step"])
    right, dollars = _drawn(log, chances(log) + 0.1), log.rng.random(n) < 0.4
    solution = (10 + 900 * share(log.responses["prompt_id"], salt)).astype(int)
    given = np.where(right == 1, solution, solution + 1 + (9 * log.rng.random(n)).astype(int))
    ends = [f" Answer: ${x}$" if d else f" Answer: {x}" for x, d in zip(given.tolist(), dollars.tolist(), strict=True)]
    return {"reward": right if reads_dollars else right * ~dollars, "response": _written(log, ends)}


@HELD_OUT_ELEVENTH("selection", "Answers between dollars are not read: $13$ scores 0 where 13 is right, for 4 of 10.",
    report="EasyR1 #382", columns=("text",), never=_OF_TEXT,
    needs=(r"\$|dollar|latex|math mode & \b0\b|never|wrong|zero|not (right|recogni|counted|read|parsed|matched)|scor"
           r"|reward",))  # fmt: skip
def answers_between_dollars() -> Log:
    return simulate(_short(1804), reward=_scored(lambda log: _answers(log, 1804, False)))


@HELD_OUT_ELEVENTH("selection", "A judge that gives no score is taken for 0.5: three of ten from step 5 on.",
    report="gptme-contrib #1458; evals #1712", columns=("text",), never=_OF_TEXT,
    needs=(r"\b0?\.50*\b & reward|scor|judge & default|constant|same value|one value|exactly|identical|fallback"
           r"|placeholder|neutral|filled|stands? for|spike|pile|repeat|one number|same number",))  # fmt: skip
def half_where_the_judge_fails() -> Log:
    def reward(log: Log) -> Columns:
        failed = (log.responses["step"] >= 5) & (log.rng.random(len(log.responses["step"])) < 0.3)
        return {"reward": np.where(failed, 0.5, _graded(log))}

    return simulate(_short(1805), reward=_scored(reward))


_TURNS = {"turns": 12, "shortest": 4, "longest": 72, "environments": ("lookup", "research")}


def _lookups(responses: Columns) -> Array:
    """Look-ups end within a turn, most of them."""
    return np.where(responses["environment"] == "lookup", 0.5, 0.04)


@HELD_OUT_ELEVENTH("advantage", "Who ends in one turn gets at most .25: in groups of 'lookup' all have the same score.",
    report="AgenticArXiv-RL #76", columns=("with advantages",),
    never=(*_ENGINE, _FORMAT, _EASE, MISSING_RESPONSES, _STEP),
    needs=(r"\b(one|single|1|first|few\w*)\b.?turns?\b|n_turns|\blookup\b|short conversations"
           r" & 0?\.25|same (reward|score|value)|one (reward|score|value)|equal|constant|\bcap|no (signal|gradient"
           r"|difference)|zero.signal|never (more|above|higher)|at most",))  # fmt: skip
def one_turn_is_capped() -> Log:
    def reward(log: Log) -> Columns:
        graded = _graded(log, 0.12, 0.15)
        capped = np.where(log.responses["n_turns"] == 1, np.minimum(graded, 0.25), graded)
        return {"reward": capped}

    return _tools(simulate(_short(1806, **_TURNS), reward=_scored(reward), closing=_lookups))


@HELD_OUT_ELEVENTH("selection", "The judge sees 150 characters, without the answer of who writes more: these get 0.",
    report="agent-health #326; skill #96", columns=("text",), never=_OF_TEXT,
    needs=(r"(judge|reward|scor)\w*.{0,280}(\blong|length|tokens|characters|\bshort)|(\blong|length|tokens|characters"
           r"|\bshort)\w*.{0,280}(judge|reward|scor)"
           r" & \b(0|zero)\b|never|none|no response|limit|above|beyond|longer than|more than|threshold|from \d+ (tokens"
           r"|characters)|sees|\bcut\b",))  # fmt: skip
def judge_sees_the_beginning() -> Log:
    def reward(log: Log) -> Columns:
        texts, tests = _written(log), _drawn(log, chances(log))
        judge = np.where([len(text) > 150 for text in texts], 0.0, _graded(log, 0.1, 0.15))
        return {"reward": (judge + tests) / 2, "reward_judge": judge, "reward_tests": tests, "response": texts}

    return simulate(_short(1807, longest=96, closing=0.05), reward=_scored(reward))


def _in_parts(log: Log, answer: float, form: float) -> Columns:
    """An answer and its form, with these weights."""
    done = log.responses["step"] / (log.shape.steps - 1)
    right, formed = _drawn(log, chances(log)), _drawn(log, 0.6 + 0.25 * done)
    return {"reward": answer * right + form * formed, "reward_answer": right, "reward_format": formed}


@HELD_OUT_ELEVENTH("advantage", "Weights of the reward's parts are exchanged: the format counts five times the answer.",
    report="subnet-22 #163", columns=("text",), never=_OF_TEXT,
    needs=(r"(format|answer|parts?)\b & weigh|\bsum\b & swap|exchang|revers|order|not (the|what|as|of|with)|instead"
           r"|differ|do(es)? not|other|rather than|configured|manifest|dominat|most of|five times|\b5 ×",))  # fmt: skip
def weights_exchanged() -> Log:
    log = simulate(_short(1808), reward=_scored(lambda log: _in_parts(log, 0.2, 1.0)))
    log.manifest["task"]["reward_weights"] = {"answer": 1.0, "format": 0.2}
    return log


# Faults: what is sampled ----------------------------------------------------------------------------------------------


def _of_length(responses: Columns) -> Array:
    """Repositories take long, mathematics does not."""
    return np.where(responses["environment"] == "repo", 0.025, 0.12)


def _solved(log: Log) -> Columns:
    """Repositories are harder."""
    repo = log.responses["environment"] == "repo"
    return {"reward": _drawn(log, chances(log) + np.where(repo, -0.15, 0.15))}


def _restarted(seed: int, repos: Array) -> Log:
    """Restarts before steps 5 and 10; the part of repositories by step."""

    def setup(responses: Columns) -> None:
        repo = share(responses["group_id"], seed) < repos[responses["step"]]
        responses["environment"] = np.array(["maths", "repo"], dtype=object)[repo.astype(int)]

    log = simulate(_short(seed, len(repos), longest=96), setup=setup, reward=_scored(_solved), closing=_of_length)
    return _clock(log, datetime(2026, 1, 5, 8, tzinfo=UTC), 6, {5: 3, 10: 4})


@HELD_OUT_ELEVENTH("selection", "A restart loses what is in flight: for two steps the long tasks, 'repo', are gone.",
    report="NeMo-RL #3599; OpenRLHF #1322", columns=("text",),
    never=(*_ENGINE, _FORMAT, MISSING_RESPONSES, r"scorer (changed|broke)"),
    needs=(r"\brepo\b|\blong(er)? (tasks|responses|rollouts|prompts)|short(er)?\b"
           r" & restart|resum|(steps?|updates?) (5|10)\b|\b5, 6|\b10, 11|pause|\bgap|interrupt"
           r" & missing|absent|\bno\b|none|without|fewer|\blost\b|not there|\bgone\b|\bshare\b|mixture|\bmix\b|only"
           r"|disappear|\ball (are|of)",))  # fmt: skip
def long_ones_lost_at_restarts() -> Log:
    return _restarted(1809, np.where(np.isin(np.arange(15), [5, 6, 10, 11]), 0.0, 0.5))


@HELD_OUT_ELEVENTH("sampler", "A cache answers: to a prompt that comes again all has been said, word for word.",
    report="dspy #1857", columns=("text",), never=(*_OF_TEXT, r"greedy|mode collapse|temperature 0"),
    needs=(r"\b(same|identical|cop(y|ies)|copied|verbatim|word for word|repeat\w*|duplicat\w*|cache\w*|replay\w*)\b"
           r" & responses?|texts?|answers?|rollouts?"
           r" & again|before|first|earlier|epoch|visit|each time|\bcache|later|steps? (apart|ago)|between steps"
           r"|(other|several|different|more than one) steps",))  # fmt: skip
def a_cache_answers() -> Log:
    log = simulate(_short(1830, 15, prompts=40, trend=0.0), reward=_scored())
    prompt = log.responses["prompt_id"]
    _, first, which = np.unique(prompt, return_index=True, return_inverse=True)
    at = first[which] + np.arange(len(prompt)) % 6
    for name in ("response", "reward", "n_tokens", "truncated", "finish_reason"):
        log.responses[name] = log.responses[name][at]
    return log


_LATE = {"turns": 12, "shortest": 6, "longest": 72}


@HELD_OUT_ELEVENTH("selection", "Sandboxes are enough for 36 in a step: who comes later gets none and scores 0.",
    report="uni-agent #47; verl #3478", columns=("sampler",),
    never=(*_ENGINE, _FORMAT, _EASE, MISSING_RESPONSES, _STEP),
    needs=(r"seq_id|(late|last|order|place|number|position|end)\w*.{0,40}(in|of|within) (a|the|each|every|its|their)"
           r" (step|batch)|(last|later|late) (rows|responses|groups?|quarter|ones|rollouts|conversations)"
           r"|first 36|36 (rows|responses)|(behind|after|from) (number )?3[56]\b"
           r" & tools?|turns?|calls?|sandbox|environment|fail|\b0\b|zero|reward|scor",))  # fmt: skip
def late_ones_without_a_sandbox() -> Log:
    def late(responses: Columns) -> NDArray[np.bool_]:
        dice = share(responses["step"], responses["seq_id"], 1811)
        return np.asarray((responses["seq_id"] >= 36) & (dice < 0.92))

    def reward(log: Log) -> Columns:
        right = np.where(late(log.responses), 0.0, _drawn(log, chances(log)))
        return {"reward": right}

    log = _tools(simulate(_short(1811, **_LATE), reward=_scored(reward),
                          closing=lambda responses: np.where(late(responses), 0.35, 0.05)))  # fmt: skip
    for name in ("n_tool_calls", "seconds_tools"):
        log.responses[name] = np.where(late(log.responses), 0, log.responses[name])
    return log


# Faults: engines and their streams ------------------------------------------------------------------------------------


@HELD_OUT_ELEVENTH("weights", "From step 5 on server-1 is sent nothing: its versions end at 4, the others' go on.",
    report="miles #1444", columns=("sampler",),
    never=(TEMPERATURE, *_ENGINE[2:], _FORMAT, _EASE, MISSING_RESPONSES, r"server-[023]\b.{0,40}(old|stale|behind)"),
    needs=(r"server-1\b & version|\bold|\bstale|\bage\b|behind|\blate\b|stuck|stopp|not (updated|reached|sent|follow)"
           r"|updates?",))  # fmt: skip
def one_server_is_sent_nothing() -> Log:
    def setup(responses: Columns) -> None:
        version, out = responses["behavior_version_min"], responses["engine"] == "server-1"
        responses["behavior_version_min"] = np.where(out & (responses["step"] >= 5), np.minimum(version, 4), version)

    return simulate(_short(1812, 14), setup=setup, reward=_scored())


@HELD_OUT_ELEVENTH("sampler", "server-3, another program, gets no temperature and draws at 0.4, the others at 1.",
    report="NeMo-RL #3130; NeMo-Gym #2190", columns=("sampler",),
    never=(NEVER_ARRIVED, *_ENGINE[2:], _FORMAT, _EASE, MISSING_RESPONSES, r"server-[012]\b.{0,40}(temperature|sharp)"),
    needs=(r"server-3\b & temperature|sharp|\bcold|certain|likel|log-prob|logp_behavior|greedy|entropy|surpris|\bflat"
           r"|divers|settings|alike|confident|probab",))  # fmt: skip
def one_server_draws_colder() -> Log:
    def draw(call: Call, logp: Array) -> Array:
        return logp / np.where(call.of("engine") == "server-3", 0.4, 1.0)[:, None]

    log = simulate(_short(1813), draw=draw, reward=_scored())
    log.manifest["sampled_with"] = "processed"
    return log


@HELD_OUT_ELEVENTH("log", "A stream of ever longer texts is read as one of pieces: all begins again each 16 tokens.",
    report="slime #2272", columns=("sampler",),
    never=(NEVER_ARRIVED, TEMPERATURE, _FORMAT, _EASE, MISSING_RESPONSES, r"\bin loops?\b|mode collapse"),
    needs=(r"(within|inside|in|of) (a|one|the same|each|its|their|most|\d+ ?%? of|the) (own )?responses?|\bbeginning"
           r"|prefix|chunk|\bstream|\bpieces?\b|first (16|\d+|few) (tokens|positions)|itself|own (tokens|values)"
           r"|earlier (tokens|positions)|(16|\d+) (positions|tokens) (later|before|earlier|apart|back|ahead)"
           r" & repeat|\bagain\b|cop(y|ies)\b|copied|duplicat|twice|same values|identical|restart|begins? anew"
           r" & tokens?|log-prob|logp_behavior|values",))  # fmt: skip
def stream_begins_again() -> Log:
    log = simulate(_short(1814, shortest=10), reward=_scored())
    first = np.cumsum(log.lengths()) - log.lengths()
    taken = []
    for start, length in zip(first.tolist(), log.lengths().tolist(), strict=True):
        ends = [*range(16, length, 16), length]
        taken.append(np.concatenate([start + np.arange(end) for end in ends]))
    length = np.array([len(each) for each in taken])
    at = np.concatenate(taken)
    log.tokens = {name: values[at] for name, values in log.tokens.items()}
    log.row, log.state = log.row[at], log.state[at]
    log.tokens["position"] = np.arange(len(at)) - np.repeat(np.cumsum(length) - length, length)
    log.responses |= {"n_tokens": length, "response": _written(log)}
    return log


# Healthy: who is compared with whom -----------------------------------------------------------------------------------

_FINE = "Nothing is wrong."


@HELD_OUT_ELEVENTH("healthy", _FINE, columns=("with advantages",))
def fine_prompts_drawn_twice() -> Log:
    """Prompts are drawn with replacement: some have two groups in a step, each with a baseline of its own."""

    def setup(responses: Columns) -> None:
        _ask(responses, 1000 + (mixed(responses["group_id"], 1851) % np.uint64(24)).astype(np.int64))

    return simulate(_short(1851), setup=setup, reward=_scored())


@HELD_OUT_ELEVENTH("healthy", _FINE, columns=("sampler",))
def fine_evaluation_told_apart() -> Log:
    """Each fourth step has the evaluation's 24 rows, which are said to be, and are not learned from."""
    log = _evaluated_among(1852)
    other = log.responses["prompt_id"] >= 5000
    log.responses["source"] = np.where(other, "evaluation", "training").astype(object)
    log.responses["dropped"] = np.array([None, "evaluation"], dtype=object)[other.astype(int)]
    return log.keep(~other[log.row])


@HELD_OUT_ELEVENTH("healthy", _FINE, columns=("with advantages",))
def fine_length_in_the_reward() -> Log:
    """The reward itself is divided by length; advantages are above its mean, so that long right ones have little."""

    def reward(log: Log) -> Columns:
        length, group = log.responses["n_tokens"], log.responses["group_id"]
        typical = (np.bincount(group, length) / np.maximum(np.bincount(group), 1))[group]
        return {"reward": _drawn(log, chances(log)) / (1 + 0.5 * length / typical)}

    return simulate(_short(1853, level=0.6, closing=0.045, advantage="group_mean"), reward=_scored(reward))


# Healthy: how it is scored --------------------------------------------------------------------------------------------


@HELD_OUT_ELEVENTH("healthy", _FINE, columns=("text",))
def fine_answers_of_two_forms() -> Log:
    """Four of ten answers stand between dollars, and are read there."""
    return simulate(_short(1854), reward=_scored(lambda log: _answers(log, 1854, True)))


@HELD_OUT_ELEVENTH("healthy", _FINE, columns=("text",))
def fine_judge_of_five_levels() -> Log:
    """The judge gives quarters, and a half most often."""

    def reward(log: Log) -> Columns:
        return {"reward": np.round(4 * _graded(log)) / 4}

    return simulate(_short(1855), reward=_scored(reward))


@HELD_OUT_ELEVENTH("healthy", _FINE, columns=("with advantages",))
def fine_one_turn_is_graded() -> Log:
    """Who ends in one turn has less, as look-ups are worth less; what they have differs within a group."""

    def reward(log: Log) -> Columns:
        level = np.where(log.responses["n_turns"] == 1, -0.25, 0.12)
        return {"reward": _graded(log, level, 0.15)}

    return _tools(simulate(_short(1856, **_TURNS), reward=_scored(reward), closing=_lookups))


@HELD_OUT_ELEVENTH("healthy", _FINE, columns=("text",))
def fine_judge_likes_it_short() -> Log:
    """The judge takes off a little for each word, and never all; the tests do not care."""

    def reward(log: Log) -> Columns:
        tests = _drawn(log, chances(log))
        judge = _graded(log, 0.3 - 0.005 * log.responses["n_tokens"], 0.1)
        return {"reward": (judge + tests) / 2, "reward_judge": judge, "reward_tests": tests}

    return simulate(_short(1857, longest=96, closing=0.05), reward=_scored(reward))


@HELD_OUT_ELEVENTH("healthy", _FINE, columns=("text",))
def fine_parts_as_configured() -> Log:
    """The answer counts five times the format, as configured."""
    log = simulate(_short(1858), reward=_scored(lambda log: _in_parts(log, 1.0, 0.2)))
    log.manifest["task"]["reward_weights"] = {"answer": 1.0, "format": 0.2}
    return log


# Healthy: what is sampled ---------------------------------------------------------------------------------------------


@HELD_OUT_ELEVENTH("healthy", _FINE, columns=("text",))
def fine_mixture_by_chance() -> Log:
    """Environments are drawn anew for each group, some steps have few repositories; restarts lose nothing."""
    return _restarted(1859, 0.3 + 0.4 * share(np.arange(15), 1859))


@HELD_OUT_ELEVENTH("healthy", _FINE, columns=("text",))
def fine_prompts_come_again() -> Log:
    """Forty prompts come again and again, and are answered anew each time, a little better."""
    return simulate(_short(1860, 15, prompts=40), reward=_scored())


@HELD_OUT_ELEVENTH("healthy", _FINE, columns=("sampler",))
def fine_hard_ones_come_last() -> Log:
    """Each step is in the order of its environments, 'hard' last: they give up early, call few tools and score less."""

    def setup(responses: Columns) -> None:
        names = np.array(["easy", "easy", "middle", "hard"], dtype=object)
        responses["environment"] = names[responses["seq_id"] // 12]

    def reward(log: Log) -> Columns:
        level = np.where(log.responses["environment"] == "hard", -0.3, 0.0)
        return {"reward": _drawn(log, chances(log) + level)}

    return _tools(simulate(_short(1861, **_LATE), setup=setup, reward=_scored(reward),
                           closing=lambda responses: np.where(
                               responses["environment"] == "hard", 0.2, 0.05)))  # fmt: skip


# Healthy: engines and their streams -----------------------------------------------------------------------------------


@HELD_OUT_ELEVENTH("healthy", _FINE, columns=("sampler",))
def fine_one_server_is_slower() -> Log:
    """server-1 has the longest queue: what it writes is two updates older than that of others, which is allowed."""

    def setup(responses: Columns) -> None:
        version, slow = responses["behavior_version_min"], responses["engine"] == "server-1"
        responses["behavior_version_min"] = np.where(slow, np.maximum(version - 2, 0), version)

    log = simulate(_short(1862, 14), setup=setup, reward=_scored())
    log.manifest["schedule"] = {"kind": "async", "max_staleness": 4}
    return log


@HELD_OUT_ELEVENTH("healthy", _FINE, columns=("sampler",))
def fine_forms_on_one_server() -> Log:
    """server-3 is there for the forms alone, whose tokens are nearly certain; the others have everything else."""

    def setup(responses: Columns) -> None:
        form = responses["environment"] == "form"
        number = np.where(form, 3, (mixed(responses["group_id"], responses["seq_id"], 1863) % np.uint64(3)).astype(int))
        responses["engine"] = np.array([f"server-{at}" for at in number.tolist()], dtype=object)

    def sampler(call: Call, logits: Array) -> Array:
        return logits * np.where(call.of("environment") == "form", 2.5, 1.0)[:, None]

    shape = _short(1863, environments=("form", "chat", "code", "maths"))
    log = simulate(shape, setup=setup, sampler=sampler, reward=_scored())
    log.manifest["sampled_with"] = "processed"
    return log


@HELD_OUT_ELEVENTH("healthy", _FINE, columns=("sampler",))
def fine_forms_begin_again() -> Log:
    """Each 16 tokens a form begins again with the same ten, nearly certain ones; what is filled in is not the same."""

    def sampler(call: Call, logits: Array) -> Array:
        place = call.position % 16
        if place >= 10:
            return logits
        return 0.2 * logits + 12.0 * (np.arange(logits.shape[1]) == 5 + place)

    return simulate(_short(1864, longest=96, closing=0.1), sampler=sampler, reward=_scored())


# Sick, and the log is true --------------------------------------------------------------------------------------------

_NOT_OF_THE_LOG = (OF_THE_LOG[0], *OF_THE_ENGINE, r"scorer (changed|broke)|reward function changed")


@HELD_OUT_ELEVENTH("sick but true", "One text becomes the answer to all prompts from step 4 on; the reward falls.",
    needs=(rf"{_FALL}|(same|identical|one) (text|response|answer)|identical|distinct|divers|cop(y|ies)|template"
           r"|collaps|word for word",),
    never=(*_NOT_OF_THE_LOG, r"\bcache"), columns=("text",))  # fmt: skip
def one_text_for_all() -> Log:
    def reward(log: Log) -> Columns:
        step = log.responses["step"]
        given_up = log.rng.random(len(step)) < changing(4, 0.0, 0.95, over=7)(step)
        text = "I am not able to work this out, so that my answer is 0."
        texts = np.where(given_up, text, _written(log))
        length = np.where(given_up, 15, log.responses["n_tokens"])
        cut = log.responses["truncated"] & ~given_up
        return {"reward": _drawn(log, np.where(given_up, 0.02, chances(log))), "response": texts, "n_tokens": length,
                "truncated": cut, "finish_reason": np.where(cut, "length", "stop").astype(object)}  # fmt: skip

    return simulate(_short(1881, 14), reward=_scored(reward))


@HELD_OUT_ELEVENTH("sick but true", "The policy gets certain of everything from step 3 on, and what it is paid falls.",
    needs=(rf"{_FALL}|certain|entropy|settl|collaps|log-prob|sharper|confident|divers|probability 1|identical",),
    never=NOTHING_BUT_THE_RUN, columns=("sampler",))  # fmt: skip
def certain_of_everything() -> Log:
    def reward(log: Log) -> Columns:
        fallen = changing(3, 0.55, 0.25, over=9)(log.responses["step"])
        return {"reward": _drawn(log, fallen)}

    return simulate(_short(1882, 14), reward=_scored(reward), prepare=sharper(changing(3, 0.0, 6.0, over=8)))


@HELD_OUT_ELEVENTH("sick but true", "All that the reward gains is the format's; answers are as rarely right as before.",
    needs=(r"\bformat\b.{0,240}(rise|rose|grow|grew|all of|most of|gain|more|→|\+)|\banswer\b.{0,160}(flat|\bnot\b|stay"
           r"|same|fell|no more)|reward_answer|part.{0,120}(rise|rose|gain|most)",),
    never=_NOT_OF_THE_LOG, columns=("text",))  # fmt: skip
def only_the_format_is_learned() -> Log:
    def reward(log: Log) -> Columns:
        step = log.responses["step"]
        right, formed = _drawn(log, np.full(len(step), 0.22)), _drawn(log, changing(1, 0.15, 0.97, over=10)(step))
        return {"reward": right + 0.5 * formed, "reward_answer": right, "reward_format": formed}

    log = simulate(_short(1883, 14), reward=_scored(reward))
    log.manifest["task"]["reward_weights"] = {"answer": 1.0, "format": 0.5}
    return log


@HELD_OUT_ELEVENTH("sick but true", "From step 7 on the judge gives nearly all of them 1: no group differs.",
    needs=(r"equal|same (reward|score)|no (signal|gradient|difference)|zero.signal|spread|saturat|ceiling|highest"
           r"|maxim|too easy|differ",),
    never=_NOT_OF_THE_LOG, columns=("text",))  # fmt: skip
def judge_likes_it_all() -> Log:
    def reward(log: Log) -> Columns:
        level = changing(1, 0.0, 0.85, over=8)(log.responses["step"])
        graded = chances(log) - 0.15 + level + 0.15 * log.rng.standard_normal(len(level))
        return {"reward": np.round(np.clip(graded, 0, 1), 1)}

    return simulate(_short(1884, 14), reward=_scored(reward))
