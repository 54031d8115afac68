"""`ratioscope check`: what it prints, and the exit code that a pipeline can stop at."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.linter import CHECKS, lint, remarks_json
from ratioscope.analysis.runs.store import open_run
from ratioscope.dashboard import cli
from tests.making.commands import Outcome, command
from tests.making.faults import at, clean_steps, damage, every
from tests.making.runs import write_run

Ratioscope = Callable[..., Outcome]


@pytest.fixture
def ratioscope(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ratioscope:
    """ratioscope("check", folder) -> what the console command did."""
    return lambda *arguments: command(monkeypatch, capsys, *arguments)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log without a fault."""
    steps = clean_steps(np.random.default_rng(0), "stale", steps=3, groups=10, longest=4)
    return write_run(tmp_path_factory.mktemp("checked") / "clean", steps)


@pytest.fixture(scope="module")
def faulty(clean: Path) -> Path:
    """The same with NaN in it."""
    return damage(clean, clean.parent / "faulty", "tokens", at(every(100), logp_current=float("nan")))


@pytest.fixture(scope="module")
def noticed(clean: Path) -> Path:
    """The same with legitimate ratios of 0."""
    return damage(clean, clean.parent / "noticed", "tokens", at(every(100), logp_current=-float("inf")))


def test_a_clean_log_ends_with_0_and_names_every_check(ratioscope: Ratioscope, clean: Path) -> None:
    verdict, _, *lines = ratioscope("check", clean).succeeded().splitlines()
    assert verdict.startswith("No check found a problem in this log.")
    assert {re.split(r"\s{2,}|:", line)[1].strip() for line in lines} == set(CHECKS)
    assert all(line.startswith(("passed ", "not checked ")) for line in lines)


def test_a_problem_ends_with_1_and_comes_first_with_what_to_do(ratioscope: Ratioscope, faulty: Path) -> None:
    outcome = ratioscope("check", faulty)
    assert outcome.code == cli.PROBLEMS_FOUND == 1
    verdict, _, first, second, *_ = outcome.out.splitlines()
    assert verdict.startswith("This log cannot be trusted as it is.")
    assert first.startswith("critical     invalid_values: ")
    assert "find where the forward pass or the writer loses them" in second


def test_a_run_that_learns_nothing_does_not_pass(ratioscope: Ratioscope, clean: Path, tmp_path: Path) -> None:
    outcome = ratioscope("check", damage(clean, tmp_path / "none", "tokens", at(every(1), advantage=0.0)))
    assert outcome.code == 1 and "zero_filled: advantage is exactly 0 in all " in outcome.out


def test_a_notice_is_printed_and_ends_with_0(ratioscope: Ratioscope, noticed: Path) -> None:
    assert ratioscope("check", noticed).succeeded().splitlines()[2].startswith("notice       invalid_values: ")


@pytest.mark.parametrize("name", ["clean", "faulty", "noticed"])
def test_as_json_it_is_what_the_library_returns(
    ratioscope: Ratioscope, request: pytest.FixtureRequest, name: str
) -> None:
    folder = request.getfixturevalue(name)
    outcome = ratioscope("check", folder, "--json")
    printed = json.loads(outcome.out)
    assert printed["run"] == name.replace("faulty", "clean").replace("noticed", "clean")  # a copy keeps its name
    expected = remarks_json(lint(open_run(folder)))
    for one, other in zip(printed["remarks"], expected, strict=True):
        # The order in which threads add up moves the last digits.
        values = [[number.pop("value") for number in remark["numbers"]] for remark in (one, other)]
        intervals = [[number.pop("interval") for number in remark["numbers"]] for remark in (one, other)]
        assert values[0] == pytest.approx(values[1])
        for ours, theirs in zip(*intervals, strict=True):
            assert ours == (None if theirs is None else pytest.approx(theirs))
        assert one == json.loads(json.dumps(other))
    assert outcome.code == (1 if name == "faulty" else 0)


@pytest.mark.parametrize(
    ("name", "severity", "code"),
    [("noticed", "notice", 1), ("noticed", "critical", 0), ("faulty", "critical", 1), ("clean", "notice", 0)],
)
def test_the_exit_code_follows_the_chosen_severity(
    ratioscope: Ratioscope, request: pytest.FixtureRequest, name: str, severity: str, code: int
) -> None:
    assert ratioscope("check", request.getfixturevalue(name), "--fail-on", severity).code == code


@pytest.mark.parametrize(
    ("folder", "reason"),
    [("nowhere", "there is no such folder"), (".", "not a run, it has no run.json")],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    ratioscope: Ratioscope, tmp_path: Path, folder: str, reason: str
) -> None:
    assert reason in ratioscope("check", tmp_path / folder).failed()


def test_a_check_without_a_run_is_a_usage_error(ratioscope: Ratioscope) -> None:
    assert ratioscope("check").code == cli.USAGE_ERROR
