"""Marks of a teacher's log-probabilities: does it find possible what the sampler is sure of, and which ids does it not.

Both look at the first quarter of the steps: a policy that has collapsed is sure of what no teacher would say.
"""

import pandas as pd

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.linter.evidence import LogEvidence

_SURE, _IMPOSSIBLE = -0.1, -7.0
"""Log-probabilities: of a token that the sampler hardly doubts, and of one in a thousand."""
_FEWEST, _FEWEST_OF_ID = 200, 10
"""Sure tokens: of all ids, and of one whose share is known."""
_HARDLY, _NEARLY_ALL = 0.1, 0.8
"""Share of an id's sure tokens that the teacher finds impossible, where it reads the id as the policy does, or not."""
_FEWEST_IDS = 3
"""Ids of either kind."""


def _sure_tokens(evidence: LogEvidence) -> pd.DataFrame:
    """One row an id: n tokens that the sampler is sure of, and how many of them the teacher finds impossible."""
    return evidence.once(
        "sure tokens by the teacher",
        lambda: evidence.frame(
            f"""
            with ends as (select min(step) as first, max(step) as last from token where isfinite(logp_teacher))
            select token_id, count(*) as n, count(*) filter (logp_teacher < {_IMPOSSIBLE}) as impossible
            from token, ends where isfinite(logp_teacher) and logp_sampled > {_SURE}
                and step <= first + (last - first) / 4
            group by token_id
            """
        ),
    )


@mark(needs=(("logp_teacher",), ("logp_behavior", "logp_behavior_train")), limit=0.2)
def teacher_finds_sure_tokens_impossible(evidence: LogEvidence) -> MarkReading | None:
    """The teacher gives tokens that the sampler is sure of less than one in a thousand; share of them."""
    of = _sure_tokens(evidence)
    n = int(of["n"].sum())
    if n < _FEWEST:
        return None
    share = float(of["impossible"].sum() / n)
    clause = f"of the tokens that the sampler is sure of, {percent(share)} have less than 0.001 by the teacher"
    return MarkReading(share, clause, evidence.all_steps, ("logp_teacher",))


@mark(needs=(("logp_teacher",), ("logp_behavior", "logp_behavior_train"), ("token_id",)), limit=0.9)
def impossible_by_token_id(evidence: LogEvidence) -> MarkReading | None:
    """Whether the teacher finds a sure token impossible depends on its id: of some ids nearly all are, of others hardly
    one; share of the sure tokens that have such an id."""
    of = _sure_tokens(evidence)
    of = of[of["n"] >= _FEWEST_OF_ID]
    if of["n"].sum() < _FEWEST:
        return None
    share = of["impossible"] / of["n"]
    wrong, right = share >= _NEARLY_ALL, share <= _HARDLY
    if min(wrong.sum(), right.sum()) < _FEWEST_IDS:
        return MarkReading(0.0, "")
    return MarkReading(
        float(of["n"][wrong | right].sum() / of["n"].sum()),
        f"of {wrong.sum():,} token ids nearly all are impossible to the teacher, of {right.sum():,} others hardly one",
        evidence.all_steps, ("logp_teacher", "token_id"),
    )  # fmt: skip
