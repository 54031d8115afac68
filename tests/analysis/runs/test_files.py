"""The files of a run: which a flush under way has left half done, and which file is which."""

from pathlib import Path

import numpy as np
import pytest

from ratioscope import Manifest, RunRecorder
from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.runs.files import TableFile
from ratioscope.analysis.runs.store import open_run
from ratioscope.recorder import write_table_file
from ratioscope.run_format import schema
from tests.making.runs import random_step


def written(recorder: RunRecorder, numbers: range) -> None:
    rng = np.random.default_rng(0)
    for number in numbers:
        step = random_step(rng, number)
        recorder.record_step(number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
    recorder.flush()


@pytest.mark.parametrize("next_table", ["sequences", "steps"])
def test_no_step_of_half_a_flush_is_seen(tmp_path: Path, next_table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four steps without a reward were a critical finding, and stayed one: "responses are no longer scored"."""
    folder, seen = tmp_path / "run", list[int]()

    def looked_at(path: Path, table: object) -> None:
        if path.parent.name == next_table:  # everything before it is there
            opened = open_folder(folder)
            seen.append(opened.summary.last_step)
            assert opened.run.last_step == 11 and opened.summary.values["reward"].notna().all()
            assert not [finding for finding in opened.findings if finding.rule == "diverged"]
        write_table_file(path, table)  # type: ignore[arg-type]

    with RunRecorder(folder, seed=0) as recorder:
        written(recorder, range(12))
        with monkeypatch.context() as patch:
            patch.setattr("ratioscope.recorder.write_table_file", looked_at)
            written(recorder, range(12, 16))
        assert seen == [11]
        assert open_run(folder).last_step == 15


def test_what_a_dead_writer_left_is_seen(tmp_path: Path) -> None:
    with RunRecorder(tmp_path / "run", seed=0) as recorder:
        written(recorder, range(4))
        written(recorder, range(4, 8))
        (tmp_path / "run" / "sequences" / str(schema.FileName(4, 7, 0))).unlink()
        (tmp_path / "run" / "steps" / str(schema.FileName(4, 7, 0))).unlink()
        assert open_run(tmp_path / "run").last_step == 3
        manifest = Manifest.read(tmp_path / "run")
        manifest.heartbeat = "2026-01-01T00:00:00+00:00"
        manifest.write(tmp_path / "run")
        assert open_run(tmp_path / "run").last_step == 7


def test_a_table_that_is_not_written_with_every_flush_holds_nothing_back(tmp_path: Path) -> None:
    with RunRecorder(tmp_path / "run", seed=0) as recorder:
        for first in (0, 2, 4):
            written(recorder, range(first, first + 2))
        for first, seen in ((4, 3), (2, 5)):
            (tmp_path / "run" / "steps" / str(schema.FileName(first, first + 1, 0))).unlink()
            assert open_run(tmp_path / "run").last_step == seen


def test_a_relative_path_is_another_file_in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        found.append(TableFile(Path("a.parquet"), schema.FileName(0, 0, 0), 1, 1).identity)
    assert found == [f"{tmp_path.resolve()}/{name}/a.parquet:1:1" for name in ("here", "there")]
