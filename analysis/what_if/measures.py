"""What an outcome says: every number of a rule, as a ratio of sums over prompt groups, with the moment that it needs.

*Signal tokens* are those with an advantage other than 0: the others have no gradient that a rule could change. A token
is *kept* where it is a signal token and its gate is above 0. rho is the ratio at the level of the rule's weight, v the
applied weight: weight x gate. Fractions of all tokens are those of the catalogue.
"""

from dataclasses import dataclass

import numpy as np

from ratioscope.analysis.summary.intervals import Index, cluster_intervals, fraction_intervals
from ratioscope.metric import Moment
from ratioscope.notes import Kind, Note
from ratioscope.tails import Array


@dataclass(frozen=True)
class Measure:
    """A number of an outcome: numerator / denominator, both sums over groups."""

    title: str
    definition: str
    numerator: str
    denominator: str
    moment: Moment = Moment.BOUNDED
    tail: str = ""
    """Of a second moment: whose largest weight decides whether it can be trusted, a key of `TAILS`."""
    share: bool = False
    """A part of a whole, although its terms are not bounded."""

    def intervals(self, numerator: Array, denominator: Array, starts: Index) -> tuple[Array, Array]:
        """Low and high ends of 95 % intervals, cluster-robust over prompt groups, of many steps at once.

        Args:
            numerator, denominator: sums by group, (n_groups,).
            starts: where each step's groups start, (n_steps,).
        """
        if self.moment is Moment.BOUNDED:
            return fraction_intervals(numerator, denominator, starts)
        return cluster_intervals(numerator, denominator, starts, lowest=0.0, highest=1.0 if self.share else np.inf)


TAILS = {
    "raw": "rho of the signal tokens (of their responses, for sequence-level weights)",
    "applied": "v of the kept tokens",
}

MEASURES: dict[str, Measure] = {
    "clip_fraction": Measure("Clipped", "Share of all tokens that the gate stops.", "clipped", "tokens"),
    "clip_fraction_low": Measure("Clipped below", "Stopped at the lower bound.", "clipped_low", "tokens"),
    "clip_fraction_high": Measure("Clipped above", "Stopped at the upper bound.", "clipped_high", "tokens"),
    "clip_fraction_positive": Measure("Clipped, A > 0", "Of the tokens with A > 0.", "clipped_positive", "positive"),
    "clip_fraction_negative": Measure("Clipped, A < 0", "Of the tokens with A < 0.", "clipped_negative", "negative"),
    "gate_mean": Measure("Mean gate", "Over all tokens.", "gate", "tokens"),
    "effective_token_fraction": Measure(
        "Effective tokens", "Mean of gate x [A ≠ 0] over all tokens.", "effective", "tokens"
    ),
    "kept_tokens": Measure("Kept tokens", "Share of the signal tokens, counted by their gate.", "effective", "signal"),
    "kept_gradient": Measure(
        "Kept gradient", "Share of Σ|weight A| that the gate leaves.", "v_advantage", "w_advantage",
        Moment.FIRST, share=True,
    ),
    "mean_weight": Measure("Mean weight", "Mean v of the kept tokens.", "v", "kept", Moment.FIRST),
    "mean_weight_raw": Measure("Mean ratio", "Mean rho of the signal tokens.", "rho", "signal", Moment.FIRST),
    "chi2": Measure("χ²", "Mean (v - 1)² of the kept tokens.", "v_deviation", "kept", Moment.SECOND, "applied"),
    "chi2_raw": Measure(
        "χ², raw", "Mean (rho - 1)² of the signal tokens.", "rho_deviation", "signal", Moment.SECOND, "raw"
    ),
    "variance_proxy": Measure(
        "Variance proxy", "Mean v² of the signal tokens: the gradient's variance grows with it.",
        "v_squared", "signal", Moment.SECOND, "applied",
    ),
    "variance_proxy_raw": Measure(
        "Variance proxy, raw", "Mean rho² of the signal tokens.", "rho_squared", "signal", Moment.SECOND, "raw"
    ),
    "truncated_mass": Measure(
        "Truncated mass", "Mean gate x (rho - weight)⁺ of the signal tokens.", "truncated", "signal",
        Moment.FIRST,
    ),
    "masked_mass": Measure(
        "Masked mass", "Mean rho (1 - gate) of the signal tokens.", "masked", "signal", Moment.FIRST
    ),
    "bias_proxy": Measure(
        "Bias proxy", "Truncated and masked mass together: the part of E rho that the rule removes.",
        "taken", "signal", Moment.FIRST,
    ),
    "staleness": Measure(
        "Staleness of what is kept", "½ mean |rho_k - 1| of the kept tokens; no total variation of a policy.",
        "kept_staleness", "kept", Moment.FIRST,
    ),
    "staleness_raw": Measure(
        "Staleness, plain form", "½ mean |rho_k - 1| of the signal tokens.", "staleness", "signal", Moment.FIRST
    ),
    "drift_kept": Measure(
        "Drift, kept", "½ mean |rho_{k+1} - rho_k| of the kept tokens, as the run's own update moved them.",
        "kept_drift", "kept", Moment.FIRST,
    ),
    "drift_clipped": Measure(
        "Drift, clipped", "The same of the clipped tokens.", "clipped_drift", "clipped", Moment.FIRST
    ),
    "permitted_drift": Measure(
        "Permitted drift", "Half the mean step that the rule's bounds permit the signal tokens; others have no bound.",
        "permitted", "signal",
        Moment.FIRST,
    ),
}  # fmt: skip

# Title, definition, whether it is a share.
_OTHERS = {
    "ess": (
        "Effective sample size", "(Σv)² / (n Σv²) of the kept tokens: the share that the weights leave effective.", True
    ),
    "ess_raw": ("Effective sample size, raw", "The same of rho and the signal tokens.", True),
    "max_weight": ("Largest weight", "Largest v of the kept tokens.", False),
    "max_weight_raw": ("Largest ratio", "Largest rho of the signal tokens.", False),
}  # fmt: skip


def described(key: str) -> tuple[str, str]:
    """Title and definition of a value of an outcome, also of those that are no ratio of sums."""
    return _OTHERS[key][:2] if key in _OTHERS else (MEASURES[key].title, MEASURES[key].definition)


def is_measure_share(key: str) -> bool:
    """Whether a value of an outcome is a part of a whole: within [0, 1], written in percent."""
    if key in _OTHERS:
        return _OTHERS[key][2]
    return MEASURES[key].moment is Moment.BOUNDED or MEASURES[key].share


WHY_EMPTY = {
    "tokens": Note(Kind.UNDEFINED, "no token"),
    "signal": Note(Kind.UNDEFINED, "no token with an advantage other than 0"),
    "kept": Note(Kind.UNDEFINED, "the rule keeps no token"),
    "clipped": Note(Kind.UNDEFINED, "the rule stops no token"),
    "positive": Note(Kind.UNDEFINED, "no token with positive advantage"),
    "negative": Note(Kind.UNDEFINED, "no token with negative advantage"),
    "w_advantage": Note(Kind.UNDEFINED, "the rule gives no token a weight"),
}
