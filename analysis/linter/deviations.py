"""Marks of the deviation that advantages are divided by, against the one that the settings name.

A group shows it where its rewards have another deviation than those of the other groups of the step: divided by its
own, its advantages have deviation 1 all the same; divided by that of the batch, they are larger or smaller as well.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.credited import FEWEST_GROUPS, IN_GROUPS, SAME, kind_of, whole_groups, within_group
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.linter.stated import stated

_NEAR = 0.03
"""Of a factor: what small numbers in denominators make of it at most."""
_APART = 0.1
"""Logarithm by which a group's deviation is another one than the median of its step."""
_FEWEST_BESIDE = 3
"""Groups of a step whose median is compared with."""
_SCALES = {"group": "group", "true": "group", "batch": "batch", "none": "none", "false": "none"}
"""What `scale_rewards` says, in lower case."""
_KINDS = {"group_normalised": "group", "batch_normalised": "batch"}
"""What kinds of `algorithm.parts.advantage` say."""


class _Stated(NamedTuple):
    """What the settings divide advantages by: group, batch or none; and the setting in words."""

    by: str
    words: str


class _Factors(NamedTuple):
    """Groups that tell, one row each, by what their rewards above the mean are multiplied."""

    groups: pd.DataFrame
    rows: pd.DataFrame
    """Their responses."""
    by_own: float
    """Share of the groups whose factor is their own deviation's."""
    by_step: float
    """Share of those whose factor is that of the other groups of their step."""


@mark(needs=IN_GROUPS, limit=0.9)
def divided_by_the_own_deviation(evidence: LogEvidence) -> MarkReading | None:
    """Advantages have deviation 1 inside of groups whose rewards have different ones, and the settings name no
    deviation of the group; share of the groups."""
    setting, found = _setting(evidence), _factors(evidence)
    if setting is None or setting.by == "group" or found is None:
        return None
    low, high = (number(float(found.groups["deviation"].quantile(edge)), digits=2) for edge in (0, 1))
    return MarkReading(
        found.by_own - found.by_step,
        f"{percent(found.by_own)} of {len(found.groups):,} groups have deviation 1 where rewards have {low} to {high}; "
        f"{setting.words}",
        steps_with(found.groups.groupby("step").size()), ("advantage",), first_of(found.rows),
    )  # fmt: skip


@mark(needs=IN_GROUPS, limit=0.9)
def divided_by_one_deviation(evidence: LogEvidence) -> MarkReading | None:
    """All groups of a step have one factor between rewards and advantages, whatever the deviation of their rewards, and
    the settings name that of the group; share of the groups."""
    setting, found = _setting(evidence), _factors(evidence)
    if setting is None or setting.by != "group" or found is None:
        return None
    return MarkReading(
        found.by_step - found.by_own,
        f"in {percent(found.by_step)} of {len(found.groups):,} groups the factor is the step's; {setting.words}",
        steps_with(found.groups.groupby("step").size()), ("advantage",), first_of(found.rows),
    )  # fmt: skip


def _setting(evidence: LogEvidence) -> _Stated | None:
    """What advantages are divided by, as the manifest says; None: it does not, or in words that are not known."""
    manifest = evidence.run.manifest
    found = stated(manifest, ("scale_rewards", "norm_adv_by_std_in_grpo"))
    if by := _SCALES.get(str(found.get("scale_rewards")).lower()) if "scale_rewards" in found else None:
        return _Stated(by, f"scale_rewards is {by}")
    # Of the other estimators of verl the setting says nothing, and it is true unless it is changed.
    own = found.get("norm_adv_by_std_in_grpo")
    if isinstance(own, bool) and manifest.algorithm_name.lower() == "grpo":
        return _Stated("group" if own else "none", f"norm_adv_by_std_in_grpo is {str(own).lower()}")
    if by := _KINDS.get(kind_of(evidence)):
        return _Stated(by, f"the kind of advantage is {kind_of(evidence)}")
    return None


def _factors(evidence: LogEvidence) -> _Factors | None:
    """None: in too few groups advantages are the rewards above the mean times one number and another deviation."""

    def made() -> _Factors | None:
        rows = whole_groups(evidence)
        above = within_group(rows, "reward")
        sums = pd.DataFrame({"rr": above**2, "ra": above * rows["advantage"], "aa": rows["advantage"] ** 2, "n": 1.0})
        groups = sums.assign(group=rows["group"], step=rows["step"]).groupby(["step", "group"], as_index=False).sum()
        groups = groups[(groups["n"] > 1) & (groups["rr"] > SAME * groups["n"]) & (groups["ra"] > 0)]
        groups = groups[groups["aa"] - groups["ra"] ** 2 / groups["rr"] <= _NEAR**2 * groups["aa"]]
        groups = groups.assign(deviation=(groups["rr"] / groups["n"]) ** 0.5, factor=groups["ra"] / groups["rr"])
        of_step = groups.groupby("step")
        groups = groups.assign(usual=of_step["factor"].transform("median"))
        far = (np.log(groups["deviation"]) - np.log(of_step["deviation"].transform("median"))).abs() > _APART
        groups = groups[far & (of_step["n"].transform("size") >= _FEWEST_BESIDE)]
        if len(groups) < FEWEST_GROUPS:
            return None
        own = groups["factor"] * groups["deviation"]
        of_sample = own * (groups["n"] / (groups["n"] - 1)) ** 0.5
        return _Factors(
            groups, rows[rows["group"].isin(groups["group"])],
            float((((own - 1).abs() <= _NEAR) | ((of_sample - 1).abs() <= _NEAR)).mean()),
            float(((groups["factor"] / groups["usual"] - 1).abs() <= _NEAR).mean()),
        )  # fmt: skip

    return evidence.once("factors between rewards and advantages", made)
