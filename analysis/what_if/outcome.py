"""Applying a rule to logged tokens: tensor operations, sums by prompt group, then numbers with intervals and marks."""

from collections.abc import Callable
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
from analysis.what_if.tokens import Tail, Tokens, gated, masked, starts_of
from ratioscope.gates import FILTERS, Gate
from ratioscope.metric import Moment, doubt
from ratioscope.tails import Array, khat_of
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

        Not _low and _high: `clip_fraction_low` and `clip_fraction_high` are measures themselves. `unreliable` names
        what has a value that cannot be trusted.
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


class _Block(NamedTuple):
    """What a rule makes of a block of tokens."""

    tokens: Tokens
    decision: Gate
    weight: Tensor
    applied: Tensor
    sums: dict[str, Array]


@dataclass(frozen=True)
class Outcome:
    """What a rule makes of tokens."""

    rule: Rule
    tokens: Tokens
    """What it was applied to: whole sequences only, where the rule needs them."""
    left_out: int
    """Tokens of sequences with an unusable token, which the rule cannot judge."""
    blocks: tuple[_Block, ...] = field(repr=False)
    """One for each of `tokens.blocks`."""

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
        tails = {name: self._tail(name, part) for name in self._log_weights}
        values: dict[str, float] = {}
        notes: dict[str, str] = {}
        for key, measure in MEASURES.items():
            values[key] = float("nan")
            if not sums[measure.denominator]:
                notes[key] = WHY_EMPTY[measure.denominator]
            elif measure.numerator not in sums:
                notes[key] = _why_absent(key, self.rule)
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
                values[largest] = tails[tail].largest
                notes[ess] = _doubt(values[ess], Moment.SECOND, tail, tails[tail])
                notes[largest] = _doubt(values[largest], Moment.BOUNDED, tail, tails[tail])
        notes = {key: note for key, note in notes.items() if note}
        trusted = {key: i for key, i in intervals.items() if key not in notes and np.isfinite(i.low)}
        return Numbers(values, trusted, notes)

    @cached_property
    def _log_weights(self) -> dict[str, Callable[[_Part], Array]]:
        """What the tails of `TAILS` are of, -inf for what does not count; one a sequence where its tokens share it."""
        level = self.rule.weight_level
        logs = {
            "raw": self._of_sequences(lambda b: _chosen(b.tokens.level(level).ratios.behavior, b.tokens.signal)),
            "weight": self._of_sequences(lambda b: b.weight.log()),
            "applied": self._of_sequences(lambda b: b.applied.log()),
            "kept": self._of_tokens(lambda b: _chosen(b.tokens.rows.ratios.current, _kept(b.tokens, b.decision))),
            "token": self._of_tokens(lambda b: _chosen(b.tokens.rows.ratios.current, b.tokens.signal)),
        }
        if self.tokens.logp_new is not None:
            logs["new"] = self._of_tokens(lambda b: _chosen(b.tokens.log_rho_new, b.tokens.signal))
        return logs

    def _of_tokens(self, logs: Callable[[_Block], Tensor]) -> Callable[[_Part], Array]:
        every = cache(lambda: torch.cat([logs(block) for block in self.blocks]).numpy())
        return lambda part: every()[part.tokens]

    def _of_sequences(self, logs: Callable[[_Block], Tensor]) -> Callable[[_Part], Array]:
        if not self.rule.shares_weights or not len(self.tokens):
            return self._of_tokens(logs)
        every = cache(
            lambda: np.concatenate([
                np.maximum.reduceat(logs(block).numpy(), block.tokens.sequence_starts) for block in self.blocks
            ])
        )  # fmt: skip
        return lambda part: every()[part.sequences]

    def _tail(self, name: str, part: _Part) -> Tail:
        """The tail of some weights; what another rule, or another gate, does not change is fitted once."""
        unchanged = {
            "raw": f"raw {self.rule.weight_level} {self.rule.shares_weights}",
            "weight": f"weight {self.rule.weight} {self.rule.weight_level} {self.rule.weight_parameters}",
            "token": "token",
            "new": "new",
        }
        fitted = self.tokens.tails if part is _EVERYTHING and name in unchanged else {}
        key = unchanged.get(name, name)
        if key not in fitted:
            logs = self._log_weights[name](part)
            counts = logs > -np.inf
            logs = logs if counts.all() else logs[counts]
            khat, reason = khat_of(logs)
            # What a rule makes of ratios may be tied, at its bounds: no reason to doubt.
            harmless = name in ("weight", "applied")
            with np.errstate(over="ignore"):
                fitted[key] = Tail(
                    khat, "" if harmless else reason, len(logs), float(np.exp(logs.max(initial=-np.inf)))
                )
        return fitted[key]


