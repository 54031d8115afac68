"""Filters of stale data: what is kept looks fresh, whatever the policies are (S0 5.6, 7.3)."""

import math

from ratioscope.analysis.laboratory.experiment import Experiment, Guess, Layer, Meter, Picture, Ruler, Slider, Values
from ratioscope.analysis.laboratory.tools import capped_exp, in_percent, show, steps

LENGTHS = 8
"""Of responses, each as likely: T/8, 2T/8 ... T tokens."""
TOKENS, PRODUCT = 0, 2
"""Places of two of the filters; between them is the geometric mean over a response."""
LOST = 0.1
"""Differences below this share of a number are not spoken of."""


def common_tokens(b: float, length: int) -> list[float]:
    """Probability of k common tokens in a response, k from 0: each is common with probability b."""
    found = [length * math.log(1 - b)]
    for k in range(1, length + 1):
        found.append(found[-1] + math.log((length - k + 1) / k) + math.log(b / (1 - b)))
    return [capped_exp(value) for value in found]


def kept(b: float, c: float, epsilon: float, which: int, length: int, chances: list[float]) -> list[float]:
    """What a filter keeps of responses of one length, exact, in shares of their tokens.

    Args:
        b, c: probability of the common token in the data and under the current policy.
        epsilon: what has |ratio - 1| above it is dropped.
        which: the ratio is that of a token (0), the geometric mean of a response's (1), or their product (2).
        chances: `common_tokens` of the length.

    Returns:
        The share of all that is kept, of it the sum of |ratio - 1| / 2 of tokens, and the sum of their ratios.
    """
    common = c / b
    rare = (1 - c) / (1 - b)
    found = [0.0, 0.0, 0.0]
    if which == TOKENS:
        for share, ratio in [(b, common), (1 - b, rare)]:
            if abs(ratio - 1) <= epsilon:
                found = [found[0] + share, found[1] + share * abs(ratio - 1) / 2, found[2] + share * ratio]
        return found
    for k in range(length + 1):
        log = k * math.log(common) + (length - k) * math.log(rare)
        if abs(capped_exp(log if which == PRODUCT else log / length) - 1) <= epsilon:
            share = k / length
            stale = (share * abs(common - 1) + (1 - share) * abs(rare - 1)) / 2
            ratio = share * common + (1 - share) * rare
            found = [found[0] + chances[k], found[1] + chances[k] * stale, found[2] + chances[k] * ratio]
    return found


def _together(lengths: list[int], parts: list[list[float]]) -> list[float]:
    """Of tokens of all lengths: share that is kept, its staleness and its mean ratio; NaN where nothing is."""
    total = sum(lengths)
    sums = [sum([at * part[i] for at, part in zip(lengths, parts)]) / total for i in range(3)]  # noqa: B905
    if sums[0] < 1e-9:
        return [0.0, math.nan, math.nan]
    return [sums[0], sums[1] / sums[0], sums[2] / sums[0]]


