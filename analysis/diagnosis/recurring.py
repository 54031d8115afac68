"""Whether prompts come in an order that recurs, so that the reward swings with them."""

import pandas as pd

from ratioscope.analysis.diagnosis.evidence import RunEvidence, steps_of
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.period import best_period
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.by_block import by_block
from ratioscope.run_format import schema

_FEWEST_PERIODS = 4
"""Times that the order must be seen, all but the first of them with the same prompts."""
_LONGEST = 500
"""Steps of a period that is looked for."""
_MOSTLY = 0.5
"""Share of the differences about a smooth course that the place in the period explains."""
_CHANCE = 1e-6
"""Of as much in values without a period."""
_SAME = 0.9
"""Share of the steps that have the prompts of one period before."""


@rule("prompts_in_order", order=112, page="overview", group=None, words="prompts in one order", cause=False)
def prompts_come_in_one_order(evidence: RunEvidence) -> Finding | None:
    """The reward repeats with a period, and so do the prompts of a step: hard ones come together, epoch after epoch."""
    if evidence.run is None or not evidence.log.has("sequences.prompt_id"):
        return None
    reward = evidence.values["reward"].dropna()
    longest = min(_LONGEST, len(reward) // _FEWEST_PERIODS)
    if longest < 2 or not reward.nunique() > 1:
        return None
    found = best_period(reward.to_numpy(dtype=float), longest)
    if found.explained < _MOSTLY or found.chance > _CHANCE:
        return None
    (prompts,) = by_block("prompts", evidence.run, _prompts)
    asked = prompts.set_index("step")["asked"].reindex(reward.index)
    before = asked.shift(found.period)
    same = float((asked == before)[before.notna()].mean())
    # Where every step asks the same, it is not they that make the difference.
    if same < _SAME or asked.nunique() < 2:
        return None
    return Finding(
        severity=Severity.WARNING,
        sentence=f"The reward swings by {number(found.swing, digits=2)} with a period of {found.period} steps: prompts "
        "come in the same order again and again, hard ones together.",
        metric="reward",
        steps=steps_of(reward),
        numbers=(Number("swing of the reward", found.swing), evidence.latest("reward")),
        why=f"{'Each step has' if same == 1 else f'{percent(same)} of the steps have'} exactly the prompts of "
        f"{found.period} steps before. The place in that order explains {percent(found.explained)} of how rewards "
        "differ from their neighbours.",
        do=f"Shuffle the prompts in each epoch. Until then compare means of {found.period} steps: what rises "
        "or falls within them follows the order.",
        source="chosen here",
    )


def _prompts(run: Run, first: int | None, last: int | None) -> tuple[pd.DataFrame]:
    with relations(run, first, last, tables=(schema.SEQUENCES,)) as connection:
        found = connection.execute(
            """
            select step, sum(hash(prompt_id) % 2147483647)::bigint as asked
            from (select distinct step, prompt_id from sequence where prompt_id is not null)
            group by step order by step
            """
        ).df()
    return (found,)