def _kept(tokens: Tokens, decision: Gate) -> Tensor:
    return tokens.signal & (decision.value > 0)


def _chosen(logs: Tensor | None, rows: Tensor) -> Tensor:
    assert logs is not None
    return torch.where(rows, logs, -torch.inf)


def _doubt(value: float, moment: Moment, name: str, tail: Tail | None) -> str:
    """Why a number cannot be trusted; empty where it can."""
    if not np.isfinite(value):
        return "infinite: a weight is beyond the floating-point range" if np.isinf(value) else "undefined"
    return doubt(f"k-hat of {TAILS[name]}", tail.khat, moment, tail.n, tail.reason) if tail else ""


def apply(rule: Rule, tokens: Tokens) -> Outcome:
    """What the rule would have done with these tokens.

    A rule that looks at sequences is applied to whole sequences; the tokens of others are counted in `left_out`.
    """
    judged = tokens.complete if rule.needs_sequences else tokens
    return Outcome(rule, judged, len(tokens) - len(judged), tuple(_judge(rule, block) for block in judged.blocks))


def _judge(rule: Rule, tokens: Tokens) -> _Block:
    decision = decide(rule, tokens)
    ratios = tokens.level(rule.weight_level).ratios
    weight = WEIGHTS[rule.weight](ratios, tokens.advantage, tokens.sequence, **rule.weight_parameters)
    weight = masked(weight, tokens.signal)
    applied = gated(weight, decision.value)
    return _Block(tokens, decision, weight, applied, _sums(rule, tokens, decision, weight, applied))


def decide(rule: Rule, tokens: Tokens) -> Gate:
    """The gate or filter of a rule, on every token."""
    stop = STOPPING[rule.gate]
    if rule.gate in FILTERS:
        return stop(tokens.rows, **rule.gate_parameters)
    return stop(tokens.level(rule.gate_level).ratios, tokens.advantage, **rule.gate_parameters)


def _is_geometric(rule: Rule) -> bool:
    """Whether the weight is a geometric mean, which is no importance ratio: what it leaves out has no mass."""
    return rule.weight_level == "geometric" or rule.weight == "geometric_of_clipped"


def _why_absent(key: str, rule: Rule) -> str:
    """Why a measure has no sums."""
    if key == "permitted_drift":
        return why_unbounded(rule)
    if key in ("truncated_mass", "masked_mass", "bias_proxy"):
        return "a geometric mean is not an importance ratio: its mean need not be 1, and no mass of it can be missed"
    return "logp_new is not logged"


def _sums(rule: Rule, tokens: Tokens, decision: Gate, weight: Tensor, applied: Tensor) -> dict[str, Array]:
    """Sums by prompt group of every numerator and denominator of the measures."""
    by_group, value, side, clipped = tokens.sum_by_group, decision.value, decision.side, decision.clipped
    level = tokens.level(rule.weight_level)
    kept = _kept(tokens, decision)
    # A ratio and a weight that both overflow are the same one: inf - inf is no mass that was truncated.
    beyond = (level.rho - weight).nan_to_num_(nan=0.0, posinf=torch.inf).clamp_(min=0)
    sums = tokens.sums | level.sums | {
        "clipped": by_group(clipped),
        "clipped_low": by_group(side < 0),
        "clipped_positive": by_group(clipped & (tokens.advantage > 0)),
        "gate": by_group(value),
        "effective": by_group(masked(value, tokens.signal)),
        "kept": by_group(kept),
        "v": by_group(applied),
        "v_squared": by_group(applied.square()),
        "v_advantage": by_group(applied * tokens.size),
        "w_advantage": by_group(weight * tokens.size),
        "v_deviation": by_group(masked((applied - 1).square_(), kept)),
        "truncated": by_group(masked(gated(beyond, value), tokens.signal)),
        "masked": by_group(masked(gated(level.rho, 1 - value), tokens.signal)),
        "kept_staleness": by_group(masked(tokens.staleness, kept)),
    }  # fmt: skip
    sums["clipped_high"] = sums["clipped"] - sums["clipped_low"]
    sums["clipped_negative"] = sums["clipped"] - sums["clipped_positive"]
    sums["taken"] = sums["truncated"] + sums["masked"]
    if _is_geometric(rule):
        sums = {name: values for name, values in sums.items() if name not in ("truncated", "masked", "taken")}
    if tokens.drift is not None:
        sums["kept_drift"] = by_group(masked(tokens.drift, kept))
        sums["clipped_drift"] = by_group(masked(tokens.drift, clipped))
    if not why_unbounded(rule):
        sums["permitted"] = by_group(permitted_drift(rule, tokens, decision))
    return sums
