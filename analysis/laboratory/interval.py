"""What 95% intervals over prompt groups know of heavy tails, made and marked as in every step of a run."""

import math

from scipy.special import stdtrit

from ratioscope.analysis.laboratory.experiment import Experiment, Guess, Layer, Meter, Picture, Ruler, Slider, Values
from ratioscope.analysis.laboratory.tools import show, uniforms
from ratioscope.analysis.summary.intervals import LEVEL, TWO_SIDED
from ratioscope.analysis.summary.over_run import FEWEST_STEPS, RELYING_STEPS, UNEQUAL_STEPS
from ratioscope.metric import HARMLESS_ERROR, HARMLESS_RATIO, KHAT_LIMIT, MOST_RELIANCE, MOST_SPREAD, Moment

LOGS = 250
DRAWN = 50
"""Logs that are drawn."""
LARGEST = 4
"""Tokens of a group that are drawn one by one, the largest ratios; the others' sum is normal beside them."""
HEAVY = 0.5
"""Share of tokens that have a ratio other than 1, the mean over groups."""
SQUARES_LIMIT = KHAT_LIMIT[Moment.SECOND]
_FINENESS = 200
QUANTILES = [1.959964] + [round(float(stdtrit(_FINENESS / place, TWO_SIDED)), 6) for place in range(1, _FINENESS + 1)]
"""Of t at 1/df = 0, 1/200 ... 1."""


def quantile_t(df: float) -> float:
    """The 97.5% one, between its values at neighbouring degrees of freedom."""
    at = min(_FINENESS / df, _FINENESS - 1e-9)
    low = math.floor(at)
    return QUANTILES[low] + (at - low) * (QUANTILES[low + 1] - QUANTILES[low])


def degrees_of_freedom(sizes: list[float]) -> float:
    """`analysis.summary.intervals.degrees_of_freedom` of one step."""
    tokens = sum(sizes)
    shares = [size / tokens for size in sizes]
    total = sum([w * w for w in shares])
    a0 = 0.0
    a1 = 0.0
    a2 = 0.0
    rest = 0.0
    for w in shares:
        own = 1 - 2 * w + total
        scaled = w * w / own
        a0 = a0 + scaled
        a1 = a1 + scaled * w
        a2 = a2 + scaled * w * w
        rest = rest + scaled * scaled * (own * own - (own - 1) * (own - 1))
    square = total * total * a0 * a0 + 2 * a0 * a2 + 2 * a1 * a1 - 4 * total * a0 * a1 + rest
    return max(math.sqrt((1 / total - 1) * total * total / square), 1.0)


def interval(sums: list[float], sizes: list[float], t: float) -> list[float]:
    """Estimate, standard error and both ends: `analysis.summary.intervals.cluster_intervals` of one step, lowest 0."""
    tokens = sum(sizes)
    theta = sum(sums) / tokens
    squares = 0.0
    for place in range(len(sums)):
        residual = (sums[place] - theta * sizes[place]) / (tokens - sizes[place])
        squares = squares + residual * residual
    error = math.sqrt((len(sums) - 1) / len(sums) * squares)
    half = t * error
    if half == 0 or theta == 0:
        return [theta, error, theta, theta]
    shift = half * half / (2 * theta)
    high = theta + shift + math.sqrt(half * half + shift * shift)
    return [theta, error, theta * theta / high, high]


def of_share(share: float, n: float) -> list[float]:
    """Both ends of Wilson's 95% interval of a share of n."""
    z = QUANTILES[0]
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return [max(middle - half, 0.0), min(middle + half, 1.0)]


def promise(low: float, high: float) -> str:
    """Say how a share of intervals, which is between low and high, compares with the 95% that it should be."""
    if high < LEVEL:
        return "fewer than promised"
    return "more than promised" if low > LEVEL else "as promised"


def khat_limit(tokens: float) -> float:
    """`ratioscope.metric.khat_limit` of squares."""
    return min(SQUARES_LIMIT, (1 - 1 / math.log10(tokens)) / 2)


def truth(k: float) -> list[float]:
    """Exact staleness and χ² of all tokens."""
    floor = 1 - k
    tv = 1 - floor - (floor - floor ** (1 / k)) * k / (1 - k)
    return [HEAVY * tv, HEAVY * k * k / (1 - 2 * k)]


