"""What bias and variance of a gradient cost a step, where both are known exactly: the terms of the SGA lemma (S1 2).

A response has 16 tokens, each a one with probability p, the sigmoid of the policy's only parameter. It is rewarded
where it has neither too few nor too many ones. The data's parameter is δ lower at every update.
"""

import math

from ratioscope.analysis.laboratory.experiment import Experiment, Guess, Layer, Meter, Picture, Ruler, Slider, Values
from ratioscope.analysis.laboratory.tools import average, capped_exp, geometric_steps, show, uniforms

TOKENS = 16
FEWEST = 10
MOST = 13
"""Ones with which a response is rewarded."""
START = 0.0
"""The parameter at first: p = .5."""
OPTIMUM = 0.96606
"""The parameter at which J is largest."""
SMOOTHNESS = 1.589
"""L: the largest |J''| over all parameters, rounded up."""
CAP = 5.0
FURTHEST = 12.0
"""The parameter is kept within ±12, where a step by one huge weight would leave it."""
BATCHES = 100
PARTS = 64
PROBED = 8
UPDATES = 60
LAST = 20
"""Updates over which the J of a course's end is averaged."""


def _p(theta: float) -> float:
    return 1 / (1 + capped_exp(-theta))


def counts(p: float) -> list[float]:
    """Probability of 0, 1, ... 16 ones."""
    found = [(1 - p) ** TOKENS]
    for k in range(1, TOKENS + 1):
        found.append(found[-1] * p / (1 - p) * (TOKENS - k + 1) / k)
    return found


def success(theta: float) -> float:
    """J."""
    return sum(counts(_p(theta))[FEWEST : MOST + 1])


def estimates(way: float, theta: float, delta: float) -> list[float]:
    """The gradient by one response with 0, 1, ... 16 ones.

    Args:
        way: 0: weights of whole responses, 1: the same, capped, 2: token weights, 3: none.
    """
    p = _p(theta)
    q = _p(theta - delta)
    rewarded = success(theta - delta)
    found = []
    for k in range(TOKENS + 1):
        advantage = (1.0 if k >= FEWEST and k <= MOST else 0.0) - rewarded
        weight = (p / q) ** k * ((1 - p) / (1 - q)) ** (TOKENS - k)
        score = k - TOKENS * p
        if way == 0:
            found.append(weight * advantage * score)
        elif way == 1:
            found.append(min(weight, CAP) * advantage * score)
        elif way == 2:
            found.append(advantage * (k * p / q * (1 - p) - (TOKENS - k) * (1 - p) / (1 - q) * p))
        else:
            found.append(advantage * score)
    return found


def moments(way: float, theta: float, delta: float) -> list[float]:
    """∇J, the mean of the estimate by one response, and its variance."""
    p = _p(theta)
    drawn = counts(_p(theta - delta))
    found = estimates(way, theta, delta)
    first = sum([drawn[k] * found[k] for k in range(TOKENS + 1)])
    second = sum([drawn[k] * found[k] * found[k] for k in range(TOKENS + 1)])
    own = counts(p)
    slope = sum([own[k] * (k - TOKENS * p) for k in range(FEWEST, MOST + 1)])
    return [slope, first, max(second - first * first, 0.0)]


def lemma(eta: float, slope: float, bias: float, variance: float) -> list[float]:
    """A, B and C of the SGA lemma; the variance is that of the batch's gradient."""
    return [
        eta * (1 - SMOOTHNESS * eta / 2) * slope * slope,
        eta * (1 - SMOOTHNESS * eta) * slope * bias,
        SMOOTHNESS * eta * eta / 2 * (variance + bias * bias),
    ]


def _sampler(likely: list[float]) -> list[list[float]]:
    """What `_batch` looks up: the probability of at most k ones, and where to begin for a part of the numbers to 1."""
    below = []
    total = 0.0
    for chance in likely:
        total = total + chance
        below.append(total)
    below[TOKENS] = 1.0
    starts = []
    k = 0
    for part in range(PARTS):
        while below[k] < part / PARTS:
            k = k + 1
        starts.append(float(k))
    return [below, starts]


