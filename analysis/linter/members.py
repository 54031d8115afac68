"""Marks of what a group is made of: which of its responses are there, where they are from, how far rewards differ."""

from math import gcd

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.credited import (
    FEWEST_GROUPS,
    FEWEST_RESPONSES,
    IN_GROUPS,
    SAME,
    ZERO,
    responses_with_advantage,
    scored_responses,
    whole_groups,
    within_group,
)
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.runs.relations import quoted

_NEARLY_ALL = 0.9
"""Share of the whole groups that add up to 0, where advantages do."""
_SURE = 3.0
"""Standard errors."""
_ORIGINS = ("source", "adapter", "environment")
"""Columns that say where the responses of one group are from."""
_COMMON, _MOST_COMMON = 0.05, 0.95
"""Share of an origin's responses that have one reward, where rewards are few; and all such rewards together."""
_MANY_GROUPS, _MANY = 20, 200
"""Groups and responses, below which nothing is said of how rewards spread."""


@mark(needs=IN_GROUPS, limit=0.5)
def small_groups_are_off_centre(evidence: LogEvidence) -> MarkReading | None:
    """Advantages add up to 0 in groups of the usual size, and do not in smaller ones: their baseline had more."""
    groups = _centres(evidence)
    if groups is None:
        return None
    small = groups["small"]
    off = groups[small & groups["off"]]
    whole, still = int((~small & ~groups["off"]).sum()), int(small.sum()) - len(off)
    return MarkReading(
        len(off) / int(small.sum()),
        f"advantages add up to 0 in {whole:,} whole groups and in {still:,} of {int(small.sum()):,} smaller ones",
        steps_with(off.groupby("step").size()), ("sequences",),
    )  # fmt: skip


@mark(needs=IN_GROUPS, limit=0.9)
def off_centre_groups_are_last(evidence: LogEvidence) -> MarkReading | None:
    """The smaller groups whose advantages do not add up to 0 are the last ones of their steps."""
    groups = _centres(evidence)
    if groups is None or not (off := groups[groups["small"] & groups["off"]])["off"].any():
        return None
    rows = evidence.responses.groupby("step")["seq_id"].agg(["max", "size"])
    last = off["last"] == rows["max"].reindex(off["step"]).to_numpy()
    multiple = gcd(*rows["size"].tolist())
    also = ""
    if rows["size"].nunique() > 1 and multiple > 1 and multiple % int(groups["n"].max()):
        also = f", and each step has a multiple of {multiple:,} responses"
    return MarkReading(float(last.mean()), f"{int(last.sum()):,} of them are the last of their step{also}")


def _centres(evidence: LogEvidence) -> pd.DataFrame | None:
    """Groups with an advantage, of the usual size or smaller: step, n, last (their last seq_id), off (they do not add
    up to 0), small. None where those of the usual size do not add up to 0 either, or a few are smaller."""
    rows = responses_with_advantage(evidence)
    logged = evidence.responses.groupby(["step", "group_id"]).size()
    if evidence.spreads_groups or rows.empty or evidence.responses["dropped"].notna().any() or logged.nunique() < 2:
        return None
    of = rows[rows["grouped"]].assign(large=rows["advantage"].abs()).groupby(["step", "group_id"])
    groups = of.agg(
        n=("large", "size"), last=("seq_id", "max"), mean=("advantage", "mean"), large=("large", "max"),
        constant=("constant", "all"),
    )  # fmt: skip
    whole = groups["n"] == logged.reindex(groups.index)
    groups = groups[groups["constant"] & (groups["large"] > ZERO) & whole].reset_index()
    usual = int(groups["n"].mode().max()) if len(groups) else 0
    groups = groups[groups["n"] <= usual]
    small, off = groups["n"] < usual, groups["mean"].abs() > ZERO * (1 + groups["large"])
    few = min(int(small.sum()), int((~small).sum())) < FEWEST_GROUPS
    if usual < 3 or few or off[~small].mean() > 1 - _NEARLY_ALL:
        return None
    return groups.assign(off=off, small=small)


@mark(needs=(*IN_GROUPS, tuple(f"sequences.{name}" for name in _ORIGINS)), limit=0.1)
def origins_share_a_baseline(evidence: LogEvidence) -> MarkReading | None:
    """Inside groups the advantage of one source of responses is above another one's; in deviations."""
    if (found := _origins(evidence)) is None:
        return None
    rows, origin, (higher, lower) = found
    mean = rows.groupby(["group", "origin"])["advantage"].mean().unstack()
    gap = (mean[higher] - mean[lower]).dropna()
    scale = float((within_group(rows, "advantage") ** 2).mean() ** 0.5)
    if len(gap) < FEWEST_GROUPS or not scale > 0:
        return None
    return MarkReading(
        float(gap.mean() - _SURE * gap.std() / len(gap) ** 0.5) / scale,
        f"in {len(gap):,} groups the advantage of {origin} {higher} is {number(float(gap.mean()))} above that of "
        f"{lower}",
        steps_with(rows.groupby("step").size()), ("group_id",), first_of(rows),
    )  # fmt: skip


