"""True gains of updates against what a sample and the bounds say of them, on random problems (S0 1.1 to 3.2, S1 5.3).

A problem has three states with two actions; a policy is its probability of the second action by state. The data are
one update old: sampler, current and new policy are each a share u of another policy apart.
"""

import math

from ratioscope.analysis.laboratory.experiment import Experiment, Guess, Layer, Meter, Picture, Ruler, Slider, Values
from ratioscope.analysis.laboratory.tools import average, geometric_steps, in_percent, normals, show, uniforms

STATES = 3
PROBLEMS = 100


def problem(number: int, coin: bool) -> list[list[list[float]]]:
    """What follows (by state, action, next state), rewards (by state, action), and in a last list two policies.

    Args:
        coin: rewards are flips of a fair coin everywhere, so that all policies are worth the same.
    """
    drawn = uniforms(40, 100 + number)
    found = []
    for state in range(STATES):
        for action in range(2):
            place = 2 * STATES * state + STATES * action
            parts = [-math.log(value) for value in drawn[place : place + STATES]]
            found.append([[part / sum(parts) for part in parts], [0.5 if coin else drawn[18 + 2 * state + action]]])
    sampler = [0.1 + 0.8 * value for value in drawn[24:27]]
    other = [1.0 if value < 0.5 else 0.0 for value in drawn[27:30]]
    found.append([sampler, other])
    return found


def solved(matrix: list[list[float]], right: list[float]) -> list[float]:
    """The solution of a small system of equations, by Gauss; both are used up."""
    for column in range(STATES):
        for row in range(column + 1, STATES):
            factor = matrix[row][column] / matrix[column][column]
            for place in range(column, STATES):
                matrix[row][place] = matrix[row][place] - factor * matrix[column][place]
            right[row] = right[row] - factor * right[column]
    found = [0.0] * STATES
    for back in range(STATES):
        row = STATES - 1 - back
        left = right[row]
        for place in range(row + 1, STATES):
            left = left - matrix[row][place] * found[place]
        found[row] = left / matrix[row][row]
    return found


def flow(of: list[list[list[float]]], policy: list[float], gamma: float, back: bool) -> list[list[float]]:
    """The identity less γ times the chances of the next state; transposed for occupancies."""
    found = [[0.0] * STATES for _ in range(STATES)]
    for s in range(STATES):
        for t in range(STATES):
            chance = (1 - policy[s]) * of[2 * s][0][t] + policy[s] * of[2 * s + 1][0][t]
            entry = (1.0 if s == t else 0.0) - gamma * chance
            if back:
                found[t][s] = entry
            else:
                found[s][t] = entry
    return found


def values(of: list[list[list[float]]], policy: list[float], gamma: float) -> list[float]:
    """V of every state."""
    rewards = [(1 - policy[s]) * of[2 * s][1][0] + policy[s] * of[2 * s + 1][1][0] for s in range(STATES)]
    return solved(flow(of, policy, gamma, False), rewards)


def advantages(of: list[list[list[float]]], policy: list[float], gamma: float) -> list[list[float]]:
    """A of every state and action."""
    value = values(of, policy, gamma)
    found = []
    for s in range(STATES):
        both = []
        for a in range(2):
            after = sum([of[2 * s + a][0][t] * value[t] for t in range(STATES)])
            both.append(of[2 * s + a][1][0] + gamma * after - value[s])
        found.append(both)
    return found


def visits(of: list[list[list[float]]], policy: list[float], gamma: float) -> list[float]:
    """The discounted share of the time in every state, from a uniform start."""
    return solved(flow(of, policy, gamma, True), [(1 - gamma) / STATES] * STATES)


def mixed(policy: list[float], other: list[float], share: float) -> list[float]:
    """A share of another policy in a policy."""
    return [(1 - share) * policy[s] + share * other[s] for s in range(STATES)]


def expected(policy: list[float], of: list[list[float]]) -> list[float]:
    """The expectation under a policy, by state."""
    return [(1 - policy[s]) * of[s][0] + policy[s] * of[s][1] for s in range(STATES)]


def distance(weights: list[float], one: list[float], other: list[float]) -> float:
    """The mean total variation of two policies."""
    return sum([weights[s] * abs(one[s] - other[s]) for s in range(STATES)])


def greedy(by: list[list[float]]) -> list[float]:
    """The policy with the larger value of each state."""
    return [1.0 if both[1] > both[0] else 0.0 for both in by]


