"""Marks of a sampler that does not stop where the model ends its response, and goes on to the length limit."""

import pandas as pd

from ratioscope.analysis.findings.cause import Family as F
from ratioscope.analysis.findings.cause import cause
from ratioscope.analysis.findings.logged import Need
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.linter.fate import FEWEST_OF_EITHER

_SOME = 0.05
"""Of the responses with an end token, those that may end with it."""
_ENDS: tuple[Need, ...] = (("token_id",), ("position",))


def _end_tokens(evidence: LogEvidence) -> tuple[int, ...]:
    """The tokens that end a response, by the manifest's model.eos_token_id: a number, or a list of them."""
    stated = evidence.run.manifest.model.get("eos_token_id")
    every = stated if isinstance(stated, list) else [stated]
    return tuple(each for each in every if isinstance(each, int) and not isinstance(each, bool))


def _by_end(evidence: LogEvidence) -> pd.DataFrame | None:
    """Responses of one turn: step, seq_id, cut_off, first (position of the first end token), last (of any token).

    In a conversation each turn ends, and the next one follows. None: the manifest names no end token.
    """
    if not (ends := _end_tokens(evidence)):
        return None
    turns = "count(distinct turn)" if evidence.log.has("turn") else "1"

    def made() -> pd.DataFrame:
        return evidence.frame(
            f"""
            with of as (
                select step, seq_id, min(position) filter (token_id in ({", ".join(map(str, ends))})) as first,
                    max(position) as last, arg_max(token_id, position) in ({", ".join(map(str, ends))}) as at_end,
                    {turns} as turns
                from token group by step, seq_id
            )
            select of.*, coalesce(s.truncated, s.finish_reason = 'length') as cut_off
            from of join sequence as s using (step, seq_id)
            where turns < 2 and coalesce(n_turns, 1) < 2 and coalesce(n_tool_calls, 0) = 0 and dropped is null
            order by step, seq_id
            """
        )

    return evidence.once("responses of one turn by their end tokens", made)


@mark(needs=_ENDS, limit=0.2)
def tokens_behind_the_end(evidence: LogEvidence) -> MarkReading | None:
    """Responses go on behind the token that ends one by the manifest, and hardly any stops there; share of them."""
    rows = _by_end(evidence)
    if rows is None or len(rows) < FEWEST_OF_EITHER:
        return None
    having = rows[rows["first"].notna()]
    if not len(having) or (having["first"] == having["last"]).mean() > _SOME or having["at_end"].mean() > 2 * _SOME:
        return MarkReading(0.0, "")
    passed = having[having["first"] < having["last"]]
    share, behind = len(passed) / len(rows), float((passed["last"] - passed["first"]).median())
    tokens = " or ".join(map(str, _end_tokens(evidence)))
    return MarkReading(
        share,
        f"{percent(share)} of the responses hold token {tokens}, the manifest's eos_token_id, with {number(behind)} "
        "tokens behind it in the median",
        steps_with(passed.groupby("step").size()), ("token_id",), first_of(passed),
    )  # fmt: skip


@mark(needs=(*_ENDS, ("sequences.truncated", "sequences.finish_reason")), limit=0.9)
def they_end_at_the_limit(evidence: LogEvidence) -> MarkReading | None:
    """Responses with an end token in them are cut off at the length limit; share of them."""
    rows = _by_end(evidence)
    if rows is None:
        return None
    passed = rows[rows["first"] < rows["last"]].dropna(subset=["cut_off"])
    if len(passed) < FEWEST_OF_EITHER:
        return None
    share = float(passed["cut_off"].astype(bool).mean())
    return MarkReading(share, f"{percent(share)} of those are cut off at the length limit", (), ("truncated",))


@mark(needs=(), limit=0.5)
def sampler_is_not_told_the_end(evidence: LogEvidence) -> MarkReading | None:
    """The manifest's sampler ignores end tokens, or has stop tokens of which none is the model's."""
    sampler, ends = evidence.run.manifest.sampler, _end_tokens(evidence)
    if sampler.get("ignore_eos") is True:
        return MarkReading(1.0, "the manifest's sampler has ignore_eos")
    stops = sampler.get("stop_token_ids")
    if not isinstance(stops, list) or not stops or not ends:
        return None
    lacking = float(not set(ends) & {each for each in stops if isinstance(each, int)})
    return MarkReading(lacking, "the sampler's stop_token_ids do not hold it")


cause(
    "ends_are_passed", F.SELECTION, "The sampler does not stop at the end token, and goes on to the length limit",
    requires=(tokens_behind_the_end, they_end_at_the_limit), supports={sampler_is_not_told_the_end: 1.0},
    do="Give the sampler the model's end token among its stop tokens. What is behind it is learned from, too.",
    reports=("TRL #3425", "TRL #2387"), columns=("token_id", "finish_reason"),
)  # fmt: skip
