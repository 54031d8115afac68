"""The tour of docs/training.md: every command runs, and prints what its sentence quotes."""

import re
import shlex
from pathlib import Path

import pytest

from tests.making import docs
from tests.making.commands import command

_TEXT = (docs.FOLDER / "training.md").read_text(encoding="utf-8")
TOUR = _TEXT.partition("\n## A tour\n")[2].partition("\n## ")[0]
STEPS = re.findall(r"^\d+\. `ratioscope ([^`]+)`(.+)$", TOUR, flags=re.MULTILINE)


@pytest.mark.timeout(1_800)  # it trains four runs
def test_every_command_of_the_tour_prints_what_is_said_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(STEPS) == len(re.findall(r"^\d+\. ", TOUR, flags=re.MULTILINE)) >= 9
    missing = []
    for words, told in STEPS:
        said = " ".join(command(monkeypatch, capsys, *shlex.split(words)).succeeded().split())
        quoted = re.findall(r"`([^`]+)`", told)
        assert quoted, words
        missing += [f"{words}: {text!r} is not in {said[:600]!r}" for text in quoted if text not in said]
    assert missing == []
