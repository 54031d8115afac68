"""How old data is: weight syncs, queue, the time that a response takes, switching within it (S3 B.2, S0 6.2)."""

import math

from ratioscope.analysis.laboratory.experiment import Experiment, Guess, Layer, Meter, Picture, Ruler, Slider, Values
from ratioscope.analysis.laboratory.tools import in_percent, show, steps, uniforms

BATCHES = 24
DRAWN = 4
"""Responses of a batch that are drawn."""
FEW = 0.01
"""Share of dropped responses that is no matter."""


def age_of_batch(batch: int, m: int, n: int) -> int:
    """Updates between the weights that began a batch and its training: (l mod m) + n, less before there is a past."""
    return batch - max(0, batch - batch % m - n)


def mass_on_old(sigma: float, gamma: float) -> float:
    """Share of the tokens that the version wrote that began the response (S0 6.2).

    A response goes on after each token with probability gamma, and then switches to newer weights with probability
    sigma. Of the discounted visits of an endless response it is the same share.
    """
    return (1 - gamma) / (1 - gamma * (1 - sigma))


def _kept(m: int, n: int, gamma: float, max_lag: float) -> list[float]:
    """Of responses up to that age: share of all, and sums of their lengths and rewards, over the batches of a sync."""
    found = [0.0, 0.0, 0.0]
    for phase in range(m):
        left = max_lag - n - phase
        # A response of the mean length takes one update; rounding must not cost a token.
        longest = math.floor(left / (1 - gamma) + 1e-9) if left > 0 else 0
        beyond = gamma**longest
        found[0] = found[0] + (1 - beyond) / m
        found[1] = found[1] + ((1 - beyond) / (1 - gamma) - longest * beyond) / m
        found[2] = found[2] + (1 - beyond - gamma * (1 - beyond * beyond) / (1 + gamma)) / m
    return found


def longest_queue(m: int, gamma: float, max_lag: int) -> int:
    """Longest queue with which nearly all responses are young enough; -1 where there is none."""
    found = -1
    for n in range(max_lag + 1):
        if _kept(m, n, gamma, max_lag)[0] >= 1 - FEW:
            found = n
    return found


def compute(m: float, n: float, max_lag: float, gamma: float, sigma: float) -> Values:
    """Exact means over all batches; drawn are some responses of the first ones."""
    every = int(m)
    ahead = int(n)
    batches = list(range(BATCHES))
    bases = [age_of_batch(batch, every, ahead) for batch in batches]
    drawn = uniforms(BATCHES * DRAWN, 1)
    kept_x = []
    kept_y = []
    dropped_x = []
    dropped_y = []
    for batch in batches:
        for place in range(DRAWN):
            length = math.floor(math.log(drawn[batch * DRAWN + place]) / math.log(gamma)) + 1
            age = bases[batch] + length * (1 - gamma)
            if age <= max_lag:
                kept_x.append(batch + (place - 1.5) / 6)
                kept_y.append(age)
            else:
                dropped_x.append(batch + (place - 1.5) / 6)
                dropped_y.append(age)
    mass = mass_on_old(sigma, gamma)
    writing = gamma * (1 + (1 - sigma) * mass)
    share, lengths, rewards = _kept(every, ahead, gamma, max_lag)
    mean_length = 1 / (1 - gamma)
    fits = longest_queue(every, gamma, int(max_lag))
    if share == 0:
        advice = f"Every response is older than max_lag {show(max_lag)}: nothing is left."
    elif share > 1 - FEW:
        advice = f"Hardly a response is older than max_lag {show(max_lag)}."
    else:
        advice = (
            f"Dropping what is older than max_lag {show(max_lag)} keeps {in_percent(share)} of the responses, "
            + f"{show(lengths / share)} tokens long instead of {show(mean_length)}."
        )
    if share <= 1 - FEW and fits >= 0:
        advice = advice + f" Instead, admit less: a queue of {show(fits)} drops hardly any."
    elif share <= 1 - FEW:
        remedy = "sync more often, or keep older ones" if every > 1 else "keep older ones"
        advice = advice + f" No queue is short enough for all: {remedy}."
    sigmas = steps(0, 0.5, 101)
    return {
        "batches": batches,
        "bases": bases,
        "queued": [min(ahead, base) for base in bases],
        "kept_x": kept_x,
        "kept_y": kept_y,
        "dropped_x": dropped_x,
        "dropped_y": dropped_y,
        "max_lag": max_lag,
        "top": every + ahead + 5,
        "sigmas": sigmas,
        "masses": [mass_on_old(at, gamma) for at in sigmas],
        "dot_x": [sigma],
        "dot_y": [mass],
        "mass": mass,
        "syncs": (every - 1) / 2,
        "queue": ahead,
        "writing": writing,
        "age": (every - 1) / 2 + ahead + writing,
        "share": share,
        "length": lengths / share if share > 0 else 0.0,
        "length_all": mean_length,
        "reward": rewards / share if share > 0 else 0.0,
        "reward_all": 1 / (1 + gamma),
        "says": f"A token is {show((every - 1) / 2 + ahead + writing)} updates old in the mean; "
        + f"{in_percent(mass)} of the tokens are of the version that began. {advice}",
    }


