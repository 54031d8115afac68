"""The compiled sums against those of SQL: whatever columns lack, however far ratios go and however rows lie."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary import compiled, partials, sums
from ratioscope.analysis.summary.units import ScanUnit, scan_units
from ratioscope.run_format.table_files import write_table_file
from tests.making.runs import Step, random_step, write_files, write_run

pytest.importorskip("numba")

LOGGED = (
    "logp_behavior", "logp_behavior_train", "logp_current", "logp_new", "advantage", "clip_side", "clipped",
    "behavior_version",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _small_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_FEWEST", 0)
    monkeypatch.setattr(compiled, "_WORTH_LOADING", 0)


@pytest.fixture
def compiled_scans(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many files were summed by each compiled scan."""
    seen: list[int] = []
    original = compiled.sums_of

    def sums_of(files: list[object]) -> object:
        seen.append(len(files))
        return original(files)  # type: ignore[arg-type]

    monkeypatch.setattr(compiled, "sums_of", sums_of)
    yield seen


def steps(spread: float = 0.3, **columns: object) -> list[Step]:
    rng = np.random.default_rng(5)
    made = [random_step(rng, number, groups=5, responses=4, longest=40, spread=spread) for number in range(3)]
    return [step.with_tokens(entropy=None, gate=None, **columns) for step in made]


def test_a_column_that_the_pass_does_not_have_is_left_to_sql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled_scans: list[int]
) -> None:
    """A metric that the catalogue has and the kernel had not was missing, or an error, on large runs."""
    units = scan_units(open_run(write_run(tmp_path / "run", steps())))
    partials.scan(units)
    assert compiled_scans
    compiled_scans.clear()
    monkeypatch.setattr(compiled, "sum_columns", lambda grain: frozenset({"log_rho", "log_engine"}))
    assert "kl_k3" in partials.scan(units).groups and not compiled_scans


def test_what_is_compiled_is_named_after_its_text() -> None:
    """numba keeps what it compiled by name and does not look at constants."""
    name = compiled.summing().__name__
    assert name.removeprefix("sums_") == hashlib.sha256(compiled.source().encode()).hexdigest()[:16]


def test_files_that_add_up_load_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_FEWEST", 10)
    monkeypatch.setattr(compiled, "_WORTH_LOADING", 250)
    monkeypatch.setattr(compiled, "_asked", 0)
    monkeypatch.setattr(compiled, "loaded", lambda: False)
    assert [compiled.pays(rows) for rows in (100, 5, 100, 9, 100)] == [False, False, False, False, True]
    monkeypatch.setattr(compiled, "loaded", lambda: True)
    monkeypatch.setattr(compiled, "_asked", 0)
    assert compiled.pays(10) and not compiled.pays(9)


def with_nulls(folder: Path, share: float) -> Path:
    """A run in which this share of each logged column's values is null."""
    rng = np.random.default_rng(7)
    for path in (folder / "tokens").iterdir():
        table = pq.read_table(path)
        for name in set(LOGGED) & set(table.column_names):
            missing = pa.array(rng.random(len(table)) < share)
            place = table.column_names.index(name)
            column = pc.if_else(missing, pa.scalar(None, table[name].type), table[name])
            table = table.set_column(place, table.field(name), column)
        write_table_file(path, table)
    return folder


def assert_both_agree(units: list[ScanUnit], monkeypatch: pytest.MonkeyPatch) -> None:
    found = partials.scan_alone(units)
    monkeypatch.setattr(compiled, "pays", lambda rows: False)
    for ours, exact in zip(found, partials.scan_alone(units), strict=True):
        frame, expected = ours.to_pandas(), exact.to_pandas()
        notes = [name for name in expected.columns if expected[name].dtype == object or "note" in name]
        assert frame[notes].equals(expected[notes])
        assert sorted(frame.columns) == sorted(expected.columns)
        assert frame[expected.columns].dtypes.to_dict() == expected.dtypes.to_dict()
        for name in expected.columns.difference(notes):
            left, right = (each[name].to_numpy(dtype=float) for each in (frame, expected))
            np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-15, err_msg=name)


