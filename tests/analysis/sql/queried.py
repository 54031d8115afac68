"""The run that queries are asked of: several files, a vocabulary, free columns, NaN and an infinity in step 1."""

from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.sql import QueryLimits, QueryResult, tables, worker
from ratioscope.analysis.summary.summary import StepSummary
from tests.making.runs import random_step, write_run

N_STEPS = 6


def bad_run(folder: Path) -> Run:
    rng = np.random.default_rng(5)
    steps = [random_step(rng, number, groups=6, responses=4, longest=20) for number in range(N_STEPS)]
    bad = steps[1].tokens["logp_current"].copy()
    bad[[3, 4]], bad[5] = np.nan, -np.inf
    steps[1] = steps[1].with_tokens(logp_current=bad)
    for step in steps:
        step.sequences["reward_format"] = np.arange(len(step.sequences["seq_id"]), dtype=np.float32)
        step.sequences["prompt_id"] = step.sequences["group_id"]
        step.scalars['extra_odd "name"'] = 7.0
    write_run(folder, steps, flush_seconds=0, vocabulary=lambda token: f"<{token}>")
    return open_run(folder)


def locked_connection(run: Run, summary: StepSummary) -> tuple[duckdb.DuckDBPyConnection, set[str]]:
    """The worker's connection in this process, and the tables that it offers."""
    offered = tables.offer(run, summary)
    files = {name: str(path) for name, path in offered.files.items()}
    contents = {name: make() for name, make in offered.contents.items()}
    limits = vars(QueryLimits(seconds=5, threads=2, memory=300 * 2**20))
    return worker.connect(list(offered.setup), files, contents, limits), set(offered.tables)


def rows(answer: QueryResult) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in answer.table.to_pylist()]
