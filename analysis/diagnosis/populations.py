"""Tokens that were sampled and tokens that were trained: the headline numbers of both, where a log tells them apart.

both = populations(run, summary)
both.share, both.medians["s_k_bounded"]     # of the sampled tokens that did not train; (sampled, trained)

Metrics are over every token of the log. A mask may have rejected some of them, and responses may have been dropped:
they say what the sampler did, and the loss did not see them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ratioscope.analysis.findings.logged import logged
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.plain import json_value
from ratioscope.analysis.runs.left_out import LeftOut
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.summary import StepSummary, summarise
from ratioscope.catalogue import CATALOGUE
from ratioscope.run_format import schema

HEADLINES = ("s_k_bounded", "s_k_engine_bounded", "u_k")
"""Staleness, the engine's part of it, and the update."""
NOT_TRAINED = {
    "rejected": LeftOut("rejected tokens", "rejected <> ''"),
    "sequences.dropped": LeftOut("dropped responses", "dropped is not null", schema.SEQUENCES.name),
}
"""Tokens that the loss did not see, by the column that says so."""


@dataclass(frozen=True)
class Populations:
    """The numbers of both, where they are not the same tokens."""

    share: float
    """Of the sampled tokens, those that did not train."""
    medians: Mapping[str, tuple[float, float]]
    """By metric: over the steps that have both, of the sampled tokens and of the trained ones."""

    @property
    def words(self) -> str:
        """A sentence with the numbers of both."""
        pairs = (
            f"{CATALOGUE[key].label.lower()} {number(sampled, digits=2)} and {number(trained, digits=2)}"
            for key, (sampled, trained) in self.medians.items()
        )
        left_out = f"{percent(self.share)} of the tokens were rejected or dropped"
        return f"Sampled and trained tokens differ, {left_out}: {', '.join(pairs)} (median step)."

    def to_json(self) -> dict[str, Any]:
        """The shape of `ratioscope diagnose --json`."""
        medians = {
            key: {"sampled": json_value(sampled), "trained": json_value(trained)}
            for key, (sampled, trained) in self.medians.items()
        }
        return {"not_trained": self.share, "medians": medians}


def populations(run: Run, summary: StepSummary) -> Populations | None:
    """Both, or None where the log marks no token that it has as rejected or dropped.

    Args:
        summary: of the run.

    Raises:
        RatioscopeError: a file of the run cannot be read any more.
    """
    log = logged(run)
    marked = tuple(part for column, part in NOT_TRAINED.items() if log.has(column))
    if not marked or not log.has_tokens:
        return None
    trained = replace(run, left_out=(*run.left_out, *marked))
    counts: list[int] = []
    for each in (run, trained):
        with relations(each) as connection:
            counts += (n for (n,) in connection.execute("select count(*) from token").fetchall())
    if not 0 < counts[1] < counts[0]:
        return None
    of_trained = summarise(trained).values
    medians = {}
    for key in HEADLINES:
        both = pd.DataFrame({"sampled": summary.values[key], "trained": of_trained[key]}).dropna()
        if len(both):
            medians[key] = float(both["sampled"].median()), float(both["trained"].median())
    return Populations(1 - counts[1] / counts[0], medians) if medians else None
