"""Mistakes and disk errors while recording: said at the call or at the next one, and nothing on disk is harmed."""

import errno
import os
import re
import shutil
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from ratioscope import Manifest, RatioscopeError, RunFormatError, RunRecorder, background
from ratioscope import recorder as recording
from ratioscope.analysis.runs.store import open_run
from ratioscope.run_format import schema
from ratioscope.run_format.table_files import to_arrow, write_table_file
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


@pytest.mark.parametrize("column", [c.name for c in schema.TOKENS.required if c.name != "step"])
def test_a_missing_column_raises_at_the_call(tmp_path: Path, column: str) -> None:
    step = some_steps(1)[0]
    absent = {name: values for name, values in step.tokens.items() if name != column}
    with RunRecorder(tmp_path / "run") as recorder:
        for tokens in (absent, absent | {column: None}):
            with pytest.raises(RunFormatError, match=f"tokens table needs the column {column}"):
                recorder.record_step(0, tokens=tokens, sequences=step.sequences, scalars=step.scalars)
        record(recorder, step)
    assert table(tmp_path / "run", "steps")["step"].to_pylist() == [0]


def test_missing_columns_of_other_tables_raise_at_the_call(tmp_path: Path) -> None:
    step = some_steps(1)[0]
    with RunRecorder(tmp_path / "run") as recorder:
        with pytest.raises(RunFormatError, match="sequences table needs the column seq_id"):
            recorder.record_step(0, tokens=step.tokens, sequences={"reward": [1.0]}, scalars=step.scalars)
        with pytest.raises(RunFormatError, match="probes table needs the column estimator"):
            recorder.record_step(0, tokens=step.tokens, sequences=step.sequences, probes={"batches": 1})


def test_columns_of_unequal_length_raise_at_the_call(tmp_path: Path) -> None:
    step = some_steps(1)[0]
    with RunRecorder(tmp_path / "run") as recorder, pytest.raises(RunFormatError, match="differ in length"):
        record(recorder, step.with_tokens(advantage=step.tokens["advantage"][:-1]))


def test_steps_must_grow(tmp_path: Path) -> None:
    steps = some_steps(6)
    with RunRecorder(tmp_path / "run") as recorder:
        record(recorder, steps[2])
        record(recorder, steps[5])
        for step in (steps[5], steps[3], steps[0]):
            with pytest.raises(RunFormatError, match=f"step {step.number} was recorded after step 5"):
                record(recorder, step)
        with pytest.raises(RunFormatError, match="step -1"):
            recorder.record_step(-1, tokens=steps[0].tokens, sequences=steps[0].sequences, scalars=steps[0].scalars)
    assert table(tmp_path / "run", "steps")["step"].to_pylist() == [2, 5]


def test_recording_after_the_end_is_an_error_and_not_a_loss(tmp_path: Path) -> None:
    recorder = RunRecorder(tmp_path / "run")
    recorder.close()
    with pytest.raises(RatioscopeError, match="closed"):
        record(recorder, some_steps(1)[0])


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("seq_id", [0.5, 1.0], "cannot be stored as int64"),
        ("token_id", [2**40, 1], "cannot be stored as int32"),
        ("advantage", ["a", "b"], "cannot be stored as float"),
        ("position", [None, 1], "is required, step 0 has nulls in it"),
    ],
)
def test_values_that_do_not_fit_are_an_error(column: str, values: list[Any], words: str) -> None:
    step = plain_step([-1.0, -1.0], [-1.0, -1.0]).with_tokens(**{column: values})
    with pytest.raises(RunFormatError, match=words):
        to_arrow(schema.TOKENS, step.tokens, 0)


def test_values_that_do_not_fit_stop_the_run_loudly(tmp_path: Path) -> None:
    with (
        pytest.raises(RunFormatError, match=r"advantage .* cannot be stored as float"),
        RunRecorder(tmp_path / "run") as it,
    ):
        record(it, plain_step([-1.0], [-1.0]).with_tokens(advantage=["a"]))
    assert Manifest.read(tmp_path / "run").status == "failed"


