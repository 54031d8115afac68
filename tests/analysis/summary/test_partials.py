"""Partial sums: the numbers do not depend on how rows, steps and files are cut, and nothing is scanned twice."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ratioscope import RunRecorder
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary import blocks, partials
from ratioscope.analysis.summary.metrics import COUNTS
from ratioscope.analysis.summary.summary import Summariser, summarise
from ratioscope.analysis.summary.units import ScanUnit, scan_units
from tests.making.runs import Step, random_step, write_files, write_run

TABLES = ("tokens", "sequences", "steps")


@pytest.fixture(scope="module")
def steps() -> list[Step]:
    rng = np.random.default_rng(3)
    return [random_step(rng, number, groups=8, responses=4, longest=20) for number in range(4)]


@pytest.fixture(scope="module")
def reference(steps: list[Step], tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    return summarise(open_run(write_run(tmp_path_factory.mktemp("reference") / "run", steps, flush_seconds=0))).values


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[ScanUnit]:
    """The units that are scanned from now on."""
    seen: list[ScanUnit] = []
    original = partials.scan

    def scan(units: Sequence[ScanUnit]) -> partials.Partials:
        seen.extend(units)
        return original(units)

    monkeypatch.setattr(partials, "scan", scan)
    return seen


def assert_same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    assert found.index.tolist() == expected.index.tolist()
    for key in expected.columns:
        left, right = found[key].to_numpy(), expected[key].to_numpy()
        if key in COUNTS:
            assert (left == right).all(), key
        else:
            assert left == pytest.approx(right, rel=1e-12, abs=1e-15, nan_ok=True), key


def test_the_order_of_rows_changes_nothing(tmp_path: Path, steps: list[Step], reference: pd.DataFrame) -> None:
    rng = np.random.default_rng(0)
    shuffled = []
    for step in steps:
        rows, sequences = (rng.permutation(len(columns["seq_id"])) for columns in (step.tokens, step.sequences))
        shuffled.append(step.rows(rows, sequences))
    assert_same(summarise(open_run(write_run(tmp_path / "run", shuffled))).values, reference)


def test_merging_all_steps_into_one_file_changes_nothing(
    tmp_path: Path, steps: list[Step], reference: pd.DataFrame
) -> None:
    folder = write_files(tmp_path / "run", [(table, 0, steps) for table in TABLES])
    assert len(list((folder / "tokens").iterdir())) == 1
    assert_same(summarise(open_run(folder)).values, reference)


def half(step: Step, parity: int) -> Step:
    """The prompt groups of one writer."""
    return step.rows(step.tokens["group_id"] % 2 == parity, step.sequences["group_id"] % 2 == parity)


def test_splitting_steps_over_writers_changes_nothing(
    tmp_path: Path, steps: list[Step], reference: pd.DataFrame
) -> None:
    """Writer 0 makes one file of two steps each, writer 1 one of all: their ranges overlap."""
    layout: list[tuple[str, int, list[Step]]] = [("steps", 0, steps)]
    for table in ("tokens", "sequences"):
        layout += [
            (table, 0, [half(step, 0) for step in steps[:2]]),
            (table, 0, [half(step, 0) for step in steps[2:]]),
            (table, 1, [half(step, 1) for step in steps]),
        ]
    run = open_run(write_files(tmp_path / "run", layout))
    assert len(scan_units(run)) == 1
    assert_same(summarise(run).values, reference)


def test_sequences_cut_into_other_files_than_tokens_change_nothing(
    tmp_path: Path, steps: list[Step], reference: pd.DataFrame
) -> None:
    layout: list[tuple[str, int, list[Step]]] = [("steps", 0, steps), ("sequences", 0, steps)]
    layout += [("tokens", 0, [step]) for step in steps]
    run = open_run(write_files(tmp_path / "run", layout))
    assert len(scan_units(run)) == len(steps)
    assert_same(summarise(run).values, reference)


def test_two_recorders_on_one_run_give_the_numbers_of_one(
    tmp_path: Path, steps: list[Step], reference: pd.DataFrame
) -> None:
    folder = write_run(tmp_path / "run", [half(step, 0) for step in steps])
    with RunRecorder(folder, resume=True, writer=1) as recorder:
        for step in (half(step, 1) for step in steps):
            recorder.record_step(step.number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
    assert_same(summarise(open_run(folder)).values, reference)


def test_the_second_reading_comes_from_the_cache(
    tmp_path: Path, steps: list[Step], reference: pd.DataFrame, scans: list[ScanUnit]
) -> None:
    folder = write_run(tmp_path / "run", steps, flush_seconds=0)
    assert_same(summarise(open_run(folder)).values, reference)
    assert len(scans) == len(steps)
    assert_same(summarise(open_run(folder)).values, reference)
    assert len(scans) == len(steps)


def test_only_the_new_files_of_a_growing_run_are_scanned(
    tmp_path: Path,
    steps: list[Step],
    reference: pd.DataFrame,
    scans: list[ScanUnit],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blocks, "UNITS", 3)
    summariser = Summariser()
    with RunRecorder(tmp_path / "run", flush_seconds=float("inf")) as recorder:
        for step in steps:
            recorder.record_step(step.number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
            recorder.flush()
            found = summariser.summarise(open_run(tmp_path / "run"))
            assert found.last_step == step.number
            assert len(scans) == step.number + 1
            assert [file.name.last_step for file in scans[-1].tokens] == [step.number]
    assert_same(found.values, reference)


def test_steps_of_a_full_block_are_read_without_their_partials(
    tmp_path: Path,
    steps: list[Step],
    reference: pd.DataFrame,
    scans: list[ScanUnit],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(blocks, "UNITS", 3)
    run = open_run(write_run(tmp_path / "run", steps, flush_seconds=0))
    computed = summarise(run)
    for unit in scan_units(run)[:3]:
        assert not partials.kept(unit).there  # of small units the table of their block is enough
    for path in (tmp_path / "cache" / "summaries").iterdir():
        path.unlink()
    found = summarise(run)
    assert len(scans) == len(steps) == 4
    for name in ("values", "low", "high"):
        pd.testing.assert_frame_equal(getattr(found, name), getattr(computed, name), check_exact=True)
    assert {step: dict(notes) for step, notes in found.notes.items()} == dict(computed.notes)
    assert_same(found.values, reference)


def test_a_replaced_file_is_read_again(tmp_path: Path, steps: list[Step], scans: list[ScanUnit]) -> None:
    folder = write_files(tmp_path / "run", [("tokens", 0, steps[:1]), ("sequences", 0, steps[:1])])
    before = summarise(open_run(folder)).values.loc[0, "s_k"]
    on_policy = steps[0].with_tokens(logp_current=steps[0].tokens["logp_behavior"])
    write_files(folder, [("tokens", 0, [on_policy])])
    assert before > 0 and summarise(open_run(folder)).values.loc[0, "s_k"] == 0
    assert len(scans) == 2


def test_a_broken_cache_is_computed_anew(
    tmp_path: Path, steps: list[Step], reference: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path / "cache"))
    folder = write_run(tmp_path / "run", steps, flush_seconds=0)
    summarise(open_run(folder))
    kept = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert {path.parent.name for path in kept} == {"footers", "partials", "summaries"}
    for path in kept:
        path.write_bytes(path.read_bytes()[:-1])
    assert_same(summarise(open_run(folder)).values, reference)


def test_a_run_leaves_one_entry_a_file_and_two_more(
    tmp_path: Path, steps: list[Step], reference: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partials for each file of tokens; one summary, one list of files that cannot be read. Opening again adds none."""
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path / "cache"))
    folder = write_run(tmp_path / "run", steps, flush_seconds=0)
    for _ in range(2):
        assert_same(summarise(open_run(folder)).values, reference)
        kept = [path.parent.name for path in (tmp_path / "cache").rglob("*") if path.is_file()]
        assert sorted(kept) == ["footers", *["partials"] * len(steps), "summaries"]


