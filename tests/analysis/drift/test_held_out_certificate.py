"""What a certificate is worth: updates on rewards by the flip of a coin, where nothing is gained, and on real ones.

A linear softmax policy over a few answers, with random features for each prompt, so that an update on some prompts
changes the answers to others; its returns are exact sums.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from ratioscope.analysis.drift import promises
from ratioscope.analysis.drift.certificate import ABOVE, Certificate, certificate
from ratioscope.analysis.runs.store import open_run
from ratioscope.tails import Array
from tests.making.runs import Step, plain_step, with_held_out, write_run

ANSWERS, FEATURES, SAMPLES = 6, 4, 8
TRAINED, HELD_OUT, STEPS = 16, 32, 150
# A sum of so many coins: what the share of steps that are above 0 by chance may reach.
BY_CHANCE = binom.ppf(0.999, STEPS, 0.025) / STEPS


@dataclass(frozen=True)
class Policy:
    """Answers to prompts, (n, FEATURES), by logits that are linear in the prompt."""

    weights: Array

    def log_probs(self, prompts: Array) -> Array:
        logits = prompts @ self.weights
        found: Array = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return found


BEST = Policy(2.5 * np.random.default_rng(99).normal(size=(FEATURES, ANSWERS)))


def chances(prompts: Array, *, coins: bool) -> Array:
    """The probability that each answer is rewarded, (n, ANSWERS)."""
    return np.full((len(prompts), ANSWERS), 0.5) if coins else np.exp(BEST.log_probs(prompts))


def made(seed: int, *, coins: bool, stale: float, rate: float) -> tuple[Step, float]:
    """One update by REINFORCE, its batch and what was held out of it; and its gain, over many prompts."""
    rng = np.random.default_rng(seed)
    current = Policy(0.5 * rng.normal(size=(FEATURES, ANSWERS)))
    sampler = Policy(current.weights + stale * rng.normal(size=(FEATURES, ANSWERS)))
    prompts = [rng.normal(size=(n, FEATURES)) for n in (TRAINED, HELD_OUT)]
    drawn = []
    for some in prompts:
        asked = np.repeat(some, SAMPLES, axis=0)
        answer = np.array([rng.choice(ANSWERS, p=p) for p in np.exp(sampler.log_probs(asked))])
        reward = rng.random(len(asked)) < np.take_along_axis(chances(asked, coins=coins), answer[:, None], 1)[:, 0]
        drawn.append((asked, answer, reward.astype(float)))
    asked, answer, reward = drawn[0]
    group = np.repeat(np.arange(TRAINED), SAMPLES)
    advantage = reward - (np.bincount(group, reward) / SAMPLES)[group]
    error = np.eye(ANSWERS)[answer] - np.exp(current.log_probs(asked))
    new = Policy(current.weights + rate * asked.T @ (advantage[:, None] * error) / len(asked))
    steps = []
    for asked, answer, reward in drawn:
        b, c, n = (
            np.take_along_axis(policy.log_probs(asked), answer[:, None], 1)[:, 0] for policy in (sampler, current, new)
        )
        step = plain_step(b, c, n, group=np.arange(len(asked)) // SAMPLES, number=seed)
        step.sequences["reward"] = reward.astype(np.float32)
        steps.append(step)
    many = rng.normal(size=(4_000, FEATURES))
    returns = [float((np.exp(p.log_probs(many)) * chances(many, coins=coins)).sum(1).mean()) for p in (current, new)]
    return with_held_out(*steps), returns[1] - returns[0]


@dataclass(frozen=True)
class Simulated:
    """Independent updates, each a step of one run, and what each of them gained."""

    in_sample: Certificate
    held_out: Certificate
    gain: Array


def simulated(folder: Path, *, coins: bool, stale: float, rate: float) -> Simulated:
    updates = [made(seed, coins=coins, stale=stale, rate=rate) for seed in range(STEPS)]
    run = open_run(write_run(folder, [step for step, _ in updates]))
    both = [certificate(run, gamma=0.0, reward_range=(0, 1), held_out=held_out) for held_out in (False, True)]
    return Simulated(*both, np.array([gain for _, gain in updates]))


@pytest.fixture(scope="module", params=[0.0, 0.3], ids=["fresh", "stale"])
def coins(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    return simulated(tmp_path_factory.mktemp("coins") / "run", coins=True, stale=request.param, rate=5.0)


def test_on_noise_the_gain_of_the_batch_is_above_0_and_nothing_is_certified(coins: Simulated) -> None:
    assert np.abs(coins.gain).max() < 1e-12
    seen, unseen = coins.in_sample.terms, coins.held_out.terms
    assert (seen["gain"] > 0).mean() > 0.95 and (seen["gain_low"] > 0).mean() > 0.5
    for low in ("gain_low", "improvement_bound_low", "whole_bound_low"):
        assert (unseen[low] > 0).mean() <= BY_CHANCE
    assert (unseen["mark"] == ABOVE).mean() <= BY_CHANCE
    assert abs(unseen["gain"].mean()) < 3 * unseen["gain"].std() / np.sqrt(STEPS)


def test_only_what_was_held_out_is_ever_called_certified(coins: Simulated) -> None:
    said = promises.certificate_sentence(coins.in_sample)
    assert said.startswith("In-sample") and "certif" not in said
    with pytest.raises(ValueError, match="certifies nothing"):
        promises.held_out_sentence(coins.in_sample)
    said = promises.held_out_sentence(coins.held_out)
    assert "no update is certified" in said or "no more than chance" in said


@pytest.mark.parametrize("stale", [0.0, 0.1])
def test_a_real_gain_is_certified_and_no_more_than_it_is(stale: float, tmp_path: Path) -> None:
    found = simulated(tmp_path / "run", coins=False, stale=stale, rate=5.0)
    assert (found.gain > 0).all()
    unseen = found.held_out.terms
    for low in ("gain_low", "improvement_bound_low", "whole_bound_low"):
        assert (unseen[low] > found.gain).mean() <= BY_CHANCE
    assert abs((unseen["gain"] - found.gain).mean()) < 3 * (unseen["gain"] - found.gain).std() / np.sqrt(STEPS)
    assert (unseen["gain_low"] > 0).mean() > 0.7
    if stale == 0:  # the bound has no penalty then, and is not vacuous
        assert (unseen["mark"] == ABOVE).mean() > 0.7
    said = promises.held_out_sentence(found.held_out)
    assert "an improvement is certified in" in said and "chance" not in said
    assert "(32 a step)" in said