def test_an_existing_run_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", some_steps(1))
    before = names(folder)
    with pytest.raises(RunFormatError, match="already holds a run"):
        RunRecorder(folder)
    assert names(folder) == before and Manifest.read(folder).status == "finished"


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (None, "finished", ""),
        (KeyboardInterrupt(), "interrupted", "stopped by the user"),
        (ValueError(), "failed", "ValueError: "),
        (SystemExit(0), "finished", ""),
        (SystemExit(), "finished", ""),
        (SystemExit(143), "interrupted", "stopped, with exit code 143"),
        (SystemExit(3), "failed", "SystemExit: 3"),
    ],
)
def test_the_way_out_is_the_status(tmp_path: Path, error: BaseException | None, status: str, reason: str) -> None:
    def run() -> None:
        with RunRecorder(tmp_path / "run", seed=4) as recorder:
            assert Manifest.read(tmp_path / "run").live_status() == "running"
            record(recorder, some_steps(1)[0])
            if error:
                raise error

    if error:
        with pytest.raises(type(error)):
            run()
    else:
        run()
    manifest = Manifest.read(tmp_path / "run")
    assert (manifest.status, manifest.status_reason, manifest.seed) == (status, reason, 4)
    assert table(tmp_path / "run", "steps").num_rows == 1


def test_a_folder_that_vanishes_stops_the_run_loudly(tmp_path: Path) -> None:
    recorder = RunRecorder(tmp_path / "run", flush_seconds=0)
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(RatioscopeError, match="recording stopped"):
        for step in some_steps(50):
            record(recorder, step)
            recorder._background.queue.join()
    with pytest.raises(RatioscopeError, match="recording stopped"):
        recorder.close()
    assert not (tmp_path / "run").exists()


def test_a_file_in_the_way_stops_the_run_loudly_and_harms_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    recorder = RunRecorder(folder, flush_seconds=0)
    steps = some_steps(3)
    record(recorder, steps[0])
    recorder.flush()
    before = {path: path.read_bytes() for path in folder.rglob("*.parquet")}
    shutil.rmtree(folder / "sequences")
    (folder / "sequences").write_text("in the way")
    record(recorder, steps[1])
    with pytest.raises(RatioscopeError, match="recording stopped"):
        recorder.flush()
    with pytest.raises(RatioscopeError, match="recording stopped"):
        record(recorder, steps[2])
    with pytest.raises(RatioscopeError, match="recording stopped"):
        recorder.close()
    assert Manifest.read(folder).status == "failed"
    assert all(path.read_bytes() == content for path, content in before.items() if path.parent.name != "sequences")


def test_if_so_configured_an_error_ends_the_recording_only(tmp_path: Path) -> None:
    recorder = RunRecorder(tmp_path / "run", flush_seconds=0, stop_on_error=False)
    shutil.rmtree(tmp_path / "run" / "tokens")
    (tmp_path / "run" / "tokens").write_text("in the way")
    for step in some_steps(3):
        record(recorder, step)
        recorder._background.queue.join()
    recorder.close()
    manifest = Manifest.read(tmp_path / "run")
    assert manifest.status == "failed" and manifest.status_reason.startswith("recording stopped: ")


@pytest.mark.parametrize("wrong", ["text for a number", "a column less"])
@pytest.mark.parametrize("stop_on_error", [True, False])
def test_a_step_that_cannot_be_recorded_takes_no_good_one_with_it(
    tmp_path: Path, wrong: str, stop_on_error: bool, caplog: pytest.LogCaptureFixture
) -> None:
    steps = some_steps(5)
    if wrong == "a column less":
        del steps[3].tokens["position"]
    else:
        steps[3].tokens["advantage"] = ["high"] * len(steps[3].tokens["position"])
    with (
        pytest.raises(RatioscopeError) if stop_on_error else nullcontext(),
        RunRecorder(tmp_path / "run", stop_on_error=stop_on_error) as recorder,
    ):
        for step in steps:
            record(recorder, step)
    run = open_run(tmp_path / "run")
    assert (run.last_step, run.status, run.problems) == (2, "failed", ())
    assert [record.levelname for record in caplog.records] == ["WARNING"] * (not stop_on_error)


