"""The mark of a grader that takes any answer for right in which the right one is found."""

from math import log10

import numpy as np
import pandas as pd
from scipy.special import gammaln

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.linter.batch_rows import ASKED
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.linter.scored_by_kind import columns_of_scores, scored_with_parts

_END, _SHORT = 400, 40
"""Characters at the end of a text, in which answers stand; and of a text that is nothing but its answer."""
_ANSWER = r"(?s)^.*(?:\\(?:boxed|fbox)\s*\{|####|<answer>|(?i:answer(?:\s+is)?)[^\w\n<>-]{1,5})([^\n<}]*)"
"""The last answer of a text, in the forms in which answers are given."""
_NUMBER = r"-?\d[\d,]*(?:\.\d+)?"
_WHOLE = r"^-?0*(\d+)(?:\.0*)?$"
_FEWEST_PROMPTS, _MOST_PROMPTS, _FEWEST_ANSWERS = 8, 2000, 20
"""Prompts with several right answers, how many of them are looked at, and longer numbers that count as right."""
_MOST_UNLIKE, _MOST_REFUSED = 0.2, 0.1
"""Of those prompts: share whose right answers do not hold one of them; and of longer numbers that hold it, the share
that does not count as right."""


@mark(needs=(("sequences.reward",), ("sequences.response",), ("sequences.prompt_id", "sequences.prompt")), limit=9.0)
def right_inside_of_a_longer_number(evidence: LogEvidence) -> MarkReading | None:
    """Several whole numbers count as right for one prompt, and one of them is found among the digits of the others, but
    hardly in wrong ones; -log10 of the chance."""
    rows = _whole_numbers(evidence)
    if len(rows) < _FEWEST_ANSWERS:
        return None
    best = MarkReading(0.0, "")
    for column, name in columns_of_scores(evidence):
        of = rows[np.isfinite(rows[column])]
        if not len(of) or of[column].nunique() < 2:
            continue
        of = of.assign(right=of[column] > (of[column].min() + of[column].max()) / 2)
        found = _inside(of)
        if found is not None and found[0] > best.value:
            value, longer, prompts = found
            first = longer.iloc[0]
            best = MarkReading(
                value,
                f"for {prompts:,} prompts several numbers count as right, such as {first['digits']} beside "
                f"{first['own']}; {percent(float(longer['right'].mean()))} of {len(longer):,} with the shortest one "
                "in them do",
                steps_with(longer.groupby("step").size()), (name,), first_of(longer),
            )  # fmt: skip
    return best


def _whole_numbers(evidence: LogEvidence) -> pd.DataFrame:
    """The scored responses whose answer is one whole number, with asked, digits, and key: the digits without zeros at
    their end, as of another unit."""

    def made() -> pd.DataFrame:
        answers = evidence.frame(
            f"""
            with of as (
                select step, seq_id, {ASKED} as asked, case when length(response) <= {_SHORT}
                    and not regexp_matches(response, '{_ANSWER}') then response
                    else regexp_extract(right(response, {_END}), '{_ANSWER}', 1) end as answer
                from sequence where response is not null and isfinite(reward)
            ),
            told as (select *, regexp_extract_all(answer, '{_NUMBER}') as numbers from of where asked is not null)
            select step, seq_id, asked, regexp_extract(replace(numbers[1], ',', ''), '{_WHOLE}', 1) as digits
            from told where len(numbers) = 1
            """
        )
        answers = answers[answers["digits"] != ""]
        answers["key"] = answers["digits"].str.rstrip("0")
        return scored_with_parts(evidence).merge(answers, on=["step", "seq_id"])

    return evidence.once("answers that are one whole number", made)


def _inside(rows: pd.DataFrame) -> tuple[float, pd.DataFrame, int] | None:
    """-log10 of the chance that among the other numbers of a prompt those count as right that hold the shortest right
    one, these rows, and how many prompts; None: they are few, or it is not so."""
    right = rows[rows["right"]]
    several = right.groupby("asked")["key"].nunique()
    several = several[several > 1]
    if len(several) < _FEWEST_PROMPTS:
        return None
    unlikely, unlike, longer = 0.0, 0, []
    few = several.index[:_MOST_PROMPTS]
    for _, of in rows[rows["asked"].isin(few)].groupby("asked"):
        own = min(of.loc[of["right"], "digits"], key=lambda digits: (len(digits), digits))
        holds = of["digits"].str.contains(own, regex=False)
        if not holds[of["right"]].all():
            unlike += 1
            continue
        other = of["key"] != own.rstrip("0")
        longer.append(of[other & holds].assign(own=own))
        n_right = int((other & of["right"]).sum())
        ways = [float(gammaln(n + 1) - gammaln(n - n_right + 1)) for n in (other.sum(), (other & holds).sum())]
        unlikely += (ways[0] - ways[1]) * log10(np.e)
    found = pd.concat(longer) if longer else rows.head(0)
    if unlike > _MOST_UNLIKE * len(few) or found["right"].sum() < _FEWEST_ANSWERS:
        return None
    if found["right"].mean() < 1 - _MOST_REFUSED:
        return None
    return unlikely, found.sort_values(["step", "seq_id"]), len(few) - unlike
