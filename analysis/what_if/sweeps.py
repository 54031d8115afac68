"""A rule over the values of one of its parameters, and two rules side by side in words."""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from analysis.what_if.measures import MEASURES
from analysis.what_if.outcome import Outcome, apply
from analysis.what_if.rule import Rule
from analysis.what_if.tokens import Tokens

SELECTION_CAVEAT = (
    "The staleness of what is kept is measured in-sample: selection is on the action, so the policies themselves can "
    "be further apart."
)


def sweep(rule: Rule, parameter: str, values: Iterable[float], tokens: Tokens) -> pd.DataFrame:
    """One row a value of the parameter, over all tokens, with the columns of `Numbers.row`.

    Raises:
        RatioscopeError: the rule has no such parameter, or a value is out of its range.
    """
    rows = {float(value): apply(rule.with_parameter(parameter, value), tokens).overall.row for value in values}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(parameter)


def sentence(own: Outcome, other: Outcome) -> str:
    """What another rule would change against the run's own, in words."""
    a, b = own.values, other.values
    if np.isnan(b["kept_tokens"]):
        return "No token has an advantage other than 0: there is no gradient that a rule could change."
    parts = [
        f"stops {b['clip_fraction']:.1%} of the tokens instead of {a['clip_fraction']:.1%}",
        f"keeps {_share(b['kept_gradient'])} of its gradient's mass instead of {_share(a['kept_gradient'])}",
        f"has an effective sample size of {_number(b['ess'])} instead of {_number(a['ess'])} "
        f"(raw {_number(b['ess_raw'])})",
    ]
    if not np.isnan(a["bias_proxy"] + b["bias_proxy"]):
        parts.append(f"takes {b['bias_proxy']:.3g} of the ratio's mass away instead of {a['bias_proxy']:.3g}")
    if not np.isnan(b["permitted_drift"]):
        before = (
            "where the own has no bound" if np.isnan(a["permitted_drift"]) else f"instead of {a['permitted_drift']:.3g}"
        )
        parts.append(f"permits an update drift of {b['permitted_drift']:.3g} {before}")
    text = f"On the logged tokens, {other.rule.words} {', '.join(parts)}."
    kept = {"kept_gradient", "ess", "bias_proxy", "permitted_drift"}
    doubtful = [MEASURES[key].title.lower() if key in MEASURES else "ESS" for key in kept & other.overall.notes.keys()
                if np.isfinite(b[key])]  # fmt: skip
    if doubtful:
        text += f" Tails are too heavy to trust: {', '.join(sorted(doubtful))}."
    if not np.isnan(b["staleness"]) and b["clip_fraction"] > 0:
        text += (
            f" What it keeps has a staleness of {b['staleness']:.2g}, everything {b['staleness_raw']:.2g}. "
            + SELECTION_CAVEAT
        )
    return text


def _number(value: float) -> str:
    return "undefined" if np.isnan(value) else f"{value:.2f}"


def _share(value: float) -> str:
    return "an undefined share" if np.isnan(value) else f"{value:.1%}"
