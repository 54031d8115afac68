"""Whether the trainer gives rare tokens less than the sampler, and far less the rarer they are.

A soft cap of logits, a floor under probabilities, or a processor that raises what is unlikely, in the sampler alone,
leaves likely tokens as they are. A temperature does not: its log-ratio is a straight line in the log-probability.
"""

from itertools import pairwise

import numpy as np

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.check import ENGINE_COLUMNS
from ratioscope.analysis.linter.differing import differing, engine_columns
from ratioscope.analysis.linter.evidence import LogEvidence

_RARE, _FEWEST = 2.0, 200
"""Nats below certainty from which on a token is rare, and tokens below which nothing is said."""
_LIKELIER, _RAREST = 0.5, 0.1
"""Shares of the rare tokens that are compared with those between them."""
_NEARLY_ALL, _FAR = 0.9, 0.3
"""Share of the rarest of which the trainer gives less, and by how many nats on average, at least."""


@mark(needs=ENGINE_COLUMNS, limit=1.5)
def rare_tokens_are_rarer_in_the_trainer(evidence: LogEvidence) -> MarkReading | None:
    """What the trainer gives less to rare tokens grows faster than a straight line in their log-probability.

    By how much it is steeper among the rarest of them than among the likelier ones.
    """
    frame = differing(evidence)
    if frame is None:
        return None
    rare = frame[frame["logp_behavior"] < -_RARE].sort_values("logp_behavior", ascending=False)
    if len(rare) < _FEWEST:
        return None
    places = [round(share * len(rare)) for share in (_LIKELIER, 1 - _RAREST)]
    logp, apart = (np.split(rare[name].to_numpy(dtype=float), places) for name in ("logp_behavior", "fresh"))
    means = [(float(of.mean()), float(by.mean())) for of, by in zip(logp, apart, strict=True)]
    less = float((apart[-1] < 0).mean())
    near, far = ((after - before) / (there - here) for (here, before), (there, after) in pairwise(means))
    if less < _NEARLY_ALL or means[-1][1] > -_FAR or not far > near > 0:
        return MarkReading(0.0, "")
    return MarkReading(
        far / near,
        f"the trainer gives {percent(less)} of the rarest tokens less, by {number(-means[-1][1])} nats at a "
        f"log-probability of {number(means[-1][0])} and by {number(-means[0][1])} at {number(means[0][0])}",
        evidence.all_steps, engine_columns(evidence),
    )  # fmt: skip