def _without(k: float, times: int) -> float:
    """1 / (1 - times k), for the integral of u^-(times k); at 1 its limit is taken nearby."""
    return 1 / (1 - times * k if abs(1 - times * k) > 1e-9 else 1e-9)


def moments(k: float) -> list[float]:
    """What sums of (ρ - 1)^n need of a tail index: f = 1 - k, powers of f over 1 - n k, and of |ρ - 1| where ρ = 1."""
    f = 1 - k
    even = f ** (1 / k)
    return [
        f,
        f * _without(k, 1),
        f * f * _without(k, 2),
        f * f * f * _without(k, 3),
        f * f * f * f * _without(k, 4),
        even,
        # The integral of 1 - ρ from where ρ is 1: there u^(1 - k) is even / f.
        (1 - even) - f * _without(k, 1) * (1 - even / f),
    ]


def group(k: float, of: list[float], tokens: float, heavy: float, drawn: list[float], at: int) -> list[float]:
    """Sums of |ρ - 1| / 2 and (ρ - 1)² over the tokens of a prompt group, and its largest ratio.

    The largest ratios are drawn one by one; what the other tokens add has a mean and a variance.

    Args:
        of: `moments` of k.
        tokens: of the group.
        heavy: the share of them whose ratio is (1 - k) u^-k, u uniform; 1 for the others.
        drawn: uniform numbers; those from place `at` on are used.
    """
    many = tokens * heavy
    stale = 0.0
    squares = 0.0
    largest = 1.0
    arrived = 0.0
    u = 0.0
    power = 0.0
    for place in range(LARGEST):
        arrived = arrived - math.log(drawn[at + place])
        if arrived < many:
            u = arrived / many
            power = u ** (-k)
            moved = of[0] * power - 1
            stale = stale + (moved if moved > 0 else -moved) / 2
            squares = squares + moved * moved
            if moved + 1 > largest:
                largest = moved + 1
    if arrived < many:
        # Integrals from u to 1 of the powers of the ratio, then of |ρ - 1|, (ρ - 1)² and (ρ - 1)^4.
        one = 1 - u
        first = of[1] * (1 - u * power)
        second = of[2] * (1 - u * power * power)
        third = of[3] * (1 - u * power * power * power)
        fourth = of[4] * (1 - u * power * power * power * power)
        below = of[6] if u < of[5] else one - first
        square = second - 2 * first + one
        away = 2 * below + first - one
        fourth = fourth - 4 * third + 6 * second - 4 * first + one
        z = math.sqrt(-2 * math.log(drawn[at + LARGEST])) * math.cos(2 * math.pi * drawn[at + LARGEST + 1])
        mean = many * away / 2
        variance = many * square / 4 - mean * mean / tokens
        added = mean + math.sqrt(variance if variance > 0 else 0.0) * z
        stale = stale + (added if added > 0 else 0.0)
        mean = many * square
        variance = many * fourth - mean * mean / tokens
        added = mean + math.sqrt(variance if variance > 0 else 0.0) * z
        squares = squares + (added if added > 0 else 0.0)
    return [stale, squares, largest]


def logs(G: float, T: float, k: float, differ: float, unequal: float) -> list[list[list[float]]]:
    """Simulated logs: of each its sizes, sums of staleness and of squares by group, and the largest ratio."""
    groups = int(G)
    each = LARGEST + 5
    drawn = uniforms(LOGS * groups * each, 1)
    of = moments(k)
    found = []
    for log in range(LOGS):
        sizes = []
        stale = []
        squares = []
        largest = 1.0
        for place in range(groups):
            at = (log * groups + place) * each
            size = T
            if unequal > 0:
                # Lognormal with this spread; at least one token.
                z = math.sqrt(-2 * math.log(drawn[at])) * math.cos(2 * math.pi * drawn[at + 1])
                size = T * math.exp(unequal * z - unequal * unequal / 2)
            size = size if size > 1 else 1.0
            heavy = HEAVY * (1 + differ * (2 * drawn[at + 2] - 1))
            one = group(k, of, size, heavy, drawn, at + 3)
            sizes.append(size)
            stale.append(one[0])
            squares.append(one[1])
            if one[2] > largest:
                largest = one[2]
        found.append([sizes, stale, squares, [largest]])
    return found


