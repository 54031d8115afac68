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
_SEVERAL = 2
"""Turns of one token at the end of a response: a single one may be an answer."""
_SOME = 0.05
"""Of the turns before them: where so many have one token, that is how the policy answers."""
_CLEARLY = 4.0
"""Standard errors by which mean rewards must differ."""
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


def _tails(evidence: LogEvidence) -> pd.DataFrame:
    """One row for each response with turns: step, seq_id, tail (turns of one token at its end), inside (such turns
    before them), turns, context (tokens before the tail, the prompt's included where they are logged), reward, ends
    (whether it ends with several such turns and is not flagged as cut off)."""

    def made() -> pd.DataFrame:
        rows = evidence.frame(
            """
            with of as (select step, seq_id, turn, count(*) as n from token where turn is not null group by all),
            told as (
                select step, seq_id, turn, n, coalesce(max(turn) filter (n > 1) over (partition by step, seq_id), -1)
                    as last_long
                from of
            ),
            response as (
                select step, seq_id, count(*) as turns, count(*) filter (turn > last_long) as tail,
                    count(*) filter (n = 1 and turn < last_long) as inside,
                    coalesce(sum(n) filter (turn <= last_long), 0)::double as written
                from told group by step, seq_id
            )
            select response.*, s.reward::double as reward, written + coalesce(s.prompt_tokens, 0) as context,
                coalesce(s.truncated, false) or coalesce(s.finish_reason = 'length', false) as cut_off
            from response join sequence as s using (step, seq_id) where s.dropped is null order by step, seq_id
            """
        )
        return rows.assign(ends=(rows["tail"] >= _SEVERAL) & (rows["tail"] < rows["turns"]) & ~rows["cut_off"])

    return evidence.once("responses with their last turns of one token", made)


@mark(needs=(("turn",), ("sequences.truncated", "sequences.finish_reason")), limit=0.02)
def turns_of_one_token_at_the_end(evidence: LogEvidence) -> MarkReading | None:
    """Responses end with several turns of one token, which are rare before, and are not flagged as cut off."""
    rows = _tails(evidence)
    if len(rows) < _FEWEST:
        return None
    ends = rows["ends"]
    if ends.sum() < _FEWEST or rows["inside"].sum() > _SOME * rows["turns"].sum():
        return MarkReading(0.0, "")
    share, found = float(ends.mean()), rows[ends]
    return MarkReading(
        share,
        f"{percent(share)} of the responses end with several such turns ({found['tail'].median():.0f} in the median)",
        steps_with(found.groupby("step").size()), ("turn", "truncated"), first_of(found),
    )  # fmt: skip


@mark(needs=(("turn",),), limit=0.7)
def context_is_full_before_them(evidence: LogEvidence) -> MarkReading | None:
    """Where the turns of one token begin, responses are longer, prompt included, than others are at their end."""
    rows = _tails(evidence)
    ends = rows["ends"]
    if min(ends.sum(), (~ends).sum()) < _FEWEST:
        return None
    least = float(rows.loc[ends, "context"].quantile(0.1))
    shorter = float((rows.loc[~ends, "context"] < least).mean())
    return MarkReading(
        shorter,
        f"they begin behind {number(least)} tokens or more, which {percent(shorter)} of the others do not reach",
    )


@mark(needs=(("turn",), ("sequences.reward",)), limit=0.0)
def they_earn_less(evidence: LogEvidence) -> MarkReading | None:
    """Responses that end with turns of one token earn less than the others, beyond the noise of both means."""
    rows = _tails(evidence)
    rows = rows[np.isfinite(rows["reward"])]
    of, others = rows.loc[rows["ends"], "reward"], rows.loc[~rows["ends"], "reward"]
    if min(len(of), len(others)) < _FEWEST:
        return None
    error = float(of.var() / len(of) + others.var() / len(others)) ** 0.5
    less = float(others.mean() - of.mean())
    return MarkReading(
        less if less > _CLEARLY * error else 0.0,
        f"they earn {number(float(of.mean()))}, the others {number(float(others.mean()))}", (), ("reward",),
    )  # fmt: skip


cause(
    "budget_given_again", F.SELECTION, "Responses that were resumed get the whole length limit again",
    requires=(longer_than_one_version,), supports={cut_off_a_budget_after_the_switch: 1.0},
    do="Give a response that goes on what is left: the limit less the tokens that it has.",
    reports=("slime #2260", "slime #2122", "verl #7207"), columns=("n_tokens",),
)  # fmt: skip
cause(
    "turns_in_a_full_context", F.SELECTION, "In a full context turns go on with one token each, unflagged",
    requires=(turns_of_one_token_at_the_end, context_is_full_before_them), supports={they_earn_less: 1.0},
    do="End a response where its context is full, mark it as truncated, and score it as one that was cut off.",
    reports=("Trinity #608",), columns=("truncated", "turn"),
)  # fmt: skip
