"""Marks of the baseline that advantages have.

Nothing of this needs the manifest to name the kind of advantage: groups of equal reward have none, and which rows share
a baseline is what advantages are a straight line of the reward in.
"""

from math import nan

import pandas as pd

from ratioscope.analysis.findings.logged import GROUP
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.credited import (
    FEWEST_GROUPS,
    FEWEST_RESPONSES,
    IN_GROUPS,
    KIND_OF_RULE,
    SAME,
    SOME,
    WITH_ADVANTAGES,
    ZERO,
    compares,
    equal_groups,
    explained_by,
    formulas_of,
    kind_of,
    responses_with_advantage,
    scored_responses,
    whole_groups,
    within_group,
)
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with

_OFF_LINE, _ADDED = 0.005, 0.01
"""Of the root mean square of A: what a line leaves unexplained, and what is more than rounding beside it."""
_NEAR = 0.02
"""Of an advantage: what small numbers in denominators make of it at most."""
_APART, _BESIDE, _FEWEST_EITHER = 0.25, 0.01, 4
"""In deviations of a group: how far a reward is from mean and median, so that it is seen which one is subtracted; of
the group's largest advantage: what a line through one response leaves unexplained at most; and groups in which that
response is better, or worse, than both."""
_BY_DESIGN = ("source", "adapter", "temperature", "top_p", "top_k", "in_baseline")
"""Columns in which a response that is a baseline by design differs from all others of its group."""
_LIKELIEST = 0.8
"""Share of the groups in which a response that was decoded without chance is the likeliest one."""


@mark(needs=IN_GROUPS, limit=0.1)
def advantage_of_equal_rewards(evidence: LogEvidence) -> MarkReading | None:
    """Groups whose responses all earned the same have an advantage other than 0."""
    groups = equal_groups(evidence)
    if len(groups) < FEWEST_GROUPS:
        return None
    credited = groups[groups["credited"]]
    return MarkReading(
        len(credited) / len(groups),
        f"{len(credited):,} of {len(groups):,} groups of equal reward have an advantage",
        steps_with(credited.groupby("step").size()),
        ("advantage",),
    )


@mark(needs=IN_GROUPS, limit=0.999)
def advantage_by_step(evidence: LogEvidence) -> MarkReading | None:
    """Within a step, whatever the group, the advantage is one straight line of the reward."""
    return _straight(whole_groups(evidence), ["step"], "the reward and the step alone give the advantage")


@mark(needs=(*IN_GROUPS, ("sequences.prompt_id",)), limit=0.999)
def advantage_by_prompt(evidence: LogEvidence) -> MarkReading | None:
    """Groups of one prompt have one straight line of the reward as their advantage."""
    rows = whole_groups(evidence)
    clause = "the reward and the prompt alone give the advantage, whichever of its groups"
    return _straight(rows[rows["prompt_id"].notna()], ["step", "prompt_id"], clause)


@mark(needs=IN_GROUPS, limit=0.999)
def advantage_by_place_in_group(evidence: LogEvidence) -> MarkReading | None:
    """The first responses of all groups are compared with each other, the second ones with each other, and so on."""
    rows = whole_groups(evidence)
    place = rows.groupby("group").cumcount()
    clause = "the reward and the place in the group give the advantage"
    return _straight(rows.assign(place=place), ["step", "place"], clause)


def _straight(rows: pd.DataFrame, keys: list[str], clause: str) -> MarkReading | None:
    """Share of the advantage's variance that a line of the reward for each cell explains; cells of several groups."""
    of = rows.groupby(keys)
    rows = rows[(of["group_id"].transform("nunique") > 1) & (of["group_id"].transform("size") > 3)]
    if len(rows) < FEWEST_RESPONSES:
        return None
    keyed = [rows[key] for key in keys]
    a, r = (rows[name] - rows[name].groupby(keyed).transform("mean") for name in ("advantage", "reward"))
    sums = pd.DataFrame({"ar": a * r, "rr": r * r, "aa": a * a}).groupby(keyed).sum()
    sums = sums[sums["rr"] > SAME]
    total = float(sums["aa"].sum())
    if not total > 0:
        return None
    return MarkReading(float((sums["ar"] ** 2 / sums["rr"]).sum()) / total, clause, (), ("advantage",))


