"""Trust regions around several versions of the policy, which may have nothing in common (S0 Observation 3.1)."""

from ratioscope.analysis.laboratory.experiment import Experiment, Guess, Layer, Meter, Picture, Ruler, Slider, Values
from ratioscope.analysis.laboratory.tools import across, in_percent, show, steps, upwards

_CORNERS = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
_ROUNDING = 1e-9
"""Areas that touch in a point do so in floating point as well."""


def policy(second: float, third: float) -> list[float]:
    """Probabilities of three tokens from those of two; the third token has at most what the second leaves."""
    last = min(third, 1 - second)
    return [max(1 - second - last, 0.0), second, last]


def total_variation(one: list[float], other: list[float]) -> float:
    """Half of the sum of the differences."""
    return sum([abs(one[token] - other[token]) for token in range(3)]) / 2


def smallest_delta(versions: list[list[float]]) -> float:
    """The smallest distance within which one policy is near all of these over three tokens.

    Half of the largest TV between two of them, or more: a common policy's probabilities must sum to 1.
    """
    highest = [max([version[token] for version in versions]) for token in range(3)]
    lowest = [min([version[token] for version in versions]) for token in range(3)]
    widest = max([highest[token] - lowest[token] for token in range(3)])
    return max(widest / 2, (sum(highest) - 1) / 3, (1 - sum(lowest)) / 3)


def near_all(versions: list[list[float]], delta: float) -> list[list[float]]:
    """The corners of the set of policies within delta of all of these; none where there is no such policy.

    Over three tokens TV is the largest change of a probability, so that each token has a lowest and a highest one.
    """
    found = _CORNERS
    for token in range(3):
        low = max([version[token] for version in versions]) - delta - _ROUNDING
        high = min([version[token] for version in versions]) + delta + _ROUNDING
        found = _cut(found, token, low, 1.0)
        found = _cut(found, token, high, -1.0)
    return found


def _cut(corners: list[list[float]], token: int, bound: float, side: float) -> list[list[float]]:
    """What lies above (side 1) or below (side -1) a probability of one token."""
    found = []
    for place in range(len(corners)):
        one = corners[place - 1] if place > 0 else corners[-1]
        other = corners[place]
        before = side * (one[token] - bound)
        after = side * (other[token] - bound)
        if before * after < 0:
            part = before / (before - after)
            found.append([one[k] + part * (other[k] - one[k]) for k in range(3)])
        if after >= 0:
            found.append(other)
    return found


def area(corners: list[list[float]]) -> float:
    """Share of all policies over three tokens that lies between these corners."""
    found = 0.0
    for place in range(len(corners)):
        one = corners[place - 1] if place > 0 else corners[-1]
        other = corners[place]
        found = found + one[1] * other[2] - other[1] * one[2]
    return abs(found)


def compute(
    delta: float,
    versions: float,
    one_b: float,
    one_c: float,
    two_b: float,
    two_c: float,
    three_b: float,
    three_c: float,
) -> Values:
    """The policies within delta of each version and of all, and the delta from which on there is one."""
    one = policy(one_b, one_c)
    two = policy(two_b, two_c)
    three = policy(three_b, three_c)
    given = [one, two, three] if versions > 0 else [one, two]
    largest = max([max([total_variation(p, q) for q in given]) for p in given])
    needed = smallest_delta(given)
    fits = delta >= needed - _ROUNDING
    common = near_all(given, delta) if fits else []
    share = area(common)
    alone = near_all([one], delta)
    last = near_all([three], delta) if versions > 0 else []
    deltas = steps(0.0, 1.0, 101)
    by_delta = [area(near_all(given, at)) if at >= needed else 0.0 for at in deltas]
    if not fits and largest > 2 * delta + _ROUNDING:
        verdict = (
            f"Two versions differ by TV {show(largest)}, more than 2δ = {show(2 * delta)}: no policy is near both."
        )
    elif not fits:
        verdict = f"Each two versions have policies in common, as TV {show(largest)} is within 2δ. All three have none."
    elif share < 1e-6:
        verdict = f"δ = {show(delta)} is just enough: the areas touch."
    else:
        newest = in_percent(area(alone))
        verdict = f"{in_percent(share)} of all policies are within δ of all versions, {newest} of the newest."
    return {
        "one_x": across(alone),
        "one_y": upwards(alone),
        "two_x": across(near_all([two], delta)),
        "two_y": upwards(near_all([two], delta)),
        "three_x": across(last),
        "three_y": upwards(last),
        "common_x": across(common),
        "common_y": upwards(common),
        "one_at_x": across([one]),
        "one_at_y": upwards([one]),
        "two_at_x": across([two]),
        "two_at_y": upwards([two]),
        "three_at_x": across([three]) if versions > 0 else [],
        "three_at_y": upwards([three]) if versions > 0 else [],
        "one_name": ["π⁽¹⁾"],
        "two_name": ["π⁽²⁾"],
        "three_name": ["π⁽³⁾"],
        "deltas": deltas,
        "by_delta": by_delta,
        "of_one": [area(near_all([one], at)) for at in deltas],
        "delta": delta,
        "largest": largest,
        "half": largest / 2,
        "needed": needed,
        "share": share,
        "share_of_one": area(alone),
        "says": f"{verdict} The smallest δ with a common policy is {show(needed)}.",
    }


