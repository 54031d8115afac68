"""What a rule does to tokens by advantage and ratio: its shape, where the ratios are, who loses gradient.

shape = profile(rule, density(tokens))        # what a token's gradient is multiplied with, over the ratio
frame = before_the_gate(apply(rule, tokens))  # share of the gradient by advantage and ratio, before and behind the gate
replay_sentence(logged, replayed)
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ratioscope.analysis.clipping.quadrants import QUADRANTS
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.what_if import STOPPING, Rule, RuleOutcome, Tokens, tokens_of
from ratioscope.analysis.what_if.judging import judge_tokens
from ratioscope.rules.filters import FilterRow
from ratioscope.rules.parameters import Judged
from ratioscope.rules.weights import WEIGHTS
from ratioscope.tails import Array

# Even in asinh(log ratio / 0.01), as the heat map of ratios: fine near 1, logarithmic far from it.
_FINEST = 0.01
_POINTS, _BINS = 400, 120
_WIDEST = np.log(1e3)


@dataclass(frozen=True)
class Density:
    """Where the token ratios rho_theta are, by the sign of the advantage."""

    ratio: Array
    """At the middle of each bin, (n_bins,)."""
    positive: Array
    """Tokens with A > 0 in each bin."""
    negative: Array
    logp_behavior: float
    """Median log-probability when sampled, nats; NaN without a token."""


def density(tokens: Tokens) -> Density:
    """The ratios of the tokens with an advantage."""
    signal = tokens.signal
    logs = tokens.rows.ratios.behavior[signal].clamp(-_WIDEST, _WIDEST).numpy()
    positive = (tokens.advantage[signal] > 0).numpy()
    if not len(logs):
        return Density(np.empty(0), np.empty(0), np.empty(0), float("nan"))
    reach = max(float(np.abs(np.quantile(logs, [0.0005, 0.9995])).max()), float(np.log(2)))
    edges = np.sinh(np.linspace(-np.arcsinh(reach / _FINEST), np.arcsinh(reach / _FINEST), _BINS + 1)) * _FINEST
    up, down = (np.histogram(logs[rows], edges)[0].astype(float) for rows in (positive, ~positive))
    middle = np.exp((edges[1:] + edges[:-1]) / 2)
    return Density(middle, up, down, float(tokens.logp_behavior[signal].median()))


@dataclass(frozen=True)
class Profile:
    """What a token's gradient is multiplied with, over its ratio, (n_points,) each; `reason`: why there is none."""

    ratio: Array
    positive: Array
    """weight x gate where A > 0."""
    negative: Array
    about: str = ""
    """What holds for the tokens that it is drawn for; empty where nothing has to be assumed."""
    reason: str = ""


_ASSUMED = {
    Judged.STEP: "for fresh tokens: ρ_k = 1",
    Judged.STALENESS: "over ρ_k",
    Judged.PROBABILITY: "for a token of the median probability",
}


def profile(rule: Rule, seen: Density) -> Profile:
    """A rule as a function of the ratio, over the ratios that were seen; sequences are those of one token.

    Each point is a token with this ratio that was sampled by the current policy; where a rule judges by rho_k, the
    ratio is rho_k.
    """
    empty = np.empty(0)
    gate, weight = STOPPING[rule.gate], WEIGHTS[rule.weight]
    if gate.judged is Judged.AGE:
        return Profile(empty, empty, empty, reason="the age of a response decides here, not its ratio")
    logs = np.log(seen.ratio) if len(seen.ratio) else np.array([-np.log(2), np.log(2)])
    grid = np.linspace(logs[0], logs[-1], _POINTS)
    b = seen.logp_behavior if np.isfinite(seen.logp_behavior) else -1.0
    stands = gate.judged is Judged.STALENESS
    points = {
        "step": np.zeros(len(grid), dtype=np.int64),
        "group_id": np.arange(len(grid)),
        "seq_id": np.arange(len(grid)),
        "logp_behavior": np.full(len(grid), b),
        "logp_current": b + (grid if stands else 0 * grid),
        "logp_gate": b + grid,
        "version_lag": np.zeros(len(grid), dtype=np.int64),
    }
    positive, negative = (
        judge_tokens(rule, tokens_of(points | {"advantage": np.full(len(grid), sign)}), set()).applied.numpy()
        for sign in (1.0, -1.0)
    )
    about = [_ASSUMED[part.judged] for part in (gate, weight) if part.judged in _ASSUMED][:1]
    if rule.gate_level != "token" or rule.weight_level != "token" or (isinstance(gate, FilterRow) and gate.sequences):
        about.append("over the ratio of a response")
    return Profile(np.exp(grid), positive, negative, ", ".join(about))


def before_the_gate(outcome: RuleOutcome) -> pd.DataFrame:
    """By advantage and token ratio rho_k: share of Σ|weight A| before the gate, and how much of it the gate takes.

    Columns: advantage, ratio, before (share of all), taken (share of the quadrant's; NaN where it has none).
    """
    tokens = outcome.tokens
    mass = outcome.weight * tokens.size
    left = outcome.applied * tokens.size
    up, above = tokens.advantage > 0, tokens.rows.ratios.current > 0
    whole = float(mass.sum())
    rows = []
    for (sign, side), rows_of in zip(QUADRANTS, (up & above, up & ~above, ~up & above, ~up & ~above), strict=True):
        here, behind = float(mass[rows_of].sum()), float(left[rows_of].sum())
        rows.append((sign, side, here / whole if whole else np.nan, 1 - behind / here if here else np.nan))
    return pd.DataFrame(rows, columns=["advantage", "ratio", "before", "taken"])


def at_the_start(tokens: Tokens) -> Tokens | None:
    """The tokens as a gate sees them before the first gradient pass; None where the gate was logged nowhere else."""
    return None if tokens.logp_gate is tokens.logp_current else replace(tokens, logp_gate=tokens.logp_current)


def replay_sentence(logged: "pd.Series[float]", replayed: "pd.Series[float]") -> str:
    """Whether the rule that the run states stops what the log says was stopped.

    Args:
        logged, replayed: clip fraction by step.
    """
    logged = logged.reindex(replayed.index).dropna()
    if not len(logged):
        return "The log has no clip mask: what the stated gate stops is computed from the log-probs."
    apart = (replayed.reindex(logged.index) - logged).abs()
    if apart.max() < 5e-4:
        return "Replayed on the logged log-probs, the stated gate stops what the log says was stopped."
    return (
        f"Replayed on the logged log-probs, the stated gate stops a share of the tokens up to {percent(apart.max())} "
        f"away from the logged one (step {apart.idxmax()}). The log's mask and the stated rule do not match."
    )
