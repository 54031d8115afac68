"""What a batch is made of: the same prompts on every rank, and the responses of steps that were there before."""

import pandas as pd

from ratioscope.analysis.findings.cause import Family, cause
from ratioscope.analysis.findings.logged import GROUP
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.linter.evidence import LogEvidence

_FEWEST_STEPS = 5
_FEWEST_PROMPTS = 2
"""Of a step, below which ranks that share them may well share a group; in the run there are so many times as many."""


@mark(needs=(("sequences.rank",), ("sequences.prompt_id",), GROUP), limit=0.5)
def ranks_share_prompts(evidence: LogEvidence) -> MarkReading | None:
    """Within a step every rank has the same prompts, each in groups of its own, and other steps have others."""
    groups = evidence.frame(
        """
        select step, group_id, any_value(rank) as rank, any_value(prompt_id) as prompt_id,
            count(distinct rank) as ranks
        from sequence where rank is not null and prompt_id is not null group by step, group_id
        """
    )
    if groups["rank"].nunique() < 2 or groups["ranks"].max() > 1:  # responses of a group are shared out
        return None
    of = groups.groupby("step")
    steps = pd.DataFrame({"ranks": of["rank"].nunique(), "groups": of.size(), "prompts": of["prompt_id"].nunique()})
    pairs = groups.drop_duplicates(["step", "rank", "prompt_id"]).groupby("step").size()
    steps = steps[steps["ranks"] > 1]
    usual = steps["prompts"].median()
    if len(steps) < _FEWEST_STEPS or groups["prompt_id"].nunique() < _FEWEST_PROMPTS * usual:
        return None
    # Each prompt on each rank.
    same = (pairs[steps.index] == steps["ranks"] * steps["prompts"]) & (steps["prompts"] >= _FEWEST_PROMPTS)
    shared = steps[same]
    if not len(shared):
        return MarkReading(0.0, "")
    n_prompts, n_groups, n_ranks = shared[["prompts", "groups", "ranks"]].median()
    return MarkReading(
        len(shared) / len(steps),
        f"in {len(shared):,} of {len(steps):,} steps all {n_ranks:.0f} ranks have one set of {n_prompts:.0f}, for "
        f"{n_groups:.0f} groups",
        tuple(map(int, shared.index)),
        ("prompt_id", "rank"),
    )


cause(
    "loader_not_sharded", Family.SELECTION, "Every rank reads the same prompts",
    requires=(ranks_share_prompts,),
    do="Shard the data loader by rank, with a distributed sampler or a seed for each rank.",
    reports=("unsloth-zoo #832", "verifiers #112", "verifiers #135"), columns=("prompt_id",),
)  # fmt: skip
