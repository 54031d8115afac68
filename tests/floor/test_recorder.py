"""The recorder: what goes in comes out, in files that are whole and sorted."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from ratioscope import Manifest, RunFormatError, RunRecorder
from ratioscope.recorder import FLUSH_ROWS
from ratioscope.run_format import schema
from ratioscope.run_format.table_files import NONFINITE_KEY, VERSION_KEY
from tests.making.runs import Step, plain_step, random_step, write_run


def record(recorder: RunRecorder, step: Step) -> None:
    recorder.record_step(step.number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)


def table(folder: Path, name: str) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in sorted((folder / name).glob("*.parquet"))])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.parquet"))


def some_steps(count: int, seed: int = 0) -> list[Step]:
    rng = np.random.default_rng(seed)
    return [random_step(rng, number) for number in range(count)]


def test_what_is_recorded_comes_back_equal(tmp_path: Path) -> None:
    steps = some_steps(3)
    folder = write_run(tmp_path / "a room that is not there yet" / "run", steps)
    for name in ("tokens", "sequences"):
        found = table(folder, name)
        for step in steps:
            rows = found.filter(pa.compute.equal(found["step"], step.number))
            for column, values in getattr(step, name).items():
                assert rows[column].to_numpy().tolist() == np.asarray(values).tolist(), column
    scalars = table(folder, "steps")
    assert scalars["policy_version"].to_pylist() == [0, 1, 2]
    assert scalars["grad_norm"].to_pylist() == [1.0, 2.0, 3.0]
    assert scalars.schema.field("wall_time").type == pa.timestamp("us", tz="UTC")


def test_columns_have_the_declared_types_and_what_was_not_logged_is_absent_or_null(tmp_path: Path) -> None:
    with_new, without = some_steps(2)
    folder = write_run(tmp_path / "run", [with_new, without.with_tokens(logp_new=None)], flush_seconds=0)
    files = [pq.read_table(path) for path in sorted((folder / "tokens").iterdir())]
    for file in files:
        for field in file.schema:
            declared = schema.TOKENS.column(field.name)
            assert declared is not None and field.type == declared.type
    assert "logp_new" not in files[1].column_names
    merged = write_run(tmp_path / "merged", [with_new, with_new, without.with_tokens(logp_new=None)][1:])
    assert table(merged, "steps").num_rows == 2


def test_a_column_logged_in_some_steps_only_is_null_in_the_others_of_a_file(tmp_path: Path) -> None:
    steps = some_steps(3)
    steps[2] = steps[2].with_tokens(logp_new=None)
    found = table_of_last_file(write_run(tmp_path / "run", steps))
    is_null = pa.compute.is_null(found["logp_new"]).to_numpy()
    assert (is_null == (found["step"].to_numpy() == 2)).all()


def table_of_last_file(folder: Path) -> pa.Table:
    return pq.read_table(sorted((folder / "tokens").iterdir())[-1])


def test_nan_and_infinities_are_kept_and_counted(tmp_path: Path) -> None:
    c = [-1.0, np.nan, -np.inf, np.inf, -2.0, np.nan]
    folder = write_run(tmp_path / "run", [plain_step(np.full(6, -1.0), c)])
    path = next((folder / "tokens").iterdir())
    found = pq.read_table(path)["logp_current"]
    assert found.null_count == 0
    assert found.to_numpy() == pytest.approx(np.array(c), nan_ok=True)
    metadata = pq.read_schema(path).metadata
    assert json.loads(metadata[NONFINITE_KEY]) == {"logp_current": 4}
    assert NONFINITE_KEY == b"ratioscope.nonfinite" and metadata[VERSION_KEY] == b"1.2"


@pytest.mark.parametrize("make", [list, np.asarray, torch.tensor, pd.Series, pa.array], ids=lambda make: make.__name__)
def test_nan_is_kept_whatever_kind_of_array_it_comes_in(tmp_path: Path, make: Any) -> None:
    step = plain_step([-1.0, -1.0], [-1.0, -1.0])
    step = step.with_tokens(logp_current=make([-1.5, float("nan")]), entropy=make([float("nan"), 0.5]))
    found = table(write_run(tmp_path / "run", [step]), "tokens")
    assert found["logp_current"].null_count == found["entropy"].null_count == 0
    assert found["logp_current"].to_numpy() == pytest.approx([-1.5, np.nan], nan_ok=True)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_tensors_of_any_float_type_are_stored(tmp_path: Path, kind: torch.dtype) -> None:
    step = plain_step([-1.0, -1.0], [-1.0, -1.0])
    values = torch.tensor([-1.5, -0.25], dtype=kind, requires_grad=True)
    found = table(write_run(tmp_path / "run", [step.with_tokens(logp_current=values)]), "tokens")
    assert found["logp_current"].to_pylist() == [-1.5, -0.25]


def test_columns_of_prompts_failures_and_histories_come_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    steps = [
        plain_step([-1.0, -1.0], [-1.0, -1.0], number=number, sequence=[0, 0], segment_id=[0, 1]) for number in (0, 1)
    ]
    given = {"prompt_tokens": [7], "failure": ["cosmic rays"], "in_baseline": [True], "history_break": ["fork"]}
    for step in steps:
        step.sequences.update(given)
    folder = write_run(tmp_path / "run", steps)
    found = table(folder, "sequences")
    assert {name: found[name].to_pylist() for name in given} == {name: 2 * values for name, values in given.items()}
    assert table(folder, "tokens")["segment_id"].to_pylist() == [0, 1] * 2
    (said,) = caplog.messages  # once, whatever the number of steps
    assert "failure 'cosmic rays' is kept; the words known are environment, timeout, parse" in said
    with pytest.raises(RunFormatError, match="Column prompt_tokens of the sequences table cannot be stored as int32"):
        step.sequences.update(prompt_tokens=["seven"])
        write_run(tmp_path / "other", [step])


def test_rows_are_sorted_by_the_key(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    steps = [step.rows(rng.permutation(len(step.tokens["seq_id"]))) for step in some_steps(3)]
    found = table_of_last_file(write_run(tmp_path / "run", steps)).select(["step", "seq_id", "position"])
    assert found.num_rows > 10
    assert found.equals(found.sort_by([(name, "ascending") for name in found.column_names]))


def test_only_whole_numbers_that_repeat_have_a_dictionary(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", some_steps(1))
    columns = pq.read_metadata(next((folder / "tokens").iterdir())).row_group(0).to_dict()["columns"]
    whole = {c["path_in_schema"]: c["encodings"] for c in columns if c["physical_type"] in ("INT32", "INT64")}
    with_one = {name for name, encodings in whole.items() if "RLE_DICTIONARY" in encodings}
    assert {*whole} - with_one == {"token_id", "position"} and "step" in with_one


def test_files_say_their_first_and_last_step_and_appear_as_whole_ones_only(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", some_steps(5))
    expected = ["000000-000000-w0.parquet", "000001-000004-w0.parquet"]
    assert names(folder) == sorted(expected * 3)
    assert not list(folder.rglob("*.tmp-*"))


def test_a_live_reader_sees_the_first_step_at_once(tmp_path: Path) -> None:
    recorder = RunRecorder(tmp_path / "run", flush_seconds=float("inf"))
    first, second = some_steps(2)
    record(recorder, first)
    recorder._background.queue.join()
    assert len(names(tmp_path / "run")) == 3
    record(recorder, second)
    recorder._background.queue.join()
    assert len(names(tmp_path / "run")) == 3 and recorder.last_step == 0
    recorder.flush()
    assert recorder.last_step == 1
    recorder.close()


def test_many_rows_are_written_without_waiting(tmp_path: Path) -> None:
    with RunRecorder(tmp_path / "run", flush_seconds=float("inf")) as recorder:
        record(recorder, some_steps(1)[0])
        n = FLUSH_ROWS
        record(recorder, plain_step(np.full(n, -1.0), np.full(n, -1.0), number=1, sequence=np.zeros(n)))
        recorder._background.queue.join()
        assert recorder.last_step == 1


def test_the_vocabulary_holds_the_text_of_every_id_that_occurs(tmp_path: Path) -> None:
    asked: list[int] = []

    def text(token: int) -> str:
        asked.append(token)
        return f"<{token}>"

    steps = some_steps(3)
    folder = write_run(tmp_path / "run", steps, flush_seconds=0, vocabulary=text)
    ids = sorted({int(token) for step in steps for token in step.tokens["token_id"]})
    assert pq.read_table(folder / "vocabulary.parquet").to_pydict() == {
        "token_id": ids,
        "text": [f"<{token}>" for token in ids],
    }
    assert sorted(asked) == ids
    with RunRecorder(folder, resume=True, vocabulary=text) as recorder:
        record(recorder, plain_step([-1.0], [-1.0], number=3, token_id=np.array([99], dtype=np.int32)))
    assert pq.read_table(folder / "vocabulary.parquet")["token_id"].to_pylist() == [*ids, 99]
    assert sorted(asked) == [*ids, 99]


def test_probes_are_written_where_there_are_any(tmp_path: Path) -> None:
    with RunRecorder(tmp_path / "run", flush_seconds=float("inf")) as recorder:
        for step in some_steps(5):
            probes = {"estimator": "grpo", "batches": 4, "variance": 1.5, "cosine": float("nan")}
            recorder.record_step(
                step.number,
                tokens=step.tokens,
                sequences=step.sequences,
                scalars=step.scalars,
                probes=probes if step.number % 2 == 0 else None,
            )
    found = table(tmp_path / "run", "probes")
    assert found["step"].to_pylist() == [0, 2, 4]
    assert found["estimator"].to_pylist() == ["grpo"] * 3
    assert found["variance"].to_pylist() == [1.5] * 3
    assert found["cosine"].null_count == 0
    for field in found.schema:
        declared = schema.PROBES.column(field.name)
        assert declared is not None and field.type == declared.type
    assert names(tmp_path / "run").count("000002-000004-w0.parquet") == 1
    assert len(table(tmp_path / "run", "steps")) == 5


def test_a_run_without_probes_has_no_folder_for_them(tmp_path: Path) -> None:
    assert not (write_run(tmp_path / "run", some_steps(2)) / "probes").exists()


def test_a_probe_that_is_not_on_disk_yet_is_recorded_again_after_a_stop(tmp_path: Path) -> None:
    """Probes are rarer than steps: what is on disk of one table says nothing of the other."""
    steps = some_steps(4)
    probe = {"estimator": "grpo", "variance": 1.0}
    folder = tmp_path / "run"
    with RunRecorder(folder, flush_seconds=0) as recorder:
        for step in steps[:2]:
            arguments = {"tokens": step.tokens, "sequences": step.sequences, "scalars": step.scalars}
            recorder.record_step(step.number, **arguments, probes=probe if step.number == 0 else None)
    with RunRecorder(folder, resume=True) as recorder:
        assert recorder.last_step == 1
        for step in steps:
            arguments = {"tokens": step.tokens, "sequences": step.sequences, "scalars": step.scalars}
            recorder.record_step(step.number, **arguments, probes=probe if step.number in (0, 3) else None)
    assert table(folder, "probes")["step"].to_pylist() == [0, 3]
    assert table(folder, "steps")["step"].to_pylist() == [0, 1, 2, 3]


def test_a_probe_without_its_estimator_is_refused(tmp_path: Path) -> None:
    (step,) = some_steps(1)
    with (
        pytest.raises(RunFormatError, match=r"^The probes table needs the column estimator\.$"),
        RunRecorder(tmp_path / "run") as recorder,
    ):
        recorder.record_step(
            0, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars, probes={"variance": 1.0}
        )


def test_a_run_of_texts_and_of_another_time_is_recorded_as_it_is(tmp_path: Path) -> None:
    """What is not given is null or absent, and a time that is given is kept: imported steps ended long ago."""
    ended = datetime(2025, 3, 4, tzinfo=UTC)
    messages = {"seq_id": [7], "turn": [0], "role": ["user"], "content": ["2 + 2"]}
    with RunRecorder(tmp_path / "run", source={"framework": "AReaL"}, assumed=["Versions are steps."]) as recorder:
        recorder.record_step(3, sequences={"seq_id": [7], "response": ["four"]}, scalars={"wall_time": ended})
        recorder.record_step(4, sequences={"seq_id": [7]}, scalars={"wall_time": None}, messages=messages)
        recorder.record_step(5, sequences={"seq_id": [7]})
        recorder.flush()
        assert recorder.last_step == 5
    times = table(tmp_path / "run", "steps")["wall_time"].to_pylist()
    assert times[:2] == [ended, None] and times[2] > ended
    assert not list((tmp_path / "run" / "tokens").iterdir())
    assert table(tmp_path / "run", "messages").to_pylist() == [
        {"step": 4, "seq_id": 7, "turn": 0, "role": "user", "content": "2 + 2"}
    ]
    manifest = Manifest.read(tmp_path / "run")
    assert (manifest.source, manifest.assumed) == ({"framework": "AReaL"}, ["Versions are steps."])
