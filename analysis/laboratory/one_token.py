"""What each algorithm's objective and gradient make of one token whose data are old (S0 5.3 to 5.5, S3 figure 8).

The formulas are those of `ratioscope.rules` and of the trainer, in plain numbers; a test holds them equal.
"""

import math

from ratioscope.analysis.laboratory.experiment import Experiment, Guess, Layer, Meter, Picture, Ruler, Slider, Values
from ratioscope.analysis.laboratory.tools import average, capped_exp, geometric_steps, normals, show, steps, uniforms

ALGORITHMS = (
    "reinforce",
    "rec_oneside_is",
    "rec_oneside_nois",
    "rec_twoside_is",
    "rec_ring_is",
    "adaptive_clip",
    "incremental_clip",
    "token_tis",
    "sapo",
)
"""Names in the trainer, in the order of the page's choice."""

NAMES = ("REINFORCE", "PPO clip", "clip without weight", "two-sided mask", "ring", "adaptive clip", "incremental clip",
         "truncated weight", "soft gate")  # fmt: skip
OUTER_LOW = 0.6
OUTER_HIGH = 2.0
CAP = 2.0
TAU_POSITIVE = 1.0
TAU_NEGATIVE = 1.05
PASSES = 4
"""Gradient steps of an update; then π_k is what π_θ has become."""
RATE = 0.3
"""Of the token's logit."""
STEPS = 20
_VOCABULARY = 200
_TOKENS = 1000
_CELLS = 32
_FEWEST_NATS = 1e-4
"""Below it the largest weights agree to within rounding."""


def kept(algorithm: float, rho_k: float, rho: float, sign: float, epsilon: float) -> float:
    """The gate: the share of the token's gradient that is kept."""
    above = rho > 1 + epsilon
    below = rho < 1 - epsilon
    if algorithm == 1 or algorithm == 2:
        stopped = above if sign > 0 else below
    elif algorithm == 3:
        stopped = above or below
    elif algorithm == 4:
        back = rho <= 1 - OUTER_LOW if sign > 0 else rho >= 1 + OUTER_HIGH
        stopped = (above or below) and not back
    elif algorithm == 5:
        stopped = rho - rho_k > epsilon if sign > 0 else rho - rho_k < -epsilon
    elif algorithm == 6:
        stopped = rho / rho_k - 1 > epsilon if sign > 0 else rho / rho_k - 1 < -epsilon
    else:
        stopped = False
    if algorithm == 8:
        tau = TAU_POSITIVE if sign > 0 else TAU_NEGATIVE
        tanh = math.tanh(tau * (rho - 1) / 2)
        return 1 - tanh * tanh
    return 0.0 if stopped else 1.0


def weight(algorithm: float, rho: float) -> float:
    """The importance weight."""
    if algorithm == 0 or algorithm == 2:
        return 1.0
    return min(rho, CAP) if algorithm == 7 else rho


def gradient(algorithm: float, rho_k: float, rho: float, sign: float, epsilon: float) -> float:
    """The factor of ∇ log π_θ, for an advantage of 1 or -1."""
    return sign * weight(algorithm, rho) * kept(algorithm, rho_k, rho, sign, epsilon)


def objective(algorithm: float, rho_k: float, rho: float, sign: float, epsilon: float, log_pi: float) -> float:
    """What is printed as the token's part of the objective, whose derivative the gradient is.

    A clip prints its bound where it stops, a mask 0; weights that are constants have the logarithm of π_θ.
    """
    if algorithm == 0 or algorithm == 2 or algorithm == 7:
        return gradient(algorithm, rho_k, rho, sign, epsilon) * log_pi
    if algorithm == 8:
        tau = TAU_POSITIVE if sign > 0 else TAU_NEGATIVE
        return sign * 4 / tau / (1 + capped_exp(-tau * (rho - 1)))
    value = rho
    if kept(algorithm, rho_k, rho, sign, epsilon) == 0:
        if algorithm == 1:
            value = 1 + sign * epsilon
        elif algorithm == 5:
            value = rho_k + sign * epsilon
        elif algorithm == 6:
            value = rho_k * (1 + sign * epsilon)
        else:
            value = 0.0
    return sign * value


