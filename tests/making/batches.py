"""Batches of groups of responses as plain numbers, and the trainer's tensors of them."""

import itertools
import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from ratioscope.trainer.algorithms.advantages import GROUP_ADVANTAGES, TOKEN_ADVANTAGES
from ratioscope.trainer.algorithms.losses import ReferenceKL, Size, TokenBatch, policy_loss
from ratioscope.trainer.algorithms.parameters import taken_by
from ratioscope.trainer.algorithms.rows import ALGORITHMS
from ratioscope.trainer.algorithms.selection import SAMPLE_WEIGHTS, SELECTIONS

# T_max of every batch here; responses are shorter.
LONGEST = 7

# Bounds of 1/4, 1/2, 1, 3/2, 2 and 4: ratios can lie exactly on them, because exp(log x) is exact there.
EXACT_BOUNDS = {
    "epsilon_low": 0.5,
    "epsilon_high": 1.0,
    "outer_low": 0.75,
    "outer_high": 3.0,
    "epsilon": 0.5,
    "epsilon_log": math.log(2),
    "cap": 2.0,
    "floor": 0.5,
    "dual": 2.0,
}
EXACT_RATIOS = (0.25, 0.5, 1.0, 1.5, 2.0, 4.0)
# Away from values at which a factor would be invisible.
VISIBLE = {
    "tau": 0.5, "tau_positive": 1.5, "tau_negative": 2.0, "baseline_shift": 0.25, "gamma": 0.9,
    "difference_low": 0.3, "difference_high": 0.3, "difference": 0.3, "threshold": 0.2, "delta": 0.3, "moment": 0.3,
    "covariance_low": 0.1, "covariance_share": 0.2, "entropy_share": 0.4,
}  # fmt: skip


@dataclass
class Response:
    """One sampled response: its tokens' log-probs under pi_theta, pi_k and the behavior policy, and its reward."""

    theta: list[float]
    current: list[float]
    behavior: list[float]
    reward: float
    value: list[float]
    """What is known of the state before each token: V of the critic, the entropy, the size of the gradient."""
    kept: bool = True
    group: list["Response"] = field(default_factory=list, repr=False, compare=False)
    batch: list["Response"] = field(default_factory=list, repr=False, compare=False)
    """All responses of its optimiser step, for formulas that look at them."""

    def __len__(self) -> int:
        return len(self.theta)

    def rho(self, t: int) -> float:
        """pi_theta / behavior of a token."""
        return math.exp(self.theta[t] - self.behavior[t])

    def rho_k(self, t: int) -> float:
        """pi_k / behavior of a token."""
        return math.exp(self.current[t] - self.behavior[t])

    @property
    def log_w(self) -> float:
        """log of pi_theta(y) / behavior(y), the product over the tokens (S4 eq. 105)."""
        return sum(theta - behavior for theta, behavior in zip(self.theta, self.behavior, strict=True))

    @property
    def log_moved(self) -> float:
        """log of pi_theta(y) / pi_k(y)."""
        return sum(theta - current for theta, current in zip(self.theta, self.current, strict=True))


Groups = list[list[Response]]


class Tensors(NamedTuple):
    """A batch as the trainer sees it."""

    logp: Tensor
    batch: TokenBatch
    size: Size


def parameters_of(name: str) -> dict[str, float]:
    """Parameters with which ratios can lie on bounds."""
    return {**ALGORITHMS[name].parameters} | {
        key: value for key, value in (EXACT_BOUNDS | VISIBLE).items() if key in ALGORITHMS[name].parameters
    }


