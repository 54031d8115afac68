"""What a study says about its runs, compared with the runs: does our curve agree with the paper's finding?

A claim is a difference (or a level) of one number a run, expected above, below or alike; the verdict is taken from a
95 % t interval over seeds, paired by seed where two settings are compared.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np
import pandas as pd

from ratioscope.analysis.compare import LAST_VALUES, end_value, t_interval
from ratioscope.analysis.summary.summary import StepSummary

Values = Mapping[int, float]
"""One number a seed."""


class Verdict(StrEnum):
    """Whether the data bear a claim out."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Claim:
    """A sentence that a study can bear out: `measure` of one setting, or minus that of another, is as expected."""

    text: str
    source: str
    preset: str
    of: str
    measure: str
    expect: Literal["above", "below", "alike"]
    than: str = ""
    margin: float = 0.0
    """Above: by more than it; below: by more than it; alike: within it."""


@dataclass(frozen=True)
class Judgement:
    """A claim with its number: mean over seeds, 95 % interval (NaN with one seed)."""

    claim: Claim
    verdict: Verdict
    value: float
    low: float
    high: float
    seeds: int

    def sentence(self) -> str:
        """One line for the terminal."""
        claim = self.claim
        interval = f"[{self.low:+.3f}, {self.high:+.3f}]" if np.isfinite(self.low) else "no interval"
        what = f"{MEASURES[claim.measure][1]} of {claim.of}" + (f" minus {claim.than}" if claim.than else "")
        numbers = f"{what}: {self.value:+.3f} {interval}, {self.seeds} seeds; {claim.source}"
        return f"{self.verdict:<10}  {claim.text}\n            {numbers}"


def _accuracy(summary: StepSummary) -> pd.Series:
    return summary.values["eval_accuracy"].dropna()


def _end(summary: StepSummary) -> float:
    return end_value(summary.values["eval_accuracy"])


def _change(summary: StepSummary) -> float:
    return _end(summary) - float(_accuracy(summary).iloc[0])


def _early(summary: StepSummary) -> float:
    accuracy = _accuracy(summary)
    return float(accuracy.iloc[: len(accuracy) // 2].mean())


def _drop(summary: StepSummary) -> float:
    """From the best mean of neighbouring evaluations: the single best one would be luck."""
    return float(_accuracy(summary).rolling(LAST_VALUES, min_periods=1).mean().max()) - _end(summary)


def _clip(summary: StepSummary) -> float:
    return float(summary.values["clip_fraction"].mean())


def _clip_growth(summary: StepSummary) -> float:
    """Mean clip fraction of the stalest third of the updates minus that of the freshest."""
    frame = summary.values[["version_lag", "clip_fraction"]].dropna().sort_values("version_lag")
    third = max(1, len(frame) // 3)
    return float(frame["clip_fraction"].iloc[-third:].mean() - frame["clip_fraction"].iloc[:third].mean())


MEASURES: dict[str, tuple[Callable[[StepSummary], float], str]] = {
    "end": (_end, f"accuracy at the end (mean of {LAST_VALUES} evaluations)"),
    "change": (_change, "accuracy at the end minus at the start"),
    "early": (_early, "mean accuracy in the first half"),
    "drop": (_drop, "fall from the peak to the end"),
    "clip": (_clip, "mean clip fraction"),
    "clip_growth": (_clip_growth, "growth of the clip fraction from fresh to stale data"),
}


def measure(claim: Claim, summary: StepSummary) -> float:
    """The claim's number for one run."""
    return MEASURES[claim.measure][0](summary)


def judge(claim: Claim, of: Values, than: Values | None = None) -> Judgement:
    """Hold a claim against its numbers.

    Args:
        claim: what is said.
        of: the numbers of the setting that it is about, by seed.
        than: those of the setting that it is compared with; only seeds that both have count.
    """
    seeds = sorted(of.keys() & than.keys()) if than is not None else sorted(of)
    values = np.asarray([of[seed] - (than[seed] if than is not None else 0.0) for seed in seeds])
    values = values[np.isfinite(values)]
    mean, low, high = map(float, t_interval(values))
    verdict = _verdict(claim, low, high) if len(values) > 1 else Verdict.UNDECIDED
    return Judgement(claim, verdict, mean, low, high, len(values))


def text(judgements: Sequence[Judgement]) -> str:
    """All claims of a study, and how many of them the runs bear out."""
    counts = Counter(judgement.verdict for judgement in judgements)
    return "\n".join(
        [
            "What the source finds, and what these runs say (95% intervals over seeds, paired by seed):",
            "",
            *(judgement.sentence() for judgement in judgements),
            "",
            f"{len(judgements)} claims: {', '.join(f'{counts[verdict]} {verdict}' for verdict in Verdict)}",
        ]
    )


def _verdict(claim: Claim, low: float, high: float) -> Verdict:
    """Agrees where the whole interval is as expected, disagrees where none of it is."""
    if claim.expect == "below":
        low, high = -high, -low
    if claim.expect == "alike":
        inside = -claim.margin <= low and high <= claim.margin
        outside = low > claim.margin or high < -claim.margin
    else:
        inside, outside = low > claim.margin, high <= claim.margin
    return Verdict.AGREES if inside else Verdict.DISAGREES if outside else Verdict.UNDECIDED
