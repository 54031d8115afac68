"""Random tabular problems of many shapes, for theorems that must hold in all of them."""

import numpy as np

from ratioscope.analysis.laboratory.tabular import Array, Problem


def any_problem(seed: int) -> tuple[np.random.Generator, Problem]:
    """Two to six states, two to four actions; near-deterministic to uniform transitions, rare to usual rewards."""
    rng = np.random.default_rng(seed)
    states, actions = int(rng.integers(2, 7)), int(rng.integers(2, 5))
    transition = rng.dirichlet(np.full(states, rng.choice([0.02, 0.3, 3.0])), size=(states, actions))
    reward = rng.standard_normal((states, actions)) * (rng.random((states, actions)) < rng.choice([0.2, 1.0]))
    start = rng.dirichlet(np.full(states, rng.choice([0.05, 1.0])))
    return rng, Problem(transition, reward, start, float(rng.choice([0.1, 0.5, 0.9, 0.99])))


def a_policy(rng: np.random.Generator, problem: Problem) -> Array:
    """Near-deterministic to uniform."""
    states, actions = problem.reward.shape
    return rng.dirichlet(np.full(actions, rng.choice([0.05, 1.0, 5.0])), size=states)