def test_a_place_that_cannot_be_written_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RatioscopeError, match="cannot be written"):
            RunRecorder(folder)


def test_half_a_surrogate_pair_is_stored_as_a_question_mark() -> None:
    cut = to_arrow(schema.SEQUENCES, {"seq_id": [0, 1], "response": ["a\ud83d", None]}, 0)
    assert cut["response"].to_pylist() == ["a?", None]


@pytest.mark.parametrize(
    "step",
    [-1, 2**31, 10**30, "3", True, np.True_, 2.0, None, torch.tensor(2.0), torch.tensor(True), np.arange(2)],
    ids=repr,
)
def test_a_step_that_no_column_holds_raises_at_the_call(tmp_path: Path, step: Any) -> None:
    said = re.escape(f"step {step!r} cannot")
    with RunRecorder(tmp_path / "run") as recorder:
        with pytest.raises(RunFormatError, match=said):
            recorder.record_step(step, sequences={"seq_id": [0]})
        recorder.record_step(torch.tensor(3), sequences={"seq_id": [0]})  # type: ignore[arg-type]
        recorder.record_step(np.int64(4), sequences={"seq_id": [0]})  # type: ignore[arg-type]
    assert table(tmp_path / "run", "steps")["step"].to_pylist() == [3, 4]


def test_what_can_be_a_number_is_one(tmp_path: Path) -> None:
    loss, version = torch.tensor(0.5, requires_grad=True), torch.tensor(7)
    half = torch.tensor([0.25], dtype=torch.bfloat16)
    scalars = {
        "loss": loss,
        "policy_version": version,
        "grad_norm": np.array(2.0),
        "extra_kl": half,
        "extra_x": np.int8(3),
    }
    step = some_steps(1)[0]
    listed = [torch.tensor(float(value)) for value in step.tokens["advantage"]]
    with RunRecorder(tmp_path / "run") as recorder:
        recorder.record_step(0, tokens=step.tokens | {"advantage": listed}, sequences=step.sequences, scalars=scalars)
        for wrong in (torch.zeros(2), [1.0, 2.0], "low"):
            with pytest.raises(RunFormatError, match="Column loss of the steps table cannot be stored"):
                recorder.record_step(1, sequences=step.sequences, scalars={"loss": wrong})
        with pytest.raises(RunFormatError, match="Column advantage of the tokens table cannot be stored"):
            flat = step.tokens["advantage"]
            recorder.record_step(1, sequences=step.sequences, tokens=step.tokens | {"advantage": flat.reshape(-1, 1)})
    row = table(tmp_path / "run", "steps").to_pylist()[0]
    assert {key: row[key] for key in scalars} == {
        "loss": 0.5, "policy_version": 7, "grad_norm": 2.0, "extra_kl": 0.25, "extra_x": 3,
    }  # fmt: skip
    assert table(tmp_path / "run", "tokens")["advantage"].to_pylist() == pytest.approx(list(step.tokens["advantage"]))


