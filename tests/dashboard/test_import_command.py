"""`ratioscope import`: what it says and leaves; the page Runs on folders of other programs."""

import json
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from ratioscope import RatioscopeError
from ratioscope import open_run as open_for_notebook
from ratioscope.analysis.runs.store import discover, open_run
from ratioscope.dashboard import foreign, launcher
from ratioscope.dashboard.cli import completion
from ratioscope.dashboard.components import foreign_runs
from ratioscope.dashboard.roots import imports_of, roots, shelves
from tests.analysis.importers.test_importing import MAPPING, Trap, everything, line, rewards, write
from tests.making.commands import Outcome, command
from tests.making.foreign import imitated_slime, truth
from tests.making.loops import in_one_loop
from tests.making.pages import sentences, visit

Ratioscope = Callable[..., Outcome]
STORED = Path(__file__).parents[1] / "making" / "foreign" / "stored"


@pytest.fixture
def ratioscope(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ratioscope:
    """ratioscope("import", folder) -> what the console command did."""
    return lambda *arguments: command(monkeypatch, capsys, *arguments)


@pytest.fixture
def slime(tmp_path: Path) -> Path:
    return imitated_slime.write(tmp_path / "dump", truth.run())


@pytest.fixture
def mapping(tmp_path: Path) -> Path:
    (tmp_path / "mapping.toml").write_text(MAPPING)
    return tmp_path / "mapping.toml"


def test_it_says_what_it_found_and_what_it_did(ratioscope: Ratioscope, slime: Path, tmp_path: Path) -> None:
    before = everything(slime)
    first, *said, done, dropped, then = ratioscope("import", slime, "--to", tmp_path / "runs").succeeded().splitlines()
    assert first.startswith(f"{slime}: ") and "slime" in first
    assert any(each.startswith("  missing  ") for each in said)
    assert done.startswith(f"{tmp_path / 'runs' / 'dump'}: 3 steps with ")
    assert dropped == "  3 of 18 responses are dropped from the loss: 3 remove_sample."
    assert "ratioscope diagnose" in then
    run = open_run(tmp_path / "runs" / "dump")
    assert run.manifest.source["format"] == "slime" and run.status == "finished"
    again = ratioscope("import", slime, "--to", tmp_path / "runs").succeeded().splitlines()
    assert again[-1].endswith("nothing is new, the run is as it was.")
    assert everything(slime) == before


def test_it_says_how_many_responses_failed_and_what_they_lack(
    ratioscope: Ratioscope, mapping: Path, tmp_path: Path
) -> None:
    job = Path(shutil.copytree(STORED / "harbor" / "job", tmp_path / "job"))
    said = ratioscope("import", job, "--to", tmp_path / "runs", "--quiet").succeeded().splitlines()
    assert said[1:-1] == [
        "  2 of 6 responses failed: 1 timeout, 1 environment.",
        "  1 of 6 responses has no logp_behavior.",
    ]
    rows = [json.loads(row) for step in (0, 1) for row in map(line, [step] * 4, range(4))]
    rows[0]["mu"], rows[1]["mu"], rows[2]["mu"], rows[3]["old"] = None, [float("nan")] * 5, [None, *[-1.0] * 4], None
    rows[4]["why"], rows[5]["why"], rows[6]["why"] = "a\x1b[31m" + "b" * 99, "c", "c"
    for row in rows[4:7]:
        row["mu"] = None
    source = write(tmp_path / "theirs", ())
    (source / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    mapping.write_text(mapping.read_text() + 'dropped = "why"\n')
    out = ratioscope("import", source, "--mapping", mapping, "--to", tmp_path / "runs", "--quiet").succeeded()
    first, second, third, fourth = out.splitlines()[1:-1]
    assert first.startswith("  3 of 8 responses are dropped from the loss: 2 c, 1 a") and len(first) < 140
    assert second == "  2 of 8 responses have no logp_behavior."
    assert third == "  1 of 8 responses has logp_behavior for a part of the tokens alone."
    assert fourth == "  1 of 8 responses has no logp_current."


def test_a_dry_run_writes_nothing(ratioscope: Ratioscope, slime: Path, tmp_path: Path) -> None:
    out = ratioscope("import", slime, "--to", tmp_path / "runs", "--dry-run", "--quiet").succeeded()
    assert str(slime) in out and not (tmp_path / "runs").exists()


MISTAKES: dict[str, tuple[tuple[str, ...], str]] = {
    "no path": ((), "Name what to import"),
    "nothing there": (("none",), "there is no such file or folder"),
    "an empty folder": (("text",), "the folder is empty"),
    "an unknown format": (("text", "--format", "slim"), "did you mean slime"),
    "another format": (("text", "--format", "slime"), "without --format every known format is tried"),
    "no mapping file": (("text", "--mapping", "none.toml"), "none.toml: there is no such file"),
    "a path for a name": (("dump", "--name", "../up"), "cannot be the folder of a run"),
    "a hidden name": (("dump", "--name", ".up"), "cannot be the folder of a run"),
    "into the source": (("dump", "--to", "dump"), "in which nothing is written"),
    "no tokenizer": (("dump", "--tokenizer", "text"), "no tokenizer can be read there"),
    "no columns": (("--template", "text"), "no file here"),
}


@in_one_loop("case", MISTAKES)
def test_a_mistake_is_one_sentence(
    case: tuple[tuple[str, ...], str], ratioscope: Ratioscope, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, said = case
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").mkdir(exist_ok=True)
    if not (tmp_path / "dump").exists():
        imitated_slime.write(tmp_path / "dump", truth.run())
    outcome = ratioscope("import", "--quiet", *arguments)
    assert said in outcome.failed()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dump", "text"]


def test_bad_lines_are_counted_or_end_it(ratioscope: Ratioscope, mapping: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "theirs", range(3))
    with (source / "log.jsonl").open("a") as file:
        file.write("".join(['{"k": 2, \x1b[31m\n'] * 7))
    arguments = ("import", source, "--mapping", mapping, "--to", tmp_path / "runs", "--quiet")
    assert "log.jsonl, line 13: not JSON" in ratioscope(*arguments).failed()
    assert discover([tmp_path / "runs"]) == []
    outcome = ratioscope(*arguments, "--skip-bad")
    assert "3 steps with 60 tokens of 12 responses, 7 left out because they cannot be read" in outcome.succeeded()
    *named, more, fresh = outcome.err.splitlines()
    assert len(named) == 5 and more.endswith("And 2 more.") and "--follow" in fresh


def test_pickles_are_refused_and_the_sentence_says_why(ratioscope: Ratioscope, tmp_path: Path) -> None:
    (tmp_path / "dumped_data").mkdir()
    (tmp_path / "dumped_data" / "global_step_1_training_input.pkl").write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    said = ratioscope("import", tmp_path / "dumped_data", "--to", tmp_path / "runs", "--quiet").failed()
    assert "--allow-pickle" in said and "runs whatever code" in said
    ratioscope("import", tmp_path / "dumped_data", "--dry-run").succeeded()
    assert not (tmp_path / "sprung").exists() and not (tmp_path / "runs").exists()


def test_hostile_names_reach_neither_the_terminal_nor_another_folder(
    ratioscope: Ratioscope, mapping: Path, tmp_path: Path
) -> None:
    source = write(tmp_path / "a\x1b[31m\n <b>" / "x", range(1)).parent
    (source / "x" / "log.jsonl").rename(source / "log.jsonl")
    outcome = ratioscope("import", source, "--mapping", mapping, "--to", tmp_path / "runs")
    assert "\x1b" not in outcome.succeeded() and "\x1b" not in outcome.err
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [source.name]


def test_a_mapping_file_and_its_template(ratioscope: Ratioscope, mapping: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "theirs", range(2))
    text = ratioscope("import", "--template", source).succeeded()
    assert "log.jsonl has" in text and "\\u" not in text
    out = ratioscope("import", source, "--mapping", mapping, "--to", tmp_path / "runs", "--name", "b").succeeded()
    assert "files as mapping.toml describes them" in out
    assert rewards(tmp_path / "runs" / "b") == [0.0] * 4 + [1.0] * 4


def test_it_follows_until_it_is_ended_and_that_is_no_failure(mapping: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "theirs", range(2))
    process = subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "ratioscope", "import", str(source), "--mapping", str(mapping), "--follow"),
            *("--to", str(tmp_path / "runs"), "--every", "0.05", "--quiet"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    run = tmp_path / "runs" / "theirs"
    _until(lambda: [*run.glob("steps/*.parquet")])
    assert rewards(run) == [0.0] * 4
    write(source, [2, 3])
    _until(lambda: len([*run.glob("steps/*.parquet")]) > 1)
    assert open_run(run).status == "running"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0 and "no longer followed" in said
    assert rewards(run) == [0.0] * 4 + [1.0] * 4 + [2.0] * 4
    assert open_run(run).status == "interrupted"


def _until(arrived: Callable[[], object]) -> None:
    end = time.monotonic() + 120
    while not arrived():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_opening_what_is_no_run_yet_names_the_command(ratioscope: Ratioscope, slime: Path, tmp_path: Path) -> None:
    with pytest.raises(RatioscopeError, match=f"this is no run yet but a .*; ratioscope import {slime}"):
        open_for_notebook(slime)
    for name in ("summarize", "check", "diagnose"):
        assert f"ratioscope import {slime}" in ratioscope(name, slime).failed()
    (tmp_path / "none").mkdir()
    assert "not a run" in ratioscope("summarize", tmp_path / "none").failed()


def test_the_dashboard_says_what_it_found(
    ratioscope: Ratioscope, slime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[list[Path]] = []
    monkeypatch.setattr(launcher, "serve", lambda folders, *_: served.append(folders))
    first, *_ = ratioscope("dashboard", tmp_path, "--port", "18499").succeeded().splitlines()
    assert first.startswith(f"{slime}: slime") and first.endswith("the page Runs imports it.")
    assert served == [[tmp_path]]


def test_a_shell_completes_the_formats() -> None:
    from ratioscope.analysis.importers.formats import IMPORTERS

    assert sorted(completion.formats("")) == sorted(importer.name for importer in IMPORTERS)
    assert "slime" in completion.formats("sl")


# The page Runs --------------------------------------------------------------------------------------------------------


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[foreign.Imports]:
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr(foreign, "LOOK_SECONDS", 0.1)
    foreign_runs._foreign.clear()
    foreign_runs._imports.clear()
    yield foreign_runs._imports()
    foreign_runs._imports().stop()
    foreign_runs._foreign.clear()


def _button(at: AppTest, label: str) -> None:
    next(button for button in at.button if button.label == label).click()


def test_the_page_offers_another_programs_run_and_imports_it_beside(root: Path, imports: foreign.Imports) -> None:
    slime = imitated_slime.write(root / "<b>dump*", truth.run())
    before = everything(root)
    at = visit("runs")
    assert not at.exception and f"slime dump in {slime}" in sentences(at).replace("--dump-details", "dump")
    assert "There are no runs in the folders of this dashboard." in sentences(at)
    _button(at, "Import and follow")
    at.run()
    run = imports_of(root) / "<b>dump*"
    assert "followed while it grows" in sentences(at)
    _until(lambda: [*run.glob("steps/*.parquet")])
    assert everything(root) == before
    assert shelves() == [*roots(), imports_of(root)]
    at = visit("runs")
    assert [listed.folder for listed in discover(shelves())] == [run]
    assert not any(button.label == "Import and follow" for button in at.button)
    (one,) = foreign.foreign_below([root])
    imports.stop()
    _until(lambda: not imports.runs(one))
    assert imports.problem(one) == "" and open_run(run).status == "interrupted"
    at = visit("runs")
    assert any(button.label == "Bring up to date and follow" for button in at.button)
    assert not at.exception


def test_the_page_says_why_an_import_failed(root: Path, imports: foreign.Imports) -> None:
    slime = imitated_slime.write(root / "dump", truth.run())
    torn = slime / "train_data" / "1.pt"
    torn.write_bytes(torn.read_bytes()[:100])
    at = visit("runs")
    _button(at, "Import and follow")
    (one,) = foreign.foreign_below([root])
    at.run()
    _until(lambda: not imports.runs(one))
    at = visit("runs")
    assert "It could not be imported." in sentences(at)
    assert "1.pt" in imports.problem(one) and "\n" not in imports.problem(one)


def test_pickles_have_no_button(root: Path, imports: foreign.Imports) -> None:
    (root / "dumped_data").mkdir()
    (root / "dumped_data" / "global_step_1_training_input.pkl").write_bytes(pickle.dumps(Trap(root / "sprung")))
    at = visit("runs")
    assert not any("mport" in button.label for button in at.button)
    assert "--allow-pickle" in sentences(at) and not (root / "sprung").exists()
