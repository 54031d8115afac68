"""Which responses are learned from: those left out of the loss against the kept ones, by length and by reward.

A response is left out where `dropped` says why, or where a mask rejected most of its tokens. Whether that is wanted is
not for the log to say; that it takes the long or the good ones, and that it moves the baseline of the others, is.
"""

import re
from math import sqrt

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.cause import Family as F
from ratioscope.analysis.findings.cause import cause, findings_of
from ratioscope.analysis.findings.finding import Finding, Severity, not_checked, passed
from ratioscope.analysis.findings.logged import GROUP, Need
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.words import listed
from ratioscope.analysis.linter.check import check
from ratioscope.analysis.linter.decoding import BY_CHANCE, GREEDY, servers_draw_the_same
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.linter.keys import sequence_rows
from ratioscope.analysis.linter.responses import single_tokens_not_sampled

_FEWEST = 40
"""Responses, of the left-out and of the kept ones, below which they are not compared."""
_CLEARLY = 4.0
"""Standard errors, of responses as if they were independent, by which the two must differ."""
_MOST = 0.5
"""Share of a response's tokens that a mask must have rejected."""
_ALIKE = 0.01
_SOME = 0.05
_FEWEST_BATCHES, _OTHERWISE = 20, 0.5
"""Batches whose thresholds are compared, and the share of them that may keep the same share of their tokens."""
_FEWEST_CUT, _LONG = 20, 32
"""Responses at one longest length, and tokens of it, from which on a limit is looked for."""
_TIMES_BESIDE = 5
"""How often as many responses must end at the limit as at each of the lengths before it."""
FAILED_REASON = "error|fail|time.?out|abort|exception|crash"
"""Reasons to finish that are not the policy's doing."""
_TOO_LONG = "overlong|truncat|length limit|max_length"
"""In the reasons of what is left out because it did not end."""
_OUTSIDE = ("environment", "timeout", "judge", "aborted")
"""Of the failures of the run format those that are not, either."""
_LEFT_OUT: tuple[Need, ...] = (("sequences.dropped", "rejected"),)
_LENGTHS: tuple[Need, ...] = (*_LEFT_OUT, ("sequences.n_tokens", "position"))


def _responses(evidence: LogEvidence) -> pd.DataFrame:
    """One row a response: step, seq_id, group_id, reward, length, finish_reason, failure, in_baseline, at_limit,
    masked (share of tokens), reason, left_out, a (mean advantage)."""

    def made() -> pd.DataFrame:
        rows = evidence.frame(
            """
            with of as (
                select step, seq_id, avg((coalesce(rejected, '') <> '')::int) as masked, avg(advantage::double) as a,
                    max(rejected) as rejected
                from token group by step, seq_id
            )
            select s.step, s.seq_id, s.group_id, s.reward::double as reward, s.n_tokens::double as length, s.dropped,
                s.finish_reason, s.failure, s.in_baseline,
                coalesce(s.truncated, s.finish_reason = 'length') as at_limit, coalesce(of.masked, 0) as masked, of.a,
                lower(coalesce(s.dropped, of.rejected)) as reason
            from sequence as s left join of using (step, seq_id) order by s.step, s.seq_id
            """
        )
        return rows.assign(left_out=rows["dropped"].notna() | (rows["masked"] >= _MOST))

    return evidence.once("responses, left out or kept", made)


def _both(evidence: LogEvidence) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """The left-out and the kept responses; None for fewer than a few of either."""
    rows = _responses(evidence)
    out, kept = rows[rows["left_out"]], rows[~rows["left_out"]]
    return (out, kept) if min(len(out), len(kept)) >= _FEWEST else None


@mark(needs=_LEFT_OUT, limit=0.3)
def many_left_out(evidence: LogEvidence) -> MarkReading | None:
    """Many responses are left out of the loss."""
    rows = _responses(evidence)
    if len(rows) < _FEWEST:
        return None
    out = rows[rows["left_out"]]
    share = len(out) / len(rows)
    return MarkReading(
        share, f"{percent(share)} of the responses are left out", steps_with(out.groupby("step").size()), (),
        first_of(out),
    )  # fmt: skip


@mark(needs=_LENGTHS, limit=0.2)
def left_out_by_length(evidence: LogEvidence) -> MarkReading | None:
    """Of the longest quarter of the responses a larger share is left out than of the shortest one."""
    rows = _responses(evidence)
    rows = rows[np.isfinite(rows["length"])]
    if _both(evidence) is None or rows["length"].nunique() < 4:
        return None
    # Lengths change over a run, and so may what is left out: quarters are of each step.
    quarter = np.ceil(rows["length"].groupby(rows["step"]).rank(method="average", pct=True) * 4).clip(1, 4)
    of = rows["left_out"].groupby(quarter).agg(["mean", "size"])
    if len(of) < 4:
        return None
    share, n = of["mean"].to_numpy(dtype=float), of["size"].to_numpy(dtype=float)
    error = sqrt(sum(p * (1 - p) / m for p, m in ((share[0], n[0]), (share[3], n[3]))))
    found = float(share[3] - share[0])
    clause = f"by quarter of length, {', '.join(f'{100 * each:.0f}' for each in share)}% are left out"
    return MarkReading(found if found > _CLEARLY * error else 0.0, clause, (), ("n_tokens",))


