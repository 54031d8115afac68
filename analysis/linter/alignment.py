"""Do the log-probability columns mean the same token: a column shifted by one position."""

import numpy as np

from ratioscope.analysis.findings.finding import Severity
from ratioscope.analysis.linter.evidence import ALIGNED, DIRECTIONS, Evidence
from ratioscope.analysis.linter.remark import Outcome, Remark, estimate, not_checked, passed

# Correlations rest on groups, not tokens; a shift must be this many standard errors (Fisher) better than no shift.
STANDARD_ERRORS = 4.0
FEWEST_GROUPS = 8
LEAST_GAIN = 0.2

_WORDS = {"before": "one position late", "after": "one position early"}


def shifted(evidence: Evidence) -> list[Remark]:
    """A column whose probabilities agree better with logp_current one position away than at their own position."""
    found, every = evidence.neighbours, evidence.sampled
    groups, sample = int(found["n_groups"]), f" (in one of {every} responses)" if every > 1 else ""
    if groups < FEWEST_GROUPS:
        return not_checked("shifted", f"Fewer than {FEWEST_GROUPS} prompt groups have responses of several tokens.")
    remarks, measured = [], []
    for column in ALIGNED:
        for direction in DIRECTIONS:
            here = float(found[f"{column}_here_{direction}"])
            there = float(found[f"{column}_{direction}_{direction}"])
            if not np.isfinite(here) or not np.isfinite(there):
                continue
            measured.append(estimate(f"correlation of {column} with logp_current, in place", here))
            gain = (np.arctanh(_inside(there)) - np.arctanh(_inside(here))) * np.sqrt((groups - 3) / 2)
            if there - here < LEAST_GAIN or gain < STANDARD_ERRORS:
                continue
            remarks.append(
                Remark(
                    "shifted",
                    Outcome.FOUND,
                    f"{column} seems to be logged {_WORDS[direction]}: its probabilities correlate {there:.2f} with "
                    f"those of logp_current at the neighbouring position and {here:.2f} at their own{sample}.",
                    Severity.CRITICAL,
                    "Logits at position t predict token t + 1: gather log-probabilities with labels shifted once, in "
                    "the sampler and in the trainer alike.",
                    (
                        estimate("correlation with the neighbour", there),
                        estimate("correlation in place", here),
                        estimate("gain, standard errors", gain),
                    ),
                    columns=(column, "logp_current"),
                    examples=evidence.rows_where(f"invalid is null and abs({column} - logp_current) > 0.1"),
                )
            )
    if remarks:
        return remarks
    if not measured:
        return not_checked("shifted", "The log-probabilities do not vary inside the responses.")
    weakest = min(measured, key=lambda number: number.value)
    return passed("shifted", f"Every column agrees best with logp_current in place{sample}.", weakest)


def _inside(correlation: float) -> float:
    """Away from ±1, where Fisher's transform is infinite."""
    return float(np.clip(correlation, -1 + 1e-9, 1 - 1e-9))
