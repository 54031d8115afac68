"""Whether tokens were drawn, or the likeliest one was taken each time; and whether each server drew its own.

The likeliest token of a state surprises no more than the entropy says. Of tokens that are drawn some surprise more, and
together by as much as the others surprise less.
"""

import numpy as np

from ratioscope.analysis.findings.logged import GROUP
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.linter.check import RATIO, STATES
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with

_UNCERTAIN, _FEWEST = 0.1, 200
"""Nats of entropy from which on a state has no certain token, and tokens below which nothing is said."""
_FEWEST_GROUPS = 8
BY_CHANCE = 0.01
"""Probability below which a second response would hardly have come out the same."""


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
