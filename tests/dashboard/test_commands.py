"""The commands that read: their output is stable, and a user's mistake is one sentence and exit code 2."""

import csv
import io
import json
import os
import pydoc
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ratioscope import __version__
from ratioscope.analysis.diagnosis import RULES
from ratioscope.analysis.laboratory import EXPERIMENTS
from ratioscope.analysis.linter import CHECKS
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise, summary_json
from ratioscope.catalogue import CATALOGUE
from ratioscope.catalogue.typeset import formula_text
from ratioscope.dashboard.cli import INTERRUPTED, PIPE_CLOSED
from ratioscope.run_format import schema
from ratioscope.run_format.schema import SCHEMA_VERSION
from ratioscope.sources import titled
from ratioscope.trainer.algorithms.rows import ALGORITHMS
from tests.making.commands import Outcome, command
from tests.making.runs import random_step, write_run


@pytest.fixture
def ratioscope(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """ratioscope("ls", folder) -> what the console command did."""
    return lambda *arguments: command(monkeypatch, capsys, *arguments)


Ratioscope = Callable[..., Outcome]


def test_ls_lists_every_run_with_status_and_steps(ratioscope: Ratioscope, gallery: Path) -> None:
    lines = ratioscope("ls", gallery).succeeded().splitlines()
    by_run = {line.split()[0]: line for line in lines}
    assert set(by_run) == {folder.name for folder in gallery.iterdir()}
    assert re.search(r"finished +12 steps +grpo", by_run["finished"])
    assert re.search(r"interrupted +0 steps", by_run["empty"])
    assert "written in run format 7.0" in by_run["newer"]


def test_ls_as_json_is_one_object_a_run(ratioscope: Ratioscope, gallery: Path) -> None:
    rows = {row["run"]: row for row in json.loads(ratioscope("ls", gallery, "--json").succeeded())}
    assert set(rows) == {folder.name for folder in gallery.iterdir()}
    finished = rows["finished"]
    assert {key: finished[key] for key in ("name", "status", "algorithm", "steps", "problem")} == {
        "name": "finished", "status": "finished", "algorithm": "grpo", "steps": 12, "problem": None,
    }  # fmt: skip
    assert rows["newer"]["status"] == rows["torn"]["status"] == "unreadable"
    assert "cannot be read as JSON" in rows["torn"]["problem"]


def test_ls_of_an_empty_folder_says_that_there_is_nothing(ratioscope: Ratioscope, tmp_path: Path) -> None:
    assert ratioscope("ls", tmp_path).succeeded() == f"No runs below {tmp_path}.\n"
    assert json.loads(ratioscope("ls", tmp_path, "--json").succeeded()) == []


@pytest.mark.parametrize("run", ["finished", "one-step", "lean", "empty"])
def test_summarize_as_json_is_what_the_library_returns(ratioscope: Ratioscope, gallery: Path, run: str) -> None:
    opened = open_run(gallery / run)
    printed = json.loads(ratioscope("summarize", gallery / run, "--json").succeeded())
    assert printed == json.loads(json.dumps(summary_json(opened, summarise(opened))))


def test_summarize_prints_the_last_steps(ratioscope: Ratioscope, gallery: Path) -> None:
    lines = ratioscope("summarize", gallery / "finished").succeeded().splitlines()
    assert lines[0].split()[:2] == ["n_tokens", "reward"]
    assert [line.split()[0] for line in lines[2:]] == [str(step) for step in range(12)]


def test_summarize_prints_what_is_asked_for(ratioscope: Ratioscope, gallery: Path) -> None:
    asked = ("summarize", gallery / "finished", "--metric", "u_k", "--metric", "reward")
    lines = ratioscope(*asked).succeeded().splitlines()
    assert lines[0].split() == ["u_k", "reward"] and len(lines) == 2 + 12
    head = ratioscope(*asked, "--csv").succeeded().splitlines()[0]
    assert head == "step,u_k,u_k.low,u_k.high,reward,reward.low,reward.high"


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("S_k", "(s_k)"), ("Clip fraction", "(clip_fraction)"), ("staleness", "(s_k_bounded)"),
        ("lag", "(version_lag)"),
        ("importance sampling", "ratio_mean"), ("off-policy", "ratio_mean"), ("epsilon_stale", "usable ratio from 1"),
        ("engine mismatch", "engine_mismatch (finding)"), ("pg_clipfrac", "actor/pg_clipfrac"), ("GRPO", "grpo"),
        ("bare_reward", "\nNeeds: "),
    ],
)  # fmt: skip
def test_explain_takes_the_names_that_people_use(ratioscope: Ratioscope, asked: str, told: str) -> None:
    assert told in ratioscope("explain", asked).succeeded()