EXPERIMENT = Experiment(
    key="data_age",
    claim="Data ages three times: by the sync, in the queue, while it is written",
    source="S3 figure 2 and B.2, S0 5.6 and 6.2",
    prose=(
        "Weights reach the sampler every m updates, n batches wait in a queue, and a response of mean length takes one "
        "update to write. A response goes on after each token with probability γ and switches to new weights with "
        "probability σ. Dropping the old drops the long, which here are right more often. S3 has the age constant for "
        "m = 1; the first n batches are younger."
    ),
    formula=(
        r"\text{age of batch } l = \sky{(l \bmod m)} + \amber{n} + \text{writing}, \qquad "
        r"\blue{\text{share of the old version}} = \frac{1-\gamma}{1-\gamma(1-\sigma)}"
    ),
    compute=compute,
    sliders=(
        Slider("m", "m", "updates between weight syncs, sync_interval", 1, 20, 4, step=1, whole=True),
        Slider("n", "n", "batches that wait, sync_offset", 0, 16, 0, step=1, whole=True),
        Slider("max_lag", "max_lag", "oldest age that is kept, updates", 1, 40, 5, step=1, whole=True),
        Slider("gamma", "γ", "chance that a response goes on", 0.9, 0.999, 0.99, step=0.001),
        Slider("sigma", "σ", "chance of a switch to new weights, per token", 0, 0.5, 0.05, step=0.01),
    ),
    numbers=(
        Meter("mass", "tokens of the version that began", "blue", percent=True),
        Meter("age", "mean age of a token, updates"),
        Meter("syncs", "of it by the sync", "sky"),
        Meter("queue", "in the queue", "amber"),
        Meter("writing", "while it is written"),
        Meter("share", "kept responses", "green", percent=True),
        Meter("length", "their mean length"),
        Meter("length_all", "of all"),
        Meter("reward", "their mean reward"),
        Meter("reward_all", "of all"),
    ),
    pictures=(
        Picture(
            "Age of responses when they are trained on",
            Ruler("batch, l", -0.7, 23.7),
            Ruler("age in updates", 0, "top"),
            (
                Layer("bars", "sync", "batches", "bases", colour="sky"),
                Layer("bars", "queue", "batches", "queued", colour="amber"),
                Layer("dots", "kept", "kept_x", "kept_y", colour="green"),
                Layer("dots", "dropped", "dropped_x", "dropped_y", colour="vermilion"),
                Layer("rule", "max_lag", y="max_lag", colour="grey"),
            ),
        ),
        Picture(
            "Tokens of the version that began the response",
            Ruler("chance of a switch per token, σ", 0, 0.5),
            Ruler("share of the tokens", 0, 1),
            (
                Layer("line", "share", "sigmas", "masses", colour="blue"),
                Layer("dots", "", "dot_x", "dot_y", colour="blue", moves=("sigma", "")),
            ),
        ),
    ),
    question=Guess(
        "Responses have 100 tokens in the mean (γ = .99). New weights switch in at 5% of the tokens. "
        "What share is of the version that began?",
        ("95%", "about half", "17%"),
        right=2,
        because="The first switch comes after 20 tokens in the mean: .01 / (1 − .99 · .95) = .168.",
    ),
    tries={
        "S3's other schedule": {"m": 1, "n": 4},
        "a queue too long": {"m": 1, "n": 8, "max_lag": 9},
        "syncs too rare": {"m": 20, "max_lag": 10},
        "never switch": {"sigma": 0},
        "a thousand tokens": {"gamma": 0.999},
    },
)
