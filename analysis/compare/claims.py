"""What a study says about its runs, compared with the runs: does our curve agree with the paper's finding?

A claim is a difference (or a level) of one number a run, expected above, below or alike; the verdict is taken from a
95 % t interval over seeds, paired by seed where two settings are compared. A sentence of a source may have several
parts, each a claim ("faster, and as stable"), and is borne out where all of them are.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any, Literal

import numpy as np
import pandas as pd

from ratioscope.analysis.compare.aggregates import t_interval
from ratioscope.analysis.compare.grouping import LAST_VALUES, end_value
from ratioscope.analysis.summary.summary import StepSummary

Values = Mapping[int, float]
"""One number a seed."""


class ClaimVerdict(StrEnum):
    """Whether the data bear a claim out."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Claim:
    """What a study can bear out: `measure_claim` of one setting, or minus that of another, is as expected."""

    text: str
    source: str
    preset: str
    of: str
    measure: str
    expect: Literal["above", "below", "alike"]
    than: str = ""
    margin: float = 0.0
    """Above: by more than it; below: by more than it; alike: within it."""
    level: float = 0.7
    """For `updates_to`: the accuracy that is to be passed."""


def claims_of(rows: Iterable[Mapping[str, Any]]) -> list[Claim]:
    """The claims of a study's file; those of one sentence are its `parts`, neighbours that share its text."""
    whole = [{key: value for key, value in row.items() if key != "parts"} for row in rows]
    return [
        Claim(**sentence | part) for sentence, row in zip(whole, rows, strict=True) for part in row.get("parts", [{}])
    ]


@dataclass(frozen=True)
class Judgement:
    """A claim with its number: mean over seeds, 95 % interval (NaN with one seed)."""

    claim: Claim
    verdict: ClaimVerdict
    value: float
    low: float
    high: float
    seeds: int

    def sentence(self) -> str:
        """One line for the terminal."""
        claim = self.claim
        interval = f"[{self.low:+.3f}, {self.high:+.3f}]" if np.isfinite(self.low) else "no interval"
        wording = CLAIM_MEASURES[claim.measure][1].format(level=claim.level)
        what = f"{claim.preset}: {wording} of {claim.of}" + (f" minus {claim.than}" if claim.than else "")
        margin = f" (margin {claim.margin:g})" if claim.margin else ""
        return f"{what}: {self.value:+.3f} {interval}, {claim.expect}{margin}, {self.seeds} seeds"


def _accuracy(summary: StepSummary) -> pd.Series:
    return summary.values["eval_accuracy"].dropna()


def _end(summary: StepSummary) -> float:
    return end_value(summary.values["eval_accuracy"])


def _change(summary: StepSummary) -> float:
    return _end(summary) - float(_accuracy(summary).iloc[0])