def course(algorithm: float, pi_k: float, rho_k: float, sign: float, epsilon: float) -> list[float]:
    """The token's ratio over the steps of gradient descent on its logit; the data stay, π_k is renewed."""
    data = pi_k / rho_k
    logit = math.log(pi_k / (1 - pi_k))
    rho = rho_k
    anchor = rho_k
    found = [rho]
    for step in range(STEPS):
        if step % PASSES == 0:
            anchor = rho
        logit = logit + RATE * gradient(algorithm, anchor, rho, sign, epsilon) * (1 - rho * data)
        logit = min(max(logit, -40.0), 36.0)
        rho = 1 / (1 + capped_exp(-logit)) / data
        found.append(rho)
    return found


def khat(weights: list[float]) -> float:
    """Tail index of the largest weights (Zhang and Stephens 2009), as `ratioscope.tails` has it; nan without one."""
    ordered = sorted(weights)
    size = math.ceil(min(len(weights) / 5, 3 * math.sqrt(len(weights))))
    cut_off = ordered[len(weights) - size - 1]
    tail = ordered[len(weights) - size :]
    quartile = int(size / 4 + 0.5) - 1
    if math.log(tail[-1] / cut_off) < _FEWEST_NATS or tail[quartile] <= cut_off:
        return math.nan
    excess = [(value - cut_off) / tail[-1] for value in tail]
    points = 30 + int(math.sqrt(size))
    grid = [
        1 / excess[-1] + (1 - math.sqrt(points / (place + 0.5))) / (3 * excess[quartile]) for place in range(points)
    ]
    likelihood = []
    for at in grid:
        shape = average([math.log(1 - at * value) for value in excess])
        likelihood.append(size * (math.log(-at / shape) - shape - 1))
    largest = max(likelihood)
    total = sum([capped_exp(value - largest) for value in likelihood])
    inverse = sum([grid[place] * capped_exp(likelihood[place] - largest) for place in range(points)]) / total
    there = average([math.log1p(-inverse * value) for value in excess])
    return (size * there + 5) / (size + 10)


def softmax(logits: list[float]) -> list[float]:
    """Probabilities from logits."""
    largest = max(logits)
    found = [capped_exp(logit - largest) for logit in logits]
    total = sum(found)
    return [value / total for value in found]


def batch(rho_k: float, rho: float) -> list[list[float]]:
    """Ratios of drawn tokens under π_k and π_θ.

    Both policies are softmaxes that moved in one direction from the one that sampled, by the logarithms of the ratios
    of a token one standard deviation along.
    """
    logits = normals(_VOCABULARY, 3)
    direction = normals(_VOCABULARY, 4)
    data = softmax([2 * logit for logit in logits])
    current = softmax([2 * logits[k] + math.log(rho_k) * direction[k] for k in range(_VOCABULARY)])
    new = softmax([2 * logits[k] + math.log(rho) * direction[k] for k in range(_VOCABULARY)])
    below = [0.0]
    for share in data:
        below.append(below[-1] + share)
    found = []
    for drawn in uniforms(_TOKENS, 5):
        low = 0
        high = _VOCABULARY - 1
        while low < high:
            middle = (low + high) // 2
            if below[middle + 1] < drawn:
                low = middle + 1
            else:
                high = middle
        found.append([current[low] / data[low], new[low] / data[low]])
    return found


