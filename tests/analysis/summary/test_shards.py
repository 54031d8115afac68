"""Shards: every unit is somebody's, the numbers are those of one process, and what is there is not computed again."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.summary import partials
from ratioscope.analysis.summary.shards import fill, missing, shard
from ratioscope.analysis.summary.summary import summarise
from ratioscope.analysis.summary.units import scan_units
from ratioscope.errors import RatioscopeError
from ratioscope.storage.cache import cached_in
from tests.making.commands import command
from tests.making.runs import random_step, write_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    rng = np.random.default_rng(5)
    return open_run(write_run(tmp_path / "run", [random_step(rng, number) for number in range(5)], flush_seconds=0))


def no_scan(*_: object) -> None:
    raise AssertionError("tokens are read")


def test_shards_give_the_numbers_of_one_process_and_the_summary_then_reads_no_token(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a shared folder, read by a machine that has the run elsewhere."""
    units = scan_units(run)
    shares = [shard(units, number, 3) for number in (1, 2, 3)]
    assert sorted((unit for share in shares for unit in share), key=units.index) == units
    expected = summarise(run).values
    shutil.copytree(run.folder, tmp_path / "elsewhere" / "run")  # as `cp -p`
    with cached_in(tmp_path / "shared"):
        for share in shares:
            assert len(missing(share)) == len(share)
            fill(share)
        monkeypatch.setattr(partials, "scan", no_scan)
        fill(units)
        found = summarise(open_run(tmp_path / "elsewhere" / "run")).values
    pd.testing.assert_frame_equal(found, expected, rtol=1e-12, atol=1e-15)


def test_what_was_interrupted_goes_on_where_it_was(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    units = scan_units(run)
    monkeypatch.setattr(partials, "_FEWEST_TOKENS", 1)

    def interrupt(done: int, of: int) -> None:
        assert of == len(units)
        if done == 2:
            raise KeyboardInterrupt

    with cached_in(tmp_path / "shared"):
        with pytest.raises(KeyboardInterrupt):
            fill(units, interrupt)
        assert len(missing(units)) == 3
        kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "shared" / "partials").iterdir()}
        fill(units)
        assert not missing(units)
        assert kept == {path: path.stat().st_mtime_ns for path in kept}


def test_a_cache_that_keeps_nothing_is_one_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATIOSCOPE_CACHE_LIMIT", "0")
    with pytest.raises(RatioscopeError, match=r"does not keep partials; .* raise RATIOSCOPE_CACHE_LIMIT"):
        fill(scan_units(run))


def test_the_command_counts_what_is_done(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def asked(*words: object) -> tuple[int, str]:
        outcome = command(monkeypatch, capsys, "partials", run.folder, "--cache", tmp_path / "shared", *words)
        return outcome.code, outcome.out.partition(" units")[0]

    assert asked("--list") == (1, "0 of 5")
    assert asked("--shard", "2/2") == (0, "2 of 2")
    assert asked("--list") == (1, "2 of 5")
    assert asked("--list", "--shard", "2/2") == asked("--shard", "2/2") == (0, "2 of 2")
    assert asked() == asked("--list") == (0, "5 of 5")
    for wrong in ("0/2", "3/2", "1", "one/two", "1/2/3"):
        said = command(monkeypatch, capsys, "partials", run.folder, "--shard", wrong).failed()
        assert "write I/N" in said