def tensors(name: str, groups: Groups, dtype: torch.dtype = torch.float64, **changed: float) -> Tensors:
    """From rewards and critic to the tokens of the loss, with the trainer's own parts.

    Sets which responses the algorithm has kept.
    """
    algorithm, parameters = ALGORITHMS[name], parameters_of(name) | changed
    responses = [response for group in groups for response in group]
    for group in groups:
        for response in group:
            response.group = group
    reward = torch.tensor([[response.reward for response in group] for group in groups], dtype=torch.float64)
    ended = torch.tensor([[len(response) % 3 > 0 for response in group] for group in groups])
    kept = SELECTIONS[algorithm.selection](reward, torch.Generator().manual_seed(0))
    if algorithm.selection == "finished":
        kept = ended
    for response, keep in zip(responses, kept.flatten().tolist(), strict=True):
        response.kept = keep
    if algorithm.advantage in GROUP_ADVANTAGES:
        part, weigh = GROUP_ADVANTAGES[algorithm.advantage], SAMPLE_WEIGHTS[algorithm.sample_weight]
        compared = torch.ones_like(kept) if algorithm.selection == "finished" else kept
        of_responses = part(reward, compared, **taken_by(part, parameters))
        weight = weigh(reward, of_responses, kept, **taken_by(weigh, parameters)).flatten().tolist()
        advantage = [[a] * len(y) for a, y in zip(of_responses.flatten().tolist(), responses, strict=True)]
    else:
        of_tokens = TOKEN_ADVANTAGES[algorithm.advantage]
        length = torch.tensor([len(response) for response in responses])
        mask = torch.arange(LONGEST) < length.unsqueeze(1)
        value = torch.zeros(mask.shape, dtype=torch.float64)
        value[mask] = torch.tensor([v for response in responses for v in response.value], dtype=torch.float64)
        found = of_tokens(reward, mask, value, **taken_by(of_tokens, parameters))
        advantage, weight = (
            [row[: len(y)] for row, y in zip(found.tolist(), responses, strict=True)],
            [1.0] * len(length),
        )

    rows = [
        (y.theta[t], y.behavior[t], y.current[t], advantage[i][t], weight[i], y.value[t], i, i // len(groups[0]))
        for i, y in enumerate(responses)
        if y.kept
        for t in range(len(y))
    ]
    columns = list(zip(*rows, strict=True)) if rows else [()] * 8
    theta, behavior, current, a, w, entropy = (torch.tensor(column, dtype=dtype) for column in columns[:6])
    sequence, group_of = (torch.tensor(column, dtype=torch.long) for column in columns[6:])
    size = Size(tokens=len(rows), sequences=sum(y.kept for y in responses), longest=LONGEST)
    batch = TokenBatch(behavior, current, a, sequence, group_of, w, entropy=entropy)
    return Tensors(theta.requires_grad_(True), batch, size)


def mask_of(found: Tensors) -> Tensor:
    """(n, LONGEST) bool: the tokens of each response, every one of which has some."""
    return torch.arange(LONGEST) < torch.bincount(found.batch.sequence).unsqueeze(1)


def padded(found: Tensors, column: Tensor) -> Tensor:
    """(n_tokens,) -> (n, LONGEST), 0 after the end of a response."""
    mask = mask_of(found)
    return torch.zeros(mask.shape, dtype=torch.float64).masked_scatter(mask, column)


def gradient(name: str, found: Tensors, reference_kl: ReferenceKL | None = None) -> list[float]:
    """Of minus the loss with respect to the tokens' log-probs: the coefficients of grad log pi."""
    loss = policy_loss(ALGORITHMS[name], parameters_of(name), found.logp, found.batch, found.size, reference_kl).loss
    return (-torch.autograd.grad(loss, found.logp)[0]).tolist()


LOG_RATIOS = st.one_of(st.sampled_from([math.log(ratio) for ratio in EXACT_RATIOS]), st.floats(-3, 3))
TOKENS = st.tuples(LOG_RATIOS, LOG_RATIOS, st.floats(-2, 2))
# Groups of equal size, of responses with unequal lengths, none of them empty.
SHAPES = st.sampled_from(
    [((1,),), ((3, 1),), ((2,), (1,)), ((1, 2, 5),), ((2, 3), (1, 4)), ((1, 1, 2, 4), (3, 2, 1, 1)), ((1, 2),) * 3]
)


@st.composite
def batches(draw: st.DrawFn) -> Groups:
    """Up to three groups of responses with unequal lengths; behavior's log-probs are 0 so that ratios can be exact."""
    shape = draw(SHAPES)
    n_responses, n_tokens = sum(map(len, shape)), sum(map(sum, shape))
    tokens = iter(draw(st.lists(TOKENS, min_size=n_tokens, max_size=n_tokens)))
    # Quarters: means of equal ones are exact.
    quarters = iter(draw(st.lists(st.integers(-4, 4), min_size=n_responses, max_size=n_responses)))

    def response(length: int) -> Response:
        theta, current, value = zip(*itertools.islice(tokens, length), strict=True)
        return Response(list(theta), list(current), [0.0] * length, next(quarters) / 4, list(value))

    return [[response(length) for length in group] for group in shape]


def random_batch(seed: int, groups: int = 4, copies: int = 5, spread: float = 0.5) -> Groups:
    """Like real ones: log-probs of a few nats, ratios around one."""
    generator = torch.Generator().manual_seed(seed)

    def normal(length: int) -> list[float]:
        return torch.randn(length, generator=generator, dtype=torch.float64).tolist()

    def response() -> Response:
        length = int(torch.randint(1, LONGEST, (), generator=generator))
        behavior = [-abs(x) - 0.1 for x in normal(length)]
        current = [b + spread * x for b, x in zip(behavior, normal(length), strict=True)]
        theta = [c + spread * x for c, x in zip(current, normal(length), strict=True)]
        reward = int(torch.randint(0, 5, (), generator=generator)) / 4
        return Response(theta, current, behavior, reward, normal(length))

    return [[response() for _ in range(copies)] for _ in range(groups)]