@mark(needs=(("rejected",),), limit=0.5)
def left_out_by_a_mask(evidence: LogEvidence) -> MarkReading | None:
    """Responses are left out because a mask rejected their tokens."""
    both = _both(evidence)
    if both is None:
        return None
    share = float((both[0]["masked"] >= _MOST).mean())
    return MarkReading(share, f"a mask rejected {percent(share)} of them")


@mark(needs=(*_LEFT_OUT, ("sequences.truncated", "sequences.finish_reason")), limit=0.5)
def left_out_at_the_limit(evidence: LogEvidence) -> MarkReading | None:
    """Responses are left out that were cut off at the length limit."""
    both = _both(evidence)
    if both is None:
        return None
    share = float(both[0]["at_limit"].fillna(False).astype(bool).mean())
    return MarkReading(share, f"{percent(share)} of them were cut off at the length limit")


@mark(needs=(*_LENGTHS, ("sequences.truncated", "sequences.finish_reason")), limit=0.1)
def finished_left_out_as_long(evidence: LogEvidence) -> MarkReading | None:
    """Responses that ended by themselves are left out as too long, and kept ones are as long."""
    rows = _responses(evidence)
    rows = rows[rows["at_limit"].notna()]
    as_long = rows[rows["left_out"] & rows["reason"].fillna("").str.contains(_TOO_LONG)]
    kept = rows["length"][~rows["left_out"]]
    if min(len(as_long), len(kept)) < _FEWEST:
        return None
    # A filter by length below the limit leaves out none that is shorter than a kept one.
    finished = as_long[~as_long["at_limit"].astype(bool) & (as_long["length"] <= kept.median())]
    share = len(finished) / len(as_long)
    return MarkReading(
        share, f"{percent(share)} of those left out as too long ended by themselves and are no longer than kept ones",
        steps_with(finished.groupby("step").size()), (), first_of(finished),
    )  # fmt: skip


@mark(needs=(), limit=0.5)
def selection_is_stated(evidence: LogEvidence) -> MarkReading | None:
    """The manifest says that responses are chosen before the loss."""
    parts = evidence.run.manifest.algorithm.get("parts")
    chosen = parts.get("selection", "all") if isinstance(parts, dict) else "all"
    return MarkReading(float(chosen != "all"), "the manifest states a selection")


@mark(needs=(*_LEFT_OUT, ("sequences.reward",)), limit=0.3)
def left_out_by_reward(evidence: LogEvidence) -> MarkReading | None:
    """The responses that are left out earned more, or less, than the kept ones, in standard deviations."""
    both = _both(evidence)
    if both is None:
        return None
    out, kept = (each["reward"].to_numpy(dtype=float) for each in both)
    out, kept = out[np.isfinite(out)], kept[np.isfinite(kept)]
    if min(len(out), len(kept)) < _FEWEST:
        return None
    spread = float(np.concatenate([out, kept]).std())
    difference = float(out.mean() - kept.mean())
    error = sqrt(out.var() / len(out) + kept.var() / len(kept))
    clear = spread > 0 and abs(difference) > _CLEARLY * error
    clause = f"their mean reward is {number(float(out.mean()))}, that of the kept ones {number(float(kept.mean()))}"
    return MarkReading(abs(difference) / spread if clear else 0.0, clause, (), ("reward",))


@mark(needs=(*_LEFT_OUT, ("advantage", "sequences.in_baseline"), ("sequences.reward",), GROUP), limit=0.9)
def left_out_in_the_baseline(evidence: LogEvidence) -> MarkReading | None:
    """Responses that are left out of the loss still count in the baseline of those that are kept."""
    rows = _responses(evidence)
    rows = rows[np.isfinite(rows["reward"])]
    stated = rows.loc[rows["left_out"], "in_baseline"].dropna()
    if len(stated) >= _FEWEST:
        share = float(stated.astype(bool).mean())
        return MarkReading(share, f"the log counts {percent(share)} of them in it", (), ("in_baseline",))
    keys = [rows["step"], rows["group_id"]]
    mixed = (rows["left_out"].groupby(keys).transform("nunique") > 1) & ~evidence.spreads_groups
    if not mixed.any():
        return None
    rows = rows[mixed]
    keys = [rows["step"], rows["group_id"]]
    of_all = rows["reward"] - rows["reward"].groupby(keys).transform("mean")
    kept = rows[~rows["left_out"] & np.isfinite(rows["a"])]
    keys = [kept["step"], kept["group_id"]]
    of_kept = kept["reward"] - kept["reward"].groupby(keys).transform("mean")
    told_apart = (of_all[kept.index] - of_kept).abs() > _ALIKE
    kept, with_all, alone = kept[told_apart], of_all[kept.index][told_apart], of_kept[told_apart]
    if len(kept) < _FEWEST:
        return None
    # A baseline is where an advantage changes its sign, whatever it is divided by.
    sides = [(np.sign(kept["a"]) == np.sign(each.where(each.abs() > 1e-6, 0.0))) for each in (with_all, alone)]
    differ = sides[0] != sides[1]
    if differ.sum() < _FEWEST / 2:
        return None
    share = float(sides[0][differ].mean())
    return MarkReading(share, f"{percent(share)} of the advantages of kept ones show it", (), ("advantage",))