@mark(needs=IN_GROUPS, limit=0.5)
def advantage_moved_by_step(evidence: LogEvidence) -> MarkReading | None:
    """In each step the advantage is what the group's own rewards give, times one number, plus another one."""
    rows = whole_groups(evidence)
    rows = rows.assign(mean=rows["reward"].groupby(rows["group"]).transform("mean"))
    of_step = rows.groupby("step")["mean"]  # with one mean for all groups the step's baseline is the group's
    rows = rows[of_step.transform("max") - of_step.transform("min") > SAME]
    scale = float((rows["advantage"] ** 2).mean() ** 0.5) if len(rows) >= FEWEST_RESPONSES else nan
    if not scale > 0:
        return None
    formulas = formulas_of(rows)
    if max(explained_by(rows, formulas)) > 1 - SOME:
        return MarkReading(0.0, "")
    best = (0.0, 0.0)
    for own in formulas.values():
        of = rows[["step", "advantage"]].assign(own=own)
        level = of.groupby("step").transform("mean")
        a, x = of["advantage"] - level["advantage"], of["own"] - level["own"]
        sums = pd.DataFrame({"ax": a * x, "xx": x * x}).groupby(of["step"]).transform("sum")
        slope = sums["ax"] / sums["xx"].where(sums["xx"] > SAME)
        added = level["advantage"] - slope * level["own"]
        added = (added - added.median()).abs()  # what is the same in every step is a baseline's shift (AsymRE)
        follows = slope * (sums["xx"] / of.groupby("step")["own"].transform("size")) ** 0.5 > _ADDED * scale
        if ((a - slope * x) ** 2)[follows].mean() < (_OFF_LINE * scale) ** 2:
            added = added.where(follows, 0.0)
            best = max(best, (float((added > _ADDED * scale).mean()), float(added.max())))
    share, largest = best
    return MarkReading(
        share, f"one number for each step, up to {number(largest)}, is added to what the group's own rewards give",
        steps_with(rows.groupby("step").size()), ("advantage",),
    )  # fmt: skip


@mark(needs=IN_GROUPS, limit=0.95)
def advantage_above_one_place(evidence: LogEvidence) -> MarkReading | None:
    """The advantage is proportional to the reward above that of one response of the group, which has the same place in
    all groups; share of the groups."""
    rows = whole_groups(evidence)
    rows = rows[rows.groupby("group")["reward"].transform("size") > 2]
    if len(rows) < FEWEST_RESPONSES:
        return None
    rows = rows.merge(_places(evidence), on=["step", "seq_id"])
    scale = float(rows["advantage"].abs().mean())
    rows = rows[within_group(rows, "reward").abs().groupby(rows["group"]).transform("max") > SAME]
    zero = rows["advantage"].abs() <= ZERO * scale
    found = [MarkReading(0.0, "")]
    for column in ("place", "from_end"):
        without = zero.groupby(rows[column]).agg(["mean", "sum"])
        for place in without.index[(without["mean"] > 1 - SOME) & (without["sum"] >= FEWEST_GROUPS)]:
            if column == "place" or place == 0:  # of the places from the end the last one alone
                name = "the last" if column == "from_end" else "the first" if place == 0 else f"response {place + 1}"
                found.append(_above_one(evidence, rows, rows[column] == place, name))
    return max(found, key=lambda each: each.value)


def _places(evidence: LogEvidence) -> pd.DataFrame:
    """Responses with their place in the group as it is logged, from its beginning and from its end, each from 0."""
    return evidence.frame(
        """
        select step, seq_id, row_number() over (partition by step, group_id order by seq_id) - 1 as place,
            row_number() over (partition by step, group_id order by seq_id desc) - 1 as from_end
        from sequence where grouped
        """
    )