@pytest.mark.parametrize("make", [np.asarray, torch.as_tensor, pd.Series, list], ids=lambda make: make.__name__)
def test_what_is_given_may_be_used_again(tmp_path: Path, make: Any) -> None:
    """A trainer fills the same buffers for each batch: some rows held the values of a later step."""
    rng, n = np.random.default_rng(0), 2_000
    reused = {"seq_id": np.arange(n), "reward": np.empty(n, dtype=np.float32)}
    rewards = rng.normal(size=(20, n)).astype(np.float32)
    buffers = {name: make(values) for name, values in reused.items()}
    with RunRecorder(tmp_path / "run", flush_seconds=60) as recorder:
        for number, values in enumerate(rewards):
            buffers["reward"][:] = make(values)
            recorder.record_step(number, sequences=buffers)
        buffers["reward"][:] = make(np.zeros(n, dtype=np.float32))
    recorded = table(tmp_path / "run", "sequences")
    np.testing.assert_array_equal(recorded["reward"].to_numpy().reshape(20, n), rewards)


def test_an_arrow_array_over_a_buffer_may_be_used_again(tmp_path: Path) -> None:
    reward = np.zeros(3, dtype=np.float32)
    with RunRecorder(tmp_path / "run", flush_seconds=60) as recorder:
        for number in range(4):
            reward[:] = number
            columns = {"seq_id": [0, 1, 2], "reward": pa.array(reward) if number % 2 else pa.chunked_array([reward])}
            recorder.record_step(number, sequences=columns)
        reward[:] = -1
    assert table(tmp_path / "run", "sequences")["reward"].to_pylist() == [n for n in range(4) for _ in range(3)]


def test_a_column_of_ones_own_may_become_wider_and_nothing_else(tmp_path: Path) -> None:
    with RunRecorder(tmp_path / "run", flush_seconds=60) as recorder:
        for number, mine in enumerate((1, 1.5, None)):
            recorder.record_step(number, sequences={"seq_id": [0]}, scalars={"mine": mine})
        with pytest.raises(RunFormatError, match=r"the steps table of step 3 has other types than before.*mine"):
            recorder.record_step(3, sequences={"seq_id": [0]}, scalars={"mine": "high"})
    assert open_run(tmp_path / "run").steps["mine"].tolist()[:2] == [1.0, 1.5]


def test_a_vocabulary_that_the_disk_refused_is_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = []

    def write(path: Path, rows: pa.Table) -> None:
        if path.name == "vocabulary.parquet" and not refused:
            refused.append(path)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write_table_file(path, rows)

    monkeypatch.setattr("ratioscope.run_format.vocabulary.write_table_file", write)
    with RunRecorder(tmp_path / "run", vocabulary=str, flush_seconds=0) as recorder:
        record(recorder, some_steps(1)[0])
    assert refused and pq.read_table(tmp_path / "run" / "vocabulary.parquet").num_rows > 0


class Panic(BaseException):
    """As code of another language raises it: no Exception."""


def test_a_panic_of_a_tokenizer_does_not_hold_the_training_up(tmp_path: Path) -> None:
    def panics(token: int) -> str:
        raise Panic("index out of bounds")

    with RunRecorder(tmp_path / "run", vocabulary=panics, flush_seconds=0) as recorder:
        for step in some_steps(3):
            record(recorder, step)
            recorder.flush()
    assert open_run(tmp_path / "run").last_step == 2


