"""What became of each response: how long it is, what it earned, how it ended, and whether it is in the loss."""

import pandas as pd

from ratioscope.analysis.linter.evidence import LogEvidence

FEWEST_OF_EITHER = 40
"""Responses, of either of two kinds, below which they are not compared."""
CLEARLY = 4.0
"""Standard errors, of responses as if they were independent, by which the two must differ."""
MOST_REJECTED = 0.5
"""Share of a response's tokens that a mask must have rejected."""


def fates(evidence: LogEvidence) -> pd.DataFrame:
    """One row a response: step, seq_id, group_id, reward, length, finish_reason, failure, in_baseline, at_limit,
    masked (share of tokens), reason, left_out, a (mean advantage)."""

    def made() -> pd.DataFrame:
        rows = evidence.frame(
            """
            with of as (
                select step, seq_id, avg((coalesce(rejected, '') <> '')::int) as masked, avg(advantage::double) as a,
                    max(rejected) as rejected
                from token group by step, seq_id
            )
            select s.step, s.seq_id, s.group_id, s.reward::double as reward, s.n_tokens::double as length, s.dropped,
                s.finish_reason, s.failure, s.in_baseline,
                coalesce(s.truncated, s.finish_reason = 'length') as at_limit, coalesce(of.masked, 0) as masked, of.a,
                lower(coalesce(s.dropped, of.rejected)) as reason
            from sequence as s left join of using (step, seq_id) order by s.step, s.seq_id
            """
        )
        return rows.assign(left_out=rows["dropped"].notna() | (rows["masked"] >= MOST_REJECTED))

    return evidence.once("responses, left out or kept", made)
