"""The whole summary (values, intervals, notes, histogram) is the same however the rows, files and processes are cut.

`test_partials` has the plain cuts and the cache; here are random ones, over data with everything that can go wrong.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary import order_statistics, units
from ratioscope.analysis.summary.metrics import COUNTS
from ratioscope.analysis.summary.sketch import SKETCH_ROUNDING
from ratioscope.analysis.summary.summary import StepSummary, summarise
from ratioscope.tails import QUANTILES
from tests.making.runs import Step, random_step, write_files

TOLERANCE = 1e-12
GROUPS = 8
TABLES = ("tokens", "sequences", "steps")


@pytest.fixture(scope="module")
def steps() -> list[Step]:
    """Mild, stale, nearly on-policy, and with unusable rows and ratios of 0."""
    rng = np.random.default_rng(11)
    steps = [
        random_step(rng, number, groups=GROUPS, responses=4, longest=12, spread=spread)
        for number, spread in enumerate((0.1, 0.8, 1e-4, 0.3))
    ]
    current = steps[3].tokens["logp_current"].copy()
    current[rng.choice(len(current), 8, replace=False)] = [np.nan, np.inf, 0.5, np.nan, *[-np.inf] * 4]
    return [*steps[:3], steps[3].with_tokens(logp_current=current)]


@pytest.fixture(scope="module")
def reference(steps: list[Step], tmp_path_factory: pytest.TempPathFactory) -> StepSummary:
    """One file a table."""
    folder = tmp_path_factory.mktemp("reference") / "run"
    return summarise(open_run(write_files(folder, [(table, 0, steps) for table in TABLES])))


def of_groups(step: Step, groups: NDArray[np.int64]) -> Step:
    return step.rows(np.isin(step.tokens["group_id"], groups), np.isin(step.sequences["group_id"], groups))


def shuffled_rows(folder: Path, steps: list[Step], rng: np.random.Generator) -> Path:
    mixed = [
        step.rows(rng.permutation(len(step.tokens["seq_id"])), rng.permutation(len(step.sequences["seq_id"])))
        for step in steps
    ]
    return write_files(folder, [(table, 0, mixed) for table in TABLES])


def several_writers(folder: Path, steps: list[Step], rng: np.random.Generator) -> Path:
    """Every group goes to one of four writers at random; a writer flushes after every step."""
    layout: list[tuple[str, int, list[Step]]] = [("steps", 0, steps)]
    for step in steps:
        writer = rng.integers(0, 4, GROUPS)
        layout += [
            (table, int(number), [of_groups(step, np.flatnonzero(writer == number))])
            for number in np.unique(writer)
            for table in ("tokens", "sequences")
        ]
    return write_files(folder, layout)


def files_that_share_a_step(folder: Path, steps: list[Step], rng: np.random.Generator) -> Path:
    """Of one writer: each file ends in the middle of the step that the next one begins with."""
    early = [rng.random(GROUPS) < 0.5 for _ in steps]
    layout: list[tuple[str, int, list[Step]]] = [("steps", 0, steps)]
    for table in ("tokens", "sequences"):
        layout.append((table, 0, [of_groups(steps[0], np.flatnonzero(early[0]))]))
        for step, after, first, then in zip(steps, steps[1:], early, early[1:], strict=False):
            layout.append((table, 0, [of_groups(step, np.flatnonzero(~first)), of_groups(after, np.flatnonzero(then))]))
        layout.append((table, 1, [of_groups(steps[-1], np.flatnonzero(~early[-1]))]))
    return write_files(folder, layout)


def sequences_elsewhere(folder: Path, steps: list[Step], rng: np.random.Generator) -> Path:
    """Tokens of two steps a file, sequences by other writers and cut at other steps."""
    writer = rng.integers(0, 2, GROUPS)
    layout: list[tuple[str, int, list[Step]]] = [
        ("steps", 0, steps),
        ("tokens", 0, steps[:2]),
        ("tokens", 0, steps[2:]),
    ]
    for number in (0, 1):
        parts = [of_groups(step, np.flatnonzero(writer == number)) for step in steps]
        layout += [("sequences", number, parts[:1]), ("sequences", number, parts[1:])]
    return write_files(folder, layout)


def _row_groups_of(rows: int) -> Callable[[Path, list[Step], np.random.Generator], Path]:
    def layout(folder: Path, steps: list[Step], rng: np.random.Generator) -> Path:
        write_files(folder, [(table, 0, steps) for table in TABLES])
        for path in folder.rglob("*.parquet"):
            pq.write_table(pq.read_table(path), path, row_group_size=rows)
        return folder

    return layout


LAYOUTS: dict[str, Callable[[Path, list[Step], np.random.Generator], Path]] = {
    layout.__name__: layout for layout in (shuffled_rows, several_writers, files_that_share_a_step, sequences_elsewhere)
} | {f"row_groups_of_{rows}": _row_groups_of(rows) for rows in (5, 200)}


def assert_same(found: StepSummary, expected: StepSummary) -> None:
    """Counts exactly, the rest relative to the largest term: the far end of an interval, the parts of a difference."""
    values = expected.values
    scales = pd.concat([frame.abs().replace(np.inf, 0) for frame in (values, expected.low, expected.high)])
    scale = scales.groupby(level=0).max()
    scale["chi2_token_raw"] = scale["chi2_token_raw"].clip(lower=1)
    scale["kl_k1"] = scale["kl_k1"].clip(lower=np.sqrt(2 * values["kl_k2"].replace(np.inf, 0)))
    scale["ratio_mean_z"] *= (values["ratio_mean"] / (values["ratio_mean"] - 1)).abs()
    for name in ("values", "low", "high"):
        left, right = getattr(found, name), getattr(expected, name)
        assert left.index.equals(right.index) and left.columns.equals(right.columns)
        for key in right.columns:
            tolerance = 0.0 if key in COUNTS else TOLERANCE * scale[key].fillna(0)
            same = left[key].eq(right[key]) | (left[key].isna() & right[key].isna())
            assert (same | ((left[key] - right[key]).abs() <= tolerance)).all(), (name, key)
    assert found.notes == expected.notes
    columns = ["step", "bin", "tokens"]
    pd.testing.assert_frame_equal(*(by_bin(summary.histogram[columns]) for summary in (found, expected)))


def by_bin(histogram: pd.DataFrame) -> pd.DataFrame:
    return histogram.astype("int64").sort_values(["step", "bin"], ignore_index=True)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_of_a_run_changes_nothing(
    tmp_path: Path, steps: list[Step], reference: StepSummary, layout: str
) -> None:
    folder = LAYOUTS[layout](tmp_path / "run", steps, np.random.default_rng(0))
    assert_same(summarise(open_run(folder)), reference)


@pytest.mark.parametrize(
    ("layout", "parted"), [("several_writers", True), ("row_groups_of_5", True), ("files_that_share_a_step", False)]
)
def test_steps_too_large_to_sort_have_quantiles_within_their_error(
    tmp_path: Path,
    steps: list[Step],
    reference: StepSummary,
    layout: str,
    parted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of more than 50 tokens; their units in parts, or read piece by piece."""
    monkeypatch.setattr(order_statistics, "EXACT_TOKENS", 50)
    monkeypatch.setattr(order_statistics, "_PIECE_TOKENS", 64)
    if parted:
        for name, value in (("EXACT_TOKENS", 10), ("_PART_TOKENS", 150), ("_LEAST_BYTES", 0)):
            monkeypatch.setattr(units, name, value)
    run = open_run(LAYOUTS[layout](tmp_path / "run", steps, np.random.default_rng(0)))
    assert (max(len(unit.parts) for unit in units.scan_units(run)) > 1) is parted
    found = summarise(run)
    for name in QUANTILES:
        # A ratio of 0 stays 0.
        exact, rounded = (np.log(summary.values[name].clip(lower=1e-300)) for summary in (reference, found))
        assert (np.abs(rounded - exact) <= np.maximum(SKETCH_ROUNDING * np.abs(exact), 2.0**-25) * 1.001).all(), name
        found.values[name] = reference.values[name]
    assert_same(found, reference)


