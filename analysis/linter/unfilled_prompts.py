"""Marks of prompts in which a field of their template stands as it is, where a value was to be filled in.

A field of a template is the same in all prompts that are made of it; tasks about templates each have their own. Prompts
count once in a step, and are compared with others of the same step.
"""

import re
from math import sqrt
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.findings.cause import Family, cause
from ratioscope.analysis.findings.logged import Need
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.linter.fate import CLEARLY

_FEWEST_PROMPTS = 20
"""Different prompts with the field, and prompts without it that they are compared with."""
_BEFORE = r"(?:^|[\s'\"`(:=/,>#@.*\[-])"
"""What stands before a brace of a field: LaTeX has braces behind a command, a brace, a power or an index."""
_CLEAR = (
    _BEFORE + r"\{\{-?\s*[A-Za-z_][\w.]*[^{}\\]{0,60}\}\}", _BEFORE + r"\{%-?\s*[a-z]+\s[^{}\\]{0,60}%\}",
    r"%\([A-Za-z_]\w*\)s", r"<PLACEHOLDER>", r"\[(?:INSERT|YOUR|PLACEHOLDER)[A-Z_ ]*\]",
)  # fmt: skip
_PLAIN = (_BEFORE + r"\{[A-Za-z_]\w+\}", _BEFORE + r"\$\{[A-Za-z_]\w*\}", r"<[A-Z][A-Z0-9]*_[A-Z0-9_]*[A-Z0-9]>")
"""Instructions of harder environments have these as well: they count where others of their own have none."""
_BARE = tuple(each.removeprefix(_BEFORE) for each in (*_CLEAR, *_PLAIN))
_IS_CLEAR = re.compile("|".join(each.removeprefix(_BEFORE) for each in _CLEAR))
_NO_FIELD = re.compile(
    "answer|response|output|result|solution|thought|reason|think|final|summary|image|img|video|audio", re.IGNORECASE
)
"""What a response is to fill in, and where a picture stands."""
_WHOLE, _LONGEST = 0.95, 40
"""Share of the prompts of an environment that are all of them, and signs of a field that are shown."""
_COLUMNS: tuple[Need, ...] = (("sequences.prompt",), ("sequences.reward",))


class _Unfilled(NamedTuple):
    """The field whose prompts earn least of what others do; rows of prompts with it and of those without it."""

    field: str
    found: pd.DataFrame
    others: pd.DataFrame
    environment: str
    """That has no other prompts; empty: there is none."""


def _prompts(evidence: LogEvidence) -> pd.DataFrame:
    """One row a prompt of a step: step, seq_id (its first response), prompt (a hash), fields (a list), environment,
    reward and turns (means), least (the lowest reward)."""
    pattern = "|".join((*_CLEAR, *_PLAIN)).replace("'", "''")
    return evidence.frame(
        f"""
        with asked as (
            select step, coalesce(group_id, seq_id) as group_id, min(seq_id) as seq_id, any_value(prompt) as prompt,
                coalesce(any_value(environment), '') as environment, avg(reward::double) as reward,
                min(reward::double) as least, avg(coalesce(n_turns, 1)) as turns
            from sequence where isfinite(reward) and prompt is not null and dropped is null group by all
        )
        select step, seq_id, hash(prompt) as prompt, environment, reward, least, turns,
            list_distinct(regexp_extract_all(prompt, '{pattern}')) as fields
        from asked order by step, seq_id
        """
    )


def _unfilled(evidence: LogEvidence) -> "list[_Unfilled] | None":
    """The prompts of the field that lacks most, or none; None: too few prompts are known."""

    def look() -> "list[_Unfilled] | None":
        rows = _prompts(evidence)
        if rows["prompt"].nunique() < 2 * _FEWEST_PROMPTS:
            return None
        each = rows[["prompt", "fields"]].explode("fields").dropna()
        each = each.assign(fields=each["fields"].str.extract(f"({'|'.join(_BARE)})", expand=False))
        counts = each.groupby("fields")["prompt"].nunique()
        names = [name for name in counts.index[counts >= _FEWEST_PROMPTS] if not _NO_FIELD.search(name)]
        of_fields = (_of_field(rows, str(name), rows.index.isin(each.index[each["fields"] == name])) for name in names)
        found = [one for one in of_fields if one is not None]
        return [max(found, key=_missing)] if found else []

    return evidence.once("prompts with a field of a template", look)


