"""Two sources of mismatch, the sampler's engine and the age of the data, and which columns tell them apart (S0 7)."""

import math

from ratioscope.analysis.laboratory.experiment import Experiment, Guess, Layer, Meter, Picture, Ruler, Slider, Values
from ratioscope.analysis.laboratory.tools import in_percent, show, steps

AGES = [[0, 0], [0, 3], [0, 19], [10, 10], [10, 29]]
"""Youngest and oldest version lag, in updates; all between are as frequent."""
TWO, VERSION, THREE = 0, 1, 2
"""Places of what is logged."""
RADIUS = 3.841459
"""Of a 95% region in squared standard errors: each of its shadows is a 95% interval."""
TOLD_APART = 0.2
"""Width of the interval of a share below which the sentence calls it known."""


def total_variation(spread: float) -> float:
    """Of two policies whose log ratio is normal with this standard deviation and whose mean ratio is 1: erf(s / √8)."""
    x = spread / math.sqrt(8)
    found = 0.0
    term = x
    for n in range(40):
        found = found + term / (2 * n + 1)
        term = -term * x * x / (n + 1)
    return 2 / math.sqrt(math.pi) * found


def information(engine: float, age: float, lags: list[int], N: float, columns: int) -> list[float]:
    """What N tokens know of both variances: the matrix [[a, b], [b, c]] as a, b, c.

    Args:
        engine, age: variances of the log ratio by the engine, and by age in the mean over the lags.
        lags: of the tokens, as many of each.
        columns: what is logged: the sampler and the current policy; also the version; also the trainer's own
            log-probability under the version that sampled.
    """
    mean = sum(lags) / len(lags)
    each = N / len(lags)
    of = [engine + (age * lag / mean if mean > 0 else 0.0) for lag in lags]
    if columns == TWO:
        # Of the squares of all tokens, whose spread differs by age.
        square = 3 * sum([v * v for v in of]) / len(of) - (engine + age) * (engine + age)
        return [N / square, N / square, N / square]
    if columns == THREE:
        old = sum([each for lag in lags if lag > 0])
        return [N / (2 * engine * engine), 0.0, old / (2 * age * age) if age > 0 else 0.0]
    found = [0.0, 0.0, 0.0]
    for place in range(len(lags)):
        weight = each / (2 * of[place] * of[place])
        relative = lags[place] / mean if mean > 0 else 0.0
        found = [found[0] + weight, found[1] + weight * relative, found[2] + weight * relative * relative]
    return found


def _room(share: float, true_share: float, total: float, of: list[float]) -> float:
    """How far inside of the region a share of the engine is, at the total that fits it best; negative outside."""
    other = 1 - share
    along = of[0] * share * share + 2 * of[1] * share * other + of[2] * other * other
    beside = (of[0] * of[2] - of[1] * of[1]) * total * total * (share - true_share) * (share - true_share)
    return RADIUS * along - (beside if beside > 0 else 0.0)


def _end(true_share: float, end: float, total: float, of: list[float]) -> float:
    """Where the interval of the share ends, from the truth towards 0 or 1."""
    inside = true_share
    for step in range(1, 101):
        at = true_share + (end - true_share) * step / 100
        if _room(at, true_share, total, of) < 0:
            outside = at
            for _ in range(40):
                middle = (inside + outside) / 2
                if _room(middle, true_share, total, of) < 0:
                    outside = middle
                else:
                    inside = middle
            return inside
        inside = at
    return end


def known_share(engine: float, age: float, lags: list[int], N: float, columns: int) -> list[float]:
    """The 95% interval of the engine's share of the variance, as N tokens give it in the mean."""
    if columns != TWO and lags[-1] == 0:
        return [1.0, 1.0]
    of = information(engine, age, lags, N, columns)
    total = engine + age
    return [_end(engine / total, 0.0, total, of), _end(engine / total, 1.0, total, of)]


