"""Runs of which nothing bad is true: healthy ones of many shapes, and logs of sick runs that are true.

Of a healthy run no finding and no remark above a notice is right. Of a sick one what is said of the log and of the
engine must be that nothing is wrong with them; where a run falls, that must be said.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tests.cases.case import Case, Register
from tests.cases.faults import REINFORCE, changing, drawn_at, elsewhere, evaluated, rewards_by, sharper, unclipped
from tests.cases.world import (
    Array,
    Call,
    Columns,
    Log,
    Policy,
    Shape,
    compared,
    log_softmax,
    mixed,
    set_advantages,
    share,
    simulate,
)

# Healthy --------------------------------------------------------------------------------------------------------------

Make = Callable[[Shape], Log]


def plain(shape: Shape) -> Log:
    """Nothing but the shape."""
    return simulate(shape)


def uneven_prompts(shape: Shape) -> Log:
    """A third of the prompts is always or never solved."""

    def reward(log: Log) -> Columns:
        dice = share(log.responses["prompt_id"], 21)
        chance = np.where(dice < 0.2, 0.0, np.where(dice < 0.35, 1.0, 0.5))
        return {"reward": (log.rng.random(len(chance)) < chance).astype(float)}

    return simulate(replace(shape, trend=0.0), reward=reward)


def reward_parts(shape: Shape) -> Log:
    """The reward is a sum of a task part and of a small one for the format."""

    def reward(log: Log) -> Columns:
        n = len(log.responses["step"])
        task = (log.rng.random(n) < 0.5).astype(float)
        form = 0.1 * (log.rng.random(n) < 0.9)
        return {"reward": task + form, "reward_task": task, "reward_format": form}

    return simulate(replace(shape, trend=0.0), reward=reward)


def tempered(shape: Shape) -> Log:
    """Sampler and trainer both divide logits by 0.8, and the log says so."""
    log = simulate(shape, draw=drawn_at(0.8), trainer=lambda log, which, logits: logits / 0.8)
    log.responses["temperature"] = np.full(len(log.responses["step"]), 0.8)
    log.manifest["sampler"]["temperature"] = 0.8
    log.manifest["sampled_with"] = "processed"
    return log


def experts(shape: Shape) -> Log:
    """Routing is logged and agrees nearly everywhere; where it does not, the difference is small."""

    def sampler(call: Call, logits: Array) -> Array:
        flipped = share(call.rows, np.full(len(call.rows), call.position), 17) < 0.05
        return logits + 0.03 * flipped[:, None] * call.noise()

    log = simulate(shape, sampler=sampler)
    flipped = share(log.row, log.tokens["position"], 17) < 0.05
    log.tokens["routing_agreement"] = np.where(flipped, 0.9, 1.0)
    return log


def adapters(shape: Shape) -> Log:
    """Two adapters, both served as they are."""

    def setup(responses: Columns) -> None:
        names = np.array(["left", "right"], dtype=object)
        responses["adapter"] = names[(mixed(responses["group_id"], 3) % np.uint64(2)).astype(int)]

    return simulate(shape, setup=setup)


def longer_and_longer(shape: Shape) -> Log:
    """Responses grow by a half and stay below the limit."""
    return simulate(shape, closing=lambda responses: shape.closing * (1 - 0.4 * responses["step"] / shape.steps))


def no_signal_resampled(shape: Shape) -> Log:
    """Groups of equal reward are left out before the loss, counted, and said to be."""
    log = simulate(shape)
    mean = compared(log.responses["reward"], log.responses["group_id"], "group_mean")
    equal = np.bincount(log.responses["group_id"], np.abs(mean))[log.responses["group_id"]] < 1e-9
    log.responses["dropped"] = np.where(equal, "zero signal", None)
    count = np.bincount(log.responses["step"], log.responses["n_tokens"] * equal, shape.steps)
    log.steps["tokens_dropped_no_signal"] = count.astype(int)
    return log.keep(~equal[log.row])


def unscored_evaluation(shape: Shape) -> Log:
    """Accuracy is evaluated every fifth step."""
    log = simulate(shape)
    steps = log.steps["step"]
    log.steps["eval_accuracy"] = np.ma.masked_array(log.steps["eval_accuracy"], steps % 5 != 0)
    return log


def warming_up(shape: Shape) -> Log:
    """The learning rate rises over the first steps and falls by a cosine."""

    def path(policy: Policy) -> None:
        rate = np.minimum(np.arange(len(policy.weights)) / 5, 1)[:, None]
        policy.weights[1:] = np.cumsum(np.diff(policy.weights, axis=0) * rate[1:], axis=0)

    log = simulate(shape, prepare=path)
    log.steps["learning_rate"] = 2e-6 * np.minimum((1 + log.steps["step"]) / 5, 1)
    return log


SETTINGS: tuple[Make, ...] = (
    plain, uneven_prompts, plain, reward_parts, plain, tempered, plain, experts, plain, adapters, plain,
    longer_and_longer, plain, no_signal_resampled, plain, unscored_evaluation, plain, warming_up,
)  # fmt: skip
_SETS = ("all", "prime-rl", "all", "verl", "trl", "all", "no versions", "verl", "with reference", "no groups")
HEALTHY_RUNS = 60


def shapes(count: int) -> list[Shape]:
    """Sizes of 2 to 32 groups, 6 to 900 tokens, 8 to 60 steps, every schedule; the same ones each time."""
    rng = np.random.default_rng(2026)
    found = []
    for at in range(count):
        groups = int(2 ** rng.uniform(1, 5.01))
        graded = bool(rng.random() < 0.3)
        # Two right or wrong answers are equal half of the time: that is worth a warning.
        responses = int(rng.choice((2, 4, 8, 16) if graded else (4, 6, 8, 16)))
        steps = 60 if at % 12 == 7 else int(rng.integers(8, 31))
        longest = int(np.clip(rng.uniform(0.5, 1.5) * 60_000 / (steps * groups * responses), 6, 900))
        found.append(
            Shape(
                600 + at,
                steps=steps,
                groups=groups,
                responses=responses,
                vocabulary=int(rng.choice((12, 24, 48))),
                states=int(rng.choice((400, 1500, 4000))),
                shortest=max(2, longest // 5),
                longest=longest,
                closing=float(min(0.5, 3 / longest)),
                sure=float(rng.choice((0.3, 0.65, 0.85))),
                lag=int(rng.choice((0, 1, 2, 4, 8))),
                schedule=("groups", "sync", "offset", "partial")[at % 4],
                drift=float(rng.choice((0.003, 0.01, 0.03))),
                noise=float(rng.choice((0.0, 0.003, 0.01, 0.03))),
                bias=float(rng.choice((0.0, 0.0, 0.02))),
                prompts=0 if rng.random() < 0.6 else 3 * groups,
                turns=0 if rng.random() < 0.7 else max(4, longest // 4),
                trend=float(rng.choice((0.0, 0.05, 0.1))),
                graded=graded,
                advantage=str(rng.choice(("group_normalised", "group_mean"))),
                environments=("code", "math", "chat")[: int(rng.integers(2, 4))] if rng.random() < 0.25 else (),
            )
        )
    return found


SUSPICIOUS = {
    "small_updates": (
        Shape(660, steps=15, groups=15, responses=4, vocabulary=48, shortest=6, longest=33, closing=0.09, lag=0,
              drift=0.003, noise=0.003, trend=0.05, graded=True),
        "no versions",
    ),
    "repeated_answers": (
        Shape(661, steps=14, groups=29, responses=8, vocabulary=12, states=400, shortest=2, longest=13, closing=0.23,
              drift=0.003, noise=0.003, prompts=87, graded=True),
        "no groups",
    ),
    "floor_of_the_engine": (Shape(662, lag=0, bias=0.1), "verl"),
}  # fmt: skip
"""Shapes that look worse than they are: two that a check took for a broken log, and an engine with a floor."""


def _healthy() -> dict[str, Case]:
    found = {}
    for at, shape in enumerate(shapes(HEALTHY_RUNS)):
        setting = SETTINGS[at % len(SETTINGS)]
        name = f"healthy_{at:02d}_{setting.__name__}"
        columns = (_SETS[at % len(_SETS)],)
        truth = "Nothing is wrong."
        found[name] = Case(name, "healthy", truth, partial(setting, shape), columns=columns)
    for word, (shape, columns_of) in SUSPICIOUS.items():
        name = f"healthy_{word}"
        found[name] = Case(name, "healthy", "Nothing is wrong.", partial(plain, shape), columns=(columns_of,))
    return found


HEALTHY = _healthy()

# Sick, and the log is true --------------------------------------------------------------------------------------------

SICK = Register()

# What is untrue of all of them: the log and the engine are as they should be.
OF_THE_LOG = (r"log is broken|cannot be trusted", r"^remark (warning|critical)")
OF_THE_ENGINE = (r"number format|compare precision|engines? (computes?|differs?|disagrees?)|drew at \d|top-?[pk] ",)
OF_A_COLUMN = (
    OF_THE_LOG[0],
    r"drew at \d|clamped|stands for missing|not the log-probability|shifted|exchanged|\bcop(y|ied)",
)
"""Where a remark may be right that sampler and trainer differ."""
NOTHING_BUT_THE_RUN = OF_THE_LOG + OF_THE_ENGINE
_FALL = r"(reward|accuracy).{0,40}(fell|fallen|falls|falling|dropped|lost)"


def _collapse(shape: Shape, prepare: Any, at: int = 10) -> Log:
    chance = changing(at, 0.6, 0.02, over=5)
    log = simulate(shape, prepare=prepare, reward=rewards_by(chance))
    return evaluated(log, chance(log.steps["step"]))


def _blown_up(factor: float, start: int = 8) -> Callable[[Policy], None]:
    """Weights that grow by a factor a step."""

    def prepare(policy: Policy) -> None:
        grown = np.clip(factor ** np.clip(np.arange(len(policy.weights)) - start, 0, None), 1, 400)
        policy.weights *= grown[:, None]

    return prepare


@SICK("sick but true", "The policy collapsed on its own data; all columns are true.",
      needs=(_FALL,), never=NOTHING_BUT_THE_RUN, columns=("all", "verl"))  # fmt: skip
def collapsed_on_policy() -> Log:
    return _collapse(Shape(701, lag=0, noise=0.003), _blown_up(1.6))


@SICK("sick but true", "The policy collapsed on data up to 15 updates old; all columns are true.",
      needs=(_FALL,), never=NOTHING_BUT_THE_RUN)  # fmt: skip
def collapsed_off_policy() -> Log:
    log = unclipped(_collapse(Shape(702, lag=15, schedule="sync", noise=0.003), _blown_up(1.5)))
    log.manifest["algorithm"] = dict(REINFORCE)
    return log


@SICK("sick but true", "Entropy fell to 0 and most log-probabilities are exactly 0 in float32; the log is true.",
      needs=(_FALL,), never=NOTHING_BUT_THE_RUN, columns=("all", "prime-rl"))  # fmt: skip
def entropy_zero() -> Log:
    return _collapse(Shape(703, lag=1), sharper(changing(4, 0.0, 40.0, over=6)))


@SICK("sick but true", "The policy was certain from the first step on: entropy is 0 and nothing is learned.",
      never=NOTHING_BUT_THE_RUN)  # fmt: skip
def certain_from_the_start() -> Log:
    return simulate(Shape(704, sure=1.0, trend=0.0), prepare=sharper(lambda version: 12.0 + 0 * version))


@SICK("sick but true", "All data is from version 0 and the policy moves far: offline training; the log is true.",
      never=NOTHING_BUT_THE_RUN, columns=("all", "verl"))  # fmt: skip
def offline_and_far() -> Log:
    def setup(responses: Columns) -> None:
        responses["behavior_version_min"] = 0 * responses["step"]

    return simulate(Shape(705, drift=0.15, noise=0.0), setup=setup)


@SICK("sick but true", "Data is twelve updates old and the policy moves fast: large ratios, true ones.",
      never=NOTHING_BUT_THE_RUN)  # fmt: skip
def far_off_policy() -> Log:
    return simulate(Shape(706, lag=12, schedule="offset", drift=0.15))


@SICK("sick but true", "A few demonstrations of an expert are mixed in, with the expert's own probabilities.",
      never=OF_A_COLUMN, columns=("all", "verl"))  # fmt: skip
def experts_in_the_mixture() -> Log:
    def setup(responses: Columns) -> None:
        expert = share(responses["group_id"], responses["seq_id"], 22) < 0.1
        responses["source"] = np.where(expert, "expert", "policy").astype(object)

    def sampler(call: Call, logits: Array) -> Array:
        return np.where((call.of("source") == "expert")[:, None], 0.4 * logits + 0.6 * elsewhere(call, 51), logits)

    return simulate(Shape(707), sampler=sampler, setup=setup)


@SICK("sick but true", "Single tokens inside of responses were dropped before the log: positions have gaps.",
      never=(OF_THE_LOG[0], *OF_THE_ENGINE))  # fmt: skip
def tokens_dropped_inside() -> Log:
    log = simulate(Shape(708))
    return log.keep(log.rng.random(len(log.row)) > 0.08)


@SICK("sick but true", "The sampler mixes in 2% of uniform tokens and logs what it drew from: bounded ratios.",
      never=OF_A_COLUMN, columns=("all", "verl"))  # fmt: skip
def smoothed_sampler() -> Log:
    size = Shape(709).vocabulary
    return simulate(Shape(709), draw=lambda call, logp: np.log(0.98 * np.exp(logp) + 0.02 / size))


@SICK("sick but true", "One prompt group a step: nothing can be said of prompts.", never=NOTHING_BUT_THE_RUN)
def one_group() -> Log:
    return simulate(Shape(710, groups=1, responses=32, steps=30, prompts=1))


@SICK("sick but true", "One group in all: one step.", never=NOTHING_BUT_THE_RUN)
def one_group_in_all() -> Log:
    return simulate(Shape(711, groups=1, responses=16, steps=1, lag=0))


@SICK("sick but true", "Responses are one token long.", never=NOTHING_BUT_THE_RUN, columns=("all", "prime-rl"))
def one_token() -> Log:
    return simulate(Shape(712, shortest=1, longest=1, groups=32, responses=16, sure=0.2, states=300))


@SICK("sick but true", "The learning rate is 0: all versions are the same weights, and columns agree exactly.",
      never=NOTHING_BUT_THE_RUN, columns=("all", "verl"))  # fmt: skip
def learning_rate_zero() -> Log:
    log = simulate(Shape(713, drift=0.0, noise=0.0, trend=0.0))
    log.steps["learning_rate"][:] = 0.0
    return log


@SICK("sick but true", "The engine differs from call to call, by .06 in logits, without a pattern.",
      never=(*OF_A_COLUMN, r"never arriv"), columns=("all", "verl"))  # fmt: skip
def engine_of_each_call() -> Log:
    return simulate(Shape(714, noise=0.06))


@SICK("sick but true", "The reward never rises: the task is too hard, and nearly every response scores 0.",
      never=NOTHING_BUT_THE_RUN)  # fmt: skip
def never_solved() -> Log:
    log = simulate(Shape(715, trend=0.0), reward=rewards_by(lambda step: 0.01 + 0 * step))
    return evaluated(log, np.full(log.shape.steps, 0.01))


@SICK("sick but true", "The run fell in the middle and recovered; at its end nothing is lost.",
      never=(*NOTHING_BUT_THE_RUN, r"(stays|stayed|remains|is) (down|lost)"))  # fmt: skip
def fell_and_recovered() -> Log:
    def chance(step: Any) -> Any:
        return np.where((step >= 9) & (step < 14), 0.1, 0.45 + 0.012 * step)

    def away_and_back(policy: Policy) -> None:
        policy.weights[9:14] += np.array([1.5, -1.5, 1.5, -1.5])

    log = simulate(Shape(716, lag=0), prepare=away_and_back, reward=rewards_by(chance))
    return evaluated(log, chance(log.steps["step"]))


@SICK("sick but true", "Accuracy falls at the end: it is falling now, and the log is true.",
      needs=(_FALL,), never=NOTHING_BUT_THE_RUN)  # fmt: skip
def falling_at_the_end() -> Log:
    return _collapse(Shape(717, lag=1), _blown_up(1.9, start=15), at=18)


@SICK("sick but true", "Rewards are 0 in all steps of a run whose scorer is not there yet: no advantage, no update.",
      never=(OF_THE_LOG[0], *OF_THE_ENGINE))  # fmt: skip
def all_rewards_equal() -> Log:
    log = simulate(Shape(718, drift=0.0, trend=0.0), reward=rewards_by(lambda step: 0.0 * step))
    log.steps["grad_norm"][:] = 0.0
    return evaluated(log, np.full(log.shape.steps, 0.3))


@SICK("sick but true", "Two tokens of a vocabulary of three take turns: entropies are small and values repeat.",
      never=NOTHING_BUT_THE_RUN)  # fmt: skip
def tiny_vocabulary() -> Log:
    return simulate(Shape(719, vocabulary=3, states=40, sure=0.5))


@SICK("sick but true", "Rewards of the heavy tail: one response in a hundred scores 50.",
      never=NOTHING_BUT_THE_RUN)  # fmt: skip
def heavy_rewards() -> Log:
    def reward(log: Log) -> Columns:
        dice = log.rng.random(len(log.responses["step"]))
        return {"reward": np.where(dice < 0.01, 50.0, (dice < 0.5).astype(float))}

    log = simulate(Shape(720, trend=0.0, advantage="group_mean"), reward=reward)
    return set_advantages(log, compared(log.responses["reward"], log.responses["group_id"], "group_mean"))


@SICK("sick but true", "Half of the responses are one token long, the others reach the limit.",
      never=NOTHING_BUT_THE_RUN)  # fmt: skip
def two_lengths() -> Log:
    def setup(responses: Columns) -> None:
        responses["short"] = share(responses["prompt_id"], 23) < 0.5

    def sampler(call: Call, logits: Array) -> Array:
        if call.position:
            return logits
        certain = np.full(logits.shape, -30.0)
        certain[:, 0] = 0.0
        return np.where(call.of("short")[:, None], certain, logits)

    def trainer(log: Log, which: str, logits: Array) -> Array:
        first = (log.tokens["position"] == 0) & log.of_token("short")
        certain = np.full(logits.shape, -30.0)
        certain[:, 0] = 0.0
        return np.where(first[:, None], certain, log_softmax(logits))

    log = simulate(Shape(721, closing=0.0), sampler=sampler, trainer=trainer, setup=setup)
    del log.responses["short"]
    return log
