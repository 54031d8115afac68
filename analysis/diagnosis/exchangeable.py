"""Whether responses differ by what should not matter: their place in the group, their rank, their server."""

from dataclasses import dataclass
from functools import partial
from math import log10
from sys import float_info
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import chdtrc

from ratioscope.analysis.diagnosis.evidence import RunEvidence, steps_of
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.words import named_part
from ratioscope.analysis.runs.database import filled
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.by_block import by_block
from ratioscope.run_format import schema

_FEWEST = 20
"""Values that a level must have."""
_BEYOND_CHANCE = 9.0
"""-log10 of the chance of as much where it does not matter."""
_LEAST_SHARE = 0.03
"""Of the variance of what is compared, beyond what chance gives."""
_SORTED = 0.9
"""Share of the groups whose rewards rise all along, or fall, from which on they are sorted by them."""


@dataclass(frozen=True)
class _Feature:
    """What should not matter."""

    title: str
    level: str
    """SQL of a response's level, over `sequence`."""
    do: str
    drawn: bool = False
    """Whether it decides how a response is drawn: then its length should not depend on it either. Elsewhere a length
    that does is an order in which responses were logged or packed, and says nothing of rewards."""


_FEATURES = {
    "place": _Feature(
        "place",
        "row_number() over (partition by step, group_id order by seq_id)",
        "Look whether the environment is reset between the responses of a group, and whether each reward goes back to "
        "its own response. Give each response an environment of its own.",
    ),
    "rank": _Feature(
        "rank",
        "rank",
        "Score the same responses on two ranks, and look for exceptions that its scorer swallows. If the scores agree, "
        "compare the prompts that the ranks are given.",
    ),
    "engine": _Feature(
        "server",
        "engine",
        "Compare model, limits of length, stop tokens and sampling parameters of the servers. If they are alike, "
        "compare the prompts that they are given.",
        drawn=True,
    ),
}


class _Apart(NamedTuple):
    """How a value differs by the levels of a feature."""

    feature: _Feature
    value: str
    levels: pd.DataFrame
    """By level: n (values), mean, off (mean distance to those that it is compared with)."""
    share: float
    """Of the variance, beyond what chance gives."""
    beyond_chance: float
    """-log10 of the chance of as much."""
    inside: bool
    """Whether responses of one group are compared, which answer one prompt."""

    @property
    def is_clear(self) -> bool:
        return self.share >= _LEAST_SHARE and self.beyond_chance >= _BEYOND_CHANCE


@rule("responses_apart", order=111, page="overview", group=None, words="uneven responses", cause=False)
def responses_differ_by_what_should_not_matter(evidence: RunEvidence) -> Finding | None:
    """Responses that are drawn alike earn differently by their place in the group, their rank or their server, or one
    server writes other lengths."""
    if evidence.run is None or not evidence.log.has("sequences.reward"):
        return None
    found = []
    for name, feature in _FEATURES.items():
        if name == "place" or evidence.log.has(f"sequences.{name}"):
            (units,) = by_block(f"responses_by_{name}", evidence.run, partial(_by_level, feature.level))
            reward, length = (_apart(feature, units, value) for value in ("reward", "length"))
            by_length = length is not None and length.is_clear
            if (
                reward is not None
                and reward.is_clear
                and (feature.drawn or not (by_length or _are_sorted(evidence.run)))
            ):
                found.append(reward)
            elif length is not None and by_length and feature.drawn:
                found.append(length)
    # Ranks may take the responses of a group in turns: what explains more is what the other one goes with.
    return _said(max(found, key=lambda each: each.beyond_chance), evidence) if found else None


def _said(apart: _Apart, evidence: RunEvidence) -> Finding:
    title, levels = apart.feature.title, apart.levels.sort_values("mean")
    low, high = levels.iloc[0], levels.iloc[-1]
    far = levels.iloc[int(levels["off"].abs().argmax())]
    others = levels.drop(index=far.name)
    rest = float(np.average(others["mean"], weights=others["n"]))
    unit = " tokens" if apart.value == "length" else ""
    if title == "place":
        what = (
            f"The reward depends on the place in the group: it is {number(low['mean'], digits=2)} at place {low.name} "
            f"and {number(high['mean'], digits=2)} at place {high.name}."
        )
    else:
        what = (
            f"The {apart.value} is {number(far['mean'], digits=2)}{unit} on {named_part(title, [str(far.name)])} and "
            f"{number(rest, digits=2)} on the others."
        )
    alike = "They answer the same prompts and are drawn alike." if apart.inside else "Their prompts are not the same."
    share = f"{percent(apart.share)} of the variance of the {apart.value} goes with the {title}"
    return Finding(
        severity=Severity.WARNING,
        sentence=what,
        metric={"reward": "reward", "length": "response_length"}[apart.value],
        steps=steps_of(evidence.values["reward"].dropna()),
        numbers=tuple(Number(f"{apart.value}, {title} {end.name}", float(end["mean"])) for end in (low, high)),
        why=f"{share}, beyond chance. {alike}",
        do=apart.feature.do,
        source="chosen here",
    )


def _apart(feature: _Feature, units: pd.DataFrame, value: str) -> _Apart | None:
    """What the levels differ by; None where fewer than two have enough values."""
    sums = units.groupby("level")[["n", value, f"{value}_off", f"{value}_squares"]].sum()
    sums = sums[sums["n"] >= _FEWEST]
    total = float(sums[f"{value}_squares"].sum())
    if len(sums) < 2 or not total > 0:
        return None
    n, off, freedom = sums["n"], sums[f"{value}_off"] / sums["n"], len(sums) - 1
    between = float((n * off**2).sum())
    within = max(total - between, 1e-12 * total) / (float(n.sum()) - len(sums))
    return _Apart(
        feature,
        value,
        pd.DataFrame({"n": n, "mean": sums[value] / n, "off": off}),
        (between - freedom * within) / total,
        -log10(max(float(chdtrc(freedom, between / within)), float_info.min)),
        bool(np.average(units["inside"], weights=units["n"]) > 0.5),
    )


def _are_sorted(run: Run) -> bool:
    """Whether the responses of a group were logged by their rewards."""
    (groups,) = by_block("sorted_groups", run, _sorted)
    return bool(groups[["rising", "falling"]].sum().max() >= _SORTED * groups["telling"].sum())


def _sorted(run: Run, first: int | None, last: int | None) -> tuple[pd.DataFrame]:
    with relations(run, first, last, tables=(schema.SEQUENCES,)) as connection:
        found = connection.execute(
            """
            with response as (
                select step, group_id, reward, reward - lag(reward) over of_group as more
                from sequence where isfinite(reward) and group_id is not null
                window of_group as (partition by step, group_id order by seq_id)
            ),
            told as (
                select step, min(more) >= 0 as rises, max(more) <= 0 as falls
                from response group by step, group_id having max(reward) > min(reward)
            )
            select step, count(*) filter (rises) as rising, count(*) filter (falls) as falling, count(*) as telling
            from told group by step order by step
            """
        ).df()
    return (found,)


def _by_level(level: str, run: Run, first: int | None, last: int | None) -> tuple[pd.DataFrame]:
    with relations(run, first, last, tables=(schema.SEQUENCES,)) as connection:
        found = connection.execute(filled("diagnosis/responses_by_level", level=level)).df()
    return (found,)
