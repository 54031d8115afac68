"""Responses with what they earned and what they were credited, and what the usual kinds make of a group's rewards."""

from math import nan

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.findings.logged import GROUP, Need
from ratioscope.analysis.linter.evidence import LogEvidence

# Kinds of `algorithm.parts.advantage` that compare the responses of a group, and those of them that add up to 0.
CENTRED = ("group_mean", "group_normalised", "leave_one_out")
RELATIVE = (*CENTRED, "shifted", "pairwise")
_COMPARING = frozenset({"grpo", "dr_grpo", "dapo", "gspo", "gmpo", "cispo", "rloo"})
"""Algorithms that compare the responses of a group by their definition, where the manifest names no parts."""
_CRITICS = frozenset({"ppo", "a2c", "a3c", "vapo"})
"""Those that take the advantage from a value function."""
_OTHERS = _CRITICS | {"reinforce", "reinforce_plus_plus", "vanilla_pg", "remax"}
SAME = 1e-5
"""Rewards or advantages that differ by less are the same but for rounding."""
ZERO = 1e-3
"""Of the mean |A|: below it an advantage is 0 but for rounding."""
SOME = 0.05
"""Share of the responses up to which they are exceptions."""
FEWEST_GROUPS = 8
FEWEST_RESPONSES = 20
"""Responses, below which nothing is said of a share of them."""

WITH_ADVANTAGES: tuple[Need, ...] = (("advantage",), ("sequences.reward",))
IN_GROUPS: tuple[Need, ...] = (*WITH_ADVANTAGES, GROUP)


def responses_with_advantage(evidence: LogEvidence) -> pd.DataFrame:
    """One row for each response that the loss has seen: its largest advantage, the range, and what it earned.

    Columns: step, seq_id, group_id, prompt_id, rank, reward, n_tokens, grouped, advantage, low, high, n_rows, constant,
    and group, the number of the prompt group and its step.
    """

    def made() -> pd.DataFrame:
        found = evidence.frame(
            """
            with of as (
                select step, seq_id, min(advantage)::double as low, max(advantage)::double as high,
                    arg_max(advantage, abs(advantage))::double as advantage, count(*) as n_rows
                from token where isfinite(advantage) group by step, seq_id
            )
            select of.*, s.group_id, s.prompt_id, s.rank, s.reward::double as reward, s.n_tokens, s.grouped
            from of join sequence as s using (step, seq_id) where s.dropped is null order by step, seq_id
            """
        )
        found["constant"] = found["high"] - found["low"] <= SAME * (1 + found["advantage"].abs())
        found["group"] = found.groupby(["step", "group_id"]).ngroup()
        return found

    return evidence.once("responses with their advantages", made)


def scored_responses(evidence: LogEvidence) -> pd.DataFrame:
    """Those with a reward."""

    def made() -> pd.DataFrame:
        rows = responses_with_advantage(evidence)
        return rows[np.isfinite(rows["reward"])]

    return evidence.once("responses with their advantages and a reward", made)


def whole_groups(evidence: LogEvidence) -> pd.DataFrame:
    """Scored responses with one advantage each, of groups that are whole in their step."""

    def made() -> pd.DataFrame:
        rows = scored_responses(evidence)
        return rows.head(0) if evidence.spreads_groups else rows[rows["constant"] & rows["grouped"]]

    return evidence.once("responses of whole groups with their advantages", made)


def equal_groups(evidence: LogEvidence) -> pd.DataFrame:
    """Groups of two responses or more that all earned the same: step, group_id, size, largest |A|, credited."""

    def made() -> pd.DataFrame:
        rows = whole_groups(evidence)
        of = rows.assign(size=rows["advantage"].abs()).groupby(["step", "group_id"], as_index=False)
        groups = of.agg(low=("reward", "min"), high=("reward", "max"), n=("reward", "size"), largest=("size", "max"))
        groups = groups[(groups["n"] > 1) & (groups["high"] - groups["low"] <= SAME * (1 + groups["high"].abs()))]
        scale = float(rows["advantage"].abs().mean()) if len(rows) else nan
        return groups.assign(credited=groups["largest"] > ZERO * scale)

    return evidence.once("groups of equal reward", made)


def kind_of(evidence: LogEvidence) -> str:
    """The kind of advantage that the manifest names; text of the log."""
    return str(evidence.run.manifest.parts.get("advantage") or "")


def compares(evidence: LogEvidence) -> bool | None:
    """Whether the run says that advantages compare the responses of a group; None: it does not say."""
    kind, name = kind_of(evidence), evidence.run.manifest.algorithm_name.lower()
    if kind:
        return kind in RELATIVE
    return True if name in _COMPARING else False if name in _OTHERS else None


def has_critic(evidence: LogEvidence) -> bool:
    """Whether the run says that advantages are of a value function."""
    kind, name = kind_of(evidence), evidence.run.manifest.algorithm_name.lower()
    return kind == "gae" if kind else name in _CRITICS


def within_group(rows: pd.DataFrame, name: str) -> "pd.Series[float]":
    """A column less its mean in the group."""
    return rows[name] - rows[name].groupby(rows["group"]).transform("mean")


KIND_OF_RULE = {
    "the reward above the group's mean": "group_mean",
    "that in standard deviations of the group": "group_normalised",
    "that in sample standard deviations of the group": "group_normalised",
    "the reward above the mean of the others": "leave_one_out",
}
"""The kinds of `algorithm.parts.advantage`, by what they make of a group's rewards."""


def formulas_of(rows: pd.DataFrame, counted: "pd.Series[float] | None" = None) -> dict[str, NDArray[np.float64]]:
    """What the usual kinds make of the rewards of a group, (n_responses,) for each of the rules.

    Args:
        counted: how often each response counts in its group; None: once.
    """
    times = pd.Series(1.0, rows.index) if counted is None else counted
    group = rows["group"]
    n = times.groupby(group).transform("sum")
    centred = rows["reward"] - (times * rows["reward"]).groupby(group).transform("sum") / n
    population = ((times * centred**2).groupby(group).transform("sum") / n) ** 0.5
    scales = (pd.Series(1.0, rows.index), population, population * (n / (n - 1).clip(lower=1)) ** 0.5, (n - 1) / n)
    return {
        words: np.where(scale > SAME, centred / scale.clip(lower=SAME), 0.0)
        for words, scale in zip(KIND_OF_RULE, scales, strict=True)
    }


def rule_tolerance(rows: pd.DataFrame) -> NDArray[np.float64]:
    """How far an advantage may be from what a rule gives."""
    return 5e-4 * (1 + np.abs(rows["advantage"].to_numpy()))


def explained_by(rows: pd.DataFrame, formulas: dict[str, NDArray[np.float64]]) -> list[float]:
    """Share of the advantages other than 0 that each rule gives."""
    advantage = rows["advantage"].to_numpy()
    signal = np.abs(advantage) > ZERO
    near = [np.abs(values - advantage) <= rule_tolerance(rows) for values in formulas.values()]
    return [float(each[signal].mean()) if signal.any() else nan for each in near]
