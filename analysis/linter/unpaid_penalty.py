"""The mark of a penalty that the settings state for unfinished responses, and that their rewards do not have."""

import re
from math import log10

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number
from ratioscope.analysis.findings.watched import REWARD_PART
from ratioscope.analysis.linter.credited import explained_by, formulas_of, whole_groups
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.linter.fate import FEWEST_OF_EITHER
from ratioscope.analysis.linter.stated import every_setting
from ratioscope.analysis.runs.relations import quoted
from ratioscope.run_format import schema
from ratioscope.run_format.manifest import as_finite

_PENALTY = re.compile(
    r"(^|[._])((missing|no|non|without)_eos|truncat\w+|unfinished|incomplete|cut_?off|length_limit|max_length)_penalty$"
    r"|penalty_(for_|of_|if_)?(missing_eos|no_eos|truncat\w+|unfinished|incomplete)$"
)
"""How settings are called that take a fixed amount off the reward of what did not end."""
_RESCALED = re.compile(
    r"(whiten|normali[sz]e|scale|clip)_(rewards?|scores?)$|(reward|score)_(scal\w+|normali[sz]\w+|clip\w*)$"
)
"""Settings that give rewards another unit than the penalty's, or bounds of their own."""
_SAME = 1e-5
_NEARLY_ALL = 0.95
"""Of the unfinished: share that shows it."""
_LOG10_OF_CHANCE = -6.0
"""Of the chance that unfinished responses would all have the highest score: above it they may."""
_FEW_VALUES = 12
"""Different rewards of what was finished, up to which these are levels."""


@mark(needs=(("sequences.reward",), ("sequences.truncated", "sequences.finish_reason")), limit=_NEARLY_ALL)
def stated_penalty_is_not_paid(evidence: LogEvidence) -> MarkReading | None:
    """With the stated penalty given back, unfinished responses would have a reward that no finished one has, or all the
    highest one; share of them."""
    settings = every_setting(evidence.run.manifest)
    stated = [(name, known) for name, value in settings if _PENALTY.search(name) and (known := as_finite(value))]
    if not stated or any(value and _RESCALED.search(name) for name, value in settings):
        return MarkReading(0.0, "")
    name, penalty = stated[0][0], abs(stated[0][1])
    rows = _rows(evidence)
    out, ended = rows[rows["unfinished"]], rows[~rows["unfinished"]]
    both = set(out["environment"]) & set(ended["environment"])
    out, ended = (of[of["environment"].isin(both)] for of in (out, ended))
    if min(len(out), len(ended)) < FEWEST_OF_EITHER:
        return None
    if _is_a_part(out, ended, penalty) or _is_in_the_advantage(evidence, out, penalty):
        return MarkReading(0.0, "")
    shown = []
    for environment, of in out.groupby("environment"):
        scores = ended.loc[ended["environment"] == environment, "reward"].to_numpy()
        shown.append(pd.Series(_impossible(of["reward"].to_numpy(), scores, penalty), of.index))
    share = float(pd.concat(shown).mean())
    earned = [number(float(of["reward"].mean()), digits=2) for of in (out, ended)]
    return MarkReading(
        share,
        f"{name.rsplit('.', 1)[-1]} is {number(penalty)}, and {len(out):,} unfinished responses earn {earned[0]} on "
        f"average, {len(ended):,} finished ones {earned[1]}",
        steps_with(out.groupby("step").size()), ("reward",), first_of(out),
    )  # fmt: skip


def _rows(evidence: LogEvidence) -> pd.DataFrame:
    """The responses with a reward of which it is known whether they ended, with the parts of their reward."""
    names = [name for name in evidence.log.columns[schema.SEQUENCES.name] if name.startswith(REWARD_PART)]
    values = "".join(f", try_cast({quoted(name)} as double) as part_{at}" for at, name in enumerate(sorted(names)))
    return evidence.frame(
        f"""
        select step, seq_id, coalesce(environment, '') as environment, reward::double as reward,
            coalesce(truncated, finish_reason = 'length') as unfinished{values}
        from sequence where isfinite(reward) and dropped is null and failure is null
            and coalesce(truncated, finish_reason = 'length') is not null
        order by step, seq_id
        """
    )


def _is_a_part(out: pd.DataFrame, ended: pd.DataFrame, penalty: float) -> bool:
    """Whether a part of the reward is lower for unfinished responses, by the penalty, which the logged sum lacks."""
    parts = [name for name in out.columns if name.startswith("part_")]
    less = (float(ended[part].median() - out[part].median()) for part in parts)
    return any(abs(each - penalty) <= _SAME * (1 + penalty) for each in less)


def _is_in_the_advantage(evidence: LogEvidence, out: pd.DataFrame, penalty: float) -> bool:
    """Whether more advantages are what the usual rules give with the penalty than without it."""
    rows = whole_groups(evidence)
    if not len(rows):
        return False
    keys = ["step", "seq_id"]
    unfinished = pd.MultiIndex.from_frame(rows[keys]).isin(pd.MultiIndex.from_frame(out[keys]))
    paid = rows.assign(reward=rows["reward"] - penalty * unfinished)
    without, with_it = (max(explained_by(each, formulas_of(each))) for each in (rows, paid))
    return with_it > without


def _impossible(rewards: NDArray[np.float64], scores: NDArray[np.float64], penalty: float) -> NDArray[np.bool_]:
    """Of each reward whether it is one of a score that paid nothing, and with the penalty given back none of a score.

    As the highest score all of them may be where hardly any score is.
    """
    levels = np.unique(scores.round(6))
    given_back, top = rewards + penalty, float(levels[-1])
    same = _SAME * (1 + float(np.abs(levels).max()))
    at_the_top = np.abs(given_back - top) <= same
    by_chance = float(at_the_top.sum()) * log10(float((scores > top - same).mean()))
    found = (given_back > top + same) | (at_the_top & (by_chance < _LOG10_OF_CHANCE))
    if len(levels) > _FEW_VALUES:
        return np.asarray(found & (rewards >= levels[0] - same) & (rewards <= top + same))
    is_level, would_be = (np.abs(each[:, None] - levels).min(axis=1) <= same for each in (rewards, given_back))
    return np.asarray(is_level & (found | ~would_be))
