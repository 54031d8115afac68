"""Which responses are learned from: those left out of the loss against the kept ones, by length and by reward.

A response is left out where `dropped` says why, or where a mask rejected most of its tokens. Whether that is wanted is
not for the log to say; that it takes the long or the good ones, and that it moves the baseline of the others, is.
"""

from math import sqrt

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.cause import Family as F
from ratioscope.analysis.findings.cause import cause, findings_of
from ratioscope.analysis.findings.finding import Finding, Severity, not_checked, passed
from ratioscope.analysis.findings.logged import GROUP, Need
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.check import check
from ratioscope.analysis.linter.constant_groups import constant_groups_in_the_update
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.linter.fate import CLEARLY, FEWEST_OF_EITHER, MOST_REJECTED, fates
from ratioscope.analysis.linter.keys import sequence_rows

_ALIKE = 0.01
_SOME = 0.05
_FEWEST_BATCHES, _OTHERWISE = 20, 0.5
"""Batches whose thresholds are compared, and the share of them that may keep the same share of their tokens."""
_TOO_LONG = "overlong|truncat|length limit|max_length"
"""In the reasons of what is left out because it did not end."""
_LEFT_OUT: tuple[Need, ...] = (("sequences.dropped", "rejected"),)
_LENGTHS: tuple[Need, ...] = (*_LEFT_OUT, ("sequences.n_tokens", "position"))


def _both(evidence: LogEvidence) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """The left-out and the kept responses; None for fewer than a few of either."""
    rows = fates(evidence)
    out, kept = rows[rows["left_out"]], rows[~rows["left_out"]]
    return (out, kept) if min(len(out), len(kept)) >= FEWEST_OF_EITHER else None


@mark(needs=_LEFT_OUT, limit=0.3)
def many_left_out(evidence: LogEvidence) -> MarkReading | None:
    """Many responses are left out of the loss."""
    rows = fates(evidence)
    if len(rows) < FEWEST_OF_EITHER:
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
    rows = fates(evidence)
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
    return MarkReading(found if found > CLEARLY * error else 0.0, clause, (), ("n_tokens",))


@mark(needs=(("rejected",),), limit=0.5)
def left_out_by_a_mask(evidence: LogEvidence) -> MarkReading | None:
    """Responses are left out because a mask rejected their tokens."""
    both = _both(evidence)
    if both is None:
        return None
    share = float((both[0]["masked"] >= MOST_REJECTED).mean())
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
    rows = fates(evidence)
    rows = rows[rows["at_limit"].notna()]
    as_long = rows[rows["left_out"] & rows["reason"].fillna("").str.contains(_TOO_LONG)]
    kept = rows["length"][~rows["left_out"]]
    if min(len(as_long), len(kept)) < FEWEST_OF_EITHER:
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
    chosen = evidence.run.manifest.parts.get("selection", "all")
    return MarkReading(float(chosen != "all"), "the manifest states a selection")


@mark(needs=(*_LEFT_OUT, ("sequences.reward",)), limit=0.3)
def left_out_by_reward(evidence: LogEvidence) -> MarkReading | None:
    """The responses that are left out earned more, or less, than the kept ones, in standard deviations."""
    both = _both(evidence)
    if both is None:
        return None
    out, kept = (each["reward"].to_numpy(dtype=float) for each in both)
    out, kept = out[np.isfinite(out)], kept[np.isfinite(kept)]
    if min(len(out), len(kept)) < FEWEST_OF_EITHER:
        return None
    spread = float(np.concatenate([out, kept]).std())
    difference = float(out.mean() - kept.mean())
    error = sqrt(out.var() / len(out) + kept.var() / len(kept))
    clear = spread > 0 and abs(difference) > CLEARLY * error
    clause = f"their mean reward is {number(float(out.mean()))}, that of the kept ones {number(float(kept.mean()))}"
    return MarkReading(abs(difference) / spread if clear else 0.0, clause, (), ("reward",))


@mark(needs=(*_LEFT_OUT, ("advantage", "sequences.in_baseline"), ("sequences.reward",), GROUP), limit=0.9)
def left_out_in_the_baseline(evidence: LogEvidence) -> MarkReading | None:
    """Responses that are left out of the loss still count in the baseline of those that are kept."""
    rows = fates(evidence)
    rows = rows[np.isfinite(rows["reward"])]
    stated = rows.loc[rows["left_out"], "in_baseline"].dropna()
    if len(stated) >= FEWEST_OF_EITHER:
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
    if len(kept) < FEWEST_OF_EITHER:
        return None
    # A baseline is where an advantage changes its sign, whatever it is divided by.
    sides = [(np.sign(kept["a"]) == np.sign(each.where(each.abs() > 1e-6, 0.0))) for each in (with_all, alone)]
    differ = sides[0] != sides[1]
    if differ.sum() < FEWEST_OF_EITHER / 2:
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
    tokens = tokens[tokens["kept"] < 1 - MOST_REJECTED / 2]
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
    "constant_groups_stay", F.SELECTION, "Groups of equal rewards are to be removed, and stay in the update",
    requires=(constant_groups_in_the_update,),
    do="Look whether the filter runs before the batch is made, and on the rewards that advantages are made of.",
    reports=("tinker-cookbook #155",), explains=("zero_signal",),
)  # fmt: skip
cause(
    "padding_in_the_threshold", F.SELECTION,
    "The threshold of the entropy mask counts padding, so that it keeps too many tokens",
    requires=(threshold_counts_padding,),
    do="Take the quantile over the sampled tokens alone, without the padding of their batch.",
    reports=("TRL #3709", "TRL #3715"),
)  # fmt: skip


@check(order=215, needs=(), of_the_run=True)
def selection(evidence: LogEvidence) -> list[Finding]:
    """What is left out of the loss, dropped or rejected, against what is kept; empty, equal or missing responses."""
    if other := evidence.problems(sequence_rows):
        return not_checked(f"Responses are not what they seem: {', '.join(other)}.")
    found = findings_of(F.SELECTION, evidence)
    if found:
        return found
    rows = fates(evidence)
    if not rows["left_out"].any():
        return not_checked("No response is marked as left out of the loss.")
    out = many_left_out(evidence)
    if not out.known:
        return not_checked(f"{len(rows)} responses are too few.")
    return passed(f"{percent(out.reading.value)} of the responses are left out of the loss.")
