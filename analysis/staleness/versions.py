"""Which policy versions sampled the tokens: how old they are in each step, and responses of several versions.

found = sampled_by(run)
found.lags                                      # step, lag, tokens
found.responses                                 # by step: responses, several, share, low, high, known
"""

from typing import NamedTuple

import duckdb
import numpy as np
import pandas as pd

from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.by_block import by_block
from ratioscope.analysis.summary.intervals import fraction_intervals


class Versions(NamedTuple):
    """How old tokens are, and how many responses are of several versions.

    Attributes:
        lags: how many logged tokens of each step are how old, in updates; sorted. Columns: step, lag (NaN: no version
            is logged; below 0: newer than the policy that it updates), tokens. Rows that no ratio can be computed of
            count as well: they have an age, too.
        responses: the share of responses with tokens of several versions, by step. Columns: responses (with tokens),
            several, share, low, high (95 %, clustered by prompt group), known (whether any version is logged; where
            none is, there is no share).
    """

    lags: pd.DataFrame
    responses: pd.DataFrame

    def within(self, first: int | None, last: int | None) -> "Versions":
        """Of the steps first..last, both included; None is the first or last there is."""
        if first is None or last is None:
            return self
        return Versions(self.lags[self.lags["step"].between(first, last)], self.responses.loc[first:last])


def sampled_by(run: Run, first: int | None = None, last: int | None = None) -> Versions:
    """The versions of the steps first..last. Of all steps, what was counted in a file is kept in the cache.

    Raises:
        RatioscopeError: a file cannot be read any more.
    """
    whole = first is None and last is None
    counts, responses = by_block("versions", run, _counted) if whole else _counted(run, first, last)
    lags = (
        counts.assign(lag=_lags(run, counts)).groupby(["step", "lag"], dropna=False, as_index=False)[["tokens"]].sum()
    )
    return Versions(lags, responses.set_index("step"))


def _lags(run: Run, counts: pd.DataFrame) -> "pd.Series[float]":
    """As `version_lag` of the tokens."""
    ahead = run.versions_ahead.reindex(counts["step"].to_numpy()).fillna(0.0).to_numpy(dtype=float)
    lags = counts["step"] + ahead - counts["behavior_version"]
    return lags if run.counts_versions else lags * np.nan


def _counted(run: Run, first: int | None, last: int | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tokens by step and version (NaN: none); and `Versions.responses`, with the step as a column."""
    with relations(run, first, last) as connection:
        counts = connection.execute(
            """
            select step::bigint as step, behavior_version::double as behavior_version, count(*) as tokens
            from token
            group by all
            order by step, behavior_version
            """
        ).df()
        return counts, _responses(connection, counts).reset_index()


def _responses(connection: duckdb.DuckDBPyConnection, logged: pd.DataFrame) -> pd.DataFrame:
    """Only the tokens of steps of several versions are grouped by response: that is the slow part of long runs."""
    versions = logged.groupby("step")["behavior_version"]
    version = pd.DataFrame({"several": versions.nunique() > 1, "known": versions.count() > 0}).reset_index()
    connection.register("version", version)
    groups = connection.execute(
        """
        with of_one as (
            select step, group_id, count(*) as responses, 0 as several
            from sequence semi join (from version where not several) as step_of_one using (step)
            where n_tokens > 0
            group by step, group_id
        ),
        searched as (from version where not exists (select 1 from of_one where of_one.step = version.step)),
        response as (
            select
                step, any_value(group_id) as group_id, min(behavior_version) <> max(behavior_version) as several
            from token semi join searched using (step)
            group by step, seq_id
        )
        select step::bigint as step, responses::double as responses, several::double as several
        from (
            from of_one
            union all
            select step, group_id, count(*), count(*) filter (several) from response group by step, group_id
        )
        order by step, group_id
        """
    ).df()
    found = groups.groupby("step")[["responses", "several"]].sum()
    starts = np.unique(groups["step"].to_numpy(), return_index=True)[1]
    low, high = fraction_intervals(groups["several"].to_numpy(), groups["responses"].to_numpy(), starts)
    known = version.set_index("step")["known"].reindex(found.index)
    return found.assign(
        share=(found["several"] / found["responses"]).where(known),
        low=np.where(known, low, np.nan), high=np.where(known, high, np.nan), known=known,
    )  # fmt: skip
