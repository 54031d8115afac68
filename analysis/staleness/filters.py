"""What a filter on age or staleness would leave out of a logged run, and how stale the rest would be.

tokens = what_if.load(run, first=10, last=20)
curve(tokens, "epsilon_stale", STALE_VALUES)      # dropped and staleness of what is kept, by value
sentence(effect(tokens, "max_lag", 3))
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.what_if import Numbers, Rule, Tokens, apply, sweep

STALE_VALUES = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0)
"""Values of ε_stale that a curve is drawn over."""

RULES = {
    "epsilon_stale": Rule("stale", {"epsilon_stale": 0.4}, "none"),
    "max_lag": Rule("window", {"max_lag": 3.0}, "none"),
}
"""The filters, by their parameter: S0 5.6 and 7.3."""


@dataclass(frozen=True)
class FilterEffect:
    """What one value of a filter's parameter does."""

    parameter: str
    value: float
    numbers: Numbers


def lag_values(tokens: Tokens, most: int = 9) -> list[float]:
    """Largest lags to keep that a curve is drawn over: those that occur, thinned to about `most` of them.

    None at all where the tokens have no version.
    """
    if tokens.version_lag is None:
        return []
    lags = np.unique(tokens.version_lag.numpy())
    if len(lags) <= most:
        return [float(lag) for lag in lags]
    return [float(lag) for lag in lags[np.unique(np.linspace(0, len(lags) - 1, most).round().astype(int))]]


def curve(tokens: Tokens, parameter: str, values: Sequence[float]) -> pd.DataFrame:
    """By value of the parameter: dropped and staleness of what is kept, each with its interval and note.

    Columns: dropped, dropped_low, dropped_high (share of the tokens with an advantage other than 0), staleness,
    staleness_low, staleness_high, staleness_raw (of all of them), unreliable (what cannot be trusted).
    """
    found = sweep(RULES[parameter], parameter, values, tokens)
    return pd.DataFrame(
        {
            "dropped": 1 - found["kept_tokens"],
            "dropped_low": 1 - found["kept_tokens_upper"],
            "dropped_high": 1 - found["kept_tokens_lower"],
            "staleness": found["staleness"],
            "staleness_low": found["staleness_lower"],
            "staleness_high": found["staleness_upper"],
            "staleness_raw": found["staleness_raw"],
            "unreliable": found["unreliable"],
        }
    )


def effect(tokens: Tokens, parameter: str, value: float) -> FilterEffect:
    """What a value of the parameter would do to these tokens."""
    outcome = apply(RULES[parameter].with_parameter(parameter, value), tokens)
    return FilterEffect(parameter, value, outcome.overall)


def filter_sentence(found: FilterEffect) -> str:
    """What the filter changes most: how many tokens there are, or how stale they are."""
    values = found.numbers.values
    name = f"ε_stale = {found.value:g}"
    if found.parameter == "max_lag":
        name = f"A window of W = {found.value + 1:g} (lags up to {found.value:g})"
    if np.isnan(values["kept_tokens"]):
        return f"{name}: {found.numbers.notes['kept_tokens']}."
    dropped = 1 - values["kept_tokens"]
    text = f"{name} would drop {percent(dropped)} of the tokens that carry a signal"
    if np.isnan(values["staleness"]):
        return f"{text}: nothing would be left."
    before, after = values["staleness_raw"], values["staleness"]
    if before > 0 and abs(after / before - 1) > dropped:
        return f"{name} would take the plain staleness from {before:.2g} to {after:.2g}."
    return f"{text}."
