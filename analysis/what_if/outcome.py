"""What a rule makes of tokens: numbers of all of them and of each step, and what is kept when the tokens are let go."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from ratioscope.analysis.summary.intervals import Interval
from ratioscope.analysis.what_if.judging import JudgedBlock, judge_tokens
from ratioscope.analysis.what_if.measures import MEASURES, TAILS
from ratioscope.analysis.what_if.numbers import MeasureCurve, Numbers, curve_of, ends_of, measures_of, needed, tails_of
from ratioscope.analysis.what_if.rule import Rule
from ratioscope.analysis.what_if.tails import Top, merged, tops
from ratioscope.analysis.what_if.tokens import EVERYTHING, StepsPart, Tokens
from ratioscope.rules.gates import Gate
from ratioscope.tails import Array
from ratioscope.tensors import Tensor, torch


@dataclass(frozen=True)
class RuleOutcome:
    """What a rule makes of tokens."""

    rule: Rule
    tokens: Tokens
    """What it was applied to: whole sequences only, where the rule needs them."""
    left_out: int
    """Tokens of sequences with an unusable token, which the rule cannot judge."""
    blocks: tuple[JudgedBlock, ...] = field(repr=False)
    """One for each of `tokens.blocks`."""
    keys: tuple[str, ...] | None = None
    """The only measures that there are; None: all."""

    @cached_property
    def decision(self) -> Gate:
        """Value and side of each token."""
        values, sides = zip(*(block.decision for block in self.blocks), strict=True)
        return Gate(torch.cat(values), torch.cat(sides))

    @cached_property
    def weight(self) -> Tensor:
        """The weight before the gate, 0 without an advantage; (n_tokens,), float64."""
        return torch.cat([block.weight for block in self.blocks])

    @cached_property
    def applied(self) -> Tensor:
        """weight x gate, 0 without an advantage; (n_tokens,), float64."""
        return torch.cat([block.applied for block in self.blocks])

    @cached_property
    def sums(self) -> dict[str, Array]:
        """What the measures are ratios of, (n_groups,) each."""
        return {name: np.concatenate([block.sums[name] for block in self.blocks]) for name in self.blocks[0].sums}

    @property
    def values(self) -> dict[str, float]:
        """The measures of all tokens together."""
        return self.overall.values

    @cached_property
    def overall(self) -> Numbers:
        """All tokens together; prompt groups of different steps count as independent."""
        return self._numbers([EVERYTHING])[0]

    @cached_property
    def by_step(self) -> dict[int, Numbers]:
        """Each step for itself, in order."""
        return dict(zip(self.tokens.steps, self._numbers(list(self.tokens.steps.values())), strict=True))

    @property
    def frame(self) -> pd.DataFrame:
        """One row a step, as `Numbers.row` has them."""
        rows = {step: numbers.row for step, numbers in self.by_step.items()}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("step")

    def curve(self, key: str) -> MeasureCurve | None:
        """A measure of `MEASURES` step by step; None where the rule, or the log, has none. Nothing else is computed."""
        measure, steps = MEASURES[key], list(self.tokens.steps.values())
        largest: list[Top] | None = None
        for tail in tails_of([key]) & self._names if measure.numerator in self.sums else ():
            largest = tops(self.rule, self.blocks, tail, steps)
        return curve_of(measure, self.sums, np.array([part.groups.start for part in steps], dtype=np.intp), largest)

    def extract(self, curves: Sequence[str] = ()) -> "Extract":
        """What is needed of it when the tokens are gone.

        Args:
            curves: measures that are wanted step by step.
        """
        return Extract(
            self.rule, len(self.tokens), self.left_out, self.tokens.without_gate, tuple(self.tokens.steps), self.sums,
            {name: tops(self.rule, self.blocks, name, [EVERYTHING])[0] for name in self._names},
            {key: self.curve(key) for key in curves}, self.keys,
        )  # fmt: skip

    @property
    def _names(self) -> set[str]:
        """The weights that its measures rest on."""
        return set(TAILS) if self.keys is None else tails_of(self.keys)

    def _numbers(self, parts: list[StepsPart]) -> list[Numbers]:
        """Of consecutive parts, which are all groups together."""
        starts = np.array([part.groups.start or 0 for part in parts], dtype=np.intp)
        ends = ends_of(self.sums, starts, self.keys) if len(self.tokens) else {}
        largest = {name: tops(self.rule, self.blocks, name, parts) for name in self._names}
        found = []
        for place, part in enumerate(parts):
            here = {key: Interval(float(low[place]), float(high[place])) for key, (low, high) in ends.items()}
            here_largest = {name: of_parts[place] for name, of_parts in largest.items()}
            found.append(measures_of(self.rule, self.sums, part.groups, here_largest, here, self.keys))
        return found


@dataclass(frozen=True)
class Extract:
    """What is left of the outcome of a rule on some steps; `combined_outcome` adds consecutive ones up."""

    rule: Rule
    n_tokens: int
    left_out: int
    without_gate: int
    steps: tuple[int, ...]
    sums: Mapping[str, Array]
    tops: Mapping[str, Top]
    curves: Mapping[str, MeasureCurve | None]
    keys: tuple[str, ...] | None


@dataclass(frozen=True)
class Digest:
    """The numbers of a rule without its tokens: small enough to be kept."""

    rule: Rule
    n_tokens: int
    left_out: int
    without_gate: int
    """Rows that were left out for their logp_gate alone."""
    steps: tuple[int, ...]
    overall: Numbers
    curves: Mapping[str, MeasureCurve | None]
    """By measure, step by step; None where the rule, or the log, has none."""

    @property
    def values(self) -> dict[str, float]:
        """The measures of all tokens together."""
        return self.overall.values


def combined_outcome(extracts: Sequence[Extract]) -> Digest:
    """The numbers of consecutive steps together, from at least one extract."""
    first = extracts[0]
    # What one part of the log lacks there is not for all of it.
    names = set.intersection(*(set(extract.sums) for extract in extracts))
    sums = {name: np.concatenate([extract.sums[name] for extract in extracts]) for name in first.sums if name in names}
    largest = {name: merged([extract.tops[name] for extract in extracts]) for name in first.tops}
    n_tokens = sum(extract.n_tokens for extract in extracts)
    ends = ends_of(sums, np.zeros(1, dtype=np.intp), first.keys) if n_tokens else {}
    intervals = {key: Interval(float(low[0]), float(high[0])) for key, (low, high) in ends.items()}
    return Digest(
        first.rule, n_tokens, sum(extract.left_out for extract in extracts),
        sum(extract.without_gate for extract in extracts),
        tuple(step for extract in extracts for step in extract.steps),
        measures_of(first.rule, sums, slice(None), largest, intervals, first.keys),
        {key: _joined([extract.curves[key] for extract in extracts]) for key in first.curves},
    )  # fmt: skip


def _joined(curves: Sequence[MeasureCurve | None]) -> MeasureCurve | None:
    there = [curve for curve in curves if curve is not None]
    if len(there) < len(curves):
        return None
    return MeasureCurve(*(np.concatenate(columns) for columns in zip(*there, strict=True)))


def apply(rule: Rule, tokens: Tokens, keys: Iterable[str] | None = None) -> RuleOutcome:
    """What the rule would have done with these tokens.

    A rule that looks at sequences is applied to whole sequences; the tokens of others are counted in `left_out`.

    Args:
        keys: the only measures that are wanted, which is faster; None: all.
    """
    judged = tokens.complete if rule.needs_sequences else tokens
    chosen = None if keys is None else tuple(keys)
    wanted = None if chosen is None else needed(chosen)
    blocks = tuple(judge_tokens(rule, block, wanted) for block in judged.blocks)
    return RuleOutcome(rule, judged, len(tokens) - len(judged), blocks, chosen)
