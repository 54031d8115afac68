"""Recording into an object storage: through outages and crashes, nothing is lost and nothing is left."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ratioscope import Manifest, RatioscopeError, RunFormatError, RunRecorder
from ratioscope.storage import spool
from ratioscope.storage.failures import StorageError
from ratioscope.storage.parquet import read_table
from ratioscope.storage.places import place
from tests import object_storage
from tests.making.runs import Step, random_step
from tests.object_storage import Storage, forget_all


@pytest.fixture(scope="module")
def served() -> Iterator[Storage]:
    with object_storage.serving() as storage:
        yield storage


@pytest.fixture
def storage(served: Storage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Storage:
    object_storage.configure(served, monkeypatch, tmp_path / "cache")
    monkeypatch.setenv("RATIOSCOPE_SPOOL", str(tmp_path / "spool"))
    monkeypatch.setattr(spool, "_PAUSE", 0.05)
    return served


def steps(count: int) -> list[Step]:
    rng = np.random.default_rng(0)
    return [random_step(rng, number) for number in range(count)]


def record(recorder: RunRecorder, step: Step) -> None:
    recorder.record_step(step.number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)


def on_storage(url: str) -> list[int]:
    forget_all()
    return sorted(step for path in place(url).glob("steps/*.parquet") for step in read_table(path)["step"].to_pylist())


def test_a_run_survives_an_outage(storage: Storage, tmp_path: Path) -> None:
    url = "s3://bucket/outage"
    first, second, third = steps(3)
    with RunRecorder(url, flush_seconds=0, vocabulary=str) as recorder:
        record(recorder, first)
        recorder.flush()
        storage.down = True
        record(recorder, second)
        recorder.flush()  # updates go on
        storage.down = False
        record(recorder, third)
    assert on_storage(url) == [0, 1, 2]
    assert Manifest.read(place(url)).status == "finished" and (place(url) / "vocabulary.parquet").exists()
    assert list((tmp_path / "spool").iterdir()) == []
    with pytest.raises(RunFormatError, match="already holds a run"):
        RunRecorder(url)


def test_what_is_not_through_is_said_and_sent_by_who_resumes(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "CLOSE_SECONDS", 0.2)
    url = "s3://bucket/lost"
    first, second, third = steps(3)
    recorder = RunRecorder(url, flush_seconds=0)
    record(recorder, first)
    recorder.flush()
    storage.down = True
    record(recorder, second)
    with pytest.raises(RatioscopeError, match=r"files \(\d.\d MB\) are not there yet .*503.* kept in .*resume=True"):
        recorder.close()
    storage.down = False
    assert 1 not in on_storage(url)
    (place(url) / "run.json").rename(place(url) / "moved.json")
    with pytest.raises(RunFormatError, match="did not get through to s3://bucket/lost; resume that run"):
        RunRecorder(url)
    with RunRecorder(url, resume=True, flush_seconds=0) as again:
        assert again.last_step == 1
        record(again, third)
    assert on_storage(url) == [0, 1, 2]
    assert list((tmp_path / "spool").iterdir()) == []


def test_steps_are_set_aside_there(storage: Storage) -> None:
    url = "s3://bucket/aside"
    with RunRecorder(url, flush_seconds=0) as recorder:
        for step in steps(2):
            record(recorder, step)
            recorder.flush()
    with RunRecorder(url, resume=True) as again:
        again.set_aside(1)
        assert again.last_step == 0
    assert on_storage(url) == [0]
    assert len(list(place(url).glob("set_aside/*/steps/*.parquet"))) == 1


def test_where_nothing_can_be_written_is_said_at_once(storage: Storage) -> None:
    with pytest.raises(StorageError, match="there is no bucket nobucket"):
        RunRecorder("s3://nobucket/run")
    storage.failures += ["", "", "403"]
    with pytest.raises(StorageError, match="refuses access"):
        RunRecorder("s3://bucket/refused")
    RunRecorder("s3://bucket/refused").close()
