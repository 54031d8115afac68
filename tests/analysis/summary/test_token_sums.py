"""The sums in numpy against the catalogue's own SQL, also where columns lack values and ratios leave every range."""

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from ratioscope.analysis.runs.database import connect
from ratioscope.analysis.summary.token_sums import KEYS, SUMS, create_sequence_sums
from ratioscope.catalogue import CATALOGUE
from ratioscope.metric import Grain

VIEW = """
create view usable as
select
    *, logp_current::double - logp_sampled::double as log_rho, logp_new::double - logp_sampled::double as log_rho_new,
    expm1(log_rho) as deviation, expm1(log_rho_new) as deviation_new
from drawn
"""


def _drawn(rows: int, *, together: bool, lacks: float, extreme: float, spread: float) -> pa.Table:
    """Rows as `usable` has them: sampled log-probs are finite, no log-prob is above 0."""
    rng, row = np.random.default_rng(rows), np.arange(rows)
    behavior = -rng.exponential(1, rows)
    current = np.where(rng.random(rows) < extreme, -2000 * rng.random(rows), behavior + spread * rng.normal(size=rows))
    current[rng.random(rows) < extreme] = -np.inf
    new = np.where(rng.random(rows) < extreme, -np.inf, current + spread * rng.normal(size=rows))
    sampled = np.where(rng.random(rows) < extreme, -1500.0, behavior)
    side = rng.integers(-1, 2, rows)

    def column(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(values, mask=rng.random(rows) < lacks).cast(kind)

    return pa.table(
        {
            "step": pa.array(row // 30_000, pa.int32()),
            "group_id": row // 50 % 3,
            "seq_id": row // 10 if together else row * 7919 % 83,
            "grouped": rng.random(rows) < 0.9,
            "logp_behavior": column(sampled, pa.float32()),
            "logp_sampled": column(sampled, pa.float32()),
            "logp_current": column(np.minimum(current, 0), pa.float32()),
            "logp_new": column(np.minimum(new, 0), pa.float32()),
            "advantage": column(rng.integers(-2, 3, rows), pa.float32()),
            "clip_side": column(side, pa.int8()),
            "clipped": column(side != 0, pa.bool_()),
            "version_lag": column(rng.integers(0, 9, rows), pa.int32()),
        }
    )


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with connect([]) as made:
        yield made


@pytest.mark.parametrize("rows", [0, 1, 70_000])
@pytest.mark.parametrize(
    ("together", "lacks", "extreme", "spread"),
    [(True, 0, 0, 0.3), (True, 0, 0, 1e-5), (True, 0.2, 0.01, 0.3), (True, 1, 0, 0.3), (False, 0.2, 0, 3.0)],
)
def test_sums_are_those_of_the_catalogue(
    connection: duckdb.DuckDBPyConnection, rows: int, together: bool, lacks: float, extreme: float, spread: float
) -> None:
    table = _drawn(rows, together=together, lacks=lacks, extreme=extreme, spread=spread)
    connection.register("drawn", table)
    connection.execute(VIEW)
    step, log_rho, log_rho_new = create_sequence_sums(connection, rows) or pytest.fail("no log-ratios")
    assert create_sequence_sums(connection, rows - 1) is None
    found = connection.execute("from sequence_sums").df()
    logged = connection.execute("select step, log_rho, log_rho_new from usable").df().to_numpy(float)
    np.testing.assert_array_equal(np.transpose([step, log_rho, log_rho_new]), logged)
    queries = _queries()
    assert queries.keys() == SUMS
    named = ", ".join(f"{query} as {name}" for name, query in queries.items())
    keys = ", ".join(KEYS)
    exact = connection.execute(f"select {keys}, {named} from usable group by {keys} order by {keys}").df()
    assert found[list(KEYS)].equals(exact[list(KEYS)])
    for name in queries:
        ours, theirs = (frame[name].to_numpy(dtype=float) for frame in (found, exact))
        # What is added up is of the size of its terms: opposite ones may leave less than their rounding.
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12 * spread, err_msg=name)


def _queries() -> dict[str, str]:
    """Of every sum."""
    queries = {
        "n_tokens": "count(*)",
        "n_grouped": "count_if(grouped)",
        "n_recomputed": "count_if(log_rho is not null and logp_behavior is null)",
        "n_signal": "count_if(advantage <> 0)",
        "log_w": "sum(log_rho)",
        "signed_deviation": "sum(deviation)",
        "shortfall": "sum(case when deviation < 0 then -deviation else 0 end)",
        "deviation_squared": "sum(deviation * deviation)",
        "signed_deviation_new": "sum(deviation_new)",
        "shortfall_new": "sum(case when deviation_new < 0 then -deviation_new else 0 end)",
    }
    for metric in CATALOGUE.values():
        if metric.grain is not Grain.TOKEN:
            continue
        for over in metric.over.chain:
            if over.where and not over.apart and over.grain is Grain.TOKEN:
                queries[over.count] = f"count_if({over.where})"
        mean, where = metric.mean, metric.over.where or "true"
        if mean is not None and not mean.sum and not metric.over.apart:
            term = f"sum(case when {where} then ({mean.term})::double end)"
            queries[metric.key] = f"count_if(({where}) and ({mean.holds}))" if mean.holds else term
    return queries
