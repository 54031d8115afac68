"""Importance weights of whole responses, whose noise grows exponentially with length (S4 4.1.2, S1 7)."""

import math

from ratioscope.analysis.laboratory.experiment import Experiment, Guess, Layer, Meter, Picture, Ruler, Slider, Values
from ratioscope.analysis.laboratory.tools import capped_exp, show, uniforms

LENGTHS = [1, 2, 3, 5, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256]
P = 0.5
CAP = 5.0


def chi_square(q: float, length: float) -> float:
    """Exact, of whole responses: every token is right with probability .5 in the data, with q under the new policy."""
    return (q * q / P + (1 - q) * (1 - q) / (1 - P)) ** length - 1


def _log_choose(length: int) -> list[float]:
    """Logarithm of the number of ways to place k right tokens, k from 0."""
    found = [0.0]
    for k in range(1, length + 1):
        found.append(found[-1] + math.log((length - k + 1) / k))
    return found


def _ordered(count: int) -> list[float]:
    """Uniform numbers in ascending order: sums of exponential gaps over their total."""
    total = 0.0
    found = []
    for drawn in uniforms(count + 1, 1):
        total = total - math.log(drawn)
        found.append(total)
    return [value / total for value in found[:count]]


def _below(ordered: list[float], bound: float) -> int:
    """How many are below a bound."""
    low = 0
    high = len(ordered)
    while low < high:
        middle = (low + high) // 2
        if ordered[middle] < bound:
            low = middle + 1
        else:
            high = middle
    return low


def _drawn(q: float, length: int, ordered: list[float]) -> list[tuple[float, int]]:
    """The weights of drawn responses and how often each was drawn, the smallest weight of q > .5 first."""
    choose = _log_choose(length)
    found = []
    below = 0.0
    seen = 0
    for k in range(length + 1):
        below = below + capped_exp(choose[k] + k * math.log(P) + (length - k) * math.log(1 - P))
        until = len(ordered) if k == length else _below(ordered, below)
        if until > seen:
            found.append((capped_exp(k * math.log(q / P) + (length - k) * math.log((1 - q) / (1 - P))), until - seen))
            seen = until
    return found


def errors(q: float, length: int) -> list[float]:
    """Bias and standard deviation of four estimates of the gain, of one response.

    A response is right where three of four tokens are. The gain is the difference of being right between the policies.
    In order: weights of whole responses, capped ones, their geometric mean over tokens, and the sum of token weights.
    """
    choose = _log_choose(length)
    one = math.log(q / P)
    none = math.log((1 - q) / (1 - P))
    behavior = [capped_exp(choose[k] + k * math.log(P) + (length - k) * math.log(1 - P)) for k in range(length + 1)]
    weights = [capped_exp(k * one + (length - k) * none) for k in range(length + 1)]
    right = [1.0 if 4 * k >= 3 * length else 0.0 for k in range(length + 1)]
    before = sum([behavior[k] * right[k] for k in range(length + 1)])
    gain = sum([behavior[k] * weights[k] * right[k] for k in range(length + 1)]) - before
    found = []
    for way in range(4):
        first = 0.0
        second = 0.0
        for k in range(length + 1):
            if way == 0:
                weight = weights[k] - 1
            elif way == 1:
                weight = min(weights[k], CAP) - 1
            elif way == 2:
                weight = capped_exp((k * one + (length - k) * none) / length) - 1
            else:
                weight = k * (q / P - 1) + (length - k) * ((1 - q) / (1 - P) - 1)
            said = weight * (right[k] - before)
            first = first + behavior[k] * said
            second = second + behavior[k] * said * said
        found.append(first - gain)
        found.append(math.sqrt(max(second - first * first, 0.0)))
    return found