def test_the_layouts_are_what_they_say(tmp_path: Path, steps: list[Step]) -> None:
    """No group straddles two files, a step does, and every row is there."""
    for name, layout in LAYOUTS.items():
        folder = layout(tmp_path / name, steps, np.random.default_rng(0))
        tables = [pq.read_table(path, columns=["step", "group_id"]) for path in (folder / "tokens").iterdir()]
        assert sum(map(len, tables)) == sum(len(step.tokens["seq_id"]) for step in steps)
        places = pd.concat([table.to_pandas().drop_duplicates() for table in tables])
        assert not places.duplicated().any(), name
        if name in ("several_writers", "files_that_share_a_step"):
            assert pd.concat([table.to_pandas()[["step"]].drop_duplicates() for table in tables]).duplicated().any()


def _contents(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_splitting_the_work_over_processes_changes_nothing(
    tmp_path: Path, steps: list[Step], reference: StepSummary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes compute half of the steps each into one cache; a third summary only reads it."""
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path / "cache"))
    folder = write_files(tmp_path / "run", [(table, 0, [step]) for table in TABLES for step in steps])
    shares = ((0, 2), (1, 3))
    outputs = [tmp_path / f"part-{first}" for first, _ in shares]
    module = [sys.executable, "-m", "tests.making.summarise_part", str(folder)]
    processes = [
        subprocess.Popen([*module, str(output), *map(str, share)], cwd=Path(__file__).parents[3])
        for output, share in zip(outputs, shares, strict=True)
    ]
    assert [process.wait() for process in processes] == [0, 0]
    parts = [pd.read_pickle(output) for output in outputs]
    assert [part.index.tolist() for part in parts] == [list(share) for share in shares]
    computed = _contents(tmp_path / "cache" / "partials")
    together = summarise(open_run(folder))
    assert computed and _contents(tmp_path / "cache" / "partials") == computed
    assert_same(together, reference)
    pd.testing.assert_frame_equal(pd.concat(parts).sort_index(), together.values.loc[[0, 1, 2, 3]], check_exact=True)