EXPERIMENT = Experiment(
    key="no_policy_near",
    claim="No policy is near both",
    source="S0 Observation 3.1",
    prose=(
        "A point of the triangle is a policy over three tokens. A clip around 1 keeps the new policy within δ of every "
        "version that sampled, with δ half of the clip's ε. Where versions differ by more than 2δ, the areas have "
        "nothing in common. An area around the newest version alone is never empty. Drag the dots."
    ),
    formula=(
        r"\mathrm{TV}(\vermilion{\pi^{(1)}}, \amber{\pi^{(2)}}) > 2\,\delta \;\Rightarrow\; \blue{\{\pi : "
        r"\mathrm{TV}(\pi, \pi^{(i)}) \le \delta,\; i = 1 \dots n\}} = \varnothing"
    ),
    compute=compute,
    sliders=(
        Slider("delta", "δ", "largest TV to a version", 0.01, 1, 0.1, step=0.01, plays=True),
        Slider("versions", "n", "versions that sampled", 0, 1, 0, options=("two", "three")),
        Slider("one_b", "π⁽¹⁾(b)", "newest version, token b", 0, 1, 0.25, step=0.01, folded=True),
        Slider("one_c", "π⁽¹⁾(c)", "newest version, token c", 0, 1, 0.3, step=0.01, folded=True),
        Slider("two_b", "π⁽²⁾(b)", "older version, token b", 0, 1, 0.55, step=0.01, folded=True),
        Slider("two_c", "π⁽²⁾(c)", "older version, token c", 0, 1, 0.15, step=0.01, folded=True),
        Slider("three_b", "π⁽³⁾(b)", "oldest version, token b", 0, 1, 0.2, step=0.01, folded=True),
        Slider("three_c", "π⁽³⁾(c)", "oldest version, token c", 0, 1, 0.6, step=0.01, folded=True),
    ),
    numbers=(
        Meter("largest", "largest TV of two versions"),
        Meter("half", "half of it"),
        Meter("needed", "smallest δ with a common policy", "blue"),
        Meter("share", "policies within δ of all", "blue", percent=True),
        Meter("share_of_one", "policies within δ of the newest", "vermilion", percent=True),
    ),
    pictures=(
        Picture(
            "Policies within δ of a version",
            Ruler("token b"),
            Ruler("token c"),
            (
                Layer("area", "of π⁽¹⁾, newest", "one_x", "one_y", colour="vermilion"),
                Layer("area", "of π⁽²⁾", "two_x", "two_y", colour="amber"),
                Layer("area", "of π⁽³⁾", "three_x", "three_y", colour="purple"),
                Layer("area", "of all", "common_x", "common_y", colour="blue", strong=True),
                Layer("dots", "", "three_at_x", "three_at_y", colour="purple", labels="three_name",
                     moves=("three_b", "three_c")),
                Layer("dots", "", "two_at_x", "two_at_y", colour="amber", labels="two_name", moves=("two_b", "two_c")),
                Layer("dots", "", "one_at_x", "one_at_y", colour="vermilion", labels="one_name",
                     moves=("one_b", "one_c")),
            ),
            corners=("token a", "token b", "token c"),
        ),
        Picture(
            "Room that is left",
            Ruler("largest TV to a version, δ", 0, 1),
            Ruler("share of all policies", 0, 1),
            (
                Layer("line", "within δ of all versions", "deltas", "by_delta", colour="blue"),
                Layer("line", "within δ of the newest", "deltas", "of_one", colour="vermilion", dashed=True),
                Layer("rule", "", x="delta", colour="grey"),
            ),
        ),
    ),
    question=Guess(
        "Three versions; each gives .8 to a token of its own, so each two differ by TV .7. From which δ on is a policy "
        "near all?",
        (".35, half of .7", "about .47", ".7"),
        right=1,
        because="Half of the TV is enough for two versions. n versions may take (n − 1)/n of the TV: here ⅔ of .7.",
    ),
    tries={
        "just touching": {"delta": 0.15},
        "three, each two in reach": {"versions": 1, "delta": 0.4, "one_b": 0.1, "one_c": 0.1, "two_b": 0.8,
                                     "two_c": 0.1, "three_b": 0.1, "three_c": 0.8},
        "the same version twice": {"two_b": 0.25, "two_c": 0.3},
    },
)  # fmt: skip
