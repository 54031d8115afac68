"""A caveat is a type: what notes are, how tables keep them, and that no code decides by how one begins."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.metric import MOST_RELIANCE, doubt
from ratioscope.notes import Kind, Note, cells, from_cells, is_unreliable, joined, note_columns, remark, text_of

UNRELIABLE = Note(Kind.UNRELIABLE, "unreliable: khat_token is 0.80, from 0.70 on its moment cannot be estimated")
FEW = Note(Kind.NOT_ESTIMABLE, "not estimable: only 3 weights")
EQUAL = Note(Kind.NO_TAIL, "not estimable: the largest weights agree to within rounding")
HEAVY = Note(Kind.INFINITE, "infinite: a ratio of 0")
ALL = (UNRELIABLE, FEW, EQUAL, HEAVY, Note(Kind.NOT_LOGGED, "gate is not logged"), remark("one group"), None)

REPOSITORY = Path(__file__).parents[2]
_OPENINGS = "|".join([*map(re.escape, Kind), "no interval", "cannot be trusted"])
BY_TEXT = re.compile(
    rf"""(startswith|removeprefix|contains|match)\(\(?f?["']({_OPENINGS})|["']({_OPENINGS})[ :]*["'] (not )?in (?!\()"""
)


def test_a_note_is_its_text_for_readers_and_its_kind_for_code() -> None:
    assert str(FEW) == f"{FEW}" == text_of(FEW) == "not estimable: only 3 weights" and text_of(None) == ""
    assert [note.reason for note in (FEW, EQUAL, HEAVY)] == [
        "only 3 weights", "the largest weights agree to within rounding", "infinite: a ratio of 0",
    ]  # fmt: skip
    assert [is_unreliable(note) for note in ALL] == [True, *[False] * (len(ALL) - 1)]


def test_tables_keep_kind_and_text_and_no_note_is_empty() -> None:
    frame = pd.DataFrame(note_columns(ALL))
    assert [from_cells(*row) for row in frame[["note_kind", "note"]].itertuples(index=False)] == list(ALL)
    assert cells(None) == {"note_kind": "", "note": ""} and note_columns([]) == {"note_kind": [], "note": []}
    assert (frame["note_kind"] == Kind.UNRELIABLE).tolist() == [is_unreliable(note) for note in ALL]


def test_a_remark_comes_behind_a_note_and_changes_no_kind() -> None:
    assert joined(UNRELIABLE, "of 3 groups") == Note(Kind.UNRELIABLE, f"{UNRELIABLE}; of 3 groups")
    assert joined(UNRELIABLE, "") == UNRELIABLE and joined(None, "") is None
    assert joined(None, "of 3 groups") == Note(Kind.REMARK, "of 3 groups")


def test_a_mean_that_rests_on_its_largest_term_is_in_doubt_and_one_without_an_error_too() -> None:
    assert doubt(0.0) is doubt(MOST_RELIANCE) is None
    found, unknown = doubt(0.72, "ratio of a response"), doubt(np.nan)
    assert is_unreliable(found) and "ratio of a response alone moves it by 0.72 standard errors" in str(found)
    assert is_unreliable(unknown) and "no standard error" in str(unknown)


def test_a_summary_is_asked_for_its_notes() -> None:
    values = pd.DataFrame({"s_k": [0.1, 0.2, np.inf, np.nan]}, index=pd.RangeIndex(4, name="step"))
    notes = {1: {"s_k": UNRELIABLE}, 2: {"s_k": HEAVY}, 9: {"s_k": FEW}}
    summary = StepSummary(values, values, values, notes, pd.DataFrame({"step": [], "bin": [], "tokens": []}))
    assert summary.unreliable("s_k").tolist() == [False, True, False, False]
    assert summary.trusted("s_k").tolist() == [True, False, False, False]
    assert [summary.note(step, "s_k") for step in (0, 1, 99)] == [None, UNRELIABLE, None]
    assert summary.last_note("s_k") == HEAVY  # step 9 is not in the summary
    assert summary.up_to(0, 1).last_note("s_k") == UNRELIABLE and summary.up_to(0, 0).last_note("s_k") is None


@pytest.mark.parametrize(
    ("line", "decides"),
    [
        ('if note.startswith("unreliable"):', True),
        ("if 'not estimable' in reason:", True),
        ('text.removeprefix("not estimable: ")', True),
        ('rows["note"].str.startswith(("infinite", "undefined"))', True),
        ('if note.kind is Kind.UNRELIABLE: "unreliable"', False),
        ('frame["note_kind"] == Kind.UNRELIABLE', False),
    ],
)
def test_the_search_finds_what_decides_by_text(line: str, decides: bool) -> None:
    assert bool(BY_TEXT.search(line)) == decides


def test_no_code_decides_by_how_a_note_begins() -> None:
    sources = [path for room in ("ratioscope", "analysis", "dashboard", "trainer") for path in _sources(room)]
    found = [
        f"{path.relative_to(REPOSITORY)}:{number}: {line.strip()}"
        for path in sources
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if BY_TEXT.search(line)
    ]
    assert len(sources) > 200 and not found, found


def _sources(room: str) -> list[Path]:
    return sorted((REPOSITORY / room).rglob("*.py"))
