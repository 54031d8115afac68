"""Applying a rule to logged tokens: tensor operations, sums by prompt group, then numbers with intervals and marks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from analysis.intervals import NO_INTERVAL, Interval
from analysis.what_if.measures import MEASURES, TAILS, WHY_EMPTY
from analysis.what_if.permitted import permitted_drift, why_unbounded
from analysis.what_if.rule import STOPPING, Rule
from analysis.what_if.tokens import Tokens, masked, starts_of
from ratioscope.gates import FILTERS, Gate
from ratioscope.metric import Moment, khat_limit
from ratioscope.tails import Array, pareto_khat, tail_size
from ratioscope.weights import WEIGHTS


@dataclass(frozen=True)
class Numbers:
    """The measures of some tokens; a value without an estimate is NaN, and `notes` says why, or why not to trust it."""

    values: dict[str, float]
    intervals: dict[str, Interval]
    """95 %, cluster-robust over prompt groups; only where there is one."""
    notes: dict[str, str]

    @property
    def row(self) -> dict[str, float | str]:
        """Every value, and each mean's interval as <measure>_lower and <measure>_upper, NaN where there is none.

        `unreliable` names what has a value that cannot be trusted.
        """
        ends = {key: self.intervals.get(key, NO_INTERVAL) for key in MEASURES}
        lower = {f"{key}_lower": interval.low for key, interval in ends.items()}
        upper = {f"{key}_upper": interval.high for key, interval in ends.items()}
        unreliable = ", ".join(key for key in self.notes if np.isfinite(self.values[key]))
        return {**self.values, **lower, **upper, "unreliable": unreliable}


class _Part(NamedTuple):
    """Some steps: which tokens, prompt groups and sequences are theirs."""

    tokens: slice
    groups: slice
    sequences: slice


_EVERYTHING = _Part(slice(None), slice(None), slice(None))


class _Tail(NamedTuple):
    khat: float | None
    n: int


@dataclass(frozen=True)
class Outcome:
    """What a rule makes of tokens."""

    rule: Rule
    tokens: Tokens
    """What it was applied to: whole sequences only, where the rule needs them."""
    decision: Gate
    """Value and side of each token."""
    weight: Tensor
    """The weight before the gate, 0 without an advantage; (n_tokens,), float64."""
    applied: Tensor
    """weight x gate, 0 without an advantage; (n_tokens,), float64."""
    left_out: int
    """Tokens of sequences with an unusable token, which the rule cannot judge."""
    sums: Mapping[str, Array] = field(repr=False)
    """What the measures are ratios of, (n_groups,) each."""

    @property
    def values(self) -> dict[str, float]:
        """The measures of all tokens together."""
        return self.overall.values

    @cached_property
    def overall(self) -> Numbers:
        """All tokens together; prompt groups of different steps count as independent."""
        return self._numbers([_EVERYTHING])[0]

    @cached_property
    def by_step(self) -> dict[int, Numbers]:
        """Each step for itself, in order."""
        step = self.tokens.step.numpy()
        of_tokens, of_groups, of_sequences = (
            np.append(starts_of(of_rows), len(of_rows))
            for of_rows in (step, step[self.tokens.group_starts], step[self.tokens.sequence_starts])
        )
        parts = [
            _Part(*(slice(cuts[place], cuts[place + 1]) for cuts in (of_tokens, of_groups, of_sequences)))
            for place in range(len(of_tokens) - 1)
        ]
        return dict(zip(step[of_tokens[:-1]].tolist(), self._numbers(parts), strict=True))

    @property
    def frame(self) -> pd.DataFrame:
        """One row a step, as `Numbers.row` has them."""
        rows = {step: numbers.row for step, numbers in self.by_step.items()}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("step")

    def _numbers(self, parts: list[_Part]) -> list[Numbers]:
        """Of consecutive parts, which are all groups together."""
        starts = np.array([part.groups.start or 0 for part in parts], dtype=np.intp)
        ends = {
            key: measure.intervals(self.sums[measure.numerator], self.sums[measure.denominator], starts)
            for key, measure in MEASURES.items()
            if measure.numerator in self.sums and len(self.tokens)
        }
        found = []
        for place, part in enumerate(parts):
            here = {key: Interval(float(low[place]), float(high[place])) for key, (low, high) in ends.items()}
            found.append(self._of_part(part, here))
        return found

    def _of_part(self, part: _Part, intervals: dict[str, Interval]) -> Numbers:
        sums = {name: float(values[part.groups].sum()) for name, values in self.sums.items()}
        tails = {name: self._tail(name, part) for name in self._weights}
        values: dict[str, float] = {}
        notes: dict[str, str] = {}
        for key, measure in MEASURES.items():
            values[key] = float("nan")
            if not sums[measure.denominator]:
                notes[key] = WHY_EMPTY[measure.denominator]
            elif measure.numerator not in sums:
                notes[key] = why_unbounded(self.rule) if key == "permitted_drift" else "logp_new is not logged"
            else:
                values[key] = sums[measure.numerator] / sums[measure.denominator]
                notes[key] = _doubt(values[key], measure.moment, measure.tail, tails.get(measure.tail))
        for suffix, first, n, tail in (("", "v", "kept", "applied"), ("_raw", "rho", "signal", "raw")):
            ess, largest = f"ess{suffix}", f"max_weight{suffix}"
            values |= {ess: float("nan"), largest: float("nan")}
            notes |= {ess: WHY_EMPTY[n], largest: WHY_EMPTY[n]}
            if sums[n]:
                total, squares = sums[first], sums[f"{first}_squared"]
                # Squares of tiny weights may be 0, and large ones infinite: then there is no telling.
                values[ess] = total / squares * (total / sums[n]) if squares else float("nan")
                values[largest] = float(self._weights[tail](part).max())
                notes[ess] = _doubt(values[ess], Moment.SECOND, tail, tails[tail])
                notes[largest] = _doubt(values[largest], Moment.BOUNDED, tail, tails[tail])
        notes = {key: note for key, note in notes.items() if note}
        trusted = {key: i for key, i in intervals.items() if key not in notes and np.isfinite(i.low)}
        return Numbers(values, trusted, notes)

    @cached_property
    def _weights(self) -> dict[str, Callable[[_Part], Array]]:
        """What the tails of `TAILS` are of; 0 for what does not count, one a sequence where its tokens share it."""
        tokens, signal = self.tokens, self.tokens.signal
        weights = {
            "raw": self._of_sequences(lambda: masked(tokens.level(self.rule.weight_level).rho, signal)),
            "weight": self._of_sequences(lambda: self.weight),
            "applied": self._of_sequences(lambda: self.applied),
            "kept": _of_tokens(lambda: masked(tokens.rho_k, signal & (self.decision.value > 0))),
            "token": _of_tokens(lambda: masked(tokens.rho_k, signal)),
        }
        rho_new = tokens.rho_new
        if rho_new is not None:
            weights["new"] = _of_tokens(lambda: masked(rho_new, signal))
        return weights

    def _of_sequences(self, weights: Callable[[], Tensor]) -> Callable[[_Part], Array]:
        if not self.rule.shares_weights or not len(self.tokens):
            return _of_tokens(weights)
        starts = self.tokens.sequence_starts
        largest = cache(lambda: np.maximum.reduceat(weights().numpy(), starts))
        return lambda part: largest()[part.sequences]

    def _tail(self, name: str, part: _Part) -> _Tail:
        """A tail index, with how many weights it is of; what no rule changes is fitted once."""
        known = self.tokens.khats if part is _EVERYTHING and name in ("raw", "token", "new") else {}
        key = f"{name} {self.rule.weight_level} {self.rule.shares_weights}"
        if key not in known:
            weights = self._weights[name](part)
            n = int(np.count_nonzero(weights))
            cut = max(len(weights) - tail_size(n) - 1, 0)
            largest = np.sort(np.partition(weights, cut)[cut:])[::-1] if len(weights) else weights
            with np.errstate(divide="ignore"):
                known[key] = (pareto_khat(np.log(largest), n)[0], n)
        return _Tail(*known[key])


def _of_tokens(weights: Callable[[], Tensor]) -> Callable[[_Part], Array]:
    found = cache(lambda: weights().numpy())
    return lambda part: found()[part.tokens]


def _doubt(value: float, moment: Moment, name: str, tail: _Tail | None) -> str:
    """Why a number cannot be trusted; empty where it can."""
    if not np.isfinite(value):
        return "infinite: a weight is beyond the floating-point range" if np.isinf(value) else "undefined"
    if tail is None or tail.khat is None:
        return ""
    limit = khat_limit(moment, tail.n)
    if limit is None or tail.khat < limit:
        return ""
    return f"unreliable: k-hat of {TAILS[name]} is {tail.khat:.2f}, from {limit:.2f} on its moment cannot be estimated"


def apply(rule: Rule, tokens: Tokens) -> Outcome:
    """What the rule would have done with these tokens.

    A rule that looks at sequences is applied to whole sequences; the tokens of others are counted in `left_out`.
    """
    judged = tokens.complete if rule.needs_sequences else tokens
    decision = decide(rule, judged)
    ratios = judged.level(rule.weight_level).ratios
    weight = WEIGHTS[rule.weight](ratios, judged.advantage, judged.sequence, **rule.weight_parameters)
    weight = masked(weight, judged.signal)
    applied = masked(weight, decision.value)
    sums = _sums(rule, judged, decision, weight, applied)
    return Outcome(rule, judged, decision, weight, applied, len(tokens) - len(judged), sums)


def decide(rule: Rule, tokens: Tokens) -> Gate:
    """The gate or filter of a rule, on every token."""
    stop = STOPPING[rule.gate]
    if rule.gate in FILTERS:
        return stop(tokens.rows, **rule.gate_parameters)
    return stop(tokens.level(rule.gate_level).ratios, tokens.advantage, **rule.gate_parameters)


def _sums(rule: Rule, tokens: Tokens, decision: Gate, weight: Tensor, applied: Tensor) -> dict[str, Array]:
    """Sums by prompt group of every numerator and denominator of the measures."""
    by_group, value, side, clipped = tokens.sum_by_group, decision.value, decision.side, decision.clipped
    level = tokens.level(rule.weight_level)
    kept = tokens.signal & (value > 0)
    # A ratio and a weight that both overflow are the same one: inf - inf is no mass that was truncated.
    beyond = (level.rho - weight).nan_to_num_(nan=0.0, posinf=torch.inf).clamp_(min=0)
    sums = tokens.sums | level.sums | {
        "clipped": by_group(clipped),
        "clipped_low": by_group(side < 0),
        "clipped_positive": by_group(clipped & (tokens.advantage > 0)),
        "gate": by_group(value),
        "effective": by_group(value * tokens.signal),
        "kept": by_group(kept),
        "v": by_group(applied),
        "v_squared": by_group(applied.square()),
        "v_advantage": by_group(masked(applied, tokens.size)),
        "w_advantage": by_group(masked(weight, tokens.size)),
        "v_deviation": by_group(masked((applied - 1).square_(), kept)),
        "truncated": by_group(masked(masked(beyond, value), tokens.signal)),
        "masked": by_group(masked(masked(level.rho, 1 - value), tokens.signal)),
        "kept_staleness": by_group(masked(tokens.staleness, kept)),
    }  # fmt: skip
    sums["clipped_high"] = sums["clipped"] - sums["clipped_low"]
    sums["clipped_negative"] = sums["clipped"] - sums["clipped_positive"]
    sums["taken"] = sums["truncated"] + sums["masked"]
    if tokens.drift is not None:
        sums["kept_drift"] = by_group(masked(tokens.drift, kept))
        sums["clipped_drift"] = by_group(masked(tokens.drift, clipped))
    if not why_unbounded(rule):
        sums["permitted"] = by_group(permitted_drift(rule, tokens, decision))
    return sums
