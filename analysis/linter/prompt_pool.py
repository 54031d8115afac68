"""Marks of a pool of prompts that outcomes empty: those that all or none solve never come again, and few are left."""

from math import sqrt

import pandas as pd

from ratioscope.analysis.findings.cause import Family, cause
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.linter.batch_rows import ASKED
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.linter.fate import CLEARLY
from ratioscope.run_format.schema import HELD_OUT

_PARTS, _FEWEST_STEPS = 3, 9
"""Of the steps the first and the last of so many parts are compared, of so many steps at least."""
_FEWEST_PROMPTS = 12
"""Prompts of either kind, and of a part of the steps."""
_NEVER = 0.05
"""Share of the prompts that come again, up to which they hardly do."""
_ASKED_ALREADY = 2
"""Steps in which prompts come again that were asked before their outcome was known."""


def _asked(evidence: LogEvidence) -> pd.DataFrame:
    """One row a prompt of a step: step, seq_id (the first), asked, n_groups, n, low and high (of the rewards), first
    (whether no earlier step has it), again (whether one has it that is later than the next ones)."""

    def made() -> pd.DataFrame:
        rows = evidence.frame(
            f"""
            with of as (select *, {ASKED} as asked from sequence where dropped is distinct from '{HELD_OUT}')
            select step, min(seq_id) as seq_id, asked, count(distinct coalesce(group_id, -1 - asked)) as n_groups,
                count(*) as n, min(reward::double) filter (isfinite(reward)) as low,
                max(reward::double) filter (isfinite(reward)) as high
            from of where asked is not null group by step, asked order by step, seq_id
            """
        )
        place = rows["step"].rank(method="dense")
        visits = place.groupby(rows["asked"])
        return rows.assign(
            first=place == visits.transform("min"), again=visits.transform("max") > place + _ASKED_ALREADY
        )

    return evidence.once("prompts of steps, and whether they come again", made)


@mark(needs=(("sequences.reward",), ("sequences.prompt_id", "sequences.prompt")), limit=CLEARLY)
def solved_alike_and_never_again(evidence: LogEvidence) -> MarkReading | None:
    """Prompts whose responses all score alike, all the highest or all the least, hardly ever come again, and others
    that were new in the same steps do; standard errors."""
    rows = _asked(evidence)
    # A prompt's own later visits are no further witnesses.
    rows = rows[rows["first"] & (rows["n"] > 1) & rows["low"].notna()]
    if len(rows) < 2 * _FEWEST_PROMPTS:
        return None
    alike = rows["low"] == rows["high"]
    kinds = {
        "alike": alike, "the highest": alike & (rows["low"] >= rows["high"].max()),
        "the least": alike & (rows["high"] <= rows["low"].min()),
    }  # fmt: skip
    best = MarkReading(0.0, "")
    for words, kind in kinds.items():
        own, others = rows[kind], rows[~kind]
        if min(len(own), len(others)) < _FEWEST_PROMPTS or own["again"].mean() > _NEVER:
            continue
        of = rows.assign(kind=kind).groupby("step").agg(n=("kind", "size"), own=("kind", "sum"), again=("again", "sum"))
        of = of[of["n"] > 1].astype(float)
        expected = (of["own"] * of["again"] / of["n"]).sum()
        spread = of["own"] * (of["n"] - of["own"]) * of["again"] * (of["n"] - of["again"])
        error = sqrt(float((spread / of["n"] ** 2 / (of["n"] - 1)).sum()))
        value = float(expected - own["again"].sum()) / error if error else 0.0
        if value > best.value:
            best = MarkReading(
                value,
                f"{int(own['again'].sum()):,} of {len(own):,} prompts whose responses all scored {words} at first came "
                f"back, and {percent(float(others['again'].mean()))} of {len(others):,} others did",
                steps_with(own.groupby("step").size()), ("prompt_id",), first_of(own),
            )  # fmt: skip
    return best


@mark(needs=(("sequences.prompt_id", "sequences.prompt"),), limit=2.0)
def fewer_prompts_over_time(evidence: LogEvidence) -> MarkReading | None:
    """The prompts of the last third of the steps come more often than those of the first third; how many times."""
    rows = _asked(evidence)
    steps = rows["step"].unique()
    if len(steps) < _FEWEST_STEPS:
        return None
    part = len(steps) // _PARTS
    ends = rows[rows["step"] <= steps[part - 1]], rows[rows["step"] >= steps[-part]]
    n, prompts = [int(end["n_groups"].sum()) for end in ends], [int(end["asked"].nunique()) for end in ends]
    if min(n) < _FEWEST_PROMPTS:
        return None
    before, after = n[0] / prompts[0], n[1] / prompts[1]
    return MarkReading(
        after / before,
        f"the first {part} steps ask {prompts[0]:,} different prompts in {n[0]:,} groups, the last {part} steps "
        f"{prompts[1]:,} in {n[1]:,}",
        tuple(int(step) for step in steps[-part:]), ("prompt_id",), first_of(ends[1]),
    )  # fmt: skip


cause(
    "pool_runs_dry", Family.SELECTION,
    "The pool of prompts runs dry: what all or none of the responses solve is taken out for good",
    requires=(solved_alike_and_never_again, fewer_prompts_over_time),
    do="Put such prompts back after some steps, as the policy that they were judged by has changed, or add new ones.",
    reports=("prime-rl #2667",), columns=("prompt_id",), of_the_run=True,
)  # fmt: skip
