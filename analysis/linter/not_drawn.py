"""Responses that are no draws of the policy: empty, failed, cut off without a flag, one for all, or not there."""

import re
from math import sqrt

import numpy as np

from ratioscope.analysis.findings.cause import Family as F
from ratioscope.analysis.findings.cause import cause
from ratioscope.analysis.findings.logged import GROUP
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.words import listed
from ratioscope.analysis.linter.decoding import BY_CHANCE, GREEDY, GREEDY_IN_SOME_STEPS, servers_draw_the_same
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.linter.fate import CLEARLY, FEWEST_OF_EITHER, fates
from ratioscope.analysis.linter.responses import single_tokens_not_sampled

_SOME = 0.05
"""Share of the responses at the longest length that may end with the token that ends others."""
_FEWEST_CUT, _LONG = 20, 32
"""Responses at one longest length, and tokens of it, from which on a limit is looked for."""
_TIMES_BESIDE = 5
"""How often as many responses must end at the limit as at each of the lengths before it."""
FAILED_REASON = "error|fail|time.?out|abort|exception|crash"
"""Reasons to finish that are not the policy's doing."""
_OUTSIDE = ("environment", "timeout", "judge", "aborted")
"""Of the failures of the run format those that are not, either."""


@mark(needs=(("sequences.n_tokens",),), limit=0.01)
def responses_without_tokens(evidence: LogEvidence) -> MarkReading | None:
    """Responses have a length of 0."""
    rows = fates(evidence)
    rows = rows[np.isfinite(rows["length"]) & rows["dropped"].isna()]
    if len(rows) < FEWEST_OF_EITHER:
        return None
    empty = rows[rows["length"] == 0]
    share = len(empty) / len(rows)
    return MarkReading(
        share, f"{len(empty):,} of {len(rows):,} responses have no token", steps_with(empty.groupby("step").size()),
        ("n_tokens",), first_of(empty),
    )  # fmt: skip


@mark(needs=(("sequences.n_tokens",), ("sequences.reward",)), limit=0.5)
def empty_responses_are_scored(evidence: LogEvidence) -> MarkReading | None:
    """Responses without a token have a reward, which counts in the baseline of the others."""
    rows = fates(evidence)
    empty = rows[(rows["length"] == 0) & rows["dropped"].isna()]
    if not len(empty):
        return None
    scored = float(np.isfinite(empty["reward"]).mean())
    mean = float(empty["reward"].mean())
    return MarkReading(scored, f"their rewards (mean {number(mean)}) count in the baseline of the others")


@mark(needs=(("token_id",), ("position",), ("logp_behavior",), GROUP), limit=0.5)
def responses_are_one(evidence: LogEvidence) -> MarkReading | None:
    """All responses of a group are the same tokens, though each was unlikely; those of a certain policy are not."""
    groups = evidence.frame(
        f"""
        with of as (
            select step, group_id, seq_id, sum(hash(token_id, position)) as path, sum(logp_behavior::double) as logp
            from token where hash(step, group_id) % {evidence.sampled} = 0 group by all
        )
        select step, min(seq_id) as seq_id, count(distinct path) = 1 and max(logp) < ln({BY_CHANCE}) as same
        from of group by step, group_id having count(*) > 1
        """
    )
    if len(groups) < FEWEST_OF_EITHER / 4:
        return None
    same = groups[groups["same"].fillna(False)].sort_values(["step", "seq_id"])
    return MarkReading(
        len(same) / len(groups), f"{len(same):,} of {len(groups):,} groups have one response, several times",
        steps_with(same.groupby("step").size()), ("token_id",), first_of(same),
    )  # fmt: skip


@mark(needs=(("sequences.rank",),), limit=0.2)
def ranks_without_responses(evidence: LogEvidence) -> MarkReading | None:
    """Ranks between the first and the last one have no response in any step."""
    ranks = evidence.frame(
        "select rank, count(*) as n from sequence where rank is not null group by rank order by rank"
    )
    if not len(ranks):
        return None
    last = int(ranks["rank"].max())
    absent = sorted(set(range(last + 1)) - {int(rank) for rank in ranks["rank"]})
    named = listed([str(rank) for rank in absent[:4]]) + (" and more" if len(absent) > 4 else "")
    return MarkReading(len(absent) / (last + 1), f"{len(absent)} of {last + 1} ranks have no response ({named})",
                       (), ("rank",))  # fmt: skip


@mark(needs=(("sequences.n_tokens",), ("sequences.truncated", "sequences.finish_reason")), limit=0.02)
def cut_off_without_a_flag(evidence: LogEvidence) -> MarkReading | None:
    """Responses end at one longest length, without the token that ends others, and are not marked as truncated."""
    rows = fates(evidence)
    rows = rows[np.isfinite(rows["length"])]
    longest = rows["length"].max()
    if len(rows) < FEWEST_OF_EITHER or not longest >= _LONG:
        return None
    at_it, flagged = rows["length"] == longest, rows["at_limit"].fillna(False).astype(bool)
    beside = (rows["length"] >= longest - _TIMES_BESIDE) & ~at_it
    if at_it.sum() < max(_FEWEST_CUT, int(beside.sum())) or at_it.mean() > 0.5 or flagged[at_it].any():
        return MarkReading(0.0, "")
    if evidence.log.has("token_id"):
        last = evidence.frame(
            "select step, seq_id, arg_max(token_id, position) as token_id from token group by step, seq_id"
        )
        last = rows.assign(at_it=at_it).merge(last, on=["step", "seq_id"])
        usual = last.loc[~last["at_it"], "token_id"].value_counts(normalize=True)
        if not len(usual) or usual.iloc[0] < 0.5:
            return None
        if (last.loc[last["at_it"], "token_id"] == usual.index[0]).mean() > _SOME:
            return MarkReading(0.0, "")  # they ended there by themselves
    share = float(at_it.mean())
    return MarkReading(
        share, f"{percent(share)} of the responses end at {longest:.0f} tokens, and none of them is marked as cut off",
        steps_with(rows[at_it].groupby("step").size()), ("truncated",), first_of(rows[at_it]),
    )  # fmt: skip


