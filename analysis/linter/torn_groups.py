"""Marks of prompt groups of which a part alone has the advantages that the group's rewards give, and the others 0.

Exact where it looks: the advantages that are there are what a usual kind makes of the rewards of the whole group, so
that those of the others are known, too. Either their place in the group says which responses have lost theirs, or all
but one have; what a mask of long or of bad responses takes out shows neither.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.linter.credited import FEWEST_GROUPS, IN_GROUPS, SOME, compares, formulas_of, whole_groups
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with

_NEAR = 0.02
"""Of an advantage: what small numbers in denominators make of it at most."""
_CLEAR = 0.05
"""Of the mean |A|: an advantage that is not 0 by rounding."""
_ALIKE = 0.9
"""Share of the torn groups, or of pairs of their responses, that are alike."""
_FEWEST_OF_SIGN = 0.1
"""Of the lost advantages: the share of either sign, without which a clamp may have taken them."""
_OTHERS = 0.2
"""Share of the other groups that may come again, too."""


class TornGroups(NamedTuple):
    """Groups of unequal rewards, and those of them in which a part has no advantage."""

    rows: pd.DataFrame
    """Responses of the torn ones: step, seq_id, group, kept, lost."""
    groups: pd.DataFrame
    """One row a group of unequal rewards: step, group_id, n, kept (responses), torn."""


@mark(needs=IN_GROUPS, limit=0.01)
def part_of_a_group_has_advantages(evidence: LogEvidence) -> MarkReading | None:
    """In some groups a few responses, by their place or one alone, have the advantage that the rewards give, and all
    others 0 although their rewards give one; share of the groups of unequal rewards."""
    found = torn_groups(evidence)
    if found is None:
        return None
    torn = found.groups[found.groups["torn"]]
    if torn.empty:
        return MarkReading(0.0, "")
    kept, size = int(torn["kept"].median()), int(torn["n"].median())
    return MarkReading(
        len(torn) / len(found.groups),
        f"in {len(torn):,} of {len(found.groups):,} groups {kept} of {size} {'has' if kept == 1 else 'have'} one, the "
        "others 0, although rewards differ",
        steps_with(torn.groupby("step").size()), ("advantage",), first_of(found.rows[found.rows["lost"]]),
    )  # fmt: skip


@mark(needs=(*IN_GROUPS, ("sequences.source", "sequences.prompt_id", "sequences.behavior_version_min")), limit=0.75)
def torn_groups_come_again(evidence: LogEvidence) -> MarkReading | None:
    """These groups are of one source, older, or of prompts that an earlier step has, and the others are not; the
    difference of the shares."""
    found = torn_groups(evidence)
    if found is None or not found.groups["torn"].any():
        return None
    of = evidence.frame(
        """
        select step, group_id, min(source) as source, count(distinct source) as sources, min(prompt_id) as prompt_id,
            count(distinct prompt_id) as prompts, min(behavior_version_min)::double as version
        from sequence group by all
        """
    )
    first = of[of["prompts"] == 1].groupby("prompt_id")["step"].min()
    groups = found.groups.merge(of, on=["step", "group_id"])
    torn, best = groups["torn"], MarkReading(0.0, "")
    named = groups["source"][torn & (groups["sources"] == 1)].mode()
    source = str(named.iloc[0]) if len(named) else ""
    behind = groups["step"] - groups["version"]
    usual = float(behind[~torn].quantile(1 - _OTHERS)) if (~torn).any() else np.nan
    signs = {
        f"of source {source}": (groups["source"] == source) & (groups["sources"] == 1),
        "of prompts that came in an earlier step": groups["step"] > groups["prompt_id"].map(first),
        "sampled longer ago than most others": behind > usual,
    }
    for words, sign in signs.items():
        share, others = float(sign[torn].mean()), float(sign[~torn].mean()) if (~torn).any() else np.nan
        if others <= _OTHERS and share - others > best.value:
            best = MarkReading(share - others, f"{percent(share)} of them are {words}, {percent(others)} of the others")
    return best


def torn_groups(evidence: LogEvidence) -> TornGroups | None:
    """Where enough groups of unequal rewards are whole and their advantages are known to be a kind's; no group is torn
    where what took the advantages may be a mask of long, or of better or worse responses."""
    return evidence.once("groups of which a part has advantages", lambda: _found(evidence))


def _found(evidence: LogEvidence) -> TornGroups | None:
    rows = whole_groups(evidence)
    there = rows["advantage"] != 0
    if compares(evidence) is False or not there.any():
        return None
    expected = _expected(rows[["step", "group", "reward", "advantage"]], there)
    if expected is None:
        return None
    clear = expected.abs() > _CLEAR * expected[there].abs().mean()
    right = (rows["advantage"] - expected).abs() <= _NEAR * expected.abs()
    rows = rows.assign(
        kept=clear & there & right, lost=clear & ~there, odd=there & ~right, expected=expected,
        place=rows.groupby("group").cumcount(),
    )  # fmt: skip
    groups = rows.assign(clear=clear).groupby("group", as_index=False).agg(
        step=("step", "first"), group_id=("group_id", "first"), n=("kept", "size"), kept=("kept", "sum"),
        lost=("lost", "sum"), odd=("odd", "any"), clear=("clear", "any"),
    )  # fmt: skip
    groups = groups[groups["clear"]]
    if len(groups) < FEWEST_GROUPS:
        return None
    groups["torn"] = (groups["kept"] > 0) & (groups["lost"] > 0) & ~groups["odd"] & (groups["n"] > 2)
    rows = rows[rows["group"].isin(groups["group"][groups["torn"]])]
    if groups["torn"].sum() < FEWEST_GROUPS or rows["step"].nunique() < 2 or not _by_place_alone(rows, groups):
        groups["torn"] = False
        rows = rows.head(0)
    return TornGroups(rows, groups)


def _expected(rows: pd.DataFrame, there: "pd.Series[bool]") -> "pd.Series[float] | None":
    """What a usual kind makes of the rewards, times one factor for each step, where it gives nearly all advantages that
    are there."""
    for values in formulas_of(rows).values():
        own = pd.Series(values, rows.index)
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = (rows["advantage"] / own)[there]
        usual = factor.groupby(rows["step"][there]).median()
        of = rows["step"].map(usual)
        alike = ((factor - of[there]).abs() <= _NEAR * of[there].abs()).mean()
        if (usual > 0).all() and alike > 1 - SOME:
            return own * of.fillna(1.0)
    return None


def _by_place_alone(rows: pd.DataFrame, groups: pd.DataFrame) -> bool:
    """Whether the place in the group tells who has lost an advantage, or all but one have, and neither their sign nor
    the length of the response does."""
    positive = float((rows["expected"][rows["lost"]] > 0).mean())
    if not _FEWEST_OF_SIGN <= positive <= 1 - _FEWEST_OF_SIGN:
        return False
    pairs = rows[rows["lost"]][["group", "n_tokens"]].merge(rows[rows["kept"]][["group", "n_tokens"]], on="group")
    longer = float((np.sign(pairs["n_tokens_x"] - pairs["n_tokens_y"]).mean() + 1) / 2)
    if not 1 - _ALIKE <= longer <= _ALIKE:
        return False
    torn = groups[groups["torn"]]
    one = float(((torn["kept"] == 1) & (torn["lost"] > 1)).mean())
    told = rows[rows["kept"] | rows["lost"]]
    mostly = told.groupby("place")["kept"].transform("mean") > 0.5
    by_place = float((told["kept"] == mostly).groupby(told["group"]).all().mean())
    return max(one, by_place) >= _ALIKE
