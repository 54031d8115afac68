"""Small decision problems, enumerated: every response of a tree of prefixes, with exact expectations by recursion."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.drift.bounds import factors

Array = NDArray[np.float64]
State = tuple[int, ...]
Policy = Mapping[State, Array]

ACTIONS, LONGEST, END = 3, 3, 0


def is_final(state: State) -> bool:
    return bool(state) and (state[-1] == END or len(state) == LONGEST)


def _states(state: State = ()) -> list[State]:
    below = [] if is_final(state) else [s for a in range(ACTIONS) for s in _states((*state, a))]
    return [state, *below]


STATES = _states()
OPEN = [state for state in STATES if not is_final(state)]
FINAL = [state for state in STATES if is_final(state)]


@dataclass(frozen=True)
class Problem:
    """Every response of a tree of prefixes, with exact expectations by recursion; `reward` is paid on arrival."""

    reward: Mapping[State, float]
    gamma: float

    def value(self, policy: Policy, state: State = ()) -> float:
        if is_final(state):
            return 0.0
        return float(sum(policy[state][a] * self.action_value(policy, state, a) for a in range(ACTIONS)))

    def action_value(self, policy: Policy, state: State, action: int) -> float:
        after = (*state, action)
        return self.reward[after] + self.gamma * self.value(policy, after)

    def advantage(self, policy: Policy, state: State) -> Array:
        return np.array([self.action_value(policy, state, a) for a in range(ACTIONS)]) - self.value(policy, state)

    def discounted_mean(self, policy: Policy, of: Callable[[State], float]) -> float:
        """Mean over responses of the sum of gamma^t of(state)."""
        return sum(reach(policy, state) * self.gamma ** len(state) * of(state) for state in OPEN)


def reach(policy: Policy, state: State) -> float:
    return float(np.prod([policy[state[:t]][state[t]] for t in range(len(state))]))


def tv(p: Policy, q: Policy, state: State) -> float:
    return float(np.abs(p[state] - q[state]).sum() / 2)


def random_policy(rng: np.random.Generator, near: Policy | None = None, step: float = 0.0) -> Policy:
    if near is None:
        return {state: rng.dirichlet(np.ones(ACTIONS)) for state in OPEN}
    moved = {state: np.log(near[state]) + step * rng.standard_normal(ACTIONS) for state in OPEN}
    return {state: np.exp(logits) / np.exp(logits).sum() for state, logits in moved.items()}


def completed(final_reward: Mapping[State, float], behavior: Policy, gamma: float) -> Problem:
    """The problem of the certificate: the behavior policy takes over with probability 1 - gamma after every token."""
    plain = Problem({state: final_reward.get(state, 0.0) for state in STATES}, 1.0)
    values = {
        state: final_reward.get(state, 0.0) if is_final(state) else plain.value(behavior, state) for state in STATES
    }
    return Problem({s: values[s] - (0 if is_final(s) else gamma * values[s]) for s in STATES}, gamma)


@dataclass(frozen=True)
class Exact:
    """L, U, S and |J(new) - J(current)| of a mixture of versions, each with its own problem."""

    surrogate: float
    drift: float
    staleness: float
    gain: float
    largest_advantage: float


def exact_terms(problems: list[Problem], versions: list[Policy], current: Policy, new: Policy) -> Exact:
    """S0 Corollary 3.2 under trajectory-level mixing in equal parts (Lemma 2.1)."""
    pairs = list(zip(problems, versions, strict=True))

    def mean(of: Callable[[Problem, Policy], float]) -> float:
        return float(np.mean([of(problem, version) for problem, version in pairs]))

    def discounted(distance: Callable[[Policy, State], float]) -> float:
        return mean(lambda problem, i: (1 - problem.gamma) * problem.discounted_mean(i, lambda s: distance(i, s)))

    return Exact(
        mean(lambda problem, i: problem.discounted_mean(i, lambda s: float(new[s] @ problem.advantage(i, s)))),
        discounted(lambda _, s: tv(new, current, s)),
        discounted(lambda i, s: tv(current, i, s)),
        mean(lambda problem, _: problem.value(new) - problem.value(current)),
        max(
            np.abs(problem.advantage(policy, s)).max()
            for problem, i in pairs for policy in (i, current) for s in OPEN
        ),
    )  # fmt: skip


def improvement_bound(surrogate: float, drift: float, staleness: float, advantage_bound: float, gamma: float) -> float:
    """L - C1 U - C2 S (S0 Corollary 3.2), of exact terms."""
    c1, c2 = factors(advantage_bound, gamma)
    return surrogate - c1 * drift - c2 * staleness
