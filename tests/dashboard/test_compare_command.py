"""`ratioscope compare`: the sentence, the tables and the JSON, and one sentence for a user's mistake."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from ratioscope.dashboard.terminal import table_text
from ratioscope.run_format.schema import SCHEMA_VERSION
from tests.making.commands import Outcome, command
from tests.making.runs import random_step, write_run
from tests.making.samples import SAMPLE_RUNS

Ratioscope = Callable[..., Outcome]


@pytest.fixture
def ratioscope(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ratioscope:
    """ratioscope("compare", folder) -> what the console command did."""
    return lambda *arguments: command(monkeypatch, capsys, *arguments)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of two settings; the metric climbs for one and stays for the other."""
    root = tmp_path_factory.mktemp("runs")
    for name, slope, gate in (("climbing", 0.02, "one_side"), ("flat", 0.001, "none")):
        for seed in (0, 1):
            rng = np.random.default_rng(seed)
            steps = [random_step(rng, number, groups=2, responses=2) for number in range(6)]
            for step in steps:
                step.scalars["eval_accuracy"] = 0.3 + slope * (1 + step.number) + 0.001 * seed * (1 + 100 * slope)
                step.scalars["wall_time"] = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=10 * step.number)
                step.sequences["prompt_id"] = step.sequences["group_id"]
            algorithm = {"name": name, "parts": {"gate": gate}}
            write_run(root / f"{name}-seed{seed}", steps, algorithm=algorithm, seed=seed)
    return root


def test_the_answer_is_a_sentence_with_interval_and_probability(ratioscope: Ratioscope, runs: Path) -> None:
    out = ratioscope("compare", *sorted(runs.iterdir())).succeeded()
    assert out.startswith(
        "Best: climbing (41%, 2 seeds).\nWorse: flat (31%).\nNot known: the effect of seeds (under 3 each).\n"
    )
    assert [line.split()[0] for line in out.splitlines() if "%  [" in line] == ["climbing", "flat"]
    assert "Intervals: 95% over seeds (t)." in out
    assert "probability" not in out  # of two seeds it would read as certainty
    assert "steps 4–5" in out
    assert "\n  gate: one_side (climbing); none (flat)" in out


def test_many_settings_are_a_row_each_and_one_line_says_what_single_seeds_leave_open(
    ratioscope: Ratioscope,
) -> None:
    out = ratioscope("compare", *sorted(SAMPLE_RUNS.glob("offline-*"))).succeeded()
    assert out.count("Not known: the effect of seeds (one each; run at least 3)") == 1
    assert "  weight: ratio (grpo and rec_oneside_is); none (rec_oneside_nois and reinforce)\n" in out


