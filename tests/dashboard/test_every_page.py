"""The sweep: every page with every fold open shows nothing that no page may show (`tests.making.pages.faults`).

What has a file of its own is swept there: `test_pages.py` (every kind of log), `test_absent.py` (what other programs
write), `test_hostile_text.py`. Here are the sample runs, with the findings that they have, and the corpus of damages.
Formulas are drawn by the browser alone: `tests/browser/test_run_pages.py`.
"""

import shutil
from collections.abc import Callable, Hashable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.dashboard import state
from ratioscope.dashboard.components import page as declared
from ratioscope.dashboard.roots import serve_from
from ratioscope.dashboard.views import overview
from ratioscope.dashboard.watching.reader import server_reader
from tests.analysis.diagnosis.test_sample_runs import NOTICES, WARNINGS
from tests.making.damaged import DAMAGE
from tests.making.loops import in_one_loop
from tests.making.pages import RUN_PAGES, sentences, visit
from tests.making.runs import random_step, write_run
from tests.making.samples import NAMES, SAMPLE_RUNS, part_of, run_of

Serve = Callable[[Path], None]

# These show what the rules and checks have found; what the others show, they show of any run with the same columns.
OF_FINDINGS = ("overview", "linter")
COLLAPSED = "sync_interval20-reinforce-lr0.0003-seed0"
MOST_FOLDS = 6
"""More are not looked through; the Linter had eight."""
OTHERS = tuple(page for page in (*RUN_PAGES, "compare", "report") if page not in OF_FINDINGS)


def _columns(name: str) -> Hashable:
    return tuple(sorted(pq.read_schema(run_of(name).files["tokens"][0].path).names))


ONE_OF_EACH_COLUMNS = {_columns(name): name for name in NAMES}.values()
# Twelve sample runs learn and say one thing of themselves: their pages are each other's with other numbers.
ONE_OF_EACH_FINDING = {
    frozenset(WARNINGS.get(name, set()) | NOTICES.get(name, set())): name for name in reversed(NAMES)
}.values()
# What decides which blocks these pages have; each page with every other of them, since a page takes a second.
OTHERS_OF = {name: OTHERS[place % 2 :: 2] for place, name in enumerate(ONE_OF_EACH_COLUMNS)}
DAMAGED = {
    "overview": "without group_id",
    "drift": "logp_current all nan",
    "engine": "behavior_version huge",
    "ratios": "some logp_current 5.0",
    "clipping": 'algorithm {"name": "grpo", "gate": 7}',
    "variance": "logp_behavior of float16",
    "staleness": "policy_version huge",
    "tokens": "a response of lists",
    "metrics": "extra of lists",
    "linter": "tokens bit flipped at 0.25",
    "sql": "a name with quotes",
}
"""By page, what a log may have that this page shows."""


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    """serve(folder): the runs in it, which are listed once."""
    monkeypatch.setenv("RATIOSCOPE_ROOTS", "")
    monkeypatch.setattr(state, "_LISTED", 1e6)
    # The same on four pages, of the tokens, and dear: `test_as_reported.py` opens it.
    for page in (declared, overview):
        monkeypatch.setattr(page, "as_reported", lambda page, subject: None)
    return lambda folder: serve_from([folder])


@in_one_loop("name", {name: name for name in ONE_OF_EACH_FINDING})
def test_what_was_found_in_a_sample_run_can_be_opened(name: str, serve: Serve) -> None:
    """A click on any run's first finding took Overview down where it was the likely cause, too."""
    serve(SAMPLE_RUNS)
    for page in OF_FINDINGS:
        assert len(visit(page, run=name).main.expander) <= MOST_FOLDS


@in_one_loop("name", {name: name for name in OTHERS_OF})
def test_the_other_pages_of_every_kind_of_sample_run_can_be_opened(name: str, serve: Serve, tmp_path: Path) -> None:
    """Of a part of the steps: what is drawn of tokens takes its time."""
    serve(part_of(SAMPLE_RUNS / name, tmp_path / name / name, range(6)).parent)
    for page in OTHERS_OF[name]:
        assert len(visit(page, run=name).main.expander) <= MOST_FOLDS


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(1)
    steps = [random_step(rng, number) for number in range(3)]
    return write_run(tmp_path_factory.mktemp("whole") / "run", steps, flush_seconds=0, algorithm={"name": "grpo"})


@in_one_loop("page", {page: page for page in DAMAGED})
def test_the_pages_of_damaged_runs_can_be_opened(page: str, whole: Path, serve: Serve, tmp_path: Path) -> None:
    DAMAGE[DAMAGED[page]](shutil.copytree(whole, tmp_path / page / "run"))
    serve(tmp_path / page)
    visit(page, run="run")


def test_an_alarm_speaks_of_the_run_as_it_is(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished run's bar quoted the value of the step at which a live one was found critical as the last."""
    monkeypatch.setattr(server_reader(), "_alarms", {SAMPLE_RUNS / COLLAPSED: 61})
    serve(SAMPLE_RUNS)
    sentence = open_folder(SAMPLE_RUNS / COLLAPSED).findings[0].sentence
    for page, ends in (("drift", f" {sentence}"), ("overview", "")):  # Overview's answer says it below
        said = sentences(visit(page, run=COLLAPSED))
        (bar,) = (line for line in said.splitlines() if "First found critical at step 61." in line)
        assert bar.endswith(f"61.**{ends}")
