"""Compacting a run: the same rows in fewer files, for whoever reads meanwhile too, and whatever goes wrong."""

import fcntl
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from ratioscope import Manifest
from ratioscope.analysis.runs import store
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from ratioscope.errors import RatioscopeError, RunFormatError
from ratioscope.run_format import compaction, schema
from ratioscope.run_format.compaction import compact
from ratioscope.run_format.table_files import NONFINITE_KEY, VERSION_KEY
from tests.making.commands import command
from tests.making.runs import Step, random_step, write_files

TABLES = ("tokens", "sequences", "steps")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five steps in files of their own by writer 0, each with a NaN; half of the groups are by writer 1."""
    rng = np.random.default_rng(7)
    layout: list[tuple[str, int, list[Step]]] = []
    for number in range(5):
        step = random_step(rng, number)
        current = step.tokens["logp_current"].copy()
        current[0] = np.nan
        step = step.with_tokens(logp_current=current)
        halves = [
            step.rows(step.tokens["group_id"] % 2 == half, step.sequences["group_id"] % 2 == half) for half in (0, 1)
        ]
        layout += [(table, half, [halves[half]]) for table in ("tokens", "sequences") for half in (0, 1)]
        layout.append(("steps", 0, [step]))
    return write_files(tmp_path / "run", layout)


def rows(folder: Path) -> dict[str, pd.DataFrame]:
    found = {name: open_run(folder).read(name) for name in TABLES}
    return {name: frame.sort_values(list(schema.TABLES[name].key), ignore_index=True) for name, frame in found.items()}


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def assert_whole(folder: Path, expected: dict[str, pd.DataFrame]) -> None:
    run = open_run(folder)
    assert not run.problems
    for name, frame in rows(folder).items():
        pd.testing.assert_frame_equal(frame, expected[name], check_exact=True)


def test_few_files_have_the_rows_the_footers_and_the_numbers_of_many(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected, values = rows(folder), summarise(open_run(folder)).values
    # Rows of two and a half files of tokens.
    monkeypatch.setattr(compaction, "FULL_ROWS", len(expected["tokens"]) // 4)
    said = command(monkeypatch, capsys, "compact", folder).succeeded()
    assert said == "25 files became 7.\n"
    assert [name for name in files(folder) if name.startswith("tokens")] == [
        *(f"tokens/{name}.parquet" for name in ("000000-000002-w0", "000000-000002-w1")),
        *(f"tokens/{name}.parquet" for name in ("000003-000004-w0", "000003-000004-w1")),
    ]
    assert_whole(folder, expected)
    pd.testing.assert_frame_equal(summarise(open_run(folder)).values, values, rtol=1e-12, atol=1e-15)
    footer = pq.read_schema(folder / "tokens" / "000000-000002-w0.parquet").metadata
    assert footer[VERSION_KEY] == schema.SCHEMA_VERSION.encode()
    assert footer[NONFINITE_KEY] == b'{"logp_current": 3}'
    written = pq.read_table(folder / "tokens" / "000000-000002-w0.parquet").to_pandas()
    keys = list(schema.TOKENS.key)
    pd.testing.assert_frame_equal(written, written.sort_values(keys, ignore_index=True), check_exact=True)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert command(monkeypatch, capsys, "compact", folder).succeeded() == "There is nothing to do.\n"
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_what_is_interrupted_leaves_a_whole_run_and_the_next_call_ends_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a file is written, before the folders change places, and after that."""
    expected, before = rows(folder), files(folder)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for name in ("_write", "_exchange"):
        with monkeypatch.context() as patch:
            patch.setattr(compaction, name, interrupt)
            with pytest.raises(KeyboardInterrupt):
                compact(folder)
        assert files(folder) == before
    with monkeypatch.context() as patch:  # killed: nothing is cleaned up
        patch.setattr(shutil, "rmtree", interrupt)
        with pytest.raises(KeyboardInterrupt):
            compact(folder)
    assert any(path.name.startswith(".compact-") for path in folder.iterdir())
    assert_whole(folder, expected)
    compact(folder)
    assert len(files(folder)) == 6  # two writers have two tables each; steps, and the manifest
    assert_whole(folder, expected)


def test_who_opens_the_run_meanwhile_sees_the_old_files_or_the_new_ones(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = rows(folder)
    opened = []
    original = store._refused

    def compacted_in_between(*arguments: object, **options: object) -> object:
        if not opened:
            opened.append(True)
            compact(folder, progress=lambda done, of: assert_whole(folder, expected))
        return original(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "_refused", compacted_in_between)
    run = open_run(folder)
    assert opened and not run.problems
    assert {name: len(found) for name, found in run.files.items() if found} == {"tokens": 2, "sequences": 2, "steps": 1}


def test_a_run_that_may_be_written_again_is_left_alone(folder: Path) -> None:
    before = files(folder)
    for status, says in (("running", "the run is running"), ("interrupted", "--ended says")):
        Manifest(name="run", status=status).write(folder)
        with pytest.raises(RunFormatError, match=says):
            compact(folder)
        assert files(folder) == before
    assert compact(folder, ended=True).after == 5


def test_what_stands_in_the_way_is_one_sentence_and_the_run_stays_as_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(folder)
    broken = folder / "tokens" / "000009-000009-w0.parquet"
    broken.write_bytes(b"PAR1")
    with pytest.raises(RunFormatError, match="not a complete Parquet file"):
        compact(folder)
    broken.unlink()
    place = os.open(folder, os.O_RDONLY)
    fcntl.flock(place, fcntl.LOCK_EX)
    with pytest.raises(RatioscopeError, match="another process"):
        compact(folder)
    os.close(place)
    with monkeypatch.context() as patch:
        patch.setattr(compaction.ctypes, "CDLL", lambda *_, **__: object())
        with pytest.raises(RatioscopeError, match="cannot exchange two folders"):
            compact(folder)
    with monkeypatch.context() as patch:
        original = compaction._write

        def write(table: schema.DeclaredTable, group: list[Path], beside: Path) -> None:
            original(table, group, beside)
            (folder / table.name / "note.txt").write_text("new")

        patch.setattr(compaction, "_write", write)
        with pytest.raises(RunFormatError, match="changed while it was compacted"):
            compact(folder)
    assert files(folder) == sorted([*before, "tokens/note.txt"])
    compact(folder)
    assert (folder / "tokens" / "note.txt").read_text() == "new"