def compute(s: float, d: float, ages: float, N: float, columns: float) -> Values:
    """Both parts as they are, and what a log with these columns can say of them."""
    youngest, oldest = AGES[int(ages)]
    lags = list(range(youngest, oldest + 1))
    logged = int(columns)
    mean_lag = sum(lags) / len(lags)
    engine = s * s
    age = d * d * mean_lag
    total = engine + age
    share = engine / total
    low, high = known_share(engine, age, lags, N, logged)
    of = information(engine, age, lags, N, logged)
    region_x = []
    region_y = []
    if high > low:
        inner_x = []
        inner_y = []
        for at in steps(low, high, 81):
            other = 1 - at
            along = of[0] * at * at + 2 * of[1] * at * other + of[2] * other * other
            towards = at * (of[0] * engine + of[1] * age) + other * (of[1] * engine + of[2] * age)
            half = math.sqrt(max(_room(at, share, total, of), 0.0))
            far = max((towards + half) / along, 0.0)
            near = max((towards - half) / along, 0.0)
            region_x.append(math.sqrt(at * far))
            region_y.append(math.sqrt(other * far))
            inner_x.append(math.sqrt(at * near))
            inner_y.append(math.sqrt(other * near))
        for place in range(len(inner_x)):
            region_x.append(inner_x[len(inner_x) - 1 - place])
            region_y.append(inner_y[len(inner_y) - 1 - place])
    tv_engine = total_variation(s)
    tv_age = sum([total_variation(d * math.sqrt(lag)) for lag in lags]) / len(lags)
    tv = sum([total_variation(math.sqrt(engine + d * d * lag)) for lag in lags]) / len(lags)
    if logged != TWO and oldest == 0:
        why = "Every token is fresh: all is the engine."
    elif logged == THREE:
        why = "The trainer's recomputation shows each part by itself."
    elif logged == TWO:
        why = "Two columns show the sum alone: record logp_behavior_train, or the version of each token."
    elif youngest == oldest:
        why = "All tokens are equally old, so the version tells nothing: record logp_behavior_train."
    elif youngest > 0:
        why = "No token is fresh: the split rests on drift that grows as √age."
    else:
        why = "Fresh tokens show the engine alone; old ones both, if drift grows as √age."
    if low == high:
        known = "this log shows it."
    elif high - low < TOLD_APART:
        known = f"this log says {in_percent(low)} to {in_percent(high)}."
    elif low == 0 and high == 1:
        known = "this log cannot tell: 0 to 100% fit."
    else:
        known = f"this log leaves {in_percent(low)} to {in_percent(high)} open."
    dots = [float(lag) for lag in lags]
    whole = [math.sqrt(engine + d * d * lag) for lag in lags]
    curve = steps(0, max(oldest, 1), 60)
    return {
        "region_x": region_x,
        "region_y": region_y,
        "dot_x": [s],
        "dot_y": [math.sqrt(age)],
        "reach": 1.3 * math.sqrt(total),
        "curve": curve,
        "curve_engine": [s for at in curve],
        "curve_age": [d * math.sqrt(at) for at in curve],
        "curve_both": [math.sqrt(engine + d * d * at) for at in curve],
        "both_x": dots if logged != TWO else [],
        "both_y": whole if logged != TWO else [],
        "parts_x": dots if logged == THREE else [],
        "engine_y": [s for lag in lags] if logged == THREE else [],
        "age_y": [d * math.sqrt(lag) for lag in lags] if logged == THREE else [],
        "pooled": math.sqrt(total) if logged == TWO else math.nan,
        "oldest": max(oldest, 1),
        "share": share,
        "low": low,
        "high": high,
        "tv_engine": tv_engine,
        "tv_age": tv_age,
        "tv": tv,
        "says": f"The engine makes {in_percent(share)} of the variance of log ρ; {known} {why} "
        + f"In TV the parts are {show(tv_engine)} and {show(tv_age)}, the whole {show(tv)}.",
    }


