"""Whether tokens were drawn, or the likeliest one was taken each time; and whether each server drew its own.

The likeliest token of a state surprises no more than the entropy says. Of tokens that are drawn some surprise more, and
together by as much as the others surprise less.
"""

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.logged import GROUP
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.check import RATIO, STATES
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with

_UNCERTAIN, _FEWEST = 0.1, 200
"""Nats of entropy from which on a state has no certain token, and tokens below which nothing is said."""
_FEWEST_GROUPS = 8
BY_CHANCE = 0.01
"""Probability below which a second response would hardly have come out the same."""
_MOST, _HARDLY = 0.5, 0.1
"""Share of a step's groups with one response, where the step is one of those, and where it is not."""
_FEWEST_OF_STEP, _FEWEST_STEPS = 3, 2
"""Groups of a step that is looked at, and steps of either kind."""


@mark(needs=(("entropy",), ("logp_current",)), limit=0.95)
def likeliest_tokens_only(evidence: LogEvidence) -> MarkReading | None:
    """Tokens hardly ever surprise by more than the entropy, as the likeliest of each state do.

    1 less what some surprise more over what others do less: 0 where they are drawn.
    """
    sample = evidence.sample
    entropy, surprise = sample.column("entropy"), -sample.column("logp_current")
    known = sample.rows["invalid"].isna().to_numpy() & np.isfinite(surprise) & (entropy > _UNCERTAIN)
    apart = (surprise - entropy)[known]
    if len(apart) < _FEWEST or not (apart < 0).any():
        return None
    return MarkReading(
        1 - float(apart.clip(min=0).sum() / -apart.clip(max=0).sum()),
        f"{percent(float((apart < 0).mean()))} of the tokens of open states are less surprising than their entropy",
        evidence.all_steps, ("entropy", "logp_current"),
    )  # fmt: skip


@mark(needs=(*STATES, *RATIO), limit=0.9)
def same_token_in_shared_states(evidence: LogEvidence) -> MarkReading | None:
    """Responses in one state take the same token, however likely the others are; share of what chance leaves open."""
    sample = evidence.sample
    found = sample.collisions("logp_behavior", sample.rows["invalid"].isna().to_numpy() & sample.follows_all)
    if len(np.unique(sample.group)) < _FEWEST_GROUPS or not found.expected < 1 or found.n < _FEWEST:
        return None
    repeats = found.expected + found.excess
    return MarkReading(
        found.excess / (1 - found.expected),
        f"in shared states responses take one token in {percent(repeats)} of the cases ({percent(found.expected)} "
        "expected)",
        evidence.all_steps, ("token_id",),
    )  # fmt: skip


GREEDY = (likeliest_tokens_only, same_token_in_shared_states)
"""Marks of a sampler that draws nothing: entropies alone may be wrong, and copies repeat what was drawn once."""


def _groups_of_one(evidence: LogEvidence) -> pd.DataFrame:
    """One row a group of several responses: step, first seq_id, tokens, their surprise, whether all are the same, and
    the share of such groups in its step. Left out are groups that are the same by chance, and steps with few others."""

    def look() -> pd.DataFrame:
        groups = evidence.frame(
            f"""
            with of as (
                select step, group_id, seq_id, sum(hash(token_id, position)) as path, count(*) as n,
                    sum(logp_behavior::double) as logp
                from token where hash(step, group_id) % {evidence.sampled} = 0 group by all
            )
            select step, min(seq_id) as seq_id, sum(n) as n, -sum(logp) as surprise, count(distinct path) = 1 as same
            from of group by step, group_id
            having count(*) > 1 and not (count(distinct path) = 1 and (count(*) - 1) * max(logp) >= ln({BY_CHANCE}))
            order by step, seq_id
            """
        )
        by_step = groups["same"].astype(float).groupby(groups["step"])
        groups["share"] = by_step.transform("mean")
        return groups[by_step.transform("size") >= _FEWEST_OF_STEP]

    return evidence.once("groups of one response", look)


@mark(needs=(("token_id",), ("position",), ("logp_behavior",), GROUP), limit=_MOST)
def one_response_in_some_steps(evidence: LogEvidence) -> MarkReading | None:
    """In some steps the responses of a group are the same tokens, though each was unlikely, and in others they are not;
    the share of such groups in the former."""
    groups = _groups_of_one(evidence)
    alike, others = groups[groups["share"] > _HARDLY], groups[groups["share"] <= _HARDLY]
    if others["step"].nunique() < _FEWEST_STEPS:
        return None
    if alike["step"].nunique() < _FEWEST_STEPS:
        return MarkReading(0.0, "")
    steps = steps_with(alike.groupby("step").size())
    share = float(alike["share"].min())
    return MarkReading(
        share, f"{evidence.in_steps(steps)} at least {percent(share)} of the groups have one response, several times",
        steps, ("token_id",), first_of(alike),
    )  # fmt: skip


@mark(needs=(("token_id",), ("position",), ("logp_behavior",), GROUP), limit=1.5)
def likelier_in_these_steps(evidence: LogEvidence) -> MarkReading | None:
    """Tokens surprise less where the responses of a group are the same; times as much in the other steps."""
    groups = _groups_of_one(evidence)
    alike, others = groups[groups["share"] > _HARDLY], groups[groups["share"] <= _HARDLY]
    if not len(alike) or not len(others):
        return None
    here, there = (float(of["surprise"].sum() / of["n"].sum()) for of in (alike, others))
    if not here > 0:
        return None
    return MarkReading(there / here, f"their tokens surprise by {number(here)} nats, those of other steps by "
                       f"{number(there)}", columns=("logp_behavior",))  # fmt: skip


GREEDY_IN_SOME_STEPS = (one_response_in_some_steps, likelier_in_these_steps)


@mark(needs=(("token_id",), ("position",), ("logp_behavior",), ("sequences.engine",), GROUP), limit=0.2)
def servers_draw_the_same(evidence: LogEvidence) -> MarkReading | None:
    """Unlikely responses of a server are those that others wrote to the same prompt; copies within one server are of
    another kind. Share of the responses whose group lies on several servers."""
    responses = evidence.frame(
        f"""
        with path as (
            select step, seq_id, sum(hash(token_id, position)) as path, sum(logp_behavior::double) as logp
            from token where hash(step, group_id) % {evidence.sampled} = 0 group by all
        ),
        response as (
            select step, seq_id, logp, count(*) over written as copies,
                count(*) over (partition by step, group_id, path, engine) as own,
                count(*) over (partition by step, group_id) as of_group,
                count(*) over (partition by step, group_id, engine) as of_server
            from path join sequence using (step, seq_id) where engine is not null
            window written as (partition by step, group_id, path)
        )
        select step, seq_id, logp < ln({BY_CHANCE} / of_group) and copies > own and own = 1 as shared
        from response where of_group > of_server
        """
    )
    if len(responses) < _FEWEST:
        return None
    shared = responses[responses["shared"].fillna(False)].sort_values(["step", "seq_id"])
    return MarkReading(
        len(shared) / len(responses),
        f"{percent(len(shared) / len(responses))} of the responses are what another server wrote, though each was "
        "unlikely",
        steps_with(shared.groupby("step").size()), ("engine", "token_id"), first_of(shared),
    )  # fmt: skip
