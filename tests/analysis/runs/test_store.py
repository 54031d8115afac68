"""Runs on disk: what is broken gets one clear sentence, what can be read is read, and nothing is written."""

import json
import os
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ratioscope import Manifest, RunFormatError
from ratioscope.analysis.runs import store
from ratioscope.analysis.runs.store import discover, open_run
from ratioscope.analysis.summary.summary import summarise
from tests.making.runs import plain_step, random_step, write_files, write_run


def make_run(folder: Path, steps: int = 3, **fields: object) -> Path:
    rng = np.random.default_rng(0)
    return write_run(folder, [random_step(rng, step) for step in range(steps)], flush_seconds=0, **fields)


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file and folder with its size and change time."""
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in [folder, *folder.rglob("*")]
    }


def test_reading_writes_nothing_into_the_run(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "runs" / "mine", vocabulary=str)
    before = contents(tmp_path / "runs")
    discover([tmp_path / "runs"])
    run = open_run(folder)
    summarise(run)
    run.read("sequences")
    assert contents(tmp_path / "runs") == before


def test_a_run_reads_back_with_its_extra_columns(tmp_path: Path) -> None:
    step = random_step(np.random.default_rng(0))
    step.scalars["extra_temperature"] = 0.7
    step.sequences["reward_format"] = np.ones(len(step.sequences["seq_id"]), dtype=np.float32)
    run = open_run(write_run(tmp_path / "run", [step]))
    assert run.read("steps")["extra_temperature"].tolist() == pytest.approx([0.7])
    assert run.read("sequences")["reward_format"].eq(1).all()
    assert run.read("tokens", ["seq_id", "advantage"]).columns.tolist() == ["seq_id", "advantage"]
    assert run.last_step == 0 and run.status == "finished"


def test_discovery_lists_runs_newest_first_by_their_place(tmp_path: Path) -> None:
    make_run(tmp_path / "older", 1, created="2025-01-01T00:00:00+00:00")
    make_run(tmp_path / "study" / "newer", 2, created="2026-01-01T00:00:00+00:00")
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("not a run")
    listed = discover([tmp_path])
    assert [(run.run_id, run.steps, run.problem) for run in listed] == [("study/newer", 2, ""), ("older", 1, "")]


def test_steps_are_counted_from_where_a_log_begins_and_once_for_all_writers(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    write_run(tmp_path / "late", [random_step(rng, number) for number in range(1_000, 1_006)])
    for part in ("000000-000009-w0", "000000-000009-w1", "000008-000012-w0", "000020-000020-w1"):
        place = tmp_path / "late" / "tokens" / f"{part}.parquet"
        place.touch()
    (found,) = discover([tmp_path])
    assert found.steps == 13 + 1 + 6


def test_a_root_may_be_a_run_itself_and_may_be_missing(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "mine", 1)
    assert [run.run_id for run in discover([folder, tmp_path / "nowhere"])] == ["mine"]
    assert discover([]) == [] and discover([tmp_path / "nowhere"]) == []


def test_runs_of_the_same_place_in_two_roots_are_both_listed(tmp_path: Path) -> None:
    for root in ("a", "b"):
        make_run(tmp_path / root / "run", 1)
    listed = discover([tmp_path / "a", tmp_path / "b", tmp_path / "a"])
    assert sorted(run.run_id for run in listed) == ["b/run", "run"]


def test_as_much_of_the_path_as_tells_runs_apart_is_in_their_names(tmp_path: Path) -> None:
    """The third run of one name took the second one's place."""
    folders = [make_run(tmp_path / trial / "runs" / "grpo", 1) for trial in "abc"]
    assert sorted(run.run_id for run in discover([folder.parent for folder in folders])) == [
        "c/runs/grpo", "grpo", "runs/grpo",
    ]  # fmt: skip
    assert sorted(run.run_id for run in discover(folders)) == ["c/runs/grpo", "grpo", "runs/grpo"]
    assert {run.folder for run in discover(folders)} == set(folders)


def test_a_run_does_not_grow_stale_while_it_is_read(tmp_path: Path) -> None:
    run = open_run(make_run(tmp_path / "run", 1))
    run.manifest.status, run.manifest.heartbeat = "running", "2020-01-01T00:00:00+00:00"
    assert run.status == "finished" and run.manifest.live_status() != "finished"


def test_a_list_that_is_waited_for_says_what_was_so_when_it_was_read(tmp_path: Path) -> None:
    """A page that takes half a minute to be drawn is no sign that a writer has stopped."""
    Manifest(name="mine", process_id=os.getpid(), host=socket.gethostname()).write(tmp_path)
    (listed,) = discover([tmp_path])
    assert listed.manifest is not None
    listed.manifest.heartbeat = (datetime.now(UTC) - timedelta(seconds=40)).isoformat()
    assert listed.manifest.live_status() == "stalled"
    assert listed.status == "running"