def test_summarize_names_the_file_that_it_left_out(ratioscope: Ratioscope, gallery: Path) -> None:
    outcome = ratioscope("summarize", gallery / "broken", "--json")
    steps = [entry["step"] for entry in json.loads(outcome.succeeded())["steps"]]
    assert 1 in steps
    assert "000002-000002-w0.parquet: left out" in outcome.err


@pytest.mark.parametrize("key", CATALOGUE)
def test_every_metric_is_explained_with_formula_and_source(ratioscope: Ratioscope, key: str) -> None:
    text = ratioscope("explain", key).succeeded()
    metric = CATALOGUE[key]
    for part in (metric.title, metric.definition, formula_text(metric.formula), titled(metric.source)):
        assert part in text


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_is_explained(ratioscope: Ratioscope, name: str) -> None:
    text = ratioscope("explain", name).succeeded()
    assert name in text
    assert all(parameter in text for parameter in ALGORITHMS[name].parameters)
    assert "\n  where  " in text and ("\n  differs " in text) == bool(ALGORITHMS[name].differs)
    places = re.findall(r"^ +(ratioscope\.[\w.]+)$", text, flags=re.MULTILINE)
    assert places and all(pydoc.locate(place) for place in places)


def test_explain_lists_metrics_algorithms_and_the_format(ratioscope: Ratioscope) -> None:
    for listing in (ratioscope("explain"), ratioscope("explain", "metrics")):
        assert all(key in listing.succeeded() for key in CATALOGUE)
    algorithms = ratioscope("explain", "algorithms").succeeded()
    assert all(name in algorithms for name in ALGORITHMS)
    assert ratioscope("explain", "format").succeeded().strip() == schema.describe().strip()
    for listing, names in (("findings", RULES), ("checks", CHECKS)):
        text = ratioscope("explain", listing).succeeded()
        assert [line.split()[0] for line in text.splitlines()] == list(names)
    both = ratioscope("explain", "truncated_support").succeeded()
    assert "(finding): " in both and "(check): " in both


def test_the_version_is_printed(ratioscope: Ratioscope) -> None:
    assert ratioscope("--version").succeeded() == f"ratioscope {__version__}\n"


def test_lab_prints_every_experiment_as_text_and_as_json(ratioscope: Ratioscope) -> None:
    listed = json.loads(ratioscope("lab", "--json").succeeded())
    assert listed["schema_version"] == SCHEMA_VERSION
    assert [each["experiment"] for each in listed["experiments"]] == [*EXPERIMENTS]
    for name, of in EXPERIMENTS.items():
        found = json.loads(ratioscope("lab", name, "--json").succeeded())
        assert list(found) == ["schema_version", "experiment", "claim", "source", "at", "numbers", "values", "says"]
        assert set(found["numbers"]) == {number.key for number in of.numbers}
        assert found["says"] in " ".join(ratioscope("lab", name).succeeded().split())
    found = json.loads(ratioscope("lab", "one_token", "rho_k=1", "rho=1", "--json").succeeded())
    assert found["numbers"]["khat"] is None, "the weights are all alike"