def compute(b: float, c: float, epsilon: float, T: float, which: float) -> Values:
    """Exact staleness before and after the filter, by the current policy, and what it keeps by length."""
    lengths = [int(T) * (place + 1) // LENGTHS for place in range(LENGTHS)]
    chances = [common_tokens(b, at) for at in lengths]
    currents = steps(0.01, 0.99, 99)
    curve = [
        _together(lengths, [kept(b, at, epsilon, int(which), length, of) for length, of in zip(lengths, chances)])  # noqa: B905
        for at in currents
    ]
    parts = [kept(b, c, epsilon, int(which), length, of) for length, of in zip(lengths, chances)]  # noqa: B905
    share, staleness, ratio = _together(lengths, parts)
    apart = abs(b - c)
    by_length = [part[0] for part in parts]
    responses = sum(by_length)
    mean_length = 0.0 if responses == 0 else sum([at * part for at, part in zip(lengths, by_length)]) / responses  # noqa: B905
    if share == 0:
        verdict = "The filter drops everything."
    elif staleness < (1 - LOST) * apart:
        verdict = f"The kept {in_percent(share)} show {show(staleness)}."
        if abs(ratio - 1) > LOST:
            verdict = verdict + f" Their mean ratio gives it away: {show(ratio)} instead of 1."
    else:
        hidden = "more than there is" if staleness > (1 + LOST) * apart else "little is hidden"
        verdict = f"The kept {in_percent(share)} show {show(staleness)}: {hidden}."
    if share > 0 and mean_length < (1 - LOST) * (LENGTHS + 1) / (2 * LENGTHS) * T:
        verdict = (
            verdict + f" Kept responses have {show(mean_length)} tokens instead of {show(sum(lengths) / LENGTHS)}."
        )
    return {
        "currents": currents,
        "trues": [abs(b - at) for at in currents],
        "kepts": [of[1] for of in curve],
        "half": epsilon / 2,
        "c": c,
        "dot_x": [c],
        "dot_true": [apart],
        "dot_kept": [staleness] if share > 0 else [math.nan],
        "lengths": lengths,
        "by_length": by_length,
        "longest": T * (LENGTHS + 1) / LENGTHS,
        "true": apart,
        "staleness": staleness if share > 0 else 0.0,
        "share": share,
        "ratio": ratio if share > 0 else 0.0,
        "length": mean_length,
        "length_all": sum(lengths) / LENGTHS,
        "reward": 0.0 if responses == 0 else (mean_length / T * LENGTHS - 1) / (LENGTHS - 1),
        "reward_all": 0.5,
        "says": f"Total variation of the policies is {show(apart)}. {verdict}",
    }


EXPERIMENT = Experiment(
    key="filter_bias",
    claim="A filter of stale data makes what is kept look fresh",
    source="S0 5.6, 7.3",
    prose=(
        "A common token has probability b in the data and c under the current policy; every other token counts as one "
        "rare token. What has |ρ − 1| above ε is dropped. S0 7.3 concludes that staleness is at most ε/2. That holds "
        "of what is kept; the policies are as far apart as before. Responses have T/8 to T tokens; the shortest earn "
        "0, the longest 1."
    ),
    formula=(
        r"\blue{\mathrm{TV}} = |b - c|, \qquad \vermilion{S_{\mathrm{kept}}} = \tfrac12\,"
        r"\mathrm{E}\big[\,|\rho - 1|\;\big|\;|\rho - 1| \le \epsilon\,\big] \le \amber{\epsilon/2}"
    ),
    compute=compute,
    sliders=(
        Slider("b", "b", "probability of the common token in the data", 0.5, 0.99, 0.98, step=0.01),
        Slider("c", "c", "its probability under the current policy", 0.01, 0.99, 0.5, step=0.01),
        Slider("epsilon", "ε", "largest |ρ − 1| to keep", 0.05, 2, 0.5, step=0.05),
        Slider("T", "T", "tokens of the longest response", 8, 128, 64, step=8, whole=True),
        Slider(
            "which",
            "ρ",
            "is the ratio of",
            0,
            2,
            0,
            options=(
                "a token (filter of tokens)",
                "a response, geometric mean (filter of responses)",
                "a response, product (filter of responses)",
            ),
        ),
    ),
    numbers=(
        Meter("true", "total variation", "blue"),
        Meter("staleness", "staleness of what is kept", "vermilion"),
        Meter("share", "kept tokens", percent=True),
        Meter("ratio", "mean ratio of what is kept (1 without a filter)"),
        Meter("length", "mean length of kept responses"),
        Meter("length_all", "of all responses"),
        Meter("reward", "reward of kept responses"),
        Meter("reward_all", "of all responses"),
    ),
    pictures=(
        Picture(
            "Staleness as it is, and of what the filter keeps",
            Ruler("probability of the common token now, c", 0, 1),
            Ruler("total variation", 0, 1),
            (
                Layer("line", "of the policies", "currents", "trues", colour="blue"),
                Layer("line", "of what is kept, where any is", "currents", "kepts", colour="vermilion"),
                Layer("rule", "ε/2", y="half", colour="amber"),
                Layer("rule", "", x="c", colour="grey"),
                Layer("dots", "", "dot_x", "dot_true", colour="blue"),
                Layer("dots", "", "dot_x", "dot_kept", colour="vermilion"),
            ),
        ),
        Picture(
            "What is kept, by length of the response",
            Ruler("tokens of the response", 0, "longest"),
            Ruler("kept share", 0, 1),
            (Layer("bars", "kept", "lengths", "by_length", colour="vermilion"),),
        ),
    ),
    question=Guess(
        "The policies differ by a TV of .48. The filter keeps |ρ − 1| ≤ .5. What staleness do the kept tokens show?",
        (".48: it is measured", ".25 at most, whatever the policies do", "0: stale tokens are gone"),
        right=1,
        because="It is .245. No kept token can show more than ε/2, so a low staleness behind a filter says nothing.",
    ),
    tries={
        "drifted on: still .25": {"c": 0.49},
        "the long ones go": {"b": 0.9, "c": 0.8, "which": 2},
        "geometric mean": {"which": 1},
        "a wide filter hides nothing": {"c": 0.96, "epsilon": 2},
    },
)
