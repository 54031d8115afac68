"""A softmax policy over three arms trained on data of another policy, which may end at the wrong arm (S3 section 3).

Everything is exact, in the limit of many responses. The algorithms are those of S3 section 4 with its numbers.
"""

import math

from ratioscope.analysis.laboratory.experiment import Experiment, Guess, Layer, Meter, Picture, Ruler, Slider, Values
from ratioscope.analysis.laboratory.tools import across, capped_exp, in_percent, show, upwards

ALGORITHMS = (
    "reinforce",
    "rec_oneside_nois",
    "rec_oneside_nois",
    "opmd",
    "asymre",
    "red_drop",
    "red_weight",
)
"""Names in the trainer, in the order of the page's choice."""
NAMES = ("REINFORCE", "clip, ε = .2", "clip, ε = .6 and 2", "OPMD, τ = .1", "AsymRE, shift .1", "RED-Drop",
         "RED-Weight, τ = 1")  # fmt: skip
TAU = 0.1
SHIFT = 0.1
RATE = 1.0
STEPS = 800
_FEWEST = 0.002
"""Of an arm at the start: a softmax has no policy without one."""
_GRID = 11
_ARROW = 0.055


def push(algorithm: float, data: list[float], log_ratio: list[float], rewards: list[float]) -> list[float]:
    """What each arm's ∇ log π_θ is multiplied with in the mean over the data: probability there times coefficient."""
    average = sum([data[arm] * rewards[arm] for arm in range(3)])
    advantage = [reward - average for reward in rewards]
    if algorithm == 1 or algorithm == 2:
        low = math.log(0.8) if algorithm == 1 else math.log(0.4)
        high = math.log(1.2) if algorithm == 1 else math.log(3)
        kept = [
            0.0
            if (advantage[arm] > 0 and log_ratio[arm] > high) or (advantage[arm] < 0 and log_ratio[arm] < low)
            else 1.0
            for arm in range(3)
        ]
        return [data[arm] * advantage[arm] * kept[arm] for arm in range(3)]
    if algorithm == 3:
        return [data[arm] * (advantage[arm] - TAU * log_ratio[arm]) for arm in range(3)]
    if algorithm == 4:
        return [data[arm] * (advantage[arm] + SHIFT) for arm in range(3)]
    if algorithm == 5:
        above = sum([data[arm] if advantage[arm] > 0 else 0.0 for arm in range(3)])
        below = sum([data[arm] if advantage[arm] < 0 else 0.0 for arm in range(3)])
        share = above / below if above > 0 and below > above else 1.0
        left = [data[arm] * (share if advantage[arm] < 0 else 1.0) for arm in range(3)]
        total = sum(left)
        mean_left = sum([left[arm] * rewards[arm] for arm in range(3)]) / total
        return [left[arm] * (rewards[arm] - mean_left) / total for arm in range(3)]
    if algorithm == 6:
        return [data[arm] * capped_exp(advantage[arm]) * advantage[arm] for arm in range(3)]
    return [data[arm] * advantage[arm] for arm in range(3)]


def gradient(algorithm: float, data: list[float], log_policy: list[float], rewards: list[float]) -> list[float]:
    """Of the three logits, as K, the number of responses, goes to infinity."""
    log_ratio = [log_policy[arm] - math.log(max(data[arm], 1e-300)) for arm in range(3)]
    pushes = push(algorithm, data, log_ratio, rewards)
    total = sum(pushes)
    return [pushes[arm] - total * capped_exp(log_policy[arm]) for arm in range(3)]


def log_softmax(logits: list[float]) -> list[float]:
    """Logarithms of the probabilities."""
    largest = max(logits)
    total = largest + math.log(sum([capped_exp(logit - largest) for logit in logits]))
    return [logit - total for logit in logits]


def start(second: float, third: float) -> list[float]:
    """The policy that made the data, with a little of every arm."""
    last = min(third, 1 - second)
    found = [max(share, _FEWEST) for share in [1 - second - last, second, last]]
    total = sum(found)
    return [share / total for share in found]