def compute(k: float, G: float, T: float, differ: float, unequal: float) -> Values:
    """Coverage of the intervals of simulated logs, and how many are marked."""
    of_staleness, of_squares = truth(k)
    effective = 0.0
    stale = []
    squares = []
    relying = []
    unequal_logs = 0
    for sizes, stale_sums, square_sums, largest in logs(G, T, k, differ, unequal):
        t = quantile_t(degrees_of_freedom(sizes))
        tokens = sum(sizes)
        worth = tokens * tokens / sum([size * size for size in sizes])
        effective = effective + worth / LOGS
        stale.append(interval(stale_sums, sizes, t))
        square = interval(square_sums, sizes, t)
        squares.append(square)
        theta, error = square[0], square[1]
        alone = (largest[0] - 1) * (largest[0] - 1) / tokens
        relying.append(largest[0] > HARMLESS_RATIO and alone > MOST_RELIANCE * error)
        if error > HARMLESS_ERROR * theta and error / theta * math.sqrt(max(worth - 1, 0.0)) > MOST_SPREAD:
            unequal_logs = unequal_logs + 1
    marked = sum([1 for one in relying if one])
    by_run = (marked >= FEWEST_STEPS and marked > RELYING_STEPS * LOGS) or (
        unequal_logs >= FEWEST_STEPS and unequal_logs > UNEQUAL_STEPS * LOGS
    )
    holds = [of[2] <= of_squares and of_squares <= of[3] for of in squares]
    # A marked interval is open above: what was not drawn would move it there.
    printed = [
        of[2] <= of_squares and (of_squares <= of[3] or mark or by_run)
        for of, mark in zip(squares, relying)  # noqa: B905
    ]
    stale_holds = [of[2] <= of_staleness and of_staleness <= of[3] for of in stale]
    cover = sum([1 for one in holds if one]) / LOGS
    low, high = of_share(cover, LOGS)
    stale_cover = sum([1 for one in stale_holds if one]) / LOGS
    stale_low, stale_high = of_share(stale_cover, LOGS)
    printed_cover = sum([1 for one in printed if one]) / LOGS
    resting = f"{show(100 * marked / LOGS)}% rest on one ratio"
    if by_run and marked > RELYING_STEPS * LOGS:
        mark = f"{resting}, so all are marked; open above, {show(100 * printed_cover)}% hold."
    elif by_run:
        mark = f"Groups differ too much, so all are marked; open above, {show(100 * printed_cover)}% hold."
    elif marked > 0:
        mark = f"{resting} and are marked; with these open above, {show(100 * printed_cover)}% hold."
    else:
        mark = "No log is marked."
    shown = list(range(DRAWN))
    return {
        "hit_x": [log + 1 for log in shown if holds[log]],
        "hit_low": [squares[log][2] for log in shown if holds[log]],
        "hit_high": [squares[log][3] for log in shown if holds[log]],
        "miss_x": [log + 1 for log in shown if not holds[log]],
        "miss_low": [squares[log][2] for log in shown if not holds[log]],
        "miss_high": [squares[log][3] for log in shown if not holds[log]],
        "marked_x": [log + 1 for log in shown if relying[log]],
        "marked_y": [squares[log][0] for log in shown if relying[log]],
        "stale_hit_x": [log + 1 for log in shown if stale_holds[log]],
        "stale_hit_low": [stale[log][2] for log in shown if stale_holds[log]],
        "stale_hit_high": [stale[log][3] for log in shown if stale_holds[log]],
        "stale_miss_x": [log + 1 for log in shown if not stale_holds[log]],
        "stale_miss_low": [stale[log][2] for log in shown if not stale_holds[log]],
        "stale_miss_high": [stale[log][3] for log in shown if not stale_holds[log]],
        "chi2": of_squares,
        "staleness": of_staleness,
        "cover": cover,
        "low": low,
        "high": high,
        "stale_cover": stale_cover,
        "stale_low": stale_low,
        "stale_high": stale_high,
        "marked": marked / LOGS,
        "printed": printed_cover,
        "effective": effective,
        "limit": khat_limit(G * T),
        "says": f"{show(100 * cover)}% of the intervals of χ² hold the truth: {promise(low, high)}. {mark} "
        + f"Of staleness {show(100 * stale_cover)}% hold: {promise(stale_low, stale_high)}.",
    }


