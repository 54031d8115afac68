"""From a sampled batch to the tokens of a loss: rewards, what is left out, log-probs under pi_k, advantages."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ratioscope.rules.ratios import log_ratio, sequence_log_ratio
from ratioscope.trainer.algorithms.advantages import GROUP_ADVANTAGES, TOKEN_ADVANTAGES
from ratioscope.trainer.algorithms.algorithm import Algorithm
from ratioscope.trainer.algorithms.losses import Size, TokenBatch
from ratioscope.trainer.algorithms.own import pick, short
from ratioscope.trainer.algorithms.parameters import taken_by
from ratioscope.trainer.algorithms.selection import SAMPLE_WEIGHTS, SELECTIONS, overlong_penalty
from ratioscope.trainer.model.policy import ValueHead, entropy_of, evaluate
from ratioscope.trainer.sampling.rollout import Rollout, TrainingBatch
from ratioscope.trainer.sampling.schedule import in_window
from ratioscope.trainer.settings.config import TrainConfig

OUTSIDE_WINDOW, EXCESS_NEGATIVE, OVERLONG = "outside the version window", "excess negative", "overlong"


class Seen(NamedTuple):
    """What a forward pass says of each selected token, (n_tokens,) each; `distribution` (n_tokens, vocabulary)."""

    logp: Tensor
    entropy: Tensor
    distribution: Tensor | None
    value: Tensor | None

    def only(self, chosen: Tensor) -> "Seen":
        """Some of the tokens."""
        return Seen(*(None if column is None else column[chosen] for column in self))  # type: ignore[arg-type]


class BatchPart(NamedTuple):
    """Some groups of a batch, as one forward and backward pass takes them."""

    rollout: Rollout
    select: Tensor
    ids: Tensor | slice
    """Places of its tokens among those of the batch."""
    tokens: TokenBatch
    target: Tensor | None
    current: Tensor | None


@dataclass(frozen=True)
class Prepared:
    """A batch, ready for gradient passes; flat fields are over the tokens of `select`, in `nonzero` order."""

    rollout: Rollout
    select: Tensor
    """(n, response_length) bool: the tokens that are eligible for the loss."""
    reward: Tensor
    """(n,) after shaping."""
    reward_parts: dict[str, Tensor]
    dropped: list[str | None]
    """Why a response is left out of the loss; None: it is not."""
    sample_weight: Tensor
    """(n,)."""
    stale: int | None
    """Tokens that were dropped because of epsilon_stale; None where there is none."""
    tokens: TokenBatch
    target: Tensor | None
    """What the critic should say of each token's state."""
    seen: Seen
    """Under pi_k."""
    current: Tensor | None
    """Full distributions under pi_k, where they are kept."""

    def everything(self) -> BatchPart:
        """The whole batch."""
        return BatchPart(self.rollout, self.select, slice(None), self.tokens, self.target, self.current)

    def part(self, groups: Tensor) -> BatchPart:
        """Some of its groups."""
        rows = self._rows(groups).to(self.select.device)
        select = self.select[rows]
        places = torch.full(self.select.shape, -1, device=self.select.device)
        places[self.select] = torch.arange(int(self.select.sum()), device=self.select.device)
        ids = places[rows][select]
        sequence, _ = select.nonzero(as_tuple=True)
        tokens = TokenBatch(*(None if column is None else column[ids] for column in self.tokens))  # type: ignore[arg-type]
        tokens = tokens._replace(sequence=sequence, group=sequence // self.rollout.copies)
        target = None if self.target is None else self.target[ids]
        current = None if self.current is None else self.current[ids]
        return BatchPart(self.rollout.rows(rows), select, ids, tokens, target, current)

    def size(self, groups: Tensor, longest: int) -> Size:
        """What a loss over some of its groups is divided by."""
        rows = self._rows(groups).tolist()
        tokens = int(self.select[rows].sum())
        return Size(tokens=tokens, sequences=sum(self.dropped[row] is None for row in rows), longest=longest)

    def dropped_tokens(self) -> dict[str, int | None]:
        """Tokens that were left out, by reason; null where none was."""
        length = self.rollout.mask.sum(dim=1).tolist()

        def of(reason: str) -> int | None:
            found = [n for n, why in zip(length, self.dropped, strict=True) if why == reason]
            return sum(found) if found else None

        return {
            "tokens_dropped_stale": self.stale,
            "tokens_dropped_window": of(OUTSIDE_WINDOW),
            "tokens_dropped_excess_negative": of(EXCESS_NEGATIVE),
            "tokens_dropped_overlong": of(OVERLONG),
        }

    @property
    def n_groups(self) -> int:
        return len(self.dropped) // self.rollout.copies

    def _rows(self, groups: Tensor) -> Tensor:
        return (groups.unsqueeze(1) * self.rollout.copies + torch.arange(self.rollout.copies)).flatten()


@dataclass(frozen=True)
class Preparation:
    """How the batches of a run are prepared; it looks at the policy and changes nothing."""

    config: TrainConfig
    algorithm: Algorithm
    model: PreTrainedModel
    critic: ValueHead | None
    reference: PreTrainedModel
    longest: int
    keeps_distributions: bool

    def prepare(self, step: int, batch: TrainingBatch, generator: torch.Generator, *, gradient: bool) -> Prepared:
        """A batch for update `step`; with `gradient` the first pass can start from what was seen."""
        rollout, parameters = batch.rollout, self.config.parameters
        reward, parts = self._shaped(batch)
        kept, dropped = self._kept(step, batch, reward, generator)
        select = rollout.mask & kept.to(rollout.mask.device).unsqueeze(1)
        with torch.set_grad_enabled(gradient):
            seen = self.look(rollout, select)
        select, seen, stale = self._without_stale(rollout, select, seen)
        logp = seen.logp.detach()
        sequence, _ = select.nonzero(as_tuple=True)
        logp_reference = None
        if self.config.algorithm.reference_kl:
            with torch.no_grad():
                logp_reference = self.look(rollout, select, self.reference).logp
            if self.config.algorithm.reference_kl_estimator == "in_reward":
                distance = sequence_log_ratio(log_ratio(logp, logp_reference), sequence, len(reward))
                parts |= {"kl": -self.config.algorithm.reference_kl * distance.float().cpu()}
                reward = reward + parts["kl"]
        target = None
        if self.algorithm.advantage not in TOKEN_ADVANTAGES:
            part = pick("advantage", self.algorithm.advantage, GROUP_ADVANTAGES)
            compared = torch.tensor([reason in (None, OVERLONG) for reason in dropped])
            grouped, mask = reward.view(-1, rollout.copies), compared.view(-1, rollout.copies)
            of_responses = part(grouped, mask, **taken_by(part, parameters))
            weigh = pick("sample_weight", self.algorithm.sample_weight, SAMPLE_WEIGHTS)
            weight = weigh(grouped, of_responses, mask, **taken_by(weigh, parameters)).flatten()
            advantage = of_responses.flatten().to(logp.device)[sequence]
        else:
            advantage, target = self._token_advantage(rollout, select, reward, seen)
            weight = torch.ones_like(reward)
        tokens = TokenBatch(
            logp_behavior=rollout.logp[select],
            logp_current=logp,
            advantage=advantage,
            sequence=sequence,
            group=sequence // rollout.copies,
            sample_weight=weight.to(logp.device)[sequence],
            logp_reference=logp_reference,
            entropy=seen.entropy,
        )
        keep = self.keeps_distributions and seen.distribution is not None
        current = seen.distribution.detach() if keep and seen.distribution is not None else None
        return Prepared(rollout, select, reward, parts, dropped, weight, stale, tokens, target, seen, current)

    def look(self, rollout: Rollout, select: Tensor, model: PreTrainedModel | None = None) -> Seen:
        """A forward pass over the whole batch, in parts that fit into memory; only one part can have a gradient."""
        micro_batch = self.config.optimiser.micro_batch
        rows = micro_batch * rollout.copies if micro_batch else len(select)
        keep = self.keeps_distributions or torch.is_grad_enabled()
        found = []
        for start in range(0, len(select), rows):
            some = slice(start, start + rows)
            part = rollout if rows >= len(select) else rollout.rows(some)
            one = evaluate(
                model or self.model,
                part,
                select[some],
                critic=None if model else self.critic,
                checkpointing=self.config.optimiser.gradient_checkpointing and torch.is_grad_enabled(),
            )
            entropy = entropy_of(one.distribution.detach())
            found.append(Seen(one.logp, entropy, one.distribution if keep else None, one.value))
        if len(found) == 1:
            return found[0]
        columns = zip(*found, strict=True)
        return Seen(*(None if column[0] is None else torch.cat(column) for column in columns))  # type: ignore[arg-type]

    def _shaped(self, batch: TrainingBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """The reward that advantages are made of, and its parts where there are several."""
        fraction = self.config.parameters.get("overlong_fraction")
        if fraction is None:
            return batch.reward, {}
        length = batch.rollout.mask.sum(dim=1).cpu()
        penalty = overlong_penalty(length, batch.ended, self.longest, overlong_fraction=fraction)
        return batch.reward + penalty, {"task": batch.reward, "overlong": penalty}

    def _kept(
        self, step: int, batch: TrainingBatch, reward: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, list[str | None]]:
        """Which responses count, (n,) bool, and why the others do not."""
        rollout = batch.rollout
        name, parameters = self.algorithm.selection, self.config.parameters
        choose = pick("selection", name, SELECTIONS)
        selected = choose(reward.view(-1, rollout.copies), generator, **taken_by(choose, parameters)).flatten()
        left_out = EXCESS_NEGATIVE if name in SELECTIONS else f"left out by {short(name)}"
        if name == "finished":
            selected, left_out = selected & batch.ended, OVERLONG
        oldest = torch.where(rollout.mask, rollout.version, step).amin(dim=1).tolist()
        dropped: list[str | None] = []
        for chosen, version in zip(selected.tolist(), oldest, strict=True):
            recent = in_window(self.config.schedule, step, version)
            dropped.append(OUTSIDE_WINDOW if not recent else None if chosen else left_out)
        return torch.tensor([reason is None for reason in dropped]), dropped

    def _without_stale(self, rollout: Rollout, select: Tensor, seen: Seen) -> tuple[Tensor, Seen, int | None]:
        """Leave out the tokens with |rho_k - 1| > epsilon_stale (S0 5.6), and count them."""
        limit = self.config.schedule.epsilon_stale
        if limit is None:
            return select, seen, None
        fresh = torch.expm1(log_ratio(seen.logp.detach(), rollout.logp[select])).abs() <= limit
        remaining = torch.zeros_like(select)
        remaining[select] = fresh
        return remaining, seen.only(fresh), int((~fresh).sum())

    def _token_advantage(
        self, rollout: Rollout, select: Tensor, reward: Tensor, seen: Seen
    ) -> tuple[Tensor, Tensor | None]:
        """Per token, with the critic's target where there is a critic (S4 eq. 81)."""
        part = TOKEN_ADVANTAGES[self.algorithm.advantage]
        value = torch.zeros(select.shape, device=select.device)
        if seen.value is not None:
            value[select] = seen.value.detach()
        elif rollout.greedy_reward is not None:
            value = rollout.greedy_reward.unsqueeze(1).expand(value.shape)
        elif self.algorithm.advantage == "optimal_token_baseline":
            assert seen.distribution is not None  # kept because the algorithm needs it
            value[select] = (1 - 2 * seen.logp.exp() + seen.distribution.exp().square().sum(dim=-1)).detach()
        grouped = reward.to(select.device).view(-1, rollout.copies)
        advantage = part(grouped, rollout.mask, value, **taken_by(part, self.config.parameters))
        target = (advantage + value)[select] if self.critic else None
        return advantage[select], target
