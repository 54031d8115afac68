"""Responses whose tokens come from several policy versions: the sampler's weights changed while they were written."""

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.runs.relations import create_usable, relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.metrics import step_table
from ratioscope.analysis.summary.partials import partials_in

# Positions are put together by doubling: 0, 1, 2-3, 4-7, ...; no response is longer than 2 to the power of this.
_MOST_DOUBLINGS = 40


def by_versions(run: Run, first: int | None = None, last: int | None = None) -> pd.DataFrame:
    """Responses by the number of versions that sampled them.

    Columns: versions, responses, share, tokens (mean a response), lag (mean of the tokens), spread (mean of the newest
    minus the oldest version).

    Raises:
        RatioscopeError: a file cannot be read any more.
    """
    with relations(run, first, last) as connection:
        found = connection.execute(
            """
            with response as (
                select
                    count(distinct behavior_version) as versions, count(*) as tokens, sum(version_lag) as lag,
                    max(behavior_version) - min(behavior_version) as spread
                from token
                group by step, seq_id
            )
            select
                versions, count(*)::double as responses, avg(tokens) as tokens,
                (sum(lag) / sum(tokens))::double as lag, avg(spread)::double as spread
            from response
            group by versions
            order by versions
            """
        ).df()
    found.insert(2, "share", found["responses"] / found["responses"].sum())
    return found


def by_position(run: Run, metric: str, first: int | None = None, last: int | None = None) -> pd.DataFrame:
    """A token metric of the step summary by position in the response: of one version, and of several.

    Positions take the place of the steps in the step summary's own computation, as in `analysis.summary.strata`.

    Columns: several (bool), first (position), label, n_tokens, value, low, high, note.

    Raises:
        RatioscopeError: a file cannot be read any more.
    """
    with relations(run, first, last) as connection:
        connection.execute("alter view token rename to logged")
        connection.execute("alter view sequence rename to response")
        connection.execute(
            f"""
            create temp view placed as
            select
                *,
                if(position < 2, position, 1 + floor(log2(position))::bigint)
                + if(min(behavior_version) over response_rows <> max(behavior_version) over response_rows,
                     {_MOST_DOUBLINGS}, 0) as place
            from logged
            window response_rows as (partition by step, seq_id)
            """
        )
        apart = "(hash(step, seq_id) >> 1)::bigint as seq_id, (hash(step, group_id) >> 1)::bigint as group_id"
        connection.execute(
            f"create or replace view token as select * exclude (place) replace (place as step, {apart}) from placed"
        )
        create_usable(connection)
        connection.execute("create or replace view sequence as select * from response where false")
        table = step_table(partials_in(connection))
    notes = table.notes[table.notes["key"] == metric].set_index("step").reindex(table.values.index).astype(object)
    notes = notes.fillna("").astype(str)
    places = table.values.index.to_numpy()
    doublings = places % _MOST_DOUBLINGS
    start = np.where(doublings < 2, doublings, 2 ** np.maximum(doublings - 1, 0))
    return pd.DataFrame(
        {
            "several": places >= _MOST_DOUBLINGS,
            "first": start,
            "label": [str(low) if low < 2 else f"{low}–{2 * low - 1}" for low in start],
            "n_tokens": table.values["n_tokens"].to_numpy(),
            "value": table.values[metric].to_numpy(),
            "low": table.low[metric].to_numpy(),
            "high": table.high[metric].to_numpy(),
            "note_kind": notes["note_kind"].to_numpy(),
            "note": notes["note"].str.replace("this step", "this position").to_numpy(),
        }
    )


def versions_sentence(found: pd.DataFrame) -> str:
    """Are there responses of several versions, and how many: of `versions.sampled_by`, in words."""
    several, responses = int(found["several"].sum()), int(found["responses"].sum())
    if not found["known"].any():
        return "Versions are not logged: whether responses come from several of them is unknown."
    if not several:
        return "Every response was sampled by one version."
    with_switch = int((found["several"] > 0).sum())
    return (
        f"{several:,} of {responses:,} responses ({percent(several / responses)}) have tokens of several versions, "
        f"in {with_switch} of {len(found)} steps."
    )
