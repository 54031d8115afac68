"""Marks of length limits that hold otherwise than they should: given again to resumed responses, or cut into turns."""

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.cause import Family as F
from ratioscope.analysis.findings.cause import cause
from ratioscope.analysis.findings.logged import Need
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with

_FEWEST = 20
"""Responses that a share is of, and that end at one length."""
_LONG = 32
"""Tokens, from which on a longest length may be a limit."""
_BESIDE = 5
"""Lengths before a limit, at which together fewer responses end than at it."""
_FEWEST_STEPS = 3
_VERSIONS: tuple[Need, ...] = (
    ("sequences.n_tokens",), ("sequences.behavior_version_min",), ("sequences.behavior_version_max",),
)  # fmt: skip


def _of_versions(evidence: LogEvidence) -> tuple[pd.DataFrame, float] | None:
    """Responses of several versions, where in their step one of a single version reaches the limit, and that limit.

    A limit that moves, as a schedule makes it, is the same for both in a step. None: those of one version show none.
    """

    def made() -> tuple[pd.DataFrame, float] | None:
        rows = evidence.frame(
            """
            select step, seq_id, n_tokens::double as length, behavior_version_min <> behavior_version_max as several,
                coalesce(truncated, finish_reason = 'length') as cut_off, coalesce(environment, '') as environment
            from sequence
            where n_tokens is not null and behavior_version_min is not null and behavior_version_max is not null
                and coalesce(n_turns, 1) = 1
            order by step, seq_id
            """
        )
        one = rows[~rows["several"]]
        if min(len(one), int(rows["several"].sum())) < _FEWEST:
            return None
        limit = float(one["length"].max())
        at_it, beside = one["length"] == limit, one["length"].between(limit - _BESIDE, limit, inclusive="left")
        if limit < _LONG or at_it.sum() < max(_FEWEST, int(beside.sum())):
            return None
        flags = one.loc[at_it, "cut_off"].dropna().astype(bool)
        if len(flags) and flags.mean() < 0.5:  # they ended there by themselves
            return None
        there = rows["step"].isin(one["step"][at_it]) & rows["environment"].isin(one["environment"][at_it])
        return rows[rows["several"] & there].reset_index(drop=True), limit

    return evidence.once("responses of several versions and the limit of the others", made)


@mark(needs=_VERSIONS, limit=0.05)
def longer_than_one_version(evidence: LogEvidence) -> MarkReading | None:
    """Responses of several versions are longer than a limit that those of one version reach and none of them passes."""
    found = _of_versions(evidence)
    if found is None:
        return None
    rows, limit = found
    longer = rows[rows["length"] > limit]
    if len(rows) < _FEWEST:
        return None
    if len(longer) < _FEWEST / 2 or longer["step"].nunique() < _FEWEST_STEPS:
        return MarkReading(0.0, "")
    share = len(longer) / len(rows)
    return MarkReading(
        share,
        f"{percent(share)} of them pass {limit:.0f} tokens, where others end, by up to "
        f"{longer['length'].max() - limit:.0f}",
        steps_with(longer.groupby("step").size()), ("n_tokens",), first_of(longer),
    )  # fmt: skip


@mark(needs=(*_VERSIONS, ("behavior_version",), ("position",)), limit=0.8)
def cut_off_a_budget_after_the_switch(evidence: LogEvidence) -> MarkReading | None:
    """Responses that pass the limit and were cut off have as many tokens of their last version as the limit is."""
    found = _of_versions(evidence)
    if found is None:
        return None
    rows, limit = found
    longer = rows[(rows["length"] > limit) & rows["cut_off"].fillna(False).astype(bool)]
    if len(longer) < _FEWEST / 4:
        return None
    last = evidence.frame(
        """
        with of as (select step, seq_id, max(behavior_version) as version from token group by all)
        select step, seq_id, count(*) filter (behavior_version = version) as n_last
        from token join of using (step, seq_id) group by all
        """
    )
    longer = longer.merge(last, on=["step", "seq_id"])
    whole = longer["n_last"] == limit
    share = float(whole.mean()) if len(longer) else np.nan
    return MarkReading(
        share, f"{percent(share)} of those cut off have {number(limit)} tokens of the last version alone",
        (), ("behavior_version",), first_of(longer[whole]),
    )  # fmt: skip


cause(
    "budget_given_again", F.SELECTION, "Responses that were resumed get the whole length limit again",
    requires=(longer_than_one_version,), supports={cut_off_a_budget_after_the_switch: 1.0},
    do="Give a response that goes on what is left: the limit less the tokens that it has.",
    reports=("slime #2260", "slime #2122", "verl #7207"), columns=("n_tokens",),
)  # fmt: skip
