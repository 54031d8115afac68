"""What a batch is made of: prompts that ranks share, or steps in a row, and responses that were there before."""

import pandas as pd

from ratioscope.analysis.findings.cause import Family, cause
from ratioscope.analysis.findings.logged import GROUP, Need
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.responses import rows_of_steps
from ratioscope.analysis.linter.verdict import ranges

_FEWEST_STEPS = 5
_FEWEST_PROMPTS = 2
"""Of a step, below which ranks that share them may well share a group; in the run there are so many times as many."""
_FEWEST_BLOCKS = 4
"""Times as many steps as prompts stay, below which they are not said to come and go."""
_FEW, _USUAL = 0.05, 0.5
"""Share of the responses that may be there before; and of the prompts that newer weights must answer later."""
_VERSIONS: Need = ("behavior_version", "sequences.behavior_version_max")
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


@mark(needs=(("sequences.prompt_id",), GROUP, ("token_id", "logp_behavior"), _VERSIONS), limit=0.9)
def prompts_stay_for_steps(evidence: LogEvidence) -> MarkReading | None:
    """Prompts come in the same few steps in a row, with new responses in each, and never again; share of the prompts.

    A batch that serves several updates has the same responses in them, or a part of each group; all were sampled at
    once. In another epoch prompts come again in another order.
    """
    if evidence.spreads_groups:
        return MarkReading(0.0, "")
    rows = evidence.frame("select distinct step, prompt_id from sequence where prompt_id is not null")
    numbers = {step: at for at, step in enumerate(sorted(rows["step"].unique()))}
    of = rows["step"].map(numbers).groupby(rows["prompt_id"]).agg(["min", "max", "size"])
    inside = of[(of["min"] > 0) & (of["max"] < len(numbers) - 1)]
    if len(inside) < _FEWEST_PROMPTS * _SEVERAL:
        return None
    often = int(inside["size"].mode().iloc[0])
    in_a_row = inside[(inside["size"] == often) & (inside["max"] - inside["min"] == often - 1)]
    share = len(in_a_row) / len(inside)
    if often < 2 or often * _FEWEST_BLOCKS > len(numbers) or share <= _USUAL:
        return MarkReading(0.0, "")
    found = _as_sampled(evidence)
    found = found[found["prompt_id"].isin(in_a_row.index)]
    later = found[found["prompt_id"].duplicated()]
    # What was sampled at once, and learned from in parts, has one version in all of its steps.
    newer = (found.groupby("prompt_id")["version"].nunique() > 1).mean()
    if later.empty or later["known_before"].mean() > _FEW or newer < _USUAL:
        return MarkReading(0.0, "")
    times = "twice" if often == 2 else f"in {often} steps"
    return MarkReading(
        share,
        f"{percent(share)} of the prompts come {times} in a row and never again, each time with new responses: "
        f"{len(of):,} prompts in {len(numbers):,} steps",
        tuple(sorted({int(step) for step in later["step"]})), ("prompt_id",),
    )  # fmt: skip


def _as_sampled(evidence: LogEvidence) -> pd.DataFrame:
    """One row a prompt of a step: step, prompt_id, version (the latest that sampled it), known_before (the share of its
    responses that an earlier step has, to the last token)."""
    return evidence.frame(
        """
        with of as (
            select step, seq_id, sum(hash(position, token_id, logp_behavior)) as path, max(behavior_version) as version
            from token group by step, seq_id
        ),
        response as (
            select s.step, s.prompt_id, coalesce(s.behavior_version_max, of.version) as version, of.path
            from sequence as s join of using (step, seq_id) where s.prompt_id is not null
        ),
        known as (select *, min(step) over (partition by prompt_id, path) < step as before from response)
        select step, prompt_id, max(version) as version, avg(before::int) as known_before
        from known group by step, prompt_id order by step, prompt_id
        """
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
cause(
    "prompts_repeated", Family.SELECTION, "Prompts come again in the next steps, as where a loader repeats its batches",
    requires=(prompts_stay_for_steps,),
    do="Let each step take new prompts from the loader: look for a sampler that repeats batches, or a step that does "
    "not advance it.",
    reports=("TRL #4531", "TRL #4271"), columns=("prompt_id",),
)  # fmt: skip
