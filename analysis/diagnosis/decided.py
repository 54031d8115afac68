"""Whether how a response ended, or its environment, decides its reward, whatever it says."""

from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from ratioscope.analysis.diagnosis.evidence import RunEvidence, steps_of
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.by_block import by_block
from ratioscope.run_format import schema

_FEWEST = 100
"""Responses of a level, all of which have one reward."""
_APART = 0.1
"""How far their reward is from the mean of the others, as a share of the range of rewards."""
_LIMIT = (
    "Raise that limit, or leave these responses out of loss and baseline: what they had got right is lost with them."
)


@dataclass(frozen=True)
class _Feature:
    """What should not decide a reward alone."""

    words: str
    """Of the responses of a level, behind "All responses"."""
    do: str
    least: float
    """The share of the responses from which on it is one finding that it does."""


_FEATURES = {
    "failure": _Feature(
        "with the failure {level}",
        "Look whether they failed by their own fault. If a limit or a parser made them fail, mend it, or leave them "
        "out of loss and baseline.",
        0.2,
    ),
    "finish_reason": _Feature("that ended with {level}", _LIMIT, 0.2),
    "truncated": _Feature("that were cut off", _LIMIT, 0.2),
    "seconds_tools": _Feature("whose tools ran longest ({level} s)", _LIMIT, 0.1),
    "environment": _Feature(
        "of {level}",
        "Score some of them by hand, a wrong one among them: a scorer that cannot read them may give all the same.",
        0.05,
    ),
}


class _Decided(NamedTuple):
    """A level all of whose responses have one reward."""

    feature: _Feature
    level: str
    share: float
    reward: float
    others: float
    """The mean reward of the others."""


@rule("reward_decided", order=114, page="overview", group=None, words="reward decided by the end", cause=False)
def the_end_decides_the_reward(evidence: RunEvidence) -> Finding | None:
    """All responses that ended in one way, or of one environment, have the same reward, and others have not."""
    if evidence.run is None or not evidence.log.has("sequences.reward"):
        return None
    logged = [name for name in _FEATURES if evidence.log.has(f"sequences.{name}")]
    if not logged:
        return None
    (counts,) = by_block("rewards_by_end", evidence.run, _by_end)
    every = counts[counts["feature"] == "all"]
    found = [each for name in logged if (each := _decided(name, counts[counts["feature"] == name], every)) is not None]
    if not found:
        return None
    most = max(found, key=lambda each: each.share)
    reward, others = number(most.reward, digits=2), number(most.others, digits=2)
    return Finding(
        severity=Severity.WARNING,
        sentence=f"All responses {most.feature.words.format(level=most.level)} have the reward {reward}, and they are "
        f"{percent(most.share)} of all.",
        metric="reward",
        steps=steps_of(evidence.values["reward"].dropna()),
        numbers=(Number("their reward", most.reward), Number("mean reward of the others", most.others)),
        why=f"The others have {others} on average. What these say makes no difference to their reward.",
        do=most.feature.do,
        source="chosen here",
    )


def _decided(name: str, counts: pd.DataFrame, every: pd.DataFrame) -> _Decided | None:
    """The level of a feature with most responses that all have one reward; None: no such level is large enough."""
    n, total = int(every["n"].sum()), float(every["total"].sum())
    wide = float(every["highest"].max() - every["lowest"].min())
    levels = counts.groupby("level").agg(
        n=("n", "sum"), total=("total", "sum"), lowest=("lowest", "min"), highest=("highest", "max")
    )
    if name == "seconds_tools" and len(levels):  # the most that any has
        longest = max(levels.index, key=float)
        levels = levels.loc[[longest]] if float(longest) >= float(every["longest"].max()) else levels[:0]
    levels = levels[(levels["lowest"] == levels["highest"]) & (levels["n"] >= _FEWEST) & (levels["n"] < n)]
    if not len(levels) or not wide > 0:
        return None
    most = levels.iloc[int(levels["n"].argmax())]
    others = (total - float(most["total"])) / (n - int(most["n"]))
    share, reward = float(most["n"]) / n, float(most["lowest"])
    if share < _FEATURES[name].least or not abs(others - reward) >= _APART * wide:
        return None
    level = f"{float(str(most.name)):g}" if name == "seconds_tools" else str(most.name)
    return _Decided(_FEATURES[name], level, share, reward, others)


def _by_end(run: Run, first: int | None, last: int | None) -> tuple[pd.DataFrame]:
    """By step, feature and level: n, total, lowest, highest (rewards); of all responses also longest (seconds).

    Of those that count: what is left out of loss and baseline is scored in vain, whatever its reward.
    """
    levels = {
        "failure": "failure",
        "finish_reason": "finish_reason",
        "truncated": "if(truncated, 'true', null)",
        "seconds_tools": "seconds_tools::varchar",
        "environment": "environment",
    }
    columns = ", ".join(f"{level} as {name}" for name, level in levels.items())
    with relations(run, first, last, tables=(schema.SEQUENCES,)) as connection:
        found = connection.execute(
            f"""
            with response as (
                select step, 'all' as feature, reward::double as reward, seconds_tools as seconds, {columns}
                from sequence where isfinite(reward) and dropped is null and coalesce(in_baseline, true)
            ),
            level as (
                unpivot (select step, reward, {", ".join(levels)} from response) on {", ".join(levels)}
                into name feature value level
            )
            select step, feature, level, count(*) as n, sum(reward) as total, min(reward) as lowest,
                max(reward) as highest, null::double as longest
            from level group by all having feature <> 'seconds_tools' or count(*) > 1
            union all
            select step, feature, null, count(*), sum(reward), min(reward), max(reward), max(seconds)::double
            from response group by all
            order by step, feature, level
            """
        ).df()
    return (found,)
