"""The largest weight that a rule gives, of all tokens or of a step: what a second moment may rest on (`doubt`)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ratioscope.analysis.what_if.judging import JudgedBlock
from ratioscope.analysis.what_if.rule import Rule
from ratioscope.analysis.what_if.tokens import StepsPart
from ratioscope.tails import Array
from ratioscope.tensors import torch


class Top(NamedTuple):
    """The largest of n weights other than 0; tokens of a response that share a weight count once."""

    n: int
    log_largest: float
    """-inf where there is none."""

    @property
    def largest(self) -> float:
        with np.errstate(over="ignore"):
            return float(np.exp(self.log_largest))


def merged(tops: Sequence[Top]) -> Top:
    """Of several parts together."""
    return Top(sum(top.n for top in tops), max(top.log_largest for top in tops))


def tops(rule: Rule, blocks: Sequence[JudgedBlock], name: str, parts: Sequence[StepsPart]) -> list[Top]:
    """The largest of the weights that `TAILS` calls `name`, of each part."""
    logs = np.concatenate([_logs(rule, block, name) for block in blocks])
    found = (logs[part.sequences if rule.shares_weights else part.tokens] for part in parts)
    return [Top(int(np.count_nonzero(part > -np.inf)), float(part.max(initial=-np.inf))) for part in found]


def _logs(rule: Rule, block: JudgedBlock, name: str) -> Array:
    """Log-weights of a block's tokens, or of its responses where their tokens share them; -inf for 0."""
    if name == "raw":
        ratios = block.tokens.level(rule.weight_level).ratios.behavior
        logs: Array = torch.where(block.tokens.signal, ratios, -torch.inf).numpy()
    else:
        logs = block.applied.log().numpy()
    return np.asarray(np.maximum.reduceat(logs, block.tokens.sequence_starts)) if rule.shares_weights else logs