def compute(q: float, T: float, N: float) -> Values:
    """Exact values by length, and what drawn responses would have said."""
    length = int(T)
    ordered = _ordered(int(N))
    exact = chi_square(q, T)
    said = 0.0
    low = 0.0
    high = 0.0
    effective = 0.0
    sampled = []
    for at in [*LENGTHS, length]:
        drawn = _drawn(q, at, ordered)
        first = sum([weight * count for weight, count in drawn]) / N
        relative = [(weight / first, count) for weight, count in drawn]
        second = sum([weight * weight * count for weight, count in relative]) / N
        if at == length:
            said = second - 1
            spread = sum([(w * w - 2 * second * w + second) ** 2 * count for w, count in relative]) / N
            low = max(said - 1.96 * math.sqrt(spread / N), 0.0)
            high = said + 1.96 * math.sqrt(spread / N)
            effective = N / second
        sampled.append(max(second - 1, 1e-3))
    ways = [errors(q, at) for at in LENGTHS]
    missed = [[max(math.sqrt(w[2 * i] ** 2 + w[2 * i + 1] ** 2 / N), 1e-4) for w in ways] for i in range(4)]
    if exact > 2 * high:
        verdict = f"{show(exact / max(said, 1e-9), 2)} times too little (interval up to {show(high)})"
    elif exact > high or exact < low:
        verdict = "outside of its own interval"
    else:
        verdict = "near enough: the interval has the truth in it"
    return {
        "lengths": LENGTHS,
        "exact": [max(chi_square(q, at), 1e-3) for at in LENGTHS],
        "sampled": sampled[: len(LENGTHS)],
        "T": T,
        "chi2": exact,
        "said": said,
        "said_low": low,
        "said_high": high,
        "ess": effective,
        "whole": missed[0],
        "capped": missed[1],
        "geometric": missed[2],
        "token": missed[3],
        "says": f"With T = {show(T)}, χ² is {show(exact)}. These {show(N)} responses say {show(said)}, {verdict}. "
        + f"They count like {show(effective)} of the new policy's own.",
    }


EXPERIMENT = Experiment(
    key="importance_weights",
    claim="Importance weights of long responses stop meaning anything",
    source="S4 4.1.2, S1 7",
    prose=(
        "Every token is right with probability .5 in the data, and with probability q under the new policy. The weight "
        "of a response is the product of its token ratios, so its χ² grows as a power of the length. A sample cannot "
        "show it: the few responses that carry the weight are not among those that were drawn."
    ),
    formula=r"\blue{\chi^2} = \left(\frac{q^2}{p} + \frac{(1-q)^2}{1-p}\right)^{T} - 1, \qquad p = \tfrac12",
    compute=compute,
    sliders=(
        Slider("q", "q", "probability of the right token under the new policy", 0.5, 0.99, 0.9, step=0.01),
        Slider("T", "T", "tokens of a response", 1, 256, 32, log=True, whole=True),
        Slider("N", "N", "responses drawn from the data's policy", 10, 100_000, 1000, log=True, whole=True),
    ),
    numbers=(
        Meter("chi2", "χ², exact", "blue"),
        Meter("said", "χ², as the sample has it", "vermilion"),
        Meter("said_low", "its 95% interval from", "vermilion"),
        Meter("said_high", "to", "vermilion"),
        Meter("ess", "effective responses"),
    ),
    pictures=(
        Picture(
            "Noise of the weights",
            Ruler("tokens of a response, T", 1, 256, log=True),
            Ruler("χ²", 1e-2, 1e12, log=True),
            (
                Layer("line", "exact", "lengths", "exact", colour="blue"),
                Layer("dots", "of the sample", "lengths", "sampled", colour="vermilion"),
                Layer("rule", "", x="T", colour="grey"),
            ),
        ),
        Picture(
            "Error of four estimates of the gain",
            Ruler("tokens of a response, T", 1, 256, log=True),
            Ruler("root mean square error", 1e-3, 1e3, log=True),
            (
                Layer("line", "whole responses", "lengths", "whole", colour="blue"),
                Layer("line", "capped at 5", "lengths", "capped", colour="amber"),
                Layer("line", "geometric mean", "lengths", "geometric", colour="green"),
                Layer("line", "sum over tokens", "lengths", "token", colour="purple"),
                Layer("rule", "", x="T", colour="grey"),
            ),
        ),
    ),
    question=Guess(
        "With q = .9 and 1,000 responses, up to which length has the interval of χ² the truth in it?",
        ("about 8 tokens", "about 32 tokens", "about 128 tokens"),
        right=0,
        because="Beyond it the responses that carry the weight are rarer than one in a thousand.",
    ),
    tries={
        "a small step": {"q": 0.55, "T": 256},
        "ten tokens": {"T": 10},
        "a hundred times more data": {"N": 100_000},
    },
)
