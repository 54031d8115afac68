"""One rare token with a large ratio: three distances that do not agree (S1 4.3)."""

import math

from ratioscope.analysis.laboratory.experiment import Experiment, Guess, Layer, Meter, Picture, Ruler, Slider, Values
from ratioscope.analysis.laboratory.tools import geometric_steps, in_percent, show


def distances(e: float, ratio: float) -> list[float]:
    """Total variation, χ², KL(new || data) and KL(data || new) where one token has probability e and this ratio."""
    new = e * ratio
    common = (1 - new) / (1 - e)
    moved = abs(new - e)
    return [
        moved,
        moved * moved * (1 / e + 1 / (1 - e)),
        new * math.log(ratio) + (1 - new) * math.log(common),
        -e * math.log(ratio) - (1 - e) * math.log(common),
    ]


def compute(e: float, R: float, epsilon: float, N: float) -> Values:
    """Exact distances by ratio, what a clip sees, and the chance that a sample knows nothing of the token."""
    highest = 0.99 / e
    ratio = min(R, highest)
    ratios = geometric_steps(1.0001, min(1e4, highest), 80)
    curves = [distances(e, at) for at in ratios]
    tv, chi2, kl, kl_back = distances(e, ratio)
    clipped = (e if ratio > 1 + epsilon else 0.0) + (1 - e if (1 - e * ratio) / (1 - e) < 1 - epsilon else 0.0)
    unseen = (1 - e) ** N
    seen = (
        f"A clip at 1 ± {show(epsilon)} touches {in_percent(clipped)} of the tokens"
        if clipped > 0
        else "No clip is touched"
    )
    capped = "" if highest >= R else f" The ratio is {show(ratio)}, as a probability is at most 1."
    return {
        "ratios": ratios,
        "tvs": [max(curve[0], 1e-9) for curve in curves],
        "chi2s": [max(curve[1], 1e-9) for curve in curves],
        "kls": [max(curve[2], 1e-9) for curve in curves],
        "kl_backs": [max(curve[3], 1e-9) for curve in curves],
        "ratio": ratio,
        "tv": tv,
        "chi2": chi2,
        "kl": kl,
        "kl_back": kl_back,
        "ess": 1 / (1 + chi2),
        "clipped": clipped,
        "unseen": unseen,
        "says": f"TV is {show(tv)} and χ² is {show(chi2)}, {show(chi2 / tv)} times as much. {seen}; "
        + f"{in_percent(unseen)} of samples of {show(N)} tokens do not have the rare one at all.{capped}",
    }


EXPERIMENT = Experiment(
    key="rare_token",
    claim="A small TV does not mean a small χ²",
    source="S1 4.3",
    prose=(
        "The policies agree on all tokens but one, which has probability e in the data and R times that under the new "
        "policy. TV counts how much probability moved, χ² how much it moved against what there was. Estimates with "
        "weights are as noisy as χ² says, whatever TV says."
    ),
    formula=(
        r"\blue{\mathrm{TV}} = e\,(R-1), \qquad \vermilion{\chi^2} = \blue{\mathrm{TV}}^2"
        r"\left(\frac1e + \frac1{1-e}\right), \qquad \mathrm{ESS} = \frac{1}{1+\vermilion{\chi^2}}"
    ),
    compute=compute,
    sliders=(
        Slider("e", "e", "probability of the rare token in the data", 1e-6, 0.1, 1e-4, log=True),
        Slider("R", "R", "its ratio, new policy to data", 1.01, 1e4, 200, log=True),
        Slider("epsilon", "ε", "half-width of a clip", 0.05, 1, 0.2, step=0.05),
        Slider("N", "N", "tokens of a sample", 10, 1_000_000, 1000, log=True, whole=True),
    ),
    numbers=(
        Meter("tv", "TV", "blue"),
        Meter("chi2", "χ²", "vermilion"),
        Meter("kl", "KL(new ‖ data)", "green"),
        Meter("kl_back", "KL(data ‖ new)", "purple"),
        Meter("ess", "effective sample", percent=True),
        Meter("clipped", "tokens that a clip touches", percent=True),
        Meter("unseen", "samples without the token", percent=True),
    ),
    pictures=(
        Picture(
            "Four distances between the same two policies",
            Ruler("ratio of the rare token, R", 1, 1e4, log=True),
            Ruler("distance", 1e-8, 1e4, log=True),
            (
                Layer("line", "TV", "ratios", "tvs", colour="blue"),
                Layer("line", "χ²", "ratios", "chi2s", colour="vermilion"),
                Layer("line", "KL(new ‖ data)", "ratios", "kls", colour="green"),
                Layer("line", "KL(data ‖ new)", "ratios", "kl_backs", colour="purple"),
                Layer("rule", "", x="ratio", colour="grey"),
            ),
        ),
    ),
    question=Guess(
        "TV is .02, well inside of any trust region. What share of the data still counts?",
        ("98%", "about half", "20%"),
        right=2,
        because="χ² is 3.96, so that 100 tokens are worth 100 / 4.96 = 20.",
    ),
    tries={
        "a common token": {"e": 0.1, "R": 1.2},
        "one in a million": {"e": 1e-6, "R": 1000},
    },
)