@mark(needs=(*IN_GROUPS, tuple(f"sequences.{name}" for name in _ORIGINS)), limit=0.5)
def origins_are_scored_otherwise(evidence: LogEvidence) -> MarkReading | None:
    """One of them is rewarded with values between those of the other, which has a few values and never these.

    Demonstrations, or older responses, that are scored as all others are do not show this.
    """
    if (found := _origins(evidence)) is None:
        return None
    rows, _, pair = found
    reward = rows["reward"].round(5)
    best = MarkReading(0.0, "")
    for one, other in (pair, pair[::-1]):
        theirs, own = reward[rows["origin"] == other], reward[rows["origin"] == one]
        common = theirs.value_counts(normalize=True)
        common = common[common > _COMMON]
        if min(len(theirs), len(own)) < _MANY / 2 or len(common) < 2 or common.sum() < _MOST_COMMON:
            continue
        between = own[(own > common.index.min()) & (own < common.index.max()) & ~own.isin(theirs)]
        if len(between) / len(own) > best.value:
            best = MarkReading(
                len(between) / len(own),
                f"{percent(len(between) / len(own))} of the rewards of {one} are values that {other} never has",
            )
    return best


def _origins(evidence: LogEvidence) -> tuple[pd.DataFrame, str, tuple[str, str]] | None:
    """Responses of groups with two origins, the column that has them, and their names, the larger advantage first."""

    def made() -> tuple[pd.DataFrame, str, tuple[str, str]] | None:
        names = [name for name in _ORIGINS if evidence.log.has(f"sequences.{name}")]
        of = evidence.frame(f"select step, seq_id, {', '.join(map(quoted, names))} from sequence")
        rows = whole_groups(evidence).merge(of, on=["step", "seq_id"])
        for name in names:
            known = rows[rows[name].notna()]
            known = known.assign(origin=known[name].astype(str))
            known = known[known["origin"].isin(known["origin"].value_counts().index[:2])]
            mixed = known[known.groupby("group")["origin"].transform("nunique") == 2]
            if mixed["group"].nunique() >= FEWEST_GROUPS:
                lower, higher = mixed.groupby("origin")["advantage"].mean().sort_values().index
                return mixed, name, (higher, lower)
        return None

    return evidence.once("responses of two origins in one group", made)


@mark(needs=IN_GROUPS, limit=50.0)
def rewards_differ_between_groups_alone(evidence: LogEvidence) -> MarkReading | None:
    """Rewards of most groups differ, but far less than those of other groups do; times that they spread as much."""
    rows = scored_responses(evidence)
    rows = rows.head(0) if evidence.spreads_groups else rows[rows["grouped"]]
    if len(rows) < _MANY:
        return None
    environment = evidence.frame("select step, seq_id, coalesce(environment, '') as environment from sequence")
    rows = rows.merge(environment, on=["step", "seq_id"])
    groups = rows.groupby(["step", "environment", "group"])["reward"].agg(["mean", "min", "max", "size"]).reset_index()
    groups = groups[groups["size"] > 1]
    cells = [groups["step"], groups["environment"]]
    groups = groups[groups["mean"].groupby(cells).transform("size") > 1]
    if len(groups) < _MANY_GROUPS:
        return None
    n_free = len(groups) - groups.groupby(["step", "environment"]).ngroups
    apart = groups["mean"] - groups.groupby(["step", "environment"])["mean"].transform("mean")
    between = (float((apart**2).sum()) / n_free) ** 0.5
    here = within_group(rows, "reward")[rows["group"].isin(groups["group"])]
    inside = (float((here**2).sum()) / float((groups["size"] - 1).sum())) ** 0.5
    if (groups["max"] > groups["min"]).mean() < 0.5 or between < SAME:
        return MarkReading(0.0, "")
    return MarkReading(
        between / inside,
        f"inside of groups they are nearly the same, with {percent(inside / between)} of the spread between groups",
        steps_with(groups.groupby("step").size()), ("reward",), first_of(rows),
    )  # fmt: skip


@mark(needs=IN_GROUPS, limit=20.0)
def advantages_magnify_rewards(evidence: LogEvidence) -> MarkReading | None:
    """Inside groups advantages differ far more than rewards do, as where a small deviation divides them; times."""
    rows = whole_groups(evidence)
    inside, credited = (float((within_group(rows, name) ** 2).mean()) ** 0.5 for name in ("reward", "advantage"))
    if len(rows) < FEWEST_RESPONSES or not inside > 0:
        return None
    return MarkReading(credited / inside, f"advantages are {number(credited / inside)} × the differences of rewards")


@mark(needs=IN_GROUPS, limit=4.0)
def reward_goes_with_the_response(evidence: LogEvidence) -> MarkReading | None:
    """Inside groups the reward goes with the length or the likelihood of the response; in standard errors."""
    if not rewards_differ_between_groups_alone(evidence).present:
        return None
    of = evidence.frame(
        "select step, seq_id, ln(count(*)) as length, "
        "avg(logp_behavior::double) filter (isfinite(logp_behavior)) as likelihood from token group by step, seq_id"
    )
    rows = scored_responses(evidence).merge(of, on=["step", "seq_id"])
    reward, n_free = within_group(rows, "reward"), len(rows) - rows["group"].nunique()
    found = [abs(float(reward.corr(within_group(rows, name)))) for name in ("length", "likelihood")]
    value = float(np.nanmax([0.0, *found])) * max(n_free, 0) ** 0.5
    return MarkReading(value, f"rewards go with what was written ({number(value)} standard errors)")
