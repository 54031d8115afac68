"""Logs whose advantages are known: a small generator, and what the bugs that were reported do to its columns."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.making.runs import Step, plain_step, write_run

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STEPS, GROUPS, RESPONSES, TURN = 16, 8, 8, 4
N = GROUPS * RESPONSES
GRPO: dict[str, Any] = {"name": "grpo", "parameters": {"epsilon_low": 0.2, "epsilon_high": 0.2}}


@dataclass
class Batch:
    """The responses of a step, of which a fault changes columns; tokens are made of them afterwards."""

    rng: np.random.Generator
    number: int
    reward: Floats
    length: Ints
    group: Ints
    prompt: Ints
    advantage: Floats = field(default_factory=lambda: np.zeros(N))
    scalars: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, Floats] = field(default_factory=dict)
    logged: Floats | None = None
    """The reward that is logged, where that is not the one that advantages are made of."""
    of_token: Callable[[Floats, Ints, Ints, Ints], Floats] | None = None
    """Advantages of tokens, of (advantage, turn, position, tokens in the last turn), each by token."""
    missing: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(N, dtype=bool))
    """Responses that are not logged."""
    finish: list[str] = field(default_factory=list)
    columns: dict[str, Any] = field(default_factory=dict)
    """Further columns of the responses."""
    reference: Floats | None = None
    """KL to the reference of each response, nats a token."""


def normalised(reward: Floats, key: Ints) -> Floats:
    """(r - mean) / deviation over the rows of a key."""
    found = np.zeros(len(reward))
    for each in np.unique(key):
        r = reward[key == each]
        found[key == each] = (r - r.mean()) / (r.std() + 1e-6)
    return found


def batches(fault: Callable[[Batch], None], seed: int = 0, difficulty: float = 0.7) -> Iterator[Step]:
    """Steps of a run whose advantages compare the responses of a group, with a fault.

    Args:
        difficulty: of the Beta distribution of a prompt's success rate; below 1 many groups are all right or all wrong.
    """
    rng = np.random.default_rng([seed, 3])
    for number in range(STEPS):
        group = np.arange(N) // RESPONSES
        rate = rng.beta(difficulty, difficulty, GROUPS)[group]
        batch = Batch(rng, number, (rng.random(N) < rate).astype(float), rng.integers(3, 15, N), group, group.copy())
        batch.scalars = {"policy_version": number, "grad_norm": float(0.5 * np.exp(0.15 * rng.standard_normal()))}
        batch.advantage = normalised(batch.reward, group)
        fault(batch)
        yield _step(batch)


def _step(batch: Batch) -> Step:
    response = np.repeat(np.arange(N), batch.length)
    position = np.concatenate([np.arange(n) for n in batch.length])
    turn = position // TURN
    in_last = batch.length - (batch.length - 1) // TURN * TURN
    advantage = batch.advantage[response]
    if batch.of_token is not None:
        advantage = batch.of_token(advantage, turn, position, in_last[response])
    behavior = -batch.rng.exponential(1.0, len(response)) - 0.01
    columns: dict[str, Any] = {"turn": turn.astype(np.int16), "token_id": batch.rng.integers(0, 50, len(response))}
    if batch.reference is not None:
        columns["logp_reference"] = (behavior + batch.reference[response]).astype(np.float32)
    step = plain_step(
        behavior, behavior, number=batch.number, sequence=response, group=batch.group[response],
        advantage=advantage.astype(np.float32), **columns,
    )  # fmt: skip
    reward = batch.reward if batch.logged is None else batch.logged
    step.sequences.update({"reward": reward.astype(np.float32), "prompt_id": batch.prompt + 100 * batch.number})
    step.sequences.update({name: values.astype(np.float32) for name, values in batch.parts.items()})
    step.sequences.update(batch.columns)
    if batch.finish:
        step.sequences["finish_reason"] = batch.finish
    step.scalars.update(batch.scalars)
    return step.rows(~batch.missing[response], ~batch.missing)


def written(
    folder: Path, fault: Callable[[Batch], None], seed: int = 0, algorithm: Any = None, task: Any = None, **how: Any
) -> Path:
    """The run in files; without an algorithm it is called GRPO and names no parts."""
    return write_run(folder, batches(fault, seed, **how), algorithm=algorithm or GRPO, task=task or {})


# What goes wrong ------------------------------------------------------------------------------------------------------


def nothing(batch: Batch) -> None:
    """A healthy step."""


def of_the_step(batch: Batch) -> None:
    batch.advantage = normalised(batch.reward, np.zeros(N, dtype=np.int64))


def of_two_groups(batch: Batch) -> None:
    batch.prompt = batch.group // 2
    batch.advantage = normalised(batch.reward, batch.prompt)


def over_the_batch_axis(batch: Batch) -> None:
    batch.advantage = normalised(batch.reward, np.arange(N) % RESPONSES)


def whitened_again(batch: Batch) -> None:
    mean = np.average(batch.advantage, weights=batch.length)
    spread = np.average((batch.advantage - mean) ** 2, weights=batch.length) ** 0.5
    batch.advantage = (batch.advantage - mean) / spread


def shifted_alike(batch: Batch) -> None:
    """A baseline above the mean, by as much in each step (AsymRE)."""
    batch.advantage = batch.advantage - 0.1


def scaled_by_step(batch: Batch) -> None:
    """Divided by the deviation in the step: groups of equal reward still have none."""
    batch.advantage = batch.advantage / batch.advantage.std()


def _graded(batch: Batch, narrow: float = 0.02) -> Floats:
    """Graded rewards, whose deviation in a group is between this and 0.4; and how far they are above the mean."""
    spread = narrow + (0.4 - narrow) * batch.rng.random(GROUPS)[batch.group]
    batch.reward = 0.5 + spread * batch.rng.standard_normal(N)
    return batch.reward - (np.bincount(batch.group, batch.reward) / RESPONSES)[batch.group]


def by_own_deviation(batch: Batch) -> None:
    _graded(batch)
    batch.advantage = normalised(batch.reward, batch.group)


def by_own_deviation_of_a_sample(batch: Batch) -> None:
    by_own_deviation(batch)
    batch.advantage *= (1 - 1 / RESPONSES) ** 0.5


def by_the_deviation_of_the_batch(batch: Batch) -> None:
    above = _graded(batch)
    batch.advantage = above / (batch.reward.std(ddof=1) + 1e-4)


def by_own_deviation_and_whitened(batch: Batch) -> None:
    by_own_deviation(batch)
    batch.advantage *= 0.7


def of_one_deviation(batch: Batch) -> None:
    """Whose deviation it is does not show: all groups have the same."""
    batch.reward = batch.rng.permuted(np.tile(np.arange(RESPONSES) / RESPONSES, (GROUPS, 1)), axis=1).ravel()
    batch.advantage = normalised(batch.reward, batch.group)


def by_stride(batch: Batch) -> None:
    """Responses are missing where groups are cut, eight in a row."""
    there = batch.rng.random(N) > 0.06
    block = np.full(N, -1)
    block[there] = np.arange(there.sum()) // RESPONSES
    batch.advantage = np.where(there, normalised(batch.reward, block), 0.0)
    batch.missing = ~there


def incomplete(batch: Batch) -> None:
    """The same groups with missing responses, each with a baseline of its own."""
    batch.missing = batch.rng.random(N) < 0.06
    group = np.where(batch.missing, -1, batch.group)
    batch.advantage = normalised(batch.reward, group)


def discounted(batch: Batch) -> None:
    left = np.concatenate([np.arange(n)[::-1] for n in batch.length])
    batch.of_token = lambda advantage, turn, position, in_last: advantage * 0.9**left


def discounted_by_turn(batch: Batch) -> None:
    """Each turn has a part of the next one's credit: legitimate."""
    last = np.repeat((batch.length - 1) // TURN, batch.length)
    batch.of_token = lambda advantage, turn, position, in_last: advantage * 0.9 ** (last - turn)


def with_a_value_function(batch: Batch) -> None:
    """Generalised advantages: values differ from token to token."""
    of = np.repeat(np.arange(N), batch.length)
    value = batch.rng.normal(0, 0.3, len(of))
    left = np.concatenate([np.arange(n)[::-1] for n in batch.length])
    batch.of_token = lambda advantage, turn, position, in_last: 0.95**left * advantage - value


def bare(batch: Batch) -> None:
    batch.advantage = batch.reward.copy()


def alone(batch: Batch) -> None:
    batch.group = np.arange(N)
    batch.advantage = batch.reward.copy()


def alone_and_centred(batch: Batch) -> None:
    batch.group = np.arange(N)
    batch.advantage = np.zeros(N)


def resampled(batch: Batch) -> None:
    batch.advantage = batch.advantage[batch.rng.integers(0, N, N)]


def of_the_neighbour(batch: Batch) -> None:
    batch.advantage = np.roll(batch.advantage, 1)


def with_kl(batch: Batch) -> None:
    batch.reference = batch.rng.normal(0, 0.3, N)
    batch.logged = batch.reward.copy()
    batch.advantage = normalised(batch.reward + 0.05 * batch.reference * batch.length, batch.group)


def with_length(batch: Batch) -> None:
    batch.logged = batch.reward.copy()
    batch.advantage = normalised(batch.reward - 0.02 * batch.length, batch.group)


def penalised(batch: Batch, share: float = 0.7) -> None:
    """A length penalty in the reward, while most prompts are never solved."""
    never = batch.rng.random(GROUPS)[batch.group] < share
    task, length = np.where(never, 0.0, batch.reward), -0.01 * batch.length
    batch.parts = {"reward_task": task, "reward_length": np.asarray(length, dtype=np.float64)}
    batch.reward = task + length
    batch.advantage = normalised(batch.reward, batch.group)


def heavily_penalised(batch: Batch, share: float = 0.7) -> None:
    """The penalty varies more than the task's reward does."""
    never = batch.rng.random(GROUPS)[batch.group] < share
    task, length = np.where(never, 0.0, batch.reward), -0.5 * batch.length
    batch.parts = {"reward_task": task, "reward_length": np.asarray(length, dtype=np.float64)}
    batch.reward = task + length
    batch.advantage = normalised(batch.reward, batch.group)


def solved_and_penalised(batch: Batch) -> None:
    heavily_penalised(batch, share=0.0)


def mildly_penalised(batch: Batch) -> None:
    penalised(batch, share=0.0)


def _of_two_parts(batch: Batch) -> tuple[Floats, Floats]:
    form = (batch.rng.random(N) < 0.6).astype(float)
    batch.parts = {"reward_task": batch.reward, "reward_format": form}
    return batch.reward, form


def without_weights(batch: Batch) -> None:
    """The logged reward is the plain sum of its parts."""
    task, form = _of_two_parts(batch)
    batch.logged = task + form
    batch.advantage = normalised(0.8 * task + 0.2 * form, batch.group)


def with_weights(batch: Batch) -> None:
    task, form = _of_two_parts(batch)
    batch.logged = 0.8 * task + 0.2 * form
    batch.advantage = normalised(batch.logged, batch.group)


def of_one_part_twice(batch: Batch) -> None:
    """Two scorers that agree: how much each of them weighs cannot be told."""
    batch.parts = {"reward_task": batch.reward, "reward_format": batch.reward}


def normalised_by_part(batch: Batch) -> None:
    """Each part in deviations of its own (GDPO), as with_weights before the sum: another kind of advantage."""
    task, form = _of_two_parts(batch)
    batch.logged = task + form
    batch.advantage = normalised(task, batch.group) + normalised(form, batch.group)


def _summed(batch: Batch) -> Floats:
    """Tests that are passed and a bonus, and what they add up to: 0 in about a fifth of the responses."""
    tests, bonus = batch.reward * batch.rng.integers(1, 5, N) / 4, 0.1 * (batch.rng.random(N) < 0.4)
    batch.parts = {"reward_tests": tests, "reward_bonus": bonus}
    return np.asarray(tests + bonus)


def replaced(batch: Batch) -> None:
    """A sum of 0 is taken for one that is missing."""
    total = _summed(batch)
    batch.reward = np.where(total == 0, -1.0, total)
    batch.advantage = normalised(batch.reward, batch.group)


def bounded(batch: Batch) -> None:
    """No reward is below 0, whatever its parts add up to."""
    total = _summed(batch)
    batch.parts["reward_length"] = -0.05 * batch.length
    batch.reward = np.maximum(total - 0.05 * batch.length, 0.0)
    batch.advantage = normalised(batch.reward, batch.group)


def failed_ones_punished(batch: Batch) -> None:
    """Responses that failed get -1, and some of the others add up to 0, too."""
    total, failed = _summed(batch), batch.rng.random(N) < 0.2
    batch.columns = {"failure": np.where(failed, "timeout", None)}
    batch.reward = np.where(failed, -1.0, total)
    batch.advantage = normalised(batch.reward, batch.group)


def silent_part(batch: Batch) -> None:
    batch.parts = {"reward_task": batch.reward, "reward_format": np.zeros(N)}


def _turns_paid(batch: Batch, turns: Ints, per_turn: float = 0.25, lost: float = 0.06) -> None:
    """A format that is scored, and an answer that is right less often the more turns were taken."""
    right = (batch.rng.random(N) < 0.8 - lost * turns).astype(float)
    form = per_turn * batch.rng.binomial(turns, 0.95)
    batch.columns = {"n_turns": turns.astype(np.int32)}
    batch.parts, batch.reward = {"reward_task": right, "reward_format": form}, right + form
    batch.advantage = normalised(batch.reward, batch.group)


def paid_by_turn(batch: Batch) -> None:
    _turns_paid(batch, batch.rng.integers(1, 9, N))


def paid_for_useful_turns(batch: Batch) -> None:
    """Who takes more turns is right more often."""
    _turns_paid(batch, batch.rng.integers(1, 9, N), lost=-0.02)


def paid_once(batch: Batch) -> None:
    """The same format, once a response."""
    turns = batch.rng.integers(1, 9, N)
    _turns_paid(batch, turns, per_turn=0.0)
    form = 0.25 * (batch.rng.random(N) < 0.95)
    batch.parts["reward_format"] = form
    batch.reward = batch.parts["reward_task"] + form
    batch.advantage = normalised(batch.reward, batch.group)


def judge_away(batch: Batch, steps: range = range(6, 10)) -> None:
    """A judge who scores nothing in some steps: its part counts as 0."""
    judge = batch.rng.random(N) * float(batch.number not in steps)
    batch.parts = {"reward_task": batch.reward, "reward_judge": judge}
    batch.reward = batch.reward + judge
    batch.advantage = normalised(batch.reward, batch.group)


def judge_away_to_the_end(batch: Batch) -> None:
    """Nothing after it says that the judge scores again."""
    judge_away(batch, range(9, STEPS))


def rarely_earned(batch: Batch) -> None:
    """A part that one response of fifty earns, so that there are steps without one."""
    rare = (batch.rng.random(N) < 0.02).astype(float)
    batch.parts = {"reward_task": batch.reward, "reward_rare": rare}
    batch.reward = batch.reward + rare
    batch.advantage = normalised(batch.reward, batch.group)


def lost_and_learned_again(batch: Batch) -> None:
    """A policy that comes to earn nothing, and something again."""
    batch.reward *= batch.rng.random(N) < abs(batch.number - 8) / 16 - 0.05
    batch.advantage = normalised(batch.reward, batch.group)


def sampler_broken(batch: Batch) -> None:
    """Responses that are cut short earn nothing: it is not the scorer."""
    if 6 <= batch.number < 10:
        batch.length = np.full(N, 3)
        batch.reward = np.zeros(N)
        batch.advantage = np.zeros(N)


def giant(batch: Batch) -> None:
    if batch.number == 9:
        batch.advantage[5] = 400.0
        batch.scalars["grad_norm"] = 40.0


def large_without_a_jump(batch: Batch) -> None:
    if batch.number == 9:
        batch.advantage[5] = 400.0


def last_turn_only(batch: Batch) -> None:
    of = batch.length

    def token(advantage: Floats, turn: Ints, position: Ints, in_last: Ints) -> Floats:
        return np.where(turn == (np.repeat(of, of) - 1) // TURN, advantage, 0.0)

    batch.of_token = token


def by_overlap(batch: Batch) -> None:
    batch.of_token = lambda advantage, turn, position, in_last: np.where(position < in_last, advantage, 0.0)


def of_parts(batch: Batch) -> None:
    """The tokens before and after position 6 are whitened by themselves."""

    def token(advantage: Floats, turn: Ints, position: Ints, in_last: Ints) -> Floats:
        return normalised(advantage, (position >= 6).astype(np.int64))

    batch.of_token = token


def drifting(batch: Batch) -> None:
    batch.of_token = lambda advantage, turn, position, in_last: advantage + 0.3 * turn


def turn_rewards(batch: Batch) -> None:
    """Turns have rewards of their own: legitimate."""
    own = batch.rng.standard_normal((N, 5))
    of = np.repeat(np.arange(N), batch.length)
    batch.of_token = lambda advantage, turn, position, in_last: advantage + own[of, turn]


def lost_behind_a_tool(batch: Batch) -> None:
    """The reward of those that a tool ended stands on a token that is no sampled one."""
    tool = ended_by_a_tool(batch)
    batch.advantage = np.where(tool, 0.0, batch.advantage)


def unrewarded_behind_a_tool(batch: Batch) -> None:
    """The mask takes the reward away before groups are compared."""
    tool = ended_by_a_tool(batch)
    batch.advantage = normalised(np.where(tool, 0.0, batch.reward), batch.group)


def ended_by_a_tool(batch: Batch) -> NDArray[np.bool_]:
    """Some end with a tool's turn, and have their advantage."""
    tool = batch.rng.random(N) < 0.25
    batch.finish = ["tool_calls" if each else "end_turn" for each in tool]
    return tool


def cut_off_without_credit(batch: Batch) -> None:
    """Those at the limit have none, as a filter of overlong responses makes it: legitimate."""
    cut = batch.rng.random(N) < 0.25
    batch.finish = ["length" if each else "end_turn" for each in cut]
    batch.advantage = np.where(cut, 0.0, batch.advantage)


def in_another_order(batch: Batch) -> None:
    """Responses were sorted by their length, and rewards were not."""
    mildly_penalised(batch)
    order = np.argsort(batch.length, kind="stable")
    moved = np.empty(N, dtype=np.int64)
    moved[order] = np.arange(N)
    batch.parts = {name: values[moved] for name, values in batch.parts.items()}
    batch.reward = batch.reward[moved]
    batch.advantage = normalised(batch.reward, batch.group)


def _of_two_environments(batch: Batch, halves: bool) -> None:
    """maths is right (1) or wrong (-1); code passes a share of its tests."""
    maths = batch.group % 2 == 0
    passed = np.round(4 * batch.rng.random(N)) / 4 if halves else batch.reward
    batch.reward = np.where(maths, 2 * batch.reward - 1, passed)
    batch.columns["environment"] = np.where(maths, "maths", "code").tolist()


def scored_one_group_late(batch: Batch) -> None:
    _of_two_environments(batch, halves=True)
    if batch.number >= 6:
        batch.reward = np.roll(batch.reward, RESPONSES)
    batch.advantage = normalised(batch.reward, batch.group)


def graded_more_finely_later(batch: Batch) -> None:
    """From step 6 on code passes a share of its tests, and maths has halves: values of their own."""
    _of_two_environments(batch, halves=batch.number >= 6)
    if batch.number >= 6:
        batch.reward = np.where(batch.group % 2 == 0, batch.reward / 2, batch.reward)
    batch.advantage = normalised(batch.reward, batch.group)


def of_another_count(batch: Batch) -> None:
    """A length term that counts other signs than the tokens that are logged."""
    mildly_penalised(batch)
    batch.parts["reward_length"] = -0.01 * (batch.length + batch.rng.normal(0, 2.0, N))
    batch.reward = batch.parts["reward_task"] + batch.parts["reward_length"]
    batch.advantage = normalised(batch.reward, batch.group)


def _counted(batch: Batch, times: Ints) -> None:
    """The baseline counts a response several times."""
    for group in range(GROUPS):
        own = batch.group == group
        r, n = batch.reward[own], times[own]
        above = r - np.average(r, weights=n)
        deviation = (np.average(above**2, weights=n) * n.sum() / (n.sum() - 1)) ** 0.5
        batch.advantage[own] = above / (deviation + 1e-4)


def by_turn(batch: Batch) -> None:
    _counted(batch, (batch.length - 1) // TURN + 1)


def by_length(batch: Batch) -> None:
    """The optimal baseline of OPO: another kind of advantage."""
    _counted(batch, batch.length)


def cut_off_at_the_end(batch: Batch) -> None:
    """The batch loses what does not fill a piece."""
    batch.missing = np.arange(N) >= N - 3


def cut_before_the_baseline(batch: Batch) -> None:
    cut_off_at_the_end(batch)
    batch.advantage = normalised(batch.reward, np.where(batch.missing, -1, batch.group))


def two_agents(batch: Batch) -> None:
    """One of them has a graded reward, and the other one right or wrong."""
    planner = np.arange(N) % 2 == 0
    batch.columns = {"source": np.where(planner, "planner", "solver")}
    graded = np.clip(0.6 + 0.3 * batch.reward + 0.1 * batch.rng.standard_normal(N), 0, 1)
    batch.reward = np.where(planner, graded, batch.reward)
    batch.advantage = normalised(batch.reward, batch.group)


def two_agents_apart(batch: Batch) -> None:
    """The same with a baseline for each."""
    two_agents(batch)
    batch.advantage = normalised(batch.reward, 2 * batch.group + np.arange(N) % 2)


def with_demonstrations(batch: Batch) -> None:
    """Those of an expert are better by design, and scored as all others are."""
    expert = np.arange(N) % 4 == 0
    batch.columns = {"source": np.where(expert, "expert", "policy")}
    batch.reward = np.where(expert & (batch.rng.random(N) < 0.9), 1.0, batch.reward)
    batch.advantage = normalised(batch.reward, batch.group)


def graded_demonstrations(batch: Batch) -> None:
    with_demonstrations(batch)
    batch.reward = batch.reward + 0.3 * batch.rng.standard_normal(N)
    batch.advantage = normalised(batch.reward, batch.group)


def _of_the_prompt(batch: Batch, inside: Floats) -> None:
    batch.reward = 3 * batch.rng.random(GROUPS)[batch.group] + inside
    batch.advantage = normalised(batch.reward, batch.group)


def scored_by_the_prompt(batch: Batch) -> None:
    """The score of a group is one, and some rounding."""
    _of_the_prompt(batch, 0.002 * batch.rng.standard_normal(N))


def scored_by_a_little_length(batch: Batch) -> None:
    """Small differences, which are of the response."""
    _of_the_prompt(batch, np.asarray(0.001 * batch.length, dtype=np.float64))


def of_another_difficulty(batch: Batch) -> None:
    """A reward model for which prompts differ more than their responses do."""
    _of_the_prompt(batch, 0.1 * batch.rng.standard_normal(N))


def _by_critic(batch: Batch, behind: float, bias: float = 0.0, bonus: float = 0.0) -> None:
    """Generalised advantages of a critic that learns of the reward on the way, whitened."""
    batch.length = batch.rng.integers(8, 49, N)
    cut = batch.length > 36
    batch.columns = {"truncated": cut}
    batch.reward = batch.reward + np.where(cut, 0.0, bonus)
    of, length = np.repeat(np.arange(N), batch.length), batch.length
    at = np.concatenate([np.arange(n) for n in length])
    value = 0.5 + 0.5 * (at + 1) / length[of] * (batch.reward[of] - 0.5) + bias
    value = value + 0.05 * batch.rng.standard_normal(len(of))
    last = at == length[of] - 1
    following = np.where(last, np.where(cut, 0.0, behind)[of], np.append(value[1:], 0.0))
    delta = np.where(last, batch.reward[of], 0.0) + following - value
    carried = np.zeros(len(of))
    for row in range(len(of) - 1, -1, -1):
        carried[row] = delta[row] + (0.0 if last[row] else 0.95 * carried[row + 1])
    batch.of_token = lambda *_: normalised(carried, np.zeros(len(of), dtype=np.int64))


def value_behind_the_end(batch: Batch) -> None:
    _by_critic(batch, behind=1.5)


def good_critic(batch: Batch) -> None:
    _by_critic(batch, behind=0.0)


def critic_below_all_rewards(batch: Batch) -> None:
    """Every end is a surprise to it, that of a cut response, too."""
    _by_critic(batch, behind=0.0, bias=-1.5)


def bonus_for_finishing(batch: Batch) -> None:
    """In the reward, and foreseen."""
    _by_critic(batch, behind=0.0, bonus=0.5)


def _kept_alone(batch: Batch, kept: NDArray[np.bool_], every: int = 3) -> NDArray[np.bool_]:
    """Of one group of a few only these responses keep their advantage, in all steps but the first; whose groups."""
    again = (batch.group % every == batch.number % every) & (batch.number > 0)
    batch.advantage = np.where(again & ~kept, 0.0, batch.advantage)
    return again


def replayed_in_part(batch: Batch) -> None:
    """From a buffer that keeps the advantages of the last two of eight."""
    again = _kept_alone(batch, np.arange(N) % RESPONSES >= 6)
    batch.columns = {"source": np.where(again, "buffer", "new").astype(object)}


def prompts_replayed_in_part(batch: Batch) -> None:
    """The same, where the prompt alone says that they come again."""
    again = _kept_alone(batch, np.arange(N) % RESPONSES == 3, every=5)
    batch.prompt = np.where(again, batch.prompt - 100, batch.prompt)


def _one_of_each(batch: Batch) -> NDArray[np.bool_]:
    """One response of each group, wherever it stands."""
    one = np.repeat(RESPONSES * np.arange(GROUPS) + batch.rng.integers(0, RESPONSES, GROUPS), RESPONSES)
    return np.asarray(np.arange(N) == one)


def kept_by_one_of_a_group(batch: Batch) -> None:
    """One of each of these groups has an advantage, and nothing comes again."""
    _kept_alone(batch, _one_of_each(batch))


def replayed_whole(batch: Batch) -> None:
    again = _kept_alone(batch, np.ones(N, dtype=bool))
    batch.columns = {"source": np.where(again, "buffer", "new").astype(object)}


def long_ones_without_advantage(batch: Batch) -> None:
    """Masked, whatever they earned: all but one of each group."""
    batch.length = np.where(_one_of_each(batch), 5, 14)
    _kept_alone(batch, batch.length < 14)


def best_alone_in_some_groups(batch: Batch) -> None:
    """One of each group is right, and in some nothing is made less likely."""
    batch.reward = _one_of_each(batch).astype(float)
    batch.advantage = normalised(batch.reward, batch.group)
    _kept_alone(batch, batch.advantage > 0)


def worse_ones_without_advantage_in_some_groups(batch: Batch) -> None:
    _kept_alone(batch, batch.advantage > 0)


def lost_here_and_there(batch: Batch) -> None:
    """By chance: neither the place tells which, nor is it all but one."""
    _kept_alone(batch, batch.rng.random(N) < 0.5)


def kept_by_one_of_few_groups(batch: Batch) -> None:
    if batch.number in (5, 9, 12):
        kept_by_one_of_a_group(batch)
