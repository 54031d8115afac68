"""Kinds of trouble that several rules look for: the metric that shows one, and what is said where none of them speaks.

A rule names its group in its declaration, and nothing calls a group fine while one of its rules speaks.
"""

from collections.abc import Callable
from enum import Enum

from ratioscope.analysis.findings.facts import DriftLevel, Facts, heavy_tails
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.words import at_most
from ratioscope.analysis.summary.summary import StepSummary


def _of_level(name: str, level: DriftLevel) -> str:
    return "" if level.largest > level.limit else at_most(name, level)


def _tails(summary: StepSummary, facts: Facts) -> str:
    return "" if len(heavy_tails(summary, facts.limits)) else "no heavy tail of the ratios"


def _clipped(summary: StepSummary, _: Facts) -> str:
    clipped = summary.values["clip_fraction"]
    return f"clip fraction {percent(clipped.mean())} on average" if clipped.max() > 0 else ""


def _entropy(summary: StepSummary, _: Facts) -> str:
    known = summary.values["entropy"].dropna()
    return f"entropy {number(known.iloc[0], digits=2)} nats at first, {number(known.iloc[-1], digits=2)} at the end"


def _signal(summary: StepSummary, _: Facts) -> str:
    return f"{percent(summary.values['zero_advantage_group_fraction'].mean())} of the prompt groups without a signal"


class Group(Enum):
    """A kind of trouble: its metric and its sentence, in the order in which it is said what is fine."""

    STALENESS = ("s_k_bounded", "staleness", lambda _, facts: _of_level("staleness", facts.staleness))
    UPDATE = ("u_k", "update", lambda _, facts: _of_level("update drift", facts.update))
    TAILS = ("khat_token", "weights", _tails)
    CLIP = ("clip_fraction", "clipping", _clipped)
    ENTROPY = ("entropy", "entropy", _entropy)
    SIGNAL = ("zero_advantage_group_fraction", "signal", _signal)

    def __init__(self, metric: str, question: str, fine: Callable[[StepSummary, Facts], str]) -> None:
        self.metric = metric
        """Catalogue key of what has to be known before it is called fine."""
        self.question = question
        """The key in `QUESTIONS` of the columns that its rules need."""
        self.fine = fine
        """What is said where no rule speaks; empty: there is nothing to find fault with, and nothing to call fine."""
