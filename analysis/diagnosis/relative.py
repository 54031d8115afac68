"""Whether rewards are relative to each other: then their mean is what it is, however good the policy becomes."""

from typing import NamedTuple

import pandas as pd

from ratioscope.analysis.diagnosis.evidence import RunEvidence, steps_of
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import number
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.by_block import by_block
from ratioscope.run_format import schema

_FEWEST = 20
"""Sets of responses, each of which has the same mean."""
_SAME = 1e-6
"""The variance of their means over that within them, from which down they are the same but for rounding."""


class _Among(NamedTuple):
    """Responses whose rewards may be relative to each other."""

    keys: str
    """SQL of what they share, over `sequence`."""
    words: str
    severity: Severity
    do: str


_DO = "Judge the run by evaluations, or log rewards as they were before they were compared."
_AMONG = {
    "part": _Among(
        "step, group_id, rank",
        "in each rank's part of a group",
        Severity.WARNING,
        "Gather the responses of a group from all ranks before their rewards are compared.",
    ),
    "group": _Among("step, group_id", "in each group", Severity.NOTICE, _DO),
    "step": _Among("step", "in each step", Severity.NOTICE, _DO),
}
"""From the fewest responses on: rewards that are relative in a part are so in the whole."""


@rule("relative_reward", order=115, page="overview", group=None, words="relative rewards", cause=False)
def rewards_are_relative(evidence: RunEvidence) -> Finding | None:
    """The mean reward is the same in each group, in the part of a group that is on one rank, or in each step, and
    rewards within it differ: they are ranks or standardised."""
    if evidence.run is None or not evidence.log.has("sequences.reward"):
        return None
    (sums,) = by_block("reward_means", evidence.run, _means)
    for name, among in _AMONG.items():
        own = sums[sums["among"] == name]
        n, within = float(own["n"].sum()), float(own["within"].sum())
        if n < _FEWEST or not within > 0:
            continue
        mean = float(own["total"].sum()) / n
        between = float((own["apart"] + own["n"] * (own["total"] / own["n"] - mean) ** 2).sum())
        if between > _SAME * within:
            continue
        return Finding(
            severity=among.severity,
            sentence=f"The mean reward is {number(mean, digits=2)} {among.words}, whatever the policy does.",
            metric="reward",
            steps=steps_of(evidence.values["reward"].dropna()),
            numbers=(Number("mean reward", mean), evidence.latest("reward")),
            why="Rewards differ within it and their mean does not: each is relative to the others, and shows no "
            "progress.",
            do=among.do,
            source="chosen here",
        )
    return None


def _means(run: Run, first: int | None, last: int | None) -> tuple[pd.DataFrame]:
    """By step and kind of set: n (sets), total (of their means), apart and within (summed squares and variances).

    Parts are those of groups that lie on several ranks; a set has two responses or more.
    """
    queries = (
        f"select step, '{name}' as among, avg(reward) as mean, var_pop(reward) as variance, count(*) as of_set "
        f"from response {'where ranks > 1' if name == 'part' else ''} group by {each.keys}"
        for name, each in _AMONG.items()
    )
    with relations(run, first, last, tables=(schema.SEQUENCES,)) as connection:
        found = connection.execute(
            f"""
            with response as (
                select step, group_id, rank, reward::double as reward,
                    max(rank) over of_group - min(rank) over of_group + 1 as ranks
                from sequence
                where isfinite(reward) and dropped is null and coalesce(in_baseline, true) and group_id is not null
                window of_group as (partition by step, group_id)
            ),
            sets as ({" union all ".join(queries)})
            select step, among, count(*) as n, sum(mean) as total, coalesce(var_pop(mean) * count(*), 0) as apart,
                sum(variance) as within
            from sets where of_set > 1 group by step, among order by step, among
            """
        ).df()
    return (found,)