def _is_failure(kind: str) -> bool:
    """Whether a response that ended so was ended by something else than the policy."""
    return kind in _OUTSIDE or re.search(FAILED_REASON, kind, re.IGNORECASE) is not None


@mark(needs=(("sequences.finish_reason", "sequences.failure"), ("sequences.reward",), ("advantage",)), limit=0.02)
def failed_are_scored(evidence: LogEvidence) -> MarkReading | None:
    """Responses that ended by an error are kept with a lower reward than the others, and have an advantage."""
    rows = fates(evidence)
    rows = rows[np.isfinite(rows["reward"]) & ~rows["left_out"]]
    # The kind that the log states goes before what the sampler called the end.
    kind = rows["failure"].fillna(rows["finish_reason"]).astype(object)
    kind = kind.where(kind.isin([each for each in kind.dropna().unique() if _is_failure(str(each))]))
    failed = kind.notna()
    signal = failed & (rows["a"].abs() > 0)
    if len(rows) < FEWEST_OF_EITHER or failed.sum() < _FEWEST_CUT:
        return MarkReading(0.0, "") if len(rows) else None
    of, others = rows.loc[failed, "reward"], rows.loc[~failed, "reward"]
    error = sqrt(float(of.var()) / len(of) + float(others.var()) / max(len(others), 1))
    if not others.mean() - of.mean() > CLEARLY * error:
        return MarkReading(0.0, "")
    named = kind[failed].mode().iloc[0]
    return MarkReading(
        float(signal.mean()),
        f"{percent(float(failed.mean()))} of the responses failed ({named}), earn {number(float(of.mean()))} against "
        f"{number(float(others.mean()))}, and are trained on",
        steps_with(rows[failed].groupby("step").size()),
        ("failure" if rows["failure"].notna().any() else "finish_reason", "reward"), first_of(rows[failed]),
    )  # fmt: skip


cause(
    "truncation_unmarked", F.SELECTION, "Responses cut off at the length limit are not marked as truncated",
    requires=(cut_off_without_a_flag,),
    do="Set truncated, or the finish_reason length, where a response reaches the limit.",
    reports=("NeMo-RL #4042", "TRL #4976"), columns=("truncated", "finish_reason"),
)  # fmt: skip
cause(
    "failures_scored", F.SELECTION, "Responses that failed outside of the policy are scored as if it had failed",
    requires=(failed_are_scored,), do="Drop failed responses before baselines are computed, or sample them again.",
    reports=("NeMo-Gym #2552", "rllm #710", "open-instruct #1887"), explains=("reward_decided",),
)  # fmt: skip
cause(
    "empty_responses", F.SELECTION, "Responses without a token are in the batch",
    requires=(responses_without_tokens,), supports={empty_responses_are_scored: 0.5},
    do="Sample failed responses again, or drop them before baselines are computed.",
)  # fmt: skip
cause(
    "placeholder_responses", F.SELECTION, "Placeholders of one token stand where responses were not sampled",
    requires=(single_tokens_not_sampled,),
    do="Sample these responses again, or drop them before baselines are computed.", explains=("zero_filled",),
    reports=("agentcore-rl-toolkit #122",),
)  # fmt: skip
cause(
    "one_seed", F.SELECTION, "Responses of a group are the same tokens, so none is better than another",
    requires=(responses_are_one,), refutes=GREEDY[:1],
    do="Give each response a seed of its own, or none, and a temperature above 0.",
    explains=("zero_signal", "zero_filled"), reports=("ms-swift #4383",),
)  # fmt: skip
cause(
    "servers_share_a_seed", F.SELECTION, "Servers draw with one seed and write the same responses",
    requires=(servers_draw_the_same,), refutes=(*GREEDY[:1], responses_are_one),
    do="Give each server a seed of its own: add its number to the seed.",
    explains=("drawn_as_logged", "repeated", "zero_signal"), reports=("verl #5179", "vLLM #11953"),
)  # fmt: skip
cause(
    "greedy", F.SELECTION, "The sampler takes the likeliest token each time and draws none",
    requires=GREEDY,
    do="Set temperature 1, top_k 0 and top_p 1 in each request: the server may have defaults of its own.",
    explains=("response_mask", "drawn_as_logged", "entropy_agrees", "zero_signal"),
    reports=("tpu-inference #1386", "slime #2197", "miles #2686"), columns=("logp_behavior",),
)  # fmt: skip
cause(
    "greedy_in_some_steps", F.SELECTION, "In some steps the sampler takes the likeliest token and draws none",
    requires=GREEDY_IN_SOME_STEPS, refutes=(*GREEDY, responses_are_one),
    do="Look what goes before these steps, such as an evaluation; set temperature, top_k and top_p in each request.",
    explains=("repeated", "response_mask", "drawn_as_logged", "entropy_agrees", "zero_signal"),
    reports=("TRL #5783",),
)  # fmt: skip
cause(
    "ranks_missing", F.SELECTION, "The responses of some ranks are not logged", requires=(ranks_without_responses,),
    do="Write the log from all ranks, or gather their rows first.",
)  # fmt: skip
