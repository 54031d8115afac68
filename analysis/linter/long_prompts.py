"""Marks of limits that long prompts run into: cut themselves, or with no room left for the response.

Prompts count once in a step, however many responses they have: those of one prompt have one length.
"""

from math import sqrt

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.cause import Family as F
from ratioscope.analysis.findings.cause import cause
from ratioscope.analysis.findings.logged import Need
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.linter.fate import CLEARLY

_FEWEST_PROMPTS = 20
"""On either side of a comparison."""
_FEWEST_LENGTHS = 8
_NEXT_TO_IT = 0.1
"""Share of the longest length, within which the second longest lies where lengths go up to a limit."""
_NEAREST = 1 / 3
"""Of the shorter prompts, the longest: what falls with length has fallen there, too."""
_FEWEST_CUT, _FEWEST_TOTALS = 20, 5
"""Responses cut off at one total, and the lengths that they must have at least: equal prompts have equal totals."""
_PROMPTS: tuple[Need, ...] = (("sequences.prompt_tokens",),)
_ENDS: tuple[Need, ...] = (
    *_PROMPTS, ("sequences.n_tokens",), ("sequences.truncated", "sequences.finish_reason"),
)  # fmt: skip


def _prompts(evidence: LogEvidence) -> pd.DataFrame:
    """One row a prompt of a step: step, seq_id (its first response), length, reward (mean), environment, cut_off (share
    of its responses), n."""

    def made() -> pd.DataFrame:
        return evidence.frame(
            """
            select step, min(seq_id) as seq_id, max(prompt_tokens)::double as length,
                coalesce(any_value(environment), '') as environment,
                avg(reward::double) filter (isfinite(reward)) as reward,
                avg(coalesce(truncated, finish_reason = 'length')::int) as cut_off, count(*) as n,
                coalesce(any_value(prompt_id)::varchar, step || ' ' || group_id) as prompt
            from sequence where prompt_tokens > 0 and dropped is null and coalesce(n_turns, 1) = 1
            group by step, group_id having min(prompt_tokens) = max(prompt_tokens) order by step, seq_id
            """
        )

    return evidence.once("prompts of each step with their lengths", made)


def _piled(evidence: LogEvidence) -> tuple[pd.DataFrame, pd.DataFrame, float] | None:
    """Prompts of the longest length, the others, and by how many times they are the commonest.

    Of environments of their own lengths the longest may well have one: those alone count in which others lie right
    below it. None: too few are known.
    """
    rows = _prompts(evidence)
    if not len(rows):
        return None
    longest = float(rows["length"].max())
    there = rows["environment"].isin(rows.loc[rows["length"] == longest, "environment"])
    rows = rows[there]
    at_it = rows["length"] == longest
    found, others = rows[at_it], rows[~at_it]
    if min(found["prompt"].nunique(), others["prompt"].nunique()) < _FEWEST_PROMPTS:
        return None
    if others["length"].nunique() < _FEWEST_LENGTHS:
        return None
    if others["length"].max() < (1 - _NEXT_TO_IT) * longest:
        return found, others, 0.0
    return found, others, len(found) / float(others["length"].value_counts().max())


@mark(needs=_PROMPTS, limit=3.0)
def prompts_pile_at_one_length(evidence: LogEvidence) -> MarkReading | None:
    """Many times as many prompts have the longest length as any other one, and others come close to it."""
    if (piled := _piled(evidence)) is None:
        return None
    found, others, times = piled
    share = len(found) / (len(found) + len(others))
    return MarkReading(
        times,
        f"{percent(share)} of the prompts have {number(float(found['length'].iloc[0]))} tokens, the most that there "
        f"are, {number(times, digits=2)} × as many as the next common length",
        steps_with(found.groupby("step").size()), ("prompt_tokens",), first_of(found),
    )  # fmt: skip


@mark(needs=(*_PROMPTS, ("sequences.reward",)), limit=0.5)
def longest_prompts_earn_less(evidence: LogEvidence) -> MarkReading | None:
    """Prompts of the longest length earn less than the longest of the others, above the lowest reward; the share that
    is missing."""
    if (piled := _piled(evidence)) is None:
        return None
    found, others, _ = piled
    found, others = found.dropna(subset=["reward"]), others.dropna(subset=["reward"])
    near = others[others["length"] >= others["length"].quantile(1 - _NEAREST)]
    if min(len(found), len(near)) < _FEWEST_PROMPTS:
        return None
    of, usual = float(found["reward"].mean()), float(near["reward"].mean())
    least = float(min(found["reward"].min(), others["reward"].min()))
    error = sqrt(float(found["reward"].var()) / len(found) + float(near["reward"].var()) / len(near))
    if not usual - of > CLEARLY * error:
        return MarkReading(0.0, "")
    return MarkReading(
        (usual - of) / (usual - least),
        f"they earn {number(of, digits=2)}, those of {number(float(near['length'].min()))} to "
        f"{number(float(near['length'].max()))} tokens {number(usual, digits=2)}",
        (), ("reward",),
    )  # fmt: skip


@mark(needs=_PROMPTS, limit=0.5)
def manifest_has_that_limit(evidence: LogEvidence) -> MarkReading | None:
    """The manifest has a number for prompts that is their longest length."""
    rows = _prompts(evidence)
    if not len(rows):
        return None
    longest, manifest = float(rows["length"].max()), evidence.run.manifest
    parts = (manifest.task, manifest.sampler, manifest.model, manifest.algorithm, manifest.source)
    stated = [
        key for part in parts for key, value in part.items()
        if "prompt" in key and isinstance(value, int) and not isinstance(value, bool) and value == longest
    ]  # fmt: skip
    return MarkReading(float(bool(stated)), f"the manifest's {stated[0]} is {longest:.0f}" if stated else "")