def _above_one(evidence: LogEvidence, rows: pd.DataFrame, at: "pd.Series[bool]", name: str) -> MarkReading:
    """The reading for one place, which some of the rows have."""
    rows = rows[rows["group"].isin(rows["group"][at])]
    one = rows[at.reindex(rows.index)].drop_duplicates("group").set_index("group").sort_index()
    above = rows["reward"] - rows["group"].map(one["reward"])
    sums = pd.DataFrame({"ad": rows["advantage"] * above, "dd": above**2}).groupby(rows["group"]).sum()
    slope = sums["ad"] / sums["dd"]
    beside = (rows["advantage"] - rows["group"].map(slope) * above).abs().groupby(rows["group"]).max()
    fits = (slope > 0) & (beside <= _BESIDE * rows["advantage"].abs().groupby(rows["group"]).max())
    own, of = one["reward"], rows["reward"].groupby(rows["group"])
    far = _APART * of.std(ddof=0)
    apart = ((own - of.mean()).abs() > far) & ((own - of.median()).abs() > far)
    better, worse = fits[apart & (own > of.mean())], fits[apart & (own < of.mean())]
    if min(len(better), len(worse)) < _FEWEST_EITHER or _is_by_design(evidence, rows, one):
        return MarkReading(0.0, "")
    return MarkReading(
        float(min(fits.mean(), better.mean(), worse.mean())),
        f"in {percent(float(fits.mean()))} of {len(fits):,} groups the advantage is proportional to the reward above "
        f"that of {name}",
        steps_with(one.groupby("step").size()), ("advantage",), first_of(one.sort_values(["step", "seq_id"])),
    )  # fmt: skip


def _is_by_design(evidence: LogEvidence, rows: pd.DataFrame, one: pd.DataFrame) -> bool:
    """Whether these responses, one a group, are of another kind than the others: by a column in which all others of
    their group are alike, or as the likeliest ones of most groups, which were decoded without chance."""
    logged = [name for name in _BY_DESIGN if evidence.log.has(f"sequences.{name}")]
    of_sequence = "".join(f", any_value({name})::varchar as {name}" for name in logged)
    found = evidence.frame(
        f"""
        select step, seq_id, mean{of_sequence} from sequence left join (
            select step, seq_id, avg(logp_sampled)::double as mean from token where isfinite(logp_sampled) group by all
        ) using (step, seq_id) group by all
        """
    ).fillna(dict.fromkeys(logged, ""))
    rows = rows[["step", "seq_id", "group"]].merge(found, on=["step", "seq_id"])
    rows["one"] = rows["seq_id"] == rows["group"].map(one["seq_id"])
    others = rows[~rows["one"]].groupby("group")
    of = rows[rows["one"]].set_index("group")
    likeliest = of["mean"] >= others["mean"].max()
    if likeliest.mean() > _LIKELIEST:
        return True
    for name in logged:
        unlike = (others[name].nunique() == 1) & (others[name].first() != of[name])
        if unlike.mean() > 1 - SOME:
            return True
    return False


@mark(needs=IN_GROUPS, limit=0.8)
def advantage_of_a_stride(evidence: LogEvidence) -> MarkReading | None:
    """As many responses in a row as most groups have share a baseline, whichever group they are of."""
    rows = scored_responses(evidence)
    if evidence.spreads_groups or len(rows) < FEWEST_RESPONSES or not rows["grouped"].all():
        return None
    size = int(rows.groupby("group").size().mode().max())
    place = rows.groupby("step").cumcount() // size
    shares = zip(
        explained_by(rows, formulas_of(rows)),
        explained_by(rows, formulas_of(rows.assign(group=rows["step"] * len(rows) + place))),
        strict=True,
    )
    own, of_blocks = max(shares, key=lambda each: each[1])
    if not own <= 1 - SOME:
        return MarkReading(0.0, "")
    return MarkReading(
        (of_blocks - own) / (1 - own),
        f"blocks of {size} responses in a row give {percent(of_blocks)} of them, the groups give {percent(own)}",
        steps_with(rows.groupby("step").size()), ("advantage",),
    )  # fmt: skip