def test_no_line_is_wider_than_the_terminal(ratioscope: Ratioscope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    out = ratioscope("compare", *sorted(SAMPLE_RUNS.glob("offline-*"))).succeeded()
    assert max(map(len, out.splitlines())) <= 80
    rows = [("", "mean"), ("a long name of many words", "1%"), ("  inside", "2%")]
    told = "                  mean\na long name of    1%\n  many words\n  inside          2%"
    assert table_text(rows, 23) == told


def test_a_folder_of_runs_is_the_same_as_its_runs_in_any_order(ratioscope: Ratioscope, runs: Path) -> None:
    of_folder = json.loads(ratioscope("compare", runs, "--json").succeeded())
    one_by_one = json.loads(ratioscope("compare", *sorted(runs.iterdir(), reverse=True), "--json").succeeded())
    assert one_by_one["answers"] == of_folder["answers"]
    assert one_by_one["ranking"] == of_folder["ranking"]
    twice = ratioscope("compare", runs, runs / "flat-seed0", "--json").succeeded()
    assert json.loads(twice)["ranking"] == of_folder["ranking"]


@pytest.mark.parametrize("by", ["step", "tokens", "time"])
def test_as_json_undefined_is_null(ratioscope: Ratioscope, runs: Path, by: str) -> None:
    found = json.loads(ratioscope("compare", runs, "--by", by, "--json").succeeded())
    assert found["by"] == by
    assert found["until"] > 0
    (answer,) = found["answers"]
    assert {answer["a"], answer["b"]} == {"climbing", "flat"}
    assert answer["seeds"] == [2, 2] and found["schema_version"] == SCHEMA_VERSION
    estimates = [answer[key] for key in ("difference", "probability_of_improvement", "here")]
    estimates += [row[key] for row in found["ranking"] for key in ("mean", "here", "iqm")] + found["prompts"]
    for estimate in estimates:
        assert estimate.keys() >= {"label", "value", "interval", "note"}
        low, high = estimate["interval"] or (estimate["value"], estimate["value"])
        assert estimate["value"] is None or low <= estimate["value"] <= high
    assert answer["difference"]["interval"]
    assert answer["probability_of_improvement"]["value"] is None and answer["seeds_needed"] is None
    (pair,) = found["pairs"]
    assert pair["differ_here"] is None and "does not say on how many prompts" in answer["here"]["note"]
    assert pair["differ_with_other_seeds"] is (by != "tokens") and found["judged_by"] == "seeds"
    assert answer["pairs_of_seeds"]["all"] == 2
    assert [row["setting"] for row in found["ranking"]] == ["climbing", "flat"]
    assert found["components"] == [{"component": "gate", **_gates(found)}]
    assert len(found["prompts"]) == 1


def _gates(found: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    gates = {"climbing": "one_side", "flat": "none"}
    return {f"{row['setting']}, {row['schedule']}": gates[row["setting"]] for row in found["ranking"]}


def test_another_metric_is_compared_on_request(ratioscope: Ratioscope, runs: Path) -> None:
    found = json.loads(ratioscope("compare", runs, "--metric", "clip_fraction", "--json").succeeded())
    assert found["metric"] == "clip_fraction"
    said = ratioscope("compare", runs, "--metric", "clip_fraction").succeeded()
    assert said.startswith(("Best: ", "Highest: "))
    assert "Clip fraction at the end (mean of 2 values, steps 4–5), best first.\n" in said


def test_what_cannot_be_read_in_a_folder_is_left_out_and_named(ratioscope: Ratioscope, gallery: Path) -> None:
    outcome = ratioscope("compare", gallery, "--json")
    assert json.loads(outcome.succeeded())["ranking"]
    for name in ("torn", "newer", "empty"):
        assert any(name in line and "left out" in line for line in outcome.err.splitlines()), name


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("{runs}", "--metric", "nonsense"), "'nonsense' is not a metric"),
        (("{runs}", "--metric", "eval_acuracy"), "did you mean eval_accuracy"),
        (("{runs}", "--metric", "surrogate"), "surrogate has no series over steps"),
        (("{runs}/flat-seed0", "{runs}/flat-seed1"), "2 runs of 1 setting cannot be compared"),
        (("{runs}/flat-seed0",), "1 run of 1 setting cannot be compared"),
        (("{gallery}/torn",), "cannot be read as JSON"),
        (("{runs}/nowhere",), "there is no such folder"),
        (("{folder}",), "there is no run in this folder"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    ratioscope: Ratioscope, runs: Path, gallery: Path, tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    filled = [argument.format(runs=runs, gallery=gallery, folder=tmp_path) for argument in arguments]
    assert reason in ratioscope("compare", *filled).failed()


def test_a_metric_that_no_run_logs_is_said(ratioscope: Ratioscope, tmp_path: Path) -> None:
    for name in ("a", "b"):
        step = random_step(np.random.default_rng(0)).with_tokens(entropy=None)
        write_run(tmp_path / name, [step], algorithm={"name": name}, seed=0)
    said = ratioscope("compare", tmp_path, "--metric", "entropy").succeeded()
    assert (
        said.startswith("No run has a value of entropy") and "compared by evaluation accuracy." in said.splitlines()[0]
    )
    found = json.loads(ratioscope("compare", tmp_path, "--metric", "entropy", "--json").succeeded())
    assert found["metric"] == "eval_accuracy" and found["instead"] == said.splitlines()[0]
    sentence = ratioscope("compare", tmp_path).succeeded()
    assert "seeds (one each" in sentence and "probability" not in sentence