def course(algorithm: float, m: float, rewards: list[float], data: list[float]) -> list[list[float]]:
    """The policy after each gradient step; every m steps it makes new data, with m = STEPS never."""
    logits = [math.log(share) for share in data]
    found = [data]
    for step in range(STEPS):
        log_policy = log_softmax(logits)
        if step > 0 and step % int(m) == 0:
            data = [capped_exp(value) for value in log_policy]
        moved = gradient(algorithm, data, log_policy, rewards)
        logits = [log_policy[arm] + RATE * moved[arm] for arm in range(3)]
        found.append([capped_exp(value) for value in log_softmax(logits)])
    return found


def arrows(algorithm: float, data: list[float], rewards: list[float]) -> list[list[float]]:
    """Where the gradient moves policies of a grid: a point and where it goes, in turn; no arrow where there is none."""
    found = []
    for second in range(1, _GRID):
        for third in range(1, _GRID - second):
            policy = [(_GRID - second - third) / _GRID, second / _GRID, third / _GRID]
            slope = gradient(algorithm, data, [math.log(share) for share in policy], rewards)
            average = sum([policy[arm] * slope[arm] for arm in range(3)])
            moved = [policy[arm] * (slope[arm] - average) for arm in range(3)]
            size = math.sqrt(sum([part * part for part in moved]))
            if size > 1e-5:
                found.append(policy)
                found.append([policy[arm] + _ARROW * moved[arm] / size for arm in range(3)])
    return found