@mark(needs=(("rejected",), ("gradient_weight",), ("advantage",)), limit=0.3)
def kept_are_not_rescaled(evidence: LogEvidence) -> MarkReading | None:
    """The loss divides by all tokens, those that a mask took out included, so that updates shrink with the share."""
    tokens = evidence.frame(
        """
        select step, count(*) as n, avg((coalesce(rejected, '') = '')::int) as kept,
            median(gradient_weight::double / advantage::double)
                filter (coalesce(rejected, '') = '' and advantage <> 0 and gradient_weight <> 0) as factor
        from usable group by step
        """
    ).dropna()
    tokens = tokens[tokens["kept"] < 1 - _MOST / 2]
    if not len(tokens):
        return None
    of_all = (tokens["factor"] * tokens["n"]).median()
    of_kept = (tokens["factor"] * tokens["n"] * tokens["kept"]).median()
    kept = float(tokens["kept"].mean())
    if abs(of_kept - 1) < abs(of_all - 1):
        return MarkReading(0.0, "")
    near = abs(of_all - 1) < 0.1  # otherwise it is divided by something else
    return MarkReading(
        1 - kept if near else np.nan, f"the loss divides by all tokens, of which {percent(kept)} are kept"
    )


@mark(needs=(("rejected",), ("entropy",)), limit=0.9)
def threshold_counts_padding(evidence: LogEvidence) -> MarkReading | None:
    """A mask keeps the tokens of the highest entropy, and in each batch as many as are one and the same share of its
    tokens and padding, though of its tokens alone shares differ; share of the batches."""
    of = evidence.frame(
        """
        select step, seq_id, any_value(s.rank) as rank, any_value(s.micro_batch) as micro_batch, count(*) as n,
            count(*) filter (coalesce(rejected, '') = '') as kept,
            max(entropy) filter (coalesce(rejected, '') <> '') as highest_out,
            min(entropy) filter (coalesce(rejected, '') = '') as lowest_kept
        from usable join sequence as s using (step, seq_id) where isfinite(entropy) group by step, seq_id
        """
    )
    logged = [name for name in ("rank", "micro_batch") if of[name].notna().all() and of[name].nunique() > 1]
    best = MarkReading(0.0, "")
    if not _SOME < (kept := float(of["kept"].sum() / max(of["n"].sum(), 1))) < 1 - _SOME:
        return None
    for more in ([], *([name] for name in logged), *([logged] if len(logged) > 1 else [])):
        batches = of.groupby(["step", *more])
        by = batches.agg(
            kept=("kept", "sum"), n=("n", "sum"), longest=("n", "max"), size=("n", "size"),
            highest_out=("highest_out", "max"), lowest_kept=("lowest_kept", "min"),
        )  # fmt: skip
        if len(by) < _FEWEST_BATCHES or (by["highest_out"] > by["lowest_kept"]).mean() > _SOME:
            continue
        # A threshold between two tokens keeps one more or less of them.
        error = 2 / by["kept"].clip(lower=1) + _ALIKE
        padded, alone = (by["kept"] / whole for whole in (by["size"] * by["longest"], by["n"]))
        alike, differ = ((each / each.median() - 1).abs() <= error for each in (padded, alone))
        if alike.mean() > best.value and differ.mean() < _OTHERWISE:
            best = MarkReading(
                float(alike.mean()),
                f"{percent(kept)} of the tokens are kept, in {percent(float(alike.mean()))} of the batches "
                f"{percent(float(padded.median()))} of tokens and padding together",
                evidence.all_steps, ("rejected",),
            )  # fmt: skip
    return best


