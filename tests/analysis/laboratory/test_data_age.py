"""Age of data, held against the design's numbers, the trainer's own schedule and drawn responses."""

from fractions import Fraction

import numpy as np
import pytest

from ratioscope.analysis.laboratory.data_age import EXPERIMENT, age_of_batch, longest_queue, mass_on_old
from ratioscope.trainer.sampling.schedule import behavior_version
from ratioscope.trainer.settings.config import Schedule


@pytest.mark.parametrize(
    ("gamma", "sigma", "mass", "within"),
    [
        (".99", ".01", 0.503, 5e-4),
        (".99", ".05", 0.168067, 5e-7),
        (".99", ".1", 0.092, 5e-4),
        (".99", ".3", 0.033, 5e-4),
        (".99", ".5", 0.0198020, 5e-8),
        (".999", ".05", 0.0196271, 5e-8),
    ],
)
def test_the_numbers_of_the_design(gamma: str, sigma: str, mass: float, within: float) -> None:
    assert mass_on_old(float(sigma), float(gamma)) == pytest.approx(mass, abs=within)
    one, goes_on, switches = Fraction(1), Fraction(gamma), Fraction(sigma)
    exact = (one - goes_on) / (one - goes_on * (one - switches))
    assert mass_on_old(float(sigma), float(gamma)) == pytest.approx(float(exact), rel=1e-12)


@pytest.mark.parametrize(("m", "n"), [(1, 0), (4, 0), (1, 4), (5, 3), (20, 10)])
def test_batches_are_as_old_as_the_trainer_makes_them(m: int, n: int) -> None:
    schedule = Schedule(sync_interval=m, sync_offset=n)
    ages = [age_of_batch(batch, m, n) for batch in range(80)]
    assert ages == [batch - behavior_version(schedule, batch) for batch in range(80)]
    assert ages[2 * (m + n) :] == [batch % m + n for batch in range(2 * (m + n), 80)], "S3 B.2, once there is a past"
    assert (m, n) != (1, 4) or ages[:6] == [0, 1, 2, 3, 4, 4], "and younger before"


@pytest.mark.parametrize(
    "at",
    [{}, {"m": 1, "n": 4}, {"m": 20, "max_lag": 10, "sigma": 0.01}, {"gamma": 0.95, "sigma": 0.3, "max_lag": 3}],
)
def test_means_are_those_of_drawn_responses(at: dict[str, float]) -> None:
    found, values = EXPERIMENT.at(**at), EXPERIMENT.paper | at
    rng = np.random.default_rng(0)
    gamma, count = values["gamma"], 30_000
    lengths = rng.geometric(1 - gamma, count)
    bases = rng.integers(0, int(values["m"]), count) + values["n"]
    keeps = bases + lengths * (1 - gamma) <= values["max_lag"] + 1e-9
    assert keeps.mean() == pytest.approx(found["share"], abs=0.01)
    assert lengths[keeps].mean() == pytest.approx(found["length"], rel=0.03)
    assert (1 - gamma ** lengths[keeps]).mean() == pytest.approx(found["reward"], rel=0.03)
    old, ages, tokens = 0, 0.0, 0
    for length, base in zip(lengths[:6_000], bases, strict=False):
        switched = rng.random(length) < values["sigma"]
        switched[0] = False
        began = np.maximum.accumulate(np.where(switched, np.arange(length), 0))
        old += int((~switched).cumprod().sum())
        # Written after so many tokens, on weights of `began`, and trained on when the last token is there.
        ages += float((base + (length - 1 - began) * (1 - gamma)).sum())
        tokens += length
    assert old / tokens == pytest.approx(found["mass"], rel=0.05)
    assert ages / tokens == pytest.approx(found["age"], rel=0.04)


def test_dropping_the_old_drops_the_long_and_a_shorter_queue_does_not() -> None:
    dropped = EXPERIMENT.at(m=1, n=8, max_lag=9)
    assert dropped["length"] < 0.5 * dropped["length_all"]
    assert dropped["reward"] < 0.65 * dropped["reward_all"]
    shorter = longest_queue(1, 0.99, 9)
    assert 0 < shorter < 8
    assert f"admit less: a queue of {shorter} drops hardly any." in dropped["says"]
    assert EXPERIMENT.at(m=1, n=shorter, max_lag=9)["length"] > 0.94 * dropped["length_all"]
    assert "No queue is short enough for all: sync more often" in EXPERIMENT.at(m=20, max_lag=10)["says"]
    assert EXPERIMENT.at(m=1, max_lag=1)["says"].endswith("No queue is short enough for all: keep older ones.")
    assert "Hardly a response is older" in EXPERIMENT.at(max_lag=20)["says"]
    assert "nothing is left" in EXPERIMENT.at(n=16)["says"]


def test_the_right_answer_is_computed() -> None:
    answer = EXPERIMENT.question.answers[EXPERIMENT.question.right]
    assert answer == f"{100 * mass_on_old(0.05, 0.99):.0f}%"