def _at_one_total(evidence: LogEvidence) -> tuple[pd.DataFrame, float] | None:
    """Truncated responses of one turn, and what the commonest sum of their prompt and response is; None: too few."""

    def made() -> tuple[pd.DataFrame, float] | None:
        rows = evidence.frame(
            """
            select step, seq_id, (prompt_tokens + n_tokens)::double as total, n_tokens::double as length
            from sequence where coalesce(truncated, finish_reason = 'length') and prompt_tokens > 0 and n_tokens > 0
                and dropped is null and coalesce(n_turns, 1) = 1
            order by step, seq_id
            """
        )
        if len(rows) < _FEWEST_CUT:
            return None
        # Those cut at a limit of the response alone say nothing, as long as the prompts are.
        own = rows["length"] == rows["length"].max()
        sums = rows.loc[~own, "total"]
        return (rows, float(sums.mode().iloc[0])) if len(sums) >= _FEWEST_CUT else None

    return evidence.once("truncated responses by their total", made)


@mark(needs=_ENDS, limit=0.9)
def cut_off_at_one_total(evidence: LogEvidence) -> MarkReading | None:
    """Responses are cut off where prompt and response have one number of tokens together, at whatever length; share of
    those that are shorter than the longest one."""
    if (known := _at_one_total(evidence)) is None:
        return None
    rows, total = known
    at_it = rows[rows["total"] == total]
    if at_it["length"].nunique() < _FEWEST_TOTALS:
        return MarkReading(0.0, "")
    shorter = rows["length"] < rows["length"].max()
    share = float((rows.loc[shorter, "total"] == total).mean())
    return MarkReading(
        share,
        f"prompt and response have {number(total)} tokens together in {percent(len(at_it) / len(rows))} of the "
        f"truncated responses, which have {number(float(at_it['length'].min()))} to "
        f"{number(float(at_it['length'].max()))}",
        steps_with(at_it.groupby("step").size()), ("prompt_tokens", "n_tokens"), first_of(at_it),
    )  # fmt: skip


@mark(needs=_ENDS, limit=0.15)
def long_prompts_are_cut_off(evidence: LogEvidence) -> MarkReading | None:
    """Of the responses to the longest quarter of the prompts a larger share is truncated than of those to the shortest;
    the difference, beyond noise."""
    rows = _prompts(evidence).dropna(subset=["cut_off"])
    if rows["prompt"].nunique() < 2 * _FEWEST_PROMPTS or rows["length"].nunique() < _FEWEST_LENGTHS:
        return None
    short, long = (
        rows[rows["length"] <= rows["length"].quantile(0.25)], rows[rows["length"] >= rows["length"].quantile(0.75)],
    )  # fmt: skip
    share = [float(np.average(each["cut_off"], weights=each["n"])) for each in (short, long)]
    error = sqrt(sum(float(each["cut_off"].var()) / len(each) for each in (short, long)))
    found = share[1] - share[0]
    return MarkReading(
        found if found > CLEARLY * error else 0.0,
        f"responses to prompts of {number(float(long['length'].min()))} tokens or more are truncated in "
        f"{percent(share[1])} of the cases, those to prompts of {number(float(short['length'].max()))} or less in "
        f"{percent(share[0])}",
        (), ("truncated",),
    )  # fmt: skip


@mark(needs=(*_ENDS, ("sequences.reward",)), limit=0.0)
def cut_off_there_earn_less(evidence: LogEvidence) -> MarkReading | None:
    """Prompts with most of their responses truncated earn less than those with few, beyond noise."""
    rows = _prompts(evidence).dropna(subset=["cut_off", "reward"])
    most, few = rows.loc[rows["cut_off"] > 0.5, "reward"], rows.loc[rows["cut_off"] < 0.5, "reward"]
    if min(len(most), len(few)) < _FEWEST_PROMPTS:
        return None
    error = sqrt(float(most.var()) / len(most) + float(few.var()) / len(few))
    less = float(few.mean() - most.mean())
    return MarkReading(
        less if less > CLEARLY * error else 0.0,
        f"prompts with most of their responses cut earn {number(float(most.mean()), digits=2)}, the others "
        f"{number(float(few.mean()), digits=2)}",
        (), ("reward",),
    )  # fmt: skip


cause(
    "cut_prompts_unsolved", F.SELECTION, "Prompts are cut to a limit, and those that are cut earn less",
    requires=(prompts_pile_at_one_length, longest_prompts_earn_less), supports={manifest_has_that_limit: 1.0},
    do="Leave prompts out that are longer than the limit, or raise it: cut on the left, a prompt has lost its task.",
    reports=("verl #506", "verl #5965"), columns=("prompt_tokens",),
)  # fmt: skip
cause(
    "context_is_shared", F.SELECTION, "Prompt and response share one limit, which leaves long prompts little room",
    requires=(cut_off_at_one_total, long_prompts_are_cut_off), supports={cut_off_there_earn_less: 1.0},
    do="Raise the limit of the context to the longest prompt and the longest response together, or leave out prompts "
    "that leave too little of it.",
    reports=("verifiers #110",), columns=("prompt_tokens", "truncated"),
)  # fmt: skip
