"""Responses that were held out of their update: no number takes them but the certificate, and none without a reason."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.diagnosis import diagnose
from ratioscope.analysis.drift.certificate import certificate, has_held_out
from ratioscope.analysis.linter import lint
from ratioscope.analysis.runs.relations import may_hold_out, relations
from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.summary.summary import summarise
from tests.making.runs import Step, random_step, with_held_out, write_run

STEPS = 4


def update(number: int) -> Step:
    return random_step(np.random.default_rng(number), number, groups=8)


def unseen(number: int) -> Step:
    """Far from what the update saw: whoever takes these as well has other numbers."""
    return random_step(np.random.default_rng(100 + number), number, groups=5, spread=1.5)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run, Run]:
    """The updates alone, with what was held out of them, and what was held out as if it were the update."""
    folder, numbers = tmp_path_factory.mktemp("runs"), range(STEPS)
    folders = (
        write_run(folder / "plain", map(update, numbers), flush_seconds=0),
        write_run(folder / "both", [with_held_out(update(n), unseen(n)) for n in numbers], flush_seconds=0),
        write_run(folder / "unseen", map(unseen, numbers)),
    )
    plain, both, alone = map(open_run, folders)
    return plain, both, alone


def test_no_number_no_check_and_no_finding_takes_what_was_held_out(runs: tuple[Run, Run, Run]) -> None:
    plain, both, _ = runs
    expected, found = summarise(plain), summarise(both)
    for frame in ("values", "low", "high"):
        pd.testing.assert_frame_equal(getattr(found, frame), getattr(expected, frame), check_exact=True)
    assert [remark.sentence for remark in lint(both)] == [remark.sentence for remark in lint(plain)]
    assert diagnose(found, both) == diagnose(expected, plain)
    for gamma in (0.0, 0.8):
        pd.testing.assert_frame_equal(certificate(both, gamma=gamma).terms, certificate(plain, gamma=gamma).terms)


def test_the_certificate_of_what_was_held_out_is_that_of_a_run_of_nothing_else(runs: tuple[Run, Run, Run]) -> None:
    plain, both, alone = runs
    assert (has_held_out(plain), has_held_out(both), has_held_out(both, 1, 2), has_held_out(both, 9)) == (
        False, True, True, False,
    )  # fmt: skip
    found = certificate(both, gamma=0.8, held_out=True, reward_range=(0, 1))
    expected = certificate(alone, gamma=0.8, reward_range=(0, 1))
    assert found.held_out and not expected.held_out
    pd.testing.assert_frame_equal(found.terms, expected.terms)
    of_two = certificate(both, 1, 2, gamma=0.8, held_out=True)
    assert list(of_two.terms.index) == [1, 2]
    assert of_two.terms["lower_estimate"].all() and (of_two.terms["advantage_bound"] == 1).all()


def test_a_group_or_a_prompt_that_the_update_saw_as_well_is_not_held_out(tmp_path: Path) -> None:
    made = with_held_out(update(0), unseen(0))
    groups = made.sequences["group_id"].copy()
    prompts = groups + 1_000
    first = np.array([why is not None for why in made.sequences["dropped"]]).argmax()
    shared = groups == groups[first]
    for name, columns in (
        ("prompt", {"prompt_id": np.where(shared, prompts[0], prompts)}),
        ("group", {"group_id": np.where(shared, groups[0], groups)}),
    ):
        run = open_run(write_run(tmp_path / name, [replace(made, sequences=made.sequences | columns)]))
        row = certificate(run, gamma=0.5, held_out=True).terms.loc[0]
        assert row["n_groups"] == 4 and row["n_responses"] == 12


def test_whether_there_can_be_some_is_seen_without_reading_them(runs: tuple[Run, Run, Run], tmp_path: Path) -> None:
    plain, both, _ = runs
    assert not any(map(may_hold_out, plain.files["sequences"])) and all(map(may_hold_out, both.files["sequences"]))
    step = update(0)
    for name, reasons, expected in (
        ("early", [None, "excess negative"], False),
        ("around", ["a reason", "outside the version window"], True),
        ("none", [None, None], False),
    ):
        dropped = (reasons * len(step.sequences["seq_id"]))[: len(step.sequences["seq_id"])]
        run = open_run(write_run(tmp_path / name, [replace(step, sequences=step.sequences | {"dropped": dropped})]))
        assert may_hold_out(run.files["sequences"][0]) is expected
        assert not has_held_out(run)
        with relations(run) as connection:
            assert connection.execute("select count(*) from sequence").fetchall() == [(len(dropped),)]
