"""A rule over the values of one of its parameters, many tokens part by part, and two rules side by side in words."""

from collections.abc import Generator, Iterable, Sequence
from typing import Protocol

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.what_if.measures import MEASURES, described
from ratioscope.analysis.what_if.numbers import Numbers
from ratioscope.analysis.what_if.outcome import Digest, Extract, apply, combined_outcome
from ratioscope.analysis.what_if.rule import Rule
from ratioscope.analysis.what_if.scales import value_of
from ratioscope.analysis.what_if.tokens import Tokens

SELECTION_CAVEAT = (
    "Staleness of the kept tokens is in-sample: selection is by the sampled token, so the policies themselves can be "
    "further apart."
)


class WithNumbers(Protocol):
    """What has the numbers of a rule: an `Outcome` or a `Digest`."""

    @property
    def rule(self) -> Rule: ...
    @property
    def overall(self) -> Numbers: ...


def sweep(rule: Rule, parameter: str, values: Iterable[float], tokens: Tokens) -> pd.DataFrame:
    """One row a value of the parameter, over all tokens, with the columns of `Numbers.row`.

    Raises:
        RatioscopeError: the rule has no such parameter, or a value is out of its range.
    """
    rows = {float(value): apply(rule.with_parameter(parameter, value), tokens).overall.row for value in values}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(parameter)


def evaluate_rule(
    rules: Sequence[Rule],
    parts: Iterable[Tokens],
    *,
    keys: Sequence[str] | None = None,
    curves: Sequence[str] = (),
) -> Generator[int, None, list[Digest]]:
    """Rules on tokens that come in parts of consecutive steps, of which one at a time is in memory.

    Yields how many tokens have been judged, all rules together, and may be left at any of these points; returns the
    numbers of each rule.

    Args:
        keys: the only measures that are wanted; None: all.
        curves: those that are wanted step by step.
    """
    extracts: list[list[Extract]] = [[] for _ in rules]
    done = 0
    for part in parts:
        for rule, found in zip(rules, extracts, strict=True):
            found.append(apply(rule, part, keys).extract(curves))
            done += len(part)
            yield done
    return [combined_outcome(found) for found in extracts]


def result_of(work: Generator[int, None, list[Digest]]) -> list[Digest]:
    """All of a piece of work at once."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: list[Digest] = end.value
            return found


def swept(parameter: str, digests: Sequence[Digest]) -> pd.DataFrame:
    """The numbers of rules that differ in one parameter, one row a value, with the columns of `Numbers.row`."""
    rows = {value_of(digest.rule, parameter): digest.overall.row for digest in digests}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(parameter)


def change_sentence(own: WithNumbers, other: WithNumbers) -> str:
    """What another rule would change against the run's own, in words."""
    a, b = own.overall.values, other.overall.values
    if np.isnan(b["kept_tokens"]):
        return "No token has an advantage other than 0: there is no gradient that a rule could change."
    parts = [
        f"stops {percent(b['clip_fraction'])} of the tokens instead of {percent(a['clip_fraction'])}",
        f"keeps {_share(b['kept_gradient'])} of its gradient's mass instead of {_share(a['kept_gradient'])}",
        f"has an effective sample size of {_number(b['ess'])} instead of {_number(a['ess'])} "
        f"(raw {_number(b['ess_raw'])})",
    ]
    if not np.isnan(a["bias_proxy"] + b["bias_proxy"]):
        parts.append(f"removes {number(b['bias_proxy'])} of the ratio's mass instead of {number(a['bias_proxy'])}")
    if not np.isnan(b["permitted_drift"]):
        before = (
            "where the rule that it is compared with has no bound"
            if np.isnan(a["permitted_drift"])
            else f"instead of {number(a['permitted_drift'])}"
        )
        parts.append(f"permits an update drift of {number(b['permitted_drift'])} {before}")
    text = f"On the logged tokens, {other.rule.words} {', '.join(parts)}."
    kept = {"kept_gradient", "ess", "bias_proxy", "permitted_drift"}
    doubtful = [MEASURES[key].title.lower() if key in MEASURES else "ESS" for key in kept & other.overall.notes.keys()
                if np.isfinite(b[key])]  # fmt: skip
    if doubtful:
        text += f" It rests on the largest weights, and cannot be trusted: {', '.join(sorted(doubtful))}."
    if not np.isnan(b["staleness"]) and b["clip_fraction"] > 0:
        text += (
            f" Of the tokens with an advantage the kept ones have a plain staleness of {b['staleness']:.2g}, all of "
            f"them {b['staleness_raw']:.2g}. " + SELECTION_CAVEAT
        )
    return text


_SHARES = ("clip_fraction", "kept_gradient", "ess")


def changed_most(own: WithNumbers, other: WithNumbers) -> str:
    """Which number another rule would change most, of those that are shares of a whole.

    One that cannot be trusted is named only where no other changes.
    """
    a, b = own.overall.values, other.overall.values
    moved = {key: abs(b[key] - a[key]) for key in _SHARES if not np.isnan(a[key] + b[key])}
    if not moved or np.isnan(b["kept_tokens"]):
        return "No token has an advantage other than 0: there is no gradient that a rule could change."
    key = max(moved, key=lambda key: (moved[key] > 0 and not other.overall.unreliable(key), moved[key]))
    title = described(key)[0]
    if percent(a[key]) == percent(b[key]):
        return f"It changes next to nothing: {title.lower()} stays at {percent(b[key])}."
    doubt = ", which rests on the largest weights" if other.overall.unreliable(key) else ""
    return f"Changed most: {title.lower()}, {percent(b[key])} instead of {percent(a[key])}{doubt}."


def _number(value: float) -> str:
    return "undefined" if np.isnan(value) else f"{value:.2f}"


def _share(value: float) -> str:
    return "an undefined share" if np.isnan(value) else f"{percent(value)}"