@pytest.mark.parametrize(
    ("spread", "lacking", "absent"),
    [
        (0.3, 0.0, ()),
        (1e-6, 0.0, ()),
        (300.0, 0.0, ()),
        (0.3, 0.2, ()),
        (0.3, 1.0, ()),
        (0.3, 0.0, ("logp_new", "advantage", "clip_side")),
        (0.3, 0.0, ("logp_behavior", "clipped", "behavior_version")),
        (0.3, 0.0, ("logp_current",)),
    ],
)
def test_sums_are_those_of_sql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled_scans: list[int],
    spread: float, lacking: float, absent: tuple[str, ...],
) -> None:  # fmt: skip
    folder = write_run(tmp_path / "run", steps(spread, **dict.fromkeys(absent)))
    run = open_run(with_nulls(folder, lacking) if lacking else folder)
    assert_both_agree(scan_units(run), monkeypatch)
    assert len(compiled_scans) == 1


def test_rows_in_any_order_and_in_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled_scans: list[int]
) -> None:
    rng, made = np.random.default_rng(1), steps()
    mixed = [step.rows(rng.permutation(len(step.tokens["seq_id"]))) for step in made]
    halves = [step.rows(np.arange(len(step.tokens["seq_id"])) % 2 == half) for half in (0, 1) for step in mixed]
    layout = [("tokens", 0, halves[:3]), ("tokens", 1, halves[3:]), ("sequences", 0, made), ("steps", 0, made)]
    assert_both_agree(scan_units(open_run(write_files(tmp_path / "run", layout))), monkeypatch)
    assert compiled_scans == [2]


@pytest.fixture
def without_database(monkeypatch: pytest.MonkeyPatch) -> list[partials.Partials | None]:
    """What each scan without a database found; None: it needs one."""
    seen: list[partials.Partials | None] = []
    original = partials._without_database

    def found(*arguments: object) -> partials.Partials | None:
        seen.append(original(*arguments))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr(partials, "_without_database", found)
    return seen


@pytest.mark.parametrize(
    ("spread", "lacking", "absent"),
    [
        (0.3, 0.0, ()),
        (1e-6, 0.3, ()),
        (300.0, 0.0, ()),
        (0.3, 1.0, ()),
        (0.0, 0.0, ()),
        (0.3, 0.0, ("logp_new", "advantage", "clip_side")),
        (0.3, 0.0, ("logp_current", "clipped")),
    ],
)
def test_groups_are_those_of_sql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_database: list[partials.Partials | None],
    spread: float, lacking: float, absent: tuple[str, ...],
) -> None:  # fmt: skip
    if spread == 300.0:  # too far for sums without a common factor
        monkeypatch.setattr(partials, "_PEAK_RANGE", (-1.0, 0.0))
    optional = [*sums.optional_columns() - {"entropy", "gate"}, *absent]
    folder = write_run(tmp_path / "run", steps(spread, **dict.fromkeys(optional)))
    rng = np.random.default_rng(2)
    for path in (folder / "sequences").iterdir():
        table = pq.read_table(path)
        others = table.set_column(1, table.field("seq_id"), pc.add(table["seq_id"], 1000))  # that have no token
        table = pa.concat_tables([table, others]).take(rng.permutation(2 * len(table)))
        rewards = pa.array(rng.choice([0.0, 1.0, 0.5, np.nan, np.inf, None], len(table)), pa.float32())
        for name, values in {"reward": rewards, "group_id": table["group_id"], "n_tokens": table["n_tokens"]}.items():
            missing = pa.array(rng.random(len(table)) < 0.3)
            place = table.column_names.index(name)
            column = pc.if_else(missing, pa.scalar(None, values.type), values)
            table = table.set_column(place, table.field(name), column)
        pq.write_table(table, path)
    run = open_run(with_nulls(folder, lacking) if lacking else folder)
    assert_both_agree(scan_units(run), monkeypatch)
    assert [found is None for found in without_database] == [spread == 300.0]


@pytest.mark.parametrize("strange", ["a ratio that is not finite", "a double", "no group"])
def test_what_is_out_of_the_ordinary_is_left_to_sql(tmp_path: Path, compiled_scans: list[int], strange: str) -> None:
    folder = write_run(tmp_path / "run", steps(**{"group_id": None} if strange == "no group" else {}))
    for path in (folder / "tokens").iterdir():
        table = pq.read_table(path)
        place = table.column_names.index("logp_new")
        if strange == "a double":
            table = table.set_column(place, "logp_new", table["logp_new"].cast(pa.float64()))
            pq.write_table(table, path)
        if strange == "a ratio that is not finite":
            values = table["logp_new"].to_numpy().copy()
            values[3] = np.nan
            write_table_file(path, table.set_column(place, table.field("logp_new"), pa.array(values)))
    partials.scan_alone(scan_units(open_run(folder)))
    assert compiled_scans == []