def compute(algorithm: float, A: float, rho_k: float, rho: float, epsilon: float, pi_k: float) -> Values:
    """Objective and gradient at the token, over all ratios, over the next steps, and of a batch like it."""
    sign = 1.0 if A < 0.5 else -1.0
    now = max(rho_k, pi_k)
    data = pi_k / now
    new = min(rho, 0.999 / data)
    low = min(0.05, min(now, new))
    high = max(20.0, max(now, new))
    grid = geometric_steps(low, high, _CELLS)
    cells = []
    for up in grid:
        for right in grid:
            factor = gradient(algorithm, right, up, sign, epsilon)
            cells.append(min(max(factor, -2.0), 2.0))
    end = min(max(2.5, max(2 * now, new)), 1 / data)
    along = steps(end / 200, end, 200)
    drawn = batch(now, new)
    clipped = average([1.0 - kept(algorithm, one[0], one[1], sign, epsilon) for one in drawn])
    first = average([one[1] for one in drawn])
    second = average([one[1] * one[1] for one in drawn])
    here = gradient(algorithm, now, new, sign, epsilon)
    share = kept(algorithm, now, new, sign, epsilon)
    name = NAMES[int(algorithm)]
    move = f"{show(now)} → {show(new)}" if now != new else f"{show(now)}, not moved yet"
    verdict = "stops the token" if share == 0 else f"gives the gradient factor {show(here)}"
    limits = (
        f"The gradient stops once π has moved by {show(epsilon * pi_k)} (incremental clip) "
        + f"or {show(epsilon * data)} (adaptive)."
    )
    short = ""
    if now != rho_k:
        short = f" ρ_k is at least π_k = {show(pi_k)}, as a probability is at most 1."
    elif new != rho:
        short = f" ρ is at most {show(0.999 / data)}, as a probability is at most 1."
    factors = [gradient(place, now, new, sign, epsilon) for place in range(len(NAMES))]
    courses = [[max(value, 1e-6) for value in course(place, pi_k, now, sign, epsilon)] for place in [0, 1, 5, 6]]
    return {
        "along": along,
        "objectives": [objective(algorithm, now, at, sign, epsilon, math.log(at * data)) for at in along],
        "gradients": [gradient(algorithm, now, at, sign, epsilon) for at in along],
        "end": end,
        "low": low,
        "high": high,
        "cells": cells,
        "columns": _CELLS,
        "diagonal": [low, high],
        "rho_k": now,
        "at_x": [now],
        "at_y": [new],
        "objective_here": [objective(algorithm, now, new, sign, epsilon, math.log(new * data))],
        "gradient_here": [here],
        "steps": [1.0 * step for step in range(STEPS + 1)],
        "course_reinforce": courses[0],
        "course_ppo": courses[1],
        "course_adaptive": courses[2],
        "course_incremental": courses[3],
        "reinforce": factors[0],
        "ppo": factors[1],
        "no_weight": factors[2],
        "two_side": factors[3],
        "ring": factors[4],
        "adaptive": factors[5],
        "incremental": factors[6],
        "tis": factors[7],
        "soft": factors[8],
        "room_adaptive": epsilon,
        "room_incremental": epsilon * now,
        "change_adaptive": epsilon * data,
        "change_incremental": epsilon * pi_k,
        "staleness": average([abs(one[0] - 1) for one in drawn]) / 2,
        "update": average([abs(one[1] - one[0]) for one in drawn]) / 2,
        "ess": first * first / second,
        "clipped": clipped,
        "khat": khat([one[1] for one in drawn]),
        "says": f"Ratio {move}: {name} {verdict}. {limits}{short}",
    }


