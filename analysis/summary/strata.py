"""Any metric of the step summary by stratum: version, position, advantage, outcome, length, clipped or kept, ...

strata = stratify(run, "position", first=40, last=60)
strata.metric("s_k_bounded")    # one row a stratum, "all" last: label, n_tokens, value, low, high, note_kind, note

The strata take the place of the steps in the very computation of the step summary, so that every number, interval and
note is the same definition. Clusters stay the prompt groups of each step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.runs.relations import create_usable, relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.metrics import StepTable, step_table
from ratioscope.analysis.summary.partials import partials_in
from ratioscope.analysis.summary.summary import LOGGED
from ratioscope.catalogue import CATALOGUE
from ratioscope.errors import RatioscopeError, unknown
from ratioscope.metric import Grain
from ratioscope.notes import Kind

# More numbers than these are put into so many buckets of about as many tokens; of more prompts, the rarest go together.
MOST_VALUES, BUCKETS = 12, 5
MOST_PROMPTS = 30
_MOST_HELD = 600_000
"""Tokens that are held with their strata: hundreds of megabytes at most."""


@dataclass(frozen=True)
class Stratification:
    """A way to divide tokens."""

    title: str
    value: str
    """SQL over the columns of the `token`, or of its `response`."""
    label: Callable[[str], str] = str
    """The name of a stratum, from its value or its first and last value."""
    of_responses: bool = False
    """The response decides, so that responses without tokens have a place, too."""
    drawn: bool = False
    """What was drawn decides: of such a choice the bounded form of a distance sees one side only."""
    numbers: bool = False
    """Values are numbers, which can be put into buckets; otherwise the rarest go together."""


def _sign(value: str) -> str:
    return {"-1": "A < 0", "0": "A = 0", "1": "A > 0"}[value]


def _doubling(value: str) -> str:
    first = int(value)
    return f"position {first}" if first < 2 else f"position {first}–{2 * first - 1}"


STRATIFICATIONS = {
    "version": Stratification("Behavior version", "behavior_version", "version {}".format, numbers=True),
    "lag": Stratification("Version lag", "version_lag", "lag {}".format, numbers=True),
    "position": Stratification(
        "Position in the response",
        "case when position < 2 then position else (2 ** floor(log2(position)))::bigint end",
        _doubling,
    ),
    "advantage": Stratification(
        "Sign of the advantage", "case when isfinite(advantage) then sign(advantage)::bigint end", _sign, drawn=True
    ),
    "outcome": Stratification(
        "Reward of the response", "reward::double", "reward {}".format, of_responses=True, drawn=True, numbers=True
    ),
    "prompt": Stratification("Prompt", "coalesce(prompt_id, group_id)", "prompt {}".format, of_responses=True),
    "length": Stratification(
        "Length of the response", "n_tokens", "{} tokens".format, of_responses=True, drawn=True, numbers=True
    ),
    "clipped": Stratification(
        "Clipped or kept by the gate", "case when clipped then 'clipped' when not clipped then 'kept' end", drawn=True
    ),
    "dropped": Stratification(
        "Dropped or kept by the loss", "coalesce(dropped, 'kept')", of_responses=True, drawn=True
    ),
}


@dataclass(frozen=True)
class Strata:
    """The metrics of each stratum; the last one is all tokens together."""

    by: str
    labels: tuple[str, ...]
    table: StepTable
    """As of steps, indexed by the place in `labels`."""

    def metric(self, key: str) -> pd.DataFrame:
        """One row a stratum: label, n_tokens, value, low, high, note_kind, note.

        Raises:
            RatioscopeError: there is no such metric.
        """
        if key not in self.table.values:
            raise unknown("a metric", key, map(str, self.table.values))
        notes = self.table.notes[self.table.notes["key"] == key].set_index("step")[["note_kind", "note"]]
        return pd.DataFrame(
            {
                "label": self.labels,
                "n_tokens": self.table.values["n_tokens"],
                "value": self.table.values[key],
                "low": self.table.low[key],
                "high": self.table.high[key],
                **notes.reindex(self.table.values.index).fillna(""),
            }
        ).reset_index(drop=True)


def stratify(run: Run, by: str, first: int | None = None, last: int | None = None) -> Strata:
    """The step summary's metrics over the steps first..last, by stratum.

    Raises:
        RatioscopeError: there is no such stratification, or no token in these steps.
    """
    if by not in STRATIFICATIONS:
        raise unknown("a stratification", by, STRATIFICATIONS)
    kind = STRATIFICATIONS[by]
    with relations(run, first, last) as connection:
        labels = _create_places(connection, kind)
        if not labels:
            raise RatioscopeError(f"{run.folder}: there is no token in these steps.")
        split = _splits_responses(connection)
        _create_views(connection, "place", responses=not split)
        parts = step_table(partials_in(connection))
        _create_views(connection, str(len(labels)), responses=True)
        whole = step_table(partials_in(connection))
    values, low, high = (
        pd.concat([getattr(part, name) for part in (parts, whole)]) for name in ("values", "low", "high")
    )
    notes = pd.concat([parts.notes, whole.notes], ignore_index=True)
    notes["note"] = notes["note"].astype(object).str.replace("this step", "this stratum")
    table = StepTable(values, low, high, notes)
    table = _without(table, LOGGED, table.values.index, "logged for whole steps only")
    if kind.drawn:
        reason = "no distance of policies where what was drawn decides what is in: read the plain form"
        table = _without(table, BOUNDED, parts.values.index, reason)
    if split:
        table = _without(table, _OF_RESPONSES, parts.values.index, "responses are divided between these strata")
    return Strata(by, (*labels, "all"), table)


BOUNDED = tuple(key for key in CATALOGUE if key.endswith("_bounded"))
"""Distances by what falls: over a choice by what was drawn they are none, however that choice is made."""
_OF_RESPONSES = (
    *(key for key, metric in CATALOGUE.items() if metric.grain is Grain.RESPONSE),
    *("n_sequences", "n_undefined"),
)


def _create_places(connection: duckdb.DuckDBPyConnection, kind: Stratification) -> list[str]:
    """Make `placed` (tokens) and `placed_response`, each with its stratum's `place`; returns the strata's labels."""
    connection.execute("alter view token rename to logged")
    connection.execute("alter view sequence rename to response")
    value_of_token, value_of_response = ("null", kind.value) if kind.of_responses else (kind.value, "null")
    connection.execute(f"create temp view valued_response as select *, {value_of_response} as value from response")
    if kind.of_responses:
        connection.execute(
            "create temp view valued as select logged.*, value "
            "from logged left join valued_response using (step, seq_id)"
        )
        counts = "select value, sum(n_tokens)::bigint as n from valued_response group by value"
    else:
        connection.execute(f"create temp view valued as select *, {value_of_token} as value from logged")
        counts = "select value, count(*) as n from valued group by value"
    values = connection.execute(f"{counts} order by value nulls last").df()
    places, labels = _places(values, kind)
    n_tokens = connection.execute("select count(*) from logged").fetchall()[0][0]
    connection.register("places", values.assign(place=places)[["value", "place"]])
    joined = "left join places on valued.value is not distinct from places.value"
    # The sums ask for them a dozen times.
    held = "table" if n_tokens <= _MOST_HELD else "view"
    connection.execute(f"create temp {held} placed as select valued.* exclude (value), place from valued {joined}")
    of_response = "select step, seq_id, min(place) as place from placed group by step, seq_id"
    connection.execute(f"create temp {held} placed_sequence as {of_response}")
    return labels


def _places(values: pd.DataFrame, kind: Stratification) -> tuple[NDArray[np.int64], list[str]]:
    """The stratum of each value, and the strata's labels."""
    there = values["value"].notna().to_numpy()
    n = values["n"].to_numpy(dtype=float)
    texts = [_text(value) for value in values["value"][there]]
    places = np.arange(len(values))
    labels = [kind.label(text) for text in texts]
    most = MOST_VALUES if kind.numbers else MOST_PROMPTS
    if len(texts) > most and kind.numbers:
        share = (np.cumsum(n[there]) - n[there] / 2) / n[there].sum()
        bucket = np.unique((share * BUCKETS).astype(int), return_inverse=True)[1]
        ends = [np.flatnonzero(bucket == number)[[0, -1]] for number in range(bucket.max() + 1)]
        labels = [kind.label(texts[low] if low == high else f"{texts[low]} to {texts[high]}") for low, high in ends]
        places[there] = bucket
    elif len(texts) > most:
        largest = np.sort(np.argsort(-n[there], kind="stable")[: most - 1])
        places = np.full(len(values), most - 1)
        places[np.flatnonzero(there)[largest]] = np.arange(most - 1)
        labels = [*(labels[place] for place in largest), f"{len(texts) - most + 1} others"]
    if not there.all():
        places[~there] = len(labels)
        labels.append("not logged")
    return places, labels


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _splits_responses(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether some response has tokens in several strata, so that its ratio belongs to none."""
    found = connection.execute(
        "select 1 from placed group by step, seq_id having min(place) <> max(place) limit 1"
    ).fetchall()
    return bool(found)


def _create_views(connection: duckdb.DuckDBPyConnection, place: str, *, responses: bool) -> None:
    """Put the strata where the step summary looks for steps; sequences and groups of different steps stay apart."""
    apart = "(hash(step, seq_id) >> 1)::bigint as seq_id, (hash(step, group_id) >> 1)::bigint as group_id"
    connection.execute(
        f"create or replace view token as select * exclude (place) replace ({place} as step, {apart}) from placed"
    )
    create_usable(connection)
    of_responses = (
        "select response.*, coalesce(of_tokens.place, of_values.place) as place from valued_response as response "
        "left join placed_sequence as of_tokens using (step, seq_id) "
        "left join places as of_values on response.value is not distinct from of_values.value"
    )
    connection.execute(
        f"create or replace view sequence as select * replace ({place} as step, {apart}) from ({of_responses}) "
        f"where {responses} and {place} is not null"
    )


def _without(table: StepTable, keys: Sequence[str], places: pd.Index, reason: str) -> StepTable:
    """The table with some metrics of some rows taken out, and the reason in place."""
    values, low, high = (frame.copy() for frame in (table.values, table.low, table.high))
    for frame in (values, low, high):
        frame.loc[places, list(keys)] = np.nan
    removed = table.notes["key"].isin(keys) & table.notes["step"].isin(places)
    notes = pd.DataFrame(
        {
            "step": np.tile(places, len(keys)),
            "key": np.repeat(list(keys), len(places)),
            "note_kind": Kind.UNDEFINED.value,
            "note": reason,
        }
    )
    return StepTable(values, low, high, pd.concat([table.notes[~removed], notes], ignore_index=True))
