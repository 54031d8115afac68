"""CONTRIBUTING.md to the letter: its rows name what has to be touched, and touching that is enough."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.seams.additions import ADDITIONS

ROOT = Path(__file__).parents[2]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
# Row: what is added, what is written for it, what tests have to be told.
ROWS = {row[0].strip(): row[1:] for row in re.findall(r"^\| (an? [^|]+) \| ([^|]+) \|([^|]*)\|$", CONTRIBUTING, re.M)}
_PATH = re.compile(r"`((?:ratioscope|analysis|dashboard|trainer)/[\w./]*)`")


@pytest.mark.parametrize("added", ADDITIONS)
def test_a_row_names_the_files_that_are_touched_here_and_no_others(added: str) -> None:
    touched = {edit.path for edit in ADDITIONS[added]}
    named = set(_PATH.findall(ROWS[added][0]))
    assert named, added
    for path in touched:
        assert any(path == name or (name.endswith("/") and path.startswith(name)) for name in named), path
    for name in named:
        assert any(path == name or path.startswith(name) for path in touched), name


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a copy of the package with all additions says of a run that it trained."""
    place = tmp_path_factory.mktemp("contributed")
    shutil.copytree(ROOT / "ratioscope", place / "ratioscope")
    for edits in ADDITIONS.values():
        for edit in edits:
            edit.make(place / "ratioscope")
    environment = {
        "PYTHONPATH": os.pathsep.join([str(place), str(ROOT)]),
        "RATIOSCOPE_CACHE": str(place / "cache"),
        "RATIOSCOPE_ROOTS": "",
    }
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tests.seams.program", str(place / "runs" / "trained")],
        env=os.environ | environment, cwd=place, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert Path(said["package"]).is_relative_to(place)
    return said


def test_the_new_algorithm_trains_and_its_gate_is_replayed(found: dict[str, Any]) -> None:
    assert found["own"] == "seam_gate(floor~0.99)*seam_weight"
    assert 0 < max(found["logged"]) < 1 and found["replayed"] == pytest.approx(found["logged"])
    assert found["permitted"] > 0 and found["filtered"] == 0


def test_the_new_gate_filter_and_weight_are_offered_in_their_words(found: dict[str, Any]) -> None:
    pages = found["pages"]
    assert {"seam: a floor", "filter: seam, the oldest tokens"} <= set(pages["gates"])
    assert "seam: the root of the ratio" in pages["weights"]
    assert pages["slider"] == ["$F$ smallest ratio", 0.99]
    assert pages["filtered"] == ["seam_filter", "seam_weight"]
    assert "The applied rule: nothing changes." in pages["sentences"]["clipping"]


def test_the_new_metric_has_values_a_tile_and_a_tooltip(found: dict[str, Any]) -> None:
    assert len(found["metric"]) == 2 and max(found["metric"]) > 0
    assert found["metric, fast"] == pytest.approx(found["metric"], rel=1e-12)
    label, tooltip = found["pages"]["tile"]
    assert label.startswith("Mean size of the new log-ratio") and "Near 0 the new policy is still" in tooltip


def test_the_new_finding_and_check_are_shown_and_reported(found: dict[str, Any]) -> None:
    sentences = found["pages"]["sentences"]
    assert found["findings"]["seam_finding"] == "Updates were made." and "Updates were made." in sentences["overview"]
    assert found["remarks"]["seam_check"] in found["pages"]["checks"]
    assert found["pages"]["evidence"] in found["pages"]["menu"]
    assert "Updates were made." in found["report"]


def test_nothing_calls_the_group_of_the_new_finding_fine(found: dict[str, Any]) -> None:
    said, without_it = found["fine"]
    assert "clip fraction" in without_it and "clip fraction" not in said
    assert without_it not in found["pages"]["sentences"]["overview"]


def test_the_new_page_is_in_the_menu_and_in_the_report(found: dict[str, Any]) -> None:
    assert found["pages"]["menu"]["seam"] == "Seam" and "It holds in 2 steps." in found["pages"]["sentences"]["seam"]
    assert "Does the seam hold?" in found["report"] and "It holds in 2 steps." in found["report"]


def test_the_new_format_is_recognised_imported_and_its_damaged_files_are_sentences(found: dict[str, Any]) -> None:
    imported = found["imported"]
    assert imported["title"] == "seam rollouts"
    assert imported["rows"] == [[step, reward, 0, 3] for step in (1, 2) for reward in (3.0, 1.0, None)]
    assert imported["problems"] == [
        ", line 1: no points and no turns.",
        ", line 1: the file ends within this line.",
        ", line 1: a JSON object is wanted, this is null.",
        ", line 1: the response cannot be read: something in it is of another kind than the format has.",
    ]
