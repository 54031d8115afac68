"""Damaged and strange runs: the corpus of `tests.making.damaged`, listed and opened; one sentence, never a traceback.

What was mended at its root stays here by its name.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.runs.store import discover, open_run
from ratioscope.analysis.summary.summary import summarise
from ratioscope.analysis.summary.units import scan_units
from ratioscope.errors import RatioscopeError
from tests.making.damaged import DAMAGE, FILE, column
from tests.making.runs import random_step, write_run

Damaged = Callable[[str], Path]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(1)
    steps = [random_step(rng, number) for number in range(2)]
    return write_run(tmp_path_factory.mktemp("whole") / "run", steps, flush_seconds=0, algorithm={"name": "grpo"})


@pytest.fixture
def damaged(whole: Path, tmp_path: Path) -> Damaged:
    def make(name: str) -> Path:
        run = shutil.copytree(whole, tmp_path / "root" / f"run{list(DAMAGE).index(name)}")
        DAMAGE[name](run)
        return run

    return make


def test_whatever_is_in_a_root_every_run_is_one_line(damaged: Damaged, tmp_path: Path) -> None:
    """And every run can be opened, or says in one sentence why not."""
    made = {damaged(name).name: name for name in DAMAGE}
    listed = {run.run_id: run for run in discover([tmp_path / "root"])}
    # A folder without run.json is no run.
    assert {name for run, name in made.items() if run not in listed} <= {
        "manifest a folder",
        "manifest a link to itself",
    }
    for run in listed.values():
        assert len(run.problem.splitlines()) <= 1
        try:
            problems = open_run(run.folder).problems
        except RatioscopeError as error:
            problems = (str(error),)
        for problem in problems:
            assert len(problem.splitlines()) == 1, made[run.run_id]
            assert problem.endswith("."), problem


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tokens bit flipped at 0.25", "row group 0 is damaged"),
        ("sequences bit flipped at 0.25", "row group 0 is damaged"),
        ("tokens bit flipped at 0.95", "its footer is damaged"),
        ("step null", "there are nulls in it"),
        ("a range that lies", "its name says other ones"),
        ("one name twice", "called logp_current"),
        ("tokens a link to nothing", "a link that cannot be followed"),
        ("a name with 200 digits", "its name is not"),
    ],
)
def test_a_damaged_file_is_named_and_the_others_are_read(damaged: Damaged, name: str, said: str) -> None:
    run = open_run(damaged(name))
    (problem,) = run.problems
    assert FILE in problem or "its name" in problem
    assert said in problem
    assert summarise(run).values["n_tokens"].gt(0).sum() >= 1


@pytest.mark.parametrize(
    "name", ["tokens files are links", "tokens folder is a link", "logp_current of float16", "a footer that says b'[]'"]
)
def test_what_is_strange_and_whole_is_read(whole: Path, damaged: Damaged, name: str) -> None:
    strange = summarise(open_run(damaged(name))).values
    assert np.allclose(strange["s_k"], summarise(open_run(whole)).values["s_k"], rtol=1e-2)


def test_twelve_flipped_bits_change_no_number_silently(whole: Path, tmp_path: Path) -> None:
    right = summarise(open_run(whole)).values
    rng = np.random.default_rng(3)
    for number in range(12):
        run = shutil.copytree(whole, tmp_path / f"run{number}")
        path = run / ("tokens", "sequences", "steps")[number % 3] / FILE
        contents = bytearray(path.read_bytes())
        contents[rng.integers(len(contents))] ^= 1 << int(rng.integers(8))
        path.write_bytes(contents)
        opened = open_run(run)
        if not opened.problems:
            assert summarise(opened).values.equals(right)


def test_counts_of_a_footer_are_believed_for_the_values_that_they_were_counted_of(whole: Path, tmp_path: Path) -> None:
    """pyarrow copies them when it writes a changed file."""
    run = shutil.copytree(whole, tmp_path / "run")

    def change(values: object) -> object:
        found = values.to_numpy().copy()  # type: ignore[attr-defined]
        found[:3] = np.nan
        return found

    column("logp_current", change)(run)  # type: ignore[arg-type]
    values = summarise(open_run(run)).values
    assert values.loc[1, "n_invalid"] == 3
    assert np.isfinite(values.loc[1, "s_k"])


def test_runs_of_one_name_in_two_places_are_not_taken_for_each_other(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where sizes and times are the same, the path as it is typed, and nothing in run.json tells them apart."""
    found = []
    for place in ("here", "there"):
        run = shutil.copytree(whole, tmp_path / place / "run")
        (run / "run.json").write_text('{"schema_version": "1.1", "name": "run", "status": "finished"}')
        monkeypatch.chdir(run.parent)
        opened = open_run("run")
        found.append({*(unit.identity for unit in scan_units(opened)), opened.files["steps"][0].identity})
    assert not found[0] & found[1]


def test_one_duplicated_row_is_found(damaged: Damaged) -> None:
    opened = open_folder(damaged("one duplicated row"))
    assert any("several rows for one position" in remark.sentence for remark in opened.problems)