@pytest.mark.parametrize("run", ["finished", "lean", "empty"])
def test_summarize_as_csv_says_what_the_json_says(ratioscope: Ratioscope, gallery: Path, run: str) -> None:
    steps = json.loads(ratioscope("summarize", gallery / run, "--json").succeeded())["steps"]
    rows = list(csv.DictReader(ratioscope("summarize", gallery / run, "--csv").succeeded().splitlines()))
    assert len(rows) == len(steps)
    for row, step in zip(rows, steps, strict=True):
        found = {name: float(text) if text else None for name, text in row.items()}
        intervals = step.pop("intervals")
        del step["notes"]
        low, high = ({key: intervals.get(key, (None, None))[end] for key in step} for end in (0, 1))
        ends = {f"{key}.low": low[key] for key in step} | {f"{key}.high": high[key] for key in step}
        del ends["step.low"], ends["step.high"]
        assert found == step | ends


def test_progress_is_drawn_on_a_terminal_only_and_never_where_the_json_goes(
    ratioscope: Ratioscope, gallery: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    drawn = {}
    for name, *arguments in (
        ("summarize", gallery / "lean", "--json"),
        ("check", gallery / "lean", "--json"),
        ("diagnose", gallery / "lean", "--json"),
        ("compare", gallery / "lean", gallery / "finished", "--metric", "s_k", "--json"),
    ):
        monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path / name))  # else there is nothing to wait for
        for quiet in ((), ("--quiet",)):
            screen = Screen()
            monkeypatch.setattr(sys, "stderr", screen)
            monkeypatch.setenv("TERM", "xterm")
            json.loads(ratioscope(name, *arguments, *quiet).out)
            drawn[name, bool(quiet)] = screen.getvalue()
    for (name, quiet), text in drawn.items():
        assert not text if quiet else ("Checking" if name == "check" else "Reading") in text, name


def test_names_cannot_send_anything_to_the_terminal(ratioscope: Ratioscope, tmp_path: Path) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\r"
    steps = [random_step(np.random.default_rng(0), number) for number in range(2)]
    runs = [
        write_run(tmp_path / f"{seed}{evil}", steps, name=evil, algorithm={"name": f"{evil}{seed}"}, seed=seed)
        for seed in (0, 1)
    ]
    (tmp_path / f"torn{evil}").mkdir()
    (tmp_path / f"torn{evil}" / "run.json").write_text(json.dumps({"status": evil, "schema_version": SCHEMA_VERSION}))
    for arguments in (
        ("ls", tmp_path),
        ("summarize", runs[0]),
        ("diagnose", runs[0]),
        ("check", runs[0]),
        ("compare", tmp_path, "--metric", "s_k"),
        ("summarize", tmp_path / f"torn{evil}"),
        ("explain", evil),
    ):
        outcome = ratioscope(*arguments)
        printed = outcome.out + outcome.err
        assert printed and all(sign in "\n\t" or sign.isprintable() for sign in printed), arguments


def test_what_the_system_refuses_is_one_sentence(
    ratioscope: Ratioscope, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path / "locked"))

    monkeypatch.setattr("ratioscope.analysis.runs.store.discover", refuse)
    assert ratioscope("ls", tmp_path).failed() == f"ratioscope: {tmp_path}/locked: Permission denied."


