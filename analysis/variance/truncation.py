"""Truncated importance sampling over its cap C: what bias costs in variance on the logged tokens (S1 7).

found = truncation(run, 100, 120, "sequence")
found.caps["bias_proxy"], found.own["variance_proxy"], found.fraction
found.sentence
"""

from dataclasses import dataclass
from math import inf

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.numbers import number
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.what_if import Rule, apply, load_tokens, own_rule, sweep

# 1 is the hardest cap that a weight can have; without one it is plain importance sampling.
CAPS = (1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 50.0, inf)
LEVELS = ("token", "sequence")


@dataclass(frozen=True)
class Truncation:
    """The sweep over C and the run's own rule, on the same tokens."""

    level: str
    """Whose ratio is truncated: each token's, or that of the whole response (sequence)."""
    caps: pd.DataFrame
    """Indexed by C, with the columns of `analysis.what_if.Numbers.row`."""
    own: dict[str, float | str]
    """The same of the run's own rule; empty where it cannot be replayed or weighs another level."""
    own_words: str
    """The run's own rule, or why there is none to show; text of the log."""
    n_tokens: int
    fraction: float
    """Share of the tokens of these steps that were looked at; below 1 a random sample of whole prompt groups."""

    def doubted(self, key: str) -> "pd.Series[bool]":
        """By C: the measure has a value that cannot be trusted."""
        return self.caps["unreliable"].map(lambda names: key in str(names).split(", ")).astype(bool)

    @property
    def sentence(self) -> str:
        """From the hardest cap to the loosest one: what bias falls and what variance rises."""
        bias, variance = (self.caps[key].astype(float) for key in ("bias_proxy", "variance_proxy"))
        if bias.isna().all() or variance.isna().all():
            return "No token has an advantage other than 0: there is no gradient that a weight could change."
        what = "tokens" if self.level == "token" else "whole responses"
        hard, loose = (float(self.caps.index[place]) for place in (0, -2))
        text = (
            f"Truncating the ratio of {what} at {hard:g} removes {number(bias.loc[hard])} of its mass, with a variance "
            f"(mean v²) of {number(variance.loc[hard])}. At {loose:g} it removes {number(bias.loc[loose])}, with "
            f"{number(variance.loc[loose])}."
        )
        doubted = self.doubted("variance_proxy")
        if doubted.any():
            first = float(doubted.index[int(np.argmax(doubted))])
            where = "without a cap" if np.isinf(first) else f"from a cap of {first:g} on"
            text += f" The tail is too heavy to trust the variance {where}."
        return text


def truncation(run: Run, first: int, last: int, level: str, max_tokens: int | None = None) -> Truncation:
    """Sweep min(ratio, C) over the steps first..last, both included.

    Args:
        level: one of `LEVELS`.
        max_tokens: look at a random sample of prompt groups with no more tokens than this.

    Raises:
        RatioscopeError: no such level, or no usable token in these steps.
    """
    tokens = load_tokens(run, first, last, max_tokens=max_tokens)
    rule = Rule(weight="truncated", weight_parameters={"cap": CAPS[0]}, weight_level=level)
    caps = sweep(rule, "cap", CAPS, tokens)
    own, why_not = own_rule(run)
    row: dict[str, float | str] = {}
    if own is None:
        words = why_not
    elif own.weight_level != level and own.weight != "none":
        words = f"The run's own rule does not weight at this level: {own.words}."
    else:
        words = f"The run's own rule: {own.words}."
        row = apply(own, tokens).overall.row
    return Truncation(level, caps, row, words, len(tokens), tokens.fraction)
