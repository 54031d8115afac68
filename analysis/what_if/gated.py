"""Where the loss evaluated its gate: the view `gated`, the tokens of `relations` with that log-probability.

with relations(run) as connection:
    create_gated(connection)
    rows = connection.execute("select step, gated_at from gated where invalid is null").df()

A row whose logp_gate is no log-probability has no gate: numbers that depend on the gate leave it out and count it.
"""

import duckdb

from ratioscope.analysis.runs.database import query
from ratioscope.run_format import schema


def create_gated(connection: duckdb.DuckDBPyConnection) -> None:
    """Make `gated`, with `gated_at` of `gated.sql`, on a connection that has `token`."""
    connection.execute(query("what_if/gated").replace("$largest", str(schema.LARGEST_LOG_PROBABILITY)))