def test_ctrl_c_is_silent_and_has_its_exit_code(
    ratioscope: Ratioscope, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ratioscope.analysis.runs.store.discover", press)
    assert ratioscope("ls", tmp_path) == Outcome(INTERRUPTED, "", "")


def test_a_benchmark_is_run_from_the_checkout_and_only_there(
    ratioscope: Ratioscope, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.benchmarks.listing.run", lambda: print("as fast as before"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert ratioscope("bench", "listing").succeeded() == "listing\nas fast as before\n"
    monkeypatch.setattr("ratioscope.dashboard.cli.bench._checkout", lambda: tmp_path)
    assert "tests/benchmarks of the source checkout" in ratioscope("bench").failed()


def test_a_reader_that_has_enough_ends_it_quietly(gallery: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "ratioscope", "ls", gallery],
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (PIPE_CLOSED, b"")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("ls", "{folder}/nowhere"), "there is no such folder"),
        (("dashboard", "{folder}/nowhere"), "there is no such folder"),
        (("summarize", "{folder}/nowhere"), "there is no such folder"),
        (("summarize", "{folder}"), "not a run, it has no run.json"),
        (("summarize", "{gallery}/torn"), "cannot be read as JSON"),
        (("summarize", "{gallery}/newer"), "written in run format 7.0"),
        (("summarize", "{gallery}/finished", "--json", "--csv"), "exclude each other"),
        (("explain", "s_kk"), "'s_kk' is not something to explain; did you mean s_k"),
        (("explain", "ess"), "'ess' may be ess_collapse, ess_seq, ess_token: name one of them"),
        (("diagnose", "{gallery}"), "runs and is none itself; name one of them: {gallery}/"),
        (("diagnose", "{gallery}/finishde"), "there is no such folder; did you mean {gallery}/finished."),
        (("summarize", "{gallery}/finished", "--json", "--metric", "u_k"), "--json and --metric exclude each other"),
        (("summarize", "{gallery}/finished", "--metric", "uk"), "'uk' is not a metric; did you mean u_k"),
        (("bench", "listin"), "did you mean listing"),
        (("train", "no-such-preset"), "no preset 'no-such-preset'"),
        (("train", "{folder}/none.toml"), "no preset"),
        (("train", "--sample", "trl-smollm2-gcd"), "no sample run 'trl-smollm2-gcd'"),
        (("train", "--sample", "offline-grpo-seed0", "seed=1"), "takes no settings"),
        (("train", "on_policy", "no_such_key=1"), "no setting 'no_such_key'"),
        (("train", "on_policy", "updates"), "not of the form key=value"),
        (("train", "on_policy", "updates=many"), "updates"),
        (("train", "on_policy", "updates=0"), "updates"),
        (("train", "on_policy", "algorithm=alchemy"), "no algorithm 'alchemy'"),
        (("train", "on_policy", "--folder", "{gallery}/finished"), "already holds a run"),
        (("train", "--resume", "{gallery}/finished"), "cannot be resumed"),
        (("train", "--resume", "{folder}"), "not a run, it has no run.json"),
        (("ablate", "no-such-study"), "no preset 'no-such-study'"),
        (("ablate", "on_policy", "prompts=4,4"), "Two runs of this grid"),
        (("ablate", "on_policy", "seed="), "not of the form key=value"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    ratioscope: Ratioscope, gallery: Path, tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    filled = [argument.format(folder=tmp_path, gallery=gallery) for argument in arguments]
    assert reason.format(gallery=gallery) in ratioscope(*filled).failed()


@pytest.mark.parametrize("name", ["dashboard", "demo"])
def test_a_port_that_is_taken_is_one_sentence(ratioscope: Ratioscope, tmp_path: Path, name: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        place = ["--root", tmp_path] if name == "demo" else [tmp_path]
        sentence = ratioscope(name, *place, "--port", port).failed()
    assert sentence == f"ratioscope: Port {port} is taken; choose another with --port."
    assert not list(tmp_path.iterdir())


def test_the_cache_is_listed_by_kind_and_cleared_of_entries_alone(
    ratioscope: Ratioscope, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path / "cache"))
    run = write_run(tmp_path / "run", [random_step(np.random.default_rng(0))])
    ratioscope("summarize", run).succeeded()
    (tmp_path / "cache" / "pretrained").mkdir()
    (tmp_path / "cache" / "pretrained" / "weights").write_bytes(b"stays")

    def kinds() -> set[str]:
        return {line.split()[0] for line in ratioscope("cache").succeeded().splitlines()[1:]}

    assert kinds() == {"footers", "partials", "summaries"}
    assert ratioscope("cache", "--clear", "--only", "summaries").succeeded().startswith("1 entry was removed")
    assert kinds() == {"footers", "partials"}
    assert "nothing of the kind 'models'" in ratioscope("cache", "--clear", "--only", "models").failed()
    assert "--only goes with --clear" in ratioscope("cache", "--only", "partials").failed()
    assert ratioscope("cache", "--clear").succeeded().startswith("2 entries were removed")
    assert not kinds()
    assert (tmp_path / "cache" / "pretrained" / "weights").read_bytes() == b"stays"
