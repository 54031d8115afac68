"""The mark of groups of equal rewards that are in an update although the settings take them out."""

from collections.abc import Mapping

import numpy as np

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.linter.credited import (
    FEWEST_GROUPS,
    IN_GROUPS,
    SAME,
    ZERO,
    compares,
    responses_with_advantage,
)
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.linter.fate import fates
from ratioscope.analysis.linter.stated import stated

_FILTERS = (
    "remove_constant_reward_groups", "filter_groups", "filter_groups.enable", "dynamic_sampling",
    "use_dynamic_sampling", "dynamic_sampling_filter", "dynamic_sampling_filter_path", "filter_zero_std_samples",
)  # fmt: skip
"""Settings that leave no group of equal rewards in an update. Those that sample again a few times, and then take what
there is, are none of them."""
_ON = ("true", "filter", "replace")
_SWITCHES = ("enable", "enabled", "type")
"""Keys by which a setting of several values is on; without one of them it is on where it is there."""


@mark(needs=IN_GROUPS, limit=0.1)
def constant_groups_in_the_update(evidence: LogEvidence) -> MarkReading | None:
    """Groups whose rewards are all equal are in the update, and the settings take such groups out; share of the
    groups."""
    settings = stated(evidence.run.manifest, _FILTERS)
    name = next((name for name, value in settings.items() if _is_on(value)), "")
    credited = responses_with_advantage(evidence)[["step", "seq_id", "advantage", "grouped"]]
    scale = float(credited["advantage"].abs().mean()) if len(credited) else 0.0
    if not name or evidence.spreads_groups or compares(evidence) is False or not scale > 0:
        return None
    rows = fates(evidence).merge(credited, on=["step", "seq_id"], how="left")
    rows = rows.assign(scored=np.isfinite(rows["reward"].astype(float)), size=rows["advantage"].abs())
    groups = rows.groupby(["step", "group_id"], as_index=False).agg(
        n=("seq_id", "size"), scored=("scored", "sum"), out=("left_out", "any"), there=("size", "count"),
        grouped=("grouped", "sum"), low=("reward", "min"), high=("reward", "max"), largest=("size", "max"),
    )  # fmt: skip
    # Of others some responses are not seen: they may be what differed.
    groups = groups[(groups["n"] > 1) & (groups["scored"] == groups["n"]) & (groups["there"] == groups["n"])]
    groups = groups[~groups["out"] & (groups["grouped"] == groups["n"])]
    groups = groups[groups.groupby("step")["n"].transform("size") > 1]  # of a batch of them alone one may be kept
    if len(groups) < FEWEST_GROUPS:
        return None
    # With an advantage they are compared by something else than the logged reward, which the filter may look at.
    equal = groups["high"] - groups["low"] <= SAME * (1 + groups["high"].abs())
    staying = groups[equal & (groups["largest"] <= ZERO * scale)]
    if len(staying) < FEWEST_GROUPS:
        return MarkReading(0.0, "")
    share = len(staying) / len(groups)
    return MarkReading(
        share,
        f"{len(staying):,} of {len(groups):,} groups ({percent(share)}) have equal rewards and no advantage; {name} is "
        "on",
        steps_with(staying.groupby("step").size()), ("reward",),
        first_of(rows.merge(staying[["step", "group_id"]], on=["step", "group_id"])),
    )  # fmt: skip


def _is_on(value: object) -> bool:
    """Whether a setting takes groups of equal rewards out."""
    if isinstance(value, Mapping):
        switches = [value[name] for name in _SWITCHES if name in value]
        return all(map(_is_on, switches)) if switches else bool(value)
    if isinstance(value, str):  # slime names the function that filters
        return value.lower() in _ON or "nonzero_std" in value
    return value is True
