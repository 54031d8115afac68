"""Two runs on the same prompts: the training reward prompt by prompt."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite
from typing import Any

import pandas as pd

from ratioscope.analysis.compare.grouping import Setting
from ratioscope.analysis.compare.reward_scale import reward_scale
from ratioscope.analysis.findings.finding import Number
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.intervals import NO_INTERVAL, Interval, cluster_interval
from ratioscope.notes import Kind, Note
from ratioscope.run_format.schema import SEQUENCES

_REWARDS = """
select step, prompt_id, avg(reward) as reward, count(*) as responses from sequence
where prompt_id is not null and isfinite(reward) group by step, prompt_id order by step, prompt_id
"""


@dataclass(frozen=True)
class PromptDifference:
    """Mean reward of A minus B over prompts that both saw at the same step; NaN with a reason."""

    value: float
    interval: Interval
    """95 %, cluster-robust over prompts. It is about these runs: what other seeds would give, it does not know."""
    pairs: int
    """Times that both runs saw a prompt at the same step."""
    prompts: int
    """Different prompts among them: the clusters."""
    reason: str = ""
    steps: tuple[int | None, int | None] = (None, None)
    """First and last, both included; None: the first or last there is."""

    def to_json(self, a: str, b: str) -> dict[str, Any]:
        """The estimate as every report has it, and what it rests on; A and B by name."""
        note = Note(Kind.REMARK if isfinite(self.value) else Kind.UNDEFINED, self.reason) if self.reason else None
        number = Number(f"reward on common prompts, {a} minus {b}", self.value, *self.interval, note)
        return number.to_json() | {"pairs": self.pairs, "prompts": self.prompts, "steps": self.steps}


def prompt_rewards(run: Run, first: int | None = None, last: int | None = None) -> pd.DataFrame:
    """step, prompt_id, reward (mean of its responses in the step), responses; empty where prompts are not logged.

    A response whose reward is not finite is left out.

    Raises:
        RatioscopeError: a file that was there at opening cannot be read any more.
    """
    if not run.files.get(SEQUENCES.name):
        return pd.DataFrame({"step": [], "prompt_id": [], "reward": [], "responses": []})
    with relations(run, first, last, tables=(SEQUENCES,)) as connection:
        return connection.execute(_REWARDS).df()


def prompt_difference(
    pairs: Iterable[tuple[Run, Run]], first: int | None = None, last: int | None = None
) -> PromptDifference:
    """The reward on common prompts of the first run of each pair minus the second, over the steps first..last.

    A prompt that comes back, at another step or in another pair, is one cluster. Every (step, prompt) counts once,
    however many responses it has.

    Raises:
        RatioscopeError: a file that was there at opening cannot be read any more.
    """
    parts = []
    for a, b in pairs:
        if a.manifest.task != b.manifest.task:
            return PromptDifference(float("nan"), NO_INTERVAL, 0, 0, "the runs have different tasks")
        if not reward_scale(a).fits(reward_scale(b)):
            return PromptDifference(float("nan"), NO_INTERVAL, 0, 0, "the runs have different rewards")
        sides = [prompt_rewards(run, first, last) for run in (a, b)]
        for run, side in zip((a, b), sides, strict=True):
            if not len(side):
                reason = f"{run.manifest.name} logs no prompts with a reward in these steps"
                return PromptDifference(float("nan"), NO_INTERVAL, 0, 0, reason)
        parts.append(sides[0].merge(sides[1], on=["step", "prompt_id"], suffixes=("_a", "_b")))
    both = pd.concat(parts) if parts else pd.DataFrame()
    if not len(both):
        reason = "no prompt occurs at the same step in both" if parts else "no seed is in both settings"
        return PromptDifference(float("nan"), NO_INTERVAL, 0, 0, reason)
    clusters = (both["reward_a"] - both["reward_b"]).groupby(both["prompt_id"]).agg(["sum", "size"])
    sums, sizes = clusters["sum"].to_numpy(), clusters["size"].to_numpy(dtype=float)
    value = float(sums.sum() / sizes.sum())
    return PromptDifference(value, cluster_interval(sums, sizes), int(sizes.sum()), len(clusters), "", (first, last))


def pairs_by_seed(a: Setting, b: Setting) -> list[tuple[Run, Run]]:
    """The runs of two settings that share a seed, and with it their prompts; a single run of each that says no seed."""
    alone = [side.members[0].run for side in (a, b) if len(side.members) == 1]
    if len(alone) == 2 and all(run.manifest.seed is None for run in alone):
        return [(alone[0], alone[1])]
    of_b: dict[str, list[Run]] = {}
    for member in b.members:
        of_b.setdefault(member.unit, []).append(member.run)
    return [
        (member.run, run) for member in sorted(a.members, key=lambda m: m.unit) for run in of_b.get(member.unit, [])
    ]