def test_what_the_system_refuses_now_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was kept as "not a complete Parquet file" until the cache was cleared."""
    folder = make_run(tmp_path / "run", 1)
    with monkeypatch.context() as patch:
        patch.setattr(store, "broken", _refused)
        assert open_run(folder).problems[0].endswith("left out, it cannot be read (Permission denied).")
    assert open_run(folder).problems == ()


def _refused(path: Path) -> str:
    raise PermissionError(13, "Permission denied", str(path))


BROKEN = {
    "not JSON": ("{", "cannot be read as JSON"),
    "half-written": ('{"name": "mine", "sche', "cannot be read as JSON"),
    "not text": (b"\xff\xfe\x00", "cannot be read as JSON"),
    "a list": ("[]", "must hold a JSON object"),
    "no version": ("{}", "another program's"),
    "newer": ('{"schema_version": "2.0"}', "upgrade ratioscope"),
    "a wrong type": ('{"schema_version": "1.0", "tags": "x"}', "field 'tags' has the wrong type"),
    "an unknown state": ('{"schema_version": "1.0", "status": "asleep"}', "status 'asleep'"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_manifest_is_listed_with_its_problem(tmp_path: Path, case: str) -> None:
    text, words = BROKEN[case]
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    make_run(tmp_path / "good", 1)
    by_id = {run.run_id: run for run in discover([tmp_path])}
    assert by_id["good"].problem == "" and by_id["bad"].manifest is None
    assert words in by_id["bad"].problem and "\n" not in by_id["bad"].problem
    with pytest.raises(RunFormatError, match="bad"):
        open_run(tmp_path / "bad")


def test_a_folder_that_is_no_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunFormatError, match=r"it has no run\.json"):
        open_run(tmp_path)
    with pytest.raises(RunFormatError, match="there is no such folder"):
        open_run(tmp_path / "nowhere")


def test_a_half_written_file_is_left_out_and_reported(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", 3)
    whole = sorted((folder / "tokens").iterdir())[1]
    whole.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    (folder / "tokens" / "000003-000003-w0.tmp-123").write_bytes(b"PAR1")
    run = open_run(folder)
    assert len(run.problems) == 1 and "not a complete Parquet file" in run.problems[0]
    assert whole.name in run.problems[0] and "\n" not in run.problems[0]
    summary = summarise(run)
    assert summary.values["s_k"].notna().tolist() == [True, False, True]
    assert "on disk" in summary.notes[1]["s_k"].text


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not parquet at all"])
def test_a_file_that_is_no_parquet_is_left_out_and_reported(tmp_path: Path, content: bytes) -> None:
    folder = make_run(tmp_path / "run", 1)
    (folder / "tokens" / "000001-000001-w0.parquet").write_bytes(content)
    run = open_run(folder)
    assert len(run.problems) == 1 and "left out" in run.problems[0]
    assert summarise(run).last_step == 0


def test_a_file_of_another_name_is_left_out_and_reported(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", 1)
    step = sorted((folder / "tokens").iterdir())[0]
    step.rename(step.with_name("tokens.parquet"))
    problems = open_run(folder).problems
    assert len(problems) == 1 and "its name is not" in problems[0]


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("position", None, "lacks the required column position"),
        ("advantage", pa.array(["high", "low"]), "column advantage of the tokens table is string, it must be float"),
    ],
)
def test_a_file_with_wrong_columns_is_left_out_and_reported(
    tmp_path: Path, column: str, values: pa.Array | None, words: str
) -> None:
    folder = write_files(tmp_path / "run", [("tokens", 0, [plain_step([-1.0, -1.0], [-1.0, -1.1])])])
    path = folder / "tokens" / "000000-000000-w0.parquet"
    table = pq.read_table(path).drop_columns(column)
    pq.write_table(table if values is None else table.append_column(column, values), path)
    run = open_run(folder)
    assert len(run.problems) == 1 and words in run.problems[0] and run.files["tokens"] == ()
    assert len(summarise(run).values) == 0


def test_a_file_of_a_newer_format_is_left_out_and_reported(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", 1)
    path = sorted((folder / "tokens").iterdir())[0]
    table = pq.read_table(path).replace_schema_metadata({b"ratioscope.schema_version": b"7.0"})
    pq.write_table(table, path)
    assert "upgrade ratioscope" in open_run(folder).problems[0]


def test_a_run_written_with_pyarrow_alone_in_wider_types_reads_the_same(tmp_path: Path) -> None:
    """Other programs write int64, float64, dictionary text and columns of nulls."""
    step = random_step(np.random.default_rng(0))
    ours = write_files(tmp_path / "ours", [(table, 0, [step]) for table in ("tokens", "sequences")])
    theirs = tmp_path / "theirs"
    Manifest(name="theirs").write(_folder(theirs))
    for table in ("tokens", "sequences"):
        frame = pq.read_table(ours / table / "000000-000000-w0.parquet")
        wide = {
            field.name: frame[field.name].cast(_wider(field.type)) for field in frame.schema
        }  # clip_side becomes int64, log-probs float64
        wide |= {"entropy": pa.nulls(len(frame))} if table == "tokens" else {}
        pq.write_table(pa.table(wide), _folder(theirs / table) / "000000-000000-w0.parquet")
    expected, found = summarise(open_run(ours)).values, summarise(open_run(theirs)).values
    assert open_run(theirs).problems == ()
    assert np.isnan(found["entropy"]).all()
    others = [key for key in expected if key not in ("entropy", "grad_norm", "eval_accuracy")]
    assert found.loc[0, others].tolist() == pytest.approx(expected.loc[0, others].tolist(), rel=1e-12, nan_ok=True)


MARKUP = "<script>alert(1)</script> & 'quotes' \"double\" ü [red]x[/red]"


def test_a_run_whose_name_is_markup_reads_like_any_other(tmp_path: Path) -> None:
    folder = make_run(tmp_path / MARKUP.replace("/", "_"), 1, name=MARKUP)
    listed = discover([tmp_path])
    assert [run.manifest.name for run in listed if run.manifest] == [MARKUP] and not listed[0].problem
    assert summarise(open_run(folder)).values["s_k"].notna().all()
    assert json.loads((folder / "run.json").read_text(encoding="utf-8"))["name"] == MARKUP


def _wider(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(kind):
        return pa.int64()
    return pa.float64() if pa.types.is_floating(kind) else kind


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path