def test_a_summary_from_the_cache_is_the_one_that_was_computed(tmp_path: Path, steps: list[Step]) -> None:
    """To the last digit, with its notes, and free to be changed by whoever asked for it."""
    folder = write_run(tmp_path / "run", steps)
    computed, kept = summarise(open_run(folder)), summarise(open_run(folder))
    for name in ("values", "low", "high", "histogram", "steps"):
        pd.testing.assert_frame_equal(getattr(kept, name), getattr(computed, name), check_exact=True)
    assert {step: dict(notes) for step, notes in kept.notes.items()} == dict(computed.notes)
    kept.values.loc[:, :] = 0.0


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, steps: list[Step], reference: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path / "file"))
    assert_same(summarise(open_run(write_run(tmp_path / "run", steps, flush_seconds=0))).values, reference)


def test_the_version_lag_is_counted_in_versions_not_in_steps(tmp_path: Path) -> None:
    """The policy is at version 100 + 4 k in step k; some tokens are of it, some of the version before."""
    steps = []
    for number in range(3):
        step = random_step(np.random.default_rng(number), number)
        behind = np.arange(len(step.tokens["seq_id"])) % 2 * 4
        step = step.with_tokens(behavior_version=(100 + 4 * number - behind).astype(np.int32))
        steps.append(replace(step, scalars=step.scalars | {"policy_version": 100 + 4 * number}))
    run = open_run(write_run(tmp_path / "run", steps))
    assert summarise(run).values["version_lag"].tolist() == pytest.approx([2, 2, 2], abs=0.1)
    with relations(run) as connection:
        lags = connection.execute("select distinct version_lag from usable order by 1").fetchall()
    assert lags == [(0,), (4,)]
