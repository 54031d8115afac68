"""A mark of tokens that the sampler may not draw early in a response, as under a least length that the trainer does not
know: probability is missing up to where the first responses end, and none from there on."""

from math import sqrt

import numpy as np

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.findings.setup import TRUNCATION, unusual
from ratioscope.analysis.linter.check import ENGINE_COLUMNS
from ratioscope.analysis.linter.differing import FEWEST_FRESH, engine_columns
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.summary.intervals import cluster_interval, cluster_variance

_LEFT_LATER = 0.1
"""Of what is missing early, at most so much is missing later on."""
_MOST_OF_IT = 0.5
_FEWEST_ENDS = 5
"""Responses that are as short as the shortest one, within a tenth: one alone says nothing of a limit."""


@mark(needs=(*ENGINE_COLUMNS,), limit=6.0)
def mass_is_missing_before_any_end(evidence: LogEvidence) -> MarkReading | None:
    """Up to the length of the shortest response the mean ratio of the same weights is below 1, from there on it is 1.

    In standard errors, by prompt groups; 0 where more is missing later on than a tenth of it.
    """
    of = evidence.responses
    lengths = of.loc[of["failure"].isna() & of["dropped"].isna(), "n_tokens"].to_numpy(dtype=float)
    frame = evidence.fresh[evidence.fresh["logp_behavior"] < 0]  # 0 may stand for a value that is lost
    if not len(lengths) or np.isnan(lengths).any() or unusual(evidence.run.manifest.sampler, TRUNCATION):
        return None
    shortest = int(lengths.min())
    early = (frame["position"] < shortest - 1).to_numpy()
    if min(early.sum(), (~early).sum()) < FEWEST_FRESH or (lengths <= 1.1 * shortest).sum() < _FEWEST_ENDS:
        return None
    missing = (1 - np.exp(frame["fresh"])).to_numpy(dtype=float)
    by = [frame["step"], frame["group_id"], early]
    sums = frame.assign(missing=missing).groupby(by)["missing"].agg(["sum", "size"])
    before, after = (sums.xs(part, level=2) for part in (True, False))
    mean = float(before["sum"].sum() / before["size"].sum())
    error = sqrt(cluster_variance(before["sum"].to_numpy(float), before["size"].to_numpy(float)))
    later = cluster_interval(after["sum"].to_numpy(float), after["size"].to_numpy(float))
    # Of truncation a token keeps a part that is about as large everywhere; of one token that is likely nothing is left.
    ends = later.high <= _LEFT_LATER * mean and (missing[early] > _MOST_OF_IT).sum() >= _FEWEST_ENDS
    return MarkReading(
        mean / error if ends and error > 0 else 0.0,
        f"no response ends before token {shortest}; up to there the sampler leaves {percent(mean)} of the probability "
        f"out, from there on {percent(max(0.0, float(missing[~early].mean())))}",
        evidence.all_steps,
        engine_columns(evidence),
    )