def judged(number: int, u: float, gamma: float) -> list[float]:
    """An update with exact advantages: the error of the surrogate ÷ the penalty of three bounds, then the last bound.

    In order: S0 Theorem 1.1, S0 Corollary 3.2, the discounted form of S1 5.3; gain that Corollary 3.2 guarantees, and
    its penalty.
    """
    of = problem(number, False)
    sampler = of[2 * STATES][0]
    current = mixed(sampler, of[2 * STATES][1], u)
    by = advantages(of, sampler, gamma)
    new = mixed(current, greedy(by), u)
    seen = visits(of, sampler, gamma)
    gains = expected(new, by)
    surrogate = sum([seen[s] * gains[s] for s in range(STATES)]) / (1 - gamma)
    worth = average(values(of, new, gamma))
    largest = max([abs(gain) for gain in gains])
    horizon = 2 * gamma * largest / (1 - gamma) ** 2
    first = horizon * distance(seen, new, sampler)
    own = max([max(abs(both[0]), abs(both[1])) for both in advantages(of, current, gamma)])
    update = distance(seen, new, current)
    stale = distance(seen, current, sampler)
    penalty = horizon * update + (horizon + 2 * own / (1 - gamma)) * stale
    bounded = max([max(abs(both[0]), abs(both[1])) for both in by])
    furthest = max([abs(new[s] - sampler[s]) for s in range(STATES)])
    trust = 4 * gamma * bounded * furthest * furthest / (1 - gamma) ** 2
    error = abs(worth - average(values(of, sampler, gamma)) - surrogate)
    whole = abs(worth - average(values(of, current, gamma)) - surrogate)
    return [error / first, whole / penalty, error / trust, surrogate - penalty, penalty]


def tried(number: int, coin: bool, N: float, u: float, gamma: float) -> list[float]:
    """What N tokens promise of the update that is fitted to them, and its true gain, both against the current policy.

    An estimated advantage is the exact one with the noise of coins that are flipped at every token.
    """
    of = problem(number, coin)
    sampler = of[2 * STATES][0]
    current = mixed(sampler, of[2 * STATES][1], u)
    by = advantages(of, sampler, gamma)
    seen = visits(of, sampler, gamma)
    drawn = normals(2 * STATES, 1000 + number)
    spread = 0.5 / math.sqrt(1 - gamma * gamma)
    for s in range(STATES):
        for a in range(2):
            count = N * seen[s] * (sampler[s] if a == 1 else 1 - sampler[s])
            by[s][a] = by[s][a] + spread / math.sqrt(count) * drawn[2 * s + a]
    new = mixed(current, greedy(by), u)
    before = expected(current, by)
    after = expected(new, by)
    promised = sum([seen[s] * (after[s] - before[s]) for s in range(STATES)]) / (1 - gamma)
    return [promised, average(values(of, new, gamma)) - average(values(of, current, gamma))]


def _median(given: list[float]) -> float:
    ordered = sorted(given)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 == 1 else (ordered[half - 1] + ordered[half]) / 2


def compute(coin: float, N: float, u: float, gamma: float) -> Values:
    """Promised and true gains of a hundred problems, and how tight three bounds are by horizon."""
    flips = coin > 0.5
    found = [tried(number, flips, N, u, gamma) for number in range(PROBLEMS)]
    promised = [each[0] for each in found]
    gained = [each[1] if abs(each[1]) > 1e-12 else 0.0 for each in found]
    bounds = [judged(number, u, gamma) for number in range(PROBLEMS)]
    here = 1 / (1 - gamma)
    others = [horizon for horizon in geometric_steps(1.25, 100.0, 6) if abs(math.log(horizon / here)) > 0.2]
    horizons = sorted([*others, here])
    by_horizon = [
        bounds if horizon == here else [judged(number, u, 1 - 1 / horizon) for number in range(PROBLEMS)]
        for horizon in horizons
    ]
    seems = sum([1 for value in promised if value > 0]) / PROBLEMS
    gains = sum([1 for value in gained if value > 0]) / PROBLEMS
    certified = 0.0 if flips else sum([1 for each in bounds if each[3] > 0]) / PROBLEMS
    vacuous = sum([1 for each in bounds if each[4] > 1 / (1 - gamma)]) / PROBLEMS
    middle = _median(promised)
    true_middle = _median(gained)
    top = max(max(promised), max(gained))
    best = max([each[1] for each in bounds])
    says = f"{in_percent(seems)} of the updates gain on their own batch, {in_percent(gains)} truly do. "
    if flips:
        says = says + f"The rewards are coin flips: the median promise of {show(middle, 2)} is noise that was fitted."
    else:
        says = says + f"The median promise is {show(middle, 2)}, the median true gain {show(true_middle, 2)}. "
        says = says + f"Even of exact gains Corollary 3.2 certifies {in_percent(certified)}: its penalty is at least "
        says = says + f"{show(1 / best, 2)} times the error that it covers."
    return {
        "promised": promised,
        "gained": gained,
        "line": [0.0, top],
        "top": 1.05 * top,
        "bottom": min(min(gained), -0.05 * top) * 1.2,
        "zero": 0.0,
        "seems": seems,
        "gains": gains,
        "median_promised": middle,
        "median_gained": true_middle,
        "certified": certified,
        "vacuous": vacuous,
        "median_1": _median([each[0] for each in bounds]),
        "best_1": max([each[0] for each in bounds]),
        "median_2": _median([each[1] for each in bounds]),
        "best_2": best,
        "median_3": _median([each[2] for each in bounds]),
        "best_3": max([each[2] for each in bounds]),
        "horizons": horizons,
        "medians_1": [_median([each[0] for each in row]) for row in by_horizon],
        "bests_1": [max([each[0] for each in row]) for row in by_horizon],
        "medians_2": [_median([each[1] for each in row]) for row in by_horizon],
        "bests_2": [max([each[1] for each in row]) for row in by_horizon],
        "medians_3": [_median([each[2] for each in row]) for row in by_horizon],
        "bests_3": [max([each[2] for each in row]) for row in by_horizon],
        "horizon": here,
        "one": 1.0,
        "says": says,
    }