EXPERIMENT = Experiment(
    key="engine_or_age",
    claim="Two columns cannot separate the engine from age, three can",
    source="S0 7.1 and 7.2",
    prose=(
        "The sampler's engine adds noise to every log-probability, and the policy drifts with every update. Log ρ is "
        "the sum of both. Two columns show only the sum: every point of the ring fits. The version tells them apart "
        "where ages differ; the trainer's own value under the old version always does. Regions are what N independent "
        "tokens give in the mean."
    ),
    formula=(
        r"\log\rho = \blue{\log\frac{\pi_{\text{old, trainer}}}{\pi_{\text{old, sampler}}}} + "
        r"\vermilion{\log\frac{\pi_{\text{now}}}{\pi_{\text{old, trainer}}}}, \qquad "
        r"\purple{\mathrm{Var}\log\rho} = \blue{s^2} + \vermilion{d^2\cdot\text{age}}"
    ),
    compute=compute,
    sliders=(
        Slider("s", "s", "spread of log ρ by the engine", 0.005, 0.5, 0.1, log=True),
        Slider("d", "d", "spread that an update adds", 0.002, 0.2, 0.03, log=True),
        Slider(
            "ages",
            "age",
            "of the tokens, in updates",
            0,
            4,
            2,
            options=(
                "all 0 (on-policy)",
                "0 to 3 (sync_interval 4)",
                "0 to 19 (sync_interval 20)",
                "all 10 (sync_offset 10)",
                "10 to 29 (both)",
            ),
        ),
        Slider("N", "N", "tokens, independent ones", 100, 1_000_000, 1000, log=True, whole=True),
        Slider(
            "columns",
            "log",
            "has the columns",
            0,
            2,
            0,
            options=(
                "sampler, current policy",
                "these and the version",
                "these and the trainer's under the old version",
            ),
        ),
    ),
    numbers=(
        Meter("share", "engine's share of the variance", "blue", percent=True),
        Meter("low", "this log can say: from", percent=True),
        Meter("high", "to", percent=True),
        Meter("tv_engine", "TV by the engine alone", "blue"),
        Meter("tv_age", "TV by age alone", "vermilion"),
        Meter("tv", "TV of both", "purple"),
    ),
    pictures=(
        Picture(
            "What fits the log: spread by engine and by age",
            Ruler("by the engine, s", 0, "reach"),
            Ruler("by age, d · √(mean age)", 0, "reach"),
            (
                Layer("area", "fits the log (95%)", "region_x", "region_y", colour="purple"),
                Layer("dots", "truth", "dot_x", "dot_y", colour="green"),
            ),
        ),
        Picture(
            "Spread of log ρ by age: lines true, dots as the log has it",
            Ruler("age in updates", 0, "oldest"),
            Ruler("spread of log ρ", 0),
            (
                Layer("line", "engine", "curve", "curve_engine", colour="blue"),
                Layer("line", "age", "curve", "curve_age", colour="vermilion"),
                Layer("line", "both", "curve", "curve_both", colour="purple"),
                Layer("rule", "all tokens", y="pooled", colour="grey"),
                Layer("dots", "", "both_x", "both_y", colour="purple"),
                Layer("dots", "", "parts_x", "engine_y", colour="blue"),
                Layer("dots", "", "parts_x", "age_y", colour="vermilion"),
            ),
        ),
    ),
    question=Guess(
        "A thousand tokens, with the sampler's and the current policy's log-probabilities. "
        "How well is the engine's share of the mismatch known?",
        ("within 1%", "within 10%", "not at all"),
        right=2,
        because="More tokens make the ring thinner, not shorter: engine and age only appear as their sum.",
    ),
    tries={
        "add the version": {"columns": 1},
        "equally old": {"columns": 1, "ages": 3},
        "no fresh token": {"columns": 1, "ages": 4},
        "add the third column": {"columns": 2},
        "a small engine": {"s": 0.01, "columns": 1},
    },
)