EXPERIMENT = Experiment(
    key="interval",
    claim="An interval knows only what was drawn",
    source="docs/metrics.md, uncertainty; S1 4.2",
    prose=(
        "Half of the tokens have a ratio with tail index k, the others 1. Each of 250 simulated logs gets its interval "
        "as a step of a run does: se by jackknife over G prompt groups, Student's t. From k = ¼ on, squares have no "
        "variance, from ½ on no mean. A log without the largest ratios has a small value and a narrow interval. Truths "
        "are exact, coverage is of the 250 logs."
    ),
    formula=(
        r"\rho = (1-k)\,u^{-k}, \qquad \blue{\chi^2} = \frac12\,\frac{k^2}{1-2k}, \qquad "
        r"\green{\text{interval}} = \big\{x : |x-\hat\chi^2| \le t\,\mathrm{se}\,\sqrt{x/\hat\chi^2}\,\big\}"
    ),
    compute=compute,
    sliders=(
        Slider("k", "k", "tail index of the ratios", 0.02, 0.48, 0.4, step=0.02),
        Slider("G", "G", "prompt groups", 4, 32, 8, step=1, whole=True),
        Slider("T", "T", "tokens of a group, all its responses", 50, 5000, 800, log=True, whole=True),
        Slider("differ", "d", "how far groups differ, 0 to 1", 0, 1, 0.4, step=0.1),
        Slider("unequal", "s", "spread of their sizes", 0, 1.5, 0, step=0.1),
    ),
    numbers=(
        Meter("chi2", "χ², exact", "blue"),
        Meter("cover", "its intervals that hold it", "green", percent=True),
        Meter("low", "95% interval of that share from", percent=True),
        Meter("high", "to", percent=True),
        Meter("marked", "logs that rest on one ratio", "amber", percent=True),
        Meter("printed", "hold, marked ones open above", percent=True),
        Meter("stale_cover", "intervals of staleness that hold", "green", percent=True),
        Meter("stale_low", "95% interval of that share from", percent=True),
        Meter("stale_high", "to", percent=True),
        Meter("effective", "effective groups"),
        Meter("limit", "tail index up to which squares are trusted"),
    ),
    pictures=(
        Picture(
            "χ² of 50 logs",
            Ruler("simulated log", 0, DRAWN + 1),
            Ruler("χ²", log=True),
            (
                Layer("rule", "truth", y="chi2", colour="blue"),
                Layer("spans", "interval holds it", "hit_x", "hit_low", "hit_high", colour="green"),
                Layer("spans", "misses it", "miss_x", "miss_low", "miss_high", colour="vermilion"),
                Layer("dots", "rests on one ratio: marked", "marked_x", "marked_y", colour="amber"),
            ),
        ),
        Picture(
            "Staleness of the same logs",
            Ruler("simulated log", 0, DRAWN + 1),
            Ruler("½ mean |ρ − 1|", 0),
            (
                Layer("rule", "truth", y="staleness", colour="blue"),
                Layer("spans", "interval holds it", "stale_hit_x", "stale_hit_low", "stale_hit_high", colour="green"),
                Layer("spans", "misses it", "stale_miss_x", "stale_miss_low", "stale_miss_high", colour="vermilion"),
            ),
        ),
    ),
    question=Guess(
        "Tail index .4, 8 prompt groups of 800 tokens. How many 95% intervals of χ² hold the truth?",
        ("95%", "about two of three", "nearly none"),
        right=1,
        because="67%. The ratios that carry χ² are rarer than the log is long: most logs lack them and look precise.",
    ),
    tries={
        "light tails": {"k": 0.1, "G": 16},
        "four times the groups": {"G": 32},
        "heavier": {"k": 0.46},
        "groups of unequal size": {"k": 0.1, "differ": 1, "unequal": 1.2},
    },
)