def _early(summary: StepSummary) -> float:
    accuracy = _accuracy(summary)
    return float(accuracy.iloc[: len(accuracy) // 2].mean())


def _late(summary: StepSummary) -> float:
    """Several intervals between two synchronisations, where the end is about one."""
    accuracy = _accuracy(summary)
    return float(accuracy.iloc[len(accuracy) // 2 :].mean())


def _drop(summary: StepSummary) -> float:
    """From the best mean of neighbouring evaluations: the single best one would be luck."""
    return float(_accuracy(summary).rolling(LAST_VALUES, min_periods=1).mean().max()) - _end(summary)


def _smooth(summary: StepSummary) -> pd.Series:
    """Means of three neighbouring evaluations: a single one is luck."""
    return _accuracy(summary).rolling(3, min_periods=1, center=True).mean()


def _updates_to(summary: StepSummary, level: float) -> float:
    """Between two evaluations a straight line; a run that never gets there counts with all its updates."""
    curve = _smooth(summary)
    steps, values = curve.index.to_numpy(float), curve.to_numpy(float)
    passed = np.flatnonzero(values >= level)
    if not len(passed):
        return float(steps[-1])
    after = int(passed[0])
    if after == 0:
        return float(steps[0])
    share = (level - values[after - 1]) / (values[after] - values[after - 1])
    return float(steps[after - 1] + share * (steps[after] - steps[after - 1]))


def _fall(summary: StepSummary) -> float:
    curve = _smooth(summary)
    return float((curve.cummax() - curve).max())


def _kl(summary: StepSummary) -> float:
    return end_value(summary.values["kl_to_initial"])


def _entropy_lost(summary: StepSummary) -> float:
    entropy = summary.values["entropy"].dropna()
    return float(entropy.iloc[:10].mean() - entropy.iloc[-10:].mean())


def _clip(summary: StepSummary) -> float:
    return float(summary.values["clip_fraction"].mean())


def _clip_growth(summary: StepSummary) -> float:
    """Mean clip fraction of the stalest third of the updates minus that of the freshest."""
    frame = summary.values[["version_lag", "clip_fraction"]].dropna().sort_values("version_lag")
    third = max(1, len(frame) // 3)
    return float(frame["clip_fraction"].iloc[-third:].mean() - frame["clip_fraction"].iloc[:third].mean())


CLAIM_MEASURES: dict[str, tuple[Callable[..., float], str]] = {
    "end": (_end, "accuracy at the end (mean of the last evaluations)"),
    "change": (_change, "accuracy at the end minus at the start"),
    "updates_to": (_updates_to, "updates until the smoothed accuracy passes {level:g}"),
    "early": (_early, "mean accuracy in the first half"),
    "late": (_late, "mean accuracy in the second half"),
    "drop": (_drop, "fall from the peak to the end"),
    "fall": (_fall, "largest fall of the smoothed accuracy from an earlier peak"),
    "kl": (_kl, "KL to the initial policy at the end"),
    "entropy_lost": (_entropy_lost, "entropy of the first ten updates minus that of the last ten"),
    "clip": (_clip, "mean clip fraction"),
    "clip_growth": (_clip_growth, "growth of the clip fraction from fresh to stale data"),
}


def measure_claim(claim: Claim, summary: StepSummary) -> float:
    """The claim's number for one run."""
    more = {"level": claim.level} if claim.measure == "updates_to" else {}
    return CLAIM_MEASURES[claim.measure][0](summary, **more)


def judge_claim(claim: Claim, of: Values, than: Values | None = None) -> Judgement:
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
    verdict = _verdict(claim, low, high) if len(values) > 1 else ClaimVerdict.UNDECIDED
    return Judgement(claim, verdict, mean, low, high, len(values))


def sentences(judgements: Sequence[Judgement]) -> list[tuple[ClaimVerdict, list[Judgement]]]:
    """Each sentence with its parts: it agrees where all of them do, and disagrees where one does."""
    found = []
    for _, group in groupby(judgements, key=lambda judgement: judgement.claim.text):
        parts = list(group)
        verdicts = {part.verdict for part in parts}
        worst = (
            verdict
            for verdict in (ClaimVerdict.DISAGREES, ClaimVerdict.UNDECIDED, ClaimVerdict.AGREES)
            if verdict in verdicts
        )
        found.append((next(worst), parts))
    return found


def claims_text(judgements: Sequence[Judgement]) -> str:
    """All sentences of a study with their parts, and how many of them the runs bear out."""
    lines = ["What the source finds, and what these runs say (95% intervals over seeds, paired by seed):", ""]
    judged = sentences(judgements)
    for verdict, parts in judged:
        lines.append(f"{verdict:<10}  {parts[0].claim.text} ({parts[0].claim.source})")
        several = len(parts) > 1
        lines += [f"            {f'{part.verdict}: ' if several else ''}{part.sentence()}" for part in parts]
    counts = Counter(verdict for verdict, _ in judged)
    return "\n".join(
        [*lines, "", f"{len(judged)} claims: {', '.join(f'{counts[verdict]} {verdict}' for verdict in ClaimVerdict)}"]
    )


def _verdict(claim: Claim, low: float, high: float) -> ClaimVerdict:
    """Agrees where the whole interval is as expected, disagrees where none of it is."""
    if claim.expect == "below":
        low, high = -high, -low
    if claim.expect == "alike":
        inside = -claim.margin <= low and high <= claim.margin
        outside = low > claim.margin or high < -claim.margin
    else:
        inside, outside = low > claim.margin, high <= claim.margin
    return ClaimVerdict.AGREES if inside else ClaimVerdict.DISAGREES if outside else ClaimVerdict.UNDECIDED
