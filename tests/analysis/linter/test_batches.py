"""Batches that are learned from again are named; those that serve several updates, or several epochs, are not."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.linter import Finding
from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter.remarks import asked
from tests.making.runs import plain_step, write_run

RESPONSES, LENGTH, GROUP = 16, 10, 4
N = RESPONSES * LENGTH


def remarks(folder: Path, batches: Sequence[int], *, moves: bool = True) -> list[Finding]:
    """What is said of a run whose steps have these batches.

    Args:
        moves: whether each step has a current policy of its own.
    """
    steps = []
    for number, batch in enumerate(batches):
        rng = np.random.default_rng([batch, 5])
        behavior = -rng.exponential(1.5, N) - 0.05
        token = rng.integers(0, 500, N).astype(np.int32)
        now = np.random.default_rng(number if moves else batch)
        current = np.minimum(behavior + 0.02 * now.standard_normal(N), -1e-3)
        sequence = np.arange(N) // LENGTH
        steps.append(
            plain_step(behavior, current, number=number, sequence=sequence, group=sequence // GROUP, token_id=token)
        )
    return asked(open_run(write_run(folder, steps)), "selection")


def test_batches_that_are_taken_again_are_named(tmp_path: Path) -> None:
    (found,) = remarks(tmp_path / "run", [*range(12), 9, 10, 11, *range(12, 18)])
    assert found.of_cause == "batches_again" and "steps 12–14 are those of 9–11" in found.sentence, found.sentence


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param(range(20), id="each once"),
        pytest.param([batch for batch in range(10) for _ in range(2)], id="two updates each"),
        pytest.param([3 * batch + part for batch in range(4) for _ in range(2) for part in range(3)], id="two passes"),
        pytest.param([*range(16), *range(3)], id="another epoch"),
    ],
)
def test_a_schedule_that_uses_batches_again_is_not_named(tmp_path: Path, batches: Sequence[int]) -> None:
    assert not any(each.of_cause for each in remarks(tmp_path / "run", batches))


def test_batches_that_were_logged_twice_are_not_learned_from_twice(tmp_path: Path) -> None:
    found = remarks(tmp_path / "run", [*range(12), 9, 10, 11, *range(12, 18)], moves=False)
    assert not any(each.of_cause for each in found)
