"""Ray: the numbers are those of one process, also where workers are lost; what a worker cannot do is said."""

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.summary import on_ray
from ratioscope.analysis.summary.partials import Tables, UnitBatch, kept, scan_alone
from ratioscope.analysis.summary.shards import fill, missing
from ratioscope.analysis.summary.summary import summarise
from ratioscope.analysis.summary.units import scan_units
from ratioscope.errors import RatioscopeError
from ratioscope.storage.cache import cached_in
from tests.making.commands import command
from tests.making.runs import random_step, write_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    rng = np.random.default_rng(5)
    return open_run(write_run(tmp_path / "run", [random_step(rng, number) for number in range(2)], flush_seconds=0))


def lost_at_first(marks: Path, batch: UnitBatch) -> Tables:
    """A scan whose first process is killed, as with a machine that is taken away."""
    mark = marks / str(batch[0].steps[0])
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return scan_alone(batch)


def breaks(batch: UnitBatch) -> Tables:
    raise OSError("no space left on device")


def lost(batch: UnitBatch) -> Tables:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def test_lost_workers_change_no_number_and_errors_are_one_sentence(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "local")
    (tmp_path / "marks").mkdir()
    units = scan_units(run)
    expected = summarise(run).values
    with on_ray.on_ray(scan=partial(lost_at_first, tmp_path / "marks")) as engine, cached_in(tmp_path / "cache"):
        done: list[int] = []
        fill(units, lambda number, of: done.append(number), engine)
        assert list((tmp_path / "marks").iterdir())
        assert missing(units) == []
        assert done == sorted(done)
        pd.testing.assert_frame_equal(summarise(run).values, expected, rtol=1e-12, atol=1e-15)

        ray: Any = engine.args[0]  # type: ignore[attr-defined]
        with cached_in(tmp_path / "other"):
            with pytest.raises(RatioscopeError, match=r"run/tokens: vanished or changed .*no space left on device"):
                fill(units, engine=partial(on_ray._scanned, ray, breaks))
            monkeypatch.setattr(on_ray, "_RETRIES", 0)
            with pytest.raises(RatioscopeError, match=r"^ray: a task was lost 1 times, most likely for want of memory"):
                fill(units, engine=partial(on_ray._scanned, ray, lost))
            assert missing(units) == units


def test_a_worker_with_other_files_or_another_ratioscope_says_so(run: Run) -> None:
    batch = scan_units(run)[:1]
    with pytest.raises(RatioscopeError, match=r"^ray: the worker on \S+ has another ratioscope"):
        on_ray._checked(scan_alone, batch, "another key")
    key = kept(batch[0]).key
    batch[0].tokens[0].path.unlink()
    with pytest.raises(RatioscopeError, match=r"parquet: the Ray worker on \S+ does not see it"):
        on_ray._checked(scan_alone, batch, key)


def test_a_cluster_that_does_not_answer_is_one_sentence(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*options: str) -> str:
        return command(monkeypatch, capsys, "partials", run.folder, *options).failed()

    assert "ray: the cluster at 127.0.0.1:1 does not answer" in said("--engine", "ray", "--address", "127.0.0.1:1")
    assert "add --engine ray" in said("--address", "auto")
    assert "choose threads or ray" in said("--engine", "spark")
