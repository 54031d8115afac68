"""Null is not logged, NaN is: a scalar that is logged every tenth step, as TRL does, is no run that diverged."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.runs.scalars import flags_of_scalars, unusable
from ratioscope.analysis.runs.store import open_run
from tests.making.runs import random_step, write_run


def written(folder: Path, norms: dict[int, float], apart: bool, n: int = 40) -> Path:
    """A run with these gradient norms; each step in files of its own, which have the column or not, or all in one."""
    rng = np.random.default_rng(0)
    steps = [random_step(rng, number) for number in range(n)]
    for place, one in enumerate(steps):
        logged = {"loss": 0.5, "grad_norm": norms[place]} if place in norms else {}
        steps[place] = replace(one, scalars={"policy_version": place} | logged)
    return write_run(folder, steps, flush_seconds=0 if apart else float("inf"))


@pytest.mark.parametrize(
    ("norms", "bad", "apart"),
    [
        (dict.fromkeys(range(9, 40, 10), 1.0), [], True),
        ({step: 1.0 if step != 19 else np.nan for step in range(9, 40, 10)}, [19], False),
        ({step: 1.0 if step < 20 else np.inf for step in range(9, 40, 10)}, [29, 39], False),
        (dict.fromkeys(range(30), 1.0), list(range(30, 40)), True),  # it was in every step, and has stopped
        ({}, [], False),
    ],
    ids=["every tenth step", "NaN once", "infinite to the end", "stopped", "never"],
)
def test_what_is_not_logged_is_not_missing(
    tmp_path: Path, norms: dict[int, float], bad: list[int], apart: bool
) -> None:
    folder = written(tmp_path / "run", norms, apart)
    flags = flags_of_scalars(open_run(folder), ["grad_norm"])
    found = unusable(flags["grad_norm"]) if "grad_norm" in flags else None
    assert ([] if found is None else found.index[found].tolist()) == bad
    opened = open_folder(folder)
    said = [remark for remark in opened.remarks if remark.rule == "rewards" and "grad_norm" in remark.columns]
    assert [list(remark.steps) for remark in said] == ([bad] if bad else [])
    assert all(("may have diverged" in remark.sentence) == (39 in bad) for remark in said)
    diverged = [finding for finding in opened.findings if finding.rule == "diverged"]
    assert bool(bad) or not diverged
