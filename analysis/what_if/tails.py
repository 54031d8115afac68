"""Tails of a rule's weights, of all tokens or of a step: the largest weights, and the index fitted to them.

Sorting is what costs. The order of the token ratios is found once; a rule that only chooses tokens, or whose weight
rises with the ratio, takes its largest weights from the head of that order.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.what_if.judging import Block
from ratioscope.analysis.what_if.rule import Rule
from ratioscope.analysis.what_if.tokens import Part, Tail, Tokens
from ratioscope.ratios import LogRatios
from ratioscope.tails import Array, pareto_khat, tail_size
from ratioscope.tensors import Tensor, torch
from ratioscope.weights import WEIGHTS

Places = NDArray[np.int64]
Mask = NDArray[np.bool_]

# What a rule makes of ratios may be tied, at its bounds: no reason to doubt.
_HARMLESS = ("weight", "applied")


class Top(NamedTuple):
    """The largest of n weights other than 0."""

    logs: Array
    """Descending; as many as a tail of n weights needs, or more."""
    n: int

    @property
    def largest(self) -> float:
        with np.errstate(over="ignore"):
            return float(np.exp(self.logs[0] if len(self.logs) else -np.inf))

    def tail(self, name: str) -> Tail:
        """The fit, for the tail `name` of `TAILS`."""
        khat, note = pareto_khat(self.logs, self.n)
        return Tail(khat, None if name in _HARMLESS else note, self.n, self.largest)


def merged(tops: Sequence[Top]) -> Top:
    """The largest weights of several parts together; each part has to have kept enough of them."""
    n = sum(top.n for top in tops)
    return Top(np.sort(np.concatenate([top.logs for top in tops]))[::-1][: _enough(n)], n)


def _enough(n: int) -> int:
    """How many of n weights a fit looks at: its tail and the cut-off."""
    return tail_size(n) + 1 if n else 0


class Tails:
    """The tails of what a rule makes of tokens."""

    def __init__(self, rule: Rule, tokens: Tokens, blocks: Sequence[Block]) -> None:
        self._rule, self._tokens, self._blocks = rule, tokens, blocks

    def fitted(self, name: str, parts: Sequence[Part]) -> list[Tail]:
        """The fits to the weights that `TAILS` calls `name`, of each part; what no rule changes is fitted once."""
        family, kept = self._unchanged(name), self._tokens.tails
        if family is None:
            return [top.tail(name) for top in self.tops(name, parts)]
        keys = [(family, part.tokens.start) for part in parts]
        if any(key not in kept for key in keys):
            kept |= dict(zip(keys, (top.tail(name) for top in self.tops(name, parts)), strict=True))
        return [kept[key] for key in keys]

    def tops(self, name: str, parts: Sequence[Part], of: int = 0) -> list[Top]:
        """The largest weights of each part: enough for its tail, and for that of `of` weights that they belong to."""
        if name in ("raw", "weight", "applied") and self._rule.shares_weights:
            every = self._by_sequence(name)
            return [self._sorted(every[part.sequences], of) for part in parts]
        if name == "new":
            return [self._sorted(self._logs_new[part.tokens], of) for part in parts]
        logs, order = self._in_order(name)
        if order is None:
            return [self._sorted(self._weights(name)[part.tokens].log().numpy(), of) for part in parts]
        counted = self._counted(name)
        sizes = [int(np.count_nonzero(counted[part.tokens])) for part in parts]
        places = [
            _first(self._tokens.order(order, part), counted, _enough(max(n, of)))
            for n, part in zip(sizes, parts, strict=True)
        ]
        largest = logs(np.concatenate(places)) if places else np.empty(0)
        cuts = np.cumsum([len(found) for found in places])[:-1]
        found = np.split(largest, cuts) if places else []
        return [Top(np.sort(part)[::-1], n) for part, n in zip(found, sizes, strict=True)]

    @staticmethod
    def _sorted(logs: Array, of: int) -> Top:
        """Of log-weights in any order, -inf for what does not count."""
        counts = logs > -np.inf
        logs = logs if counts.all() else logs[counts]
        n = len(logs)
        kept = min(_enough(max(n, of)), n)
        return Top(np.sort(np.partition(logs, n - kept)[n - kept :] if kept else logs)[::-1], n)

    def _unchanged(self, name: str) -> str | None:
        """Under which name a tail is kept that other rules share; None where it is this rule's alone."""
        rule = self._rule
        return {
            "raw": f"raw {rule.weight_level} {rule.shares_weights}",
            "weight": f"weight {rule.weight} {rule.weight_level}" if not rule.weight_parameters else None,
            "token": "token",
            "new": "new",
        }.get(name)

    def _in_order(self, name: str) -> tuple[Callable[[Places], Array], str | None]:
        """log-weights of some tokens, and the order of ratios in which they fall; None where there is none."""
        if name in ("kept", "token"):
            return lambda places: self._ratios(places).current.numpy(), "current"
        if name == "raw":
            return lambda places: self._ratios(places).behavior.numpy(), "behavior"
        hard = name == "weight" or all(block.hard for block in self._blocks)
        if not (WEIGHTS[self._rule.weight].rising and hard):
            return self._log_weights, None
        return self._log_weights, "behavior"

    def _log_weights(self, places: Places) -> Array:
        """Of tokens that share no weight, before the gate."""
        tokens, rule = self._tokens, self._rule
        weight: Tensor = WEIGHTS[rule.weight].function(
            self._ratios(places), tokens.advantage[places], tokens.sequence[places], **rule.weight_parameters
        )
        return weight.log().numpy()

    def _ratios(self, places: Places) -> LogRatios:
        return self._tokens.ratios_at(places)

    def _counted(self, name: str) -> Mask:
        """Which tokens a tail is of, (n_tokens,)."""
        if name not in self._masks:
            of: dict[str, Callable[[Block], Tensor]] = {
                "raw": lambda block: block.tokens.has_ratio,
                "token": lambda block: block.tokens.has_ratio_k,
                "kept": lambda block: block.kept & block.tokens.has_ratio_k,
                "weight": lambda block: block.weight > 0,
                "applied": lambda block: block.applied > 0,
            }
            self._masks[name] = np.concatenate([of[name](block).numpy() for block in self._blocks])
        return self._masks[name]

    @cached_property
    def _masks(self) -> dict[str, Mask]:
        return {}

    def _weights(self, name: str) -> Tensor:
        if name not in self._together:
            self._together[name] = torch.cat([self._of(name, block) for block in self._blocks])
        return self._together[name]

    @staticmethod
    def _of(name: str, block: Block) -> Tensor:
        return block.weight if name == "weight" else block.applied

    @cached_property
    def _together(self) -> dict[str, Tensor]:
        return {}

    @cached_property
    def _logs_new(self) -> Array:
        logs = []
        for block in self._blocks:
            assert block.tokens.log_rho_new is not None
            logs.append(torch.where(block.tokens.signal, block.tokens.log_rho_new, -torch.inf).numpy())
        return np.concatenate(logs)

    def _by_sequence(self, name: str) -> Array:
        """Log-weights by sequence, whose tokens share theirs, (n_sequences,); -inf where none counts."""
        if name not in self._sequences:
            self._sequences[name] = np.concatenate([self._largest(name, block) for block in self._blocks])
        return self._sequences[name]

    @cached_property
    def _sequences(self) -> dict[str, Array]:
        return {}

    def _largest(self, name: str, block: Block) -> Array:
        starts = block.tokens.sequence_starts
        if name == "raw":
            ratios = block.tokens.level(self._rule.weight_level).ratios.behavior
            logs = torch.where(block.tokens.signal, ratios, -torch.inf).numpy()
            return np.asarray(np.maximum.reduceat(logs, starts))
        with np.errstate(divide="ignore"):
            return np.log(np.maximum.reduceat(self._of(name, block).numpy(), starts))


def _first(order: NDArray[np.int32], chosen: Mask, wanted: int) -> Places:
    """The first `wanted` places of an order that are chosen; all that are where there are not so many."""
    end = 4 * wanted
    while True:
        head = order[:end]
        found = head[chosen[head]]
        if len(found) >= wanted or end >= len(order):
            return found[:wanted].astype(np.int64)
        end *= 4
