"""What a batch is made of: the same prompts on every rank, and the responses of steps that were there before."""

import pandas as pd

from ratioscope.analysis.findings.cause import Family, cause
from ratioscope.analysis.findings.logged import GROUP
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.responses import rows_of_steps
from ratioscope.analysis.linter.verdict import ranges

_FEWEST_STEPS = 5
_FEWEST_PROMPTS = 2
"""Of a step, below which ranks that share them may well share a group; in the run there are so many times as many."""
_FEWEST_ROWS, _SEVERAL, _MOST_AGAIN = 20, 8, 1 / 4
"""Tokens of a step, steps of a run, and the share of them that may be there again where that is not its schedule."""


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


@mark(needs=(("token_id",), ("position",), ("logp_behavior",)), limit=0.0)
def steps_taken_again(evidence: LogEvidence) -> MarkReading | None:
    """Once in the run, steps in a row have the very responses of earlier ones, which another policy learns from.

    Batches that serve several updates come again throughout a run; another epoch over fixed data goes on to its end.
    """
    steps = rows_of_steps(evidence)
    steps = steps[(steps["n"] >= _FEWEST_ROWS) & (steps["sampled_spread"] > 0)].reset_index(drop=True)
    if len(steps) < _SEVERAL:
        return None
    record = ["n", "sampled"]
    again = steps[steps.duplicated(record)]
    if not 0 < len(again) <= _MOST_AGAIN * len(steps):
        return MarkReading(0.0, "")
    place = pd.Series(steps.index, steps.index).groupby([steps[name] for name in record]).transform("min")
    source = place[again.index]
    distance = again.index - source
    one_stretch = again.index[-1] - again.index[0] == len(again) - 1 and distance.nunique() == 1 and distance.min() > 1
    to_the_end = again.index[-1] == len(steps) - 1
    computed = again["spread"] > 0
    logged_twice = computed & (again["current"] == steps["current"][source].to_numpy())
    if not one_stretch or to_the_end or logged_twice.any():
        return MarkReading(0.0, "")
    now, before = (tuple(map(int, of)) for of in (again["step"], steps["step"][source]))
    return MarkReading(
        len(again) / len(steps),
        f"the responses of step{'s' * (len(now) > 1)} {ranges(now)} are those of {ranges(before)}, to the last token",
        now,
        ("step",),
    )


cause(
    "loader_not_sharded", Family.SELECTION, "Every rank reads the same prompts",
    requires=(ranks_share_prompts,),
    do="Shard the data loader by rank, with a distributed sampler or a seed for each rank.",
    reports=("unsloth-zoo #832", "verifiers #112", "verifiers #135"), columns=("prompt_id",),
)  # fmt: skip
cause(
    "batches_again", Family.SELECTION, "Batches that were learned from are taken again",
    requires=(steps_taken_again,),
    do="Keep the place in the data and in the queue of rollouts in the checkpoint, and restore it at a restart.",
    reports=("marin #1833",), columns=("step",),
)  # fmt: skip