def _batch(table: list[float], sampler: list[list[float]], drawn: list[float], first: int, N: int) -> float:
    """The mean gradient of N responses by uniform numbers, of which it takes those from `first` on."""
    below = sampler[0]
    starts = sampler[1]
    total = 0.0
    for place in range(first, first + N):
        number = drawn[place]
        k = int(starts[int(number * PARTS)])
        while below[k] < number:
            k = k + 1
        total = total + table[k]
    return total / N


def _moved(theta: float, by: float) -> float:
    return max(-FURTHEST, min(FURTHEST, theta + by))


def courses(way: float, delta: float, N: int, eta: float) -> list[list[float]]:
    """J after every update of some simulated courses, and at last of one without noise."""
    found = []
    for course in range(3):
        drawn = uniforms(UPDATES * N, 10 + course)
        theta = START
        reached = [success(theta)]
        for update in range(UPDATES):
            sampler = _sampler(counts(_p(theta - delta)))
            theta = _moved(theta, eta * _batch(estimates(way, theta, delta), sampler, drawn, update * N, N))
            reached.append(success(theta))
        found.append(reached)
    theta = START
    reached = [success(theta)]
    for _ in range(UPDATES):
        theta = _moved(theta, eta * moments(way, theta, delta)[1])
        reached.append(success(theta))
    found.append(reached)
    return found


def compute(way: float, delta: float, N: float, eta: float) -> Values:
    """The terms at the first update, exactly and by simulated batches, and where the updates lead."""
    slope, first, variance = moments(way, START, delta)
    bias = first - slope if abs(first - slope) > 1e-12 else 0.0
    noise = variance / N
    best = slope * first / (SMOOTHNESS * (first * first + noise))
    critical = variance / (first * first)
    rates = geometric_steps(0.01, 10.0, 61)
    terms = [lemma(rate, slope, bias, noise) for rate in rates]
    A, B, C = lemma(eta, slope, bias, noise)
    before = success(START)
    drawn = uniforms(BATCHES * int(N), 5)
    table = estimates(way, START, delta)
    sampler = _sampler(counts(_p(START - delta)))
    batches = [_batch(table, sampler, drawn, batch * int(N), int(N)) for batch in range(BATCHES)]
    seen = [success(_moved(START, eta * step)) - before for step in batches]
    tried = geometric_steps(0.01, 10.0, 21)
    centre = average(batches[:PROBED])
    courses_drawn = courses(way, delta, int(N), eta)
    ends = [average(reached[-LAST:]) for reached in courses_drawn[:3]]
    worth = 2 * slope * first / (SMOOTHNESS * eta) - first * first
    says = f"At η = {show(eta)}, A + B − C is {show(A + B - C, 2)}. "
    if A + B > C:
        says = says + f"Noise takes {show(100 * SMOOTHNESS * eta * eta / 2 * noise / (A + B), 2)}% of A + B. "
    elif worth > 0:
        says = (
            says + f"No gain is promised: that takes η below {show(2 * best)}, or {show(math.ceil(variance / worth))} "
        )
        says = says + f"responses instead of {show(N)}. "
    else:
        widest = 2 * slope / (SMOOTHNESS * first)
        says = says + f"No batch is large enough: even without noise η must be below {show(widest)}. "
    says = says + f"Three courses end with J from {show(min(ends), 2)} to {show(max(ends), 2)}, one without noise with "
    says = says + f"{show(average(courses_drawn[3][-LAST:]), 2)}; the optimum is {show(success(OPTIMUM), 2)}."
    return {
        "rates": rates,
        "As": [term[0] for term in terms],
        "Bs": [term[1] for term in terms],
        "Cs": [-term[2] for term in terms],
        "sums": [term[0] + term[1] - term[2] for term in terms],
        "tried": tried,
        "progress": [average([success(_moved(START, rate * step)) for step in batches]) - before for rate in tried],
        "eta": eta,
        "best": best,
        "zero": 0.0,
        "optimum": success(OPTIMUM),
        "gradient": slope,
        "bias": bias,
        "variance": noise,
        "probe": sum([(step - centre) ** 2 for step in batches[:PROBED]]) / (PROBED - 1),
        "critical": critical,
        "A": A,
        "B": B,
        "C": -C,
        "promised": A + B - C,
        "seen": average(seen),
        "updates": [float(update) for update in range(UPDATES + 1)],
        "one": courses_drawn[0],
        "two": courses_drawn[1],
        "three": courses_drawn[2],
        "noiseless": courses_drawn[3],
        "says": says,
    }