EXPERIMENT = Experiment(
    key="one_token",
    claim="A clip around 1 stops old tokens before they have moved",
    source="S0 5.3 to 5.5, S3 figure 8",
    prose=(
        "One token, sampled by an old policy. The current policy π_k makes it ρ_k times as likely, the policy in "
        "training ρ times. PPO's clip looks at ρ against 1, so age alone can stop a token. Clips centred at ρ_k "
        "limit the step instead: all by the same ε (adaptive), or in proportion to ρ_k (incremental). Drag the dots."
    ),
    formula=(
        r"\blue{L} = \min\big(\rho A,\; \mathrm{clip}(\rho,\, c - w,\, c + w)\, A\big), \quad (c, w) = "
        r"\violet{(1, \varepsilon)_{\text{PPO}}},\; \green{(\rho_k, \varepsilon)_{\text{adaptive}}},\; "
        r"\amber{(\rho_k, \varepsilon\rho_k)_{\text{incremental}}}"
    ),
    compute=compute,
    sliders=(
        Slider("algorithm", "", "Algorithm", 0, 8, 1, options=NAMES),
        Slider("A", "A", "advantage", 0, 1, 0, options=("above 0", "below 0")),
        Slider("rho_k", "ρ_k", "π_k to the data's policy", 1e-5, 100, 5, log=True),
        Slider("rho", "ρ", "π_θ to the data's policy", 1e-5, 100, 5, log=True),
        Slider("epsilon", "ε", "half-width of the clip", 0.05, 0.6, 0.2, step=0.05),
        Slider("pi_k", "π_k", "probability of the token now", 1e-6, 0.5, 0.02, log=True, folded=True),
    ),
    numbers=(
        Meter("reinforce", "Gradient factor: REINFORCE", "grey"),
        Meter("ppo", "PPO and GRPO, one-sided clip", "violet"),
        Meter("no_weight", "the same without weight"),
        Meter("two_side", "two-sided mask"),
        Meter("ring", "ring, .6 and 2"),
        Meter("adaptive", "adaptive clip", "green"),
        Meter("incremental", "incremental clip", "amber"),
        Meter("tis", "weight truncated at 2"),
        Meter("soft", "soft gate (SAPO)"),
        Meter("room_adaptive", "Room of ρ around ρ_k: adaptive ±", "green"),
        Meter("room_incremental", "incremental ±", "amber"),
        Meter("staleness", "1,000 such tokens: staleness S_k"),
        Meter("update", "update U_k"),
        Meter("ess", "effective sample", percent=True),
        Meter("clipped", "stopped by the chosen gate", percent=True),
        Meter("khat", "tail index k̂", undefined=True),
    ),
    pictures=(
        Picture(
            "Objective and gradient of the chosen algorithm",
            Ruler("ratio to the data's policy, ρ", 0, "end"),
            Ruler("of one token"),
            (
                Layer("rule", "", x="rho_k", colour="grey"),
                Layer("line", "objective L", "along", "objectives", colour="blue"),
                Layer("line", "factor of ∇ log π_θ", "along", "gradients", colour="vermilion", dashed=True),
                Layer("dots", "", "at_y", "objective_here", colour="blue"),
                Layer("dots", "", "at_y", "gradient_here", colour="vermilion", moves=("rho", "")),
            ),
        ),
        Picture(
            "Where the chosen algorithm gives a gradient",
            Ruler("before the update, ρ_k", "low", "high", log=True),
            Ruler("now, ρ", "low", "high", log=True),
            (
                Layer("map", "factor of ∇ log π_θ", "cells", "cells", other="columns", centre=0),
                Layer("line", "not moved yet, ρ = ρ_k", "diagonal", "diagonal", colour="grey", dashed=True),
                Layer("dots", "", "at_x", "at_y", colour="vermilion", moves=("rho_k", "rho")),
            ),
        ),
        Picture(
            "The next 20 steps on the same token; a large weight leaps over its clip",
            Ruler("gradient step; an update has four", 0, STEPS),
            Ruler("ratio to the data's policy, ρ", log=True),
            (
                Layer("line", "REINFORCE", "steps", "course_reinforce", colour="grey"),
                Layer("line", "PPO", "steps", "course_ppo", colour="violet"),
                Layer("line", "adaptive", "steps", "course_adaptive", colour="green"),
                Layer("line", "incremental", "steps", "course_incremental", colour="amber", dashed=True),
            ),
        ),
    ),
    question=Guess(
        "π_k makes a token 5 times likelier than the policy that sampled it. A > 0, and the update has not begun. "
        "What does PPO with ε = .2 learn from it?",
        ("5 times as much as from a new token", "1.2 times as much", "nothing"),
        right=2,
        because="5 is outside of [.8, 1.2]. Around ρ_k there is room: ±.2 for the adaptive clip, ±1 for the other.",
    ),
    tries={
        "the same, adaptive": {"algorithm": 5},
        "rare now, common in the data": {"algorithm": 6, "rho_k": 1e-5, "rho": 1e-5, "pi_k": 1e-6},
        "REINFORCE on an old mistake": {"algorithm": 0, "A": 1, "rho_k": 0.5, "rho": 0.5},
        "an old mistake that came back": {"algorithm": 4, "A": 1},
    },
)  # fmt: skip
