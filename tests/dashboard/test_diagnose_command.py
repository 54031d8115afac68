"""`ratioscope diagnose`: what it prints, its exit codes, and thresholds from a file."""

import json
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from ratioscope.analysis.diagnosis.why import speaking
from ratioscope.analysis.findings.cause import CAUSES
from ratioscope.analysis.findings.mark import Presence
from ratioscope.dashboard import terminal
from ratioscope.dashboard.cli import PROBLEMS_FOUND
from tests.making.commands import Outcome, command
from tests.making.runs import stale_step, write_run

Ratioscope = Callable[..., Outcome]


@pytest.fixture
def ratioscope(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ratioscope:
    """ratioscope("diagnose", folder) -> what the console command did."""
    return lambda *arguments: command(monkeypatch, capsys, *arguments)


def run_with(folder: Path, staleness: float) -> Path:
    """Four steps with S_k = `staleness`, above its limit from 0.2 on, and above twice that from 0.4 on."""
    return write_run(folder, [stale_step(step, staleness) for step in range(4)])


@pytest.fixture(scope="module")
def stale(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_with(tmp_path_factory.mktemp("runs") / "stale", 0.25)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_with(tmp_path_factory.mktemp("runs") / "fresh", 0.02)


def test_findings_are_printed_with_cause_and_remedy(ratioscope: Ratioscope, stale: Path) -> None:
    learning, off_policy, log, empty, sentence, why, do = ratioscope("diagnose", stale).succeeded().splitlines()[:7]
    assert [line.split()[1] for line in (learning, off_policy, log)] == ["Learning", "Off-policy", "Log"] and not empty
    assert "High staleness in 4 of 4 steps" in off_policy or "in the median step" in off_policy
    assert sentence.startswith("warning   Staleness is above its limit of 0.2 in 4 of 4 steps")
    assert why.strip().startswith("Why: ") and do.strip().startswith("Do: ")


def test_why_prints_the_causes_against_their_signs(ratioscope: Ratioscope, stale: Path) -> None:
    text = ratioscope("diagnose", stale, "--why").succeeded()
    tables = json.loads(ratioscope("diagnose", stale, "--why", "--json").succeeded())["why"]
    assert "why" not in json.loads(ratioscope("diagnose", stale, "--json").succeeded())
    for family in tables:
        assert f"Causes: {family['family']}" in text
        named = [cause for cause in CAUSES.values() if cause.family.value == family["family"]]
        assert {cause["cause"] for cause in family["causes"]} == {cause.name for cause in named}
        for cause in family["causes"]:
            assert {mark["presence"] for mark in cause["marks"]} <= {presence.value for presence in Presence}
            assert (cause["words"] in text) is bool(speaking([cause]))
    assert re.search(r"No sign of \d+ (other )?cause", text)


def test_a_run_without_findings_says_so(ratioscope: Ratioscope, fresh: Path) -> None:
    said = ratioscope("diagnose", fresh, "--fail-on", "notice").succeeded()
    assert "\n\nNo problem found in 4 steps." in said


@pytest.mark.parametrize(("severity", "code"), [("notice", 1), ("warning", 1), ("critical", 0)])
def test_the_exit_code_follows_the_chosen_severity(
    ratioscope: Ratioscope, stale: Path, severity: str, code: int
) -> None:
    assert PROBLEMS_FOUND == 1
    outcome = ratioscope("diagnose", stale, "--fail-on", severity)
    assert outcome.code == code and "Staleness" in outcome.out
    assert ratioscope("diagnose", stale).code == 0


def test_as_json_undefined_is_null(ratioscope: Ratioscope, stale: Path) -> None:
    outcome = ratioscope("diagnose", stale, "--json", "--fail-on", "warning")
    assert outcome.code == 1
    contents = json.loads(outcome.out)
    assert contents["run"] == "stale" and contents["thresholds"]["epsilon"] == 0.2
    finding = contents["findings"][0]
    assert (finding["rule"], finding["severity"], finding["steps"]) == ("staleness_high", "warning", [0, 1, 2, 3])
    worst = finding["numbers"][0]
    assert worst["value"] == pytest.approx(0.25, abs=1e-6)
    assert worst["interval"][0] <= worst["value"] <= worst["interval"][1]
    assert set(finding) == {
        *("rule", "severity", "sentence", "metric", "limit", "steps", "numbers", "why", "do", "sure", "source", "page"),
        *("cause", "place"),
    }


def test_thresholds_come_from_the_option_or_from_beside_the_run(
    ratioscope: Ratioscope, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_with(tmp_path / "project" / "runs" / "stale", 0.25)
    loose = tmp_path / "loose.toml"
    loose.write_text("[thresholds]\nepsilon_stale = 0.9\n", encoding="utf-8")
    assert ratioscope("diagnose", run, "--fail-on", "warning").code == 1
    assert ratioscope("diagnose", run, "--fail-on", "warning", "--thresholds", loose).code == 0
    loose.rename(tmp_path / "project" / "ratioscope.toml")
    assert ratioscope("diagnose", run, "--fail-on", "warning").code == 0
    monkeypatch.chdir(tmp_path / "project")
    assert ratioscope("diagnose", "runs/stale", "--fail-on", "warning").code == 0


@pytest.mark.parametrize("name", ["diagnose", "check", "watch"])
def test_limits_that_a_run_brings_itself_are_named_and_may_be_refused(
    ratioscope: Ratioscope, tmp_path: Path, name: str
) -> None:
    run = run_with(tmp_path / "stale", 0.25)
    quiet = ratioscope(name, run)
    (run / "ratioscope.toml").write_text("[thresholds]\nepsilon_stale = 0.9\n", encoding="utf-8")
    said = f"{run}/ratioscope.toml, in the run's own folder, sets epsilon_stale 0.9 instead of 0.4."
    loose = ratioscope(name, run)
    assert said in loose.out + loose.err and said not in quiet.out + quiet.err
    assert "may not bring its own limits here" in ratioscope(name, run, "--refuse-run-limits").failed()
    mine = tmp_path / "mine.toml"
    (run / "ratioscope.toml").rename(mine)
    named = ratioscope(name, run, "--refuse-run-limits", "--thresholds", mine)
    assert named.code in (0, 1) and "The limits are not the defaults" not in named.out + named.err
    if name != "watch":
        (run / "ratioscope.toml").write_text("[thresholds]\nepsilon_stale = 0.9\n", encoding="utf-8")
        assert said in json.loads(ratioscope(name, run, "--json").out)["thresholds_moved"]


def test_mistakes_are_one_sentence(ratioscope: Ratioscope, stale: Path, tmp_path: Path) -> None:
    assert "there is no such folder" in ratioscope("diagnose", tmp_path / "nowhere").failed()
    bad = tmp_path / "bad.toml"
    bad.write_text("[thresholds]\nepsilo = 0.1\n", encoding="utf-8")
    assert "did you mean epsilon" in ratioscope("diagnose", stale, "--thresholds", bad).failed()
    missing = ratioscope("diagnose", stale, "--thresholds", tmp_path / "missing.toml").failed()
    assert missing.rstrip().endswith("missing.toml: there is no such file.")
    assert ratioscope("diagnose", stale, "--fail-on", "never").code == 2


def test_thresholds_are_explained(ratioscope: Ratioscope) -> None:
    text = ratioscope("explain", "thresholds").succeeded()
    assert "epsilon_stale" in text and "S0 5.6" in text and "verl" in text


def test_on_a_terminal_lines_are_wrapped_below_their_words(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "✓ Log         Trusted. 32 of 35 checks ran, none failed.\n\nwarning   "
        + "word " * 40
        + "end.\n          Why: "
        + "so " * 40
    )
    lines = terminal.wrapped(text, 60).split("\n")
    assert all(len(line) <= 60 for line in lines)
    assert " ".join(" ".join(lines).split()) == " ".join(text.split())
    begun = lines.index("")
    assert all(line.startswith(("warning   ", " " * 10)) for line in lines[begun + 1 :])
    assert terminal.wrapped("a-very-long-path/" * 9, 60) == "a-very-long-path/" * 9
    shown = StringIO()
    shown.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdout", shown)
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal.print_wrapped("warning   text\nwarningly text")
    assert shown.getvalue() == "\x1b[33m\x1b[1mwarning\x1b[0m   text\nwarningly text\n"
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.print_wrapped("critical  \x1b[31mtext")
    assert shown.getvalue().endswith("critical  \N{REPLACEMENT CHARACTER}[31mtext\n")
