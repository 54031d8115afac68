"""What others wrote is read as far as memory allows: no pipe or device, no endless line, nothing that unpacks."""

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.importers import lines
from ratioscope.analysis.importers.detect import the_source
from ratioscope.analysis.importers.source import ImportProblem, Reading
from ratioscope.analysis.importers.writing import Options, import_run
from ratioscope.analysis.runs.store import discover, open_run
from ratioscope.errors import RatioscopeError
from ratioscope.storage import bounds
from ratioscope.toml_file import read_toml
from tests.making.foreign import imitated_lines, truth
from tests.making.runs import random_step, write_run

FILE = "000001-000001-w0.parquet"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    return write_run(tmp_path / "root" / "run", [random_step(rng, number) for number in range(3)], flush_seconds=0)


@pytest.fixture
def one_mb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(bounds.LARGEST, str(2**-10))


@pytest.mark.usefixtures("one_mb")
def test_a_file_that_unpacks_to_more_than_the_limit_is_left_out_with_a_sentence(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table, rows in (("sequences", 1), ("tokens", 100_000)):
        path = run / table / FILE
        found = pq.read_table(path)
        many = found.take(pa.array(np.zeros(rows, dtype=np.int64)))
        if table == "sequences":
            many = many.append_column("response", pa.array(["a" * 2**21]))
        pq.write_table(many, path, compression="zstd")
        assert path.stat().st_size < 50_000
    opened = open_folder(run)
    assert len(opened.run.problems) == 2
    for problem, said in zip(opened.run.problems, ("one row", "100,000 rows"), strict=True):
        assert f"its {said} would take" in problem and bounds.LARGEST in problem and problem.endswith("allows 1 MB.")
    assert (opened.summary.values["n_tokens"].fillna(0) > 0).tolist() == [True, False, True]
    monkeypatch.setenv(bounds.LARGEST, "1")
    assert not open_run(run).problems


def test_the_limit_is_a_number_of_gb(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("x", "-1", "0", "nan", "inf"):
        monkeypatch.setenv(bounds.LARGEST, text)
        with pytest.raises(RatioscopeError, match="takes a number of GB above 0"):
            bounds.largest_bytes()


def test_an_endless_manifest_is_one_line_of_the_list(run: Path) -> None:
    other = shutil.copytree(run, run.with_name("other"))
    with (other / "run.json").open("r+b") as file:
        file.truncate(20 * 2**30)  # a hole: nothing is on disk
    pipe = shutil.copytree(run, run.with_name("toml"))
    (pipe / "ratioscope.toml").symlink_to("/dev/zero")
    listed = {found.run_id: found.problem for found in discover([run.parent])}
    assert listed["run"] == listed["toml"] == "" and listed["other"].endswith("(it is larger than 16 MB).")
    with pytest.raises(RatioscopeError, match="it is a device, no file"):
        read_toml(pipe / "ratioscope.toml")


def verl(tmp_path: Path) -> tuple[Path, Path]:
    """A source with a file for each step, and the second of them."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    imitated_lines.verl(folder, truth.run())
    return folder, sorted(folder.glob("*.jsonl"))[1]


def test_a_pipe_or_a_device_among_the_files_is_a_sentence(tmp_path: Path) -> None:
    folder, second = verl(tmp_path)
    for kind, said in ((os.mkfifo, "a pipe"), (lambda path: path.symlink_to("/dev/zero"), "a device")):
        second.unlink()
        kind(second)
        with pytest.raises(ImportProblem, match=f"{second.name}: cannot be read \\(it is {said}, no file\\)"):
            import_run(the_source(folder), tmp_path / f"run of {said}", Options())


def test_an_empty_file_between_others_is_said(tmp_path: Path) -> None:
    folder, second = verl(tmp_path)
    second.write_bytes(b"")
    done = import_run(the_source(folder), tmp_path / "run", Options())
    assert done.problems == (f"{second}: is empty, so that what it was for is missing.",)


@pytest.mark.usefixtures("one_mb")
def test_a_line_that_is_too_long_is_a_bad_line(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text('{"a": 1}\n{"a": "' + "x" * 2**20 + '"}\n{"a": 3}\n')
    reading = Reading(skip_bad=True)
    assert [row for _, row in lines.read(file, reading)] == [{"a": 1}, {"a": 3}]
    assert reading.problems == [f"{file}, line 2: longer than 256 kB; {bounds.LARGEST} raises the limit."]


@pytest.mark.usefixtures("one_mb")
def test_completions_that_unpack_are_recognised_and_refused(tmp_path: Path) -> None:
    folder = tmp_path / "theirs" / "completions"
    folder.mkdir(parents=True)
    rows = {"step": [1], "prompt": ["p"], "completion": ["x" * 2**20], "reward": [1.0], "advantage": [0.0]}
    pq.write_table(pa.table(rows), folder / "completions_00001.parquet")
    with pytest.raises(ImportProblem, match=r"00001\.parquet: cannot be read \(its .* would take .* of memory"):
        import_run(the_source(folder.parent), tmp_path / "run", Options())


def test_text_that_is_not_utf8_and_versions_at_the_end_of_their_range_are_judged(run: Path) -> None:
    table = pq.read_table(run / "sequences" / FILE)
    offsets = pa.array(np.arange(len(table) + 1, dtype=np.int32) * 2).buffers()[1]
    text = pa.Array.from_buffers(pa.string(), len(table), [None, offsets, pa.py_buffer(b"\xff\xfe" * len(table))])
    for column in ("response", "finish_reason", "extra_text"):
        other = shutil.copytree(run, run.parent / column)
        pq.write_table(table.append_column(column, text), other / "sequences" / FILE)
        (problem,) = open_run(other).problems
        assert problem.endswith(f"left out, text in its column {column} is not UTF-8.")
    for value in (-(2**31), 2**31 - 1):
        other = shutil.copytree(run, run.parent / f"all {value}")
        for name, column in (("steps", "policy_version"), ("tokens", "behavior_version"), ("tokens", "position")):
            path = other / name / FILE
            found = pq.read_table(path)
            place = found.schema.get_field_index(column)
            pq.write_table(found.set_column(place, column, pa.array([value] * len(found), pa.int32())), path)
        opened = open_folder(other)
        assert not opened.run.problems and len(opened.summary.values) == 3
        assert opened.remarks