def compute(algorithm: float, m: float, step: float, r2: float, second: float, third: float) -> Values:
    """The path of the policy, the arrows of its present data, and what the arms get."""
    rewards = [0.0, r2, 1.0]
    first = start(second, third)
    path = course(algorithm, m, rewards, first)
    now = int(step)
    fresh = [path[at] for at in range(0, now + 1, int(m)) if at < STEPS]
    data = fresh[-1]
    field = arrows(algorithm, data, rewards)
    policy = path[now]
    end = path[STEPS]
    pushes = gradient(algorithm, first, [math.log(share) for share in first], rewards)
    before = sum([first[arm] * rewards[arm] for arm in range(3)])
    earned = sum([policy[arm] * rewards[arm] for arm in range(3)])
    likeliest = 0
    for arm in range(3):
        if end[arm] > end[likeliest]:
            likeliest = arm
    if end[likeliest] < 0.9:
        late = path[STEPS - STEPS // 4]
        rests = max([abs(end[arm] - late[arm]) for arm in range(3)]) < 0.01
        moves = "at rest" if rests else "still moving"
        verdict = f"By step {STEPS} arm {likeliest + 1} has {in_percent(end[likeliest])}, {moves}"
    elif likeliest == 2:
        verdict = f"By step {STEPS} the best arm has {in_percent(end[2])}"
    else:
        verdict = f"By step {STEPS} arm {likeliest + 1} has {in_percent(end[likeliest])}, the wrong one"
    often = "every step" if m < 2 else f"every {show(m)} steps"
    source = "on the first data only" if m >= STEPS else f"with new data {often}"
    return {
        "steps": [1.0 * at for at in range(0, STEPS + 1, 4)],
        "one": [path[at][0] for at in range(0, STEPS + 1, 4)],
        "two": [path[at][1] for at in range(0, STEPS + 1, 4)],
        "three": [path[at][2] for at in range(0, STEPS + 1, 4)],
        "step": step,
        "field_x": across(field),
        "field_y": upwards(field),
        "path_x": across(path[: now + 1]),
        "path_y": upwards(path[: now + 1]),
        "rest_x": across(path[now:]),
        "rest_y": upwards(path[now:]),
        "fresh_x": across(fresh[1:]) if m >= 10 else [],
        "fresh_y": upwards(fresh[1:]) if m >= 10 else [],
        "data_x": across([first]),
        "data_y": upwards([first]),
        "data_name": ["first data"],
        "policy_x": across([policy]),
        "policy_y": upwards([policy]),
        "policy_name": ["π_θ"] if now > 0 else [],
        "mean": before,
        "g1": pushes[0],
        "g2": pushes[1],
        "g3": pushes[2],
        "p1": policy[0],
        "p2": policy[1],
        "p3": policy[2],
        "earned": earned,
        "end": end,
        "says": f"{NAMES[int(algorithm)]} {source}: mean reward {show(before)} before, "
        + f"{show(earned)} at step {show(step)}. {verdict}.",
    }


EXPERIMENT = Experiment(
    key="wrong_arm",
    claim="REINFORCE on old data converges to the wrong arm",
    source="S3 section 3",
    prose=(
        "Three arms pay 0, r₂ and 1. A policy learns from data of π_b. REINFORCE pushes an arm by its probability in "
        "the data times its advantage, whatever the policy has become. So a frequent good arm beats a rare better one. "
        "Clip, regularisation and new data change that. Drag π_b, the first data."
    ),
    formula=(
        r"g_j = \pi_b(a_j)\,(r_j - \mu_r), \qquad \mu_r = \sum_j \pi_b(a_j)\, r_j, \qquad "
        r"\vermilion{g_2} > \blue{g_3} \;\Rightarrow\; \vermilion{\pi_\theta(a_2)} \to 1"
    ),
    compute=compute,
    sliders=(
        Slider("algorithm", "", "Algorithm", 0, 6, 0, options=NAMES),
        Slider("m", "m", f"steps between new data; {STEPS}: never", 1, STEPS, STEPS, log=True, whole=True),
        Slider("step", "", "gradient step", 0, STEPS, 40, step=8, whole=True, plays=True),
        Slider("r2", "r₂", "reward of arm 2", 0, 0.95, 0.8, step=0.05),
        Slider("second", "π_b(a₂)", "arm 2 in the first data", 0, 1, 0.6, step=0.01, folded=True),
        Slider("third", "π_b(a₃)", "arm 3 in the first data", 0, 1, 0.1, step=0.01, folded=True),
    ),
    numbers=(
        Meter("mean", "mean reward of the data, μ_r"),
        Meter("g1", "first gradient, arm 1", "grey"),
        Meter("g2", "arm 2", "vermilion"),
        Meter("g3", "arm 3", "blue"),
        Meter("p1", "probability now, arm 1", "grey", percent=True),
        Meter("p2", "arm 2", "vermilion", percent=True),
        Meter("p3", "arm 3", "blue", percent=True),
        Meter("earned", "mean reward now"),
    ),
    pictures=(
        Picture(
            "Where the gradient moves a policy",
            Ruler("arm 2"),
            Ruler("arm 3"),
            (
                Layer("arrows", "gradient on the present data", "field_x", "field_y", colour="grey"),
                Layer("line", "path", "path_x", "path_y", colour="violet"),
                Layer("line", "still to come", "rest_x", "rest_y", colour="violet", dashed=True),
                Layer("dots", "new data", "fresh_x", "fresh_y", colour="amber"),
                Layer("dots", "", "policy_x", "policy_y", colour="violet", labels="policy_name"),
                Layer("dots", "", "data_x", "data_y", colour="amber", labels="data_name", moves=("second", "third")),
            ),
            corners=("arm 1 pays 0", "arm 2 pays r₂", "arm 3 pays 1"),
        ),
        Picture(
            "Probability of the arms",
            Ruler("gradient step", 0, STEPS),
            Ruler("probability", 0, 1),
            (
                Layer("line", "arm 1", "steps", "one", colour="grey"),
                Layer("line", "arm 2", "steps", "two", colour="vermilion"),
                Layer("line", "arm 3, the best", "steps", "three", colour="blue"),
                Layer("rule", "", x="step", colour="grey"),
            ),
        ),
    ),
    question=Guess(
        "The arms pay 0, .8 and 1; the data have 30%, 60% and 10% of them. Where does REINFORCE end on these data?",
        ("arm 3, which pays most", "arm 2, which the data have most", "at a mixture like the data"),
        right=1,
        because="The push on arm 2 is .6 × .22 = .132, that on arm 3 only .1 × .42 = .042, in every step. Of random "
        "bandits with three arms one in six ends at a wrong arm.",
    ),
    tries={
        "new data every 10 steps": {"m": 10, "step": 200},
        "every 100 steps": {"m": 100, "step": 400},
        "every 100 steps, clipped": {"algorithm": 1, "m": 100, "step": 400},
        "clip on old data": {"algorithm": 1, "step": 400},
        "OPMD on old data": {"algorithm": 3, "step": 400},
    },
)  # fmt: skip
