"""The Report page: makes what the command line makes, says what it leaves out, and never interprets a log's text."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from ratioscope import RunRecorder
from ratioscope.dashboard.report import chromium
from ratioscope.dashboard.sections import ON_REQUEST, SECTIONS, SHORT
from tests.dashboard.test_hostile_text import FOLDER, HOSTILE, MARK
from tests.making.commands import command
from tests.making.pages import checked, elements, sentences, visit
from tests.making.runs import random_step, write_run

Look = Callable[..., AppTest]


def _make(at: AppTest) -> AppTest:
    (button,) = [button for button in at.button if button.label == "Make the report"]
    return checked(button.click().run(), "report")


def _group(at: AppTest, key: str) -> Any:
    (group,) = [group for group in at.button_group if group.key == key]
    return group


def _made(at: AppTest) -> bytes:
    """The file that is on offer."""
    assert [element for element in elements(at) if element.type == "download_button"]
    contents = at.session_state["ratioscope"].report.contents
    assert isinstance(contents, bytes)
    return contents


@pytest.mark.parametrize("runs", [["finished"], ["finished", "lean"]])
def test_the_file_is_that_of_the_command_that_is_shown(
    gallery: Path, look: Look, runs: list[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    look("report")
    chosen = {"reportpages" if len(runs) == 1 else "reportpagesofeach": ["Learning", "Findings"]}
    at = _make(visit("report", run=runs, **chosen, **{"from": "2", "to": "5"}))
    assert "the run has gone on" not in sentences(at).lower()
    program, verb, *words = shlex.split(at.code[0].value)
    assert (program, verb) == ("ratioscope", "report")
    assert words[words.index("--pages") + 1] == "findings,learning"
    monkeypatch.chdir(tmp_path)
    command(monkeypatch, capsys, verb, *words).succeeded()
    assert (tmp_path / words[words.index("-o") + 1]).read_bytes() == _made(at)


def test_a_page_that_is_left_out_in_the_address_is_not_in_the_report(look: Look) -> None:
    look("report")
    at = visit("report", run="finished")
    assert _group(at, "reportpages").value in (list(SHORT), ["findings"])
    (full,) = [button for button in at.button if button.label == "Full form"]
    at = checked(full.click().run(), "report")
    assert {*SECTIONS} - {*_group(at, "reportpages").value} == {"overview", *ON_REQUEST}
    assert at.code[0].value.endswith("--full")
    at = visit("report", run="finished", reportpages="What was run")
    assert _group(at, "reportpages").value == ["setting"]
    text = _made(_make(at)).decode()
    assert 'id="setting"' in text
    assert 'id="findings"' not in text
    at = checked(_group(at, "reportpages").set_value([]).run(), "report")
    assert "Choose at least one page." in sentences(at)
    assert "Make the report" not in [button.label for button in at.button]


def test_without_chromium_only_what_can_be_written_is_offered(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    look("report")
    monkeypatch.setattr(chromium.shutil, "which", lambda name: None)
    at = visit("report", run="finished", format="PDF")
    assert [option.content for option in _group(at, "format").proto.options] == ["HTML", "JSON"]
    assert "PDF and Markdown need Chromium or Chrome on this machine" in sentences(at)


def test_what_cannot_be_reported_is_said(gallery: Path, look: Look) -> None:
    at = look("report", "torn", "empty", "broken")
    said = sentences(at)
    assert "A run was left out." in said
    assert "run.json" in said
    assert "empty: left out, no step is on disk." in said
    assert "A file of a run was left out." in said
    assert shlex.split(at.code[0].value)[2:4] == [str(gallery / "broken"), "-o"]
    assert "Choose the runs to report." in sentences(look("report"))


def test_a_report_of_before_says_that_the_run_has_gone_on(live: RunRecorder) -> None:
    at = _make(visit("report", run="live-run", reportpages="Learning"))
    assert "The run has gone on" not in sentences(at)
    step = random_step(np.random.default_rng(1), 5)
    live.record_step(5, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
    live.flush()
    assert "The run has gone on since then" in sentences(at.run())
    assert "The run has gone on" not in sentences(_make(at))


def test_text_of_a_log_is_never_interpreted(root: Path) -> None:
    rng = np.random.default_rng(1)
    steps = [random_step(rng), random_step(rng, 1)]
    write_run(root / FOLDER, steps, name=HOSTILE, algorithm={"name": HOSTILE}, tags=[HOSTILE])
    at = _make(visit("report", run=FOLDER, reportpages=["What was run", "Findings"]))
    assert MARK in sentences(at)
    for element in [*at.markdown, *at.caption]:
        assert not set("<[$") & set(re.sub(r"\\.", "", element.value)), element.value
    words = shlex.split(at.code[0].value)
    assert re.fullmatch(r"[A-Za-z0-9._-]+-report\.html", words[words.index("-o") + 1])
    assert b"<img src=x" not in _made(at)