def _of_field(rows: pd.DataFrame, field: str, has: NDArray[np.bool_]) -> _Unfilled | None:
    """Prompts with a field and those without it, of its own environments if these have some; None: too few.

    Where no environment is logged, harder prompts may be of another one.
    """
    found, others = rows[has], rows[~has]
    beside = others[others["environment"].isin(found["environment"])]
    alone = found["environment"].nunique() == 1 and len(beside) < (1 / _WHOLE - 1) * len(found)
    if beside["prompt"].nunique() >= _FEWEST_PROMPTS and (found["environment"] != "").all():
        others = beside
    elif not _IS_CLEAR.search(field):
        return None
    both = {*found["step"]} & {*others["step"]}
    found, others = found[found["step"].isin(both)], others[others["step"].isin(both)]
    if min(found["prompt"].nunique(), others["prompt"].nunique()) < _FEWEST_PROMPTS:
        return None
    return _Unfilled(field, found, others, found["environment"].iloc[0] if alone else "")


def _missing(of: _Unfilled) -> float:
    """The share that prompts with a field lack of what others of their steps earn above the least; 0 within noise."""
    less, error = _less(of, "reward")
    usual = float(of.others["reward"].mean())
    least = float(min(of.found["least"].min(), of.others["least"].min()))
    return less / (usual - least) if less > CLEARLY * error and usual > least else 0.0


def _less(of: _Unfilled, column: str) -> tuple[float, float]:
    """By how much prompts with the field have less than others of their steps, and its standard error."""
    usual = of.others.groupby("step")[column].mean()
    found, others = (each[column] - each["step"].map(usual) for each in (of.found, of.others))
    return -float(found.mean()), sqrt(float(found.var()) / len(found) + float(others.var()) / len(others))


@mark(needs=_COLUMNS, limit=0.5)
def prompts_with_a_field_earn_less(evidence: LogEvidence) -> MarkReading | None:
    """Many different prompts hold one and the same field of a template, and earn less than others of their steps; the
    share that is missing, beyond noise."""
    found = _unfilled(evidence)
    if not found:
        return None if found is None else MarkReading(0.0, "")
    (of,) = found
    inside = f"all prompts of {of.environment}" if of.environment else f"{of.found['prompt'].nunique():,} prompts"
    return MarkReading(
        _missing(of),
        f"{of.field[:_LONGEST]!r} stands in {inside}, which earn {number(float(of.found['reward'].mean()), digits=2)}, "
        f"and the others {number(float(of.others['reward'].mean()), digits=2)}",
        steps_with(of.found.groupby("step").size()), ("prompt",), first_of(of.found), place=of.environment,
    )  # fmt: skip


@mark(needs=(*_COLUMNS, ("sequences.n_turns",)), limit=0.0)
def prompts_with_a_field_take_more_turns(evidence: LogEvidence) -> MarkReading | None:
    """Prompts that hold a field of a template take more turns than others of their steps, beyond noise."""
    found = _unfilled(evidence)
    if not found:
        return None if found is None else MarkReading(0.0, "")
    (of,) = found
    less, error = _less(of, "turns")
    turns = [number(float(each["turns"].mean()), digits=2) for each in (of.found, of.others)]
    return MarkReading(
        -less if -less > CLEARLY * error else 0.0, f"they take {turns[0]} turns, and the others {turns[1]}", (),
        ("n_turns",),
    )  # fmt: skip


cause(
    "template_not_filled_in", Family.SELECTION, "A field of the template is not filled in in the prompts",
    requires=(prompts_with_a_field_earn_less,), supports={prompts_with_a_field_take_more_turns: 1.0},
    do="Print a prompt as the model sees it, and pass the value of this field where the template is rendered.",
    reports=("codescout #50",), columns=("prompt",), of_the_run=True,
)  # fmt: skip
