"""A run in an object storage is the run: the same numbers and findings, and few bytes moved."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.runs.fingerprint import fingerprint
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import discover, open_run, run_signature
from ratioscope.analysis.sql import QueryError, ask
from ratioscope.analysis.summary import blocks, partials
from ratioscope.analysis.summary.summary import summarise
from ratioscope.dashboard.cli import app
from ratioscope.errors import RatioscopeError
from ratioscope.run_format import schema
from ratioscope.storage.failures import StorageError
from ratioscope.storage.parquet import footer
from ratioscope.storage.places import place
from tests import object_storage
from tests.making.runs import random_step, write_run
from tests.object_storage import Storage, forget_all

ROOT = Path(__file__).parents[2]
NAME = "sync_interval20-grpo-seed0"
LOCAL = ROOT / "sample_runs" / NAME
URL = f"s3://bucket/it's here/{NAME}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    with object_storage.serving() as storage, pytest.MonkeyPatch.context() as patch:
        object_storage.configure(storage, patch, tmp_path_factory.mktemp("cache"))
        for path in LOCAL.rglob("*"):
            if path.is_file():
                (place(URL) / path.relative_to(LOCAL)).write_bytes(path.read_bytes())
        yield storage


@pytest.fixture
def storage(served: Storage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Storage:
    object_storage.configure(served, monkeypatch, tmp_path / "cache")
    return served


def test_a_run_elsewhere_is_the_same_run(storage: Storage) -> None:
    here, there = open_folder(LOCAL), open_folder(URL)
    assert str(there.run.folder) == URL and there.run_id == here.run_id
    pd.testing.assert_frame_equal(there.summary.values, here.summary.values)
    assert [str(finding) for finding in there.findings] == [str(finding) for finding in here.findings]
    assert fingerprint(there.run) == fingerprint(here.run)
    size = sum(path.stat().st_size for path in LOCAL.rglob("*.parquet"))
    assert storage.bytes_read < 1.1 * size
    forget_all()
    storage.reset()
    open_folder(URL)  # another process: the cache has all but run.json
    assert storage.bytes_read < 10_000


def test_a_query_moves_the_columns_and_row_groups_it_needs(storage: Storage) -> None:
    run = open_run(URL)
    assert storage.bytes_read <= 10_000 + sum(min(file.size, 16_384) for files in run.files.values() for file in files)
    needed = 0
    for file in run.files["tokens"]:
        found = footer(file.path)
        for group in map(found.row_group, range(found.num_row_groups)):
            chunks = map(group.column, range(group.num_columns))
            needed += sum(c.total_compressed_size for c in chunks if c.path_in_schema in ("step", "logp_current"))
    storage.reset()
    with relations(run, 10, 10, tables=[schema.TOKENS]) as connection:
        connection.execute("select sum(logp_current) from token").fetchall()
    assert 0.9 * needed < storage.bytes_read <= needed + 100 < 0.25 * sum(file.size for file in run.files["tokens"])


def test_runs_are_found_and_news_of_them(storage: Storage) -> None:
    listed = discover(["s3://bucket/it's here"])
    assert [(run.run_id, run.steps, run.problem) for run in listed] == [(NAME, open_run(LOCAL).last_step + 1, "")]
    before = run_signature(place(URL))
    broken = place(URL) / "steps" / "00000900-00000900-w0.parquet"
    broken.write_bytes(b"not a table")
    assert run_signature(place(URL)) != before
    assert [
        problem
        for problem in open_run(URL).problems
        if "00000900-00000900-w0.parquet: left out, not a complete" in problem
    ]
    (place(URL) / "steps" / "00000900-00000900-w0.parquet").unlink()
    assert run_signature(place(URL)) == before


def test_a_storage_that_does_not_answer_hides_no_other_runs(storage: Storage, tmp_path: Path) -> None:
    write_run(tmp_path / "mine", [random_step(np.random.default_rng(0))])
    storage.down = True
    listed = {run.run_id: run.problem for run in discover(["s3://bucket/it's here", tmp_path])}
    assert listed["mine"] == "" and "did not answer" in listed["s3://bucket/it's here"]


def test_an_empty_object_is_a_file_left_out(storage: Storage, tmp_path: Path) -> None:
    folder = place("s3://bucket/empty/run")
    local = write_run(tmp_path / "run", [random_step(np.random.default_rng(0))])
    for path in local.rglob("*.*"):
        if path.is_file():
            (folder / path.relative_to(local)).write_bytes(path.read_bytes())
    (folder / "tokens" / "000001-000001-w0.parquet").write_bytes(b"")
    run = open_run(folder)
    assert len(run.problems) == 1 and "000001-000001-w0.parquet: left out" in run.problems[0]
    assert len(run.files["tokens"]) == 1


def test_commands_take_urls_and_say_what_is_wrong(storage: Storage) -> None:
    def said(*words: str) -> str:
        return CliRunner().invoke(app, words).output

    assert NAME in said("ls", "s3://bucket/it's here")
    assert said("summarize", URL).replace(URL, "") == said("summarize", str(LOCAL)).replace(str(LOCAL), "")
    missing = CliRunner().invoke(app, ["summarize", "s3://nobucket/run"])
    assert isinstance(missing.exception, RatioscopeError) and "there is no bucket nobucket" in str(missing.exception)


def test_machines_share_partials_by_a_url(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(blocks, "UNITS", 2)
    rng = np.random.default_rng(0)
    folder = write_run(tmp_path / "run", [random_step(rng, number) for number in range(5)], flush_seconds=0)
    expected = summarise(open_run(folder)).values

    def machine(name: str) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        monkeypatch.setenv("RATIOSCOPE_CACHE", "s3://bucket/cache")
        forget_all()

    for number in (1, 2):
        machine(f"node-{number}")
        words = ["partials", str(folder), "--shard", f"{number}/2", "--cache", "s3://bucket/cache"]
        outcome = CliRunner().invoke(app, words)
        assert outcome.exit_code == 0 and "units are in s3://bucket/cache/partials." in outcome.output
    machine("laptop")
    assert len(list(place("s3://bucket/cache/partials").iterdir())) == 5
    assert len(list(place("s3://bucket/cache/steps").iterdir())) == 2
    with monkeypatch.context() as patch:
        patch.setattr(partials, "scan", lambda *_: pytest.fail("tokens are read"))
        pd.testing.assert_frame_equal(summarise(open_run(folder)).values, expected, rtol=1e-12, atol=1e-15)
    machine("alone")
    storage.down = True
    pd.testing.assert_frame_equal(summarise(open_run(folder)).values, expected, rtol=1e-12, atol=1e-15)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and "This cache is not read for now." in said[0] and "Nothing is put" in said[1]


def test_a_storage_that_fails_is_one_sentence(storage: Storage) -> None:
    run = open_run(URL)
    storage.down = True
    said = "did not answer in 4 attempts (HTTP status 503)"
    with pytest.raises(StorageError) as caught:
        summarise(run)
    assert said in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(StorageError) as caught, relations(run) as connection:
        connection.execute("select sum(entropy) from token").fetchall()
    assert said in str(caught.value) and "\n" not in str(caught.value)
    storage.down = False
    with pytest.raises(QueryError, match="on this machine"):
        ask(run, summarise(run), "select 1")
    with pytest.raises(RatioscopeError, match=r"there is no such folder"):
        open_run("s3://bucket/nothing")
