"""The run that queries are asked of, its summary, and a connection as the worker has it."""

import duckdb
import pytest

from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.summary import StepSummary, summarise
from tests.analysis.sql.queried import bad_run, locked_connection


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """In a folder with a name that has to be escaped."""
    return bad_run(tmp_path_factory.mktemp("runs") / "it's a run")


@pytest.fixture(scope="module")
def summary(run: Run) -> StepSummary:
    return summarise(run)


@pytest.fixture(scope="module")
def locked(run: Run, summary: StepSummary) -> tuple[duckdb.DuckDBPyConnection, set[str]]:
    return locked_connection(run, summary)
