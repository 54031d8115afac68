"""Tables by step that are kept by blocks of files: a second look reads what has come since, and says the same."""

from pathlib import Path

import numpy as np
import pandas as pd

from ratioscope import RunRecorder
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.summary.by_block import by_block
from tests.making.runs import random_step


def test_a_second_look_reads_new_files_only(tmp_path: Path) -> None:
    asked: list[tuple[int | None, int | None]] = []

    def counted(run: Run, first: int | None, last: int | None) -> tuple[pd.DataFrame]:
        asked.append((first, last))
        with relations(run, first, last) as connection:
            sql = "select step::bigint as step, count(*) as n from token group by step order by step"
            return (connection.execute(sql).df(),)

    rng = np.random.default_rng(0)
    with RunRecorder(tmp_path / "run", flush_seconds=float("inf")) as recorder:
        for number in range(5):
            made = random_step(rng, number, groups=2, responses=2, longest=5)
            recorder.record_step(number, tokens=made.tokens, sequences=made.sequences, scalars=made.scalars)
            recorder.flush()
            if number == 3:
                by_block("counted", open_run(tmp_path / "run"), counted)
        run = open_run(tmp_path / "run")
        (found,) = by_block("counted", run, counted)
    assert asked == [(0, 3), (4, 4)]
    pd.testing.assert_frame_equal(found, counted(run, None, None)[0])