EXPERIMENT = Experiment(
    key="improvement",
    claim="Every update gains on its own batch; bounds confirm almost none",
    source="S0 Theorem 1.1 to Corollary 3.2, S1 5.3",
    prose=(
        "A hundred random problems, each solved exactly. Data are one update old; an update takes a share u of the "
        "policy that looks best on N tokens. Those same tokens then promise a gain L. The bounds subtract penalties "
        "from L that hold for every problem: they grow with the square of the horizon 1/(1−γ), true errors do not. "
        "Penalties are computed with real rewards and without noise."
    ),
    formula=(
        r"\begin{aligned}J(\pi_{k+1})-J(\beta)&\ge L-\blue{\tfrac{2\gamma C}{(1-\gamma)^2}\,\mathbb{E}\,"
        r"\mathrm{TV}(\pi_{k+1},\beta)}\\J(\pi_{k+1})-J(\pi_k)&\ge L-\green{\tfrac{2\gamma C}{(1-\gamma)^2}\,U-"
        r"\left(\tfrac{2\gamma C}{(1-\gamma)^2}+\tfrac{2\lVert A\rVert_\infty}{1-\gamma}\right)S}\end{aligned}"
    ),
    compute=compute,
    sliders=(
        Slider("coin", "r", "rewards", 0, 1, 0, options=("real, with noise", "flips of a coin: nothing to learn")),
        Slider("N", "N", "tokens of the batch", 10, 100_000, 100, log=True, whole=True),
        Slider("u", "u", "share of an update", 0.001, 0.9, 0.1, log=True),
        Slider("gamma", "γ", "discount", 0.1, 0.99, 0.9, step=0.01),
    ),
    numbers=(
        Meter("seems", "updates that gain on their batch", "vermilion", percent=True),
        Meter("gains", "updates that truly gain", percent=True),
        Meter("median_promised", "promised gain, median", "vermilion"),
        Meter("median_gained", "true gain, median"),
        Meter("certified", "certified by Corollary 3.2", "green", percent=True),
        Meter("vacuous", "its penalty above any gain", "green", percent=True),
        Meter("median_1", "Theorem 1.1: error ÷ penalty, median", "blue"),
        Meter("best_1", "Theorem 1.1: in the tightest problem", "blue"),
        Meter("median_2", "Corollary 3.2: median", "green"),
        Meter("best_2", "Corollary 3.2: tightest", "green"),
        Meter("median_3", "S1 5.3 (TRPO): median", "purple"),
        Meter("best_3", "S1 5.3 (TRPO): tightest", "purple"),
    ),
    pictures=(
        Picture(
            "What the batch promises, and what comes",
            Ruler("promised gain, in-sample", 0, "top"),
            Ruler("true gain", "bottom", "top"),
            (
                Layer("line", "promise = truth", "line", "line", colour="grey", dashed=True),
                Layer("rule", "", y="zero", colour="grey"),
                Layer("dots", "a problem", "promised", "gained", colour="vermilion"),
            ),
        ),
        Picture(
            "How tight the bounds are: medians, and dashed the tightest problem",
            Ruler("horizon, 1/(1−γ)", 1.25, 100, log=True),
            Ruler("error ÷ penalty", 1e-5, 2, log=True),
            (
                Layer("rule", "", y="one", colour="grey"),
                Layer("rule", "", x="horizon", colour="grey"),
                Layer("line", "Theorem 1.1", "horizons", "medians_1", colour="blue"),
                Layer("line", "", "horizons", "bests_1", colour="blue", dashed=True),
                Layer("line", "Corollary 3.2", "horizons", "medians_2", colour="green"),
                Layer("line", "", "horizons", "bests_2", colour="green", dashed=True),
                Layer("line", "S1 5.3 (TRPO)", "horizons", "medians_3", colour="purple"),
                Layer("line", "", "horizons", "bests_3", colour="purple", dashed=True),
            ),
        ),
    ),
    question=Guess(
        "How many of the 100 updates gain on the batch that they were fitted to? And if rewards were flips of a coin?",
        ("87, as many as truly gain, and none", "all 100, and about 50", "all 100, and all 100"),
        right=2,
        because="An update moves to what looked best in the batch, and on that batch it did look best.",
    ),
    tries={
        "coin flips": {"coin": 1},
        "a hundred times more data": {"N": 10_000},
        "a short horizon, a small step": {"gamma": 0.1, "u": 0.01},
        "a long horizon": {"gamma": 0.99},
    },
)
