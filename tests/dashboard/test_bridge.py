"""The bridge: the numbers of the summary with their marks, each step once, in every target that is installed."""

import csv
import importlib
import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
from typer.testing import CliRunner

from ratioscope import RatioscopeError, RunRecorder
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.bridge import TARGETS, Bridge
from ratioscope.dashboard.bridge.numbers import chosen, steps_beyond
from ratioscope.dashboard.bridge.targets import Wanted
from ratioscope.dashboard.cli import app, bridging
from ratioscope.notes import is_unreliable
from tests.making.runs import random_step, write_run

HOSTILE = "<script>\x1b[31m@all [x](http://evil)</script>" + "n" * 300
METRICS = ["u_k", "chi2_token", "reward"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered, and what services write by themselves, stays here."""
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    for name, module in [*sys.modules.items()]:  # it is asked when trackio is imported, and TRL imports trackio
        if name.startswith("trackio") and hasattr(module, "TRACKIO_DIR"):
            monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "trackio")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)


def steps(first: int, n: int) -> list[Any]:
    rng = np.random.default_rng(first)
    return [random_step(rng, step, groups=5, responses=4, spread=0.2) for step in range(first, first + n)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", steps(0, 3), name=HOSTILE)


def bridge(folder: Path, to: str, *options: str) -> str:
    metrics = [word for key in METRICS for word in ("--metric", key)]
    result = CliRunner().invoke(app, ["bridge", str(folder), "--to", to, *metrics, *options])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def more(folder: Path) -> None:
    """Three steps more."""
    recorder = RunRecorder(folder, resume=True)
    with recorder:
        for step in steps(3, 3):
            recorder.record_step(step.number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)


def expected(folder: Path) -> dict[int, dict[str, float]]:
    """By step what services get, from the summary."""
    summary, found = summarise(open_run(folder)), {}
    for step in summary.values.index:
        row: dict[str, float] = {}
        for key in METRICS:
            numbers = {"": summary.values, "/low": summary.low, "/high": summary.high}
            row |= {f"ratioscope/{key}{end}": frame[key][step] for end, frame in numbers.items()
                    if np.isfinite(frame[key][step])}  # fmt: skip
            if key == "chi2_token":
                row[f"ratioscope/{key}/doubt"] = float(is_unreliable(summary.note(step, key)))
        found[int(step)] = row
    return found


def test_a_training_loop_sends_each_step_once(folder: Path) -> None:
    sent: list[dict[str, float]] = []
    loop = Bridge(folder, sent.append, metrics=METRICS)
    assert loop.send() == 3 and loop.send() == 0
    more(folder)
    assert loop.send() == 3
    assert {int(row.pop("ratioscope/step")): row for row in sent} == expected(folder)
    assert Bridge(folder, sent.append, after=4).send() == 1
    with pytest.raises(RatioscopeError, match="u_kk"):
        Bridge(folder, sent.append, metrics=["u_kk"])


def test_what_is_undefined_is_not_sent(folder: Path) -> None:
    for numbers in steps_beyond(summarise(open_run(folder)), chosen(None), -1):
        assert all(np.isfinite(value) for value in numbers.flat.values())
        missing = [key for key, metric in numbers.metrics.items() if not np.isfinite(metric.value)]
        assert missing and not {f"ratioscope/{key}" for key in missing} & numbers.flat.keys()
        assert "ratioscope/u_k" in numbers.flat and all(numbers.metrics[key].text for key in missing)


def test_csv_has_every_number_with_its_marks_and_goes_on_where_it_ended(folder: Path) -> None:
    assert "3 new steps" in bridge(folder, "csv", "-o", "out.csv")
    path = Path("out.csv")
    before = path.read_text()
    assert "no new steps" in bridge(folder, "csv", "-o", "out.csv") and path.read_text() == before
    more(folder)
    path.write_text(before[:-9])  # killed in the middle of a row
    assert "4 new steps" in bridge(folder, "csv", "-o", "out.csv")
    rows = list(csv.DictReader(path.open()))
    assert [int(row["step"]) for row in rows] == list(range(6))
    for row, numbers in zip(rows, expected(folder).values(), strict=True):
        for key in METRICS:
            for column, name in ((key, ""), (f"{key}.low", "/low"), (f"{key}.high", "/high")):
                value = numbers.get(f"ratioscope/{key}{name}")
                assert row[column] == ("" if value is None else repr(float(value)))
    with pytest.raises(RatioscopeError, match="other columns"):
        CliRunner().invoke(app, ["bridge", str(folder), "--to", "csv", "-o", "out.csv"], catch_exceptions=False)
    with pytest.raises(RatioscopeError, match="inside the run"):
        bridge(folder, "csv", "-o", str(folder / "out.csv"))


def test_a_live_run_is_followed_to_its_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = RunRecorder(folder, resume=True)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        """One more step each time, and then the end."""
        waits.append(seconds)
        if len(waits) > 2:
            recorder.close()
            return
        (step,) = steps(2 + len(waits), 1)
        recorder.record_step(step.number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
        recorder.flush()

    monkeypatch.setattr(bridging, "time", SimpleNamespace(sleep=wait))
    assert "5 new steps" in bridge(folder, "csv", "-o", "out.csv", "--follow", "--every", "0.5")
    assert waits == [0.5] * 3 and len(Path("out.csv").read_text().splitlines()) == 6


def test_the_command_knows_every_target() -> None:
    assert set(get_args(bridging.TargetName)) == set(TARGETS)


def test_names_from_a_log_are_harmless_in_a_service(folder: Path) -> None:
    wanted = Wanted(open_run(folder), METRICS)
    assert len(wanted.name) <= 120 and not set(wanted.name) & set("<>@[]\x1b") and wanted.run_id.isalnum()


def test_a_service_that_is_not_installed_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(RatioscopeError, match="pip install trackio"):
        bridge(folder, "trackio")


def read_tensorboard(tmp_path: Path) -> Iterator[tuple[str, int, float]]:
    accumulator = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(tmp_path / "tb"), size_guidance={"scalars": 0})
    events.Reload()
    for tag in events.Tags()["scalars"]:
        yield from ((tag, event.step, event.value) for event in events.Scalars(tag))


def read_trackio(tmp_path: Path) -> Iterator[tuple[str, int, float]]:
    storage = importlib.import_module("trackio.sqlite_storage").SQLiteStorage
    (name,) = storage.get_runs("ratioscope")
    for row in storage.get_logs("ratioscope", name):
        yield from ((key, row["step"], value) for key, value in row.items() if key.startswith("ratioscope/"))


def read_wandb(tmp_path: Path) -> Iterator[tuple[str, int, float]]:
    records = importlib.import_module("wandb.proto.wandb_internal_pb2")
    for path in sorted(tmp_path.glob("wandb/offline-run-*/*.wandb")):
        for data in records_in(path.read_bytes()):
            record = records.Record.FromString(data)
            items = {"/".join(item.nested_key) or item.key: json.loads(item.value_json)
                     for item in record.history.item}  # fmt: skip
            for name, value in items.items():
                if name.startswith("ratioscope/") and name != "ratioscope/step":
                    yield name, items["ratioscope/step"], value


def records_in(data: bytes, block: int = 32_768, header: int = 7) -> Iterator[bytes]:
    """The records of a LevelDB log with a header: each part has a checksum, its length, and whether it ends one."""
    place, parts = header, b""
    while place + header <= len(data):
        if block - place % block < header:
            place += block - place % block
        _, length, kind = struct.unpack("<IHB", data[place : place + header])
        parts += data[place + header : place + header + length]
        place += header + length
        if kind in (1, 4):
            yield parts
            parts = b""


READ = {"tensorboard": read_tensorboard, "trackio": read_trackio, "wandb": read_wandb}


@pytest.mark.parametrize("to", READ)
def test_a_service_has_every_step_once(to: str, folder: Path, tmp_path: Path) -> None:
    pytest.importorskip(to)
    options = {"tensorboard": ["-o", str(tmp_path / "tb")], "wandb": ["-o", str(tmp_path)]}.get(to, [])
    assert "3 new steps" in bridge(folder, to, *options)
    assert "no new steps" in bridge(folder, to, *options)
    more(folder)
    assert "3 new steps" in bridge(folder, to, *options)
    found = sorted(READ[to](tmp_path))
    assert [(name, step) for name, step, _ in found] == sorted(
        (name, step) for step, row in expected(folder).items() for name in row
    )
    wanted = expected(folder)
    assert [value for *_, value in found] == pytest.approx([wanted[step][name] for name, step, _ in found], rel=1e-6)


def test_metrics_that_are_asked_for_later_are_sent_from_the_start(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    bridge(folder, "tensorboard", "-o", str(tmp_path / "tb"))
    assert "3 new steps" in bridge(folder, "tensorboard", "-o", str(tmp_path / "tb"), "--metric", "entropy")
    found = [(name, step) for name, step, _ in read_tensorboard(tmp_path)]
    assert len(found) == len(set(found)) and ("ratioscope/entropy", 0) in found and CATALOGUE["entropy"]
