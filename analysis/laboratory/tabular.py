"""Conservative policy iteration on tabular problems, where everything is exact (S4 4.1 to 4.5).

It mixes policies, not weights, which no network can; here are its step and the improvement that it is promised.
`python -m ratioscope.analysis.laboratory.tabular` prints the numbers of S4 4.1.1, and the course of conservative policy
iteration on that problem and on a random one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
"""Of a policy or an advantage: (states, actions)."""


@dataclass(frozen=True)
class Problem:
    """A discounted decision problem (S4 4.1): what follows a state and an action, rewards, where it begins."""

    transition: Array
    """(states, actions, states)."""
    reward: Array
    """(states, actions)."""
    start: Array
    """(states,)."""
    gamma: float
    """Below 1."""

    def values(self, policy: Array) -> Array:
        """V of every state, (states,)."""
        step = np.einsum("sa,sat->st", policy, self.transition)
        return np.linalg.solve(np.eye(len(step)) - self.gamma * step, (policy * self.reward).sum(axis=1))

    def performance(self, policy: Array) -> float:
        """J."""
        return float(self.start @ self.values(policy))

    def advantage(self, policy: Array) -> Array:
        """Q - V, (states, actions)."""
        values = self.values(policy)
        return self.reward + self.gamma * self.transition @ values - values[:, None]

    def occupancy(self, policy: Array) -> Array:
        """d: the normalised discounted share of the time that is spent in each state, (states,)."""
        step = np.einsum("sa,sat->st", policy, self.transition)
        return (1 - self.gamma) * np.linalg.solve(np.eye(len(step)) - self.gamma * step.T, self.start)


@dataclass(frozen=True)
class Iteration:
    """One iteration: what the bound promises, and what became of it."""

    performance: float
    """J of the policy before."""
    improvement: float
    """g of S4 eq. 58, what the surrogate gains if all of the candidate is taken."""
    largest: float
    """epsilon of S4 eq. 58, the largest expected advantage of a state under the candidate."""
    rate: float
    """alpha of S4 eq. 63, the share of the candidate that is taken."""
    promised: float
    """The lower bound of S4 eq. 60 on the gain."""
    gained: float
    policy: Array
    """After it."""


def greedy(advantage: Array) -> Array:
    """The policy that takes the best action of every state: the maximum of the surrogate (S4 eq. 54)."""
    return np.eye(advantage.shape[1])[advantage.argmax(axis=1)]


def bound(problem: Problem, policy: Array, candidate: Array, rate: float) -> float:
    """Least gain of (1 - rate) policy + rate candidate (S4 eq. 60)."""
    improvement, largest = _terms(problem, policy, candidate)
    gamma = problem.gamma
    return rate * improvement - 2 * gamma / (1 - gamma) ** 2 * largest * rate**2


def conservative_policy_iteration(
    problem: Problem, policy: Array, improve: Callable[[Array], Array] = greedy
) -> Iterator[Iteration]:
    """Iterate S4 4.5 until no candidate promises an improvement.

    Args:
        policy: to begin with, (states, actions).
        improve: a candidate from the advantages; it may be any approximation of `greedy`.
    """
    while True:
        candidate = improve(problem.advantage(policy))
        improvement, largest = _terms(problem, policy, candidate)
        if improvement <= 1e-12:
            return
        gamma = problem.gamma
        rate = min(1.0, (1 - gamma) ** 2 / (4 * gamma) * improvement / largest) if gamma else 1.0
        before, promised = problem.performance(policy), bound(problem, policy, candidate, rate)
        policy = (1 - rate) * policy + rate * candidate
        yield Iteration(before, improvement, largest, rate, promised, problem.performance(policy) - before, policy)


def _terms(problem: Problem, policy: Array, candidate: Array) -> tuple[float, float]:
    expected = (candidate * problem.advantage(policy)).sum(axis=1)
    return float(problem.occupancy(policy) @ expected) / (1 - problem.gamma), float(np.abs(expected).max())


def shifted_states(gamma: float = 0.9, loss: float = 100.0) -> Problem:
    """S4 4.1.1: a way to a state that an old policy hardly visits, and in which all depends on what is done there."""
    transition = np.zeros((3, 2, 3))
    transition[0, 0, 2] = transition[0, 1, 1] = 1
    transition[1:, :, 2] = 1
    return Problem(transition, np.array([[0.0, 0.0], [1.0, -loss], [0.0, 0.0]]), np.array([1.0, 0.0, 0.0]), gamma)


def two_ways(there: float, wrong: float) -> Array:
    """Return a policy of `shifted_states`: how often it goes to the second state, and does the wrong thing there."""
    return np.array([[1 - there, there], [1 - wrong, wrong], [1.0, 0.0]])


def random_problem(seed: int, states: int = 6, actions: int = 3, gamma: float = 0.9) -> Problem:
    """Dirichlet transitions and normal rewards."""
    rng = np.random.default_rng(seed)
    transition = rng.dirichlet(np.full(states, 0.3), size=(states, actions))
    return Problem(transition, rng.standard_normal((states, actions)), rng.dirichlet(np.ones(states)), gamma)


def main() -> None:
    """Print the numbers of S4 4.1.1 and the course of two problems."""
    problem, old, candidate = shifted_states(), two_ways(1e-4, 1e-3), two_ways(1, 1)
    before, after = problem.performance(old), problem.performance(candidate)
    promised, largest = _terms(problem, old, candidate)
    rate = (1 - problem.gamma) ** 2 / (4 * problem.gamma) * promised / largest
    print("S4 4.1.1: γ = 0.9, M = 100, η = 1e-4, η₂ = 1e-3")
    print(f"J(π) {before:.4g}, J(π′) {after:.4g}; the surrogate promises {promised:+.8f}, what it ignores is worth "
          f"{after - before - promised:+.8f}")  # fmt: skip
    print(f"ε {largest:.4g}; the bound is largest at α* = {rate:.2g} of π′")
    random = random_problem(0)
    courses = (("S4 4.1.1 from π", problem, old), ("a random problem", random, np.full(random.reward.shape, 1 / 3)))
    for title, problem, policy in courses:
        print(f"\n{title}\n{'k':>5}  {'J':>9}  {'g':>9}  {'epsilon':>9}  {'alpha':>9}  {'promised':>9}  {'gained':>9}")
        for k, step in enumerate(conservative_policy_iteration(problem, policy)):
            if k & (k - 1) == 0:  # 0, 1, 2, 4, 8, ...
                numbers = (step.performance, step.improvement, step.largest, step.rate, step.promised, step.gained)
                print(f"{k:>5}  " + "  ".join(f"{number:>9.4g}" for number in numbers))
            if k == 4096:
                break


if __name__ == "__main__":
    main()