@mark(needs=(*IN_GROUPS, ("segment_id", "turn")), limit=0.8)
def advantage_counts_parts(evidence: LogEvidence) -> MarkReading | None:
    """Advantages are what rewards give where a response counts once for each of its segments, or turns."""
    rows = whole_groups(evidence)
    if len(rows) < FEWEST_RESPONSES:
        return None
    own = max(explained_by(rows, formulas_of(rows)))
    if not own <= 1 - SOME:
        return MarkReading(0.0, "")
    parts = evidence.frame(
        "select step, seq_id, count(distinct segment_id) as segment, count(distinct turn) as turn from token "
        "group by step, seq_id"
    )
    rows = rows.merge(parts, on=["step", "seq_id"])
    best = MarkReading(0.0, "")
    for part in ("segment", "turn"):
        times = rows[part].astype(float)
        of = times.groupby(rows["group"])
        tells = (of.transform("min") < of.transform("max")) & (rows["advantage"].abs() > ZERO)
        if tells.sum() < FEWEST_RESPONSES or not times.min() > 0:
            continue
        found = max(explained_by(rows, formulas_of(rows, times)))
        if (found - own) / (1 - own) > best.value:
            best = MarkReading(
                (found - own) / (1 - own),
                f"rewards give {percent(found)} of the advantages counted once for each {part}, {percent(own)} counted "
                "once for each response",
                steps_with(rows[tells].groupby("step").size()), ("advantage",), first_of(rows[tells]),
            )  # fmt: skip
    return best


@mark(needs=IN_GROUPS, limit=0.9)
def advantage_of_another_kind(evidence: LogEvidence) -> MarkReading | None:
    """The group's rewards give the advantages by another rule than the one that the manifest names."""
    rows, stated = whole_groups(evidence), kind_of(evidence)
    differ = within_group(rows, "reward").abs() > SAME
    if stated not in KIND_OF_RULE.values() or differ.sum() < FEWEST_RESPONSES:
        return None
    advantage = rows["advantage"][differ]
    shares = {
        words: float(((advantage - values[differ]).abs() <= _NEAR * advantage.abs()).mean())
        for words, values in formulas_of(rows).items()
    }
    by_stated = max(share for words, share in shares.items() if KIND_OF_RULE[words] == stated)
    best = max(shares, key=lambda words: shares[words])
    return MarkReading(
        shares[best] - by_stated,
        f"{percent(shares[best])} of them are {best}, {percent(by_stated)} are of the kind that it names ({stated})",
        steps_with(rows.groupby("step").size()), ("advantage",), first_of(rows[differ]),
    )  # fmt: skip


@mark(needs=(("advantage",), ("position",)), limit=0.9)
def advantage_discounted(evidence: LogEvidence) -> MarkReading | None:
    """A token has one and the same part of the advantage of the next one, in all responses."""
    if responses_with_advantage(evidence)["constant"].mean() > 0.5:
        return MarkReading(0.0, "")
    row = evidence.frame(
        """
        with of as (
            select step, seq_id, advantage::double / nullif(lead(advantage::double) over next, 0) as part
            from token where isfinite(advantage) window next as (partition by step, seq_id order by position)
        ), usual as (select median(part) as part, count(distinct (step, seq_id)) as n from of where part is not null)
        select any_value(usual.part) as part, any_value(usual.n) as n,
            avg((abs(of.part - usual.part) <= 0.1 * (1 - usual.part))::double) as share
        from of, usual where of.part is not null
        """
    ).iloc[0]
    if pd.isna(row["n"]) or row["n"] < FEWEST_RESPONSES:
        return None
    if not 0 < row["part"] < 1 - ZERO / 10:
        return MarkReading(0.0, "")
    return MarkReading(
        float(row["share"]),
        f"in {percent(float(row['share']))} of the tokens it is {number(float(row['part']))} × that of the next token, "
        "so that it fades to the beginning of a response",
        evidence.all_steps, ("advantage",),
    )  # fmt: skip


@mark(needs=WITH_ADVANTAGES, limit=0.98)
def advantage_is_the_reward(evidence: LogEvidence) -> MarkReading | None:
    """The advantage is the reward itself."""
    rows = scored_responses(evidence)
    if (~rows["constant"]).mean() > SOME:
        return MarkReading(0.0, "")
    same = (rows["advantage"] - rows["reward"]).abs() <= 1e-4 * (1 + rows["reward"].abs())
    earned = rows["reward"].abs() > SAME  # of the others a mean of 0 is no reward
    if earned.sum() < FEWEST_RESPONSES:
        return None
    share = float(min(same.mean(), same[earned].mean()))
    return MarkReading(
        share, f"it equals the reward in {percent(share)} of the responses",
        steps_with(rows[same].groupby("step").size()), ("advantage",), first_of(rows[same]),
    )  # fmt: skip