@mark(needs=(("sequences.n_tokens",),), limit=0.01)
def responses_without_tokens(evidence: LogEvidence) -> MarkReading | None:
    """Responses have a length of 0."""
    rows = _responses(evidence)
    rows = rows[np.isfinite(rows["length"]) & rows["dropped"].isna()]
    if len(rows) < _FEWEST:
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
    rows = _responses(evidence)
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
    if len(groups) < _FEWEST / 4:
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
    rows = _responses(evidence)
    rows = rows[np.isfinite(rows["length"])]
    longest = rows["length"].max()
    if len(rows) < _FEWEST or not longest >= _LONG:
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
    rows = _responses(evidence)
    rows = rows[np.isfinite(rows["reward"]) & ~rows["left_out"]]
    # The kind that the log states goes before what the sampler called the end.
    kind = rows["failure"].fillna(rows["finish_reason"]).astype(object)
    kind = kind.where(kind.isin([each for each in kind.dropna().unique() if _is_failure(str(each))]))
    failed = kind.notna()
    signal = failed & (rows["a"].abs() > 0)
    if len(rows) < _FEWEST or failed.sum() < _FEWEST_CUT:
        return MarkReading(0.0, "") if len(rows) else None
    of, others = rows.loc[failed, "reward"], rows.loc[~failed, "reward"]
    error = sqrt(float(of.var()) / len(of) + float(others.var()) / max(len(others), 1))
    if not others.mean() - of.mean() > _CLEARLY * error:
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
    "long_rejected", F.SELECTION, "A mask keeps long responses out of the loss",
    requires=(left_out_by_length, many_left_out, left_out_by_a_mask),
    refutes=(left_out_at_the_limit,),
    do="Judge responses by their mean log-ratio a token, or reject tokens in place of responses.",
    reports=("NeMo-RL #4243", "TRL #7120", "TRL #6369", "TRL #6095"),
)  # fmt: skip
cause(
    "long_dropped", F.SELECTION, "Long responses are left out of the loss",
    requires=(left_out_by_length, many_left_out),
    refutes=(left_out_by_a_mask, left_out_at_the_limit, selection_is_stated),
    do="Look at the reasons in dropped, and leave fewer long responses out.",
)  # fmt: skip
cause(
    "long_cut_off", F.SELECTION, "Responses that reach the length limit are left out of the loss",
    requires=(left_out_at_the_limit, many_left_out), refutes=(selection_is_stated,),
    do="Raise the length limit, or score unfinished responses.", severity=Severity.NOTICE,
)  # fmt: skip
cause(
    "finished_as_overlong", F.SELECTION, "Responses that were finished are left out of the loss as overlong",
    requires=(finished_left_out_as_long,),
    do="Let the filter look at the finish reason in place of one end token: a model may end with another.",
    reports=("SkyRL #1319",),
)  # fmt: skip
cause(
    "chosen_by_reward", F.SELECTION, "Responses are left out of the loss by what they earned",
    requires=(left_out_by_reward, many_left_out),
    refutes=(left_out_by_length, left_out_at_the_limit, selection_is_stated),
    do="Look at the reasons in dropped: what is kept no longer shows what the policy earns.", severity=Severity.NOTICE,
)  # fmt: skip
cause(
    "in_the_baseline_only", F.SELECTION, "Responses that are left out of the loss count in the baseline",
    requires=(left_out_in_the_baseline,), refutes=(selection_is_stated,),
    do="Compute baselines over the responses that are kept, if this is not meant.", severity=Severity.NOTICE,
)  # fmt: skip
cause(
    "rejected_in_the_mean", F.SELECTION, "Rejected tokens count in the mean of the loss",
    requires=(kept_are_not_rescaled,), do="Divide the loss by the tokens that are kept.", severity=Severity.NOTICE,
)  # fmt: skip
cause(
    "padding_in_the_threshold", F.SELECTION,
    "The threshold of the entropy mask counts padding, so that it keeps too many tokens",
    requires=(threshold_counts_padding,),
    do="Take the quantile over the sampled tokens alone, without the padding of their batch.",
    reports=("TRL #3709", "TRL #3715"),
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
    "ranks_missing", F.SELECTION, "The responses of some ranks are not logged", requires=(ranks_without_responses,),
    do="Write the log from all ranks, or gather their rows first.",
)  # fmt: skip


@check(order=215, needs=(), of_the_run=True)
def selection(evidence: LogEvidence) -> list[Finding]:
    """What is left out of the loss, dropped or rejected, against what is kept; empty, equal or missing responses."""
    if other := evidence.problems(sequence_rows):
        return not_checked(f"Responses are not what they seem: {', '.join(other)}.")
    found = findings_of(F.SELECTION, evidence)
    if found:
        return found
    rows = _responses(evidence)
    if not rows["left_out"].any():
        return not_checked("No response is marked as left out of the loss.")
    out = many_left_out(evidence)
    if not out.known:
        return not_checked(f"{len(rows)} responses are too few.")
    return passed(f"{percent(out.reading.value)} of the responses are left out of the loss.")