EXPERIMENT = Experiment(
    key="noise",
    claim="Noise stops you where the batch is too small, bias at any batch",
    source="S1 2, 3.2",
    prose=(
        "A response of 16 tokens is rewarded where 10 to 13 are ones. The policy has one parameter, its logit of a "
        "one; the data come from a policy δ behind. Gradient, bias and variance of one response are exact, and "
        "A + B − C bounds what a step gains. N responses divide the variance by N; C grows with the square of η."
    ),
    formula=(
        r"\mathbb{E}J(\theta+\eta\hat g)-J(\theta)\;\ge\;"
        r"\underbrace{\blue{\eta\left(1-\tfrac{L\eta}{2}\right)\lVert\nabla J\rVert^2}}_{A}"
        r"+\underbrace{\violet{\eta(1-L\eta)\langle\nabla J,\mathrm{Bias}\rangle}}_{B}"
        r"-\underbrace{\vermilion{\tfrac{L\eta^2}{2}\left(\tfrac{\mathrm{Var}}{N}+\lVert\mathrm{Bias}\rVert^2\right)}}_{C}"
    ),
    compute=compute,
    sliders=(
        Slider(
            "way",
            "ĝ",
            "how the data are weighted",
            0,
            3,
            0,
            options=("weights of whole responses", "the same, capped at 5", "token weights", "no weights"),
        ),
        Slider("delta", "δ", "how far the data are behind, in logits", 0, 1, 0.5, step=0.05),
        Slider("N", "N", "responses of a batch", 1, 256, 8, log=True, whole=True),
        Slider("eta", "η", "learning rate of the plain step", 0.01, 10, 1, log=True),
    ),
    numbers=(
        Meter("gradient", "∇J"),
        Meter("bias", "Bias", "violet"),
        Meter("variance", "Var / N"),
        Meter("probe", f"Var / N, by a probe of {PROBED} batches"),
        Meter("A", "A, true progress", "blue"),
        Meter("B", "B, bias", "violet"),
        Meter("C", "−C, noise", "vermilion"),
        Meter("promised", "A + B − C, promised", "green"),
        Meter("seen", f"gain in {BATCHES} simulated batches", "amber"),
        Meter("best", "η*, where the promise is largest", "green"),
        Meter("critical", "N at which noise halves η*"),
    ),
    pictures=(
        Picture(
            "One step: what each term gives and takes",
            Ruler("learning rate, η", 0.01, 10, log=True),
            Ruler("gain of J", -0.5, 0.5),
            (
                Layer("rule", "", y="zero", colour="grey"),
                Layer("line", "A", "rates", "As", colour="blue"),
                Layer("line", "B", "rates", "Bs", colour="violet"),
                Layer("line", "−C", "rates", "Cs", colour="vermilion"),
                Layer("line", "A + B − C", "rates", "sums", colour="green"),
                Layer("dots", "simulated", "tried", "progress", colour="amber"),
                Layer("rule", "", x="eta", colour="grey"),
                Layer("rule", "", x="best", colour="green"),
            ),
        ),
        Picture(
            f"{UPDATES} steps with this batch and learning rate",
            Ruler("update, k", 0, UPDATES),
            Ruler("J", 0, 0.8),
            (
                Layer("rule", "", y="optimum", colour="grey"),
                Layer("line", "three simulated courses", "updates", "one", colour="amber"),
                Layer("line", "", "updates", "two", colour="amber"),
                Layer("line", "", "updates", "three", colour="amber"),
                Layer("line", "without noise", "updates", "noiseless", colour="violet", dashed=True),
            ),
        ),
    ),
    question=Guess(
        "On-policy, noise halves the best learning rate η* where a batch has 2 responses. At which N does it, half a "
        "logit behind, with weights of whole responses?",
        ("about 4", "about 40", "about 400"),
        right=1,
        because="The variance of one response is 41 times the squared gradient, and N divides it.",
    ),
    tries={
        "a smaller step": {"eta": 0.1},
        "a larger batch": {"N": 128},
        "token weights: biased": {"way": 2, "N": 128},
        "on-policy": {"delta": 0},
        "on-policy, small step": {"delta": 0, "eta": 0.1},
    },
)