@mark(needs=IN_GROUPS, limit=0.99)
def worse_responses_have_no_advantage(evidence: LogEvidence) -> MarkReading | None:
    """Of responses that earned less than the mean of their group, the share whose advantage is 0, while no advantage is
    negative and those that earned more have one."""
    rows = whole_groups(evidence)
    above = within_group(rows, "reward")
    scale = float(rows["advantage"].abs().mean()) if len(rows) else nan
    apart = SAME * (1 + rows["reward"].abs())
    worse, better = rows[above < -apart], rows[above > apart]
    if min(len(worse), len(better)) < FEWEST_RESPONSES or not scale > 0:
        return None
    share = float((worse["advantage"].abs() <= ZERO * scale).mean())
    if rows["advantage"].min() < -ZERO * scale or (better["advantage"] > ZERO * scale).mean() < 1 - SOME:
        return MarkReading(0.0, "")
    return MarkReading(
        share,
        f"the advantage is 0 in {percent(share)} of {len(worse):,} responses below the mean reward of their group, and "
        "never negative",
        (), ("advantage",), first_of(worse),
    )  # fmt: skip


@mark(needs=IN_GROUPS, limit=0.99)
def better_responses_have_no_advantage(evidence: LogEvidence) -> MarkReading | None:
    """Of responses that earned more than the mean of their group, the share whose advantage is 0, while no advantage is
    positive and those that earned less have what the group's rewards give."""
    rows = whole_groups(evidence)
    above = within_group(rows, "reward")
    scale = float(rows["advantage"].abs().mean()) if len(rows) else nan
    apart = SAME * (1 + rows["reward"].abs())
    worse, better = rows[above < -apart], rows[above > apart]
    if min(len(worse), len(better)) < FEWEST_RESPONSES or not scale > 0:
        return None
    share = float((better["advantage"].abs() <= ZERO * scale).mean())
    if rows["advantage"].max() > ZERO * scale or not _follows_a_rule(rows, above < -apart):
        return MarkReading(0.0, "")
    return MarkReading(
        share,
        f"the advantage is 0 in {percent(share)} of {len(better):,} responses above the mean reward of their group, "
        "and never positive",
        (), ("advantage",), first_of(better),
    )  # fmt: skip


def _follows_a_rule(rows: pd.DataFrame, of: "pd.Series[bool]") -> bool:
    """Whether some of the advantages are what one kind makes of the group's rewards, up to a factor for each step: the
    best reward as the baseline would give others."""
    for values in formulas_of(rows).values():
        factor = (rows["advantage"] / values)[of]
        usual = factor.groupby(rows["step"][of]).transform("median")
        if (usual > 0).all() and ((factor - usual).abs() <= _NEAR * usual).mean() > 1 - SOME:
            return True
    return False


@mark(needs=(GROUP, ("sequences.seq_id",)), limit=0.9)
def groups_of_one_response(evidence: LogEvidence) -> MarkReading | None:
    """Prompt groups have a single response."""
    sizes = evidence.frame("select step, group_id, count(*) as n from sequence where grouped group by all")
    if len(sizes) < FEWEST_RESPONSES:
        return None
    single = sizes["n"] == 1
    return MarkReading(
        float(single.mean()), f"{int(single.sum()):,} of {len(sizes):,} groups have one response",
        steps_with(sizes[single].groupby("step").size()), ("group_id",),
    )  # fmt: skip


@mark(needs=(("advantage",), ("sequences.reward",)), limit=0.999)
def advantage_is_zero(evidence: LogEvidence) -> MarkReading | None:
    """No response has an advantage, while rewards differ."""
    rows = responses_with_advantage(evidence)
    # A distillation may learn from its teacher alone.
    if len(rows) < FEWEST_RESPONSES or rows["reward"].nunique() < 2 or evidence.log.has("logp_teacher"):
        return None
    zero = rows["advantage"] == 0
    return MarkReading(float(zero.mean()), "every advantage is 0, while rewards differ", (), ("advantage",))


@mark(needs=(), limit=0.5)
def another_kind_is_stated(evidence: LogEvidence) -> MarkReading | None:
    """The manifest names an advantage, or an algorithm, that does not compare the responses of a group."""
    return MarkReading(float(compares(evidence) is False), "the manifest names another kind of advantage")