def test_a_token_without_a_text_costs_nothing_but_its_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def decode(token: int) -> Any:
        if token == 3:
            raise OverflowError("out of range")
        return None if token == 4 else f"<{token}>"

    steps = some_steps(2)
    with RunRecorder(tmp_path / "run", vocabulary=decode, flush_seconds=0) as recorder:
        for step in steps:
            record(recorder, step.with_tokens(token_id=np.arange(len(step.tokens["seq_id"])) % 6))
            recorder.flush()
    assert pq.read_table(tmp_path / "run" / "vocabulary.parquet").to_pydict() == {
        "token_id": [0, 1, 2, 5], "text": ["<0>", "<1>", "<2>", "<5>"],
    }  # fmt: skip
    (said,) = caplog.messages
    assert "token id 3 has no text" in said and "OverflowError: out of range" in said
    assert open_run(tmp_path / "run").last_step == 1


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC, errno.ESTALE], ids=errno.errorcode.get)
def test_an_error_that_passes_loses_nothing_and_is_said_once(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = threading.Event()

    def write(path: Path, rows: pa.Table) -> None:
        if broken.is_set() and path.parent.name == "sequences":
            raise OSError(number, os.strerror(number), str(path))
        write_table_file(path, rows)

    monkeypatch.setattr(recording, "write_table_file", write)
    steps = some_steps(6)
    with RunRecorder(tmp_path / "run", flush_seconds=0) as recorder:
        for step in steps:
            (broken.set if 2 <= step.number <= 3 else broken.clear)()
            record(recorder, step)
            with pytest.raises(RatioscopeError, match="not on disk yet") if broken.is_set() else nullcontext():
                recorder.flush()
    assert Manifest.read(tmp_path / "run").status == "finished"
    for name in ("tokens", "sequences", "steps"):
        found = table(tmp_path / "run", name)["step"].to_pylist()
        assert sorted(set(found)) == list(range(6))
    assert len(table(tmp_path / "run", "tokens")) == sum(len(step.tokens["seq_id"]) for step in steps)
    assert ["tried again" in message for message in caplog.messages] == [True]


def test_what_waits_is_bounded_and_what_is_given_up_is_never_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, rows: pa.Table) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(recording, "write_table_file", write)
    monkeypatch.setattr(background, "_LAST_TRIES", (0.0,))
    for most, match in ((10, "recording stopped .*No space"), (10**9, "recording stopped .*No space")):
        monkeypatch.setattr(background, "MOST_WAITING", most)
        recorder = RunRecorder(tmp_path / f"run{most}", flush_seconds=0)
        record(recorder, some_steps(1)[0])
        recorder._background.queue.join()
        if most == 10:
            with pytest.raises(RatioscopeError, match=match):
                record(recorder, some_steps(2)[1])
        with pytest.raises(RatioscopeError, match=match):
            recorder.close()
        assert Manifest.read(tmp_path / f"run{most}").status == "failed"


def test_the_program_may_change_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with RunRecorder("run", flush_seconds=0) as recorder:
        for step in some_steps(3):
            record(recorder, step)
            recorder.flush()
            monkeypatch.chdir(tmp_path / "elsewhere")
    assert open_run(tmp_path / "run").last_step == 2 and not any((tmp_path / "elsewhere").iterdir())


def test_a_column_that_says_another_step_is_refused(tmp_path: Path) -> None:
    """It took the place of the step, and the row of the step that it named was lost without a word."""
    step = some_steps(1)[0]
    for scalars, said in (
        ({"step": 0, "loss": 1.0}, nullcontext()),
        ({"step": 8}, pytest.raises(RunFormatError, match="step of the steps table says 8, the step")),
    ):
        with said, RunRecorder(tmp_path / f"run{scalars['step']}") as recorder:
            recorder.record_step(0, tokens=step.tokens, sequences=step.sequences, scalars=scalars)
    assert table(tmp_path / "run0", "steps")["loss"].to_pylist() == [1.0]


def test_a_column_that_is_one_value_ends_the_recording_and_not_the_program(tmp_path: Path) -> None:
    step = some_steps(1)[0]
    for value in (3, np.array(3)):
        with pytest.raises(RunFormatError, match="Column advantage of the tokens table is one value"):
            RunRecorder(tmp_path / f"run{value!r}").record_step(
                0, tokens=step.tokens | {"advantage": value}, sequences=step.sequences
            )


def test_a_damaged_vocabulary_is_said_and_the_run_can_be_resumed_once_it_is_gone(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", some_steps(1), vocabulary=str)
    (folder / "vocabulary.parquet").write_bytes(b"PAR1")
    for _ in range(2):  # the first try lets go of the run
        with pytest.raises(RunFormatError, match=r"vocabulary.parquet: cannot be read .*; remove it"):
            RunRecorder(folder, resume=True)
    (folder / "vocabulary.parquet").unlink()
    RunRecorder(folder, resume=True).close()
